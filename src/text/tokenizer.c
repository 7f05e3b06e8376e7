/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.c: the table of kinds, opening one of them by name, and what can be asked of it.
 */
#include "text/tokenizer.h"

#include <string.h>

#include "base/fs.h"
#include "text/tokenizer_impl.h"

static const tri_tokenizer_ops *const kinds[] = {&tri_tokenizer_byte, &tri_tokenizer_char, &tri_tokenizer_gpt,
                                                 &tri_tokenizer_hf};

static tri_status open_file(const char *path, tri_tokenizer **out)
{
    for (size_t i = 0; i < TRI_COUNT_OF(kinds); i++)
        if (kinds[i]->can(path))
            return kinds[i]->open(path, out);
    return tri_tokenizer_hf.open(path, out);
}

static tri_status open_folder(const char *folder, tri_tokenizer **out)
{
    static const char *const names[] = {"tokenizer.json", "encoder.json", "vocab.json"};
    for (size_t i = 0; i < TRI_COUNT_OF(names); i++) {
        char *path = tri_format("%s/%s", folder, names[i]);
        if (path == NULL)
            return TRI_ENOMEM;
        const bool there = tri_fs_exists(path);
        tri_status status = there ? open_file(path, out) : TRI_OK;
        tri_free(path);
        if (there)
            return status;
    }
    return tri_fail(TRI_ENOTFOUND, "no tokenizer in %s: looked for tokenizer.json, encoder.json, vocab.json", folder);
}

/* With the ends that are stated beside it. */
static tri_status open_path(const char *path, tri_tokenizer **out)
{
    const char *slash = strrchr(path, '/');
    const bool folder = tri_fs_is_folder(path);
    TRI_TRY(folder ? open_folder(path, out) : open_file(path, out));
    (*out)->folder = folder          ? tri_strdup(path)
                     : slash != NULL ? tri_strndup(path, (size_t)(slash - path + 1))
                                     : tri_strdup(".");
    tri_status status = (*out)->folder != NULL ? tri_tokenizer_read_ends(*out, (*out)->folder) : TRI_ENOMEM;
    if (status != TRI_OK) {
        tri_tokenizer_close(*out);
        *out = NULL;
    }
    return status;
}

tri_status tri_tokenizer_open(const char *name, tri_tokenizer **out)
{
    *out = NULL;
    if (strcmp(name, tri_tokenizer_byte.name) == 0 || strcmp(name, tri_tokenizer_char.name) == 0)
        return open_file(name, out);
    if (tri_fs_exists(name))
        return open_path(name, out);
    return tri_fail(TRI_ENOTFOUND,
                    "no tokenizer '%s': want byte, char, or the path of a tokenizer.json, of an encoder.json with its "
                    "vocab.bpe, or of a folder with one of them",
                    name);
}

tri_status tri_tokenizer_save(const tri_tokenizer *tokenizer, const char *path)
{
    tri_string text = {0};
    tri_status status = TRI_OK;
    if (tokenizer->source == NULL)
        status = tri_tokenizer_print(tokenizer, &text);
    if (status == TRI_OK && tokenizer->source == NULL)
        status = tri_fs_write_atomic(path, text.text, text.nbytes);
    else if (status == TRI_OK)
        status = tri_fs_write_atomic(path, tokenizer->source, tokenizer->source_nbytes);
    tri_string_fini(&text);
    return status == TRI_OK && tokenizer->ends_stated ? tri_tokenizer_save_ends(tokenizer, path) : status;
}

const char *tri_tokenizer_kind(const tri_tokenizer *tokenizer)
{
    return tokenizer->ops->name;
}

int64_t tri_tokenizer_count(const tri_tokenizer *tokenizer)
{
    return tri_vocabulary_count(&tokenizer->names);
}

bool tri_tokenizer_same(const tri_tokenizer *left, const tri_tokenizer *right)
{
    const int64_t count = tri_tokenizer_count(left);
    if (tri_tokenizer_count(right) != count)
        return false;
    for (int32_t id = 0; id < count; id++) {
        size_t nbytes = 0, other_nbytes = 0;
        const char *token = tri_tokenizer_token(left, id, &nbytes);
        const char *other = tri_tokenizer_token(right, id, &other_nbytes);
        if (!token != !other || (token && (nbytes != other_nbytes || memcmp(token, other, nbytes) != 0)))
            return false;
    }
    return true;
}

int32_t tri_tokenizer_end(const tri_tokenizer *tokenizer)
{
    return tokenizer->end;
}

int32_t tri_tokenizer_find(const tri_tokenizer *tokenizer, const char *text)
{
    return tri_vocabulary_find(&tokenizer->names, text, strlen(text));
}

const char *tri_tokenizer_token(const tri_tokenizer *tokenizer, int32_t id, size_t *nbytes)
{
    return tri_vocabulary_text(&tokenizer->names, id, nbytes);
}

bool tri_tokenizer_is_special(const tri_tokenizer *tokenizer, int32_t id)
{
    const tri_added *added = tokenizer->added.items;
    for (size_t i = 0; i < tokenizer->added.count; i++)
        if (added[i].id == id)
            return added[i].special;
    return false;
}

static bool is_cut(const tri_tokenizer *tokenizer, const unsigned char *text, size_t nbytes, size_t at)
{
    if (!tokenizer->cuts_anywhere) /* behind an added token a space may be put, or be left out */
        return tri_scan_is_cut(tokenizer->scan, text, nbytes, at) &&
               !tri_added_ends(&tokenizer->raw, (const char *)text, at) &&
               !tri_added_ends(&tokenizer->normalized, (const char *)text, at);
    if ((text[at] & 0xc0) == 0x80)
        return false;
    return !tri_added_reaches(&tokenizer->raw, (const char *)text, nbytes, at) &&
           !tri_added_reaches(&tokenizer->normalized, (const char *)text, nbytes, at);
}

size_t tri_tokenizer_cut(const tri_tokenizer *tokenizer, const void *text, size_t nbytes, size_t from)
{
    if (from == 0 || from >= nbytes || tokenizer->cuts_never)
        return from == 0 ? 0 : nbytes;
    while (from < nbytes && !is_cut(tokenizer, text, nbytes, from))
        from++;
    return from;
}
