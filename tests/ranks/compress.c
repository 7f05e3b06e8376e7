/* SPDX-License-Identifier: Apache-2.0
 *
 * compress.c: sums whose elements cross the wire rounded: the same on all ranks, near the true ones, and what one sum
 * loses comes with the next.
 */
#include "parallel/compress.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/rng.h"
#include "ranks/comm_spawn.h"

/* Two matrices with something between them that is not to be touched. */
enum { ROWS = 60, COLUMNS = 37, SECOND = 2300, SECOND_COUNT = 24 * 25, COUNT = SECOND + SECOND_COUNT };
static const tri_compress_span both[] = {{0, ROWS *COLUMNS, ROWS, COLUMNS}, {SECOND, SECOND_COUNT, 24, 25}};
/* Fewer elements than ranks. */
static const tri_compress_span few[] = {{5, 3, 3, 1}};

typedef struct sum_case sum_case;
typedef struct sum_rank {
    spawn_rank *self;
    tri_group *group;
    tri_compress *sum;
    const sum_case *at;
} sum_rank;
struct sum_case {
    const char *compress;
    const char *option, *value; /* one more, or NULL */
    void (*body)(sum_rank *rank);
    int threads;
    bool forgets, undoes, few;
    double bound; /* or a number of that test's own */
    int rounds;
};

/* Of rank r, with few bits, so that true sums are exact. */
static float element(int rank, int64_t i)
{
    return (float)(((int64_t)rank * 7919 + i * 104729) % 255 - 127);
}

/* Each rank's first matrix has rank 2, and together they have rank 3; the second one likewise. */
static float low_element(int rank, int64_t i)
{
    int64_t columns = i < SECOND ? COLUMNS : 25, at = i < SECOND ? i : i - SECOND, r = at / columns, c = at % columns;
    return (float)((r % 5 - 2) * (c % 7 - 3) * (rank + 1) + (r % 3 - 1) * (c % 4) +
                   (r % 11 - 5) * (c % 2) * (rank % 2));
}

static bool is_summed(const sum_rank *rank, int64_t i)
{
    return rank->at->few ? i >= 5 && i < 8 : i < ROWS * COLUMNS || i >= SECOND;
}

static void fill(const sum_rank *rank, float *values, float (*of)(int rank, int64_t i))
{
    for (int64_t i = 0; i < COUNT; i++)
        values[i] = of(rank->self->rank, i);
}

static double true_sum(const sum_rank *rank, float (*of)(int rank, int64_t i), int64_t i)
{
    double sum = 0;
    for (int r = 0; r < rank->self->world; r++)
        sum += (double)of(r, i);
    return sum;
}

static void run_sum(sum_rank *rank, float *values)
{
    const tri_compress_ops *ops = rank->sum->ops;
    SPAWN_CHECK(rank->self, ops->send(rank->sum, values) == TRI_OK);
    SPAWN_CHECK(rank->self, ops->turn(rank->sum) == TRI_OK);
    SPAWN_CHECK(rank->self, !ops->turn_again || ops->turn_again(rank->sum) == TRI_OK);
    SPAWN_CHECK(rank->self, ops->take(rank->sum, values) == TRI_OK);
}

/* Greatest difference from the true sum; what lies between the matrices must be as it was. */
static double worst_error(const sum_rank *rank, const float *values, float (*of)(int rank, int64_t i), double scale)
{
    double worst = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        double error = fabs((double)values[i] * scale - true_sum(rank, of, i));
        if (is_summed(rank, i))
            worst = error > worst ? error : worst;
    }
    return worst;
}

static void check_equal_everywhere(const sum_rank *rank, const float *values)
{
    static float of_first[COUNT];
    spawn_barrier(rank->self);
    if (rank->self->rank == 0)
        memcpy(of_first, values, sizeof(of_first));
    spawn_barrier(rank->self);
    for (int64_t i = 0; i < COUNT; i++)
        SPAWN_CHECK(rank->self, !is_summed(rank, i) || memcmp(&values[i], &of_first[i], sizeof(float)) == 0);
    spawn_barrier(rank->self);
}

