/* SPDX-License-Identifier: Apache-2.0
 *
 * sweep.h: a search for good options, as its file says: what is changed, what is looked at, how trials are chosen and
 * ended, and what each may take of the machine.
 */
#ifndef TRI_TUNE_SWEEP_H
#define TRI_TUNE_SWEEP_H

#include "base/options.h"
#include "tune/space.h"

#define tri_sweep_metric_words(W)                                                                                      \
    W(TRI_METRIC_TEST_LOSS, "test_loss")                                                                               \
    W(TRI_METRIC_TEST_ACCURACY, "test_accuracy")                                                                       \
    W(TRI_METRIC_TEST_PERPLEXITY, "test_perplexity")                                                                   \
    W(TRI_METRIC_TEST_MAE, "test_mae")                                                                                 \
    W(TRI_METRIC_TEST_R2, "test_r2") W(TRI_METRIC_LOSS, "loss") W(TRI_METRIC_STEP_SECONDS, "step_seconds")
TRI_ENUM(tri_sweep_metric)
#define tri_sweep_search_words(W) W(TRI_SEARCH_GRID, "grid") W(TRI_SEARCH_RANDOM, "random") W(TRI_SEARCH_TPE, "tpe")
TRI_ENUM(tri_sweep_search)
#define tri_sweep_schedule_words(W) W(TRI_SWEEP_ALL, "none") W(TRI_SWEEP_ASHA, "asha") W(TRI_SWEEP_MEDIAN, "median")
TRI_ENUM(tri_sweep_schedule)

#define TRI_TUNE_OPTIONS(X)                                                                                            \
    X(PATH, config, "", 0, 0, NULL, "configuration of the trials; its path is relative to the sweep's file")           \
    X(ENUM, metric, "test_loss", 0, 0, tri_sweep_metric,                                                               \
      "field of metrics.jsonl to minimize (test_accuracy, test_r2: to maximize); step_seconds: median of the later "   \
      "half of "                                                                                                       \
      "the steps")                                                                                                     \
    X(INT, trials, "0", 0, 1e6, NULL, "trials of the sweep; 0: all of a grid, else 32")                                \
    X(INT, steps, "0", 0, 1e15, NULL, "steps of a full trial; 0: as the configuration says (not with asha)")           \
    X(ENUM, search, "tpe", 0, 0, tri_sweep_search, "how the options of the next trial are chosen")                     \
    X(ENUM, schedule, "none", 0, 0, tri_sweep_schedule, "early stopping of trials")                                    \
    X(INT, eta, "4", 2, 64, NULL,                                                                                      \
      "asha: one trial in this many is promoted from a rung to the next, which has this many times its steps")         \
    X(INT, min_steps, "0", 0, 1e15, NULL,                                                                              \
      "asha: largest first rung in steps; median: no trial is stopped before; 0: steps / eta^2")                       \
    X(INT, startup, "10", 1, 1e6, NULL,                                                                                \
      "tpe: random trials to begin with; median: trials that must have come as far before one is stopped")             \
    X(INT, seed, "1", 0, 9e15, NULL, "seed of the choices; train.seed is the configuration's")                         \
    X(INT, parallel, "0", 0, 4096, NULL, "trials at once; 0: as many as cores and memory allow; step_seconds: 1")      \
    X(INT, workers, "1", 1, 65536, NULL, "workers of each trial (trireme train -n)")                                   \
    X(INT, threads, "1", 1, 1024, NULL, "threads of each worker, on cores of their own if there are enough")           \
    X(INT, memory_mib, "0", 0, 1e9, NULL, "memory of a trial; 0: as planned for the configuration")                    \
    X(INT, failures, "3", 1, 1e6, NULL, "the sweep ends after this many failed trials in a row")
typedef struct tri_tune_config {
    TRI_TUNE_OPTIONS(TRI_OPTION_FIELD)
} tri_tune_config;
extern const tri_option_table tri_tune_options; /* section "tune"; in a sweep's file they are at the top */

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
