/* SPDX-License-Identifier: Apache-2.0
 *
 * sim.c: `trireme sim`: what each algorithm of an operation would take on a network that does not exist, and whether
 * its results are right there.
 */
#include "cli/sim.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/command.h"

#define RANKS_MAX 4096

typedef struct sim_flags {
    const char *ranks, *sizes, *algorithm, *latency, *bandwidth, *per_host, *jitter, *loss, *stragglers, *slowdown,
        *faults, *faulty, *seed, *json;
} sim_flags;

static sim_flags given;
static const tri_flag flags[] = {
    {"--ranks", "LIST", "numbers of ranks, up to 4096 (default 8,64)", &given.ranks},
    {"--sizes", "LIST", "bytes of the data (k, M: powers of 1024; default 1k,1M)", &given.sizes},
    {"--algorithm", "NAME", "one algorithm, or all (default)", &given.algorithm},
    {"--latency", "US", "sim.latency_us", &given.latency},
    {"--bandwidth", "BYTES", "sim.bandwidth and sim.node_bandwidth, such as 125M for 1 Gbit/s", &given.bandwidth},
    {"--ranks-per-host", "N", "sim.ranks_per_host", &given.per_host},
    {"--jitter", "US", "sim.jitter_us", &given.jitter},
    {"--loss", "SHARE", "sim.loss", &given.loss},
    {"--stragglers", "N", "sim.stragglers", &given.stragglers},
    {"--slowdown", "TIMES", "sim.slowdown", &given.slowdown},
    {"--faults", "TEXT", "faults of the links of one rank: peer:after_bytes:cut|stall|slow|flip;...", &given.faults},
    {"--faulty-rank", "R", "the rank that has them (default 0)", &given.faulty},
    {"--seed", "S", "of everything that is left to chance (default 1)", &given.seed},
    {"--json", NULL, "one object a line", &given.json},
};

typedef struct sim_plan {
    const sim_op *op;
    int64_t ranks[64], sizes[64];
    int ranks_count, sizes_count;
    sim_case one; /* of the row under way */
    tri_fabric_config fabric;
    tri_net_config net;
} sim_plan;

static const tri_command *sim_command(void)
{
    const tri_command *command = tri_commands;

    while (command->run != cmd_sim)
        command++;
    return command;
}

static void print_more_help(void)
{
    tri_string text = {0};

    fputs("\nOP recovery: elastic training whose workers fail (trireme sim recovery --help)\nOP:", stdout);
    for (const sim_op *op = sim_ops; op->name; op++)
        printf(" %s", op->name);
    if (tri_options_help(&tri_fabric_options, &text) == TRI_OK)
        printf("\n\nsection.key=value sets an option of the network (comm.slot_kib and comm.timeout_s too):\n\n%s",
               tri_string_text(&text));
    tri_string_fini(&text);
}

/* ---- reading */

static tri_status op_find(const char *name, const sim_op **found)
{
    const char *names[32], *nearest;
    size_t count = 0;

    for (const sim_op *op = sim_ops; op->name; op++) {
        names[count++] = op->name;
        if (strcmp(op->name, name) == 0) {
            *found = op;
            return TRI_OK;
        }
    }
    nearest = tri_options_nearest(name, names, count);
    return tri_fail(TRI_ECONFIG, "there is no operation '%s'; did you mean '%s'?", name,
                    nearest ? nearest : sim_ops[0].name);
}

/* "sim.loss=0.01", "comm.slot_kib=4096" */
static tri_status set_option(sim_plan *plan, const char *text)
{
    const char *equals = strchr(text, '=');
    char field[64];

    for (int section = 0; equals && section < 2; section++) {
        const tri_option_table *table = section ? &tri_net_options : &tri_fabric_options;
        size_t nbytes = strlen(table->section);
        const char *key = text + nbytes + 1;

        if (strncmp(text, table->section, nbytes) != 0 || text[nbytes] != '.' || equals < key ||
            (size_t)(equals - key) >= sizeof field)
            continue;
        memcpy(field, key, (size_t)(equals - key));
        field[equals - key] = 0;
        return tri_options_set(table, section ? (void *)&plan->net : (void *)&plan->fabric, field, equals + 1);
    }
    return tri_fail(TRI_ECONFIG, "want one operation and section.key=value of sections sim and comm, got '%s'", text);
}

