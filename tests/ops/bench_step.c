/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_step.c: where a step of the small GPT goes (6 layers, 384, context 256, batch 16, 65 words, 8 shards): forward
 * and backward, by kind of op. Not a test.
 *
 * bench_step [f32|bf16 [threads [rounds]]]: 2 threads, 10 rounds. Each kernel of the compiled graph is replaced by one
 * that looks at the clock around it; what no kernel takes (sums of gradients of values) is the rest.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/memory.h"
#include "base/runtime.h"
#include "base/status.h"
#include "base/yaml.h"
#include "nn/graph_impl.h"
#include "nn/model.h"

enum { SHARDS = 8, ROWS = 2, LENGTH = 256, WORDS = 65, MAX_ROUNDS = 99, UP = 0, DOWN, WAYS };

static const tri_kernel_ops *under[TRI_OP_COUNT]; /* what is timed: one row an op here */
static tri_kernel_ops timed[TRI_OP_COUNT];
static double spent[MAX_ROUNDS][TRI_OP_COUNT + 1][WAYS]; /* seconds; the last one: all of it */
static int round_now;

static void must(tri_status status, const char *what)
{
    if (status != TRI_OK) {
        fprintf(stderr, "bench_step: %s: %s\n", what, tri_last_error());
        exit(1);
    }
}

static double seconds_since(int64_t begin)
{
    return (double)(tri_now_ns() - begin) * 1e-9;
}

static void timed_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t begin = tri_now_ns();
    under[kernel->desc.op]->forward(kernel, call);
    spent[round_now][kernel->desc.op][UP] += seconds_since(begin);
}

static void timed_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const int64_t begin = tri_now_ns();
    under[kernel->desc.op]->backward(kernel, call);
    spent[round_now][kernel->desc.op][DOWN] += seconds_since(begin);
}

static void clocks_set(tri_graph *graph)
{
    for (int o = 0; o < graph->op_count; o++) {
        tri_kernel *kernel = &graph->ops[o].kernel;
        const tri_op op = kernel->desc.op;
        if (under[op] != NULL && under[op] != kernel->ops) {
            fprintf(stderr, "bench_step: %s has two rows in this model\n", tri_op_name(op));
            exit(1);
        }
        under[op] = kernel->ops;
        timed[op] = *kernel->ops;
        timed[op].forward = timed_forward;
        timed[op].backward = kernel->ops->backward != NULL ? timed_backward : NULL;
    }
    for (int o = 0; o < graph->op_count; o++) {
        graph->ops[o].kernel.ops = &timed[graph->ops[o].kernel.desc.op];
    }
}

static tri_model *model_open(void)
{
    static const char text[] = "{name: gpt2, n_layer: 6, n_head: 6, n_embd: 384}";
    const int64_t length = LENGTH;
    tri_arena arena = {0};
    tri_yaml *root;
    tri_model *model;
    must(tri_yaml_parse(&arena, text, strlen(text), "bench_step", &root), "the model");
    must(tri_model_build(root, tri_shape_make(1, &length), WORDS, &model), "the model");
    tri_arena_fini(&arena);
    return model;
}

static int compare_seconds(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(int op, int way, int rounds)
{
    double seconds[MAX_ROUNDS];
    for (int r = 0; r < rounds; r++) {
        seconds[r] = spent[r][op][way];
    }
    qsort(seconds, (size_t)rounds, sizeof *seconds, compare_seconds);
    return seconds[rounds / 2];
}

static void run(tri_graph *graph, const tri_batch *batch)
{
    const float(*sums)[TRI_LOSS_COLUMNS];
    const int64_t begin = tri_now_ns();
    must(tri_graph_forward(graph, batch, 0, true, &sums), "forward");
    spent[round_now][TRI_OP_COUNT][UP] = seconds_since(begin);
    const int64_t middle = tri_now_ns();
    must(tri_graph_backward(graph, NULL, NULL), "backward");
    spent[round_now][TRI_OP_COUNT][DOWN] = seconds_since(middle);
}

static void print(int rounds)
{
    double rest[WAYS] = {median(TRI_OP_COUNT, UP, rounds), median(TRI_OP_COUNT, DOWN, rounds)};
    printf("%-12s %10s %10s   ms\n", "", "forward", "backward");
    for (int op = 0; op < TRI_OP_COUNT; op++) {
        if (under[op] != NULL) {
            const double up = median(op, UP, rounds), down = median(op, DOWN, rounds);
            rest[UP] -= up;
            rest[DOWN] -= down;
            printf("%-12s %10.1f %10.1f\n", tri_op_name((tri_op)op), up * 1e3, down * 1e3);
        }
    }
    printf("%-12s %10.1f %10.1f\n", "rest", rest[UP] * 1e3, rest[DOWN] * 1e3);
    printf("%-12s %10.1f %10.1f\n", "all", median(TRI_OP_COUNT, UP, rounds) * 1e3,
           median(TRI_OP_COUNT, DOWN, rounds) * 1e3);
}

int main(int argc, char **argv)
{
    const bool half = argc < 2 || strcmp(argv[1], "f32") != 0;
    const int threads = argc > 2 ? atoi(argv[2]) : 2, rounds = argc > 3 ? atoi(argv[3]) : 10;
    if (threads < 1 || rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "bench_step: want at least 1 thread and 1 to %d rounds\n", MAX_ROUNDS);
        return 2;
    }
    static int32_t tokens[SHARDS * ROWS * LENGTH], rows[SHARDS];
    static int64_t first_sample[SHARDS];
    for (int i = 0; i < SHARDS * ROWS * LENGTH; i++) {
        tokens[i] = (int32_t)((uint32_t)i * 2654435761u >> 8) % WORDS;
    }
    for (int s = 0; s < SHARDS; s++) {
        rows[s] = ROWS;
        first_sample[s] = s * ROWS;
    }
    tri_model *model = model_open();
    tri_params *params;
    tri_graph *graph;
    must(tri_params_create(model, tri_device_host(), 1, &params), "the weights");
    const tri_graph_config config = {.kind = "cpu",
                                     .rows = ROWS,
                                     .shards = SHARDS,
                                     .threads = threads,
                                     .training = true,
                                     .precision = half ? TRI_BF16 : TRI_F32};
    must(tri_graph_compile(model, params, &config, &graph), "the graph");
    float *grads = tri_alloc_bulk((size_t)(tri_params_grad_count(params) + TRI_PARAMS_TAIL) * sizeof(float));
    must(grads != NULL ? TRI_OK : TRI_ENOMEM, "gradients");
    const tri_tree_part whole = {0, SHARDS};
    must(tri_graph_grads_set(graph, 1, &whole, &grads), "gradients");
    clocks_set(graph);
    const tri_batch batch = {
        .shards = SHARDS, .rows = rows, .first_sample = first_sample, .input = tokens, .target = tokens};
    run(graph, &batch);
    memset(spent, 0, sizeof spent);
    for (round_now = 0; round_now < rounds; round_now++) {
        run(graph, &batch);
    }
    print(rounds);
    tri_free(grads);
    tri_graph_destroy(graph);
    tri_params_destroy(params);
    tri_model_destroy(model);
    return 0;
}
