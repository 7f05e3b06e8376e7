/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_ops.c: speed of the ops at the shapes of real models: GFLOP/s of products, GB/s of the others. Not a test.
 *
 * bench_ops [word [threads [kind]]]: rows whose name contains the word; threads 1 by default.
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
    {.name = "res.conv64", .op = TRI_OP_CONV, .x = {8, 8, 8, 64}, .units = 64, SAME},
    {.name = "res.bn16", .op = TRI_OP_BATCH_NORM, .x = {8, 32, 32, 16}, .attr = {.relu = true}},
    {.name = "res.bn64", .op = TRI_OP_BATCH_NORM, .x = {8, 8, 8, 64}, .attr = {.relu = true}},
    {.name = "res.add16", .op = TRI_OP_ADD, .x = {8, 32, 32, 16}, .other = {8, 32, 32, 16}, .attr = {.relu = true}},
    {.name = "res.pool", .op = TRI_OP_GLOBAL_POOL, .x = {8, 8, 8, 64}},
    {.name = "vgg.conv256", .op = TRI_OP_CONV, .x = {2, 14, 14, 256}, .units = 256, SAME},
    {.name = "gpt.fc", .op = TRI_OP_LINEAR, .x = {4, 128, 256}, .units = 1024, .attr = {.bias = true}, .shards = 2},
    {.name = "gpt.scores", .op = TRI_OP_MATMUL, .x = {4, 4, 128, 64}, .other = {4, 4, 64, 128}, .shards = 2},
    {.name = "gpt.softmax", .op = TRI_OP_SOFTMAX, .x = {4, 4, 128, 128}, .shards = 2},
    {.name = "gpt.norm", .op = TRI_OP_LAYER_NORM, .x = {4, 128, 256}, .shards = 2},
    {.name = "gpt.gelu", .op = TRI_OP_GELU, .x = {4, 128, 1024}, .shards = 2},
    {.name = "gpt.dropout", .op = TRI_OP_DROPOUT, .x = {4, 128, 256}, .attr = {.rate = 0.1f}, .shards = 2},
    {.name = "gpt.embed", .op = TRI_OP_EMBEDDING, .x = {4, 128}, .units = 8000, .width = 256, .shards = 2},
    {.name = "gpt.loss", .op = TRI_OP_CROSS_ENTROPY, .x = {4, 128, 8000}, .other = {4, 128}, .shards = 2},
    {.name = "gpt.heads", .op = TRI_OP_TRANSPOSE, .x = {4, 128, 4, 64}, .attr = {.axes = {0, 2, 1, 3}}, .shards = 2},
};

/* Multiplications and additions of one pass over all shards; 0 for ops that move memory. */
static double flops_of(const op_run *r)
{
    const tri_op_desc *d = &r->kernel.desc;
    const double outputs = (double)(r->output_count * r->call.shards);
    switch (d->op) {
    case TRI_OP_LINEAR:
        return 2 * outputs * (double)d->param[0].dim[1];
    case TRI_OP_CONV:
        return 2 * outputs * (double)(r->param_count[0] / d->param[0].dim[0]);
    case TRI_OP_MATMUL:
        return 2 * outputs * (double)d->input[0].dim[d->input[0].ndim - 1];
    default:
        return 0;
    }
}

typedef void (*pass_fn)(const tri_kernel *kernel, const tri_op_call *call);

/* Best time of one pass in seconds, over some 40 ms. */
static double time_pass(const op_run *r, pass_fn pass)
{
    double best = 1e9, total = 0;
    pass(&r->kernel, &r->call);
    for (int i = 0; total < 0.06 || i < 3; i++) {
        const int64_t begin = tri_now_ns();
        pass(&r->kernel, &r->call);
        const double s = (double)(tri_now_ns() - begin) * 1e-9;
        best = s < best ? s : best;
        total += s;
    }
    return best;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "", *kind = argc > 3 ? argv[3] : "cpu";
    const int threads = argc > 2 ? atoi(argv[2]) : 1;
    printf("%-12s %-10s %10s %9s %10s %9s %10s %9s\n", "op", "row", "forward us", "", "weights us", "", "backward us",
           "");
    for (size_t i = 0; i < sizeof benches / sizeof benches[0]; i++) {
        op_run r;
        if (strstr(benches[i].name, word) == NULL) {
            continue;
        }
        if (op_open(&r, kind, &benches[i], threads, false) != TRI_OK) {
            fprintf(stderr, "%s: %s\n", benches[i].name, tri_last_error());
            return 1;
        }
        void *dx = r.call.dinput[0];
        const double forward = time_pass(&r, tri_kernel_forward);
        r.call.dinput[0] = NULL;
        const double weights = time_pass(&r, tri_kernel_backward);
        r.call.dinput[0] = dx;
        const double backward = time_pass(&r, tri_kernel_backward), flops = flops_of(&r);
        const double nbytes = (double)((r.input_count[0] + r.output_count) * r.call.shards) * 4;
        const double work = flops > 0 ? flops : nbytes;
        const char *unit = flops > 0 ? "GF/s" : "GB/s";
        printf("%-12s %-10s %10.1f %6.1f%s %9.1f %6.1f%s %10.1f %6.1f%s\n", benches[i].name, r.kernel.ops->name,
               forward * 1e6, work / forward * 1e-9, unit, weights * 1e6, work / weights * 1e-9, unit, backward * 1e6,
               (flops > 0 ? 2 : 1) * work / backward * 1e-9, unit);
        op_close(&r);
    }
    return 0;
}
