/* SPDX-License-Identifier: Apache-2.0
 *
 * reform_parts.c: a whole state, from all ranks that have it to all that have not, at once.
 *
 * Each array is cut into a block for each taker, and each block into a part for each giver: the givers send all parts
 * at the same time, each an equal share of the bytes; then the takers give each other their blocks. So a giver sends no
 * more than the state once, however many take it, and a taker gets it as fast as its link goes, not as one giver's
 * does.
 */
#include <string.h>

#include "base/log.h"
#include "train/checkpointing/arrays.h"
#include "train/core/job.h"
#include "train/core/step.h"
#include "train/elastic/pairs_move.h"
#include "train/elastic/reform.h"

typedef struct handing {
    tri_job *job;
    const bool *has; /* [world] */
    int givers, takers;
    int place;         /* of this rank among those of its kind */
    tri_group *others; /* the takers, where there are several and this is one; else NULL */
    int64_t *room;     /* of the arrays below */
    int64_t *to_counts, *to_firsts, *from_counts, *from_firsts; /* [world] */
} handing;

static tri_slice cut(tri_slice all, int parts, int i)
{
    int64_t first = all.count * i / parts;
    return (tri_slice){all.first + first, all.count * (i + 1) / parts - first};
}

static tri_slice part_of(const handing *h, int64_t count, int taker, int giver)
{
    return cut(cut((tri_slice){0, count}, h->takers, taker), h->givers, giver);
}

/* From the givers, a block each to the takers. */
static tri_status blocks_send(handing *h, float *values, int64_t count)
{
    const tri_job *job = h->job;
    bool gives = h->has[job->rank];
    int giver = 0, taker = 0;
    memset(h->room, 0, 4 * (size_t)job->world * sizeof(*h->room));
    for (int r = 0; r < job->world; r++) {
        int other = h->has[r] ? giver++ : taker++;
        if (h->has[r] == gives)
            continue;
        tri_slice part = gives ? part_of(h, count, other, h->place) : part_of(h, count, h->place, other);
        (gives ? h->to_counts : h->from_counts)[r] = part.count;
        (gives ? h->to_firsts : h->from_firsts)[r] = part.first;
    }
    tri_blocks to = {h->to_counts, h->to_firsts}, from = {h->from_counts, h->from_firsts};
    return tri_pairs_move(job->group, job->rank, job->world, values, &to, values, &from);
}

/* Each taker's block to the others of them. */
static tri_status blocks_share(handing *h, float *values, int64_t count)
{
    for (int t = 0; t < h->takers; t++) {
        tri_slice block = cut((tri_slice){0, count}, h->takers, t);
        h->from_counts[t] = block.count;
        h->from_firsts[t] = block.first;
    }
    tri_blocks blocks = {h->from_counts, h->from_firsts};
    tri_group_name_next(h->others, "state");
    tri_status status = tri_all_gather_v(h->others, values + h->from_firsts[h->place], values, &blocks, TRI_F32, NULL);
    tri_group_name_next(h->others, "");
    return status;
}

static int64_t count_of(const tri_job *job, int array)
{
    return array == 0 ? job->params->count : tri_optim_count(job->optim);
}

/* A rank that is a step behind keeps what it has until everything is there: it may be the last that has anything. A
 * newcomer has nothing to lose. */
static tri_status arrays_move(handing *h, tri_job_arrays *arrays, float **rooms)
{
    tri_job *job = h->job;
    bool takes = !h->has[job->rank], stages = takes && job->elastic.has_state;
    int first = 0;
    int64_t elements = 0, start_ns = tri_now_ns();
    while (!h->has[first])
        first++;
    for (int i = 0; stages && i < arrays->count; i++)
        if (!(rooms[i] = tri_alloc_bulk((size_t)count_of(job, i) * sizeof(float))))
            return TRI_ENOMEM;
    if (takes && !stages)
        job->elastic.touched = true;
    tri_scalar_state scalars = tri_scalar_state_of(job);
    TRI_TRY(tri_broadcast(job->group, &scalars, sizeof(scalars), TRI_U8, first, NULL));
    for (int i = 0; i < arrays->count; elements += count_of(job, i++)) {
        float *values = stages ? rooms[i] : arrays->views[i].host;
        TRI_TRY(blocks_send(h, values, count_of(job, i)));
        if (h->others)
            TRI_TRY(blocks_share(h, values, count_of(job, i)));
    }
    if (!takes)
        return TRI_OK;
    for (int i = 0; stages && i < arrays->count; i++)
        memcpy(arrays->views[i].host, rooms[i], (size_t)count_of(job, i) * sizeof(float));
    tri_job_arrays_written(arrays);
    if (stages) /* others have written lines of a step that it did not see */
        tri_job_lost_touch(job);
    TRI_TRY(tri_scalar_state_take(job, &scalars, job->elastic.has_state));
    double seconds = (double)(tri_now_ns() - start_ns) / 1e9, mb = (double)elements * sizeof(float) / 1e6;
    tri_log(TRI_LOG_INFO, "has the state after step %lld: %.1f MB from %d worker%s in %.3f s (%.0f MB/s)",
            (long long)h->job->step, mb, h->givers, h->givers == 1 ? "" : "s", seconds, mb / seconds);
    return TRI_OK;
}

/* The takers meet where there are several. */
static tri_status handing_open(handing *h)
{
    const tri_job *job = h->job;
    size_t world = (size_t)job->world;
    int *ranks = tri_alloc(world * sizeof(int));
    h->room = tri_alloc(4 * world * sizeof(*h->room));
    h->to_counts = h->room;
    h->to_firsts = h->room + world;
    h->from_counts = h->room + 2 * world;
    h->from_firsts = h->room + 3 * world;
    tri_status status = ranks && h->room ? TRI_OK : TRI_ENOMEM;
    for (int r = 0; status == TRI_OK && r < job->world; r++) {
        if (r == job->rank)
            h->place = h->has[r] ? h->givers : h->takers;
        if (h->has[r])
            h->givers++;
        else
            ranks[h->takers++] = r;
    }
    if (status == TRI_OK && h->takers > 1 && !h->has[job->rank])
        status = tri_group_create_of(job->comm, ranks, h->takers, "state", &h->others);
    tri_free(ranks);
    return status;
}

static tri_status arrays_hand(handing *h)
{
    tri_job_arrays arrays;
    float *rooms[1 + TRI_OPTIM_MAX_STATE] = {NULL};
    tri_status status = tri_job_arrays_open(h->job, true, &arrays);
    tri_group_name_next(h->job->group, "state");
    if (status == TRI_OK)
        status = arrays_move(h, &arrays, rooms);
    tri_group_name_next(h->job->group, "");
    tri_job_arrays_close(&arrays);
    for (size_t i = 0; i < TRI_COUNT_OF(rooms); i++)
        tri_free(rooms[i]);
    return status;
}

tri_status tri_job_state_hand(tri_job *job, const bool *has)
{
    handing h = {.job = job, .has = has};
    tri_status status = handing_open(&h);
    if (status == TRI_OK && h.takers > 0)
        status = arrays_hand(&h);
    tri_group_destroy(h.others);
    tri_free(h.room);
    return status;
}
