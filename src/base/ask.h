/* SPDX-License-Identifier: Apache-2.0
 *
 * ask.h: SIGUSR2: somebody needs this process to trace its next steps.
 */
#ifndef TRI_BASE_ASK_H
#define TRI_BASE_ASK_H

#include "base/status.h"

#define TRI_ASK_STEPS 10 /* of a signal that says no number (kill -USR2) */
#define TRI_ASK_MOST  10000

/* From now on the signal is no end of this process. */
void tri_ask_catch(void);
/* For how many steps somebody has asked since the last call; 0: nobody has. */
int tri_ask_take(void);
/* Asks a process. TRI_EUNSUPPORTED: it does not listen, or not yet, and would be ended by the signal: it was not sent.
 */
tri_status tri_ask_send(int pid, int steps);

/* In a run's folder: who is on no host of the run leaves the number of steps here. */
#define TRI_ASK_FILE "traces/ask"

#endif
