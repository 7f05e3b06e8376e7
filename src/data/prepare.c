/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare.c: threads take pieces of about a MiB, cut where no token reaches across; the caller's thread writes them in
 * their order. Neither the cuts nor the order depend on the threads.
 */
#include "data/prepare.h"

#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "base/runtime.h"
#include "data/lines/lines.h"

#define PIECE_NBYTES ((size_t)1 << 20)
#define THREADS_MAX  256
#define AHEAD        4 /* pieces of a thread that may wait to be written */
#define WAIT_MS      100
#define HIDDEN       ".preparing"

/* About a MiB of one file; the places are cut where it is safe when a thread takes it. */
typedef struct piece {
    int file;
    size_t first, end; /* of the part of the file that it belongs to */
    size_t from, to;   /* of the piece, before they are moved to a cut */
    bool validation;
} piece;

typedef struct result {
    tri_ids ids;
    bool done;
} result;

typedef struct work {
    const tri_prepare_setup *setup;
    tri_prepare_counts *counts;
    tri_source *files;
    tri_tokenizer *tokenizer;
    char *hidden; /* folder that is filled before anything shows */
    tri_vector pieces;
    tri_shard_writer writers[2];
    result *results; /* [result_count] piece i in slot i mod result_count */
    size_t result_count;
    tri_thread *threads[THREADS_MAX];
    int started;
    tri_mutex mutex; /* guards the rest and `done` of the results */
    tri_cond moved;
    size_t taken, written; /* pieces */
    bool stop;
    tri_status status; /* the first failure of a thread */
    char text[TRI_ERROR_NBYTES];
} work;

/* Its lines are documents. */
static bool is_lines(const work *all, int file)
{
    return !all->setup->as_text && tri_path_ends_in(all->setup->files[file], TRI_LINES_ENDING);
}

static const char *field_of(const work *all)
{
    return all->setup->field != NULL ? all->setup->field : "text";
}

static size_t safe_cut(const work *all, int file, size_t at)
{
    const tri_source *source = &all->files[file];
    return is_lines(all, file) ? tri_lines_cut(source, at)
                               : tri_tokenizer_cut(all->tokenizer, source->bytes, source->nbytes, at);
}

static tri_status add_end(const tri_tokenizer *tokenizer, tri_ids *ids)
{
    const int32_t end = tri_tokenizer_end(tokenizer);
    if (end < 0 || (ids->count > 0 && ids->items[ids->count - 1] == end))
        return TRI_OK;
    return tri_ids_push(ids, end);
}

static size_t cut_at(const work *all, const piece *part, size_t at)
{
    if (at == part->first || at == part->end)
        return at;
    const size_t cut = safe_cut(all, part->file, at);
    return cut < part->end ? cut : part->end;
}

/* Each line is a text, with the tokens around it. */
static tri_status encode_lines(const work *all, const piece *part, tri_encoder *encoder, tri_ids *ids)
{
    const tri_source *file = &all->files[part->file];
    tri_lines lines = {file, cut_at(all, part, part->from), cut_at(all, part, part->to)};
    tri_string text = {0};
    const char *line;
    size_t nbytes;
    tri_status status = TRI_OK;
    ids->count = 0;
    while (status == TRI_OK && tri_lines_next(&lines, &line, &nbytes)) {
        tri_string_clear(&text);
        status = tri_line_text(file, line, nbytes, field_of(all), &text);
        if (status == TRI_OK)
            status = tri_encode(encoder, tri_string_text(&text), text.nbytes, TRI_ENCODE_BEGIN | TRI_ENCODE_END, ids);
        if (status == TRI_OK)
            status = add_end(all->tokenizer, ids);
    }
    tri_string_fini(&text);
    return status;
}

static tri_status encode_piece(const work *all, const piece *part, tri_encoder *encoder, tri_ids *ids)
{
    const tri_source *file = &all->files[part->file];
    const size_t from = cut_at(all, part, part->from), to = cut_at(all, part, part->to);
    ids->count = 0;
    const bool begins = part->from == 0, ends = part->to == file->nbytes;
    unsigned flags = (begins ? TRI_ENCODE_BEGIN : TRI_ENCODE_RESUME) | (ends ? TRI_ENCODE_END : 0u);
    TRI_TRY_IN(tri_encode(encoder, file->bytes + from, to - from, flags, ids), "%s", file->origin);
    return ends ? add_end(all->tokenizer, ids) : TRI_OK;
}

