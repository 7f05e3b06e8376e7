/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.c: `trireme bench`: what the ranks of a job reach: collectives, and launch to first barrier. With -n it starts
 * the ranks with its own words, without it it is one of them.
 */
#include "cli/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/runtime.h"
#include "base/stop.h"
#include "cli/command.h"
#include "cli/worker.h"

#define JOIN_S 60

static bench_flags given;
static const tri_flag flags[] = {
    {"-n", "N", "start N ranks on this machine; without it: join the job that started this process", &given.ranks},
    {"--hosts", "FILE",
     "start the ranks by ssh: one '[user@]host [slots=N] [port=N]' per line; slurm: by srun on the nodes of this job",
     &given.hosts},
    {"--sizes", "LIST", "bytes of the whole data: 4,1k,64k, ranges that double 1k-64M, by another factor 1k-64M:x4",
     &given.sizes},
    {"--dtype", "LIST", "element types (default f32)", &given.dtype},
    {"--reduce", "LIST", "sum, average, min, max, product, premul_sum (default sum)", &given.reduce},
    {"--transport", "NAME", "shm, tcp or ucx (default: auto)", &given.transport},
    {"--engine", "NAME", "host or mpi (default: host); mpi adds floats in an order of its own", &given.engine},
    {"--algorithm", "TEXT", "overrides the choice, as comm.algorithm does: all_reduce:0-64k=tree,64k-=halving",
     &given.algorithm},
    {"--order", "NAME", "canonical (the default) or any: order of additions", &given.order},
    {"--memory", "KIND", "group (tri_group_alloc, the default) or ordinary", &given.memory},
    {"--in-place", NULL, "input and result in one buffer (default for all_reduce and reduce)", &given.in_place},
    {"--out-of-place", NULL, "input and result in two buffers", &given.out_of_place},
    {"--rewrite", NULL,
     "time one operation at a time, its input written just before (default from 16k on; below: batches)",
     &given.rewrite},
    {"--seconds", "S", "time for each line of results (default 0.5)", &given.seconds},
    {"--iterations", "N", "samples for each line, instead of --seconds", &given.iterations},
    {"--explain", NULL, "print the price of each algorithm", &given.explain},
    {"--json", NULL, "one object a line", &given.json},
    {"--started-ns", "NS", "start: when the launch began (set by the launcher itself)", &given.started_ns},
};

static tri_status bench_start(tri_comm *comm, const bench_config *config)
{
    tri_group *world = tri_comm_world(comm);
    TRI_TRY(tri_barrier(world, NULL));
    if (tri_group_rank(world) != 0)
        return TRI_OK;
    int64_t started_ns = given.started_ns ? strtoll(given.started_ns, NULL, 10) : tri_now_ns();
    return bench_print_start(tri_group_count(world), (double)(tri_now_ns() - started_ns) / 1e3, config->json);
}

static tri_status bench_line(const bench_case *c, const bench_config *config)
{
    bench_result result;
    tri_status status = bench_measure(c, config, &result);
    if (status == TRI_OK && c->rank == 0)
        status = bench_print_result(c, config, &result);
    tri_string_fini(&result.prices);
    return status;
}

static tri_status bench_sizes(bench_case *c, const bench_config *config)
{
    int64_t each = (int64_t)tri_dtype_nbytes(c->dtype);
    for (int i = 0; i < config->size_count; i++) {
        bench_case_size(c, c->op->op == TRI_COMM_BARRIER ? 0 : config->sizes[i] / each);
        TRI_TRY(bench_line(c, config));
        if (c->op->op == TRI_COMM_BARRIER)
            break;
    }
    return TRI_OK;
}

static tri_status bench_op_all(tri_comm *comm, const bench_config *config, const bench_op *op)
{
    tri_status status = TRI_OK;
    tri_group *world = tri_comm_world(comm);
    bench_case c = {.op = op,
                    .comm = comm,
                    .group = world,
                    .ranks = tri_group_count(world),
                    .rank = tri_group_rank(world),
                    .in_place = (config->place ? config->place : op->usually) == BENCH_IN_PLACE};
    if (op->op == TRI_COMM_SEND_RECV && c.ranks < 2)
        return tri_fail(TRI_ECONFIG, "send_recv needs at least 2 ranks (-n 2)");
    c.counts = tri_alloc((size_t)c.ranks * sizeof(c.counts[0]));
    if (!c.counts)
        return TRI_ENOMEM;
    for (int d = 0; d < config->dtype_count; d++)
        for (int r = 0; status == TRI_OK && r < (op->reduces ? config->reduce_count : 1); r++) {
            c.dtype = config->dtypes[d];
            c.reduce = config->reduces[r];
            status = bench_sizes(&c, config);
        }
    tri_free(c.counts);
    return status;
}

