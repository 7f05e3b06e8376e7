/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.c: replicas of the weights, which must have the same bits: found out, named and repaired where they have not.
 *
 * Each rank hashes the weights that it holds and puts the hash into the control data of the step: the first rank of
 * those with the same weights times their number less one, each other times -1. So the sum is zero where all are the
 * same, and is not where they fall apart in two, however they do; all ranks see it before anything moves. Only then do
 * ranks compare hashes array by array and tensor by tensor; the majority gives its bits to the others, and the batch is
 * computed again: the run ends as if nothing had happened. The optimizer's state is compared where weights differ: what
 * goes wrong in it shows in the weights of the next step.
 */
#include <stdio.h>
#include <string.h>

#include "base/events.h"
#include "base/hash_wide.h"
#include "base/log.h"
#include "base/memory.h"
#include "kernel/digest.h"
#include "net/host.h"
#include "train/checkpointing/arrays.h"
#include "train/checkpointing/resume.h"
#include "train/core/features.h"
#include "train/core/step.h"
#include "train/features/verify.h"

#define TILE_COUNT  (INT64_C(1) << 14) /* elements that are hashed at once */
#define MOST_ROWS   3                  /* repairs of one step, one after the other */
#define COST_FLOPS  6.0                /* that take as long as hashing one byte */
#define COST_LIMIT  0.02
#define RECORD_INTS 13

typedef struct verify_state {
    int64_t every;       /* steps; 0: nothing is compared */
    uint64_t *digests;   /* [tiles of the store] */
    tri_digest *weights; /* their tiles, on the device */
    int64_t drops;       /* of all copies */
    int64_t repairs;     /* of what is here */
    int64_t compared;    /* the step before which all were alike last */
    int64_t good_step;   /* after which they were compared for a save, and alike; -1: none */
    uint64_t digest;     /* of the weights, when they were compared last */
    int in_a_row;        /* repairs of this step */
} verify_state;

static verify_state *verify_of(const tri_job *job)
{
    return job->states[TRI_FEATURE_REPLICAS];
}

bool tri_job_replicas_are_compared(const tri_job *job)
{
    return verify_of(job)->every > 0;
}

int64_t tri_job_repairs(const tri_job *job)
{
    return verify_of(job)->repairs;
}

void tri_job_repairs_add(tri_job *job)
{
    verify_of(job)->repairs++;
}

/* --- who has the same --- */

/* The ranks with the same weights (array 0) or optimizer's state; NULL: nobody else has this rank's. */
static tri_group *replicas_of(const tri_job *job, int array)
{
    bool spread =
        array == 0 ? job->placement.spread == TRI_SPREAD_WEIGHTS : job->placement.spread != TRI_SPREAD_NOTHING;
    tri_group *group = spread ? job->mesh.replica_group : job->mesh.data_group;
    return group && tri_group_count(group) > 1 ? group : NULL;
}

/* auto: the interval at which hashing costs less than COST_LIMIT of the steps, by the operations of a step. */
int64_t tri_job_verify_steps(const tri_job *job, double nbytes)
{
    int64_t steps = job->config.train.verify_every;
    if (steps != TRI_VERIFY_AUTO)
        return steps == TRI_VERIFY_OFF ? 0 : steps;
    double step = job->throughput.sample_flops * (double)job->config.train.batch / job->world;
    double every = step > 0 ? nbytes * COST_FLOPS / (COST_LIMIT * step) : 1;
    return every > 1 ? (int64_t)every + 1 : 1;
}

/* The same on all ranks. */
static double hashed_nbytes(const tri_job *job)
{
    const tri_mesh *mesh = &job->mesh;
    double owners =
        (double)mesh->tensor * mesh->pipeline * (job->placement.spread == TRI_SPREAD_WEIGHTS ? mesh->zero : 1);
    return (double)job->model.tensors.total * sizeof(float) / owners;
}

/* Tile i of `count` elements; its seed is i. */
static tri_digest_tile tile_of(int64_t i, int64_t count)
{
    const int64_t first = i * TILE_COUNT, left = count - first;
    return (tri_digest_tile){.first = first, .count = left < TILE_COUNT ? left : TILE_COUNT, .seed = (uint64_t)i};
}

