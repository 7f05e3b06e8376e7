/* SPDX-License-Identifier: Apache-2.0
 *
 * pick.h: the next token from logits: the greatest, or one drawn.
 */
#ifndef TRI_GENERATE_PICK_H
#define TRI_GENERATE_PICK_H

#include <stdint.h>

#include "base/status.h"

typedef struct tri_pick_rule {
    double temperature; /* 0: always the token with the greatest logit, of equals the first */
    int64_t top_k;      /* drawn from this many at most; 0: all */
    double top_p;       /* drawn from the fewest that have this probability together */
    double repeat;      /* logits of tokens that were there: above 0 divided by it, below multiplied; 1: as they are */
    uint64_t seed;
} tri_pick_rule;

typedef struct tri_picker tri_picker;
/* For vocabularies of at most `words`. */
tri_status tri_picker_create(int64_t words, tri_picker **out);
void tri_picker_destroy(tri_picker *picker);
/* logits[words] may be changed. The draw is a function of (seed, count) and the logits alone: count tokens are before
 * it. NaN is never picked, unless all are. */
int32_t tri_pick(tri_picker *picker, float *logits, int64_t words, const tri_pick_rule *rule, const int32_t *before,
                 int64_t count);

#endif
