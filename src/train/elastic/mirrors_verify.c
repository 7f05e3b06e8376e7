/* SPDX-License-Identifier: Apache-2.0
 *
 * mirrors_verify.c: a part of a sharded state and its mirror, which must have the same bits: found out, named and
 * repaired where they have not.
 *
 * Behind each move both holders hash what they have written; before the next one, what is there. The barrier that all
 * ranks enter before they move carries the sum over all parts of owner's hash less mirror's, which is zero where all
 * are the same: no message more, and all know before anything moves. Of two copies the one whose memory has changed
 * since it was written is wrong: it gets the other one's, and the batch is computed again. If neither has changed, or
 * both have, nobody knows (docs/design/recovery.md).
 */
#include <stdio.h>

#include "base/events.h"
#include "base/log.h"
#include "base/memory.h"
#include "net/host.h"
#include "train/core/features.h"
#include "train/core/step.h"
#include "train/elastic/mirrors_verify.h"
#include "train/elastic/reform_assignment.h"
#include "train/features/verify.h"

#define PASSES 2 /* over each array: behind the move, and before the next one */

enum { SAME, OWNER_WRONG, MIRROR_WRONG, UNDECIDED };

/* What each rank tells all others. */
enum { OWN, MIRROR, KINDS };
typedef struct word {
    int64_t mirrored, role, own; /* own: times that it was repaired before */
    int64_t digest[KINDS], known[KINDS], changed[KINDS], array[KINDS], tensor[KINDS];
    char host[TRI_HOST_NAME_NBYTES + 7];
} word;
#define WORD_INTS ((int64_t)(sizeof(word) / sizeof(int64_t)))
_Static_assert(sizeof(word) % sizeof(int64_t) == 0, "a word is whole numbers");

static tri_state_shard *shard_of(tri_job *job, int kind)
{
    return kind == OWN ? &job->assignment.now.own : &job->assignment.now.mirror;
}

tri_status tri_job_mirrors_verify_open(tri_job *job)
{
    tri_job_assignment *assignment = &job->assignment;
    int states = tri_optim_states(&job->config.optim);
    double elements = (double)job->model.tensors.total * (1 + states) / assignment->now.what.roles;
    assignment->good_step = -1;
    assignment->every = tri_job_verify_steps(job, KINDS * PASSES * elements * sizeof(float));
    for (int kind = 0; assignment->every > 0 && kind < KINDS; kind++)
        TRI_TRY(tri_state_shard_digests_open(shard_of(job, kind)));
    return TRI_OK;
}

bool tri_job_mirrors_due(const tri_job *job, int64_t step)
{
    const tri_job_assignment *assignment = &job->assignment;
    return assignment->mirrored >= 0 && assignment->every > 0 && step % assignment->every == 0;
}

static void shard_written(tri_state_shard *shard, int threads, bool due)
{
    shard->digests.noted = false;
    if (due && shard->params)
        tri_state_shard_note(shard, threads);
}

/* Hashed only if they are compared next: else nobody would look before they are written again. */
void tri_job_mirrors_written(const tri_job *job, tri_shard_set *set, int64_t step)
{
    bool due = tri_job_mirrors_due(job, step);
    shard_written(&set->own, job->threads, due);
    shard_written(&set->mirror, job->threads, due);
}

/* --- is anything wrong? --- */

/* Halves of the hashes: sums over all ranks have room. */
tri_status tri_job_mirrors_compare(tri_job *job, const char *name, bool *same)
{
    tri_state_shard_sight *sights = job->assignment.sights;
    int64_t sums[2];
    for (int kind = 0; kind < KINDS; kind++)
        TRI_TRY(tri_state_shard_look(shard_of(job, kind), job->threads, &sights[kind]));
    sums[0] = (int64_t)(sights[OWN].digest >> 32) - (int64_t)(sights[MIRROR].digest >> 32);
    sums[1] = (int64_t)(sights[OWN].digest & UINT32_MAX) - (int64_t)(sights[MIRROR].digest & UINT32_MAX);
    tri_group_name_next(job->group, name);
    tri_status status = tri_all_reduce(job->group, sums, sums, 2, TRI_I64, TRI_REDUCE_SUM, NULL);
    tri_group_name_next(job->group, "");
    *same = sums[0] == 0 && sums[1] == 0;
    return status;
}

/* --- what, and who is right --- */

static int holder_of(const word *all, int ranks, int rank)
{
    int holder = 0;
    while (holder < ranks && all[holder].mirrored != rank)
        holder++;
    return holder;
}

static bool is_intact(const word *one, int kind)
{
    return one->known[kind] && !one->changed[kind];
}

static int judge(const word *owner, const word *holder)
{
    if (owner->digest[OWN] == holder->digest[MIRROR])
        return SAME;
    if (owner->changed[OWN] && is_intact(holder, MIRROR))
        return OWNER_WRONG;
    return holder->changed[MIRROR] && is_intact(owner, OWN) ? MIRROR_WRONG : UNDECIDED;
}

