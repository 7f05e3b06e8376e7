/* SPDX-License-Identifier: Apache-2.0
 *
 * isa.c: the instruction set of a run's kernels (train.isa). With auto all ranks take the best one that each of them
 * has, so that a run on unlike processors has the bits of a run on the least of them. A run that is resumed keeps its
 * set where the processors have it.
 *
 * Workers that come and go (--elastic) register with what they offer. The members of the first generation take the
 * least of their offers, which is in the store from then on; a newcomer takes it too, or is refused.
 */
#include "train/core/isa.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "checkpoint/manifest.h"

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

/* --- a resumed run --- */

/* What the newest checkpoint was made with, as far as this rank sees it; "": not known. */
static void kernels_find(const tri_job *job, const char *run_folder, char *kernels, size_t nbytes)
{
    tri_checkpoint_folders folders;
    int64_t newest = -1;
    kernels[0] = 0;
    if (tri_checkpoint_folders_find(&job->config.checkpoint, run_folder, &folders) != TRI_OK)
        return;
    for (int i = 0; i < folders.count; i++) {
        tri_vector list;
        tri_manifest manifest;
        if (tri_checkpoint_list(folders.items[i], &list) != TRI_OK)
            continue;
        const tri_checkpoint_entry *first = list.count > 0 ? tri_vector_at(&list, 0) : NULL;
        char *path = first && first->step > newest ? tri_format("%s/%s", folders.items[i], first->name) : NULL;
        if (path && tri_manifest_load(path, &manifest) == TRI_OK) {
            newest = first->step;
            snprintf(kernels, nbytes, "%s", manifest.run.kernels);
            tri_manifest_fini(&manifest);
        }
        tri_free(path);
        tri_checkpoint_list_free(&list);
    }
    tri_checkpoint_folders_fini(&folders);
}

/* The instruction set of the run that is resumed, if this processor has it; else the best. */
static tri_isa resumed_find(const tri_job *job, const char *run_folder)
{
    char kernels[sizeof(((tri_checkpoint_manifest *)NULL)->kernels)];
    tri_isa isa = tri_isa_best();
    kernels_find(job, run_folder, kernels, sizeof(kernels));
    while (isa > TRI_ISA_GENERIC && strcmp(kernels, tri_kernel_arithmetic_of(isa)) != 0)
        isa--;
    return strcmp(kernels, tri_kernel_arithmetic_of(isa)) == 0 ? isa : tri_isa_best();
}

/* --- the set of a job --- */

static tri_status isa_set(tri_isa isa)
{
    return isa == tri_isa_now() ? TRI_OK : tri_isa_set(isa);
}

/* The best that this processor may use, or what is wanted. */
static tri_isa isa_of(tri_isa_wanted wanted)
{
    return wanted >= TRI_ISA_MOST_GENERIC ? (tri_isa)(wanted - TRI_ISA_MOST_GENERIC + TRI_ISA_GENERIC) : tri_isa_best();
}

tri_status tri_config_isa_plan(const tri_config *config)
{
    const tri_isa isa = isa_of(config->train.isa);
    return config->train.isa < TRI_ISA_MOST_GENERIC || isa > tri_isa_best() ? TRI_OK : isa_set(isa);
}

tri_status tri_job_isa_settle(tri_job *job, const char *resume)
{
    const tri_isa_wanted wanted = job->config.train.isa;
    const bool native = wanted == TRI_ISA_NATIVE;
    tri_isa isa = isa_of(wanted);
    if (isa > tri_isa_best())
        return tri_fail(TRI_ECONFIG, "train.isa: want %s, the processor of rank %d has %s", tri_isa_wanted_word(wanted),
                        job->rank, tri_isa_name(tri_isa_best()));
    if (resume && wanted == TRI_ISA_AUTO)
        isa = resumed_find(job, resume);
    job->elastic.isa = isa;
    if (job->elastic.on) /* once its first generation is there */
        return TRI_OK;
    tri_isa common = isa;
    if (job->world > 1)
        TRI_TRY(isa_agree(job, native, &common));
    if (!native) /* with native, ranks that differ are refused later */
        isa = common;
    return isa_set(isa);
}

tri_status tri_job_isa_take(const tri_job *job, tri_isa common)
{
    const bool native = job->config.train.isa == TRI_ISA_NATIVE;
    if (common > job->elastic.isa || (native && common != job->elastic.isa))
        return tri_fail(TRI_EMISMATCH, "instruction set (train.isa): want %s, got %s", tri_isa_name(common),
                        tri_isa_name(job->elastic.isa));
    return isa_set(common);
}
