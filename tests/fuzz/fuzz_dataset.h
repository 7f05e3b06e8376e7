/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_dataset.h: what the data formats' targets share: reading all samples of what could be opened.
 */
#ifndef TRI_TEST_FUZZ_DATASET_H
#define TRI_TEST_FUZZ_DATASET_H

#include "base/memory.h"
#include "data/formats.h"

#define FUZZ_SAMPLES_NBYTES ((int64_t)1 << 20)

/* Reads every third sample, unless they are large (gzip can hold a lot), and closes. */
static inline void fuzz_read(tri_dataset *dataset)
{
    const tri_dataset_info *info = &dataset->info;
    int64_t each = tri_shape_count(info->sample) * (int64_t)tri_dtype_nbytes(info->dtype);
    int64_t target = tri_shape_count(info->target) * 4, count = (info->count + 2) / 3;
    if (count > 0 && each <= FUZZ_SAMPLES_NBYTES / count && target <= FUZZ_SAMPLES_NBYTES / count) {
        int64_t *indices = tri_alloc((size_t)count * sizeof(int64_t));
        void *samples = tri_alloc((size_t)(count * each)), *targets = tri_alloc((size_t)(count * target));
        for (int64_t i = 0; i < count; i++)
            indices[i] = 3 * i;
        (void)tri_dataset_read(dataset, indices, count, samples, targets);
        tri_free(indices);
        tri_free(samples);
        tri_free(targets);
    }
    tri_dataset_close(dataset);
}

/* Cuts the input in two: the first two bytes say where. */
static inline void fuzz_sources(const uint8_t *bytes, size_t nbytes, tri_source *first, tri_source *second)
{
    size_t cut = ((size_t)bytes[0] << 8 | bytes[1]) % (nbytes - 1);
    TRI_ASSERT(tri_source_init(first, bytes + 2, cut, "first") == TRI_OK);
    TRI_ASSERT(tri_source_init(second, bytes + 2 + cut, nbytes - 2 - cut, "second") == TRI_OK);
}

#endif
