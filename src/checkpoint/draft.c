/* SPDX-License-Identifier: Apache-2.0
 *
 * draft.c: writing the files of a checkpoint under a hidden name, by one writer or several.
 *
 * Each piece of a tensor has one CRC-32C. It is linear (base/crc32c.h): a writer adds up what its elements contribute
 * to each, and the first writer the contributions of all. `parts` begin as zeros, so a writer with nothing adds
 * nothing.
 */
#include "checkpoint/draft.h"

#include <inttypes.h>
#include <string.h>

#include "base/fs.h"
#include "base/runtime.h"
#include "checkpoint/draft_files.h"
#include "storage/pieces.h"
#include "storage/storage.h"

#define LOOK_MIN_NS  (2 * TRI_NS_PER_MS)
#define LOOK_MAX_NS  (50 * TRI_NS_PER_MS)
#define LOOK_URL_NS  (500 * TRI_NS_PER_MS)
#define LARGE_NBYTES (UINT64_C(1) << 20)

struct tri_checkpoint_draft {
    tri_checkpoint_draft_setup setup;
    char *folder;
    draft_names names;
    draft_file files[TRI_MANIFEST_MAX_FILES];
    int file_count;
    const char *note;                 /* of this writer, or NULL */
    tri_string notes;                 /* of the others */
    uint64_t put_nbytes, data_nbytes; /* by all writers that are known of; of all slices */
    bool first;
    tri_storage *storage; /* the checkpoint's URL, where writers leave pieces and reports; else NULL */
};

/* --- the two files --- */

/* The name of what this writer puts of a file. */
static tri_status piece_lay(const tri_checkpoint_draft *draft, draft_file *file)
{
    char *name = tri_piece_name(file->name, draft->setup.writer, draft->setup.mark);
    tri_free(file->path);
    file->path = name != NULL ? tri_format("%s/%s", draft->names.temporary, name) : NULL;
    tri_free(name);
    return file->path != NULL ? TRI_OK : TRI_ENOMEM;
}

static tri_status files_open(tri_checkpoint_draft *draft)
{
    const tri_checkpoint_content *content = &draft->setup.content;
    draft->file_count = content->state_count > 0 ? 2 : 1;
    for (int f = 0; f < draft->file_count; f++) {
        draft_file *file = &draft->files[f];
        TRI_TRY(draft_file_lay(file, draft->names.temporary, f == 0 ? TRI_MODEL_FILE : TRI_STATE_FILE,
                               f == 0 ? content->model : content->state,
                               f == 0 ? content->model_count : content->state_count));
        draft->data_nbytes += file->nbytes - file->header.nbytes;
        file->is_piece = draft->setup.pieces >> f & 1;
        if (file->is_piece)
            TRI_TRY(piece_lay(draft, file));
        else if (draft->setup.pieces != 0 && !draft->first) /* the first writer has all of it */
            continue;
        TRI_TRY(tri_fs_file_open(file->path, draft->first || file->is_piece, &file->file));
        if (draft->first)
            TRI_TRY(draft_file_write(file, file->header.text, file->header.nbytes, 0));
        if (file->nbytes >= LARGE_NBYTES && !file->is_piece) /* a piece is read soon, and goes then */
            tri_fs_file_pass_cache(file->file);
    }
    return TRI_OK;
}

static char *mark_path(const tri_checkpoint_draft *draft)
{
    return tri_format("%s/mark-%016" PRIx64, draft->names.temporary, draft->setup.mark);
}

/* Of a writer that sees nobody else's: its own, beside those of others on its host. Its name is that of no step, since
 * the first writer clears those, and the next save has the same, so that what a killed one leaves stays for no longer.
 */
static tri_status own_folder_open(tri_checkpoint_draft *draft)
{
    char *path = tri_format("%s/.pieces-%d.tmp", draft->folder, draft->setup.writer);
    if (path == NULL)
        return TRI_ENOMEM;
    tri_free(draft->names.temporary);
    draft->names.temporary = path;
    TRI_TRY(tri_fs_remove(path));
    return tri_fs_make_folder(path);
}

