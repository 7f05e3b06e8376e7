/* SPDX-License-Identifier: Apache-2.0
 *
 * test_generate.c: a small GPT-2 of Hugging Face (make.py) writes what transformers wrote with it, alone and beside
 * others, and ends where it should.
 */
#include "unit/generate/generate_rig.h"

#include "base/fs.h"
#include "generate/source.h"
#include "text/json_read.h"

#define PROMPTS 6

typedef struct golden {
    char *prompt, *text;
} golden;

static void golden_read(golden *out)
{
    char *text;
    size_t nbytes, count = 0;
    OK(tri_fs_read(TRI_FIXTURE "/golden.txt", 0, &text, &nbytes));
    for (char *line = strtok(text, "\n"); line && count < PROMPTS; line = strtok(NULL, "\n"), count++) {
        json_t *root;
        OK(tri_json_load(line, strlen(line), "golden.txt", &root));
        out[count].prompt = tri_strdup(json_string_value(json_object_get(root, "prompt")));
        out[count].text = tri_strdup(json_string_value(json_object_get(root, "text")));
        json_decref(root);
    }
    assert_int_equal(count, PROMPTS);
    tri_free(text);
}

static void golden_free(golden *all)
{
    for (int i = 0; i < PROMPTS; i++) {
        tri_free(all[i].prompt);
        tri_free(all[i].text);
    }
}

static void model_open(tri_text_model *model, tri_dtype dtype, int threads, int sequences)
{
    tri_source_setup setup = {.path = TRI_FIXTURE, .dtype = dtype, .threads = threads, .sequences = sequences};
    OK(tri_text_model_open(&setup, model));
    assert_int_equal(model->places, 48);
}

static tri_generate_request request_of(const char *prompt, int64_t max_tokens, double temperature)
{
    return (tri_generate_request){.prompt = prompt,
                                  .prompt_nbytes = strlen(prompt),
                                  .max_tokens = max_tokens,
                                  .rule = {.temperature = temperature, .top_p = 1, .repeat = 1, .seed = 5}};
}

/* Also five prompts in two places, in f32 and bf16, whose rounding changes no choice here. */
static void greedy_text_is_that_of_transformers(void **state)
{
    (void)state;
    golden all[PROMPTS];
    golden_read(all);
    for (int sequences = 1; sequences <= 4; sequences++) {
        tri_text_model model;
        tri_generate_request requests[PROMPTS];
        tri_generate_result results[PROMPTS];
        model_open(&model, sequences == 4 ? TRI_BF16 : TRI_F32, sequences % 2 + 1, sequences);
        for (int i = 0; i < PROMPTS; i++)
            requests[i] = request_of(all[i].prompt, 20, 0);
        OK(tri_generator_run(model.generator, requests, PROMPTS, NULL, results));
        for (int i = 0; i < PROMPTS; i++) {
            assert_int_equal(results[i].status, TRI_OK);
            assert_string_equal(tri_string_text(&results[i].text), all[i].text);
            assert_int_equal(results[i].tokens, 20);
            assert_int_equal(results[i].end, TRI_GENERATE_END_LENGTH);
            tri_generate_result_fini(&results[i]);
        }
        tri_text_model_close(&model);
    }
    golden_free(all);
}

typedef struct heard {
    tri_string text[3];
    int done;
} heard;

static tri_status hear_text(void *arg, int index, const char *text, size_t nbytes)
{
    heard *h = arg;
    assert_true(nbytes > 0);
    return tri_string_append_bytes(&h->text[index], text, nbytes);
}

static tri_status hear_done(void *arg, int index)
{
    heard *h = arg;
    (void)index;
    h->done++;
    return TRI_OK;
}

