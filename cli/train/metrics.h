/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.h: /metrics of a run, served by its launcher for all ranks.
 */
#ifndef TRI_CLI_TRAIN_METRICS_H
#define TRI_CLI_TRAIN_METRICS_H

#include "monitor/http.h"
#include "monitor/monitor.h"

/* folder: of the run, borrowed. Ends with tri_http_close(). */
tri_status tri_train_metrics_serve(const tri_monitor_config *config, const char *folder, tri_http **out);

#endif
