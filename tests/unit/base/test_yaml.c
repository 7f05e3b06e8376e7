/* SPDX-License-Identifier: Apache-2.0
 *
 * test_yaml.c: trees and their lines, hostile documents, changes by dotted keys, and printing that reads back the same.
 */
#include "base/yaml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/status.h"

static tri_yaml *parsed(tri_arena *arena, const char *text)
{
    tri_yaml *root = NULL;
    if (tri_yaml_parse(arena, text, strlen(text), "t.yaml", &root) != TRI_OK)
        fail_msg("%s", tri_last_error());
    return root;
}

static void refused(const char *text, size_t nbytes, const char *needle)
{
    tri_arena arena = {0};
    tri_yaml *root = NULL;
    assert_int_equal(tri_yaml_parse(&arena, text, nbytes, "t.yaml", &root), TRI_ECONFIG);
    if (!strstr(tri_last_error(), needle) || !strstr(tri_last_error(), "t.yaml"))
        fail_msg("'%s' does not hold '%s'", tri_last_error(), needle);
    assert_null(root);
    tri_arena_fini(&arena);
}

static bool same(const tri_yaml *a, const tri_yaml *b)
{
    for (; a && b; a = a->next, b = b->next) {
        if (a->kind != b->kind || !a->key != !b->key || (a->key && strcmp(a->key, b->key) != 0))
            return false;
        if (a->kind == TRI_YAML_SCALAR ? strcmp(a->text, b->text) != 0 : !same(a->child, b->child))
            return false;
    }
    return !a && !b;
}

static void reads_back(const tri_yaml *root)
{
    tri_string text = {0};
    tri_arena arena = {0};
    assert_int_equal(tri_yaml_print(root, 0, &text), TRI_OK);
    assert_true(same(root, parsed(&arena, tri_string_text(&text))));
    tri_arena_fini(&arena);
    tri_string_fini(&text);
}

static void a_document_becomes_a_tree_with_lines(void **state)
{
    (void)state;
    tri_arena arena = {0};
    tri_yaml *root =
        parsed(&arena, "# run\nmodel:\n  name: cnn\n  hidden: [512, 256]\n\ntrain: {batch: 128, seed: 1}\nempty:\n"
                       "list:\n- a\n- b: 1\n  c: \"x\\ty\"\n");
    assert_int_equal(root->kind, TRI_YAML_MAP);
    assert_int_equal(tri_yaml_count(root), 4);
    tri_yaml *model = tri_yaml_find(root, "model");
    assert_string_equal(tri_yaml_find(model, "name")->text, "cnn");
    assert_int_equal(tri_yaml_find(model, "name")->line, 3);
    tri_yaml *hidden = tri_yaml_find(model, "hidden");
    assert_int_equal(hidden->kind, TRI_YAML_LIST);
    assert_string_equal(hidden->child->next->text, "256");
    assert_null(hidden->child->key);
    assert_int_equal(tri_yaml_find(tri_yaml_find(root, "train"), "seed")->line, 6);
    assert_string_equal(tri_yaml_find(root, "empty")->text, "");
    tri_yaml *second = tri_yaml_find(root, "list")->child->next;
    assert_string_equal(tri_yaml_find(second, "c")->text, "x\ty");
    assert_int_equal(second->line, 10);
    assert_null(tri_yaml_find(hidden, "name"));
    assert_null(tri_yaml_find(NULL, "name"));
    reads_back(root);
    tri_arena_fini(&arena);
}

static void a_mark_of_utf_8_is_passed_over(void **state)
{
    (void)state;
    tri_arena arena = {0};
    assert_true(same(parsed(&arena, "\xef\xbb\xbf# first\na: 1\nb: [2]\n"), parsed(&arena, "# first\na: 1\nb: [2]\n")));
    tri_arena_fini(&arena);
}

static void an_empty_document_is_an_empty_map(void **state)
{
    (void)state;
    tri_arena arena = {0};
    static const char *const texts[] = {"", "\n\n", "# nothing\n", "---\n"};
    for (size_t i = 0; i < 4; i++) {
        tri_yaml *root = parsed(&arena, texts[i]);
        assert_int_equal(root->kind, TRI_YAML_MAP);
        assert_null(root->child);
    }
    tri_arena_fini(&arena);
}

