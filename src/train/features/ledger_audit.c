/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger_audit.c: proves from RUN/ledger that each sample of each epoch was used once, or names those that were not.
 *
 * What the workers say they put into a step is compared with what the order of samples gives for it. The samples of the
 * steps that agree are ticked off, epoch by epoch. Where a step disagrees, the audit looks for the one sample that is
 * missing or used besides, or for the shard that is missing.
 */
#include "train/features/ledger_audit.h"

#include <inttypes.h>
#include <string.h>

#include "base/fs.h"
#include "data/data.h"

#define REPORTED_STEPS   10 /* that are wrong, in full */
#define REPORTED_SAMPLES 8
#define SEARCH_COUNT     (INT64_C(1) << 29) /* samples, in all: a second or two */

typedef struct audit {
    tri_ledger_view view;
    tri_sampler sampler;
    int64_t steps_per_epoch;
    int64_t *indices;       /* of one step, */
    int64_t *counts;        /* shard by shard */
    unsigned char *ticks;   /* [count] of the epoch: how often, 2: more; */
    int64_t used, twice;    /* how many of them are 1, and 2 */
    int64_t searched;       /* samples that were looked at for one too many */
    int64_t wrong, missing; /* steps */
    int64_t whole;          /* epochs of which each sample was used once */
    int64_t broken;         /* epochs that end within the ledger, and are not whole */
    int64_t generations;    /* changes of it, and 1 */
    tri_string report;
} audit;

/* The samples of a step by the plan; returns how many. */
static int64_t step_plan(audit *at, int64_t step, uint64_t *marks)
{
    int64_t count = 0;
    *marks = 0;
    for (int64_t shard = 0; shard < at->sampler.shards; shard++) {
        at->counts[shard] = tri_sampler_batch(&at->sampler, step, shard, at->indices + count);
        count += at->counts[shard];
    }
    for (int64_t i = 0; i < count; i++)
        *marks = tri_sampler_marks_add(*marks, tri_sampler_mark(at->indices[i]));
    return count;
}

static void samples_tell(tri_string *out, const int64_t *indices, int64_t count)
{
    for (int64_t i = 0; i < count && i < REPORTED_SAMPLES; i++)
        (void)tri_string_appendf(out, "%s%" PRId64, i ? ", " : "", indices[i]);
    if (count > REPORTED_SAMPLES)
        (void)tri_string_appendf(out, ", ... (%" PRId64 ")", count);
}

/* What would make `found` of what was planned: a shard that is not there, or one sample; false: neither. */
static bool difference_tell(audit *at, int64_t count, uint64_t wanted, uint64_t found)
{
    int64_t first = 0;
    for (int64_t shard = 0; shard < at->sampler.shards; first += at->counts[shard++]) {
        uint64_t marks = found;
        for (int64_t i = first; i < first + at->counts[shard]; i++)
            marks = tri_sampler_marks_add(marks, tri_sampler_mark(at->indices[i]));
        if (marks != wanted || at->counts[shard] == 0)
            continue;
        (void)tri_string_appendf(&at->report, "shard %" PRId64 " was not used: samples ", shard);
        samples_tell(&at->report, at->indices + first, at->counts[shard]);
        return true;
    }
    for (int64_t i = 0; i < count; i++) {
        if (tri_sampler_marks_add(found, tri_sampler_mark(at->indices[i])) != wanted)
            continue;
        (void)tri_string_appendf(&at->report, "sample %" PRId64 " was not used", at->indices[i]);
        return true;
    }
    for (int64_t index = 0; index < at->sampler.count && at->searched < SEARCH_COUNT; index++, at->searched++) {
        if (tri_sampler_marks_add(wanted, tri_sampler_mark(index)) != found)
            continue;
        (void)tri_string_appendf(&at->report, "sample %" PRId64 " was used besides", index);
        return true;
    }
    return false;
}

static void step_wrong(audit *at, int64_t step, bool known, int64_t count, uint64_t wanted, uint64_t found)
{
    at->wrong += known;
    at->missing += !known;
    if (at->wrong + at->missing > REPORTED_STEPS)
        return;
    (void)tri_string_appendf(&at->report, "step %" PRId64 " (epoch %" PRId64 "): ", step, step / at->steps_per_epoch);
    if (!known) {
        (void)tri_string_append(&at->report, "is not in the ledger; it was to use samples ");
        samples_tell(&at->report, at->indices, count);
    } else if (!difference_tell(at, count, wanted, found)) {
        (void)tri_string_append(&at->report, "other samples than planned, which were ");
        samples_tell(&at->report, at->indices, count);
    }
    (void)tri_string_append(&at->report, "\n");
}

