/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.c: `trireme bench`: what the ranks of a job reach: collectives, and launch to first barrier.
 *
 * Medians over timed calls, each as long as on the rank where it took longest; every result is checked in the run that
 * is timed. Bus bandwidth as nccl-tests defines it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/runtime.h"
#include "cli/command.h"
#include "cli/worker.h"
#include "tensor/reduce.h"

typedef struct bench_flags {
    const char *ranks, *sizes, *dtype, *transport, *explain, *json, *started_ns;
} bench_flags;

static bench_flags given;
#define SETTINGS_MAX 16
static const char *settings[SETTINGS_MAX + 1]; /* "comm.encrypt=on", NULL at the end */
static const tri_flag flags[] = {
    {"-n", "N", "start N ranks on this machine; without it: join the job that started this process", &given.ranks},
    {"--sizes", "LIST", "bytes of the data, such as 4,1k,64k,1M,64M (k, M: powers of 1024)", &given.sizes},
    {"--dtype", "TYPE", "element type (default f32)", &given.dtype},
    {"--transport", "NAME", "shm or tcp (default: auto)", &given.transport},
    {"--explain", NULL, "print the price of each algorithm", &given.explain},
    {"--json", NULL, "one object a line", &given.json},
    {"--started-ns", "NS", "start: when the launch began (set by the launcher itself)", &given.started_ns},
};

/* One operation under test. `bytes` is the size of the whole data, as users count it: over all ranks for gathers. */
typedef struct bench_op {
    const char *name;
    tri_comm_op op;
    double (*bus_factor)(int ranks); /* bus bandwidth = factor * bytes / time */
    bool by_rank;                    /* each rank holds count / ranks elements */
} bench_op;

static double factor_one(int ranks)
{
    (void)ranks;
    return 1;
}

static double factor_all_reduce(int ranks)
{
    return 2.0 * (ranks - 1) / ranks;
}

static double factor_gather(int ranks)
{
    return (double)(ranks - 1) / ranks;
}

static const bench_op ops[] = {
    {"all_reduce", TRI_COMM_ALL_REDUCE, factor_all_reduce, false},
    {"broadcast", TRI_COMM_BROADCAST, factor_one, false},
    {"reduce", TRI_COMM_REDUCE, factor_one, false},
    {"all_gather", TRI_COMM_ALL_GATHER, factor_gather, true},
    {"reduce_scatter", TRI_COMM_REDUCE_SCATTER, factor_gather, true},
    {"barrier", TRI_COMM_BARRIER, factor_one, false},
    {"send_recv", TRI_COMM_SEND_RECV, factor_one, false},
};

typedef struct bench_data {
    const bench_op *op;
    tri_group *group;
    tri_dtype dtype;
    int64_t count; /* elements of the whole data */
    void *in, *out;
} bench_data;

static tri_status run_once(const bench_data *data)
{
    int ranks = tri_group_count(data->group), rank = tri_group_rank(data->group);
    int64_t each = data->count / ranks;
    switch (data->op->op) {
    case TRI_COMM_ALL_REDUCE:
        return tri_all_reduce(data->group, data->in, data->count, data->dtype, TRI_REDUCE_SUM, NULL);
    case TRI_COMM_REDUCE:
        return tri_reduce(data->group, data->in, data->count, data->dtype, TRI_REDUCE_SUM, 0, NULL);
    case TRI_COMM_BROADCAST:
        return tri_broadcast(data->group, data->in, data->count, data->dtype, 0, NULL);
    case TRI_COMM_ALL_GATHER:
        return tri_all_gather(data->group, data->in, data->out, each, data->dtype, NULL);
    case TRI_COMM_REDUCE_SCATTER:
        return tri_reduce_scatter(data->group, data->in, data->out, each, data->dtype, TRI_REDUCE_SUM, NULL);
    case TRI_COMM_BARRIER:
        return tri_barrier(data->group, NULL);
    default: /* rank 0 and 1 play ping-pong; the others watch */
        if (rank == 0)
            TRI_TRY(tri_send(data->group, data->in, data->count, data->dtype, 1, NULL));
        if (rank == 1)
            TRI_TRY(tri_receive(data->group, data->in, data->count, data->dtype, 0, NULL));
        if (rank == 1)
            return tri_send(data->group, data->in, data->count, data->dtype, 0, NULL);
        return rank == 0 ? tri_receive(data->group, data->in, data->count, data->dtype, 1, NULL) : TRI_OK;
    }
}

