/* SPDX-License-Identifier: Apache-2.0
 *
 * figures.c: families of figures, by Prometheus' conventions (base units, counters end in _total), and their two forms:
 * lines of one rank, and the page of all.
 */
#include "monitor/figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/events.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/runtime.h"
#include "device/cuda/nvml.h"
#include "device/device.h"

#define EVERY_NS       TRI_NS_PER_S
#define RANK_NBYTES    (64u << 10) /* of one rank, at most */
#define FRESH_NS       (15 * TRI_NS_PER_S)
#define FOLDER         "live"
#define NAME_START     "rank-"
#define MOST_RANKS     65536
#define UPDATED_FAMILY "updated_timestamp_seconds"

/* name, type, help; without "trireme_". */
#define FIGURE_LIST(X)                                                                                                 \
    X(step, "gauge", "steps made of the run")                                                                          \
    X(planned_steps, "gauge", "steps of the whole run")                                                                \
    X(epoch, "gauge", "how far through the data")                                                                      \
    X(loss, "gauge", "mean loss of the last step's batch")                                                             \
    X(learning_rate, "gauge", "of the last step")                                                                      \
    X(grad_norm, "gauge", "norm of the mean gradient before clipping, when it was last known")                         \
    X(samples_per_second, "gauge", "samples of all workers over the duration of the last step")                        \
    X(tokens_per_second, "gauge", "tokens of all workers over the duration of the last step")                          \
    X(mfu_ratio, "gauge", "part of the peak that the model's own operations take")                                     \
    X(test_loss, "gauge", "of the latest evaluation")                                                                  \
    X(test_accuracy_ratio, "gauge", "of the latest evaluation")                                                        \
    X(memory_bytes, "gauge", "memory that this process has allocated")                                                 \
    X(gpu_own_memory_bytes, "gauge", "memory of a card that this process has allocated")                               \
    X(gpu_own_memory_peak_bytes, "gauge", "the most so far")                                                           \
    X(gpu_own_memory_planned_bytes, "gauge", "what the plan of the run says of it")                                    \
    X(updated_timestamp_seconds, "gauge", "when the rank last said these figures")

typedef enum figure {
#define FIGURE_ENUM(name, type, help) FIGURE_##name,
    FIGURE_LIST(FIGURE_ENUM) FIGURE_COUNT
} figure;

/* All, in the order of the page. */
typedef struct family {
    const char *name, *type, *help;
} family;
static const family families[] = {
#define FIGURE_ROW(name, type, help) {#name, type, help},
    FIGURE_LIST(FIGURE_ROW){"role", "gauge", "what the rank does: 1 for worker or server"},
    {"phase_seconds_total", "counter", "where the time of the rank's steps went"},
    {"straggler", "gauge", "1: the others wait for this rank, and why"},
#define CARD_ROW(name, type, help) {"gpu_" #name, type, help},
    TRI_CARD_LIST(CARD_ROW)
#define STRAIN_ROW(name, help) {#name, "counter", help},
        TRI_STRAIN_LIST(STRAIN_ROW)
#define COUNTER_ROW(id, name, help) {name, "counter", help},
            TRI_COUNTER_LIST(COUNTER_ROW)};

struct tri_figures {
    char path[1300];
    int rank;
    bool serves;
    double values[FIGURE_COUNT];           /* NaN: not known */
#define PHASE_TOTAL(name) double name##_s; /* so far */
    TRI_PHASE_LIST(PHASE_TOTAL)
    tri_strain strain;
    bool strained;   /* it is known */
    char cause[16];  /* why the others wait for it; "": they do not */
    tri_mutex mutex; /* of the above */
    tri_string text; /* the step's */
    int64_t left_ns;
    bool failed;
};

/* --- one rank --- */

