/* SPDX-License-Identifier: Apache-2.0
 *
 * sync_staged.c: any strategy, over gradients and weights of a device whose memory the host cannot touch.
 *
 * The strategy works on arrays of the host, as it does everywhere: a twin of the store, and gradients. A gradient is
 * copied to them beside the backward pass once that has completed it, and its sum back when it is asked for; weights
 * that moved go to the twin before they are published, and those that come are copied to the device when a kernel first
 * reads them. The strategy hears of a gradient in finish, when its copy is there: on all ranks behind the same calls.
 * Where it has no arrays (zero2, zero3) gradients pass through rooms, and it hears of the oldest when all are full.
 */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "kernel/kernel.h"
#include "parallel/sync_impl.h"

#define ROOMS 4 /* gradients on their way through memory of this file */

/* A gradient whose kernels are queued, and which the strategy has not heard of. */
typedef struct staged_copy {
    int number;
    float *room; /* where it goes first: [part_count]; NULL: to its place, or nowhere */
    bool copied;
    tri_device_event there;
} staged_copy;

typedef struct sync_staged {
    tri_sync base;
    tri_sync_ops ops; /* those that the strategy has */
    const tri_params *params;
    const tri_device *device;
    tri_params twin; /* the same table, with values of the host; NULL where the strategy has no use for them */
    int part_count, threads;
    bool alone;            /* nothing is summed: gradients stay where they are */
    tri_graph_hooks inner; /* the strategy's */
    bool *stale;           /* [entry_count] newer in the twin, or on its way there; NULL: weights are spread */
    bool pinned;           /* so are the strategy's arrays of gradients */
    staged_copy *copies;   /* [gradients, with the tail]: of this step, in the order of the backward pass */
    int copy_first, copy_count;
    float *tails;                    /* [part_count][TRI_TAIL_STOP] */
    float *gradient_rooms;           /* [ROOMS][part_count][room_count]; NULL: gradients go to their places */
    int64_t room_count;              /* of the largest gradient */
    int rooms_used, gradient_room;   /* by copies; the next one */
    tri_device_event computed;       /* kernels so far */
    tri_device_event brought;        /* copies to the device so far */
    float *rooms[TRI_OP_MAX_PARAMS]; /* weights that are spread: those of the op that runs; and before, in the host */
    float *host_rooms[TRI_OP_MAX_PARAMS];
    tri_device_event room_left[TRI_OP_MAX_PARAMS]; /* the host's is free again */
    int room;                                      /* the next one */
    bool read;              /* and the twin has what the store has: checkpoints are loaded behind create */
    tri_sync_piece *pieces; /* on the device */
    tri_sync_slice slice;   /* that finish gave */
    tri_status status;      /* first failure of this step */
    char message[TRI_ERROR_NBYTES];
} sync_staged;

static sync_staged *staged_of(tri_sync *sync)
{
    return tri_container_of(sync, sync_staged, base);
}

static void staged_destroy(tri_sync *sync)
{
    sync_staged *staged = staged_of(sync);
    for (int p = 0; staged->pinned && p < staged->part_count; p++)
        tri_device_host_unpin(staged->device, sync->inner->grads[p]);
    tri_sync_destroy(sync->inner);
    for (int p = 0; sync->grads && p < staged->part_count; p++)
        tri_device_free(staged->device, sync->grads[p]);
    for (size_t i = 0; i < TRI_COUNT_OF(staged->rooms); i++) {
        tri_device_free(staged->device, staged->rooms[i]);
        tri_device_host_free(staged->device, staged->host_rooms[i]);
        tri_device_event_destroy(staged->device, &staged->room_left[i]);
    }
    for (int i = 0; staged->copies && i <= tri_params_tail(staged->params); i++)
        tri_device_event_destroy(staged->device, &staged->copies[i].there);
    tri_device_event_destroy(staged->device, &staged->computed);
    tri_device_event_destroy(staged->device, &staged->brought);
    tri_device_host_free(staged->device, staged->tails);
    tri_device_host_free(staged->device, staged->gradient_rooms);
    tri_device_host_free(staged->device, staged->twin.values);
    tri_free(staged->copies);
    tri_free(sync->grads);
    tri_free(staged->stale);
    tri_free(staged->pieces);
    tri_free(staged);
}

