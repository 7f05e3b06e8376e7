/* SPDX-License-Identifier: Apache-2.0
 *
 * identity.c: tells one data set from another by number, shapes and content of its samples, read as the training reads
 * them: whatever the format is, and wherever the files are.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "data/identity.h"

#define SAMPLED_COUNT INT64_C(1024)

static size_t nbytes_of(tri_shape shape, tri_dtype dtype)
{
    return (size_t)tri_shape_count(shape) * tri_dtype_nbytes(dtype);
}

/* How many samples are looked at. */
static int64_t looked_at(const tri_dataset_info *info, size_t whole_nbytes)
{
    const size_t each =
        nbytes_of(info->sample, info->dtype) + nbytes_of(info->target, info->target_dtype) + 1; /* never 0 */
    const int64_t room = whole_nbytes / each > 0 ? (int64_t)(whole_nbytes / each) : 1;
    if (info->count <= room)
        return info->count;
    return room < SAMPLED_COUNT ? room : SAMPLED_COUNT;
}

/* The hash of `count` samples at equal distances, the first and the last one among them. */
static tri_status content_hash(tri_dataset *dataset, int64_t count, uint64_t hashes[2])
{
    const tri_dataset_info *info = &dataset->info;
    const size_t sample = (size_t)count * nbytes_of(info->sample, info->dtype);
    const size_t target = (size_t)count * nbytes_of(info->target, info->target_dtype);
    int64_t *indices = tri_alloc((size_t)count * sizeof(*indices) + 1);
    char *samples = tri_alloc_bulk(sample + 1), *targets = tri_alloc_bulk(target + 1);
    tri_status status = indices && samples && targets ? TRI_OK : TRI_ENOMEM;
    for (int64_t i = 0; status == TRI_OK && i < count; i++)
        indices[i] = count > 1 ? (int64_t)((__int128)i * (info->count - 1) / (count - 1)) : 0;
    if (status == TRI_OK)
        status = tri_dataset_read(dataset, indices, count, samples, targets);
    if (status == TRI_OK) {
        hashes[0] = XXH3_64bits(samples, sample);
        hashes[1] = XXH3_64bits(targets, target);
    }
    tri_free(indices);
    tri_free(samples);
    tri_free(targets);
    return status;
}

tri_status tri_dataset_identify(tri_dataset *dataset, size_t whole_nbytes, tri_data_identity *out)
{
    const tri_dataset_info *info = &dataset->info;
    char sample[96], target[96], text[256];
    uint64_t hashes[2];
    *out = (tri_data_identity){.count = info->count};
    snprintf(out->shape, sizeof(out->shape), "%s %.36s, %s %.36s", tri_dtype_name(info->dtype),
             tri_shape_print(info->sample, sample), tri_dtype_name(info->target_dtype),
             tri_shape_print(info->target, target));
    TRI_TRY(dataset->ops->identify != NULL ? dataset->ops->identify(dataset, hashes)
                                           : content_hash(dataset, looked_at(info, whole_nbytes), hashes));
    int nbytes = snprintf(text, sizeof(text), "%" PRId64 " %s %" PRId64 " %016" PRIx64 " %016" PRIx64, info->count,
                          out->shape, info->classes, hashes[0], hashes[1]);
    out->digest = XXH3_64bits(text, (size_t)nbytes);
    return TRI_OK;
}
