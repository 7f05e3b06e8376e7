/* SPDX-License-Identifier: Apache-2.0
 *
 * normalize.h: stored samples to the numbers that a model eats: f32, or i32 for integer tokens.
 */
#ifndef TRI_DATA_NORMALIZE_H
#define TRI_DATA_NORMALIZE_H

#include "data/data.h"

#define TRI_NORMALIZE_MAX_CHANNELS 16

typedef struct tri_normalizer {
    tri_dtype from, to;
    int64_t count;    /* elements of a sample */
    int64_t channels; /* that have figures of their own, 1: one for all */
    bool standard;    /* floats: subtract the mean, divide by the deviation */
    float mean[TRI_NORMALIZE_MAX_CHANNELS], deviation[TRI_NORMALIZE_MAX_CHANNELS];
    float table[TRI_NORMALIZE_MAX_CHANNELS][256]; /* bytes: the result for each */
} tri_normalizer;

/* TRI_ECONFIG when data.normalize cannot be done with this data. */
tri_status tri_normalizer_init(tri_normalizer *normalizer, const tri_dataset_info *info, const tri_data_config *config);
/* One sample as stored to count elements of `to`. */
void tri_normalizer_apply(const tri_normalizer *normalizer, const void *stored, void *out);
/* What a stored 0 becomes in each channel of an image: what crops are padded with. */
void tri_normalizer_black(const tri_normalizer *normalizer, int64_t channels, float *out);

#endif