/* Nothing here looks at all samples: a damaged head may speak of any number. */
static void sample_tick(audit *at, int64_t index)
{
    unsigned char *tick = &at->ticks[index];
    at->used += *tick == 0 ? 1 : *tick == 1 ? -1 : 0;
    at->twice += *tick == 1;
    *tick = *tick ? 2 : 1;
}

/* Whether each sample of the epoch was used once. */
static bool epoch_close(audit *at)
{
    bool whole = at->used == at->sampler.count && at->twice == 0;
    memset(at->ticks, 0, (size_t)at->sampler.count);
    at->used = at->twice = 0;
    return whole;
}

static void audit_run(audit *at)
{
    int before = -1;
    for (int64_t step = at->view.first; step < at->view.end; step++) {
        uint64_t wanted, found;
        int generation;
        int64_t count = step_plan(at, step, &wanted);
        bool known = tri_ledger_step(&at->view, step, &found, &generation);
        at->generations += known && generation != before;
        before = known ? generation : before;
        if (!known || wanted != found)
            step_wrong(at, step, known, count, wanted, found);
        for (int64_t i = 0; known && wanted == found && i < count; i++)
            sample_tick(at, at->indices[i]);
        bool begun = step / at->steps_per_epoch * at->steps_per_epoch >= at->view.first;
        if (step % at->steps_per_epoch != at->steps_per_epoch - 1)
            continue;
        bool whole = epoch_close(at);
        at->whole += whole;
        at->broken += begun && !whole;
    }
}

static tri_status audit_open(const char *run, audit *at)
{
    char *path = tri_format("%s/ledger", run);
    if (!path)
        return TRI_ENOMEM;
    tri_status status = tri_fs_is_folder(run) && !tri_fs_exists(path)
                            ? tri_fail(TRI_ENOTFOUND,
                                       "%s: no ledger here: it is kept by runs with a folder, except with "
                                       "parallel.sync local, diloco and ps",
                                       run)
                            : tri_ledger_load(path, &at->view);
    tri_free(path);
    TRI_TRY(status);
    const tri_ledger_plan *plan = &at->view.plan;
    at->sampler = (tri_sampler){.seed = (uint64_t)plan->seed,
                                .count = plan->count,
                                .batch = plan->batch,
                                .shards = plan->shards,
                                .shuffle = plan->shuffle,
                                .block = plan->block,
                                .buffer = plan->buffer};
    at->steps_per_epoch = tri_sampler_steps(&at->sampler);
    at->indices = tri_alloc_zero((size_t)plan->batch, sizeof(int64_t));
    at->counts = tri_alloc_zero((size_t)plan->shards, sizeof(int64_t));
    at->ticks = tri_alloc_zero((size_t)plan->count, 1);
    if (at->indices && at->counts && at->ticks)
        return TRI_OK;
    return tri_fail_context(TRI_ENOMEM, "%s: of %" PRId64 " samples", run, plan->count);
}

static void audit_close(audit *at)
{
    tri_ledger_view_fini(&at->view);
    tri_free(at->indices);
    tri_free(at->counts);
    tri_free(at->ticks);
    tri_string_fini(&at->report);
}

tri_status tri_ledger_audit(const char *run, tri_ledger_verdict *verdict)
{
    audit at = {0};
    tri_status status = audit_open(run, &at);
    if (status == TRI_OK)
        audit_run(&at);
    if (at.wrong + at.missing > REPORTED_STEPS)
        (void)tri_string_appendf(&at.report, "and %" PRId64 " steps more\n", at.wrong + at.missing - REPORTED_STEPS);
    *verdict = (tri_ledger_verdict){.plan = at.view.plan,
                                    .first = at.view.first,
                                    .end = at.view.end,
                                    .steps_per_epoch = at.steps_per_epoch,
                                    .generations = at.generations,
                                    .whole = at.whole,
                                    .used = at.used,
                                    .missing = at.missing,
                                    .wrong = at.wrong,
                                    .broken = at.broken,
                                    .report = at.report};
    at.report = (tri_string){0};
    audit_close(&at);
    return status;
}