static void what_is_drawn_depends_on_the_request_alone(void **state)
{
    (void)state;
    tri_text_model alone, together;
    tri_generate_request requests[] = {request_of("Once", 30, 1), request_of("a", 44, 2),
                                       request_of("caf\xc3\xa9", 9, 1)};
    tri_generate_result results[3], one;
    heard h = {0};
    tri_generate_watch watch = {hear_text, hear_done, &h};
    requests[1].rule.seed = 6;
    model_open(&alone, TRI_F32, 1, 1);
    model_open(&together, TRI_F32, 2, 3);
    OK(tri_generator_run(together.generator, requests, 3, &watch, results));
    assert_int_equal(h.done, 3);
    for (int i = 0; i < 3; i++) {
        OK(tri_generator_run(alone.generator, &requests[i], 1, NULL, &one));
        assert_string_equal(tri_string_text(&one.text), tri_string_text(&results[i].text));
        assert_string_equal(tri_string_text(&h.text[i]), tri_string_text(&results[i].text));
        tri_generate_result_fini(&one);
    }
    requests[0].rule.seed++;
    OK(tri_generator_run(alone.generator, requests, 1, NULL, &one));
    assert_string_not_equal(tri_string_text(&one.text), tri_string_text(&results[0].text));
    tri_generate_result_fini(&one);
    for (int i = 0; i < 3; i++) {
        tri_generate_result_fini(&results[i]);
        tri_string_fini(&h.text[i]);
    }
    tri_text_model_close(&alone);
    tri_text_model_close(&together);
}

/* "0123456789" goes on with "vvvv22<<<<<<<<<<SS(L". */
static void a_text_ends_where_it_should(void **state)
{
    (void)state;
    tri_text_model model;
    tri_generate_result result;
    heard h = {0};
    tri_generate_watch watch = {hear_text, NULL, &h};
    model_open(&model, TRI_F32, 1, 1);
    tri_generate_request request = request_of("0123456789", 20, 0);
    request.stop = "22<";
    OK(tri_generator_run(model.generator, &request, 1, &watch, &result));
    assert_string_equal(tri_string_text(&result.text), "vvvv");
    assert_string_equal(tri_string_text(&h.text[0]), "vvvv");
    assert_int_equal(result.end, TRI_GENERATE_END_STOP);
    tri_generate_result_fini(&result);
    tri_string_clear(&h.text[0]);
    request.stop = "<S!"; /* begins, and is not meant */
    OK(tri_generator_run(model.generator, &request, 1, &watch, &result));
    assert_string_equal(tri_string_text(&h.text[0]), "vvvv22<<<<<<<<<<SS(L");
    tri_generate_result_fini(&result);
    request.stop = NULL;
    request.max_tokens = 100;
    OK(tri_generator_run(model.generator, &request, 1, NULL, &result));
    assert_int_equal(result.end, TRI_GENERATE_END_CONTEXT);
    assert_int_equal(result.prompt_tokens + result.tokens, 49); /* the last one is not looked at any more */
    tri_generate_result_fini(&result);
    request.max_tokens = 0;
    OK(tri_generator_run(model.generator, &request, 1, NULL, &result));
    assert_int_equal(result.tokens, 0);
    tri_generate_result_fini(&result);
    /* At a temperature that makes all tokens alike some text meets the end-of-text token. */
    int ended = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        request = request_of("a", 40, 1e6);
        request.rule.seed = seed;
        OK(tri_generator_run(model.generator, &request, 1, NULL, &result));
        ended += result.end == TRI_GENERATE_END_TEXT;
        assert_true(result.end != TRI_GENERATE_END_TEXT || result.tokens < 40);
        tri_generate_result_fini(&result);
    }
    assert_in_range(ended, 2, 15);
    for (uint64_t seed = 0; seed < 20; seed++) { /* the same token as a stop text */
        request = request_of("a", 40, 1e6);
        request.rule.seed = seed;
        request.stop = "<|endoftext|>";
        tri_string_clear(&h.text[0]);
        OK(tri_generator_run(model.generator, &request, 1, &watch, &result));
        assert_true(result.end != TRI_GENERATE_END_TEXT);
        ended -= result.end == TRI_GENERATE_END_STOP;
        assert_string_equal(tri_string_text(&h.text[0]), tri_string_text(&result.text));
        tri_generate_result_fini(&result);
    }
    assert_int_equal(ended, 0);
    tri_string_fini(&h.text[0]);
    tri_text_model_close(&model);
}

