/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.h: a folder that holds a run at one step: model.safetensors, optimizer.safetensors, manifest.json (last).
 *
 * A folder without a whole manifest is no checkpoint. Checksums of each file's pieces and its length are in the
 * manifest and are checked on load. Knows named slices of flat arrays, not models.
 */
#ifndef TRI_CHECKPOINT_CHECKPOINT_H
#define TRI_CHECKPOINT_CHECKPOINT_H

#include "base/options.h"
#include "checkpoint/safetensors.h"

#define tri_other_data_words(W) W(TRI_OTHER_DATA_STOP, "stop") W(TRI_OTHER_DATA_CONTINUE, "continue")
TRI_ENUM(tri_other_data)

#define TRI_CHECKPOINT_OPTIONS(X)                                                                                      \
    X(INT, every_steps, "0", 0, 1e15, NULL,                                                                            \
      "steps between checkpoints; 0: not by steps; the end of a run and a stop by signal also save")                   \
    X(INT, every_epochs, "1", 0, 1e9, NULL,                                                                            \
      "epochs between checkpoints, saved if training since the last save took 20 times as long as that save; 0: not "  \
      "by epochs; without a value: 0 if every_steps or every_s is given")                                              \
    X(REAL, every_s, "600", 0, 1e9, NULL,                                                                              \
      "seconds between checkpoints; 0: not by time; without a value: 0 if every_steps or every_epochs is given")       \
    X(INT, keep, "2", 1, 1e6, NULL, "newest checkpoints to keep")                                                      \
    X(ENUM, other_data, "stop", 0, 0, tri_other_data,                                                                  \
      "the checkpoint to resume was made on other training data: stop, or continue, marked as not reproducible")       \
    X(INT, keep_every, "0", 0, 1e15, NULL, "also keep checkpoints of steps that this divides; 0: none")                \
    X(BOOL, keep_best, "false", 0, 0, NULL, "also keep the checkpoint with the least test loss, in RUN/best")          \
    X(BOOL, async, "true", 0, 0, NULL,                                                                                 \
      "training continues while a copy of the state is written, which takes memory (--dry-run prints how much); "      \
      "without a value: false if no every_... is given")                                                               \
    X(LIST, levels, "[]", 0, 0, NULL,                                                                                  \
      "further folders with intervals of their own, such as [{to: /local, every_s: 300, keep: 2}, {to: /remote, "      \
      "every_s: 3600, keep_every: 1000}]")
typedef struct tri_checkpoint_config {
    TRI_CHECKPOINT_OPTIONS(TRI_OPTION_FIELD)
} tri_checkpoint_config;
extern const tri_option_table tri_checkpoint_options; /* section "checkpoint" */

/* One place that checkpoints go to. */
#define TRI_CHECKPOINT_LEVEL_OPTIONS(X)                                                                                \
    X(PATH, to, "", 0, 1, NULL, "folder or URL, in which the run has a folder of its own")                             \
    X(INT, every_steps, "0", 0, 1e15, NULL, "steps between checkpoints")                                               \
    X(REAL, every_s, "0", 0, 1e9, NULL, "seconds between checkpoints")                                                 \
    X(INT, keep, "3", 1, 1e6, NULL, "newest checkpoints to keep")                                                      \
    X(INT, keep_every, "0", 0, 1e15, NULL, "also keep checkpoints of steps that this divides")
typedef struct tri_checkpoint_level {
    TRI_CHECKPOINT_LEVEL_OPTIONS(TRI_OPTION_FIELD)
} tri_checkpoint_level;
#define TRI_CHECKPOINT_MAX_LEVELS 8
typedef struct tri_checkpoint_levels {
    tri_checkpoint_level items[TRI_CHECKPOINT_MAX_LEVELS]; /* the first is the run's own folder; its `to` is empty */
    int64_t every_epochs;                                  /* of the first */
    int count;
} tri_checkpoint_levels;
/* What the options say, those of the list behind the run's own. */
tri_status tri_checkpoint_levels_read(const tri_checkpoint_config *config, tri_checkpoint_levels *levels);
/* The folder of a level's checkpoints for a run folder: *folder (tri_free), NULL on failure. */
tri_status tri_checkpoint_level_folder(const tri_checkpoint_level *level, const char *run_folder, char **folder);
/* The folders of a run's checkpoints, its own first; further places that are another run's are left out. Fini it. */
typedef struct tri_checkpoint_folders {
    char *items[TRI_CHECKPOINT_MAX_LEVELS];
    int count;
} tri_checkpoint_folders;
tri_status tri_checkpoint_folders_find(const tri_checkpoint_config *config, const char *run_folder,
                                       tri_checkpoint_folders *out);
