/* SPDX-License-Identifier: Apache-2.0
 *
 * 09_own_loop.c: step by step, with a rule of your own for when to stop.
 */
#include "example.h"

static const char config[] = "model: {name: mlp, hidden: [64]}\n"
                             "data: {name: synthetic}\n"
                             "train: {batch: 64, epochs: 50}\n"
                             "optim: {lr: 0.05}\n";

int main(void)
{
    tri_comm *comm;
    tri_job *job;
    tri_job_result result;
    check(tri_comm_join(60, &comm));
    check(tri_job_open(&(tri_job_setup){.config_text = config, .comm = comm}, &job));
    double smooth = 3;
    for (bool done = false; !done && smooth > 0.5;) {
        check(tri_job_step(job, &done));
        check(tri_job_result_read(job, &result));
        smooth = 0.9 * smooth + 0.1 * result.loss; /* the same on every rank: all stop together */
    }
    if (tri_group_rank(tri_comm_world(comm)) == 0)
        printf("stopped after step %lld of %lld at a loss of %.2f\n", (long long)result.step, (long long)result.steps,
               smooth);
    tri_job_close(job);
    tri_comm_leave(comm);
    return smooth <= 0.5 ? 0 : 1;
}
