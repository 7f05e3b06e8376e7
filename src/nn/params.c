/* SPDX-License-Identifier: Apache-2.0
 *
 * params.c: lays out the flat store, fills it, finds entries, and hashes them.
 *
 * An initial value is a function of (seed, name, element): adding a layer or changing the order changes no other
 * layer's values.
 */
#include "nn/params.h"

#include <math.h>
#include <string.h>

#include "base/hash_wide.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "kernel/array.h"

#define HASH_COPY 1024 /* elements that are copied at once where there is no room for: */
#define HASH_ROOM (INT64_C(1) << 20)

#define INIT_TILE (INT64_C(1) << 16) /* elements that one thread fills at once */

typedef struct init_arg {
    const tri_param_spec *spec;
    tri_rng rng;
    float bound, deviation;
    float *values;
    int64_t first, count; /* of the piece */
} init_arg;

/* Elements [place, place + count) of the tensor, to `values`. */
static void init_run(const init_arg *v, int64_t place, int64_t count, float *values)
{
    switch (v->spec->init) {
    case TRI_INIT_ZERO: /* as allocated */
        break;
    case TRI_INIT_ONE:
        for (int64_t i = 0; i < count; i++)
            values[i] = 1.0f;
        break;
    case TRI_INIT_FAN_IN:
        tri_rng_fill_uniform(v->rng, (uint64_t)place, (uint64_t)count, values);
        for (int64_t i = 0; i < count; i++)
            values[i] = (2.0f * values[i] - 1.0f) * v->bound;
        break;
    case TRI_INIT_HE:
    case TRI_INIT_NORMAL:
        for (int64_t i = 0; i < count; i++)
            values[i] = v->deviation * tri_rng_normal(v->rng, (uint64_t)(place + i));
        break;
    }
}

static void init_tile(void *arg, int64_t tile)
{
    const init_arg *v = arg;
    int64_t at = tile * INIT_TILE, end = v->count - at < INIT_TILE ? v->count : at + INIT_TILE;
    for (int64_t count; at < end; at += count) {
        int64_t place = tri_piece_place(v->spec->shape, v->spec->piece, v->first + at, &count);
        if (count > end - at)
            count = end - at;
        init_run(v, place, count, v->values + at);
    }
}

/* Elements [first, first + count) of the entry. */
static void entry_init(const tri_param_spec *spec, uint64_t seed, int64_t first, int64_t count, float *values)
{
    init_arg arg = {.spec = spec,
                    .rng = {seed, tri_rng_stream("init", XXH3_64bits(spec->name, strlen(spec->name)), 0)},
                    .bound = (float)(1.0 / sqrt((double)spec->fan)),
                    .deviation = spec->init == TRI_INIT_HE ? (float)sqrt(2.0 / (double)spec->fan) : spec->deviation,
                    .values = values,
                    .first = first,
                    .count = count};
    tri_tiles_run(tri_tiles_threads(), (count + INIT_TILE - 1) / INIT_TILE, init_tile, &arg);
}

/* The entry of the model's parameter `number`, behind those that are there. */
static tri_status entry_lay(const tri_param_spec *spec, int number, tri_params *params)
{
    tri_param *entry = &params->entries[params->entry_count];
    *entry = (tri_param){.name = tri_strdup(spec->name),
                         .shape = spec->shape,
                         .piece = spec->piece,
                         .number = number,
                         .first = params->count,
                         .count = tri_shape_count(spec->shape),
                         .block = params->block_count,
                         .decay = spec->decay,
                         .buffer = spec->buffer,
                         .momentum = spec->momentum};
    if (!entry->name)
        return TRI_ENOMEM;
    params->of_model[number] = params->entry_count++;
    params->count += (entry->count + TRI_PARAMS_ALIGN - 1) / TRI_PARAMS_ALIGN * TRI_PARAMS_ALIGN;
    if (params->count > INT64_C(1) << 44)
        return tri_fail(TRI_ENOMEM, "%s: want at most 2^44 parameters in all", entry->name);
    return TRI_OK;
}

static tri_status entries_lay(const tri_model *model, const bool *wanted, tri_params *params)
{
    const tri_param_spec *specs = model->params.items;
    for (int number = 0; number < params->model_count; number++) {
        params->of_model[number] = -1;
        if (!specs[number].buffer && !(params->names[number] = tri_strdup(specs[number].name)))
            return TRI_ENOMEM;
        if (!specs[number].elsewhere && (!wanted || wanted[number]))
            TRI_TRY_IN(entry_lay(&specs[number], number, params), "model %s", model->name);
        params->block_count += (tri_shape_count(specs[number].shape) + TRI_NORM_BLOCK - 1) / TRI_NORM_BLOCK;
    }
    return TRI_OK;
}

