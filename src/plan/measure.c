/* SPDX-License-Identifier: Apache-2.0
 *
 * measure.c: the crew, its hosts and memory, and the rates of optimizers.
 */
#include "plan/measure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "base/status.h"
#include "doctor/files.h"
#include "plan/measure_calls.h"

#define OPTIM_INPUTS 1024
#define OPTIM_UNITS  2048
#define OPTIM_TURNS  5

tri_plan_crew tri_plan_crew_of(tri_comm *comm, int threads)
{
    int local = comm ? tri_comm_local_count(comm) : 1, cores = tri_cores_online();
    int at_once = cores / threads > 1 ? cores / threads : 1;
    return (tri_plan_crew){.comm = comm,
                           .threads = threads,
                           .computes = !comm || tri_comm_local_rank(comm) < at_once,
                           .crowd = local > at_once ? (double)local / at_once : 1};
}

int tri_plan_crew_count(const tri_plan_crew *crew)
{
    return crew->comm ? tri_group_count(tri_comm_world(crew->comm)) : 1;
}

tri_status tri_plan_crew_agree(const tri_plan_crew *crew, double *figures, int count)
{
    if (tri_plan_crew_count(crew) == 1)
        return TRI_OK;
    return tri_all_reduce(tri_comm_world(crew->comm), figures, figures, count, TRI_F64, TRI_REDUCE_MAX, NULL);
}

tri_status tri_plan_crew_status(const tri_plan_crew *crew, tri_status mine)
{
    double failed = mine != TRI_OK;
    char message[TRI_ERROR_NBYTES];
    snprintf(message, sizeof(message), "%s", tri_last_error());
    TRI_TRY(tri_plan_crew_agree(crew, &failed, 1));
    if (mine != TRI_OK)
        return tri_fail_copy(mine, message);
    return failed > 0 ? tri_fail(TRI_ECANCELED, "plan: another rank could not measure") : TRI_OK;
}

double tri_plan_host_memory(int ranks)
{
    const tri_machine here = {.root = ""};
    double least = INFINITY;
    int64_t nbytes, soft, hard;
    tri_cgroup_limit group;
    if (tri_machine_memory(&here, "MemAvailable", &nbytes))
        least = (double)nbytes;
    if (tri_machine_cgroup(&here, "memory", "memory.max", "memory.limit_in_bytes", &group))
        least = fmin(least, (double)group.value);
    if (tri_machine_limit(&here, "Max address space", &soft, &hard) && soft != TRI_NO_LIMIT)
        least = fmin(least, (double)soft * ranks);
    return least;
}

/* --- optimizers --- */

static tri_status one_layer(tri_model **out)
{
    int64_t inputs = OPTIM_INPUTS, units = OPTIM_UNITS;
    tri_model *model = NULL;
    TRI_TRY(tri_model_create("plan", &model));
    tri_value x = tri_model_input(model, TRI_F32, tri_shape_make(1, &inputs));
    tri_value target = tri_model_target(model, TRI_F32, tri_shape_make(1, &units));
    tri_mse(model, tri_linear(model, x, (tri_linear_options){.units = units}), target);
    tri_status status = tri_model_finish(model);
    if (status == TRI_OK)
        *out = model;
    else
        tri_model_destroy(model);
    return status;
}

static tri_status optim_run(tri_optim *optim, const tri_params *params, float *grads, int threads, double *optim_s,
                            double *norm_s)
{
    double *blocks = tri_alloc_zero((size_t)params->block_count, sizeof(double));
    if (!blocks)
        return TRI_ENOMEM;
    *optim_s = *norm_s = INFINITY;
    for (int turn = 0; turn < OPTIM_TURNS; turn++) {
        tri_optim_scalars figures = {.step = turn, .lr = 1e-3, .grad_scale = 1, .buffer_scale = 1};
        int64_t start_ns = tri_now_ns();
        tri_optim_step(optim, &figures, params->values, grads, 0, params->count);
        int64_t moved_ns = tri_now_ns();
        tri_clip_squares(params, grads, 0, params->count, blocks, threads);
        *norm_s = fmin(*norm_s, (double)(tri_now_ns() - moved_ns) / 1e9 / (double)params->count);
        *optim_s = fmin(*optim_s, (double)(moved_ns - start_ns) / 1e9 / (double)params->count);
    }
    tri_free(blocks);
    return TRI_OK;
}

tri_status tri_plan_optim_measure(const tri_optim_config *config, int threads, double *optim_s, double *norm_s)
{
    tri_model *model = NULL;
    tri_params *params = NULL;
    tri_optim *optim = NULL;
    float *grads = NULL;
    tri_optim_config plain = *config;
    snprintf(plain.groups, sizeof(plain.groups), "[]"); /* names are those of another model */
    tri_status status = one_layer(&model);
    if (status == TRI_OK)
        status = tri_params_create(model, tri_device_host(), 1, &params);
    if (status == TRI_OK)
        status = tri_optim_create(&plain, params, threads, &optim);
    if (status == TRI_OK) {
        grads = tri_alloc_bulk((size_t)tri_params_grad_count(params) * sizeof(float));
        status = grads ? optim_run(optim, params, grads, threads, optim_s, norm_s) : TRI_ENOMEM;
    }
    tri_free(grads);
    tri_optim_destroy(optim);
    tri_params_destroy(params);
    tri_model_destroy(model);
    return status;
}

