/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_print.c: a plan as text and as JSON.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/plan.h"

#define MANY_ROWS 12

/* "3.2 GiB"; "-" for nothing. */
static const char *print_nbytes(double nbytes, char text[32])
{
    const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;
    for (nbytes /= 1024; nbytes >= 1024 && unit + 1 < TRI_COUNT_OF(units); unit++)
        nbytes /= 1024;
    snprintf(text, 32, "%.*f %s", nbytes < 100 ? 1 : 0, nbytes, units[unit]);
    return nbytes > 0 ? text : "-";
}

/* "12 ms", "1.2 s"; "-" for nothing. */
static const char *print_seconds(double seconds, char text[32])
{
    if (seconds < 0.9995)
        snprintf(text, 32, "%.*f ms", seconds < 0.01 ? 2 : seconds < 0.1 ? 1 : 0, seconds * 1e3);
    else
        snprintf(text, 32, "%.*f s", seconds < 10 ? 2 : 1, seconds);
    return seconds > 0 ? text : "-";
}

static const char *print_time(double seconds, char text[32])
{
    int64_t all = (int64_t)ceil(seconds);
    snprintf(text, 32, "%lld:%02lld:%02lld", (long long)(all / 3600), (long long)(all / 60 % 60),
             (long long)(all % 60));
    return text;
}

static const char *print_rate(double rate, char text[32])
{
    const char *const units[] = {"", " k", " M", " G"};
    size_t unit = 0;
    for (; rate >= 1e4 && unit + 1 < TRI_COUNT_OF(units); unit++)
        rate /= 1e3;
    snprintf(text, 32, "%.*f%s", rate < 100 ? 1 : 0, rate, units[unit]);
    return text;
}

static const tri_plan_row *row_at(const tri_layouts *layouts, int index)
{
    return tri_vector_at(&layouts->plan.rows, (size_t)index);
}

static tri_status print_head(const tri_layouts *layouts, bool described, tri_string *out)
{
    const tri_plan_job *job = &layouts->setup.job;
    const tri_plan_cluster *cluster = &layouts->cluster;
    char limit[32], values[32];
    int64_t tokens = tri_plan_models_tokens(&layouts->models);
    TRI_TRY(tri_string_appendf(out, "%s parameters; %lld samples a step in %lld shards",
                               print_rate((double)tri_plan_models_values(&layouts->models), values),
                               (long long)job->batch, (long long)job->shards));
    if (tokens > 0)
        TRI_TRY(tri_string_appendf(out, ", of %lld tokens each", (long long)tokens));
    TRI_TRY(tri_string_appendf(out, "; %lld steps an epoch\n", (long long)job->steps));
    TRI_TRY(tri_string_appendf(out, "%d worker%s on %d host%s, %s", cluster->workers, cluster->workers == 1 ? "" : "s",
                               cluster->host_count, cluster->host_count == 1 ? "" : "s",
                               described        ? "as described"
                               : cluster->cards ? "estimated by the clock of their cards"
                                                : "measured"));
    if (cluster->crowd > 1)
        TRI_TRY(tri_string_appendf(out, ", %.3g to a %s", cluster->crowd, cluster->cards ? "card" : "core"));
    if (isfinite(layouts->plan.memory_limit))
        TRI_TRY(tri_string_appendf(out, "; each may take %s", print_nbytes(layouts->plan.memory_limit, limit)));
    if (layouts->models.estimated && !cluster->cards)
        TRI_TRY(tri_string_append(out, "; some sections are too large to be measured here: from their operations"));
    return tri_string_append(out, "\n\n");
}

/* Bytes of the longest name of a layout. */
static int name_width(const tri_layouts *layouts)
{
    char text[96];
    int width = 6;
    for (int i = 0; i < (int)layouts->plan.rows.count; i++) {
        int nbytes = (int)strlen(tri_layout_print(&row_at(layouts, i)->layout, text));
        width = nbytes > width ? nbytes : width;
    }
    return width;
}

