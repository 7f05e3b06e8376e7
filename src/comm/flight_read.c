/* SPDX-License-Identifier: Apache-2.0
 *
 * flight_read.c: the parser of flight records: JSON lines (jansson), field by field.
 */
#include "comm/flight_read.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "comm/flight.h"

#define FILE_LIMIT_NBYTES ((uint64_t)16 << 20)
#define LINES_MAX         65536
#define WORLD_MAX         1000000

/* A line of the file. */
typedef struct line_place {
    const char *origin;
    size_t number;
} line_place;

static tri_status line_wrong(const line_place *place, const char *key, const char *wanted)
{
    return tri_fail(TRI_EFORMAT, "%s: line %zu: want %s in '%s'", place->origin, place->number, wanted, key);
}

static tri_status int_read(const json_t *object, const line_place *place, const char *key, int64_t low, int64_t high,
                           int64_t *out)
{
    const json_t *found = json_object_get(object, key);
    char wanted[96];
    *out = json_integer_value(found);
    if (json_is_integer(found) && *out >= low && *out <= high)
        return TRI_OK;
    snprintf(wanted, sizeof(wanted), "a whole number from %" PRId64 " to %" PRId64, low, high);
    return line_wrong(place, key, wanted);
}

static tri_status text_read(const json_t *object, const line_place *place, const char *key, char *out, size_t capacity)
{
    const char *text = json_string_value(json_object_get(object, key));
    char wanted[64];
    if (text && strlen(text) < capacity) {
        snprintf(out, capacity, "%s", text);
        return TRI_OK;
    }
    snprintf(wanted, sizeof(wanted), "a text below %zu bytes", capacity);
    return line_wrong(place, key, wanted);
}

static tri_status hex_read(const json_t *object, const line_place *place, const char *key, uint64_t *out)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return line_wrong(place, key, "16 hex digits");
    *out = strtoull(text, NULL, 16);
    return TRI_OK;
}

static tri_status status_read(const json_t *object, const line_place *place, tri_status *out)
{
    char text[32];
    TRI_TRY(text_read(object, place, "status", text, sizeof(text)));
    for (int status = 0; status < TRI_STATUS_COUNT; status++) {
        if (strcmp(text, tri_status_name((tri_status)status)) == 0) {
            *out = (tri_status)status;
            return TRI_OK;
        }
    }
    return line_wrong(place, "status", "the name of a status");
}

static tri_status head_read(const json_t *object, const line_place *place, tri_flight_record *out)
{
    int64_t version, rank, world, origin, kept;
    TRI_TRY(int_read(object, place, "trireme_flight", TRI_FLIGHT_VERSION, TRI_FLIGHT_VERSION, &version));
    TRI_TRY(int_read(object, place, "world", 1, WORLD_MAX, &world));
    TRI_TRY(int_read(object, place, "rank", 0, world - 1, &rank));
    TRI_TRY(int_read(object, place, "origin", -1, world - 1, &origin));
    TRI_TRY(text_read(object, place, "job", out->job, sizeof(out->job)));
    TRI_TRY(text_read(object, place, "host", out->host, sizeof(out->host)));
    TRI_TRY(text_read(object, place, "cause", out->cause, sizeof(out->cause)));
    TRI_TRY(status_read(object, place, &out->status));
    TRI_TRY(int_read(object, place, "written_ns", 0, INT64_MAX, &out->written_ns));
    TRI_TRY(int_read(object, place, "calls", 0, INT64_MAX, &out->calls));
    TRI_TRY(int_read(object, place, "kept", 0, LINES_MAX, &kept));
    out->rank = (int)rank;
    out->world = (int)world;
    out->origin = (int)origin;
    out->kept = (size_t)kept;
    return TRI_OK;
}

/* Names of operations and types to their numbers; those of another version of Trireme are refused. */
static tri_status kinds_read(const json_t *object, const line_place *place, tri_frame *frame)
{
    char op[32], dtype[16];
    TRI_TRY(text_read(object, place, "op", op, sizeof(op)));
    TRI_TRY(text_read(object, place, "dtype", dtype, sizeof(dtype)));
    for (int i = 1; i < TRI_COMM_OP_COUNT && frame->op == 0; i++) {
        if (strcmp(op, tri_comm_op_name((tri_comm_op)i)) == 0)
            frame->op = (uint8_t)i;
    }
    if (frame->op == 0)
        return line_wrong(place, "op", "an operation");
    tri_dtype found;
    if (tri_dtype_find(dtype, &found)) {
        frame->dtype = (uint8_t)found;
        return TRI_OK;
    }
    return line_wrong(place, "dtype", "an element type");
}