/* The folder, and the mark by which others know it. */
static tri_status folder_open(tri_checkpoint_draft *draft)
{
    if (!draft->first && draft->setup.pieces != 0)
        return own_folder_open(draft);
    char *mark = mark_path(draft);
    tri_status status = mark == NULL ? TRI_ENOMEM : TRI_OK;
    if (status == TRI_OK && !draft->first && !tri_fs_exists(mark))
        status = tri_fail(TRI_ENOTFOUND, "%s: the folder of rank 0 is another one", draft->names.temporary);
    if (status == TRI_OK && draft->first)
        status = tri_fs_make_folder_lasting(draft->folder);
    if (status == TRI_OK && draft->first)
        status = tri_checkpoint_clear(draft->folder);
    if (status == TRI_OK && draft->first)
        status = tri_fs_make_folder(draft->names.temporary);
    if (status == TRI_OK && draft->first)
        status = tri_fs_append(mark, "", 0);
    tri_free(mark);
    return status;
}

static tri_status draft_open(const tri_checkpoint_draft_setup *setup, bool first, tri_checkpoint_draft **out)
{
    *out = NULL;
    if (setup->step < 0 || setup->place.keep < 1)
        return tri_fail(TRI_EINVAL, "checkpoint: want a step >= 0 and at least 1 to keep, got %" PRId64 " and %" PRId64,
                        setup->step, setup->place.keep);
    tri_checkpoint_draft *draft = tri_alloc_zero(1, sizeof(*draft));
    if (draft == NULL)
        return TRI_ENOMEM;
    draft->setup = *setup;
    draft->first = first;
    draft->folder = tri_strdup(setup->place.folder);
    draft->setup.place.folder = draft->folder;
    tri_status status =
        draft->folder == NULL ? TRI_ENOMEM : draft_names_make(draft->folder, setup->step, &draft->names);
    if (status == TRI_OK)
        status = folder_open(draft);
    if (status == TRI_OK)
        status = files_open(draft);
    if (status == TRI_OK && setup->pieces != 0)
        status = tri_mirror_open(draft->names.visible, &draft->storage);
    if (status == TRI_OK && setup->pieces != 0 && draft->storage == NULL)
        status = tri_fail(TRI_ENOTFOUND, "%s: is at no URL on this host", draft->folder);
    if (status != TRI_OK) {
        tri_checkpoint_draft_close(draft);
        return status;
    }
    *out = draft;
    return TRI_OK;
}

tri_status tri_checkpoint_draft_create(const tri_checkpoint_draft_setup *setup, tri_checkpoint_draft **out)
{
    return draft_open(setup, true, out);
}

tri_status tri_checkpoint_draft_join(const tri_checkpoint_draft_setup *setup, tri_checkpoint_draft **out)
{
    return draft_open(setup, false, out);
}

tri_status tri_checkpoint_draft_put(tri_checkpoint_draft *draft, int slice, int64_t first, int64_t count,
                                    const float *values)
{
    const tri_checkpoint_content *content = &draft->setup.content;
    int number = slice < content->model_count ? 0 : 1;
    TRI_TRY(draft_file_put(&draft->files[number], slice - (number > 0 ? content->model_count : 0),
                           (uint64_t)first * sizeof(float), (size_t)count * sizeof(float), values));
    draft->put_nbytes += (uint64_t)count * sizeof(float);
    return TRI_OK;
}

tri_status tri_checkpoint_draft_sync(tri_checkpoint_draft *draft)
{
    for (int f = 0; f < draft->file_count; f++) {
        tri_fs_file *file = draft->files[f].file;
        if (file == NULL)
            continue;
        tri_status status = draft->files[f].is_piece ? tri_piece_end(&draft->files[f].piece, file) : TRI_OK;
        draft->files[f].file = NULL;
        if (status == TRI_OK && !draft->files[f].is_piece)
            status = tri_fs_file_sync(file);
        tri_status closed = tri_fs_file_close(file);
        TRI_TRY(status);
        TRI_TRY(closed);
        if (draft->files[f].is_piece)
            TRI_TRY(tri_storage_upload(draft->storage, strrchr(draft->files[f].path, '/') + 1, draft->files[f].path));
    }
    return TRI_OK;
}