static tri_status print_row(const tri_layouts *layouts, int index, tri_string *out)
{
    const tri_plan_row *row = row_at(layouts, index);
    const tri_plan_cost *cost = &row->cost;
    char layout[96], t[12][32], price[32] = "";
    double rate = cost->tokens_per_s > 0 ? cost->tokens_per_s : cost->samples_per_s;
    if (cost->epoch_price > 0)
        snprintf(price, sizeof(price), "%10.*f", cost->epoch_price < 10 ? 3 : 1, cost->epoch_price);
    return tri_string_appendf(
        out, "%c %-*s %9s %9s %8s %8s %8s %8s %8s %8s %8s %8s %11s%s\n", index == layouts->plan.chosen ? '*' : ' ',
        name_width(layouts), tri_layout_print(&row->layout, layout), print_nbytes(cost->memory, t[0]),
        print_nbytes(cost->wire, t[1]), print_seconds(cost->step_s, t[2]), print_seconds(cost->compute_s, t[3]),
        print_seconds(cost->tensor_s, t[4]), print_seconds(cost->bubble_s, t[5]), print_seconds(cost->sum_s, t[6]),
        print_seconds(cost->gather_s, t[7]), print_seconds(cost->optimizer_s, t[8]), print_rate(rate, t[9]),
        print_time(cost->epoch_s, t[10]), price);
}

static tri_status print_table(const tri_layouts *layouts, bool all, tri_string *out)
{
    const tri_plan_list *plan = &layouts->plan;
    bool tokens = tri_plan_models_tokens(&layouts->models) > 0, priced = tri_plan_price(&layouts->cluster) > 0;
    int shown = all || plan->feasible <= MANY_ROWS ? plan->feasible : MANY_ROWS;
    if (plan->feasible == 0)
        return TRI_OK;
    TRI_TRY(tri_string_appendf(out, "  %-*s %9s %9s %8s %8s %8s %8s %8s %8s %8s %8s %11s%s\n", name_width(layouts),
                               "layout", "memory", "sent", "step", "compute", "tensor", "bubble", "sums", "gathers",
                               "optim", tokens ? "tokens/s" : "smpl/s", "epoch", priced ? "      cost" : ""));
    for (int i = 0; i < shown; i++)
        TRI_TRY(print_row(layouts, i, out));
    if (plan->chosen >= shown)
        TRI_TRY(print_row(layouts, plan->chosen, out));
    if (shown < plan->feasible)
        TRI_TRY(tri_string_appendf(out, "  and %d slower ones (--all)\n", plan->feasible - shown));
    return TRI_OK;
}

static tri_status print_choice(const tri_layouts *layouts, tri_string *out)
{
    const tri_plan_list *plan = &layouts->plan;
    char text[96];
    if (plan->chosen < 0)
        return tri_string_appendf(out, "%s\n", plan->why);
    const tri_layout *layout = &row_at(layouts, plan->chosen)->layout;
    TRI_TRY(tri_string_appendf(out, "\n* %s: %s\n", tri_layout_print(layout, text), plan->why));
    TRI_TRY(tri_string_appendf(out, "  parallel: {data: %d, tensor: %d, pipeline: %d, sync: %s", layout->data,
                               layout->tensor, layout->pipeline, tri_sync_kind_word(layout->sync)));
    if (layout->zero > 0)
        TRI_TRY(tri_string_appendf(out, ", zero_ranks: %d", layout->zero));
    if (layout->pipeline > 1)
        TRI_TRY(tri_string_appendf(out, ", schedule: %s, chunks: %d", tri_pipe_kind_word(layout->schedule),
                                   layout->chunks));
    return tri_string_append(out, "}\n");
}

/* The same words about another layout were said before. */
static bool is_said(const tri_layouts *layouts, int index)
{
    const char *refusal = row_at(layouts, index)->refusal;
    for (int i = layouts->plan.feasible; i < index; i++)
        if (strcmp(row_at(layouts, i)->refusal, refusal) == 0)
            return true;
    return false;
}

