/* SPDX-License-Identifier: Apache-2.0
 *
 * sync_nccl.c: data parallel on cards: each bucket of the gradient is summed by NCCL from card to card as soon as the
 * backward pass has filled it, and no gradient comes to the host. With zero1 and zero2 each rank gets its share of the
 * sum of a unit (units.h), and hands out the weights that it has moved.
 *
 * Sums are queued beside the backward pass, on a queue of their own; the tail (loss, words of the run) goes by the
 * comm. The host waits for both before the optimizer begins, so that a rank that is lost meanwhile has changed no
 * weight. While it waits it looks at the comm, which knows first who is lost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/runtime.h"
#include "kernel/array.h"
#include "parallel/bucket.h"
#include "parallel/nccl_sums.h"
#include "parallel/sync_impl.h"
#include "parallel/units.h"

#define LEAVE_MS  5000               /* of NCCL's finalize and abort */
#define BLAME_NS  (5 * TRI_NS_PER_S) /* NCCL may hear that a connection has ended before the comm does */
#define LOOK_NS   (TRI_NS_PER_MS / 5)
#define TAIL_READ TRI_TAIL_STOP /* columns that kernels write; the others are the host's own words */

typedef struct sync_nccl {
    tri_sync base;
    tri_group *group;
    const tri_params *params;
    const tri_device *device;
    tri_device beside; /* the same card: its queue has the sums */
    int64_t leaves;
    int part_count;
    bool overlap;
    tri_buckets buckets; /* allreduce */
    tri_units units;     /* zero1, zero2 */
    int *missing;        /* [units.count]: gradients that are not complete in this step */
    int *full;           /* [full_count] units that are, in the order of the backward pass */
    int full_count, released;
    tri_sync_piece *pieces;
    float **lent; /* [gradients]: sums that stages share, on the host; NULL: no other stage asks */
    bool *is_lent;
    tri_nccl_sums *sums;
    float **tails;               /* [part_count]: the host's */
    float *tail_read;            /* [part_count][TAIL_READ]: pinned */
    tri_device_event computed;   /* gradients so far */
    tri_device_event tail_there; /* in tail_read */
    tri_status status;           /* first failure of a sum; then there are no more */
    char message[TRI_ERROR_NBYTES];
    char *failed; /* of tri_sync_cards */
} sync_nccl;

static bool is_spread(const sync_nccl *nccl)
{
    return nccl->base.ops->spread != TRI_SPREAD_NOTHING;
}

static sync_nccl *nccl_of(tri_sync *sync)
{
    return tri_container_of(sync, sync_nccl, base);
}

static void keep_failure(sync_nccl *nccl, tri_status status)
{
    if (nccl->status != TRI_OK || status == TRI_OK)
        return;
    nccl->status = status;
    snprintf(nccl->message, sizeof(nccl->message), "%s", tri_last_error());
}

/* NCCL has failed, and no rank is lost: the run does not try it again. */
static void failed_say(const sync_nccl *nccl, const char *why)
{
    snprintf(nccl->failed, TRI_NCCL_WHY_NBYTES, "it has failed: %.440s", why);
}

/* --- making one --- */

/* What is under way waits for nobody any more. A card on which NCCL hangs cannot be used, nor can memory of it be
 * freed.
 */
static void sums_abort(const sync_nccl *nccl)
{
    char why[TRI_ERROR_NBYTES];
    snprintf(why, sizeof(why), "%s", tri_last_error());
    if (nccl->sums && tri_nccl_sums_abort(nccl->sums) != TRI_OK) {
        const char *const hangs = strstr(why, tri_last_error()) ? "" : tri_last_error(); /* it may be in there */
        tri_log(TRI_LOG_ERROR, "%s%s%s; nothing on the card can be used after it: this process ends", why,
                why[0] && hangs[0] ? "; " : "", hangs);
        _Exit(1);
    }
    (void)tri_fail_copy(TRI_EABORT, why); /* keeps the message */
}

/* After a step that has failed, on this rank or another one. */
static void nccl_stop(tri_sync *sync)
{
    sums_abort(nccl_of(sync));
}

/* All that was queued is done: where NCCL hangs it is left as it is. */
static void nccl_end(tri_sync *sync)
{
    sync_nccl *nccl = nccl_of(sync);
    if (tri_nccl_sums_close(nccl->sums) != TRI_OK)
        tri_log(TRI_LOG_WARN, "%s; all sums are complete", tri_last_error());
    nccl->sums = NULL;
}

