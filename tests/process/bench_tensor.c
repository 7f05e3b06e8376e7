/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_tensor.c: time of a step (up, down, sums between ranks) of one model on the ranks of a job, data parallel and
 * tensor parallel. Built with the tests, run by hand:
 *
 *   trireme launch -n 2 -- bench_tensor data|tensor|sequence [f32|bf16] [batch] [seconds] [model]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/comm.h>

#include "base/rng.h"
#include "base/runtime.h"
#include "base/status.h"
#include "nn/graph.h"
#include "parallel/tensor.h"

enum { SHARDS = 8, LENGTH = 256, WORDS = 65, MAX_STEPS = 1000 };

#define GPT "{name: gpt2, n_layer: 6, n_head: 6, n_embd: 384, resid_pdrop: 0.2, embd_pdrop: 0.2}"

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TRI_OK) {                                                                                        \
            fprintf(stderr, "bench_tensor: %s\n", tri_last_error());                                                   \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef struct bench {
    tri_group *group;
    int rank, ranks, shards; /* of this rank */
    bool tensor, sequence;
    tri_tensor_ranks *sums;
    tri_model *model;
    tri_params *params;
    tri_graph *graph;
    float *grads;
    tri_batch batch;
    int32_t rows[SHARDS], *input, *target;
    int64_t first_sample[SHARDS];
} bench;

static void bench_open(bench *b, const char *text, tri_dtype precision, int rows)
{
    tri_arena arena = {0};
    tri_yaml *root = NULL;
    int64_t length = LENGTH;
    tri_model_split split = {b->ranks, b->ranks, b->rank, b->sequence};
    b->shards = b->tensor ? SHARDS : SHARDS / b->ranks;
    OK(tri_yaml_parse(&arena, text, strlen(text), "model", &root));
    OK(tri_model_build_split(root, b->tensor ? split : (tri_model_split){0}, tri_shape_make(1, &length), WORDS,
                             &b->model));
    tri_arena_fini(&arena);
    OK(tri_params_create(b->model, tri_device_find("cpu"), 1, &b->params));
    OK(tri_graph_compile(
        b->model, b->params,
        &(tri_graph_config){
            .kind = "cpu", .rows = rows, .shards = b->shards, .threads = 1, .training = true, .precision = precision},
        &b->graph));
    void *grads;
    OK(tri_group_alloc(b->group, (size_t)(tri_params_grad_count(b->params) + TRI_PARAMS_TAIL) * sizeof(float), &grads));
    b->grads = grads;
    OK(tri_tensor_ranks_create(b->group, &b->sums));
    tri_op_ranks across = tri_tensor_ranks_across(b->sums);
    tri_graph_across_set(b->graph, &across);
    tri_tree_part whole = {0, b->shards};
    OK(tri_graph_grads_set(b->graph, 1, &whole, &b->grads));
    size_t tokens = (size_t)(b->shards * rows * LENGTH);
    b->input = calloc(tokens, sizeof(int32_t));
    b->target = calloc(tokens, sizeof(int32_t));
    for (size_t i = 0; i < tokens; i++) {
        b->input[i] = (int32_t)tri_rng_below((tri_rng){1, 1}, i, WORDS);
        b->target[i] = (int32_t)tri_rng_below((tri_rng){1, 2}, i, WORDS);
    }
    for (int s = 0; s < b->shards; s++) {
        b->rows[s] = rows;
        b->first_sample[s] = s * rows;
    }
    b->batch = (tri_batch){b->shards, b->rows, b->first_sample, b->input, b->target};
}

static void bench_step(bench *b, uint64_t step)
{
    const float(*sums)[4];
    OK(tri_graph_forward(b->graph, &b->batch, step, true, &sums));
    OK(tri_graph_backward(b->graph, NULL, NULL));
    if (!b->tensor)
        OK(tri_all_reduce_tree(b->group, SHARDS, &b->grads, 1, tri_params_grad_count(b->params) + TRI_PARAMS_TAIL,
                               NULL));
    tri_params_fold(b->params, 1, b->grads);
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

int main(int count, char **words)
{
    tri_comm *comm;
    const char *mode = count > 1 ? words[1] : "data";
    bench b = {.tensor = strcmp(mode, "data") != 0, .sequence = strcmp(mode, "sequence") == 0};
    bool half = count > 2 && strcmp(words[2], "bf16") == 0;
    int batch = count > 3 ? atoi(words[3]) : 16, steps = 0;
    double seconds = count > 4 ? atof(words[4]) : 10;
    int64_t each[MAX_STEPS];
    OK(tri_comm_join(30, &comm));
    b.group = tri_comm_world(comm);
    b.rank = tri_group_rank(b.group);
    b.ranks = tri_group_count(b.group);
    bench_open(&b, count > 5 ? words[5] : GPT, half ? TRI_BF16 : TRI_F32, batch / SHARDS);
    bench_step(&b, 0); /* warms up */
    int64_t begin = tri_now_ns(), summed = tri_tensor_ranks_spent_ns(b.sums);
    for (int32_t go = 1; go && steps < MAX_STEPS; steps++) {
        int64_t at = tri_now_ns();
        bench_step(&b, (uint64_t)steps + 1);
        each[steps] = tri_now_ns() - at;
        go = tri_now_ns() - begin < (int64_t)(seconds * 1e9);
        OK(tri_broadcast(b.group, &go, 1, TRI_I32, 0, NULL));
    }
    qsort(each, (size_t)steps, sizeof(each[0]), by_size);
    double median = (double)each[steps / 2] / 1e9,
           waited = (double)(tri_tensor_ranks_spent_ns(b.sums) - summed) / 1e9 / steps;
    size_t planned, plain;
    tri_graph_memory(b.graph, &planned, &plain);
    if (b.rank == 0)
        printf("%s %s: %.3f s a step (median of %d), %.0f tokens/s, in sums %.3f s, graph memory %zu MiB\n", mode,
               half ? "bf16" : "f32", median, steps, batch * LENGTH / median, waited, planned >> 20);
    tri_tensor_ranks_destroy(b.sums);
    tri_graph_destroy(b.graph);
    tri_params_destroy(b.params);
    tri_model_destroy(b.model);
    free(b.input);
    free(b.target);
    tri_comm_leave(comm);
    return 0;
}
