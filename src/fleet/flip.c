/* SPDX-License-Identifier: Apache-2.0
 *
 * flip.c: bits that flip in the memory of simulated workers: in a part of a sharded state, or in the mirror of
 * one, while it is there. Sometimes the worker that has the other copy is killed before anybody can have looked.
 *
 * At most one copy of a part is wrong at a time: of two nobody could be right.
 */
#include <string.h>

#include "base/log.h"
#include "fleet/fleet.h"

#define KILLED 4 /* in one of this many cases the other holder is */

/* One that has the role too, after the same step at least; NULL: nobody. */
static fleet_worker *other_find(const fleet *all, const fleet_worker *worker, int role)
{
    for (int i = 0; i < all->count; i++) {
        fleet_worker *other = all->workers[i];
        bool same = other->set.generation == worker->set.generation && other != worker;
        if (same && !other->process.dead && !other->ended && (other->set.own == role || other->set.mirror == role))
            return other;
    }
    return NULL;
}

/* One bit of one element: of the weights, or of an array of state. */
static bool shard_flip(fleet *all, const tri_state_shard *shard)
{
    int arrays = 1;
    while (tri_optim_state_name(shard->optim, arrays - 1))
        arrays++;
    int array = (int)fleet_draw(all, (uint64_t)arrays);
    const tri_vector *list = array == 0 ? &shard->held_values : &shard->held;
    if (list->count == 0)
        return false;
    const tri_extent *held = tri_vector_at(list, fleet_draw(all, list->count));
    float *values = array == 0 ? shard->params->values : tri_optim_state(shard->optim, array - 1);
    float *value = values + held->at + (int64_t)fleet_draw(all, (uint64_t)(held->high - held->low));
    uint32_t bits;
    memcpy(&bits, value, sizeof(bits));
    bits ^= UINT32_C(1) << fleet_draw(all, 32);
    memcpy(value, &bits, sizeof(bits));
    return true;
}

void fleet_flip(fleet_worker *worker, const tri_job *job)
{
    fleet *all = worker->fleet;
    const fleet_config *config = all->config;
    const tri_shard_set *now = &job->assignment.now;
    if (all->flips_left == 0 || config->is_quiet || job->assignment.mirrored < 0 || job->step >= config->steps)
        return;
    if (fleet_draw(all, (uint64_t)(config->ranks * config->steps)) >= (uint64_t)config->flips)
        return;
    bool own = fleet_draw(all, 2) == 0;
    int *role = own ? &worker->set.own : &worker->set.mirror;
    fleet_worker *other = other_find(all, worker, *role);
    if (!other || !shard_flip(all, own ? &now->own : &now->mirror))
        return;
    tri_log(TRI_LOG_INFO, "a bit flips in %s part %d of %s", own ? "" : "the mirror of ", *role, worker->id);
    fleet_trace(all, (uint64_t)worker->number, 7);
    *role = -1; /* it has it no more */
    all->flips_left--;
    all->result->flips++;
    if (fleet_draw(all, KILLED) == 0)
        fleet_kill(other);
}
