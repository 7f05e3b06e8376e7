/* SPDX-License-Identifier: Apache-2.0
 *
 * ids.c: the ids by which log lines, metrics and traces of this run are found together, the same on all ranks.
 *
 * A program that was given a trace id has set it (tri_log_who_set()); else a resumed run has it in its metrics;
 * else rank 0 makes one.
 */
#include <stdio.h>

#include "base/log.h"
#include "monitor/metrics_read.h"
#include "train/core/build.h"
#include "train/core/job.h"

static void id_find(tri_job *job)
{
    char path[1200];
    snprintf(path, sizeof(path), "%s/metrics.jsonl", job->output.folder ? job->output.folder : "");
    snprintf(job->identity.trace_id, sizeof(job->identity.trace_id), "%s", tri_log_who_now().trace_id);
    if (!job->identity.trace_id[0] && job->output.folder)
        tri_metrics_trace_id_read(path, job->identity.trace_id);
    if (!job->identity.trace_id[0])
        tri_trace_id_make(job->identity.trace_id);
}

void tri_job_span_id(const tri_job *job, int rank, int64_t step, char span[TRI_SPAN_ID_NBYTES])
{
    tri_span_id_make(job->identity.trace_id, rank, job->elastic.number, step, span);
}

void tri_job_who_tell(const tri_job *job, int64_t step)
{
    const int number = tri_job_number(job);
    tri_log_who who = {.rank = number, .generation = job->elastic.number};
    snprintf(who.trace_id, sizeof(who.trace_id), "%s", job->identity.trace_id);
    tri_job_span_id(job, number, step, who.span_id);
    tri_log_who_set(&who);
}

tri_status tri_job_ids_meet(tri_job *job)
{
    if (!job->identity.trace_id[0])
        id_find(job);
    if (job->world > 1) {
        tri_group_name_next(job->group, "trace id");
        tri_status status =
            tri_broadcast(job->group, job->identity.trace_id, sizeof(job->identity.trace_id), TRI_U8, 0, NULL);
        tri_group_name_next(job->group, "");
        TRI_TRY(status);
    }
    job->identity.trace_id[sizeof(job->identity.trace_id) - 1] = 0;
    if (!tri_trace_id_is(job->identity.trace_id))
        return tri_fail(TRI_EFORMAT, "trace id: want 32 hex digits from rank 0, got '%.40s'", job->identity.trace_id);
    tri_job_who_tell(job, -1);
    return TRI_OK;
}
