/* SPDX-License-Identifier: Apache-2.0
 *
 * stand.c: figures of this process, whoever serves them, and the beat of those who make no steps.
 */
#include "monitor/stand.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/runtime.h"
#include "monitor/health.h"
#include "monitor/http.h"
#include "monitor/rank_log.h"

struct tri_stand {
    char folder[1200];
    tri_figures *figures; /* NULL: without monitor.metrics */
    tri_rank_log *log;    /* a server's; NULL: with monitor.ranks_every 0 */
    tri_http *http;       /* NULL: whoever started this process serves */
    tri_thread *thread;
    tri_mutex mutex;
    tri_cond cond;
    bool ends;
};

static tri_status metrics_make(void *stand, tri_http_request *request, tri_string *out)
{
    (void)request;
    return tri_figures_print(((const tri_stand *)stand)->figures, out);
}

static tri_status healthz_make(void *stand, tri_http_request *request, tri_string *out)
{
    return tri_health_page(((const tri_stand *)stand)->folder, false, request, out);
}

static tri_status readyz_make(void *stand, tri_http_request *request, tri_string *out)
{
    return tri_health_page(((const tri_stand *)stand)->folder, true, request, out);
}

static const tri_http_page pages[] = {{"/metrics", TRI_FIGURES_TYPE, metrics_make, false},
                                      {"/healthz", "text/plain", healthz_make, false},
                                      {"/readyz", "text/plain", readyz_make, false},
                                      {NULL, NULL, NULL, false}};

static void beat_body(void *arg)
{
    tri_stand *stand = arg;
    tri_mutex_lock(&stand->mutex);
    while (!stand->ends) {
        if (stand->figures)
            tri_figures_leave(stand->figures);
        if (stand->log)
            tri_rank_log_serve(stand->log);
        (void)tri_cond_wait(&stand->cond, &stand->mutex, tri_deadline_after_ms(1000));
    }
    tri_mutex_unlock(&stand->mutex);
}

/* Workers have a log by their steps. */
static bool logs(const tri_monitor_config *config, const tri_stand_place *place)
{
    return place->serves && config->ranks_every > 0;
}

static tri_status stand_start(tri_stand *stand, const tri_monitor_config *config, const tri_stand_place *place)
{
    if (config->metrics[0])
        TRI_TRY_IN(tri_figures_open(stand->folder, place->rank, place->serves, &stand->figures), "monitor.metrics");
    if (logs(config, place))
        TRI_TRY_IN(
            tri_rank_log_open(stand->folder, place->rank, config->ranks_every, place->resumes ? 1 : 0, &stand->log),
            "monitor.ranks_every");
    if (place->serves)
        TRI_TRY(tri_thread_start(&stand->thread, "figures", beat_body, stand));
    if (!config->metrics[0] || strcmp(config->metrics, TRI_MONITOR_GATHERED) == 0)
        return TRI_OK;
    const tri_http_setup setup = {.address = config->metrics,
                                  .offset = place->local_rank,
                                  .pages = pages,
                                  .arg = stand,
                                  .names = config->http_names,
                                  .tls_cert = config->tls_cert,
                                  .tls_key = config->tls_key};
    TRI_TRY_IN(tri_http_open(&setup, &stand->http), "monitor.metrics");
    tri_log(TRI_LOG_INFO, "metrics of this %s at %s://%s/metrics", place->serves ? "server" : "worker",
            tri_http_scheme(stand->http), tri_http_address(stand->http));
    return TRI_OK;
}

tri_status tri_stand_open(const tri_monitor_config *config, const tri_stand_place *place, tri_stand **out)
{
    *out = NULL;
    if (!config->metrics[0] && !logs(config, place))
        return TRI_OK;
    tri_stand *stand = tri_alloc_zero(1, sizeof(*stand));
    if (!stand)
        return TRI_ENOMEM;
    tri_mutex_init(&stand->mutex);
    tri_cond_init(&stand->cond);
    snprintf(stand->folder, sizeof(stand->folder), "%s", place->folder);
    tri_status status = stand_start(stand, config, place);
    if (status == TRI_OK)
        *out = stand;
    else
        tri_stand_close(stand);
    return status;
}

tri_figures *tri_stand_figures(tri_stand *stand)
{
    return stand->figures;
}

void tri_stand_close(tri_stand *stand)
{
    if (!stand)
        return;
    tri_mutex_lock(&stand->mutex);
    stand->ends = true;
    tri_cond_broadcast(&stand->cond);
    tri_mutex_unlock(&stand->mutex);
    if (stand->thread)
        tri_thread_join(stand->thread);
    tri_http_close(stand->http);
    tri_figures_close(stand->figures);
    tri_rank_log_close(stand->log);
    tri_cond_fini(&stand->cond);
    tri_mutex_fini(&stand->mutex);
    tri_free(stand);
}
