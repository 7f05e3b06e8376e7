/* SPDX-License-Identifier: Apache-2.0
 *
 * gather.h: the canonical sum of rows by key: what tables/sum.h is for a dense block.
 *
 * Each part (a whole subtree of the batch's shards) brings the rows of the keys that it has touched; most keys are in
 * few parts. When all parts are here, the rows of each key are added in the order of the tree, where what is absent is
 * left out (absent + x = x): the same bits whatever order parts come in and however workers share them out. Included by
 * files of ps/ and their tests only.
 */
#ifndef TRI_PS_GATHER_H
#define TRI_PS_GATHER_H

#include "base/containers.h"
#include "ps/tables/rows.h"
#include "tensor/tree.h"

typedef struct ps_gather_part ps_gather_part;

typedef struct ps_gather {
    int64_t leaves; /* a power of two */
    int dim;
    ps_gather_part *parts; /* [part_count] in order of leaves */
    int part_count, part_room;
    int64_t leaves_here, entries; /* rows of all parts */
    bool dropped;
    uint64_t *keys; /* after ps_gather_finish(): [count] ascending, */
    float *rows;    /* [count * dim] their sums; NULL: not finished */
    int64_t count;
} ps_gather;

/* Ends with ps_gather_fini() whatever is returned. TRI_EINVAL: leaves is no power of two, or dim no number of values.
 */
tri_status ps_gather_init(ps_gather *gather, int64_t leaves, int dim);
void ps_gather_fini(ps_gather *gather);
/* Copies the rows of a part; keys in any order, one that comes twice has the sum of its rows in this order. A part
 * without rows is a part too. TRI_EINVAL: there is no such part, it overlaps one that is here, or it was dropped. */
tri_status ps_gather_take(ps_gather *gather, tri_tree_part part, const uint64_t *keys, const float *rows,
                          int64_t count);
/* Are all leaves of the part here? */
bool ps_gather_has(const ps_gather *gather, tri_tree_part part);
/* Leaves that are here. */
int64_t ps_gather_count(const ps_gather *gather);
/* What is not here will not come. */
void ps_gather_drop(ps_gather *gather);
bool ps_gather_is_whole(const ps_gather *gather);
/* Adds up; the parts must be whole, and their rows are used up. TRI_ENOMEM: it may be tried again. */
tri_status ps_gather_finish(ps_gather *gather);
/* For the next step. */
void ps_gather_reset(ps_gather *gather);

/* Appends what is here, which is not finished. */
tri_status ps_gather_write(const ps_gather *gather, tri_string *out);
/* Puts it in place of what is here. TRI_EFORMAT: bytes of no such parts, or of another number of leaves or values; then
 * nothing is here. */
tri_status ps_gather_read(ps_gather *gather, const void *bytes, size_t nbytes);

#endif
