/* SPDX-License-Identifier: Apache-2.0
 *
 * data_files.h: small files of each format, written by the tests.
 */
#ifndef TRI_TEST_DATA_FILES_H
#define TRI_TEST_DATA_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/containers.h"
#include "base/fs.h"
#include "data/formats.h"

/* A new folder in /tmp; removed by drop_folder, which frees it. */
char *make_folder(void);
void drop_folder(char *folder);
/* Writes <folder>/<name>. */
void write_file(const char *folder, const char *name, const void *bytes, size_t nbytes);
void write_gzip(const char *folder, const char *name, const void *bytes, size_t nbytes);

tri_data_config config_default(void);
tri_data_config config_at(const char *path, const char *format);

/* IDX: `dims` after the magic; elements i * 7 + 3 modulo 256 (bytes). */
void make_idx(tri_string *out, int type, int ndim, const int32_t *dims, const void *elements, size_t nbytes);
/* Images [count, height, width] with elements (7 i + 3) mod 256 and labels i mod classes, under the names of MNIST. */
void write_idx_pair(const char *folder, const char *start, bool gzip, int count, int height, int width, int classes);
/* npy version 1 with this dictionary. */
void make_npy(tri_string *out, int version, const char *dictionary, const void *elements, size_t nbytes);

/* Reads samples [0, count) whole; tri_free both. */
tri_status read_whole(tri_dataset *dataset, void **samples, void **targets);
/* Fails the test unless the latest message holds the text. */
void assert_error_has(const char *text);

#endif