static tri_status print_refused(const tri_layouts *layouts, bool all, tri_string *out)
{
    const tri_plan_list *plan = &layouts->plan;
    char text[96];
    int shown = 0, left = 0;
    for (int i = plan->feasible; i < (int)plan->rows.count; i++) {
        if (!all && (is_said(layouts, i) || shown == MANY_ROWS)) {
            left++;
            continue;
        }
        if (shown++ == 0)
            TRI_TRY(tri_string_append(out, "\ncannot be:\n"));
        TRI_TRY(tri_string_appendf(out, "  %-*s %s\n", name_width(layouts),
                                   tri_layout_print(&row_at(layouts, i)->layout, text), row_at(layouts, i)->refusal));
    }
    if (left > 0)
        TRI_TRY(tri_string_appendf(out, "  and %d more (--all)\n", left));
    return TRI_OK;
}

tri_status tri_plan_print(const tri_layouts *layouts, bool described, bool all, tri_string *out)
{
    TRI_TRY(print_head(layouts, described, out));
    TRI_TRY(print_table(layouts, all, out));
    TRI_TRY(print_choice(layouts, out));
    return print_refused(layouts, all, out);
}

/* --- JSON --- */

static void layout_json(tri_json *json, const tri_layout *layout)
{
    tri_json_int(json, "data", layout->data);
    tri_json_int(json, "tensor", layout->tensor);
    tri_json_int(json, "pipeline", layout->pipeline);
    tri_json_text(json, "sync", tri_sync_kind_word(layout->sync));
    if (layout->zero > 0)
        tri_json_int(json, "zero_ranks", layout->zero);
    if (layout->pipeline > 1) {
        tri_json_text(json, "schedule", layout->pipeline > 1 ? tri_pipe_kind_word(layout->schedule) : "");
        tri_json_int(json, "chunks", layout->chunks);
    }
}

static void cost_json(tri_json *json, const tri_plan_cost *cost)
{
    const struct {
        const char *key;
        double value;
    } rows[] = {
        {"memory", cost->memory},
        {"weights", cost->weights},
        {"gradients", cost->gradients},
        {"optimizer", cost->optimizer},
        {"activations", cost->activations},
        {"sent", cost->wire},
        {"step_s", cost->step_s},
        {"compute_s", cost->compute_s},
        {"tensor_s", cost->tensor_s},
        {"bubble_s", cost->bubble_s},
        {"sum_s", cost->sum_s},
        {"gather_s", cost->gather_s},
        {"optimizer_s", cost->optimizer_s},
        {"samples_per_s", cost->samples_per_s},
        {"tokens_per_s", cost->tokens_per_s},
        {"epoch_s", cost->epoch_s},
        {"epoch_cost", cost->epoch_price},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++)
        tri_json_real(json, rows[i].key, rows[i].value);
}

tri_status tri_plan_print_json(const tri_layouts *layouts, tri_string *out)
{
    const tri_plan_list *plan = &layouts->plan;
    for (int i = 0; i < (int)plan->rows.count; i++) {
        const tri_plan_row *row = row_at(layouts, i);
        tri_json json = tri_json_object(out);
        layout_json(&json, &row->layout);
        tri_json_bool(&json, "feasible", !row->refusal[0]);
        tri_json_bool(&json, "chosen", i == plan->chosen);
        if (row->costed)
            cost_json(&json, &row->cost);
        if (row->costed && layouts->cluster.cards)
            tri_json_real(&json, "host_memory", row->cost.host);
        if (row->refusal[0])
            tri_json_text(&json, "why_not", row->refusal);
        TRI_TRY(tri_json_end(&json));
        TRI_TRY(tri_string_append(out, "\n"));
    }
    tri_json json = tri_json_object(out);
    tri_json_text(&json, "why", plan->why);
    tri_json_int(&json, "workers", layouts->cluster.workers);
    tri_json_int(&json, "parameters", tri_plan_models_values(&layouts->models));
    tri_json_bool(&json, "estimated", layouts->models.estimated);
    TRI_TRY(tri_json_end(&json));
    return tri_string_append(out, "\n");
}
