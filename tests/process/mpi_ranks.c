/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_ranks.c: one rank of a job under mpirun: every operation by comm.engine mpi, and again by the host's algorithms,
 * must leave the same bytes. mpi.py starts it: mpi_ranks ops|order|late|lengths [PLUGIN].
 *
 * The elements are small whole numbers, whose sums and products are exact in every type and order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/engine.h"
#include "tensor/reduce.h"

#define COUNT_MAX  5000
#define RANKS_MAX  8
#define CHECK(yes) ((yes) ? (void)0 : check_failed(__LINE__, #yes))

static int failures, rank, ranks;
static const int64_t counts[] = {0, 1, 3, 1000, COUNT_MAX};
static const tri_dtype dtypes[] = {TRI_F32, TRI_F64, TRI_BF16, TRI_F16, TRI_I8, TRI_U8, TRI_I32, TRI_I64};
/* in, what MPI leaves, what the host leaves */
static char input[COUNT_MAX * RANKS_MAX * 8 * 2], results[2][sizeof(input)];

static void check_failed(int line, const char *what)
{
    failures++;
    fprintf(stderr, "rank %d: line %d: %s does not hold (%s)\n", rank, line, what, tri_last_error());
}

static void fill(void *bytes, tri_dtype dtype, int64_t count, int salt)
{
    for (int64_t i = 0; i < count; i++) {
        float value = (float)((i * 5 + rank * 3 + salt) % 4) + (dtype == TRI_U8 ? 0 : -1);
        (void)tri_convert((char *)bytes + (size_t)i * tri_dtype_nbytes(dtype), dtype, &value, TRI_F32, 1);
    }
}

/* What is called, as data; `in` and `out` of whole ranks * count elements. */
typedef struct op_case {
    tri_comm_op op;
    tri_reduce_op reduce;
    tri_dtype dtype;
    int64_t count;
    int root;
    bool in_place, blocks, handle;
} op_case;

static int64_t block_counts[RANKS_MAX], block_firsts[RANKS_MAX];

/* Blocks of all lengths, also none, in another order than the ranks, with holes. */
static tri_blocks blocks_make(int members, int64_t count)
{
    int64_t first = 0;
    for (int r = members - 1; r >= 0; r--) {
        block_counts[r] = r == 1 ? 0 : count * (r + 1) / (members + 1);
        block_firsts[r] = first;
        first += block_counts[r] + (count > 10 ? 3 : 0);
    }
    return (tri_blocks){.counts = block_counts, .firsts = block_firsts};
}

static tri_status run_blocks(tri_group *group, const op_case *is, const void *in, void *out, tri_work **work)
{
    tri_blocks blocks = blocks_make(tri_group_count(group), is->count);
    int64_t equal[RANKS_MAX];
    tri_blocks sent = {.counts = equal}, received = {.counts = equal};
    switch (is->op) {
    case TRI_COMM_ALL_GATHER:
        return tri_all_gather_v(group, in, out, &blocks, is->dtype, work);
    case TRI_COMM_REDUCE_SCATTER:
        return tri_reduce_scatter_v(group, in, &blocks, out, is->dtype, is->reduce, work);
    case TRI_COMM_GATHER:
        return tri_gather_v(group, in, out, &blocks, is->dtype, is->root, work);
    case TRI_COMM_SCATTER:
        return tri_scatter_v(group, in, &blocks, out, is->dtype, is->root, work);
    default: /* rank a sends b as many as b sends a */
        for (int r = 0; r < tri_group_count(group); r++)
            equal[r] = is->count * (1 + (r + tri_group_rank(group)) % 3) / 3;
        return tri_all_to_all_v(group, in, &sent, out, &received, is->dtype, NULL);
    }
}

