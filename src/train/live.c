/* SPDX-License-Identifier: Apache-2.0
 *
 * live.c: monitor.metrics: what each rank says of itself while it trains, and, where nobody gathers that, a server of
 * this rank's own.
 */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "monitor/figures.h"
#include "monitor/http.h"
#include "train/job.h"

struct tri_job_live {
    tri_figures *figures;
    tri_http *http; /* NULL: whoever started this rank serves */
    int rank;
};

static tri_status page_make(void *figures, tri_string *out)
{
    return tri_figures_print(figures, out);
}

static const tri_http_page pages[] = {{"/metrics", TRI_FIGURES_TYPE, page_make}, {NULL, NULL, NULL}};

static tri_status live_open(tri_job *job)
{
    const tri_monitor_config *config = &job->config.monitor;
    tri_job_live *live = job->live;
    live->rank = job->rank;
    TRI_TRY_IN(tri_figures_open(job->run_folder, job->rank, &live->figures), "monitor.metrics");
    if (strcmp(config->metrics, TRI_MONITOR_GATHERED) == 0)
        return TRI_OK;
    TRI_TRY_IN(tri_http_open(config->metrics, tri_comm_local_rank(job->comm), pages, live->figures, &live->http),
               "monitor.metrics");
    tri_log(TRI_LOG_INFO, "metrics of this worker at http://%s/metrics", tri_http_address(live->http));
    return TRI_OK;
}

/* A worker may have another rank than before. */
tri_status tri_job_live_open(tri_job *job)
{
    if (!job->config.monitor.metrics[0] || !job->run_folder)
        return TRI_OK;
    if (job->live && job->live->rank == job->rank)
        return TRI_OK;
    tri_job_live_close(job);
    job->live = tri_alloc_zero(1, sizeof(*job->live));
    return job->live ? live_open(job) : TRI_ENOMEM;
}

void tri_job_live_step(tri_job *job)
{
    if (!job->live)
        return;
    if (!isnan(job->test.loss))
        tri_figures_test(job->live->figures, job->test.loss, job->test.accuracy);
    tri_figures_step(job->live->figures, &job->record, job->steps);
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
    tri_http_close(job->live->http);
    tri_figures_close(job->live->figures);
    tri_free(job->live);
    job->live = NULL;
}
