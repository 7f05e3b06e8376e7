/* SPDX-License-Identifier: Apache-2.0
 *
 * train_metrics.c: what the ranks leave in the run's folder (monitor/figures.h), gathered when somebody asks.
 */
#include "cli/train_metrics.h"

#include "base/log.h"
#include "monitor/figures.h"

static tri_status page_make(void *folder, tri_string *out)
{
    return tri_figures_gather(folder, out);
}

static const tri_http_page pages[] = {{"/metrics", TRI_FIGURES_TYPE, page_make}, {NULL, NULL, NULL}};

tri_status tri_train_metrics_serve(const char *address, const char *folder, tri_http **out)
{
    TRI_TRY(tri_figures_clear(folder));
    TRI_TRY_IN(tri_http_open(address, 0, pages, (void *)(uintptr_t)folder, out), "monitor.metrics");
    tri_log(TRI_LOG_INFO, "metrics of all workers at http://%s/metrics", tri_http_address(*out));
    return TRI_OK;
}
