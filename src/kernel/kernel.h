/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel.h: op x device -> functions that compute it, for all shards of one call.
 *
 * A kernel is planned once for one shard (shapes, attributes) and then run for `shards` shards at a time: kernels see
 * the same shapes whatever the number of workers. Activations of the shards are one after the other. A sum over samples
 * (the gradient of a parameter) is computed per shard and added in the order of the canonical tree, one result per
 * part. Padding: a shard may have fewer than its planned rows; the rows behind are zeros forward and must have zero
 * gradients (the loss op gives them weight zero), and norms over samples count only the valid ones.
 */
#ifndef TRI_KERNEL_KERNEL_H
#define TRI_KERNEL_KERNEL_H

#include <trireme/tensor.h>

#include "base/options.h"
#include "device/device.h"
#include "kernel/isa.h"
#include "tensor/tree.h"

/* id, name: that of its row, tri_op_<name>, too. Formulas and shapes: reference_*.c. B = rows of one shard (samples),
 * the first dimension of every activation.
 */
#define TRI_OP_LIST(X)                                                                                                 \
    X(TRI_OP_LINEAR, linear)           /* x[B..,C] w[D,C] (b[D]) -> y[B..,D] = act(x w' + b) */                        \
    X(TRI_OP_MATMUL, matmul)           /* a[B..,M,K] b[B..,K,N] -> y[B..,M,N], batched over leading dims */            \
    X(TRI_OP_CONV, conv2d)             /* x[B,H,W,C] w[D,C/groups,kh,kw] (b[D]) -> y[B,H',W',D], act, pooled */        \
    X(TRI_OP_MAX_POOL, max_pool)       /* x[B,H,W,C] -> y[B,H',W',C] */                                                \
    X(TRI_OP_AVG_POOL, avg_pool)       /* divides by the window's area inside the image */                             \
    X(TRI_OP_GLOBAL_POOL, global_pool) /* mean over H and W: x[B,H,W,C] -> y[B,C] */                                   \
    X(TRI_OP_BATCH_NORM, batch_norm)   /* x[B,..,C] scale[C] shift[C] | mean[C] var[C] -> y, act */                    \
    X(TRI_OP_LAYER_NORM, layer_norm)   /* x[B..,C] scale[C] shift[C] -> y */                                           \
    X(TRI_OP_RELU, relu)                                                                                               \
    X(TRI_OP_GELU, gelu) /* tanh form */                                                                               \
    X(TRI_OP_SILU, silu)                                                                                               \
    X(TRI_OP_TANH, tanh)                                                                                               \
    X(TRI_OP_SIGMOID, sigmoid)                                                                                         \
    X(TRI_OP_SOFTMAX, softmax)     /* over the last dimension */                                                       \
    X(TRI_OP_DROPOUT, dropout)     /* keyed by seed, step, sample, op, element */                                      \
    X(TRI_OP_EMBEDDING, embedding) /* i[B..] (i32) w[V,C] -> y[B..,C] */                                               \
    X(TRI_OP_ADD, add)             /* a b -> act(a + b); b as a, or with first dimension 1 (broadcast) */              \
    X(TRI_OP_MUL, mul)             /* a b -> a b, shapes as for add */                                                 \
    X(TRI_OP_CONCAT, concat)       /* two or more inputs along `axis` (>= 1) */                                        \
    X(TRI_OP_RESHAPE, reshape)                                                                                         \
    X(TRI_OP_TRANSPOSE, transpose)         /* permutes dimensions 1.. by `axes` (the batch stays first) */             \
    X(TRI_OP_CROSS_ENTROPY, cross_entropy) /* x[B..,V] i[B..] (i32, < 0: ignored; label.h) -> per-shard sums, below */ \
    X(TRI_OP_MSE, mse)                     /* x t[B..] -> sum over elements of (x - t)^2 */                            \
    X(TRI_OP_GELU_ERF, gelu_erf)           /* x Phi(x); gelu is its tanh form */                                       \
    X(TRI_OP_RMS_NORM, rms_norm)           /* x[B..,C] scale[C] -> y */                                                \
    X(TRI_OP_SWIGLU, swiglu)               /* x[B..,2F], gate then up -> y[B..,F] = silu(gate) up */                   \
    X(TRI_OP_POSITIONS, positions)         /* x[B,T,C] w[P,C] -> y = x + w[t], T <= P */                               \
    X(TRI_OP_ROPE, rope)                   /* turns queries and keys of x[B,T,(H + 2K) D] by their place */            \
    X(TRI_OP_ATTENTION, attention)         /* x[B,T,(H + 2K) D] -> y[B,T,H D], causal; queries, keys, values */        \
    X(TRI_OP_VOCAB_LOSS, vocab_loss)       /* x[B..,C] i[B..] w[V,C] -> sums: cross_entropy of x w' */                 \
    X(TRI_OP_BIAS, bias)                   /* x[B..,C] b[C] -> y = x + b */                                            \
    X(TRI_OP_SHARE_PARTS, share_parts)     /* x -> y = x; its gradient is added up over `ranks` */                     \
    X(TRI_OP_SUM_PARTS, sum_parts)         /* x -> y = x added up over `ranks`; its gradient is y's */                 \
    X(TRI_OP_GATHER_TOKENS, gather_tokens) /* x[B,T,C] of each of `ranks` -> y[B,ranks T,C]; gradient: added up */     \
    X(TRI_OP_SPREAD_TOKENS, spread_tokens) /* x[B,ranks T,C], added up -> y[B,T,C] of `rank`; gradient: gathered */    \
    X(TRI_OP_VOCAB_PART, vocab_part)       /* x[B..,C] i[B..] w[V,C] -> state[B..,5] of words first..first + V */      \
    X(TRI_OP_VOCAB_JOIN, vocab_join)       /* a[B..,5] b[B..,5] -> state of the words of both */                       \
    X(TRI_OP_VOCAB_SUMS, vocab_sums)       /* state[B..,5] i[B..] -> sums, as vocab_loss has them */

