/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_tensor.c: time of a step (up, down, sums between ranks) of one model on the ranks of a job: data parallel,
 * tensor parallel, and that with sequence, in turns, so that what else the machine does meets all of them. Built with
 * the tests, run by hand:
 *
 *   trireme launch -n 2 -- bench_tensor [f32|bf16] [batch] [seconds] [model]
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

typedef enum bench_mode { MODE_DATA, MODE_TENSOR, MODE_SEQUENCE, MODES } bench_mode;

typedef struct bench {
    tri_group *group;
    int rank, ranks, shards; /* of this rank */
    bench_mode mode;
    double each[MAX_STEPS]; /* seconds of each step */
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
    tri_model_split split = {b->ranks, b->ranks, b->rank, b->mode == MODE_SEQUENCE};
    b->shards = b->mode != MODE_DATA ? SHARDS : SHARDS / b->ranks;
    OK(tri_yaml_parse(&arena, text, strlen(text), "model", &root));
    OK(tri_model_build_split(root, b->mode != MODE_DATA ? split : (tri_model_split){0}, tri_shape_make(1, &length),
                             WORDS, &b->model));
    tri_arena_fini(&arena);
    OK(tri_params_create(b->model, tri_device_host(), 1, &b->params));
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
    b->batch = (tri_batch){
        .shards = b->shards, .rows = b->rows, .first_sample = b->first_sample, .input = b->input, .target = b->target};
}

static void bench_step(bench *b, uint64_t step)
{
    const float(*sums)[4];
    OK(tri_graph_forward(b->graph, &b->batch, step, true, &sums));
    OK(tri_graph_backward(b->graph, NULL, NULL));
    if (b->mode == MODE_DATA)
        OK(tri_all_reduce_tree(b->group, SHARDS, &b->grads, 1, tri_params_grad_count(b->params) + TRI_PARAMS_TAIL,
                               NULL));
    tri_params_fold(b->params, 1, b->grads);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void bench_close(bench *b)
{
    tri_tensor_ranks_destroy(b->sums);
    tri_graph_destroy(b->graph);
    tri_params_destroy(b->params);
    tri_model_destroy(b->model);
    free(b->input);
    free(b->target);
}

static void bench_print(bench *b, const bench *first, int steps, int tokens)
{
    static const char *const names[] = {"data", "tensor", "sequence"};
    double ratios[MAX_STEPS];
    size_t planned, plain;
    for (int i = 0; i < steps; i++)
        ratios[i] = first->each[i] / b->each[i];
    qsort(ratios, (size_t)steps, sizeof(ratios[0]), by_size);
    qsort(b->each, (size_t)steps, sizeof(b->each[0]), by_size);
    tri_graph_memory(b->graph, &planned, &plain);
    printf("%-8s %.3f s a step at best, %.3f in the middle (%.0f tokens/s), %.3f in exchanges, %zu MiB", names[b->mode],
           b->each[0], b->each[steps / 2], tokens / b->each[steps / 2],
           (double)tri_tensor_ranks_spent_ns(b->sums) / 1e9 / (steps + 1), planned >> 20);
    if (b != first)
        printf(", %.0f %% of data", 100 * ratios[steps / 2]);
    printf("\n");
}

int main(int count, char **words)
{
    tri_comm *comm;
    static bench b[MODES];
    bool half = count > 1 && strcmp(words[1], "bf16") == 0;
    int batch = count > 2 ? atoi(words[2]) : 16, steps = 0;
    double seconds = count > 3 ? atof(words[3]) : 30;
    OK(tri_comm_join(30, &comm));
    for (int m = 0; m < MODES; m++) {
        b[m].mode = (bench_mode)m;
        b[m].group = tri_comm_world(comm);
        b[m].rank = tri_group_rank(b[m].group);
        b[m].ranks = tri_group_count(b[m].group);
        bench_open(&b[m], count > 4 ? words[4] : GPT, half ? TRI_BF16 : TRI_F32, batch / SHARDS);
        bench_step(&b[m], 0); /* warms up */
    }
    int64_t begin = tri_now_ns();
    for (int32_t go = 1; go && steps < MAX_STEPS; steps++) {
        for (int m = 0; m < MODES; m++) {
            int64_t at = tri_now_ns();
            bench_step(&b[m], (uint64_t)steps + 1);
            b[m].each[steps] = (double)(tri_now_ns() - at) / 1e9;
        }
        go = tri_now_ns() - begin < (int64_t)(seconds * 1e9);
        OK(tri_broadcast(b[0].group, &go, 1, TRI_I32, 0, NULL));
    }
    for (int m = MODES - 1; m >= 0; m--)
        if (b[m].rank == 0)
            bench_print(&b[m], &b[MODE_DATA], steps, batch * LENGTH);
    for (int m = 0; m < MODES; m++)
        bench_close(&b[m]);
    tri_comm_leave(comm);
    return 0;
}
