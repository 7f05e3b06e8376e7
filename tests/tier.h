/* SPDX-License-Identifier: Apache-2.0
 *
 * tier.h: how much of a long table of cases a test runs.
 */
#ifndef TRI_TESTS_TIER_H
#define TRI_TESTS_TIER_H

#include <stddef.h>
#include <stdlib.h>

/* All with `make test-all`, else the first `few`. */
static inline size_t tests_count(size_t all, size_t few)
{
    return getenv("TRIREME_TEST_ALL") || few > all ? all : few;
}

#endif
