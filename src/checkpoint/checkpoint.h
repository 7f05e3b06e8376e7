/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.h: a folder that holds a run at one step: model.safetensors, optimizer.safetensors, manifest.json (last).
 *
 * A folder without a whole manifest is no checkpoint. Each file's xxh3 and length stand in the manifest and are checked
 * on load. Knows named slices of flat arrays, not models.
 */
#ifndef TRI_CHECKPOINT_CHECKPOINT_H
#define TRI_CHECKPOINT_CHECKPOINT_H

#include "base/options.h"
#include "checkpoint/safetensors.h"

#define TRI_CHECKPOINT_OPTIONS(X)                                                                                      \
    X(INT, every_steps, "0", 0, 1e15, NULL, "save each this many steps, 0 = only at the end")                          \
    X(INT, keep, "3", 1, 1e6, NULL, "newest checkpoints that are kept")                                                \
    X(BOOL, keep_best, "false", 0, 0, NULL, "keep the one with the least test loss too, in RUN/best")
typedef struct tri_checkpoint_config {
    TRI_CHECKPOINT_OPTIONS(TRI_OPTION_FIELD)
} tri_checkpoint_config;
extern const tri_option_table tri_checkpoint_options; /* section "checkpoint" */

/* Where arrays that do not lie here as a whole come from, and go to. What `at` means, whoever made the slices knows. */
typedef struct tri_checkpoint_pieces {
    void *arg;
    /* Saving: the elements from `at` on, at most *count of them: sets *count, at least 1, and *values, which hold until
     * the next call. Slices are read one after the other, each from its first element to its last. */
    tri_status (*read)(void *arg, int64_t at, int64_t *count, const float **values);
    /* Loading: all elements of a slice; slices come one after the other. */
    tri_status (*write)(void *arg, int64_t at, int64_t count, const float *values);
} tri_checkpoint_pieces;

/* One named array to save or to load into. */
typedef struct tri_checkpoint_slice {
    const char *name;
    tri_shape shape;
    float *values;                       /* or NULL: */
    const tri_checkpoint_pieces *pieces; /* it is handed over piece by piece */
    int64_t at;                          /* of its first element, for these */
} tri_checkpoint_slice;

typedef struct tri_checkpoint_manifest {
    int64_t step; /* steps done */
    uint64_t weights_hash;
    uint64_t config_hash; /* of what decides the bits: model, data, batch, shards, seed, optimizer */
    char bits[128];       /* "reproducible" or "not reproducible (why)" */
    double loss_scale;    /* of the next step; 0: there is none */
    int64_t loss_scale_good, loss_scale_lost; /* steps since it changed; skipped in a row */
    double guard_loss;                        /* mean of the latest losses, */
    int64_t guard_steps, guard_acts;          /* of so many steps; times that guards have acted; all 0: no guards */
} tri_checkpoint_manifest;

/* Saves to <folder>/step-NNNNNNNN (atomic: written under a temporary name, then renamed), then removes the oldest
 * beyond keep. On failure nothing that was there is hurt. */
tri_status tri_checkpoint_save(const char *folder, const tri_checkpoint_manifest *manifest,
                               const tri_checkpoint_slice *model, int model_count, const tri_checkpoint_slice *state,
                               int state_count, int64_t keep);
/* The newest whole checkpoint of a folder: its path (tri_free). TRI_ENOTFOUND when there is none. Damaged ones are
 * passed over and named in `skipped` (may be NULL). */
tri_status tri_checkpoint_newest(const char *folder, char **path, tri_string *skipped);
/* Whether a checkpoint is whole: manifest, lengths and hashes of the files, their headers, and the step in its name. */
tri_status tri_checkpoint_verify(const char *path);
/* Fills the slices; every name must be there with its shape, and nothing else may be. state_count 0: weights only. A
 * load that fails has changed nothing, unless it was a pieces' write that failed. */
tri_status tri_checkpoint_load(const char *path, tri_checkpoint_manifest *manifest, const tri_checkpoint_slice *model,
                               int model_count, const tri_checkpoint_slice *state, int state_count);

#endif
