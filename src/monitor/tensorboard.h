/* SPDX-License-Identifier: Apache-2.0
 *
 * tensorboard.h: a run as TensorBoard shows it. Its numbers are the lines of metrics.jsonl, translated; all else is
 * written by who has it.
 */
#ifndef TRI_MONITOR_TENSORBOARD_H
#define TRI_MONITOR_TENSORBOARD_H

#include "monitor/event_file.h"
#include "monitor/summary.h"

typedef struct tri_tensorboard tri_tensorboard;
/* Of a run that continues with first_step, whose lines so far are in the file `metrics`. *is_new: nothing says what the
 * run is yet. */
tri_status tri_tensorboard_open(const char *folder, const char *metrics, int64_t first_step, tri_tensorboard **out,
                                bool *is_new);
/* Whole lines that have just been written to metrics.jsonl. */
void tri_tensorboard_lines(tri_tensorboard *board, const char *lines, size_t nbytes);
/* Values of one step; `body` is cleared. */
void tri_tensorboard_write(tri_tensorboard *board, tri_event_origin origin, int64_t step, tri_proto *body);
/* NULL does nothing. */
void tri_tensorboard_close(tri_tensorboard *board);
/* The scalars by which runs are compared. */
extern const char *const tri_tensorboard_metrics[];
extern const int tri_tensorboard_metric_count;

#endif
