/* SPDX-License-Identifier: Apache-2.0
 *
 * closed.h: address space that nobody may touch, and parts of which may be opened for reading and writing.
 *
 * For memory that only some code may use: the rest holds addresses behind which there is nothing.
 */
#ifndef TRI_BASE_CLOSED_H
#define TRI_BASE_CLOSED_H

#include <stddef.h>

#include "base/status.h"

/* nbytes of address space, a multiple of TRI_CLOSED_PAGE, all of it closed; NULL when there is none (TRI_ENOMEM). */
#define TRI_CLOSED_PAGE ((size_t)4096)
void *tri_closed_reserve(size_t nbytes);
void tri_closed_release(void *space, size_t nbytes);
/* Whole pages of it become readable and writable zeros; or closed again, and what they held is gone. */
tri_status tri_closed_open(void *pages, size_t nbytes);
void tri_closed_close(void *pages, size_t nbytes);
/* Whoever touches [first, first + nbytes) while it is closed dies of SIGSEGV, as anywhere, but behind a line
 * "error: `what` at 0x...", with the return addresses below it. what must outlive it. No more than 64 at a time are
 * named. */
void tri_closed_name(const void *first, size_t nbytes, const char *what);
void tri_closed_unname(const void *first);

#endif
