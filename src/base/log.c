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
#include "base/runtime.h"
#include "base/status.h"

#define LINE_NBYTES 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tri_log_sink sink_now; /* under lock, as is its argument */
static void *sink_arg;
static char copy_path[1400]; /* under lock; "": no copy */
static atomic_int level_now = TRI_LOG_INFO;

static _Thread_local char own_label[TRI_LOG_LABEL_NBYTES];
static _Thread_local char *label; /* NULL: own_label */
static _Thread_local bool inside; /* this thread is in the sink */

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
    label = slot;
}

static char *label_of_thread(void)
{
    return label ? label : own_label;
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

static void write_to_stderr(tri_log_level level, const char *line, int64_t wall_ns)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    time_t seconds = (time_t)(wall_ns / TRI_NS_PER_S);
    int ms = (int)(wall_ns % TRI_NS_PER_S / TRI_NS_PER_MS);
    struct tm parts = {0};
    localtime_r(&seconds, &parts);
    /* Composed first, so that it leaves in one write: lines of several processes do not mix. */
    char text[LINE_NBYTES + 64];
    int nbytes = snprintf(text, sizeof(text), "%02d:%02d:%02d.%03d %-5s %s\n", parts.tm_hour, parts.tm_min,
                          parts.tm_sec, ms, names[(unsigned)level < TRI_COUNT_OF(names) ? level : TRI_LOG_DEBUG], line);
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
