/* SPDX-License-Identifier: Apache-2.0
 *
 * optim.c: the table of optimizers, their state, and steps over slices cut at tiles and entries.
 *
 * Every element's new value depends on its own old value, gradient and state alone: cuts and threads change no bits.
 * Padding between entries is never touched.
 */
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "optim/entries.h"
#include "optim/groups.h"
#include "optim/step.h"

#define TILE_COUNT INT64_C(16384) /* elements; tiles lie at fixed places of the store */

#define TRI_OPTION_STRUCT tri_optim_config
static const tri_option rows[] = {TRI_OPTIM_OPTIONS(TRI_OPTION_ROW)};
#undef TRI_OPTION_STRUCT
const tri_option_table tri_optim_options = TRI_OPTION_TABLE("optim", tri_optim_config, rows, "how weights move");

static const tri_optim_ops *const table[] = {&tri_optim_sgd, &tri_optim_adam, &tri_optim_adamw};

/* A tile, and where in its entry it begins: 0 to 1. */
typedef struct tile_place {
    int64_t tile;
    double part;
} tile_place;

struct tri_optim {
    const tri_optim_ops *ops;
    tri_optim_config config;
    const tri_params *params;
    int threads;
    optim_groups groups;
    float *decay;                      /* [entry_count] weight decay of each entry */
    int64_t first, count;              /* elements of the store that it moves, all or a part */
    float *state[TRI_OPTIM_MAX_STATE]; /* [count] */
    tile_place *order;                 /* [tile_count] that meet this part of the store */
    int64_t tile_count;
};

const char *const *tri_optim_names(void)
{
    static const char *const names[] = {"sgd", "adam", "adamw", NULL};
    return names;
}

static const tri_optim_ops *ops_find(const tri_optim_config *config)
{
    for (size_t i = 0; i < TRI_COUNT_OF(table); i++)
        if (strcmp(table[i]->name, config->name) == 0)
            return table[i] == &tri_optim_sgd && config->momentum == 0 ? &tri_optim_sgd_plain : table[i];
    return NULL;
}

static tri_status check_config(const tri_optim_config *config)
{
    bool adam = strcmp(config->name, "sgd") != 0;
    if (adam && (config->beta1 >= 1 || config->beta2 >= 1))
        return tri_fail(TRI_ECONFIG, "optim.beta1, optim.beta2: want less than 1, got %g and %g", config->beta1,
                        config->beta2);
    if (!adam && config->nesterov && config->momentum == 0)
        return tri_fail(TRI_ECONFIG, "optim.nesterov: wants optim.momentum above 0");
    return TRI_OK;
}

static int compare_places(const void *a, const void *b)
{
    const tile_place *left = a, *right = b;
    if (left->part != right->part)
        return left->part < right->part ? -1 : 1;
    return (left->tile > right->tile) - (left->tile < right->tile);
}

/* Threads share out tiles from first to last, and an op's gradient is a share of its rows each. In this order a thread
 * moves the weights whose gradients it has written, which are in its cache. */
static tri_status order_tiles(tri_optim *optim)
{
    const tri_params *params = optim->params;
    int64_t first = optim->first / TILE_COUNT, end = (optim->first + optim->count + TILE_COUNT - 1) / TILE_COUNT;
    optim->tile_count = optim->count > 0 ? end - first : 0;
    optim->order = tri_alloc_zero((size_t)optim->tile_count + 1, sizeof(*optim->order));
    if (!optim->order)
        return TRI_ENOMEM;
    for (int64_t i = 0; i < optim->tile_count; i++) {
        int64_t tile = first + i;
        int e = optim_entry_after(params, tile * TILE_COUNT);
        const tri_param *entry = &params->entries[e < params->entry_count ? e : params->entry_count - 1];
        double within = (double)(tile * TILE_COUNT - entry->first) / (double)entry->count;
        optim->order[i] = (tile_place){tile, within > 0 ? within : 0};
    }
    qsort(optim->order, (size_t)optim->tile_count, sizeof(*optim->order), compare_places);
    return TRI_OK;
}

static tri_status make_groups(tri_optim *optim)
{
    const tri_params *params = optim->params;
    TRI_TRY(optim_groups_init(&optim->groups, &optim->config, params));
    optim->decay = tri_alloc_zero((size_t)params->entry_count + 1, sizeof(*optim->decay));
    if (!optim->decay)
        return TRI_ENOMEM;
    for (int e = 0; e < params->entry_count; e++)
        optim->decay[e] = (float)optim_groups_decay(&optim->groups, &optim->config, params, e);
    return TRI_OK;
}

static tri_status make_state(tri_optim *optim)
{
    TRI_TRY(make_groups(optim));
    for (int i = 0; i < TRI_OPTIM_MAX_STATE && optim->ops->state[i]; i++) {
        optim->state[i] = optim->params->device->alloc((size_t)(optim->count > 0 ? optim->count : 1) * sizeof(float));
        if (!optim->state[i])
            return TRI_ENOMEM;
    }
    return order_tiles(optim);
}

