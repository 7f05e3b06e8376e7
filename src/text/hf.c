/* SPDX-License-Identifier: Apache-2.0
 *
 * hf.c: tokenizer.json of Hugging Face's library `tokenizers`, with a model of byte pair encoding.
 */
#include "text/hf.h"

#include <string.h>

static tri_status read_vocabulary(tri_tokenizer *tokenizer, json_t *vocabulary)
{
    const char *text;
    size_t nbytes;
    json_t *value;
    const size_t count = json_object_size(vocabulary);
    json_object_keylen_foreach(vocabulary, text, nbytes, value)
    {
        int32_t id;
        TRI_TRY(tri_json_id(value, count, tokenizer->origin, text, &id));
        TRI_TRY(tri_tokenizer_add(tokenizer, id, text, nbytes));
    }
    return TRI_OK;
}

/* "a b" or ["a", "b"]. */
static tri_status read_merge(tri_tokenizer *tokenizer, size_t rank, const json_t *merge)
{
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_array_size(merge) == 2 && json_is_string(left) && json_is_string(right))
        return tri_tokenizer_merge(tokenizer, rank, json_string_value(left), json_string_length(left),
                                   json_string_value(right), json_string_length(right));
    const char *text = json_string_value(merge);
    const char *gap = text != NULL ? strchr(text, ' ') : NULL;
    if (gap == NULL || strchr(gap + 1, ' ') != NULL)
        return tri_fail(TRI_EFORMAT, "%s: merge %zu: want two texts, or one with a single space between them",
                        tokenizer->origin, rank);
    return tri_tokenizer_merge(tokenizer, rank, text, (size_t)(gap - text), gap + 1, strlen(gap + 1));
}

static tri_status read_merges(tri_tokenizer *tokenizer, const json_t *merges)
{
    const size_t count = json_array_size(merges);
    TRI_TRY(tri_bpe_init(&tokenizer->bpe, count));
    for (size_t i = 0; i < count; i++)
        TRI_TRY(read_merge(tokenizer, i, json_array_get(merges, i)));
    return TRI_OK;
}

/* What would change the tokens and is not understood must be absent. */
static tri_status refuse_extras(const tri_tokenizer *tokenizer, const json_t *model)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const json_t *dropout = json_object_get(model, "dropout");
    if (json_number_value(dropout) != 0)
        return tri_fail(TRI_EUNSUPPORTED, "%s: model: want no dropout, got %g", tokenizer->origin,
                        json_number_value(dropout));
    for (size_t i = 0; i < TRI_COUNT_OF(affixes); i++) {
        json_t *affix;
        TRI_TRY(tri_json_field(model, affixes[i], JSON_STRING, false, tokenizer->origin, "model", &affix));
        if (affix != NULL && json_string_length(affix) > 0)
            return tri_fail(TRI_EUNSUPPORTED, "%s: model: %s '%.32s' is not understood", tokenizer->origin, affixes[i],
                            json_string_value(affix));
    }
    return TRI_OK;
}

static tri_status read_model(tri_tokenizer *tokenizer, const json_t *root)
{
    json_t *model, *type, *vocabulary, *merges, *unknown;
    const char *origin = tokenizer->origin;
    TRI_TRY(tri_json_field(root, "model", JSON_OBJECT, true, origin, "tokenizer.json", &model));
    TRI_TRY(tri_json_field(model, "type", JSON_STRING, false, origin, "model", &type));
    if (type != NULL && strcmp(json_string_value(type), "BPE") != 0)
        return tri_fail(TRI_EUNSUPPORTED, "%s: model: want BPE, got %.32s", origin, json_string_value(type));
    TRI_TRY(tri_json_field(model, "vocab", JSON_OBJECT, true, origin, "model", &vocabulary));
    TRI_TRY(tri_json_field(model, "merges", JSON_ARRAY, true, origin, "model", &merges));
    TRI_TRY(tri_json_field(model, "unk_token", JSON_STRING, false, origin, "model", &unknown));
    TRI_TRY(tri_json_flag(model, "fuse_unk", false, origin, "model", &tokenizer->fuse_unknown));
    TRI_TRY(tri_json_flag(model, "byte_fallback", false, origin, "model", &tokenizer->byte_fallback));
    TRI_TRY(tri_json_flag(model, "ignore_merges", false, origin, "model", &tokenizer->ignore_merges));
    TRI_TRY(refuse_extras(tokenizer, model));
    TRI_TRY(read_vocabulary(tokenizer, vocabulary));
    TRI_TRY(read_merges(tokenizer, merges));
    if (unknown != NULL)
        tokenizer->unknown =
            tri_vocabulary_find(&tokenizer->names, json_string_value(unknown), json_string_length(unknown));
    return TRI_OK;
}

