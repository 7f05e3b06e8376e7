/* SPDX-License-Identifier: Apache-2.0
 *
 * report.h: the report of a wait that lasts: who is missing, what everybody is doing, and why.
 *
 * Lives on the watch thread of the rank, with its beats. Once per call that waits longer than comm.report_s (or most of
 * comm.timeout_s) it logs, at level WARN, what the boards of all ranks say. And it finds ranks that called different
 * things though no frame of one has reached the other.
 */
#ifndef TRI_COMM_REPORT_H
#define TRI_COMM_REPORT_H

#include "comm/comm.h"

typedef struct tri_report tri_report;

/* Begins to give notes to the others and to look at theirs. Called by the thread whose stack they may ask for. */
tri_status tri_report_start(tri_comm *comm, double report_s, tri_report **out);
/* Nothing of it runs any more; NULL does nothing. */
void tri_report_stop(tri_report *report);
/* Adds to the message of a wait whose limit passed what the report found about those who are missing. */
tri_status tri_report_explain(tri_report *report, tri_status status);

#endif
