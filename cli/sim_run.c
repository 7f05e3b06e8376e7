/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_run.c: one case of `trireme sim`: as many fibers as ranks open a comm on a simulated network, begin an operation
 * at the same instant, and look at every element of what comes out.
 */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "cli/sim.h"

enum { OFFERS_MAX = 16, PIECE = 4096 };

typedef struct sim_job {
    const sim_case *one;
    sim_result *result;
    bool whole; /* contributions; the algorithm's order is not the canonical one */
    tri_comm_config comm;
    tri_hub *hub;
    float *sums; /* of all blocks */
    int64_t start_ns, end_ns;
    /* Where all begin together; costs no time. */
    tri_mutex mutex;
    tri_cond cond;
    int arrived;
    tri_status status; /* of the first rank that failed */
    char message[TRI_ERROR_NBYTES];
} sim_job;

int64_t sim_count(const sim_case *one)
{
    int64_t count = one->nbytes / (int64_t)sizeof(float);

    if (!one->op->expect)
        return 0;
    return one->op->by_rank ? count / one->ranks : count;
}

static size_t blocks_nbytes(const sim_case *one, int (*blocks)(int ranks))
{
    return blocks ? (size_t)blocks(one->ranks) * (size_t)sim_count(one) * sizeof(float) : 0;
}

double sim_memory(const sim_case *one)
{
    double rank_nbytes = (double)(blocks_nbytes(one, one->op->in_blocks) + blocks_nbytes(one, one->op->out_blocks));

    return rank_nbytes * one->ranks + (double)blocks_nbytes(one, one->op->in_blocks);
}

static void meet(sim_job *job)
{
    tri_mutex_lock(&job->mutex);
    if (++job->arrived == job->one->ranks) {
        job->start_ns = tri_now_ns();
        tri_cond_broadcast(&job->cond);
    }
    while (job->arrived < job->one->ranks)
        tri_cond_wait(&job->cond, &job->mutex, TRI_FOREVER);
    tri_mutex_unlock(&job->mutex);
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Elements of the block that are not what they must be. */
static tri_status block_check(const sim_job *job, const float *found, sim_place place, int64_t *wrong)
{
    float want[PIECE];
    int64_t count = sim_count(job->one), first = place.block * count;

    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t piece = count - at < PIECE ? count - at : PIECE;
        const float *sums = job->sums + first + at;

        if (!place.sums) {
            sim_fill(want, place.rank, first + at, piece, job->whole);
            sums = want;
        }
        if (memcmp(found + at, sums, (size_t)piece * sizeof(float)) == 0)
            continue;
        for (int64_t i = 0; i < piece; i++)
            *wrong += memcmp(&found[at + i], &sums[i], sizeof(float)) != 0;
    }
    return TRI_OK;
}

static tri_status result_check(const sim_job *job, int rank, const sim_call *call)
{
    const sim_op *op = job->one->op;
    int ranks = job->one->ranks, blocks = op->out_blocks ? op->out_blocks(ranks) : op->in_blocks(ranks);
    sim_place place;

    for (int b = 0; op->expect && b < blocks; b++) {
        const float *found = (const float *)(op->out_blocks ? call->out : call->in) + b * call->count;

        if (op->expect(rank, ranks, b, &place))
            TRI_TRY(block_check(job, found, place, &job->result->wrong));
    }
    return TRI_OK;
}

static void contributions_fill(const sim_job *job, int rank, const sim_call *call)
{
    if (job->one->op->fill)
        job->one->op->fill(call, job->whole);
    else
        sim_fill(call->in, rank, 0, job->one->op->in_blocks(job->one->ranks) * call->count, job->whole);
}

/* What the selector would say; the same on every rank. */
static void offer_note(const sim_job *job, const tri_group *group)
{
    tri_comm_offer offers[OFFERS_MAX];
    const sim_case *one = job->one;
    int count =
        tri_comm_offers(group, one->op->op, sim_count(one) * (int64_t)sizeof(float), !job->whole, offers, OFFERS_MAX);

    for (int i = 0; i < count; i++) {
        if (strcmp(offers[i].name, one->algorithm) != 0)
            continue;
        snprintf(job->result->cannot, sizeof(job->result->cannot), "%s", offers[i].cannot ? offers[i].cannot : "");
        job->result->price_us = offers[i].price_us;
        job->result->chosen = offers[i].cheapest && !job->whole;
    }
}