typedef struct pieces {
    int count, accents;
    unsigned char last;
} pieces;

static tri_status hear_whole(void *arg, int index, const char *text, size_t nbytes)
{
    pieces *p = arg;
    (void)index;
    p->count++;
    assert_false(p->last == 0xc3 && (unsigned char)*text == 0xa9);
    for (size_t i = 0; i + 1 < nbytes; i++)
        p->accents += memcmp(text + i, "\xc3\xa9", 2) == 0;
    p->last = (unsigned char)text[nbytes - 1];
    return TRI_OK;
}

static void characters_are_never_cut(void **state)
{
    (void)state;
    tri_text_model model;
    tri_generate_result result;
    pieces p = {0};
    tri_generate_watch watch = {hear_whole, NULL, &p};
    model_open(&model, TRI_F32, 1, 1);
    for (uint64_t seed = 0; seed < 60; seed++) {
        tri_generate_request request = request_of("caf\xc3", 40, 1e6); /* ends within a character */
        request.rule.seed = seed;
        p.last = 0;
        OK(tri_generator_run(model.generator, &request, 1, &watch, &result));
        tri_generate_result_fini(&result);
    }
    assert_true(p.count > 1000 && p.accents > 0);
    tri_text_model_close(&model);
}

static void prompts_that_cannot_be_are_named_and_the_others_go_on(void **state)
{
    (void)state;
    char longer[60];
    memset(longer, 'a', sizeof(longer));
    longer[49] = 0;
    tri_text_model model;
    tri_generate_request requests[] = {request_of(longer, 3, 0), request_of("Once", 3, 0), request_of("\xc3\x9f", 3, 0),
                                       request_of("", 3, 0)};
    tri_generate_result results[4];
    model_open(&model, TRI_F32, 1, 2);
    OK(tri_generator_run(model.generator, requests, 4, NULL, results));
    assert_int_equal(results[0].status, TRI_EINVAL);
    assert_string_equal(
        results[0].error,
        "the prompt has 49 tokens, but the model's context holds 48 (--slide, or slide in a batch, continues)");
    assert_string_equal(tri_string_text(&results[1].text), "2<<");
    assert_int_equal(results[2].status, TRI_EFORMAT);
    assert_non_null(strstr(results[2].error, "no token for the byte 0x9f"));
    assert_int_equal(results[3].status, TRI_OK); /* begins with the end-of-text token */
    assert_int_equal(results[3].prompt_tokens, 1);
    for (int i = 0; i < 4; i++)
        tri_generate_result_fini(&results[i]);
    tri_text_model_close(&model);
}

