/* SPDX-License-Identifier: Apache-2.0
 *
 * card.c: figures and faults of the card that this rank computes on, heard on a thread of their own
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
#include "train/core/features.h"

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
    if (!tri_device_has_memory(job->device) || job->forward_only)
        return TRI_OK;
    TRI_TRY(job->device->ops->room(job->device, &room));
    card_state *state = job->states[TRI_FEATURE_CARD] = tri_alloc_zero(1, sizeof(*state));
    if (!state)
        return TRI_ENOMEM;
    tri_mutex_init(&state->mutex);
    snprintf(name, sizeof(name), "%s:%d", job->device->ops->name, job->device->index);
    const tri_status status = tri_card_monitor_open(name, room.place, fault_take, state, &state->monitor);
    if (status == TRI_OK || status == TRI_ENOMEM)
        return status;
    tri_log(TRI_LOG_DEBUG, "no figures and faults of the card: %s", tri_last_error());
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

const tri_feature tri_feature_card = {.open = card_open, .step_end = card_step, .close = card_close};