static tri_status bench_ranks(tri_comm *comm, const bench_config *config)
{
    if (config->start)
        return bench_start(comm, config);
    if (tri_group_rank(tri_comm_world(comm)) == 0 && !config->json)
        bench_print_head();
    for (int i = 0; i < config->op_count; i++)
        TRI_TRY(bench_op_all(comm, config, config->ops[i]));
    return TRI_OK;
}

static tri_status join_and_run(const bench_config *config, const tri_comm_config *comm_config,
                               const tri_net_config *net)
{
    tri_comm *comm = NULL;
    TRI_TRY(tri_worker_join(comm_config, net, JOIN_S, &comm));
    tri_status status = tri_stop_at_once_begin("before the measurements were done");
    if (status == TRI_OK)
        status = bench_ranks(comm, config);
    tri_stop_at_once_end();
    return tri_worker_leave(comm, status);
}

/* The same words again (NAMES, then options of comm), without those that are for the launcher. */
static tri_status launch_ranks(char **words, int word_count, tri_launch_result *result)
{
    char started[32];
    int64_t ranks;
    snprintf(started, sizeof(started), "%lld", (long long)tri_now_ns());
    if (given.ranks)
        TRI_TRY(tri_flag_int("-n", given.ranks, 1, 65536, &ranks));
    else
        TRI_TRY(tri_launch_hosts_share(given.hosts, 0, &ranks));
    char **argv = tri_alloc_zero(2 * TRI_COUNT_OF(flags) + (size_t)word_count + 3, sizeof(*argv));
    int count = 2;
    if (!argv)
        return TRI_ENOMEM;
    argv[1] = "bench";
    for (int i = 0; i < word_count; i++)
        argv[count++] = words[i];
    given.started_ns = started;
    for (size_t i = 0; i < TRI_COUNT_OF(flags); i++) {
        if (!*flags[i].value || flags[i].value == &given.ranks || flags[i].value == &given.hosts)
            continue;
        argv[count++] = (char *)flags[i].name;
        if (flags[i].argument)
            argv[count++] = (char *)*flags[i].value;
    }
    tri_status status = tri_worker_launch((tri_worker_roles){.workers = ranks}, given.hosts, argv, NULL, result);
    tri_free((void *)argv);
    return status;
}

static int print_names(void)
{
    tri_string names = {0};
    tri_status status = bench_names_append(&names);
    if (status == TRI_OK)
        printf("\nOP: one or a list of %s\n", tri_string_text(&names));
    tri_string_fini(&names);
    return status == TRI_OK ? 0 : tri_command_fail(status);
}

static tri_status fail_count(void)
{
    tri_string names = {0};
    tri_status status = bench_names_append(&names);
    if (status == TRI_OK)
        status = tri_fail(TRI_ECONFIG, "want one operation, or a list with commas, of: %s", tri_string_text(&names));
    tri_string_fini(&names);
    return status;
}

/* In the launcher too: one line from it is better than one from each rank. */
static tri_status comm_configs_read(char **words, int count, tri_comm_config *comm_config, tri_net_config *net)
{
    TRI_TRY(tri_comm_settings_read(NULL, NULL, comm_config, net));
    for (int i = 0; i < count; i++)
        TRI_TRY(tri_comm_setting(words[i], comm_config, net));
    if (given.transport)
        TRI_TRY(tri_options_set(&tri_net_options, net, "transport", given.transport));
    if (given.engine)
        TRI_TRY(tri_options_set(&tri_comm_options, comm_config, "engine", given.engine));
    if (given.engine && strcmp(given.engine, "mpi") == 0)
        TRI_TRY(tri_options_set(&tri_comm_options, comm_config, "order", "any"));
    if (given.order)
        TRI_TRY(tri_options_set(&tri_comm_options, comm_config, "order", given.order));
    if (given.algorithm)
        TRI_TRY(tri_options_set(&tri_comm_options, comm_config, "algorithm", given.algorithm));
    return TRI_OK;
}

int cmd_bench(int argc, char **argv)
{
    int count;
    bench_config config;
    tri_comm_config comm_config;
    tri_net_config net;
    tri_launch_result result = {0};
    tri_status status = tri_flags_parse(tri_command_of(cmd_bench), flags, TRI_COUNT_OF(flags), argc, argv, &count);
    if (status == TRI_ECANCELED)
        return print_names();
    if (status == TRI_OK && count < 1)
        status = fail_count();
    if (status == TRI_OK)
        status = bench_config_read(&given, argv[0], &config);
    if (status == TRI_OK)
        status = comm_configs_read(argv + 1, count - 1, &comm_config, &net);
    tri_stop_catch();
    if (status == TRI_OK && (given.ranks || given.hosts))
        status = launch_ranks(argv, count, &result);
    else if (status == TRI_OK)
        status = join_and_run(&config, &comm_config, &net);
    return status == TRI_OK ? result.exit_code : tri_command_fail(status);
}