tri_status tri_figures_open(const char *folder, int rank, bool serves, tri_figures **out)
{
    char path[1300];
    tri_figures *figures = tri_alloc_zero(1, sizeof(*figures));
    if (!figures)
        return TRI_ENOMEM;
    figures->rank = rank;
    figures->serves = serves;
    for (int i = 0; i < FIGURE_COUNT; i++)
        figures->values[i] = NAN;
    snprintf(path, sizeof(path), "%s/" FOLDER, folder);
    snprintf(figures->path, sizeof(figures->path), "%.1200s/" NAME_START "%d", path, rank);
    tri_mutex_init(&figures->mutex);
    tri_status status = tri_fs_make_folder(path);
    if (status != TRI_OK) {
        tri_figures_close(figures);
        return status;
    }
    *out = figures;
    return TRI_OK;
}

static tri_status line_append(tri_string *out, const char *name, const char *label, double value)
{
    if (isnan(value))
        return TRI_OK;
    TRI_TRY(tri_string_appendf(out, "%s%s ", name, label));
    TRI_TRY(isinf(value) ? tri_string_append(out, value > 0 ? "+Inf" : "-Inf") : tri_string_append_real(out, value));
    return tri_string_append(out, "\n");
}

static tri_status strain_append(const tri_figures *figures, tri_string *out)
{
    char label[40];
    if (!figures->strained)
        return TRI_OK;
    snprintf(label, sizeof(label), "{cause=\"%s\"}", figures->cause[0] ? figures->cause : "none");
    TRI_TRY(line_append(out, "straggler", label, figures->cause[0] != 0));
#define STRAIN_LINE(name, help) TRI_TRY(line_append(out, #name, "", figures->strain.name));
    TRI_STRAIN_LIST(STRAIN_LINE)
    return TRI_OK;
}

/* Of the card that this process computes on. */
static tri_status card_append(tri_string *out)
{
    tri_card_figures card;
    if (!tri_card_figures_now(&card))
        return TRI_OK;
#define CARD_LINE(name, type, help) TRI_TRY(line_append(out, "gpu_" #name, "", card.name));
    TRI_CARD_LIST(CARD_LINE)
    return TRI_OK;
}

static tri_status lines_append(tri_figures *figures, tri_string *out)
{
    static const char *const names[] = {
#define FIGURE_NAME(name, type, help) #name,
        FIGURE_LIST(FIGURE_NAME)};
    for (int i = 0; i < FIGURE_COUNT; i++)
        TRI_TRY(line_append(out, names[i], "", figures->values[i]));
    TRI_TRY(line_append(out, "role", figures->serves ? "{role=\"server\"}" : "{role=\"worker\"}", 1));
#define PHASE_LINE(name) TRI_TRY(line_append(out, "phase_seconds_total", "{phase=\"" #name "\"}", figures->name##_s));
    if (!figures->serves) {
        TRI_PHASE_LIST(PHASE_LINE)
    }
    TRI_TRY(strain_append(figures, out));
    TRI_TRY(card_append(out));
    for (int c = 0; c < TRI_COUNTER_COUNT; c++)
        TRI_TRY(line_append(out, tri_counter_name((tri_counter)c), "", (double)tri_counter_now((tri_counter)c)));
    return TRI_OK;
}

static void memory_find(double *values)
{
    const tri_device_memory card = tri_device_memory_now();
    values[FIGURE_memory_bytes] = (double)tri_memory_now().live_nbytes;
    if (card.peak == 0)
        return;
    values[FIGURE_gpu_own_memory_bytes] = (double)card.live;
    values[FIGURE_gpu_own_memory_peak_bytes] = (double)card.peak;
    if (card.planned > 0)
        values[FIGURE_gpu_own_memory_planned_bytes] = (double)card.planned;
}

static void leave(tri_figures *figures)
{
    tri_string_clear(&figures->text);
    memory_find(figures->values);
    figures->values[FIGURE_updated_timestamp_seconds] = (double)(tri_wall_ns() / TRI_NS_PER_MS) / 1e3;
    tri_status status = lines_append(figures, &figures->text);
    if (status == TRI_OK)
        status = tri_fs_write_swap(figures->path, figures->text.text, figures->text.nbytes);
    if (status != TRI_OK && !figures->failed)
        tri_log(TRI_LOG_WARN, "values for /metrics are not current: %s", tri_last_error());
    figures->failed = status != TRI_OK;
}