static void body_run(spawn_rank *self, void *arg)
{
    const sum_case *at = arg;
    tri_parallel_config config;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    tri_options_defaults(&tri_parallel_options, &config);
    SPAWN_CHECK(self, tri_options_set(&tri_parallel_options, &config, "compress", at->compress) == TRI_OK);
    if (at->option)
        SPAWN_CHECK(self, tri_options_set(&tri_parallel_options, &config, at->option, at->value) == TRI_OK);
    tri_compress_setup setup = {.config = &config,
                                .group = tri_comm_world(comm),
                                .name = "a sum",
                                .spans = at->few ? few : both,
                                .span_count = at->few ? 1 : 2,
                                .threads = at->threads ? at->threads : 1,
                                .forgets = at->forgets,
                                .undoes = at->undoes};
    tri_compress *sum = NULL;
    SPAWN_CHECK(self, tri_compress_find(&config)->create(&setup, &sum) == TRI_OK);
    if (sum)
        at->body(&(sum_rank){self, setup.group, sum, at});
    tri_compress_destroy(sum);
    tri_comm_leave(comm);
}

static void run_case(const sum_case *at)
{
    static const int worlds[] = {1, 2, 3, 5, 8};
    static const spawn_kind kinds[] = {SPAWN_INPROC, SPAWN_TCP, SPAWN_SIM};
    for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++)
        for (size_t w = 0; w < TRI_COUNT_OF(worlds); w++)
            if (!spawn_ranks(&(spawn_config){.kind = kinds[k], .world = worlds[w], .seed = 3}, body_run,
                             (void *)(uintptr_t)at))
                fail_msg("%s, %d ranks over %s", at->compress, worlds[w], spawn_kind_name(kinds[k]));
}

/* --- one sum --- */

static void one_sum(sum_rank *rank)
{
    float values[COUNT];
    fill(rank, values, element);
    run_sum(rank, values);
    double worst = worst_error(rank, values, element, 1);
    SPAWN_CHECK(rank->self, worst <= rank->at->bound * rank->self->world);
    for (int64_t i = 0; i < COUNT; i++)
        SPAWN_CHECK(rank->self, is_summed(rank, i) || values[i] == element(rank->self->rank, i));
    check_equal_everywhere(rank, values);
}

/* bf16: whole numbers up to 127 are exact, a sum of them has 8 bits. int8: half a scale (1) for each rank, and half of
 * that of the sum. */
static void sums_are_near_the_true_ones_and_the_same_on_all_ranks(void **state)
{
    (void)state;
    static const char *const names[] = {"bf16", "int8", "topk"};
    static const double bounds[] = {127.0 / 256, 1.01, 0};
    for (size_t i = 0; i < TRI_COUNT_OF(names); i++)
        for (int small = 0; small < 2; small++)
            run_case(&(sum_case){.compress = names[i],
                                 .option = "compress_fraction",
                                 .value = "1",
                                 .body = one_sum,
                                 .few = small != 0,
                                 .bound = bounds[i]});
}

/* --- bf16: to the nearest, ties to even --- */

static void halves(sum_rank *rank)
{
    static const struct {
        float value, rounded;
    } cases[] = {{257, 256}, {259, 260}, {258.5f, 258}, {-257, -256}, {-261, -260}, {0x1.01p0f, 0x1p0f}, {0, 0}};
    float values[COUNT] = {0};
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++)
        values[i] = rank->self->rank == 0 ? cases[i].value : 0;
    run_sum(rank, values);
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++)
        SPAWN_CHECK(rank->self, values[i] == cases[i].rounded);
}

static void bf16_rounds_to_the_nearest_and_ties_to_even(void **state)
{
    (void)state;
    run_case(&(sum_case){.compress = "bf16", .body = halves});
}

/* --- what is lost comes later --- */

/* The mean over many sums of the same values. */
static double mean_error(sum_rank *rank, int rounds, float (*of)(int rank, int64_t i))
{
    float total[COUNT] = {0}, values[COUNT];
    for (int round = 0; round < rounds; round++) {
        fill(rank, values, of);
        run_sum(rank, values);
        for (int64_t i = 0; i < COUNT; i++)
            total[i] += values[i];
    }
    check_equal_everywhere(rank, values);
    return worst_error(rank, total, of, 1.0 / rounds);
}

