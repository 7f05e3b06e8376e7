/* SPDX-License-Identifier: Apache-2.0
 *
 * params.h: the one flat store of a model's parameters: a table of (name, shape, first, count) over one array.
 *
 * Entries are in the order of the model's nodes, each beginning at a multiple of 16 elements; gaps hold zeros for
 * ever. A store may hold some of the model's parameters only (a stage of a pipeline), and an entry may be a piece of a
 * tensor. Gradients and optimizer state use the same table over arrays of their own. Behind the parameters a gradient
 * array has a *tail* of TRI_PARAMS_TAIL elements: the sums that travel with the gradients (loss, weight, right,
 * shards).
 */
#ifndef TRI_NN_PARAMS_H
#define TRI_NN_PARAMS_H

#include "device/device.h"
#include "nn/model.h"

#define TRI_PARAMS_ALIGN 16
#define TRI_PARAMS_TAIL  32
/* Offsets in the tail; the graph fills the first four and zeros the rest. The others are wishes to stop and to change
 * the ranks, of strategies whose ranks share no call in each step (train/core/control.c). */
enum { TRI_TAIL_LOSS, TRI_TAIL_WEIGHT, TRI_TAIL_RIGHT, TRI_TAIL_SHARDS, TRI_TAIL_STOP, TRI_TAIL_CALL };

typedef struct tri_param {
    const char *name;
    tri_shape shape;
    tri_piece piece;      /* of the tensor of that name */
    int number;           /* in the model */
    int64_t first, count; /* elements of the store */
    int64_t block;        /* first of its blocks of the norm, among those of the whole model */
    bool decay, buffer;
    bool frozen;    /* nobody moves it: no gradient is wanted; set before graphs, optimizers and syncs are made */
    float momentum; /* buffer: weight of the newest figure; 0 = 0.1 */
    bool copy;      /* another rank of the pipeline has it too, and counts it: in norms and checkpoints */
    bool away;      /* its gradient is made there, and does not travel in buckets */
} tri_param;

/* Elements of the store. */
typedef struct tri_slice {
    int64_t first, count;
} tri_slice;

/* Elements of the store that both an entry and a slice have; count 0: none. */
static inline tri_slice tri_param_within(const tri_param *entry, tri_slice slice)
{
    int64_t first = entry->first > slice.first ? entry->first : slice.first;
    int64_t end = entry->first + entry->count, slice_end = slice.first + slice.count;
    end = end < slice_end ? end : slice_end;
    return (tri_slice){first, first < end ? end - first : 0};
}

/* Another reader of an entry (tied weights). Its gradient has a place of its own in gradient arrays, behind the
 * entries, and is added to the entry's once the sums over all shards are there: so the sum does not depend on who had
 * which shards. Where one run has all shards the entry's reader adds to it instead: tri_params_join_ties(). */
typedef struct tri_tie {
    int entry;
    int number;    /* in the model */
    int64_t first; /* element of gradient arrays */
    bool away;     /* made by another rank of the pipeline, as for entries */
} tri_tie;

/* An entry in 16 bits, as products of a card read it (param_copies.c). */
typedef struct tri_param_copy {
    void *data; /* in memory of the graph that reads it; NULL: there is none */
    tri_dtype dtype;
    bool there; /* it is that of the values; else it is made before it is read */
} tri_param_copy;

typedef struct tri_params {
    tri_param *entries;
    int entry_count;
    int64_t count;    /* elements of the store, padding included, tail not */
    float *values;    /* [count], in the device's memory; of a store that is spread: its share, slice after slice */
    tri_slice *share; /* what of a store that is spread is here, in order; NULL: all */
    int share_count;
    int64_t share_elements; /* of all slices */
    const tri_device *device;
    struct tri_param_copies *copies;
    tri_tie *ties;
    int tie_count;
    bool ties_joined;    /* there are readers whose gradients have no place of their own */
    int *of_model;       /* [model_count]: number in the model -> entry, -1: it is not here */
    int model_count;     /* parameters of the model */
    char **names;        /* [model_count]: those of the model; NULL for buffers, which nobody trains */
    int64_t block_count; /* blocks of the norm of the whole model: TRI_NORM_BLOCK elements of an entry each */
} tri_params;

/* Elements of the store that are here. */
static inline int64_t tri_params_held(const tri_params *params)
{
    return params->share ? params->share_elements : params->count;
}

/* Elements of a gradient array before its tail: the store and the ties. */
static inline int64_t tri_params_grad_count(const tri_params *params)
{
    if (params->tie_count == 0)
        return params->count;
    const tri_tie *last = &params->ties[params->tie_count - 1];
    int64_t count = params->entries[last->entry].count;
    return last->first + (count + TRI_PARAMS_ALIGN - 1) / TRI_PARAMS_ALIGN * TRI_PARAMS_ALIGN;
}

