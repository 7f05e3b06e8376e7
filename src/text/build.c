/* SPDX-License-Identifier: Apache-2.0
 *
 * build.c: puts a tokenizer together from what a file says, and works out what follows from it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_impl.h"
#include "text/unicode.h"

tri_status tri_tokenizer_create(const tri_tokenizer_ops *ops, const char *origin, tri_tokenizer **out)
{
    tri_tokenizer *tokenizer = tri_alloc_zero(1, sizeof(*tokenizer));
    if (tokenizer == NULL)
        return TRI_ENOMEM;
    tokenizer->ops = ops;
    tokenizer->unknown = tokenizer->end = -1;
    tokenizer->added.each = sizeof(tri_added);
    for (int i = 0; i < 256; i++)
        tokenizer->bytes[i] = -1;
    tokenizer->origin = tri_arena_strdup(&tokenizer->arena, origin);
    if (tokenizer->origin == NULL) {
        tri_tokenizer_close(tokenizer);
        return TRI_ENOMEM;
    }
    *out = tokenizer;
    return TRI_OK;
}

void tri_tokenizer_close(tri_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    tri_vocabulary_fini(&tokenizer->names);
    tri_vocabulary_fini(&tokenizer->plain);
    tri_bpe_fini(&tokenizer->bpe);
    tri_vector_fini(&tokenizer->added);
    tri_ids_fini(&tokenizer->around[0]);
    tri_ids_fini(&tokenizer->around[1]);
    tri_ids_fini(&tokenizer->ends);
    tri_free(tokenizer->folder);
    tri_free(tokenizer->source);
    tri_arena_fini(&tokenizer->arena);
    tri_free(tokenizer);
}

tri_status tri_tokenizer_add(tri_tokenizer *tokenizer, int32_t id, const char *text, size_t nbytes)
{
    TRI_TRY_IN(tri_vocabulary_add(&tokenizer->names, id, text, nbytes, true), "%s", tokenizer->origin);
    return TRI_OK;
}

tri_status tri_tokenizer_merge(tri_tokenizer *tokenizer, size_t rank, const char *left, size_t left_nbytes,
                               const char *right, size_t right_nbytes)
{
    const tri_vocabulary *names = &tokenizer->names;
    tri_merge merge = {.left = tri_vocabulary_find(names, left, left_nbytes),
                       .right = tri_vocabulary_find(names, right, right_nbytes),
                       .rank = (uint32_t)rank,
                       .merged = -1};
    char *joined = tri_alloc(left_nbytes + right_nbytes);
    if (joined == NULL)
        return TRI_ENOMEM;
    memcpy(joined, left, left_nbytes);
    memcpy(joined + left_nbytes, right, right_nbytes);
    if (merge.left >= 0 && merge.right >= 0)
        merge.merged = tri_vocabulary_find(names, joined, left_nbytes + right_nbytes);
    tri_free(joined);
    if (merge.merged < 0)
        return tri_fail(TRI_EFORMAT, "%s: merge %zu, '%.*s' with '%.*s': want both and what they give to be tokens",
                        tokenizer->origin, rank, (int)left_nbytes, left, (int)right_nbytes, right);
    tri_bpe_add(&tokenizer->bpe, merge);
    return TRI_OK;
}

tri_status tri_tokenizer_add_added(tri_tokenizer *tokenizer, tri_added added)
{
    if (added.nbytes == 0)
        return tri_fail(TRI_EFORMAT, "%s: the added token %d is empty", tokenizer->origin, added.id);
    const int32_t known = tri_vocabulary_find(&tokenizer->names, added.text, added.nbytes);
    if (known >= 0 && known != added.id)
        return tri_fail(TRI_EFORMAT, "%s: the added token '%.*s' has the id %d, the vocabulary says %d",
                        tokenizer->origin, (int)added.nbytes, added.text, added.id, known);
    if (known < 0)
        TRI_TRY(tri_tokenizer_add(tokenizer, added.id, added.text, added.nbytes));
    char *text = tri_arena_alloc(&tokenizer->arena, added.nbytes + 1, 1);
    if (text == NULL)
        return TRI_ENOMEM;
    memcpy(text, added.text, added.nbytes);
    added.text = text;
    return tri_vector_push(&tokenizer->added, &added) != NULL ? TRI_OK : TRI_ENOMEM;
}

/* --- what follows --- */

static int compare_added(const void *a, const void *b)
{
    const tri_added *left = a, *right = b;
    const int first = (unsigned char)left->text[0] - (unsigned char)right->text[0];
    if (first != 0)
        return first;
    if (left->nbytes != right->nbytes)
        return left->nbytes > right->nbytes ? -1 : 1;
    return (left->id > right->id) - (left->id < right->id);
}

