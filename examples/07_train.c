/* SPDX-License-Identifier: Apache-2.0
 *
 * 07_train.c: what `trireme train` does, from a program of your own: the configuration as text, the result as numbers.
 */
#include "example.h"

static const char config[] = "model: {name: mlp, hidden: [64]}\n"
                             "data: {name: synthetic}\n"
                             "train: {batch: 64, epochs: 4}\n"
                             "optim: {lr: 0.05}\n";

int main(void)
{
    tri_comm *comm;
    tri_job *job;
    tri_job_result result;
    check(tri_comm_join(60, &comm));
    check(tri_job_open(&(tri_job_setup){.config_text = config, .comm = comm}, &job));
    check(tri_job_run(job));
    check(tri_job_result_read(job, &result));
    if (tri_group_rank(tri_comm_world(comm)) == 0)
        printf("%lld steps, test accuracy %.3f, weights %016llx\n", (long long)result.step, result.test_accuracy,
               (unsigned long long)result.weights_hash);
    tri_job_close(job);
    tri_comm_leave(comm);
    return result.test_accuracy > 0.5 ? 0 : 1;
}
