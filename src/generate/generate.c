/* SPDX-License-Identifier: Apache-2.0
 *
 * generate.c: a few places (slots) for sequences; who is done makes room for the next request.
 *
 * Each round walks all sequences at once: whole prompts of those that begin, one token of the others. A text that
 * slides starts again with its newest tokens when its places are used up: their keys and values depend on what was
 * before.
 */
#include "generate/generate.h"

#include <string.h>

#include "base/runtime.h"

typedef struct generate_slot {
    int request;           /* -1: free */
    tri_ids ids;           /* prompt, then what was generated */
    int64_t walked, first; /* number of the next token to walk, of the one at place 0 */
    tri_decoder decoder;
    size_t shown; /* bytes of the text */
    int32_t stop; /* special token that is the stop text; -1: none */
} generate_slot;

struct tri_generator {
    tri_token_graph *graph;
    const tri_tokenizer *tokenizer;
    tri_encoder *encoder;
    tri_picker *picker;
    int64_t words, places;
    int slot_count;
    generate_slot *slots;
    tri_token_span *spans;
    int *spoken; /* slot of each span */
    float *logits;
};

typedef struct generate_run {
    tri_generator *generator;
    const tri_generate_request *requests;
    tri_generate_result *results;
    const tri_generate_watch *watch;
    int count, next;
    int64_t began_ns;
} generate_run;

const char *tri_generate_end_name(tri_generate_end end)
{
    static const char *const names[] = {
#define END_NAME(id, name) [TRI_GENERATE_END_##id] = name,
        TRI_GENERATE_ENDS(END_NAME)
#undef END_NAME
    };
    return names[end];
}

void tri_generate_result_fini(tri_generate_result *result)
{
    tri_string_fini(&result->text);
    tri_free(result->error);
    *result = (tri_generate_result){0};
}

static tri_status generator_fill(tri_generator *g, int sequences)
{
    const int64_t words = tri_token_graph_words(g->graph), known = tri_tokenizer_count(g->tokenizer);
    g->words = words < known ? words : known; /* others have no text */
    g->slot_count = sequences;
    g->slots = tri_alloc_zero((size_t)sequences, sizeof(*g->slots));
    g->spans = tri_alloc_zero((size_t)sequences, sizeof(*g->spans));
    g->spoken = tri_alloc_zero((size_t)sequences, sizeof(*g->spoken));
    g->logits = tri_alloc_zero((size_t)g->words, sizeof(*g->logits));
    if (!g->slots || !g->spans || !g->spoken || !g->logits)
        return TRI_ENOMEM;
    for (int s = 0; s < sequences; s++)
        g->slots[s].request = -1;
    TRI_TRY(tri_encoder_create(g->tokenizer, &g->encoder));
    return tri_picker_create(g->words, &g->picker);
}

tri_status tri_generator_create(tri_token_graph *graph, const tri_tokenizer *tokenizer, int sequences, int64_t places,
                                tri_generator **out)
{
    tri_generator *g = tri_alloc_zero(1, sizeof(*g));
    if (!g)
        return TRI_ENOMEM;
    *g = (tri_generator){.graph = graph, .tokenizer = tokenizer, .places = places};
    tri_status status = generator_fill(g, sequences);
    if (status != TRI_OK) {
        tri_generator_destroy(g);
        return status;
    }
    *out = g;
    return TRI_OK;
}

void tri_generator_destroy(tri_generator *g)
{
    if (!g)
        return;
    for (int s = 0; g->slots && s < g->slot_count; s++)
        tri_ids_fini(&g->slots[s].ids);
    tri_free(g->slots);
    tri_free(g->spans);
    tri_free(g->spoken);
    tri_free(g->logits);
    tri_encoder_destroy(g->encoder);
    tri_picker_destroy(g->picker);
    tri_free(g);
}

/* --- the begin of a text --- */

/* A text has to begin with something. */
static tri_status begin_push(tri_generator *g, tri_ids *ids)
{
    const int32_t end = tri_tokenizer_end(g->tokenizer);
    if (end >= 0 && end < g->words)
        return tri_ids_push(ids, end);
    if (tri_encode(g->encoder, "\n", 1, TRI_ENCODE_RESUME, ids) == TRI_OK && ids->count > 0)
        return TRI_OK;
    return tri_fail(TRI_EINVAL, "the prompt is empty, and the vocabulary has neither an end-of-text token nor a new "
                                "line to begin with: give a prompt");
}