/* What the trainer tells the strategy, and what it hears. */
static void say(const sync_staged *staged)
{
    tri_sync *inner = staged->base.inner;
    inner->step = staged->base.step;
    inner->grad_scale = staged->base.grad_scale;
    inner->begun = staged->base.begun;
}

static void hear(sync_staged *staged)
{
    const tri_sync *inner = staged->base.inner;
    tri_sync *base = &staged->base;
    base->next_step = inner->next_step;
    base->part = inner->part;
    base->begun = inner->begun;
    base->called = inner->called;
    base->exposed_ns = inner->exposed_ns;
    base->waited_ns = inner->waited_ns;
}

/* --- the two queues --- */

/* Copies from now on see what kernels so far have made. */
static void copies_follow(const sync_staged *staged)
{
    tri_device_event_record(staged->device, staged->computed, TRI_QUEUE_KERNELS);
    tri_device_event_order(staged->device, staged->computed, TRI_QUEUE_COPIES);
}

/* Kernels from now on see what copies so far have brought. */
static void kernels_follow(const sync_staged *staged)
{
    tri_device_event_record(staged->device, staged->brought, TRI_QUEUE_COPIES);
    tri_device_event_order(staged->device, staged->brought, TRI_QUEUE_KERNELS);
}

/* The host may write again what copies have read. */
static void host_follow(const sync_staged *staged)
{
    tri_device_event_wait(staged->device, staged->brought);
}

/* --- weights --- */

static size_t held_nbytes(const sync_staged *staged)
{
    return (size_t)tri_params_held(staged->params) * sizeof(float);
}

void tri_sync_staged_read(tri_sync *sync)
{
    if (!sync->inner)
        return;
    host_follow(staged_of(sync));
    tri_device_to_host(staged_of(sync)->device, staged_of(sync)->twin.values, staged_of(sync)->params->values,
                       held_nbytes(staged_of(sync)));
}

void tri_sync_staged_write(tri_sync *sync)
{
    sync_staged *staged = sync->inner ? staged_of(sync) : NULL;
    if (!staged)
        return;
    tri_device_from_host(staged->device, staged->params->values, staged->twin.values, held_nbytes(staged));
    for (int e = 0; staged->stale && e < staged->params->entry_count; e++)
        staged->stale[e] = false;
}

void tri_sync_staged_hear(tri_sync *sync)
{
    sync_staged *staged = sync->inner ? staged_of(sync) : NULL;
    if (!staged)
        return;
    hear(staged);
    for (int e = 0; staged->stale && staged->inner.bring && e < staged->params->entry_count; e++)
        staged->stale[e] = !staged->params->entries[e].frozen; /* the strategy may not have what stands still */
    copies_follow(staged);                                     /* behind the optimizer, which writes them too */
}

/* Where an entry that is spread is brought to. */
static float *room_next(sync_staged *staged)
{
    staged->room = (staged->room + 1) % TRI_OP_MAX_PARAMS;
    return staged->rooms[staged->room];
}

static tri_status hook_bring(void *arg, int entry, const float **values)
{
    sync_staged *staged = arg;
    const tri_param *of = &staged->params->entries[entry];
    const float *host = staged->twin.values + (staged->stale ? of->first : 0);
    float *to = staged->stale ? staged->params->values + of->first : room_next(staged);
    *values = to;
    if (staged->stale && !staged->stale[entry])
        return TRI_OK;
    if (!staged->stale && !staged->read)
        tri_sync_staged_read(&staged->base);
    staged->read = true;
    if (staged->inner.bring)
        TRI_TRY(staged->inner.bring(staged->inner.arg, entry, &host));
    const size_t nbytes = (size_t)of->count * sizeof(float);
    if (!staged->stale) { /* the strategy's memory, until `done` */
        const int room = staged->room;
        tri_device_event_wait(staged->device, staged->room_left[room]);
        host = memcpy(staged->host_rooms[room], host, nbytes);
        copies_follow(staged);
    }
    tri_device_copy_in(staged->device, to, host, nbytes);
    kernels_follow(staged);
    if (staged->stale)
        staged->stale[entry] = false;
    else
        tri_device_event_record(staged->device, staged->room_left[staged->room], TRI_QUEUE_COPIES);
    hear(staged);
    return TRI_OK;
}