static tri_status ties_lay(const tri_model *model, tri_params *params)
{
    const int *numbers = model->ties.items;
    params->ties = tri_alloc_zero(model->ties.count, sizeof(*params->ties));
    if (!params->ties && model->ties.count > 0)
        return TRI_ENOMEM;
    for (size_t t = 0; t < model->ties.count; t++) {
        int entry = params->of_model[numbers[t]];
        if (entry < 0)
            continue;
        params->ties[params->tie_count] = (tri_tie){entry, (int)t, tri_params_grad_count(params), false};
        params->tie_count++;
    }
    return TRI_OK;
}

static void slice_fill(const tri_params *params, const tri_param_spec *specs, uint64_t seed, tri_slice slice,
                       float *values)
{
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        tri_slice here = tri_param_within(entry, slice);
        if (here.count > 0)
            entry_init(&specs[entry->number], seed, here.first - entry->first, here.count,
                       values + (here.first - slice.first));
    }
}

static tri_status share_take(tri_params *params, const tri_slice *share, int share_count)
{
    params->share = tri_alloc_zero((size_t)share_count + 1, sizeof(*share));
    if (!params->share)
        return TRI_ENOMEM;
    for (int i = 0; i < share_count; i++) {
        params->share[i] = share[i];
        params->share_elements += share[i].count;
    }
    params->share_count = share_count;
    return TRI_OK;
}

tri_status tri_params_room(tri_params *params, const tri_slice *share, int share_count)
{
    if (share)
        TRI_TRY(share_take(params, share, share_count));
    size_t nbytes = (size_t)tri_params_held(params) * sizeof(float);
    params->values = tri_device_alloc(params->device, nbytes);
    return params->values ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_params_fill(tri_params *params, const tri_model *model, uint64_t seed, const tri_slice *share,
                           int share_count)
{
    const tri_slice all = {0, params->count};
    TRI_TRY(tri_params_room(params, share, share_count));
    const tri_slice *slices = share ? params->share : &all;
    tri_device_view view;
    TRI_TRY(
        tri_device_view_open(&view, params->device, params->values, (size_t)tri_params_held(params) * sizeof(float)));
    float *values = view.host;
    for (int i = 0; i < (share ? share_count : 1); values += slices[i++].count)
        slice_fill(params, model->params.items, seed, slices[i], values);
    tri_device_view_write(&view);
    tri_device_view_close(&view);
    return TRI_OK;
}

tri_status tri_params_create(const tri_model *model, const tri_device *device, uint64_t seed, tri_params **out)
{
    return tri_params_create_some(model, NULL, device, seed, out);
}

tri_status tri_params_lay(const tri_model *model, const bool *wanted, const tri_device *device, tri_params **out)
{
    TRI_TRY(tri_model_check(model));
    tri_params *params = tri_alloc_zero(1, sizeof(*params));
    if (!params)
        return TRI_ENOMEM;
    params->device = device;
    tri_status status = TRI_ENOMEM;
    params->entries = tri_alloc_zero(model->params.count, sizeof(*params->entries));
    params->of_model = tri_alloc_zero(model->params.count, sizeof(int));
    params->names = tri_alloc_zero(model->params.count, sizeof(char *));
    if (params->entries && params->of_model && params->names) {
        params->model_count = (int)model->params.count;
        status = entries_lay(model, wanted, params);
        if (status == TRI_OK)
            status = ties_lay(model, params);
        if (status == TRI_OK)
            status = tri_params_copies_init(params);
    }
    if (status != TRI_OK) {
        tri_params_destroy(params);
        return status;
    }
    *out = params;
    return TRI_OK;
}

tri_status tri_params_create_some(const tri_model *model, const bool *wanted, const tri_device *device, uint64_t seed,
                                  tri_params **out)
{
    tri_params *params;
    TRI_TRY(tri_params_lay(model, wanted, device, &params));
    tri_status status = tri_params_fill(params, model, seed, NULL, 0);
    if (status != TRI_OK) {
        tri_params_destroy(params);
        return status;
    }
    *out = params;
    return TRI_OK;
}

void tri_params_destroy(tri_params *params)
{
    if (!params)
        return;
    for (int e = 0; e < params->entry_count; e++)
        tri_free((char *)(uintptr_t)params->entries[e].name);
    tri_free(params->entries);
    for (int p = 0; params->names && p < params->model_count; p++)
        tri_free(params->names[p]);
    tri_free(params->names);
    tri_free(params->of_model);
    tri_free(params->ties);
    tri_free(params->share);
    tri_params_copies_fini(params);
    tri_device_free(params->device, params->values);
    tri_free(params);
}

/* The node that made a parameter is the first that reads it. */
static tri_op maker_of(const tri_model *model, int number)
{
    const tri_node *nodes = model->nodes.items;
    size_t n = 0;
    while (nodes[n].param_count == 0 || nodes[n].param[0] != number)
        n++;
    return nodes[n].op;
}

void tri_params_join_ties(tri_params *params, const tri_model *model)
{
    for (int t = 0; t < params->tie_count; t++) {
        const int entry = params->ties[t].entry;
        if (!tri_op_row(maker_of(model, params->entries[entry].number))->reads_table)
            return;
        for (int other = 0; other < t; other++)
            if (params->ties[other].entry == entry)
                return;
    }
    params->ties_joined = params->tie_count > 0;
    params->tie_count = 0;
}

void tri_params_fold(const tri_params *params, int threads, float *grads)
{
    for (int t = 0; t < params->tie_count; t++) {
        const tri_param *entry = &params->entries[params->ties[t].entry];
        float *sum = grads + entry->first;
        tri_array_add(params->device, threads, sum, sum, grads + params->ties[t].first, entry->count);
    }
}

const tri_param *tri_params_find(const tri_params *params, const char *name)
{
    for (int e = 0; e < params->entry_count; e++)
        if (strcmp(params->entries[e].name, name) == 0)
            return &params->entries[e];
    return NULL;
}

/* The first entry by name after `previous` (NULL: of all), or NULL. */
static const tri_param *entry_after(const tri_params *params, const char *previous)
{
    const tri_param *best = NULL;
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        if ((!previous || strcmp(entry->name, previous) > 0) && (!best || strcmp(entry->name, best->name) < 0))
            best = entry;
    }
    return best;
}

