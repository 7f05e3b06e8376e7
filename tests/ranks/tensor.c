/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor.c: models in four parts have the same bits on 1, 2 and 4 tensor ranks: losses, gradients and weights of every
 * step; and failures inside of a sum end the run.
 */
#include "parallel/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/status.h"
#include "nn/graph.h"
#include "ranks/comm_spawn.h"

enum { PARTS = 4, SHARDS = 4, ROWS = 2, STEPS = 3, LENGTH = 8, WORDS = 13, MAX_PARAMS = 256 };

static const char *const models[] = {
    "{name: gpt2, n_layer: 2, n_head: 4, n_embd: 16, n_inner: 24, resid_pdrop: 0.2, embd_pdrop: 0.1, "
    "initializer_range: 0.3}",
    "{name: gpt2, n_layer: 2, n_head: 4, n_embd: 16, n_inner: 24, resid_pdrop: 0.2, tie_word_embeddings: false, "
    "checkpoint: true, initializer_range: 0.3, smoothing: 0.1}",
    "{name: llama, num_hidden_layers: 2, num_attention_heads: 8, num_key_value_heads: 4, head_dim: 4, hidden_size: 12, "
    "intermediate_size: 20, attention_bias: true, initializer_range: 0.3, tie_word_embeddings: true}",
    "{name: mlp, hidden: [16, 9, 8], dropout: 0.25}",
};

typedef struct tensor_case {
    const char *model;
    tri_dtype precision;
    int threads;
    bool sequence;
    /* what one rank with all parts came to */
    float *grads[STEPS][MAX_PARAMS], *values[MAX_PARAMS];
    float sums[STEPS][SHARDS][4];
} tensor_case;

typedef struct tensor_run {
    tri_model *model;
    tri_params *params;
    tri_graph *graph;
    float *grads;
    tri_batch batch;
    int32_t rows[SHARDS];
    int64_t first_sample[SHARDS];
    int32_t input[SHARDS * ROWS * LENGTH], target[SHARDS * ROWS * LENGTH];
} tensor_run;

static bool is_mlp(const tensor_case *c)
{
    return strstr(c->model, "mlp,") != NULL;
}

/* One target does not count, one shard has one sample, one has none. */
static void batch_fill(tensor_run *r, const tensor_case *c)
{
    r->batch = (tri_batch){
        .shards = SHARDS, .rows = r->rows, .first_sample = r->first_sample, .input = r->input, .target = r->target};
    for (int s = 0; s < SHARDS; s++) {
        r->rows[s] = s == 2 ? 1 : s == 3 ? 0 : ROWS;
        r->first_sample[s] = s * ROWS;
        for (int64_t i = s * ROWS * LENGTH; i < (s * ROWS + r->rows[s]) * LENGTH; i++) {
            float real = tri_rng_normal((tri_rng){7, 1}, (uint64_t)i);
            r->input[i] = (int32_t)tri_rng_below((tri_rng){7, 2}, (uint64_t)i, WORDS);
            if (is_mlp(c))
                memcpy(&r->input[i], &real, sizeof(real));
            r->target[i] = (int32_t)tri_rng_below((tri_rng){7, 3}, (uint64_t)i, is_mlp(c) ? 5 : WORDS);
        }
    }
    r->target[3] = -1;
}

static tri_status run_open(tensor_run *r, const tensor_case *c, int ranks, int rank)
{
    tri_arena arena = {0};
    tri_yaml *root = NULL;
    int64_t length = LENGTH;
    *r = (tensor_run){0};
    tri_status status = tri_yaml_parse(&arena, c->model, strlen(c->model), "m.yaml", &root);
    if (status == TRI_OK)
        status = tri_model_build_split(root, (tri_model_split){PARTS, ranks, rank, c->sequence},
                                       tri_shape_make(1, &length), is_mlp(c) ? 5 : WORDS, &r->model);
    tri_arena_fini(&arena);
    TRI_TRY(status);
    TRI_TRY(tri_params_create(r->model, tri_device_host(), 3, &r->params));
    tri_graph_config config = {.kind = "cpu",
                               .rows = ROWS,
                               .shards = SHARDS,
                               .threads = c->threads,
                               .training = true,
                               .seed = 9,
                               .precision = c->precision};
    TRI_TRY(tri_graph_compile(r->model, r->params, &config, &r->graph));
    r->grads = calloc((size_t)(tri_params_grad_count(r->params) + TRI_PARAMS_TAIL), sizeof(float));
    tri_tree_part whole = {0, SHARDS};
    batch_fill(r, c);
    return tri_graph_grads_set(r->graph, 1, &whole, &r->grads);
}

static void run_close(tensor_run *r)
{
    free(r->grads);
    tri_graph_destroy(r->graph);
    tri_params_destroy(r->params);
    tri_model_destroy(r->model);
}

