/* SPDX-License-Identifier: Apache-2.0
 *
 * pieces.c: see pieces.h. A list begins with the hash of the manifest, so that one of an earlier save is none.
 */
#include "storage/pieces.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "storage/storage_impl.h"

#define MARK       "TRIPIECE"
#define LIST_BEGIN "manifest xxh3 " /* and the hash of that */
#define MIDDLE     ".piece-"
#define MANIFEST   "manifest.json"
#define LIST_MOST  ((uint64_t)64 << 20)
#define COPY_BYTES ((size_t)1 << 20)

typedef struct run {
    uint64_t place, nbytes;
} run;

typedef struct tail {
    uint64_t count; /* of runs */
    char mark[8];
} tail;

/* --- writing --- */

tri_status tri_piece_put(tri_piece *piece, tri_fs_file *file, const void *bytes, size_t nbytes, uint64_t place)
{
    piece->runs.each = sizeof(run);
    run *last = piece->runs.count > 0 ? tri_vector_at(&piece->runs, piece->runs.count - 1) : NULL;
    const run next = {place, nbytes};
    if (last != NULL && last->place + last->nbytes == place)
        last->nbytes += nbytes;
    else if (tri_vector_push(&piece->runs, &next) == NULL)
        return TRI_ENOMEM;
    const uint64_t at = piece->nbytes;
    piece->nbytes += nbytes;
    return tri_fs_file_write(file, bytes, nbytes, at);
}

tri_status tri_piece_end(const tri_piece *piece, tri_fs_file *file)
{
    const size_t nbytes = piece->runs.count * sizeof(run);
    tail end = {.count = piece->runs.count};
    memcpy(end.mark, MARK, sizeof(end.mark));
    if (nbytes > 0)
        TRI_TRY(tri_fs_file_write(file, piece->runs.items, nbytes, piece->nbytes));
    return tri_fs_file_write(file, &end, sizeof(end), piece->nbytes + nbytes);
}

void tri_piece_fini(tri_piece *piece)
{
    tri_vector_fini(&piece->runs);
}

/* --- names --- */

char *tri_piece_name(const char *file, int writer, uint64_t mark)
{
    return tri_format("%s" MIDDLE "%d-%016" PRIx64, file, writer, mark);
}

bool tri_piece_is(const char *name, const char *mark)
{
    const char *middle = strstr(name, MIDDLE), *dash = middle != NULL ? strrchr(middle + strlen(MIDDLE), '-') : NULL;
    return dash != NULL && (mark == NULL || strcmp(dash + 1, mark) == 0);
}

/* The first line of a list that counts (tri_free). */
static tri_status head_make(const char *folder, char **head)
{
    char *path = tri_format("%s/" MANIFEST, folder), *text = NULL;
    size_t nbytes = 0;
    *head = NULL;
    tri_status status = path != NULL ? tri_fs_read(path, 0, &text, &nbytes) : TRI_ENOMEM;
    if (status == TRI_OK)
        *head = tri_format(LIST_BEGIN "%016" PRIx64 "\n", XXH3_64bits(text, nbytes));
    tri_free(text);
    tri_free(path);
    return status == TRI_OK && *head == NULL ? TRI_ENOMEM : status;
}

tri_status tri_pieces_list_write(const char *folder, const char *names)
{
    char *head, *path = tri_format("%s/" TRI_PIECES_LIST, folder);
    TRI_TRY(head_make(folder, &head));
    char *text = tri_format("%s%s", head, names);
    tri_status status = path != NULL && text != NULL ? tri_fs_write_atomic(path, text, strlen(text)) : TRI_ENOMEM;
    tri_free(text);
    tri_free(path);
    tri_free(head);
    return status;
}

/* --- joining --- */

static tri_status part_read(const char *path, uint64_t first, void *bytes, size_t nbytes)
{
    size_t got;
    TRI_TRY(tri_fs_read_part(path, first, bytes, nbytes, &got));
    return got == nbytes ? TRI_OK : tri_fail(TRI_EFORMAT, "%s: a piece of a checkpoint that is cut short", path);
}

static tri_status run_copy(const char *path, uint64_t from, run to, tri_fs_file *file, void *memory)
{
    for (uint64_t done = 0; done < to.nbytes;) {
        const size_t nbytes = to.nbytes - done < COPY_BYTES ? (size_t)(to.nbytes - done) : COPY_BYTES;
        TRI_TRY(part_read(path, from + done, memory, nbytes));
        TRI_TRY(tri_fs_file_write(file, memory, nbytes, to.place + done));
        done += nbytes;
    }
    return TRI_OK;
}

