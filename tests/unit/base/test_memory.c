/* SPDX-License-Identifier: Apache-2.0
 *
 * test_memory.c: blocks of all kinds, what the counters say about them, and failures on purpose.
 */
#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/status.h"

#define MIB ((size_t)1 << 20)

static bool is_zero(const void *memory, size_t nbytes)
{
    const unsigned char *bytes = memory;
    return nbytes == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, nbytes - 1) == 0);
}

static void counters_follow_each_block(void **state)
{
    (void)state;
    tri_memory_counts before = tri_memory_now();
    void *a = tri_alloc(100), *b = tri_alloc_zero(10, 5), *c = tri_alloc_bulk(3 * MIB);
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    tri_memory_counts now = tri_memory_now();
    assert_int_equal(now.calls - before.calls, 3);
    assert_int_equal(now.live - before.live, 3);
    assert_int_equal(now.live_nbytes - before.live_nbytes, 150 + 3 * MIB);
    assert_true(now.peak_nbytes >= now.live_nbytes);
    a = tri_realloc(a, 1000);
    assert_int_equal(tri_memory_now().live_nbytes - now.live_nbytes, 900);
    tri_free(a);
    tri_free(b);
    tri_free(c);
    tri_free(NULL);
    now = tri_memory_now();
    assert_int_equal(now.live, before.live);
    assert_int_equal(now.live_nbytes, before.live_nbytes);
    assert_true(now.peak_nbytes >= before.live_nbytes + 3 * MIB + 1050);
}

static void blocks_hold_what_is_written_over_their_whole_length(void **state)
{
    (void)state;
    static const size_t lengths[] = {0,    1,    15,   16,     17,          63,      64,          65,
                                     4095, 4096, 4097, 100000, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 5 * MIB + 4097};
    for (size_t i = 0; i < TRI_COUNT_OF(lengths); i++) {
        char *plain = tri_alloc(lengths[i]), *bulk = tri_alloc_bulk(lengths[i]);
        assert_non_null(plain);
        assert_non_null(bulk);
        assert_int_equal((uintptr_t)plain % 16, 0);
        assert_int_equal((uintptr_t)bulk % 64, 0);
        assert_true(is_zero(bulk, lengths[i]));
        memset(plain, 0x5a, lengths[i]);
        memset(bulk, 0xa5, lengths[i]);
        tri_free(plain);
        tri_free(bulk);
    }
}

static void bulk_is_zero_also_when_memory_is_used_again(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        char *bulk = tri_alloc_bulk(10000), *zero = tri_alloc_zero(100, 100);
        assert_true(is_zero(bulk, 10000));
        assert_true(is_zero(zero, 10000));
        memset(bulk, 0xff, 10000);
        memset(zero, 0xff, 10000);
        tri_free(bulk);
        tri_free(zero);
    }
}

static void realloc_keeps_the_contents_of_every_kind(void **state)
{
    (void)state;
    char *text = tri_realloc(NULL, 6);
    memcpy(text, "hello", 6);
    text = tri_realloc(text, 1 << 20);
    assert_string_equal(text, "hello");
    text = tri_realloc(text, 6);
    assert_string_equal(text, "hello");
    tri_free(text);
    char *bulk = tri_alloc_bulk(100);
    memcpy(bulk, "hello", 6);
    bulk = tri_realloc(bulk, 4 * MIB);
    assert_string_equal(bulk, "hello");
    assert_int_equal((uintptr_t)bulk % 64, 0);
    assert_true(is_zero(bulk + 6, 4 * MIB - 6));
    bulk = tri_realloc(bulk, 3);
    assert_memory_equal(bulk, "hel", 3);
    tri_free(bulk);
}

static void fill(char *bytes, size_t from, size_t to)
{
    for (size_t i = from; i < to; i += 4096)
        memcpy(bytes + i, &i, sizeof i);
}

static void is_filled(const char *bytes, size_t to)
{
    for (size_t i = 0; i < to; i += 4096)
        assert_memory_equal(bytes + i, &i, sizeof i);
}

/* Also a second time: a block that has moved may be several mappings. */
static int pages_there(void *memory, size_t nbytes)
{
    unsigned char there[8 * MIB / 4096];
    int count = 0;
    assert_int_equal(mincore(memory, nbytes, there), 0);
    for (size_t i = 0; i < nbytes / 4096; i++)
        count += there[i] & 1;
    return count;
}

static void touched_pages_are_there_with_what_was_in_them(void **state)
{
    (void)state;
    unsigned char *bulk = tri_alloc_bulk(8 * MIB), *own = (unsigned char *)((uintptr_t)bulk + 4 * MIB);
    memset(bulk, 7, 3 * MIB);
    assert_int_equal(pages_there(own, 4 * MIB), 0);
    tri_memory_touch(own + 5, 4 * MIB - 5);
    bool old = madvise(own, 4096, 23) != 0 && errno == EINVAL; /* Linux before 5.14 */
    assert_int_equal(pages_there(own, 4 * MIB), old ? 0 : 1024);
    assert_true(bulk[0] == 7 && bulk[3 * MIB - 1] == 7 && is_zero(bulk + 3 * MIB, 5 * MIB));
    tri_memory_touch(NULL, 100);
    tri_free(bulk);
}

