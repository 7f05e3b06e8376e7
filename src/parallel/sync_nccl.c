/* SPDX-License-Identifier: Apache-2.0
 *
 * sync_nccl.c: data parallel on cards: each bucket of the gradient is summed by NCCL from card to card as soon as the
 * backward pass has filled it, and no gradient comes to the host. State that is spread: sync_nccl_zero.c.
 *
 * Sums are queued beside the backward pass, on a queue of their own; the tail (loss, words of the run) goes by the
 * comm. The host waits for both before the optimizer begins, so that a rank that is lost meanwhile has changed no
 * weight. While it waits it looks at the comm, which knows first who is lost.
 */
#include "parallel/sync_nccl_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/runtime.h"
#include "device/launch.h"
#include "kernel/gpu/flat.h"

#define LEAVE_MS  5000 /* of NCCL's finalize and abort, at least: kernels before the last sum come first */
#define BLAME_NS  (5 * TRI_NS_PER_S) /* NCCL may hear that a connection has ended before the comm does */
#define LOOK_NS   (TRI_NS_PER_MS / 5)
#define TAIL_READ TRI_TAIL_STOP /* columns that kernels write; the others are the host's own words */

void tri_sync_nccl_keep_failure(sync_nccl *nccl, tri_status status)
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
void tri_sync_nccl_stop(tri_sync *sync)
{
    sums_abort(nccl_of(sync));
}

/* Where NCCL hangs behind all that was queued it is left as it is. */
void tri_sync_nccl_end(tri_sync *sync)
{
    sync_nccl *nccl = nccl_of(sync);
    if (nccl->sums && nccl->status == TRI_OK)
        tri_sync_nccl_keep_failure(nccl, tri_nccl_sums_wait(nccl->sums, NULL));
    if (tri_nccl_sums_close(nccl->sums) != TRI_OK)
        tri_log(TRI_LOG_WARN, "%s; all sums are complete", tri_last_error());
    nccl->sums = NULL;
}

/* What follows may free what sums have used. */
static void sums_close(sync_nccl *nccl)
{
    if (nccl->status != TRI_OK || tri_group_has_failed(nccl->group))
        sums_abort(nccl);
    tri_sync_nccl_end(&nccl->base);
    if (!nccl->beside.ops || !nccl->computed.mark)
        return;
    tri_device_event_record(&nccl->beside, nccl->computed, TRI_QUEUE_KERNELS);
    tri_device_event_wait(&nccl->beside, nccl->computed);
}

void tri_sync_nccl_destroy(tri_sync *sync)
{
    sync_nccl *nccl = nccl_of(sync);
    sums_close(nccl);
    tri_sync_nccl_zero_close(nccl);
    for (int p = 0; sync->grads && p < nccl->part_count; p++)
        tri_device_free(nccl->device, sync->grads[p]);
    tri_device_free(nccl->device, nccl->tail_memory);
    for (int p = 0; nccl->tails && p < nccl->part_count; p++)
        tri_free(nccl->tails[p]);
    tri_device_event_destroy(nccl->device, &nccl->computed);
    tri_device_event_destroy(nccl->device, &nccl->tail_there);
    tri_device_host_free(nccl->device, nccl->tail_read);
    tri_cuda_beside_close(&nccl->beside);
    tri_buckets_fini(&nccl->buckets);
    for (int i = 0; nccl->lent && i < tri_params_tail(nccl->params); i++)
        tri_free(nccl->lent[i]);
    tri_free(nccl->lent);
    tri_free(nccl->is_lent);
    tri_free(sync->grads);
    tri_free(nccl->tails);
    tri_free(nccl);
}

/* Arrays as long as the store. */
static tri_status grads_make(sync_nccl *nccl)
{
    const size_t nbytes = (size_t)(tri_params_grad_count(nccl->params) + TRI_PARAMS_TAIL) * sizeof(float);
    nccl->base.grads = tri_alloc_zero((size_t)nccl->part_count, sizeof(float *));
    for (int p = 0; nccl->base.grads && p < nccl->part_count; p++)
        if (!(nccl->base.grads[p] = tri_device_alloc(nccl->device, nbytes)))
            return TRI_ENOMEM;
    return nccl->base.grads ? TRI_OK : TRI_ENOMEM;
}

static tri_status tails_make(sync_nccl *nccl)
{
    const size_t parts = (size_t)nccl->part_count;
    nccl->tails = tri_alloc_zero(parts, sizeof(float *));
    nccl->tail_read = tri_device_host_alloc(nccl->device, parts * TAIL_READ * sizeof(float));
    if (!nccl->tails || !nccl->tail_read)
        return TRI_ENOMEM;
    for (size_t p = 0; p < parts; p++)
        if (!(nccl->tails[p] = tri_alloc_zero(TRI_PARAMS_TAIL, sizeof(float))))
            return TRI_ENOMEM;
    nccl->base.whole = !nccl_is_spread(nccl);
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
    const int64_t nbytes = tri_bucket_nbytes(setup->config);
    *buckets = (tri_buckets){0};
    *units = (tri_units){0};
    return spread ? tri_units_init(units, setup->params, nbytes, ranks)
                  : tri_buckets_init(buckets, setup->params, nbytes);
}

