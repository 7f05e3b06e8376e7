/* SPDX-License-Identifier: Apache-2.0
 *
 * sweep.h: a search for good options, as its file says: what is changed, what is looked at, how trials are chosen and
 * ended, and what each may take of the machine.
 */
#ifndef TRI_TUNE_SWEEP_H
#define TRI_TUNE_SWEEP_H

#include "base/options.h"
#include "tune/space.h"

#define TRI_TUNE_OPTIONS(X)                                                                                            \
    X(PATH, config, "", 0, 0, NULL, "configuration that trials change; its path is relative to the sweep's file")      \
    X(NAME, metric, "test_loss", 0, 0, "test_loss|test_accuracy|test_perplexity|test_mae|test_r2|loss|step_seconds",   \
      "field of metrics.jsonl that tells how good a trial is; the best is the least, of test_accuracy and test_r2 "    \
      "the most; "                                                                                                     \
      "step_seconds: median of the later half of the steps")                                                           \
    X(INT, trials, "0", 0, 1e6, NULL, "trials of the sweep; 0 = a grid's all, else 32")                                \
    X(INT, steps, "0", 0, 1e15, NULL, "steps of a whole trial, 0 = as the configuration says (not with asha)")         \
    X(NAME, search, "tpe", 0, 0, "grid|random|tpe", "how the options of the next trial are chosen")                    \
    X(NAME, schedule, "none", 0, 0, "none|asha|median", "which trials get all of their steps")                         \
    X(INT, eta, "4", 2, 64, NULL, "asha: one trial of so many goes on from a rung, with so many times its steps")      \
    X(INT, min_steps, "0", 0, 1e15, NULL,                                                                              \
      "asha: at most so many steps to the first rung, median: none is stopped "                                        \
      "before; 0 = steps / eta^2")                                                                                     \
    X(INT, startup, "10", 1, 1e6, NULL,                                                                                \
      "tpe: trials at random to begin with; median: trials that must have come as "                                    \
      "far before one is stopped")                                                                                     \
    X(INT, seed, "1", 0, 9e15, NULL, "of the choices; train.seed is the configuration's")                              \
    X(INT, parallel, "0", 0, 4096, NULL,                                                                               \
      "trials at once, 0 = as many as cores and memory are there for; step_seconds: 1")                                \
    X(INT, workers, "1", 1, 65536, NULL, "of each trial (trireme train -n)")                                           \
    X(INT, threads, "1", 1, 1024, NULL, "of each worker, on cores of their own where there are enough")                \
    X(INT, memory_mib, "0", 0, 1e9, NULL, "that a trial takes, 0 = as planned for the configuration as it stands")     \
    X(INT, failures, "3", 1, 1e6, NULL, "the sweep ends when so many trials have failed one after the other")
typedef struct tri_tune_config {
    TRI_TUNE_OPTIONS(TRI_OPTION_FIELD)
} tri_tune_config;
extern const tri_option_table tri_tune_options; /* section "tune"; in a sweep's file they stand at the top */

#define TRI_SWEEP_MAX_RUNGS 32

typedef struct tri_sweep {
    tri_arena arena;
    tri_tune_config tune;
    tri_space space;
    const char **set;  /* "section.key=value" of all trials, NULL at the end */
    char config[1200]; /* path from here */
    char *text;        /* what must not change while the sweep lasts: as YAML, without trials and parallel */
    bool wants_most;   /* of the metric */
    bool wants_pace;   /* the metric is step_seconds */
    bool each_step;    /* has a value of it */
    int64_t rungs[TRI_SWEEP_MAX_RUNGS]; /* asha: steps, the last are those of a whole trial */
    int rung_count;
} tri_sweep;

/* `outer`: trials come from elsewhere (ask-tell): no space, no number of trials is wanted. */
tri_status tri_sweep_load(const char *path, bool outer, tri_sweep *sweep);
void tri_sweep_fini(tri_sweep *sweep);
/* A value of the metric so that less is better. */
double tri_sweep_cost(const tri_sweep *sweep, double value);

#endif