static tri_status prompt_encode(tri_generator *g, const tri_generate_request *request, tri_ids *ids)
{
    ids->count = 0;
    TRI_TRY_IN(tri_encode(g->encoder, request->prompt, request->prompt_nbytes, TRI_ENCODE_BEGIN, ids), "the prompt");
    const size_t own = ids->count;
    TRI_TRY(tri_encode(g->encoder, "", 0, TRI_ENCODE_END | TRI_ENCODE_RESUME, ids));
    /* An end that the template puts behind a text would end this one; one of the prompt itself is its own. */
    if (ids->count > own && ids->count > 1 && tri_tokenizer_is_end(g->tokenizer, ids->items[ids->count - 1]) &&
        request->prompt_nbytes > 0)
        ids->count--;
    if (ids->count == 0)
        TRI_TRY(begin_push(g, ids));
    for (size_t i = 0; i < ids->count; i++)
        if (ids->items[i] >= g->words)
            return tri_fail(TRI_EINVAL,
                            "the prompt has token %d, but the model's vocabulary has %lld: the tokenizer is "
                            "of another model",
                            ids->items[i], (long long)tri_token_graph_words(g->graph));
    if (request->slide > g->places)
        return tri_fail(TRI_EINVAL, "slide: want at most the %lld tokens of the model's context, got %lld",
                        (long long)g->places, (long long)request->slide);
    if ((int64_t)ids->count > g->places && request->slide == 0)
        return tri_fail(
            TRI_EINVAL,
            "the prompt has %zu tokens, but the model's context holds %lld (--slide, or slide in a batch, continues)",
            ids->count, (long long)g->places);
    return TRI_OK;
}

/* Whether the tokens that were not walked have places, after sliding where that is asked for. */
static bool slot_fits(const tri_generator *g, generate_slot *slot, int64_t slide)
{
    const int64_t count = (int64_t)slot->ids.count;
    if (count - slot->first <= g->places)
        return true;
    if (slide > 0)
        slot->walked = slot->first = count - slide;
    return slide > 0;
}

/* Special tokens leave no text that could be compared. */
static int32_t stop_token(const tri_tokenizer *tokenizer, const char *stop)
{
    const int32_t id = stop && *stop ? tri_tokenizer_find(tokenizer, stop) : -1;
    return id >= 0 && tri_tokenizer_is_special(tokenizer, id) ? id : -1;
}

/* What the prompt's tokens leave in the decoder belongs to them. */
static tri_status slot_begin(generate_run *run, generate_slot *slot, int request)
{
    tri_generator *g = run->generator;
    tri_string dropped = {0};
    slot->walked = slot->first = 0;
    slot->shown = 0;
    slot->stop = stop_token(g->tokenizer, run->requests[request].stop);
    slot->decoder = tri_decoder_make(g->tokenizer, false);
    tri_status status = prompt_encode(g, &run->requests[request], &slot->ids);
    for (size_t i = 0; i < slot->ids.count && status == TRI_OK; i++)
        status = tri_decoder_push(&slot->decoder, slot->ids.items[i], &dropped);
    tri_string_fini(&dropped);
    run->results[request].prompt_tokens = (int64_t)slot->ids.count;
    (void)slot_fits(g, slot, run->requests[request].slide);
    slot->request = status == TRI_OK ? request : -1;
    return status;
}

static tri_status request_done(generate_run *run, int request)
{
    return run->watch && run->watch->done ? run->watch->done(run->watch->arg, request) : TRI_OK;
}

/* The next request that can begin; one that cannot says so in its result. */
static tri_status slot_fill(generate_run *run, generate_slot *slot)
{
    while (slot->request < 0 && run->next < run->count) {
        const int request = run->next++;
        tri_status status = slot_begin(run, slot, request);
        if (status == TRI_OK && run->requests[request].max_tokens == 0)
            slot->request = -1;
        else if (status == TRI_OK)
            return TRI_OK;
        tri_generate_result *result = &run->results[request];
        if (status != TRI_OK && status != TRI_EFORMAT && status != TRI_EINVAL)
            return status;
        result->status = status;
        if (status != TRI_OK && !(result->error = tri_strdup(tri_last_error())))
            return TRI_ENOMEM;
        TRI_TRY(request_done(run, request));
    }
    return TRI_OK;
}

/* --- what comes --- */

/* Bytes at the end of the text that may be the begin of the stop text. */
static size_t held_back(const tri_string *text, size_t from, const char *stop)
{
    const size_t length = stop ? strlen(stop) : 0;
    size_t held = length > 0 ? length - 1 : 0;
    if (held > text->nbytes - from)
        held = text->nbytes - from;
    while (held > 0 && memcmp(text->text + text->nbytes - held, stop, held) != 0)
        held--;
    return held;
}