static int64_t tile_count(int64_t count)
{
    return (count + TILE_COUNT - 1) / TILE_COUNT;
}

static tri_status tiles_make(tri_job *job)
{
    verify_state *verify = verify_of(job);
    const int64_t held = tri_params_held(job->params), count = tile_count(held);
    tri_digest_tile *tiles = tri_alloc_zero((size_t)count + 1, sizeof(*tiles));
    verify->digests = tri_alloc_zero((size_t)count + 1, sizeof(uint64_t));
    tri_status status = tiles && verify->digests ? TRI_OK : TRI_ENOMEM;
    for (int64_t i = 0; status == TRI_OK && i < count; i++)
        tiles[i] = tile_of(i, held);
    if (status == TRI_OK)
        status = tri_digest_create(job->device, tiles, count, &verify->weights);
    tri_free(tiles);
    return status;
}

static tri_status form(tri_job *job)
{
    verify_state *verify = verify_of(job);
    verify->compared = job->step;
    verify->good_step = -1;
    bool alike = !tri_job_has_own_weights(job) && !job->servers.client && job->world > 1;
    bool several = job->placement.spread == TRI_SPREAD_WEIGHTS ? job->mesh.zero < job->mesh.data : job->mesh.data > 1;
    if (!alike || !several)
        return TRI_OK;
    verify->every = tri_job_verify_steps(job, hashed_nbytes(job));
    if (verify->every == 0)
        return TRI_OK;
    return tiles_make(job);
}

static void part(tri_job *job)
{
    verify_state *verify = verify_of(job);
    tri_free(verify->digests);
    tri_digest_destroy(verify->weights);
    verify->digests = NULL;
    verify->weights = NULL;
    verify->every = 0;
}

/* --- hashes --- */

typedef struct digest_arg {
    const float *values;
    int64_t count;
    uint64_t *digests;
} digest_arg;

static void digest_tile(void *arg, int64_t number)
{
    const digest_arg *v = arg;
    const tri_digest_tile tile = tile_of(number, v->count);
    v->digests[number] =
        XXH3_64bits_withSeed(v->values + tile.first, (size_t)tile.count * sizeof(float), (XXH64_hash_t)tile.seed);
}

static uint64_t digests_sum(const verify_state *verify, int64_t count)
{
    uint64_t digest = 0;
    for (int64_t i = 0; i < count; i++)
        digest += verify->digests[i];
    return digest;
}

/* Of all elements of an array of the host, padding too; tiles may be hashed in any order. */
static uint64_t digest_of(const tri_job *job, const float *values, int64_t count)
{
    const verify_state *verify = verify_of(job);
    digest_arg arg = {values, count, verify->digests};
    tri_tiles_run(job->threads, tile_count(count), digest_tile, &arg);
    return digests_sum(verify, tile_count(count));
}

/* The same of the weights, where they are. */
static uint64_t weights_digest(const tri_job *job)
{
    const verify_state *verify = verify_of(job);
    const float *arrays[TRI_DIGEST_ARRAYS] = {job->params->values};
    tri_digest_run(verify->weights, job->threads, arrays, verify->digests);
    return digests_sum(verify, tile_count(tri_params_held(job->params)));
}

/* This rank's part of the sums that are zero where all replicas are the same: of half a hash each, so that the sums of
 * two billion ranks fit. */
static void figures_make(const tri_job *job, int64_t figures[2])
{
    tri_group *group = replicas_of(job, 0);
    uint64_t digest = weights_digest(job);
    verify_of(job)->digest = digest;
    int64_t factor = tri_group_rank(group) == 0 ? tri_group_count(group) - 1 : -1;
    figures[0] = factor * (int64_t)(digest & UINT32_MAX);
    figures[1] = factor * (int64_t)(digest >> 32);
}

static tri_status control_put(tri_job *job, tri_control *own)
{
    const verify_state *verify = verify_of(job);
    if (verify->every == 0 || job->step % verify->every != 0)
        return TRI_OK;
    TRI_TRY(tri_job_settle(job));
    figures_make(job, own->weights);
    return TRI_OK;
}