static void feedback(sum_rank *rank)
{
    double once = mean_error(rank, 1, element), later = mean_error(rank, rank->at->rounds, element);
    SPAWN_CHECK(rank->self, once > 0);
    SPAWN_CHECK(rank->self, later < rank->at->bound * once);
}

static void what_one_sum_loses_comes_with_the_next(void **state)
{
    (void)state;
    run_case(&(sum_case){.compress = "int8", .body = feedback, .bound = 0.02, .rounds = 150});
    run_case(&(sum_case){.compress = "topk",
                         .option = "compress_fraction",
                         .value = "0.1",
                         .body = feedback,
                         .bound = 0.1,
                         .rounds = 150});
    run_case(&(sum_case){.compress = "powersgd",
                         .option = "compress_residual",
                         .value = "none",
                         .body = feedback,
                         .bound = 0.2,
                         .rounds = 300});
    run_case(&(sum_case){.compress = "powersgd", .body = feedback, .bound = 0.05, .rounds = 300});
}

static void twice(sum_rank *rank)
{
    float first[COUNT], second[COUNT];
    fill(rank, first, element);
    fill(rank, second, element);
    run_sum(rank, first);
    run_sum(rank, second);
    SPAWN_CHECK(rank->self, (memcmp(first, second, sizeof(first)) == 0) == rank->at->forgets);
}

static void nothing_is_kept_where_it_forgets(void **state)
{
    (void)state;
    static const char *const names[] = {"int8", "topk"};
    for (size_t i = 0; i < TRI_COUNT_OF(names); i++)
        for (int forgets = 0; forgets < 2; forgets++)
            run_case(&(sum_case){.compress = names[i], .body = twice, .forgets = forgets != 0});
}

static void not_a_number(sum_rank *rank)
{
    float values[COUNT];
    fill(rank, values, element);
    values[3] = rank->self->rank == 0 ? NAN : 1;
    values[SECOND + 7] = rank->self->rank == rank->self->world - 1 ? -INFINITY : 1;
    run_sum(rank, values);
    SPAWN_CHECK(rank->self, isnan(values[3]));
    SPAWN_CHECK(rank->self, !isfinite(values[SECOND + 7]));
}

static void what_is_no_number_stays_none(void **state)
{
    (void)state;
    static const char *const names[] = {"bf16", "int8", "topk"};
    for (size_t i = 0; i < TRI_COUNT_OF(names); i++)
        run_case(&(sum_case){.compress = names[i], .body = not_a_number});
}

/* --- sums that count for nothing --- */

/* Rising sums; where `bad` is not 0, with sums in between that have it at one rank, and are undone. */
static void sums_around(sum_rank *rank, float bad, float *values)
{
    for (int round = 0; round < 6; round++) {
        fill(rank, values, element);
        for (int64_t i = 0; i < COUNT; i++)
            values[i] *= (float)(1 + round);
        run_sum(rank, values);
        for (int again = 0; bad != 0 && round % 2 == 0 && again < 2; again++) {
            float spoilt[COUNT];
            fill(rank, spoilt, element);
            spoilt[3] = spoilt[SECOND + 7] = rank->self->rank == rank->self->world - 1 ? bad : 1;
            run_sum(rank, spoilt);
            rank->sum->ops->undo(rank->sum);
        }
    }
}

static void undone(sum_rank *rank)
{
    static float without[8][COUNT];
    float values[COUNT], bad = (float)rank->at->bound;
    sums_around(rank, bad, values);
    if (bad == 0)
        memcpy(without[rank->self->rank], values, sizeof(values));
    SPAWN_CHECK(rank->self, memcmp(values, without[rank->self->rank], sizeof(values)) == 0);
}

static void a_sum_that_is_undone_leaves_nothing_behind(void **state)
{
    (void)state;
    static const char *const ways[][2] = {
        {"bf16", "none"}, {"int8", "none"}, {"topk", "none"}, {"powersgd", "none"}, {"powersgd", "two_bits"}};
    static const double bad[] = {0, NAN, INFINITY, -1e38, 5}; /* 0: none, what the others are compared with */
    for (size_t i = 0; i < TRI_COUNT_OF(ways); i++)
        for (int world = 2; world <= 5; world++)
            for (size_t b = 0; b < TRI_COUNT_OF(bad); b++) {
                sum_case at = {.compress = ways[i][0],
                               .option = "compress_residual",
                               .value = ways[i][1],
                               .body = undone,
                               .undoes = true,
                               .bound = bad[b]};
                if (!spawn_ranks(&(spawn_config){.kind = SPAWN_INPROC, .world = world}, body_run, &at))
                    fail_msg("%s, rest %s, %d ranks, %g", ways[i][0], ways[i][1], world, bad[b]);
            }
}