static bool has_ended(void *group)
{
    return tri_group_has_failed(group);
}

static tri_status nccl_make(sync_nccl *nccl, const tri_sync_setup *setup)
{
    const int ranks = tri_group_count(nccl->group);
    TRI_TRY(cuts_make(setup, nccl_is_spread(nccl), ranks, &nccl->buckets, &nccl->zero.units));
    TRI_TRY(tails_make(nccl));
    if (tri_sync_nccl_zero_is_whole(setup, nccl->base.ops->spread))
        TRI_TRY(grads_make(nccl));
    if (nccl_is_spread(nccl))
        TRI_TRY(tri_sync_nccl_zero_open(nccl, setup));
    TRI_TRY(lent_make(nccl));
    tri_gpu_load(tri_gpu_queue_of(nccl->device)); /* the driver may wait for NCCL when it loads a kernel later */
    TRI_TRY(tri_cuda_beside_open(nccl->device, &nccl->beside));
    nccl->base.beside = &nccl->beside;
    const tri_nccl_setup sums = {.group = nccl->group,
                                 .device = &nccl->beside,
                                 .any_order = setup->cards.any_order,
                                 .limits = {.join_ms = setup->cards.limit_ms / 2, /* then ranks say by the comm why */
                                            .exchange_ms = setup->cards.limit_ms,
                                            .leave_ms = tri_int64_max(LEAVE_MS, setup->cards.limit_ms / 10),
                                            .ended = has_ended,
                                            .arg = nccl->group},
                                 .leaves = setup->leaves,
                                 .block = largest_block(&nccl->buckets, &nccl->zero.units, ranks)};
    tri_status status = tri_nccl_sums_open(&sums, &nccl->sums);
    if (status != TRI_OK && !tri_group_has_failed(nccl->group))
        failed_say(nccl, tri_last_error());
    return status;
}

tri_status tri_sync_nccl_create(const tri_sync_ops *ops, const tri_sync_setup *setup, tri_sync **out)
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
        tri_sync_nccl_keep_failure(nccl, status);
        snprintf(why, sizeof(why), "%s", nccl->message);
        tri_sync_nccl_destroy(&nccl->base);
        return tri_fail_copy(status, why);
    }
    *out = &nccl->base;
    return TRI_OK;
}

