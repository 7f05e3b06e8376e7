/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_recovery.c: `trireme sim recovery`: elastic jobs in a simulation (fleet.h), one a seed, whose workers are killed,
 * stopped, cut off, sent away and joined by others; what must hold is looked at in every step.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/wait.h"
#include "cli/command.h"
#include "cli/sim.h"
#include "fleet/fleet.h"

#define RANKS_MAX   4096
#define PROGRESS_NS (10 * TRI_NS_PER_S)

static struct {
    const char *ranks, *seeds, *first, *steps, *faults, *kinds, *flips, *layout, *spares, *stragglers, *twice, *verbose;
} given;
static const tri_flag flags[] = {
    {"--ranks", "N", "workers that begin (default 64)", &given.ranks},
    {"--seeds", "N", "how many (default 20)", &given.seeds},
    {"--first", "S", "the first of them (default 1)", &given.first},
    {"--steps", "N", "of each run (default 20)", &given.steps},
    {"--faults", "N", "of each run (default 12)", &given.faults},
    {"--kinds", "LIST", "of faults, such as kill,delay,loss (default: all of them, below)", &given.kinds},
    {"--flips", "N", "bits of parts of the state, and of their mirrors, that flip (default 0)", &given.flips},
    {"--layout", "NAME", "data (default), zero1, zero2, zero3, stages, tensor, mesh; all: by the seed", &given.layout},
    {"--spares", "N", "workers that wait beside them (default 0)", &given.spares},
    {"--stragglers", NULL, "workers that are much slower than the others are replaced", &given.stragglers},
    {"--twice", NULL, "each seed two times: the same things happen at the same instants", &given.twice},
    {"--verbose", NULL, "a line for each seed, and what its workers log", &given.verbose},
};
static const tri_command command = {
    .name = "sim recovery",
    .usage = "[--ranks 64] [--seeds 20] [--first S] [--steps N] [--faults N] [--layout NAME]",
    .does = "trains on simulated workers that are killed, stopped, cut off, leave and join, and checks every step",
};

typedef struct recovery {
    fleet_config one;
    int64_t seeds, first;
    fleet_reference *references; /* [fleet_layout_count]: made when they are needed first */
    bool by_seed;                /* the layout follows from the seed */
    fleet_result sum;            /* of all: numbers added, the largest of peaks and times */
    int64_t done, failed;
    int64_t start_ns, reported_ns;
} recovery;

static tri_status number_read(const char *flag, const char *text, int64_t otherwise, int64_t low, int64_t high,
                              int64_t *out)
{
    *out = otherwise;
    return text ? tri_flag_int(flag, text, low, high, out) : TRI_OK;
}

/* Every other seed of each layout has a folder, if disks may be full. */
static bool saves_by_seed(const recovery *all)
{
    int each = all->by_seed ? fleet_layout_count : 1;
    return fleet_kinds_has(all->one.kinds, "full-disk") && all->one.seed / (uint64_t)each % 2 == 0;
}

static tri_status plan_read(recovery *all)
{
    int64_t ranks, faults, flips, spares;
    TRI_TRY(number_read("--ranks", given.ranks, 64, 1, RANKS_MAX, &ranks));
    TRI_TRY(number_read("--seeds", given.seeds, 20, 1, 1000000000, &all->seeds));
    TRI_TRY(number_read("--first", given.first, 1, 1, INT64_MAX / 2, &all->first));
    TRI_TRY(number_read("--steps", given.steps, 20, 1, FLEET_STEPS_MAX, &all->one.steps));
    TRI_TRY(number_read("--faults", given.faults, 12, 0, 100000, &faults));
    TRI_TRY(number_read("--flips", given.flips, 0, 0, 100000, &flips));
    TRI_TRY(fleet_kinds_read(given.kinds, &all->one.kinds));
    all->one.ranks = (int)ranks;
    all->one.flips = (int)flips;
    TRI_TRY(number_read("--spares", given.spares, 0, 0, RANKS_MAX, &spares));
    all->one.faults = (int)faults;
    all->one.spares = (int)spares;
    all->one.stragglers = given.stragglers != NULL;
    const char *name = given.layout ? given.layout : "data";
    all->by_seed = strcmp(name, "all") == 0;
    all->one.layout = all->by_seed ? &fleet_layouts[0] : fleet_layout_find(name);
    if (!all->one.layout)
        return tri_fail(TRI_ECONFIG, "--layout: want data, zero1, zero2, zero3, stages, tensor, mesh or all, got '%s'",
                        name);
    all->references = tri_alloc_zero((size_t)fleet_layout_count, sizeof(*all->references));
    return all->references ? TRI_OK : TRI_ENOMEM;
}

