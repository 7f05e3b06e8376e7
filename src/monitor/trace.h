/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.h: some steps of all ranks as a timeline that Perfetto (ui.perfetto.dev) and Chrome show.
 */
#ifndef TRI_MONITOR_TRACE_H
#define TRI_MONITOR_TRACE_H

#include <stdbool.h>

#include "base/containers.h"
#include "base/trace_id.h"

/* "FILE" or "FILE:FROM-TO": steps FROM to TO, both traced; without them 10 to 19. */
typedef struct tri_trace_window {
    char path[1024];
    int64_t from, to;
} tri_trace_window;
tri_status tri_trace_window_read(const char *text, tri_trace_window *window);

/* That a trace can be written there: known before the steps are made, not after. */
tri_status tri_trace_path_check(const char *path);

#define TRI_TRACE_MOST_STEPS 10000

/* What a rank did: a plain value, sent as it is. */
typedef struct tri_trace_row {
    int64_t start_ns, duration_ns; /* by the rank's own clock */
    uint64_t nbytes;
    uint32_t sequence; /* of a call in its group; of anything else the step */
    bool on_device;    /* a kernel of a device that has a queue of its own */
    char what[27];
} tri_trace_row;

/* Phases of a step, by which readers tell them from communication. */
extern const char *const tri_trace_phases[]; /* NULL at the end */

typedef struct tri_trace_rank {
    int64_t ahead_ns;     /* its clock before rank 0's, as far as it is known: */
    int64_t uncertain_ns; /* half of the shortest way there and back */
    tri_trace_row *rows;
    int64_t count;
    bool lost;                        /* it did more than it remembers */
    char span_id[TRI_SPAN_ID_NBYTES]; /* of these steps of it */
} tri_trace_rank;
/* A run's parameter servers, rows of TRI_EVENT_SERVER_PUSH and _PULL; their ranks come after those of the workers, of
 * whom only some are traced. count 0: there are none. */
typedef struct tri_trace_servers {
    tri_trace_rank *servers;
    int count, workers;
} tri_trace_servers;
tri_status tri_trace_write(const tri_trace_window *window, const char *trace_id, const tri_trace_rank *ranks, int count,
                           const tri_trace_servers *servers);

#endif
