/* SPDX-License-Identifier: Apache-2.0
 *
 * ends.c: the tokens that end a text, as the files beside a tokenizer state them: eos_token of tokenizer_config.json
 * and special_tokens_map.json, eos_token_id of generation_config.json and config.json.
 *
 * All that are stated end a text. The first one, in this order, separates documents. An id counts only if it is an
 * added token: a config.json may belong to another vocabulary.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "text/json_read.h"
#include "text/tokenizer_impl.h"

static const struct {
    const char *file, *key;
} places[] = {{"tokenizer_config.json", "eos_token"},
              {"special_tokens_map.json", "eos_token"},
              {"generation_config.json", "eos_token_id"},
              {"config.json", "eos_token_id"}};

static bool is_added(const tri_tokenizer *tokenizer, int64_t id)
{
    const tri_added *added = tokenizer->added.items;
    for (size_t i = 0; i < tokenizer->added.count; i++)
        if (added[i].id == id)
            return true;
    return false;
}

bool tri_tokenizer_is_end(const tri_tokenizer *tokenizer, int32_t id)
{
    for (size_t i = 0; i < tokenizer->ends.count; i++)
        if (tokenizer->ends.items[i] == id)
            return true;
    return false;
}

static tri_status add_end(tri_tokenizer *tokenizer, int32_t id)
{
    if (!tokenizer->ends_stated) { /* what its name suggested */
        tokenizer->ends.count = 0;
        tokenizer->end = id;
        tokenizer->ends_stated = true;
    }
    return tri_tokenizer_is_end(tokenizer, id) ? TRI_OK : tri_ids_push(&tokenizer->ends, id);
}

static tri_status read_id(tri_tokenizer *tokenizer, const json_t *value, const char *origin)
{
    const json_int_t id = json_integer_value(value);
    if (!json_is_integer(value))
        return tri_fail(TRI_EFORMAT, "%s: eos_token_id: want a whole number or a list of them", origin);
    if (id >= 0 && id <= INT32_MAX && is_added(tokenizer, id))
        return add_end(tokenizer, (int32_t)id);
    tri_log(TRI_LOG_WARN, "%s: eos_token_id %lld is not an added token of %s: it does not end a text", origin,
            (long long)id, tokenizer->origin);
    return TRI_OK;
}

/* "</s>", or {"content": "</s>", ...}. */
static tri_status read_text(tri_tokenizer *tokenizer, const json_t *value, const char *origin)
{
    const char *text = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    if (text == NULL)
        return tri_fail(TRI_EFORMAT, "%s: eos_token: want a text or an object with its content", origin);
    const int32_t id = tri_tokenizer_find(tokenizer, text);
    return id >= 0 ? add_end(tokenizer, id) : TRI_OK;
}

static tri_status read_value(tri_tokenizer *tokenizer, const char *key, const json_t *value, const char *origin)
{
    if (value == NULL || json_is_null(value))
        return TRI_OK;
    if (strcmp(key, "eos_token") == 0)
        return read_text(tokenizer, value, origin);
    if (!json_is_array(value))
        return read_id(tokenizer, value, origin);
    for (size_t i = 0; i < json_array_size(value); i++)
        TRI_TRY(read_id(tokenizer, json_array_get(value, i), origin));
    return TRI_OK;
}

static tri_status read_file(tri_tokenizer *tokenizer, const char *path, const char *key)
{
    json_t *root;
    if (!tri_fs_exists(path))
        return TRI_OK;
    TRI_TRY(tri_json_load_file(path, &root, NULL, NULL));
    tri_status status = read_value(tokenizer, key, json_object_get(root, key), path);
    json_decref(root);
    return status;
}

tri_status tri_tokenizer_read_ends(tri_tokenizer *tokenizer, const char *folder)
{
    for (size_t i = 0; i < TRI_COUNT_OF(places); i++) {
        char *path = tri_format("%s/%s", folder, places[i].file);
        tri_status status = path != NULL ? read_file(tokenizer, path, places[i].key) : TRI_ENOMEM;
        tri_free(path);
        TRI_TRY(status);
    }
    return TRI_OK;
}

/* --- saving --- */

/* What the copied files do not say was stated by a config.json, which belongs to a model and is not copied. The other
 * fields of generation_config.json stay. */
static tri_status write_ids(const tri_tokenizer *tokenizer, const char *folder)
{
    char *path = tri_format("%s/generation_config.json", folder), *text = NULL;
    char *dump = NULL;
    json_t *root = NULL, *ids = json_array();
    tri_status status = path != NULL && ids != NULL ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK && tri_fs_exists(path))
        status = tri_json_load_file(path, &root, NULL, NULL);
    else if (status == TRI_OK)
        root = json_object();
    for (size_t i = 0; i < tokenizer->ends.count; i++)
        json_array_append_new(ids, json_integer(tokenizer->ends.items[i]));
    if (status == TRI_OK && json_object_set(root, "eos_token_id", ids) == 0)
        dump = json_dumps(root, JSON_INDENT(2));
    text = dump != NULL ? tri_format("%s\n", dump) : NULL;
    if (status == TRI_OK)
        status = text != NULL ? tri_fs_write_atomic(path, text, strlen(text)) : TRI_ENOMEM;
    free(dump);
    tri_free(text);
    json_decref(ids);
    json_decref(root);
    tri_free(path);
    return status;
}

tri_status tri_tokenizer_save_ends(const tri_tokenizer *tokenizer, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash != NULL ? tri_strndup(path, (size_t)(slash - path)) : tri_strdup(".");
    tri_tokenizer *saved = NULL;
    tri_status status = folder != NULL ? TRI_OK : TRI_ENOMEM;
    for (size_t i = 0; i + 1 < TRI_COUNT_OF(places) && status == TRI_OK && tokenizer->folder != NULL; i++)
        status = tri_fs_copy_beside(tokenizer->folder, folder, places[i].file, 0);
    if (status == TRI_OK)
        status = tri_tokenizer_open(path, &saved);
    bool same = saved != NULL && saved->end == tokenizer->end;
    for (size_t i = 0; i < tokenizer->ends.count; i++)
        same = same && tri_tokenizer_is_end(saved, tokenizer->ends.items[i]);
    if (status == TRI_OK && !same)
        status = write_ids(tokenizer, folder);
    tri_tokenizer_close(saved);
    tri_free(folder);
    return status;
}
