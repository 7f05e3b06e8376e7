/* SPDX-License-Identifier: Apache-2.0
 *
 * tile_threads.c: the search, and its result for this process.
 */
#include "kernel/tile_threads.h"

#include <limits.h>
#include <math.h>
#include <stdatomic.h>

#define TRIES  3    /* steps with each number: the shortest counts */
#define BETTER 0.95 /* of the shortest step so far is worth a change */
#define WORSE  1.25 /* times that: a number is left at once */
#define REST   100  /* times the seconds of a search until the next one */

static void search_begin(tri_thread_search *search)
{
    search->start = search->now = search->best;
    search->best_s = search->now_s = INFINITY;
    search->tries = 0;
    search->down = false;
    search->spent_s = search->rest_s = 0;
}

void tri_thread_search_init(tri_thread_search *search, int most)
{
    *search = (tri_thread_search){.most = most, .best = most};
    search_begin(search);
}

static void number_try(tri_thread_search *search, int threads)
{
    search->now = threads;
    search->now_s = INFINITY;
    search->tries = 0;
}

static void search_end(tri_thread_search *search)
{
    search->now = search->best;
    search->rest_s = REST * search->spent_s;
}

/* The number behind the one that was measured. */
static void number_next(tri_thread_search *search, bool better)
{
    if (!search->down && better && search->now < search->most) {
        number_try(search, 2 * search->now < search->most ? 2 * search->now : search->most);
        return;
    }
    if (!search->down) {
        search->down = true;
        better = search->best == search->start; /* else more are faster, and fewer are not */
        search->now = search->start;
    }
    if (better && search->now > 1)
        number_try(search, search->now / 2);
    else
        search_end(search);
}

int tri_thread_search_step(tri_thread_search *search, double seconds)
{
    if (search->rest_s > 0) {
        search->rest_s -= seconds;
        if (search->rest_s <= 0)
            search_begin(search);
        return search->now;
    }
    search->spent_s += seconds;
    search->now_s = seconds < search->now_s ? seconds : search->now_s;
    if (++search->tries < TRIES && search->now_s <= WORSE * search->best_s)
        return search->now;
    const bool better = isinf(search->best_s) || search->now_s < BETTER * search->best_s;
    if (better) {
        search->best = search->now;
        search->best_s = search->now_s;
    }
    number_next(search, better);
    return search->now;
}

static atomic_int tuned = INT_MAX;

void tri_tiles_tune(int most, double seconds)
{
    static atomic_flag busy = ATOMIC_FLAG_INIT;
    static tri_thread_search search;
    if (seconds <= 0 || atomic_flag_test_and_set(&busy))
        return;
    if (search.most != most)
        tri_thread_search_init(&search, most);
    atomic_store_explicit(&tuned, tri_thread_search_step(&search, seconds), memory_order_relaxed);
    atomic_flag_clear(&busy);
}

int tri_tiles_tuned(int threads)
{
    const int most = atomic_load_explicit(&tuned, memory_order_relaxed);
    return threads < most ? threads : most;
}