static void hook_begin(void *arg, bool down)
{
    const sync_staged *staged = arg;
    staged->inner.begin(staged->inner.arg, down);
}

static void hook_done(void *arg, int entry)
{
    const sync_staged *staged = arg;
    staged->inner.done(staged->inner.arg, entry);
}

static void staged_hooks(tri_sync *sync, tri_graph_hooks *hooks)
{
    const sync_staged *staged = staged_of(sync);
    *hooks = (tri_graph_hooks){.arg = staged_of(sync),
                               .bring = hook_bring,
                               .begin = staged->inner.begin ? hook_begin : NULL,
                               .done = staged->inner.done ? hook_done : NULL};
}

static tri_status staged_settle(tri_sync *sync)
{
    sync_staged *staged = staged_of(sync);
    const float *values;
    if (sync->inner->ops->settle)
        TRI_TRY(sync->inner->ops->settle(sync->inner));
    for (int e = 0; staged->stale && e < staged->params->entry_count; e++)
        TRI_TRY(hook_bring(staged, e, &values));
    return TRI_OK;
}

/* --- a step --- */

static tri_status staged_begin(tri_sync *sync)
{
    sync_staged *staged = staged_of(sync);
    staged->status = TRI_OK;
    staged->copy_first = staged->copy_count = staged->rooms_used = 0;
    host_follow(staged);
    if (sync->inner->ops->meet && !sync->begun)
        tri_sync_staged_read(sync);
    say(staged);
    tri_status status = sync->inner->ops->begin(sync->inner);
    hear(staged);
    return status;
}

static const tri_param *entry_of(const tri_params *params, int number)
{
    return &params->entries[number < params->entry_count ? number : params->ties[number - params->entry_count].entry];
}

/* Where the strategy has this gradient. */
static tri_status places_find(const sync_staged *staged, int number, float **to)
{
    const tri_sync *inner = staged->base.inner;
    if (!inner->grads)
        return staged->inner.place(staged->inner.arg, number, to);
    for (int p = 0; p < staged->part_count; p++)
        to[p] = inner->grads[p] + tri_params_grad_first(staged->params, number);
    return TRI_OK;
}

/* The columns from TRI_TAIL_STOP on are the host's own words. */
static void tail_take(const sync_staged *staged, float *const *to)
{
    for (int p = 0; p < staged->part_count; p++) {
        memset(to[p] + TRI_TAIL_CALL + 1, 0, (TRI_PARAMS_TAIL - TRI_TAIL_CALL - 1) * sizeof(float));
        if (p > 0)
            to[p][TRI_TAIL_STOP] = to[p][TRI_TAIL_CALL] = 0;
        memcpy(to[p], staged->tails + (size_t)p * TRI_TAIL_STOP, TRI_TAIL_STOP * sizeof(float));
    }
}

/* Not one that the driver cannot copy beside kernels: copy_take() copies it then. When the strategy hears of it must
 * not depend on what the driver of one rank refuses. */
static bool is_queued(const sync_staged *staged, const staged_copy *copy)
{
    return staged->pinned || copy->room || copy->number == tri_params_tail(staged->params);
}

/* Queues the copy of a gradient behind the kernels that make it. */
static void copy_queue(sync_staged *staged, staged_copy *copy)
{
    const tri_params *params = staged->params;
    const int64_t first = tri_params_grad_first(params, copy->number);
    const bool tail = copy->number == tri_params_tail(params);
    const int64_t count = tail ? TRI_TAIL_STOP : entry_of(params, copy->number)->count;
    float *const *const arrays = staged->base.inner->grads;
    copies_follow(staged);
    for (int p = 0; p < staged->part_count && is_queued(staged, copy); p++) {
        float *to = tail ? staged->tails + p * TRI_TAIL_STOP : copy->room ? copy->room + p * staged->room_count : NULL;
        tri_device_copy_out(staged->device, to ? to : arrays[p] + first, staged->base.grads[p] + first,
                            (size_t)count * sizeof(float));
    }
    tri_device_event_record(staged->device, copy->there, TRI_QUEUE_COPIES);
}

