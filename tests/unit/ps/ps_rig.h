/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_rig.h: what the tests of the folder share.
 */
#ifndef TRI_TESTS_PS_RIG_H
#define TRI_TESTS_PS_RIG_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/containers.h"
#include "base/rng.h"

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TRI_OK)                                                                                          \
            fail_msg("%s: %s", #call, tri_last_error());                                                               \
    } while (0)
#define FAILS(code, text, call)                                                                                        \
    do {                                                                                                               \
        assert_int_equal(call, code);                                                                                  \
        if (!strstr(tri_last_error(), text))                                                                           \
            fail_msg("want '%s' in '%s'", text, tri_last_error());                                                     \
    } while (0)

/* Numbers of one test, one after the other. */
typedef struct rig_random {
    tri_rng rng;
    uint64_t next;
} rig_random;

static inline uint64_t rig_below(rig_random *random, uint64_t bound)
{
    return tri_rng_below(random->rng, random->next++, bound);
}

static inline float rig_normal(rig_random *random)
{
    return tri_rng_normal(random->rng, 4 * random->next++);
}

/* `count` numbers from 0 on in any order. */
static inline void rig_shuffle(rig_random *random, int *order, int count)
{
    for (int i = 0; i < count; i++)
        order[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int other = (int)rig_below(random, (uint64_t)i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

#endif
