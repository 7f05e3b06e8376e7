/* SPDX-License-Identifier: Apache-2.0
 *
 * stop.h: phases in which a stop signal ends the process at once, since it has nothing to save: connecting, loading,
 * building, measuring.
 *
 * Elsewhere a stop signal sets a flag that the program looks at (tri_stop_signal(), base/runtime.h).
 */
#ifndef TRI_BASE_STOP_H
#define TRI_BASE_STOP_H

#include "base/status.h"

/* From here on a process that does not end by itself within a second after a stop signal writes "error: stopped by a
 * signal WHEN" and ends with 128 + the signal's number. `when` is a literal, such as "before the first step". Uses
 * SIGALRM. TRI_ECANCELED: a signal has come already. */
tri_status tri_stop_at_once_begin(const char *when);
/* From here on the first stop signal sets the flag again. */
void tri_stop_at_once_end(void);

#endif