/* "the mirror of part 2 at rank 0 (a)" */
static void part_print(const word *all, int owner, int rank, char *text, size_t nbytes)
{
    snprintf(text, nbytes, "%spart %lld at rank %d (%s)", rank == owner ? "" : "the mirror of ",
             (long long)all[owner].role, rank, all[rank].host);
}

/* "exp_avg of fc1.weight" */
static void place_print(const tri_job *job, const word *one, int kind, char *text, size_t nbytes)
{
    const char *state = one->array[kind] > 0 ? tri_optim_state_name(job->optim, (int)one->array[kind] - 1) : NULL;
    bool named = one->tensor[kind] >= 0 && one->tensor[kind] < job->model.tensors.count;
    snprintf(text, nbytes, "%s%s%s", state ? state : "", state ? " of " : "",
             named ? job->model.tensors.items[one->tensor[kind]].name : "a tensor");
}

static const char *undecided_why(const word *owner, const word *holder)
{
    if (owner->changed[OWN] && holder->changed[MIRROR])
        return "both have changed in memory";
    return owner->known[OWN] && holder->known[MIRROR]
               ? "neither has changed in memory since it was written"
               : "there is no hash of when both were written (train.verify_every 1)";
}

/* Nobody knows who is right: nobody counts. */
static tri_status undecided_tell(tri_job *job, const word *all, int owner, int holder)
{
    char what[700], own[160], mirror[160];
    part_print(all, owner, owner, own, sizeof(own));
    part_print(all, owner, holder, mirror, sizeof(mirror));
    snprintf(what, sizeof(what), "before step %lld %s differs from %s, and %s", (long long)job->step, own, mirror,
             undecided_why(&all[owner], &all[holder]));
    return tri_job_verify_drop(job, what);
}

static tri_status wrong_tell(tri_job *job, const word *all, int owner, int holder, int verdict)
{
    int wrong = verdict == OWNER_WRONG ? owner : holder, right = verdict == OWNER_WRONG ? holder : owner;
    char text[600], part[160], place[300];
    part_print(all, owner, wrong, part, sizeof(part));
    place_print(job, &all[wrong], wrong == owner ? OWN : MIRROR, place, sizeof(place));
    snprintf(text, sizeof(text), "before step %lld %s had changed in memory, first in %s: repaired from rank %d's%s",
             (long long)job->step, part, place, right, right == holder ? " mirror" : "");
    tri_counter_add(TRI_COUNT_SPOILT_PARTS, job->rank == wrong);
    if (job->rank == wrong)
        tri_job_repairs_add(job);
    return tri_job_event_tell(job, "repair", text);
}

/* Before anything is repaired: was one of those that are wrong it too often? */
static tri_status limit_check(tri_job *job, const word *all)
{
    job->assignment.in_a_row++;
    for (int r = 0; r < job->world; r++) {
        int holder = holder_of(all, job->world, r);
        int verdict = holder < job->world ? judge(&all[r], &all[holder]) : SAME;
        int wrong = verdict == OWNER_WRONG ? r : holder;
        char what[300];
        if (verdict == SAME || !tri_job_verify_is_worn(job, all[wrong].own, job->assignment.in_a_row))
            continue;
        snprintf(what, sizeof(what),
                 "what rank %d (%s) has of the state has changed in memory again before step %lld, "
                 "after %lld repairs (train.guard_limit)",
                 wrong, all[wrong].host, (long long)job->step, (long long)all[wrong].own);
        return tri_job_put_out(job, wrong, what);
    }
    return TRI_OK;
}

/* --- repair --- */

/* All elements of one shard, to the rank that has the other or from it. */
static tri_status shard_pass(tri_job *job, tri_state_shard *shard, bool gives, int other)
{
    tri_state_shard_views views;
    tri_status status = tri_state_shard_views_open(shard, &views);
    for (int a = 0; status == TRI_OK && a < views.count; a++) {
        const tri_vector *list = a == 0 ? &shard->held_values : &shard->held;
        for (size_t i = 0; status == TRI_OK && i < list->count; i++) {
            const tri_extent *held = tri_vector_at(list, i);
            float *values = (float *)views.arrays[a].host + held->at;
            tri_group_name_next(job->group, "mirrors: repair");
            status = gives ? tri_send(job->group, values, held->high - held->low, TRI_F32, other, NULL)
                           : tri_receive(job->group, values, held->high - held->low, TRI_F32, other, NULL);
        }
        if (!gives)
            tri_device_view_write(&views.arrays[a]);
    }
    tri_group_name_next(job->group, "");
    tri_state_shard_views_close(&views);
    return status;
}

static tri_status part_repair(tri_job *job, int owner, int holder, int verdict)
{
    int giver = verdict == OWNER_WRONG ? holder : owner, taker = verdict == OWNER_WRONG ? owner : holder;
    if (job->rank != giver && job->rank != taker)
        return TRI_OK;
    tri_state_shard *shard = shard_of(job, job->rank == owner ? OWN : MIRROR);
    TRI_TRY(shard_pass(job, shard, job->rank == giver, job->rank == giver ? taker : giver));
    if (job->rank == taker)
        tri_state_shard_note(shard, job->threads);
    return TRI_OK;
}

