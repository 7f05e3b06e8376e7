/* SPDX-License-Identifier: Apache-2.0
 *
 * tokens_lines.c: JSON lines as token files: tokenized once, into a folder that is kept beside the data and is mapped
 * from then on. Its name is a hash of all that decides the tokens: files, tokenizer, field and the part for validation.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/runtime.h"
#include "data/lines/lines.h"
#include "data/prepare.h"
#include "data/shards.h"
#include "data/tokens.h"

#define SHARD_TOKENS (INT64_C(1) << 25)
#define INDEX_HINT   "data.index=FOLDER keeps them elsewhere"

bool tri_tokens_is_lines(const tri_data_config *config)
{
    tri_shards shards;
    if (!tri_shards_can(config->path, TRI_LINES_ENDING) ||
        tri_shards_find(config->path, TRI_PART_TRAIN, TRI_LINES_ENDING, &shards) != TRI_OK)
        return false;
    const bool have = tri_lines_have_text(*(char **)tri_vector_at(&shards.paths, 0), config->text_field);
    tri_shards_fini(&shards);
    return have;
}

static tri_status file_hash(const char *path, uint64_t *hash)
{
    uint64_t words[3] = {*hash};
    int64_t changed = 0;
    if (!tri_fs_is_folder(path))
        TRI_TRY(tri_fs_nbytes(path, &words[1]));
    TRI_TRY(tri_fs_changed(path, &changed));
    words[2] = (uint64_t)changed;
    *hash = XXH3_64bits_withSeed(path, strlen(path), XXH3_64bits(words, sizeof(words)));
    return TRI_OK;
}

static tri_status name_hash(const tri_prepare_setup *setup, uint64_t *hash)
{
    char text[64];
    snprintf(text, sizeof(text), "tokens 1 %.17g", setup->validation);
    *hash = XXH3_64bits(text, strlen(text));
    *hash = XXH3_64bits_withSeed(setup->field, strlen(setup->field), *hash);
    *hash = XXH3_64bits_withSeed(setup->tokenizer, strlen(setup->tokenizer), *hash);
    if (tri_fs_exists(setup->tokenizer))
        TRI_TRY(file_hash(setup->tokenizer, hash));
    for (int f = 0; f < setup->file_count; f++)
        TRI_TRY(file_hash(setup->files[f], hash));
    return TRI_OK;
}

static bool continues(void *arg, const tri_prepare_counts *counts)
{
    (void)arg;
    (void)counts;
    return tri_stop_signal() == 0;
}

/* Into a folder beside the one that is wanted, which then gets its name: all or nothing. */
static tri_status tokens_make(tri_prepare_setup *setup, const char *folder)
{
    tri_prepare_counts counts;
    char *draft = tri_format("%s.draft", folder);
    if (draft == NULL)
        return TRI_ENOMEM;
    setup->folder = draft;
    tri_status status = tri_fs_remove(draft);
    if (status == TRI_OK)
        status = tri_prepare(setup, &counts);
    if (status == TRI_OK)
        status = tri_fs_rename(draft, folder);
    if (status == TRI_OK)
        tri_log(TRI_LOG_INFO, "data: %s: %" PRId64 " training and %" PRId64 " validation tokens, kept in %s",
                setup->files[0], counts.tokens[0], counts.tokens[1], folder);
    tri_free(draft);
    return status;
}

/* One process of a host makes it, the others wait. */
static tri_status tokens_find(tri_prepare_setup *setup, const char *index_folder, char **folder)
{
    char what[32];
    uint64_t hash;
    TRI_TRY(name_hash(setup, &hash));
    snprintf(what, sizeof(what), "tokens-%016" PRIx64, hash);
    TRI_TRY_IN(tri_index_path(index_folder, setup->files[0], what, folder),
               "the tokens of JSON lines (" INDEX_HINT ")");
    if (tri_fs_is_folder(*folder))
        return TRI_OK;
    tri_fs_lock lock;
    tri_status status = tri_index_lock(*folder, &lock);
    if (status == TRI_OK && !tri_fs_is_folder(*folder))
        status = tokens_make(setup, *folder);
    tri_fs_lock_release(&lock);
    return status;
}

/* The folder of some of the files. */
static tri_status shards_tokens(const tri_data_config *config, const tri_shards *shards, const char *tokenizer,
                                double validation, char **folder)
{
    const int cores = config->threads > 0 ? (int)config->threads : (int)tri_cores_online();
    tri_prepare_setup setup = {.files = (const char *const *)shards->paths.items,
                               .file_count = (int)shards->paths.count,
                               .tokenizer = tokenizer,
                               .field = config->text_field,
                               .validation = validation,
                               .threads = cores,
                               .shard_tokens = SHARD_TOKENS,
                               .progress = continues};
    return tokens_find(&setup, config->index, folder);
}

tri_status tri_tokens_open_lines(const tri_data_config *config, bool test, char **folder, bool *whole)
{
    tri_shards training, own;
    char *trained = NULL, *tokenizer = NULL;
    const char *name = strcmp(config->tokenizer, "auto") != 0 ? config->tokenizer
                       : config->own_tokenizer != NULL        ? config->own_tokenizer
                                                              : "char";
    *folder = NULL;
    *whole = false;
    TRI_TRY(tri_shards_find(config->path, TRI_PART_TRAIN, TRI_LINES_ENDING, &training));
    tri_status status = tri_shards_find(config->path, TRI_PART_TEST, TRI_LINES_ENDING, &own);
    if (status == TRI_OK && !own.own) {
        tri_shards_fini(&own);
        status = tri_shards_find(config->path, TRI_PART_VALIDATION, TRI_LINES_ENDING, &own);
    }
    if (status == TRI_OK)
        status = shards_tokens(config, &training, name, own.own ? 0 : tri_tokens_test_fraction(config), &trained);
    if (status == TRI_OK && test && own.own) { /* by the tokenizer of the training files */
        *whole = true;
        tokenizer = tri_format("%s/" TRI_TOKENS_TOKENIZER, trained);
        status = tokenizer != NULL ? shards_tokens(config, &own, tokenizer, 0, folder) : TRI_ENOMEM;
        tri_free(trained);
    } else {
        *folder = trained;
    }
    tri_free(tokenizer);
    tri_shards_fini(&training);
    tri_shards_fini(&own);
    return status;
}
