/* SPDX-License-Identifier: Apache-2.0
 *
 * eval_follow.h: `trireme eval --follow`, and the task `evaluator` of a TF_CONFIG.
 */
#ifndef TRI_CLI_EVAL_FOLLOW_H
#define TRI_CLI_EVAL_FOLLOW_H

#include "base/status.h"

/* Evaluates the newest checkpoint of a run on its test data whenever there is another one, until that of its last step:
 * a line for people and one of RUN/evaluator.jsonl each. The run may not have begun yet. TRI_ETIMEOUT: nothing new for
 * so long. config NULL: the run's. */
tri_status tri_eval_follow(const char *run, const char *config, const char *const *overrides, double patience_s);

#define TRI_EVAL_PATIENCE_S 3600.0

#endif