typedef enum tri_op {
#define TRI_OP_ENUM(id, name) id,
    TRI_OP_LIST(TRI_OP_ENUM)
#undef TRI_OP_ENUM
        TRI_OP_COUNT
} tri_op;
const char *tri_op_name(tri_op op);
bool tri_op_find(const char *name, tri_op *op);

#define TRI_OP_MAX_INPUTS 8
#define TRI_OP_MAX_PARAMS 4

/* Attributes of all ops in one plain struct; an op reads its own. Zero means "the usual". */
typedef struct tri_op_attr {
    int kernel[2], stride[2], pad[2], dilation[2]; /* H, W; stride and dilation 0 = 1 */
    int groups;                                    /* 0 = 1 */
    bool relu;                                     /* linear, conv2d, batch_norm, add: y = max(y, 0), fused */
    bool bias;                                     /* linear, conv2d: parameter 1 is there */
    bool pool;                                     /* conv2d with relu: then max_pool of 2x2, stride 2, fused */
    float epsilon;                                 /* norms; 0 = 1e-5 */
    float momentum;                                /* batch_norm running statistics; 0 = 0.1 */
    bool sync;                                     /* batch_norm: statistics of the whole batch (tri_op_batch) */
    float rate;                                    /* dropout; attention: probability that a weight is left out */
    float smoothing;                               /* cross_entropy, vocab_loss: label smoothing */
    int axis;                                      /* concat */
    int axes[TRI_MAX_DIMS];                        /* transpose: output dim i is input dim axes[i] */
    uint64_t key;                                  /* dropout, attention: number among those of the graph */
    bool forget;                                   /* vocab_loss: form logits again instead of keeping them */
    int heads, kv_heads;                           /* rope, attention: H and K, 0 = H; H is a multiple of K */
    float theta;                                   /* rope: base of the angles */
    float rope_factor, rope_low, rope_high;        /* rope: Llama 3's scaling of long wave lengths; factor 0: none */
    int64_t rope_context;                          /* the context it was trained on before */
    int64_t first; /* embedding, vocab_part: number of the first word, that of row 0 of the table; positions: of the
                      first token; dropout: of the first element of a sample; attention: of the first head of dropout */
    int64_t units, width; /* linear, conv2d: D; embedding: V and C; positions: P; vocab_loss, vocab_part: V */
    tri_shape to;         /* reshape: of one sample */
    int64_t words;        /* vocab_part, vocab_sums: of the whole vocabulary */
    int64_t whole;        /* dropout: elements of a whole sample; attention: heads of a whole layer; 0: all are here */
    int parts; /* layer_norm, rms_norm, bias of x[B,T,C]: the tokens of a sample are in this many parts: gradients of
                  parameters are sums over the tokens of a part, then over samples, then over parts and ranks by
                  their tree; 0: over the rows in order */
    int ranks, rank; /* that share parts, tokens or words out (tri_op_ranks); 0 = 1, alone */
} tri_op_attr;

