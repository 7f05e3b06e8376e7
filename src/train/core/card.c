/* SPDX-License-Identifier: Apache-2.0
 *
 * card.c: whether what ranks need is free on the cards that they share, before any of them allocates.
 *
 * The driver says what is free, contexts of all ranks taken off: each has opened its card before it asks, so the least
 * that one of them hears counts.
 */
#include "train/core/card.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "cluster/cluster.h"
#include "device/device.h"
#include "net/host.h"
#include "train/core/plan.h"

#define MIB (1 << 20)

/* Ranks that have not formed yet, and workers of servers, know what their starter said. */
int tri_card_place(const tri_comm *comm)
{
    tri_cluster_place place;
    if (comm && tri_comm_local_count(comm) > 1)
        return tri_comm_local_rank(comm);
    return tri_cluster_detect(NULL, NULL, &place) == TRI_OK ? place.local_rank : 0;
}

tri_status tri_card_free(const tri_config *config, int workers, double *nbytes)
{
    tri_device *device;
    tri_device_room room = {0};
    *nbytes = INFINITY;
    if (!tri_device_is_card(config->train.device))
        return TRI_OK;
    TRI_TRY_IN(tri_device_open(config->train.device, &device), "train.device");
    tri_status status = device->ops->room(device, &room);
    tri_device_close(device);
    if (status == TRI_OK)
        *nbytes = (double)room.free_nbytes / (double)((workers + room.cards - 1) / room.cards);
    return status;
}

/* What a rank says to all. */
enum { FACT_PLACE, FACT_FREE, FACT_WEIGHTS, FACT_GRADIENTS, FACT_OPTIMIZER, FACT_ACTIVATIONS, FACT_NEEDED, FACT_COUNT };

static tri_status facts_own(const tri_device *device, const tri_job_memory *memory, int64_t *facts)
{
    char id[TRI_HOST_ID_NBYTES], place[sizeof(id) + 40];
    tri_device_room room;
    TRI_TRY(device->ops->room(device, &room));
    tri_host_id(id);
    snprintf(place, sizeof(place), "%s %s", id, room.place);
    const int64_t there = (int64_t)tri_device_live(device), all = (int64_t)tri_job_memory_nbytes(memory);
    const int64_t mine[FACT_COUNT] = {
        [FACT_PLACE] = (int64_t)tri_rng_stream(place, 0, 0), [FACT_FREE] = (int64_t)room.free_nbytes,
        [FACT_WEIGHTS] = (int64_t)memory->weights,           [FACT_GRADIENTS] = (int64_t)memory->gradients,
        [FACT_OPTIMIZER] = (int64_t)memory->optimizer,       [FACT_ACTIVATIONS] = (int64_t)memory->activations,
        [FACT_NEEDED] = all > there ? all - there : 0};
    memcpy(facts, mine, sizeof(mine));
    return TRI_OK;
}

/* The facts of all ranks (tri_free). */
static tri_status facts_meet(tri_comm *comm, const tri_device *device, const tri_job_memory *memory, int64_t **out,
                             int *count)
{
    int64_t mine[FACT_COUNT];
    TRI_TRY(facts_own(device, memory, mine));
    *count = comm ? tri_group_count(tri_comm_world(comm)) : 1;
    *out = tri_alloc((size_t)*count * sizeof(mine));
    if (!*out)
        return TRI_ENOMEM;
    memcpy(*out, mine, sizeof(mine));
    tri_status status =
        *count > 1 ? tri_all_gather(tri_comm_world(comm), mine, *out, FACT_COUNT, TRI_I64, NULL) : TRI_OK;
    if (status == TRI_OK)
        return TRI_OK;
    tri_free(*out);
    return status;
}

static tri_card_crew crew_of(const int64_t *facts, int count, int rank)
{
    tri_card_crew crew = {.free_nbytes = INFINITY, .neediest = rank};
    for (int r = 0; r < count; r++) {
        const int64_t *fact = facts + r * FACT_COUNT;
        if (fact[FACT_PLACE] != facts[rank * FACT_COUNT + FACT_PLACE])
            continue;
        crew.ranks++;
        crew.free_nbytes = fmin(crew.free_nbytes, (double)fact[FACT_FREE]);
        crew.needed_nbytes += (double)fact[FACT_NEEDED];
        if (fact[FACT_NEEDED] > facts[crew.neediest * FACT_COUNT + FACT_NEEDED])
            crew.neediest = r;
    }
    return crew;
}

tri_status tri_card_meet(tri_comm *comm, const tri_device *device, tri_card_crew *crew)
{
    int64_t *facts;
    int count;
    TRI_TRY(facts_meet(comm, device, &(tri_job_memory){0}, &facts, &count));
    *crew = crew_of(facts, count, comm ? tri_group_rank(tri_comm_world(comm)) : 0);
    tri_free(facts);
    return TRI_OK;
}

/* --- a run --- */

static tri_status does_not_fit(const tri_device *device, const int64_t *facts, const tri_card_crew *crew)
{
    const int64_t *fact = facts + crew->neediest * FACT_COUNT;
    char shared[80] = "this run needs", rank[40] = "";
    if (crew->ranks > 1) {
        snprintf(shared, sizeof(shared), "the %d ranks that share it need", crew->ranks);
        snprintf(rank, sizeof(rank), "rank %d: ", crew->neediest);
    }
    return tri_fail(TRI_ENOMEM,
                    "%s:%d has %.1f MiB free, and %s %.1f MiB (%sweights %.1f MiB, gradients %.1f MiB, optimizer "
                    "%.1f MiB, activations %.1f MiB)",
                    device->ops->name, device->index, crew->free_nbytes / MIB, shared, crew->needed_nbytes / MIB, rank,
                    (double)fact[FACT_WEIGHTS] / MIB, (double)fact[FACT_GRADIENTS] / MIB,
                    (double)fact[FACT_OPTIMIZER] / MIB, (double)fact[FACT_ACTIVATIONS] / MIB);
}

static tri_status all_check(const tri_device *device, const int64_t *facts, int count)
{
    for (int r = 0; r < count; r++) {
        const tri_card_crew crew = crew_of(facts, count, r);
        if (crew.needed_nbytes > crew.free_nbytes)
            return does_not_fit(device, facts, &crew);
    }
    return TRI_OK;
}

tri_status tri_job_card_check(tri_job *job, const tri_model *given, const tri_dataset_info *info)
{
    tri_job_memory memory;
    int64_t *facts;
    int count;
    if (!tri_device_has_memory(job->device) || job->forward_only)
        return TRI_OK;
    TRI_TRY_IN(tri_job_own_plan(job, given, info, &memory), "while planning the memory of the card");
    tri_device_memory_planned_set(tri_job_memory_nbytes(&memory));
    TRI_TRY(facts_meet(job->comm, job->device, &memory, &facts, &count));
    tri_status status = all_check(job->device, facts, count);
    if (status == TRI_OK && job->rank == 0 && !tri_job_follows(job))
        tri_log(TRI_LOG_INFO, "%s:%d: %.1f MiB of the card for this rank, %.1f MiB are free", job->device->ops->name,
                job->device->index, (double)tri_job_memory_nbytes(&memory) / MIB, (double)facts[FACT_FREE] / MIB);
    tri_free(facts);
    return status;
}
