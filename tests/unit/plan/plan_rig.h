/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_rig.h: what the tests of plan/ share.
 */
#ifndef TESTS_PLAN_RIG_H
#define TESTS_PLAN_RIG_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TRI_OK)                                                                                          \
            fail_msg("%s: %s", #call, tri_last_error());                                                               \
    } while (0)

#define NEAR(found, wanted)                                                                                            \
    do {                                                                                                               \
        if (!(fabs((double)(found) - (double)(wanted)) <= 1e-9 * fabs((double)(wanted))))                              \
            fail_msg("%s: want %.12g, got %.12g", #found, (double)(wanted), (double)(found));                          \
    } while (0)

#define FAILS(call, status, words)                                                                                     \
    do {                                                                                                               \
        assert_int_equal((call), (status));                                                                            \
        if (!strstr(tri_last_error(), words))                                                                          \
            fail_msg("want '%s' in '%s'", words, tri_last_error());                                                    \
    } while (0)

#endif
