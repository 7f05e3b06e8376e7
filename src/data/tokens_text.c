/* SPDX-License-Identifier: Apache-2.0
 *
 * tokens_text.c: a text file as tokens in memory, in 2 or 4 bytes each.
 */
#include <string.h>

#include "data/tokens.h"

#define CHUNK_NBYTES ((size_t)1 << 20)

/* Where the part for validation begins: the first place where the text may be cut from nbytes * (1 - part) on. */
static size_t text_split(const tri_tokenizer *tokenizer, const void *text, size_t nbytes, double part)
{
    return tri_tokenizer_cut(tokenizer, text, nbytes, (size_t)((double)nbytes * (1 - part)));
}

/* The growing array, as it will be read. */
typedef struct packed_tokens {
    unsigned char *bytes;
    size_t count, capacity;
    int each;
} packed_tokens;

static tri_status pack(packed_tokens *packed, const tri_ids *ids)
{
    if (packed->capacity - packed->count < ids->count) {
        size_t capacity = packed->capacity + packed->capacity / 2 + ids->count;
        unsigned char *bytes = tri_realloc(packed->bytes, capacity * (size_t)packed->each);
        if (bytes == NULL)
            return TRI_ENOMEM;
        packed->bytes = bytes;
        packed->capacity = capacity;
    }
    unsigned char *out = packed->bytes + packed->count * (size_t)packed->each;
    for (size_t i = 0; i < ids->count; i++)
        for (int b = 0; b < packed->each; b++)
            *out++ = (unsigned char)(ids->items[i] >> 8 * b);
    packed->count += ids->count;
    return TRI_OK;
}

static tri_status encode_part(const tri_tokenizer *tokenizer, const char *text, size_t first, size_t end,
                              packed_tokens *packed)
{
    tri_encoder *encoder;
    tri_ids ids = {0};
    TRI_TRY(tri_encoder_create(tokenizer, &encoder));
    tri_status status = TRI_OK;
    for (size_t at = first; at < end && status == TRI_OK;) {
        size_t next = at + CHUNK_NBYTES < end ? tri_tokenizer_cut(tokenizer, text, end, at + CHUNK_NBYTES) : end;
        ids.count = 0;
        status = tri_encode(encoder, text + at, next - at, at > 0 ? TRI_ENCODE_RESUME : 0, &ids);
        if (status == TRI_OK)
            status = pack(packed, &ids);
        at = next;
    }
    tri_ids_fini(&ids);
    tri_encoder_destroy(encoder);
    return status;
}

static tri_status encode_text(const tri_data_config *config, const tri_source *source, bool validation,
                              const tri_tokenizer *tokenizer, tri_token_files *out)
{
    const char *text = (const char *)source->bytes;
    const size_t split = text_split(tokenizer, text, source->nbytes, tri_tokens_test_fraction(config));
    packed_tokens packed = {.each = tri_tokenizer_count(tokenizer) <= 65536 ? 2 : 4};
    tri_status status =
        encode_part(tokenizer, text, validation ? split : 0, validation ? source->nbytes : split, &packed);
    tri_token_file *file = status == TRI_OK ? tri_alloc_zero(1, sizeof(*file)) : NULL;
    if (status == TRI_OK && file == NULL)
        status = TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_source_init(&file->source, packed.bytes, packed.count * (size_t)packed.each, source->origin);
    if (status != TRI_OK) {
        tri_free(file);
        tri_free(packed.bytes);
        return status;
    }
    file->tokens = packed.bytes;
    file->each = packed.each;
    file->count = (int64_t)packed.count;
    file->vocabulary = tri_tokenizer_count(tokenizer);
    file->end = tri_tokenizer_end(tokenizer);
    *out = (tri_token_files){.items = file, .count = 1, .owned = packed.bytes};
    return TRI_OK;
}

tri_status tri_tokens_open_text(const tri_data_config *config, bool validation, tri_tokenizer **tokenizer,
                                tri_token_files *out)
{
    tri_source source;
    *tokenizer = NULL;
    const char *name = strcmp(config->tokenizer, "auto") != 0 ? config->tokenizer
                       : config->own_tokenizer != NULL        ? config->own_tokenizer
                                                              : "char";
    TRI_TRY(tri_source_open(&source, config->path));
    tri_status status = config->as_text ? TRI_OK : tri_text_check(&source, "data.as_text=true");
    if (status != TRI_OK) {
        tri_source_fini(&source);
        return status;
    }
    status = strcmp(name, "char") == 0
                 ? tri_tokenizer_chars((const void *const[]){source.bytes}, &source.nbytes, 1, false, tokenizer)
                 : tri_tokenizer_open(name, tokenizer);
    if (status == TRI_OK)
        status = encode_text(config, &source, validation, *tokenizer, out);
    if (status != TRI_OK)
        tri_fail_context(status, "%s", config->path);
    tri_source_fini(&source);
    if (status != TRI_OK) {
        tri_tokenizer_close(*tokenizer);
        *tokenizer = NULL;
    }
    return status;
}