static tri_status run_step(tensor_run *r, uint64_t step, const float (**sums)[4])
{
    TRI_TRY(tri_graph_forward(r->graph, &r->batch, step, true, sums));
    TRI_TRY(tri_graph_backward(r->graph, NULL, NULL));
    tri_params_fold(r->params, 1, r->grads);
    return TRI_OK;
}

static void run_move(tensor_run *r)
{
    for (int64_t i = 0; i < r->params->count; i++)
        r->params->values[i] -= 0.01f * r->grads[i];
}

/* --- one rank with all parts --- */

static float *copy_of(const float *values, int64_t count)
{
    float *copy = malloc((size_t)count * sizeof(float));
    memcpy(copy, values, (size_t)count * sizeof(float));
    return copy;
}

static void run_alone(tensor_case *c)
{
    tensor_run r;
    const float(*sums)[4];
    if (run_open(&r, c, 1, 0) != TRI_OK)
        fail_msg("%s: %s", c->model, tri_last_error());
    assert_true(r.params->entry_count <= MAX_PARAMS);
    for (int step = 0; step < STEPS; step++) {
        assert_int_equal(run_step(&r, (uint64_t)step, &sums), TRI_OK);
        memcpy(c->sums[step], sums, sizeof(c->sums[step]));
        assert_true(sums[0][0] > 0 && sums[0][0] < 1000);
        for (int e = 0; e < r.params->entry_count; e++)
            c->grads[step][e] = copy_of(r.grads + r.params->entries[e].first, r.params->entries[e].count);
        run_move(&r);
    }
    assert_true(c->sums[STEPS - 1][0][0] != c->sums[0][0][0]);
    for (int e = 0; e < r.params->entry_count; e++)
        c->values[e] = copy_of(r.params->values + r.params->entries[e].first, r.params->entries[e].count);
    run_close(&r);
}

static void case_free(tensor_case *c)
{
    for (int p = 0; p < MAX_PARAMS; p++) {
        free(c->values[p]);
        for (int step = 0; step < STEPS; step++)
            free(c->grads[step][p]);
    }
}

/* --- several ranks --- */

static void expect_same(spawn_rank *self, const tri_params *params, const float *got, float *const *want)
{
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        bool same = memcmp(got + entry->first, want[entry->number], (size_t)entry->count * sizeof(float)) == 0;
        if (!same)
            fprintf(stderr, "rank %d of %d: %s, piece %d\n", self->rank, self->world, entry->name, entry->piece.part);
        SPAWN_CHECK(self, same);
    }
}

static void steps_compare(spawn_rank *self, const tensor_case *c, tensor_run *r)
{
    for (int step = 0; step < STEPS; step++) {
        const float(*sums)[4];
        tri_status status = run_step(r, (uint64_t)step, &sums);
        SPAWN_CHECK(self, status == TRI_OK);
        if (status != TRI_OK)
            return;
        SPAWN_CHECK(self, memcmp(sums, c->sums[step], sizeof(c->sums[step])) == 0);
        expect_same(self, r->params, r->grads, c->grads[step]);
        run_move(r);
    }
    expect_same(self, r->params, r->params->values, c->values);
}

static void body(spawn_rank *self, void *arg)
{
    const tensor_case *c = arg;
    tensor_run r;
    tri_tensor_ranks *tensor = NULL;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    tri_status status = run_open(&r, c, self->world, self->rank);
    if (status == TRI_OK)
        status = tri_tensor_ranks_create(tri_comm_world(comm), &tensor);
    SPAWN_CHECK(self, status == TRI_OK);
    if (status == TRI_OK) {
        tri_op_ranks across = tri_tensor_ranks_across(tensor);
        tri_graph_across_set(r.graph, &across);
        steps_compare(self, c, &r);
        SPAWN_CHECK(self, tri_tensor_ranks_spent_ns(tensor) > 0);
    }
    tri_tensor_ranks_destroy(tensor);
    run_close(&r);
    tri_comm_leave(comm);
}

static void case_run(tensor_case *c)
{
    c->threads = 1;
    run_alone(c);
    for (int world = 2; world <= PARTS; world *= 2) {
        spawn_config config = {.kind = world == 2 ? SPAWN_SHM : SPAWN_INPROC, .world = world};
        c->threads = world == 2 ? 2 : 1;
        if (!spawn_ranks(&config, body, c))
            fail_msg("%d ranks, %s, sequence %d: %s", world, tri_dtype_name(c->precision), c->sequence, c->model);
    }
    case_free(c);
}

static void bits_do_not_depend_on_the_ranks(void **state)
{
    (void)state;
    for (size_t m = 0; m < TRI_COUNT_OF(models); m++)
        for (int half = 0; half < 2; half++)
            for (int sequence = 0; sequence < 2; sequence++) {
                tensor_case c = {.model = models[m], .precision = half ? TRI_BF16 : TRI_F32, .sequence = sequence != 0};
                if (!sequence || !is_mlp(&c))
                    case_run(&c);
            }
}

