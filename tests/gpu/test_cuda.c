/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda.c: the CUDA device on the fake libcuda: copies and launches in order on a lazy stream, copies beside
 * kernels with and without each event, an op by its row; and one sentence for each thing that may be wrong.
 *
 * test_cuda FAULT SENTENCE: FAULT is that of FAKE_CUDA, or "none".
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "device/cuda/cuda.h"
#include "kernel/array.h"
#include "kernel/gpu/flat.h"

#define COUNT 3000

static const char *fault, *sentence;

static tri_device card(int index)
{
    return (tri_device){.ops = &tri_device_cuda, .index = index};
}

static void open_card(tri_device *device)
{
    *device = card(0);
    if (tri_device_cuda.open(device) != TRI_OK)
        fail_msg("%s", tri_last_error());
}

static void twice(const tri_device *device, float *x, int64_t count)
{
    const tri_gpu_value value = tri_gpu_value_make(x, TRI_F32);
    tri_gpu_add(tri_gpu_queue_of(device), value, value, value, count);
}

/* A kernel, a copy and another kernel before the host waits once. */
static void work_runs_in_order(void **state)
{
    float x[COUNT], y[COUNT];
    tri_device device;
    (void)state;
    open_card(&device);
    float *a = tri_device_alloc(&device, sizeof x), *b = tri_device_alloc(&device, sizeof x);
    assert_non_null(a);
    assert_non_null(b);
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)i;
    tri_device_from_host(&device, a, x, sizeof x);
    memset(x, 0, sizeof x); /* it has been read */
    twice(&device, a, COUNT);
    tri_device_copy(&device, b, a, sizeof x);
    tri_array_add(&device, 1, b, a, b, COUNT);
    tri_device_fill(&device, a, 0, sizeof x);
    tri_device_to_host(&device, y, b, sizeof x);
    for (int i = 0; i < COUNT; i++)
        assert_true(y[i] == (float)(4 * i));
    tri_device_to_host(&device, y, a, sizeof x);
    assert_true(y[0] == 0 && y[COUNT - 1] == 0);
    tri_device_free(&device, a);
    tri_device_free(&device, b);
    tri_device_cuda.close(&device);
}

/* --- copies beside kernels --- */

enum { KERNEL_THEN_OUT, OUT_THEN_KERNEL, OUT_THEN_HOST, IN_THEN_KERNEL, EVENTS };

/* An event between two queues, or a queue and the host (TRI_QUEUE_COUNT), unless it is the one that is left out. */
static void edge(const tri_device *device, tri_device_event event, tri_device_queue from, tri_device_queue to,
                 bool left_out)
{
    if (left_out)
        return;
    tri_device_event_record(device, event, from);
    if (to == TRI_QUEUE_COUNT)
        tri_device_event_wait(device, event);
    else
        tri_device_event_order(device, event, to);
}

/* x goes in and is doubled, comes out, and is tripled: *out is what came out. Whether all is as it should be. */
static bool copies_are_right(int seed, int left_out)
{
    char text[16];
    tri_device device;
    tri_device_event event[EVENTS];
    snprintf(text, sizeof(text), "%d", seed);
    setenv("FAKE_CUDA_SEED", text, 1);
    open_card(&device);
    const size_t nbytes = COUNT * sizeof(float);
    float *x = tri_device_host_alloc(&device, nbytes), *y = tri_device_host_alloc(&device, nbytes);
    float *a = tri_device_alloc(&device, nbytes), last[COUNT];
    assert_true(x && y && a);
    for (int i = 0; i < EVENTS; i++)
        assert_int_equal(tri_device_event_create(&device, &event[i]), TRI_OK);
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i + 1);
    tri_device_copy_in(&device, a, x, nbytes);
    edge(&device, event[IN_THEN_KERNEL], TRI_QUEUE_COPIES, TRI_QUEUE_KERNELS, left_out == IN_THEN_KERNEL);
    twice(&device, a, COUNT);
    edge(&device, event[KERNEL_THEN_OUT], TRI_QUEUE_KERNELS, TRI_QUEUE_COPIES, left_out == KERNEL_THEN_OUT);
    tri_device_copy_out(&device, y, a, nbytes);
    edge(&device, event[OUT_THEN_KERNEL], TRI_QUEUE_COPIES, TRI_QUEUE_KERNELS, left_out == OUT_THEN_KERNEL);
    twice(&device, a, COUNT);
    edge(&device, event[OUT_THEN_HOST], TRI_QUEUE_COPIES, TRI_QUEUE_COUNT, left_out == OUT_THEN_HOST);
    bool right = true;
    for (int i = 0; i < COUNT; i++)
        right = right && y[i] == (float)(2 * (i + 1));
    tri_device_to_host(&device, last, a, nbytes);
    for (int i = 0; i < COUNT; i++)
        right = right && last[i] == (float)(4 * (i + 1));
    for (int i = 0; i < EVENTS; i++)
        tri_device_event_destroy(&device, &event[i]);
    tri_device_free(&device, a);
    tri_device_host_free(&device, x);
    tri_device_host_free(&device, y);
    tri_device_cuda.close(&device);
    return right;
}

