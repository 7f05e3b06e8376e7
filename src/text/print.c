/* SPDX-License-Identifier: Apache-2.0
 *
 * print.c: a tokenizer of the kinds byte, char and gpt2 as a tokenizer.json; one that came from such a file is kept as
 * it was.
 */
#include <stdlib.h>

#include "base/json.h"
#include "text/tokenizer_impl.h"

static int compare_ranks(const void *a, const void *b)
{
    const uint32_t left = ((const tri_merge *)a)->rank, right = ((const tri_merge *)b)->rank;
    return (left > right) - (left < right);
}

static const char *name_of(const tri_tokenizer *tokenizer, int32_t id)
{
    size_t nbytes;
    return tri_vocabulary_text(&tokenizer->names, id, &nbytes);
}

static tri_status print_merges(const tri_tokenizer *tokenizer, tri_json *model)
{
    tri_json list = tri_json_array_in(model, "merges");
    tri_merge *merges = tri_alloc((tokenizer->bpe.count + 1) * sizeof(*merges));
    if (merges == NULL)
        return TRI_ENOMEM;
    size_t count = 0;
    for (size_t i = 0; i < tokenizer->bpe.slot_count; i++)
        if (tokenizer->bpe.slots[i].left >= 0)
            merges[count++] = tokenizer->bpe.slots[i];
    qsort(merges, count, sizeof(*merges), compare_ranks);
    for (size_t i = 0; i < count; i++) {
        tri_json pair = tri_json_array_in(&list, NULL);
        tri_json_text(&pair, NULL, name_of(tokenizer, merges[i].left));
        tri_json_text(&pair, NULL, name_of(tokenizer, merges[i].right));
        if (tri_json_end(&pair) != TRI_OK)
            break;
    }
    tri_free(merges);
    return tri_json_end(&list);
}

static bool is_added(const tri_tokenizer *tokenizer, int32_t id)
{
    const tri_added *added = tokenizer->added.items;
    for (size_t i = 0; i < tokenizer->added.count; i++)
        if (added[i].id == id)
            return true;
    return false;
}

static tri_status print_model(const tri_tokenizer *tokenizer, tri_json *root)
{
    tri_json model = tri_json_object_in(root, "model");
    tri_json_text(&model, "type", "BPE");
    tri_json_bool(&model, "fuse_unk", false);
    tri_json_bool(&model, "byte_fallback", false);
    tri_json vocabulary = tri_json_object_in(&model, "vocab");
    for (int64_t id = 0; id < tri_tokenizer_count(tokenizer); id++)
        if (name_of(tokenizer, (int32_t)id) != NULL && !is_added(tokenizer, (int32_t)id))
            tri_json_int(&vocabulary, name_of(tokenizer, (int32_t)id), id);
    TRI_TRY(tri_json_end(&vocabulary));
    TRI_TRY(print_merges(tokenizer, &model));
    return tri_json_end(&model);
}

static tri_status print_added(const tri_tokenizer *tokenizer, tri_json *root)
{
    const tri_added *added = tokenizer->added.items;
    tri_json list = tri_json_array_in(root, "added_tokens");
    for (size_t i = 0; i < tokenizer->added.count; i++) {
        tri_json token = tri_json_object_in(&list, NULL);
        tri_json_int(&token, "id", added[i].id);
        tri_json_text(&token, "content", added[i].text);
        tri_json_bool(&token, "single_word", false);
        tri_json_bool(&token, "lstrip", added[i].lstrip);
        tri_json_bool(&token, "rstrip", added[i].rstrip);
        tri_json_bool(&token, "normalized", added[i].normalized);
        tri_json_bool(&token, "special", added[i].special);
        TRI_TRY(tri_json_end(&token));
    }
    return tri_json_end(&list);
}

static tri_status print_byte_level(const tri_tokenizer *tokenizer, tri_json *root, const char *section)
{
    tri_json step = tri_json_object_in(root, section);
    tri_json_text(&step, "type", "ByteLevel");
    tri_json_bool(&step, "add_prefix_space", false);
    tri_json_bool(&step, "trim_offsets", true);
    tri_json_bool(&step, "use_regex", tokenizer->scan == TRI_SCAN_GPT);
    return tri_json_end(&step);
}

tri_status tri_tokenizer_print(const tri_tokenizer *tokenizer, tri_string *out)
{
    tri_json root = tri_json_object(out);
    tri_json_text(&root, "version", "1.0");
    TRI_TRY(print_added(tokenizer, &root));
    if (tokenizer->byte_level) {
        TRI_TRY(print_byte_level(tokenizer, &root, "pre_tokenizer"));
        TRI_TRY(print_byte_level(tokenizer, &root, "decoder"));
    } else {
        tri_json step = tri_json_object_in(&root, "decoder");
        tri_json_text(&step, "type", "Fuse");
        TRI_TRY(tri_json_end(&step));
    }
    TRI_TRY(print_model(tokenizer, &root));
    return tri_json_end(&root);
}
