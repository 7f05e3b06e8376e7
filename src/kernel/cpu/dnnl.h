/* SPDX-License-Identifier: Apache-2.0
 *
 * dnnl.h: oneDNN's primitives as jobs: planned once for one shard (or a fixed piece of one), run on the calling thread.
 *
 * A job is created as for one thread and executed by one thread inside a tile, so its bits depend on shapes alone. Each
 * thread of a call has its own memory objects, so a run allocates nothing here and shares nothing. Only dnnl.c knows
 * which generation of oneDNN's interface it is built with (2.x, 3.x).
 */
#ifndef TRI_KERNEL_CPU_DNNL_H
#define TRI_KERNEL_CPU_DNNL_H

#include "kernel/isa.h"
#include "kernel/row.h"

#define TRI_DNNL_DIMS 6
#define TRI_DNNL_ARGS 4 /* of a primitive, without its scratchpad */

/* Layout of an f32 array, strides in elements; ndim 0: there is none. */
typedef struct tri_dnnl_form {
    int ndim;
    bool any; /* oneDNN chooses: strides are ignored */
    int64_t dim[TRI_DNNL_DIMS], stride[TRI_DNNL_DIMS];
} tri_dnnl_form;
/* Row-major. */
tri_dnnl_form tri_dnnl_form_dense(int ndim, const int64_t *dim);

struct dnnl_primitive;
struct dnnl_memory;
struct dnnl_stream;

typedef struct tri_dnnl_job {
    struct dnnl_primitive *primitive;
    struct dnnl_memory **memory;  /* [threads][arg_count + 1]: arguments, then the scratchpad */
    struct dnnl_stream **streams; /* [threads] */
    int threads, arg_count;
    int arg[TRI_DNNL_ARGS];       /* oneDNN's names of the arguments */
    int64_t count[TRI_DNNL_ARGS]; /* elements of each as laid out, 0: none */
    int64_t scratch_count;        /* elements of the scratchpad, of one thread */
} tri_dnnl_job;

/* Arguments in this order: forward x w bias y; input dy w dx; weights x dy dw. */
typedef enum tri_dnnl_pass { TRI_DNNL_FORWARD, TRI_DNNL_INPUT, TRI_DNNL_WEIGHTS } tri_dnnl_pass;

/* Dimensions in oneDNN's order: x N C H W, w (G) O I H W, y N C H W; strides say how they are. */
typedef struct tri_dnnl_conv {
    tri_dnnl_form x, w, bias, y;
    int64_t stride[2], dilation[2], pad[2]; /* dilation 1: dense */
    bool relu;
} tri_dnnl_conv;

/* TRI_EUNSUPPORTED when this oneDNN has only its slow reference for the shape. */
tri_status tri_dnnl_plan_conv(tri_dnnl_job *job, tri_dnnl_pass pass, const tri_dnnl_conv *conv, int threads);
/* y = act(a b + bias), batched over leading dimensions. Arguments: a b bias y. */
tri_status tri_dnnl_plan_matmul(tri_dnnl_job *job, const tri_dnnl_form *a, const tri_dnnl_form *b,
                                const tri_dnnl_form *bias, const tri_dnnl_form *y, bool relu, int threads);
/* Copies between `plain` and the layout that argument i of `of` has: to it, or back from it. A job without a primitive
 * means that both are the same. Arguments: from, to. */
tri_status tri_dnnl_plan_reorder(tri_dnnl_job *job, const tri_dnnl_job *of, int i, const tri_dnnl_form *plain,
                                 bool back, int threads);
void tri_dnnl_job_release(tri_dnnl_job *job);

/* Runs on the calling thread, number `worker` of the tile's threads. array[i]: of argument i; scratch: scratch_count.
 */
void tri_dnnl_run(const tri_dnnl_job *job, int worker, float *const *array, float *scratch);

/* Limits the instructions that oneDNN uses in the code it generates. Call it before oneDNN computes anything. */
tri_status tri_dnnl_isa_set(tri_isa isa);
/* Major, minor, patch of the library that is loaded. */
void tri_dnnl_version(int version[3]);

#endif
