/* SPDX-License-Identifier: Apache-2.0
 *
 * ops.h: what the files of test_ops share: the device, and copies of arrays on a card.
 */
#ifndef TRI_TESTS_GPU_OPS_H
#define TRI_TESTS_GPU_OPS_H

#include "kernel/gpu/rows.h"

extern tri_device ops_device;
extern tri_device *card; /* NULL: the emulator, whose memory is the host's */
extern bool few;         /* the first case of each op, and those of tiles that it has not */

/* Arrays of a call and their copies on the card. */
typedef struct mirror {
    struct {
        void *host, *there;
        size_t nbytes;
    } list[2 * TRI_OP_MAX_INPUTS + 2 * TRI_OP_MAX_PARAMS + 6];
    int count;
} mirror;

/* A copy on the card; NULL: there is none of NULL. */
void *mirror_add(mirror *m, const void *host, size_t nbytes);
/* Where kernels find an array: a copy on the card, or the array itself. */
void *mirror_place(mirror *m, const void *host, size_t nbytes);
/* Copies come back. */
void mirror_end(mirror *m);

/* Tests of kernels that are launched alone, and of what they have in common. */
void tanh_has_the_bits_of_its_formula(void **state);
void columns_in_fours_give_the_bits_of_columns_one_by_one(void **state);
void tiles_of_all_forms_give_the_same_bits(void **state);
void large_tiles_are_for_large_products_on_multiples_of_16_bytes(void **state);

#endif