#define SEEDS 24

static void copies_beside_kernels_need_their_events(void **state)
{
    (void)state;
    for (int left_out = 0; left_out <= EVENTS; left_out++) {
        int wrong = 0;
        for (int seed = 0; seed < SEEDS; seed++)
            wrong += !copies_are_right(seed, left_out);
        if (left_out < EVENTS && wrong == 0)
            fail_msg("no seed shows that event %d is left out", left_out);
        if (left_out == EVENTS)
            assert_int_equal(wrong, 0);
    }
    unsetenv("FAKE_CUDA_SEED");
}

static void memory_of_the_host_is_pinned_where_it_lies(void **state)
{
    static float x[COUNT], y[COUNT];
    tri_device device;
    tri_device_event event;
    (void)state;
    open_card(&device);
    float *a = tri_device_alloc(&device, sizeof(x));
    assert_int_equal(tri_device_event_create(&device, &event), TRI_OK);
    assert_true(tri_device_host_pin(&device, x, sizeof(x)));
    assert_false(tri_device_host_pin(&device, x + 1, sizeof(float)));
    x[COUNT - 1] = 7;
    tri_device_to_host(&device, y, a, sizeof(y));
    tri_device_copy_in(&device, a, x, sizeof(x));
    tri_device_event_record(&device, event, TRI_QUEUE_COPIES);
    tri_device_event_wait(&device, event);
    tri_device_host_unpin(&device, x);
    tri_device_to_host(&device, y, a, sizeof(y));
    assert_memory_equal(x, y, sizeof(x));
    tri_device_event_destroy(&device, &event);
    tri_device_free(&device, a);
    tri_device_cuda.close(&device);
}

static void norms_come_to_the_host(void **state)
{
    static float x[2 * TRI_NORM_BLOCK];
    double blocks[2];
    tri_device device;
    (void)state;
    open_card(&device);
    float *a = tri_device_alloc(&device, sizeof x);
    double *there = tri_device_alloc(&device, sizeof blocks);
    x[0] = 3;
    x[TRI_NORM_BLOCK + 1] = -2;
    tri_device_from_host(&device, a, x, sizeof x);
    tri_array_square_blocks(&device, 1, a, 2 * TRI_NORM_BLOCK, there);
    tri_device_to_host(&device, blocks, there, sizeof blocks);
    assert_true(blocks[0] == 9 && blocks[1] == 4);
    tri_device_free(&device, there);
    tri_device_free(&device, a);
    tri_device_cuda.close(&device);
}

