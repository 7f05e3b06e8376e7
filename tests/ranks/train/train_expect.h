/* SPDX-License-Identifier: Apache-2.0
 *
 * train_expect.h: runs that must end well, with the same weights on all ranks. Include cmocka.h before.
 */
#ifndef TRI_TESTS_TRAIN_EXPECT_H
#define TRI_TESTS_TRAIN_EXPECT_H

#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "ranks/train/train_ranks.h"

/* Of ranks that may differ in their weights. */
static inline train_outcome expect_end(const train_case *test)
{
    train_outcome outcome = train_threads(test);
    if (outcome.status != TRI_OK)
        fail_msg("%d ranks, %d servers: %s", test->world, test->servers, outcome.message);
    return outcome;
}

static inline train_outcome expect_outcome(const train_case *test)
{
    train_outcome outcome = expect_end(test);
    assert_true(outcome.all_equal);
    return outcome;
}

static inline uint64_t expect_run(const train_case *test)
{
    return expect_outcome(test).hash;
}

/* How often that text stands in the run's metrics.jsonl. */
static inline int lines_with(const char *run_folder, const char *words)
{
    char path[256], *text;
    size_t nbytes;
    int count = 0;
    snprintf(path, sizeof(path), "%s/metrics.jsonl", run_folder);
    assert_int_equal(tri_fs_read(path, 0, &text, &nbytes), TRI_OK);
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++)
        count++;
    tri_free(text);
    return count;
}

#endif
