/* SPDX-License-Identifier: Apache-2.0
 *
 * card.c: which card a rank has, and what is free on those that ranks share, before any of them allocates.
 *
 * The driver says what is free, contexts of all ranks taken off: each has opened its card before it asks, so the least
 * that one of them hears counts.
 */
#include "train/core/card.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "cluster/cluster.h"
#include "device/device.h"

/* Ranks that have not formed yet, and workers of servers, know what their starter said. */
int tri_card_place(const tri_comm *comm)
{
    tri_cluster_place place;
    if (comm && tri_comm_local_count(comm) > 1)
        return tri_comm_local_rank(comm);
    return tri_cluster_detect(NULL, NULL, &place) == TRI_OK ? place.local_rank : 0;
}

tri_status tri_card_room(const tri_config *config, tri_device_room *room)
{
    tri_device *device;
    *room = (tri_device_room){0};
    if (!tri_device_is_card(config->train.device))
        return TRI_OK;
    TRI_TRY_IN(tri_device_open(config->train.device, &device), "train.device");
    tri_status status = device->ops->room(device, room);
    tri_device_close(device);
    return status;
}

tri_status tri_card_free(const tri_config *config, int workers, double *nbytes)
{
    tri_device_room room;
    TRI_TRY(tri_card_room(config, &room));
    *nbytes = room.cards > 0 ? (double)room.free_nbytes / (double)((workers + room.cards - 1) / room.cards) : INFINITY;
    return TRI_OK;
}

static tri_status facts_own(const tri_device *device, const tri_job_memory *memory, size_t needed, int64_t *facts)
{
    tri_device_room room;
    TRI_TRY(device->ops->room(device, &room));
    const int64_t there = (int64_t)tri_device_live(device), all = (int64_t)needed;
    const int64_t mine[TRI_FACT_COUNT] = {[TRI_FACT_CARD] = (int64_t)tri_rng_stream(room.id, 0, 0),
                                          [TRI_FACT_FREE] = (int64_t)room.free_nbytes,
                                          [TRI_FACT_WEIGHTS] = (int64_t)memory->weights,
                                          [TRI_FACT_GRADIENTS] = (int64_t)memory->gradients,
                                          [TRI_FACT_OPTIMIZER] = (int64_t)memory->optimizer,
                                          [TRI_FACT_ACTIVATIONS] = (int64_t)memory->activations,
                                          [TRI_FACT_NEEDED] = all > there ? all - there : 0};
    memcpy(facts, mine, sizeof(mine));
    return TRI_OK;
}

tri_status tri_card_facts(tri_comm *comm, const tri_device *device, const tri_job_memory *memory, size_t needed,
                          int64_t **out, int *count)
{
    int64_t mine[TRI_FACT_COUNT];
    TRI_TRY(facts_own(device, memory, needed, mine));
    *count = comm ? tri_group_count(tri_comm_world(comm)) : 1;
    *out = tri_alloc((size_t)*count * sizeof(mine));
    if (!*out)
        return TRI_ENOMEM;
    memcpy(*out, mine, sizeof(mine));
    tri_status status =
        *count > 1 ? tri_all_gather(tri_comm_world(comm), mine, *out, TRI_FACT_COUNT, TRI_I64, NULL) : TRI_OK;
    if (status == TRI_OK)
        return TRI_OK;
    tri_free(*out);
    return status;
}

tri_card_crew tri_card_crew_of(const int64_t *facts, int count, int rank)
{
    tri_card_crew crew = {.free_nbytes = INFINITY, .neediest = rank};
    for (int r = 0; r < count; r++) {
        const int64_t *fact = facts + r * TRI_FACT_COUNT;
        if (fact[TRI_FACT_CARD] != facts[rank * TRI_FACT_COUNT + TRI_FACT_CARD])
            continue;
        crew.first = crew.ranks++ == 0 ? r : crew.first;
        crew.free_nbytes = fmin(crew.free_nbytes, (double)fact[TRI_FACT_FREE]);
        crew.needed_nbytes += (double)fact[TRI_FACT_NEEDED];
        if (fact[TRI_FACT_NEEDED] > facts[crew.neediest * TRI_FACT_COUNT + TRI_FACT_NEEDED])
            crew.neediest = r;
    }
    return crew;
}

tri_status tri_card_meet(tri_comm *comm, const tri_device *device, tri_card_crew *crew)
{
    int64_t *facts;
    int count;
    TRI_TRY(tri_card_facts(comm, device, &(tri_job_memory){0}, 0, &facts, &count));
    *crew = tri_card_crew_of(facts, count, comm ? tri_group_rank(tri_comm_world(comm)) : 0);
    tri_free(facts);
    return TRI_OK;
}
