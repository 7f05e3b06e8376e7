/* SPDX-License-Identifier: Apache-2.0
 *
 * try_nccl.c: sums between the cards of a job's ranks by NCCL, in both orders; tools/gpu_check runs it.
 *
 * usage: [trireme launch -n RANKS] gpu_try_nccl [CARD]
 * CARD: the number of the card of all ranks; without it each rank takes that of its own number on its host. Rank 0
 * prints a line. Exit code 1: NCCL cannot be used, and a sentence says why; or a sum is wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/comm.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "base/status.h"
#include "device/cuda/cuda.h"
#include "parallel/nccl_sums.h"
#include "tensor/tree.h"

enum { LEAVES = 8, COUNT = 100003, JOIN_S = 60 };

static const tri_nccl_limits limits = {.join_ms = 30000, .exchange_ms = 30000, .leave_ms = 3000};

typedef struct party {
    tri_comm *comm;
    tri_group *world;
    tri_device card;
    int part_count;
    float *host[TRI_TREE_MAX_PARTS], *there[TRI_TREE_MAX_PARTS];
} party;

/* Of many magnitudes, so that the order of additions shows; whole: so that it does not. */
static float value_of(int64_t leaf, int64_t i, bool whole)
{
    const uint64_t hash =
        ((uint64_t)leaf + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)i * UINT64_C(0xd1b54a32d192ed03);
    return whole ? (float)(hash >> 48) : (float)(int32_t)(hash >> 32) * (float)(1 << (hash >> 29 & 7));
}

static float leaves_sum(int64_t first, int64_t count, int64_t i, bool whole)
{
    return count == 1 ? value_of(first, i, whole)
                      : leaves_sum(first, count / 2, i, whole) + leaves_sum(first + count / 2, count / 2, i, whole);
}

static tri_status parts_fill(party *r, bool whole)
{
    tri_tree_part parts[TRI_TREE_MAX_PARTS];
    const int rank = tri_group_rank(r->world), ranks = tri_group_count(r->world);
    r->part_count =
        tri_tree_parts(LEAVES, tri_tree_first(LEAVES, rank, ranks), tri_tree_count(LEAVES, rank, ranks), parts);
    for (int p = 0; p < r->part_count; p++) {
        if (!r->host[p])
            r->host[p] = tri_alloc(COUNT * sizeof(float));
        if (!r->there[p])
            r->there[p] = tri_device_alloc(&r->card, COUNT * sizeof(float));
        if (!r->host[p] || !r->there[p])
            return TRI_ENOMEM;
        for (int64_t i = 0; i < COUNT; i++)
            r->host[p][i] = leaves_sum(parts[p].first, parts[p].count, i, whole);
        tri_device_from_host(&r->card, r->there[p], r->host[p], COUNT * sizeof(float));
    }
    return TRI_OK;
}

/* The host's sum beside NCCL's. */
static tri_status order_try(party *r, bool any_order, char name[32])
{
    tri_nccl_sums *sums;
    const tri_nccl_setup setup = {.group = r->world, .device = &r->card, .any_order = any_order, .limits = limits};
    TRI_TRY(tri_nccl_sums_open(&setup, &sums));
    snprintf(name, 32, "%s", tri_nccl_sums_name(sums));
    TRI_TRY(parts_fill(r, any_order));
    TRI_TRY(tri_nccl_sums_all_reduce(sums, LEAVES, r->there, r->part_count, COUNT));
    TRI_TRY(tri_nccl_sums_wait(sums, NULL));
    TRI_TRY(tri_all_reduce_tree(r->world, LEAVES, r->host, r->part_count, COUNT, NULL));
    float *got = tri_alloc(COUNT * sizeof(float));
    if (!got)
        return TRI_ENOMEM;
    tri_device_to_host(&r->card, got, r->there[0], COUNT * sizeof(float));
    const bool same = memcmp(got, r->host[0], COUNT * sizeof(float)) == 0;
    tri_free(got);
    TRI_TRY(tri_nccl_sums_close(sums));
    return same ? TRI_OK : tri_fail(TRI_EINTERNAL, "%s order: not the host's sum", any_order ? "any" : "canonical");
}

/* To itself, which needs a kernel of NCCL also where there is one rank; and an abort. */
static tri_status self_try(party *r)
{
    tri_nccl *nccl;
    nccl_unique_id id;
    const int rank = tri_group_rank(r->world), ranks = tri_group_count(r->world);
    float *to = tri_device_alloc(&r->card, COUNT * sizeof(float)), *got = tri_alloc(COUNT * sizeof(float));
    if (!to || !got)
        return TRI_ENOMEM;
    TRI_TRY(parts_fill(r, true));
    if (rank == 0)
        TRI_TRY(tri_nccl_unique_id(&r->card, &id));
    TRI_TRY(tri_broadcast(r->world, &id, (int64_t)sizeof(id), TRI_U8, 0, NULL));
    TRI_TRY(tri_nccl_open(&r->card, &id, rank, ranks, &limits, &nccl));
    tri_nccl_begin(nccl, "self");
    tri_nccl_send(nccl, r->there[0], COUNT, rank);
    tri_nccl_receive(nccl, to, COUNT, rank);
    TRI_TRY(tri_nccl_end(nccl));
    TRI_TRY(tri_nccl_wait(nccl, NULL));
    tri_device_to_host(&r->card, got, to, COUNT * sizeof(float));
    const bool same = memcmp(got, r->host[0], COUNT * sizeof(float)) == 0;
    const int64_t start_ns = tri_now_ns();
    TRI_TRY(tri_nccl_abort(nccl));
    if (rank == 0)
        printf("a send to itself arrives; an abort takes %.1f ms\n", (double)(tri_now_ns() - start_ns) / 1e6);
    tri_device_free(&r->card, to);
    tri_free(got);
    TRI_TRY(tri_nccl_close(nccl));
    return same ? TRI_OK : tri_fail(TRI_EINTERNAL, "a send to itself: not what was sent");
}

static tri_status both_try(party *r, int index)
{
    char name[32];
    r->card = (tri_device){.ops = &tri_device_cuda, .index = index};
    TRI_TRY(tri_device_cuda.open(&r->card));
    TRI_TRY(order_try(r, false, name));
    TRI_TRY(order_try(r, true, name));
    TRI_TRY(self_try(r));
    if (tri_group_rank(r->world) == 0)
        printf("%s, %d rank%s: the canonical order has the bits of the host's sum, any order is exact\n", name,
               tri_group_count(r->world), tri_group_count(r->world) == 1 ? "" : "s");
    return TRI_OK;
}

/* Nothing is freed after a failure: NCCL may hang. */
int main(int argc, char **argv)
{
    party r = {0};
    tri_status status = tri_comm_join(JOIN_S, &r.comm);
    if (status == TRI_OK) {
        r.world = tri_comm_world(r.comm);
        status = both_try(&r, argc > 1 ? atoi(argv[1]) : tri_comm_local_rank(r.comm));
    }
    if (status != TRI_OK) {
        fprintf(stderr, "error: %s\n", tri_last_error());
        fflush(NULL);
        if (r.comm)
            tri_comm_leave(r.comm);
        _Exit(1);
    }
    for (int p = 0; p < r.part_count; p++) {
        tri_free(r.host[p]);
        tri_device_free(&r.card, r.there[p]);
    }
    tri_device_cuda.close(&r.card);
    tri_comm_leave(r.comm);
    return 0;
}
