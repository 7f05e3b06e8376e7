/* SPDX-License-Identifier: Apache-2.0
 *
 * tile_threads.h: how many threads run tiles where the configuration names no number: those of the fastest steps.
 *
 * On cores that other processes share, a thread that waits for its core holds up all others at each barrier, so that
 * fewer threads are faster. No bit depends on it.
 */
#ifndef TRI_KERNEL_TILE_THREADS_H
#define TRI_KERNEL_TILE_THREADS_H

#include <stdbool.h>

/* A search begins at the number of threads in use and goes up, then down, by factors of two while steps get faster. It
 * leaves a number after one step if that step is much slower. The next search begins after a hundred times the time
 * that this one took. */
typedef struct tri_thread_search {
    int most, now;          /* threads: there are, run the next step */
    int start, best;        /* of this search */
    double best_s, now_s;   /* the shortest step with each */
    int tries;              /* steps with `now` */
    bool down;              /* fewer are tried */
    double spent_s, rest_s; /* in this search; until the next one, 0: this one continues */
} tri_thread_search;

void tri_thread_search_init(tri_thread_search *search, int most);
/* Takes the seconds of a step with search->now threads; gives the number for the next one. */
int tri_thread_search_step(tri_thread_search *search, double seconds);

/* The same for the tiles of this process, of at most `most` threads; of several callers at once one is heard. */
void tri_tiles_tune(int most, double seconds);
/* `threads`, or what tuning has found if that is less. */
int tri_tiles_tuned(int threads);

#endif
