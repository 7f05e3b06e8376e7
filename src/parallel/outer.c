/* SPDX-License-Identifier: Apache-2.0
 *
 * outer.c: fragments, their turns, and the outer step.
 *
 * A fragment leaves (what each rank's weights lack to the anchor is summed over ranks), lands, and is applied
 * parallel.outer_delay steps later. Where parallel.compress is set its matrices travel in two legs (compress.h), the
 * second of which begins half-way; nothing is fed back, so that a checkpoint has all there is.
 */
#include "parallel/outer.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "parallel/compress_impl.h"
#include "tensor/loops.h"

enum { CONTROL_COUNT = 16 }; /* behind the elements: first what ranks wish for */

typedef struct fragment {
    int first_entry, end_entry;
    int64_t first, count; /* elements of the store */
    int64_t turn;         /* leaves when steps % every == turn */
    float *flight;        /* [count + CONTROL_COUNT]: the mean way, once it has landed */
    tri_compress *sum;    /* NULL: nothing is compressed */
    tri_compress_span *exacts;
    int exact_count;
    float *exact; /* what is not compressed, packed, with the control */
    tri_work *work;
    bool away, turned; /* left and not landed; its second leg has begun */
    char name[48];
} fragment;

struct tri_outer {
    const tri_parallel_config *config;
    tri_group *group;
    const tri_params *params;
    float *values, *anchor, *momentum;
    fragment *fragments;
    int count;
};

static void fragment_fini(fragment *part)
{
    if (part->work)
        (void)tri_work_wait(part->work);
    tri_compress_destroy(part->sum);
    tri_free(part->flight);
    tri_free(part->exacts);
    tri_free(part->exact);
}

void tri_outer_destroy(tri_outer *outer)
{
    if (!outer)
        return;
    for (int f = 0; outer->fragments && f < outer->count; f++)
        fragment_fini(&outer->fragments[f]);
    tri_free(outer->fragments);
    tri_free(outer->anchor);
    tri_free(outer->momentum);
    tri_free(outer);
}

/* The first entry that begins at or behind f / F of the store. */
static int cut_entry(const tri_params *params, int64_t f, int64_t fragments)
{
    int entry = 0;
    while (entry < params->entry_count && params->entries[entry].first < params->count * f / fragments)
        entry++;
    return f == fragments ? params->entry_count : entry;
}

/* Matrices go compressed, all else packed; places count from the fragment's first element. */
static tri_status fragment_plan_sum(tri_outer *outer, fragment *part, int threads)
{
    size_t entries = (size_t)(part->end_entry - part->first_entry);
    tri_compress_span *spans = tri_alloc_zero(entries, sizeof(*spans));
    part->exacts = tri_alloc_zero(entries, sizeof(*spans));
    tri_status status = spans && part->exacts ? TRI_OK : TRI_ENOMEM;
    tri_compress_setup setup = {.config = outer->config,
                                .group = outer->group,
                                .name = part->name,
                                .spans = spans,
                                .threads = threads,
                                .forgets = true};
    if (status == TRI_OK) {
        const tri_params *params = outer->params;
        setup.span_count = tri_compress_spans(outer->config, params, part->first_entry, part->end_entry, false, spans);
        part->exact_count =
            tri_compress_spans(outer->config, params, part->first_entry, part->end_entry, true, part->exacts);
        for (int s = 0; s < setup.span_count; s++)
            spans[s].first -= part->first;
        for (int s = 0; s < part->exact_count; s++)
            part->exacts[s].first -= part->first;
        if (setup.span_count > 0)
            status = tri_compress_find(outer->config)->create(&setup, &part->sum);
    }
    tri_free(spans);
    int64_t exact = tri_compress_count(part->exacts, part->exact_count) + CONTROL_COUNT;
    part->exact = part->sum ? tri_alloc_zero((size_t)exact, sizeof(float)) : NULL;
    return status == TRI_OK && part->sum && !part->exact ? TRI_ENOMEM : status;
}

static tri_status fragment_init(tri_outer *outer, int index, int threads)
{
    const tri_params *params = outer->params;
    fragment *part = &outer->fragments[index];
    int64_t fragments = outer->count, every = outer->config->local_steps;
    part->first_entry = cut_entry(params, index, fragments);
    part->end_entry = cut_entry(params, index + 1, fragments);
    part->turn = every * index / fragments;
    snprintf(part->name, sizeof(part->name), "fragment %d of %d", index, outer->count);
    if (part->first_entry == part->end_entry)
        return TRI_OK;
    part->first = params->entries[part->first_entry].first;
    part->count =
        (part->end_entry < params->entry_count ? params->entries[part->end_entry].first : params->count) - part->first;
    part->flight = tri_alloc_bulk((size_t)(part->count + CONTROL_COUNT) * sizeof(float));
    if (!part->flight)
        return TRI_ENOMEM;
    return tri_compress_find(outer->config) ? fragment_plan_sum(outer, part, threads) : TRI_OK;
}

