/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_stages.c: bubbles of a pipeline, and the longest way through its micro-batches.
 *
 * A slot begins when its rank is free and what it needs is there: values of the stage before in the forward pass,
 * gradients of the stage behind in the backward pass. Of these, the one that ended last is before it on the way; what
 * is between the two is waiting. The way of a step is followed back from the slot that ends last.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cli/trace.h"

#define CLOCK_US 50   /* that clocks of two hosts may differ by */
#define BUBBLE   0.15 /* more is worth a word */
#define UNEVEN   1.2

static const tri_slot *slot_at(const tri_slots *slots, size_t i)
{
    return (const tri_slot *)slots->items.items + i;
}

static int by_step(const void *a, const void *b)
{
    const tri_slot *x = a, *y = b;
    return x->step != y->step ? (x->step > y->step) - (x->step < y->step)
                              : (x->start > y->start) - (x->start < y->start);
}

static tri_stage_view *stage_of(tri_stages_view *view, int stage)
{
    const tri_stage_view none = {0};
    while (view->stages.count <= (size_t)stage)
        if (!tri_vector_push(&view->stages, &none))
            return NULL;
    return (tri_stage_view *)view->stages.items + stage;
}

/* Whether `slot` needs what `before` made. */
static bool needs(const tri_slot *slot, const tri_slot *before, int last_stage)
{
    if (slot->micro != before->micro || slot->kind == TRI_SLOT_WEIGHTS || before->kind == TRI_SLOT_WEIGHTS)
        return false;
    if (slot->kind == TRI_SLOT_UP)
        return before->kind == TRI_SLOT_UP && before->stage == slot->stage - 1;
    return before->kind == TRI_SLOT_DOWN ? before->stage == slot->stage + 1
                                         : slot->stage == last_stage && before->stage == last_stage;
}

/* Among [first, end); NULL: it is the first of its way. */
static const tri_slot *before(const tri_slots *slots, size_t first, size_t end, const tri_slot *slot, int last_stage)
{
    const tri_slot *latest = NULL;
    for (size_t i = first; i < end; i++) {
        const tri_slot *one = slot_at(slots, i);
        if (one == slot || one->start >= slot->start || one->end > slot->start + CLOCK_US)
            continue;
        if (one->rank != slot->rank && !needs(slot, one, last_stage))
            continue;
        if (!latest || one->end > latest->end)
            latest = one;
    }
    return latest;
}

static void way_follow(const tri_slots *slots, size_t first, size_t end, tri_stages_view *view)
{
    const tri_slot *slot = slot_at(slots, first), *one;
    tri_stage_view *stages = view->stages.items;
    for (size_t i = first; i < end; i++)
        slot = slot_at(slots, i)->end > slot->end ? slot_at(slots, i) : slot;
    for (; slot; slot = one) {
        double gap;
        one = before(slots, first, end, slot, (int)view->stages.count - 1);
        gap = one && slot->start > one->end ? slot->start - one->end : 0;
        stages[slot->stage].critical_us += slot->end - slot->start;
        view->critical_us += slot->end - slot->start + gap;
        view->waited_us += gap;
    }
}

/* Which ranks have a stage, and what part of their time they computed nothing. */
static tri_status bubbles_find(const tri_slots *slots, tri_stages_view *view)
{
    size_t cells = (size_t)slots->ranks * view->stages.count;
    double *busy = tri_alloc_zero((size_t)slots->ranks, sizeof(*busy));
    bool *has = tri_alloc_zero(cells, sizeof(*has));
    tri_stage_view *stages = view->stages.items;
    for (size_t i = 0; busy && has && i < slots->items.count; i++) {
        const tri_slot *slot = slot_at(slots, i);
        busy[slot->rank] += slot->end - slot->start;
        has[(size_t)slot->rank * view->stages.count + (size_t)slot->stage] = true;
    }
    for (size_t cell = 0; busy && has && cell < cells; cell++) {
        size_t rank = cell / view->stages.count;
        tri_stage_view *stage = &stages[cell % view->stages.count];
        if (!has[cell] || slots->pipeline_us[rank] <= 0)
            continue;
        double idle = 1 - busy[rank] / slots->pipeline_us[rank];
        stage->bubble = (stage->bubble * stage->ranks + (idle > 0 ? idle : 0)) / (stage->ranks + 1);
        stage->ranks++;
    }
    tri_status status = busy && has ? TRI_OK : TRI_ENOMEM;
    tri_free(busy);
    tri_free(has);
    return status;
}