static void hostile_documents_are_refused_with_a_reason(void **state)
{
    (void)state;
    static const struct {
        const char *text, *needle;
    } rows[] = {
        {"a: &x 1\nb: *x\n", "t.yaml:1: anchor 'x'"},
        {"a: 1\nb: *x\n", "t.yaml:2: alias 'x'"},
        {"a: !!int 1\n", "t.yaml:1: tag"},
        {"a: !mine {b: 1}\n", "tag '!mine'"},
        {"a: 1\nb: 2\na: 3\n", "t.yaml:3: key 'a' is there twice, first in line 1"},
        {"x: {a: 1, \"a\": 2}\n", "key 'a' is there twice"},
        {"a: 1\n---\nb: 2\n", "second"},
        {"a:\n\tb: 1\n", "t.yaml:2"},
        {"a: [1, 2\n", "t.yaml"},
        {"a: b: c\n", "t.yaml:1"},
        {"? [a, b]\n: 1\n", "key must"},
        {"? {a: b}\n: 1\n", "key must"},
        {"a: \"x\\0y\"\n", "zero byte"},
        {"a: @x\n", "t.yaml:1"},
        {"a: \"unfinished\n", "t.yaml"},
        {"%YAML 9.9\n---\na: 1\n", "t.yaml"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        refused(rows[i].text, strlen(rows[i].text), rows[i].needle);
    refused("a: \xff\xfe\n", 6, "t.yaml");
    refused("a: x\0y\n", 7, "t.yaml");
    refused("\xff\xfe\x61\x00", 4, "t.yaml");
}

static void depth_nodes_and_keys_have_limits(void **state)
{
    (void)state;
    tri_arena arena = {0};
    char nested[80];
    memset(nested, '[', 32);
    memset(nested + 32, ']', 32);
    nested[64] = 0;
    parsed(&arena, nested);
    memset(nested, '[', 33);
    memset(nested + 33, ']', 33);
    refused(nested, 66, "nested deeper than 32");
    size_t nbytes = 1 << 20;
    char *deep = malloc(nbytes);
    memset(deep, '[', nbytes);
    refused(deep, nbytes, "nested deeper");
    memset(deep, '{', nbytes);
    refused(deep, nbytes, "t.yaml");
    for (size_t i = 0; i + 1 < nbytes; i += 2)
        memcpy(deep + i, i == 0 ? "[1" : ",1", 2);
    refused(deep, nbytes, "more than 100000 values");
    memset(deep, 'k', 400);
    memcpy(deep + 300, ": 1", 4);
    refused(deep, 303, "longer than 200 bytes");
    free(deep);
    tri_arena_fini(&arena);
}

static void many_keys_are_cheap_and_random_bytes_never_crash(void **state)
{
    (void)state;
    tri_arena arena = {0};
    tri_string text = {0};
    for (int i = 0; i < 60000; i++)
        assert_int_equal(tri_string_appendf(&text, "k%d: %d\n", i, i), TRI_OK);
    assert_int_equal(tri_yaml_count(parsed(&arena, tri_string_text(&text))), 60000);
    tri_string_fini(&text);
    tri_rng rng = {7, 1};
    static const char alphabet[] = "ab:- \n[]{},\"'&*!|>#%?\t\\x0";
    for (uint64_t round = 0; round < 3000; round++) {
        char bytes[64];
        for (uint64_t i = 0; i < sizeof(bytes); i++) {
            uint32_t word = tri_rng_u32(rng, round * 64 + i);
            bytes[i] = round % 4 == 0 ? (char)word : alphabet[word % (sizeof(alphabet) - 1)];
        }
        tri_yaml *root = NULL;
        if (tri_yaml_parse(&arena, bytes, sizeof(bytes), "t.yaml", &root) == TRI_OK)
            reads_back(root);
        else
            assert_null(root);
    }
    tri_arena_fini(&arena);
}

static void numbers_are_checked_whole(void **state)
{
    (void)state;
    tri_arena arena = {0};
    tri_yaml *root =
        parsed(&arena, "a: 12\nb: 3k\nc: 1.5\nd: 12x\ne: on\nf: maybe\ng: [1]\nh: 99999999999999999999\ni: 1e-3\n"
                       "j: nan\nk: 0x10\nl: \" 1\"\nm: -7\n");
    int64_t number;
    double real;
    bool truth;
    assert_int_equal(tri_yaml_int(tri_yaml_find(root, "a"), "a", 0, 100, &number), TRI_OK);
    assert_int_equal(number, 12);
    assert_int_equal(tri_yaml_int(tri_yaml_find(root, "b"), "b", 0, 5000, &number), TRI_OK);
    assert_int_equal(number, 3000);
    assert_int_equal(tri_yaml_int(tri_yaml_find(root, "m"), "m", -7, 0, &number), TRI_OK);
    assert_int_equal(number, -7);
    static const char *const bad[] = {"c", "d", "e", "g", "h", "k", "l", "absent"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(tri_yaml_int(tri_yaml_find(root, bad[i]), "x", 0, 100, &number), TRI_ECONFIG);
    assert_int_equal(tri_yaml_int(tri_yaml_find(root, "a"), "model.depth", 20, 56, &number), TRI_ECONFIG);
    assert_string_equal(tri_last_error(), "line 1: model.depth: want an integer from 20 to 56, got '12'");
    assert_int_equal(tri_yaml_real(tri_yaml_find(root, "i"), "i", 0, 1, &real), TRI_OK);
    assert_true(real == 1e-3);
    assert_int_equal(tri_yaml_real(tri_yaml_find(root, "j"), "j", 0, 1, &real), TRI_ECONFIG);
    assert_int_equal(tri_yaml_real(tri_yaml_find(root, "c"), "c", 0, 1, &real), TRI_ECONFIG);
    assert_int_equal(tri_yaml_bool(tri_yaml_find(root, "e"), "e", &truth), TRI_OK);
    assert_true(truth);
    assert_int_equal(tri_yaml_bool(tri_yaml_find(root, "f"), "f", &truth), TRI_ECONFIG);
    tri_arena_fini(&arena);
}

static void set_makes_maps_and_replaces_and_reads_back(void **state)
{
    (void)state;
    tri_arena arena = {0};
    tri_yaml *root = parsed(&arena, "model:\n  name: cnn\n  layers: [a, b]\noptim:\n");
    static const char *const texts[][2] = {
        {"model.name", "mlp"},    {"model.hidden", "[512, 256]"}, {"optim.lr", "0.05"},
        {"new.deep.key", "a: b"}, {"data.path", "@x #y *z"},      {"data.note", ""},
        {"data.quoted", "\"q\""}, {"data.map", "{a: {b: [c]}}"},  {"data.odd", "a\nb\t\x01 "},
        {"data.dots", "..."},     {"data.dash", "- 1"},           {"data.utf", "\xc2\x85\xe2\x80\xa8\xef\xbb\xbf"},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (tri_yaml_set(&arena, root, texts[i][0], texts[i][1]) != TRI_OK)
            fail_msg("%s", tri_last_error());
    tri_yaml *model = tri_yaml_find(root, "model"), *data = tri_yaml_find(root, "data");
    assert_string_equal(tri_yaml_find(model, "name")->text, "mlp");
    assert_int_equal(tri_yaml_find(model, "name")->line, 0);
    assert_int_equal(tri_yaml_count(model), 3);
    assert_string_equal(tri_yaml_find(model, "hidden")->child->text, "512");
    assert_string_equal(tri_yaml_find(tri_yaml_find(tri_yaml_find(root, "new"), "deep"), "key")->text, "a: b");
    assert_string_equal(tri_yaml_find(data, "path")->text, "@x #y *z");
    assert_string_equal(tri_yaml_find(data, "quoted")->text, "q");
    assert_string_equal(tri_yaml_find(data, "odd")->text, "a\nb\t\x01 ");
    assert_int_equal(tri_yaml_find(data, "map")->child->kind, TRI_YAML_MAP);
    reads_back(root);
    tri_arena_fini(&arena);
}

static void set_refuses_what_it_cannot_mean(void **state)
{
    (void)state;
    tri_arena arena = {0};
    tri_yaml *root = parsed(&arena, "model: {name: cnn, layers: [a]}\n");
    static const char *const texts[][2] = {
        {"", "1"},   {"a..b", "1"},         {".a", "1"},   {"model.name.x", "1"}, {"model.layers.x", "1"},
        {"a", "[1"}, {"a", "{x: 1, x: 2}"}, {"a", "\xff"}, {"\xff.b", "1"},       {"a", "[1] 2"},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_int_equal(tri_yaml_set(&arena, root, texts[i][0], texts[i][1]), TRI_ECONFIG);
    char deep[128] = "a";
    for (int i = 1; i < 31; i++)
        strcat(deep, ".a");
    assert_int_equal(tri_yaml_set(&arena, root, deep, "[1]"), TRI_OK);
    reads_back(root);
    strcat(deep, ".b");
    assert_int_equal(tri_yaml_set(&arena, root, deep, "[1]"), TRI_ECONFIG);
    tri_arena_fini(&arena);
}

static void running_out_of_memory_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    uint64_t live = tri_memory_now().live;
    for (uint64_t n = 1; n < 12; n++) {
        tri_arena arena = {0};
        tri_yaml *root = NULL;
        static const char text[] = "a: {b: [1, 2], c: 3}\n";
        tri_memory_fail_at(n);
        tri_status status = tri_yaml_parse(&arena, text, sizeof(text) - 1, "t.yaml", &root);
        if (status == TRI_OK)
            status = tri_yaml_set(&arena, root, "x.y.z", "[1, 2]");
        tri_memory_fail_at(0);
        assert_true(status == TRI_OK || status == TRI_ENOMEM);
        tri_arena_fini(&arena);
    }
    assert_int_equal(tri_memory_now().live, live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_document_becomes_a_tree_with_lines),
        cmocka_unit_test(a_mark_of_utf_8_is_passed_over),
        cmocka_unit_test(an_empty_document_is_an_empty_map),
        cmocka_unit_test(hostile_documents_are_refused_with_a_reason),
        cmocka_unit_test(depth_nodes_and_keys_have_limits),
        cmocka_unit_test(many_keys_are_cheap_and_random_bytes_never_crash),
        cmocka_unit_test(numbers_are_checked_whole),
        cmocka_unit_test(set_makes_maps_and_replaces_and_reads_back),
        cmocka_unit_test(set_refuses_what_it_cannot_mean),
        cmocka_unit_test(running_out_of_memory_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
