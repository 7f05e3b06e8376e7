/* SPDX-License-Identifier: Apache-2.0
 *
 * encode.c: a text to tokens. Words repeat: each encoder remembers what the short ones became, one word a slot of one
 * cache line, the latest wins.
 */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "text/tokenizer_impl.h"
#include "text/unicode.h"

#define SLOT_BITS    14
#define SLOT_WORD    26 /* bytes of a word that is remembered */
#define SLOT_IDS     8
#define NBYTES_LIMIT (INT32_C(1) << 30)

typedef struct word_slot {
    uint32_t check; /* upper half of the hash */
    uint8_t nbytes; /* 0: empty */
    uint8_t count;
    unsigned char word[SLOT_WORD];
    int32_t ids[SLOT_IDS];
} word_slot;
_Static_assert(sizeof(word_slot) == 64, "one cache line");

struct tri_encoder {
    const tri_tokenizer *tokenizer;
    tri_bpe_scratch scratch;
    tri_ids symbols;
    tri_string normal[2], words[2], letters;
    void *room;       /* zeros that become memory where a word is kept: a short text touches few of its pages */
    word_slot *slots; /* in it, at a multiple of their size */
};

tri_status tri_encoder_create(const tri_tokenizer *tokenizer, tri_encoder **out)
{
    tri_encoder *encoder = tri_alloc_zero(1, sizeof(*encoder));
    if (encoder == NULL)
        return TRI_ENOMEM;
    encoder->tokenizer = tokenizer;
    if (tokenizer->bpe.count > 0) {
        encoder->room = tri_alloc_zero(((size_t)1 << SLOT_BITS) + 1, sizeof(word_slot));
        if (encoder->room == NULL) {
            tri_encoder_destroy(encoder);
            return TRI_ENOMEM;
        }
        const uintptr_t room = (uintptr_t)encoder->room, each = sizeof(word_slot);
        encoder->slots = (word_slot *)((room + each - 1) / each * each);
    }
    *out = encoder;
    return TRI_OK;
}

void tri_encoder_destroy(tri_encoder *encoder)
{
    if (encoder == NULL)
        return;
    tri_bpe_scratch_fini(&encoder->scratch);
    tri_ids_fini(&encoder->symbols);
    for (int i = 0; i < 2; i++) {
        tri_string_fini(&encoder->normal[i]);
        tri_string_fini(&encoder->words[i]);
    }
    tri_string_fini(&encoder->letters);
    tri_free(encoder->room);
    tri_free(encoder);
}

static tri_status ids_reserve(tri_ids *ids, size_t more)
{
    if (ids->capacity - ids->count >= more)
        return TRI_OK;
    size_t capacity = ids->capacity + ids->capacity / 2 + more + 64;
    int32_t *items = capacity > SIZE_MAX / sizeof(*items) ? NULL : tri_realloc(ids->items, capacity * sizeof(*items));
    if (items == NULL)
        return TRI_ENOMEM;
    ids->items = items;
    ids->capacity = capacity;
    return TRI_OK;
}

tri_status tri_ids_push(tri_ids *ids, int32_t id)
{
    TRI_TRY(ids_reserve(ids, 1));
    ids->items[ids->count++] = id;
    return TRI_OK;
}

void tri_ids_fini(tri_ids *ids)
{
    tri_free(ids->items);
    *ids = (tri_ids){0};
}

static tri_status fail_character(const tri_tokenizer *tokenizer, const unsigned char *text, size_t nbytes,
                                 uint32_t code)
{
    if (code == TRI_UTF_INVALID)
        return tri_fail(TRI_EFORMAT, "%s: the byte 0x%02x is no UTF-8, and there is no token for it", tokenizer->origin,
                        text[0]);
    return tri_fail(TRI_EFORMAT, "%s: no token for the character '%.*s' (U+%04X)", tokenizer->origin, (int)nbytes, text,
                    code);
}

/* --- a word to the symbols that are merged; there is room for one a byte --- */

