/* SPDX-License-Identifier: Apache-2.0
 *
 * card.c: whether what a run needs is free on its cards, before it allocates there; and figures and faults of the card
 * that this rank computes on, heard on a thread of their own
 * (device/cuda/nvml.h); a fault goes to the log at once, and to the time line of the run with the next step. Without
 * NVML there are none.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/runtime.h"
#include "device/cuda/nvml.h"
#include "device/device.h"
#include "train/core/card.h"
#include "train/core/features.h"
#include "train/core/plan.h"

typedef struct card_state {
    tri_card_monitor *monitor;
    tri_mutex mutex;
    char fault[600]; /* the newest one that is in no line so far; "": none */
} card_state;

static card_state *state_of(const tri_job *job)
{
    return job->states[TRI_FEATURE_CARD];
}

static void fault_take(void *arg, const char *sentence)
{
    card_state *state = arg;
    tri_mutex_lock(&state->mutex);
    snprintf(state->fault, sizeof(state->fault), "%s", sentence);
    tri_mutex_unlock(&state->mutex);
}

static void card_close(tri_job *job)
{
    card_state *state = state_of(job);
    if (!state)
        return;
    tri_card_monitor_close(state->monitor);
    tri_mutex_fini(&state->mutex);
    tri_free(state);
    job->states[TRI_FEATURE_CARD] = NULL;
}

/* Without them a run trains as with them. */
static tri_status card_open(tri_job *job)
{
    char name[32];
    tri_device_room room;
    if (!tri_device_has_memory(job->device) || job->model.forward_only)
        return TRI_OK;
    TRI_TRY(job->device->ops->room(job->device, &room));
    card_state *state = job->states[TRI_FEATURE_CARD] = tri_alloc_zero(1, sizeof(*state));
    if (!state)
        return TRI_ENOMEM;
    tri_mutex_init(&state->mutex);
    snprintf(name, sizeof(name), "%s:%d", job->device->ops->name, job->device->index);
    const tri_status status = tri_card_monitor_open(name, room.place, room.id, fault_take, state, &state->monitor);
    if (status == TRI_OK || status == TRI_ENOMEM)
        return status;
    tri_log(TRI_LOG_DEBUG, "no metrics and faults of the card: %s", tri_last_error());
    return TRI_OK;
}

static tri_status card_step(tri_job *job)
{
    card_state *state = state_of(job);
    char fault[sizeof(state->fault)];
    if (!state)
        return TRI_OK;
    tri_mutex_lock(&state->mutex);
    memcpy(fault, state->fault, sizeof(fault));
    state->fault[0] = 0;
    tri_mutex_unlock(&state->mutex);
    if (fault[0])
        tri_features_event(job, "card", fault);
    return TRI_OK;
}

/* --- memory --- */

#define MIB (1 << 20)

static tri_status does_not_fit(const tri_device *device, const int64_t *facts, const tri_card_crew *crew)
{
    const int64_t *fact = facts + crew->neediest * TRI_FACT_COUNT;
    char shared[80] = "this run needs", rank[40] = "";
    if (crew->ranks > 1) {
        snprintf(shared, sizeof(shared), "the %d ranks that share it need", crew->ranks);
        snprintf(rank, sizeof(rank), "rank %d: ", crew->neediest);
    }
    return tri_fail(TRI_ENOMEM,
                    "%s:%d has %.1f MiB free, and %s %.1f MiB (%sweights %.1f MiB, gradients %.1f MiB, optimizer "
                    "%.1f MiB, activations %.1f MiB)",
                    device->ops->name, device->index, crew->free_nbytes / MIB, shared, crew->needed_nbytes / MIB, rank,
                    (double)fact[TRI_FACT_WEIGHTS] / MIB, (double)fact[TRI_FACT_GRADIENTS] / MIB,
                    (double)fact[TRI_FACT_OPTIMIZER] / MIB, (double)fact[TRI_FACT_ACTIVATIONS] / MIB);
}

static tri_status all_check(const tri_device *device, const int64_t *facts, int count)
{
    for (int r = 0; r < count; r++) {
        const tri_card_crew crew = tri_card_crew_of(facts, count, r);
        if (crew.needed_nbytes > crew.free_nbytes)
            return does_not_fit(device, facts, &crew);
    }
    return TRI_OK;
}

static tri_status card_fits(tri_job *job, const tri_model *given, const tri_dataset_info *info)
{
    tri_job_memory memory;
    int64_t *facts;
    int count;
    if (!tri_device_has_memory(job->device) || job->model.forward_only)
        return TRI_OK;
    TRI_TRY_IN(tri_job_own_plan(job, given, info, &memory), "while planning the memory of the card");
    tri_device_memory_planned_set(tri_job_memory_nbytes(&memory));
    TRI_TRY(tri_card_facts(job->comm, job->device, &memory, tri_job_memory_nbytes(&memory), &facts, &count));
    tri_status status = all_check(job->device, facts, count);
    if (status == TRI_OK && job->rank == 0 && !tri_job_follows(job))
        tri_log(TRI_LOG_INFO, "%s:%d: %.1f MiB of the card for this rank, %.1f MiB are free", job->device->ops->name,
                job->device->index, (double)tri_job_memory_nbytes(&memory) / MIB, (double)facts[TRI_FACT_FREE] / MIB);
    tri_free(facts);
    return status;
}

const tri_feature tri_feature_card = {.fits = card_fits, .open = card_open, .step_end = card_step, .close = card_close};