/* Sets all elements to one small whole number, exact in every type. */
static void fill(void *bytes, tri_dtype dtype, int64_t count, float value)
{
    char element[8];
    size_t each = tri_dtype_nbytes(dtype);
    (void)tri_convert(element, dtype, &value, TRI_F32, 1);
    for (int64_t i = 0; i < count; i++)
        memcpy((char *)bytes + (size_t)i * each, element, each);
}

/* Elements that are not what one more call makes of all ones. */
static tri_status count_wrong(const bench_data *data, int64_t *wrong)
{
    int ranks = tri_group_count(data->group);
    size_t each = tri_dtype_nbytes(data->dtype);
    tri_comm_op op = data->op->op;
    bool sums = op == TRI_COMM_ALL_REDUCE || op == TRI_COMM_REDUCE_SCATTER || op == TRI_COMM_REDUCE;
    bool in_place = op != TRI_COMM_ALL_GATHER && op != TRI_COMM_REDUCE_SCATTER;
    bool has_result = op != TRI_COMM_BARRIER && (op != TRI_COMM_REDUCE || tri_group_rank(data->group) == 0);
    *wrong = 0;
    fill(data->in, data->dtype, data->count, 1);
    memset(data->out, 0, (size_t)data->count * each);
    TRI_TRY(run_once(data));
    char expected[8];
    float value = sums ? (float)ranks : 1;
    (void)tri_convert(expected, data->dtype, &value, TRI_F32, 1);
    const char *result = in_place ? data->in : data->out;
    int64_t count = op == TRI_COMM_REDUCE_SCATTER ? data->count / ranks : data->count;
    for (int64_t i = 0; has_result && i < count; i++)
        *wrong += memcmp(result + (size_t)i * each, expected, each) != 0;
    int64_t mine = *wrong;
    TRI_TRY(tri_all_reduce(data->group, &mine, 1, TRI_I64, TRI_REDUCE_SUM, NULL));
    *wrong = mine;
    return TRI_OK;
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct bench_result {
    double median_us, p99_us;
    int64_t wrong;
} bench_result;

#define BENCH_SAMPLES   101
#define BENCH_BUDGET_NS (TRI_NS_PER_S * 2 / 5)
#define BENCH_JOIN_S    60

/* Calls per sample, agreed by all ranks, so that a size takes about the budget. */
static tri_status plan_calls(const bench_data *data, int64_t *calls)
{
    int64_t start_ns = tri_now_ns();
    for (int i = 0; i < 3; i++)
        TRI_TRY(run_once(data));
    int64_t one_ns = (tri_now_ns() - start_ns) / 3 + 1;
    *calls = BENCH_BUDGET_NS / BENCH_SAMPLES / one_ns;
    *calls = *calls < 1 ? 1 : *calls > 1000 ? 1000 : *calls;
    return tri_broadcast(data->group, calls, 1, TRI_I64, 0, NULL);
}

static tri_status measure(const bench_data *data, bench_result *result)
{
    static double times_us[BENCH_SAMPLES];
    int64_t calls, samples = BENCH_SAMPLES;
    TRI_TRY(plan_calls(data, &calls));
    int64_t first_ns = tri_now_ns();
    for (int64_t s = 0; s < samples; s++) {
        if (data->op->op != TRI_COMM_SEND_RECV)
            TRI_TRY(tri_barrier(data->group, NULL));
        int64_t start_ns = tri_now_ns();
        for (int64_t i = 0; i < calls; i++)
            TRI_TRY(run_once(data));
        times_us[s] = (double)(tri_now_ns() - start_ns) / (double)calls / 1e3;
        if (data->op->op == TRI_COMM_SEND_RECV)
            times_us[s] /= 2; /* there and back */
        int64_t enough = s >= 10 && tri_now_ns() - first_ns > 3 * BENCH_BUDGET_NS;
        if (s % 10 == 9) {
            TRI_TRY(tri_broadcast(data->group, &enough, 1, TRI_I64, 0, NULL));
            if (enough)
                samples = s + 1;
        }
    }
    /* A call has ended when it has on all ranks: on a far link each alone waits now twice as long, now not at all. */
    TRI_TRY(tri_all_reduce(data->group, times_us, samples, TRI_F64, TRI_REDUCE_MAX, NULL));
    qsort(times_us, (size_t)samples, sizeof(times_us[0]), compare_times);
    result->median_us = times_us[samples / 2];
    result->p99_us = times_us[samples * 99 / 100];
    return count_wrong(data, &result->wrong);
}

static tri_status print_result(const bench_data *data, const tri_comm *comm, const bench_result *result)
{
    int ranks = tri_group_count(data->group);
    double nbytes = (double)data->count * (double)tri_dtype_nbytes(data->dtype);
    double algbw = nbytes / result->median_us / 1e3;
    const char *algorithm = tri_comm_choice(data->group, data->op->op, (int64_t)nbytes, data->in);
    const char *transport = ranks > 1 ? tri_comm_transport(comm, 1) : "none";
    if (!given.json) {
        printf("%-14s %6d %12.0f %-5s %-9s %-10s %12.2f %12.2f %9.3f %9.3f %6lld\n", data->op->name, ranks, nbytes,
               tri_dtype_name(data->dtype), transport, algorithm, result->median_us, result->p99_us, algbw,
               algbw * data->op->bus_factor(ranks), (long long)result->wrong);
        return TRI_OK;
    }
    tri_string line = {0};
    tri_json json = tri_json_object(&line);
    tri_json_text(&json, "op", data->op->name);
    tri_json_int(&json, "ranks", ranks);
    tri_json_int(&json, "bytes", (int64_t)nbytes);
    tri_json_text(&json, "dtype", tri_dtype_name(data->dtype));
    tri_json_text(&json, "transport", transport);
    tri_json_text(&json, "algorithm", algorithm);
    tri_json_real(&json, "time_us", result->median_us);
    tri_json_real(&json, "p99_us", result->p99_us);
    tri_json_real(&json, "algbw_gbs", algbw);
    tri_json_real(&json, "busbw_gbs", algbw * data->op->bus_factor(ranks));
    tri_json_int(&json, "wrong", result->wrong);
    tri_status status = tri_json_end(&json);
    if (status == TRI_OK)
        puts(tri_string_text(&line));
    tri_string_fini(&line);
    return status;
}

static tri_status bench_bytes(bench_data *data, const tri_comm *comm, int64_t nbytes)
{
    int ranks = tri_group_count(data->group);
    data->count = nbytes / (int64_t)tri_dtype_nbytes(data->dtype);
    if (data->op->by_rank)
        data->count -= data->count % ranks;
    data->count = data->op->op == TRI_COMM_BARRIER ? 0 : data->count;
    tri_status status = tri_group_alloc(data->group, (size_t)nbytes + 64, &data->in);
    if (status == TRI_OK)
        status = tri_group_alloc(data->group, (size_t)nbytes + 64, &data->out);
    bench_result result = {0};
    if (status == TRI_OK)
        status = measure(data, &result);
    if (status == TRI_OK && tri_group_rank(data->group) == 0) {
        tri_string prices = {0};
        if (given.explain && tri_comm_explain(data->group, data->op->op, nbytes, data->in, &prices) == TRI_OK)
            fputs(tri_string_text(&prices), stdout);
        tri_string_fini(&prices);
        status = print_result(data, comm, &result);
        fflush(stdout);
    }
    tri_group_free(data->group, data->in);
    tri_group_free(data->group, data->out);
    data->in = data->out = NULL;
    return status;
}

/* "4,1k,64k,1M": calls back with bytes. */
static tri_status parse_sizes(const char *text, int64_t sizes[64], int *count)
{
    *count = 0;
    while (*text) {
        char *end;
        double value = strtod(text, &end);
        double unit = *end == 'k' || *end == 'K' ? 1 << 10 : *end == 'M' ? 1 << 20 : *end == 'G' ? 1 << 30 : 1;
        if (end != text && unit > 1)
            end++;
        if (end == text || (*end && *end != ',') || !(value * unit >= 0 && value * unit <= 1e11) || *count == 64)
            return tri_fail(TRI_ECONFIG, "--sizes wants a list such as 4,1k,1M (at most 64), found '%s'", text);
        sizes[(*count)++] = (int64_t)(value * unit);
        text = *end ? end + 1 : end;
    }
    return TRI_OK;
}

static tri_status bench_start(tri_comm *comm)
{
    tri_group *world = tri_comm_world(comm);
    TRI_TRY(tri_barrier(world, NULL));
    if (tri_group_rank(world) != 0)
        return TRI_OK;
    int64_t started_ns = given.started_ns ? strtoll(given.started_ns, NULL, 10) : tri_now_ns();
    double us = (double)(tri_now_ns() - started_ns) / 1e3;
    if (given.json)
        printf("{\"op\":\"start\",\"ranks\":%d,\"time_us\":%.1f}\n", tri_group_count(world), us);
    else
        printf("launch to the end of the first barrier, %d ranks: %.1f ms\n", tri_group_count(world), us / 1e3);
    return TRI_OK;
}

static tri_status bench_collective(tri_comm *comm, const bench_op *op)
{
    bench_data data = {.op = op, .group = tri_comm_world(comm), .dtype = TRI_F32};
    int64_t sizes[64];
    int count = 1;
    if (given.dtype && !tri_dtype_find(given.dtype, &data.dtype))
        return tri_fail(TRI_ECONFIG, "--dtype wants f32, f64, bf16, f16, i8, u8, i32 or i64, found '%s'", given.dtype);
    sizes[0] = 0;
    if (op->op != TRI_COMM_BARRIER)
        TRI_TRY(parse_sizes(given.sizes ? given.sizes : "4,1k,64k,1M,64M", sizes, &count));
    if (op->op == TRI_COMM_SEND_RECV && tri_group_count(data.group) < 2)
        return tri_fail(TRI_ECONFIG, "send_recv wants at least 2 ranks (-n 2)");
    if (tri_group_rank(data.group) == 0 && !given.json)
        printf("%-14s %6s %12s %-5s %-9s %-10s %12s %12s %9s %9s %6s\n", "op", "ranks", "bytes", "type", "transport",
               "algorithm", "median us", "p99 us", "alg GB/s", "bus GB/s", "wrong");
    for (int i = 0; i < count; i++)
        TRI_TRY(bench_bytes(&data, comm, sizes[i]));
    return TRI_OK;
}

/* "comm.tcp_connections=4": of how ranks reach each other, or of how they run operations. */
static tri_status setting_apply(const char *text, tri_comm_config *config, tri_net_config *net)
{
    const char *value = strchr(text, '=');
    char field[64];
    if (!value || strncmp(text, "comm.", 5) != 0 || value - text - 5 >= (ptrdiff_t)sizeof(field))
        return tri_fail(TRI_ECONFIG, "want an operation and comm.KEY=VALUE, got '%s'", text);
    snprintf(field, sizeof(field), "%.*s", (int)(value - text - 5), text + 5);
    if (tri_options_find(&tri_comm_options, field))
        return tri_options_set(&tri_comm_options, config, field, value + 1);
    return tri_options_set(&tri_net_options, net, field, value + 1);
}

static tri_status bench_rank(const char *name, const bench_op *op)
{
    tri_comm *comm = NULL;
    tri_comm_config config;
    tri_net_config net;
    tri_options_defaults(&tri_comm_options, &config);
    tri_options_defaults(&tri_net_options, &net);
    if (given.transport)
        TRI_TRY(tri_options_set(&tri_net_options, &net, "transport", given.transport));
    for (int i = 0; settings[i]; i++)
        TRI_TRY(setting_apply(settings[i], &config, &net));
    TRI_TRY(tri_worker_join(&config, &net, BENCH_JOIN_S, &comm));
    return tri_worker_leave(comm, strcmp(name, "start") == 0 ? bench_start(comm) : bench_collective(comm, op));
}

static tri_status launch_ranks(const char *name, tri_launch_result *result)
{
    char started[32];
    int64_t ranks;
    snprintf(started, sizeof(started), "%lld", (long long)tri_now_ns());
    TRI_TRY(tri_flag_int("-n", given.ranks, 1, 65536, &ranks));
    char *argv[24 + SETTINGS_MAX] = {NULL, "bench", (char *)name, "--started-ns", started};
    int count = 5;
    const char *pairs[][2] = {{"--sizes", given.sizes}, {"--dtype", given.dtype}, {"--transport", given.transport}};
    for (size_t i = 0; i < TRI_COUNT_OF(pairs); i++)
        if (pairs[i][1]) {
            argv[count++] = (char *)pairs[i][0];
            argv[count++] = (char *)pairs[i][1];
        }
    if (given.explain)
        argv[count++] = "--explain";
    if (given.json)
        argv[count++] = "--json";
    for (int i = 0; settings[i]; i++)
        argv[count++] = (char *)settings[i];
    return tri_worker_launch(ranks, NULL, argv, NULL, result);
}

static tri_status find_op(const char *name, const bench_op **op)
{
    const char *names[16] = {"start"};
    size_t count = 1;
    for (size_t i = 0; i < TRI_COUNT_OF(ops); i++) {
        names[count++] = ops[i].name;
        if (strcmp(ops[i].name, name) == 0)
            *op = &ops[i];
    }
    if (*op || strcmp(name, "start") == 0)
        return TRI_OK;
    const char *nearest = tri_options_nearest(name, names, count);
    return tri_fail(TRI_ECONFIG, "there is no benchmark '%s'; did you mean '%s'?", name,
                    nearest ? nearest : "all_reduce");
}

int cmd_bench(int argc, char **argv)
{
    int count;
    const bench_op *op = NULL;
    tri_launch_result result = {0};
    tri_status status = tri_flags_parse(&tri_commands[2], flags, TRI_COUNT_OF(flags), argc, argv, &count);
    if (status == TRI_ECANCELED) {
        puts("\nOP: all_reduce broadcast reduce all_gather reduce_scatter barrier send_recv start");
        return 0;
    }
    for (int i = 1; status == TRI_OK && i < count && i <= SETTINGS_MAX; i++)
        settings[i - 1] = argv[i];
    if (status == TRI_OK && (count < 1 || count > 1 + SETTINGS_MAX || (count > 1 && !strchr(argv[1], '='))))
        status = tri_fail(TRI_ECONFIG, "want one operation: all_reduce, broadcast, reduce, all_gather, reduce_scatter, "
                                       "barrier, send_recv or start");
    if (status == TRI_OK)
        status = find_op(argv[0], &op);
    tri_stop_catch();
    if (status == TRI_OK && given.ranks)
        status = launch_ranks(argv[0], &result);
    else if (status == TRI_OK)
        status = bench_rank(argv[0], op);
    return status == TRI_OK ? result.exit_code : tri_command_fail(status);
}
