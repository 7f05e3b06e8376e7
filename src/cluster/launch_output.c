/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_output.c: carries the ranks' output to the launcher's own, line by line, without ever blocking on either.
 *
 * A sink holds whole lines only, so that lines never mix; when its reader is slow, the ranks' pipes are left full and
 * the ranks wait; when it cannot be written, they continue, and lines are dropped. A line longer than
 * TRI_LAUNCH_LINE_NBYTES is put out in pieces, each as a line. Ranks that may outlive their launcher write files, which
 * are followed.
 */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "cluster/launch_impl.h"

void tri_launch_sink_init(launch_sink *sink, int fd)
{
    struct stat info;

    *sink = (launch_sink){.fd = fd};
    sink->is_file = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

bool tri_launch_sink_is_full(const launch_sink *sink)
{
    return sink && !sink->broken && !sink->loss.is && sink->pending.nbytes - sink->at > TRI_LAUNCH_PENDING_NBYTES;
}

/* Half of the room stays for the newest lines, and the line that may be out in part already. */
static void sink_thin(launch_sink *sink)
{
    tri_string *pending = &sink->pending;
    char *stop = pending->text + pending->nbytes, *half = stop - TRI_LAUNCH_PENDING_NBYTES / 2;
    char *first = memchr(pending->text + sink->at, '\n', (size_t)(half - pending->text) - sink->at);
    char *kept = memchr(half, '\n', (size_t)(stop - half));

    if (!first || !kept)
        return;
    memmove(first, kept, (size_t)(stop - kept) + 1);
    pending->nbytes -= (size_t)(kept - first);
    sink->loss.nbytes += kept - first;
}

static void sink_fail(launch_sink *sink, int error)
{
    sink->broken = error == EPIPE || error == ECONNRESET;
    if (sink->broken)
        return;
    if (!sink->loss.is)
        snprintf(sink->loss.why, sizeof sink->loss.why, "standard %s cannot be written: %s",
                 sink->fd == STDOUT_FILENO ? "output" : "error", strerror(error));
    sink->loss.is = true;
    if (sink->pending.nbytes - sink->at > TRI_LAUNCH_PENDING_NBYTES)
        sink_thin(sink);
}

void tri_launch_sink_write(launch_sink *sink)
{
    if (sink->at > TRI_LAUNCH_PENDING_NBYTES) { /* a reader that is always a little behind must not let it grow */
        sink->pending.nbytes -= sink->at;
        memmove(sink->pending.text, sink->pending.text + sink->at, sink->pending.nbytes + 1);
        sink->at = 0;
    }
    while (!sink->broken && sink->at < sink->pending.nbytes) {
        size_t nbytes = sink->pending.nbytes - sink->at;
        struct pollfd one = {.fd = sink->fd, .events = POLLOUT};
        ssize_t written;

        /* A pipe that polls as writable takes PIPE_BUF bytes without blocking; O_NONBLOCK would be seen by others. */
        if (!sink->is_file && nbytes > PIPE_BUF)
            nbytes = PIPE_BUF;
        if (!sink->is_file && poll(&one, 1, 0) <= 0)
            return;
        written = write(sink->fd, sink->pending.text + sink->at, nbytes);
        if (written > 0) {
            sink->at += (size_t)written;
        } else if (written < 0 && errno == EAGAIN) {
            return;
        } else if (written < 0 && errno != EINTR) {
            sink_fail(sink, errno);
            if (!sink->broken)
                return;
        }
    }
    sink->loss.is = false;
    tri_string_clear(&sink->pending);
    sink->at = 0;
}

/* Ranks that fail of the same cause say the same: without prefixes, once is enough for the reader. */
static bool is_repeated(const launch_stream *stream, const char *line, size_t nbytes)
{
    bool says = (nbytes > 7 && memcmp(line, "error: ", 7) == 0) || (nbytes > 6 && memcmp(line, "hint: ", 6) == 0);
    char *key = !stream->prefix && says ? tri_strndup(line, nbytes) : NULL;
    int64_t rank;

    if (!key)
        return false;
    bool repeated = tri_map_find(&stream->sink->said, key, &rank);
    if (!repeated)
        (void)tri_map_set(&stream->sink->said, key, stream->rank); /* without memory it is said again */
    tri_free(key);
    return repeated;
}

static bool is_object(const char *line, size_t nbytes)
{
    if (nbytes < 2 || line[0] != '{')
        return false;
    json_t *value = json_loadb(line, nbytes, 0, NULL);
    bool is = json_is_object(value);
    json_decref(value);
    return is;
}

/* What a rank says that is no object, such as the last words of some library, becomes one. */
static tri_status object_make(const launch_stream *stream, const char *line, size_t nbytes, tri_string *out)
{
    char *text = tri_strndup(line, nbytes);
    tri_status status = text ? tri_log_object(out, TRI_LOG_INFO, stream->rank, "", text) : TRI_ENOMEM;
    tri_free(text);
    return status;
}

/* A line in its final form. */
static tri_status text_put(launch_stream *stream, const char *line, size_t nbytes, tri_string *log)
{
    launch_sink *sink = stream->sink;
    if (sink && !sink->broken && !is_repeated(stream, line, nbytes)) {
        if (stream->prefix)
            TRI_TRY(tri_string_appendf(&sink->pending, "[%d] ", stream->rank));
        TRI_TRY(tri_string_append_bytes(&sink->pending, line, nbytes));
        TRI_TRY(tri_string_append(&sink->pending, "\n"));
    }
    if (stream->log_path) {
        TRI_TRY(tri_string_append_bytes(log, line, nbytes));
        TRI_TRY(tri_string_append(log, "\n"));
    }
    return TRI_OK;
}

/* One line, without its newline, to be passed on. */
static tri_status line_pass(launch_stream *stream, const char *line, size_t nbytes, tri_string *log)
{
    tri_string object = {0};
    /* Keeps what a rank says of its failure: "error: ..." or, as an object, its message. */
    static const char text[] = "error: ", level[] = "\"level\":\"error\"", message[] = "\"message\":";
    const char *from = nbytes > sizeof text && memcmp(line, text, sizeof text - 1) == 0 ? line : NULL;

    if (nbytes > 0 && line[0] == '{' && memmem(line, nbytes, level, sizeof level - 1))
        from = memmem(line, nbytes, message, sizeof message - 1);
    if (from)
        snprintf(stream->error, sizeof stream->error, "%.*s", (int)(nbytes - (size_t)(from - line)), from);
    if (tri_log_format_now() != TRI_LOG_JSON || is_object(line, nbytes))
        return text_put(stream, line, nbytes, log);
    tri_status status = object_make(stream, line, nbytes, &object);
    if (status == TRI_OK)
        status = text_put(stream, object.text, object.nbytes, log);
    tri_string_fini(&object);
    return status;
}

/* A log that cannot be written ends no run. */
static void log_write(launch_stream *stream, const tri_string *log)
{
    launch_loss *loss = stream->log_loss;

    if (log->nbytes == 0)
        return;
    if (tri_fs_append(stream->log_path, log->text, log->nbytes) == TRI_OK) {
        loss->is = loss->is && loss->path != stream->log_path;
        return;
    }
    loss->nbytes += (int64_t)log->nbytes;
    if (loss->is)
        return;
    loss->is = true;
    loss->path = stream->log_path;
    snprintf(loss->why, sizeof loss->why, "%s", tri_last_error());
}

tri_status tri_launch_line_pass(launch_stream *stream, const char *line, size_t nbytes)
{
    tri_string log = {0};
    tri_status status = line_pass(stream, line, nbytes, &log);
    log_write(stream, &log);
    tri_string_fini(&log);
    return status;
}

static tri_status line_put(launch_stream *stream, const char *line, size_t nbytes, tri_string *log)
{
    return stream->put ? stream->put(stream, line, nbytes) : line_pass(stream, line, nbytes, log);
}

static tri_status bytes_put(launch_stream *stream, const char *bytes, size_t nbytes, tri_string *log)
{
    while (nbytes > 0) {
        const char *end = memchr(bytes, '\n', nbytes);
        size_t room = TRI_LAUNCH_LINE_NBYTES - stream->line.nbytes, part = end ? (size_t)(end - bytes) : nbytes;
        bool is_whole = end && part <= room;

        if (part > room)
            part = room;
        stream->at += (int64_t)(part + is_whole);
        if (is_whole && stream->line.nbytes == 0) {
            TRI_TRY(line_put(stream, bytes, part, log));
        } else {
            TRI_TRY(tri_string_append_bytes(&stream->line, bytes, part));
            if (is_whole || stream->line.nbytes >= TRI_LAUNCH_LINE_NBYTES) {
                TRI_TRY(line_put(stream, tri_string_text(&stream->line), stream->line.nbytes, log));
                tri_string_clear(&stream->line);
            }
        }
        bytes += part + is_whole;
        nbytes -= part + is_whole;
    }
    return TRI_OK;
}

tri_status tri_launch_stream_read(launch_stream *stream)
{
    char buffer[16384];
    tri_string log = {0};
    tri_status status = TRI_OK;

    while (stream->fd >= 0 && status == TRI_OK && !tri_launch_sink_is_full(stream->sink)) {
        ssize_t got = read(stream->fd, buffer, sizeof buffer);

        if (got > 0) {
            status = bytes_put(stream, buffer, (size_t)got, &log);
        } else if (got == 0 && stream->follows) {
            break;
        } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            if (stream->line.nbytes > 0)
                status = line_put(stream, tri_string_text(&stream->line), stream->line.nbytes, &log);
            tri_string_clear(&stream->line);
            close(stream->fd);
            stream->fd = -1;
        } else if (errno == EAGAIN) {
            break;
        }
    }
    log_write(stream, &log);
    tri_string_fini(&log);
    return status;
}

