/* SPDX-License-Identifier: Apache-2.0
 *
 * live.c: what each rank says of itself while it trains: a line in RUN/ranks now and then, and with monitor.metrics its
 * figures, with a server of its own where nobody gathers them.
 */
#include <math.h>

#include "monitor/rank_log.h"
#include "monitor/stand.h"
#include "ps/client/client.h"
#include "train/core/features.h"
#include "train/features/observers.h"

typedef struct live_state {
    tri_rank_log *log; /* NULL: with monitor.ranks_every 0 */
    tri_stand *stand;  /* NULL: without monitor.metrics */
    int rank;
} live_state;

/* NULL: it is off. */
static live_state *live_of(const tri_job *job)
{
    return job->states[TRI_FEATURE_LIVE];
}

static int local_rank_of(const tri_job *job)
{
    return job->servers.client ? tri_ps_client_setup_of(job->servers.client)->local_rank
                               : tri_comm_local_rank(job->comm);
}

static const char *folder_of(const tri_job_output *output)
{
    return output->folder ? output->folder : output->seen_folder;
}

static void live_close(tri_job *job)
{
    live_state *live = live_of(job);
    if (!live)
        return;
    tri_rank_log_close(live->log);
    tri_stand_close(live->stand);
    tri_free(live);
    job->states[TRI_FEATURE_LIVE] = NULL;
}

/* A worker may have another rank than before. */
static tri_status form(tri_job *job)
{
    const tri_monitor_config *config = &job->config.monitor;
    const tri_stand_place place = {
        .folder = folder_of(&job->output), .rank = tri_job_number(job), .local_rank = local_rank_of(job)};
    if (!place.folder || (!config->metrics[0] && config->ranks_every == 0))
        return TRI_OK;
    live_state *live = live_of(job);
    if (live && live->rank == place.rank)
        return TRI_OK;
    live_close(job);
    live = job->states[TRI_FEATURE_LIVE] = tri_alloc_zero(1, sizeof(*live));
    if (!live)
        return TRI_ENOMEM;
    live->rank = place.rank;
    TRI_TRY(tri_stand_open(config, &place, &live->stand));
    return config->ranks_every > 0
               ? tri_rank_log_open(place.folder, place.rank, config->ranks_every, job->step, &live->log)
               : TRI_OK;
}

static uint64_t sent_to(const void *comm, int rank)
{
    return tri_comm_sent_to(comm, rank);
}

static tri_status step_end(tri_job *job)
{
    const live_state *live = live_of(job);
    if (!live)
        return TRI_OK;
    if (live->log)
        tri_rank_log_step(live->log, &job->record, job->record.step + 1 >= job->progress.steps,
                          &(tri_rank_place){job->elastic.number,
                                            job->servers.client ? job->servers.workers : job->world,
                                            job->servers.client ? NULL : sent_to, job->comm});
    if (!live->stand)
        return TRI_OK;
    if (!isnan(job->test.loss))
        tri_figures_test(tri_stand_figures(live->stand), job->test.loss, job->test.accuracy);
    tri_figures_step(tri_stand_figures(live->stand), &job->record, job->progress.steps);
    return TRI_OK;
}

static void event_write(tri_job *job, const char *event, const char *text)
{
    const live_state *live = live_of(job);
    if (live && live->log)
        tri_rank_log_event(live->log, job->step, event, text);
}

void tri_job_live_strain(tri_job *job, const tri_strain *strain, const char *cause)
{
    const live_state *live = live_of(job);
    if (live && live->stand)
        tri_figures_strain(tri_stand_figures(live->stand), strain, cause);
}

const tri_feature tri_feature_live = {.event = event_write, .form = form, .step_end = step_end, .close = live_close};
