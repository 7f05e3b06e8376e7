/* SPDX-License-Identifier: Apache-2.0
 *
 * models.h: the model of a plan as each layout cuts it: shared out over tensor ranks, in chunks of stages; what its
 * sections cost, measured here one at a time or worked out from their operations.
 *
 * Nothing as long as the whole model's weights is allocated. Sections that are alike are measured once.
 */
#ifndef TRI_PLAN_MODELS_H
#define TRI_PLAN_MODELS_H

#include "nn/cuts.h"
#include "plan/cost.h"
#include "plan/measure.h"

#define TRI_PLAN_TENSOR_MAX 16 /* powers of two of tensor ranks that are looked at: 1 to 2^15 */

/* What is known of the job; everything is borrowed. */
typedef struct tri_plan_setup {
    const tri_yaml *model;  /* `model:` */
    const tri_model *given; /* or a model of a program's own: it cannot be cut into parts */
    tri_shape sample;       /* of the data */
    int64_t classes;
    const char *kernels; /* "cpu", "reference" or "cuda", which is not measured */
    tri_dtype precision;
    int tensor_parts;  /* 0: as many as tensor ranks */
    bool sequence;     /* tensor ranks share tokens out between the layers that are cut */
    bool cut_measured; /* stages are cut by seconds; else by operations */
    const tri_optim_config *optim;
    tri_plan_job job; /* tokens is found from the model */
    /* Called now and then while something takes long; NULL: nobody wants to know. */
    void (*progress)(void *arg, const char *what);
    void *progress_arg;
} tri_plan_setup;

/* Seconds of a sample in each section, in runs of `shards` shards, of which `live` are in memory at a time. */
typedef struct tri_plan_timing {
    int64_t shards;
    int standing;
    double factor;   /* in them: what the whole model takes by the sum of its sections alone */
    double *seconds; /* [sections] up and down */
} tri_plan_timing;

/* The model as one of `tensor` ranks has it. */
typedef struct tri_plan_variant {
    bool found;
    char refusal[400]; /* why it cannot be cut so; "": it can */
    tri_model *model;  /* owned unless it is setup->given */
    tri_sections sections;
    tri_vector timings; /* tri_plan_timing */
} tri_plan_variant;

typedef struct tri_plan_models {
    const tri_plan_setup *setup;
    const tri_plan_crew *crew;
    const tri_plan_cluster *cluster;
    double rate;    /* flop/s where nothing is measured; of a worker */
    bool estimated; /* something was too large to be measured */
    tri_plan_variant variants[TRI_PLAN_TENSOR_MAX];
} tri_plan_models;

/* Collective. Ends with tri_plan_models_close() whatever is returned. */
tri_status tri_plan_models_open(const tri_plan_setup *setup, const tri_plan_crew *crew, const tri_plan_cluster *cluster,
                                tri_plan_models *models);
void tri_plan_models_close(tri_plan_models *models);
/* The chunks of a layout: chunks[pipeline x chunks]. Collective, with the same layout on all ranks. TRI_ECONFIG says
 * why the model cannot be laid out so. */
tri_status tri_plan_models_chunks(tri_plan_models *models, const tri_layout *layout, tri_plan_chunk *chunks);
/* Elements of all parameters of the whole model; 0 before chunks were asked for. */
int64_t tri_plan_models_values(const tri_plan_models *models);
/* Tokens of a sample, 0: samples are no sequences. */
int64_t tri_plan_models_tokens(const tri_plan_models *models);

#endif
