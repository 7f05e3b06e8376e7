/* SPDX-License-Identifier: Apache-2.0
 *
 * optim.c: the state of an optimizer, and steps over slices cut at tiles and entries.
 *
 * Every element's new value depends on its own old value, gradient and state alone: cuts and threads change no bits.
 * Padding between entries is never touched.
 */
#include "optim/optim.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "optim/entries.h"
#include "optim/groups.h"
#include "optim/step.h"

#define TILE_COUNT INT64_C(16384) /* elements; tiles are at fixed places of the store */

/* What of a slice is in one tile, and where in its entry the tile begins: 0 to 1. */
typedef struct tile_place {
    int64_t first, end;
    double part;
} tile_place;

/* A slice of the store that it moves. */
typedef struct optim_slice {
    int64_t first, count;
    int64_t at; /* of its first element in the state arrays */
    int64_t tile_first, tile_count;
} optim_slice;

struct tri_optim {
    const tri_optim_ops *ops;
    tri_optim_config config;
    const tri_params *params;
    int threads;
    optim_groups groups;
    float *decay;        /* [entry_count] weight decay of each entry */
    optim_slice *slices; /* [slice_count] of the store that it moves */
    int slice_count;
    int64_t count;                     /* elements of all slices */
    float *state[TRI_OPTIM_MAX_STATE]; /* [count] */
    tile_place *order;                 /* the tiles of each slice, slice after slice */
};

/* One row for each family of kernels (tri_device_ops.kernels); all give the same bits. */
typedef struct optim_family {
    const char *kernels;
    bool tiles; /* threads of the host share out a step */
    void (*step)(const tri_device *device, const tri_optim_ops *ops, const optim_rates *rates, float decay,
                 float *values, const float *grads, float *const *state, tri_param_copy copy, int64_t count);
    void (*average)(const tri_device *device, float momentum, float scale, float *values, const float *sums,
                    int64_t count);
} optim_family;

static void cpu_step(const tri_device *device, const tri_optim_ops *ops, const optim_rates *rates, float decay,
                     float *values, const float *grads, float *const *state, tri_param_copy copy, int64_t count)
{
    (void)device;
    (void)copy; /* kernels of the CPU read none */
    ops->step(rates, decay, values, grads, state, count);
}

/* Running statistics follow the mean over shards. */
static void cpu_average(const tri_device *device, float momentum, float scale, float *values, const float *sums,
                        int64_t count)
{
    (void)device;
    for (int64_t i = 0; i < count; i++)
        values[i] = optim_average(values[i], sums[i] * scale, momentum, 1.0f - momentum);
}

static const optim_family families[] = {{"cpu", true, cpu_step, cpu_average},
                                        {"cuda", false, optim_gpu_step, optim_gpu_average}};

static const optim_family *family_of(const tri_device *device)
{
    size_t i = 0;
    while (strcmp(families[i].kernels, device->ops->kernels) != 0)
        TRI_ASSERT(++i < TRI_COUNT_OF(families));
    return &families[i];
}

static tri_status family_check(const tri_device *device, const tri_optim_ops *ops)
{
    if (!family_of(device)->tiles && ops->gpu == TRI_GPU_NO_STEP)
        return tri_fail(TRI_EUNSUPPORTED, "optim.name: %s is not there yet on a GPU: want train.device=cpu", ops->name);
    return TRI_OK;
}

/* --- state --- */

static int compare_places(const void *a, const void *b)
{
    const tile_place *left = a, *right = b;
    if (left->part != right->part)
        return left->part < right->part ? -1 : 1;
    return (left->first > right->first) - (left->first < right->first);
}

/* Threads share out tiles from first to last, and an op's gradient is a share of its rows each. In this order a thread
 * moves the weights whose gradients it has written, which are in its cache. */
static void order_slice(const tri_params *params, const optim_slice *slice, tile_place *order)
{
    int64_t end = slice->first + slice->count;
    for (int64_t i = 0; i < slice->tile_count; i++) {
        int64_t tile = slice->first / TILE_COUNT + i;
        int e = optim_entry_after(params, tile * TILE_COUNT);
        const tri_param *entry = &params->entries[e < params->entry_count ? e : params->entry_count - 1];
        double within = (double)(tile * TILE_COUNT - entry->first) / (double)entry->count;
        order[i] = (tile_place){tile * TILE_COUNT, (tile + 1) * TILE_COUNT, within > 0 ? within : 0};
        order[i].first = order[i].first > slice->first ? order[i].first : slice->first;
        order[i].end = order[i].end < end ? order[i].end : end;
    }
    qsort(order, (size_t)slice->tile_count, sizeof(*order), compare_places);
}

