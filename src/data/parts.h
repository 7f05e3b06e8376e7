/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.h: which samples of one source are for training, which for validation, which for the test.
 *
 * Of each class the samples with the lowest keys are the test's, the next ones are for validation: a pure function of
 * the seed and of what is in the source, whatever the order of its classes.
 */
#ifndef TRI_DATA_PARTS_H
#define TRI_DATA_PARTS_H

#include "data/data.h"

typedef struct tri_parts {
    double validation, test; /* fractions */
    bool contiguous;         /* the last samples in the order of the source, the test's behind those for validation */
    uint64_t seed;
} tri_parts;

/* Of data.validation or data.test: a fraction, or else the path of the data themselves. */
bool tri_part_fraction(const char *option, double *fraction);
/* What the options say; a path counts as 0. TRI_ECONFIG: nothing is left for training. */
tri_status tri_parts_read(const tri_data_config *config, tri_parts *out);
/* The samples of a part, ascending: tri_free(). classes: of each sample, NULL: all are of one. keys: of each sample,
 * what it is called by wherever it is (used with seed 0 as it is); NULL: its place. */
tri_status tri_parts_choose(const tri_parts *parts, tri_data_part part, int64_t count, const int32_t *classes,
                            const uint64_t *keys, int64_t **chosen, int64_t *chosen_count);

#endif
