/* SPDX-License-Identifier: Apache-2.0
 *
 * hand_over.h: a rank that waits gives its core to the ranks it waits for.
 *
 * Between ranks alone sched_yield() is the shortest way. Where other programs want the core too they get it for whole
 * slices, and the kernel takes the rest of its own from who yields: fifty yields beside a busy program are a tenth of a
 * second. So a yield that took long is the last of a wait, and the rank sleeps: who is woken is preferred to who has
 * yielded.
 */
#ifndef TRI_NET_HAND_OVER_H
#define TRI_NET_HAND_OVER_H

#include "base/runtime.h"

#define TRI_CROWDED_YIELD_NS TRI_NS_PER_MS

/* False: others have had the core for long; sleep. */
static inline bool tri_hand_over(void)
{
    int64_t began_ns = tri_now_ns();

    tri_yield();
    return tri_now_ns() - began_ns < TRI_CROWDED_YIELD_NS;
}

#endif
