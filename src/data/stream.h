/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.h: a file of a data set as a stream of bytes, plain or gzip, front to back in bounded memory.
 *
 * A tri_source is the bytes of a file as they are (mapped, or the caller's); a tri_stream reads them once, inflating
 * where they begin as gzip does. Every message names the source. Nothing here knows formats.
 */
#ifndef TRI_DATA_STREAM_H
#define TRI_DATA_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fs.h"

typedef struct tri_source {
    char *origin; /* for messages; owned */
    const unsigned char *bytes;
    size_t nbytes;
    tri_fs_map map; /* bytes NULL: the bytes are the caller's */
    bool plain;     /* never inflated, whatever the first bytes are, */
    bool deflated;  /* but for this: the bytes are deflated, without a head */
    bool has_sum;   /* CRC-32 of the content, inflated, is `sum` */
    uint32_t sum;
    int lines_before; /* of a text that was made of a file: added to the numbers of lines */
} tri_source;

/* Maps a file. */
tri_status tri_source_open(tri_source *source, const char *path);
/* Borrows bytes until fini. */
tri_status tri_source_init(tri_source *source, const void *bytes, size_t nbytes, const char *origin);
/* CRC-32 of more bytes behind those that gave `sum`; 0 at first. */
uint32_t tri_source_sum(uint32_t sum, const void *bytes, size_t nbytes);
/* TRI_EFORMAT: the source says that it has another one. */
tri_status tri_source_check_sum(const tri_source *source, uint32_t sum);
/* Also for a zeroed source. */
void tri_source_fini(tri_source *source);
/* What iconv calls the encoding of a text in 2 bytes a character; NULL: the text is none of them. */
const char *tri_text_wide_encoding(const void *text, size_t nbytes);
/* TRI_EFORMAT for what is no plain text: UTF-16, JSON. `option`: what lets it pass, for the message. */
tri_status tri_text_check(const tri_source *source, const char *option);

typedef struct tri_stream {
    const tri_source *source;
    size_t used;                 /* bytes of the source taken so far */
    struct tri_inflate *inflate; /* NULL: plain */
    const unsigned char *piece;  /* bytes ready to be read */
    size_t piece_nbytes;
    uint64_t position; /* bytes read or skipped so far */
} tri_stream;

/* The source must outlive the stream. */
tri_status tri_stream_open(tri_stream *stream, const tri_source *source);
/* The next bytes that are together, at least one, or none at the end; taken as read. Valid until the next call. */
tri_status tri_stream_next(tri_stream *stream, const unsigned char **bytes, size_t *nbytes);
/* Exactly nbytes, or TRI_EFORMAT. */
tri_status tri_stream_read(tri_stream *stream, void *out, size_t nbytes);
tri_status tri_stream_skip(tri_stream *stream, uint64_t nbytes);
/* Reads row `index` of rows of `each` bytes, `*at` being the row the stream is at; index >= *at. */
tri_status tri_stream_pick(tri_stream *stream, size_t each, int64_t *at, int64_t index, void *out);
/* Checks that nothing is left (and, for gzip, the checksum). */
tri_status tri_stream_finish(tri_stream *stream);
/* Also for a zeroed or half-opened stream. */
void tri_stream_close(tri_stream *stream);

/* Checks that the source holds `wanted` bytes once inflated. gzip: believes the length at its end when it agrees, and
 * inflates everything to count otherwise (several members, or more than 4 GiB). */
tri_status tri_source_check_length(const tri_source *source, uint64_t wanted);

#endif
