/* SPDX-License-Identifier: Apache-2.0
 *
 * test_events.c: counters and the ring; with several writers every event that is read is whole.
 */
#include "base/events.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"

#define RING 65536

static void write_number(int32_t rank, uint32_t number)
{
    static const char *const whats[] = {"forward", "backward", "all_reduce"};
    tri_event event = {.start_ns = (int64_t)number * 3 + rank,
                       .duration_ns = (int64_t)number * 5 - rank,
                       .what = whats[number % 3],
                       .rank = rank,
                       .sequence = number,
                       .nbytes = (uint64_t)number << 32 | (uint32_t)rank};
    tri_event_write(&event);
}

static void assert_whole(const tri_event *event)
{
    static const char *const whats[] = {"forward", "backward", "all_reduce"};
    assert_int_equal(event->start_ns, (int64_t)event->sequence * 3 + event->rank);
    assert_int_equal(event->duration_ns, (int64_t)event->sequence * 5 - event->rank);
    assert_int_equal(event->nbytes, (uint64_t)event->sequence << 32 | (uint32_t)event->rank);
    assert_string_equal(event->what, whats[event->sequence % 3]);
}

static void counters_add_up(void **state)
{
    (void)state;
    uint64_t before = tri_counter_now(TRI_COUNT_STEPS);
    tri_counter_add(TRI_COUNT_STEPS, 2);
    tri_counter_add(TRI_COUNT_STEPS, 40);
    tri_counter_add(TRI_COUNT_SENT_NBYTES, UINT64_C(1) << 40);
    assert_int_equal(tri_counter_now(TRI_COUNT_STEPS) - before, 42);
    assert_int_equal(tri_counter_now(TRI_COUNT_SENT_NBYTES), UINT64_C(1) << 40);
    assert_string_equal(tri_counter_name(TRI_COUNT_STEPS), "steps_total");
    assert_string_equal(tri_counter_name(TRI_COUNT_READ_NBYTES), "data_read_bytes_total");
}

static void events_are_read_oldest_first(void **state)
{
    (void)state;
    tri_event out[8];
    assert_int_equal(tri_event_read(out, 8), 0); /* the first test that writes events */
    for (uint32_t i = 0; i < 5; i++)
        write_number(-1, i);
    assert_int_equal(tri_event_read(out, 8), 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(out[i].sequence, i);
        assert_int_equal(out[i].rank, -1);
        assert_whole(&out[i]);
    }
    assert_int_equal(tri_event_read(out, 2), 2); /* the newest two */
    assert_int_equal(out[0].sequence, 3);
    assert_int_equal(tri_event_read(NULL, 0), 0);
}

static void the_ring_keeps_the_newest(void **state)
{
    (void)state;
    tri_event *out = tri_alloc_zero(RING + 10, sizeof(*out));
    assert_non_null(out);
    for (uint32_t i = 0; i < RING + 1000; i++)
        write_number(2, i);
    assert_int_equal(tri_event_read(out, RING + 10), RING);
    for (uint32_t i = 0; i < RING; i++) {
        assert_int_equal(out[i].sequence, 1000 + i);
        assert_whole(&out[i]);
    }
    tri_free(out);
}

enum { WRITERS = 3, WRITES = 60000 };
static atomic_int writers_left;

static void *writes_many(void *arg)
{
    int32_t rank = *(const int32_t *)arg;
    for (uint32_t i = 0; i < WRITES; i++) {
        write_number(rank, i);
        tri_counter_add(TRI_COUNT_COLLECTIVES, 1);
    }
    atomic_fetch_sub(&writers_left, 1);
    return NULL;
}

static void every_event_read_while_others_write_is_whole(void **state)
{
    (void)state;
    static const int32_t ranks[WRITERS] = {100, 101, 102};
    tri_event *out = tri_alloc_zero(RING, sizeof(*out));
    assert_non_null(out);
    uint64_t before = tri_counter_now(TRI_COUNT_COLLECTIVES);
    pthread_t threads[WRITERS];
    atomic_store(&writers_left, WRITERS);
    for (size_t i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, writes_many, (void *)(uintptr_t)&ranks[i]), 0);
    do {
        uint64_t count = tri_event_read(out, RING);
        int64_t last[WRITERS] = {-1, -1, -1}; /* events of one writer come in its order */
        for (uint64_t i = 0; i < count; i++) {
            assert_whole(&out[i]);
            if (out[i].rank < 100)
                continue;
            int64_t *latest = &last[out[i].rank - 100];
            assert_true((int64_t)out[i].sequence > *latest);
            *latest = out[i].sequence;
        }
    } while (atomic_load(&writers_left) > 0);
    for (size_t i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(tri_counter_now(TRI_COUNT_COLLECTIVES) - before, WRITERS * WRITES);
    assert_true(tri_event_read(out, RING) > RING * 9 / 10); /* dropped ones are rare */
    tri_free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_add_up),
        cmocka_unit_test(events_are_read_oldest_first),
        cmocka_unit_test(the_ring_keeps_the_newest),
        cmocka_unit_test(every_event_read_while_others_write_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