tri_status tri_optim_create_part(const tri_optim_config *config, const tri_params *params, int64_t first, int64_t count,
                                 int threads, tri_optim **out)
{
    TRI_ASSERT(first >= 0 && count >= 0 && first + count <= params->count);
    const tri_optim_ops *ops = ops_find(config);
    if (!ops)
        return tri_fail(TRI_ECONFIG, "optim.name: want sgd, adam or adamw, got '%s'", config->name);
    TRI_TRY(check_config(config));
    tri_optim *optim = tri_alloc_zero(1, sizeof(*optim));
    if (!optim)
        return TRI_ENOMEM;
    optim->ops = ops;
    optim->config = *config;
    optim->params = params;
    optim->first = first;
    optim->count = count;
    optim->threads = threads;
    tri_status status = make_state(optim);
    if (status != TRI_OK) {
        tri_optim_destroy(optim);
        return status;
    }
    *out = optim;
    return TRI_OK;
}

tri_status tri_optim_create(const tri_optim_config *config, const tri_params *params, int threads, tri_optim **out)
{
    return tri_optim_create_part(config, params, 0, params->count, threads, out);
}

void tri_optim_destroy(tri_optim *optim)
{
    if (!optim)
        return;
    for (int i = 0; i < TRI_OPTIM_MAX_STATE; i++)
        optim->params->device->free(optim->state[i]);
    optim_groups_fini(&optim->groups);
    tri_free(optim->decay);
    tri_free(optim->order);
    tri_free(optim);
}

/* --- steps --- */

typedef struct step_arg {
    tri_optim *optim;
    optim_rates rates[OPTIM_MAX_GROUPS]; /* of each group */
    float buffer_scale;
    float *values;
    const float *grads;
    int64_t first, end;
} step_arg;

static optim_rates rates_make(const tri_optim_config *config, const tri_optim_figures *figures, double lr_scale)
{
    double taken = (double)(figures->step + 1), lr = (double)figures->lr * lr_scale;
    return (optim_rates){
        .lr = (float)lr,
        .grad_scale = figures->grad_scale,
        .momentum = (float)config->momentum,
        .nesterov = config->nesterov,
        .beta1 = (float)config->beta1,
        .beta2 = (float)config->beta2,
        .epsilon = (float)config->epsilon,
        .step_lr = (float)(lr / (1 - pow(config->beta1, taken))),
        .root_scale = (float)(1 / sqrt(1 - pow(config->beta2, taken))),
    };
}

/* Running statistics follow the mean over shards. */
static void buffer_step(float momentum, float scale, float *values, const float *sums, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = (1.0f - momentum) * values[i] + momentum * (sums[i] * scale);
}

static void entry_step(const step_arg *step, int e, const float *grads, int64_t first, int64_t count)
{
    const tri_optim *optim = step->optim;
    const tri_param *entry = &optim->params->entries[e];
    if (entry->frozen)
        return;
    if (entry->buffer) {
        float momentum = entry->momentum > 0 ? entry->momentum : 0.1f;
        buffer_step(momentum, step->buffer_scale, step->values + first, grads, count);
        return;
    }
    float *state[TRI_OPTIM_MAX_STATE] = {NULL};
    for (int i = 0; i < TRI_OPTIM_MAX_STATE && optim->state[i]; i++)
        state[i] = optim->state[i] + (first - optim->first);
    optim->ops->step(&step->rates[optim->groups.of_entry[e]], optim->decay[e], step->values + first, grads, state,
                     count);
}

static void step_tile(void *arg, int64_t tile)
{
    const step_arg *step = arg;
    const tri_params *params = step->optim->params;
    int64_t first = step->optim->order[tile].tile * TILE_COUNT, end = first + TILE_COUNT;
    first = first > step->first ? first : step->first;
    end = end < step->end ? end : step->end;
    if (first >= end)
        return; /* most tiles, where a slice is small */
    for (int e = optim_entry_after(params, first); e < params->entry_count && params->entries[e].first < end; e++) {
        const tri_param *entry = &params->entries[e];
        int64_t low = entry->first > first ? entry->first : first;
        int64_t high = entry->first + entry->count < end ? entry->first + entry->count : end;
        if (low < high)
            entry_step(step, e, step->grads + low, low, high - low);
    }
}

void tri_optim_step(tri_optim *optim, const tri_optim_figures *figures, float *values, const float *grads,
                    int64_t first, int64_t count)
{
    if (count == 0)
        return;
    TRI_ASSERT(first >= optim->first && count > 0 && first + count <= optim->first + optim->count);
    step_arg arg = {.optim = optim,
                    .buffer_scale = figures->buffer_scale,
                    .values = values,
                    .grads = grads,
                    .first = first,
                    .end = first + count};
    for (int g = 0; g < optim->groups.count; g++)
        arg.rates[g] = rates_make(&optim->config, figures, optim->groups.rules[g].lr_scale);
    tri_tiles_run(optim->threads, optim->tile_count, step_tile, &arg);
}

const char *tri_optim_state_name(const tri_optim *optim, int index)
{
    return index >= 0 && index < TRI_OPTIM_MAX_STATE ? optim->ops->state[index] : NULL;
}

float *tri_optim_state(tri_optim *optim, int index)
{
    return index >= 0 && index < TRI_OPTIM_MAX_STATE ? optim->state[index] : NULL;
}

int64_t tri_optim_count(const tri_optim *optim)
{
    return optim->count;
}

size_t tri_optim_nbytes(const tri_optim *optim)
{
    size_t arrays = 0;
    while (tri_optim_state_name(optim, (int)arrays))
        arrays++;
    return arrays * (size_t)optim->count * sizeof(float);
}