/* What a kernel is planned from: everything for one shard. Parameters have no batch dimension and are f32, as are their
 * gradients. Where a value is f32 by tri_op_infer() it may be bf16 or f16 too, any of them; its gradient is of its
 * type, and sums are formed in f32. Losses are f32. */
typedef struct tri_op_desc {
    tri_op op;
    tri_op_attr attr;
    int input_count, param_count;
    tri_shape input[TRI_OP_MAX_INPUTS];
    tri_dtype input_dtype[TRI_OP_MAX_INPUTS];
    tri_shape param[TRI_OP_MAX_PARAMS]; /* batch_norm: scale, shift, running mean, running variance (buffers) */
    tri_shape output;
    tri_dtype output_dtype;
    bool need_dinput[TRI_OP_MAX_INPUTS]; /* false: the input's gradient is not wanted (data, labels) */
    int max_shards;                      /* most shards of one call */
    int threads;                         /* of each call */
    const tri_device *device;            /* that calls will be on; NULL: not known, so no library of it is asked */
    bool adds;                           /* embedding, backward: its gradient is added to what is there */
    int64_t places;                      /* kind "tokens": of a sequence, at most */
} tri_op_desc;

/* Whether any value is of that type; bf16 or f16. */
bool tri_op_desc_has(const tri_op_desc *desc, tri_dtype dtype);
bool tri_op_desc_is_half(const tri_op_desc *desc);

/* The ranks that share out the parts of a model, or tokens: what they exchange inside a run. */
typedef struct tri_op_ranks {
    /* Adds a buffer up, in place, with the same bits on all: a balanced tree over the ranks, each sum of two rounded to
     * the type. */
    tri_status (*sum)(void *arg, void *data, int64_t count, tri_dtype dtype);
    /* out[r * count + i] = in of rank r [i]; in may be this rank's place of out. */
    tri_status (*gather)(void *arg, const void *in, void *out, int64_t count, tri_dtype dtype);
    void *arg;
    tri_status status; /* the first failure; from then on nothing is exchanged */
} tri_op_ranks;

/* All shards of a step, wherever they are computed: what sums over them inside a run. */
typedef struct tri_op_batch {
    /* leaves[s * count + i] of each shard s of the run; on return leaves[i] is the root of the canonical tree over the
     * shards of the whole batch, with the same bits on all workers. NULL: the run has all of them. */
    tri_status (*sum)(void *arg, double *leaves, int shards, int64_t count);
    void *arg;
    tri_status status; /* the first failure; from then on nothing is summed */
} tri_op_batch;
/* leaves[i] becomes the root of the balanced tree over `shards` leaves of `count` numbers: a subtree, a power of two of
 * them, or any number of ranks' (tri_tree_plan_leaves()). Destroys leaves. */
void tri_doubles_tree_sum(double *leaves, int shards, int64_t count);

/* Kind "tokens": shards that follow each other in one sequence. */
typedef struct tri_place_span {
    int64_t row, count; /* shards of the call */
    int64_t place;      /* of the first one in its sequence */
    int64_t sequence;   /* its number: what it keeps is there in tri_op_call.kept */
} tri_place_span;

