/* SPDX-License-Identifier: Apache-2.0
 *
 * slow.h: which rank the others wait for, and why, from what each rank says of the same second.
 *
 * Who waits least is slow. The cause is what the system counts against it and not against the others; where nothing of
 * that explains half of the delay, it is the phase in which the rank takes longer than they.
 */
#ifndef TRI_MONITOR_SLOW_H
#define TRI_MONITOR_SLOW_H

#include "base/strain.h"
#include "monitor/metrics.h"

/* X(name, what is said of a rank, what to do) */
#define TRI_SLOW_LIST(X)                                                                                               \
    X(none, "", "")                                                                                                    \
    X(throttled, "its control group had used up its cpu quota", "raise the quota (cpu.max, resources.limits.cpu)")     \
    X(stolen, "the hypervisor gave its cores to others", "another machine, or cores of its own")                       \
    X(queue, "another process had its core", "trireme top, top: what else runs there; one rank a core")                \
    X(memory, "its memory had been swapped out, and was read back", "less memory a worker, or a host with more")       \
    X(disk, "it waited for a disk",                                                                                    \
      "its data's disk, and who else uses it (iostat -x 1); data.prefetch, memory to keep files in")                   \
    X(stopped, "it stood still: it was stopped, or waited for something that is not computing",                        \
      "look who stops it (kill -STOP, a debugger, a freezer)")                                                         \
    X(data, "its data came late", "data.prefetch, data.crop, data.flip: they are prepared more slowly than used")      \
    X(between, "it had other work between its steps: lines, pictures, checkpoints",                                    \
      "monitor.step_every_s=1, monitor.histogram_every, checkpoint.async")                                             \
    X(link, "its link", "its cable, switch port or driver, and who else uses them: trireme doctor")                    \
    X(compute, "it computes longer than the others", "trireme doctor: clock, shared caches; shards that do not divide")

typedef enum tri_slow_cause {
#define TRI_SLOW_ENUM(name, says, todo) TRI_SLOW_##name,
    TRI_SLOW_LIST(TRI_SLOW_ENUM)
#undef TRI_SLOW_ENUM
        TRI_SLOW_COUNT
} tri_slow_cause;
const char *tri_slow_name(tri_slow_cause cause);
/* What is said of a rank for which that name is the cause; "": there is none of that name. */
const char *tri_slow_says(const char *name);

/* Of the links that a rank sends on, the one that was busy longest, as the kernel counts it (TCP_INFO). */
typedef struct tri_slow_link {
    double to;     /* a rank; -1: nothing is known of any */
    double busy_s; /* something was on its way */
    double nbytes, resent_segments;
    double round_trip_s;
} tri_slow_link;

/* What a rank did in the time since the last look; doubles alone, sent as it is. */
typedef struct tri_slow_row {
    double wall_s; /* with what is between steps */
    double data, forward, backward, comm, optimizer, other;
    double waited, prepared; /* of data: as in tri_loader_batch; the rest of it the rank stood still */
    tri_slow_link link;
    tri_strain strain;
} tri_slow_row;

typedef struct tri_slow_verdict {
    int rank; /* -1: nobody is slow */
    tri_slow_cause cause;
    double share;       /* of the time that the others wait for it */
    double explained_s; /* what the cause took, of that time, seconds; compute: more than the others' */
    double wall_s;
    tri_slow_link link; /* cause link: that one; to < 0: which one is not known */
    double usual;       /* bytes a second of the others' links while they are busy; 0: the link is no slower */
} tri_slow_verdict;
tri_slow_verdict tri_slow_find(const tri_slow_row *rows, int count);
/* What held it up, how much, and what to do. */
void tri_slow_why(const tri_slow_verdict *verdict, char *text, int capacity);
/* One line for people. */
void tri_slow_print(const tri_slow_verdict *verdict, char *text, int capacity);

#endif
