/* SPDX-License-Identifier: Apache-2.0
 *
 * journal.h: a small table of names and bytes in one file, by which a new launcher knows what a killed one knew.
 *
 * Each change is one record at the end of the file, written before anybody hears of it. The file is locked
 * while the process lives that has it open: two cannot hold it. It outlives processes, not machines: one that another
 * start of the machine wrote counts as empty, since its end may be missing (docs/design/recovery.md).
 */
#ifndef TRI_CLUSTER_JOURNAL_H
#define TRI_CLUSTER_JOURNAL_H

#include "base/containers.h"
#include "base/runtime.h"

typedef struct tri_journal tri_journal;

/* Opens a file that nobody but this user can have written, and never waits. flags: of open(); forbidden: bits of the
 * mode, such as 022. TRI_ECONFIG: it is no file, or has another owner or mode, which the message names. TRI_ENOTFOUND,
 * TRI_EIO: it cannot be opened. *fd is -1 then. */
tri_status tri_journal_file_open(const char *path, int flags, unsigned forbidden, int *fd);
/* Makes the file (mode 0600: it holds the job's token) where there is none. TRI_ECONFIG while another process has it
 * open, and of a file of another user, or that others can read or write. */
tri_status tri_journal_open(const char *path, tri_journal **out);
/* bytes NULL: the key goes. Calls of several threads queue. A journal that cannot be written any more is emptied, so
 * that nobody continues from a part of it, and says so once. */
void tri_journal_put(tri_journal *journal, const char *key, const void *bytes, size_t nbytes);
/* Calls fn with each key that is there and its value, which has a 0 byte after it, in no order. */
typedef tri_status (*tri_journal_visit)(void *arg, const char *key, const char *bytes, size_t nbytes);
tri_status tri_journal_each(tri_journal *journal, tri_journal_visit fn, void *arg);
/* Begins again with no key. */
tri_status tri_journal_clear(tri_journal *journal);
/* remove: the work is done, nobody needs the file. NULL is allowed. */
void tri_journal_close(tri_journal *journal, bool remove);

#endif