/* The table of runs at the end of a piece (tri_free). */
static tri_status table_read(const char *path, run **runs, uint64_t *count)
{
    uint64_t nbytes, sum = 0;
    tail end;
    *runs = NULL;
    TRI_TRY(tri_fs_nbytes(path, &nbytes));
    if (nbytes < sizeof(end))
        return tri_fail(TRI_EFORMAT, "%s: a piece of a checkpoint that is cut short", path);
    TRI_TRY(part_read(path, nbytes - sizeof(end), &end, sizeof(end)));
    nbytes -= sizeof(end);
    if (memcmp(end.mark, MARK, sizeof(end.mark)) != 0 || end.count > nbytes / sizeof(run))
        return tri_fail(TRI_EFORMAT, "%s: want a piece of a checkpoint, got something else", path);
    nbytes -= end.count * sizeof(run);
    *runs = tri_alloc((size_t)end.count * sizeof(run) + 1);
    *count = end.count;
    tri_status status = *runs != NULL ? part_read(path, nbytes, *runs, (size_t)end.count * sizeof(run)) : TRI_ENOMEM;
    bool fits = true;
    for (uint64_t i = 0; i < end.count && status == TRI_OK && fits; i++) {
        fits = (*runs)[i].nbytes <= nbytes - sum;
        sum += (*runs)[i].nbytes;
    }
    return status == TRI_OK && (!fits || sum != nbytes)
               ? tri_fail(TRI_EFORMAT, "%s: its table has not the lengths of its bytes", path)
               : status;
}

static tri_status piece_copy(const char *path, tri_fs_file *file)
{
    run *runs;
    uint64_t count, from = 0;
    void *memory = tri_alloc(COPY_BYTES);
    tri_status status = table_read(path, &runs, &count);
    if (memory == NULL)
        status = TRI_ENOMEM;
    for (uint64_t i = 0; status == TRI_OK && i < count; from += runs[i++].nbytes)
        status = run_copy(path, from, runs[i], file, memory);
    tri_free(memory);
    tri_free(runs);
    return status;
}

/* Pieces of one file follow each other in the list: the first of them begins it. A piece goes when it is in its file,
 * so that no disk has to hold all of a checkpoint twice. */
static tri_status piece_join(const char *folder, const char *name, bool begins)
{
    tri_fs_file *file = NULL;
    char *path = tri_format("%s/%s", folder, name);
    char *target = tri_format("%s/%.*s", folder, (int)(strstr(name, MIDDLE) - name), name);
    tri_status status = path != NULL && target != NULL ? tri_fs_file_open(target, begins, &file) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = piece_copy(path, file);
    if (status == TRI_OK)
        status = tri_fs_file_sync(file); /* before the piece goes: a power failure loses neither */
    tri_status closed = tri_fs_file_close(file);
    status = status == TRI_OK ? closed : status;
    if (status == TRI_OK)
        status = tri_fs_remove(path);
    tri_free(path);
    tri_free(target);
    return status;
}

/* `names`: the lines of a list, which are cut. */
static tri_status all_join(const char *folder, char *names)
{
    const char *before = "";
    for (char *name = names, *end; *name != 0; before = name, name = end + 1) {
        end = strchr(name, '\n');
        if (end == NULL)
            return tri_fail(TRI_EFORMAT, "%s/" TRI_PIECES_LIST ": a line without an end", folder);
        *end = 0;
        const char *middle = strstr(name, MIDDLE);
        if (!tri_piece_is(name, NULL) || !tri_storage_name_is_safe(name) || strchr(name, '/') != NULL)
            return tri_fail(TRI_EFORMAT, "%s/" TRI_PIECES_LIST ": '%.100s' is the name of no piece", folder, name);
        const size_t length = (size_t)(middle - name) + strlen(MIDDLE);
        TRI_TRY(piece_join(folder, name, strncmp(before, name, length) != 0));
    }
    return TRI_OK;
}

/* Pieces, also those of other saves, and their list. */
static tri_status pieces_remove(const char *folder)
{
    char **names = NULL;
    size_t count = 0;
    TRI_TRY(tri_fs_list(folder, &names, &count));
    tri_status status = TRI_OK;
    for (size_t i = 0; i < count && status == TRI_OK; i++) {
        if (!tri_piece_is(names[i], NULL) && strcmp(names[i], TRI_PIECES_LIST) != 0)
            continue;
        char *path = tri_format("%s/%s", folder, names[i]);
        status = path != NULL ? tri_fs_remove(path) : TRI_ENOMEM;
        tri_free(path);
    }
    tri_fs_list_free(names, count);
    return status;
}

tri_status tri_pieces_join(const char *folder)
{
    char *list = tri_format("%s/" TRI_PIECES_LIST, folder), *text = NULL, *head = NULL;
    tri_status status = list != NULL ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK && tri_fs_exists(list)) {
        status = tri_fs_read(list, LIST_MOST, &text, NULL);
        if (status == TRI_OK &&
            strncmp(text, LIST_BEGIN, strlen(LIST_BEGIN)) != 0) { /* data with a file of that name */
            tri_free(list);
            tri_free(text);
            return TRI_OK;
        }
        if (status == TRI_OK)
            status = head_make(folder, &head);
        if (status == TRI_OK && strncmp(text, head, strlen(head)) == 0)
            status = all_join(folder, text + strlen(head));
    }
    if (status == TRI_OK)
        status = pieces_remove(folder);
    tri_free(list);
    tri_free(text);
    tri_free(head);
    return status;
}