/* --- what writers tell the first one: see draft_files.h --- */

static char *part_path(const tri_checkpoint_draft *draft, int number)
{
    return draft->storage != NULL ? tri_format(TRI_PIECES_REPORT "%d-%016" PRIx64, number, draft->setup.mark)
                                  : tri_format("%s/part-%d", draft->names.temporary, number);
}

static tri_status report_write(tri_checkpoint_draft *draft, const char *path, const char *text, size_t nbytes)
{
    return draft->storage != NULL ? tri_storage_put(draft->storage, path, text, nbytes)
                                  : tri_fs_write_swap(path, text, nbytes);
}

/* *text (tri_free) NULL: there is none yet. */
static tri_status report_read(tri_checkpoint_draft *draft, const char *path, char **text, size_t *nbytes)
{
    tri_storage_entry entry;
    *text = NULL;
    if (draft->storage == NULL)
        return tri_fs_exists(path) ? tri_fs_read(path, 0, text, nbytes) : TRI_OK;
    tri_status status = tri_storage_stat(draft->storage, path, &entry);
    if (status != TRI_OK)
        return status == TRI_ENOTFOUND ? TRI_OK : status;
    entry.name = (char *)(uintptr_t)path;
    *nbytes = (size_t)entry.nbytes;
    *text = tri_alloc(*nbytes + 1);
    status = *text != NULL ? tri_storage_read(draft->storage, &entry, 0, *nbytes, *text) : TRI_ENOMEM;
    if (status != TRI_OK)
        tri_free(*text);
    *text = status == TRI_OK ? *text : NULL;
    return status;
}

void tri_checkpoint_draft_note(tri_checkpoint_draft *draft, const char *text)
{
    draft->note = text;
}

const char *tri_checkpoint_draft_notes(const tri_checkpoint_draft *draft)
{
    return draft->notes.nbytes > 0 ? tri_string_text(&draft->notes) : "";
}

tri_status tri_checkpoint_draft_tell(tri_checkpoint_draft *draft, int number, tri_status status)
{
    draft_part part = {.status = status, .put_nbytes = draft->put_nbytes};
    if (status != TRI_OK)
        strncpy(part.message, tri_last_error(), sizeof(part.message) - 1);
    else if (draft->note)
        strncpy(part.message, draft->note, sizeof(part.message) - 1);
    char *path = part_path(draft, number);
    tri_string text = {0};
    tri_status written = path == NULL ? TRI_ENOMEM : draft_part_print(&part, draft->files, draft->file_count, &text);
    if (written == TRI_OK)
        written = report_write(draft, path, text.text, text.nbytes);
    tri_string_fini(&text);
    tri_free(path);
    return written;
}

tri_status tri_checkpoint_draft_miss(tri_checkpoint_draft *draft, int number)
{
    char *path = part_path(draft, number);
    tri_status status = path ? report_write(draft, path, "", 0) : TRI_ENOMEM;
    tri_free(path);
    return status;
}

static const char *called(const tri_checkpoint_draft *draft)
{
    return draft->setup.writers ? draft->setup.writers : "rank";
}

/* One that has reported; *reported false: not yet. */
static tri_status part_take(tri_checkpoint_draft *draft, int number, bool *reported)
{
    char *path = part_path(draft, number), *text = NULL;
    size_t nbytes = 0;
    draft_part part = {0};
    tri_status status = path == NULL ? TRI_ENOMEM : report_read(draft, path, &text, &nbytes);
    *reported = text != NULL;
    if (*reported && status == TRI_OK && nbytes == 0)
        status = tri_fail(TRI_EIO, "%s %d could not write its part, nor say why: its own log does", called(draft),
                          number - draft->setup.writers_from);
    else if (*reported && status == TRI_OK)
        status = draft_part_take(text, nbytes, path, draft->files, draft->file_count, &part);
    draft->put_nbytes += part.put_nbytes;
    if (status == TRI_OK && part.status != TRI_OK)
        status = tri_fail(part.status, "%s %d: %s", called(draft), number - draft->setup.writers_from, part.message);
    else if (status == TRI_OK && part.message[0])
        status = tri_string_appendf(&draft->notes, "%s\n", part.message);
    tri_free(text);
    tri_free(path);
    return status;
}

