/* SPDX-License-Identifier: Apache-2.0
 *
 * formats.h: the formats of data sets, and what their readers share.
 *
 * A reader checks its headers and lengths in `open` and the range of every target it reads in `read`. The `*_parse`
 * calls are the same readers over bytes in memory, for the fuzzer.
 */
#ifndef TRI_DATA_FORMATS_H
#define TRI_DATA_FORMATS_H

#include "data/data.h"
#include "data/parts.h"
#include "data/stream.h"

extern const tri_dataset_ops tri_dataset_idx, tri_dataset_cifar, tri_dataset_npy, tri_dataset_csv, tri_dataset_tokens,
    tri_dataset_images, tri_dataset_webdataset, tri_dataset_synthetic;

/* Dimensions of one sample: a batch of them must still be a tensor. */
#define TRI_SAMPLE_MAX_DIMS (TRI_MAX_DIMS - 1)
#define TRI_CLASSES_LIMIT   INT64_C(1000000000)

/* start + names[i], or that + ".gz", the first that exists: tri_free() *path. TRI_ENOTFOUND names all that was tried.
 */
tri_status tri_data_find(const char *const *starts, const char *const *names, char **path);
/* Checks that a target of `dtype` can be what the configuration asks for, and fills target_dtype and classes; `found`
 * is one more than the greatest label, used when data.classes is 0. */
tri_status tri_target_plan(tri_dataset_info *info, const tri_data_config *config, const char *origin, tri_dtype dtype,
                           int64_t found);
/* Stores the target of sample `index` (of the file) as info says; a class out of range is TRI_EFORMAT with the index.
 */
tri_status tri_target_store(const tri_dataset_info *info, const char *origin, int64_t index, tri_dtype dtype,
                            const void *raw, void *out);
/* Is it one of the integer types? */
bool tri_target_is_integer(tri_dtype dtype);
/* One element as int64. */
int64_t tri_target_integer(tri_dtype dtype, const void *raw);
/* product of dims * each, TRI_EFORMAT when it leaves 62 bits. */
tri_status tri_data_nbytes(const char *origin, tri_shape shape, size_t each, uint64_t *nbytes);

/* Take over both sources (also on failure). */
tri_status tri_idx_parse(const tri_data_config *config, tri_source *images, tri_source *labels, tri_dataset **out);
tri_status tri_npy_parse(const tri_data_config *config, tri_source *x, tri_source *y, tri_dataset **out);
/* Takes over `source` (also on failure). All rows; with ops->learn they can be read. */
tri_status tri_csv_parse(const tri_data_config *config, tri_source *source, tri_dataset **out);
/* The same of JSON lines (lines/lines.h). */
tri_status tri_lines_parse(const tri_data_config *config, tri_source *source, tri_dataset **out);

#endif