static tri_status byte_symbols(tri_encoder *encoder, const unsigned char *word, size_t nbytes)
{
    const tri_tokenizer *tokenizer = encoder->tokenizer;
    int32_t *out = encoder->symbols.items;
    for (size_t i = 0; i < nbytes; i++) {
        int32_t id = tokenizer->bytes[word[i]];
        if (id < 0 && tokenizer->unknown < 0)
            return tri_fail(TRI_EFORMAT, "%s: no token for the byte 0x%02x", tokenizer->origin, word[i]);
        if (id < 0 && tokenizer->fuse_unknown && i > 0 && tokenizer->bytes[word[i - 1]] < 0)
            continue;
        *out++ = id >= 0 ? id : tokenizer->unknown;
    }
    encoder->symbols.count = (size_t)(out - encoder->symbols.items);
    return TRI_OK;
}

static bool has_bytes(const tri_tokenizer *tokenizer, const unsigned char *text, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++)
        if (tokenizer->bytes[text[i]] < 0)
            return false;
    return true;
}

static tri_status character_symbols(tri_encoder *encoder, const unsigned char *word, size_t nbytes)
{
    const tri_tokenizer *tokenizer = encoder->tokenizer;
    int32_t *out = encoder->symbols.items;
    bool unknown = false; /* one waits to be written: further ones may join it */
    for (size_t at = 0, length; at < nbytes; at += length) {
        uint32_t code;
        length = tri_utf_read(word + at, nbytes - at, &code);
        const int32_t *page = code < TRI_UNICODE_END ? tokenizer->characters[code >> 8] : NULL;
        if (page != NULL && page[code & 255] >= 0) {
            if (unknown)
                *out++ = tokenizer->unknown;
            unknown = false;
            *out++ = page[code & 255];
        } else if (tokenizer->byte_fallback && has_bytes(tokenizer, word + at, length)) {
            for (size_t i = 0; i < length; i++)
                *out++ = tokenizer->bytes[word[at + i]];
        } else if (tokenizer->unknown < 0) {
            return fail_character(tokenizer, word + at, length, code);
        } else {
            if (unknown && !tokenizer->fuse_unknown)
                *out++ = tokenizer->unknown;
            unknown = true;
        }
    }
    if (unknown)
        *out++ = tokenizer->unknown;
    encoder->symbols.count = (size_t)(out - encoder->symbols.items);
    return TRI_OK;
}

/* The token that is the whole word, or -1. */
static tri_status find_whole(tri_encoder *encoder, const unsigned char *word, size_t nbytes, int32_t *id)
{
    const tri_tokenizer *tokenizer = encoder->tokenizer;
    if (!tokenizer->byte_level) {
        *id = tri_vocabulary_find(&tokenizer->names, word, nbytes);
        return TRI_OK;
    }
    tri_string_clear(&encoder->letters);
    for (size_t i = 0; i < nbytes; i++) {
        unsigned char letter[4];
        size_t length = tri_utf_write(tri_byte_letter(word[i]), letter);
        TRI_TRY(tri_string_append_bytes(&encoder->letters, letter, length));
    }
    *id = tri_vocabulary_find(&tokenizer->names, tri_string_text(&encoder->letters), encoder->letters.nbytes);
    return TRI_OK;
}

static tri_status word_symbols(tri_encoder *encoder, const unsigned char *word, size_t nbytes)
{
    const tri_tokenizer *tokenizer = encoder->tokenizer;
    encoder->symbols.count = 0;
    TRI_TRY(ids_reserve(&encoder->symbols, nbytes));
    if (tokenizer->ignore_merges) {
        int32_t id;
        TRI_TRY(find_whole(encoder, word, nbytes, &id));
        if (id >= 0)
            return tri_ids_push(&encoder->symbols, id);
    }
    TRI_TRY(tokenizer->byte_level ? byte_symbols(encoder, word, nbytes) : character_symbols(encoder, word, nbytes));
    return tri_bpe_run(&tokenizer->bpe, &encoder->scratch, encoder->symbols.items, &encoder->symbols.count);
}

static tri_status encode_slow(tri_encoder *encoder, const unsigned char *word, size_t nbytes, word_slot *slot,
                              uint32_t check, tri_ids *ids)
{
    TRI_TRY(word_symbols(encoder, word, nbytes));
    const tri_ids *symbols = &encoder->symbols;
    TRI_TRY(ids_reserve(ids, symbols->count));
    if (symbols->count == 0)
        return TRI_OK;
    memcpy(ids->items + ids->count, symbols->items, symbols->count * sizeof(int32_t));
    ids->count += symbols->count;
    if (slot == NULL || symbols->count > SLOT_IDS)
        return TRI_OK;
    slot->check = check;
    slot->nbytes = (uint8_t)nbytes;
    slot->count = (uint8_t)symbols->count;
    memcpy(slot->word, word, nbytes);
    memcpy(slot->ids, symbols->items, symbols->count * sizeof(int32_t));
    return TRI_OK;
}

