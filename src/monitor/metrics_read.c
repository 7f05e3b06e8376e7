/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics_read.c: lines of metrics.jsonl. Texts are read by jansson; numbers, of which a long run has many millions,
 * are looked up where they are: lines are flat, and a quote within a text has a backslash, so `"loss":` is that key
 * alone.
 */
#include "monitor/metrics_read.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"

#define FIRST_NBYTES (1u << 14) /* the system reads the more ahead the more is asked for, and somebody waits for it */
#define CHUNK_NBYTES (1u << 18)
#define LINE_NBYTES  (64u << 20) /* of one line, at most */

struct tri_metrics_line {
    const char *text, *end; /* at the end is '\n' */
    const char **at;        /* behind the number found last */
    json_t **object;        /* NULL: not needed so far */
};

/* What is behind `"key":`; NULL: that is not there. */
static const char *key_find(const char *text, const char *end, const char *key, size_t length)
{
    for (const char *at = text; (at = memchr(at, '"', (size_t)(end - at))); at++)
        if ((size_t)(end - at) > length + 3 && memcmp(at + 1, key, length) == 0 && at[length + 1] == '"' &&
            at[length + 2] == ':' && (at == text || at[-1] != '\\'))
            return at + length + 3;
    return NULL;
}

/* Where the value of a key begins; NULL: it is not there. */
static const char *value_find(const tri_metrics_line *line, const char *key)
{
    const size_t length = strlen(key);
    const char *found = key_find(*line->at, line->end, key, length);
    if (!found)
        found = key_find(line->text, line->end, key, length);
    if (!found)
        return NULL;
    *line->at = found;
    return found + strspn(found, " ");
}

static bool is_number(const char *value)
{
    return value && (*value == '-' || (*value >= '0' && *value <= '9'));
}

int64_t tri_metrics_line_step(const tri_metrics_line *line)
{
    const char *value = value_find(line, "step");
    char *end;
    const long long step = is_number(value) ? strtoll(value, &end, 10) : -1;
    return step >= 0 && *end != '.' && *end != 'e' && *end != 'E' ? step : -1;
}

double tri_metrics_line_real(const tri_metrics_line *line, const char *key)
{
    const char *value = value_find(line, key);
    return is_number(value) ? strtod(value, NULL) : (double)NAN;
}

const char *tri_metrics_line_text(const tri_metrics_line *line, const char *key)
{
    const char *value = value_find(line, key);
    if (!value || *value != '"')
        return NULL;
    if (!*line->object)
        *line->object = json_loadb(line->text, (size_t)(line->end - line->text), 0, NULL);
    return json_string_value(json_object_get(*line->object, key));
}

void tri_metrics_line_numbered(const tri_metrics_line *line, const char *prefix, tri_metrics_numbered visit, void *arg)
{
    const size_t length = strlen(prefix);
    for (const char *at = *line->at; (at = memchr(at, '"', (size_t)(line->end - at))); at++) {
        char *end;
        if ((size_t)(line->end - at) < length + 4 || memcmp(at + 1, prefix, length) != 0 || at[-1] == '\\')
            continue;
        const long number = strtol(at + 1 + length, &end, 10);
        if (end[0] == '"' && end[1] == ':' && is_number(end + 2) && number >= 0 && number <= INT32_MAX)
            visit(arg, (int)number, strtod(end + 2, NULL));
    }
}

static void lines_give(const char *bytes, size_t nbytes, tri_metrics_seen seen, void *arg)
{
    const char *start = bytes, *stop = bytes + nbytes, *end;
    for (; (end = memchr(start, '\n', (size_t)(stop - start))); start = end + 1) {
        const char *at = start;
        json_t *object = NULL;
        const tri_metrics_line line = {start, end, &at, &object};
        if (*start == '{' && end[-1] == '}' && !memchr(start, 0, (size_t)(end - start)))
            seen(arg, &line);
        json_decref(object);
    }
}