static void add(recovery *all, const fleet_result *one)
{
    fleet_result *sum = &all->sum;
    sum->generations += one->generations;
    sum->steps_made += one->steps_made;
    sum->kills += one->kills;
    sum->stops += one->stops;
    sum->cuts += one->cuts;
    sum->joins += one->joins;
    sum->leaves += one->leaves;
    sum->begun_again += one->begun_again;
    sum->replaced += one->replaced;
    sum->lost += one->lost;
    sum->misfits += one->misfits;
    sum->troubles += one->troubles;
    sum->saved += one->saved;
    sum->unsaved += one->unsaved;
    sum->resumed += one->resumed;
    sum->flips += one->flips;
    sum->found += one->found;
    sum->took_ns += one->took_ns;
    sum->longest_ns = one->longest_ns > sum->longest_ns ? one->longest_ns : sum->longest_ns;
    sum->peak_nbytes = one->peak_nbytes > sum->peak_nbytes ? one->peak_nbytes : sum->peak_nbytes;
}

static void tell_progress(recovery *all)
{
    int64_t now_ns = tri_now_ns();
    if (now_ns - all->reported_ns < PROGRESS_NS)
        return;
    all->reported_ns = now_ns;
    fprintf(stderr, "%lld of %lld seeds, %lld failed, %.1f seeds a minute\n", (long long)all->done,
            (long long)all->seeds, (long long)all->failed,
            (double)all->done / ((double)(now_ns - all->start_ns) / 60e9));
}

static void tell_seed(const recovery *all, const fleet_result *one)
{
    if (one->broken[0])
        printf("seed %llu: %s\n", (unsigned long long)all->one.seed, one->broken);
    else if (given.verbose)
        printf("seed %llu: %lld generations, %d killed, %d stopped, %d cut, %d left, %d joined, %.2f s, %.2f s without "
               "a step, trace %016llx\n",
               (unsigned long long)all->one.seed, (long long)one->generations, one->kills, one->stops, one->cuts,
               one->leaves, one->joins, (double)one->took_ns / 1e9, (double)one->longest_ns / 1e9,
               (unsigned long long)one->trace);
    fflush(stdout);
}

/* What came out is in `one`. */
static tri_status seed_run(const recovery *all, fleet_result *one)
{
    fleet_result again;
    TRI_TRY(fleet_run(&all->one, one));
    if (!one->broken[0] && one->left_nbytes > 0)
        snprintf(one->broken, sizeof(one->broken), "%lld bytes of memory are left over", (long long)one->left_nbytes);
    if (!given.twice || one->broken[0])
        return TRI_OK;
    TRI_TRY(fleet_run(&all->one, &again));
    if (again.trace != one->trace)
        snprintf(one->broken, sizeof(one->broken), "goes another way the second time: trace %016llx, then %016llx",
                 (unsigned long long)one->trace, (unsigned long long)again.trace);
    return TRI_OK;
}

