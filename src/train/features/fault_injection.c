/* SPDX-License-Identifier: Apache-2.0
 *
 * fault_injection.c: where `trireme chaos` may strike a run from within (comm.chaos): how far it is, and a bit of its
 * weights; or of its part of a sharded state, and of the mirror that it keeps.
 */
#include "base/chaos.h"
#include "train/core/features.h"
#include "train/features/observers.h"

static tri_status chaos_open(tri_job *job)
{
    return job->config.net.chaos ? tri_chaos_offer() : TRI_OK;
}

/* Bytes that are passed on the way to one of them. */
typedef struct walk {
    int64_t left;      /* until that one; negative: it was passed */
    int64_t passed;    /* so far */
    unsigned char *at; /* where it is; NULL: not passed yet */
} walk;

static void walk_on(walk *w, float *values, int64_t count)
{
    int64_t nbytes = count * (int64_t)sizeof(float);
    if (w->left >= 0 && w->left < nbytes)
        w->at = (unsigned char *)values + w->left;
    w->left -= nbytes;
    w->passed += nbytes;
}

static void shard_walk(walk *w, const tri_state_shard *shard, bool weights)
{
    for (int a = weights ? 0 : 1; shard->params && (a == 0 || tri_optim_state_name(shard->optim, a - 1)); a++) {
        const tri_vector *list = a == 0 ? &shard->held_values : &shard->held;
        float *array = a == 0 ? shard->params->values : tri_optim_state(shard->optim, a - 1);
        for (size_t i = 0; i < list->count; i++) {
            const tri_extent *held = tri_vector_at(list, i);
            walk_on(w, array + held->at, held->high - held->low);
        }
    }
}

/* Weights that are here whole, and what has a mirror, or is one. */
static walk walk_to(const tri_job *job, int64_t byte)
{
    const tri_shard_set *now = &job->assignment.now;
    bool whole = job->placement.spread != TRI_SPREAD_WEIGHTS;
    walk w = {.left = byte};
    for (int e = 0; whole && e < job->params->entry_count; e++)
        walk_on(&w, job->params->values + job->params->entries[e].first, job->params->entries[e].count);
    if (job->assignment.on && job->assignment.mirrored >= 0) {
        shard_walk(&w, &now->own, !whole);
        shard_walk(&w, &now->mirror, true);
    }
    return w;
}

static tri_status step_done(tri_job *job)
{
    if (tri_chaos_is_offered())
        tri_chaos_tell(job->step, walk_to(job, -1).passed);
    return TRI_OK;
}

static tri_status step_begin(tri_job *job)
{
    int64_t bit = tri_chaos_flip_take(job->step);
    unsigned char *at = bit >= 0 ? walk_to(job, bit / 8).at : NULL;
    unsigned char byte;
    if (at) {
        tri_device_to_host(job->device, &byte, at, 1);
        byte = (unsigned char)(byte ^ (1u << (bit % 8)));
        tri_device_from_host(job->device, at, &byte, 1);
    }
    return tri_chaos_fail_take();
}

const tri_feature tri_feature_chaos = {.open = chaos_open, .step_begin = step_begin, .step_done = step_done};