static void note_failure(work *all, tri_status status)
{
    tri_mutex_lock(&all->mutex);
    if (all->status == TRI_OK)
        snprintf(all->text, sizeof(all->text), "%s", tri_last_error());
    if (all->status == TRI_OK)
        all->status = status;
    tri_cond_broadcast(&all->moved);
    tri_mutex_unlock(&all->mutex);
}

/* The next piece, once there is room for what it becomes; false at the end. */
static bool take_piece(work *all, size_t *number)
{
    tri_mutex_lock(&all->mutex);
    while (!all->stop && all->status == TRI_OK && all->taken < all->pieces.count &&
           all->taken >= all->written + all->result_count)
        tri_cond_wait(&all->moved, &all->mutex, tri_deadline_after_ms(WAIT_MS));
    const bool taken = !all->stop && all->status == TRI_OK && all->taken < all->pieces.count;
    *number = all->taken;
    all->taken += taken;
    tri_mutex_unlock(&all->mutex);
    return taken;
}

static void thread_body(void *arg)
{
    work *all = arg;
    tri_encoder *encoder;
    size_t number;
    tri_status status = tri_encoder_create(all->tokenizer, &encoder);
    while (status == TRI_OK && take_piece(all, &number)) {
        result *slot = &all->results[number % all->result_count];
        const piece *part = tri_vector_at(&all->pieces, number);
        status = is_lines(all, part->file) ? encode_lines(all, part, encoder, &slot->ids)
                                           : encode_piece(all, part, encoder, &slot->ids);
        if (status != TRI_OK)
            break;
        tri_mutex_lock(&all->mutex);
        slot->done = true;
        tri_cond_broadcast(&all->moved);
        tri_mutex_unlock(&all->mutex);
    }
    if (status != TRI_OK)
        note_failure(all, status);
    else
        tri_encoder_destroy(encoder);
}

/* --- the caller's thread --- */

static bool continues(work *all)
{
    const tri_prepare_setup *setup = all->setup;
    for (int s = 0; s < 2; s++) {
        all->counts->tokens[s] = all->writers[s].total + all->writers[s].count;
        all->counts->shards[s] = all->writers[s].shards;
    }
    return setup->progress == NULL || setup->progress(setup->arg, all->counts);
}

static tri_status wait_for(work *all, result *slot)
{
    tri_mutex_lock(&all->mutex);
    tri_status status = TRI_OK;
    while (!slot->done && all->status == TRI_OK && status == TRI_OK) {
        if (!tri_cond_wait(&all->moved, &all->mutex, tri_deadline_after_ms(WAIT_MS)) && !continues(all))
            status = tri_fail(TRI_ECANCELED, "stopped");
    }
    if (!slot->done && status == TRI_OK)
        status = tri_fail_copy(all->status, all->text);
    tri_mutex_unlock(&all->mutex);
    return status;
}

static tri_status write_pieces(work *all)
{
    for (size_t i = 0; i < all->pieces.count; i++) {
        const piece *part = tri_vector_at(&all->pieces, i);
        result *slot = &all->results[i % all->result_count];
        TRI_TRY(wait_for(all, slot));
        TRI_TRY(tri_shard_write(&all->writers[part->validation], slot->ids.items, slot->ids.count));
        all->counts->nbytes += (int64_t)(part->to - part->from);
        if (!continues(all))
            return tri_fail(TRI_ECANCELED, "stopped");
        tri_mutex_lock(&all->mutex);
        slot->done = false;
        all->written++;
        tri_cond_broadcast(&all->moved);
        tri_mutex_unlock(&all->mutex);
    }
    TRI_TRY(tri_shard_flush(&all->writers[0]));
    TRI_TRY(tri_shard_flush(&all->writers[1]));
    continues(all);
    return TRI_OK;
}

