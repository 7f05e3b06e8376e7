/* SPDX-License-Identifier: Apache-2.0
 *
 * tell.c: what `trireme top` says where nobody looks at a screen: one line, or one object.
 */

#include <math.h>

#include "base/json.h"
#include "cli/top/top.h"
#include "monitor/slow.h"

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

static const char *role_of(const tri_top_rank *rank)
{
    return rank->serves ? "server" : "worker";
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
#define CARD_WRITE(name, type, help)                                                                                   \
    if (!isnan(split->card.name))                                                                                      \
        tri_json_real(&one, "gpu_" #name, split->card.name);
        if (split->has_card) {
            TRI_CARD_LIST(CARD_WRITE)
        }
#undef CARD_WRITE
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