tri_status tri_launch_stream_finish(launch_stream *stream)
{
    stream->follows = false;
    return tri_launch_stream_read(stream);
}

void tri_launch_stream_close(launch_stream *stream)
{
    if (stream->fd >= 0)
        close(stream->fd);
    stream->fd = -1;
    tri_string_fini(&stream->line);
}

/* The same as an object a line: without "trireme: " and the newline. */
static void note_object(launch *job, const char *format, va_list args)
{
    static const char ours[] = "trireme: ";
    char line[1200];
    vsnprintf(line, sizeof line, format, args);
    line[strcspn(line, "\n")] = 0;
    const char *text = strncmp(line, ours, strlen(ours)) == 0 ? line + strlen(ours) : line;
    if (tri_log_object(&job->sinks[1].pending, TRI_LOG_WARN, -1, "launcher", text) == TRI_OK)
        (void)tri_string_append(&job->sinks[1].pending, "\n");
}

void tri_launch_say(launch *job, const char *format, ...)
{
    va_list args;

    if (job->quiet || job->sinks[1].broken)
        return;
    va_start(args, format);
    if (tri_log_format_now() == TRI_LOG_JSON)
        note_object(job, format, args);
    else
        tri_string_appendv(&job->sinks[1].pending, format, args);
    va_end(args);
}

void tri_launch_fail(launch *job, tri_status status)
{
    if (job->status != TRI_OK || status == TRI_OK)
        return;
    job->status = status;
    snprintf(job->message, sizeof job->message, "%s", tri_last_error());
}