/* --- what goes wrong --- */

static tri_status failing(void *arg)
{
    int *left = arg;
    return --*left >= 0 ? TRI_OK : tri_fail(TRI_ETIMEOUT, "nobody answers");
}

static tri_status failing_sum(void *arg, void *data, int64_t count, tri_dtype dtype)
{
    (void)data;
    (void)count;
    (void)dtype;
    return failing(arg);
}

static tri_status failing_gather(void *arg, const void *in, void *out, int64_t count, tri_dtype dtype)
{
    (void)in;
    memset(out, 0, (size_t)count * 2 * tri_dtype_nbytes(dtype));
    return failing(arg);
}

/* Exchanges of a run, each of which is let fail in turn. */
static int exchanges_fail(const tensor_case *c)
{
    tensor_run r;
    const float(*sums)[4];
    int failures = 0;
    assert_int_equal(run_open(&r, c, 2, 1), TRI_OK);
    assert_int_equal(run_step(&r, 0, &sums), TRI_EINVAL);
    assert_non_null(strstr(tri_last_error(), "tri_graph_across_set() before a run, 2 ranks share out the model"));
    for (tri_status status = TRI_ETIMEOUT; status != TRI_OK;) {
        int left = failures;
        tri_graph_across_set(r.graph, &(tri_op_ranks){.sum = failing_sum, .gather = failing_gather, .arg = &left});
        status = run_step(&r, 0, &sums);
        assert_true(status == TRI_OK || status == TRI_ETIMEOUT);
        assert_int_equal(left, status == TRI_OK ? 0 : -1);
        failures += status == TRI_ETIMEOUT;
    }
    run_close(&r);
    return failures;
}

static void an_exchange_that_fails_ends_the_run(void **state)
{
    (void)state;
    tensor_case c = {.model = models[1], .precision = TRI_F32, .threads = 1};
    /* Up: embedding, two a layer, loss; again: the first of each layer; down: two a layer, and the loss's. */
    assert_int_equal(exchanges_fail(&c), 1 + 2 * 2 + 1 + 2 + 2 * 2 + 1);
    c.sequence = true;
    /* Up: embedding, four a layer, two of the loss; again: three a layer; down: the loss's, two each of the norms, four
     * a layer and its biases, the embedding's, positions. */
    assert_int_equal(exchanges_fail(&c), 1 + 2 * 4 + 2 + 2 * 3 + 1 + 5 * 2 + 2 * (4 + 2) + 1 + 1);
}

static void three(spawn_rank *self, void *arg)
{
    (void)arg;
    tri_tensor_ranks *tensor = NULL;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    SPAWN_CHECK(self, tri_tensor_ranks_create(tri_comm_world(comm), &tensor) == TRI_EINVAL);
    SPAWN_CHECK(self, strstr(tri_last_error(), "want a power of two of ranks, got 3") != NULL);
    tri_comm_leave(comm);
}

/* The others hear of it in the middle of their steps. */
static void one_gives_up(spawn_rank *self, void *arg)
{
    const tensor_case *c = arg;
    tensor_run r;
    const float(*sums)[4];
    tri_tensor_ranks *tensor = NULL;
    tri_comm *comm = comm_spawn_open(self, NULL, NULL);
    if (!comm)
        return;
    SPAWN_CHECK(self, run_open(&r, c, self->world, self->rank) == TRI_OK);
    SPAWN_CHECK(self, tri_tensor_ranks_create(tri_comm_world(comm), &tensor) == TRI_OK);
    spawn_barrier(self);
    tri_op_ranks across = tri_tensor_ranks_across(tensor);
    tri_graph_across_set(r.graph, &across);
    if (self->rank == 2) {
        tri_comm_abort(comm, TRI_EIO, "this rank is tired");
    } else {
        SPAWN_CHECK(self, run_step(&r, 0, &sums) != TRI_OK);
        SPAWN_CHECK(self, strstr(tri_last_error(), "over tensor ranks") != NULL);
    }
    tri_tensor_ranks_destroy(tensor);
    run_close(&r);
    tri_comm_leave(comm);
}

static void what_cannot_go_on_is_said(void **state)
{
    (void)state;
    tensor_case c = {.model = models[0], .precision = TRI_F32, .threads = 1};
    spawn_config config = {.kind = SPAWN_INPROC, .world = 3};
    assert_true(spawn_ranks(&config, three, NULL));
    config.world = 4;
    assert_true(spawn_ranks(&config, one_gives_up, &c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_the_ranks),
        cmocka_unit_test(an_exchange_that_fails_ends_the_run),
        cmocka_unit_test(what_cannot_go_on_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
