/* SPDX-License-Identifier: Apache-2.0
 *
 * optim_store.h: a small store for tests of optimizers: a weight, a bias, a running mean, with gaps between.
 */
#ifndef TRI_TESTS_OPTIM_STORE_H
#define TRI_TESTS_OPTIM_STORE_H

#include "optim/optim.h"

#define STORE_WEIGHT_COUNT 40000
#define STORE_COUNT        (40000 + 16 + 16)

static tri_param store_entries[] = {
    {.name = "fc.weight", .first = 0, .count = STORE_WEIGHT_COUNT - 3, .decay = true},
    {.name = "fc.bias", .first = STORE_WEIGHT_COUNT, .count = 5, .block = 10},
    {.name = "norm.mean", .first = STORE_WEIGHT_COUNT + 16, .count = 4, .block = 11, .buffer = true},
};
extern const tri_device_ops tri_device_cpu;
static const tri_device store_device = {.ops = &tri_device_cpu};
static char *store_names[] = {"fc.weight", "fc.bias", NULL};
static const tri_params store = {.names = store_names,
                                 .model_count = 3,
                                 .entries = store_entries,
                                 .entry_count = 3,
                                 .count = STORE_COUNT,
                                 .block_count = 12,
                                 .device = &store_device};

/* Values and gradients with zeros in the gaps. */
static inline void store_fill(float *values, float *grads)
{
    for (int i = 0; i < STORE_COUNT; i++)
        values[i] = grads[i] = 0;
    for (int e = 0; e < store.entry_count; e++)
        for (int64_t i = store_entries[e].first; i < store_entries[e].first + store_entries[e].count; i++) {
            values[i] = (float)(i % 97) / 97.0f - 0.5f;
            grads[i] = (float)(i % 89) / 89.0f - 0.3f;
        }
}

#endif