/* What follows may free what sums have used. */
static void sums_close(sync_nccl *nccl)
{
    if (nccl->status != TRI_OK || tri_group_has_failed(nccl->group))
        sums_abort(nccl);
    nccl_end(&nccl->base);
    if (!nccl->beside.ops || !nccl->computed.mark)
        return;
    tri_device_event_record(&nccl->beside, nccl->computed, TRI_QUEUE_KERNELS);
    tri_device_event_wait(&nccl->beside, nccl->computed);
}

static void nccl_destroy(tri_sync *sync)
{
    sync_nccl *nccl = nccl_of(sync);
    sums_close(nccl);
    for (int p = 0; sync->grads && p < nccl->part_count; p++)
        tri_device_free(nccl->device, sync->grads[p]);
    for (int p = 0; nccl->tails && p < nccl->part_count; p++)
        tri_free(nccl->tails[p]);
    tri_device_event_destroy(nccl->device, &nccl->computed);
    tri_device_event_destroy(nccl->device, &nccl->tail_there);
    tri_device_host_free(nccl->device, nccl->tail_read);
    tri_cuda_beside_close(&nccl->beside);
    tri_buckets_fini(&nccl->buckets);
    tri_units_fini(&nccl->units);
    tri_free(nccl->missing);
    tri_free(nccl->full);
    tri_free(nccl->pieces);
    for (int i = 0; nccl->lent && i < tri_params_tail(nccl->params); i++)
        tri_free(nccl->lent[i]);
    tri_free(nccl->lent);
    tri_free(nccl->is_lent);
    tri_free(sync->grads);
    tri_free(nccl->tails);
    tri_free(nccl);
}

static tri_status nccl_allocate(sync_nccl *nccl)
{
    const size_t parts = (size_t)nccl->part_count;
    const size_t nbytes = (size_t)(tri_params_grad_count(nccl->params) + TRI_PARAMS_TAIL) * sizeof(float);
    nccl->base.grads = tri_alloc_zero(parts, sizeof(float *));
    nccl->tails = tri_alloc_zero(parts, sizeof(float *));
    nccl->tail_read = tri_device_host_alloc(nccl->device, parts * TAIL_READ * sizeof(float));
    if (!nccl->base.grads || !nccl->tails || !nccl->tail_read)
        return TRI_ENOMEM;
    for (size_t p = 0; p < parts; p++) {
        nccl->base.grads[p] = tri_device_alloc(nccl->device, nbytes);
        nccl->tails[p] = tri_alloc_zero(TRI_PARAMS_TAIL, sizeof(float));
        if (!nccl->base.grads[p] || !nccl->tails[p])
            return TRI_ENOMEM;
    }
    nccl->base.whole = !is_spread(nccl);
    nccl->base.tail = nccl->tails[0];
    TRI_TRY(tri_device_event_create(nccl->device, &nccl->computed));
    return tri_device_event_create(nccl->device, &nccl->tail_there);
}

/* Elements of gradient `number` that other stages of a pipeline make or read: of tied weights; else 0. */
static int64_t lent_count(const tri_params *params, int number)
{
    for (int t = 0; t < params->tie_count; t++) {
        const int e = params->ties[t].entry;
        if (number != e && number != params->entry_count + t)
            continue;
        if (params->ties[t].away || params->entries[e].copy || params->entries[e].away)
            return params->entries[e].count;
    }
    return 0;
}

