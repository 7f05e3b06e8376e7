/* SPDX-License-Identifier: Apache-2.0
 *
 * terminal.h: the terminal of a program that is used by keys: they come as they are typed, and a screen of its own is
 * drawn on.
 *
 * However the program ends (but for SIGKILL), or is stopped by ctrl-Z, the terminal has its former settings and screen
 * afterwards. There is one of a process: what signals have to put right cannot be handed to them.
 */
#ifndef TRI_BASE_TERMINAL_H
#define TRI_BASE_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* What was typed: a byte as itself, and these. */
typedef enum tri_key {
    TRI_KEY_NONE = 0,
    TRI_KEY_ESCAPE = 27,
    TRI_KEY_UP = 256,
    TRI_KEY_DOWN,
    TRI_KEY_LEFT,
    TRI_KEY_RIGHT,
    TRI_KEY_PAGE_UP,
    TRI_KEY_PAGE_DOWN,
    TRI_KEY_HOME,
    TRI_KEY_END,
    TRI_KEY_SCREEN, /* nothing: the screen has another size, or what was on it has gone */
    TRI_KEY_CLOSED, /* nothing: the terminal has gone */
} tri_key;

/* Standard input and output are terminals. */
bool tri_terminal_is(void);
/* Takes it. TRI_EIO: it cannot be; nothing has changed then. After tri_stop_catch(), whose signals it passes on. */
tri_status tri_terminal_open(void);
/* The former settings and screen are back. Without an open one nothing. */
void tri_terminal_close(void);
/* The next key, at the deadline TRI_KEY_NONE, as when a signal asks to stop. */
int tri_terminal_key(int64_t deadline_ns);
/* Whether it may be drawn on now: not while the program is in the background. */
bool tri_terminal_is_shown(void);
/* Of standard output, also where that is no terminal: 80 columns then, and rows 0. */
void tri_terminal_measure(int *columns, int *rows);

#endif