static tri_status late(const tri_checkpoint_draft *draft, const bool *reported, int count)
{
    tri_string names = {0};
    for (int i = 1; i < count; i++)
        if (!reported[i])
            tri_string_appendf(&names, "%s%d", names.nbytes > 0 ? ", " : "", i - draft->setup.writers_from);
    tri_status status = tri_fail(TRI_ETIMEOUT, "%s %s did not tell that its part is on the disk", called(draft),
                                 tri_string_text(&names));
    tri_string_fini(&names);
    return status;
}

/* A first writer that others gave up, and that woke, may have cleared it for a save of its own: nobody tells here. */
static bool is_cleared(const tri_checkpoint_draft *draft)
{
    char *mark = mark_path(draft);
    bool is = mark != NULL && !tri_fs_exists(mark);
    tri_free(mark);
    return is;
}

static tri_status gather(tri_checkpoint_draft *draft, bool *reported, int count, int64_t patience_ms)
{
    int left = count - 1;
    const int64_t most_ns = draft->storage != NULL ? LOOK_URL_NS : LOOK_MAX_NS;
    const int64_t least_ns = draft->storage != NULL ? LOOK_URL_NS : LOOK_MIN_NS;
    int64_t pause_ns = least_ns, deadline_ns = tri_deadline_after_ms(patience_ms);
    while (left > 0) {
        const atomic_bool *given_up = draft->setup.given_up; /* who reported before it was set is still heard */
        bool ends = (given_up != NULL && atomic_load(given_up)) || tri_now_ns() > deadline_ns;
        int before = left;
        for (int i = 1; i < count; i++)
            if (!reported[i]) {
                bool gone = draft->setup.lost && draft->setup.lost(draft->setup.arg, i);
                TRI_TRY(part_take(draft, i, &reported[i]));
                left -= reported[i];
                ends = ends || (gone && !reported[i]);
            }
        if (left > 0 && ends)
            return late(draft, reported, count);
        if (left > 0 && is_cleared(draft))
            return tri_fail(TRI_EIO, "%s: somebody else has cleared it meanwhile", draft->names.temporary);
        if (left < before)
            deadline_ns = tri_deadline_after_ms(patience_ms);
        else
            tri_sleep_ns(pause_ns);
        pause_ns = left < before ? least_ns : 2 * pause_ns < most_ns ? 2 * pause_ns : most_ns;
    }
    return TRI_OK;
}

tri_status tri_checkpoint_draft_gather(tri_checkpoint_draft *draft, int count, int64_t patience_ms)
{
    bool *reported = tri_alloc_zero((size_t)count, sizeof(*reported));
    if (reported == NULL)
        return TRI_ENOMEM;
    tri_status status = gather(draft, reported, count, patience_ms);
    tri_free(reported);
    return status;
}

/* --- the end --- */

const char *tri_checkpoint_draft_model(const tri_checkpoint_draft *draft)
{
    return draft->files[0].path;
}

uint64_t tri_checkpoint_draft_nbytes(const tri_checkpoint_draft *draft)
{
    uint64_t nbytes = 0;
    for (int f = 0; f < draft->file_count; f++)
        nbytes += draft->files[f].nbytes;
    return nbytes;
}

/* What is there besides the files. */
static tri_status talk_remove(const tri_checkpoint_draft *draft)
{
    char **names = NULL;
    size_t count = 0;
    TRI_TRY(tri_fs_list(draft->names.temporary, &names, &count));
    tri_status status = TRI_OK;
    for (size_t i = 0; i < count && status == TRI_OK; i++) {
        if (strncmp(names[i], "part-", 5) != 0 && strncmp(names[i], "mark-", 5) != 0)
            continue;
        char *path = tri_format("%s/%s", draft->names.temporary, names[i]);
        status = path == NULL ? TRI_ENOMEM : tri_fs_remove(path);
        tri_free(path);
    }
    tri_fs_list_free(names, count);
    return status;
}

