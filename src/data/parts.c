/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.c: see parts.h. One sort by class and key gives each sample its rank within its class.
 */
#include "data/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define FRACTION_LIMIT 0.9

typedef struct keyed_sample {
    int64_t index;
    uint64_t key;
    int32_t class;
} keyed_sample;

bool tri_part_fraction(const char *option, double *fraction)
{
    char *end;
    *fraction = strtod(option, &end);
    return end != option && *end == 0 && *fraction >= 0 && *fraction <= FRACTION_LIMIT;
}

tri_status tri_parts_read(const tri_data_config *config, tri_parts *out)
{
    *out = (tri_parts){.contiguous = config->split == TRI_SPLIT_CONTIGUOUS, .seed = (uint64_t)config->split_seed};
    if (!tri_part_fraction(config->validation, &out->validation))
        out->validation = 0;
    if (!tri_part_fraction(config->test, &out->test))
        out->test = 0;
    if (out->validation + out->test >= 1)
        return tri_fail(TRI_ECONFIG, "data.validation and data.test: want fractions below 1 in all, got %g and %g",
                        out->validation, out->test);
    return TRI_OK;
}

static int compare_samples(const void *a, const void *b)
{
    const keyed_sample *l = a, *r = b;
    if (l->class != r->class)
        return l->class < r->class ? -1 : 1;
    if (l->key != r->key)
        return l->key < r->key ? -1 : 1;
    return (l->index > r->index) - (l->index < r->index);
}

static int compare_indices(const void *a, const void *b)
{
    const int64_t l = *(const int64_t *)a, r = *(const int64_t *)b;
    return (l > r) - (l < r);
}

static uint64_t key_of(const tri_parts *parts, int64_t index, const uint64_t *keys)
{
    if (keys != NULL)
        return parts->seed == 0 ? keys[index] : XXH3_64bits_withSeed(&keys[index], sizeof(*keys), parts->seed);
    return XXH3_64bits_withSeed(&index, sizeof(index), parts->seed);
}

/* Of n samples of a class: at least one where a fraction is asked for, and at least one is left. */
static int64_t share_of(int64_t count, double fraction, int64_t limit)
{
    const int64_t share = (int64_t)floor((double)count * fraction + 0.5),
                  least = fraction > 0 && share == 0 ? 1 : share;
    return least < limit ? least : limit > 0 ? limit : 0;
}

/* Samples of one class, by their keys; appends the part's indices. */
static int64_t class_choose(const tri_parts *parts, tri_data_part part, const keyed_sample *samples, int64_t count,
                            int64_t *chosen)
{
    const int64_t test = share_of(count, parts->test, count - 1);
    const int64_t validation = share_of(count, parts->validation, count - 1 - test);
    const int64_t first = part == TRI_PART_TEST ? 0 : part == TRI_PART_VALIDATION ? test : test + validation;
    const int64_t end = part == TRI_PART_TEST ? test : part == TRI_PART_VALIDATION ? test + validation : count;
    for (int64_t i = first; i < end; i++)
        *chosen++ = samples[i].index;
    return end - first;
}

static int64_t shuffled_choose(const tri_parts *parts, tri_data_part part, keyed_sample *samples, int64_t count,
                               int64_t *chosen)
{
    int64_t total = 0;
    qsort(samples, (size_t)count, sizeof(*samples), compare_samples);
    for (int64_t first = 0, end = 0; first < count; first = end) {
        while (end < count && samples[end].class == samples[first].class)
            end++;
        total += class_choose(parts, part, samples + first, end - first, chosen + total);
    }
    qsort(chosen, (size_t)total, sizeof(*chosen), compare_indices);
    return total;
}

static int64_t contiguous_choose(const tri_parts *parts, tri_data_part part, int64_t count, int64_t *chosen)
{
    const int64_t test = (int64_t)((double)count * parts->test);
    const int64_t validation = (int64_t)((double)count * parts->validation), training = count - test - validation;
    const int64_t first = part == TRI_PART_TRAIN ? 0 : part == TRI_PART_VALIDATION ? training : training + validation;
    const int64_t own = part == TRI_PART_TRAIN ? training : part == TRI_PART_VALIDATION ? validation : test;
    for (int64_t i = 0; i < own; i++)
        chosen[i] = first + i;
    return own;
}

tri_status tri_parts_choose(const tri_parts *parts, tri_data_part part, int64_t count, const int32_t *classes,
                            const uint64_t *keys, int64_t **chosen, int64_t *chosen_count)
{
    keyed_sample *samples = parts->contiguous ? NULL : tri_alloc_zero((size_t)count + 1, sizeof(*samples));
    *chosen = tri_alloc_zero((size_t)count + 1, sizeof(**chosen));
    if (*chosen == NULL || (samples == NULL && !parts->contiguous)) {
        tri_free(samples);
        tri_free(*chosen);
        *chosen = NULL;
        return TRI_ENOMEM;
    }
    for (int64_t i = 0; i < count && samples != NULL; i++)
        samples[i] = (keyed_sample){i, key_of(parts, i, keys), classes != NULL ? classes[i] : 0};
    *chosen_count = samples != NULL ? shuffled_choose(parts, part, samples, count, *chosen)
                                    : contiguous_choose(parts, part, count, *chosen);
    tri_free(samples);
    return TRI_OK;
}