static tri_status run(tri_group *group, const op_case *is, char *out, tri_work **work)
{
    int members = tri_group_count(group), me = tri_group_rank(group);
    size_t block = (size_t)is->count * tri_dtype_nbytes(is->dtype);
    const void *in = is->in_place ? out : input;
    switch (is->blocks ? TRI_COMM_OP_COUNT : is->op) {
    case TRI_COMM_ALL_REDUCE:
        return tri_all_reduce(group, in, out, is->count, is->dtype, is->reduce, work);
    case TRI_COMM_REDUCE:
        return tri_reduce(group, in, me == is->root || is->in_place ? out : NULL, is->count, is->dtype, is->reduce,
                          is->root, work);
    case TRI_COMM_BROADCAST:
        return tri_broadcast(group, out, is->count, is->dtype, is->root, work);
    case TRI_COMM_ALL_GATHER:
        in = is->in_place ? out + (size_t)me * block : input;
        return tri_all_gather(group, in, out, is->count, is->dtype, work);
    case TRI_COMM_REDUCE_SCATTER:
        return tri_reduce_scatter(group, in, is->in_place ? out + (size_t)me * block : out, is->count, is->dtype,
                                  is->reduce, work);
    case TRI_COMM_GATHER:
        in = is->in_place && me == is->root ? out + (size_t)me * block : input;
        return tri_gather(group, in, me == is->root ? out : NULL, is->count, is->dtype, is->root, work);
    case TRI_COMM_SCATTER:
        return tri_scatter(group, me == is->root ? in : NULL,
                           is->in_place && me == is->root ? out + (size_t)me * block : out, is->count, is->dtype,
                           is->root, work);
    case TRI_COMM_ALL_TO_ALL:
        return tri_all_to_all(group, input, out, is->count, is->dtype, work);
    case TRI_COMM_BARRIER:
        return tri_barrier(group, work);
    case TRI_COMM_SEND_RECV: /* once round */
        if (me % 2 == 0)
            TRI_TRY(tri_send(group, input, is->count, is->dtype, (me + 1) % members, NULL));
        TRI_TRY(tri_receive(group, out, is->count, is->dtype, (me + members - 1) % members, NULL));
        return me % 2 ? tri_send(group, input, is->count, is->dtype, (me + 1) % members, NULL) : TRI_OK;
    default:
        return run_blocks(group, is, input, out, work);
    }
    (void)members;
}

static tri_status run_waited(tri_group *group, const op_case *is, char *out)
{
    tri_work *work = NULL;
    TRI_TRY(run(group, is, out, is->handle ? &work : NULL));
    return work ? tri_work_wait(work) : TRI_OK;
}

/* The same call by both engines. */
static void compare(tri_comm *comm, tri_group *group, const op_case *is)
{
    size_t nbytes = (size_t)is->count * (size_t)(tri_group_count(group) + 4) * tri_dtype_nbytes(is->dtype) + 64;
    int64_t elements = (int64_t)(nbytes / tri_dtype_nbytes(is->dtype));
    tri_engine *engine = comm->engine;
    for (int by_host = 0; by_host < 2; by_host++) {
        fill(input, is->dtype, elements, 1);
        fill(results[by_host], is->dtype, elements, 2);
        if (is->reduce == TRI_REDUCE_PREMUL_SUM)
            tri_group_scale_next(group, rank + 2);
        comm->engine = by_host ? NULL : engine;
        CHECK(run_waited(group, is, results[by_host]) == TRI_OK);
    }
    comm->engine = engine;
    if (memcmp(results[0], results[1], nbytes) == 0)
        return;
    failures++;
    fprintf(stderr, "rank %d: %s%s %s x %lld %s root %d%s: not what the host's algorithms give\n", rank,
            tri_comm_op_name(is->op), is->blocks ? "_v" : "", tri_dtype_name(is->dtype), (long long)is->count,
            tri_reduce_name(is->reduce), is->root, is->in_place ? " in place" : "");
}

static void compare_all(tri_comm *comm, tri_group *group)
{
    static const tri_comm_op ops[] = {
        TRI_COMM_ALL_REDUCE, TRI_COMM_REDUCE,         TRI_COMM_BROADCAST,  TRI_COMM_ALL_GATHER, TRI_COMM_GATHER,
        TRI_COMM_SCATTER,    TRI_COMM_REDUCE_SCATTER, TRI_COMM_ALL_TO_ALL, TRI_COMM_BARRIER,    TRI_COMM_SEND_RECV};
    int turn = 0;
    for (size_t o = 0; o < TRI_COUNT_OF(ops); o++) {
        bool adds = ops[o] == TRI_COMM_ALL_REDUCE || ops[o] == TRI_COMM_REDUCE || ops[o] == TRI_COMM_REDUCE_SCATTER;
        bool has_blocks = ops[o] == TRI_COMM_ALL_GATHER || ops[o] == TRI_COMM_GATHER || ops[o] == TRI_COMM_SCATTER ||
                          ops[o] == TRI_COMM_REDUCE_SCATTER || ops[o] == TRI_COMM_ALL_TO_ALL;
        if (ops[o] == TRI_COMM_SEND_RECV && tri_group_count(group) % 2)
            continue; /* a ring of blocking calls needs an even number */
        for (size_t d = 0; d < TRI_COUNT_OF(dtypes); d++)
            for (int variant = 0; variant < (has_blocks ? 3 : 2); variant++)
                for (int reduce = 0; reduce < (adds ? TRI_REDUCE_COUNT : 1); reduce++) {
                    op_case is = {.op = ops[o],
                                  .reduce = (tri_reduce_op)reduce,
                                  .dtype = dtypes[d],
                                  .count = counts[turn % (int)TRI_COUNT_OF(counts)],
                                  .root = turn % tri_group_count(group),
                                  .in_place = variant == 1,
                                  .blocks = variant == 2,
                                  .handle = turn % 3 == 0};
                    is.handle &= ops[o] != TRI_COMM_SEND_RECV && !(is.blocks && ops[o] == TRI_COMM_ALL_TO_ALL);
                    turn++;
                    compare(comm, group, &is);
                }
    }
}

