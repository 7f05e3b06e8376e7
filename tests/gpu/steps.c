/* SPDX-License-Identifier: Apache-2.0
 *
 * steps.c: a program that trains step by step (<trireme/train.h>) by NCCL, whose last rank is behind the others.
 *
 * usage: FAKE_NCCL=held=FILE trireme launch -n RANKS -- gpu_steps FILE OPTION...
 * In the last of three steps the last rank gets nothing of the others' weights before rank 0 waits for it in
 * tri_job_close(), or has left. Each rank prints its weights.
 */
#include <stdio.h>
#include <unistd.h>

#include <trireme/comm.h>
#include <trireme/train.h>

#include "base/fs.h"
#include "base/status.h"

enum { JOIN_S = 60, STEPS = 3 };

static const char *held_path;
static bool closing, releases;

tri_status __real_tri_barrier(tri_group *group, tri_work **work);
tri_status __wrap_tri_barrier(tri_group *group, tri_work **work);

static void release(void)
{
    if (releases)
        (void)unlink(held_path);
}

tri_status __wrap_tri_barrier(tri_group *group, tri_work **work)
{
    if (closing)
        release();
    return __real_tri_barrier(group, work);
}

static tri_status steps_make(tri_job *job, bool is_last)
{
    bool done = false;
    tri_job_result result;
    for (int step = 0; step < STEPS; step++) {
        if (is_last && step == STEPS - 1)
            TRI_TRY(tri_fs_write_atomic(held_path, "", 0));
        TRI_TRY(tri_job_step(job, &done));
    }
    TRI_TRY(tri_job_result_read(job, &result));
    printf("step %lld of %lld, weights: xxh3 %016llx\n", (long long)result.step, (long long)result.steps,
           (unsigned long long)result.weights_hash);
    return TRI_OK;
}

int main(int argc, char **argv)
{
    tri_comm *comm = NULL;
    tri_job *job = NULL;
    if (argc < 2)
        return 2;
    held_path = argv[1];
    tri_status status = tri_comm_join(JOIN_S, &comm);
    if (status == TRI_OK)
        status = tri_job_open(&(tri_job_setup){.comm = comm, .overrides = (const char *const *)argv + 2}, &job);
    const int rank = comm ? tri_group_rank(tri_comm_world(comm)) : 0;
    if (status == TRI_OK)
        status = steps_make(job, rank == tri_group_count(tri_comm_world(comm)) - 1);
    if (status != TRI_OK)
        fprintf(stderr, "error: %s\n", tri_last_error());
    closing = true;
    releases = rank == 0;
    tri_job_close(job);
    tri_comm_leave(comm);
    release();
    return status == TRI_OK ? 0 : 1;
}
