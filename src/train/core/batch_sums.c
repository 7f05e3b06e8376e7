/* SPDX-License-Identifier: Apache-2.0
 *
 * batch_sums.c: what batch norms of the whole batch sum over it inside of runs (tri_op_batch): this rank's parts of the
 * tree over shards, then the rest of it over the ranks that differ in their data.
 *
 * Where the number of ranks divides that of the shards the rest is a canonical sum over ranks. Elsewhere all have the
 * parts of all, some kilobytes, and finish the tree. All is in double, so that it costs no figures.
 */
#include <string.h>

#include "base/runtime.h"
#include "train/core/build.h"
#include "train/core/job.h"
#include "train/core/step.h"

/* Parts of the tree of one rank. */
static int parts_of(const tri_job *job, int rank, tri_tree_part parts[TRI_TREE_MAX_PARTS])
{
    int64_t shards = job->config.train.shards;
    return tri_tree_parts(shards, tri_tree_first(shards, rank, job->mesh.data),
                          tri_tree_count(shards, rank, job->mesh.data), parts);
}

static tri_status check_one_piece(const tri_job *job)
{
    static const char wants[] = "batch norms over the whole batch (model.sync_batch_norm=false: over each shard) want "
                                "each batch in one piece on "
                                "all workers";
    const tri_train_config *train = &job->config.train;
    if (job->mesh.pipeline > 1)
        return tri_fail(TRI_ECONFIG, "%s: parallel.pipeline 1, got %d, whose micro-batches follow one another", wants,
                        job->mesh.pipeline);
    if (tri_job_is_pieced(job))
        return tri_fail(TRI_ECONFIG, "%s: train.shards_at_once 0 (all), got %lld of up to %lld", wants,
                        (long long)train->shards_at_once,
                        (long long)((train->shards + job->mesh.data - 1) / job->mesh.data));
    if (job->elastic.on && train->shards_at_once > 0 && train->shards_at_once < train->shards)
        return tri_fail(TRI_ECONFIG,
                        "%s: with --elastic train.shards_at_once 0 (all), got %lld of %lld that may fall to one", wants,
                        (long long)train->shards_at_once, (long long)train->shards);
    if (tri_sync_is_local(&job->config.parallel) || job->servers.client)
        return tri_fail(TRI_ECONFIG, "%s: another parallel.sync than %s, where each works for itself", wants,
                        tri_sync_kind_word(job->config.parallel.sync));
    return TRI_OK;
}

static tri_status ranks_meet(tri_job *job, double *sums, int64_t count)
{
    tri_job_batch_sums *own = &job->shards.batch_sums;
    tri_group *group = job->mesh.data_group;
    if (!own->gathered)
        return tri_all_reduce(group, sums, sums, count, TRI_F64, TRI_REDUCE_SUM, NULL);
    for (int r = 0; r < job->mesh.data; r++)
        own->counts[r] = own->parts[r] * count;
    TRI_TRY(tri_all_gather_v(group, sums, own->gathered, &(tri_blocks){.counts = own->counts}, TRI_F64, NULL));
    for (int s = 0; s < own->step_count; s++) {
        double *into = own->gathered + own->steps[s].into * count, *from = own->gathered + own->steps[s].from * count;
        for (int64_t i = 0; i < count; i++)
            into[i] += from[i];
    }
    memcpy(sums, own->gathered, (size_t)count * sizeof(double));
    return TRI_OK;
}

static tri_status sum_run(void *arg, double *leaves, int shards, int64_t count)
{
    tri_job *job = arg;
    tri_job_shards *own = &job->shards;
    int64_t begin_ns = tri_now_ns();
    TRI_ASSERT(shards == own->count && count <= own->batch_sums.count);
    for (int p = 0; p < own->part_count; p++) {
        double *part = leaves + own->parts[p].first * count;
        tri_doubles_tree_sum(part, (int)own->parts[p].count, count);
        memmove(leaves + p * count, part, (size_t)count * sizeof(double));
    }
    if (job->mesh.data == 1)
        return TRI_OK;
    tri_group_name_next(job->mesh.data_group, "batch norm");
    tri_status status = ranks_meet(job, leaves, count);
    tri_group_name_next(job->mesh.data_group, "");
    own->batch_sums.spent_ns += tri_now_ns() - begin_ns;
    TRI_TRY_IN(status, "in a sum of batch norm over workers");
    return TRI_OK;
}

/* Where no rank has one part alone: room for those of all, and how they are added. */
static tri_status gather_plan(tri_job *job)
{
    tri_job_batch_sums *own = &job->shards.batch_sums;
    int ranks = job->mesh.data, total = 0;
    tri_tree_part *all = tri_alloc_zero((size_t)ranks * TRI_TREE_MAX_PARTS, sizeof(*all));
    own->parts = tri_alloc_zero((size_t)ranks, sizeof(*own->parts));
    own->counts = tri_alloc_zero((size_t)ranks, sizeof(*own->counts));
    for (int r = 0; all && own->parts && r < ranks; r++) {
        own->parts[r] = parts_of(job, r, all + total);
        total += (int)own->parts[r];
    }
    own->steps = tri_alloc_zero((size_t)total + 1, sizeof(*own->steps));
    own->gathered = tri_alloc_bulk((size_t)(total * own->count) * sizeof(double));
    bool made = all && own->parts && own->counts && own->steps && own->gathered;
    if (made)
        own->step_count = tri_tree_plan(all, total, own->steps);
    tri_free(all);
    return made ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_job_batch_sums_make(tri_job *job, const tri_model *model)
{
    int64_t channels = tri_model_sync_channels(model);
    if (channels == 0 || job->model.forward_only)
        return TRI_OK;
    TRI_TRY(check_one_piece(job));
    job->shards.batch_sums.count = 2 * channels + 1;
    if (!job->comm)
        return TRI_OK;
    if (job->config.train.shards % job->mesh.data != 0)
        TRI_TRY(gather_plan(job));
    tri_graph_batch_set(job->model.graph, &(tri_op_batch){.sum = sum_run, .arg = job});
    return TRI_OK;
}

void tri_job_batch_sums_close(tri_job *job)
{
    tri_job_batch_sums *own = &job->shards.batch_sums;
    tri_free(own->parts);
    tri_free(own->counts);
    tri_free(own->steps);
    tri_free(own->gathered);
    *own = (tri_job_batch_sums){0};
}
