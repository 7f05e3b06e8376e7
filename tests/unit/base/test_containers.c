/* SPDX-License-Identifier: Apache-2.0
 *
 * test_containers.c: string, vector and map, the map against a plain table of what it should hold.
 */
#include "base/containers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

static void an_empty_string_has_a_text(void **state)
{
    (void)state;
    tri_string string = {0};
    assert_string_equal(tri_string_text(&string), "");
    tri_string_clear(&string);
    char *text = tri_string_detach(&string);
    assert_string_equal(text, "");
    tri_free(text);
    tri_string_fini(&string);
}

static void strings_grow_by_texts_bytes_and_formats(void **state)
{
    (void)state;
    tri_string string = {0};
    assert_int_equal(tri_string_append(&string, "ab"), TRI_OK);
    assert_int_equal(tri_string_append_bytes(&string, "c\0d", 3), TRI_OK);
    assert_int_equal(tri_string_append_bytes(&string, NULL, 0), TRI_OK);
    assert_int_equal(tri_string_appendf(&string, "%05d|", 42), TRI_OK);
    assert_int_equal(string.nbytes, 11);
    assert_memory_equal(string.text, "abc\0d00042|", 12);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(tri_string_appendf(&string, "%d,", i), TRI_OK);
    assert_int_equal(string.nbytes, 11 + 10 * 2 + 90 * 3 + 900 * 4);
    assert_int_equal(strlen(string.text + 5), string.nbytes - 5);
    tri_string_clear(&string);
    assert_string_equal(tri_string_text(&string), "");
    tri_string_append(&string, "x");
    char *text = tri_string_detach(&string);
    assert_string_equal(text, "x");
    assert_null(string.text);
    tri_free(text);
}

static void a_failed_append_leaves_the_string_as_it_was(void **state)
{
    (void)state;
    tri_string string = {0};
    tri_string_append(&string, "kept");
    tri_memory_fail_at(1);
    assert_int_equal(tri_string_appendf(&string, "%0500d", 1), TRI_ENOMEM);
    assert_string_equal(tri_string_text(&string), "kept");
    assert_int_equal(tri_string_append_bytes(&string, "", SIZE_MAX), TRI_ENOMEM);
    assert_int_equal(tri_string_append_bytes(&string, "", SIZE_MAX / 2), TRI_ENOMEM);
    assert_string_equal(tri_string_text(&string), "kept");
    assert_int_equal(tri_string_reserve(&string, 500), TRI_OK);
    assert_string_equal(tri_string_text(&string), "kept");
    tri_memory_fail_at(1); /* the room is there */
    assert_int_equal(tri_string_appendf(&string, "%0500d", 1), TRI_OK);
    tri_memory_fail_at(0);
    tri_string_fini(&string);
}

static void assert_real(double value, const char *want)
{
    tri_string string = {0};
    assert_int_equal(tri_string_append_real(&string, value), TRI_OK);
    if (want)
        assert_string_equal(tri_string_text(&string), want);
    if (isfinite(value)) {
        double back = strtod(tri_string_text(&string), NULL);
        assert_memory_equal(&back, &value, sizeof(value));
    }
    tri_string_fini(&string);
}

static void numbers_are_short_and_read_back(void **state)
{
    (void)state;
    assert_real(0.25, "0.25");
    assert_real(0.1, "0.1");
    assert_real(1e-5, "1e-05");
    assert_real(3, "3");
    assert_real(1e9, "1e+09");
    assert_real(1234567890123.5, "1234567890123.5");
    assert_real(-0.0, "-0");
    assert_real(1.0 / 3.0, "0.3333333333333333");
    assert_real(0.1F, "0.10000000149011612");
    assert_real(5e-324, NULL);
    assert_real(1.7976931348623157e308, "1.7976931348623157e+308");
    assert_real((double)NAN, "nan");
    assert_real(-(double)INFINITY, "-inf");
    uint64_t bits = 88172645463325252;
    for (int i = 0; i < 2000; i++) {
        bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
        double value;
        memcpy(&value, &bits, sizeof(value));
        if (isfinite(value))
            assert_real(value, NULL);
    }
}

static void vectors_keep_items_in_order(void **state)
{
    (void)state;
    tri_vector vector = {.each = sizeof(int)};
    for (int i = 0; i < 1000; i++)
        assert_int_equal(*(int *)tri_vector_push(&vector, &i), i);
    assert_int_equal(*(int *)tri_vector_push(&vector, NULL), 0);
    assert_int_equal(vector.count, 1001);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(*(int *)tri_vector_at(&vector, (size_t)i), i);
    tri_vector_fini(&vector);
    assert_int_equal(vector.count, 0);
    assert_int_equal(vector.each, sizeof(int));
    tri_vector_fini(&vector);
}