/* Tells what is certain; true when the stop text has come. */
static tri_status text_tell(generate_run *run, generate_slot *slot, bool last, bool *stopped)
{
    tri_generate_result *result = &run->results[slot->request];
    const char *stop = run->requests[slot->request].stop;
    *stopped = false;
    if (stop && *stop && result->text.nbytes > 0) {
        const char *found =
            memmem(result->text.text + slot->shown, result->text.nbytes - slot->shown, stop, strlen(stop));
        if (found) {
            result->text.nbytes = (size_t)(found - result->text.text);
            result->text.text[result->text.nbytes] = 0;
            *stopped = true;
        }
    }
    const size_t held = last || *stopped ? 0 : held_back(&result->text, slot->shown, stop);
    const size_t nbytes = result->text.nbytes - held - slot->shown;
    slot->shown += nbytes;
    if (nbytes == 0 || !run->watch || !run->watch->text)
        return TRI_OK;
    return run->watch->text(run->watch->arg, slot->request, result->text.text + slot->shown - nbytes, nbytes);
}

/* Tells what was held back. */
static tri_status text_flush(generate_run *run, generate_slot *slot, bool *stopped)
{
    TRI_TRY(tri_decoder_end(&slot->decoder, &run->results[slot->request].text));
    return text_tell(run, slot, true, stopped);
}

static tri_status slot_end(generate_run *run, generate_slot *slot, tri_generate_end end)
{
    const int request = slot->request;
    bool stopped = end == TRI_GENERATE_END_STOP;
    if (!stopped)
        TRI_TRY(text_flush(run, slot, &stopped));
    run->results[request].end = stopped ? TRI_GENERATE_END_STOP : end;
    slot->request = -1;
    return request_done(run, request);
}

static tri_status slot_pick(generate_run *run, generate_slot *slot, const float *logits)
{
    tri_generator *g = run->generator;
    const tri_generate_request *request = &run->requests[slot->request];
    tri_generate_result *result = &run->results[slot->request];
    bool stopped;
    memcpy(g->logits, logits, (size_t)g->words * sizeof(float));
    const int32_t token =
        tri_pick(g->picker, g->logits, g->words, &request->rule, slot->ids.items, (int64_t)slot->ids.count);
    if (result->tokens == 0)
        result->first_s = (double)(tri_now_ns() - run->began_ns) / (double)TRI_NS_PER_S;
    if (token == slot->stop)
        TRI_TRY(text_flush(run, slot, &stopped));
    if (token == slot->stop)
        return slot_end(run, slot, TRI_GENERATE_END_STOP);
    if (tri_tokenizer_is_end(g->tokenizer, token))
        return slot_end(run, slot, TRI_GENERATE_END_TEXT);
    result->tokens++;
    TRI_TRY(tri_ids_push(&slot->ids, token));
    if (tri_tokenizer_token(g->tokenizer, token, &(size_t){0})) /* a gap in the vocabulary has no text */
        TRI_TRY(tri_decoder_push(&slot->decoder, token, &result->text));
    TRI_TRY(text_tell(run, slot, false, &stopped));
    if (stopped)
        return slot_end(run, slot, TRI_GENERATE_END_STOP);
    if (result->tokens == request->max_tokens)
        return slot_end(run, slot, TRI_GENERATE_END_LENGTH);
    return slot_fits(g, slot, request->slide) ? TRI_OK : slot_end(run, slot, TRI_GENERATE_END_CONTEXT);
}

/* One walk of all that are under way; *any: there were some. */
static tri_status round_run(generate_run *run, bool *any)
{
    tri_generator *g = run->generator;
    int count = 0;
    for (int s = 0; s < g->slot_count; s++) {
        generate_slot *slot = &g->slots[s];
        TRI_TRY(slot_fill(run, slot));
        if (slot->request < 0)
            continue;
        g->spoken[count] = s;
        g->spans[count++] = (tri_token_span){.sequence = s,
                                             .place = slot->walked - slot->first,
                                             .count = (int64_t)slot->ids.count - slot->walked,
                                             .tokens = slot->ids.items + slot->walked};
        slot->walked = (int64_t)slot->ids.count;
    }
    *any = count > 0;
    if (count == 0)
        return TRI_OK;
    const float *logits;
    TRI_TRY(tri_token_graph_run(g->graph, g->spans, count, &logits));
    for (int i = 0; i < count; i++)
        TRI_TRY(slot_pick(run, &g->slots[g->spoken[i]], logits + i * tri_token_graph_words(g->graph)));
    return TRI_OK;
}

tri_status tri_generator_run(tri_generator *generator, const tri_generate_request *requests, int count,
                             const tri_generate_watch *watch, tri_generate_result *results)
{
    generate_run run = {.generator = generator,
                        .requests = requests,
                        .results = results,
                        .watch = watch,
                        .count = count,
                        .began_ns = tri_now_ns()};
    memset(results, 0, (size_t)count * sizeof(*results));
    for (int s = 0; s < generator->slot_count; s++)
        generator->slots[s].request = -1;
    tri_status status = TRI_OK;
    for (bool any = true; any && status == TRI_OK;)
        status = round_run(&run, &any);
    return status;
}
