/* SPDX-License-Identifier: Apache-2.0
 *
 * 11_layouts.c: one training, once on each rank alone and then shared out by all of them in every way that their number
 * allows: data, sharded state, stages of a pipeline, parts of layers, and those together. The weights are the same to
 * the bit. A hook keeps each element of the gradient below a bound, wherever it is.
 */
#include "example.h"

static const char config[] = "model: {name: mlp, hidden: [64, 64, 64]}\n"
                             "data: {name: synthetic}\n"
                             "train: {batch: 64, epochs: 1}\n"
                             "optim: {name: adamw, lr: 0.01, clip_norm: 1}\n"
                             "parallel: {tensor_parts: 4}\n";

/* The bound is one of the mean gradient. */
static tri_status bound(void *arg, const tri_gradient *gradient)
{
    float limit = *(const float *)arg / gradient->scale;
    for (int64_t i = 0; i < gradient->count; i++)
        if (gradient->values[i] > limit || gradient->values[i] < -limit)
            gradient->values[i] = gradient->values[i] > 0 ? limit : -limit;
    return TRI_OK;
}

static uint64_t train(tri_comm *comm, const char *const *layout)
{
    tri_job *job;
    tri_job_result result;
    float limit = 0.01f;
    check(tri_job_open(&(tri_job_setup){.config_text = config, .overrides = layout, .comm = comm}, &job));
    tri_job_gradient_hook(job, bound, &limit);
    check(tri_job_run(job));
    check(tri_job_result_read(job, &result));
    tri_job_close(job);
    return result.weights_hash;
}

/* How a number of ranks that `of` divides (0: a power of two) shares the training out. */
typedef struct layout {
    int of;
    const char *words[4];
} layout;
static const layout layouts[] = {
    {1, {"parallel.data=auto"}},
    {1, {"parallel.sync=zero1"}},
    {1, {"parallel.sync=zero2"}},
    {1, {"parallel.sync=zero3"}},
    {2, {"parallel.sync=zero3", "parallel.zero_ranks=2"}},
    {1, {"parallel.pipeline=auto", "parallel.data=1"}},
    {0, {"parallel.tensor=auto", "parallel.data=1"}},
    {4, {"parallel.tensor=2", "parallel.sync=zero2"}},
    {4, {"parallel.tensor=2", "parallel.pipeline=2", "parallel.sync=zero1"}},
};

int main(void)
{
    tri_comm *comm;
    check(tri_comm_join(60, &comm));
    int ranks = tri_group_count(tri_comm_world(comm)), rank = tri_group_rank(tri_comm_world(comm)), differ = 0;
    uint64_t alone = train(NULL, NULL);
    for (const layout *at = layouts; at < layouts + sizeof(layouts) / sizeof(layouts[0]); at++) {
        if (at->of > 0 ? ranks % at->of != 0 : (ranks & (ranks - 1)) != 0)
            continue;
        uint64_t hash = train(comm, at->words);
        differ += hash != alone;
        for (int i = 0; rank == 0 && at->words[i]; i++)
            printf("%s ", at->words[i]);
        if (rank == 0)
            printf("on %d ranks: weights %016llx\n", ranks, (unsigned long long)hash);
    }
    tri_comm_leave(comm);
    return differ == 0 ? 0 : 1;
}
