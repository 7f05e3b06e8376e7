/* SPDX-License-Identifier: Apache-2.0
 *
 * draft_files.c: names, files and letters of a draft.
 */
#include "checkpoint/draft_files.h"

#include <inttypes.h>
#include <string.h>

#include "base/crc32c.h"

/* --- names --- */

tri_status draft_names_make(const char *folder, int64_t step, draft_names *names)
{
    names->folder = tri_strdup(folder);
    names->temporary = tri_format("%s/.step-%08" PRId64 ".tmp", folder, step);
    names->old = tri_format("%s/.step-%08" PRId64 ".old.tmp", folder, step);
    names->visible = tri_format("%s/step-%08" PRId64, folder, step);
    bool good = names->folder != NULL && names->temporary != NULL && names->old != NULL && names->visible != NULL;
    return good ? TRI_OK : TRI_ENOMEM;
}

void draft_names_fini(draft_names *names)
{
    tri_free(names->folder);
    tri_free(names->temporary);
    tri_free(names->old);
    tri_free(names->visible);
    *names = (draft_names){0};
}

/* Where two names cannot be exchanged: the one that is there steps aside first, and comes back on failure. */
static tri_status step_aside(const draft_names *names)
{
    TRI_TRY(tri_file_rename(names->visible, names->old));
    tri_status status = tri_file_rename(names->temporary, names->visible);
    if (status != TRI_OK && !tri_fs_exists(names->visible)) {
        char message[TRI_ERROR_NBYTES];
        strncpy(message, tri_last_error(), sizeof(message) - 1);
        message[sizeof(message) - 1] = 0;
        tri_fs_rename(names->old, names->visible); /* failing that, the next save does it */
        return tri_fail_copy(status, message);
    }
    return status == TRI_OK ? tri_fs_remove(names->old) : status;
}

tri_status draft_put_in_place(const draft_names *names)
{
    if (!tri_fs_exists(names->visible))
        return tri_file_rename(names->temporary, names->visible);
    tri_status status = tri_fs_exchange(names->temporary, names->visible);
    if (status == TRI_EUNSUPPORTED)
        return step_aside(names);
    TRI_TRY(status);
    return tri_fs_sync(names->folder); /* the old one goes with the draft */
}

/* --- files --- */

static tri_status header_make(draft_file *file, const tri_checkpoint_slice *slices, int count)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    tri_stored_tensor *tensors = tri_alloc_zero((size_t)count + 1, sizeof(*tensors));
    if (tensors == NULL)
        return TRI_ENOMEM;
    for (int i = 0; i < count; i++)
        tensors[i] = (tri_stored_tensor){.name = slices[i].name,
                                         .dtype = TRI_F32,
                                         .shape = slices[i].shape,
                                         .nbytes = (size_t)tri_shape_count(slices[i].shape) * sizeof(float)};
    tri_status status = tri_safetensors_print_header(file->path, tensors, count, metadata, &file->header);
    tri_free(tensors);
    return status;
}

tri_status draft_file_lay(draft_file *file, const char *folder, const char *name, const tri_checkpoint_slice *slices,
                          int count)
{
    file->name = name;
    file->count = count;
    file->path = tri_format("%s/%s", folder, name);
    file->firsts = tri_alloc_zero((size_t)count + 1, sizeof(*file->firsts));
    file->checks = tri_alloc_zero((size_t)count + 1, sizeof(*file->checks));
    if (file->path == NULL || file->firsts == NULL || file->checks == NULL)
        return TRI_ENOMEM;
    TRI_TRY(header_make(file, slices, count));
    file->firsts[0] = file->header.nbytes;
    for (int i = 0; i < count; i++) {
        uint64_t nbytes = (uint64_t)tri_shape_count(slices[i].shape) * sizeof(float);
        file->firsts[i + 1] = file->firsts[i] + nbytes;
        file->checks[i + 1] = file->checks[i] + tri_check_count(nbytes);
    }
    file->nbytes = file->firsts[count];
    file->parts = tri_alloc_zero((size_t)file->checks[count] + 1, sizeof(*file->parts));
    return file->parts != NULL ? TRI_OK : TRI_ENOMEM;
}

