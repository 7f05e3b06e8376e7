/* SPDX-License-Identifier: Apache-2.0
 *
 * workers.h: threads that prepare tiles of a batch together with the thread that asks for it.
 */
#ifndef TRI_DATA_WORKERS_H
#define TRI_DATA_WORKERS_H

#include <stdint.h>

#include "base/status.h"

typedef struct tri_workers tri_workers;
/* count threads besides the caller's; 0: tri_workers_run() is a loop. */
tri_status tri_workers_open(int count, tri_workers **out);
/* Calls body(arg, tile) for tiles 0 to tile_count - 1, several at once, and waits. One call at a time. */
void tri_workers_run(tri_workers *workers, int64_t tile_count, void (*body)(void *arg, int64_t tile), void *arg);
/* NULL does nothing. */
void tri_workers_close(tri_workers *workers);

#endif