static tri_status read_figures(sim_plan *plan, char **settings, int count)
{
    const struct {
        const char *key, *value;
    } pairs[] = {
        {"latency_us", given.latency},      {"bandwidth", given.bandwidth}, {"node_bandwidth", given.bandwidth},
        {"ranks_per_host", given.per_host}, {"jitter_us", given.jitter},    {"loss", given.loss},
        {"stragglers", given.stragglers},   {"slowdown", given.slowdown},
    };

    tri_options_defaults(&tri_fabric_options, &plan->fabric);
    tri_options_defaults(&tri_net_options, &plan->net);
    for (size_t i = 0; i < TRI_COUNT_OF(pairs); i++) {
        if (pairs[i].value)
            TRI_TRY(tri_options_set(&tri_fabric_options, &plan->fabric, pairs[i].key, pairs[i].value));
    }
    if (given.faults)
        TRI_TRY(tri_options_set(&tri_net_options, &plan->net, "faults", given.faults));
    for (int i = 0; i < count; i++)
        TRI_TRY(set_option(plan, settings[i]));
    if (plan->net.transport != TRI_TRANSPORT_AUTO && plan->net.transport != TRI_TRANSPORT_SIM)
        return tri_fail(TRI_ECONFIG, "comm.transport: a simulation needs sim, got %s",
                        tri_transport_kind_word(plan->net.transport));
    return TRI_OK;
}

static tri_status algorithm_check(const sim_plan *plan)
{
    const char *names[32], *nearest, *name;
    size_t count = 0;

    if (!given.algorithm || strcmp(given.algorithm, "all") == 0)
        return TRI_OK;
    for (int i = 0; (name = tri_comm_algorithm_name(plan->op->op, i)) && count < TRI_COUNT_OF(names); i++) {
        names[count++] = name;
        if (strcmp(name, given.algorithm) == 0)
            return TRI_OK;
    }
    nearest = tri_options_nearest(given.algorithm, names, count);
    return tri_fail(TRI_ECONFIG, "--algorithm: %s has no '%s'; did you mean '%s'?", plan->op->name, given.algorithm,
                    nearest ? nearest : names[0]);
}

static tri_status read_plan(sim_plan *plan, char **argv, int count)
{
    int64_t seed = 1, faulty = 0;

    if (count < 1)
        return tri_fail(TRI_ECONFIG, "want an operation, such as all_reduce (--help lists them)");
    TRI_TRY(op_find(argv[0], &plan->op));
    TRI_TRY(read_figures(plan, argv + 1, count - 1));
    TRI_TRY(tri_flag_sizes("--ranks", given.ranks ? given.ranks : "8,64", plan->ranks, TRI_COUNT_OF(plan->ranks),
                           &plan->ranks_count));
    for (int i = 0; i < plan->ranks_count; i++) {
        if (plan->ranks[i] < 1 || plan->ranks[i] > RANKS_MAX)
            return tri_fail(TRI_ECONFIG, "--ranks: want numbers from 1 to %d, got %lld", RANKS_MAX,
                            (long long)plan->ranks[i]);
        if (plan->op->min_pair && plan->ranks[i] < 2)
            return tri_fail(TRI_ECONFIG, "%s: want at least 2 ranks, got 1", plan->op->name);
    }
    plan->sizes_count = 1;
    if (plan->op->expect) /* others move no data */
        TRI_TRY(tri_flag_sizes("--sizes", given.sizes ? given.sizes : "1k,1M", plan->sizes, TRI_COUNT_OF(plan->sizes),
                               &plan->sizes_count));
    TRI_TRY(algorithm_check(plan));
    if (given.seed)
        TRI_TRY(tri_flag_int("--seed", given.seed, 0, INT64_MAX, &seed));
    if (given.faulty)
        TRI_TRY(tri_flag_int("--faulty-rank", given.faulty, 0, RANKS_MAX - 1, &faulty));
    plan->one = (sim_case){
        .op = plan->op, .fabric = &plan->fabric, .net = &plan->net, .faulty_rank = (int)faulty, .seed = (uint64_t)seed};
    return TRI_OK;
}

/* ---- printing */

/* What the elements come to: whole ones, and the same number for each rank. */
static int64_t bytes_of(const sim_case *one)
{
    return sim_count(one) * (int64_t)sizeof(float) * (one->op->by_rank ? one->ranks : 1);
}

static tri_status print_json(const sim_case *one, const sim_result *result, double bus)
{
    tri_string line = {0};
    tri_json json = tri_json_object(&line);
    tri_status status;

    tri_json_text(&json, "op", one->op->name);
    tri_json_int(&json, "ranks", one->ranks);
    tri_json_int(&json, "bytes", bytes_of(one));
    tri_json_text(&json, "dtype", "f32");
    tri_json_text(&json, "transport", "sim");
    tri_json_text(&json, "algorithm", one->algorithm);
    if (result->cannot[0]) {
        tri_json_text(&json, "cannot", result->cannot);
    } else {
        tri_json_bool(&json, "chosen", result->chosen);
        tri_json_real(&json, "time_us", result->time_us);
        tri_json_real(&json, "price_us", result->price_us);
        tri_json_real(&json, "busbw_gbs", bus);
        tri_json_int(&json, "steps", (int64_t)result->most.moves);
        tri_json_int(&json, "messages", (int64_t)result->most.sent_frames);
        tri_json_int(&json, "sent_bytes", (int64_t)result->most.sent_nbytes);
        tri_json_int(&json, "wrong", result->wrong);
    }
    tri_json_int(&json, "seed", (int64_t)one->seed);
    status = tri_json_end(&json);
    if (status == TRI_OK)
        puts(tri_string_text(&line));
    tri_string_fini(&line);
    return status;
}

