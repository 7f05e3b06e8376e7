/* SPDX-License-Identifier: Apache-2.0
 *
 * 11_layouts.c: one training, once on each rank alone and then shared out by all of them in every way that their number
 * allows: data, sharded state, stages of a pipeline, parts of layers. The weights are the same to the bit. A hook keeps
 * each element of the gradient below a bound, wherever it is.
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

int main(void)
{
    static const char *const layouts[][3] = {
        {"parallel.data=auto"},
        {"parallel.sync=zero1"},
        {"parallel.sync=zero2"},
        {"parallel.sync=zero3"},
        {"parallel.pipeline=auto", "parallel.data=1"},
        {"parallel.tensor=auto", "parallel.data=1"},
    };
    tri_comm *comm;
    check(tri_comm_join(60, &comm));
    int ranks = tri_group_count(tri_comm_world(comm)), rank = tri_group_rank(tri_comm_world(comm)), differ = 0;
    uint64_t alone = train(NULL, NULL);
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        if (i == 5 && (ranks & (ranks - 1)) != 0) /* tensor ranks are a power of two */
            continue;
        uint64_t hash = train(comm, layouts[i]);
        differ += hash != alone;
        if (rank == 0)
            printf("%-24s %d ranks, weights %016llx\n", layouts[i][0], ranks, (unsigned long long)hash);
    }
    tri_comm_leave(comm);
    return differ == 0 ? 0 : 1;
}
