/* SPDX-License-Identifier: Apache-2.0
 *
 * 12_slow_links.c: one training in the ways that are meant for slow links: gradients in fewer bytes, or workers that
 * meet now and then. What each sends and how well it learns, beside sending everything. Bits depend on the number of
 * ranks here, and on nothing else: what is trained twice ends with the same weights.
 */
#define _DEFAULT_SOURCE /* setenv */
#include "example.h"

static const char config[] = "model: {name: mlp, hidden: [64, 64]}\n"
                             "data: {name: synthetic}\n"
                             "train: {batch: 64, epochs: 3, on_nonfinite: skip}\n"
                             "optim: {name: adamw, lr: 0.005}\n"
                             "parallel: {compress_between: ranks, local_steps: 10}\n"; /* ranks: also inside a host */

typedef struct way {
    const char *name, *words[5];
} way;
static const way ways[] = {
    {"all of it", {"parallel.compress=none"}},
    {"in bf16", {"parallel.compress=bf16"}},
    {"in int8", {"parallel.compress=int8"}},
    {"the greatest 5 %", {"parallel.compress=topk", "parallel.compress_fraction=0.05"}},
    {"PowerSGD, rank 4", {"parallel.compress=powersgd", "parallel.compress_rank=4"}},
    {"local SGD", {"parallel.sync=local"}},
    {"DiLoCo", {"parallel.sync=diloco", "parallel.outer_momentum=0.5"}}, /* less than for thousands of steps */
    {"DiLoCo, streaming",
     {"parallel.sync=diloco", "parallel.outer_fragments=2", "parallel.outer_delay=4", "parallel.compress=int8"}},
};

/* Payload that this rank has sent to all others. */
static uint64_t sent(tri_comm *comm)
{
    uint64_t nbytes = 0;
    for (int rank = 0; rank < tri_group_count(tri_comm_world(comm)); rank++)
        nbytes += tri_comm_sent_to(comm, rank);
    return nbytes;
}

static tri_job_result train(tri_comm *comm, const way *at, double *step_nbytes)
{
    tri_job *job;
    tri_job_result result;
    check(tri_job_open(&(tri_job_setup){.config_text = config, .overrides = at->words, .comm = comm}, &job));
    uint64_t before = sent(comm);
    check(tri_job_run(job));
    check(tri_job_result_read(job, &result));
    *step_nbytes = (double)(sent(comm) - before) / (double)result.step;
    tri_job_close(job);
    return result;
}

int main(void)
{
    tri_comm *comm;
    setenv("TRIREME_COMM", "comm.transport=tcp", 0); /* as between hosts, so that bytes are counted */
    check(tri_comm_join(60, &comm));
    int failed = 0;
    double plain_loss = 0;
    for (const way *at = ways; at < ways + sizeof(ways) / sizeof(ways[0]); at++) {
        double nbytes;
        tri_job_result once = train(comm, at, &nbytes), twice = train(comm, at, &nbytes);
        if (at == ways)
            plain_loss = once.test_loss;
        failed += once.weights_hash != twice.weights_hash || !(once.test_loss < plain_loss + 0.3);
        if (tri_group_rank(tri_comm_world(comm)) == 0)
            printf("%-18s %8.0f bytes a step, test loss %.3f, weights %016llx\n", at->name, nbytes, once.test_loss,
                   (unsigned long long)once.weights_hash);
    }
    tri_comm_leave(comm);
    return failed == 0 ? 0 : 1;
}
