/* SPDX-License-Identifier: Apache-2.0
 *
 * token_file.c: heads of token files.
 */
#include "data/token_file.h"

#include <inttypes.h>
#include <string.h>

#define LLMC_HEAD_NBYTES 1024

/* Files of llm.c: a head of 256 words: magic, version, count; then the tokens. */
typedef struct llmc_kind {
    uint32_t magic, version;
    int each;
    int64_t vocabulary, end;
} llmc_kind;

static const llmc_kind llmc_kinds[] = {
    {20240520, 1, 2, 50257, 50256},   /* GPT-2 */
    {20240801, 7, 4, 128256, 128001}, /* Llama 3 */
};

static uint32_t read_word(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t read_long(const unsigned char *at)
{
    return read_word(at) | (uint64_t)read_word(at + 4) << 32;
}

static void write_long(unsigned char *at, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

void tri_token_head_write(unsigned char head[TRI_TOKEN_HEAD_NBYTES], int each, int64_t count, int64_t vocabulary,
                          int64_t end)
{
    memset(head, 0, TRI_TOKEN_HEAD_NBYTES);
    memcpy(head, TRI_TOKEN_MAGIC, 8);
    write_long(head + 8, TRI_TOKEN_VERSION | (uint64_t)each << 32);
    write_long(head + 16, (uint64_t)count);
    write_long(head + 24, (uint64_t)vocabulary);
    write_long(head + 32, (uint64_t)end);
}

static tri_status parse_own(const unsigned char *bytes, const char *origin, tri_token_file *file)
{
    const uint32_t version = read_word(bytes + 8), each = read_word(bytes + 12);
    file->count = (int64_t)read_long(bytes + 16);
    file->vocabulary = (int64_t)read_long(bytes + 24);
    file->end = (int64_t)read_long(bytes + 32);
    file->each = (int)each;
    if (version != TRI_TOKEN_VERSION)
        return tri_fail(TRI_EUNSUPPORTED, "%s: want version %u of token files, got %u", origin, TRI_TOKEN_VERSION,
                        version);
    if (each != 2 && each != 4)
        return tri_fail(TRI_EFORMAT, "%s: want tokens of 2 or 4 bytes, got %u", origin, each);
    const int64_t limit = each == 2 ? 65536 : TRI_TOKEN_LIMIT;
    if (file->vocabulary < 1 || file->vocabulary > limit || file->end < -1 || file->end >= file->vocabulary)
        return tri_fail(TRI_EFORMAT,
                        "%s: want a vocabulary of 1 to %" PRId64 " tokens and an end of text within it (or -1), got "
                        "%" PRId64 " and %" PRId64,
                        origin, limit, file->vocabulary, file->end);
    return TRI_OK;
}

static tri_status parse_llmc(const llmc_kind *kind, const unsigned char *bytes, const char *origin,
                             tri_token_file *file)
{
    if (read_word(bytes + 4) != kind->version)
        return tri_fail(TRI_EUNSUPPORTED, "%s: want version %u of llm.c's token file %u, got %u", origin, kind->version,
                        kind->magic, read_word(bytes + 4));
    file->each = kind->each;
    file->count = (int32_t)read_word(bytes + 8);
    file->vocabulary = kind->vocabulary;
    file->end = kind->end;
    return TRI_OK;
}

/* Reads the head; *head_nbytes 0: there is none. */
static tri_status parse_head(tri_token_file *file, size_t *head_nbytes)
{
    const tri_source *source = &file->source;
    *head_nbytes = 0;
    if (source->nbytes >= TRI_TOKEN_HEAD_NBYTES && memcmp(source->bytes, TRI_TOKEN_MAGIC, 8) == 0) {
        *head_nbytes = TRI_TOKEN_HEAD_NBYTES;
        return parse_own(source->bytes, source->origin, file);
    }
    for (size_t i = 0; i < TRI_COUNT_OF(llmc_kinds); i++)
        if (source->nbytes >= LLMC_HEAD_NBYTES && read_word(source->bytes) == llmc_kinds[i].magic) {
            *head_nbytes = LLMC_HEAD_NBYTES;
            return parse_llmc(&llmc_kinds[i], source->bytes, source->origin, file);
        }
    return TRI_OK;
}

static tri_status parse(tri_token_file *file, bool bare)
{
    const char *origin = file->source.origin;
    size_t head;
    TRI_TRY(parse_head(file, &head));
    const uint64_t left = file->source.nbytes - head;
    if (head == 0 && !bare)
        return tri_fail(TRI_EFORMAT, "%s: no token file: want the head of ours or of llm.c", origin);
    if (head == 0) {
        file->each = 2;
        file->count = (int64_t)(left / 2);
        file->end = -1;
    }
    file->tokens = file->source.bytes + head;
    if (file->count < 0 || (uint64_t)file->count > left / (unsigned)file->each ||
        (uint64_t)file->count * (unsigned)file->each != left)
        return tri_fail(TRI_EFORMAT,
                        "%s: want %" PRId64 " tokens of %d bytes behind a head of %zu bytes, got %" PRIu64 " bytes",
                        origin, file->count, file->each, head, left);
    return TRI_OK;
}

tri_status tri_token_file_parse(tri_source *source, bool bare, tri_token_file *file)
{
    *file = (tri_token_file){.source = *source};
    *source = (tri_source){0};
    tri_status status = parse(file, bare);
    if (status != TRI_OK)
        tri_token_file_close(file);
    return status;
}

void tri_token_file_close(tri_token_file *file)
{
    tri_source_fini(&file->source);
    *file = (tri_token_file){0};
}

int64_t tri_token_greatest(const tri_token_file *file)
{
    uint32_t greatest = 0;
    for (int64_t i = 0; i < file->count; i++) {
        uint32_t token = tri_token_at(file, i);
        greatest = token > greatest ? token : greatest;
    }
    return file->count > 0 ? (int64_t)greatest : -1;
}
