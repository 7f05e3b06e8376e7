/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_ops.c: speed of the ops at the shapes of real models: GFLOP/s of products, GB/s of the others. Not a test.
 *
 * bench_ops [word [threads [kind ...]]]: cases whose name contains the word; 1 thread, kinds cpu, dnnl and tiles by
 * default.
 */
#include "base/runtime.h"
#include "ops/ops.h"

#define KERNEL(h, w) .kernel = {h, w}
#define SAME         .attr = {KERNEL(3, 3), .pad = {1, 1}}
#define DOWN         .attr = {KERNEL(3, 3), .pad = {1, 1}, .stride = {2, 2}}

static const op_case benches[] = {
    {.name = "mlp.fc1", .op = TRI_OP_LINEAR, .x = {16, 784}, .units = 512, .attr = {.bias = true, .relu = true}},
    {.name = "mlp.fc2", .op = TRI_OP_LINEAR, .x = {16, 512}, .units = 256, .attr = {.bias = true, .relu = true}},
    {.name = "mlp.fc3", .op = TRI_OP_LINEAR, .x = {16, 256}, .units = 10, .attr = {.bias = true}},
    {.name = "mlp.loss", .op = TRI_OP_CROSS_ENTROPY, .x = {16, 10}, .other = {16}},
    {.name = "cnn.conv1",
     .op = TRI_OP_CONV,
     .x = {16, 28, 28, 1},
     .units = 32,
     .attr = {KERNEL(3, 3), .bias = true, .relu = true}},
    {.name = "cnn.conv2",
     .op = TRI_OP_CONV,
     .x = {16, 26, 26, 32},
     .units = 64,
     .attr = {KERNEL(3, 3), .bias = true, .relu = true}},
    {.name = "cnn.pool", .op = TRI_OP_MAX_POOL, .x = {16, 24, 24, 64}, .attr = {KERNEL(2, 2), .stride = {2, 2}}},
    {.name = "cnn.fc1", .op = TRI_OP_LINEAR, .x = {16, 9216}, .units = 128, .attr = {.bias = true, .relu = true}},
    {.name = "res.conv1", .op = TRI_OP_CONV, .x = {8, 32, 32, 3}, .units = 16, SAME},
    {.name = "res.conv16", .op = TRI_OP_CONV, .x = {8, 32, 32, 16}, .units = 16, SAME},
    {.name = "res.down32", .op = TRI_OP_CONV, .x = {8, 32, 32, 16}, .units = 32, DOWN},
    {.name = "res.short32",
     .op = TRI_OP_CONV,
     .x = {8, 32, 32, 16},
     .units = 32,
     .attr = {KERNEL(1, 1), .stride = {2, 2}}},
    {.name = "res.conv32", .op = TRI_OP_CONV, .x = {8, 16, 16, 32}, .units = 32, SAME},
    {.name = "res.down64", .op = TRI_OP_CONV, .x = {8, 16, 16, 32}, .units = 64, DOWN},
    {.name = "res.conv64", .op = TRI_OP_CONV, .x = {8, 8, 8, 64}, .units = 64, SAME},
    {.name = "res.bn16", .op = TRI_OP_BATCH_NORM, .x = {8, 32, 32, 16}, .attr = {.relu = true}},
    {.name = "res.bn64", .op = TRI_OP_BATCH_NORM, .x = {8, 8, 8, 64}, .attr = {.relu = true}},
    {.name = "res.add16", .op = TRI_OP_ADD, .x = {8, 32, 32, 16}, .other = {8, 32, 32, 16}, .attr = {.relu = true}},
    {.name = "res.pool", .op = TRI_OP_GLOBAL_POOL, .x = {8, 8, 8, 64}},
    {.name = "vgg.conv256", .op = TRI_OP_CONV, .x = {2, 14, 14, 256}, .units = 256, SAME},
    {.name = "gpt.fc", .op = TRI_OP_LINEAR, .x = {4, 128, 256}, .units = 1024, .attr = {.bias = true}, .shards = 2},
    {.name = "gpt.scores", .op = TRI_OP_MATMUL, .x = {4, 4, 128, 64}, .other = {4, 4, 64, 128}, .shards = 2},
    {.name = "gpt.long", .op = TRI_OP_LINEAR, .x = {8, 256, 512}, .units = 2048, .attr = {.bias = true}, .shards = 1},
    {.name = "gpt.square", .op = TRI_OP_MATMUL, .x = {2, 2, 512, 512}, .other = {2, 2, 512, 512}, .shards = 2},
    {.name = "gpt.values", .op = TRI_OP_MATMUL, .x = {2, 4, 256, 256}, .other = {2, 4, 256, 64}, .shards = 2},
    {.name = "gpt.softmax", .op = TRI_OP_SOFTMAX, .x = {4, 4, 128, 128}, .shards = 2},
    {.name = "gpt.norm", .op = TRI_OP_LAYER_NORM, .x = {4, 128, 256}, .shards = 2},
    {.name = "gpt.gelu", .op = TRI_OP_GELU, .x = {4, 128, 1024}, .shards = 2},
    {.name = "gpt.dropout", .op = TRI_OP_DROPOUT, .x = {4, 128, 256}, .attr = {.rate = 0.1f}, .shards = 2},
    {.name = "gpt.embed", .op = TRI_OP_EMBEDDING, .x = {4, 128}, .units = 8000, .width = 256, .shards = 2},
    {.name = "gpt.loss", .op = TRI_OP_CROSS_ENTROPY, .x = {4, 128, 8000}, .other = {4, 128}, .shards = 2},
    {.name = "gpt.heads", .op = TRI_OP_TRANSPOSE, .x = {4, 128, 4, 64}, .attr = {.axes = {0, 2, 1, 3}}, .shards = 2},
    {.name = "nano.qkv", .op = TRI_OP_LINEAR, .x = {2, 256, 384}, .units = 1152, .attr = {.bias = true}},
    {.name = "nano.proj", .op = TRI_OP_LINEAR, .x = {2, 256, 384}, .units = 384, .attr = {.bias = true}},
    {.name = "nano.fc", .op = TRI_OP_LINEAR, .x = {2, 256, 384}, .units = 1536, .attr = {.bias = true}},
    {.name = "nano.out", .op = TRI_OP_LINEAR, .x = {2, 256, 1536}, .units = 384, .attr = {.bias = true}},
    {.name = "nano.attn", .op = TRI_OP_ATTENTION, .x = {2, 256, 1152}, .attr = {.heads = 6}},
    {.name = "nano.norm", .op = TRI_OP_LAYER_NORM, .x = {2, 256, 384}},
    {.name = "nano.gelu", .op = TRI_OP_GELU_ERF, .x = {2, 256, 1536}},
    {.name = "nano.gelu2", .op = TRI_OP_GELU, .x = {2, 256, 1536}},
    {.name = "nano.swiglu", .op = TRI_OP_SWIGLU, .x = {2, 256, 2048}},
    {.name = "nano.rope", .op = TRI_OP_ROPE, .x = {2, 256, 1152}, .attr = {.heads = 6, .theta = 10000}},
    {.name = "nano.head", .op = TRI_OP_VOCAB_LOSS, .x = {2, 256, 384}, .other = {2, 256}, .units = 65},
    {.name = "half.head", .op = TRI_OP_VOCAB_LOSS, .x = {1, 64, 768}, .other = {1, 64}, .units = 50257, .shards = 4},
    {.name = "gpt2.head", .op = TRI_OP_VOCAB_LOSS, .x = {1, 128, 768}, .other = {1, 128}, .units = 50257},
};

