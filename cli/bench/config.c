/* SPDX-License-Identifier: Apache-2.0
 *
 * config.c: the flags of `trireme bench` become what is measured: lists of operations, sizes, types and reductions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/command.h"

#define SIZES_USUAL   "4,1k,64k,1M,64M"
#define SECONDS_USUAL 0.5

/* Cuts the next word of a list; false at the end. */
static bool next_word(const char **list, char word[64])
{
    if (!**list)
        return false;
    size_t length = strcspn(*list, ",");
    snprintf(word, 64, "%.*s", (int)(length < 63 ? length : 63), *list);
    *list += length + ((*list)[length] == ',');
    return true;
}

static tri_status read_sizes(const char *list, bench_config *config)
{
    TRI_TRY(tri_flag_sizes("--sizes", list, config->sizes, BENCH_LIST_MAX, &config->size_count));
    return config->size_count ? TRI_OK : tri_fail(TRI_ECONFIG, "--sizes: want at least one size, got '%s'", list);
}

static tri_status read_dtypes(const char *list, bench_config *config)
{
    char word[64];
    for (const char *at = list; next_word(&at, word);)
        if (config->dtype_count == TRI_DTYPE_COUNT || !tri_dtype_find(word, &config->dtypes[config->dtype_count++]))
            return tri_fail(TRI_ECONFIG, "--dtype: want some of f32, f64, bf16, f16, i8, u8, i32 or i64, got '%s'",
                            list);
    return config->dtype_count ? TRI_OK : tri_fail(TRI_ECONFIG, "--dtype: want at least one type, got ''");
}

/* Less than one element would be measured as nothing; nothing itself may be asked for. */
static tri_status check_sizes(const bench_config *config)
{
    int sized = 0;
    for (int i = 0; i < config->op_count; i++)
        sized += config->ops[i]->op != TRI_COMM_BARRIER;
    for (int s = 0; s < config->size_count && sized > 0; s++)
        for (int t = 0; t < config->dtype_count; t++) {
            int64_t each = (int64_t)tri_dtype_nbytes(config->dtypes[t]);
            if (config->sizes[s] > 0 && config->sizes[s] < each)
                return tri_fail(TRI_ECONFIG, "--sizes: %lld bytes hold no element of %s, which takes %lld",
                                (long long)config->sizes[s], tri_dtype_name(config->dtypes[t]), (long long)each);
        }
    return TRI_OK;
}

static tri_status read_reduces(const char *list, bench_config *config)
{
    char word[64];
    for (const char *at = list; next_word(&at, word);) {
        int found = 0;
        while (found < TRI_REDUCE_COUNT && strcmp(tri_reduce_name((tri_reduce_op)found), word) != 0)
            found++;
        if (found == TRI_REDUCE_COUNT || config->reduce_count == TRI_REDUCE_COUNT)
            return tri_fail(TRI_ECONFIG,
                            "--reduce: want some of sum, average, min, max, product or premul_sum, got '%s'", list);
        config->reduces[config->reduce_count++] = (tri_reduce_op)found;
    }
    return config->reduce_count ? TRI_OK : tri_fail(TRI_ECONFIG, "--reduce: want at least one, got ''");
}

static tri_status find_op(const char *name, const bench_op **op)
{
    const char *names[64] = {"start"};
    size_t count = 1;
    *op = NULL;
    if (strcmp(name, names[0]) == 0)
        return tri_fail(TRI_ECONFIG, "'start' is measured by itself: 'trireme bench start'");
    for (const bench_op *row = bench_ops; row->name; row++) {
        names[count++] = row->name;
        if (strcmp(row->name, name) == 0)
            *op = row;
    }
    if (*op)
        return TRI_OK;
    const char *nearest = tri_options_nearest(name, names, count);
    return tri_fail(TRI_ECONFIG, "there is no benchmark '%s'; did you mean '%s'?", name,
                    nearest ? nearest : "all_reduce");
}

static tri_status read_ops(const char *list, bench_config *config)
{
    char word[64];
    config->start = strcmp(list, "start") == 0;
    while (!config->start && config->op_count < BENCH_LIST_MAX && next_word(&list, word))
        TRI_TRY(find_op(word, &config->ops[config->op_count++]));
    return config->start || config->op_count ? TRI_OK : find_op("", &config->ops[0]);
}

static tri_status check_place(const bench_config *config)
{
    for (int i = 0; i < config->op_count; i++) {
        const bench_op *op = config->ops[i];
        if (config->place && !(op->places & config->place))
            return tri_fail(TRI_ECONFIG, "%s: %s is done %s only",
                            config->place == BENCH_IN_PLACE ? "--in-place" : "--out-of-place", op->name,
                            config->place == BENCH_IN_PLACE ? "out of place" : "in place");
    }
    return TRI_OK;
}

/* How long and how often. */
static tri_status read_effort(const bench_flags *flags, bench_config *config)
{
    config->seconds = SECONDS_USUAL;
    if (flags->iterations && flags->seconds)
        return tri_fail(TRI_ECONFIG, "--iterations and --seconds exclude each other");
    if (flags->iterations)
        TRI_TRY(tri_flag_int("--iterations", flags->iterations, 1, 1000000, &config->iterations));
    if (flags->seconds) {
        char *end;
        config->seconds = strtod(flags->seconds, &end);
        if (end == flags->seconds || *end || !(config->seconds > 0 && config->seconds <= 3600))
            return tri_fail(TRI_ECONFIG, "--seconds: want a number above 0 up to 3600, got '%s'", flags->seconds);
    }
    return TRI_OK;
}

tri_status bench_config_read(const bench_flags *flags, const char *op_names, bench_config *config)
{
    *config = (bench_config){.rewrite = flags->rewrite, .explain = flags->explain, .json = flags->json};
    TRI_TRY(read_ops(op_names, config));
    TRI_TRY(read_sizes(flags->sizes ? flags->sizes : SIZES_USUAL, config));
    TRI_TRY(read_dtypes(flags->dtype ? flags->dtype : "f32", config));
    TRI_TRY(check_sizes(config));
    TRI_TRY(read_reduces(flags->reduce ? flags->reduce : "sum", config));
    TRI_TRY(read_effort(flags, config));
    if (flags->memory && strcmp(flags->memory, "group") != 0 && strcmp(flags->memory, "ordinary") != 0)
        return tri_fail(TRI_ECONFIG, "--memory: want group or ordinary, got '%s'", flags->memory);
    config->ordinary = flags->memory && strcmp(flags->memory, "ordinary") == 0;
    if (flags->in_place && flags->out_of_place)
        return tri_fail(TRI_ECONFIG, "--in-place and --out-of-place exclude each other");
    config->place = flags->in_place ? BENCH_IN_PLACE : flags->out_of_place ? BENCH_OUT_OF_PLACE : 0;
    return check_place(config);
}

tri_status bench_names_append(tri_string *out)
{
    for (const bench_op *op = bench_ops; op->name; op++)
        TRI_TRY(tri_string_appendf(out, "%s ", op->name));
    return tri_string_append(out, "start");
}