tri_status tri_sync_nccl_memory(const tri_sync_setup *setup, tri_sync_place place, tri_sync_bytes *bytes)
{
    const tri_params *params = setup->params;
    const tri_spread spread = tri_sync_spread(setup->config, place.zero);
    const size_t parts = (size_t)setup->part_count;
    tri_buckets buckets;
    tri_units units;
    TRI_TRY(cuts_make(setup, spread != TRI_SPREAD_NOTHING, place.ranks, &buckets, &units));
    *bytes = (tri_sync_bytes){.weights = (size_t)tri_params_held(params) * sizeof(float),
                              .host = parts * (TAIL_READ + TRI_PARAMS_TAIL) * sizeof(float)};
    bytes->gradients = tri_sync_nccl_zero_nbytes(setup, &units, spread, place.rank);
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

tri_status tri_sync_nccl_begin(tri_sync *sync)
{
    sync_nccl *nccl = nccl_of(sync);
    tri_buckets_begin(&nccl->buckets);
    tri_sync_nccl_zero_begin(nccl);
    if (!nccl->sums)
        return tri_fail(TRI_EINVAL, "the run has been stopped, its sums have ended: want no step behind that");
    return nccl->status == TRI_OK ? TRI_OK : tri_fail_copy(nccl->status, nccl->message);
}

void tri_sync_nccl_follow(const sync_nccl *nccl)
{
    tri_device_event_record(nccl->device, nccl->computed, TRI_QUEUE_KERNELS);
    tri_device_event_order(&nccl->beside, nccl->computed, TRI_QUEUE_KERNELS);
}

static void bucket_sum(sync_nccl *nccl, const tri_bucket *bucket)
{
    float *parts[TRI_TREE_MAX_PARTS];
    const int64_t count = bucket_count(&nccl->buckets, (int)(bucket - nccl->buckets.items));
    if (count == 0)
        return;
    for (int p = 0; p < nccl->part_count; p++)
        parts[p] = nccl->base.grads[p] + bucket->first;
    tri_sync_nccl_follow(nccl);
    tri_sync_nccl_keep_failure(nccl,
                               tri_nccl_sums_all_reduce(nccl->sums, nccl->leaves, parts, nccl->part_count, count));
}

/* Sums what is full, beside the kernels that follow. */
static void sums_release(sync_nccl *nccl)
{
    const tri_bucket *bucket;
    while (nccl->status == TRI_OK && (bucket = tri_buckets_release(&nccl->buckets)))
        bucket_sum(nccl, bucket);
    tri_sync_nccl_zero_release(nccl);
}

float *tri_sync_nccl_tail(const sync_nccl *nccl, int part)
{
    return nccl->base.grads ? nccl->base.grads[part] + tri_params_grad_count(nccl->params)
                            : nccl->tail_memory + (size_t)part * TRI_PARAMS_TAIL;
}

static void tail_copy(const sync_nccl *nccl)
{
    tri_device_event_record(nccl->device, nccl->tail_there, TRI_QUEUE_KERNELS);
    tri_device_event_order(nccl->device, nccl->tail_there, TRI_QUEUE_COPIES);
    for (int p = 0; p < nccl->part_count; p++)
        tri_device_copy_out(nccl->device, nccl->tail_read + p * TAIL_READ, tri_sync_nccl_tail(nccl, p),
                            TAIL_READ * sizeof(float));
    tri_device_event_record(nccl->device, nccl->tail_there, TRI_QUEUE_COPIES);
}

void tri_sync_nccl_ready(tri_sync *sync, int number)
{
    sync_nccl *nccl = nccl_of(sync);
    const bool tail = number == tri_params_tail(nccl->params);
    if (tail)
        tail_copy(nccl);
    if (!nccl_is_spread(nccl))
        tri_bucket_ready(&nccl->buckets, number);
    else if (!tail)
        tri_sync_nccl_zero_ready(nccl, number);
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

tri_status tri_sync_nccl_explain(sync_nccl *nccl)
{
    const int64_t start_ns = tri_now_ns();
    while (!tri_group_has_failed(nccl->group) && tri_now_ns() - start_ns < BLAME_NS)
        tri_sleep_ns(LOOK_NS);
    if (tri_group_has_failed(nccl->group))
        TRI_TRY(tri_barrier(nccl->group, NULL));
    if (nccl->status == TRI_ETIMEOUT) /* a rank is late, as far as anybody knows */
        return tri_fail_copy(TRI_ETIMEOUT, nccl->message);
    failed_say(nccl, nccl->message);
    return tri_fail_copy(TRI_EIO, nccl->message);
}

tri_status tri_sync_nccl_finish(tri_sync *sync, tri_sync_slice *slice)
{
    sync_nccl *nccl = nccl_of(sync);
    tri_work *tail = NULL;
    const int64_t start_ns = tri_now_ns();
    *slice = (tri_sync_slice){0, nccl_is_spread(nccl) ? 0 : nccl->params->count};
    sums_release(nccl);
    tri_status status = tail_sum(nccl, &tail);
    tri_device_event_wait(nccl->device, nccl->computed);
    const int64_t computed_ns = tri_now_ns();
    if (status == TRI_OK)
        status = tri_work_wait(tail);
    if (status == TRI_OK && nccl->status == TRI_OK)
        tri_sync_nccl_keep_failure(nccl, tri_nccl_sums_wait(nccl->sums, NULL));
    tri_sync_nccl_zero_finished(nccl);
    sync->computing_ns = computed_ns - start_ns;
    sync->exposed_ns = tri_now_ns() - computed_ns;
    return status == TRI_OK && nccl->status != TRI_OK ? tri_sync_nccl_explain(nccl) : status;
}

/* --- sums that stages of a pipeline share --- */

/* Where gradient `number` is, or this rank's share of it. */
static float *sum_find(const sync_nccl *nccl, int number, int64_t *count)
{
    const tri_params *params = nccl->params;
    const int e = number < params->entry_count ? number : params->ties[number - params->entry_count].entry;
    *count = params->entries[e].count;
    if (!nccl_is_spread(nccl))
        return nccl->base.grads[0] + tri_params_grad_first(params, number);
    const int u = nccl->zero.units.of[number];
    const tri_unit *unit = &nccl->zero.units.items[u];
    const int rank = tri_group_rank(nccl->group);
    const int64_t first = unit->firsts[rank], end = first + unit->counts[rank];
    TRI_ASSERT(unit->entry_count == 1);
    *count = (end < *count ? end : *count) - first; /* without the gap behind the entry */
    *count = *count > 0 ? *count : 0;
    return nccl->zero.sums[u];
}

float *tri_sync_nccl_sum(tri_sync *sync, int number, int64_t *count)
{
    const sync_nccl *nccl = nccl_of(sync);
    const float *there = sum_find(nccl, number, count);
    TRI_ASSERT(nccl->lent[number]);
    tri_device_to_host(nccl->device, nccl->lent[number], there, (size_t)*count * sizeof(float));
    nccl->is_lent[number] = true;
    return nccl->lent[number];
}

void tri_sync_nccl_lent_return(const sync_nccl *nccl)
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
    tri_sync_nccl_lent_return(nccl_of(sync));
    tri_params_fold(nccl_of(sync)->params, 1, sync->grads[0]);
}

/* --- the table --- */

const tri_sync_ops tri_sync_nccl = {
    .name = "allreduce",
    .does = "every rank has all weights and all gradients, which NCCL sums between cards",
    .fold = allreduce_fold,
    TRI_SYNC_NCCL_SLOTS,
};