static inline tri_status encode_word(tri_encoder *encoder, const unsigned char *word, size_t nbytes, tri_ids *ids)
{
    if (nbytes > SLOT_WORD || encoder->slots == NULL)
        return encode_slow(encoder, word, nbytes, NULL, 0, ids);
    const uint64_t hash = XXH3_64bits(word, nbytes);
    word_slot *slot = &encoder->slots[hash & ((1u << SLOT_BITS) - 1)];
    const uint32_t check = (uint32_t)(hash >> 32);
    if (slot->check != check || slot->nbytes != nbytes || memcmp(slot->word, word, nbytes) != 0)
        return encode_slow(encoder, word, nbytes, slot, check, ids);
    if (ids->capacity - ids->count < SLOT_IDS)
        TRI_TRY(ids_reserve(ids, SLOT_IDS));
    memcpy(ids->items + ids->count, slot->ids, sizeof(slot->ids));
    ids->count += slot->count;
    return TRI_OK;
}

/* Text between added tokens, normalized. */
static tri_status encode_words(tri_encoder *encoder, const char *text, size_t nbytes, bool begin, bool resume,
                               tri_ids *ids)
{
    const tri_tokenizer *tokenizer = encoder->tokenizer;
    const char *words;
    TRI_TRY(tri_rewrites_apply(&tokenizer->before_words, begin, resume, encoder->words, text, nbytes, &words, &nbytes));
    for (size_t at = 0; at < nbytes;) {
        size_t end = tri_scan_word(tokenizer->scan, (const unsigned char *)words, nbytes, at);
        TRI_TRY(encode_word(encoder, (const unsigned char *)words + at, end - at, ids));
        at = end;
    }
    return TRI_OK;
}

/* What is between the tokens of the set goes to the next stage, which is `stage` 1, then the words. */
static tri_status encode_stage(tri_encoder *encoder, int stage, const char *text, size_t nbytes, bool begin,
                               bool resume, tri_ids *ids)
{
    const tri_tokenizer *tokenizer = encoder->tokenizer;
    if (stage == 1)
        TRI_TRY(
            tri_rewrites_apply(&tokenizer->normalizer, begin, resume, encoder->normal, text, nbytes, &text, &nbytes));
    const tri_added_set *set = stage == 0 ? &tokenizer->raw : &tokenizer->normalized;
    tri_added_match match = {0};
    for (size_t taken = 0; taken < nbytes; taken = match.end) {
        const bool found = tri_added_find(set, text, nbytes, match.from, taken, &match);
        const size_t end = found ? match.first : nbytes;
        if (taken < end) {
            const bool first = begin && taken == 0, joined = resume && taken == 0;
            TRI_TRY(stage == 0 ? encode_stage(encoder, 1, text + taken, end - taken, first, joined, ids)
                               : encode_words(encoder, text + taken, end - taken, first, joined, ids));
        }
        if (!found)
            break;
        TRI_TRY(tri_ids_push(ids, match.id));
    }
    return TRI_OK;
}

static tri_status append_around(const tri_ids *around, tri_ids *ids)
{
    for (size_t i = 0; i < around->count; i++)
        TRI_TRY(tri_ids_push(ids, around->items[i]));
    return TRI_OK;
}

tri_status tri_encode(tri_encoder *encoder, const void *text, size_t nbytes, unsigned flags, tri_ids *ids)
{
    const bool resume = (flags & TRI_ENCODE_RESUME) != 0;
    if (nbytes > NBYTES_LIMIT)
        return tri_fail(TRI_EINVAL, "encode: want at most %d bytes at once, got %zu", NBYTES_LIMIT, nbytes);
    if ((flags & TRI_ENCODE_BEGIN) != 0)
        TRI_TRY(append_around(&encoder->tokenizer->around[0], ids));
    TRI_TRY(encode_stage(encoder, 0, text, nbytes, !resume, resume, ids));
    return (flags & TRI_ENCODE_END) != 0 ? append_around(&encoder->tokenizer->around[1], ids) : TRI_OK;
}