/* The gradient is the strategy's. */
static tri_status copy_take(sync_staged *staged, const staged_copy *copy)
{
    float *to[TRI_TREE_MAX_PARTS];
    if (!copy->copied)
        return TRI_OK;
    tri_device_event_wait(staged->device, copy->there);
    const bool tail = copy->number == tri_params_tail(staged->params);
    if (!tail && !copy->room && staged->pinned)
        return TRI_OK;
    TRI_TRY(places_find(staged, copy->number, to));
    if (tail) {
        tail_take(staged, to);
        return TRI_OK;
    }
    const size_t nbytes = (size_t)entry_of(staged->params, copy->number)->count * sizeof(float);
    const int64_t first = tri_params_grad_first(staged->params, copy->number);
    for (int p = 0; p < staged->part_count; p++)
        if (copy->room)
            memcpy(to[p], copy->room + p * staged->room_count, nbytes);
        else
            tri_device_to_host(staged->device, to[p], staged->base.grads[p] + first, nbytes);
    return TRI_OK;
}

/* The strategy hears of the first gradient that it has not heard of. */
static void first_release(sync_staged *staged)
{
    const staged_copy *copy = &staged->copies[staged->copy_first++];
    tri_status status = staged->status == TRI_OK ? copy_take(staged, copy) : TRI_OK;
    if (status != TRI_OK) {
        staged->status = status;
        snprintf(staged->message, sizeof(staged->message), "%s", tri_last_error());
    }
    staged->rooms_used -= copy->room != NULL;
    staged->base.inner->ops->ready(staged->base.inner, copy->number);
}

static float *gradient_room_next(sync_staged *staged)
{
    while (staged->rooms_used == ROOMS)
        first_release(staged);
    staged->rooms_used++;
    staged->gradient_room = (staged->gradient_room + 1) % ROOMS;
    return staged->gradient_rooms + staged->gradient_room * staged->part_count * staged->room_count;
}

static void staged_ready(tri_sync *sync, int number)
{
    sync_staged *staged = staged_of(sync);
    const tri_params *params = staged->params;
    const bool tail = number == tri_params_tail(params);
    const bool copied = tail || (!staged->alone && !entry_of(params, number)->frozen);
    float *const room = copied && !tail && staged->gradient_rooms ? gradient_room_next(staged) : NULL;
    staged_copy *copy = &staged->copies[staged->copy_count++];
    copy->number = number;
    copy->copied = copied;
    copy->room = room;
    if (copied)
        copy_queue(staged, copy);
}

static tri_status staged_finish(tri_sync *sync, tri_sync_slice *slice)
{
    sync_staged *staged = staged_of(sync);
    const int64_t start_ns = tri_now_ns();
    say(staged);
    while (staged->copy_first < staged->copy_count)
        first_release(staged);
    sync->computing_ns = tri_now_ns() - start_ns;
    tri_status status = sync->inner->ops->finish(sync->inner, slice);
    hear(staged);
    staged->slice = *slice;
    return staged->status != TRI_OK ? tri_fail_copy(staged->status, staged->message) : status;
}

static void sums_bring(const sync_staged *staged, float *to, const float *from, int64_t count)
{
    if (staged->pinned)
        tri_device_copy_in(staged->device, to, from, (size_t)count * sizeof(float));
    else
        tri_device_from_host(staged->device, to, from, (size_t)count * sizeof(float));
}

