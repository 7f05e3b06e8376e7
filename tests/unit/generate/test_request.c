/* SPDX-License-Identifier: Apache-2.0
 *
 * test_request.c: lines of a batch, right and wrong.
 */
#include "unit/generate/generate_rig.h"

#include "generate/request.h"

static const tri_generate_request usual = {
    .max_tokens = 7, .rule = {.temperature = 0.5, .top_k = 3, .top_p = 0.9, .repeat = 1, .seed = 4}, .stop = "END"};

static void a_line_keeps_what_it_leaves_out(void **state)
{
    (void)state;
    tri_generate_request request = usual;
    const char *line = "{\"prompt\": \"a\\u0000b\", \"top_k\": 0, \"temperature\": 2}";
    OK(tri_generate_request_parse(line, strlen(line), "x:1", &request));
    assert_int_equal(request.prompt_nbytes, 3);
    assert_memory_equal(request.prompt, "a\0b", 3);
    assert_string_equal(request.stop, "END");
    assert_int_equal(request.max_tokens, 7);
    assert_int_equal(request.rule.top_k, 0);
    assert_true(request.rule.temperature == 2 && request.rule.top_p == 0.9);
    assert_int_equal(request.rule.seed, 4);
    tri_generate_request_fini(&request);
    request = usual;
    line = "{\"prompt\": \"\", \"seed\": 8, \"stop\": \"x\", \"max_tokens\": 0, \"repeat\": 1.5, \"top_p\": 1}";
    OK(tri_generate_request_parse(line, strlen(line), "x:1", &request));
    assert_string_equal(request.stop, "x");
    assert_true(request.rule.repeat == 1.5 && request.rule.seed == 8 && request.max_tokens == 0);
    tri_generate_request_fini(&request);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"[1]", "x:1: want a JSON object"},
        {"{\"prompt\": 3}", "prompt"},
        {"{}", "prompt"},
        {"{\"prompt\": \"a\", \"max_token\": 3}", "x:1: there is no field 'max_token' (prompt, max_tokens, slide, "
                                                  "temperature, top_k, top_p, repeat, seed, stop)"},
        {"{\"prompt\": \"a\", \"max_tokens\": 2.5}", "x:1: 'max_tokens': want a whole number"},
        {"{\"prompt\": \"a\", \"slide\": -1}",
         "x:1: slide: want 0 (a text ends where the context does) or more tokens, got -1"},
        {"{\"prompt\": \"a\", \"temperature\": \"hot\"}", "x:1: 'temperature': want a number"},
        {"{\"prompt\": \"a\", \"temperature\": -1}", "x:1: temperature: want 0 (the likeliest token) or more, got -1"},
        {"{\"prompt\": \"a\", \"top_p\": 0}", "x:1: top p: want a probability above 0, at most 1 (all), got 0"},
        {"{\"prompt\": \"a\", \"top_k\": -2}", "x:1: top k: want 0 (all) or more tokens, got -2"},
        {"{\"prompt\": \"a\", \"repeat\": 0}", "x:1: repeat: want a factor above 0, 1 changes nothing, got 0"},
        {"{\"prompt\": \"a\", \"stop\": 1}", "stop"},
        {"{\"prompt\": \"a\"", "x:1"},
    };
    const uint64_t live = tri_memory_now().live;
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        tri_generate_request request = usual;
        assert_int_equal(tri_generate_request_parse(cases[i][0], strlen(cases[i][0]), "x:1", &request), TRI_EFORMAT);
        if (!strstr(tri_last_error(), cases[i][1]))
            fail_msg("'%s' gives '%s'", cases[i][0], tri_last_error());
        assert_true(request.stop == usual.stop && request.rule.top_k == 3);
    }
    assert_int_equal(tri_memory_now().live, live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_keeps_what_it_leaves_out),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