static void control_read(tri_job *job, const tri_control *sum)
{
    verify_state *verify = verify_of(job);
    (void)sum; /* zeros: the step does not continue before */
    if (verify->every > 0 && job->step % verify->every == 0)
        verify->compared = job->step;
}

static void scalars_put(const tri_job *job, tri_scalar_state *scalars)
{
    scalars->drops = (int32_t)verify_of(job)->drops;
}

/* A step that is redone takes none back. */
static void scalars_take(tri_job *job, const tri_scalar_state *scalars)
{
    verify_state *verify = verify_of(job);
    if (scalars->drops > verify->drops)
        verify->drops = scalars->drops;
}

static tri_status step_begin(tri_job *job)
{
    verify_of(job)->in_a_row = 0;
    return TRI_OK;
}

/* --- which, and what --- */

/* One array as this rank holds it, and the ranks that have the same. */
typedef struct replica {
    tri_group *group;
    float *values;
    int64_t count;
    tri_slice *slices; /* of the store, which are one after the other in values */
    int slice_count;
    const char *name;
    int source; /* of the group: has the majority's bits; -1: there is none */
    bool wrong; /* this rank has others */
    bool any;   /* some rank has */
    int number; /* of the first parameter in which it differs, -1: none */
} replica;

enum { SAME, REPAIRED, UNDECIDED };

/* What each rank tells all others. */
typedef struct verdict {
    int64_t state, array, number, own; /* own: times that it was repaired before */
    char host[TRI_HOST_NAME_NBYTES + 7];
} verdict;
_Static_assert(sizeof(verdict) == RECORD_INTS * sizeof(int64_t), "a verdict is whole numbers");

/* The first of those with the most votes, if these are more than half. */
static int majority(const uint64_t *digests, int count)
{
    for (int i = 0; i < count; i++) {
        int votes = 0;
        for (int k = 0; k < count; k++)
            votes += digests[k] == digests[i];
        if (2 * votes > count)
            return i;
    }
    return -1;
}

static tri_status replica_vote(const tri_job *job, replica *own)
{
    int count = tri_group_count(own->group), rank = tri_group_rank(own->group);
    uint64_t digest = digest_of(job, own->values, own->count), *all = tri_alloc((size_t)count * sizeof(uint64_t));
    if (!all)
        return TRI_ENOMEM;
    tri_group_name_next(own->group, "replicas: hashes");
    tri_status status = tri_all_gather(own->group, &digest, all, 1, TRI_I64, NULL);
    tri_group_name_next(own->group, "");
    if (status == TRI_OK) {
        own->source = majority(all, count);
        own->wrong = all[rank] != all[own->source < 0 ? 0 : own->source];
        for (int i = 0; i < count; i++)
            own->any = own->any || all[i] != all[0];
    }
    tri_free(all);
    return status;
}

/* Of each parameter, what of it is here. */
static void entries_digest(const tri_params *params, const replica *own, uint64_t *digests)
{
    const float *values = own->values;
    memset(digests, 0, (size_t)params->entry_count * sizeof(*digests));
    for (int s = 0; s < own->slice_count; values += own->slices[s++].count)
        for (int e = 0; e < params->entry_count; e++) {
            tri_slice here = tri_param_within(&params->entries[e], own->slices[s]);
            if (here.count > 0)
                digests[e] += XXH3_64bits_withSeed(values + (here.first - own->slices[s].first),
                                                   (size_t)here.count * sizeof(float), (XXH64_hash_t)here.first);
        }
}

