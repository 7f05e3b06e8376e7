/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.c: plain bytes are handed on without a copy; gzip is inflated into one fixed buffer, member after member.
 */
#include "data/stream.h"

#include <inttypes.h>
#include <string.h>
#include <zlib.h>

#include "base/events.h"

#define BUFFER_NBYTES      ((size_t)64 << 10)
#define INPUT_LIMIT_NBYTES ((size_t)1 << 30) /* zlib counts in 32 bits */

typedef struct tri_inflate {
    z_stream zlib;
    bool ended;   /* the current member is through */
    uint32_t sum; /* of what was inflated, where the source has one */
    unsigned char buffer[BUFFER_NBYTES];
} tri_inflate;

tri_status tri_source_init(tri_source *source, const void *bytes, size_t nbytes, const char *origin)
{
    *source = (tri_source){.origin = tri_strdup(origin), .bytes = bytes, .nbytes = nbytes};
    return source->origin != NULL ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_source_open(tri_source *source, const char *path)
{
    TRI_TRY(tri_source_init(source, NULL, 0, path));
    tri_status status = tri_fs_map_open(path, &source->map);
    if (status != TRI_OK) {
        source->map = (tri_fs_map){0};
        tri_source_fini(source);
        return status;
    }
    source->bytes = source->map.bytes;
    source->nbytes = source->map.nbytes;
    return TRI_OK;
}

void tri_source_fini(tri_source *source)
{
    if (source->map.bytes != NULL)
        tri_fs_map_close(&source->map);
    tri_free(source->origin);
    *source = (tri_source){0};
}

static bool is_packed(const tri_source *source)
{
    return source->deflated ||
           (!source->plain && source->nbytes >= 2 && source->bytes[0] == 0x1f && source->bytes[1] == 0x8b);
}

uint32_t tri_source_sum(uint32_t sum, const void *bytes, size_t nbytes)
{
    return (uint32_t)crc32_z(sum, bytes, nbytes);
}

tri_status tri_source_check_sum(const tri_source *source, uint32_t sum)
{
    if (!source->has_sum || sum == source->sum)
        return TRI_OK;
    return tri_fail(TRI_EFORMAT, "%s: the file is damaged: want the checksum %08" PRIx32 ", got %08" PRIx32,
                    source->origin, source->sum, sum);
}

static void *zlib_alloc(void *arg, unsigned count, unsigned each)
{
    (void)arg;
    return tri_alloc_zero(count, each);
}

static void zlib_free(void *arg, void *memory)
{
    (void)arg;
    tri_free(memory);
}

tri_status tri_stream_open(tri_stream *stream, const tri_source *source)
{
    *stream = (tri_stream){.source = source};
    if (!is_packed(source))
        return TRI_OK;
    tri_inflate *inflate = tri_alloc_zero(1, sizeof(*inflate));
    if (inflate == NULL)
        return TRI_ENOMEM;
    inflate->zlib.zalloc = zlib_alloc;
    inflate->zlib.zfree = zlib_free;
    if (inflateInit2(&inflate->zlib, source->deflated ? -MAX_WBITS : 16 + MAX_WBITS) != Z_OK) {
        tri_free(inflate);
        return tri_fail(TRI_ENOMEM, "%s: zlib found no memory", source->origin);
    }
    stream->inflate = inflate;
    return TRI_OK;
}

void tri_stream_close(tri_stream *stream)
{
    if (stream->inflate != NULL) {
        inflateEnd(&stream->inflate->zlib);
        tri_free(stream->inflate);
    }
    *stream = (tri_stream){0};
}

/* Inflates until there is a piece, or the source ends in good order. */
static tri_status inflate_piece(tri_stream *stream)
{
    const tri_source *source = stream->source;
    tri_inflate *inflate_state = stream->inflate;
    z_stream *zlib = &inflate_state->zlib;
    while (stream->piece_nbytes == 0) {
        size_t left = source->nbytes - stream->used;
        if (inflate_state->ended) {
            if (left == 0)
                return TRI_OK;
            if (inflateReset(zlib) != Z_OK)
                return tri_fail(TRI_EINTERNAL, "%s: zlib cannot begin a second member", source->origin);
            inflate_state->ended = false;
        }
        unsigned given = (unsigned)(left < INPUT_LIMIT_NBYTES ? left : INPUT_LIMIT_NBYTES);
        zlib->next_in = (unsigned char *)(uintptr_t)(source->bytes + stream->used); /* zlib reads only */
        zlib->avail_in = given;
        zlib->next_out = inflate_state->buffer;
        zlib->avail_out = BUFFER_NBYTES;
        int code = inflate(zlib, Z_NO_FLUSH);
        stream->used += given - zlib->avail_in;
        stream->piece = inflate_state->buffer;
        stream->piece_nbytes = BUFFER_NBYTES - zlib->avail_out;
        inflate_state->ended = code == Z_STREAM_END;
        if (source->has_sum)
            inflate_state->sum = tri_source_sum(inflate_state->sum, stream->piece, stream->piece_nbytes);
        if (code == Z_STREAM_END)
            TRI_TRY(tri_source_check_sum(source, inflate_state->sum));
        if (code == Z_MEM_ERROR)
            return tri_fail(TRI_ENOMEM, "%s: zlib found no memory", source->origin);
        if (code == Z_BUF_ERROR && stream->piece_nbytes == 0)
            return tri_fail(TRI_EFORMAT, "%s: gzip data ends too early, after %zu bytes", source->origin,
                            source->nbytes);
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
            return tri_fail(TRI_EFORMAT, "%s: damaged gzip data near byte %zu (%s)", source->origin, stream->used,
                            zlib->msg != NULL ? zlib->msg : "no reason given");
    }
    return TRI_OK;
}

static tri_status fill(tri_stream *stream)
{
    if (stream->piece_nbytes > 0)
        return TRI_OK;
    if (stream->inflate != NULL)
        return inflate_piece(stream);
    stream->piece = stream->source->bytes == NULL ? NULL : stream->source->bytes + stream->used;
    stream->piece_nbytes = stream->source->nbytes - stream->used;
    stream->used = stream->source->nbytes;
    return TRI_OK;
}

static void take(tri_stream *stream, size_t nbytes)
{
    stream->piece += nbytes;
    stream->piece_nbytes -= nbytes;
    stream->position += nbytes;
}

tri_status tri_stream_next(tri_stream *stream, const unsigned char **bytes, size_t *nbytes)
{
    TRI_TRY(fill(stream));
    *bytes = stream->piece;
    *nbytes = stream->piece_nbytes;
    if (*nbytes > 0) {
        take(stream, *nbytes);
        tri_counter_add(TRI_COUNT_READ_NBYTES, *nbytes);
    }
    return TRI_OK;
}

/* Copies to `out`, or skips when out is NULL. */
static tri_status advance(tri_stream *stream, unsigned char *out, uint64_t nbytes)
{
    uint64_t done = 0;
    while (done < nbytes) {
        TRI_TRY(fill(stream));
        if (stream->piece_nbytes == 0)
            return tri_fail(TRI_EFORMAT,
                            "%s: ends too early: want %" PRIu64 " bytes from byte %" PRIu64 " on, got %" PRIu64,
                            stream->source->origin, nbytes, stream->position - done, done);
        size_t part = nbytes - done < stream->piece_nbytes ? (size_t)(nbytes - done) : stream->piece_nbytes;
        if (out != NULL)
            memcpy(out + done, stream->piece, part);
        take(stream, part);
        done += part;
    }
    return TRI_OK;
}

tri_status tri_stream_read(tri_stream *stream, void *out, size_t nbytes)
{
    tri_counter_add(TRI_COUNT_READ_NBYTES, nbytes);
    return advance(stream, out, nbytes);
}

tri_status tri_stream_skip(tri_stream *stream, uint64_t nbytes)
{
    return advance(stream, NULL, nbytes);
}

tri_status tri_stream_pick(tri_stream *stream, size_t each, int64_t *at, int64_t index, void *out)
{
    if (index < *at)
        return tri_fail(TRI_EINVAL, "%s: rows are read front to back: want row %" PRId64 ", stands at %" PRId64,
                        stream->source->origin, index, *at);
    TRI_TRY(tri_stream_skip(stream, (uint64_t)(index - *at) * each));
    TRI_TRY(tri_stream_read(stream, out, each));
    *at = index + 1;
    return TRI_OK;
}

tri_status tri_stream_finish(tri_stream *stream)
{
    TRI_TRY(fill(stream));
    if (stream->piece_nbytes > 0)
        return tri_fail(TRI_EFORMAT, "%s: bytes are left over after byte %" PRIu64, stream->source->origin,
                        stream->position);
    return TRI_OK;
}

static tri_status count_inflated(const tri_source *source, uint64_t wanted)
{
    tri_stream stream;
    TRI_TRY(tri_stream_open(&stream, source));
    tri_status status = tri_stream_skip(&stream, wanted);
    if (status == TRI_OK)
        status = tri_stream_finish(&stream);
    tri_stream_close(&stream);
    return status;
}

tri_status tri_source_check_length(const tri_source *source, uint64_t wanted)
{
    if (source->deflated)
        return count_inflated(source, wanted);
    if (is_packed(source)) {
        uint32_t low = 0; /* the last 4 bytes of gzip: the length modulo 2^32 */
        for (size_t i = 0; i < 4 && source->nbytes >= 18; i++)
            low |= (uint32_t)source->bytes[source->nbytes - 4 + i] << (8 * i);
        /* deflate packs at most 1032 to 1, so a small file cannot hold what its head claims */
        if (low == (uint32_t)wanted && wanted / 1032 <= source->nbytes)
            return TRI_OK;
        return count_inflated(source, wanted);
    }
    if (source->nbytes != wanted)
        return tri_fail(TRI_EFORMAT, "%s: its head asks for a file of %" PRIu64 " bytes, got %zu", source->origin,
                        wanted, source->nbytes);
    return TRI_OK;
}
