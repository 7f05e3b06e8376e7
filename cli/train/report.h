/* SPDX-License-Identifier: Apache-2.0
 *
 * report.h: the progress of a run, for the controller that has started it.
 */
#ifndef TRI_CLI_TRAIN_REPORT_H
#define TRI_CLI_TRAIN_REPORT_H

#include "base/status.h"

typedef struct tri_train_report tri_train_report;
/* Where the environment asks for it, and this process is rank 0 or alone; else *out is NULL. A controller that cannot
 * be reached is reported, and is no failure. folder: of the run, borrowed. */
tri_status tri_train_report_start(const char *folder, double every_s, tri_train_report **out);
/* Reports what is new, and ends. NULL does nothing. */
void tri_train_report_end(tri_train_report *report);

#endif