/* --- powersgd --- */

static void low_rank(sum_rank *rank)
{
    float values[COUNT];
    for (int round = 0; round < 3; round++) {
        fill(rank, values, low_element);
        run_sum(rank, values);
        SPAWN_CHECK(rank->self, worst_error(rank, values, low_element, 1) < 2 * rank->self->world);
        check_equal_everywhere(rank, values);
    }
}

static void zeros_first(sum_rank *rank)
{
    float values[COUNT] = {0};
    run_sum(rank, values);
    for (int64_t i = 0; i < COUNT; i++)
        SPAWN_CHECK(rank->self, values[i] == 0);
    low_rank(rank);
}

/* As exactly as bf16 says the factors: the elements go up to a hundred or two for each rank. */
static void powersgd_gives_sums_of_its_rank(void **state)
{
    (void)state;
    static const char *const rests[] = {"none", "two_bits"};
    for (size_t i = 0; i < TRI_COUNT_OF(rests); i++) {
        sum_case at = {.compress = "powersgd", .option = "compress_residual", .value = rests[i], .body = low_rank};
        run_case(&at);
        at.body = zeros_first;
        run_case(&at);
    }
}

/* No product of thin matrices is near. */
static float noise(int rank, int64_t i)
{
    return tri_rng_normal((tri_rng){.seed = 1, .stream = tri_rng_stream("noise", (uint64_t)rank, 0)}, (uint64_t)i);
}

static void expect_square_error(sum_rank *rank)
{
    float values[COUNT];
    double error = 0, square = 0;
    fill(rank, values, noise);
    run_sum(rank, values);
    for (int64_t i = 0; i < COUNT; i++) {
        double sum = true_sum(rank, noise, i), difference = (double)values[i] - sum;
        error += is_summed(rank, i) ? difference * difference : 0;
        square += is_summed(rank, i) ? sum * sum : 0;
    }
    bool none = strcmp(rank->at->value, "none") == 0;
    SPAWN_CHECK(rank->self, none ? error > 0.6 * square : error < 0.3 * square);
}

static void what_thin_matrices_do_not_say_crosses_in_two_bits(void **state)
{
    (void)state;
    sum_case at = {.compress = "powersgd", .option = "compress_residual", .value = "none", .body = expect_square_error};
    run_case(&at);
    at.value = "two_bits";
    run_case(&at);
}

static void threads(sum_rank *rank)
{
    static float of_one[8][COUNT];
    float *values = of_one[rank->self->rank], found[COUNT];
    fill(rank, rank->at->threads == 1 ? values : found, element);
    run_sum(rank, rank->at->threads == 1 ? values : found);
    SPAWN_CHECK(rank->self, rank->at->threads == 1 || memcmp(values, found, sizeof(found)) == 0);
}

static void threads_change_nothing(void **state)
{
    (void)state;
    for (int world = 1; world <= 3; world++)
        for (int count = 1; count <= 3; count++) {
            sum_case at = {.compress = "powersgd", .threads = count, .body = threads};
            assert_true(spawn_ranks(&(spawn_config){.kind = SPAWN_INPROC, .world = world}, body_run, &at));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_near_the_true_ones_and_the_same_on_all_ranks),
        cmocka_unit_test(bf16_rounds_to_the_nearest_and_ties_to_even),
        cmocka_unit_test(what_one_sum_loses_comes_with_the_next),
        cmocka_unit_test(nothing_is_kept_where_it_forgets),
        cmocka_unit_test(what_is_no_number_stays_none),
        cmocka_unit_test(a_sum_that_is_undone_leaves_nothing_behind),
        cmocka_unit_test(powersgd_gives_sums_of_its_rank),
        cmocka_unit_test(what_thin_matrices_do_not_say_crosses_in_two_bits),
        cmocka_unit_test(threads_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
