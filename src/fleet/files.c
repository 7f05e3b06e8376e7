/* SPDX-License-Identifier: Apache-2.0
 *
 * files.c: the folder of a simulated run: what is saved there can be gone back to at any time, and at the end its
 * ledger has each sample once.
 *
 * Files are real, below TMPDIR; those of a process that was killed, or whose disk is full, fail (base/fs.c).
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/fs.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "fleet/fleet.h"
#include "kernel/kernel.h"
#include "train/features/ledger_audit.h"

#define LOOK_NS (20 * TRI_NS_PER_MS)

/* Of no machine: nobody is to measure one. */
static tri_status peak_write(const fleet *all)
{
    char path[640], text[256];
    snprintf(path, sizeof(path), "%s/peak.json", all->folder);
    int nbytes = snprintf(text, sizeof(text), "{\"of\":\"f32\",\"threads\":1,\"kernels\":\"%s\",\"flops\":1e9}\n",
                          tri_kernel_arithmetic());
    return tri_fs_write_swap(path, text, (size_t)nbytes);
}

tri_status fleet_files_open(fleet *all)
{
    const char *given = getenv("TMPDIR"), *place = given && given[0] ? given : "/tmp";
    all->saved_step = -1;
    if (!all->config->saves || all->config->is_quiet)
        return TRI_OK;
    int nbytes = snprintf(all->folder, sizeof(all->folder), "%s/trireme-sim-XXXXXX", place);
    if (nbytes >= (int)sizeof(all->folder) || !mkdtemp(all->folder)) {
        all->folder[0] = '\0';
        return tri_fail(TRI_EIO, "sim recovery: no folder for its runs can be made in %s (TMPDIR)", place);
    }
    return peak_write(all);
}

void fleet_files_close(fleet *all)
{
    if (all->folder[0] && tri_fs_remove(all->folder) != TRI_OK)
        tri_log(TRI_LOG_WARN, "%s", tri_last_error());
}

/* The newest whole checkpoint (tri_free); NULL: none. */
static char *newest_find(const fleet *all, int64_t *step)
{
    char folder[640], *path = NULL;
    snprintf(folder, sizeof(folder), "%s/checkpoints", all->folder);
    if (!tri_fs_exists(folder) || tri_checkpoint_newest(folder, &path, NULL) != TRI_OK)
        return NULL;
    *step = tri_checkpoint_path_step(path);
    return path;
}

void fleet_files_look(fleet *all)
{
    int64_t now_ns = tri_now_ns(), step = -1;
    if (!all->folder[0] || now_ns - all->looked_ns < LOOK_NS)
        return;
    all->looked_ns = now_ns;
    tri_free(newest_find(all, &step));
    if (step < all->saved_step)
        fleet_broke(all, "step %lld was saved, now the newest checkpoint is of step %lld", (long long)all->saved_step,
                    (long long)step);
    all->saved_step = step;
}

void fleet_files_back(fleet *all, const fleet_worker *worker, int64_t step)
{
    if (step < all->saved_step)
        fleet_broke(all, "worker %s goes back to step %lld, though step %lld is saved", worker->id, (long long)step,
                    (long long)all->saved_step);
    all->result->resumed += step > 0;
    all->result->begun_again += step == 0;
    fleet_loss_check(all, worker, step > 0 ? "goes back to a checkpoint" : "begins the run again");
}

void fleet_files_check(fleet *all)
{
    int64_t step = -1;
    if (!all->folder[0] || all->result->broken[0])
        return;
    char *path = newest_find(all, &step);
    if (step < all->saved_step)
        fleet_broke(all, "step %lld was saved, but not to the end", (long long)all->saved_step);
    if (path && tri_checkpoint_verify(path) != TRI_OK)
        fleet_broke(all, "the newest checkpoint: %s", tri_last_error());
    tri_free(path);
    /* Steps that only a worker with a full disk knew of are lost with it: they may be missing, but none is wrong. */
    tri_ledger_verdict verdict = {0};
    if (tri_ledger_audit(all->folder, &verdict) != TRI_OK)
        fleet_broke(all, "%s", tri_last_error());
    else if (verdict.wrong > 0)
        fleet_broke(all, "not each sample was used once: %s", tri_string_text(&verdict.report));
    else if (all->full_disks == 0 &&
             (verdict.first > 0 || verdict.end < all->config->steps || verdict.missing + verdict.broken > 0))
        fleet_broke(all, "the ledger has steps %lld to %lld: %s", (long long)verdict.first, (long long)verdict.end,
                    tri_string_text(&verdict.report));
    tri_string_fini(&verdict.report);
}
