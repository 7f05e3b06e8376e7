/* SPDX-License-Identifier: Apache-2.0
 *
 * state.c: the state of a worker of a simulated job against that of one process after as many steps: a hash of
 * the weights where each worker has all of them; where the state is spread each element of weights and optimizer that
 * the worker has in its role, and in the mirror that it keeps.
 */
#include <string.h>

#include "base/memory.h"
#include "fleet/fleet.h"
#include "nn/params.h"

static int arrays_of(const tri_job *job)
{
    int count = 1;
    while (tri_optim_state_name(job->optim, count - 1))
        count++;
    return count;
}

static tri_status reference_open(fleet_reference *reference, const tri_job *job, int64_t steps)
{
    if (reference->values)
        return TRI_OK;
    reference->total = job->model.tensors.total;
    reference->arrays = arrays_of(job);
    size_t nbytes = (size_t)(steps + 1) * (size_t)reference->arrays * (size_t)reference->total * sizeof(float);
    reference->values = tri_alloc_zero(nbytes, 1);
    return reference->values ? TRI_OK : TRI_ENOMEM;
}

void fleet_reference_fini(fleet_reference *reference)
{
    tri_free(reference->values);
    *reference = (fleet_reference){0};
}

/* Elements of an extent, in or against all elements of all tensors. */
static bool extent_check(const tri_job *job, const tri_extent *extent, float *array, float *whole, bool writes)
{
    int64_t first = job->model.tensors.items[extent->tensor].first, count = 0;
    bool same = true;
    for (int64_t at = extent->low; at < extent->high; at += count) {
        int64_t place = first + tri_piece_place(extent->shape, extent->piece, at, &count);
        float *here = array + extent->at + (at - extent->low);
        if (count > extent->high - at)
            count = extent->high - at;
        if (writes)
            memcpy(whole + place, here, (size_t)count * sizeof(float));
        else
            same = same && memcmp(whole + place, here, (size_t)count * sizeof(float)) == 0;
    }
    return same;
}

static bool shard_check(const tri_job *job, const tri_state_shard *shard, const fleet_reference *reference, bool writes)
{
    bool same = true;
    for (int a = 0; a < reference->arrays; a++) {
        const tri_vector *list = a == 0 ? &shard->held_values : &shard->held;
        float *array = a == 0 ? shard->params->values : tri_optim_state(shard->optim, a - 1);
        float *whole = reference->values + (job->step * reference->arrays + a) * reference->total;
        for (size_t i = 0; i < list->count; i++)
            same = extent_check(job, tri_vector_at(list, i), array, whole, writes) && same;
    }
    return same;
}

/* What is wrong with it; NULL: nothing is. */
static const char *spread_check(const fleet *all, const tri_job *job)
{
    fleet_reference *reference = all->config->reference;
    const tri_shard_set *now = &job->assignment.now;
    bool writes = all->config->is_quiet;
    if (writes && reference_open(reference, job, all->config->steps) != TRI_OK)
        return "no memory for";
    if (!shard_check(job, &now->own, reference, writes))
        return "other elements in its role than";
    if (now->mirror.params && !shard_check(job, &now->mirror, reference, writes))
        return "other elements in its mirror than";
    return NULL;
}

static const char *whole_check(const fleet *all, const tri_job *job)
{
    fleet_reference *reference = all->config->reference;
    uint64_t hash = tri_params_hash_here(job->params);
    if (all->config->is_quiet)
        reference->hashes[job->step] = hash;
    return hash == reference->hashes[job->step] ? NULL : "other weights than";
}

void fleet_state_check(const fleet_worker *worker, const tri_job *job)
{
    fleet *all = worker->fleet;
    if (job->step < 0 || job->step > all->config->steps) {
        fleet_broke(all, "worker %s is at step %lld of %lld", worker->id, (long long)job->step,
                    (long long)all->config->steps);
        return;
    }
    const char *wrong = job->assignment.on ? spread_check(all, job) : whole_check(all, job);
    if (wrong)
        fleet_broke(all, "worker %s, generation %lld: after step %lld %s without faults", worker->id,
                    (long long)worker->meeting->number, (long long)job->step, wrong);
    fleet_trace(all, (uint64_t)job->step, all->config->reference->hashes[job->step]);
}

/* --- which of them can be put together again --- */

/* It lives, takes part, and does not sleep longer than others wait for it. */
static bool can_be_asked(const fleet_worker *worker)
{
    int64_t now_ns = tri_now_ns();
    bool slept = worker->process.wake_ns > now_ns && now_ns - worker->process.stopped_ns > FLEET_PATIENCE_NS;
    return !worker->process.dead && !worker->ended && !worker->left && !slept;
}

static bool is_held(const fleet *all, int64_t generation, int64_t step, int role)
{
    for (int i = 0; i < all->count; i++) {
        const tri_assignment_set *set = &all->workers[i]->set;
        if (can_be_asked(all->workers[i]) && set->generation == generation && set->step >= step - 1 &&
            (set->own == role || set->mirror == role))
            return true;
    }
    return false;
}

/* Where one has made a step all that are left of its generation can make it (docs/design/recovery.md). */
static bool is_whole(const fleet *all, const tri_assignment_set *newest)
{
    for (int role = 0; role < newest->roles; role++)
        if (!is_held(all, newest->generation, newest->step, role))
            return false;
    return true;
}

/* Holders of a role in a generation; are some of them on different hosts? */
static int holders_count(const fleet *all, int64_t generation, int role, bool *hosts)
{
    const char *host = NULL;
    int count = 0;
    *hosts = false;
    for (int i = 0; i < all->count; i++) {
        const fleet_worker *worker = all->workers[i];
        if (worker->set.generation != generation || (worker->set.own != role && worker->set.mirror != role))
            continue;
        *hosts = *hosts || (host && strcmp(host, worker->host) != 0);
        host = worker->host;
        count++;
    }
    return count;
}

/* Has no host more than half of them? Then each can have its mirror on another one. */
static bool hosts_are_many(const fleet *all, int64_t generation)
{
    int count = 0, most = 0;
    for (int i = 0; i < all->count; i++) {
        int same = 0;
        for (int k = 0; all->workers[i]->set.generation == generation && k < all->count; k++)
            same += all->workers[k]->set.generation == generation &&
                    strcmp(all->workers[k]->host, all->workers[i]->host) == 0;
        count += all->workers[i]->set.generation == generation;
        most = same > most ? same : most;
    }
    return count > 1 && 2 * most <= count;
}

void fleet_mirrors_check(fleet *all, int64_t generation)
{
    int roles = 0, workers = 0;
    for (int i = 0; i < all->count; i++)
        if (all->workers[i]->set.generation == generation) {
            roles = all->workers[i]->set.roles;
            workers++;
        }
    bool many = hosts_are_many(all, generation), hosts;
    for (int role = 0; role < roles && workers > 1; role++)
        if (holders_count(all, generation, role, &hosts) < 2 || (many && !hosts))
            fleet_broke(all, "generation %lld begins with part %d of the state on one %s", (long long)generation, role,
                        many ? "host" : "worker");
}

void fleet_loss_check(fleet *all, const fleet_worker *worker, const char *what)
{
    for (int i = 0; i < all->count; i++) {
        const fleet_worker *other = all->workers[i];
        bool spread = other->set.generation > 0;
        if (other->step > 0 && can_be_asked(other) && (!spread || is_whole(all, &other->set)))
            fleet_broke(all, "worker %s %s, though %s%s has step %lld", worker->id, what, other->id,
                        spread ? " with others" : "", (long long)other->step);
    }
}
