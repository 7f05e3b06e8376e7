/* SPDX-License-Identifier: Apache-2.0
 *
 * worker_elastic.h: `trireme train --elastic`: a worker of a job whose workers come and go.
 */
#ifndef TRI_CLI_TRAIN_WORKER_ELASTIC_H
#define TRI_CLI_TRAIN_WORKER_ELASTIC_H

#include "train/core/config.h"

typedef struct tri_elastic_words {
    const char *config_path;
    const char *const *overrides;
    const char *folder, *resume; /* resume may be NULL */
    bool or_begin;               /* as in tri_job_setup */
    const tri_config *config;
    int least, most;                         /* workers */
    double wait_s;                           /* how long fewer than least wait for others */
    double alone_s;                          /* how long they continue without a launcher; 0: they end with it */
    double grace_s;                          /* from a signal that asks one to leave until it is killed; 0: it is not */
    void (*ends)(const void *arg, int code); /* it is about to end with this exit code before its time */
    const void *ends_arg;
} tri_elastic_words;

/* This process, until the run is over or it shall leave. */
tri_status tri_train_elastic(const tri_elastic_words *words);

#endif