/* One run. Pointers to the first shard; shard s of input i is at input[i] + s * (bytes of one shard's input). */
typedef struct tri_op_call {
    const tri_device *device; /* in whose memory is what the kernel reads and writes, from `input` to `scratch` and
                                 the gradients; NULL: the host's. All else is the host's */
    int shards;               /* in this call, 1 .. max_shards */
    const int32_t *rows;      /* [shards] valid samples (of the first dimension) of each shard */
    const void *input[TRI_OP_MAX_INPUTS];
    const void *param[TRI_OP_MAX_PARAMS];
    const void *rounded[TRI_OP_MAX_PARAMS]; /* parameters that kernel->rounds names, in that type; NULL: the kernel
                                               rounds them itself */
    void *output;
    void *saved;      /* from forward to backward: saved_nbytes * max_shards */
    void *scratch;    /* inside one call: scratch_nbytes in all */
    void *host;       /* rows with gpu: the host's memory for what is exchanged, host_nbytes in all */
    bool training;    /* false: dropout passes, batch norm uses running statistics */
    float loss_scale; /* losses, vocab_part: factor of the gradients that begin there; 0: 1 */
    uint64_t seed, step;
    const int64_t *first_sample; /* [shards] number of the first sample within the global batch: keys of dropout */
    tri_op_ranks *across;        /* of ops with attr.ranks above 1 */
    tri_op_batch *batch;         /* of ops with attr.sync; NULL: the run has all shards */
    const tri_place_span *spans; /* kind "tokens": [span_count], of all shards */
    int span_count;
    float *kept;                   /* of the device: what each sequence keeps from call to call, of all ops */
    int64_t kept_each, kept_first; /* from one sequence to the next; what this op keeps is there in each */
    const struct tri_op_call *add; /* rows that take one, forward: input 0 is the output of this add, which the kernel
                                      computes too; NULL: it is there */
    /* backward only: */
    const void *doutput; /* MAY be overwritten by linear, conv2d, batch_norm, add with fused relu: masked in place;
                             and by gather_tokens: added up in place */
    void *dinput[TRI_OP_MAX_INPUTS]; /* NULL: not wanted; overwritten, never added to; may alias doutput where the
                                        kernel's flags say so */
    bool adds_dinput;                /* rows that can: dinput[0] is added to, as tri_array_add() does */
    int part_count;                  /* subtrees of the shards of this call */
    const tri_tree_part *parts;      /* first is relative to the call's first shard */
    /* dparam[p][part]: gradient of parameter p, one per part; overwritten (desc.adds: added to); NULL: not wanted.
     * Gradients are f32 sums over samples, never means. batch_norm: for the buffers (2, 3) the sum over shards with
     * samples of their mean and unbiased variance (sync: those of the batch), written by forward (training) and by
     * backward, by each that is given part_count and dparam. */
    float *const *dparam[TRI_OP_MAX_PARAMS];
} tri_op_call;

/* vocab_part, vocab_join: what is known of a row's logits for some of the words, as f32. vocab_sums makes the loss of
 * it; what comes down in place of its gradient is the logarithm of the sum of the exponentials of all logits, in `top`.
 * Rows that do not count are zeros. */
typedef struct tri_vocab_state {
    float top, sum; /* of exp(x - top) */
    float right;    /* logit of the target, 0: it is elsewhere */
    float before;   /* the largest logit before the target's */
    float total;    /* of logits: smoothing */
} tri_vocab_state;
#define TRI_VOCAB_STATE 5 /* floats of one */

typedef struct tri_kernel tri_kernel; /* one planned op */