/* A token that is matched in the normalized text is searched as it is normalized itself. */
static tri_status normalize_added(tri_tokenizer *tokenizer, tri_added *added)
{
    tri_string buffers[2] = {{0}, {0}};
    const char *text;
    size_t nbytes = 0;
    tri_status status =
        tri_rewrites_apply(&tokenizer->normalizer, true, false, buffers, added->text, added->nbytes, &text, &nbytes);
    char *copy = status == TRI_OK ? tri_arena_alloc(&tokenizer->arena, nbytes + 1, 1) : NULL;
    if (copy != NULL) {
        memcpy(copy, text, nbytes);
        added->text = copy;
        added->nbytes = nbytes;
    } else if (status == TRI_OK) {
        status = TRI_ENOMEM;
    }
    tri_string_fini(&buffers[0]);
    tri_string_fini(&buffers[1]);
    return status;
}

static tri_status make_set(tri_tokenizer *tokenizer, bool normalized, tri_added_set *set)
{
    const tri_added *all = tokenizer->added.items;
    set->items = tri_arena_alloc(&tokenizer->arena, tokenizer->added.count + 1, sizeof(*set->items));
    if (set->items == NULL)
        return TRI_ENOMEM;
    for (size_t i = 0; i < tokenizer->added.count; i++) {
        if (all[i].normalized != normalized)
            continue;
        tri_added added = all[i];
        if (normalized)
            TRI_TRY(normalize_added(tokenizer, &added));
        if (added.nbytes > 0)
            set->items[set->count++] = added;
    }
    qsort(set->items, set->count, sizeof(*set->items), compare_added);
    for (size_t i = 0; i < set->count; i++)
        set->first[(unsigned char)set->items[i].text[0] + 1]++;
    for (int byte = 0; byte < 256; byte++)
        set->first[byte + 1] += set->first[byte];
    return TRI_OK;
}

static void find_bytes(tri_tokenizer *tokenizer)
{
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        size_t nbytes;
        if (tokenizer->byte_level)
            nbytes = tri_utf_write(tri_byte_letter((unsigned char)byte), (unsigned char *)name);
        else
            nbytes = (size_t)snprintf(name, sizeof(name), "<0x%02X>", (unsigned)byte);
        tokenizer->bytes[byte] = tri_vocabulary_find(&tokenizer->names, name, nbytes);
    }
}

static tri_status find_characters(tri_tokenizer *tokenizer)
{
    tokenizer->characters = tri_arena_alloc(&tokenizer->arena, TRI_UNICODE_END >> 8, sizeof(int32_t *));
    if (tokenizer->characters == NULL)
        return TRI_ENOMEM;
    for (int64_t id = 0; id < tri_vocabulary_count(&tokenizer->names); id++) {
        size_t nbytes;
        uint32_t code;
        const char *text = tri_vocabulary_text(&tokenizer->names, (int32_t)id, &nbytes);
        if (nbytes == 0 || tri_utf_read((const unsigned char *)text, nbytes, &code) != nbytes ||
            code == TRI_UTF_INVALID)
            continue;
        int32_t **page = &tokenizer->characters[code >> 8];
        if (*page == NULL) {
            *page = tri_arena_alloc(&tokenizer->arena, 256, sizeof(int32_t));
            if (*page == NULL)
                return TRI_ENOMEM;
            memset(*page, 0xff, 256 * sizeof(int32_t));
        }
        (*page)[code & 255] = (int32_t)id;
    }
    return TRI_OK;
}

/* One token as it is decoded. */
static tri_status add_plain(tri_tokenizer *tokenizer, int32_t id, tri_string buffers[2])
{
    size_t nbytes, plain_nbytes;
    const char *name = tri_vocabulary_text(&tokenizer->names, id, &nbytes);
    unsigned value;
    char end;
    if (name == NULL)
        return TRI_OK;
    if (tokenizer->byte_level) {
        unsigned char *bytes = tri_alloc(nbytes + 1);
        if (bytes == NULL)
            return TRI_ENOMEM;
        bool letters = tri_byte_letters_read(name, nbytes, bytes, &plain_nbytes);
        tri_status status = tri_vocabulary_add(&tokenizer->plain, id, letters ? (const char *)bytes : name,
                                               letters ? plain_nbytes : nbytes, false);
        tri_free(bytes);
        return status;
    }
    if (tokenizer->decode_bytes && nbytes == 6 && sscanf(name, "<0x%2X%c", &value, &end) == 2 && end == '>')
        return tri_vocabulary_add(&tokenizer->plain, id, &(char){(char)value}, 1, false);
    TRI_TRY(tri_rewrites_apply(&tokenizer->decoder, true, false, buffers, name, nbytes, &name, &nbytes));
    return tri_vocabulary_add(&tokenizer->plain, id, name, nbytes, false);
}

