/* SPDX-License-Identifier: Apache-2.0
 *
 * gpt.c: the tokenizer as GPT-2 was published: encoder.json with vocab.bpe, or vocab.json with merges.txt.
 */
#include <string.h>

#include "base/fs.h"
#include "text/json_read.h"
#include "text/tokenizer_impl.h"

static const char *const pairs[][2] = {{"encoder.json", "vocab.bpe"}, {"vocab.json", "merges.txt"}};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static const char *merges_name(const char *path)
{
    for (size_t i = 0; i < TRI_COUNT_OF(pairs); i++)
        if (strcmp(base_name(path), pairs[i][0]) == 0)
            return pairs[i][1];
    return NULL;
}

static bool gpt_can(const char *path)
{
    return merges_name(path) != NULL;
}

static tri_status read_vocabulary(tri_tokenizer *tokenizer, json_t *root)
{
    const char *text;
    size_t nbytes;
    json_t *value;
    json_object_keylen_foreach(root, text, nbytes, value)
    {
        int32_t id;
        TRI_TRY(tri_json_id(value, json_object_size(root), tokenizer->origin, text, &id));
        TRI_TRY(tri_tokenizer_add(tokenizer, id, text, nbytes));
    }
    const int32_t end = tri_tokenizer_find(tokenizer, TRI_END_OF_TEXT);
    if (end < 0)
        return TRI_OK;
    return tri_tokenizer_add_added(
        tokenizer, (tri_added){.text = TRI_END_OF_TEXT, .nbytes = strlen(TRI_END_OF_TEXT), .id = end, .special = true});
}

/* Lines of "a b"; the first may be "#version: 0.2". */
static tri_status read_merges(tri_tokenizer *tokenizer, const char *path, const char *text, size_t nbytes)
{
    size_t lines = 0, rank = 0, number = 0;
    for (size_t i = 0; i < nbytes; i++)
        lines += text[i] == '\n';
    TRI_TRY(tri_bpe_init(&tokenizer->bpe, lines + 1));
    for (size_t at = 0, end; at < nbytes; at = end + 1) {
        const char *line = text + at, *found = memchr(line, '\n', nbytes - at);
        size_t length = found != NULL ? (size_t)(found - line) : nbytes - at;
        end = at + length;
        number++;
        length -= length > 0 && line[length - 1] == '\r';
        if (length == 0 || (number == 1 && length >= 8 && memcmp(line, "#version", 8) == 0))
            continue;
        const char *gap = memchr(line, ' ', length);
        const size_t left = gap != NULL ? (size_t)(gap - line) : length;
        if (gap == NULL || memchr(gap + 1, ' ', length - left - 1) != NULL)
            return tri_fail(TRI_EFORMAT, "%s:%zu: want two texts with a single space between them", path, number);
        TRI_TRY_IN(tri_tokenizer_merge(tokenizer, rank++, line, left, gap + 1, length - left - 1), "%s:%zu", path,
                   number);
    }
    return TRI_OK;
}

static tri_status read_files(tri_tokenizer *tokenizer, const char *path)
{
    json_t *root;
    char *text = NULL;
    size_t nbytes;
    TRI_TRY(tri_json_load_file(path, &root, NULL, NULL));
    tri_status status = read_vocabulary(tokenizer, root);
    json_decref(root);
    TRI_TRY(status);
    char *merges = tri_format("%.*s%s", (int)(base_name(path) - path), path, merges_name(path));
    status = merges != NULL ? tri_fs_read(merges, 0, &text, &nbytes) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = read_merges(tokenizer, merges, text, nbytes);
    tri_free(merges);
    tri_free(text);
    return status;
}

static tri_status gpt_open(const char *path, tri_tokenizer **out)
{
    tri_tokenizer *tokenizer;
    TRI_TRY(tri_tokenizer_create(&tri_tokenizer_gpt, path, &tokenizer));
    tokenizer->byte_level = true;
    tokenizer->scan = TRI_SCAN_GPT;
    tri_status status = read_files(tokenizer, path);
    if (status == TRI_OK)
        status = tri_tokenizer_finish(tokenizer);
    if (status != TRI_OK) {
        tri_tokenizer_close(tokenizer);
        return status;
    }
    *out = tokenizer;
    return TRI_OK;
}

const tri_tokenizer_ops tri_tokenizer_gpt = {
    .name = "gpt2",
    .does = "encoder.json with vocab.bpe, or vocab.json with merges.txt, as GPT-2 was published",
    .can = gpt_can,
    .open = gpt_open,
};
