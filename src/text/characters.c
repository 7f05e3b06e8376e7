/* SPDX-License-Identifier: Apache-2.0
 *
 * characters.c: the two kinds without merges: each byte is a token, or each character that a text has.
 */
#include <string.h>

#include "text/tokenizer_impl.h"
#include "text/unicode.h"

static tri_status add_end(tri_tokenizer *tokenizer)
{
    return tri_tokenizer_add_added(tokenizer, (tri_added){.text = TRI_END_OF_TEXT,
                                                          .nbytes = strlen(TRI_END_OF_TEXT),
                                                          .id = (int32_t)tri_tokenizer_count(tokenizer),
                                                          .special = true});
}

static tri_status finish(tri_tokenizer *tokenizer, tri_status status, tri_tokenizer **out)
{
    if (status == TRI_OK)
        status = tri_tokenizer_finish(tokenizer);
    if (status != TRI_OK) {
        tri_tokenizer_close(tokenizer);
        return status;
    }
    *out = tokenizer;
    return TRI_OK;
}

/* --- byte --- */

static bool byte_can(const char *path)
{
    return strcmp(path, "byte") == 0;
}

static tri_status byte_open(const char *path, tri_tokenizer **out)
{
    tri_tokenizer *tokenizer;
    tri_status status = tri_tokenizer_create(&tri_tokenizer_byte, path, &tokenizer);
    if (status != TRI_OK)
        return status;
    tokenizer->byte_level = true;
    for (int byte = 0; byte < 256 && status == TRI_OK; byte++) {
        unsigned char letter[4];
        size_t nbytes = tri_utf_write(tri_byte_letter((unsigned char)byte), letter);
        status = tri_tokenizer_add(tokenizer, byte, (const char *)letter, nbytes);
    }
    if (status == TRI_OK)
        status = add_end(tokenizer);
    return finish(tokenizer, status, out);
}

const tri_tokenizer_ops tri_tokenizer_byte = {
    .name = "byte",
    .does = "each byte is a token, and 256 ends a text",
    .can = byte_can,
    .open = byte_open,
};

/* --- char --- */

static bool char_can(const char *path)
{
    return strcmp(path, "char") == 0;
}

static tri_status char_open(const char *path, tri_tokenizer **out)
{
    (void)out;
    return tri_fail(TRI_ECONFIG,
                    "tokenizer %s: its vocabulary is that of a text; where there is none, want the tokenizer.json "
                    "beside the data or the checkpoint",
                    path);
}

const tri_tokenizer_ops tri_tokenizer_char = {
    .name = "char",
    .does = "each character that the text has is a token",
    .can = char_can,
    .open = char_open,
};

/* Marks the characters of a text in seen[], a bit each. */
static tri_status mark_characters(const unsigned char *text, size_t nbytes, uint64_t *seen)
{
    for (size_t at = 0; at < nbytes;) {
        uint32_t code;
        const size_t length = tri_utf_read(text + at, nbytes - at, &code);
        if (code == TRI_UTF_INVALID)
            return tri_fail(TRI_EFORMAT, "tokenizer char: the byte 0x%02x at %zu is no UTF-8 (byte takes any)",
                            text[at], at);
        if (code == 0)
            return tri_fail(TRI_EFORMAT, "tokenizer char: the byte 0x00 at %zu is no text (byte takes any)", at);
        seen[code >> 6] |= UINT64_C(1) << (code & 63);
        at += length;
    }
    return TRI_OK;
}

static tri_status add_characters(tri_tokenizer *tokenizer, const uint64_t *seen)
{
    int32_t id = 0;
    for (uint32_t code = 0; code < TRI_UNICODE_END; code++) {
        unsigned char text[4];
        if ((seen[code >> 6] >> (code & 63) & 1) == 0)
            continue;
        size_t nbytes = tri_utf_write(code, text);
        TRI_TRY(tri_tokenizer_add(tokenizer, id++, (const char *)text, nbytes));
    }
    return TRI_OK;
}

tri_status tri_tokenizer_chars(const void *const *texts, const size_t *nbytes, int count, bool ends,
                               tri_tokenizer **out)
{
    tri_tokenizer *tokenizer;
    uint64_t *seen = tri_alloc_zero(TRI_UNICODE_END / 64, sizeof(*seen));
    if (seen == NULL)
        return TRI_ENOMEM;
    tri_status status = TRI_OK;
    for (int i = 0; i < count && status == TRI_OK; i++)
        status = mark_characters(texts[i], nbytes[i], seen);
    if (status == TRI_OK)
        status = tri_tokenizer_create(&tri_tokenizer_char, "tokenizer char", &tokenizer);
    if (status != TRI_OK) {
        tri_free(seen);
        return status;
    }
    status = add_characters(tokenizer, seen);
    tri_free(seen);
    if (status == TRI_OK && ends)
        status = add_end(tokenizer);
    return finish(tokenizer, status, out);
}
