/* SPDX-License-Identifier: Apache-2.0
 *
 * strain.h: what holds this process up, as the system counts it: other users of its cores, quotas, memory, the network.
 *
 * All are sums since some beginning; differences of two readings mean something. What this system does not count stays
 * 0.
 */
#ifndef TRI_BASE_STRAIN_H
#define TRI_BASE_STRAIN_H

#include <stdint.h>

/* X(name, help): a figure each, `trireme_NAME` of /metrics. Seconds of the main thread unless said otherwise. */
#define TRI_STRAIN_LIST(X)                                                                                             \
    X(cpu_seconds_total, "processor time of the rank's main thread")                                                   \
    X(queue_seconds_total, "time that the main thread could have run, while somebody else had the core")               \
    X(stolen_seconds_total, "time that the hypervisor gave the rank's cores to others, mean of the cores")             \
    X(throttled_seconds_total, "time for which the rank's control group had used up its cpu quota")                    \
    X(memory_stall_seconds_total, "time that somebody on the host waited for memory (pressure)")                       \
    X(io_stall_seconds_total, "time that somebody on the host waited for a disk (pressure)")                           \
    X(disk_seconds_total, "time that the main thread waited for a disk, by looks (base/disk_wait.h)")                  \
    X(data_disk_seconds_total,                                                                                         \
      "time that the main thread waited for others that prepare its data, and these for a disk")                       \
    X(swapped_in_pages_total, "pages that the host has read back from swap")                                           \
    X(major_faults_total, "pages of the process that had to be read from a disk")                                      \
    X(involuntary_switches_total, "times that a thread of the process was taken off its core")                         \
    X(retransmitted_segments_total, "TCP segments that the host had to send again")

typedef struct tri_strain {
#define TRI_STRAIN_FIELD(name, help) double name;
    TRI_STRAIN_LIST(TRI_STRAIN_FIELD)
#undef TRI_STRAIN_FIELD
} tri_strain;

/* Of this moment; some files of /proc and /sys, some tens of microseconds. Waits for disks stay 0: who has them counted
 * (tri_disk_wait_read) adds them. In a simulation all are 0. */
void tri_strain_read(tri_strain *now);
/* later - earlier */
tri_strain tri_strain_since(const tri_strain *later, const tri_strain *earlier);

#endif