void draft_file_fini(draft_file *file)
{
    (void)tri_fs_file_close(file->file);
    tri_string_fini(&file->header);
    tri_free(file->path);
    tri_free(file->firsts);
    tri_free(file->checks);
    tri_free(file->parts);
    tri_piece_fini(&file->piece);
    *file = (draft_file){0};
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

tri_status draft_file_write(draft_file *file, const void *bytes, size_t nbytes, uint64_t at)
{
    return file->is_piece ? tri_piece_put(&file->piece, file->file, bytes, nbytes, at)
                          : tri_fs_file_write(file->file, bytes, nbytes, at);
}

tri_status draft_file_put(draft_file *file, int slice, uint64_t first, size_t nbytes, const void *bytes)
{
    uint64_t all = file->firsts[slice + 1] - file->firsts[slice];
    const char *from = bytes;
    TRI_ASSERT(first + nbytes <= all);
    for (uint64_t run; nbytes > 0; first += run, nbytes -= run, from += run) {
        uint64_t piece = first / TRI_CHECK_NBYTES, end = smaller((piece + 1) * TRI_CHECK_NBYTES, all);
        run = smaller(nbytes, end - first);
        file->parts[file->checks[slice] + (int64_t)piece] ^= tri_crc32c_part(from, run, end - first - run);
        TRI_TRY(draft_file_write(file, from, run, file->firsts[slice] + first));
    }
    return TRI_OK;
}

tri_status draft_file_describe(const draft_file *file, tri_manifest_file *row)
{
    *row = (tri_manifest_file){.nbytes = file->nbytes,
                               .header = tri_crc32c(file->header.text, file->header.nbytes),
                               .check_count = file->checks[file->count]};
    strcpy(row->name, file->name);
    row->checks = tri_alloc((size_t)row->check_count * sizeof(*row->checks) + 1);
    if (row->checks == NULL)
        return TRI_ENOMEM;
    for (int slice = 0; slice < file->count; slice++) {
        uint64_t left = file->firsts[slice + 1] - file->firsts[slice];
        for (int64_t c = file->checks[slice]; c < file->checks[slice + 1]; c++) {
            row->checks[c] = tri_crc32c_join(file->parts[c], smaller(left, TRI_CHECK_NBYTES));
            left -= smaller(left, TRI_CHECK_NBYTES);
        }
    }
    return TRI_OK;
}

/* --- letters --- */

#define PART_MARK "TRIPART1"

typedef struct part_head {
    char mark[8];
    int32_t status;
    uint32_t message_nbytes;
    uint64_t put_nbytes;
    uint64_t check_count;
} part_head;

static uint64_t check_count(const draft_file *files, int file_count)
{
    uint64_t count = 0;
    for (int f = 0; f < file_count; f++)
        count += (uint64_t)files[f].checks[files[f].count];
    return count;
}

tri_status draft_part_print(const draft_part *part, const draft_file *files, int file_count, tri_string *out)
{
    part_head head = {.mark = PART_MARK,
                      .status = (int32_t)part->status,
                      .message_nbytes = (uint32_t)strlen(part->message),
                      .put_nbytes = part->put_nbytes,
                      .check_count = check_count(files, file_count)};
    memcpy(head.mark, PART_MARK, sizeof(head.mark));
    TRI_TRY(tri_string_append_bytes(out, (const char *)&head, sizeof(head)));
    TRI_TRY(tri_string_append_bytes(out, part->message, head.message_nbytes));
    for (int f = 0; f < file_count; f++)
        TRI_TRY(tri_string_append_bytes(out, (const char *)files[f].parts,
                                        (size_t)files[f].checks[files[f].count] * sizeof(uint32_t)));
    uint32_t crc = tri_crc32c(out->text, out->nbytes);
    return tri_string_append_bytes(out, (const char *)&crc, sizeof(crc));
}

tri_status draft_part_take(const char *text, size_t nbytes, const char *path, draft_file *files, int file_count,
                           draft_part *part)
{
    part_head head = {0};
    uint32_t crc = 0;
    uint64_t checks = check_count(files, file_count);
    if (nbytes >= sizeof(head) + sizeof(crc)) {
        memcpy(&head, text, sizeof(head));
        memcpy(&crc, text + nbytes - sizeof(crc), sizeof(crc));
    }
    if (memcmp(head.mark, PART_MARK, sizeof(head.mark)) != 0 || crc != tri_crc32c(text, nbytes - sizeof(crc)) ||
        head.message_nbytes >= sizeof(part->message) || head.check_count != checks ||
        nbytes != sizeof(head) + head.message_nbytes + checks * sizeof(uint32_t) + sizeof(crc))
        return tri_fail(TRI_EFORMAT, "%s: the report of a writer is damaged or of another save", path);
    *part = (draft_part){.status = (tri_status)head.status, .put_nbytes = head.put_nbytes};
    memcpy(part->message, text + sizeof(head), head.message_nbytes);
    const char *at = text + sizeof(head) + head.message_nbytes;
    for (int f = 0; f < file_count; f++)
        for (int64_t c = 0; c < files[f].checks[files[f].count]; c++, at += sizeof(uint32_t)) {
            uint32_t more;
            memcpy(&more, at, sizeof(more));
            files[f].parts[c] ^= more;
        }
    return TRI_OK;
}