static tri_status order_tiles(tri_optim *optim)
{
    int64_t tiles = 0;
    for (int s = 0; s < optim->slice_count; s++) {
        optim_slice *slice = &optim->slices[s];
        int64_t first = slice->first / TILE_COUNT, end = (slice->first + slice->count + TILE_COUNT - 1) / TILE_COUNT;
        slice->tile_first = tiles;
        slice->tile_count = slice->count > 0 ? end - first : 0;
        tiles += slice->tile_count;
    }
    optim->order = tri_alloc_zero((size_t)tiles + 1, sizeof(*optim->order));
    if (!optim->order)
        return TRI_ENOMEM;
    for (int s = 0; s < optim->slice_count; s++)
        order_slice(optim->params, &optim->slices[s], optim->order + optim->slices[s].tile_first);
    return TRI_OK;
}

static tri_status take_share(tri_optim *optim, const tri_slice *share, int share_count)
{
    optim->slices = tri_alloc_zero((size_t)share_count + 1, sizeof(*optim->slices));
    if (!optim->slices)
        return TRI_ENOMEM;
    for (int s = 0; s < share_count; s++) {
        TRI_ASSERT(share[s].count >= 0 && share[s].first >= (s > 0 ? share[s - 1].first + share[s - 1].count : 0));
        optim->slices[s] = (optim_slice){.first = share[s].first, .count = share[s].count, .at = optim->count};
        optim->count += share[s].count;
    }
    optim->slice_count = share_count;
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

static tri_status state_fill(const tri_optim *optim, float *state, float initial)
{
    tri_device_view view;
    if (initial == 0) /* as allocated */
        return TRI_OK;
    TRI_TRY(tri_device_view_open(&view, optim->params->device, state, (size_t)optim->count * sizeof(float)));
    for (int64_t e = 0; e < optim->count; e++)
        ((float *)view.host)[e] = initial;
    tri_device_view_write(&view);
    tri_device_view_close(&view);
    return TRI_OK;
}

static tri_status make_state(tri_optim *optim)
{
    TRI_TRY(make_groups(optim));
    for (int i = 0; i < TRI_OPTIM_MAX_STATE && optim->ops->state[i]; i++) {
        optim->state[i] = tri_device_alloc(optim->params->device, (size_t)optim->count * sizeof(float));
        if (!optim->state[i])
            return TRI_ENOMEM;
        TRI_TRY(state_fill(optim, optim->state[i], optim_state_initial(optim->ops, &optim->config, i)));
    }
    return order_tiles(optim);
}

tri_status tri_optim_create_share(const tri_optim_config *config, const tri_params *params, const tri_slice *share,
                                  int share_count, int threads, tri_optim **out)
{
    const tri_optim_ops *ops;
    TRI_TRY(optim_ops_find(config, &ops));
    tri_optim *optim = tri_alloc_zero(1, sizeof(*optim));
    if (!optim)
        return TRI_ENOMEM;
    optim->ops = ops;
    optim->config = *config;
    optim->params = params;
    optim->threads = threads;
    tri_status status = family_check(params->device, ops);
    if (status == TRI_OK)
        status = take_share(optim, share, share_count);
    if (status == TRI_OK)
        status = make_state(optim);
    if (status != TRI_OK) {
        tri_optim_destroy(optim);
        return status;
    }
    *out = optim;
    return TRI_OK;
}

tri_status tri_optim_create_part(const tri_optim_config *config, const tri_params *params, int64_t first, int64_t count,
                                 int threads, tri_optim **out)
{
    TRI_ASSERT(first >= 0 && count >= 0 && first + count <= params->count);
    return tri_optim_create_share(config, params, &(tri_slice){first, count}, 1, threads, out);
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
        tri_device_free(optim->params->device, optim->state[i]);
    optim_groups_fini(&optim->groups);
    tri_free(optim->decay);
    tri_free(optim->order);
    tri_free(optim->slices);
    tri_free(optim);
}

/* --- steps --- */

typedef struct step_arg {
    tri_optim *optim;
    const optim_family *family;
    optim_rates rates[OPTIM_MAX_GROUPS]; /* of each group */
    float buffer_scale;
    float *values; /* these begin at element `first` */
    const float *grads;
    float *state[TRI_OPTIM_MAX_STATE];
    int64_t first, end;
    const optim_slice *slice;
} step_arg;

static void entry_step(const step_arg *step, int e, int64_t first, int64_t count)
{
    const tri_optim *optim = step->optim;
    float *values = step->values + (first - step->first);
    const float *grads = step->grads + (first - step->first);
    const tri_param *entry = &optim->params->entries[e];
    if (entry->frozen)
        return;
    if (entry->buffer && step->buffer_scale == 0)
        return;
    if (entry->buffer) {
        float momentum = entry->momentum > 0 ? entry->momentum : 0.1f;
        step->family->average(optim->params->device, momentum, step->buffer_scale, values, grads, count);
        return;
    }
    float *state[TRI_OPTIM_MAX_STATE] = {NULL};
    for (int i = 0; i < TRI_OPTIM_MAX_STATE && step->state[i]; i++)
        state[i] = step->state[i] + step->slice->at + (first - step->slice->first);
    step->family->step(optim->params->device, optim->ops, &step->rates[optim->groups.of_entry[e]], optim->decay[e],
                       values, grads, state, tri_params_copy_at(optim->params, e, values, first), count);
}

static void step_range(const step_arg *step, int64_t first, int64_t end)
{
    const tri_params *params = step->optim->params;
    for (int e = optim_entry_after(params, first); e < params->entry_count && params->entries[e].first < end; e++) {
        const tri_param *entry = &params->entries[e];
        int64_t low = entry->first > first ? entry->first : first;
        int64_t high = entry->first + entry->count < end ? entry->first + entry->count : end;
        if (low < high)
            entry_step(step, e, low, high - low);
    }
}

static void step_tile(void *arg, int64_t tile)
{
    const step_arg *step = arg;
    const tile_place *place = &step->optim->order[step->slice->tile_first + tile];
    int64_t first = place->first, end = place->end;
    first = first > step->first ? first : step->first;
    end = end < step->end ? end : step->end;
    if (first < end) /* most tiles have nothing to do, where a slice is small */
        step_range(step, first, end);
}

/* Where the family's loops find an array of the device. */
static float *family_finds(const tri_optim *optim, float *array)
{
    const tri_device *device = optim->params->device;
    return family_of(device)->tiles ? tri_device_mapped(device, array) : array;
}

/* The slice that element `first` is in. */
static const optim_slice *slice_find(const tri_optim *optim, int64_t first)
{
    int low = 0, high = optim->slice_count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        *(optim->slices[middle].first <= first ? &low : &high) = middle;
    }
    return &optim->slices[low];
}