/* Multiplications and additions of one pass over all shards; 0 for ops that move memory. */
static double flops_of(const op_run *r)
{
    const tri_op_desc *d = &r->kernel.desc;
    const double outputs = (double)(r->output_count * r->call.shards);
    switch (d->op) {
    case TRI_OP_LINEAR:
        return 2 * outputs * (double)d->param[0].dim[1];
    case TRI_OP_ATTENTION: /* each place looks at half of the others */
        return 2 * outputs * (double)d->input[0].dim[1];
    case TRI_OP_VOCAB_LOSS:
        return 2 * (double)(r->param_count[0] * r->input_count[1] * r->call.shards);
    case TRI_OP_CONV:
        return 2 * outputs * (double)(r->param_count[0] / d->param[0].dim[0]);
    case TRI_OP_MATMUL:
        return 2 * outputs * (double)d->input[0].dim[d->input[0].ndim - 1];
    default:
        return 0;
    }
}

#define ROUNDS 7
#define PASSES 3

static const char *const pass_names[PASSES] = {"forward us", "weights us", "backward us"};

/* Forward, backward without the gradient of x, whole backward. */
static void pass_run(op_run *r, int pass)
{
    void *dx = r->call.dinput[0];
    if (pass == 0) {
        tri_kernel_forward(&r->kernel, &r->call);
        return;
    }
    r->call.dinput[0] = pass == 1 ? NULL : dx;
    tri_kernel_backward(&r->kernel, &r->call);
    r->call.dinput[0] = dx;
}

