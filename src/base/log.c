/* SPDX-License-Identifier: Apache-2.0
 *
 * log.c: one sink for the process behind one lock; lines are composed outside the lock.
 *
 * The lock is a plain pthread mutex, held only while the sink runs: a sink must not wait for other fibers. What a sink
 * logs itself is dropped, so that a failing sink cannot call itself for ever.
 */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/runtime.h"
#include "base/status.h"

#define LINE_NBYTES 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tri_log_sink sink_now; /* under lock, as is its argument */
static void *sink_arg;
static char copy_path[1400]; /* under lock; "": no copy */
static atomic_int level_now = TRI_LOG_INFO;
static atomic_int format_now = TRI_LOG_TEXT;
static tri_log_who who_now = {.rank = -1}; /* under lock */
static _Atomic int64_t step_now = -1;
static const char *const level_names[] = {"error", "warn", "info", "debug"};

static _Thread_local char own_label[TRI_LOG_LABEL_NBYTES];
static _Thread_local char *label_now; /* NULL: own_label */
static _Thread_local bool inside;     /* this thread is in the sink */

void tri_log_sink_set(tri_log_sink sink, void *arg)
{
    pthread_mutex_lock(&lock);
    sink_now = sink;
    sink_arg = arg;
    pthread_mutex_unlock(&lock);
}

void tri_log_level_set(tri_log_level level)
{
    atomic_store_explicit(&level_now, (int)level, memory_order_relaxed);
}

tri_log_level tri_log_level_now(void)
{
    return (tri_log_level)atomic_load_explicit(&level_now, memory_order_relaxed);
}

void tri_log_label_swap(char *slot)
{
    label_now = slot;
}

static char *label_of_thread(void)
{
    return label_now ? label_now : own_label;
}

void tri_log_label_set(const char *text)
{
    snprintf(label_of_thread(), TRI_LOG_LABEL_NBYTES, "%s", text ? text : "");
}

/* Under the lock. A failure here is nobody's: the last error stays what it was. */
static void append_to_copy(const char *text, size_t nbytes)
{
    if (!copy_path[0])
        return;
    char before[TRI_ERROR_NBYTES];
    snprintf(before, sizeof(before), "%s", tri_last_error());
    tri_status status = tri_fs_append(copy_path, text, nbytes);
    if (status == TRI_OK)
        return;
    copy_path[0] = '\0';
    fprintf(stderr, "the log ends here: %s\n", tri_last_error());
    (void)tri_fail_copy(status, before);
}

static const char *level_name(tri_log_level level)
{
    return level_names[(unsigned)level < TRI_COUNT_OF(level_names) ? level : TRI_LOG_DEBUG];
}

/* Under the lock. */
static void write_to_stderr(tri_log_level level, const char *line, int64_t wall_ns)
{
    time_t seconds = (time_t)(wall_ns / TRI_NS_PER_S);
    int ms = (int)(wall_ns % TRI_NS_PER_S / TRI_NS_PER_MS);
    struct tm parts = {0};
    localtime_r(&seconds, &parts);
    /* Composed first, so that it leaves in one write: lines of several processes do not mix. */
    char text[LINE_NBYTES + 64];
    int nbytes = snprintf(text, sizeof(text), "%02d:%02d:%02d.%03d %-5s %s\n", parts.tm_hour, parts.tm_min,
                          parts.tm_sec, ms, level_name(level), line);
    if (nbytes <= 0)
        return;
    fwrite(text, 1, (size_t)nbytes, stderr);
    append_to_copy(text, (size_t)nbytes);
}

tri_status tri_log_copy_open(const char *path)
{
    if (strlen(path) >= sizeof(copy_path))
        return tri_fail(TRI_EINVAL, "log: want a path of at most %zu bytes, got %zu", sizeof(copy_path) - 1,
                        strlen(path));
    TRI_TRY(tri_fs_remove(path));
    TRI_TRY(tri_fs_append(path, "", 0));
    pthread_mutex_lock(&lock);
    snprintf(copy_path, sizeof(copy_path), "%s", path);
    pthread_mutex_unlock(&lock);
    return TRI_OK;
}

void tri_log_copy_write(const char *line)
{
    char text[LINE_NBYTES + 1];
    int nbytes = snprintf(text, LINE_NBYTES, "%s", line);
    if (nbytes < 0)
        return;
    size_t end = nbytes < LINE_NBYTES ? (size_t)nbytes : LINE_NBYTES - 1;
    text[end] = '\n';
    pthread_mutex_lock(&lock);
    append_to_copy(text, end + 1);
    pthread_mutex_unlock(&lock);
}

void tri_log_copy_close(void)
{
    pthread_mutex_lock(&lock);
    copy_path[0] = '\0';
    pthread_mutex_unlock(&lock);
}

/* --- objects --- */

void tri_log_format_set(tri_log_format format)
{
    atomic_store_explicit(&format_now, (int)format, memory_order_relaxed);
}

tri_log_format tri_log_format_now(void)
{
    return (tri_log_format)atomic_load_explicit(&format_now, memory_order_relaxed);
}

bool tri_log_format_read(const char *text, tri_log_format *format)
{
    *format = strcmp(text, "json") == 0 ? TRI_LOG_JSON : TRI_LOG_TEXT;
    return *format == TRI_LOG_JSON || strcmp(text, "text") == 0;
}