void tri_optim_step(tri_optim *optim, const tri_optim_scalars *figures, float *values, const float *grads,
                    int64_t first, int64_t count)
{
    tri_optim_step_at(optim, figures, values + first, grads + first, first, count);
}

void tri_optim_step_at(tri_optim *optim, const tri_optim_scalars *figures, float *values, const float *grads,
                       int64_t first, int64_t count)
{
    if (count == 0)
        return;
    const optim_slice *slice = slice_find(optim, first);
    TRI_ASSERT(first >= slice->first && count > 0 && first + count <= slice->first + slice->count);
    step_arg arg = {.optim = optim,
                    .family = family_of(optim->params->device),
                    .buffer_scale = figures->buffer_scale,
                    .values = family_finds(optim, values),
                    .grads = family_finds(optim, (float *)(uintptr_t)grads),
                    .first = first,
                    .end = first + count,
                    .slice = slice};
    for (int i = 0; i < TRI_OPTIM_MAX_STATE && optim->state[i]; i++)
        arg.state[i] = family_finds(optim, optim->state[i]);
    for (int g = 0; g < optim->groups.count; g++)
        arg.rates[g] = optim_rates_make(&optim->config, figures, optim->groups.rules[g].lr_scale);
    if (arg.family->tiles)
        tri_tiles_run(optim->threads, slice->tile_count, step_tile, &arg);
    else
        step_range(&arg, first, first + count);
}

const char *tri_optim_state_name(const tri_optim *optim, int index)
{
    return index >= 0 && index < TRI_OPTIM_MAX_STATE ? optim->ops->state[index] : NULL;
}

float *tri_optim_state(tri_optim *optim, int index)
{
    return index >= 0 && index < TRI_OPTIM_MAX_STATE ? optim->state[index] : NULL;
}

const tri_device *tri_optim_device(const tri_optim *optim)
{
    return optim->params->device;
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