tri_status tri_stages_reckon(const tri_slots *slots, tri_stages_view *view)
{
    *view = (tri_stages_view){.stages = {.each = sizeof(tri_stage_view)}};
    if (slots->items.count == 0)
        return TRI_OK;
    qsort(slots->items.items, slots->items.count, sizeof(tri_slot), by_step);
    for (size_t i = 0; i < slots->items.count; i++) {
        const tri_slot *slot = slot_at(slots, i);
        tri_stage_view *stage = stage_of(view, slot->stage);
        if (!stage)
            return TRI_ENOMEM;
        *(slot->kind == TRI_SLOT_UP ? &stage->up_us : &stage->down_us) += slot->end - slot->start;
        stage->slots += slot->kind == TRI_SLOT_UP;
    }
    for (size_t first = 0, end; first < slots->items.count; first = end, view->steps++) {
        for (end = first + 1; end < slots->items.count && slot_at(slots, end)->step == slot_at(slots, first)->step;)
            end++;
        way_follow(slots, first, end, view);
    }
    return bubbles_find(slots, view);
}

void tri_stages_view_fini(tri_stages_view *view)
{
    tri_vector_fini(&view->stages);
}

static const tri_stage_view *view_at(const tri_stages_view *view, size_t stage)
{
    return (const tri_stage_view *)view->stages.items + stage;
}

static double part(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* Micro-batches of one rank in a step. */
static double micros_of(const tri_stages_view *view, const tri_stage_view *stage)
{
    return part((double)stage->slots, (double)view->steps * stage->ranks);
}

void tri_stages_print(const tri_stages_view *view)
{
    if (view->stages.count == 0)
        return;
    printf("\nstage  ranks  micro-batches  forward ms  backward ms  bubble  critical path\n");
    for (size_t s = 0; s < view->stages.count; s++) {
        const tri_stage_view *stage = view_at(view, s);
        printf("%5zu  %5d  %13.0f  %10.3f  %11.3f  %4.0f %%  %11.0f %%\n", s, stage->ranks, micros_of(view, stage),
               part(stage->up_us, (double)stage->slots) / 1e3, part(stage->down_us, (double)stage->slots) / 1e3,
               100 * stage->bubble, 100 * part(stage->critical_us, view->critical_us));
    }
    printf("between the slots of that path: %.0f %%\n", 100 * part(view->waited_us, view->critical_us));
}

void tri_stages_json(const tri_stages_view *view, tri_json *all)
{
    if (view->stages.count == 0)
        return;
    tri_json list = tri_json_array_in(all, "stages");
    for (size_t s = 0; s < view->stages.count; s++) {
        const tri_stage_view *stage = view_at(view, s);
        tri_json one = tri_json_object_in(&list, NULL);
        tri_json_int(&one, "ranks", stage->ranks);
        tri_json_int(&one, "slots", stage->slots);
        tri_json_real(&one, "forward_us", stage->up_us);
        tri_json_real(&one, "backward_us", stage->down_us);
        tri_json_real(&one, "bubble", stage->bubble);
        tri_json_real(&one, "critical_us", stage->critical_us);
        (void)tri_json_end(&one);
    }
    (void)tri_json_end(&list);
    tri_json_real(all, "stages_critical_us", view->critical_us);
    tri_json_real(all, "stages_waited_us", view->waited_us);
}

static double cost(const tri_stage_view *stage)
{
    return part(stage->up_us + stage->down_us, (double)stage->slots);
}

void tri_stages_advise(const tri_stages_view *view, char *text, int capacity)
{
    double bubble = 0, mean = 0, stages = (double)view->stages.count;
    size_t longest = 0;
    text[0] = 0;
    for (size_t s = 0; s < view->stages.count; s++) {
        bubble += view_at(view, s)->bubble / stages;
        mean += cost(view_at(view, s)) / stages;
        longest = cost(view_at(view, s)) > cost(view_at(view, longest)) ? s : longest;
    }
    if (bubble < BUBBLE)
        return;
    const tri_stage_view *worst = view_at(view, longest);
    double micros = micros_of(view, worst), least = (stages - 1) / (micros + stages - 1);
    if (cost(worst) > UNEVEN * mean)
        snprintf(text, (size_t)capacity,
                 "stage %zu takes %.1f times as long as the stages do on average, and the others wait for it (bubble "
                 "%.0f %%): parallel.cut=measured, or fewer layers for it by parallel.cut_at",
                 longest, cost(worst) / mean, 100 * bubble);
    else if (least > BUBBLE / 2)
        snprintf(text, (size_t)capacity,
                 "ranks of the pipeline are idle %.0f %% of its time; with %.0f stages and %.0f micro-batches it is "
                 "%.0f %% at best: more micro-batches (train.shards, train.batch), fewer stages, or "
                 "parallel.schedule=interleaved with parallel.chunks",
                 100 * bubble, stages, micros, 100 * least);
    else
        snprintf(text, (size_t)capacity,
                 "ranks of the pipeline are idle %.0f %% of its time though there are enough micro-batches: %.0f %% "
                 "of the longest way is between slots: messages take long, or cores are shared ('trireme doctor')",
                 100 * bubble, 100 * part(view->waited_us, view->critical_us));
}
