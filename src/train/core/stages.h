/* SPDX-License-Identifier: Apache-2.0
 *
 * stages.h: a model in the stages of a pipeline.
 */
#ifndef TRI_TRAIN_STAGES_H
#define TRI_TRAIN_STAGES_H

#include "train/core/job.h"

/* stages.c: where the model is cut; the store of this rank's stages; their pipeline; where the last step's time went
 * (collective). */
tri_status tri_job_cut(tri_job *job, const tri_model *model, const tri_graph_config *graph);
tri_status tri_job_stage_store(tri_job *job, const tri_model *model);
tri_status tri_job_pipeline_make(tri_job *job, const tri_model *model, const tri_graph_config *graph);
tri_status tri_job_stages_print(tri_job *job);
/* What the graphs of this rank's stages take, of a job without others. */
tri_status tri_job_stage_memory(const tri_job *job, const tri_model *model, const tri_graph_config *graph,
                                tri_job_memory *memory);

#endif