/* Behind a full context the text is that of its newest tokens as a prompt, again and again; whoever is beside it. */
static void a_text_that_slides_goes_on_with_its_newest_tokens(void **state)
{
    (void)state;
    enum { SLIDE = 20, TOKENS = 100 };
    tri_text_model model;
    tri_generate_request requests[] = {request_of("Once", TOKENS, 0), request_of("a", TOKENS, 1)};
    tri_generate_result alone, both[2];
    requests[0].slide = requests[1].slide = SLIDE;
    model_open(&model, TRI_F32, 1, 1);
    OK(tri_generator_run(model.generator, requests, 1, NULL, &alone));
    assert_int_equal(alone.tokens, TOKENS);
    assert_int_equal(alone.end, TRI_GENERATE_END_LENGTH);
    /* By hand: each text is as long as the context allows, the next one begins with the end of it. */
    tri_string whole = {0};
    OK(tri_string_append(&whole, "Once"));
    tri_encoder *encoder;
    OK(tri_encoder_create(model.tokenizer, &encoder));
    int64_t have = 0;
    for (int round = 0; have < TOKENS; round++) {
        tri_ids ids = {0};
        tri_generate_result part;
        const char *from = tri_string_text(&whole);
        OK(tri_encode(encoder, from, strlen(from), TRI_ENCODE_RESUME, &ids));
        const int64_t count = (int64_t)ids.count;
        assert_true(round == 0 || count > model.places); /* as many tokens as were generated */
        if (round > 0) {
            from += strlen(from) - SLIDE; /* a character each here, as their number shows */
            ids.count = 0;
            OK(tri_encode(encoder, from, strlen(from), TRI_ENCODE_RESUME, &ids));
            assert_int_equal(ids.count, SLIDE);
        }
        tri_generate_request again = request_of(from, TOKENS - have, 0);
        OK(tri_generator_run(model.generator, &again, 1, NULL, &part));
        assert_int_equal(part.end, have + part.tokens < TOKENS ? TRI_GENERATE_END_CONTEXT : TRI_GENERATE_END_LENGTH);
        have += part.tokens;
        OK(tri_string_append(&whole, tri_string_text(&part.text)));
        tri_generate_result_fini(&part);
        tri_ids_fini(&ids);
    }
    assert_string_equal(tri_string_text(&alone.text), tri_string_text(&whole) + strlen("Once"));
    tri_encoder_destroy(encoder);
    tri_string_fini(&whole);
    tri_text_model_close(&model);
    model_open(&model, TRI_F32, 2, 2);
    OK(tri_generator_run(model.generator, requests, 2, NULL, both));
    assert_string_equal(tri_string_text(&both[0].text), tri_string_text(&alone.text));
    assert_int_equal(both[1].end == TRI_GENERATE_END_TEXT || both[1].tokens == TOKENS, 1);
    tri_generate_result_fini(&alone);
    tri_generate_result_fini(&both[0]);
    tri_generate_result_fini(&both[1]);
    /* A prompt that is too long begins with its end; more than the context is refused. */
    char longer[60] = {0};
    memset(longer, 'a', 49);
    requests[0] = request_of(longer, 3, 0);
    requests[0].slide = SLIDE;
    requests[1] = request_of(longer + 49 - SLIDE, 3, 0);
    OK(tri_generator_run(model.generator, requests, 2, NULL, both));
    assert_string_equal(tri_string_text(&both[0].text), tri_string_text(&both[1].text));
    tri_generate_result_fini(&both[0]);
    tri_generate_result_fini(&both[1]);
    requests[0].slide = 49;
    OK(tri_generator_run(model.generator, requests, 1, NULL, both));
    assert_string_equal(both[0].error, "slide: want at most the 48 tokens of the model's context, got 49");
    tri_generate_result_fini(&both[0]);
    tri_text_model_close(&model);
}

static void no_allocation_that_fails_is_lost(void **state)
{
    (void)state;
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        const uint64_t live = tri_memory_now().live;
        tri_text_model model;
        tri_generate_result result = {0};
        tri_generate_request request = request_of("Once", 3, 1);
        tri_source_setup setup = {.path = TRI_FIXTURE, .dtype = TRI_BF16, .threads = 1, .sequences = 1};
        request.stop = "#";
        tri_memory_fail_at(n);
        tri_status status = tri_text_model_open(&setup, &model);
        if (status == TRI_OK)
            status = tri_generator_run(model.generator, &request, 1, NULL, &result);
        done = status == TRI_OK && result.status == TRI_OK;
        tri_memory_fail_at(0);
        tri_generate_result_fini(&result);
        tri_text_model_close(&model);
        assert_int_equal(tri_memory_now().live, live);
        assert_true(status == TRI_OK || status == TRI_ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_text_is_that_of_transformers),
        cmocka_unit_test(what_is_drawn_depends_on_the_request_alone),
        cmocka_unit_test(a_text_ends_where_it_should),
        cmocka_unit_test(characters_are_never_cut),
        cmocka_unit_test(prompts_that_cannot_be_are_named_and_the_others_go_on),
        cmocka_unit_test(a_text_that_slides_goes_on_with_its_newest_tokens),
        cmocka_unit_test(no_allocation_that_fails_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
