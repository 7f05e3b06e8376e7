/* SPDX-License-Identifier: Apache-2.0
 *
 * tar.h: the entries of a tar file, one after the other: ustar, GNU long names, pax headers.
 *
 * Nothing is believed that is not within the file. Entries that are neither files nor folders, sparse files, and a file
 * that ends without its end mark are TRI_EFORMAT with the file and the place of the header.
 */
#ifndef TRI_DATA_TAR_TAR_H
#define TRI_DATA_TAR_TAR_H

#include "base/containers.h"
#include "data/stream.h"

typedef struct tri_tar {
    const tri_source *source;
    uint64_t at;          /* of the next header */
    tri_string name;      /* of the latest entry */
    tri_string long_name; /* that the next entry has; empty: its own */
    uint64_t long_nbytes; /* UINT64_MAX: its own */
} tri_tar;

typedef struct tri_tar_entry {
    const char *name;            /* valid until the next entry */
    uint64_t header, at, nbytes; /* of its first header, of its content */
} tri_tar_entry;

/* The source must outlive it. */
void tri_tar_open(tri_tar *tar, const tri_source *source);
/* The next file; *more false at the end. */
tri_status tri_tar_next(tri_tar *tar, tri_tar_entry *entry, bool *more);
void tri_tar_close(tri_tar *tar);

#endif