static void seam_keep(tri_metrics_tail *reader, const tri_metrics_piece *piece)
{
    const size_t keep = piece->nbytes < sizeof(reader->seam) ? piece->nbytes : sizeof(reader->seam);
    memcpy(reader->seam, piece->bytes + piece->nbytes - keep, keep);
    reader->seam_nbytes = keep;
    reader->at += piece->nbytes;
}

/* Whole lines from where the reader is; none where the last one is still being written. */
static tri_status piece_read(tri_metrics_tail *reader, tri_metrics_piece *piece)
{
    size_t got = 0;
    piece->nbytes = 0;
    if (reader->at >= reader->all)
        return TRI_OK;
    for (size_t room = reader->at == 0 ? FIRST_NBYTES : CHUNK_NBYTES;; room *= 4) {
        char *larger = room > piece->room ? tri_realloc(piece->bytes, room) : piece->bytes;
        if (!larger)
            return TRI_ENOMEM;
        piece->room = room > piece->room ? room : piece->room;
        piece->bytes = larger;
        TRI_TRY(tri_fs_read_part(reader->path, reader->at, piece->bytes, room, &got));
        const char *last = memrchr(piece->bytes, '\n', got);
        if (last)
            piece->nbytes = (size_t)(last - piece->bytes) + 1;
        if (last || got < room || room >= LINE_NBYTES)
            break;
    }
    if (piece->nbytes > 0)
        seam_keep(reader, piece);
    return TRI_OK;
}

void tri_metrics_trace_id_read(const char *path, char trace[TRI_TRACE_ID_NBYTES])
{
    tri_fs_map map;
    trace[0] = 0;
    if (!tri_fs_exists(path) || tri_fs_map_open(path, &map) != TRI_OK)
        return;
    const char *end = map.nbytes > 0 ? memchr(map.bytes, '\n', map.nbytes) : NULL;
    json_t *line = end ? json_loadb(map.bytes, (size_t)(end - (const char *)map.bytes), 0, NULL) : NULL;
    const char *found = json_string_value(json_object_get(line, "trace_id"));
    if (found && tri_trace_id_is(found))
        snprintf(trace, TRI_TRACE_ID_NBYTES, "%s", found);
    json_decref(line);
    tri_fs_map_close(&map);
}

tri_status tri_metrics_fetch(tri_metrics_tail *reader, tri_metrics_piece *piece)
{
    piece->nbytes = 0;
    reader->restarted = false;
    if (!tri_fs_exists(reader->path))
        return TRI_OK;
    /* A file that is not what it was is read again. */
    char there[TRI_METRICS_SEAM_NBYTES];
    size_t got = 0;
    TRI_TRY(tri_fs_nbytes(reader->path, &reader->all));
    if (reader->all >= reader->at && reader->seam_nbytes > 0)
        TRI_TRY(tri_fs_read_part(reader->path, reader->at - reader->seam_nbytes, there, reader->seam_nbytes, &got));
    if (reader->all < reader->at || got != reader->seam_nbytes || memcmp(there, reader->seam, got) != 0)
        reader->at = reader->seam_nbytes = 0;
    reader->restarted = reader->at == 0;
    return piece_read(reader, piece);
}

void tri_metrics_give(const tri_metrics_piece *piece, tri_metrics_seen seen, void *arg)
{
    if (piece->nbytes > 0)
        lines_give(piece->bytes, piece->nbytes, seen, arg);
}

void tri_metrics_piece_fini(tri_metrics_piece *piece)
{
    tri_free(piece->bytes);
    *piece = (tri_metrics_piece){0};
}

tri_status tri_metrics_read(tri_metrics_tail *reader, tri_metrics_seen seen, void *arg)
{
    tri_metrics_piece piece = {0};
    tri_status status = tri_metrics_fetch(reader, &piece);
    while (status == TRI_OK && piece.nbytes > 0) {
        tri_metrics_give(&piece, seen, arg);
        status = piece_read(reader, &piece);
    }
    tri_metrics_piece_fini(&piece);
    return status;
}