static tri_status lent_make(sync_nccl *nccl)
{
    const int count = tri_params_tail(nccl->params);
    nccl->lent = tri_alloc_zero((size_t)count + 1, sizeof(float *));
    nccl->is_lent = tri_alloc_zero((size_t)count + 1, sizeof(bool));
    if (!nccl->lent || !nccl->is_lent)
        return TRI_ENOMEM;
    for (int i = 0; i < count; i++) {
        const int64_t elements = lent_count(nccl->params, i);
        if (elements > 0 && !(nccl->lent[i] = tri_alloc((size_t)elements * sizeof(float))))
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

/* Of the bucket's gradients; the tail goes another way. */
static int64_t bucket_count(const tri_buckets *buckets, int index)
{
    return buckets->items[index].count - (index == 0 ? TRI_PARAMS_TAIL : 0);
}

/* Elements of a rank's block in the largest sum. */
static int64_t largest_block(const tri_buckets *buckets, const tri_units *units, int ranks)
{
    int64_t largest = 0;
    for (int i = 0; i < buckets->count; i++) {
        const int64_t block = tri_nccl_sums_block(bucket_count(buckets, i), ranks);
        largest = block > largest ? block : largest;
    }
    for (int u = 0; u < units->count; u++)
        for (int r = 0; r < ranks; r++)
            largest = units->items[u].counts[r] > largest ? units->items[u].counts[r] : largest;
    return largest;
}

/* What travels together: buckets, or units. */
static tri_status cuts_make(const tri_sync_setup *setup, bool spread, int ranks, tri_buckets *buckets, tri_units *units)
{
    const int64_t nbytes = setup->config->bucket_kib * 1024;
    *buckets = (tri_buckets){0};
    *units = (tri_units){0};
    return spread ? tri_units_init(units, setup->params, nbytes, ranks)
                  : tri_buckets_init(buckets, setup->params, nbytes);
}

static tri_status pieces_make(sync_nccl *nccl)
{
    const int rank = tri_group_rank(nccl->group);
    const size_t count = (size_t)nccl->units.count + 1;
    nccl->missing = tri_alloc_zero(count, sizeof(int));
    nccl->full = tri_alloc_zero(count, sizeof(int));
    nccl->pieces = tri_alloc_zero(count, sizeof(tri_sync_piece));
    if (!nccl->missing || !nccl->full || !nccl->pieces)
        return TRI_ENOMEM;
    for (int u = 0; u < nccl->units.store_count; u++) {
        const tri_unit *unit = &nccl->units.items[u];
        const int64_t first = unit->first + unit->firsts[rank];
        if (unit->counts[rank] > 0 && !unit->frozen)
            nccl->pieces[nccl->base.piece_count++] = (tri_sync_piece){.slice = {first, unit->counts[rank]},
                                                                      .values = nccl->params->values + first,
                                                                      .sums = nccl->base.grads[0] + first};
    }
    nccl->base.pieces = nccl->pieces;
    return TRI_OK;
}

static bool has_ended(void *group)
{
    return tri_group_has_failed(group);
}

static tri_status nccl_make(sync_nccl *nccl, const tri_sync_setup *setup)
{
    const int ranks = tri_group_count(nccl->group);
    TRI_TRY(cuts_make(setup, is_spread(nccl), ranks, &nccl->buckets, &nccl->units));
    TRI_TRY(nccl_allocate(nccl));
    if (is_spread(nccl))
        TRI_TRY(pieces_make(nccl));
    TRI_TRY(lent_make(nccl));
    TRI_TRY(tri_cuda_beside_open(nccl->device, &nccl->beside));
    nccl->base.beside = &nccl->beside;
    const tri_nccl_setup sums = {.group = nccl->group,
                                 .device = &nccl->beside,
                                 .any_order = setup->cards.any_order,
                                 .limits = {.join_ms = setup->cards.limit_ms / 2, /* then ranks say by the comm why */
                                            .exchange_ms = setup->cards.limit_ms,
                                            .leave_ms = LEAVE_MS,
                                            .ended = has_ended,
                                            .arg = nccl->group},
                                 .leaves = setup->leaves,
                                 .block = largest_block(&nccl->buckets, &nccl->units, ranks)};
    tri_status status = tri_nccl_sums_open(&sums, &nccl->sums);
    if (status != TRI_OK && !tri_group_has_failed(nccl->group))
        failed_say(nccl, tri_last_error());
    return status;
}

static tri_status nccl_create(const tri_sync_ops *ops, const tri_sync_setup *setup, tri_sync **out)
{
    sync_nccl *nccl = tri_alloc_zero(1, sizeof(*nccl));
    if (!nccl)
        return TRI_ENOMEM;
    nccl->base.ops = ops;
    nccl->group = setup->group;
    nccl->params = setup->params;
    nccl->device = setup->params->device;
    nccl->leaves = setup->leaves;
    nccl->part_count = setup->part_count;
    nccl->overlap = setup->config->overlap;
    nccl->failed = setup->cards.failed;
    tri_status status = nccl_make(nccl, setup);
    if (status != TRI_OK) {
        char why[TRI_ERROR_NBYTES];
        keep_failure(nccl, status);
        snprintf(why, sizeof(why), "%s", nccl->message);
        nccl_destroy(&nccl->base);
        return tri_fail_copy(status, why);
    }
    *out = &nccl->base;
    return TRI_OK;
}

tri_status tri_sync_nccl_memory(const tri_sync_setup *setup, tri_sync_place place, tri_sync_bytes *bytes)
{
    const tri_params *params = setup->params;
    const size_t parts = (size_t)setup->part_count;
    tri_buckets buckets;
    tri_units units;
    TRI_TRY(cuts_make(setup, tri_sync_spread(setup->config, place.zero) != TRI_SPREAD_NOTHING, place.ranks, &buckets,
                      &units));
    *bytes = (tri_sync_bytes){.weights = (size_t)tri_params_held(params) * sizeof(float),
                              .host = parts * (TAIL_READ + TRI_PARAMS_TAIL) * sizeof(float)};
    bytes->gradients = parts * (size_t)(tri_params_grad_count(params) + TRI_PARAMS_TAIL) * sizeof(float);
    for (int i = 0; i < tri_params_tail(params); i++)
        bytes->host += (size_t)lent_count(params, i) * sizeof(float);
    const int64_t block = largest_block(&buckets, &units, place.ranks);
    if (!setup->cards.any_order)
        bytes->gradients += tri_nccl_sums_nbytes(setup->leaves, place.ranks, block);
    tri_buckets_fini(&buckets);
    tri_units_fini(&units);
    return TRI_OK;
}

/* --- a step --- */

static tri_status nccl_begin(tri_sync *sync)
{
    sync_nccl *nccl = nccl_of(sync);
    tri_buckets_begin(&nccl->buckets);
    for (int u = 0; u < nccl->units.count; u++)
        nccl->missing[u] = nccl->units.items[u].away ? 0 : nccl->units.items[u].entry_count;
    nccl->full_count = nccl->released = 0;
    if (!nccl->sums)
        return tri_fail(TRI_EINVAL, "the run has been stopped, its sums have ended: want no step behind that");
    return nccl->status == TRI_OK ? TRI_OK : tri_fail_copy(nccl->status, nccl->message);
}

/* What NCCL does from now on sees what kernels so far have made. */
static void sums_follow(const sync_nccl *nccl)
{
    tri_device_event_record(nccl->device, nccl->computed, TRI_QUEUE_KERNELS);
    tri_device_event_order(&nccl->beside, nccl->computed, TRI_QUEUE_KERNELS);
}

static void parts_find(const sync_nccl *nccl, int64_t first, float **parts)
{
    for (int p = 0; p < nccl->part_count; p++)
        parts[p] = nccl->base.grads[p] + first;
}

static void bucket_sum(sync_nccl *nccl, const tri_bucket *bucket)
{
    float *parts[TRI_TREE_MAX_PARTS];
    const int64_t count = bucket_count(&nccl->buckets, (int)(bucket - nccl->buckets.items));
    if (count == 0)
        return;
    parts_find(nccl, bucket->first, parts);
    sums_follow(nccl);
    keep_failure(nccl, tri_nccl_sums_all_reduce(nccl->sums, nccl->leaves, parts, nccl->part_count, count));
}

static void unit_sum(sync_nccl *nccl, const tri_unit *unit)
{
    float *parts[TRI_TREE_MAX_PARTS];
    const tri_blocks blocks = {unit->counts, unit->firsts};
    if (unit->frozen)
        return;
    parts_find(nccl, unit->first, parts);
    sums_follow(nccl);
    keep_failure(nccl, tri_nccl_sums_reduce_scatter(nccl->sums, nccl->leaves, parts, nccl->part_count, &blocks,
                                                    parts[0] + unit->firsts[tri_group_rank(nccl->group)]));
}

/* Sums what is full, beside the kernels that follow. */
static void sums_release(sync_nccl *nccl)
{
    const tri_bucket *bucket;
    while (nccl->status == TRI_OK && (bucket = tri_buckets_release(&nccl->buckets)))
        bucket_sum(nccl, bucket);
    while (nccl->status == TRI_OK && nccl->released < nccl->full_count)
        unit_sum(nccl, &nccl->units.items[nccl->full[nccl->released++]]);
}

static void tail_copy(const sync_nccl *nccl)
{
    const int64_t first = tri_params_grad_count(nccl->params);
    tri_device_event_record(nccl->device, nccl->tail_there, TRI_QUEUE_KERNELS);
    tri_device_event_order(nccl->device, nccl->tail_there, TRI_QUEUE_COPIES);
    for (int p = 0; p < nccl->part_count; p++)
        tri_device_copy_out(nccl->device, nccl->tail_read + p * TAIL_READ, nccl->base.grads[p] + first,
                            TAIL_READ * sizeof(float));
    tri_device_event_record(nccl->device, nccl->tail_there, TRI_QUEUE_COPIES);
}

static void nccl_ready(tri_sync *sync, int number)
{
    sync_nccl *nccl = nccl_of(sync);
    const bool tail = number == tri_params_tail(nccl->params);
    if (tail)
        tail_copy(nccl);
    if (!is_spread(nccl))
        tri_bucket_ready(&nccl->buckets, number);
    else if (!tail && --nccl->missing[nccl->units.of[number]] == 0)
        nccl->full[nccl->full_count++] = nccl->units.of[number];
    if (nccl->overlap)
        sums_release(nccl);
}

static tri_status tail_sum(const sync_nccl *nccl, tri_work **work)
{
    tri_device_event_wait(nccl->device, nccl->tail_there);
    for (int p = 0; p < nccl->part_count; p++) {
        float *tail = nccl->tails[p];
        if (p > 0) /* the run has written its words to the first part */
            memset(tail, 0, TRI_PARAMS_TAIL * sizeof(float));
        memset(tail + TRI_TAIL_CALL + 1, 0, (TRI_PARAMS_TAIL - TRI_TAIL_CALL - 1) * sizeof(float));
        memcpy(tail, nccl->tail_read + p * TAIL_READ, TAIL_READ * sizeof(float));
    }
    tri_group_name_next(nccl->group, "tail");
    tri_status status =
        tri_all_reduce_tree(nccl->group, nccl->leaves, nccl->tails, nccl->part_count, TRI_PARAMS_TAIL, work);
    tri_group_name_next(nccl->group, "");
    return status;
}

/* NCCL has failed. Where another rank is lost, or has failed, the comm says which, as in any other call. */
static tri_status sums_explain(sync_nccl *nccl)
{
    const int64_t start_ns = tri_now_ns();
    while (!tri_group_has_failed(nccl->group) && tri_now_ns() - start_ns < BLAME_NS)
        tri_sleep_ns(LOOK_NS);
    if (tri_group_has_failed(nccl->group))
        TRI_TRY(tri_barrier(nccl->group, NULL));
    failed_say(nccl, nccl->message);
    return tri_fail_copy(TRI_EIO, nccl->message);
}

static tri_status nccl_finish(tri_sync *sync, tri_sync_slice *slice)
{
    sync_nccl *nccl = nccl_of(sync);
    tri_work *tail = NULL;
    const int64_t start_ns = tri_now_ns();
    *slice = (tri_sync_slice){0, is_spread(nccl) ? 0 : nccl->params->count};
    sums_release(nccl);
    tri_status status = tail_sum(nccl, &tail);
    tri_device_event_wait(nccl->device, nccl->computed);
    const int64_t computed_ns = tri_now_ns();
    if (status == TRI_OK)
        status = tri_work_wait(tail);
    if (status == TRI_OK && nccl->status == TRI_OK)
        keep_failure(nccl, tri_nccl_sums_wait(nccl->sums));
    sync->computing_ns = computed_ns - start_ns;
    sync->exposed_ns = tri_now_ns() - computed_ns;
    return status == TRI_OK && nccl->status != TRI_OK ? sums_explain(nccl) : status;
}

/* --- sums that stages of a pipeline share --- */

/* Where gradient `number` is, or this rank's share of it. */
static float *sum_find(const sync_nccl *nccl, int number, int64_t *count)
{
    const tri_params *params = nccl->params;
    const int e = number < params->entry_count ? number : params->ties[number - params->entry_count].entry;
    *count = params->entries[e].count;
    if (!is_spread(nccl))
        return nccl->base.grads[0] + tri_params_grad_first(params, number);
    const tri_unit *unit = &nccl->units.items[nccl->units.of[number]];
    const int rank = tri_group_rank(nccl->group);
    const int64_t first = unit->firsts[rank], end = first + unit->counts[rank];
    TRI_ASSERT(unit->entry_count == 1);
    *count = (end < *count ? end : *count) - first; /* without the gap behind the entry */
    *count = *count > 0 ? *count : 0;
    return nccl->base.grads[0] + unit->first + first;
}

static float *nccl_sum(tri_sync *sync, int number, int64_t *count)
{
    const sync_nccl *nccl = nccl_of(sync);
    const float *there = sum_find(nccl, number, count);
    TRI_ASSERT(nccl->lent[number]);
    tri_device_to_host(nccl->device, nccl->lent[number], there, (size_t)*count * sizeof(float));
    nccl->is_lent[number] = true;
    return nccl->lent[number];
}

/* Other stages may have changed them. */
static void lent_return(const sync_nccl *nccl)
{
    int64_t count;
    for (int i = 0; i < tri_params_tail(nccl->params); i++) {
        if (!nccl->is_lent[i])
            continue;
        float *there = sum_find(nccl, i, &count);
        tri_device_from_host(nccl->device, there, nccl->lent[i], (size_t)count * sizeof(float));
        nccl->is_lent[i] = false;
    }
}

static void allreduce_fold(tri_sync *sync)
{
    lent_return(nccl_of(sync));
    tri_params_fold(nccl_of(sync)->params, 1, sync->grads[0]);
}

/* --- zero1, and zero2: the backward pass of a card writes whole gradients --- */

/* A rank has the same share of a tie and of its entry. */
static void shares_fold(tri_sync *sync)
{
    const sync_nccl *nccl = nccl_of(sync);
    const int rank = tri_group_rank(nccl->group);
    lent_return(nccl);
    for (int u = nccl->units.store_count; u < nccl->units.count; u++) {
        const tri_unit *tie = &nccl->units.items[u];
        const int64_t entry = nccl->params->entries[nccl->params->ties[tie->tie].entry].first;
        float *sum = sync->grads[0] + entry + tie->firsts[rank];
        if (tie->counts[rank] > 0 && !tie->frozen)
            tri_array_add(nccl->device, 1, sum, sum, sync->grads[0] + tie->first + tie->firsts[rank],
                          tie->counts[rank]);
    }
}

/* Until the weights of all are here: who reads them next need not ask. */
static tri_status nccl_publish(tri_sync *sync)
{
    sync_nccl *nccl = nccl_of(sync);
    const int64_t start_ns = tri_now_ns();
    sums_follow(nccl);
    for (int u = 0; u < nccl->units.store_count && nccl->status == TRI_OK; u++) {
        const tri_unit *unit = &nccl->units.items[u];
        const tri_blocks blocks = {unit->counts, unit->firsts};
        if (!unit->frozen)
            keep_failure(nccl, tri_nccl_sums_all_gather(nccl->sums, nccl->params->values + unit->first, &blocks));
    }
    if (nccl->status == TRI_OK)
        keep_failure(nccl, tri_nccl_sums_wait(nccl->sums));
    sync->exposed_ns += tri_now_ns() - start_ns;
    return nccl->status == TRI_OK ? TRI_OK : sums_explain(nccl);
}

/* --- the table --- */

static tri_status allreduce_create(const tri_sync_setup *setup, tri_sync **out)
{
    return nccl_create(&tri_sync_nccl, setup, out);
}

static tri_status zero1_create(const tri_sync_setup *setup, tri_sync **out)
{
    return nccl_create(&tri_sync_nccl_zero1, setup, out);
}

static tri_status zero2_create(const tri_sync_setup *setup, tri_sync **out)
{
    return nccl_create(&tri_sync_nccl_zero2, setup, out);
}

#define COMMON                                                                                                         \
    .begin = nccl_begin, .ready = nccl_ready, .finish = nccl_finish, .sum = nccl_sum, .stop = nccl_stop,               \
    .end = nccl_end, .destroy = nccl_destroy
#define SHARES .fold = shares_fold, .publish = nccl_publish

const tri_sync_ops tri_sync_nccl = {
    .name = "allreduce",
    .does = "every rank has all weights and all gradients, which NCCL sums between cards",
    .create = allreduce_create,
    .fold = allreduce_fold,
    COMMON,
};

const tri_sync_ops tri_sync_nccl_zero1 = {
    .name = "zero1",
    .does = "every rank has all weights, and the optimizer's state of its share of them; NCCL sums between cards",
    .create = zero1_create,
    .spread = TRI_SPREAD_STATE,
    SHARES,
    COMMON,
};

const tri_sync_ops tri_sync_nccl_zero2 = {
    .name = "zero2",
    .does = "every rank has all weights, and sums and the optimizer's state of its share; NCCL sums between cards",
    .create = zero2_create,
    .spread = TRI_SPREAD_GRADIENTS,
    SHARES,
    COMMON,
};
