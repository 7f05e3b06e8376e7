/* SPDX-License-Identifier: Apache-2.0
 *
 * event_file.c: a record is its length (8 bytes), the length's checksum (4), the Event, its checksum (4). Checksums are
 * CRC-32C, rotated and shifted ("masked") so that a checksum of text with checksums in it stays one.
 */
#include "monitor/event_file.h"

#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/runtime.h"

#define HEAD_NBYTES  12u
#define TAIL_NBYTES  4u
#define FLUSH_NBYTES (256u << 10)
#define NAME_START   "events.out.tfevents."
#define NAME_END     ".trireme"

/* Fields of Event, and of its SourceMetadata: tensorboard/compat/proto/event.proto. */
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SOURCE = 10, SOURCE_WRITER = 1 };

static const char *const writers[TRI_EVENT_ORIGINS] = {
    [TRI_EVENT_HEAD] = "trireme", [TRI_EVENT_METRICS] = "metrics.jsonl", [TRI_EVENT_MODEL] = "model"};

struct tri_event_file {
    char *path;
    tri_string records; /* not yet in the file */
    tri_proto event;    /* under way */
    int64_t at;         /* bytes of the file: another one may have gone on with it */
    bool failed;
};

static uint32_t masked(const void *bytes, size_t nbytes)
{
    uint32_t crc = tri_crc32c(bytes, nbytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void little_put(unsigned char *out, uint64_t value, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++)
        out[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t little_read(const unsigned char *bytes, size_t nbytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < nbytes; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

/* A record at *at: its Event, and *at moves behind it; false: it is not whole, or its checksums are wrong. */
static bool record_next(const unsigned char *bytes, size_t nbytes, size_t *at, const unsigned char **event,
                        size_t *event_nbytes)
{
    const unsigned char *head = bytes + *at;
    if (nbytes - *at < HEAD_NBYTES + TAIL_NBYTES || little_read(head + 8, 4) != masked(head, 8))
        return false;
    uint64_t length = little_read(head, 8);
    if (length > nbytes - *at - HEAD_NBYTES - TAIL_NBYTES ||
        little_read(head + HEAD_NBYTES + length, 4) != masked(head + HEAD_NBYTES, (size_t)length))
        return false;
    *event = head + HEAD_NBYTES;
    *event_nbytes = (size_t)length;
    *at += HEAD_NBYTES + (size_t)length + TAIL_NBYTES;
    return true;
}

static tri_status record_append(tri_string *out, const void *event, size_t nbytes)
{
    unsigned char head[HEAD_NBYTES], tail[TAIL_NBYTES];
    little_put(head, nbytes, 8);
    little_put(head + 8, masked(head, 8), 4);
    little_put(tail, masked(event, nbytes), 4);
    TRI_TRY(tri_string_append_bytes(out, head, sizeof(head)));
    TRI_TRY(tri_string_append_bytes(out, event, nbytes));
    return tri_string_append_bytes(out, tail, sizeof(tail));
}

/* --- what is kept of an earlier rank 0's --- */

static void event_look(const unsigned char *event, size_t nbytes, int64_t *step, tri_event_origin *origin)
{
    tri_proto_field field, inner;
    size_t at = 0;
    *step = 0;
    *origin = TRI_EVENT_MODEL;
    while (tri_proto_next(event, nbytes, &at, &field)) {
        size_t inside = 0;
        if (field.field == EVENT_STEP)
            *step = (int64_t)field.number;
        if (field.field == EVENT_FILE_VERSION)
            *origin = TRI_EVENT_HEAD;
        if (field.field != EVENT_SOURCE || !field.bytes || !tri_proto_next(field.bytes, field.nbytes, &inside, &inner))
            continue;
        for (int i = 0; inner.bytes && i < TRI_EVENT_ORIGINS; i++)
            if (inner.nbytes == strlen(writers[i]) && memcmp(inner.bytes, writers[i], inner.nbytes) == 0)
                *origin = (tri_event_origin)i;
    }
}

/* The newest step below first_step that has lines; 0: none. */
static int64_t lines_end(const unsigned char *bytes, size_t nbytes, int64_t first_step)
{
    int64_t step, newest = 0;
    tri_event_origin origin;
    const unsigned char *event;
    size_t at = 0, length;
    while (record_next(bytes, nbytes, &at, &event, &length)) {
        event_look(event, length, &step, &origin);
        if (origin == TRI_EVENT_METRICS && step < first_step && step > newest)
            newest = step;
    }
    return newest;
}

static tri_status records_keep(const unsigned char *bytes, size_t nbytes, int64_t first_step, int64_t lines_from,
                               tri_string *kept)
{
    int64_t step;
    tri_event_origin origin;
    const unsigned char *event;
    size_t at = 0, before = 0, length;
    for (; record_next(bytes, nbytes, &at, &event, &length); before = at) {
        event_look(event, length, &step, &origin);
        int64_t end = origin == TRI_EVENT_METRICS ? lines_from : first_step;
        bool gone = origin == TRI_EVENT_HEAD ? first_step == 0 : step >= end;
        if (!gone)
            TRI_TRY(tri_string_append_bytes(kept, bytes + before, at - before));
    }
    return TRI_OK;
}

static tri_status go_on(tri_event_file *file, int64_t first_step, int64_t *lines_from, bool *empty)
{
    char *bytes;
    size_t nbytes, at = 0, length;
    const unsigned char *event;
    tri_string kept = {0};
    TRI_TRY(tri_fs_read(file->path, 0, &bytes, &nbytes));
    const unsigned char *records = (const unsigned char *)bytes;
    *lines_from = lines_end(records, nbytes, first_step);
    tri_status status = records_keep(records, nbytes, first_step, *lines_from, &kept);
    if (status == TRI_OK && kept.nbytes < nbytes)
        status = tri_fs_write_atomic(file->path, tri_string_text(&kept), kept.nbytes);
    file->at = (int64_t)kept.nbytes;
    *empty = kept.nbytes == 0 || !record_next((const unsigned char *)kept.text, kept.nbytes, &at, &event, &length) ||
             at == kept.nbytes;
    tri_free(bytes);
    tri_string_fini(&kept);
    return status;
}

/* --- opening --- */

/* The first of ours in the folder; *path is tri_free()d, NULL: there is none. */
static tri_status find(const char *folder, char **path)
{
    char **names;
    size_t count, end = strlen(NAME_END);
    tri_string text = {0};
    *path = NULL;
    TRI_TRY(tri_fs_list(folder, &names, &count));
    for (size_t i = 0; i < count && text.nbytes == 0; i++) {
        size_t nbytes = strlen(names[i]);
        if (strncmp(names[i], NAME_START, strlen(NAME_START)) == 0 && nbytes > end &&
            strcmp(names[i] + nbytes - end, NAME_END) == 0)
            (void)tri_string_appendf(&text, "%s/%s", folder, names[i]);
    }
    tri_fs_list_free(names, count);
    if (text.nbytes > 0)
        *path = tri_string_detach(&text);
    return TRI_OK;
}

static tri_status open_in(tri_event_file *file, const char *folder, int64_t first_step, int64_t *lines_from,
                          bool *empty)
{
    tri_string path = {0};
    TRI_TRY(tri_fs_make_folder(folder));
    TRI_TRY(find(folder, &file->path));
    *lines_from = 0;
    *empty = true;
    if (file->path)
        TRI_TRY(go_on(file, first_step, lines_from, empty));
    else {
        TRI_TRY(tri_string_appendf(&path, "%s/" NAME_START "%010lld" NAME_END, folder,
                                   (long long)(tri_wall_ns() / TRI_NS_PER_S)));
        file->path = tri_string_detach(&path);
        TRI_TRY(tri_fs_write_atomic(file->path, "", 0));
    }
    if (file->at > 0)
        return TRI_OK;
    tri_proto_text(&file->event, EVENT_FILE_VERSION, "brain.Event:2");
    tri_proto body = file->event;
    file->event = (tri_proto){0};
    tri_event_file_write(file, TRI_EVENT_HEAD, 0, tri_wall_ns(), &body);
    tri_string_fini(&body.out);
    return TRI_OK;
}

tri_status tri_event_file_open(const char *folder, int64_t first_step, tri_event_file **out, int64_t *lines_from,
                               bool *empty)
{
    tri_event_file *file = tri_alloc_zero(1, sizeof(*file));
    if (!file)
        return TRI_ENOMEM;
    tri_status status = open_in(file, folder, first_step, lines_from, empty);
    if (status != TRI_OK) {
        file->failed = true;
        tri_event_file_close(file);
        return status;
    }
    *out = file;
    return TRI_OK;
}

/* --- writing --- */

static void fail(tri_event_file *file)
{
    file->failed = true;
    tri_log(TRI_LOG_WARN, "TensorBoard gets no more of this run: %s", tri_last_error());
}

/* Who removes it means it; and what is not there any more is nothing to continue with. */
static bool is_removed(const tri_event_file *file)
{
    struct stat info;
    return file->at > 0 && (stat(file->path, &info) != 0 || info.st_size == 0);
}

void tri_event_file_flush(tri_event_file *file)
{
    if (file->failed || file->records.nbytes == 0)
        return;
    tri_status status = is_removed(file)
                            ? tri_fail(TRI_ENOTFOUND, "%s was removed", file->path)
                            : tri_fs_append_at(file->path, file->records.text, file->records.nbytes, &file->at);
    if (status == TRI_EMISMATCH && !is_removed(file)) /* this process was stopped for a while, and another is rank 0 */
        file->failed = true;
    else if (status != TRI_OK)
        fail(file);
    tri_string_clear(&file->records);
}

void tri_event_file_write(tri_event_file *file, tri_event_origin origin, int64_t step, int64_t wall_ns, tri_proto *body)
{
    tri_proto *event = &file->event;
    tri_string_clear(&event->out);
    tri_proto_double(event, EVENT_WALL_TIME, (double)wall_ns / 1e9);
    tri_proto_int(event, EVENT_STEP, step);
    size_t source = tri_proto_open(event, EVENT_SOURCE);
    tri_proto_text(event, SOURCE_WRITER, writers[origin]);
    tri_proto_close(event, source);
    tri_status status = event->status == TRI_OK ? body->status : event->status;
    if (status == TRI_OK)
        status = tri_string_append_bytes(&event->out, tri_string_text(&body->out), body->out.nbytes);
    if (status == TRI_OK && !file->failed)
        status = record_append(&file->records, event->out.text, event->out.nbytes);
    tri_string_clear(&body->out);
    if (status != TRI_OK && !file->failed)
        fail(file);
    if (file->records.nbytes >= FLUSH_NBYTES)
        tri_event_file_flush(file);
}

void tri_event_file_close(tri_event_file *file)
{
    if (!file)
        return;
    tri_event_file_flush(file);
    tri_string_fini(&file->records);
    tri_string_fini(&file->event.out);
    tri_free(file->path);
    tri_free(file);
}
