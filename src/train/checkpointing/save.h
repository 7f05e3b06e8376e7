/* SPDX-License-Identifier: Apache-2.0
 *
 * save.h: one save of a run: what this rank writes of it, where to, and what came of it.
 *
 * Made by the ranks together (save.c); from then on each writes alone, on its step's thread or beside it, and meets the
 * others in the hidden folder of the checkpoint only (checkpoint/draft.h).
 */
#ifndef TRI_TRAIN_SAVE_H
#define TRI_TRAIN_SAVE_H

#include <stdatomic.h>

#include "base/runtime.h"
#include "checkpoint/draft.h"
#include "train/checkpointing/resume.h"
#include "train/core/job.h"

#define SAVE_FOLDER_NBYTES 1200

/* Elements that one rank writes: an extent, and its values from `low` on. */
typedef struct save_item {
    int slice;
    tri_extent extent;
    const float *values;
} save_item;

/* One place it goes to. */
typedef struct save_target {
    char folder[SAVE_FOLDER_NBYTES];
    char url[SAVE_FOLDER_NBYTES]; /* of the folder; "": it is at none */
    int level;                    /* -1: none */
    int64_t keep, keep_every;
    uint64_t mark;
    tri_checkpoint_draft *draft; /* NULL: it could not be begun */
    tri_status status;
    char message[TRI_ERROR_NBYTES];
} save_target;

typedef struct save_work {
    tri_checkpoint_manifest manifest;
    save_target targets[TRI_CHECKPOINT_MAX_LEVELS];
    int target_count;
    int rank, writers; /* ranks that write: 1, or all; with parameter servers that do, these and this one */
    bool served;       /* parameter servers write */
    unsigned pieces;   /* of tri_checkpoint_draft_setup: each rank uploads what it writes */
    int64_t patience_ms;
    char ledger[1200]; /* of this rank: is on the disk before the checkpoint is whole; "": there is none */
    tri_job_slices slices;
    save_item *items;
    int item_count;
    const tri_device *device; /* from which items are still copied, until the event; NULL: from none */
    tri_device_event copied;
    tri_job *memory;                      /* whose arrays the items are; NULL: they are of a copy, */
    tri_status (*look)(tri_job *memory);  /* and fails if they have changed since they were compared */
    uint64_t nbytes;                      /* of a checkpoint */
    int64_t start_ns, paused_ns, took_ns; /* when; how long training stood still; until it was durable */
} save_work;

/* Fills in names, slices and items of this rank; views of its arrays stay open until save_work_fini(), with nothing in
 * them before save_work_read() where the host cannot reach the device's memory. */
tri_status save_work_fill(tri_job *job, save_work *work);
void save_work_read(const save_work *work);
/* Copies the elements of all items, which then are those of the copy; of a device beside its kernels, to memory of
 * tri_device_host_alloc(): they are there when the event is over, for which save_work_run() waits. */
void save_work_copy(save_work *work, const tri_device *device, tri_device_event copied, float *copy);
/* Elements of all items. */
int64_t save_work_count(const save_work *work);
/* Writes this rank's elements to all targets; each target has a status then. The first rank also waits for the others
 * and makes the checkpoint. */
void save_work_run(save_work *work);
/* Rank 0 alone writes, what it does not have it reads from the others, who follow; TRI_OK also where the disk fails. */
tri_status save_work_collect(save_work *work, save_target *target);
/* A failure of one target, with the last error. */
void save_target_fail(save_target *target, tri_status status);
void save_work_fini(save_work *work);
/* Lets go of names, slices and items, to be filled in again. */
void save_work_release(save_work *work);
/* The draft of one place; the first writer's, whose failures are the target's, or another one's. */
void save_target_begin(const tri_job *job, const save_work *work, save_target *target, bool first);

/* save_servers.c: asks the parameter servers to write what work->manifest.step says, or with backup workers a later
 * step. Not accepted: the reason was logged, and the work is as it was. *given_up becomes true when a server is lost.
 */
tri_status save_work_ask(tri_job *job, save_work *work, atomic_bool *given_up, bool *accepted);
/* What the servers' notes say of pushes goes to the manifest. */
void save_work_mixed(save_work *work, const char *notes);

#endif
