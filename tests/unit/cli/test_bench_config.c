/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bench_config.c: the lists of `trireme bench`: what they mean, and what each mistake says.
 */
#include "cli/bench/bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/command.h"

const tri_command tri_commands[] = {{NULL, NULL, NULL, NULL}}; /* flags.c wants a table; nothing is run here */

static bench_config config;

static void sizes_are(const char *list, int count, const int64_t *wanted)
{
    bench_flags flags = {.sizes = list};
    assert_int_equal(bench_config_read(&flags, "all_reduce", &config), TRI_OK);
    assert_int_equal(config.size_count, count);
    for (int i = 0; i < count; i++)
        assert_int_equal(config.sizes[i], wanted[i]);
}

static void ranges_of_sizes_double_or_grow_by_their_factor(void **state)
{
    (void)state;
    sizes_are("4,1k,2M", 3, (int64_t[]){4, 1024, 2 << 20});
    sizes_are("1k-8k", 4, (int64_t[]){1024, 2048, 4096, 8192});
    sizes_are("1k-9k", 4, (int64_t[]){1024, 2048, 4096, 8192});
    sizes_are("1k-64k:x4,7", 5, (int64_t[]){1024, 4096, 16384, 65536, 7});
    sizes_are("100-200:x1.5", 2, (int64_t[]){100, 150});
    sizes_are("8-8", 1, (int64_t[]){8});
}

static void fails_with(bench_flags flags, const char *ops, const char *text)
{
    assert_int_equal(bench_config_read(&flags, ops, &config), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), text));
}

static void a_list_that_is_none_is_named(void **state)
{
    (void)state;
    const char *const wrong[] = {"",         "x",    "4k:x2", "8-4",         "0-8", "1k-8k:x1", "1k-8k:",   "-4",
                                 "1k-64M:2", "1e12", "4 8",   "1-1e9:x1.01", "nan", "1k-nan",   "1k-8k:xx", "1k8k"};
    for (size_t i = 0; i < TRI_COUNT_OF(wrong); i++)
        fails_with((bench_flags){.sizes = wrong[i]}, "all_reduce", "--sizes: want");
    fails_with((bench_flags){.dtype = "f32,f31"}, "all_reduce", "got 'f32,f31'");
    fails_with((bench_flags){.dtype = "f32,f32,f32,f32,f32,f32,f32,f32,f32"}, "all_reduce", "--dtype: want");
    fails_with((bench_flags){.reduce = "sum,mean"}, "all_reduce", "got 'sum,mean'");
    fails_with((bench_flags){0}, "all_reduce,start", "'start' is measured by itself");
    fails_with((bench_flags){.sizes = "0,8,7", .dtype = "f32,f64"}, "all_reduce", "7 bytes hold no element of f64");
}

static void lists_of_types_and_reductions_keep_their_order(void **state)
{
    (void)state;
    bench_flags flags = {.dtype = "bf16,f32", .reduce = "max,sum"};
    assert_int_equal(bench_config_read(&flags, "barrier,all_gather", &config), TRI_OK);
    assert_int_equal(config.dtype_count, 2);
    assert_int_equal(config.dtypes[0], TRI_BF16);
    assert_int_equal(config.reduce_count, 2);
    assert_int_equal(config.reduces[0], TRI_REDUCE_MAX);
    assert_int_equal(config.op_count, 2);
    assert_string_equal(config.ops[0]->name, "barrier");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_of_sizes_double_or_grow_by_their_factor),
        cmocka_unit_test(a_list_that_is_none_is_named),
        cmocka_unit_test(lists_of_types_and_reductions_keep_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
