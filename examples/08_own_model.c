/* SPDX-License-Identifier: Apache-2.0
 *
 * 08_own_model.c: a model that no list of layers can say: two branches that meet again.
 */
#include "example.h"

static const char config[] = "data: {name: synthetic}\n"
                             "train: {batch: 64, epochs: 4}\n"
                             "optim: {name: adamw, lr: 0.01}\n";

static tri_model *build(void)
{
    tri_model *m;
    check(tri_model_create("branches", &m));
    tri_value x = tri_model_input(m, TRI_F32, tri_shape_make(1, (int64_t[]){32}));
    tri_value y = tri_model_target(m, TRI_I32, tri_shape_make(0, NULL));
    tri_value wide = tri_linear(m, x, (tri_linear_options){.units = 48, .relu = true, .name = "wide"});
    tri_value gate = tri_sigmoid(m, tri_linear(m, x, (tri_linear_options){.units = 48, .name = "gate"}));
    tri_value joined = tri_mul(m, wide, gate);
    tri_value both = tri_concat(m, (tri_value[]){joined, x}, 2, 0);
    tri_value logits = tri_linear(m, both, (tri_linear_options){.units = 10, .name = "head"});
    tri_cross_entropy(m, logits, y, 0.0f);
    check(tri_model_finish(m)); /* the first failure of any call above */
    return m;
}

int main(void)
{
    tri_comm *comm;
    tri_job *job;
    tri_job_result result;
    tri_model *model = build();
    check(tri_comm_join(60, &comm));
    check(tri_job_open(&(tri_job_setup){.config_text = config, .comm = comm, .model = model}, &job));
    check(tri_job_run(job));
    check(tri_job_result_read(job, &result));
    if (tri_group_rank(tri_comm_world(comm)) == 0)
        printf("%lld parameters, test accuracy %.3f, weights %016llx\n", (long long)tri_model_param_count(model),
               result.test_accuracy, (unsigned long long)result.weights_hash);
    tri_job_close(job);
    tri_model_destroy(model);
    tri_comm_leave(comm);
    return result.test_accuracy > 0.5 ? 0 : 1;
}
