/* SPDX-License-Identifier: Apache-2.0
 *
 * matmul.c: a[B..,M,K] b[B..,K,N] -> y[B..,M,N]: one product a tile, its right side packed in the thread's scratch.
 *
 * da = dy b', db = a' dy: the left side of db is transposed first, for rows of A must be contiguous along k.
 */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"

typedef struct layout {
    int64_t m, k, n, batch; /* batch: products of one shard */
    int64_t packed, each;   /* packed part and all scratch of one thread, elements */
} layout;

static layout layout_make(const tri_op_desc *desc)
{
    const tri_gemm_ops *ops = tri_gemm_find();
    const tri_shape *a = &desc->input[0];
    layout l = {.m = a->dim[a->ndim - 2], .k = a->dim[a->ndim - 1], .n = tri_shape_last(&desc->output)};
    l.batch = tri_shape_product(a, 0, a->ndim - 2);
    const int64_t y = tri_gemm_packed_count(ops, l.k, l.n), da = tri_gemm_packed_count(ops, l.n, l.k);
    const int64_t db = tri_gemm_packed_count(ops, l.m, l.n);
    l.packed = tri_align_count(tri_int64_max(y, tri_int64_max(da, db)));
    l.each = l.packed + tri_align_count(l.m * l.k);
    return l;
}

static tri_status matmul_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    kernel->scratch_nbytes = (size_t)(layout_make(desc).each * desc->threads) * sizeof(float);
    return TRI_OK;
}

typedef struct matmul_arg {
    const tri_gemm_ops *ops;
    const tri_op_call *call;
    layout l;
} matmul_arg;

static void pack_all(const tri_gemm_ops *ops, float *packed, const float *src, int64_t k, int64_t n, int64_t k_step,
                     int64_t n_step)
{
    for (int64_t panel = 0; panel * ops->nr < n; panel++) {
        tri_gemm_pack(ops, packed, src, k, n, k_step, n_step, panel);
    }
}

static void forward_tile(void *arg, int64_t tile)
{
    const matmul_arg *v = arg;
    const layout *l = &v->l;
    float *packed = (float *)v->call->scratch + tri_tile_worker() * l->each;
    pack_all(v->ops, packed, (const float *)v->call->input[1] + tile * l->k * l->n, l->k, l->n, l->n, 1);
    tri_gemm_block(v->ops, &(tri_gemm_call){.a = (const float *)v->call->input[0] + tile * l->m * l->k,
                                            .packed = packed,
                                            .c = (float *)v->call->output + tile * l->m * l->n,
                                            .m = l->m,
                                            .n = l->n,
                                            .k = l->k,
                                            .lda = l->k,
                                            .ldc = l->n});
}

static void backward_tile(void *arg, int64_t tile)
{
    const matmul_arg *v = arg;
    const layout *l = &v->l;
    float *packed = (float *)v->call->scratch + tri_tile_worker() * l->each, *turned = packed + l->packed;
    const float *dy = (const float *)v->call->doutput + tile * l->m * l->n;
    const float *a = (const float *)v->call->input[0] + tile * l->m * l->k;
    float *da = v->call->dinput[0], *db = v->call->dinput[1];
    if (da != NULL) {
        pack_all(v->ops, packed, (const float *)v->call->input[1] + tile * l->k * l->n, l->n, l->k, 1, l->n);
        tri_gemm_block(v->ops, &(tri_gemm_call){.a = dy,
                                                .packed = packed,
                                                .c = da + tile * l->m * l->k,
                                                .m = l->m,
                                                .n = l->k,
                                                .k = l->n,
                                                .lda = l->n,
                                                .ldc = l->k});
    }
    if (db != NULL) {
        for (int64_t i = 0; i < l->m; i++) {
            for (int64_t j = 0; j < l->k; j++) {
                turned[j * l->m + i] = a[i * l->k + j];
            }
        }
        pack_all(v->ops, packed, dy, l->m, l->n, l->n, 1);
        tri_gemm_block(v->ops, &(tri_gemm_call){.a = turned,
                                                .packed = packed,
                                                .c = db + tile * l->k * l->n,
                                                .m = l->k,
                                                .n = l->n,
                                                .k = l->m,
                                                .lda = l->m,
                                                .ldc = l->n});
    }
}

static void matmul_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    matmul_arg arg = {tri_gemm_find(), call, layout_make(&kernel->desc)};
    tri_tiles_run(kernel->desc.threads, arg.l.batch * call->shards, forward_tile, &arg);
}

static void matmul_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    matmul_arg arg = {tri_gemm_find(), call, layout_make(&kernel->desc)};
    tri_tiles_run(kernel->desc.threads, arg.l.batch * call->shards, backward_tile, &arg);
}

const tri_kernel_ops tri_cpu_matmul = {
    .op = TRI_OP_MATMUL,
    .name = "tiles",
    .plan = matmul_plan,
    .forward = matmul_forward,
    .backward = matmul_backward,
    .backward_input = true,
};