static tri_status read_added(tri_tokenizer *tokenizer, const json_t *root)
{
    json_t *list;
    const char *origin = tokenizer->origin, *where = "added_tokens";
    TRI_TRY(tri_json_field(root, "added_tokens", JSON_ARRAY, false, origin, "tokenizer.json", &list));
    const size_t count = tokenizer->names.entries.count + json_array_size(list);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *token = json_array_get(list, i);
        json_t *content, *id;
        tri_added added = {0};
        bool single;
        TRI_TRY(tri_json_field(token, "content", JSON_STRING, true, origin, where, &content));
        TRI_TRY(tri_json_field(token, "id", JSON_INTEGER, true, origin, where, &id));
        TRI_TRY(tri_json_flag(token, "special", false, origin, where, &added.special));
        TRI_TRY(tri_json_flag(token, "normalized", !added.special, origin, where, &added.normalized));
        TRI_TRY(tri_json_flag(token, "single_word", false, origin, where, &single));
        TRI_TRY(tri_json_flag(token, "lstrip", false, origin, where, &added.lstrip));
        TRI_TRY(tri_json_flag(token, "rstrip", false, origin, where, &added.rstrip));
        if (single)
            return tri_fail(TRI_EUNSUPPORTED, "%s: added token '%.64s': single_word is not understood", origin,
                            json_string_value(content));
        added.text = json_string_value(content);
        added.nbytes = json_string_length(content);
        TRI_TRY(tri_json_id(id, count, origin, added.text, &added.id));
        TRI_TRY(tri_tokenizer_add_added(tokenizer, added));
    }
    return TRI_OK;
}

static tri_status read_root(tri_tokenizer *tokenizer, const json_t *root)
{
    TRI_TRY(read_model(tokenizer, root));
    TRI_TRY(read_added(tokenizer, root));
    TRI_TRY(tri_hf_normalizer(tokenizer, json_object_get(root, "normalizer")));
    TRI_TRY(tri_hf_pre_tokenizer(tokenizer, json_object_get(root, "pre_tokenizer")));
    TRI_TRY(tri_hf_post_processor(tokenizer, json_object_get(root, "post_processor")));
    TRI_TRY(tri_hf_decoder(tokenizer, json_object_get(root, "decoder")));
    return tri_tokenizer_finish(tokenizer);
}

/* Takes over the text. */
static tri_status build(json_t *root, char *source, size_t nbytes, const char *origin, tri_tokenizer **out)
{
    tri_tokenizer *tokenizer = NULL;
    tri_status status = tri_tokenizer_create(&tri_tokenizer_hf, origin, &tokenizer);
    if (status == TRI_OK) {
        tokenizer->source = source;
        tokenizer->source_nbytes = nbytes;
        status = read_root(tokenizer, root);
    } else {
        tri_free(source);
    }
    json_decref(root);
    if (status != TRI_OK) {
        tri_tokenizer_close(tokenizer);
        return status;
    }
    *out = tokenizer;
    return TRI_OK;
}

tri_status tri_tokenizer_parse(const char *json, size_t nbytes, const char *origin, tri_tokenizer **out)
{
    json_t *root;
    TRI_TRY(tri_json_load(json, nbytes, origin, &root));
    char *source = tri_strndup(json, nbytes);
    if (source == NULL) {
        json_decref(root);
        return TRI_ENOMEM;
    }
    return build(root, source, nbytes, origin, out);
}

static bool hf_can(const char *path)
{
    const char *base = strrchr(path, '/');
    return strcmp(base != NULL ? base + 1 : path, "tokenizer.json") == 0;
}

static tri_status hf_open(const char *path, tri_tokenizer **out)
{
    json_t *root;
    char *source;
    size_t nbytes;
    TRI_TRY(tri_json_load_file(path, &root, &source, &nbytes));
    return build(root, source, nbytes, path, out);
}

const tri_tokenizer_ops tri_tokenizer_hf = {
    .name = "hf",
    .does = "tokenizer.json of Hugging Face with byte pair encoding: GPT-2's, Llama's, Qwen's",
    .can = hf_can,
    .open = hf_open,
};
