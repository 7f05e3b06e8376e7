/* SPDX-License-Identifier: Apache-2.0
 *
 * cuts.h: where a model may be cut, what a cut costs, and where to cut it into stages of a pipeline.
 *
 * A cut is before an operation, never between one and the relu that is fused with it nor inside a block that is
 * formed again. Between two neighbouring cuts is a *section*; a stage is one section or several neighbours. All this
 * is a function of the model and the configuration, but for measured seconds: whoever measures tells the others.
 */
#ifndef TRI_NN_CUTS_H
#define TRI_NN_CUTS_H

#include "nn/graph.h"

typedef struct tri_section {
    int first_node, end_node;
    double flops;        /* of one sample: up, down, and up again where its values are formed again */
    double late_flops;   /* of these such as the rank before does not wait for: span.h */
    double seconds;      /* of one sample, measured; 0: not */
    int64_t count;       /* elements of the parameters that its nodes read */
    int64_t nbytes_up;   /* of one sample: values that cross its beginning */
    int64_t nbytes_down; /* of one sample: gradients that do */
    const char *layer;   /* its first parameter's name, or that of its operation; the model's */
} tri_section;

typedef struct tri_sections {
    tri_section *items;
    int count;
} tri_sections;

/* All sections of the model. Of the configuration rows, precision, training, frozen decide. */
tri_status tri_sections_find(const tri_model *model, const tri_graph_config *config, tri_sections *out);
void tri_sections_fini(tri_sections *sections);
/* Runs each section alone, up and down, on config->shards shards of made-up samples: the best of some runs, and about
 * `seconds` in all. Holds one section's parameters and values at a time. */
tri_status tri_sections_measure(const tri_model *model, const tri_graph_config *config, double seconds,
                                tri_sections *sections);

/* One of them, about `seconds`. With config->slots several runs go up one after the other, then all of them down, as
 * where micro-batches of a pipeline are at the same time; seconds are those of one. */
tri_status tri_section_measure(const tri_model *model, const tri_graph_config *config, double seconds,
                               tri_section *section);

/* A model in stages: [first_node[s], first_node[s + 1]) each. */
#define TRI_STAGES_MAX 1024
typedef struct tri_stages {
    int count;
    int first_node[TRI_STAGES_MAX + 1];
} tri_stages;

/* Costs are seconds where all sections were measured, else flops. */
double tri_section_cost(const tri_sections *sections, int section);
/* Stages for this many ranks, `each` for every one (stage s is rank s % ranks's). The most expensive rank is as cheap
 * as can be; of those that are nearly as cheap the stages whose cuts are crossed by few bytes. TRI_ECONFIG when there
 * are more stages than sections. */
tri_status tri_stages_choose(const tri_sections *sections, int ranks, int each, tri_stages *out);
/* Cuts before the first node that reads a parameter whose name is names[i] or begins with it and a dot. */
tri_status tri_stages_by_hand(const tri_model *model, const tri_sections *sections, const char *const *names, int count,
                              tri_stages *out);

/* Chunk c of the stages is rank c % ranks's. Marks in wanted[parameters of the model] what the chunks of a rank read:
 * for tri_params_create_some(). */
void tri_stages_wanted(const tri_model *model, const tri_stages *stages, int ranks, int rank, bool *wanted);
/* Sets `away` and `copy` of the store's entries and ties (params.h). */
void tri_stages_mark(const tri_model *model, const tri_stages *stages, int ranks, int rank, tri_params *params);
/* The chunk in which the gradient of a parameter is made (tie -1), or that of a tie. */
int tri_stages_maker(const tri_model *model, const tri_stages *stages, int number, int tie);

#endif