tri_status tri_outer_create(const tri_sync_setup *setup, float *values, tri_outer **out)
{
    tri_outer *outer = tri_alloc_zero(1, sizeof(*outer));
    if (!outer)
        return TRI_ENOMEM;
    size_t nbytes = (size_t)setup->params->count * sizeof(float);
    outer->config = setup->config;
    outer->group = setup->group;
    outer->params = setup->params;
    outer->values = values;
    outer->count = (int)setup->config->outer_fragments;
    outer->fragments = tri_alloc_zero((size_t)outer->count, sizeof(fragment));
    outer->anchor = tri_alloc_bulk(nbytes);
    outer->momentum = tri_alloc_bulk(nbytes);
    tri_status status = outer->fragments && outer->anchor && outer->momentum ? TRI_OK : TRI_ENOMEM;
    for (int f = 0; f < outer->count && status == TRI_OK; f++)
        status = fragment_init(outer, f, setup->threads);
    if (status != TRI_OK) {
        tri_outer_destroy(outer);
        return status;
    }
    *out = outer;
    return TRI_OK;
}

void tri_outer_begin(tri_outer *outer)
{
    memcpy(outer->anchor, outer->values, (size_t)outer->params->count * sizeof(float));
}

/* --- elementwise --- */

TRI_CLONES static void way_of(float *way, const float *anchor, const float *values, int64_t count)
{
    TRI_APART
    for (int64_t i = 0; i < count; i++)
        way[i] = anchor[i] - values[i];
}

TRI_CLONES static void divide(float *sums, float by, int64_t count)
{
    TRI_APART
    for (int64_t i = 0; i < count; i++)
        sums[i] /= by;
}

TRI_CLONES static void anchor_move(float *anchor, float *momentum, const float *way, float lr, float factor,
                                   int64_t count)
{
    TRI_APART
    for (int64_t i = 0; i < count; i++) {
        momentum[i] = factor * momentum[i] + way[i];
        anchor[i] -= lr * (way[i] + factor * momentum[i]);
    }
}

TRI_CLONES static void mix(float *values, const float *anchor, float own, float other, int64_t count)
{
    TRI_APART
    for (int64_t i = 0; i < count; i++)
        values[i] = own * values[i] + other * anchor[i];
}

/* --- the journey of a fragment --- */

static tri_status sum_start(tri_outer *outer, const fragment *part, float *values, int64_t count, tri_work **work)
{
    tri_group_name_next(outer->group, part->name);
    return tri_all_reduce(outer->group, values, values, count, TRI_F32, TRI_REDUCE_SUM, work);
}

static tri_status fragment_leave(tri_outer *outer, fragment *part, const float *wishes)
{
    float *control = part->flight + part->count;
    way_of(part->flight, outer->anchor + part->first, outer->values + part->first, part->count);
    memset(control, 0, CONTROL_COUNT * sizeof(float));
    memcpy(control, wishes, TRI_OUTER_WISHES * sizeof(float));
    part->away = true;
    part->turned = false;
    if (!part->sum)
        return sum_start(outer, part, part->flight, part->count + CONTROL_COUNT, &part->work);
    int64_t exact = tri_compress_count(part->exacts, part->exact_count);
    memset(part->exact, 0, (size_t)exact * sizeof(float));
    tri_spans_add(part->exacts, part->exact_count, part->flight, part->exact);
    memcpy(part->exact + exact, control, CONTROL_COUNT * sizeof(float));
    TRI_TRY(part->sum->ops->send(part->sum, part->flight));
    return sum_start(outer, part, part->exact, exact + CONTROL_COUNT, &part->work);
}

static tri_status fragment_turn(fragment *part)
{
    if (!part->away || part->turned || !part->sum)
        return TRI_OK;
    part->turned = true;
    return part->sum->ops->turn(part->sum);
}