void tri_figures_step(tri_figures *figures, const tri_step_record *record, int64_t steps)
{
    int64_t now_ns = tri_now_ns();
    double *values = figures->values;
    tri_mutex_lock(&figures->mutex);
    values[FIGURE_step] = (double)record->step + 1;
    values[FIGURE_planned_steps] = (double)steps;
    values[FIGURE_epoch] = record->epoch;
    values[FIGURE_loss] = record->loss;
    values[FIGURE_learning_rate] = record->lr;
    values[FIGURE_samples_per_second] = record->samples_per_s;
    values[FIGURE_tokens_per_second] = record->tokens_per_s;
    values[FIGURE_mfu_ratio] = record->mfu;
    if (!isnan(record->grad_norm))
        values[FIGURE_grad_norm] = record->grad_norm;
#define PHASE_ADD(name) figures->name##_s += record->name;
    TRI_PHASE_LIST(PHASE_ADD)
    if (now_ns - figures->left_ns >= EVERY_NS || record->step + 1 == steps) {
        figures->left_ns = now_ns;
        leave(figures);
    }
    tri_mutex_unlock(&figures->mutex);
}

void tri_figures_leave(tri_figures *figures)
{
    tri_mutex_lock(&figures->mutex);
    leave(figures);
    tri_mutex_unlock(&figures->mutex);
}

void tri_figures_strain(tri_figures *figures, const tri_strain *strain, const char *cause)
{
    tri_mutex_lock(&figures->mutex);
    figures->strain = *strain;
    figures->strained = true;
    snprintf(figures->cause, sizeof(figures->cause), "%s", cause ? cause : "");
    tri_mutex_unlock(&figures->mutex);
}

void tri_figures_test(tri_figures *figures, double loss, double accuracy)
{
    tri_mutex_lock(&figures->mutex);
    figures->values[FIGURE_test_loss] = loss;
    figures->values[FIGURE_test_accuracy_ratio] = accuracy;
    tri_mutex_unlock(&figures->mutex);
}

void tri_figures_close(tri_figures *figures)
{
    if (!figures)
        return;
    (void)tri_fs_remove(figures->path);
    tri_mutex_fini(&figures->mutex);
    tri_string_fini(&figures->text);
    tri_free(figures);
}

/* --- the page --- */

typedef struct rank_lines {
    int rank;
    char *text;
    size_t nbytes;
} rank_lines;

/* The value of a line of this family, its labels between braces if it has some; NULL: it is none. */
static const char *line_match(const char *line, const char *end, const char *name, const char **labels,
                              size_t *labels_nbytes)
{
    size_t length = strlen(name);
    const char *after = line + length;
    if ((size_t)(end - line) <= length || memcmp(line, name, length) != 0 || (*after != '{' && *after != ' '))
        return NULL;
    *labels = after + (*after == '{');
    *labels_nbytes = 0;
    if (*after == '{') {
        const char *brace = memchr(after, '}', (size_t)(end - after));
        if (!brace)
            return NULL;
        *labels_nbytes = (size_t)(brace - *labels);
        after = brace + 1;
    }
    char *stop;
    (void)strtod(after, &stop);
    return *after == ' ' && stop == end ? after : NULL;
}

static tri_status rank_append(const rank_lines *rank, const char *name, tri_string *out)
{
    const char *labels, *value, *stop = rank->text + rank->nbytes;
    size_t labels_nbytes;
    for (const char *line = rank->text, *end; (end = memchr(line, '\n', (size_t)(stop - line))); line = end + 1)
        if ((value = line_match(line, end, name, &labels, &labels_nbytes)))
            TRI_TRY(tri_string_appendf(out, "trireme_%s{rank=\"%d\"%s%.*s}%.*s\n", name, rank->rank,
                                       labels_nbytes > 0 ? "," : "", (int)labels_nbytes, labels, (int)(end - value),
                                       value));
    return TRI_OK;
}

static tri_status head_append(tri_string *out, const char *name, const char *type, const char *help)
{
    return tri_string_appendf(out, "# HELP trireme_%s %s\n# TYPE trireme_%s %s\n", name, help, name, type);
}

static double updated(const rank_lines *rank)
{
    const char *found = strstr(rank->text, "\n" UPDATED_FAMILY " ");
    return found ? strtod(found + sizeof("\n" UPDATED_FAMILY), NULL) : 0;
}