/* The sums are whole, and go where the optimizer finds them. */
static void staged_fold(tri_sync *sync)
{
    sync_staged *staged = staged_of(sync);
    tri_sync *inner = sync->inner;
    if (staged->alone) {
        tri_params_fold(staged->params, staged->threads, sync->grads[0]);
        return;
    }
    if (inner->ops->fold)
        inner->ops->fold(inner);
    else
        tri_params_fold(&staged->twin, staged->threads, inner->grads[0]);
    if (staged->pinned)
        copies_follow(staged);
    for (int i = 0; i < sync->piece_count; i++)
        sums_bring(staged, sync->pieces[i].sums, inner->pieces[i].sums, sync->pieces[i].slice.count);
    if (!sync->pieces)
        sums_bring(staged, sync->grads[0] + staged->slice.first, inner->grads[0] + staged->slice.first,
                   staged->slice.count);
    if (staged->pinned)
        kernels_follow(staged);
}

/* The host's, between finish and fold. */
static float *staged_sum(tri_sync *sync, int number, int64_t *count)
{
    const sync_staged *staged = staged_of(sync);
    if (sync->inner->ops->sum)
        return sync->inner->ops->sum(sync->inner, number, count);
    *count = entry_of(staged->params, number)->count;
    return sync->inner->grads[0] + tri_params_grad_first(staged->params, number);
}

static void staged_undo(tri_sync *sync)
{
    sync->inner->ops->undo(sync->inner);
}

static tri_status staged_squares(tri_sync *sync, double *blocks)
{
    return sync->inner->ops->squares(sync->inner, blocks);
}

static tri_status staged_publish(tri_sync *sync)
{
    sync_staged *staged = staged_of(sync);
    say(staged);
    host_follow(staged);
    copies_follow(staged);
    for (int i = 0; i < sync->piece_count; i++)
        tri_device_copy_out(staged->device, sync->inner->pieces[i].values, sync->pieces[i].values,
                            (size_t)sync->pieces[i].slice.count * sizeof(float));
    tri_device_event_record(staged->device, staged->brought, TRI_QUEUE_COPIES);
    host_follow(staged);
    if (sync->inner->ops->meet)
        tri_sync_staged_read(sync);
    tri_status status = sync->inner->ops->publish(sync->inner);
    tri_sync_staged_hear(sync);
    if (sync->inner->ops->meet)
        tri_sync_staged_write(sync);
    return status;
}

/* --- ranks apart --- */

static tri_status staged_meet(tri_sync *sync)
{
    tri_sync_staged_read(sync);
    TRI_TRY(sync->inner->ops->meet(sync->inner));
    tri_sync_staged_write(sync);
    return TRI_OK;
}

static void staged_part(tri_sync *sync)
{
    sync->inner->ops->part(sync->inner);
    tri_sync_staged_write(sync);
}

static const char *staged_state_name(const tri_sync *sync, int index)
{
    return sync->inner->ops->state_name(sync->inner, index);
}

static float *staged_state(tri_sync *sync, int index, int entry)
{
    return sync->inner->ops->state(sync->inner, index, entry);
}

static tri_status staged_loaded(tri_sync *sync)
{
    tri_status status = sync->inner->ops->loaded(sync->inner);
    hear(staged_of(sync));
    return status;
}

/* --- making one --- */

/* The twin's table is the store's own. */
static tri_status twin_make(sync_staged *staged, const tri_sync_ops *ops)
{
    staged->twin = *staged->params;
    staged->twin.device = tri_device_host();
    staged->twin.values = NULL;
    if (!ops->publish)
        return TRI_OK;
    staged->twin.values = tri_device_host_alloc(staged->device, held_nbytes(staged));
    if (!staged->twin.values)
        return TRI_ENOMEM;
    tri_device_to_host(staged->device, staged->twin.values, staged->params->values, held_nbytes(staged));
    return TRI_OK;
}

/* Nothing is summed, and no other stage of a pipeline asks for a sum. */
static bool is_alone(const sync_staged *staged, const tri_sync_setup *setup)
{
    const tri_params *params = staged->params;
    bool shared = false;
    for (int e = 0; e < params->entry_count; e++)
        shared = shared || params->entries[e].copy || params->entries[e].away;
    for (int t = 0; t < params->tie_count; t++)
        shared = shared || params->ties[t].away || params->entries[params->ties[t].entry].copy;
    return staged->base.inner->ops == &tri_sync_ddp && tri_group_count(setup->group) == 1 && setup->part_count == 1 &&
           !shared;
}

