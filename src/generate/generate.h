/* SPDX-License-Identifier: Apache-2.0
 *
 * generate.h: text from a model: prompts in, tokens out as they come, several sequences side by side.
 *
 * The text of a request is a function of the weights, its prompt, its rule and seed: neither threads nor what is
 * generated beside it change it.
 */
#ifndef TRI_GENERATE_GENERATE_H
#define TRI_GENERATE_GENERATE_H

#include "generate/pick.h"
#include "nn/token_graph.h"
#include "text/tokenizer.h"

typedef struct tri_generator tri_generator;

/* Both are borrowed until the generator is destroyed. `sequences` is what the graph was compiled for, `places`
 * likewise: the context. */
tri_status tri_generator_create(tri_token_graph *graph, const tri_tokenizer *tokenizer, int sequences, int64_t places,
                                tri_generator **out);
void tri_generator_destroy(tri_generator *generator);

typedef struct tri_generate_request {
    const char *prompt; /* UTF-8; empty: the end-of-text token, else a new line, begins the text */
    size_t prompt_nbytes;
    int64_t max_tokens;
    int64_t slide; /* once the context is full: tokens that the text continues with, the newest; 0: it ends there */
    tri_pick_rule rule;
    const char *stop; /* the text ends before it: a text, or a special token as the vocabulary writes it; NULL: none */
} tri_generate_request;

/* Why a text ended: as many tokens as asked for, an end-of-text token, the stop text, a full context. */
#define TRI_GENERATE_ENDS(X) X(LENGTH, "length") X(TEXT, "end") X(STOP, "stop") X(CONTEXT, "context")
typedef enum tri_generate_end {
#define TRI_GENERATE_END_ENUM(id, name) TRI_GENERATE_END_##id,
    TRI_GENERATE_ENDS(TRI_GENERATE_END_ENUM)
#undef TRI_GENERATE_END_ENUM
} tri_generate_end;
const char *tri_generate_end_name(tri_generate_end end);

typedef struct tri_generate_result {
    tri_status status; /* of this request alone: TRI_EFORMAT or TRI_EINVAL; then only `error` is set */
    char *error;
    tri_string text;
    int64_t prompt_tokens, tokens;
    tri_generate_end end;
    double first_s; /* from the call to the first token */
} tri_generate_result;
void tri_generate_result_fini(tri_generate_result *result);

typedef struct tri_generate_watch {
    /* Whole characters of request `index` as they come. NULL: nobody. */
    tri_status (*text)(void *arg, int index, const char *text, size_t nbytes);
    /* A request is done; they may end in any order. NULL: nobody. */
    tri_status (*done)(void *arg, int index);
    void *arg;
} tri_generate_watch;

/* results[count] are zeroed at first; fini each, whatever is returned. */
tri_status tri_generator_run(tri_generator *generator, const tri_generate_request *requests, int count,
                             const tri_generate_watch *watch, tri_generate_result *results);

#endif
