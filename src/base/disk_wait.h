/* SPDX-License-Identifier: Apache-2.0
 *
 * disk_wait.h: for how long this process has waited for a disk, by looking twenty times a second.
 *
 * The kernel keeps that sum only where somebody has asked for it (kernel.task_delayacct), but always says whether a
 * thread is in such a wait now: state D. A look reads one file of /proc; while the main thread waits for its data, one
 * of each thread until it has found one that is in such a wait.
 */
#ifndef TRI_BASE_DISK_WAIT_H
#define TRI_BASE_DISK_WAIT_H

#include <stdbool.h>

#include "base/status.h"
#include "base/strain.h"

typedef struct tri_disk_wait tri_disk_wait;
/* NULL in *out inside a simulation. `helper`: threads of that name, and those without a name of their own, wait for
 * data. */
tri_status tri_disk_wait_start(const char *helper, tri_disk_wait **out);
/* The main thread begins to wait for its data, or has them: what its helpers read ahead holds nobody up. NULL does
 * nothing. */
void tri_disk_wait_data(tri_disk_wait *wait, bool begins);
/* Since the start: into disk_seconds_total and data_disk_seconds_total. NULL does nothing. */
void tri_disk_wait_read(tri_disk_wait *wait, tri_strain *out);
/* NULL does nothing. */
void tri_disk_wait_stop(tri_disk_wait *wait);

#endif
