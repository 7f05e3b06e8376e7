/* SPDX-License-Identifier: Apache-2.0
 *
 * save_servers.c: a checkpoint that parameter servers write: the leader of the workers makes the folder, says after
 * which step, and continues training; its thread makes the checkpoint when all servers have answered.
 *
 * Where a server cannot (it does not see the folder, the view has just changed) the leader fetches everything and
 * writes it itself, as before.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "ps/replication/save.h"
#include "train/checkpointing/arrays.h"
#include "train/checkpointing/save.h"

/* With backup workers servers may be further on than this worker: then some later step. */
#define TRIES       4
#define AHEAD_STEPS 2

/* --- the plan --- */

static int by_place(const void *left, const void *right)
{
    const ps_save_row *a = left, *b = right;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Layers that are cut into parts have a tensor's columns one part after the other in the store. */
static tri_status rows_sort(ps_save_row *rows, int64_t count)
{
    qsort(rows, (size_t)count, sizeof(*rows), by_place);
    for (int64_t i = 1; i < count; i++)
        if (rows[i].at < rows[i - 1].at + rows[i - 1].count)
            return tri_fail(TRI_EINTERNAL, "two tensors share a place in the store");
    return TRI_OK;
}

/* Runs of elements that are neighbours in the store and in a tensor; rows NULL: only counted. */
static int64_t rows_make(const save_work *work, ps_save_row *rows)
{
    const tri_job_arrays *arrays = &work->slices.arrays;
    int64_t count = 0;
    for (int i = 0; i < work->item_count && work->items[i].slice < work->slices.content.model_count; i++) {
        const tri_extent *extent = &work->items[i].extent;
        for (int64_t at = extent->low, run; at < extent->high; at += run) {
            int64_t place = tri_piece_place(extent->shape, extent->piece, at, &run);
            run = run < extent->high - at ? run : extent->high - at;
            if (rows)
                rows[count] =
                    (ps_save_row){(uint32_t)extent->tensor, place, run,
                                  work->items[i].values - (const float *)arrays->views[0].host + at - extent->low};
            count++;
        }
    }
    return count;
}

static tri_status plan_make(const save_work *work, ps_save_plan *plan, ps_save_row **rows)
{
    *plan = (ps_save_plan){.content = work->slices.content};
    for (int i = 0; i < work->target_count; i++)
        if (work->targets[i].draft)
            plan->targets[plan->target_count++] = (ps_save_target){work->targets[i].folder, work->targets[i].mark};
    int64_t count = rows_make(work, NULL);
    *rows = tri_alloc((size_t)count * sizeof(**rows) + 1);
    if (!*rows)
        return TRI_ENOMEM;
    (void)rows_make(work, *rows);
    plan->rows = *rows;
    plan->row_count = count;
    return rows_sort(*rows, count);
}

/* --- asking --- */

static void drafts_close(save_work *work)
{
    for (int i = 0; i < work->target_count; i++) {
        tri_checkpoint_draft_close(work->targets[i].draft);
        work->targets[i].draft = NULL;
    }
}

static tri_status ask(tri_job *job, save_work *work, atomic_bool *given_up, ps_save_answer *answer)
{
    ps_save_plan plan;
    ps_save_row *rows = NULL;
    int servers = 0;
    for (int i = 0; i < work->target_count; i++) {
        tri_entropy(&work->targets[i].mark, sizeof(work->targets[i].mark));
        save_target_begin(job, work, &work->targets[i], true);
    }
    tri_status status = plan_make(work, &plan, &rows);
    atomic_store(given_up, false);
    if (status == TRI_OK)
        status = tri_ps_client_save(job->servers.client, work->manifest.step, &plan, given_up, &servers, answer);
    tri_free(rows);
    work->writers = 1 + servers;
    if (status != TRI_OK || !answer->accepted)
        drafts_close(work);
    return status;
}

tri_status save_work_ask(tri_job *job, save_work *work, atomic_bool *given_up, bool *accepted)
{
    ps_save_answer answer = {.late = -1};
    *accepted = false;
    TRI_TRY(save_work_fill(job, work));
    work->served = true;
    for (int i = 0; i < TRIES && !answer.accepted; i++) {
        if (answer.late > job->step)
            work->manifest.step =
                answer.late + AHEAD_STEPS < job->progress.steps ? answer.late + AHEAD_STEPS : job->progress.steps;
        TRI_TRY(ask(job, work, given_up, &answer));
        if (answer.late < 0)
            break;
    }
    *accepted = answer.accepted;
    if (answer.accepted) {
        work->item_count = 0; /* the servers' */
        return TRI_OK;
    }
    tri_log(TRI_LOG_INFO, "the leader writes the checkpoint of step %" PRId64 ": %s", job->step, answer.why);
    work->served = false;
    work->manifest.step = job->step;
    work->writers = 1;
    save_work_release(work);
    return TRI_OK;
}

void save_work_mixed(save_work *work, const char *notes)
{
    tri_checkpoint_manifest *manifest = &work->manifest;
    manifest->has_pushes = ps_save_notes_read(notes, &manifest->pushes_least, &manifest->pushes_most);
}
