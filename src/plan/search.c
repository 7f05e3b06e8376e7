/* SPDX-License-Identifier: Apache-2.0
 *
 * search.c: goes through all factorings of the workers into data x tensor x pipeline, and through strategies and
 * schedules of each; sorts by time, and chooses.
 *
 * Chosen is the fastest that fits and keeps the promise of bits; among those nearly as fast the plainest, which is the
 * one that was found first.
 */
#include "plan/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "parallel/mesh.h"

#define NEARLY       1.03 /* as fast as the fastest */
#define MEMORY_SHARE 0.9  /* of what a worker has: some is the program's own */
#define CHUNKS       2    /* of a stage, interleaved, where nobody says */

static const tri_pipe_kind schedules[] = {TRI_PIPE_1F1B, TRI_PIPE_GPIPE, TRI_PIPE_INTERLEAVED};

typedef struct search {
    tri_plan_models *models;
    const tri_plan_wish *wish;
    tri_plan_list *plan;
} search;

void tri_plan_list_fini(tri_plan_list *plan)
{
    tri_vector_fini(&plan->rows);
    *plan = (tri_plan_list){0};
}

/* "3.2 GiB". */
static const char *print_nbytes(double nbytes, char text[32])
{
    const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;
    for (nbytes /= 1024; nbytes >= 1024 && unit + 1 < TRI_COUNT_OF(units); unit++)
        nbytes /= 1024;
    snprintf(text, 32, "%.*f %s", nbytes < 100 ? 1 : 0, nbytes, units[unit]);
    return text;
}

static tri_status row_add(const search *v, const tri_plan_row *row)
{
    return tri_vector_push(&v->plan->rows, row) ? TRI_OK : TRI_ENOMEM;
}

static void check_memory(const search *v, tri_plan_row *row)
{
    char texts[6][32];
    const tri_plan_cost *cost = &row->cost;
    if (cost->host > v->plan->host_limit)
        snprintf(row->refusal, sizeof(row->refusal), "memory of the host: a worker needs %s there, and has %s",
                 print_nbytes(cost->host, texts[0]), print_nbytes(v->plan->host_limit, texts[1]));
    if (cost->memory <= v->plan->memory_limit)
        return;
    snprintf(row->refusal, sizeof(row->refusal),
             "memory: a worker needs %s (weights %s, gradients %s, optimizer %s, activations %s) and has %s",
             print_nbytes(cost->memory, texts[0]), print_nbytes(cost->weights, texts[1]),
             print_nbytes(cost->gradients, texts[2]), print_nbytes(cost->optimizer, texts[3]),
             print_nbytes(cost->activations, texts[4]), print_nbytes(v->plan->memory_limit, texts[5]));
}

static tri_status row_find(const search *v, const tri_layout *layout, const tri_plan_chunk *chunks)
{
    const tri_plan_setup *setup = v->models->setup;
    tri_plan_row row = {.layout = *layout, .costed = true};
    row.moves_bits = layout->tensor > 1 && setup->tensor_parts == 0;
    tri_plan_job job = setup->job;
    job.tokens = tri_plan_models_tokens(v->models);
    tri_status status = tri_plan_cost_find(&job, v->models->cluster, layout, chunks, &row.cost);
    if (status == TRI_ECONFIG) {
        row.costed = false;
        snprintf(row.refusal, sizeof(row.refusal), "%s", tri_last_error());
    } else {
        TRI_TRY(status);
        check_memory(v, &row);
    }
    return row_add(v, &row);
}

/* One row for all of a mesh that cannot be. */
static tri_status refuse(const search *v, const tri_layout *layout, const char *why)
{
    tri_plan_row row = {.layout = *layout};
    snprintf(row.refusal, sizeof(row.refusal), "%s", why);
    return row_add(v, &row);
}

/* Data ranks that share one copy of the state, as parallel.zero_ranks says. */
static tri_status zero_find(const search *v, const tri_layout *layout, int64_t zero_ranks, int *zero)
{
    tri_parallel_config config;
    tri_mesh mesh = {.data = layout->data, .tensor = layout->tensor, .pipeline = layout->pipeline};
    int workers = v->models->cluster->workers, *host = tri_alloc((size_t)workers * sizeof(int));
    if (!host)
        return TRI_ENOMEM;
    tri_plan_place at = {0};
    for (int r = 0; r < workers; r++)
        host[r] = tri_plan_host_next(v->models->cluster, &at, r);
    tri_options_defaults(&tri_parallel_options, &config);
    config.sync = layout->sync;
    config.zero_ranks = zero_ranks;
    tri_status status = tri_mesh_zero_find(&config, host, &mesh);
    tri_free(host);
    *zero = mesh.zero < mesh.data ? mesh.zero : 0;
    return status;
}