static tri_status print_row(const sim_case *one, const sim_result *result)
{
    double bus =
        result->time_us > 0 ? (double)bytes_of(one) / result->time_us / 1e3 * one->op->bus_factor(one->ranks) : 0;

    if (given.json)
        return print_json(one, result, bus);
    if (result->cannot[0])
        printf("%-15s %5d %10lld %-14s cannot: %s\n", one->op->name, one->ranks, (long long)bytes_of(one),
               one->algorithm, result->cannot);
    else
        printf("%-15s %5d %10lld %-13s%c %12.2f %12.2f %9.3f %7llu %8llu %12llu %5lld\n", one->op->name, one->ranks,
               (long long)bytes_of(one), one->algorithm, result->chosen ? '*' : ' ', result->time_us, result->price_us,
               bus, (unsigned long long)result->most.moves, (unsigned long long)result->most.sent_frames,
               (unsigned long long)result->most.sent_nbytes, (long long)result->wrong);
    return TRI_OK;
}

/* ---- running */

/* Refuses what cannot be; what is under way besides the data shows only as it goes, and fails then. */
static tri_status memory_check(const sim_case *one)
{
    double limit = 0.75 * (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE), wants = sim_memory(one);

    tri_memory_limit_set((uint64_t)limit);
    if (wants <= limit)
        return TRI_OK;
    return tri_fail(TRI_ECONFIG,
                    "%s of %lld bytes on %d ranks: the ranks' data is %.1f GiB, want at most %.1f GiB (3/4 of memory)",
                    one->op->name, (long long)one->nbytes, one->ranks, wants / 0x1p30, limit / 0x1p30);
}

static tri_status run_case(sim_case *one)
{
    sim_result result;
    char hint[160];

    TRI_TRY(memory_check(one));
    snprintf(hint, sizeof(hint),
             "replay: trireme sim %s --ranks %d --sizes %lld --algorithm %s --seed %llu, other flags as given",
             one->op->name, one->ranks, (long long)one->nbytes, one->algorithm, (unsigned long long)one->seed);
    tri_command_hint_set(hint);
    TRI_TRY_IN(sim_run(one, &result), "%s of %lld bytes by %s on %d ranks, seed %llu", one->op->name,
               (long long)one->nbytes, one->algorithm, one->ranks, (unsigned long long)one->seed);
    TRI_TRY(print_row(one, &result));
    fflush(stdout);
    if (result.wrong == 0)
        return TRI_OK;
    return tri_fail(TRI_EINTERNAL, "%s of %lld bytes by %s on %d ranks, seed %llu: %lld elements are wrong",
                    one->op->name, (long long)one->nbytes, one->algorithm, one->ranks, (unsigned long long)one->seed,
                    (long long)result.wrong);
}

static tri_status run_plan(sim_plan *plan)
{
    bool all = !given.algorithm || strcmp(given.algorithm, "all") == 0;
    const char *name;

    if (!given.json)
        printf("%-15s %5s %10s %-14s %12s %12s %9s %7s %8s %12s %5s\n", "op", "ranks", "bytes", "algorithm", "time us",
               "price us", "bus GB/s", "steps", "messages", "sent bytes", "wrong");
    for (int r = 0; r < plan->ranks_count; r++) {
        for (int s = 0; s < plan->sizes_count; s++) {
            for (int i = 0; (name = tri_comm_algorithm_name(plan->op->op, i)); i++) {
                if (!all && strcmp(name, given.algorithm) != 0)
                    continue;
                plan->one.ranks = (int)plan->ranks[r];
                plan->one.nbytes = plan->sizes[s];
                plan->one.algorithm = name;
                TRI_TRY(run_case(&plan->one));
            }
        }
    }
    return TRI_OK;
}

int cmd_sim(int argc, char **argv)
{
    sim_plan plan = {0};
    int count;

    if (argc > 1 && strcmp(argv[1], "recovery") == 0)
        return sim_recovery(argc - 1, argv + 1);
    tri_status status = tri_flags_parse(sim_command(), flags, TRI_COUNT_OF(flags), argc, argv, &count);

    if (status == TRI_ECANCELED) {
        print_more_help();
        return 0;
    }
    if (status == TRI_OK)
        status = read_plan(&plan, argv, count);
    if (status == TRI_OK)
        status = run_plan(&plan);
    return status == TRI_OK ? 0 : tri_command_fail(status);
}