/* Ranks exchange in no order, run twice with other data, and add. */
static void compare_batch(tri_comm *comm, tri_group *group)
{
    int32_t sent[RANKS_MAX], received[RANKS_MAX] = {0}, sum = 0;
    tri_engine *engine = comm->engine;
    tri_batch *batch = NULL;
    CHECK(tri_batch_begin(group) == TRI_OK);
    for (int r = 0; r < ranks; r++) {
        if (r != rank) {
            CHECK(tri_receive(group, &received[r], 1, TRI_I32, r, NULL) == TRI_OK);
            CHECK(tri_send(group, &sent[r], 1, TRI_I32, r, NULL) == TRI_OK);
        }
    }
    CHECK(tri_all_reduce(group, &sent[0], &sum, 1, TRI_I32, TRI_REDUCE_SUM, NULL) == TRI_OK);
    CHECK(tri_batch_end(group, &batch) == TRI_OK);
    for (int turn = 0; batch && turn < 4; turn++) {
        int32_t expected = 0;
        for (int r = 0; r < ranks; r++) {
            sent[r] = turn * 1000 + rank * 10 + r;
            expected += turn * 1000 + r * 10;
        }
        comm->engine = turn == 2 ? NULL : engine;
        CHECK(tri_batch_run(batch, NULL) == TRI_OK);
        comm->engine = engine;
        CHECK(sum == expected);
        for (int r = 0; r < ranks; r++)
            CHECK(r == rank || received[r] == turn * 1000 + r * 10 + rank);
    }
    tri_batch_destroy(batch);
}

/* Leaves fewer and more than ranks; in memory of the group. */
static void compare_tree(tri_comm *comm, tri_group *group)
{
    for (int64_t leaves = 1; leaves <= 16; leaves *= 2) {
        float *parts[TRI_TREE_MAX_PARTS + 1], *memory = NULL;
        tri_tree_part own[TRI_TREE_MAX_PARTS];
        int count =
            tri_tree_parts(leaves, tri_tree_first(leaves, rank, ranks), tri_tree_count(leaves, rank, ranks), own);
        CHECK(tri_group_alloc(group, 1000 * sizeof(float), (void **)&memory) == TRI_OK);
        for (int p = 0; p < (count > 1 ? count : 1); p++) {
            parts[p] = p == 0 ? memory : (float *)(void *)results[0] + 1000 * p;
            for (int i = 0; i < 1000; i++) {
                parts[p][i] = 0;
                for (int64_t leaf = 0; p < count && leaf < own[p].count; leaf++)
                    parts[p][i] += (float)(own[p].first + leaf + i);
            }
        }
        CHECK(tri_all_reduce_tree(group, leaves, parts, count, 1000, NULL) == TRI_OK);
        for (int i = 0; i < 1000; i++)
            CHECK(parts[0][i] == (float)(leaves * (leaves - 1) / 2 + leaves * i));
        CHECK(tri_barrier(group, NULL) == TRI_OK);
        tri_group_free(group, memory);
    }
    CHECK(strcmp(tri_comm_choice(group, TRI_COMM_ALL_REDUCE, 1000, NULL), "mpi") == 0);
    (void)comm;
}

static void ops(tri_comm *comm)
{
    tri_group *world = tri_comm_world(comm), *group = NULL;
    compare_all(comm, world);
    compare_batch(comm, world);
    compare_tree(comm, world);
    /* All of them backwards; then the even and the odd. */
    CHECK(tri_group_split(world, 0, -rank, &group) == TRI_OK);
    compare_all(comm, group);
    tri_group_destroy(group);
    CHECK(tri_group_split(world, rank % 2, rank, &group) == TRI_OK);
    compare_all(comm, group);
    tri_group_destroy(group);
}

