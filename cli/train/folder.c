/* SPDX-License-Identifier: Apache-2.0
 *
 * folder.c: the folder of a run belongs to one run at a time, and what an earlier run has left there is not
 * overwritten.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/path.h"
#include "base/runtime.h"
#include "checkpoint/checkpoint.h"
#include "cli/command.h"
#include "cli/train/train.h"
#include "monitor/metrics.h"
#include "storage/storage.h"

#define HOLD_NS      (3 * TRI_NS_PER_S)
#define HOLD_LOOK_NS (20 * TRI_NS_PER_MS)

static tri_status hold_refuse(const char *folder, const char *theirs)
{
    return tri_fail(TRI_ECONFIG,
                    "%s: a run writes here, begun by %.*s: want another --out, or the end of that one "
                    "(its workers, where its launcher has ended already)",
                    folder, theirs ? (int)strcspn(theirs, "\n") : 0, theirs ? theirs : "");
}

/* The folder is this process's, and that of those it starts, until all have ended. TRI_ECONFIG: another run writes
 * there. */
static tri_status hold(const char *folder)
{
    char path[1300], text[200], host[100] = "this host", *theirs;
    (void)gethostname(host, sizeof(host) - 1);
    snprintf(path, sizeof(path), "%s/lock", folder);
    snprintf(text, sizeof(text), "process %d on %s\n", (int)getpid(), host);
    int64_t limit_ns = tri_now_ns() + HOLD_NS; /* workers of a killed launcher may still be ending */
    while (!tri_fs_hold(path, text, &theirs)) {
        tri_status status = tri_now_ns() >= limit_ns ? hold_refuse(folder, theirs) : TRI_OK;
        tri_free(theirs);
        TRI_TRY(status);
        tri_sleep_ns(HOLD_LOOK_NS);
    }
    return TRI_OK;
}

/* Whether a run has made steps in this folder. *step: of its newest checkpoint; -1: there is none. */
static tri_status has_run(const char *folder, bool *has, int64_t *step)
{
    char path[1300];
    snprintf(path, sizeof(path), "%s/checkpoints", folder);
    *step = tri_checkpoint_last_step(path);
    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    TRI_TRY(tri_metrics_has_steps(path, has));
    *has = *has || *step >= 0;
    return TRI_OK;
}

static bool is_same(const char *a, const char *b)
{
    char *left = realpath(a, NULL), *right = realpath(b, NULL);
    bool is = left && right && strcmp(left, right) == 0;
    free(left);
    free(right);
    return is;
}

static tri_status earlier_refuse(const char *folder, int64_t step)
{
    char newest[64] = "it has no checkpoint";
    if (step >= 0)
        snprintf(newest, sizeof(newest), "its newest checkpoint is of step %" PRId64, step);
    tri_command_hint_set(step >= 0 ? "--resume with this folder continues that run; --overwrite moves it aside and "
                                     "begins a new one"
                                   : "--overwrite moves that run aside and begins a new one");
    return tri_fail(TRI_ECONFIG, "--out %s: an earlier run is stored there (%s): want a folder without a run", folder,
                    newest);
}

/* Objects cannot be renamed: an earlier run at a URL stays. */
static tri_status url_check(const tri_train_words *words)
{
    bool has;
    TRI_TRY_IN(tri_mirror_has_run(words->folder, &has), "--out");
    if (!has)
        return TRI_OK;
    tri_command_hint_set("--resume with this URL continues that run");
    return tri_fail(TRI_ECONFIG, "--out %s: an earlier run is stored there: want a URL without a run%s",
                    words->out_given, words->overwrite ? " (--overwrite moves folders, not objects)" : "");
}

/* A run that continues the one of this folder, and one that never made a step, may continue here. */
static tri_status earlier_check(const tri_train_words *words, bool *moves)
{
    int64_t step;
    bool has;
    *moves = false;
    if (words->resume && is_same(words->resume, words->folder))
        return TRI_OK;
    TRI_TRY(url_check(words));
    TRI_TRY(has_run(words->folder, &has, &step));
    *moves = has && (words->overwrite || words->out != words->out_given); /* what was at a URL, and is not now */
    has = has && !*moves;
    return has && !words->overwrite ? earlier_refuse(words->folder, step) : TRI_OK;
}

static tri_status earlier_move(const char *folder)
{
    char *to;
    TRI_TRY_IN(tri_path_set_aside(folder, &to), "--overwrite: the earlier run cannot be moved aside");
    tri_log(TRI_LOG_INFO, "the earlier run is in %s now", to);
    tri_free(to);
    return tri_fs_make_folder(folder);
}

tri_status tri_train_folder_check(const tri_train_words *words)
{
    bool moves;
    TRI_TRY(earlier_check(words, &moves));
    return moves ? earlier_move(words->folder) : TRI_OK;
}

tri_status tri_train_folder_begin(const tri_train_words *words, const char *journal)
{
    bool moves;
    TRI_TRY_IN(tri_fs_make_folder(words->folder), "while making the run folder");
    /* Whether workers of a launcher that was killed are taken on, how they ended, or that another one lives, their
     * journal says. */
    if (journal && tri_fs_has_bytes(journal))
        return TRI_OK;
    TRI_TRY(hold(words->folder));
    TRI_TRY(earlier_check(words, &moves));
    /* On other hosts there may be workers of a killed launcher, which its log tells: the folder stays, and the job
     * moves its files. */
    if (!moves || words->hosts)
        return TRI_OK;
    TRI_TRY(earlier_move(words->folder));
    tri_fs_hold_leave();
    return hold(words->folder);
}