void tri_checkpoint_folders_fini(tri_checkpoint_folders *folders);
/* Places as they are from wherever the run continues: those that are relative, are so to the working folder of now. */
tri_status tri_checkpoint_levels_settle(tri_checkpoint_config *config);
/* Whether something is saved before the end. */
bool tri_checkpoint_levels_repeat(const tri_checkpoint_levels *levels);

/* owner.c: a further place, which is this run's from now on. TRI_ECONFIG: it is another one's; TRI_EIO, .. */
tri_status tri_checkpoint_own(const char *folder, const char *run_folder);
bool tri_checkpoint_is_others(const char *folder, const char *run_folder);
/* Where a run starts again: a folder that has checkpoints is renamed, and that is said. */
tri_status tri_checkpoint_set_aside(const char *folder);

/* Where arrays that are not here as a whole come from, and go to. What `at` means, whoever made the slices knows. */
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
    int64_t guard_steps, guard_acts;   /* of this number of steps; times that guards have acted; all 0: no guards */
    int64_t data_count;                /* samples of the training set; 0: not known */
    uint64_t data_digest;              /* of its content, */
    char kernels[128];                 /* tri_kernel_arithmetic() of rank 0; empty: not known */
    char data_shape[96];               /* and its shapes, as whoever made them says */
    bool has_pushes;                   /* it mixes steps (ps.consistency ssp, async): */
    int64_t pushes_least, pushes_most; /* all pushes of the first are in it; some of the second */
} tri_checkpoint_manifest;

/* What is saved or loaded: two files' worth of slices. */
typedef struct tri_checkpoint_content {
    const tri_checkpoint_slice *model, *state;
    int model_count, state_count;
} tri_checkpoint_content;

/* Where checkpoints go, and which of them stay. */
typedef struct tri_checkpoint_place {
    const char *folder;
    int64_t keep;       /* how many of the newest stay, */
    int64_t keep_every; /* and those of steps that this divides; 0: none */
} tri_checkpoint_place;

/* Removes what a crashed save left in a folder, or puts it back in its place; fine when there is no folder. */
tri_status tri_checkpoint_clear(const char *folder);
/* Removes checkpoints with a manifest that do not stay, and what earlier removals left; that of step `but` stays.
 * *removed (may be NULL): how many. */
tri_status tri_checkpoint_prune(const tri_checkpoint_place *place, int64_t but, int *removed);

/* The step in the last part of a checkpoint's path; -1: it has another name. */
int64_t tri_checkpoint_path_step(const char *path);
/* The step of the last one of a folder by its name, whole or not; -1: there is none. */
int64_t tri_checkpoint_last_step(const char *folder);
/* The newest whole checkpoint of a folder: its path (tri_free). TRI_ENOTFOUND when there is none. Damaged ones are
 * passed over and named in `skipped` (may be NULL); one that cannot be read now (TRI_EIO, TRI_ENOMEM), or that another
 * version wrote (TRI_EUNSUPPORTED), is an error: it may be whole. */
tri_status tri_checkpoint_newest(const char *folder, char **path, tri_string *skipped);
/* Of several folders, some of which may not be there. */
tri_status tri_checkpoint_newest_of(const char *const *folders, int count, char **path, tri_string *skipped);
/* Whether what tri_checkpoint_verify() says is that files are damaged or missing. */
static inline bool tri_checkpoint_is_damage(tri_status status)
{
    return status == TRI_EFORMAT || status == TRI_ENOTFOUND;
}
/* Whether a checkpoint is whole: manifest, lengths and checksums of the files, their headers, and the step in its name.
 * Fails with the first thing that is wrong. */
tri_status tri_checkpoint_verify(const char *path);
/* The same of everything: `tell` hears of each thing that is wrong, a line each: file, tensor, bytes. */
tri_status tri_checkpoint_examine(const char *path, void (*tell)(void *arg, const char *what), void *arg);
/* Fills the slices; every name must be there with its shape, and nothing else may be. state_count 0: weights only. A
 * load that fails has changed nothing, unless it was a pieces' write that failed. */
tri_status tri_checkpoint_load(const char *path, tri_checkpoint_manifest *manifest,
                               const tri_checkpoint_content *content);

#endif