static void hash_int64(XXH3_state_t *state, int64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)value >> (8 * i));
    XXH3_64bits_update(state, bytes, sizeof(bytes));
}

_Static_assert(sizeof(XXH3_state_t) <= sizeof(tri_params_hasher), "tri_params_hasher has room for xxh3's state");

static XXH3_state_t *state_of(tri_params_hasher *hasher)
{
    return (XXH3_state_t *)(void *)hasher->state;
}

void tri_params_hasher_init(tri_params_hasher *hasher)
{
    XXH3_INITSTATE(state_of(hasher));
    XXH3_64bits_reset(state_of(hasher));
}

void tri_params_hasher_begin(tri_params_hasher *hasher, const char *name, tri_shape shape)
{
    XXH3_64bits_update(state_of(hasher), name, strlen(name) + 1);
    hash_int64(state_of(hasher), TRI_F32);
    for (int d = 0; d < shape.ndim; d++)
        hash_int64(state_of(hasher), shape.dim[d]);
}

void tri_params_hasher_put(tri_params_hasher *hasher, const float *values, int64_t count)
{
    XXH3_64bits_update(state_of(hasher), values, (size_t)count * sizeof(float));
}

uint64_t tri_params_hasher_end(tri_params_hasher *hasher)
{
    return XXH3_64bits_digest(state_of(hasher));
}

/* Bit by bit where the host has to copy: no call of it may fail. */
static void hash_values(tri_params_hasher *hasher, const tri_params *params, const float *values, int64_t left)
{
    float few[HASH_COPY];
    if (tri_device_shares_host(params->device)) {
        tri_params_hasher_put(hasher, values, left);
        return;
    }
    const int64_t most = tri_int64_min(left, HASH_ROOM);
    float *room = most > HASH_COPY ? tri_alloc((size_t)most * sizeof(float)) : NULL, *copy = room ? room : few;
    for (int64_t count; left > 0; left -= count, values += count) {
        count = tri_int64_min(left, room ? most : HASH_COPY);
        tri_device_to_host(params->device, copy, values, (size_t)count * sizeof(float));
        tri_params_hasher_put(hasher, copy, count);
    }
    tri_free(room);
}

/* Where element `place` of the tensor with that name is here; *count elements from there are neighbours. */
static const float *tensor_place(const tri_params *params, const char *name, int64_t place, int64_t *count)
{
    int64_t at;
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        if (strcmp(entry->name, name) == 0 && (at = tri_piece_find(entry->shape, entry->piece, place, count)) >= 0)
            return params->values + entry->first + at;
    }
    return NULL;
}

uint64_t tri_params_hash(const tri_params *params)
{
    tri_params_hasher hasher;
    tri_params_hasher_init(&hasher);
    for (const tri_param *entry = entry_after(params, NULL); entry; entry = entry_after(params, entry->name)) {
        tri_shape whole = tri_piece_whole(entry->shape, entry->piece);
        tri_params_hasher_begin(&hasher, entry->name, whole);
        for (int64_t place = 0, count; place < tri_shape_count(whole); place += count) {
            const float *values = tensor_place(params, entry->name, place, &count);
            TRI_ASSERT(values);
            hash_values(&hasher, params, values, count);
        }
    }
    return tri_params_hasher_end(&hasher);
}

uint64_t tri_params_hash_here(const tri_params *params)
{
    tri_params_hasher hasher;
    if (params->share)
        return 0;
    tri_params_hasher_init(&hasher);
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        tri_params_hasher_begin(&hasher, entry->name, entry->shape);
        hash_values(&hasher, params, params->values + entry->first, entry->count);
    }
    return tri_params_hasher_end(&hasher);
}