/* Mean time in seconds of the calls of some 10 ms. */
static double time_pass(op_run *r, int pass)
{
    const int64_t begin = tri_now_ns();
    int64_t end = begin;
    int count = 0;
    while (end - begin < 10000000) {
        pass_run(r, pass);
        count++;
        end = tri_now_ns();
    }
    return (double)(end - begin) * 1e-9 / count;
}

static int compare_times(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_row(const op_run *r, const char *name, double times[PASSES][ROUNDS])
{
    const double flops = flops_of(r), nbytes = (double)((r->input_count[0] + r->output_count) * r->call.shards) * 4;
    printf("%-12s %-10s", name, r->kernel.ops->name ? r->kernel.ops->name : "reference");
    for (int pass = 0; pass < PASSES; pass++) {
        qsort(times[pass], ROUNDS, sizeof(double), compare_times);
        const double median = times[pass][ROUNDS / 2], work = flops > 0 ? (pass == 2 ? 2 : 1) * flops : nbytes;
        printf(" %10.1f %7.1f%s", median * 1e6, work / median * 1e-9, flops > 0 ? "GF/s" : "GB/s");
    }
    printf("\n");
}

/* The kinds' rows of one case, their passes interleaved: medians of ROUNDS. A kind with the row of the one before is
 * left out. */
static int bench_case(const op_case *c, int threads, int kind_count, char *const *kinds)
{
    static op_run runs[4];
    static double times[4][PASSES][ROUNDS];
    int count = 0;
    for (int k = 0; k < kind_count && k < 4; k++) {
        if (op_open(&runs[count], kinds[k], c, threads, false) != TRI_OK) {
            fprintf(stderr, "%s: %s\n", c->name, tri_last_error());
            return 1;
        }
        if (count > 0 && runs[count].kernel.ops == runs[count - 1].kernel.ops) {
            op_close(&runs[count]);
        } else {
            count++;
        }
    }
    for (int round = -1; round < ROUNDS; round++) { /* the first one warms up */
        for (int pass = 0; pass < PASSES; pass++) {
            for (int k = 0; k < count; k++) {
                times[k][pass][round < 0 ? 0 : round] = time_pass(&runs[k], pass);
            }
        }
    }
    for (int k = 0; k < count; k++) {
        print_row(&runs[k], c->name, times[k]);
        op_close(&runs[k]);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static char cpu[] = "cpu", dnnl[] = "dnnl", tiles[] = "tiles";
    static char *usual[] = {cpu, dnnl, tiles};
    const char *word = argc > 1 ? argv[1] : "";
    const int threads = argc > 2 ? atoi(argv[2]) : 1, kind_count = argc > 3 ? argc - 3 : 3;
    printf("%-12s %-10s", "op", "row");
    for (int pass = 0; pass < PASSES; pass++) {
        printf(" %10s %11s", pass_names[pass], "");
    }
    printf("\n");
    for (size_t i = 0; i < sizeof benches / sizeof benches[0]; i++) {
        if (strstr(benches[i].name, word) != NULL &&
            bench_case(&benches[i], threads, kind_count, argc > 3 ? argv + 3 : usual) != 0) {
            return 1;
        }
    }
    return 0;
}
