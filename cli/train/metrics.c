/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.c: what the ranks leave in the run's folder (monitor/figures.h), gathered when somebody asks.
 */
#include "cli/train/metrics.h"

#include "base/log.h"
#include "monitor/figures.h"
#include "monitor/health.h"

static tri_status metrics_make(void *folder, tri_http_request *request, tri_string *out)
{
    (void)request;
    return tri_figures_gather(folder, out);
}

static tri_status healthz_make(void *folder, tri_http_request *request, tri_string *out)
{
    return tri_health_page(folder, false, request, out);
}

static tri_status readyz_make(void *folder, tri_http_request *request, tri_string *out)
{
    return tri_health_page(folder, true, request, out);
}

static const tri_http_page pages[] = {{"/metrics", TRI_FIGURES_TYPE, metrics_make, false},
                                      {"/healthz", "text/plain", healthz_make, false},
                                      {"/readyz", "text/plain", readyz_make, false},
                                      {NULL, NULL, NULL, false}};

tri_status tri_train_metrics_serve(const tri_monitor_config *config, const char *folder, tri_http **out)
{
    TRI_TRY(tri_figures_clear(folder));
    TRI_TRY_IN(tri_http_open(&(tri_http_setup){.address = config->metrics,
                                               .pages = pages,
                                               .arg = (void *)(uintptr_t)folder,
                                               .names = config->http_names,
                                               .tls_cert = config->tls_cert,
                                               .tls_key = config->tls_key},
                             out),
               "monitor.metrics");
    tri_log(TRI_LOG_INFO, "metrics of all workers at %s://%s/metrics", tri_http_scheme(*out), tri_http_address(*out));
    return TRI_OK;
}