static tri_status page_append(const rank_lines *ranks, size_t count, tri_string *out)
{
    double now_s = (double)tri_wall_ns() / 1e9;
    TRI_TRY(head_append(out, "build_info", "gauge", "which Trireme this is; always 1"));
    TRI_TRY(tri_string_appendf(out, "trireme_build_info{version=\"%s\"} 1\n", TRI_VERSION));
    TRI_TRY(head_append(out, "up", "gauge", "1: the rank has said something in the last 15 seconds"));
    for (size_t r = 0; r < count; r++)
        TRI_TRY(tri_string_appendf(out, "trireme_up{rank=\"%d\"} %d\n", ranks[r].rank,
                                   now_s - updated(&ranks[r]) < (double)FRESH_NS / 1e9));
    for (size_t f = 0; f < TRI_COUNT_OF(families); f++) {
        size_t before = out->nbytes;
        TRI_TRY(head_append(out, families[f].name, families[f].type, families[f].help));
        size_t head = out->nbytes;
        for (size_t r = 0; r < count; r++)
            TRI_TRY(rank_append(&ranks[r], families[f].name, out));
        if (out->nbytes == head) { /* nobody knows it */
            out->nbytes = before;
            out->text[before] = 0;
        }
    }
    return TRI_OK;
}

tri_status tri_figures_print(tri_figures *figures, tri_string *out)
{
    tri_string lines = {0};
    tri_mutex_lock(&figures->mutex);
    tri_status status = lines_append(figures, &lines);
    tri_mutex_unlock(&figures->mutex);
    rank_lines rank = {figures->rank, lines.text, lines.nbytes};
    if (status == TRI_OK)
        status = page_append(&rank, lines.nbytes > 0, out);
    tri_string_fini(&lines);
    return status;
}

/* "rank-12". */
static bool rank_of(const char *name, int *rank)
{
    char *end;
    if (strncmp(name, NAME_START, strlen(NAME_START)) != 0)
        return false;
    long number = strtol(name + strlen(NAME_START), &end, 10);
    *rank = (int)number;
    return end > name + strlen(NAME_START) && *end == 0 && number >= 0 && number < MOST_RANKS;
}

static int rank_order(const void *a, const void *b)
{
    return ((const rank_lines *)a)->rank - ((const rank_lines *)b)->rank;
}

/* A file may go, or be replaced, at any time. */
static tri_status ranks_read(const char *folder, tri_vector *ranks)
{
    char **names, path[1700];
    size_t count;
    TRI_TRY(tri_fs_list(folder, &names, &count));
    tri_status status = TRI_OK;
    for (size_t i = 0; i < count && status == TRI_OK; i++) {
        rank_lines rank;
        if (!rank_of(names[i], &rank.rank))
            continue;
        snprintf(path, sizeof(path), "%.1300s/%.300s", folder, names[i]);
        if (tri_fs_read(path, RANK_NBYTES, &rank.text, &rank.nbytes) != TRI_OK)
            continue;
        if (!tri_vector_push(ranks, &rank)) {
            tri_free(rank.text);
            status = TRI_ENOMEM;
        }
    }
    tri_fs_list_free(names, count);
    if (ranks->count > 1)
        qsort(ranks->items, ranks->count, sizeof(rank_lines), rank_order);
    return status;
}

tri_status tri_figures_gather(const char *folder, tri_string *out)
{
    char path[1300];
    tri_vector ranks = {.each = sizeof(rank_lines)};
    snprintf(path, sizeof(path), "%.1200s/" FOLDER, folder);
    tri_status status = tri_fs_exists(path) ? ranks_read(path, &ranks) : TRI_OK;
    if (status == TRI_OK)
        status = page_append(ranks.items, ranks.count, out);
    for (size_t i = 0; i < ranks.count; i++)
        tri_free(((rank_lines *)ranks.items)[i].text);
    tri_vector_fini(&ranks);
    return status;
}

tri_status tri_figures_clear(const char *folder)
{
    char path[1300];
    snprintf(path, sizeof(path), "%.1200s/" FOLDER, folder);
    return tri_fs_remove(path);
}