static tri_status make_plain(tri_tokenizer *tokenizer)
{
    tri_string buffers[2] = {{0}, {0}};
    tri_status status = TRI_OK;
    for (int64_t id = 0; id < tri_vocabulary_count(&tokenizer->names) && status == TRI_OK; id++)
        status = add_plain(tokenizer, (int32_t)id, buffers);
    tri_string_fini(&buffers[0]);
    tri_string_fini(&buffers[1]);
    return status;
}

/* Counts the steps that replace something: spaces by gaps, or anything else. */
static void count_steps(const tri_rewrites *rewrites, int *gaps, int *others)
{
    for (int i = 0; i < rewrites->count; i++) {
        const tri_rewrite *step = &rewrites->steps[i];
        if (step->from == NULL)
            continue;
        const bool gap = strcmp(step->from, " ") == 0 && strcmp(step->to, TRI_GAP) == 0;
        *gaps += gap;
        *others += !gap;
    }
}

/* Without a rule for words, no token reaches over a gap if no merge gives one that has a gap behind something else. */
static bool no_merge_over_gaps(const tri_tokenizer *tokenizer)
{
    if (tri_vocabulary_find(&tokenizer->names, TRI_GAP, strlen(TRI_GAP)) < 0)
        return false;
    for (size_t i = 0; i < tokenizer->bpe.slot_count; i++) {
        size_t nbytes, at = 0;
        if (tokenizer->bpe.slots[i].left < 0)
            continue;
        const char *text = tri_vocabulary_text(&tokenizer->names, tokenizer->bpe.slots[i].merged, &nbytes);
        while (nbytes - at >= strlen(TRI_GAP) && memcmp(text + at, TRI_GAP, strlen(TRI_GAP)) == 0)
            at += strlen(TRI_GAP);
        if (memmem(text + at, nbytes - at, TRI_GAP, strlen(TRI_GAP)) != NULL)
            return false;
    }
    return true;
}

static void find_cuts(tri_tokenizer *tokenizer)
{
    int gaps = 0, others = 0;
    count_steps(&tokenizer->normalizer, &gaps, &others);
    count_steps(&tokenizer->before_words, &gaps, &others);
    if (tokenizer->scan == TRI_SCAN_WHOLE && tokenizer->bpe.count > 0 && !tokenizer->byte_level && gaps > 0 &&
        !tokenizer->ignore_merges && no_merge_over_gaps(tokenizer))
        tokenizer->scan = TRI_SCAN_GAPS;
    tokenizer->cuts_anywhere = tokenizer->bpe.count == 0 && !tokenizer->ignore_merges && !tokenizer->fuse_unknown &&
                               tokenizer->normalizer.count == 0 && tokenizer->before_words.count == 0;
    const bool by_gaps = tokenizer->scan == TRI_SCAN_GAPS || tokenizer->scan == TRI_SCAN_EACH_GAP;
    tokenizer->cuts_never = others > 0 || by_gaps != (gaps > 0);
    const tri_added *added = tokenizer->added.items;
    for (size_t i = 0; i < tokenizer->added.count; i++) {
        bool space = added[i].rstrip;
        tokenizer->cuts_anywhere = tokenizer->cuts_anywhere && !added[i].lstrip;
        for (size_t at = 0, next; at < added[i].nbytes; at = next) {
            uint32_t code;
            next = at + tri_utf_read((const unsigned char *)added[i].text + at, added[i].nbytes - at, &code);
            space = space || tri_unicode_class(code) == TRI_CHAR_SPACE;
        }
        tokenizer->cuts_never = tokenizer->cuts_never || space;
    }
}

static tri_status find_end(tri_tokenizer *tokenizer)
{
    static const char *const names[] = {TRI_END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>"};
    const tri_added *added = tokenizer->added.items;
    for (size_t n = 0; n < TRI_COUNT_OF(names) && tokenizer->end < 0; n++)
        for (size_t i = 0; i < tokenizer->added.count; i++)
            if (strcmp(added[i].text, names[n]) == 0)
                tokenizer->end = added[i].id;
    return tokenizer->end >= 0 ? tri_ids_push(&tokenizer->ends, tokenizer->end) : TRI_OK;
}

tri_status tri_tokenizer_finish(tri_tokenizer *tokenizer)
{
    if (tri_vocabulary_count(&tokenizer->names) == 0)
        return tri_fail(TRI_EFORMAT, "%s: the vocabulary is empty", tokenizer->origin);
    find_bytes(tokenizer);
    if (!tokenizer->byte_level)
        TRI_TRY(find_characters(tokenizer));
    TRI_TRY(make_set(tokenizer, false, &tokenizer->raw));
    TRI_TRY(make_set(tokenizer, true, &tokenizer->normalized));
    TRI_TRY(make_plain(tokenizer));
    find_cuts(tokenizer);
    return find_end(tokenizer);
}