/* With weights that are gathered, all ranks go through them equally often. */
static bool is_uneven(const search *v, const tri_layout *layout)
{
    const tri_plan_job *job = &v->models->setup->job;
    bool pieces = tri_plan_run_shards(job, layout) < tri_plan_shards_of(job, layout->data);
    return layout->sync == TRI_SYNC_ZERO3 && pieces && job->shards % layout->data != 0;
}

/* A strategy that spreads the state: over all who share the batch, and over those of a host; or as it is wanted. */
static tri_status rows_of_zero(const search *v, tri_layout layout, const tri_plan_chunk *chunks)
{
    int64_t wanted = v->wish->zero_ranks;
    if (is_uneven(v, &layout))
        return refuse(v, &layout,
                      "zero3 with pieces of the batch needs a number of data ranks that divides train.shards");
    tri_status status = zero_find(v, &layout, wanted ? wanted : TRI_ZERO_RANKS_HOST, &layout.zero);
    if (status == TRI_ECONFIG && wanted)
        return refuse(v, &layout, tri_last_error());
    if (status != TRI_OK && status != TRI_ECONFIG)
        return status;
    tri_layout all = layout;
    all.zero = 0;
    if (!wanted)
        TRI_TRY(row_find(v, &all, chunks));
    return wanted || (status == TRI_OK && layout.zero > 0) ? row_find(v, &layout, chunks) : TRI_OK;
}

/* All strategies of a mesh that was cut into chunks. */
static tri_status rows_of_chunks(const search *v, tri_layout layout, const tri_plan_chunk *chunks)
{
    bool copies = v->wish->zero_ranks && v->wish->zero_ranks != TRI_ZERO_RANKS_ALL;
    for (tri_sync_kind sync = TRI_SYNC_ALLREDUCE; sync <= TRI_SYNC_ZERO3; sync++) {
        bool pointless = sync == TRI_SYNC_ALLREDUCE ? layout.data > 1 && copies : layout.data == 1;
        if (layout.pipeline > 1 && sync == TRI_SYNC_ZERO2 && !v->wish->sync)
            continue; /* gradients of micro-batches are whole: zero1 by another name */
        if (pointless || (v->wish->sync && *v->wish->sync != sync))
            continue;
        layout.sync = sync;
        TRI_TRY(sync == TRI_SYNC_ALLREDUCE ? row_find(v, &layout, chunks) : rows_of_zero(v, layout, chunks));
    }
    return TRI_OK;
}

/* A mesh in stages of `chunks` chunks, whose micro-batches are as the schedule says. */
static tri_status rows_of_stages(const search *v, tri_layout layout, bool *refused)
{
    tri_plan_chunk *chunks = tri_alloc_zero((size_t)layout.pipeline * (size_t)layout.chunks, sizeof(*chunks));
    if (!chunks)
        return TRI_ENOMEM;
    tri_status status = tri_plan_models_chunks(v->models, &layout, chunks);
    *refused = status == TRI_ECONFIG || status == TRI_EUNSUPPORTED;
    if (*refused) {
        layout.schedule = TRI_PIPE_1F1B;
        status = refuse(v, &layout, tri_last_error());
    } else if (status == TRI_OK)
        status = rows_of_chunks(v, layout, chunks);
    tri_free(chunks);
    return status;
}

/* With all schedules for which that number of chunks is right; what cannot be cut is said once. */
static tri_status rows_of_schedules(const search *v, tri_layout layout)
{
    bool refused = false;
    if (layout.pipeline == 1)
        return rows_of_stages(v, layout, &refused);
    for (size_t i = 0; i < TRI_COUNT_OF(schedules) && !refused; i++) {
        bool interleaved = schedules[i] == TRI_PIPE_INTERLEAVED;
        if (interleaved != (layout.chunks > 1) || (v->wish->schedule && *v->wish->schedule != schedules[i]))
            continue;
        layout.schedule = schedules[i];
        TRI_TRY(rows_of_stages(v, layout, &refused));
    }
    return TRI_OK;
}

static tri_status rows_of_mesh(const search *v, tri_layout layout)
{
    const tri_plan_job *job = &v->models->setup->job;
    char why[300];
    if (layout.data > job->shards) {
        snprintf(why, sizeof(why), "data %d: want at least one shard per worker, train.shards is %lld", layout.data,
                 (long long)job->shards);
        return refuse(v, &layout, why);
    }
    if (layout.pipeline == 1 || v->wish->chunks <= 1)
        TRI_TRY(rows_of_schedules(v, layout));
    bool wanted = !v->wish->schedule || *v->wish->schedule == TRI_PIPE_INTERLEAVED;
    if (layout.pipeline == 1 || !wanted || v->wish->chunks == 1)
        return TRI_OK;
    layout.chunks = v->wish->chunks > 1 ? v->wish->chunks : CHUNKS;
    layout.schedule = TRI_PIPE_INTERLEAVED;
    return rows_of_schedules(v, layout);
}

/* --- order and choice --- */

