/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint_verify.c: whether a checkpoint is whole: every byte of its files is under a checksum of the manifest, and
 * what is wrong is named by file, tensor and bytes.
 */
#include <inttypes.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fs.h"
#include "checkpoint/manifest.h"

/* Where damage is reported; with `tell` NULL the first one ends it. */
typedef struct examination {
    const char *path;
    void (*tell)(void *arg, const char *what);
    void *arg;
    int64_t damages;
    char first[TRI_ERROR_NBYTES]; /* with tell: the first one */
} examination;

/* The last error is what is wrong: the status that ends the examination, or TRI_OK. */
static tri_status wrong(examination *exam, tri_status status)
{
    if (exam->tell == NULL || !tri_checkpoint_is_damage(status))
        return status;
    if (exam->damages++ == 0)
        strncpy(exam->first, tri_last_error(), sizeof(exam->first) - 1);
    exam->tell(exam->arg, tri_last_error());
    return TRI_OK;
}

static tri_status check_tensor(examination *exam, const char *name, const tri_fs_map *map,
                               const tri_stored_tensor *tensor, const uint32_t *checks)
{
    for (uint64_t first = 0, nbytes; first < tensor->nbytes; first += nbytes, checks++) {
        const char *bytes = (const char *)tensor->bytes + first;
        nbytes = tensor->nbytes - first < TRI_CHECK_NBYTES ? tensor->nbytes - first : TRI_CHECK_NBYTES;
        uint32_t crc = tri_crc32c(bytes, nbytes);
        if (crc == *checks)
            continue;
        uint64_t at = (uint64_t)(bytes - (const char *)map->bytes);
        tri_fail(TRI_EFORMAT,
                 "%s/%s: tensor '%.100s' is damaged in its bytes %" PRIu64 " to %" PRIu64 ", from byte %" PRIu64
                 " of the file on: want crc32c %08" PRIx32 ", got %08" PRIx32,
                 exam->path, name, tensor->name, first, first + nbytes, at, *checks, crc);
        TRI_TRY(wrong(exam, TRI_EFORMAT));
    }
    return TRI_OK;
}

static tri_status check_data(examination *exam, const tri_manifest_file *file, const tri_fs_map *map,
                             const tri_safetensors *tensors)
{
    int64_t count = 0;
    for (int i = 0; i < tri_safetensors_count(tensors); i++)
        count += tri_check_count(tri_safetensors_at(tensors, i)->nbytes);
    if (count != file->check_count) {
        tri_fail(TRI_EFORMAT, "%s/%s: want %" PRId64 " checksums in the manifest, got %" PRId64, exam->path, file->name,
                 count, file->check_count);
        return wrong(exam, TRI_EFORMAT);
    }
    const uint32_t *checks = file->checks;
    for (int i = 0; i < tri_safetensors_count(tensors); i++) {
        const tri_stored_tensor *tensor = tri_safetensors_at(tensors, i);
        TRI_TRY(check_tensor(exam, file->name, map, tensor, checks));
        checks += tri_check_count(tensor->nbytes);
    }
    return TRI_OK;
}

/* Bytes before the data, as the file itself says; 0: that cannot be. */
static uint64_t header_nbytes(const tri_fs_map *map)
{
    uint64_t length = 0;
    for (size_t i = 0; i < 8 && i < map->nbytes; i++)
        length |= (uint64_t)((const unsigned char *)map->bytes)[i] << (8 * i);
    return map->nbytes >= 8 && length <= map->nbytes - 8 ? 8 + length : 0;
}

static tri_status check_map(examination *exam, const tri_manifest_file *file, const char *name, const tri_fs_map *map)
{
    tri_safetensors *tensors = NULL;
    uint64_t header = header_nbytes(map);
    if (map->nbytes != file->nbytes) {
        tri_fail(TRI_EFORMAT, "%s: want %" PRIu64 " bytes, got %zu: %s", name, file->nbytes, map->nbytes,
                 map->nbytes < file->nbytes ? "it was cut short" : "there is something behind its end");
        return wrong(exam, TRI_EFORMAT);
    }
    if (header == 0 || tri_crc32c(map->bytes, header) != file->header) {
        tri_fail(TRI_EFORMAT,
                 "%s: its header (bytes 0 to %" PRIu64 ") is damaged, or of another file: want crc32c %08" PRIx32, name,
                 header, file->header);
        return wrong(exam, TRI_EFORMAT);
    }
    tri_status status = tri_safetensors_parse(map->bytes, map->nbytes, name, &tensors);
    status = status == TRI_OK ? check_data(exam, file, map, tensors) : wrong(exam, status);
    tri_safetensors_close(tensors);
    return status;
}

static tri_status check_file(examination *exam, const tri_manifest_file *file)
{
    char *name = tri_format("%s/%s", exam->path, file->name);
    if (name == NULL)
        return TRI_ENOMEM;
    tri_fs_map map = {0};
    tri_status status = tri_fs_map_open(name, &map);
    status = status == TRI_OK ? check_map(exam, file, name, &map) : wrong(exam, status);
    if (map.bytes != NULL)
        tri_fs_map_close(&map);
    tri_free(name);
    return status;
}

static tri_status examine(examination *exam)
{
    tri_manifest manifest;
    const char *slash = strrchr(exam->path, '/');
    int64_t step;
    tri_status status = tri_manifest_load(exam->path, &manifest);
    if (status != TRI_OK)
        return wrong(exam, status);
    if (tri_checkpoint_name_step(slash ? slash + 1 : exam->path, &step) && manifest.run.step != step) {
        tri_fail(TRI_EFORMAT, "%s: its manifest is of step %" PRId64, exam->path, manifest.run.step);
        status = wrong(exam, TRI_EFORMAT);
    }
    for (int i = 0; i < manifest.file_count && status == TRI_OK; i++)
        status = check_file(exam, &manifest.files[i]);
    tri_manifest_fini(&manifest);
    return status;
}

tri_status tri_checkpoint_verify(const char *path)
{
    examination exam = {.path = path};
    return examine(&exam);
}

tri_status tri_checkpoint_examine(const char *path, void (*tell)(void *arg, const char *what), void *arg)
{
    examination exam = {.path = path, .tell = tell, .arg = arg};
    TRI_TRY(examine(&exam));
    return exam.damages == 0 ? TRI_OK : tri_fail_copy(TRI_EFORMAT, exam.first);
}
