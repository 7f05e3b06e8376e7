/* SPDX-License-Identifier: Apache-2.0
 *
 * generate_rig.h: what the tests of generate/ share.
 */
#ifndef TRI_TESTS_GENERATE_RIG_H
#define TRI_TESTS_GENERATE_RIG_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/rng.h"

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TRI_OK)                                                                                          \
            fail_msg("%s: %s", #call, tri_last_error());                                                               \
    } while (0)

#endif
