/* SPDX-License-Identifier: Apache-2.0
 *
 * tier.h: how much of a long table of cases a test runs.
 */
#ifndef TRI_TESTS_TIER_H
#define TRI_TESTS_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TESTS_ALL true
#else
#define TESTS_ALL false
#endif

/* All with `make test-all` and under a sanitizer, else the first `few`. */
static inline size_t tests_count(size_t all, size_t few)
{
    return TESTS_ALL || getenv("TRIREME_TEST_ALL") || few > all ? all : few;
}

#endif