static void a_vector_may_push_its_own_items(void **state)
{
    (void)state;
    tri_vector vector = {.each = sizeof(long)};
    long first = 4711;
    tri_vector_push(&vector, &first);
    for (int i = 0; i < 200; i++)
        tri_vector_push(&vector, tri_vector_at(&vector, vector.count - 1));
    assert_int_equal(*(long *)tri_vector_at(&vector, 200), 4711);
    tri_vector_fini(&vector);
}

static void a_failed_push_leaves_the_vector_as_it_was(void **state)
{
    (void)state;
    tri_vector vector = {.each = 4};
    for (int i = 0; i < 8; i++)
        tri_vector_push(&vector, &i);
    tri_memory_fail_at(1);
    assert_null(tri_vector_push(&vector, NULL));
    assert_int_equal(vector.count, 8);
    assert_int_equal(*(int *)tri_vector_at(&vector, 7), 7);
    assert_non_null(tri_vector_push(&vector, NULL));
    tri_vector_fini(&vector);
    tri_vector huge = {.each = SIZE_MAX / 4};
    assert_null(tri_vector_push(&huge, NULL));
    tri_vector_fini(&huge);
}

static void an_empty_map_finds_and_removes_nothing(void **state)
{
    (void)state;
    tri_map map = {0};
    int64_t value = 5;
    assert_false(tri_map_find(&map, "x", &value));
    assert_int_equal(value, 5);
    assert_false(tri_map_remove(&map, "x"));
    tri_map_fini(&map);
}

static void maps_hold_what_was_set_through_removals(void **state)
{
    (void)state;
    enum { KEYS = 700 };
    tri_memory_counts before = tri_memory_now();
    tri_map map = {0};
    int64_t want[KEYS]; /* -1: absent */
    memset(want, 0xff, sizeof(want));
    size_t count = 0;
    uint32_t random = 12345;
    for (int step = 0; step < 30000; step++) {
        random = random * 1664525 + 1013904223;
        size_t index = (random >> 8) % KEYS;
        char key[24];
        snprintf(key, sizeof(key), "layer.%zu.weight", index);
        if ((random >> 28) % 2) {
            assert_int_equal(tri_map_set(&map, key, step), TRI_OK);
            count += want[index] < 0;
            want[index] = step;
        } else {
            assert_int_equal(tri_map_remove(&map, key), want[index] >= 0);
            count -= want[index] >= 0;
            want[index] = -1;
        }
        assert_int_equal(map.count, count);
        if (step % 1000 != 0)
            continue;
        for (size_t i = 0; i < KEYS; i++) {
            int64_t value = -1;
            snprintf(key, sizeof(key), "layer.%zu.weight", i);
            assert_int_equal(tri_map_find(&map, key, &value), want[i] >= 0);
            assert_int_equal(value, want[i]);
        }
    }
    tri_map_fini(&map);
    assert_int_equal(tri_memory_now().live, before.live);
}

static void a_failed_set_leaves_the_map_as_it_was(void **state)
{
    (void)state;
    tri_map map = {0};
    for (uint64_t n = 1; n <= 2; n++) { /* the table, then the key */
        tri_memory_fail_at(n);
        assert_int_equal(tri_map_set(&map, "a", 1), TRI_ENOMEM);
        assert_int_equal(map.count, 0);
        int64_t value;
        assert_false(tri_map_find(&map, "a", &value));
        tri_memory_fail_at(0);
    }
    assert_int_equal(tri_map_set(&map, "a", 1), TRI_OK);
    assert_int_equal(tri_map_set(&map, "", 2), TRI_OK);
    int64_t value = 0;
    assert_true(tri_map_find(&map, "", &value));
    assert_int_equal(value, 2);
    tri_map_fini(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_string_has_a_text),
        cmocka_unit_test(strings_grow_by_texts_bytes_and_formats),
        cmocka_unit_test(a_failed_append_leaves_the_string_as_it_was),
        cmocka_unit_test(numbers_are_short_and_read_back),
        cmocka_unit_test(vectors_keep_items_in_order),
        cmocka_unit_test(a_vector_may_push_its_own_items),
        cmocka_unit_test(a_failed_push_leaves_the_vector_as_it_was),
        cmocka_unit_test(an_empty_map_finds_and_removes_nothing),
        cmocka_unit_test(maps_hold_what_was_set_through_removals),
        cmocka_unit_test(a_failed_set_leaves_the_map_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
