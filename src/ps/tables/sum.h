/* SPDX-License-Identifier: Apache-2.0
 *
 * sum.h: the canonical sum (docs/bits.md) of a block of elements on a server, whatever order the parts come in.
 *
 * Workers send whole subtrees. Two siblings are added, left + right, as soon as both are here, so a server holds few
 * buffers, and the root has the bits of tri_tree_plan(). A part is received into a *room*, a buffer of the sum's own.
 * No part is ever counted twice: one that overlaps what is here or awaited is refused. Included by files of ps/ only.
 */
#ifndef TRI_PS_SUM_H
#define TRI_PS_SUM_H

#include "base/containers.h"
#include "tensor/tree.h"

typedef struct ps_sum_slot ps_sum_slot;

typedef struct ps_sum {
    int64_t leaves;     /* a power of two */
    int64_t elements;   /* of each buffer */
    ps_sum_slot *slots; /* [slot_count] what is here or awaited, in order of leaves; no two overlap */
    int slot_count, slot_room;
    int awaited;         /* slots whose buffer is still being received */
    int64_t leaves_here; /* of parts that were taken */
    bool dropped;        /* what has no slot will not come */
    bool apart;          /* nothing is added before ps_sum_drop(): the owner's, set once */
    float **forgone;     /* [forgone_count] rooms still being received that nobody needs any more */
    int forgone_count, forgone_room;
    float **pool; /* [pool_count] buffers that nobody uses */
    int pool_count, pool_room;
} ps_sum;

/* Ends with ps_sum_fini() whatever is returned. TRI_EINVAL: leaves is no power of two, or there are no elements. */
tri_status ps_sum_init(ps_sum *sum, int64_t leaves, int64_t elements);
void ps_sum_fini(ps_sum *sum);
/* A buffer of `elements`, 64-byte aligned, to receive this part into; the sum's own, until it is taken or left.
 * TRI_EINVAL: there is no such part, it overlaps one that is here or awaited, or it was dropped. */
tri_status ps_sum_room(ps_sum *sum, tri_tree_part part, float **out);
/* The room holds its part: adds what can be added; one that was forgone goes. TRI_EINVAL: no such room is awaited. */
tri_status ps_sum_take(ps_sum *sum, tri_tree_part part, const float *room);
/* The room will not be filled (its sender is gone): the part may be asked for again. */
tri_status ps_sum_leave(ps_sum *sum, tri_tree_part part, const float *room);
/* Are all leaves of the part in the sum, so that a sender that does not know may skip it? Once a sum that was dropped
 * is whole it does not know any more. */
bool ps_sum_has(const ps_sum *sum, tri_tree_part part);
/* Leaves that are in the sum. */
int64_t ps_sum_count(const ps_sum *sum);
/* What is in these leaves, which are those of whole slots, is not part of the sum; of a sum that is kept apart. */
void ps_sum_forgo(ps_sum *sum, int64_t first, int64_t count);
/* Finishes with what is here and awaited: what is absent is left out of its sum (absent + x = x). */
void ps_sum_drop(ps_sum *sum);
/* All leaves are in the sum, or all that were not dropped. */
bool ps_sum_is_whole(const ps_sum *sum);
/* The whole sum, valid until the next call but those that ask; NULL: it is not whole, or nothing came. */
float *ps_sum_root(const ps_sum *sum);
/* Puts in what `other`, a sum of as many leaves and elements, has and this one has not. No room may be awaited. */
tri_status ps_sum_merge(ps_sum *sum, const ps_sum *other);
/* For the next step; keeps the memory. No room may be awaited. */
void ps_sum_reset(ps_sum *sum);

/* Appends what is here; rooms that are awaited are not. */
tri_status ps_sum_write(const ps_sum *sum, tri_string *out);
/* Puts it in place of what is here, where no room may be awaited. TRI_EFORMAT: bytes of no such sum, or of another
 * number of leaves or elements; then the sum is empty. */
tri_status ps_sum_read(ps_sum *sum, const void *bytes, size_t nbytes);

#endif