/* With comm.order = canonical: what depends on the order is refused and nothing is lost by it. */
static void order(tri_comm *comm)
{
    tri_group *world = tri_comm_world(comm);
    float x = 1, *parts[1] = {&x};
    int32_t whole = 1;
    const char *line = "comm.engine mpi adds in an order of its own: set comm.order=any";
    CHECK(tri_all_reduce(world, &x, &x, 1, TRI_F32, TRI_REDUCE_SUM, NULL) == TRI_ECONFIG);
    CHECK(strcmp(tri_last_error(), line) == 0);
    CHECK(tri_all_reduce(world, &x, &x, 1, TRI_F64, TRI_REDUCE_PRODUCT, NULL) == TRI_ECONFIG);
    CHECK(tri_reduce(world, &x, &x, 1, TRI_BF16, TRI_REDUCE_AVERAGE, 0, NULL) == TRI_ECONFIG);
    CHECK(tri_all_reduce_tree(world, ranks, parts, 1, 1, NULL) == TRI_ECONFIG);
    CHECK(tri_all_reduce(world, &x, &x, 1, TRI_F32, TRI_REDUCE_MAX, NULL) == TRI_OK);
    CHECK(tri_all_reduce(world, &whole, &whole, 1, TRI_I32, TRI_REDUCE_SUM, NULL) == TRI_OK && whole == ranks);
}

/* The last rank comes late: the others give up in time, and say so; it hears why. */
static void late(tri_comm *comm)
{
    int32_t x = 1;
    CHECK(tri_all_reduce(tri_comm_world(comm), &x, &x, 1, TRI_I32, TRI_REDUCE_SUM, NULL) == TRI_OK);
    CHECK(tri_group_limit(tri_comm_world(comm), 1) == TRI_OK);
    if (rank == ranks - 1)
        tri_sleep_ns(2 * TRI_NS_PER_S);
    tri_status status = tri_all_reduce(tri_comm_world(comm), &x, &x, 1, TRI_I32, TRI_REDUCE_SUM, NULL);
    if (rank == ranks - 1 && status == TRI_OK) /* what the others gave had come; it hears of it in its next call */
        status = tri_barrier(tri_comm_world(comm), NULL);
    CHECK(rank == ranks - 1 ? status == TRI_EABORT : status == TRI_ETIMEOUT || status == TRI_EABORT);
    CHECK(strstr(tri_last_error(), "s for other ranks inside") != NULL);
}

/* A receive that wants more than was sent. */
static void lengths(tri_comm *comm)
{
    int32_t x[4] = {0};
    tri_group *world = tri_comm_world(comm);
    if (rank == 0)
        CHECK(tri_send(world, x, 2, TRI_I32, 1, NULL) == TRI_OK);
    if (rank == 1) {
        CHECK(tri_receive(world, x, 4, TRI_I32, 0, NULL) == TRI_EMISMATCH);
        CHECK(strstr(tri_last_error(), "want 4 elements of rank 0, got 2") != NULL);
    } else {
        CHECK(tri_barrier(world, NULL) == TRI_EMISMATCH);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    tri_comm_config config;
    tri_net_config net;
    tri_comm *comm = NULL;
    tri_options_defaults(&tri_comm_options, &config);
    tri_options_defaults(&tri_net_options, &net);
    config.engine = TRI_ENGINE_MPI;
    config.order = strcmp(what, "order") == 0 ? TRI_ORDER_CANONICAL : TRI_ORDER_ANY;
    snprintf(config.mpi_library, sizeof(config.mpi_library), "%s", argc > 2 ? argv[2] : "");
    net.timeout_s = 30;
    if (tri_comm_join_as(&config, &net, 30, &comm) != TRI_OK) {
        fprintf(stderr, "error: %s\n", tri_last_error());
        return 1;
    }
    rank = tri_group_rank(tri_comm_world(comm));
    ranks = tri_group_count(tri_comm_world(comm));
    if (strcmp(what, "ops") == 0)
        ops(comm);
    else if (strcmp(what, "order") == 0)
        order(comm);
    else if (strcmp(what, "late") == 0)
        late(comm);
    else if (strcmp(what, "lengths") == 0)
        lengths(comm);
    else
        CHECK(false && "want ops, order, late or lengths");
    tri_comm_leave(comm);
    if (failures == 0)
        printf("%s holds\n", what);
    fflush(stdout);
    /* A launcher ends all at once when one has gone without MPI_Finalize. */
    if (strcmp(what, "late") == 0 || strcmp(what, "lengths") == 0)
        tri_sleep_ns((strcmp(what, "late") == 0 ? 3 : 1) * TRI_NS_PER_S);
    return failures ? 1 : 0;
}
