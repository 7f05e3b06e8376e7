/* SPDX-License-Identifier: Apache-2.0
 *
 * live.c: what each rank says of itself while it trains: a line in RUN/ranks now and then, and with monitor.metrics its
 * figures, with a server of its own where nobody gathers them.
 */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "monitor/figures.h"
#include "monitor/health.h"
#include "monitor/rank_log.h"
#include "train/job.h"

struct tri_job_live {
    tri_rank_log *log;    /* NULL: with monitor.ranks_every 0 */
    tri_figures *figures; /* NULL: without monitor.metrics */
    tri_http *http;       /* NULL: whoever started this rank serves */
    int rank;
};

static tri_status metrics_make(void *job, tri_http_request *request, tri_string *out)
{
    (void)request;
    return tri_figures_print(((const tri_job *)job)->live->figures, out);
}

static tri_status healthz_make(void *job, tri_http_request *request, tri_string *out)
{
    return tri_health_page(((const tri_job *)job)->run_folder, false, request, out);
}

static tri_status readyz_make(void *job, tri_http_request *request, tri_string *out)
{
    return tri_health_page(((const tri_job *)job)->run_folder, true, request, out);
}

static const tri_http_page pages[] = {{"/metrics", TRI_FIGURES_TYPE, metrics_make, false},
                                      {"/healthz", "text/plain", healthz_make, false},
                                      {"/readyz", "text/plain", readyz_make, false},
                                      {NULL, NULL, NULL, false}};

static tri_status figures_open(tri_job *job)
{
    const tri_monitor_config *config = &job->config.monitor;
    tri_job_live *live = job->live;
    TRI_TRY_IN(tri_figures_open(job->run_folder, job->rank, &live->figures), "monitor.metrics");
    if (strcmp(config->metrics, TRI_MONITOR_GATHERED) == 0)
        return TRI_OK;
    const tri_http_setup setup = {
        .address = config->metrics, .offset = tri_comm_local_rank(job->comm), .pages = pages, .arg = job};
    TRI_TRY_IN(tri_http_open(&setup, &live->http), "monitor.metrics");
    tri_log(TRI_LOG_INFO, "metrics of this worker at http://%s/metrics", tri_http_address(live->http));
    return TRI_OK;
}

/* A worker may have another rank than before. */
tri_status tri_job_live_open(tri_job *job)
{
    const tri_monitor_config *config = &job->config.monitor;
    if (!job->run_folder || (!config->metrics[0] && config->ranks_every == 0))
        return TRI_OK;
    if (job->live && job->live->rank == job->rank)
        return TRI_OK;
    tri_job_live_close(job);
    job->live = tri_alloc_zero(1, sizeof(*job->live));
    if (!job->live)
        return TRI_ENOMEM;
    job->live->rank = job->rank;
    if (config->metrics[0])
        TRI_TRY(figures_open(job));
    return config->ranks_every > 0
               ? tri_rank_log_open(job->run_folder, job->rank, config->ranks_every, job->step, &job->live->log)
               : TRI_OK;
}

static uint64_t sent_to(const void *comm, int rank)
{
    return tri_comm_sent_to(comm, rank);
}

void tri_job_live_step(tri_job *job)
{
    const tri_job_live *live = job->live;
    if (!live)
        return;
    if (live->log)
        tri_rank_log_step(live->log, &job->record, job->record.step + 1 >= job->steps,
                          &(tri_rank_place){job->elastic.number, job->world, sent_to, job->comm});
    if (!live->figures)
        return;
    if (!isnan(job->test.loss))
        tri_figures_test(live->figures, job->test.loss, job->test.accuracy);
    tri_figures_step(live->figures, &job->record, job->steps);
}

void tri_job_live_event(tri_job *job, const char *event, const char *text)
{
    if (job->live && job->live->log)
        tri_rank_log_event(job->live->log, job->step, event, text);
}

void tri_job_live_strain(tri_job *job, const tri_strain *strain, const char *cause)
{
    if (job->live && job->live->figures)
        tri_figures_strain(job->live->figures, strain, cause);
}

void tri_job_live_close(tri_job *job)
{
    if (!job->live)
        return;
    tri_rank_log_close(job->live->log);
    tri_http_close(job->live->http);
    tri_figures_close(job->live->figures);
    tri_free(job->live);
    job->live = NULL;
}
