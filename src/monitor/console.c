/* SPDX-License-Identifier: Apache-2.0
 *
 * console.c: the progress of a run on a terminal or in a log.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/runtime.h"
#include "monitor/metrics.h"
#include "monitor/spark.h"

#define TERMINAL_EVERY_NS (200 * TRI_NS_PER_MS)
#define LOG_EVERY_NS      (5 * TRI_NS_PER_S)

struct tri_console {
    int64_t first_step, steps, steps_per_epoch, epochs;
    int64_t start_ns, shown_ns, copied_ns; /* copied: to the log's copy */
    double rate, norm, mfu;                /* samples/s and mfu smoothed; the latest norm; 0: none yet */
    tri_spark loss;                        /* of the run so far, for a terminal */
    bool terminal, line_open;
};

tri_status tri_console_open(int64_t first_step, int64_t steps, int64_t steps_per_epoch, int64_t epochs,
                            tri_console **out)
{
    tri_console *console = tri_alloc_zero(1, sizeof(*console));
    if (!console)
        return TRI_ENOMEM;
    *console = (tri_console){.first_step = first_step,
                             .steps = steps,
                             .steps_per_epoch = steps_per_epoch,
                             .epochs = epochs,
                             .start_ns = tri_now_ns(),
                             .shown_ns = tri_now_ns(),
                             .copied_ns = tri_now_ns(),
                             .terminal = tri_fs_is_terminal(fileno(stderr))};
    *out = console;
    return TRI_OK;
}

/* "1:05", "2:03:04". */
static const char *print_seconds(double seconds, char text[32])
{
    if (!(seconds >= 0) || seconds > 1e7)
        return "?";
    long s = lround(seconds);
    if (s >= 3600)
        snprintf(text, 32, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, 32, "%ld:%02ld", s / 60, s % 60);
    return text;
}

static double smooth(double before, double now)
{
    return before == 0 || isnan(before) ? now : 0.9 * before + 0.1 * now;
}

/* "  norm 0.41  9000 samples/s  2304000 tokens/s  mfu 43 %": what is known of them. */
static const char *print_figures(const tri_console *console, const tri_step_record *record, char text[128])
{
    int used = 0;
    if (console->norm > 0)
        used += snprintf(text, 128, "  norm %.3g", console->norm);
    used += snprintf(text + used, (size_t)(128 - used), "  %.0f samples/s", console->rate);
    if (record->tokens_per_s > 0)
        used += snprintf(text + used, (size_t)(128 - used), "  %.0f tokens/s",
                         console->rate * record->tokens_per_s / record->samples_per_s);
    if (console->mfu > 0)
        snprintf(text + used, (size_t)(128 - used), "  mfu %.0f %%", 100 * console->mfu);
    return text;
}

void tri_console_step(tri_console *console, const tri_step_record *record)
{
    int64_t now_ns = tri_now_ns();
    tri_spark_add(&console->loss, record->loss);
    console->rate = smooth(console->rate, record->samples_per_s);
    console->mfu = smooth(console->mfu, record->mfu);
    console->norm = isfinite(record->grad_norm) ? record->grad_norm : console->norm;
    if (now_ns - console->shown_ns < (console->terminal ? TERMINAL_EVERY_NS : LOG_EVERY_NS))
        return;
    console->shown_ns = now_ns;
    int64_t done = record->step + 1;
    double elapsed_s = (double)(now_ns - console->start_ns) / 1e9;
    double left_s = elapsed_s * (double)(console->steps - done) / (double)(done - console->first_step);
    char left[32], line[256], figures[128];
    snprintf(line, sizeof(line), "epoch %lld/%lld  step %lld/%lld  loss %.4f%s  %s left",
             (long long)(record->step / console->steps_per_epoch + 1), (long long)console->epochs, (long long)done,
             (long long)console->steps, record->known_loss, print_figures(console, record, figures),
             print_seconds(left_s, left));
    char spark[TRI_SPARK_NBYTES];
    if (tri_log_format_now() == TRI_LOG_JSON) {
        if (now_ns - console->copied_ns < LOG_EVERY_NS)
            return;
        console->copied_ns = now_ns;
        tri_log_tell(stderr, TRI_LOG_INFO, line);
        return;
    }
    if (console->terminal) /* cut at the edge of the screen: a line that continues below could not be rewritten */
        fprintf(stderr, "\r\033[K\033[?7l%s  %s\033[?7h", line, tri_spark_print(&console->loss, spark));
    else
        fprintf(stderr, "%s\n", line);
    fflush(stderr);
    console->line_open = console->terminal;
    if (now_ns - console->copied_ns < LOG_EVERY_NS)
        return;
    console->copied_ns = now_ns;
    tri_log_copy_write(line);
}

void tri_console_line(tri_console *console, const char *format, ...)
{
    if (console->line_open)
        fputs("\r\033[K", stderr);
    console->line_open = false;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    tri_log_tell(stdout, TRI_LOG_INFO, line);
}

void tri_console_close(tri_console *console)
{
    if (console && console->line_open)
        fputc('\n', stderr);
    tri_free(console);
}