typedef struct tri_kernel_ops {
    tri_op op;
    const char *name;                     /* "winograd", "dnnl", "tiles"; NULL: the reference */
    bool (*can)(const tri_op_desc *desc); /* NULL: always */
    /* Fills kernel->saved_nbytes (per shard), kernel->scratch_nbytes and kernel->state (the kernel's own). */
    tri_status (*plan)(const tri_op_desc *desc, tri_kernel *kernel);
    void (*forward)(const tri_kernel *kernel, const tri_op_call *call);
    void (*backward)(const tri_kernel *kernel, const tri_op_call *call); /* NULL: has no gradient */
    void (*release)(tri_kernel *kernel);                                 /* NULL: nothing to free */
    bool dinput_may_alias; /* dinput[0] may be the same memory as doutput */
    bool output_may_alias; /* output may be the same memory as input[0] (backward then sees the output only) */
    bool backward_input;   /* backward reads input[] */
    bool input_for_weight; /* and that only for the gradient of parameter 0, where it is wanted */
    bool backward_output;  /* backward reads output */
    bool half;             /* takes values in bf16 too, any of them */
    bool f16;              /* the same for f16 */
    bool pools;            /* takes attr.pool, and is faster so than with a pool behind it */
    bool gpu;              /* launches on call->device: the host never reads what calls point to */
    bool takes_add;        /* layer_norm, rms_norm: takes call.add: the bits of both kernels in one pass */
    bool adds_dinput;      /* takes call.adds_dinput */
    bool view; /* output may be input[0] itself, and continue being read as that; both gradients may be one */
} tri_kernel_ops;

struct tri_kernel {
    const tri_kernel_ops *ops;
    tri_op_desc desc;
    size_t saved_nbytes;                 /* per shard */
    size_t scratch_nbytes;               /* per call */
    size_t host_nbytes;                  /* per call */
    tri_dtype rounds[TRI_OP_MAX_PARAMS]; /* reads the parameter in this type of 16 bits; TRI_F32: as it is */
    int64_t kept_count;                  /* kind "tokens": floats that a sequence keeps from call to call */
    void *state;
};

/* What an op is: all that differs between ops and is no kernel of a device. The row is beside the reference. */
typedef struct tri_op_ops {
    int inputs, max_inputs; /* 0: 1; 0: as many as inputs */
    /* Shapes of one shard: the output's and those of parameters, with every check that a kernel relies on. */
    tri_status (*infer)(tri_op_desc *desc);
    double (*value)(double x);                   /* an op on each element alone: y */
    double (*slope)(double x, double y);         /* and dy/dx, of the one that backward reads; the other is 0 */
    double (*products)(const tri_op_desc *desc); /* multiplications of one pass over one shard; NULL: not counted */
    bool squares;                                /* its products are of input 0 with itself: backward is two passes */
    /* Bytes per sample that ranks (attr.ranks) exchange, forward and backward, as sums; NULL: few. */
    double (*exchange)(const tri_op_desc *desc);
    int exchanges; /* times; 0: 1 */

    bool loss;            /* the output is TRI_LOSS_COLUMNS sums of each shard; ends a model */
    bool makes_logits;    /* loss: multiplies what goes in to logits */
    bool begins_gradient; /* backward starts here: gradients are multiplied by loss_scale */
    bool rounds_weights;  /* parameter 0 is rounded to f16 where values are */
    bool gives_half;      /* with a precision of 16 bits values are of it from here on */
    bool gives_half_gpu;  /* the same on a GPU; elsewhere products of f32 are as fast */
    bool gives_f32;       /* the output is f32 whatever goes in */
    bool fuses_relu;      /* takes attr.relu */
    bool renames;         /* the output is input 0 in another shape */
    bool reads_table;     /* input 0 has numbers of rows of parameter 0; takes desc.adds */
    bool weights_wait;    /* the gradient of parameter 0 may be formed long after that of input 0 */
    /* Kind "tokens", of models that generate text: */
    bool per_token;   /* there is a row for it, or those for training do with each token a shard */
    bool packs;       /* parameter 0 is a tri_matrix, an object of the host */
    bool trains_only; /* without training the output is the input */
    tri_kernel_ops reference;
} tri_op_ops;
/* NULL for what is no op. */
const tri_op_ops *tri_op_row(tri_op op);