/* One part after the other, on all ranks in the same order. */
static tri_status parts_repair(tri_job *job, const word *all)
{
    bool moved = false;
    for (int r = 0; r < job->world; r++) {
        int holder = holder_of(all, job->world, r);
        if (holder < job->world && judge(&all[r], &all[holder]) == UNDECIDED)
            return undecided_tell(job, all, r, holder);
    }
    TRI_TRY(limit_check(job, all));
    for (int r = 0; r < job->world; r++) {
        int holder = holder_of(all, job->world, r);
        int verdict = holder < job->world ? judge(&all[r], &all[holder]) : SAME;
        if (verdict == SAME)
            continue;
        TRI_TRY(part_repair(job, r, holder, verdict));
        TRI_TRY(wrong_tell(job, all, r, holder, verdict));
        moved = moved || verdict == OWNER_WRONG;
    }
    return moved && job->sync->ops->publish ? job->sync->ops->publish(job->sync) : TRI_OK;
}

/* Then, collective, where they are not the same: names and repairs them, or fails on all ranks. */
static tri_status mirrors_repair(tri_job *job)
{
    const tri_job_assignment *assignment = &job->assignment;
    word own = {.mirrored = assignment->mirrored, .role = assignment->now.what.own, .own = tri_job_repairs(job)};
    word *all = tri_alloc((size_t)job->world * sizeof(word));
    if (!all)
        return TRI_ENOMEM;
    for (int kind = 0; kind < KINDS; kind++) {
        own.digest[kind] = (int64_t)assignment->sights[kind].digest;
        own.known[kind] = assignment->sights[kind].known;
        own.changed[kind] = assignment->sights[kind].changed;
        own.array[kind] = assignment->sights[kind].array;
        own.tensor[kind] = assignment->sights[kind].tensor;
    }
    tri_host_name(own.host);
    tri_group_name_next(job->group, "mirrors: verdicts");
    tri_status status = tri_all_gather(job->group, &own, all, WORD_INTS, TRI_I64, NULL);
    tri_group_name_next(job->group, "");
    if (status == TRI_OK)
        status = parts_repair(job, all);
    tri_free(all);
    return status;
}

static tri_status verify_now(tri_job *job)
{
    bool same = true;
    if (job->assignment.mirrored < 0 || job->assignment.every == 0)
        return TRI_OK;
    TRI_TRY(tri_job_settle(job));
    TRI_TRY(tri_job_mirrors_compare(job, "mirrors", &same));
    job->assignment.in_a_row = 0;
    job->assignment.good_step = same ? job->step : -1;
    return same ? TRI_OK : mirrors_repair(job);
}

static tri_status copied(tri_job *job)
{
    const tri_job_assignment *assignment = &job->assignment;
    tri_state_shard_sight now;
    if (assignment->mirrored < 0 || assignment->every == 0 || assignment->good_step != job->step)
        return TRI_OK;
    TRI_TRY(tri_state_shard_look(&assignment->now.own, job->threads, &now));
    return now.digest == assignment->sights[OWN].digest ? TRI_OK : tri_job_verify_copy_fails();
}

/* --- without the others --- */

static void role_check(const tri_job *job, const tri_state_shard *shard, int64_t step, int *role, const char *what)
{
    tri_state_shard_sight sight;
    if (!shard->params || *role < 0 || tri_state_shard_look(shard, job->threads, &sight) != TRI_OK || !sight.changed)
        return;
    tri_log(TRI_LOG_WARN,
            "what is here of %spart %d of the state after step %lld has changed in memory since it was "
            "written: it does not count",
            what, *role, (long long)step);
    tri_counter_add(TRI_COUNT_SPOILT_PARTS, 1);
    *role = -1;
}

void tri_job_mirrors_check(const tri_job *job, tri_shard_set *set, int64_t step)
{
    role_check(job, &set->own, step, &set->what.own, "");
    role_check(job, &set->mirror, step, &set->what.mirror, "the mirror of ");
}

/* Of two copies of which one has changed in memory the other one is right: no vote is needed. */
static tri_status repair(tri_job *job, bool *done)
{
    bool same = true;
    if (tri_job_mirrors_due(job, job->step))
        TRI_TRY(tri_job_mirrors_compare(job, "mirrors", &same));
    *done = !same;
    return same ? TRI_OK : mirrors_repair(job);
}

static tri_status step_begin(tri_job *job)
{
    job->assignment.in_a_row = 0;
    return TRI_OK;
}

static bool compares(const tri_job *job)
{
    return tri_job_mirrors_due(job, job->step);
}

const tri_feature tri_feature_mirrors = {.step_begin = step_begin,
                                         .commit = tri_job_commit,
                                         .make_same = mirrors_repair,
                                         .compares = compares,
                                         .moved = tri_job_mirror_move,
                                         .part = tri_job_mirror_close,
                                         .repair = repair,
                                         .is_due = tri_job_verify_is_due,
                                         .run = verify_now,
                                         .copied = copied};
