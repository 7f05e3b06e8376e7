/* SPDX-License-Identifier: Apache-2.0
 *
 * worker_ps.h: `trireme train` in a job with parameter servers.
 */
#ifndef TRI_CLI_TRAIN_WORKER_PS_H
#define TRI_CLI_TRAIN_WORKER_PS_H

#include "train/core/config.h"

/* This process, as the worker or server that its rank makes it; resume may be NULL; or_begin as in
 * tri_job_setup. */
tri_status tri_train_ps(const char *config_path, const char *const *overrides, const char *folder, const char *resume,
                        bool or_begin, const tri_config *config);

#endif