/* Waits for the sum; it becomes the mean. */
static tri_status fragment_land(tri_outer *outer, fragment *part)
{
    if (!part->away)
        return TRI_OK;
    TRI_TRY(fragment_turn(part));
    tri_work *work = part->work;
    part->work = NULL;
    part->away = false;
    tri_status status = tri_work_wait(work);
    if (status == TRI_OK && part->sum) {
        int64_t exact = tri_compress_count(part->exacts, part->exact_count);
        status = part->sum->ops->take(part->sum, part->flight);
        tri_spans_put(part->exacts, part->exact_count, part->exact, part->flight);
        memcpy(part->flight + part->count, part->exact + exact, CONTROL_COUNT * sizeof(float));
    }
    divide(part->flight, (float)tri_group_count(outer->group), part->count);
    return status;
}

/* Running statistics go to their mean; what is frozen has not moved. */
static void fragment_apply(tri_outer *outer, const fragment *part)
{
    const tri_parallel_config *config = outer->config;
    for (int e = part->first_entry; e < part->end_entry; e++) {
        const tri_param *entry = &outer->params->entries[e];
        float lr = entry->buffer ? 1 : (float)config->outer_lr,
              factor = entry->buffer ? 0 : (float)config->outer_momentum;
        float *anchor = outer->anchor + entry->first, *values = outer->values + entry->first;
        if (entry->frozen)
            continue;
        anchor_move(anchor, outer->momentum + entry->first, part->flight + (entry->first - part->first), lr, factor,
                    entry->count);
        if (config->outer_delay > 0)
            mix(values, anchor, (float)config->outer_mix, (float)(1 - config->outer_mix), entry->count);
        else
            memcpy(values, anchor, (size_t)entry->count * sizeof(float));
    }
}

/* Was the fragment to leave `ago` steps ago? */
static bool left(const tri_outer *outer, const fragment *part, int64_t steps, int64_t ago)
{
    return part->count > 0 && steps - ago > 0 && (steps - ago) % outer->config->local_steps == part->turn;
}

tri_status tri_outer_step(tri_outer *outer, int64_t steps, const float wishes[TRI_OUTER_WISHES],
                          float agreed[TRI_OUTER_WISHES], bool *met)
{
    int64_t delay = outer->config->outer_delay;
    for (fragment *part = outer->fragments; part < outer->fragments + outer->count; part++) {
        if (left(outer, part, steps, 0))
            TRI_TRY(fragment_leave(outer, part, wishes));
        if (left(outer, part, steps, (delay + 1) / 2))
            TRI_TRY(fragment_turn(part));
        if (!left(outer, part, steps, delay))
            continue;
        TRI_TRY(fragment_land(outer, part));
        fragment_apply(outer, part);
        memcpy(agreed, part->flight + part->count, TRI_OUTER_WISHES * sizeof(float));
        *met = true;
    }
    return TRI_OK;
}

tri_status tri_outer_settle(tri_outer *outer)
{
    for (fragment *part = outer->fragments; part < outer->fragments + outer->count; part++)
        TRI_TRY(fragment_land(outer, part));
    return TRI_OK;
}

/* --- state --- */

const char *tri_outer_state_name(int index)
{
    static const char *const names[] = {"anchor", "momentum", "pending"};
    return index < (int)TRI_COUNT_OF(names) ? names[index] : NULL;
}

float *tri_outer_state(tri_outer *outer, int index, int entry)
{
    int64_t first = outer->params->entries[entry].first;
    if (index < 2)
        return (index == 0 ? outer->anchor : outer->momentum) + first;
    fragment *part = outer->fragments;
    while (entry >= part->end_entry)
        part++;
    return part->flight + (first - part->first);
}

tri_status tri_outer_loaded(tri_outer *outer)
{
    TRI_TRY(tri_broadcast(outer->group, outer->anchor, outer->params->count, TRI_F32, 0, NULL));
    TRI_TRY(tri_broadcast(outer->group, outer->momentum, outer->params->count, TRI_F32, 0, NULL));
    for (fragment *part = outer->fragments; part < outer->fragments + outer->count; part++)
        if (part->count > 0)
            TRI_TRY(tri_broadcast(outer->group, part->flight, part->count, TRI_F32, 0, NULL));
    return TRI_OK;
}

tri_status tri_outer_nbytes(const tri_parallel_config *config, const tri_params *params, int ranks, size_t *nbytes)
{
    int fragments = (int)config->outer_fragments;
    tri_compress_setup sum = {.config = config, .forgets = true};
    *nbytes = 3 * (size_t)params->count * sizeof(float);
    for (int f = 0; tri_compress_find(config) && f < fragments; f++) {
        size_t each;
        TRI_TRY(tri_compress_memory(&sum, params, cut_entry(params, f, fragments), cut_entry(params, f + 1, fragments),
                                    ranks, &each));
        *nbytes += each;
    }
    return TRI_OK;
}