static tri_status manifest_write(const tri_checkpoint_draft *draft, const tri_checkpoint_manifest *run)
{
    tri_manifest manifest = {.run = *run};
    tri_string text = {0};
    tri_status status = TRI_OK;
    for (int f = 0; f < draft->file_count && status == TRI_OK; f++, manifest.file_count++)
        status = draft_file_describe(&draft->files[f], &manifest.files[f]);
    char *path = tri_format("%s/%s", draft->names.temporary, TRI_MANIFEST_FILE);
    if (status == TRI_OK)
        status = path == NULL ? TRI_ENOMEM : tri_manifest_print(&manifest, &text);
    if (status == TRI_OK)
        status = tri_fs_write_atomic(path, text.text, text.nbytes); /* the folder is synced with it */
    tri_string_fini(&text);
    tri_free(path);
    tri_manifest_fini(&manifest);
    return status;
}

/* Names of all pieces, those of a file one after the other; the first writer may have a file whole. */
static tri_status pieces_name(const tri_checkpoint_draft *draft, tri_string *names)
{
    for (int f = 0; f < draft->file_count; f++)
        for (int w = draft->files[f].is_piece ? 0 : draft->setup.writer_count; w < draft->setup.writer_count; w++) {
            char *name = tri_piece_name(draft->files[f].name, w, draft->setup.mark);
            tri_status status = name != NULL ? tri_string_appendf(names, "%s\n", name) : TRI_ENOMEM;
            tri_free(name);
            TRI_TRY(status);
        }
    return TRI_OK;
}

static tri_status pieces_commit(const tri_checkpoint_draft *draft)
{
    const tri_checkpoint_place *place = &draft->setup.place;
    tri_string names = {0};
    tri_status status = pieces_name(draft, &names);
    if (status == TRI_OK)
        status = tri_pieces_list_write(draft->names.temporary, tri_string_text(&names));
    tri_string_fini(&names);
    TRI_TRY(status);
    TRI_TRY_IN(tri_mirror_push_pieces(draft->names.visible, draft->names.temporary, draft->setup.mark, place->keep,
                                      place->keep_every),
               "not uploaded");
    return TRI_OK;
}

tri_status tri_checkpoint_draft_commit(tri_checkpoint_draft *draft, const tri_checkpoint_manifest *manifest)
{
    if (draft->put_nbytes != draft->data_nbytes)
        return tri_fail(TRI_EINTERNAL, "%s: its writers put %" PRIu64 " bytes of %" PRIu64, draft->names.temporary,
                        draft->put_nbytes, draft->data_nbytes);
    TRI_TRY(talk_remove(draft));
    TRI_TRY(manifest_write(draft, manifest));
    if (draft->storage != NULL)
        return pieces_commit(draft);
    TRI_TRY(draft_put_in_place(&draft->names));
    if (tri_checkpoint_prune(&draft->setup.place, draft->setup.step, NULL) != TRI_OK) /* saved all the same */
        tri_log(TRI_LOG_DEBUG, "old checkpoints stay: %s", tri_last_error());
    TRI_TRY_IN(tri_mirror_push(draft->names.visible, draft->setup.place.keep, draft->setup.place.keep_every),
               "written to %s, not uploaded", draft->names.visible);
    return TRI_OK;
}

void tri_checkpoint_draft_close(tri_checkpoint_draft *draft)
{
    if (draft == NULL)
        return;
    for (int f = 0; f < TRI_MANIFEST_MAX_FILES; f++)
        draft_file_fini(&draft->files[f]);
    if ((draft->first || draft->setup.pieces != 0) &&
        draft->names.temporary != NULL) /* not there any more where it was put in its place */
        tri_file_discard(draft->names.temporary, TRI_EIO);
    draft_names_fini(&draft->names);
    tri_storage_close(draft->storage);
    tri_string_fini(&draft->notes);
    tri_free(draft->folder);
    tri_free(draft);
}
