/* SPDX-License-Identifier: Apache-2.0
 *
 * draw.c: what `trireme top` shows: a screen of plain lines, one line, or one object.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/runtime.h"
#include "cli/top/top.h"
#include "monitor/slow.h"

#define BAR_COLUMNS 40

const char *tri_top_state(const tri_top *top)
{
    if (top->ranks.count > 0)
        return "running";
    if (top->seen > 0 && top->steps > 0 && top->last.step + 1 >= top->steps)
        return "ended";
    return "not running here";
}

static int64_t memory_of_all(const tri_top *top)
{
    int64_t sum = 0;
    for (size_t i = 0; i < top->ranks.count; i++)
        sum += ((const tri_top_rank *)tri_vector_at(&top->ranks, i))->memory;
    return sum;
}

static tri_status head_draw(const tri_top *top, tri_string *out)
{
    const tri_step_record *last = &top->last;
    char spark[TRI_SPARK_NBYTES];
    TRI_TRY(tri_string_appendf(out, "%s: %s\n", top->run, tri_top_state(top)));
    if (top->seen == 0)
        return tri_string_append(out, "no step yet\n");
    TRI_TRY(tri_string_appendf(out, "epoch %.2f/%lld  step %lld", last->epoch, (long long)top->epochs,
                               (long long)last->step + 1));
    if (top->steps > 0) {
        TRI_TRY(tri_string_appendf(out, "/%lld  %.0f %%  %.0f s left", (long long)top->steps,
                                   100 * (double)(last->step + 1) / (double)top->steps, tri_top_left_s(top)));
    }
    TRI_TRY(tri_string_appendf(out, "\nloss %.4f  %s\n", last->loss, tri_spark_print(&top->loss, spark)));
    if (top->tested >= 0)
        TRI_TRY(tri_string_appendf(out, "test loss %.4f  accuracy %.4f  (step %lld)\n", top->test_loss,
                                   top->test_accuracy, (long long)top->tested + 1));
    TRI_TRY(tri_string_appendf(out, "%.0f samples/s", last->samples_per_s));
    if (last->tokens_per_s > 0)
        TRI_TRY(tri_string_appendf(out, "  %.0f tokens/s", last->tokens_per_s));
    if (last->mfu > 0)
        TRI_TRY(tri_string_appendf(out, "  mfu %.0f %%", 100 * last->mfu));
    return tri_string_appendf(out, "  lr %.4g  %.1f MB sent a step\n", last->lr, (double)last->sent_bytes / 1e6);
}

static tri_status phase_draw(const char *name, double seconds, double all, tri_string *out)
{
    const int filled = all > 0 ? (int)lround(BAR_COLUMNS * seconds / all) : 0;
    TRI_TRY(tri_string_appendf(out, "  %-10s %9.3f ms %4.0f %%  ", name, 1e3 * seconds,
                               all > 0 ? 100 * seconds / all : 0.0));
    for (int i = 0; i < filled && i < BAR_COLUMNS; i++)
        TRI_TRY(tri_string_append(out, "#"));
    return tri_string_append(out, "\n");
}

/* Its newest steps: what one took, and the parts of it; how long ago that was said. */
static tri_status split_draw(const tri_top_split *split, double now, tri_string *out)
{
    const double all = tri_top_phases(&split->sum);
    if (split->steps == 0 || split->served.seconds > 0)
        return TRI_OK;
    TRI_TRY(tri_string_appendf(out, "%5d %8lld %9.3f", split->rank, (long long)split->step + 1,
                               1e3 * all / (double)split->steps));
#define SHARE_DRAW(name)                                                                                               \
    TRI_TRY(tri_string_appendf(out, " %*.0f", (int)sizeof(#name) - 1, all > 0 ? 100 * split->sum.name / all : 0.0));
    TRI_PHASE_LIST(SHARE_DRAW)
#undef SHARE_DRAW
    return tri_string_appendf(out, " %7.0f\n", now > split->time ? now - split->time : 0.0);
}

/* Parameter servers, or those that train. */
static size_t splits_count(const tri_top *top, bool serves)
{
    size_t count = 0;
    for (size_t i = 0; i < top->splits.count; i++)
        count += (((const tri_top_split *)tri_vector_at(&top->splits, i))->served.seconds > 0) == serves;
    return count;
}

static tri_status servers_draw(const tri_top *top, tri_string *out)
{
    const double now = (double)tri_wall_ns() / 1e9;
    if (splits_count(top, true) == 0)
        return TRI_OK;
    TRI_TRY(tri_string_append(out, "\nwhat each parameter server does:\n"
                                   " rank  pushes/s   pulls/s   MB/s in  MB/s out     memory   s ago\n"));
    for (size_t i = 0; i < top->splits.count; i++) {
        const tri_top_split *split = tri_vector_at(&top->splits, i);
        const tri_served *at = &split->served;
        if (at->seconds > 0)
            TRI_TRY(tri_string_appendf(out, "%5d %9.1f %9.1f %9.2f %9.2f %6.0f MiB %7.0f\n", split->rank,
                                       at->pushes / at->seconds, at->pulls / at->seconds,
                                       at->taken_bytes / at->seconds / 1e6, at->served_bytes / at->seconds / 1e6,
                                       at->memory_bytes / (1 << 20), now > at->time ? now - at->time : 0.0));
    }
    return TRI_OK;
}

static tri_status splits_draw(const tri_top *top, tri_string *out)
{
    const double now = (double)tri_wall_ns() / 1e9;
    if (splits_count(top, false) == 0)
        return TRI_OK;
    TRI_TRY(tri_string_append(out, "\nwhere each rank's time goes, % of its steps of late:\n rank     step   step ms"));
#define NAME_DRAW(name) TRI_TRY(tri_string_append(out, " " #name));
    TRI_PHASE_LIST(NAME_DRAW)
#undef NAME_DRAW
    TRI_TRY(tri_string_append(out, "   s ago\n"));
    for (size_t i = 0; i < top->splits.count; i++)
        TRI_TRY(split_draw(tri_vector_at(&top->splits, i), now, out));
    return TRI_OK;
}

static const char *role_of(const tri_top_rank *rank)
{
    return rank->serves ? "server" : "worker";
}

static tri_status ranks_draw(const tri_top *top, tri_string *out)
{
    if (top->ranks.count > 0)
        TRI_TRY(tri_string_append(out, "\n rank  role        pid  state  threads    cpu %     memory\n"));
    for (size_t i = 0; i < top->ranks.count; i++) {
        const tri_top_rank *rank = tri_vector_at(&top->ranks, i);
        TRI_TRY(tri_string_appendf(out, "%5d  %s %8d  %-5c  %7d ", rank->rank, role_of(rank), rank->pid, rank->state,
                                   rank->threads));
        TRI_TRY(isnan(rank->cpu) ? tri_string_append(out, "        -")
                                 : tri_string_appendf(out, " %8.0f", 100 * rank->cpu));
        TRI_TRY(tri_string_appendf(out, " %6.0f MiB\n", (double)rank->memory / (1 << 20)));
    }
    return TRI_OK;
}

/* No line is longer than the screen is wide: a wrapped one would push the others down. Blocks count as one column. */
static tri_status cut_append(const char *text, int columns, tri_string *out)
{
    int column = 0;
    for (; *text; text++) {
        const bool begins = ((unsigned char)*text & 0xC0) != 0x80;
        column = *text == '\n' ? 0 : column + begins;
        if (*text == '\n')
            TRI_TRY(tri_string_append(out, "\033[K"));
        if (column <= columns)
            TRI_TRY(tri_string_append_bytes(out, text, 1));
    }
    return TRI_OK;
}

tri_status tri_top_draw(const tri_top *top, int columns, tri_string *out)
{
    tri_string text = {0};
    const double all = tri_top_phases(&top->last);
    tri_status status = head_draw(top, &text);
    if (status == TRI_OK && top->seen > 0)
        status = tri_string_appendf(&text, "\nstep of rank 0: %.3f ms\n", 1e3 * all);
#define PHASE_DRAW(name)                                                                                               \
    if (status == TRI_OK && top->seen > 0)                                                                             \
        status = phase_draw(#name, top->last.name, all, &text);
    TRI_PHASE_LIST(PHASE_DRAW)
#undef PHASE_DRAW
    if (status == TRI_OK)
        status = splits_draw(top, &text);
    if (status == TRI_OK)
        status = servers_draw(top, &text);
    if (status == TRI_OK)
        status = ranks_draw(top, &text);
    if (status == TRI_OK && top->event[0])
        status = tri_string_appendf(&text, "\n%s\n", top->event);
    if (status == TRI_OK)
        status = cut_append(tri_string_text(&text), columns, out);
    tri_string_fini(&text);
    return status;
}

tri_status tri_top_line(const tri_top *top, tri_string *out)
{
    const tri_step_record *last = &top->last;
    TRI_TRY(tri_string_appendf(out, "%s", tri_top_state(top)));
    if (top->seen > 0)
        TRI_TRY(tri_string_appendf(out, "  epoch %.2f  step %lld  loss %.4f  %.0f samples/s  step %.3f ms", last->epoch,
                                   (long long)last->step + 1, last->loss, last->samples_per_s,
                                   1e3 * tri_top_phases(last)));
    if (top->tested >= 0)
        TRI_TRY(tri_string_appendf(out, "  test loss %.4f", top->test_loss));
    if (top->ranks.count > 0)
        TRI_TRY(tri_string_appendf(out, "  %zu ranks here, %.0f MiB", top->ranks.count,
                                   (double)memory_of_all(top) / (1 << 20)));
    return tri_string_append(out, "\n");
}

void tri_top_fields(const tri_top *top, tri_json *json)
{
    const tri_step_record *last = &top->last;
    tri_json_text(json, "run", top->run);
    tri_json_text(json, "state", tri_top_state(top));
    tri_json_int(json, "steps_done", top->seen > 0 ? last->step + 1 : 0);
    if (top->steps > 0)
        tri_json_int(json, "steps", top->steps);
    if (top->seen > 0) {
        tri_json_real(json, "epoch", last->epoch);
        tri_json_real(json, "loss", last->loss);
        tri_json_real(json, "lr", last->lr);
        tri_json_real(json, "samples_per_s", last->samples_per_s);
        tri_json step = tri_json_object_in(json, "step_s");
#define PHASE_WRITE(name) tri_json_real(&step, #name, last->name);
        TRI_PHASE_LIST(PHASE_WRITE)
#undef PHASE_WRITE
        (void)tri_json_end(&step); /* the outer one has its failure */
    }
    if (top->tested >= 0) {
        tri_json_real(json, "test_loss", top->test_loss);
        tri_json_real(json, "test_accuracy", top->test_accuracy);
    }
    if (top->slow_cause[0]) {
        tri_json slow = tri_json_object_in(json, "slow");
        tri_json_int(&slow, "rank", top->slow_rank);
        tri_json_text(&slow, "cause", top->slow_cause);
        tri_json_text(&slow, "text", tri_slow_says(top->slow_cause));
        (void)tri_json_end(&slow);
    }
    tri_json list = tri_json_array_in(json, "ranks");
    for (size_t i = 0; i < top->ranks.count; i++) {
        const tri_top_rank *rank = tri_vector_at(&top->ranks, i);
        const char state[2] = {rank->state, 0};
        tri_json one = tri_json_object_in(&list, NULL);
        tri_json_int(&one, "rank", rank->rank);
        tri_json_text(&one, "role", role_of(rank));
        tri_json_int(&one, "pid", rank->pid);
        tri_json_text(&one, "state", state);
        tri_json_int(&one, "threads", rank->threads);
        tri_json_real(&one, "cpu", rank->cpu);
        tri_json_int(&one, "memory_bytes", rank->memory);
        (void)tri_json_end(&one);
    }
    (void)tri_json_end(&list);
}

/* The files of ranks, which the page has on its own. */
static void splits_fields(const tri_top *top, tri_json *json)
{
    tri_json list = tri_json_array_in(json, "splits");
    for (size_t i = 0; i < top->splits.count; i++) {
        const tri_top_split *split = tri_vector_at(&top->splits, i);
        if (split->steps == 0 || split->served.seconds > 0)
            continue;
        tri_json one = tri_json_object_in(&list, NULL);
        tri_json_int(&one, "rank", split->rank);
        tri_json_int(&one, "step", split->step);
        tri_json_int(&one, "steps", split->steps);
        tri_json_real(&one, "time", split->time);
#define PHASE_WRITE(name) tri_json_real(&one, #name, split->sum.name);
        TRI_PHASE_LIST(PHASE_WRITE)
#undef PHASE_WRITE
        tri_json_real(&one, "memory_bytes", split->memory);
        (void)tri_json_end(&one);
    }
    (void)tri_json_end(&list);
}

void tri_top_served_fields(const tri_served *served, int rank, tri_json *list)
{
    tri_json one = tri_json_object_in(list, NULL);
    tri_json_int(&one, "rank", rank);
    tri_json_real(&one, "time", served->time);
#define RATE_WRITE(name, counter) tri_json_real(&one, #name "_per_s", served->name / served->seconds);
    TRI_SERVED_LIST(RATE_WRITE)
#undef RATE_WRITE
    tri_json_real(&one, "memory_bytes", served->memory_bytes);
    (void)tri_json_end(&one);
}

static void servers_fields(const tri_top *top, tri_json *json)
{
    tri_json list = tri_json_array_in(json, "servers");
    for (size_t i = 0; i < top->splits.count; i++) {
        const tri_top_split *split = tri_vector_at(&top->splits, i);
        if (split->served.seconds > 0)
            tri_top_served_fields(&split->served, split->rank, &list);
    }
    (void)tri_json_end(&list);
}

tri_status tri_top_json(const tri_top *top, tri_string *out)
{
    tri_json json = tri_json_object(out);
    tri_top_fields(top, &json);
    splits_fields(top, &json);
    servers_fields(top, &json);
    TRI_TRY(tri_json_end(&json));
    return tri_string_append(out, "\n");
}