static tri_status rank_call(sim_job *job, int rank, const tri_comm *comm, const sim_call *call)
{
    tri_net_traffic before = tri_comm_traffic(comm), after;
    tri_net_traffic *sum = &job->result->most;
    int64_t now_ns;

    if (job->result->cannot[0])
        return TRI_OK;
    TRI_TRY(job->one->op->run(call));
    now_ns = tri_now_ns();
    job->end_ns = now_ns > job->end_ns ? now_ns : job->end_ns;
    after = tri_comm_traffic(comm);
    sum->moves = most(sum->moves, after.moves - before.moves);
    sum->sent_frames = most(sum->sent_frames, after.sent_frames - before.sent_frames);
    sum->sent_nbytes = most(sum->sent_nbytes, after.sent_nbytes - before.sent_nbytes);
    return result_check(job, rank, call);
}

static tri_status rank_open(const sim_job *job, int rank, tri_comm **comm, sim_call *call)
{
    const sim_case *one = job->one;
    tri_net_config net = *one->net;

    if (rank != one->faulty_rank)
        net.faults[0] = 0;
    TRI_TRY(tri_comm_open_hub(job->hub, rank, one->ranks, &job->comm, &net, comm));
    call->group = tri_comm_world(*comm);
    call->count = sim_count(one);
    call->in = tri_alloc(blocks_nbytes(one, one->op->in_blocks));
    call->out = tri_alloc(blocks_nbytes(one, one->op->out_blocks));
    if (!call->in || !call->out)
        return TRI_ENOMEM;
    contributions_fill(job, rank, call);
    return TRI_OK;
}

static void rank_body(int rank, void *arg)
{
    sim_job *job = arg;
    tri_comm *comm = NULL;
    sim_call call = {0};
    tri_status status = rank_open(job, rank, &comm, &call);

    if (status == TRI_OK && rank == 0)
        offer_note(job, call.group);
    meet(job);
    if (status == TRI_OK)
        status = rank_call(job, rank, comm, &call);
    if (status != TRI_OK && job->status == TRI_OK) {
        job->status = status;
        snprintf(job->message, sizeof(job->message), "%s", tri_last_error());
    }
    tri_comm_leave(comm);
    tri_free(call.in);
    tri_free(call.out);
}

static tri_status sums_make(sim_job *job)
{
    const sim_case *one = job->one;
    int64_t count = sim_count(one) * one->op->in_blocks(one->ranks);
    int contributors = one->op->contributors ? one->op->contributors(one->ranks) : one->ranks;
    bool sums = false;

    for (int rank = 0; one->op->expect && rank < one->ranks && !sums; rank++) {
        sim_place place;

        sums = one->op->expect(rank, one->ranks, 0, &place) && place.sums;
    }
    if (!sums)
        return TRI_OK;
    if (!(job->sums = tri_alloc((size_t)count * sizeof(float))))
        return TRI_ENOMEM;
    for (int64_t at = 0; at < count; at += PIECE)
        TRI_TRY(sim_sum(job->sums + at, 0, contributors, at, count - at < PIECE ? count - at : PIECE, job->whole));
    return TRI_OK;
}

static tri_status job_run(sim_job *job)
{
    const sim_case *one = job->one;
    tri_hub_config hub = {.world = one->ranks, .fabric = *one->fabric};
    tri_sim_config sim = {.seed = one->seed, .stack_nbytes = (size_t)128 << 10};

    TRI_TRY(sums_make(job));
    TRI_TRY(tri_hub_create(&hub, &job->hub));
    TRI_TRY(tri_sim_run(&sim, one->ranks, rank_body, job));
    if (job->status != TRI_OK)
        return tri_fail_copy(job->status, job->message);
    job->result->time_us = (double)(job->end_ns - job->start_ns) / 1e3;
    return TRI_OK;
}

tri_status sim_run(const sim_case *one, sim_result *result)
{
    sim_job job = {.one = one, .result = result, .whole = tri_comm_needs_any(one->op->op, one->algorithm)};
    tri_status status;

    *result = (sim_result){0};
    tri_options_defaults(&tri_comm_options, &job.comm);
    job.comm.order = job.whole ? TRI_ORDER_ANY : TRI_ORDER_CANONICAL;
    snprintf(job.comm.algorithm, sizeof(job.comm.algorithm), "%s:0-=%s", tri_comm_op_name(one->op->op), one->algorithm);
    tri_mutex_init(&job.mutex);
    tri_cond_init(&job.cond);
    status = job_run(&job);
    tri_hub_destroy(job.hub);
    tri_free(job.sums);
    tri_cond_fini(&job.cond);
    tri_mutex_fini(&job.mutex);
    return status;
}