void tri_log_who_set(const tri_log_who *who)
{
    pthread_mutex_lock(&lock);
    who_now = *who;
    pthread_mutex_unlock(&lock);
}

tri_log_who tri_log_who_now(void)
{
    pthread_mutex_lock(&lock);
    tri_log_who who = who_now;
    pthread_mutex_unlock(&lock);
    return who;
}

void tri_log_step_set(int64_t step)
{
    atomic_store_explicit(&step_now, step, memory_order_relaxed);
}

void tri_log_time_print(int64_t wall_ns, char text[TRI_LOG_TIME_NBYTES])
{
    time_t seconds = (time_t)(wall_ns / TRI_NS_PER_S);
    struct tm parts = {0};
    gmtime_r(&seconds, &parts);
    size_t used = strftime(text, TRI_LOG_TIME_NBYTES, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + used, TRI_LOG_TIME_NBYTES - used, ".%03dZ", (int)(wall_ns % TRI_NS_PER_S / TRI_NS_PER_MS));
}

static void time_put(tri_json *json, int64_t wall_ns)
{
    char text[TRI_LOG_TIME_NBYTES];
    tri_log_time_print(wall_ns, text);
    tri_json_text(json, "time", text);
}

/* The rank of a label "rank 3"; -1: it names none. */
static int rank_of(const char *label)
{
    int rank, end = 0;
    return label && sscanf(label, "rank %d%n", &rank, &end) == 1 && !label[end] && rank >= 0 ? rank : -1;
}

/* What is known of this process, or of the thread's rank, besides. */
static void self_put(tri_json *json, const tri_log_who *who, const char *label)
{
    int64_t step = atomic_load_explicit(&step_now, memory_order_relaxed);
    int rank = rank_of(label) >= 0 ? rank_of(label) : who->rank;
    if (rank >= 0)
        tri_json_int(json, "rank", rank);
    if (who->generation > 0)
        tri_json_int(json, "generation", who->generation);
    if (step >= 0)
        tri_json_int(json, "step", step);
    if (who->span_id[0])
        tri_json_text(json, "span_id", who->span_id);
}

tri_status tri_log_object(tri_string *out, tri_log_level level, int rank, const char *label, const char *text)
{
    tri_log_who who = tri_log_who_now();
    tri_json json = tri_json_object(out);
    time_put(&json, tri_wall_ns());
    tri_json_text(&json, "level", level_name(level));
    if (rank >= 0)
        tri_json_int(&json, "rank", rank);
    else
        self_put(&json, &who, label);
    if (who.trace_id[0])
        tri_json_text(&json, "trace_id", who.trace_id);
    if (label && label[0] && rank_of(label) < 0)
        tri_json_text(&json, "label", label);
    tri_json_text(&json, "message", text);
    return tri_json_end(&json);
}

/* Where memory is out, the text stays out too, and the form stays what was promised. */
static void object_write(FILE *stream, tri_log_level level, const char *prefix, const char *text)
{
    static const char nothing[] = "{\"level\":\"error\",\"message\":\"no memory for a line of the log\"}\n";
    tri_string line = {0};
    tri_status status = tri_log_object(&line, level, -1, prefix, text);
    if (status == TRI_OK)
        status = tri_string_append(&line, "\n");
    const char *out = status == TRI_OK ? line.text : nothing;
    size_t nbytes = strlen(out);
    pthread_mutex_lock(&lock);
    inside = true;
    fwrite(out, 1, nbytes, stream);
    fflush(stream);
    append_to_copy(out, nbytes);
    inside = false;
    pthread_mutex_unlock(&lock);
    tri_string_fini(&line);
}

void tri_log_tell(FILE *stream, tri_log_level level, const char *line)
{
    if (tri_log_format_now() == TRI_LOG_JSON) {
        object_write(stream, level, "", line);
        return;
    }
    fprintf(stream, "%s\n", line);
    fflush(stream);
    tri_log_copy_write(line);
}

/* --- lines --- */

static bool has_sink(void)
{
    pthread_mutex_lock(&lock);
    bool has = sink_now != NULL;
    pthread_mutex_unlock(&lock);
    return has;
}

void tri_log_write(tri_log_level level, const char *format, ...)
{
    if (inside || level > tri_log_level_now())
        return;
    char line[LINE_NBYTES];
    const char *prefix = label_of_thread();
    int start = prefix[0] ? snprintf(line, sizeof(line), "[%s] ", prefix) : 0;
    va_list args;
    va_start(args, format);
    int written = vsnprintf(line + start, sizeof(line) - (size_t)start, format, args);
    va_end(args);
    if (written < 0)
        line[start] = '\0';
    for (char *at = line; *at; at++)
        if (*at == '\n' || *at == '\r')
            *at = ' ';

    if (tri_log_format_now() == TRI_LOG_JSON && !has_sink()) {
        object_write(stderr, level, prefix, line + start);
        return;
    }
    int64_t wall_ns = tri_wall_ns(); /* not under the lock: a call into the runtime may let other fibers run */
    pthread_mutex_lock(&lock);
    inside = true;
    if (sink_now)
        sink_now(level, line, sink_arg);
    else
        write_to_stderr(level, line, wall_ns);
    inside = false;
    pthread_mutex_unlock(&lock);
}