/* The layout of this seed, and its run of one process. */
static tri_status layout_choose(recovery *all)
{
    fleet_config quiet;
    fleet_result one;
    if (all->by_seed)
        all->one.layout = &fleet_layouts[all->one.seed % (uint64_t)fleet_layout_count];
    all->one.saves = saves_by_seed(all);
    fleet_reference *reference = &all->references[all->one.layout - fleet_layouts];
    all->one.reference = reference;
    if (reference->hashes[0] || reference->values)
        return TRI_OK;
    quiet = all->one;
    quiet.is_quiet = true;
    TRI_TRY(fleet_run(&quiet, &one));
    return one.broken[0] ? tri_fail(TRI_EINTERNAL, "the run without faults: %s", one.broken) : TRI_OK;
}

static tri_status seeds_run(recovery *all)
{
    all->start_ns = all->reported_ns = tri_now_ns();
    for (int64_t i = 0; i < all->seeds && !tri_stop_signal(); i++) {
        fleet_result one;
        all->one.seed = (uint64_t)(all->first + i);
        TRI_TRY(layout_choose(all));
        TRI_TRY_IN(seed_run(all, &one), "seed %llu", (unsigned long long)all->one.seed);
        add(all, &one);
        all->done++;
        all->failed += one.broken[0] != 0;
        tell_seed(all, &one);
        tell_progress(all);
    }
    return TRI_OK;
}

static tri_status end_tell(const recovery *all)
{
    const fleet_result *sum = &all->sum;
    printf("%lld seeds of %d workers: %lld generations, %d killed, %d stopped, %d links cut, %d left, %d joined, %d "
           "runs restarted, %.2f s at most without a step, %.1f MiB at most, %lld failed\n",
           (long long)all->done, all->one.ranks, (long long)sum->generations, sum->kills, sum->stops, sum->cuts,
           sum->leaves, sum->joins, sum->begun_again, (double)sum->longest_ns / 1e9, (double)sum->peak_nbytes / 0x1p20,
           (long long)all->failed);
    if (sum->troubles > 0)
        printf("%d times links were late or lost packets, a processor was slow, a clock wrong, a frame damaged or a "
               "disk full\n",
               sum->troubles);
    if (sum->misfits > 0)
        printf("%d newcomers had another configuration and were refused\n", sum->misfits);
    if (sum->saved + sum->unsaved > 0)
        printf("%lld checkpoints saved, %lld not; %lld times a run went back to its newest\n", (long long)sum->saved,
               (long long)sum->unsaved, (long long)sum->resumed);
    if (sum->lost > 0)
        printf("%d workers ended as all that held parts of the state were killed\n", sum->lost);
    if (all->one.flips > 0)
        printf("%d bits flipped, %lld were found\n", sum->flips, (long long)sum->found);
    if (all->one.stragglers)
        printf("%d left because they were slow\n", sum->replaced);
    if (all->failed == 0)
        return TRI_OK;
    return tri_fail(TRI_EINTERNAL, "%lld of %lld seeds failed", (long long)all->failed, (long long)all->done);
}

int sim_recovery(int argc, char **argv)
{
    recovery all = {0};
    const char *name, *does;
    int count = 0;
    tri_status status = tri_flags_parse(&command, flags, TRI_COUNT_OF(flags), argc, argv, &count);
    if (status == TRI_ECANCELED) {
        puts("\nKinds of faults, each of a worker:\n");
        for (int i = 0; (name = fleet_kind_next(&i, &does)) != NULL;)
            printf("  %-11s  %s\n", name, does);
        return 0;
    }
    if (status == TRI_OK && count > 0)
        status = tri_fail(TRI_ECONFIG, "sim recovery: want flags alone, got '%s'", argv[0]);
    if (status == TRI_OK)
        status = plan_read(&all);
    tri_stop_catch();
    if (!given.verbose)
        tri_log_level_set(TRI_LOG_ERROR);
    if (status == TRI_OK)
        status = seeds_run(&all);
    if (status == TRI_OK)
        status = end_tell(&all);
    if (status == TRI_OK)
        status = tri_wait_check("the seeds ran");
    for (int i = 0; all.references && i < fleet_layout_count; i++)
        fleet_reference_fini(&all.references[i]);
    tri_free(all.references);
    return status == TRI_OK ? 0 : tri_command_fail(status);
}