/* Losses: output is f32[shards * 4]: for each shard the sum of losses, the count of targets (weight), the number
 * predicted right (argmax; mse: 0), and 0 (mse: the sum of absolute errors). Their backward writes dinput[0] = d(sum of
 * losses)/dx (times loss_scale), doutput is ignored. Rows >= rows[s] and ignored targets have weight zero. */
#define TRI_LOSS_COLUMNS 4

/* Picks the first row of the kind's list that can, plans it. kind: "cpu" (Winograd, oneDNN, own tiles, reference),
 * "dnnl" (the same without Winograd), "tiles" (without both) or "reference"; "tokens": forward alone, a shard is one
 * token of a sequence and knows its place; "cuda": launches on a GPU, where it has a row (with desc.places one for
 * tokens): no reference is behind. A
 * row whose plan says TRI_EUNSUPPORTED (this oneDNN has nothing fast) gives way to the next one, which has the same
 * flags. */
tri_status tri_kernel_plan(const char *kind, const tri_op_desc *desc, tri_kernel *kernel);
void tri_kernel_forward(const tri_kernel *kernel, const tri_op_call *call);
void tri_kernel_backward(const tri_kernel *kernel, const tri_op_call *call);
void tri_kernel_release(tri_kernel *kernel);
/* "oneDNN 2.6.3, own tiles for avx2, bf16 by avx2": what decides the bits of results; ranks of one run must agree. */
const char *tri_kernel_arithmetic(void);
/* The same of kernels that are limited to an instruction set. */
const char *tri_kernel_arithmetic_of(tri_isa isa);
/* "oneDNN 2.6.3", or "none". */
const char *tri_kernel_library(void);
/* Multiply-adds per second, counted as two operations each, that this many threads reach in registers: the best of many
 * short runs within `seconds`. Of bf16 where that is the precision, by the instructions that its products are made of
 * here; else of f32, in which those of f16 are made too. */
double tri_kernel_peak(tri_dtype precision, int threads, double seconds);
/* "oneDNN 2.6.3, own tiles for avx2, bf16 by avx2, OpenMP": what the fast rows are on in this build. */
const char *tri_kernel_about(void);
/* The flags a planner of memory asks for before planning. */
const tri_kernel_ops *tri_kernel_choose(const char *kind, const tri_op_desc *desc);

/* Shape of the output, for the shapes of one shard; checks everything: TRI_EINVAL names op, wanted, found. Fills
 * desc->output, output_dtype (f32; the caller may make it bf16 or f16 but for losses) and desc->param[] shapes and
 * param_count. Targets and indices outside of the classes (rows) are no error at run time: the target is ignored, the
 * embedding is zero. */
tri_status tri_op_infer(tri_op_desc *desc);

/* Fixed tiles over a flat range, each by one thread; threads 1 runs inline. Only loops whose tiles are independent. */
typedef void (*tri_tile_fn)(void *arg, int64_t tile);
/* Threads that a rank has by default: OMP_NUM_THREADS, or the cores of this process; 1 without OpenMP. */
int tri_tiles_threads(void);
void tri_tiles_run(int threads, int64_t tile_count, tri_tile_fn body, void *arg);

/* Elementwise over slices, used by optim/ and parallel/; fixed tiles, bits independent of threads. */
void tri_vector_add(int threads, float *out, const float *a, const float *b, int64_t count);
/* The same in bf16 or f16, each sum rounded once. */
void tri_vector_add_half(int threads, tri_dtype dtype, uint16_t *out, const uint16_t *a, const uint16_t *b,
                         int64_t count);
/* Sum of squares in fixed blocks of 4096 then a tree over blocks: block i covers [4096 i, ...). first must be a
 * multiple. */
#define TRI_NORM_BLOCK 4096
void tri_vector_square_blocks(int threads, const float *x, int64_t count, double *blocks);
/* Root of the balanced tree over `count` blocks (in place; returns it). */
double tri_vector_tree_sum(double *blocks, int64_t count);

#endif
