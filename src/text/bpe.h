/* SPDX-License-Identifier: Apache-2.0
 *
 * bpe.h: byte pair encoding: of all neighbours that a merge is known for, the one of the lowest rank becomes one token,
 * the leftmost first, until none is left. Sennrich, Haddow, Birch, "Neural machine translation of rare words with
 * subword units", ACL 2016.
 */
#ifndef TRI_TEXT_BPE_H
#define TRI_TEXT_BPE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"

typedef struct tri_merge {
    int32_t left, right; /* tokens; left -1: an empty slot */
    uint32_t rank;
    int32_t merged;
} tri_merge;

typedef struct tri_bpe {
    tri_merge *slots;
    size_t slot_count; /* a power of two, at least twice as many as merges */
    size_t count;
} tri_bpe;

/* Room for that many merges. */
tri_status tri_bpe_init(tri_bpe *bpe, size_t count);
/* A pair that is there already takes the new rank. */
void tri_bpe_add(tri_bpe *bpe, tri_merge merge);
void tri_bpe_fini(tri_bpe *bpe);

/* Room that merging long words needs; zeroed is empty. */
typedef struct tri_bpe_scratch {
    struct tri_bpe_node *nodes;
    struct tri_bpe_offer *heap;
    size_t node_capacity, heap_capacity, heap_count;
} tri_bpe_scratch;
void tri_bpe_scratch_fini(tri_bpe_scratch *scratch);

/* Merges tokens[0 .. *count) in place; at most INT32_MAX of them. */
tri_status tri_bpe_run(const tri_bpe *bpe, tri_bpe_scratch *scratch, int32_t *tokens, size_t *count);

#endif