/* Where this rank differs from one that is right; without a majority, from the first. */
static tri_status replica_look(const tri_job *job, replica *own)
{
    const tri_params *params = job->params;
    size_t count = (size_t)params->entry_count;
    uint64_t *mine = tri_alloc(2 * (count + 1) * sizeof(uint64_t)), *theirs = mine + count;
    if (!mine)
        return TRI_ENOMEM;
    entries_digest(params, own, mine);
    memcpy(theirs, mine, count * sizeof(*theirs));
    tri_group_name_next(own->group, "replicas: tensors");
    tri_status status =
        tri_broadcast(own->group, theirs, (int64_t)count, TRI_I64, own->source < 0 ? 0 : own->source, NULL);
    tri_group_name_next(own->group, "");
    for (size_t e = count; e-- > 0 && status == TRI_OK;)
        if (mine[e] != theirs[e])
            own->number = params->entries[e].number;
    tri_free(mine);
    return status;
}

typedef struct replicas {
    tri_job_arrays arrays;
    replica items[1 + TRI_OPTIM_MAX_STATE];
    int count;
    tri_slice all;
    tri_slice *own; /* of the state, or of all that is spread */
    int own_count;
} replicas;

static tri_status replicas_open(tri_job *job, replicas *found)
{
    *found = (replicas){.all = {0, job->params->count}};
    TRI_TRY(tri_job_arrays_open(job, true, &found->arrays));
    TRI_TRY(tri_shares_of(&job->placement.shares, tri_mesh_zero_rank(&job->mesh), &found->own, &found->own_count));
    for (int a = 0; a < found->arrays.count; a++) {
        bool whole = a == 0 && job->placement.spread != TRI_SPREAD_WEIGHTS;
        replica *item = &found->items[found->count];
        *item = (replica){.group = replicas_of(job, a),
                          .values = found->arrays.views[a].host,
                          .count = a == 0 ? tri_params_held(job->params) : tri_optim_count(job->optim),
                          .slices = whole ? &found->all : found->own,
                          .slice_count = whole ? 1 : found->own_count,
                          .name = a == 0 ? "weights" : tri_optim_state_name(job->optim, a - 1),
                          .number = -1};
        found->count += item->group != NULL;
    }
    return TRI_OK;
}

static void replicas_close(replicas *found)
{
    tri_job_arrays_close(&found->arrays);
    tri_free(found->own);
}

static verdict verdict_of(const tri_job *job, const replicas *found)
{
    verdict own = {.state = SAME, .number = -1, .own = verify_of(job)->repairs};
    tri_host_name(own.host);
    for (int a = found->count - 1; a >= 0; a--) { /* the first array decides */
        const replica *item = &found->items[a];
        if (!item->any || (item->source >= 0 && !item->wrong))
            continue;
        own.state = item->source < 0 || own.state == UNDECIDED ? UNDECIDED : REPAIRED;
        own.array = a;
        own.number = item->number;
    }
    return own;
}

static const char *parameter_name(const tri_job *job, int64_t number)
{
    for (int i = 0; i < job->params->entry_count; i++)
        if (job->params->entries[i].number == number)
            return job->params->entries[i].name;
    const char *name = number >= 0 && number < job->params->model_count ? job->params->names[number] : NULL;
    return number < 0 ? "the gaps between tensors" : name ? name : "a buffer";
}

/* The ranks of one state, "rank 2 (host a) in fc1.weight, ..."; how many. */
static int ranks_print(const tri_job *job, const verdict *all, int state, char *text, size_t nbytes)
{
    int count = 0;
    size_t at = 0;
    text[0] = 0;
    for (int r = 0; r < job->world; r++) {
        if (all[r].state != state)
            continue;
        const char *kind = all[r].array > 0 ? tri_optim_state_name(job->optim, (int)all[r].array - 1) : NULL;
        if (at < nbytes)
            at += (size_t)snprintf(text + at, nbytes - at, "%srank %d (%s)", count > 0 ? ", " : "", r, all[r].host);
        if (at < nbytes && (all[r].number >= 0 || state == REPAIRED))
            at += (size_t)snprintf(text + at, nbytes - at, ", first in %s%s%s", kind ? kind : "", kind ? " of " : "",
                                   parameter_name(job, all[r].number));
        count++;
    }
    return count;
}

