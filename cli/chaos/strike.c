/* SPDX-License-Identifier: Apache-2.0
 *
 * strike.c: the table of faults: what each does to a worker, and how it is undone.
 */
#include <signal.h>

#include "cli/chaos/chaos.h"

#define SLOW_RUN_NS  (20 * TRI_NS_PER_MS) /* of each 100: long enough for its watch to beat */
#define SLOW_HALT_NS (80 * TRI_NS_PER_MS)

static tri_status signal_send(const chaos_worker *worker, int number)
{
    return chaos_worker_signal(worker, number) ? TRI_OK : tri_fail(TRI_ENOTFOUND, "the worker has gone");
}

static tri_status kill_begin(chaos_strike *strike, chaos_worker *worker)
{
    (void)strike;
    return signal_send(worker, SIGKILL);
}

static tri_status leave_begin(chaos_strike *strike, chaos_worker *worker)
{
    (void)strike;
    return signal_send(worker, SIGTERM);
}

static tri_status stop_begin(chaos_strike *strike, chaos_worker *worker)
{
    (void)strike;
    return signal_send(worker, SIGSTOP);
}

static void stop_end(chaos_strike *strike, chaos_worker *worker)
{
    (void)strike;
    if (worker)
        (void)chaos_worker_signal(worker, SIGCONT);
}

static void slow_turn(chaos_strike *strike, chaos_worker *worker)
{
    strike->halts = !strike->halts;
    strike->turn_ns = tri_now_ns() + (strike->halts ? SLOW_HALT_NS : SLOW_RUN_NS);
    (void)chaos_worker_signal(worker, strike->halts ? SIGSTOP : SIGCONT);
}

static tri_status slow_begin(chaos_strike *strike, chaos_worker *worker)
{
    slow_turn(strike, worker);
    return TRI_OK;
}

/* --- from within, by the worker's page --- */

static tri_status delay_begin(chaos_strike *strike, chaos_worker *worker)
{
    atomic_store(&worker->page->delay_ns, (int64_t)(1 + strike->event.draw % 25) * TRI_NS_PER_MS);
    atomic_store(&worker->page->delay_until_ns, strike->ends_ns);
    return TRI_OK;
}

static tri_status disk_begin(chaos_strike *strike, chaos_worker *worker)
{
    atomic_store(&worker->page->disk_until_ns, strike->ends_ns);
    return TRI_OK;
}

/* Up to two hours forward or back. */
static tri_status clock_begin(chaos_strike *strike, chaos_worker *worker)
{
    int64_t seconds = ((int64_t)strike->event.draw - 500) * 14;
    atomic_store(&worker->page->clock_ns, seconds * TRI_NS_PER_S);
    return TRI_OK;
}

static void clock_end(chaos_strike *strike, chaos_worker *worker)
{
    (void)strike;
    if (worker)
        atomic_store(&worker->page->clock_ns, 0);
}

/* One of the upper bits of a mantissa: a lower one may be gone by rounding before anybody compares. */
static tri_status corrupt_begin(chaos_strike *strike, chaos_worker *worker)
{
    uint64_t count = (uint64_t)atomic_load(&worker->page->flip_nbytes) / 4, draw = strike->event.draw % 1000;
    if (count == 0)
        return tri_fail(TRI_ENOTFOUND, "the worker has no weights of its own");
    strike->amount = count * draw / 1000 * 32 + 16 + draw % 7;
    atomic_store(&worker->page->flip_step, strike->flip_step);
    atomic_store(&worker->page->flip, (int64_t)strike->amount + 1);
    return TRI_OK;
}

static tri_status fail_begin(chaos_strike *strike, chaos_worker *worker)
{
    (void)strike;
    atomic_store(&worker->page->fails, 1);
    return TRI_OK;
}

const chaos_kind chaos_kinds[] = {
    {"kill", "SIGKILL; a launcher with --restarts starts it again, and it joins", 0, 0, 2, false, false, kill_begin,
     NULL, NULL},
    {"leave", "SIGTERM: a planned leave, as of a machine that is taken back", 0, 0, 2, false, false, leave_begin, NULL,
     NULL},
    {"stop", "SIGSTOP, later SIGCONT", 0.1, 2, 2, false, false, stop_begin, NULL, stop_end},
    {"slow", "gets a fifth of its processor, by SIGSTOP and SIGCONT in turns", 0.5, 3, 2, false, false, slow_begin,
     slow_turn, stop_end},
    {"cut", "its TCP is cut both ways, by nft", 0.5, 2, 2, false, true, chaos_cut_begin, chaos_cut_turn, chaos_cut_end},
    {"loss", "1 to 10 % of its TCP packets are lost, by nft", 0.5, 3, 1, false, true, chaos_cut_begin, chaos_cut_turn,
     chaos_cut_end},
    {"delay", "its links take bytes only every 1 to 25 ms", 0.5, 3, 1, true, false, delay_begin, NULL, NULL},
    {"full-disk", "nothing that it writes finds room (ENOSPC)", 0.5, 3, 1, true, false, disk_begin, NULL, NULL},
    {"clock", "its wall clock jumps by up to two hours, and back", 0.5, 3, 1, true, false, clock_begin, NULL,
     clock_end},
    {"corrupt", "one bit of its weights flips, or of its part of a sharded state and its mirror", 0, 0, 3, true, false,
     corrupt_begin, NULL, NULL},
    {"fail", "ends with an error of its own, exit code 1", 0, 0, 2, true, false, fail_begin, NULL, NULL},
    {"link", "its TCP with one other worker is cut both ways, by nft", 0.5, 2, 3, false, true, chaos_cut_begin,
     chaos_cut_turn, chaos_cut_end},
};
_Static_assert(sizeof(chaos_kinds) / sizeof(chaos_kinds[0]) == CHAOS_KINDS, "CHAOS_KINDS counts the rows");

tri_status chaos_kind_check(const chaos_kind *kind, const chaos_job *job)
{
    const chaos_worker *workers = job->workers.items;
    if (kind->root)
        TRI_TRY(chaos_nft_check(job));
    size_t offered = 0;
    for (size_t i = 0; i < job->workers.count; i++)
        offered += workers[i].page != NULL;
    if (kind->page && offered == 0)
        return tri_fail(TRI_ECONFIG,
                        "%s: happens inside of a worker: want a run with comm.chaos=on, worker %d has it off",
                        kind->name, workers[0].rank);
    return TRI_OK;
}