static int by_time(const void *a, const void *b)
{
    const tri_plan_row *x = a, *y = b;
    bool x_can = !x->refusal[0], y_can = !y->refusal[0];
    if (x_can != y_can)
        return x_can ? -1 : 1;
    if (!x_can && x->costed != y->costed)
        return x->costed ? -1 : 1;
    double first = x_can ? x->cost.step_s : x->cost.memory, second = y_can ? y->cost.step_s : y->cost.memory;
    return (first > second) - (first < second);
}

/* Of the rows before they are sorted; -1: none may be taken. */
static int choose(const tri_plan_list *plan, bool any_bits)
{
    const tri_plan_row *rows = plan->rows.items;
    double best = INFINITY;
    for (size_t i = 0; i < plan->rows.count; i++)
        if (!rows[i].refusal[0] && (any_bits || !rows[i].moves_bits))
            best = fmin(best, rows[i].cost.step_s);
    for (size_t i = 0; i < plan->rows.count; i++)
        if (!rows[i].refusal[0] && (any_bits || !rows[i].moves_bits) && rows[i].cost.step_s <= best * NEARLY)
            return (int)i;
    return -1;
}

static void explain(tri_plan_list *plan, bool any_bits)
{
    const tri_plan_row *rows = plan->rows.items;
    const tri_plan_row *chosen = &rows[plan->chosen], *first = &rows[0];
    char text[96];
    int at = 0;
    const size_t room = sizeof(plan->why);
    if (plan->feasible == 1)
        at = snprintf(plan->why, room, "the only one that can be");
    else if (plan->chosen == 0)
        at = snprintf(plan->why, room, "the fastest of %d that can be", plan->feasible);
    else if (first->moves_bits && !any_bits)
        at = snprintf(plan->why, room,
                      "the fastest of those whose weights do not depend on the layout; for '%s', %.0f %% faster, fix "
                      "the arithmetic by parallel.tensor_parts=%d",
                      tri_layout_print(&first->layout, text), 100 * (chosen->cost.step_s / first->cost.step_s - 1),
                      first->layout.tensor);
    else
        at = snprintf(plan->why, room, "within %.0f %% of the fastest, '%s', and plainer", 100 * (NEARLY - 1),
                      tri_layout_print(&first->layout, text));
    if (any_bits && chosen->moves_bits && at > 0 && (size_t)at < room)
        snprintf(plan->why + at, room - (size_t)at,
                 "; nothing without tensor ranks can be, and the weights depend on their number unless "
                 "parallel.tensor_parts is set");
}

static tri_status sort_and_choose(tri_plan_list *plan)
{
    tri_plan_row *rows = plan->rows.items;
    int at = choose(plan, false);
    bool any_bits = at < 0;
    if (any_bits)
        at = choose(plan, true);
    tri_layout taken = at >= 0 ? rows[at].layout : (tri_layout){0};
    for (size_t i = 0; i < plan->rows.count; i++)
        plan->feasible += !rows[i].refusal[0];
    if (plan->rows.count > 0)
        qsort(rows, plan->rows.count, sizeof(*rows), by_time);
    plan->chosen = -1;
    for (int i = 0; i < plan->feasible && at >= 0; i++)
        if (memcmp(&rows[i].layout, &taken, sizeof(taken)) == 0)
            plan->chosen = i;
    if (plan->chosen >= 0)
        explain(plan, any_bits);
    else
        snprintf(plan->why, sizeof(plan->why), "no layout can be%s",
                 plan->rows.count == 0 ? ": the sizes that are given do not divide the number of workers" : "");
    return TRI_OK;
}

tri_status tri_plan_list_make(tri_plan_models *models, const tri_plan_wish *wish, tri_plan_list *plan)
{
    int workers = models->cluster->workers;
    *plan = (tri_plan_list){.rows = {.each = sizeof(tri_plan_row)}, .chosen = -1};
    plan->memory_limit = MEMORY_SHARE * tri_plan_worker_memory(models->cluster);
    plan->host_limit = models->cluster->cards ? MEMORY_SHARE * models->cluster->host_nbytes : INFINITY;
    search v = {models, wish, plan};
    for (int pipeline = 1; pipeline <= workers; pipeline++) {
        if (workers % pipeline != 0 || (wish->pipeline && wish->pipeline != pipeline))
            continue;
        for (int tensor = 1; tensor <= workers / pipeline; tensor++) {
            int data = workers / pipeline / tensor;
            if (workers / pipeline % tensor != 0 || (wish->tensor && wish->tensor != tensor) ||
                (wish->data && wish->data != data))
                continue;
            tri_layout layout;
            memset(&layout, 0, sizeof(layout));
            layout.data = data;
            layout.tensor = tensor;
            layout.pipeline = pipeline;
            layout.chunks = 1;
            layout.schedule = TRI_PIPE_1F1B;
            TRI_TRY(rows_of_mesh(&v, layout));
        }
    }
    return sort_and_choose(plan);
}