void tri_job_verify_late(tri_job *job, int64_t step)
{
    int64_t steps = step - verify_of(job)->compared;
    if (steps <= 1 || strcmp(job->identity.bits, "reproducible") != 0)
        return;
    snprintf(job->identity.bits, sizeof(job->identity.bits), TRI_BITS_LATE "for up to %lld steps before step %lld)",
             (long long)steps, (long long)step);
    if (job->rank == 0)
        tri_log(TRI_LOG_WARN, "%s", job->identity.bits);
}

bool tri_job_verify_is_worn(const tri_job *job, int64_t own, int in_a_row)
{
    int64_t limit = job->config.train.guard_limit;
    return in_a_row > MOST_ROWS || (limit > 0 && own >= limit);
}

tri_status tri_job_put_out(tri_job *job, int rank, const char *what)
{
    char message[TRI_ERROR_NBYTES];
    if (!job->elastic.on)
        return tri_fail(TRI_ENUMERIC, "%s: its memory or its processor fails", what);
    job->elastic.misfit = rank;
    job->elastic.given_up = rank != job->rank;
    tri_status status =
        rank == job->rank
            ? tri_fail(TRI_EIO, "%s: the memory or the processor of this worker fails; it leaves", what)
            : tri_fail(TRI_EPEER, "%s: its memory or its processor fails; the others continue without it", what);
    snprintf(message, sizeof(message), "%s", tri_last_error());
    (void)tri_barrier(job->group, NULL); /* nobody fails before all know why */
    return tri_fail_copy(status, message);
}

tri_status tri_job_verify_drop(tri_job *job, const char *what)
{
    verify_state *verify = verify_of(job);
    int64_t limit = job->config.train.guard_limit;
    bool drops = job->elastic.on && (limit == 0 || verify->drops < limit);
    tri_status status = tri_fail(TRI_ENUMERIC, "%s: a memory or a processor fails; %s", what,
                                 drops ? "none of them counts" : "the newest checkpoint is from before (--resume)");
    char message[TRI_ERROR_NBYTES];
    if (!drops)
        return status;
    verify->drops++;
    job->elastic.dropped = true; /* whatever becomes of the next call */
    snprintf(message, sizeof(message), "%s", tri_last_error());
    (void)tri_barrier(job->group, NULL); /* nobody fails before all know why */
    return tri_fail_copy(status, message);
}

tri_status tri_job_verify_tie(tri_job *job, const char *ranks)
{
    char what[700];
    snprintf(what, sizeof(what), "replicas of the weights differ before step %lld, and none has a majority: %s",
             (long long)job->step, ranks);
    return tri_job_verify_drop(job, what);
}

/* A rank that was repaired too often, or -1. */
static int worn_find(const tri_job *job, const verdict *all)
{
    for (int r = 0; r < job->world; r++)
        if (all[r].state == REPAIRED && tri_job_verify_is_worn(job, all[r].own, verify_of(job)->in_a_row))
            return r;
    return -1;
}

static tri_status worn_tell(tri_job *job, const verdict *all, int rank)
{
    char what[300];
    snprintf(what, sizeof(what),
             "weights of rank %d (%s) differ again before step %lld, after %lld repairs "
             "(train.guard_limit)",
             rank, all[rank].host, (long long)job->step, (long long)all[rank].own);
    return tri_job_put_out(job, rank, what);
}

static tri_status verdicts_tell(tri_job *job, const verdict *all)
{
    verify_state *verify = verify_of(job);
    char ranks[600], text[800];
    if (ranks_print(job, all, UNDECIDED, ranks, sizeof(ranks)) > 0)
        return tri_job_verify_tie(job, ranks);
    bool any = ranks_print(job, all, REPAIRED, ranks, sizeof(ranks)) > 0;
    if (!any)
        snprintf(ranks, sizeof(ranks), "for a moment, no longer");
    verify->in_a_row++;
    int worn = worn_find(job, all);
    if (worn >= 0)
        return worn_tell(job, all, worn);
    if (!any && verify->in_a_row > MOST_ROWS)
        return tri_fail(TRI_ENUMERIC,
                        "replicas of the weights differ again and again before step %lld, each time for a moment: a "
                        "memory or a processor fails",
                        (long long)job->step);
    verify->repairs += all[job->rank].state == REPAIRED;
    tri_counter_add(TRI_COUNT_REPAIRS, 1);
    tri_job_verify_late(job, job->step);
    snprintf(text, sizeof(text), "before step %lld weights differ from the other replicas': %s: repaired from these",
             (long long)job->step, ranks);
    return tri_job_event_tell(job, "repair", text);
}

