/* SPDX-License-Identifier: Apache-2.0
 *
 * job.h: everything one rank of a run holds. build.c makes it, loop.c and step.c run it.
 */
#ifndef TRI_TRAIN_JOB_H
#define TRI_TRAIN_JOB_H

#include <trireme/train.h>

#include "monitor/metrics.h"
#include "nn/graph.h"
#include "train/config.h"

/* The test set, evaluated in the same shards as training. */
typedef struct tri_job_test {
    tri_loader *loader; /* NULL: there is no test set */
    tri_sampler sampler;
    double *sums;          /* [shards][TRI_LOSS_COLUMNS]: this rank's shards filled, the others zero */
    bool classes;          /* targets are classes: accuracy has a meaning */
    double loss, accuracy; /* of the last evaluation; NaN: none */
} tri_job_test;

/* Where a large part of the batch is computed piece by piece: one gradient array per level of its tree. */
typedef struct tri_job_waves {
    int64_t shards;  /* computed at once */
    float **scratch; /* [levels] arrays; NULL when all shards are computed at once */
    int levels;
} tri_job_waves;

struct tri_job {
    tri_config config;
    tri_comm *comm;     /* NULL: alone */
    tri_comm *own_comm; /* opened by this job */
    tri_cluster alone;  /* of own_comm */
    tri_group *group;
    int rank, world, threads;
    char *run_folder; /* NULL: nothing is written */

    tri_params *params;
    tri_graph *graph;
    tri_optim *optim;
    tri_sync *sync;
    tri_loader *loader;
    tri_sampler sampler;
    tri_job_test test;
    tri_job_waves waves;
    double *norm_blocks;
    int64_t first_shard, shard_count;        /* of this rank */
    int64_t rows;                            /* samples of a shard, at most */
    size_t input_nbytes, target_nbytes;      /* of one shard of the loader's batch */
    tri_tree_part parts[TRI_TREE_MAX_PARTS]; /* this rank's shards as whole subtrees, from shard 0 of the batch */
    int part_count;

    bool ahead;                /* some weights may move in the step after their gradients' */
    tri_optim_figures figures; /* of the last step */
    double settling_s;         /* of this step: what was settled in its forward pass */

    int64_t step, steps, steps_per_epoch, first_step;
    tri_step_record record;            /* of the last step */
    double trained_s, trained_samples; /* of this process since it began */
    bool stop_wanted;                  /* some rank was asked to stop; the same on all ranks after a step */
    int64_t saved_step;                /* of the newest checkpoint of this run, -1 = none */
    uint64_t config_hash;
    char bits[128];
    tri_metrics *metrics; /* rank 0 with a run folder, else NULL */
    tri_console *console; /* rank 0 with console, else NULL */
};

/* build.c */
tri_status tri_job_build(tri_job *job, const tri_job_setup *setup);
/* Its parts that need no other rank; config, rank and world of the job are set. */
int tri_job_threads(const tri_config *config, int local_count);
void tri_job_split_shards(tri_job *job);
tri_status tri_job_build_model(tri_job *job, const tri_model *given, const tri_dataset_info *info);
/* plan.c: what a rank allocates for a run, bytes; data sets, input batches and buffers of links are not counted. */
typedef struct tri_job_memory {
    size_t weights, gradients, optimizer;
    size_t activations, activations_apart; /* with scratch of ops; apart: if no two shared memory */
} tri_job_memory;
/* Of the rank that holds most, of `ranks` on one host. Opens the training data for the shape of its samples and builds
 * the model. */
tri_status tri_job_memory_plan(const tri_config *config, int ranks, tri_job_memory *memory);

/* step.c: one step, station 5 of the journey. */
tri_status tri_job_step_run(tri_job *job);
/* The weights are those after the last step; a step leaves some to the next one where job->ahead. */
tri_status tri_job_settle(tri_job *job);
/* Those of one entry, a tri_graph_need. */
tri_status tri_job_entry_settle(void *job, int entry);
/* evaluate.c: the whole test set; collective. */
tri_status tri_job_evaluate(tri_job *job);
/* resume.c: collective; rank 0 writes or reads the files. */
tri_status tri_job_save(tri_job *job);
tri_status tri_job_resume(tri_job *job, const char *run_folder);

#endif
