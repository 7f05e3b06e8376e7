/* SPDX-License-Identifier: Apache-2.0
 *
 * monitor.h: what of a run is shown, and where.
 */
#ifndef TRI_MONITOR_MONITOR_H
#define TRI_MONITOR_MONITOR_H

#include "base/options.h"

#define tri_monitor_log_words(W)                                                                                       \
    W(TRI_MONITOR_LOG_AUTO, "auto") W(TRI_MONITOR_LOG_TEXT, "text") W(TRI_MONITOR_LOG_JSON, "json")
TRI_ENUM(tri_monitor_log)

#define TRI_MONITOR_OPTIONS(X)                                                                                         \
    X(PATH, tensorboard, "false", 0, 0, NULL,                                                                          \
      "event files for TensorBoard: true (in the run folder), false, or a folder, which gets one with the name of "    \
      "the run")                                                                                                       \
    X(INT, histogram_every, "100", 0, 1e15, NULL,                                                                      \
      "steps between histograms of weights and gradients, and at the end; 0: none", "monitor.tensorboard!=false")      \
    X(INT, image_every, "1000", 0, 1e15, NULL,                                                                         \
      "steps between images of the first layer and of predictions, and at the end; 0: none",                           \
      "monitor.tensorboard!=false")                                                                                    \
    X(ENUM, log, "auto", 0, 0, tri_monitor_log,                                                                        \
      "format of log lines: text, or one JSON object per line; auto: as TRIREME_LOG says, else text")                  \
    X(REAL, step_every_s, "0", 0, 1e6, NULL,                                                                           \
      "least seconds between lines of steps in metrics.jsonl and points of TensorBoard; 0: each step; for steps of "   \
      "microseconds")                                                                                                  \
    X(REAL, watch_every_s, "1", 0, 1e6, NULL,                                                                          \
      "seconds between checks for slow ranks and their causes (train.on_straggler too); 0: never")                     \
    X(TEXT, notes, "", 0, 0, NULL, "description of the run (Markdown)", "monitor.tensorboard!=false")                  \
    X(NAME, metrics, "", 0, 0, NULL,                                                                                   \
      "address of /metrics for Prometheus, such as 9100 (loopback) or 0.0.0.0:9100; --metrics is short for it; "       \
      "gathered: write metrics to RUN/live for another process that serves them")                                      \
    X(PATH, tls_cert, "", 0, 0, NULL,                                                                                  \
      "certificate chain (PEM): serve /metrics and --page by https; requires monitor.tls_key")                         \
    X(PATH, tls_key, "", 0, 0, NULL, "private key of monitor.tls_cert (PEM)")                                          \
    X(TEXT, http_names, "", 0, 0, NULL,                                                                                \
      "host names, separated by commas, that requests for /metrics and --page may use, besides addresses, localhost "  \
      "and the name of this machine")                                                                                  \
    X(INT, ranks_every, "5", 0, 86400, NULL,                                                                           \
      "seconds between lines of RUN/ranks/rank-N.jsonl, in which each rank reports where its time went; 0: none")      \
    X(REAL, report_every_s, "10", 0, 86400, NULL,                                                                      \
      "seconds between progress reports to Kubeflow Trainer, if it asks for them (KUBEFLOW_TRAINER_SERVER_URL); 0: "   \
      "none")                                                                                                          \
    X(PATH, trace, "", 0, 0, NULL,                                                                                     \
      "FILE or FILE:FROM-TO: trace of all ranks in these steps (10 to 19), for ui.perfetto.dev; --trace is short for " \
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
