/* SPDX-License-Identifier: Apache-2.0
 *
 * wait.h: waits for other processes: each ends at a stop signal, and one that lasts says what it waits for.
 *
 * The caller waits in slices. Between two slices it asks tri_wait_check() whether to stop, and tri_wait_is_long()
 * whether to say what it waits for: after 10 s, 20 s, 40 s and so on.
 */
#ifndef TRI_BASE_WAIT_H
#define TRI_BASE_WAIT_H

#include "base/runtime.h"

#define TRI_WAIT_SLICE_NS (200 * TRI_NS_PER_MS) /* the longest time between two looks at stop signals */

typedef struct tri_wait {
    int64_t begun_ns, next_ns; /* when it began, and when it is to say something next */
} tri_wait;

/* tri_stop_signal() of this thread also asks this function, which returns 0 or the number of a signal. For programs
 * whose own runtime receives the signals, such as Python. NULL: nobody is asked. */
void tri_stop_ask_set(int (*ask)(void));

void tri_wait_begin(tri_wait *wait);
/* TRI_ECANCELED once a stop signal has come: "stopped by signal 15 (Terminated) while WHAT". */
tri_status tri_wait_check(const char *what);
/* True at the times when a long wait reports itself. */
bool tri_wait_is_long(tri_wait *wait);
/* The earlier of the deadline and ns from now. */
int64_t tri_wait_until(int64_t deadline_ns, int64_t ns);
/* Whole seconds between the begin and a deadline, at least 1. */
long long tri_wait_limit_s(const tri_wait *wait, int64_t deadline_ns);

#endif
