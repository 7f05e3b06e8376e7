/* SPDX-License-Identifier: Apache-2.0
 *
 * data_files.c: see data_files.h.
 */
#include "unit/data/data_files.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

char *make_folder(void)
{
    char pattern[] = "/tmp/trireme-data-XXXXXX";
    assert_non_null(mkdtemp(pattern));
    return strdup(pattern);
}

void drop_folder(char *folder)
{
    assert_int_equal(tri_fs_remove(folder), TRI_OK);
    free(folder);
}

void write_file(const char *folder, const char *name, const void *bytes, size_t nbytes)
{
    char path[1200];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(tri_fs_write_atomic(path, bytes, nbytes), TRI_OK);
}

void write_gzip(const char *folder, const char *name, const void *bytes, size_t nbytes)
{
    char path[1200];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, (unsigned)nbytes), (int)nbytes);
    assert_int_equal(gzclose(file), Z_OK);
}

tri_data_config config_default(void)
{
    tri_data_config config;
    tri_options_defaults(&tri_data_options, &config);
    return config;
}

tri_data_config config_at(const char *path, const char *format)
{
    tri_data_config config = config_default();
    strcpy(config.path, path);
    (void)tri_options_set(&tri_data_options, &config, "format", format);
    return config;
}

void make_idx(tri_string *out, int type, int ndim, const int32_t *dims, const void *elements, size_t nbytes)
{
    const unsigned char magic[4] = {0, 0, (unsigned char)type, (unsigned char)ndim};
    assert_int_equal(tri_string_append_bytes(out, magic, 4), TRI_OK);
    for (int i = 0; i < ndim; i++) {
        uint32_t dim = (uint32_t)dims[i];
        const unsigned char big[4] = {(unsigned char)(dim >> 24), (unsigned char)(dim >> 16), (unsigned char)(dim >> 8),
                                      (unsigned char)dim};
        assert_int_equal(tri_string_append_bytes(out, big, 4), TRI_OK);
    }
    assert_int_equal(tri_string_append_bytes(out, elements, nbytes), TRI_OK);
}

void write_idx_pair(const char *folder, const char *start, bool gzip, int count, int height, int width, int classes)
{
    size_t pixels = (size_t)count * (size_t)height * (size_t)width;
    unsigned char *images = malloc(pixels), *labels = malloc((size_t)count);
    for (size_t i = 0; i < pixels; i++)
        images[i] = (unsigned char)(7 * i + 3);
    for (int i = 0; i < count; i++)
        labels[i] = (unsigned char)(i % classes);
    tri_string image_file = {0}, label_file = {0};
    make_idx(&image_file, 8, 3, (const int32_t[]){count, height, width}, images, pixels);
    make_idx(&label_file, 8, 1, (const int32_t[]){count}, labels, (size_t)count);
    char image_name[64], label_name[64];
    snprintf(image_name, sizeof(image_name), "%s-images-idx3-ubyte%s", start, gzip ? ".gz" : "");
    snprintf(label_name, sizeof(label_name), "%s-labels-idx1-ubyte%s", start, gzip ? ".gz" : "");
    (gzip ? write_gzip : write_file)(folder, image_name, image_file.text, image_file.nbytes);
    (gzip ? write_gzip : write_file)(folder, label_name, label_file.text, label_file.nbytes);
    tri_string_fini(&image_file);
    tri_string_fini(&label_file);
    free(images);
    free(labels);
}

void make_npy(tri_string *out, int version, const char *dictionary, const void *elements, size_t nbytes)
{
    size_t length = strlen(dictionary) + 1;
    const unsigned char head[12] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', (unsigned char)version, 0, (unsigned char)length, (unsigned char)(length >> 8)};
    assert_int_equal(tri_string_append_bytes(out, head, version == 1 ? 10 : 12), TRI_OK);
    assert_int_equal(tri_string_appendf(out, "%s\n", dictionary), TRI_OK);
    assert_int_equal(tri_string_append_bytes(out, elements, nbytes), TRI_OK);
}

tri_status read_whole(tri_dataset *dataset, void **samples, void **targets)
{
    const tri_dataset_info *info = &dataset->info;
    size_t count = (size_t)info->count;
    int64_t *indices = tri_alloc(count * sizeof(int64_t));
    for (size_t i = 0; i < count; i++)
        indices[i] = (int64_t)i;
    *samples = tri_alloc_zero(count, (size_t)tri_shape_count(info->sample) * tri_dtype_nbytes(info->dtype));
    *targets = tri_alloc_zero(count, (size_t)tri_shape_count(info->target) * 4);
    tri_status status = tri_dataset_read(dataset, indices, info->count, *samples, *targets);
    tri_free(indices);
    return status;
}

void assert_error_has(const char *text)
{
    if (strstr(tri_last_error(), text) == NULL)
        fail_msg("want '%s' in '%s'", text, tri_last_error());
}
