/* SPDX-License-Identifier: Apache-2.0
 *
 * weak.c: where `trireme chaos` may strike a run from within (comm.chaos): how far it is, and a bit of its weights.
 */
#include "base/chaos.h"
#include "train/job.h"

tri_status tri_job_weak_open(const tri_job *job)
{
    return job->config.net.chaos ? tri_chaos_offer() : TRI_OK;
}

/* Of weights that are here whole. */
static int64_t weights_nbytes(const tri_job *job)
{
    int64_t count = 0;
    for (int e = 0; job->spread != TRI_SPREAD_WEIGHTS && e < job->params->entry_count; e++)
        count += job->params->entries[e].count;
    return count * (int64_t)sizeof(float);
}

void tri_job_weak_tell(const tri_job *job)
{
    if (tri_chaos_is_offered())
        tri_chaos_tell(job->step, weights_nbytes(job));
}

void tri_job_weak_step(tri_job *job)
{
    int64_t bit = tri_chaos_flip_take(), byte = bit / 8;
    for (int e = 0; bit >= 0 && e < job->params->entry_count; e++) {
        const tri_param *entry = &job->params->entries[e];
        int64_t nbytes = entry->count * (int64_t)sizeof(float);
        if (byte < nbytes) {
            unsigned char *at = (unsigned char *)(job->params->values + entry->first) + byte;
            *at = (unsigned char)(*at ^ (1u << (bit % 8)));
            return;
        }
        byte -= nbytes;
    }
}
