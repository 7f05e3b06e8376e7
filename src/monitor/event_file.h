/* SPDX-License-Identifier: Apache-2.0
 *
 * event_file.h: the file that TensorBoard reads: records of TFRecord's framing, each an Event (docs/formats/run.md).
 *
 * One file per run, which whoever is rank 0 continues, so that no point is there twice: what an earlier rank 0 wrote
 * of steps that are done again, and a record that it did not get whole, are removed when the file is opened.
 */
#ifndef TRI_MONITOR_EVENT_FILE_H
#define TRI_MONITOR_EVENT_FILE_H

#include "monitor/proto.h"

/* Who made a record, which says what becomes of it when the file is opened again. */
typedef enum tri_event_origin {
    TRI_EVENT_HEAD,    /* what a run is: stays, unless it begins again */
    TRI_EVENT_METRICS, /* a line of metrics.jsonl: those of the last step that is kept go too, and are made again */
    TRI_EVENT_MODEL,   /* all else: stays unless its step is done again */
    TRI_EVENT_ORIGINS
} tri_event_origin;

typedef struct tri_event_file tri_event_file;
/* Opens the one event file of ours in a folder, or makes one. *lines_from: metrics of steps below it are there. *empty:
 * nothing was kept but the file's own first record. */
tri_status tri_event_file_open(const char *folder, int64_t first_step, tri_event_file **out, int64_t *lines_from,
                               bool *empty);
/* A record of one step: Event with the fields of `body`, which is cleared. Buffers. A failure ends the file: one
 * warning, and what follows is passed over. */
void tri_event_file_write(tri_event_file *file, tri_event_origin origin, int64_t step, int64_t wall_ns,
                          tri_proto *body);
/* All that was written is in the file. */
void tri_event_file_flush(tri_event_file *file);
/* NULL does nothing. */
void tri_event_file_close(tri_event_file *file);

#endif
