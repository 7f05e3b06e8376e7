/* SPDX-License-Identifier: Apache-2.0
 *
 * models.h: the table of ready models, and how a builder reads its fields from the YAML node of `model:`.
 *
 * Included by files of nn/ only.
 */
#ifndef TRI_NN_MODELS_H
#define TRI_NN_MODELS_H

#include "nn/model.h"

/* What a builder needs. Fields that the configuration leaves out keep their default. */
typedef struct tri_model_plan {
    tri_model *model;
    const tri_yaml *config; /* the map of `model:` */
    tri_value x;            /* the sample */
    tri_shape sample;
    int64_t classes; /* outputs wanted; 0: real targets, the sample's network ends as it likes */
    int64_t numbers; /* real targets of a sample */
    tri_value y;     /* the target; of models of tokens */
    double smoothing;
} tri_model_plan;

#define TRI_MODEL_MAX_FIELDS 24

typedef struct tri_model_row {
    const char *name, *does;
    const char *fields[TRI_MODEL_MAX_FIELDS]; /* names it knows besides name, smoothing */
    const char *fields_help;
    bool parts;  /* can be cut into tensor parts */
    bool tokens; /* samples are tokens [T], targets [T] the next ones; build makes the loss, too */
    /* From plan->x to the values that the loss judges. */
    tri_status (*build)(const tri_model_plan *plan, tri_value *logits);
} tri_model_row;

tri_status tri_mlp_build(const tri_model_plan *plan, tri_value *logits);
tri_status tri_lenet_build(const tri_model_plan *plan, tri_value *logits);
tri_status tri_cnn_build(const tri_model_plan *plan, tri_value *logits);
tri_status tri_resnet_build(const tri_model_plan *plan, tri_value *logits);
tri_status tri_vgg_build(const tri_model_plan *plan, tri_value *logits);
tri_status tri_gpt2_build(const tri_model_plan *plan, tri_value *logits);
tri_status tri_llama_build(const tri_model_plan *plan, tri_value *logits);
tri_status tri_layers_build(const tri_model_plan *plan, tri_value *logits);

/* True when `config` has a list of layers whose first one reads whole numbers. */
bool tri_layers_read_numbers(const tri_yaml *config);

/* Outputs of the last layer: the classes, or the real targets. */
int64_t tri_plan_outputs(const tri_model_plan *plan);
/* The sample as an image [H, W, C]; TRI_ECONFIG when it is none. */
tri_status tri_plan_image(const tri_model_plan *plan, const char *name, int64_t *height, int64_t *width);

/* TRI_ECONFIG unless the model's tensor parts divide `count` of what the field says. */
tri_status tri_plan_cut(const tri_model_plan *plan, const char *field, const char *what, int64_t count);
/* Words of the vocabulary: the field vocab_size, at least the classes of the data; without it the classes. */
tri_status tri_plan_words(const tri_model_plan *plan, int64_t *words);

/* The layers of a transformer, one on the other: each in a scope of its own, formed again in the backward pass if
 * asked. */
typedef struct tri_layer_stack {
    const char *scope; /* of all: "h." gives "h.0.", "h.1.", ... */
    int64_t count;
    bool checkpoint;
    tri_value (*add)(tri_model *model, const void *form, tri_value x); /* one layer */
    const void *form;
} tri_layer_stack;
tri_value tri_layer_stack_add(tri_model *model, const tri_layer_stack *stack, tri_value x);

/* --- fields; `node` is a map or NULL, and an absent field keeps *out --- */
tri_status tri_field_int(const tri_yaml *node, const char *name, int64_t low, int64_t high, int64_t *out);
tri_status tri_field_real(const tri_yaml *node, const char *name, double low, double high, double *out);
tri_status tri_field_bool(const tri_yaml *node, const char *name, bool *out);
/* "hwc" or "chw". */
tri_status tri_field_order(const tri_yaml *node, const char *name, tri_flatten_order *out);
/* "line 3: ", or "" for what came from the command line. */
const char *tri_field_place(const tri_yaml *node, char text[32]);
/* TRI_ECONFIG for a key of `node` that is not among `names` (ends in NULL), with the nearest one. */
tri_status tri_fields_check(const tri_yaml *node, const char *what, const char *const *names);
/* The same failure for a single word. */
tri_status tri_field_unknown(const tri_yaml *node, const char *what, const char *word, const char *const *names);

#endif
