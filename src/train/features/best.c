/* SPDX-License-Identifier: Apache-2.0
 *
 * best.c: RUN/best: the checkpoint with the least test loss so far, and best.json, which says of what step and how
 * much.
 *
 * A resumed run keeps the best of the steps before it. One of a later step belongs to a history that is written again,
 * so it is removed. Only rank 0 touches the files.
 */
#include <math.h>
#include <stdio.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "storage/storage.h"
#include "train/checkpointing/arrays.h"
#include "train/checkpointing/resume.h"
#include "train/core/features.h"

#define BEST_FILE "best.json"

/* Rank 0. */
typedef struct best_state {
    double loss; /* of the best checkpoint; infinite: there is none */
} best_state;

static best_state *best_of(const tri_job *job)
{
    return job->states[TRI_FEATURE_BEST];
}

static bool is_kept(const tri_job *job)
{
    return job->rank == 0 && job->output.folder && job->config.checkpoint.keep_best;
}

/* JSON is YAML. */
static tri_status best_read(const char *path, int64_t *step, double *loss)
{
    char *text;
    size_t nbytes;
    tri_arena arena = {0};
    tri_yaml *root = NULL;
    TRI_TRY(tri_fs_read(path, 4096, &text, &nbytes));
    tri_status status = tri_yaml_parse(&arena, text, nbytes, path, &root);
    if (status == TRI_OK)
        status = tri_yaml_int(tri_yaml_find(root, "step"), "step", 0, INT64_MAX, step);
    if (status == TRI_OK)
        status = tri_yaml_real(tri_yaml_find(root, "test_loss"), "test_loss", -1e300, 1e300, loss);
    tri_arena_fini(&arena);
    tri_free(text);
    return status;
}

static tri_status form(tri_job *job)
{
    best_state *best = best_of(job);
    char folder[1200], path[1300];
    int64_t step;
    double loss;
    if (!is_kept(job))
        return TRI_OK;
    best->loss = INFINITY; /* of this rank's own that may be of a later step, too */
    snprintf(folder, sizeof(folder), "%s/best", job->output.folder);
    snprintf(path, sizeof(path), "%s/" BEST_FILE, folder);
    TRI_TRY(tri_mirror_pull_files(folder, BEST_FILE, false));
    if (!tri_fs_exists(path))
        return TRI_OK;
    tri_status status = best_read(path, &step, &loss);
    if (status == TRI_OK && step <= job->step) {
        best->loss = loss;
        return TRI_OK;
    }
    if (status != TRI_OK)
        tri_log(TRI_LOG_WARN, "%s starts again: %s", folder, tri_last_error());
    TRI_TRY(tri_mirror_clear(folder));
    return tri_fs_remove(folder);
}

/* Of the checkpoint that is there now. Rank 0. */
static tri_status best_write(tri_job *job, const char *folder)
{
    best_state *best = best_of(job);
    char path[1300];
    tri_string text = {0};
    tri_json json = tri_json_object(&text);
    tri_json_int(&json, "step", job->step);
    tri_json_real(&json, "test_loss", job->test.loss);
    tri_status status = tri_json_end(&json);
    snprintf(path, sizeof(path), "%s/" BEST_FILE, folder);
    if (status == TRI_OK)
        status = tri_string_append(&text, "\n");
    if (status == TRI_OK)
        status = tri_fs_write_atomic(path, tri_string_text(&text), text.nbytes);
    if (status == TRI_OK)
        status = tri_mirror_push_files(folder, BEST_FILE);
    tri_string_fini(&text);
    if (status == TRI_OK)
        best->loss = job->test.loss;
    else if (status != TRI_ENOMEM) /* the disk: the run continues, and the next better one is kept */
        tri_log(TRI_LOG_WARN, "%s", tri_last_error());
    return status == TRI_ENOMEM ? status : TRI_OK;
}

static tri_status evaluated(tri_job *job)
{
    char folder[1200];
    int64_t wanted = is_kept(job) && job->test.loss < best_of(job)->loss;
    bool saved = false;
    if (job->config.checkpoint.keep_best)
        TRI_TRY(tri_job_first_decides(job, &wanted));
    if (!wanted)
        return TRI_OK;
    snprintf(folder, sizeof(folder), "%s/best", job->output.folder ? job->output.folder : "");
    TRI_TRY_IN(tri_job_save_to(job, folder, 1, &saved), "while keeping the best checkpoint");
    if (saved) /* else tri_job_save_to() has logged why; or this is another rank */
        TRI_TRY(best_write(job, folder));
    return tri_job_await_all(job);
}

const tri_feature tri_feature_best = {.state_nbytes = sizeof(best_state), .form = form, .evaluated = evaluated};
