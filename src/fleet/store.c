/* SPDX-License-Identifier: Apache-2.0
 *
 * store.c: a worker's way to the store of a simulated job: requests take time, and what was killed in between may
 * or may not have changed something there.
 */
#include <string.h>

#include "fleet/fleet.h"

#define TRIP_NS  (150 * TRI_NS_PER_MS / 1000) /* one way, at most */
#define SLICE_NS (20 * TRI_NS_PER_MS)         /* of a wait, after which it is seen that the process was killed */

static bool travel(const fleet_store *store)
{
    tri_sleep_ns((int64_t)fleet_draw(store->worker->fleet, (uint64_t)TRIP_NS) +
                 tri_sim_process_late_ns(&store->worker->process, NULL));
    return !store->worker->process.dead;
}

static tri_status killed(void)
{
    return tri_fail(TRI_EIO, "store: this process was killed");
}

static const fleet_store *of(tri_store *base)
{
    return tri_container_of(base, fleet_store, base);
}

static tri_store *inner(const fleet_store *store)
{
    return store->worker->fleet->store;
}

/* The answer to a request that has changed something. */
static bool is_answered(const fleet_store *store)
{
    fleet_worker *worker = store->worker;
    if (worker->doomed && !worker->process.dead)
        fleet_kill(worker);
    return travel(store);
}

static tri_status far_set(tri_store *base, const char *key, const void *bytes, size_t nbytes, int64_t deadline_ns)
{
    const fleet_store *store = of(base);
    if (!travel(store))
        return killed();
    TRI_TRY(tri_store_set(inner(store), key, bytes, nbytes, deadline_ns));
    if (strncmp(key, "gone/", 5) == 0 && strcmp(key + 5, store->worker->id) == 0)
        store->worker->left = true;
    return is_answered(store) ? TRI_OK : killed();
}

/* The answer to a request that was good. */
static tri_status answer(const fleet_store *store, char **bytes)
{
    if (travel(store))
        return TRI_OK;
    tri_free(*bytes);
    *bytes = NULL;
    return killed();
}

static tri_status far_wait(tri_store *base, const char *key, char **bytes, size_t *nbytes, int64_t deadline_ns)
{
    const fleet_store *store = of(base);
    tri_status status = TRI_ETIMEOUT;
    if (!travel(store))
        return killed();
    while (status == TRI_ETIMEOUT) {
        int64_t slice_ns = tri_now_ns() + SLICE_NS;
        status = tri_store_wait(inner(store), key, bytes, nbytes, slice_ns < deadline_ns ? slice_ns : deadline_ns);
        if (status == TRI_ETIMEOUT && store->worker->process.dead)
            return killed();
        if (status == TRI_ETIMEOUT && tri_now_ns() >= deadline_ns)
            return status;
    }
    return status == TRI_OK ? answer(store, bytes) : status;
}

static tri_status far_add(tri_store *base, const char *key, int64_t amount, int64_t *after, int64_t deadline_ns)
{
    const fleet_store *store = of(base);
    if (!travel(store))
        return killed();
    TRI_TRY(tri_store_add(inner(store), key, amount, after, deadline_ns));
    return is_answered(store) ? TRI_OK : killed();
}

static tri_status far_raise(tri_store *base, const char *key, int64_t least, int64_t *after, int64_t deadline_ns)
{
    const fleet_store *store = of(base);
    if (!travel(store))
        return killed();
    TRI_TRY(tri_store_raise(inner(store), key, least, after, deadline_ns));
    return is_answered(store) ? TRI_OK : killed();
}

static tri_status far_remove(tri_store *base, const char *key, int64_t deadline_ns)
{
    const fleet_store *store = of(base);
    if (!travel(store))
        return killed();
    TRI_TRY(tri_store_remove(inner(store), key, deadline_ns));
    return is_answered(store) ? TRI_OK : killed();
}

static tri_status far_claim(tri_store *base, const char *key, const void *mine, size_t mine_nbytes, char **bytes,
                            size_t *nbytes, int64_t deadline_ns)
{
    const fleet_store *store = of(base);
    if (!travel(store))
        return killed();
    TRI_TRY(tri_store_claim(inner(store), key, mine, mine_nbytes, bytes, nbytes, deadline_ns));
    if (is_answered(store))
        return TRI_OK;
    tri_free(*bytes);
    *bytes = NULL;
    return killed();
}

static const tri_store_ops far_ops = {.name = "far",
                                      .does = "the store of a simulated job, some way off",
                                      .set = far_set,
                                      .wait = far_wait,
                                      .add = far_add,
                                      .raise = far_raise,
                                      .remove = far_remove,
                                      .claim = far_claim};

void fleet_store_init(fleet_store *store, fleet_worker *worker)
{
    *store = (fleet_store){.base = {.ops = &far_ops}, .worker = worker};
}