static tri_status call_read(const json_t *object, const line_place *place, tri_board_call *call)
{
    int64_t number, group, sequence, count, reduce;
    *call = (tri_board_call){.frame = {.kind = TRI_FRAME_DATA}};
    TRI_TRY(int_read(object, place, "number", 1, INT64_MAX, &number));
    TRI_TRY(int_read(object, place, "group", 0, UINT32_MAX, &group));
    TRI_TRY(int_read(object, place, "sequence", 0, INT64_MAX, &sequence));
    TRI_TRY(int_read(object, place, "count", 0, INT64_MAX, &count));
    TRI_TRY(int_read(object, place, "reduce", 0, UINT32_MAX, &reduce));
    TRI_TRY(kinds_read(object, place, &call->frame));
    TRI_TRY(text_read(object, place, "name", call->name, sizeof(call->name)));
    TRI_TRY(hex_read(object, place, "hash", &call->frame.name));
    TRI_TRY(hex_read(object, place, "members", &call->members));
    TRI_TRY(int_read(object, place, "begin_ns", INT64_MIN, INT64_MAX, &call->begin_ns));
    TRI_TRY(int_read(object, place, "end_ns", INT64_MIN, INT64_MAX, &call->end_ns));
    call->number = (uint64_t)number;
    call->frame.group = (uint32_t)group;
    call->frame.sequence = (uint64_t)sequence;
    call->frame.count = (uint64_t)count;
    call->frame.reduce = (uint32_t)reduce;
    call->runs = call->end_ns == 0;
    return call->runs ? TRI_OK : status_read(object, place, &call->status);
}

static int call_order(const void *a, const void *b)
{
    const tri_frame *left = &((const tri_board_call *)a)->frame, *right = &((const tri_board_call *)b)->frame;
    bool pairs[2] = {left->op == TRI_COMM_SEND_RECV, right->op == TRI_COMM_SEND_RECV};
    if (pairs[0] != pairs[1])
        return pairs[0] ? 1 : -1; /* numbered pair by pair: behind all others */
    if (left->group != right->group)
        return left->group < right->group ? -1 : 1;
    return left->sequence < right->sequence ? -1 : left->sequence > right->sequence;
}

static tri_status line_read(const char *text, size_t nbytes, const line_place *place, tri_flight_record *out)
{
    json_error_t error;
    json_t *object = json_loadb(text, nbytes, JSON_REJECT_DUPLICATES, &error);
    tri_status status;
    if (!json_is_object(object))
        status = tri_fail(TRI_EFORMAT, "%s: line %zu: want a JSON object%s%.60s", place->origin, place->number,
                          object ? "" : ", got ", object ? "" : error.text);
    else if (place->number == 1)
        status = head_read(object, place, out);
    else
        status = call_read(object, place, &out->list[place->number - 2]);
    json_decref(object);
    return status;
}

/* What is set aside for calls follows from the lines that are there, not from the number that the head gives. */
static size_t lines_count(const char *at, const char *end)
{
    size_t count = 1;
    for (; at < end; at++)
        count += *at == '\n';
    return count;
}

tri_status tri_flight_parse(const char *text, size_t nbytes, const char *origin, tri_flight_record *out)
{
    line_place place = {.origin = origin};
    const char *at = text, *end = text + nbytes;
    tri_status status = TRI_OK;
    *out = (tri_flight_record){.rank = 0};
    while (status == TRI_OK && at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((stop ? stop : end) - at);
        place.number++;
        if (place.number > 1 && place.number - 2 == out->kept)
            status = tri_fail(TRI_EFORMAT, "%s: want %zu calls, got more", origin, out->kept);
        else
            status = line_read(at, length, &place, out);
        if (status == TRI_OK && place.number == 1) {
            size_t lines = lines_count(at + length, end);
            out->list = tri_alloc_zero((out->kept < lines ? out->kept : lines) + 1, sizeof(*out->list));
            status = out->list ? TRI_OK : TRI_ENOMEM;
        }
        at += length + (stop != NULL);
    }
    if (status == TRI_OK && (place.number == 0 || place.number - 1 != out->kept))
        status = tri_fail(TRI_EFORMAT, "%s: want a head and %zu calls, got %zu lines", origin, out->kept, place.number);
    if (status != TRI_OK) {
        tri_flight_fini(out);
        return status;
    }
    qsort(out->list, out->kept, sizeof(*out->list), call_order);
    return TRI_OK;
}

tri_status tri_flight_load(const char *path, tri_flight_record *out)
{
    char *text;
    size_t nbytes;
    *out = (tri_flight_record){.rank = 0};
    TRI_TRY(tri_fs_read(path, FILE_LIMIT_NBYTES, &text, &nbytes));
    tri_status status = tri_flight_parse(text, nbytes, path, out);
    tri_free(text);
    return status;
}

void tri_flight_fini(tri_flight_record *record)
{
    tri_free(record->list);
    *record = (tri_flight_record){.rank = 0};
}

const tri_board_call *tri_flight_find(const tri_flight_record *record, uint32_t group, uint64_t sequence)
{
    tri_board_call key = {.frame = {.op = TRI_COMM_BARRIER, .group = group, .sequence = sequence}};
    return record->kept ? bsearch(&key, record->list, record->kept, sizeof(key), call_order) : NULL;
}

const tri_board_call *tri_flight_latest(const tri_flight_record *record)
{
    const tri_board_call *latest = NULL;
    for (size_t i = 0; i < record->kept; i++) {
        if (!latest || record->list[i].number > latest->number)
            latest = &record->list[i];
    }
    return latest;
}