static tri_status run_threads(work *all)
{
    const int count = all->setup->threads < THREADS_MAX ? all->setup->threads : THREADS_MAX;
    all->result_count = (size_t)count * AHEAD;
    all->results = tri_alloc_zero(all->result_count, sizeof(*all->results));
    tri_status status = all->results != NULL ? TRI_OK : TRI_ENOMEM;
    for (int i = 0; i < count && status == TRI_OK; i++) {
        status = tri_thread_start(&all->threads[i], "tokenize", thread_body, all);
        all->started += status == TRI_OK;
    }
    if (status == TRI_OK)
        status = write_pieces(all);
    tri_mutex_lock(&all->mutex);
    all->stop = true;
    tri_cond_broadcast(&all->moved);
    tri_mutex_unlock(&all->mutex);
    for (int i = 0; i < all->started; i++)
        tri_thread_join(all->threads[i]);
    return status;
}

/* --- before and after --- */

static tri_status open_files(work *all)
{
    const tri_prepare_setup *setup = all->setup;
    all->files = tri_alloc_zero((size_t)setup->file_count, sizeof(*all->files));
    if (all->files == NULL)
        return TRI_ENOMEM;
    for (int f = 0; f < setup->file_count; f++) {
        TRI_TRY(tri_source_open(&all->files[f], setup->files[f]));
        if (!setup->as_text && !is_lines(all, f))
            TRI_TRY(tri_text_check(&all->files[f], "--as-text"));
        all->counts->nbytes_all += (int64_t)all->files[f].nbytes;
    }
    return all->counts->nbytes_all > 0 ? TRI_OK : tri_fail(TRI_EFORMAT, "%s: there is no text", setup->files[0]);
}

static tri_status open_tokenizer(work *all)
{
    const tri_prepare_setup *setup = all->setup;
    if (strcmp(setup->tokenizer, "char") != 0)
        return tri_tokenizer_open(setup->tokenizer, &all->tokenizer);
    const void **texts = tri_alloc_zero((size_t)setup->file_count + 1, sizeof(*texts));
    size_t *nbytes = tri_alloc_zero((size_t)setup->file_count + 1, sizeof(*nbytes));
    tri_status status = texts != NULL && nbytes != NULL ? TRI_OK : TRI_ENOMEM;
    tri_string characters = {0}; /* of all .jsonl files */
    bool several = setup->file_count > 1;
    for (int f = 0; f < setup->file_count && status == TRI_OK; f++) {
        several = several || is_lines(all, f);
        if (is_lines(all, f)) {
            status = tri_lines_characters(&all->files[f], field_of(all), &characters);
            continue;
        }
        texts[f] = all->files[f].bytes;
        nbytes[f] = all->files[f].nbytes;
    }
    if (status == TRI_OK) {
        texts[setup->file_count] = tri_string_text(&characters);
        nbytes[setup->file_count] = characters.nbytes;
        status = tri_tokenizer_chars(texts, nbytes, setup->file_count + 1, several, &all->tokenizer);
    }
    tri_string_fini(&characters);
    tri_free(texts);
    tri_free(nbytes);
    return status;
}

