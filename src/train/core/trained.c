/* SPDX-License-Identifier: Apache-2.0
 *
 * trained.c: finds the checkpoint, the configuration and the description of the samples that belong together, and makes
 * a job of them that only looks.
 */
#include "train/core/trained.h"
#include "data/tables/table.h"

#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "checkpoint/manifest.h"
#include "train/checkpointing/arrays.h"
#include "train/checkpointing/resume.h"
#include "train/core/build.h"
#include "train/core/dataset_info.h"

/* Whether <folder>/<name> is there; its path in `out`. */
static bool is_there(const char *folder, const char *name, char out[1200])
{
    return snprintf(out, 1200, "%s/%s", folder, name) < 1200 && tri_fs_exists(out);
}

static tri_status find_checkpoint(const char *path, char out[1200])
{
    char folder[1200], *newest = NULL;
    const char *slash = strrchr(path, '/');
    int64_t step;
    if (!tri_fs_is_folder(path))
        return tri_fail(TRI_ENOTFOUND, "%s: want the folder of a run or of a checkpoint, got %s", path,
                        tri_fs_exists(path) ? "a file" : "nothing");
    if (is_there(path, TRI_MANIFEST_FILE, folder) || tri_checkpoint_name_step(slash ? slash + 1 : path, &step)) {
        snprintf(out, 1200, "%s", path);
        return TRI_OK;
    }
    if (!is_there(path, "checkpoints", folder))
        snprintf(folder, sizeof(folder), "%s", path);
    if (tri_checkpoint_last_step(folder) < 0)
        return tri_fail(TRI_ENOTFOUND, "%s: want a run with checkpoints, or a checkpoint (manifest.json); found none",
                        path);
    tri_string skipped = {0};
    tri_status status = tri_checkpoint_newest(folder, &newest, &skipped);
    if (status == TRI_OK && skipped.nbytes)
        tri_log(TRI_LOG_WARN, "passed over: %s", tri_string_text(&skipped));
    if (status == TRI_OK)
        snprintf(out, 1200, "%s", newest);
    tri_string_fini(&skipped);
    tri_free(newest);
    return status;
}

tri_status tri_trained_find(const char *path, const char *config, tri_trained *out)
{
    char place[1100], file[1200];
    size_t nbytes = strlen(path);
    *out = (tri_trained){0};
    while (nbytes > 1 && path[nbytes - 1] == '/')
        nbytes--;
    if (nbytes >= 1000)
        return tri_fail(TRI_EINVAL, "%.40s...: want a path of at most 999 bytes", path);
    snprintf(place, sizeof(place), "%.*s", (int)nbytes, path);
    TRI_TRY(find_checkpoint(place, out->checkpoint));
    for (int up = 0; up < 3 && !out->config[0]; up++) { /* RUN, RUN/checkpoints, RUN/checkpoints/step-N */
        if (is_there(place, "config.yaml", file)) {
            snprintf(out->config, sizeof(out->config), "%s", file);
            if (is_there(place, "dataset.yaml", file))
                snprintf(out->info, sizeof(out->info), "%s", file);
        }
        strcat(place, "/..");
    }
    if (config)
        snprintf(out->config, sizeof(out->config), "%s", config);
    if (!out->config[0])
        return tri_fail(TRI_ENOTFOUND,
                        "%s: there is no config.yaml of its run beside it: name the configuration with --config FILE",
                        out->checkpoint);
    return TRI_OK;
}

/* --- the job --- */

/* Of the run's folder, or, where it does not say, of the data itself: of the training data as the run had them, since
 * their classes count. */
static tri_status info_find(tri_job *job, const tri_trained *trained, tri_dataset_info *info)
{
    tri_dataset *dataset = NULL;
    if (trained->info[0]) {
        TRI_TRY(tri_dataset_info_load(trained->info, info, &job->data.names_arena, &job->data.names));
        tri_job_info_take(job, info);
        return TRI_OK;
    }
    TRI_TRY_IN(tri_dataset_open(&job->config.data, false, &dataset), "while looking for the shape of the samples");
    *info = dataset->info;
    if (dataset->table) {
        tri_table_hold(dataset->table);
        tri_job_table_set(job, dataset->table);
    }
    tri_status status = tri_class_names_copy(&job->data.names_arena, &dataset->names, &job->data.names);
    tri_dataset_close(dataset);
    return status;
}

/* The mesh that the run asked for says nothing of those who look at it. */
static tri_status overrides_make(const char *const *given, tri_vector *out)
{
    const char *const mesh[] = {"parallel.data=auto", "parallel.tensor=1", "parallel.pipeline=1",
                                "parallel.zero_ranks=all"},
                      *const sync = "parallel.sync=allreduce", *none = NULL;
    *out = (tri_vector){.each = sizeof(char *)};
    bool good = true;
    for (size_t i = 0; good && i < TRI_COUNT_OF(mesh); i++)
        good = tri_vector_push(out, &mesh[i]) != NULL;
    for (int i = 0; good && given && given[i]; i++)
        good = tri_vector_push(out, &given[i]) != NULL;
    good = good && tri_vector_push(out, &sync); /* nobody moves weights, and there are no servers */
    return good && tri_vector_push(out, &none) ? TRI_OK : TRI_ENOMEM;
}

static tri_status build(tri_job *job, const tri_trained_setup *setup)
{
    tri_vector overrides;
    tri_dataset_info info;
    tri_status status = overrides_make(setup->overrides, &overrides);
    /* As a resumed run: its weights come from the checkpoint, wherever they began. */
    const tri_job_setup given = {
        .config = setup->trained->config, .overrides = overrides.items, .resume = setup->trained->checkpoint};
    if (status == TRI_OK)
        status = tri_job_configure(job, &given);
    tri_vector_fini(&overrides);
    TRI_TRY(status);
    TRI_TRY(info_find(job, setup->trained, &info));
    job->model.forward_only = true;
    snprintf(job->model.weights_path, sizeof(job->model.weights_path), "%s", setup->trained->checkpoint);
    if (setup->rows > 0) {
        job->shards.rows = setup->rows;
        job->shards.accumulation.at_once = 1;
    }
    TRI_TRY(tri_job_build_model(job, NULL, &info));
    TRI_TRY(tri_job_shard_maps_open(job));
    TRI_TRY_IN(tri_job_load_weights(job, setup->trained->checkpoint), "while loading the weights");
    return TRI_OK;
}

tri_status tri_trained_open(const tri_trained_setup *setup, tri_job **out)
{
    tri_job *job = NULL;
    TRI_TRY(tri_job_create(setup->comm, NULL, &job));
    tri_status status = build(job, setup);
    if (status != TRI_OK)
        return tri_job_open_failed(job, status);
    *out = job;
    return TRI_OK;
}