/* --- hosts --- */

enum { FACT_HOST, FACT_MEMORY, FACT_COUNT };

/* Ranks in order; a host begins where its id differs from the rank's before. */
static tri_status hosts_fill(const tri_plan_crew *crew, double price, const int64_t *facts, tri_plan_cluster *cluster)
{
    int count = tri_plan_crew_count(crew);
    cluster->hosts = tri_arena_alloc(&cluster->arena, (size_t)count, sizeof(tri_plan_host));
    if (!cluster->hosts)
        return TRI_ENOMEM;
    for (int r = 0; r < count; r++) {
        const int64_t *fact = facts + r * FACT_COUNT;
        if (r > 0 && fact[FACT_HOST] == fact[FACT_HOST - FACT_COUNT]) {
            cluster->hosts[cluster->kind_count - 1].workers++;
            continue;
        }
        tri_plan_host *host = &cluster->hosts[cluster->kind_count++];
        *host = (tri_plan_host){.count = 1,
                                .workers = 1,
                                .threads = crew->threads,
                                .speed = 1,
                                .memory_nbytes = fact[FACT_MEMORY] < 0 ? INFINITY : (double)fact[FACT_MEMORY],
                                .price_per_hour = price};
        snprintf(host->name, sizeof(host->name), "host %d", cluster->kind_count);
    }
    cluster->host_count = cluster->kind_count;
    cluster->workers = count;
    return TRI_OK;
}

static tri_status hosts_measure(const tri_plan_crew *crew, double price, tri_plan_cluster *cluster)
{
    char id[TRI_HOST_ID_NBYTES];
    int count = tri_plan_crew_count(crew), local = crew->comm ? tri_comm_local_count(crew->comm) : 1;
    double memory = tri_plan_host_memory(local);
    tri_host_id(id);
    uint64_t host = 0;
    for (const char *at = id; *at; at++)
        host = host * 31 + (unsigned char)*at;
    int64_t mine[FACT_COUNT] = {[FACT_HOST] = (int64_t)host};
    mine[FACT_MEMORY] = isfinite(memory) ? (int64_t)memory : -1;
    int64_t *all = tri_alloc((size_t)count * sizeof(mine));
    if (!all)
        return TRI_ENOMEM;
    memcpy(all, mine, sizeof(mine));
    tri_status status = TRI_OK;
    if (count > 1)
        status = tri_all_gather(tri_comm_world(crew->comm), mine, all, FACT_COUNT, TRI_I64, NULL);
    if (status == TRI_OK)
        status = hosts_fill(crew, price, all, cluster);
    tri_free(all);
    return status;
}

tri_status tri_plan_cluster_measure(const tri_plan_crew *crew, const tri_optim_config *optim, double price,
                                    tri_plan_cluster *cluster)
{
    int local = crew->comm ? tri_comm_local_count(crew->comm) : 1;
    double figures[2] = {0};
    tri_status status = TRI_OK;
    *cluster = (tri_plan_cluster){.crowd = crew->crowd, .hides_network = true};
    cluster->hides_local = tri_cores_online() > local * crew->threads;
    TRI_TRY(hosts_measure(crew, price, cluster));
    if (crew->computes)
        status = tri_plan_optim_measure(optim, crew->threads, &figures[0], &figures[1]);
    TRI_TRY(tri_plan_crew_status(crew, status));
    TRI_TRY(tri_plan_crew_agree(crew, figures, 2));
    cluster->optim_s_per_value = figures[0];
    cluster->norm_s_per_value = figures[1];
    return tri_plan_calls_measure(crew, cluster);
}

tri_status tri_plan_cluster_of_cards(const tri_plan_crew *crew, const tri_plan_card *card, double price,
                                     tri_plan_cluster *cluster)
{
    const int local = crew->comm ? tri_comm_local_count(crew->comm) : 1;
    double least[] = {-card->flops, -card->memory_rate, -card->memory_nbytes, card->workers};
    *cluster = (tri_plan_cluster){.hides_network = true, .cards = true, .copy_rate = TRI_PLAN_COPY_RATE};
    cluster->hides_local = tri_cores_online() > local; /* a worker's thread waits for its card */
    TRI_TRY(hosts_measure(crew, price, cluster));
    TRI_TRY(tri_plan_crew_agree(crew, least, TRI_COUNT_OF(least)));
    cluster->crowd = least[3];
    cluster->host_nbytes = tri_plan_worker_memory(cluster);
    for (int h = 0; h < cluster->kind_count; h++) {
        tri_plan_host *host = &cluster->hosts[h];
        host->gflops = -least[0] / 1e9;
        host->memory_rate = -least[1];
        host->memory_nbytes = -least[2] * host->workers;
    }
    return tri_plan_calls_measure(crew, cluster);
}
