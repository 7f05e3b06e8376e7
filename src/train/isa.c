/* SPDX-License-Identifier: Apache-2.0
 *
 * isa.c: the instruction set of a run's kernels (train.isa). With auto all ranks take the best one that each of them
 * has, so that a run on unlike processors has the bits of a run on the least of them.
 *
 * Workers that come and go (--elastic) take what is set: their processors are compared when they join (spec.c).
 */
#include "kernel/isa.h"

#include <string.h>

#include "base/log.h"
#include "train/job.h"

/* The least of what the ranks offer, and the rank. */
static tri_status least_find(const tri_job *job, tri_isa offer, int64_t *all, int *least, bool *alike)
{
    int64_t mine = (int64_t)offer;
    tri_group_name_next(job->group, "instruction set");
    TRI_TRY(tri_all_gather(job->group, &mine, all, 1, TRI_I64, NULL));
    tri_group_name_next(job->group, "");
    *least = 0;
    *alike = true;
    for (int r = 0; r < job->world; r++) {
        *alike = *alike && all[r] == all[0];
        *least = all[r] < all[*least] ? r : *least;
    }
    return TRI_OK;
}

static tri_status isa_agree(const tri_job *job, bool native, tri_isa *isa)
{
    int least;
    bool alike;
    int64_t *all = tri_alloc((size_t)job->world * sizeof(*all));
    if (!all)
        return TRI_ENOMEM;
    tri_status status = least_find(job, *isa, all, &least, &alike);
    if (status == TRI_OK && !alike) {
        *isa = (tri_isa)all[least];
        if (job->rank == 0 && !native)
            tri_log(TRI_LOG_INFO, "processors differ: all ranks compute with %s, as rank %d does (train.isa)",
                    tri_isa_name(*isa), least);
    }
    tri_free(all);
    return status;
}

tri_status tri_job_isa_settle(tri_job *job)
{
    const char *wanted = job->config.train.isa;
    tri_isa isa = tri_isa_best();
    if (tri_isa_find(wanted, &isa) && isa > tri_isa_best())
        return tri_fail(TRI_ECONFIG, "train.isa: want %s, the processor of rank %d has %s", wanted, job->rank,
                        tri_isa_name(tri_isa_best()));
    const bool native = strcmp(wanted, "native") == 0;
    tri_isa common = isa;
    if (job->world > 1 && !job->elastic.on)
        TRI_TRY(isa_agree(job, native, &common));
    if (!native) /* with native, ranks that differ are refused later */
        isa = common;
    return isa == tri_isa_now() ? TRI_OK : tri_isa_set(isa);
}
