/* SPDX-License-Identifier: Apache-2.0
 *
 * label.h: a class as the target of a sample, or two classes with a weight, in one i32: what data with mixup or cutmix
 * hand to cross_entropy.
 *
 * Below 2^30 (and negative: no target) it is a class. Else bits 0 to 9 are the first class, 10 to 19 the second one,
 * and 20 to 29 the weight of the first in 1024ths; the second has the rest.
 */
#ifndef TRI_TENSOR_LABEL_H
#define TRI_TENSOR_LABEL_H

#include <stdint.h>

#define TRI_LABEL_MIXED   (INT32_C(1) << 30)
#define TRI_LABEL_CLASSES 1024 /* that a mixed one can name */
#define TRI_LABEL_WHOLE   1024 /* weight of a class alone */

typedef struct tri_label {
    int32_t first, second;
    float weight; /* of the first */
} tri_label;

static inline tri_label tri_label_read(int32_t target)
{
    if (target < TRI_LABEL_MIXED)
        return (tri_label){target, target, 1};
    return (tri_label){target & 1023, target >> 10 & 1023, (float)(target >> 20 & 1023) / TRI_LABEL_WHOLE};
}

/* weight: of the first, 0 to TRI_LABEL_WHOLE. */
static inline int32_t tri_label_mix(int32_t first, int32_t second, int32_t weight)
{
    if (first == second || weight >= TRI_LABEL_WHOLE)
        return first;
    return weight <= 0 ? second : TRI_LABEL_MIXED | first | second << 10 | weight << 20;
}

/* The class with the larger weight. */
static inline int32_t tri_label_main(int32_t target)
{
    const tri_label label = tri_label_read(target);
    return label.weight >= 0.5f ? label.first : label.second;
}

#endif