static tri_status add_pieces(work *all, int file, size_t first, size_t end, bool validation)
{
    for (size_t from = first; from < end; from += PIECE_NBYTES) {
        piece part = {file, first, end, from, end - from > PIECE_NBYTES ? from + PIECE_NBYTES : end, validation};
        if (tri_vector_push(&all->pieces, &part) == NULL)
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

/* All texts one after the other; where the validation begins, one is cut. */
static tri_status plan_pieces(work *all)
{
    const double training = (double)all->counts->nbytes_all * (1 - all->setup->validation);
    size_t before = 0, wanted = (size_t)training;
    for (int f = 0; f < all->setup->file_count; f++) {
        const tri_source *file = &all->files[f];
        size_t split = wanted <= before ? 0 : wanted - before < file->nbytes ? wanted - before : file->nbytes;
        split = safe_cut(all, f, split);
        TRI_TRY(add_pieces(all, f, 0, split, false));
        TRI_TRY(add_pieces(all, f, split, file->nbytes, true));
        before += file->nbytes;
    }
    return TRI_OK;
}

static tri_status make_folder(work *all)
{
    const char *folder = all->setup->folder;
    char **found;
    size_t count;
    TRI_TRY(tri_fs_make_folder(folder));
    for (int s = 0; s < 2; s++) {
        TRI_TRY(tri_tokens_find(folder, s == 1, &found, &count));
        tri_status status =
            count == 0 ? TRI_OK
                       : tri_fail(TRI_EINVAL, "%s is there already: want a folder without token files", found[0]);
        tri_fs_list_free(found, count);
        TRI_TRY(status);
    }
    all->hidden = tri_format("%s/%s", folder, HIDDEN);
    if (all->hidden == NULL)
        return TRI_ENOMEM;
    TRI_TRY(tri_fs_remove(all->hidden));
    return tri_fs_make_folder(all->hidden);
}

static void set_writers(work *all)
{
    tri_prepare_counts *counts = all->counts;
    counts->vocabulary = tri_tokenizer_count(all->tokenizer);
    counts->separated = tri_tokenizer_end(all->tokenizer) >= 0;
    counts->each = counts->vocabulary <= 65536 ? 2 : 4;
    for (int s = 0; s < 2; s++)
        all->writers[s] = (tri_shard_writer){.folder = all->hidden,
                                             .name = s == 0 ? TRI_TOKENS_TRAINING : TRI_TOKENS_VALIDATION,
                                             .each = counts->each,
                                             .shard_tokens = all->setup->shard_tokens,
                                             .vocabulary = counts->vocabulary,
                                             .end = tri_tokenizer_end(all->tokenizer)};
}

/* Everything that was written moves to its place. */
static tri_status show(work *all)
{
    char **names;
    size_t count;
    TRI_TRY(tri_fs_list(all->hidden, &names, &count));
    tri_status status = TRI_OK;
    for (size_t i = 0; i < count && status == TRI_OK; i++) {
        char *from = tri_format("%s/%s", all->hidden, names[i]);
        char *to = tri_format("%s/%s", all->setup->folder, names[i]);
        status = from != NULL && to != NULL ? tri_fs_rename(from, to) : TRI_ENOMEM;
        tri_free(from);
        tri_free(to);
    }
    tri_fs_list_free(names, count);
    return status == TRI_OK ? tri_fs_sync(all->setup->folder) : status;
}

static tri_status save_tokenizer(const work *all)
{
    char *path = tri_format("%s/%s", all->hidden, TRI_TOKENS_TOKENIZER);
    tri_status status = path != NULL ? tri_tokenizer_save(all->tokenizer, path) : TRI_ENOMEM;
    tri_free(path);
    return status;
}

static tri_status run(work *all)
{
    TRI_TRY(open_files(all));
    TRI_TRY(open_tokenizer(all));
    TRI_TRY(plan_pieces(all));
    TRI_TRY(make_folder(all));
    set_writers(all);
    TRI_TRY(save_tokenizer(all));
    TRI_TRY(run_threads(all));
    return show(all);
}

/* What was hidden goes; the first failure stays the message. */
static void clean(work *all, tri_status status)
{
    char text[TRI_ERROR_NBYTES];
    snprintf(text, sizeof(text), "%s", tri_last_error());
    if (all->hidden != NULL && tri_fs_remove(all->hidden) != TRI_OK && status != TRI_OK)
        (void)tri_fail_copy(status, text);
    for (size_t i = 0; all->results != NULL && i < all->result_count; i++)
        tri_ids_fini(&all->results[i].ids);
    for (int f = 0; all->files != NULL && f < all->setup->file_count; f++)
        tri_source_fini(&all->files[f]);
    for (int s = 0; s < 2; s++)
        tri_free(all->writers[s].bytes);
    tri_free(all->results);
    tri_free(all->files);
    tri_free(all->hidden);
    tri_vector_fini(&all->pieces);
    tri_tokenizer_close(all->tokenizer);
    tri_cond_fini(&all->moved);
    tri_mutex_fini(&all->mutex);
}

tri_status tri_prepare(const tri_prepare_setup *setup, tri_prepare_counts *counts)
{
    work *all = tri_alloc_zero(1, sizeof(*all));
    if (all == NULL)
        return TRI_ENOMEM;
    *counts = (tri_prepare_counts){0};
    all->setup = setup;
    all->counts = counts;
    all->pieces.each = sizeof(piece);
    tri_mutex_init(&all->mutex);
    tri_cond_init(&all->moved);
    tri_status status = run(all);
    clean(all, status);
    tri_free(all);
    return status;
}