static tri_status replicas_repair(replicas *found)
{
    for (int a = 0; a < found->count; a++) {
        const replica *item = &found->items[a];
        if (!item->any)
            continue;
        tri_group_name_next(item->group, "replicas: repair");
        tri_status status = tri_broadcast(item->group, item->values, item->count, TRI_F32, item->source, NULL);
        tri_group_name_next(item->group, "");
        TRI_TRY(status);
    }
    tri_job_arrays_written(&found->arrays);
    return TRI_OK;
}

static tri_status replicas_compare(tri_job *job, replicas *found)
{
    for (int a = 0; a < found->count; a++) {
        TRI_TRY(replica_vote(job, &found->items[a]));
        if (found->items[a].any)
            TRI_TRY(replica_look(job, &found->items[a]));
    }
    verdict own = verdict_of(job, found), *all = tri_alloc((size_t)job->world * sizeof(verdict));
    if (!all)
        return TRI_ENOMEM;
    tri_group_name_next(job->group, "replicas: verdicts");
    tri_status status = tri_all_gather(job->group, &own, all, RECORD_INTS, TRI_I64, NULL);
    tri_group_name_next(job->group, "");
    if (status == TRI_OK)
        status = verdicts_tell(job, all);
    tri_free(all);
    return status;
}

static tri_status replicas_repair_all(tri_job *job)
{
    replicas found;
    tri_status status = replicas_open(job, &found);
    if (status == TRI_OK)
        status = replicas_compare(job, &found);
    if (status == TRI_OK)
        status = replicas_repair(&found);
    replicas_close(&found);
    TRI_TRY(status);
    return job->sync->ops->publish ? job->sync->ops->publish(job->sync) : TRI_OK;
}

static tri_status repair(tri_job *job, bool *done)
{
    *done = true;
    return replicas_repair_all(job);
}

static tri_status verify_now(tri_job *job)
{
    verify_state *verify = verify_of(job);
    int64_t figures[2] = {0};
    if (verify->every == 0)
        return TRI_OK;
    TRI_TRY(tri_job_settle(job));
    figures_make(job, figures);
    tri_group_name_next(job->group, "replicas");
    tri_status status = tri_all_reduce(job->group, figures, figures, 2, TRI_I64, TRI_REDUCE_SUM, NULL);
    tri_group_name_next(job->group, "");
    TRI_TRY(status);
    verify->in_a_row = 0;
    bool same = figures[0] == 0 && figures[1] == 0;
    if (!same)
        TRI_TRY(replicas_repair_all(job));
    verify->compared = job->step;
    verify->good_step = same ? job->step : -1;
    return TRI_OK;
}

tri_status tri_job_verify_copy_fails(void)
{
    return tri_fail(TRI_EIO, "what this rank holds has changed in memory while it was copied");
}

static tri_status copied(tri_job *job)
{
    const verify_state *verify = verify_of(job);
    if (verify->every == 0 || verify->good_step != job->step || weights_digest(job) == verify->digest)
        return TRI_OK;
    return tri_job_verify_copy_fails();
}

/* Before a checkpoint, known to all ranks. */
bool tri_job_verify_is_due(const tri_job *job)
{
    return tri_job_is_due(job, job->config.checkpoint.every_steps) || tri_job_save_is_due(job);
}

const tri_feature tri_feature_replicas = {.state_nbytes = sizeof(verify_state),
                                          .scalars_put = scalars_put,
                                          .scalars_take = scalars_take,
                                          .form = form,
                                          .step_begin = step_begin,
                                          .control_put = control_put,
                                          .control_read = control_read,
                                          .repair = repair,
                                          .is_due = tri_job_verify_is_due,
                                          .run = verify_now,
                                          .copied = copied,
                                          .part = part};
