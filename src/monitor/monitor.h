/* SPDX-License-Identifier: Apache-2.0
 *
 * monitor.h: what of a run is shown, and where.
 */
#ifndef TRI_MONITOR_MONITOR_H
#define TRI_MONITOR_MONITOR_H

#include "base/options.h"

#define TRI_MONITOR_OPTIONS(X)                                                                                         \
    X(PATH, tensorboard, "false", 0, 0, NULL,                                                                          \
      "event files for TensorBoard: true (in the run's folder), false, or a folder, which gets one of the run's name") \
    X(INT, histogram_every, "100", 0, 1e15, NULL,                                                                      \
      "tensorboard: steps between distributions of weights and gradients, 0 = none")                                   \
    X(INT, image_every, "1000", 0, 1e15, NULL,                                                                         \
      "tensorboard: steps between pictures of the first layer and of predictions, 0 = none")                           \
    X(NAME, log, "auto", 0, 0, "auto|text|json",                                                                       \
      "form of log lines: text, or a JSON object a line; auto: what TRIREME_LOG says, else text")                      \
    X(REAL, step_every_s, "0", 0, 1e6, NULL,                                                                           \
      "at least so many seconds between lines of steps in metrics.jsonl (and what follows them), 0 = each step")       \
    X(REAL, watch_every_s, "1", 0, 1e6, NULL,                                                                          \
      "seconds between looks at who is slow, and why (train.on_straggler too); 0 = never")                             \
    X(TEXT, notes, "", 0, 0, NULL, "tensorboard: a text about the run (Markdown)")                                     \
    X(NAME, metrics, "", 0, 0, NULL,                                                                                   \
      "address of /metrics for Prometheus, such as 9100 (loopback) or 0.0.0.0:9100; --metrics is short for it; "       \
      "gathered: leave figures in RUN/live for whoever serves them")                                                   \
    X(PATH, tls_cert, "", 0, 0, NULL, "certificates (PEM): serve /metrics and --page by https; with monitor.tls_key")  \
    X(PATH, tls_key, "", 0, 0, NULL, "key of monitor.tls_cert (PEM)")                                                  \
    X(TEXT, http_names, "", 0, 0, NULL,                                                                                \
      "names, separated by commas, by which readers may ask for /metrics and --page, beside numbers, localhost and "   \
      "this machine's name")                                                                                           \
    X(INT, ranks_every, "5", 0, 86400, NULL,                                                                           \
      "seconds between lines of RUN/ranks/rank-N.jsonl, in which each rank says where its time went; 0: none")         \
    X(REAL, report_every_s, "10", 0, 86400, NULL,                                                                      \
      "seconds between reports of progress to Kubeflow's Trainer, where it asks for them "                             \
      "(KUBEFLOW_TRAINER_SERVER_URL), 0 = none")                                                                       \
    X(PATH, trace, "", 0, 0, NULL,                                                                                     \
      "FILE or FILE:FROM-TO: what all ranks did in these steps (10 to 19), for ui.perfetto.dev; --trace is short for " \
      "it")
typedef struct tri_monitor_config {
    TRI_MONITOR_OPTIONS(TRI_OPTION_FIELD)
} tri_monitor_config;
extern const tri_option_table tri_monitor_options; /* section "monitor" */

#define TRI_MONITOR_GATHERED "gathered"
tri_status tri_monitor_check(const tri_monitor_config *config);
bool tri_monitor_tensorboard_is_on(const tri_monitor_config *config);
/* Where the event file goes (tri_free), where there is one. */
tri_status tri_monitor_tensorboard_folder(const tri_monitor_config *config, const char *run_folder, char **folder);

#endif
