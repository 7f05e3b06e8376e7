/* SPDX-License-Identifier: Apache-2.0
 *
 * flight.h: the flight record: the latest calls of a rank in a file, written when its comm fails.
 *
 * JSON lines: a head that says who, when and why, then one object per call (docs/formats/run.md). `trireme flight`
 * reads the records of all ranks side by side.
 */
#ifndef TRI_COMM_FLIGHT_H
#define TRI_COMM_FLIGHT_H

#include "comm/comm.h"

#define TRI_FLIGHT_VERSION     1
#define TRI_FLIGHT_PATH_NBYTES 1100

/* Where the record of this rank is when it fails; false: it leaves none (comm.flight = none, one rank alone, or ranks
 * of one process that named no folder). */
bool tri_flight_path(const tri_comm *comm, char path[TRI_FLIGHT_PATH_NBYTES]);
/* Writes it, once; a failure is one line in the log. By whoever runs calls (names are the runner's). */
void tri_flight_write(tri_comm *comm);

#endif
