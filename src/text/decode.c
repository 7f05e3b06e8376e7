/* SPDX-License-Identifier: Apache-2.0
 *
 * decode.c: tokens to text as they come; the begin of a character waits for its end.
 */
#include <string.h>

#include "text/tokenizer_impl.h"

tri_decoder tri_decoder_make(const tri_tokenizer *tokenizer, bool special)
{
    return (tri_decoder){.tokenizer = tokenizer,
                         .special = special,
                         .strip = tokenizer->leading == TRI_LEADING_STRIPPED ? tokenizer->strip_count : 0};
}

/* Bytes at the end that may be the begin of a character. */
static size_t open_tail(const unsigned char *text, size_t nbytes)
{
    for (size_t back = 1; back <= 3 && back <= nbytes; back++) {
        const unsigned char byte = text[nbytes - back];
        if ((byte & 0xc0) == 0x80)
            continue;
        const size_t wanted = byte >= 0xf0 && byte <= 0xf4  ? 4
                              : byte >= 0xe0 && byte < 0xf0 ? 3
                              : byte >= 0xc2 && byte < 0xe0 ? 2
                                                            : 1;
        return wanted > back ? back : 0;
    }
    return 0;
}

static tri_status push_bytes(tri_decoder *decoder, const char *text, size_t nbytes, tri_string *out)
{
    const size_t before = out->nbytes;
    TRI_TRY(tri_string_append_bytes(out, decoder->held, (size_t)decoder->held_count));
    TRI_TRY(tri_string_append_bytes(out, text, nbytes));
    const size_t tail = open_tail((const unsigned char *)out->text + before, out->nbytes - before);
    memcpy(decoder->held, out->text + out->nbytes - tail, tail);
    decoder->held_count = (int)tail;
    out->nbytes -= tail;
    out->text[out->nbytes] = 0;
    return TRI_OK;
}

/* The first token, written without its gaps: `<gap>a` is a. */
static tri_status push_without_gaps(tri_decoder *decoder, const char *name, size_t nbytes, tri_string *out)
{
    for (size_t at = 0; at < nbytes;) {
        const char *gap = memmem(name + at, nbytes - at, TRI_GAP, strlen(TRI_GAP));
        const size_t end = gap != NULL ? (size_t)(gap - name) : nbytes;
        TRI_TRY(push_bytes(decoder, name + at, end - at, out));
        at = gap != NULL ? end + strlen(TRI_GAP) : nbytes;
    }
    return TRI_OK;
}

tri_status tri_decoder_push(tri_decoder *decoder, int32_t id, tri_string *out)
{
    const tri_tokenizer *tokenizer = decoder->tokenizer;
    size_t nbytes;
    const char *text = tri_vocabulary_text(&tokenizer->plain, id, &nbytes);
    if (text == NULL)
        return tri_fail(TRI_EINVAL, "%s: there is no token %d (below %lld)", tokenizer->origin, id,
                        (long long)tri_tokenizer_count(tokenizer));
    if (!decoder->special && tri_tokenizer_is_special(tokenizer, id))
        return TRI_OK;
    const bool first = !decoder->began;
    decoder->began = true;
    if (first && tokenizer->leading == TRI_LEADING_GAPS) {
        const char *name = tri_vocabulary_text(&tokenizer->names, id, &nbytes);
        return push_without_gaps(decoder, name, nbytes, out);
    }
    while (decoder->strip > 0 && nbytes >= tokenizer->strip_nbytes &&
           memcmp(text, tokenizer->strip_text, tokenizer->strip_nbytes) == 0) {
        text += tokenizer->strip_nbytes;
        nbytes -= tokenizer->strip_nbytes;
        decoder->strip--;
    }
    if (nbytes > 0)
        decoder->strip = 0;
    return push_bytes(decoder, text, nbytes, out);
}

tri_status tri_decoder_end(tri_decoder *decoder, tri_string *out)
{
    size_t count = (size_t)decoder->held_count;
    decoder->held_count = 0;
    return tri_string_append_bytes(out, decoder->held, count);
}

tri_status tri_decode(const tri_tokenizer *tokenizer, const int32_t *ids, size_t count, bool special, tri_string *out)
{
    tri_decoder decoder = tri_decoder_make(tokenizer, special);
    for (size_t i = 0; i < count; i++)
        TRI_TRY_IN(tri_decoder_push(&decoder, ids[i], out), "token number %zu", i);
    return tri_decoder_end(&decoder, out);
}