static void bulk_grows_and_shrinks_without_a_second_copy(void **state)
{
    (void)state;
    tri_memory_counts before = tri_memory_now();
    const size_t sizes[] = {5 * MIB + 777, 9 * MIB, 14 * MIB + 1, 3 * MIB, 3 * MIB + 5000, 16 * MIB, 2 * MIB};
    char *bulk = tri_alloc_bulk(4 * MIB);
    size_t had = 4 * MIB;
    fill(bulk, 0, had);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        tri_memory_limit_set(before.live_nbytes + (sizes[i] > had ? sizes[i] : had)); /* no room for both */
        bulk = tri_realloc(bulk, sizes[i]);
        tri_memory_limit_set(0);
        assert_non_null(bulk);
        assert_int_equal((uintptr_t)bulk % (2 * MIB), 0);
        assert_int_equal(tri_memory_now().live_nbytes, before.live_nbytes + sizes[i]);
        is_filled(bulk, had < sizes[i] ? had : sizes[i]);
        if (had < sizes[i])
            fill(bulk, (had + 4095) / 4096 * 4096, sizes[i] - sizeof(size_t));
        had = sizes[i] / 4096 * 4096;
    }
    tri_memory_limit_set(before.live_nbytes + 3 * MIB);
    assert_null(tri_realloc(bulk, 4 * MIB));
    tri_memory_limit_set(0);
    is_filled(bulk, had);
    tri_free(bulk);
    assert_int_equal(tri_memory_now().live, before.live);
    assert_int_equal(tri_memory_now().live_nbytes, before.live_nbytes);
}

static void impossible_wishes_fail_with_a_message(void **state)
{
    (void)state;
    tri_memory_counts before = tri_memory_now();
    assert_null(tri_alloc(SIZE_MAX));
    assert_string_equal(tri_last_error(), "memory: want 18446744073709551615 bytes, got none");
    assert_null(tri_alloc_bulk(SIZE_MAX - 100));
    tri_fail_copy(TRI_OK, "");
    assert_null(tri_alloc_zero(SIZE_MAX / 2, 3));
    assert_non_null(strstr(tri_last_error(), "items of 3 bytes"));
    char *text = tri_strdup("kept");
    assert_null(tri_realloc(text, SIZE_MAX));
    assert_string_equal(text, "kept");
    tri_free(text);
    assert_int_equal(tri_memory_now().live_nbytes, before.live_nbytes);
    assert_int_equal(tri_memory_now().calls, before.calls + 1);
}

static void the_nth_allocation_fails_and_only_it(void **state)
{
    (void)state;
    tri_memory_fail_at(3);
    void *blocks[5];
    for (int i = 0; i < 5; i++)
        blocks[i] = i % 2 ? tri_alloc_bulk(10) : tri_alloc_zero(2, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(blocks[i] == NULL, i == 2);
        tri_free(blocks[i]);
    }
    tri_memory_fail_at(1);
    tri_memory_fail_at(0);
    void *block = tri_alloc(1);
    assert_non_null(block);
    tri_memory_fail_at(1);
    assert_null(tri_realloc(block, 2));
    tri_free(block);
}

static void beyond_the_limit_allocations_fail(void **state)
{
    uint64_t live_nbytes = tri_memory_now().live_nbytes;

    (void)state;
    tri_memory_limit_set(live_nbytes + 1000);
    void *first = tri_alloc(600);
    assert_non_null(first);
    assert_null(tri_alloc(401));
    assert_null(tri_alloc_zero(1, 401));
    assert_null(tri_alloc_bulk(401));
    void *second = tri_alloc(400);
    assert_non_null(second);
    tri_free(first);
    tri_memory_limit_set(0);
    first = tri_alloc(2000);
    assert_non_null(first);
    tri_free(first);
    tri_free(second);
}

static void texts_are_copied(void **state)
{
    (void)state;
    char *a = tri_strdup("abc"), *b = tri_strndup("abcdef", 2), *c = tri_strndup("ab", 99),
         *d = tri_format("%d-%s", 7, "x"), *e = tri_format("%s", "");
    assert_string_equal(a, "abc");
    assert_string_equal(b, "ab");
    assert_string_equal(c, "ab");
    assert_string_equal(d, "7-x");
    assert_string_equal(e, "");
    tri_free(a);
    tri_free(b);
    tri_free(c);
    tri_free(d);
    tri_free(e);
}

static void *allocates_much(void *arg)
{
    (void)arg;
    for (size_t i = 0; i < 2000; i++) {
        void *a = tri_alloc(i), *b = tri_alloc_bulk(i);
        a = tri_realloc(a, 2 * i);
        tri_free(a);
        tri_free(b);
    }
    return NULL;
}

static void counters_are_exact_with_threads(void **state)
{
    (void)state;
    tri_memory_counts before = tri_memory_now();
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocates_much, NULL), 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    tri_memory_counts now = tri_memory_now();
    assert_int_equal(now.calls - before.calls, 4 * 2000 * 3);
    assert_int_equal(now.live, before.live);
    assert_int_equal(now.live_nbytes, before.live_nbytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_follow_each_block),
        cmocka_unit_test(blocks_hold_what_is_written_over_their_whole_length),
        cmocka_unit_test(bulk_is_zero_also_when_memory_is_used_again),
        cmocka_unit_test(realloc_keeps_the_contents_of_every_kind),
        cmocka_unit_test(touched_pages_are_there_with_what_was_in_them),
        cmocka_unit_test(bulk_grows_and_shrinks_without_a_second_copy),
        cmocka_unit_test(impossible_wishes_fail_with_a_message),
        cmocka_unit_test(the_nth_allocation_fails_and_only_it),
        cmocka_unit_test(beyond_the_limit_allocations_fail),
        cmocka_unit_test(texts_are_copied),
        cmocka_unit_test(counters_are_exact_with_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
