/* SPDX-License-Identifier: Apache-2.0
 *
 * affinity.c: which cores this process may use, and binding a new process to some of them.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "cluster/launch_parts.h"

#define CPU_LIMIT 8192

typedef union cpu_bits {
    cpu_set_t set;
    unsigned char bytes[CPU_LIMIT / 8];
} cpu_bits;

tri_status tri_affinity_read(int **cpus, int *count)
{
    cpu_bits bits;

    *cpus = NULL;
    *count = 0;
    memset(&bits, 0, sizeof bits);
    if (sched_getaffinity(0, sizeof bits, &bits.set) != 0)
        return tri_fail(TRI_EIO, "cannot read this process's cores: %s", strerror(errno));
    *cpus = tri_alloc_zero((size_t)CPU_COUNT_S(sizeof bits, &bits.set) + 1, sizeof **cpus);
    if (!*cpus)
        return TRI_ENOMEM;
    for (int cpu = 0; cpu < CPU_LIMIT; cpu++) {
        if (CPU_ISSET_S((size_t)cpu, sizeof bits, &bits.set))
            (*cpus)[(*count)++] = cpu;
    }
    return TRI_OK;
}

bool tri_affinity_bind(const int *cpus, int count)
{
    cpu_bits bits;

    memset(&bits, 0, sizeof bits);
    for (int i = 0; i < count; i++)
        CPU_SET_S((size_t)cpus[i], sizeof bits, &bits.set);
    return sched_setaffinity(0, sizeof bits, &bits.set) == 0;
}
