/* SPDX-License-Identifier: Apache-2.0
 *
 * stack.h: where another thread of this process is right now, as text: for a rank that others wait for.
 *
 * A realtime signal makes that thread write down its own return addresses; who asked turns them into names. The signal
 * restarts system calls, and is sent only when somebody asks.
 */
#ifndef TRI_BASE_STACK_H
#define TRI_BASE_STACK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Makes ready, once per process: TRI_EUNSUPPORTED when a handler of somebody else holds the signal. */
tri_status tri_stack_catch(void);
/* The thread that calls. */
int tri_stack_task(void);
/* Asks a thread, which answers when it runs next: returns the number of the question, 0 when there is no such thread. A
 * question ends the one before it. */
int tri_stack_ask(int task);
/* The answer, one line per function, innermost first: bytes of text without its 0; 0: not yet, or never (the thread
 * blocks signals, or another question came). Never waits. */
size_t tri_stack_take(int question, char *text, size_t capacity);
/* The thread would run, and may answer when it has a core. */
bool tri_stack_needs_core(int thread);

#endif
