/* SPDX-License-Identifier: Apache-2.0
 *
 * source.h: a model on the disk, ready to generate: weights, architecture and tokenizer found and put together.
 *
 * Understood is what tri_pretrained_open() understands, where a config.json says gpt2 or llama; the tokenizer is
 * beside the weights or in the run folder above a checkpoint.
 */
#ifndef TRI_GENERATE_SOURCE_H
#define TRI_GENERATE_SOURCE_H

#include "generate/generate.h"

typedef struct tri_source_setup {
    const char *path;         /* Hugging Face's folder, a run, a checkpoint */
    const char *tokenizer;    /* as tri_tokenizer_open(); NULL: found beside the weights */
    const tri_device *device; /* that computes; NULL: the host. Outlives the model */
    tri_dtype dtype;          /* of the weights in memory: f32 or bf16 */
    int threads;
    int sequences;
    int64_t places; /* tokens of a sequence, at most; 0 or more than the model's context: its context */
} tri_source_setup;

typedef struct tri_text_model {
    tri_tokenizer *tokenizer;
    tri_token_graph *graph;
    tri_generator *generator;
    int64_t places;
} tri_text_model;

/* tri_text_model_close() it whatever is returned. Weights are read and released from the files. */
tri_status tri_text_model_open(const tri_source_setup *setup, tri_text_model *model);
void tri_text_model_close(tri_text_model *model);

/* Its path; tri_free() it. */
tri_status tri_text_tokenizer_path(const char *path, char **out);
/* The tokenizer beside `path`, or in the run above a checkpoint. TRI_ENOTFOUND says where was looked. */
tri_status tri_text_tokenizer_find(const char *path, tri_tokenizer **out);

#endif
