/* SPDX-License-Identifier: Apache-2.0
 *
 * stack.h: where another thread of this process is right now, as text: for a rank that others wait for.
 *
 * A realtime signal makes that thread write down its own return addresses; who asked turns them into names. The signal
 * restarts system calls, and is sent only when somebody asks.
 */
#ifndef TRI_BASE_STACK_H
#define TRI_BASE_STACK_H

#include <stddef.h>

#include "base/status.h"

/* Makes ready, once per process: TRI_EUNSUPPORTED when a handler of somebody else holds the signal. */
tri_status tri_stack_catch(void);
/* The thread that calls, for tri_stack_read. */
int tri_stack_task(void);
/* One line per function, innermost first; returns the bytes of text (with its 0 not counted), 0 when the thread has
 * ended, blocks signals or does not run within limit_ms. One asks at a time. */
size_t tri_stack_read(int task, int limit_ms, char *text, size_t capacity);

#endif