/* Linear with a bias, forward, as a graph calls it. */
static void an_op_runs_by_its_row(void **state)
{
    const float x[] = {1, 2, 3, 4}, w[] = {1, 0, 0, 1, 1, 1}, b[] = {10, 20, 30};
    float y[6];
    tri_kernel kernel;
    tri_device device;
    const int32_t rows = 2;
    tri_op_desc desc = {.op = TRI_OP_LINEAR,
                        .attr = {.units = 3, .bias = true},
                        .input_count = 1,
                        .input = {tri_shape_make(2, (int64_t[]){2, 2})},
                        .max_shards = 1,
                        .threads = 1};
    (void)state;
    open_card(&device);
    assert_int_equal(tri_op_infer(&desc), TRI_OK);
    assert_int_equal(tri_kernel_plan(device.ops->kernels, &desc, &kernel), TRI_OK);
    void *memory[] = {tri_device_alloc(&device, sizeof x), tri_device_alloc(&device, sizeof w),
                      tri_device_alloc(&device, sizeof b), tri_device_alloc(&device, sizeof y)};
    tri_device_from_host(&device, memory[0], x, sizeof x);
    tri_device_from_host(&device, memory[1], w, sizeof w);
    tri_device_from_host(&device, memory[2], b, sizeof b);
    const tri_op_call call = {.device = &device,
                              .shards = 1,
                              .rows = &rows,
                              .input = {memory[0]},
                              .param = {memory[1], memory[2]},
                              .output = memory[3]};
    tri_kernel_forward(&kernel, &call);
    tri_device_to_host(&device, y, memory[3], sizeof y);
    const float want[] = {11, 22, 33, 13, 24, 37};
    assert_memory_equal(y, want, sizeof want);
    for (int i = 0; i < 4; i++)
        tri_device_free(&device, memory[i]);
    tri_kernel_release(&kernel);
    tri_device_cuda.close(&device);
}

static void cards_are_listed(void **state)
{
    tri_cuda_card cards[4];
    int count = 0, driver = 0;
    (void)state;
    assert_int_equal(tri_cuda_cards(cards, 4, &count, &driver), TRI_OK);
    assert_int_equal(count, 2);
    assert_int_equal(driver, 13000);
    assert_string_equal(cards[1].name, "Emulated card");
    assert_int_equal(cards[1].capability, 90);
    assert_int_equal(cards[1].sms, 132);
}

static void a_card_that_is_not_there_is_refused(void **state)
{
    tri_device device = card(2);
    (void)state;
    assert_int_equal(tri_device_cuda.open(&device), TRI_EUNSUPPORTED);
    assert_string_equal(tri_last_error(), "cuda:2: this machine has 2 NVIDIA cards");
}

/* The fake driver has two cards. */
static void ranks_of_a_host_have_cards_of_their_own(void **state)
{
    static const struct {
        const char *word;
        int place, index;
    } rows[] = {{"cuda", 0, 0}, {"cuda", 1, 1}, {"cuda", 2, 0}, {"cuda:0", 1, 0}, {"cuda:1", 2, 1}};
    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        tri_device *device;
        assert_int_equal(tri_device_open_of(rows[i].word, rows[i].place, &device), TRI_OK);
        assert_int_equal(device->index, rows[i].index);
        tri_device_close(device);
    }
}

/* What is wrong shows when the card is opened, when memory is asked for, or at a launch, which ends the process. */
static void a_fault_is_one_sentence(void **state)
{
    tri_device device = card(0);
    (void)state;
    if (tri_device_cuda.open(&device) != TRI_OK) {
        assert_string_equal(tri_last_error(), sentence);
        return;
    }
    float *a = tri_device_alloc(&device, 64), *b = tri_device_alloc(&device, 64);
    if (!b) {
        assert_string_equal(tri_last_error(), sentence);
        return;
    }
    if (strcmp(fault, "unpinned") == 0)
        tri_device_copy_out(&device, calloc(16, sizeof(float)), a, 64);
    twice(&device, a, 16);
    twice(&device, b, 16);
    fail_msg("want '%s', and nothing failed", sentence);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_runs_in_order),
        cmocka_unit_test(copies_beside_kernels_need_their_events),
        cmocka_unit_test(memory_of_the_host_is_pinned_where_it_lies),
        cmocka_unit_test(norms_come_to_the_host),
        cmocka_unit_test(an_op_runs_by_its_row),
        cmocka_unit_test(cards_are_listed),
        cmocka_unit_test(ranks_of_a_host_have_cards_of_their_own),
        cmocka_unit_test(a_card_that_is_not_there_is_refused),
    };
    const struct CMUnitTest faults[] = {cmocka_unit_test(a_fault_is_one_sentence)};
    fault = argc > 1 ? argv[1] : "none";
    sentence = argc > 2 ? argv[2] : "";
    tri_cuda_image = NULL; /* the fake has its own */
    return strcmp(fault, "none") == 0 ? cmocka_run_group_tests(tests, NULL, NULL)
                                      : cmocka_run_group_tests(faults, NULL, NULL);
}