/* Sums lie where gradients do, weights where they do in the twin. */
static tri_status pieces_make(sync_staged *staged)
{
    const tri_sync *inner = staged->base.inner;
    if (!inner->pieces)
        return TRI_OK;
    staged->pieces = tri_alloc_zero((size_t)inner->piece_count + 1, sizeof(tri_sync_piece));
    if (!staged->pieces)
        return TRI_ENOMEM;
    for (int i = 0; i < inner->piece_count; i++) {
        const tri_sync_piece *piece = &inner->pieces[i];
        staged->pieces[i] = (tri_sync_piece){.slice = piece->slice,
                                             .values = staged->params->values + (piece->values - staged->twin.values),
                                             .sums = staged->base.grads[0] + piece->slice.first};
    }
    staged->base.pieces = staged->pieces;
    staged->base.piece_count = inner->piece_count;
    return TRI_OK;
}

/* Bytes of the largest entry. */
static size_t room_nbytes(const tri_params *params)
{
    int64_t largest = 0;
    for (int e = 0; e < params->entry_count; e++)
        largest = params->entries[e].count > largest ? params->entries[e].count : largest;
    return (size_t)largest * sizeof(float);
}

static tri_status weights_make(sync_staged *staged)
{
    const tri_params *params = staged->params;
    if (!params->share) {
        staged->stale = tri_alloc_zero((size_t)params->entry_count + 1, sizeof(bool));
        return staged->stale ? TRI_OK : TRI_ENOMEM;
    }
    for (size_t i = 0; i < TRI_COUNT_OF(staged->rooms); i++) {
        TRI_TRY(tri_device_event_create(staged->device, &staged->room_left[i]));
        staged->rooms[i] = tri_device_alloc(staged->device, room_nbytes(params));
        staged->host_rooms[i] = tri_device_host_alloc(staged->device, room_nbytes(params));
        if (!staged->rooms[i] || !staged->host_rooms[i])
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

static void arrays_pin(sync_staged *staged, size_t nbytes)
{
    float *const *arrays = staged->base.inner->grads;
    int done = 0;
    while (arrays && done < staged->part_count && tri_device_host_pin(staged->device, arrays[done], nbytes))
        done++;
    staged->pinned = arrays && done == staged->part_count;
    while (!staged->pinned && done > 0)
        tri_device_host_unpin(staged->device, arrays[--done]);
}

/* What gradients need on their way: the strategy's arrays, or else rooms of this file. */
static tri_status copies_make(sync_staged *staged, size_t nbytes)
{
    const tri_params *params = staged->params;
    const int count = tri_params_tail(params) + 1;
    const size_t parts = (size_t)staged->part_count;
    staged->copies = tri_alloc_zero((size_t)count, sizeof(staged_copy));
    staged->tails = tri_device_host_alloc(staged->device, parts * TRI_TAIL_STOP * sizeof(float));
    if (!staged->copies || !staged->tails)
        return TRI_ENOMEM;
    for (int i = 0; i < count; i++)
        TRI_TRY(tri_device_event_create(staged->device, &staged->copies[i].there));
    TRI_TRY(tri_device_event_create(staged->device, &staged->computed));
    TRI_TRY(tri_device_event_create(staged->device, &staged->brought));
    if (staged->alone)
        return TRI_OK;
    arrays_pin(staged, nbytes);
    if (staged->base.inner->grads)
        return TRI_OK;
    staged->room_count = (int64_t)(room_nbytes(params) / sizeof(float));
    staged->gradient_rooms = tri_device_host_alloc(staged->device, ROOMS * parts * room_nbytes(params));
    return staged->gradient_rooms ? TRI_OK : TRI_ENOMEM;
}

void tri_sync_staged_memory(const tri_sync_ops *ops, const tri_sync_setup *setup, tri_sync_bytes *bytes)
{
    const tri_params *params = setup->params;
    const size_t held = (size_t)tri_params_held(params) * sizeof(float);
    bytes->host = bytes->gradients;
    if (ops->spread >= TRI_SPREAD_GRADIENTS && !setup->whole_gradients) /* no arrays of the host: rooms on their way */
        bytes->host += ROOMS * (size_t)setup->part_count * room_nbytes(params);
    if (ops->publish)
        bytes->host += bytes->weights; /* the twin's, and of what is spread what comes from others */
    if (params->share)                 /* those that come are pinned on their way */
        bytes->host += TRI_OP_MAX_PARAMS * room_nbytes(params);
    bytes->weights = held + (params->share ? TRI_OP_MAX_PARAMS * room_nbytes(params) : 0);
    bytes->gradients =
        (size_t)setup->part_count * (size_t)(tri_params_grad_count(params) + TRI_PARAMS_TAIL) * sizeof(float);
}

static void ops_set(sync_staged *staged, const tri_sync_ops *ops)
{
    staged->ops = (tri_sync_ops){.name = ops->name,
                                 .does = ops->does,
                                 .begin = staged_begin,
                                 .ready = staged_ready,
                                 .finish = staged_finish,
                                 .undo = ops->undo ? staged_undo : NULL,
                                 .fold = staged_fold,
                                 .sum = staged_sum,
                                 .publish = ops->publish ? staged_publish : NULL,
                                 .meet = ops->meet ? staged_meet : NULL,
                                 .part = ops->part ? staged_part : NULL,
                                 .state_name = ops->state_name ? staged_state_name : NULL,
                                 .state = ops->state ? staged_state : NULL,
                                 .loaded = ops->loaded ? staged_loaded : NULL,
                                 .hooks = ops->hooks ? staged_hooks : NULL,
                                 .squares = ops->squares ? staged_squares : NULL,
                                 .settle = ops->hooks ? staged_settle : NULL,
                                 .spread = ops->spread,
                                 .destroy = staged_destroy};
    staged->base.ops = &staged->ops;
}

static tri_status staged_make(sync_staged *staged, const tri_sync_ops *ops, const tri_sync_setup *setup)
{
    tri_sync_setup inner = *setup;
    ops_set(staged, ops);
    TRI_TRY(twin_make(staged, ops));
    inner.params = &staged->twin;
    TRI_TRY(ops->create(&inner, &staged->base.inner));
    staged->base.inner->next_step = -1;
    if (ops->hooks)
        ops->hooks(staged->base.inner, &staged->inner);
    staged->alone = is_alone(staged, setup);
    staged->base.whole = staged->base.inner->whole;
    staged->base.tail = staged->base.inner->tail;
    staged->base.own = staged->base.inner->own;
    const size_t nbytes = (size_t)(tri_params_grad_count(staged->params) + TRI_PARAMS_TAIL) * sizeof(float);
    staged->base.grads = tri_alloc_zero((size_t)staged->part_count, sizeof(float *));
    for (int p = 0; staged->base.grads && p < staged->part_count; p++)
        if (!(staged->base.grads[p] = tri_device_alloc(staged->device, nbytes)))
            return TRI_ENOMEM;
    if (!staged->base.grads)
        return TRI_ENOMEM;
    TRI_TRY(copies_make(staged, nbytes));
    TRI_TRY(weights_make(staged));
    return pieces_make(staged);
}

tri_status tri_sync_staged_create(const tri_sync_ops *ops, const tri_sync_setup *setup, tri_sync **out)
{
    sync_staged *staged = tri_alloc_zero(1, sizeof(*staged));
    if (!staged)
        return TRI_ENOMEM;
    staged->params = setup->params;
    staged->device = setup->params->device;
    staged->part_count = setup->part_count;
    staged->threads = setup->threads;
    tri_status status = staged_make(staged, ops, setup);
    if (status != TRI_OK) {
        staged_destroy(&staged->base);
        return status;
    }
    *out = &staged->base;
    return TRI_OK;
}