/* Where tensor ranks share out the parts of a model, whether each of them has this entry, with the same values and
 * gradients: norms, hashes and checkpoints count it once. */
static inline bool tri_param_is_replicated(const tri_param *entry)
{
    return entry->piece.parts == 0;
}

/* Gradients are numbered: entries, ties, and the tail last. */
static inline int tri_params_tail(const tri_params *params)
{
    return params->entry_count + params->tie_count;
}

/* First element of the gradient numbered so. */
static inline int64_t tri_params_grad_first(const tri_params *params, int number)
{
    if (number < params->entry_count)
        return params->entries[number].first;
    return number < tri_params_tail(params) ? params->ties[number - params->entry_count].first
                                            : tri_params_grad_count(params);
}

/* Lays out the store in the device's memory and fills it: initial values are a function of (seed, name, element) alone.
 * Graphs and optimizers over the store have theirs in the same device. The model may be destroyed afterwards. */
tri_status tri_params_create(const tri_model *model, const tri_device *device, uint64_t seed, tri_params **out);
/* Only the parameters p of the model with wanted[p]; NULL: all. Ties come with the parameters that they are of. Those
 * of parts that other tensor ranks have are left out. */
tri_status tri_params_create_some(const tri_model *model, const bool *wanted, const tri_device *device, uint64_t seed,
                                  tri_params **out);
/* The table alone: no values yet. */
tri_status tri_params_lay(const tri_model *model, const bool *wanted, const tri_device *device, tri_params **out);
/* Allocates and fills the values of a table: all of them (share NULL), or these slices, which are copied. */
tri_status tri_params_fill(tri_params *params, const tri_model *model, uint64_t seed, const tri_slice *share,
                           int share_count);
/* Allocates them alone: zeros. */
tri_status tri_params_room(tri_params *params, const tri_slice *share, int share_count);
void tri_params_destroy(tri_params *params);
/* Before graphs are made and gradients are allotted, of ranks none of which shares its shards with others or takes them
 * in several runs: an embedding adds its gradient to that of the other reader of its table, with the bits of
 * tri_params_fold(), and there is one gradient less in memory. Does nothing where a tie is
 * not of an embedding, or a table has several. */
void tri_params_join_ties(tri_params *params, const tri_model *model);
/* Adds the gradients of ties to those of their entries, in order; grads holds the sums over all shards. */
void tri_params_fold(const tri_params *params, int threads, float *grads);

/* --- copies in 16 bits --- */

/* Who reads an entry in 16 bits gives it memory of the device, until it is dropped. False: somebody else has, or the
 * device cannot say when values change. Not of a store that is spread. */
bool tri_params_copy_add(const tri_params *params, int entry, void *data, tri_dtype dtype);
void tri_params_copy_drop(const tri_params *params, int entry, const void *data);
/* For a kernel that is queued next: the copy at `data` if it is the entry's, rounded now unless it is that of the
 * values already; else NULL. */
const void *tri_params_copy_bring(const tri_params *params, int entry, const void *data);
/* For optimizers, whose kernel writes it with the values: what the copy has of elements [first, ..) of the store, which
 * are at `values`; data NULL: it has nothing, or not these. */
tri_param_copy tri_params_copy_at(const tri_params *params, int entry, const float *values, int64_t first);
/* Of tri_params_lay() and tri_params_destroy(). */
tri_status tri_params_copies_init(tri_params *params);
void tri_params_copies_fini(tri_params *params);

/* NULL when absent; the first of its pieces where the tensor is cut. */
const tri_param *tri_params_find(const tri_params *params, const char *name);
/* xxh3 over (name, 0, dtype and dims as little-endian int64, bytes) of all tensors in order of name: the `weights:`
 * line. Every tensor of which there is a piece must be here whole. */
uint64_t tri_params_hash(const tri_params *params);
/* Of the entries that are here, in their order: what ranks with the same ones compare; 0 where the store is spread. */
uint64_t tri_params_hash_here(const tri_params *params);
/* The same hash as tri_params_hash(), tensor by tensor in order of name, each with its whole shape and its values from
 * first to last. */
typedef struct tri_params_hasher {
    _Alignas(64) unsigned char state[640]; /* of xxh3 */
} tri_params_hasher;
void tri_params_hasher_init(tri_params_hasher *hasher);
void tri_params_hasher_begin(tri_params_hasher *hasher, const char *name, tri_shape shape);
void tri_params_hasher_put(tri_params_hasher *hasher, const float *values, int64_t count);
uint64_t tri_params_hasher_end(tri_params_hasher *hasher);

#endif
