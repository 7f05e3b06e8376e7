/* SPDX-License-Identifier: Apache-2.0
 *
 * failing_open.h: opens a job again and again, each time with a later allocation of the host failing.
 */
#ifndef TRI_TESTS_FAILING_OPEN_H
#define TRI_TESTS_FAILING_OPEN_H

#include "base/memory.h"
#include "train/core/job.h"

/* Until a row of jobs open, no allocation being left to fail; `closed` (or NULL) is called after each job. Include
 * cmocka.h before. */
static inline void fail_each_allocation(const char *config, void (*closed)(void))
{
    int failures = 0, good_in_a_row = 0;
    for (uint64_t n = 1; good_in_a_row < 20; n++) {
        tri_job *job = NULL;
        tri_memory_fail_at(n);
        tri_status status = tri_job_open(&(tri_job_setup){.config_text = config}, &job);
        tri_memory_fail_at(0);
        assert_true(status == TRI_OK || status == TRI_ENOMEM);
        good_in_a_row = status == TRI_OK ? good_in_a_row + 1 : 0;
        failures += status != TRI_OK;
        tri_job_close(job);
        if (closed != NULL)
            closed();
        assert_true(n < 10000);
    }
    assert_true(failures > 100);
}

#endif
