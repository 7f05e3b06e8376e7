/* SPDX-License-Identifier: Apache-2.0
 *
 * args.h: the kernels of a GPU by name, and the arguments of each: what host and device agree on.
 *
 * Plain values, passed by copy; pointers are into memory of the device. [TRI_GPU_SHARDS]: one for each shard of the
 * call. A kernel whose result is a sum is a function of the shape of one shard, and the shard is the slowest axis of
 * its grid.
 */
#ifndef TRI_KERNEL_GPU_ARGS_H
#define TRI_KERNEL_GPU_ARGS_H

#include <stdint.h>

#define TRI_GPU_THREADS      256 /* of a block, at most */
#define TRI_GPU_EACH         4   /* neighbours that a thread of an elementwise kernel has: 16 bytes of f32 */
#define TRI_GPU_SHARDS       64  /* of one call, at most */
#define TRI_GPU_DIMS         6
#define TRI_GPU_SQUARES      4096 /* elements of a block of the norm: TRI_NORM_BLOCK */
#define TRI_GPU_SQUARE_LANES 16

#define TRI_GPU_KERNELS(X)                                                                                             \
    X(fill)        /* out[i] = value */                                                                                \
    X(cast)        /* to[i] = from[i]; copies where the types are equal */                                             \
    X(add)         /* out[i] = a[i] + b[i], rounded once */                                                            \
    X(fold)        /* the canonical tree over leaves of shards: blocks along x, parts along y */                       \
    X(digest)      /* xxh3 of tiles: 8 threads each */                                                                 \
    X(squares)     /* blocks[b] = sum of squares of 4096 elements: 16 threads each */                                  \
    X(differs)     /* blocks[b] = threads that found two elements of 16 bits that differ */                            \
    X(step)        /* one step of an optimizer over a run of elements */                                               \
    X(map)         /* activations: y = f(x), or dx = dy f'(.) */                                                       \
    X(pair)        /* a + b or a b, b of one sample or of all; relu */                                                 \
    X(pair_back)   /* gradients of both */                                                                             \
    X(pair_rows)   /* gradient of b where it is of one sample: summed over the samples of a shard */                   \
    X(dropout)     /* to = from scale or 0; a shard along y */                                                         \
    X(bias)        /* y = x + b, b repeated */                                                                         \
    X(swiglu)      /* y = silu(gate) up */                                                                             \
    X(swiglu_back) /* its gradient */                                                                                  \
    X(rope_table)  /* cosines, then sines */                                                                           \
    X(rope)        /* turns queries and keys */                                                                        \
    X(move)        /* rows of one stride to rows of another */                                                         \
    X(transpose)   /* permutes dimensions */                                                                           \
    X(gather)      /* rows of a table */                                                                               \
    X(words_sort)  /* numbers of (word, place) in order: one block a shard */                                          \
    X(words_sum)   /* rows of each word summed in that order: a warp each, a shard along y, columns along z */         \
    X(columns)     /* sums of columns over chunks of rows: columns x, chunks y, shards z */                            \
    X(columns_sum) /* those of all chunks */                                                                           \
    X(batch_roots) /* of running variances */                                                                          \
    X(batch_norm)  /* y from statistics of a shard, or running ones; a shard along y */                                \
    X(batch_norm_back)                                                                                                 \
    X(norm) /* layer norm or RMS norm of x: a warp a row */                                                            \
    X(norm_back)                                                                                                       \
    X(softmax)                                                                                                         \
    X(softmax_back)                                                                                                    \
    X(words_state) /* what is known of the logits of a row so far: a warp a row */                                     \
    X(words_loss)  /* sums of a shard's losses: one block each */                                                      \
    X(words_slope) /* gradients of logits */                                                                           \
    X(words_join)  /* what is known of the logits of a row, from two parts of the words: a thread a row */             \
    X(mse)         /* sums of a shard: one block each */                                                               \
    X(mse_back)                                                                                                        \
    X(pool)      /* max or mean of windows */                                                                          \
    X(pool_back) /* gathers from the windows of a place */                                                             \
    X(global_pool)                                                                                                     \
    X(global_back)                                                                                                     \
    X(relu_cut)          /* dy = 0 where y is not above 0 */                                                           \
    X(gemm)              /* products in f32: tiles of 64 x 64 along x and y, batch along z */                          \
    X(gemm_half)         /* the same by tensor cores */                                                                \
    X(gemm_wide)         /* the same in tiles of 128 x 128 */                                                          \
    X(attention)         /* 32 queries of a head: tiles x, heads y, samples z */                                       \
    X(attention_dot)     /* dy y of each query and head: four a warp */                                                \
    X(attention_dq)      /* gradient of 32 queries */                                                                  \
    X(attention_dkv)     /* gradients of 32 keys and values */                                                         \
    X(attention_64)      /* by tensor cores, heads of at most 64 elements: 64 queries of a head */                     \
    X(attention_128)     /* of at most 128 */                                                                          \
    X(attention_drop_64) /* with dropout */                                                                            \
    X(attention_drop_128)                                                                                              \
    X(attention_dq_64)                                                                                                 \
    X(attention_dq_128)                                                                                                \
    X(attention_dq_drop_64)                                                                                            \
    X(attention_dq_drop_128)                                                                                           \
    X(attention_dkv_64)                                                                                                \
    X(attention_dkv_128)                                                                                               \
    X(attention_dkv_drop_64)                                                                                           \
    X(attention_dkv_drop_128)                                                                                          \
    X(token_rope)      /* turns queries and keys of tokens by their places */                                          \
    X(token_positions) /* y = x + the row of a token's place */                                                        \
    X(cache_write)     /* keys and values of tokens to the cache of their sequences */                                 \
    X(cache_attention) /* of tokens x over the cache, heads y */

#define TRI_GPU_KERNEL_ENUM(name) tri_gpu_kernel_##name,
typedef enum tri_gpu_kernel { TRI_GPU_KERNELS(TRI_GPU_KERNEL_ENUM) TRI_GPU_KERNEL_COUNT } tri_gpu_kernel;
#undef TRI_GPU_KERNEL_ENUM

enum { TRI_GPU_F32, TRI_GPU_BF16, TRI_GPU_F16 };
enum { TRI_GPU_RELU, TRI_GPU_GELU, TRI_GPU_GELU_ERF, TRI_GPU_SILU, TRI_GPU_TANH, TRI_GPU_SIGMOID };
enum {
    TRI_GPU_NO_STEP,
    TRI_GPU_SGD,
    TRI_GPU_MOMENTUM,
    TRI_GPU_NESTEROV,
    TRI_GPU_ADAM,
    TRI_GPU_ADAGRAD,
    TRI_GPU_FTRL,
    TRI_GPU_AVERAGE /* of buffers: a fraction `momentum` of the way to the newest value; beta1: 1 - momentum */
};

/* An array of TRI_GPU_F32, BF16 or F16; data NULL: there is none. */
typedef struct tri_gpu_value {
    void *data;
    int type;
} tri_gpu_value;

typedef struct tri_gpu_fill_args {
    float *out;
    float value;
    int64_t count;
} tri_gpu_fill_args;

typedef struct tri_gpu_cast_args {
    tri_gpu_value to, from;
    int64_t count;
} tri_gpu_cast_args;

typedef struct tri_gpu_add_args {
    tri_gpu_value out, a, b;
    int64_t count;
} tri_gpu_add_args;

/* Part p is the sum of leaves first[p] .. first[p] + leaf_count[p] (a power of two), in tree order. */
typedef struct tri_gpu_fold_args {
    const float *leaves;
    int64_t stride, count; /* between leaves; elements of each */
    float factor;          /* of the sum */
    int adds;              /* to what is in out */
    int32_t first[TRI_GPU_SHARDS], leaf_count[TRI_GPU_SHARDS];
    float *out[TRI_GPU_SHARDS];
} tri_gpu_fold_args;

typedef struct tri_gpu_squares_args {
    const float *x;
    int64_t count;
    double *blocks;
} tri_gpu_squares_args;

#define TRI_GPU_DIGEST_ARRAYS 4
#define TRI_GPU_DIGEST_FEW    60 /* elements: the kernel leaves such tiles out */
typedef struct tri_gpu_digest_tile {
    int64_t array, first, count; /* elements */
    uint64_t seed;
} tri_gpu_digest_tile;

typedef struct tri_gpu_digest_args {
    const float *arrays[TRI_GPU_DIGEST_ARRAYS];
    const tri_gpu_digest_tile *tiles;
    uint64_t *out;
    int64_t count; /* of tiles */
    uint64_t secret[24];
} tri_gpu_digest_args;

#define TRI_GPU_DIFFERS 32 /* elements of a thread */

typedef struct tri_gpu_differs_args {
    const uint16_t *a, *b;
    int64_t count;
    int32_t *blocks;
} tri_gpu_differs_args;

/* Formulas: src/optim; fields that an optimizer has no use for are 0. */
typedef struct tri_gpu_step_args {
    int optimizer;                          /* TRI_GPU_SGD .. */
    float lr, grad_scale;                   /* lr: of ftrl above 0 */
    float decay, shrink;                    /* L2; decoupled: the fraction that a weight loses */
    float momentum;                         /* momentum, nesterov */
    float beta1, beta2, epsilon;            /* adam, adagrad: epsilon */
    float one_minus_beta1, one_minus_beta2; /* adam */
    float step_lr, root_scale;              /* adam */
    float beta, l1, l2;                     /* ftrl */
    float *values;
    const float *grads;
    float *state[2];
    tri_gpu_value rounded; /* data NULL: not wanted; else the values in 16 bits, written with them */
    int64_t count;
} tri_gpu_step_args;

/* dy NULL: to = f(v); else to = dy times the slope at v, which is y where the op's gradient is a function of that. */
typedef struct tri_gpu_map_args {
    tri_gpu_value to, v, dy;
    int op; /* TRI_GPU_RELU .. */
    int64_t count;
} tri_gpu_map_args;

/* count: of all shards; each: of one; sample: elements of b where a shard has one sample of it, else 0. */
typedef struct tri_gpu_pair_args {
    tri_gpu_value y, a, b;
    int multiplies, relu;
    int64_t count, each, sample;
} tri_gpu_pair_args;

/* Pointers that are NULL are not wanted; pair_rows writes db of count / each samples. */
typedef struct tri_gpu_pair_back_args {
    tri_gpu_value da, db, a, b, y, dy;
    int multiplies, relu;
    int64_t count, each, sample;
} tri_gpu_pair_back_args;
typedef tri_gpu_pair_back_args tri_gpu_pair_rows_args;

typedef struct tri_gpu_dropout_args {
    tri_gpu_value to, from;
    uint64_t seed, stream;
    float rate, scale;
    int64_t samples, per_sample, whole, first; /* kernel/row.h: tri_dropout_number() */
    int64_t first_sample[TRI_GPU_SHARDS];
} tri_gpu_dropout_args;

typedef struct tri_gpu_bias_args {
    tri_gpu_value y, x;
    const float *b;
    int64_t count, width;
} tri_gpu_bias_args;

/* count: elements of y, width: of a row of it. */
typedef struct tri_gpu_swiglu_args {
    tri_gpu_value y, x;
    int64_t count, width;
} tri_gpu_swiglu_args;

typedef struct tri_gpu_swiglu_back_args {
    tri_gpu_value dx, x, dy;
    int64_t count, width;
} tri_gpu_swiglu_back_args;

#define TRI_GPU_HEAD 128 /* elements of a head, at most */

typedef struct tri_gpu_rope_table_args {
    float *table;                       /* cosines [length][half], then sines */
    double frequency[TRI_GPU_HEAD / 2]; /* [half] */
    int64_t length, half;
} tri_gpu_rope_table_args;

typedef struct tri_gpu_rope_args {
    tri_gpu_value to, from;
    const float *table;
    int64_t count, heads, turned, length, half; /* pairs in all; heads of a row, those that turn */
    float sign;
} tri_gpu_rope_args;

/* to[o * to_stride + i] = from[o * from_stride + i], i < width, o < outer. */
typedef struct tri_gpu_move_args {
    tri_gpu_value to, from;
    int64_t to_stride, from_stride, to_first, from_first, width, outer;
} tri_gpu_move_args;

/* Element i of a shard, as dim[] counts, is element i * stride of the other array. */
typedef struct tri_gpu_transpose_args {
    tri_gpu_value to, from;
    int64_t count, each;
    int ndim, back; /* back: from is the one that is read in order */
    int64_t dim[TRI_GPU_DIMS], stride[TRI_GPU_DIMS];
} tri_gpu_transpose_args;

/* first: number of the table's first row; others give zeros. */
typedef struct tri_gpu_gather_args {
    tri_gpu_value y;
    const int32_t *index;
    tri_gpu_value table;
    int64_t count, width, first, words; /* elements of y */
} tri_gpu_gather_args;

/* keys [shards][padded]: (word + 1) << 32 | place, largest where there is none; padded: a power of two. */
typedef struct tri_gpu_words_sort_args {
    uint64_t *keys;
    const int32_t *index;
    int64_t count, padded, first, words; /* of a shard */
} tri_gpu_words_sort_args;

#define TRI_GPU_STRIP 256 /* columns that a warp sums */

/* Of words [first, first + words): leaves [shards][words][width], zeroed before. */
typedef struct tri_gpu_words_sum_args {
    float *leaves;
    const uint64_t *keys;
    tri_gpu_value dy;
    int64_t count, padded, width, first, words;
} tri_gpu_words_sum_args;

#define TRI_GPU_MOST_BLOCKS   65535 /* of a grid along y, and along z */
#define TRI_GPU_TILE          64    /* rows and columns of a product that one block computes */
#define TRI_GPU_WIDE          128   /* the same of gemm_wide */
#define TRI_GPU_CHUNK         128   /* rows of one partial sum of columns */
#define TRI_GPU_COLUMNS       128   /* columns of a block of them: half as many as threads */
#define TRI_GPU_SLICES        32    /* threads that add the partial sums of a column */
#define TRI_GPU_SLICE_COLUMNS (TRI_GPU_THREADS / TRI_GPU_SLICES) /* columns of a block of them */
enum {
    TRI_GPU_SUM,         /* g */
    TRI_GPU_LAYER_SUMS,  /* g h and g, h from statistics of each row */
    TRI_GPU_RMS_SUMS,    /* g h */
    TRI_GPU_MEAN_SUMS,   /* x of valid rows */
    TRI_GPU_SQUARE_SUMS, /* (x - mean)^2 of valid rows */
    TRI_GPU_SPREAD_SUMS, /* the same, as sums */
    TRI_GPU_BATCH_SUMS   /* g h and g of valid rows, h from statistics of each channel */
};

/* g: zero where mask is not above 0. partial [shards][chunks][2][width]. */
typedef struct tri_gpu_columns_args {
    tri_gpu_value g, mask, x;
    const float *rows_stats;  /* [shards rows][2]: mean, 1 / root */
    const float *batch_stats; /* [shards][3][width] */
    int mode;
    int64_t rows, width; /* of a shard */
    int64_t valid[TRI_GPU_SHARDS];
    float *partial;
} tri_gpu_columns_args;

/* out [kinds][shards][width], of BATCH_SUMS [4]: the last two are means; MEAN_SUMS and SQUARE_SUMS finish into
 * batch_stats instead. Grid: columns, kinds, shards.
 */
typedef struct tri_gpu_columns_sum_args {
    const float *partial;
    float *out, *batch_stats;
    int mode, shards;
    int64_t chunks, width;
    int64_t valid[TRI_GPU_SHARDS];
    float epsilon;
} tri_gpu_columns_sum_args;

/* roots[c] = 1 / sqrt(variance[c] + epsilon) */
typedef struct tri_gpu_batch_roots_args {
    const float *variance;
    float *roots;
    float epsilon;
    int64_t width;
} tri_gpu_batch_roots_args;

/* stride: of mean and roots from one shard to the next, 0: they have the same. valid: elements. */
typedef struct tri_gpu_batch_norm_args {
    tri_gpu_value y, x;
    const float *scale, *shift, *mean, *roots;
    int relu;
    int64_t each, width, stride;
    int64_t valid[TRI_GPU_SHARDS];
} tri_gpu_batch_norm_args;

/* means [2][shards][width], of g h and of g; shards 1: of the whole batch. */
typedef struct tri_gpu_batch_norm_back_args {
    tri_gpu_value dx, x, dy, mask;
    const float *scale, *stats, *means;
    int shards;
    int64_t each, width;
    int64_t valid[TRI_GPU_SHARDS];
} tri_gpu_batch_norm_back_args;

/* stats [rows][2], NULL: not kept. left: x = left + right is computed first. */
typedef struct tri_gpu_norm_args {
    tri_gpu_value y, x, left, right;
    const float *scale, *shift;
    float *stats;
    int64_t rows, width;
    float epsilon;
    int rms;
} tri_gpu_norm_args;

/* adds: dx, rounded to its type, is added to what is there. */
typedef struct tri_gpu_norm_back_args {
    tri_gpu_value dx, x, dy;
    const float *scale, *stats;
    int64_t rows, width;
    int rms, adds;
} tri_gpu_norm_back_args;

typedef struct tri_gpu_softmax_args {
    tri_gpu_value y, x;
    int64_t rows, width;
} tri_gpu_softmax_args;

typedef struct tri_gpu_softmax_back_args {
    tri_gpu_value dx, y, dy;
    int64_t rows, width;
} tri_gpu_softmax_back_args;

/* As tri_vocab_state; right: of a mixed label the weighted logit of both classes, main: that of the larger weight. */
typedef struct tri_gpu_word_state {
    float top, sum, right, before, total, main;
} tri_gpu_word_state;

/* Rows of targets: those that count are valid[] of each shard's, with a target in [0, words). */
typedef struct tri_gpu_words_state_args {
    tri_gpu_value logits; /* [rows][width]: words first .. */
    const int32_t *targets;
    tri_gpu_word_state *state;
    int64_t rows, each, width, first, words; /* rows in all, of a shard */
    int begins;                              /* nothing is known yet */
    int mixes;                               /* targets may be of two classes: tensor/label.h */
    int64_t valid[TRI_GPU_SHARDS];
} tri_gpu_words_state_args;

typedef struct tri_gpu_words_loss_args {
    const tri_gpu_word_state *state;
    const int32_t *targets;
    float *out, *log_sums; /* [shards][4], [rows] */
    int64_t each, words;
    float smoothing;
    int mixes;
    int64_t valid[TRI_GPU_SHARDS];
} tri_gpu_words_loss_args;

typedef struct tri_gpu_words_slope_args {
    tri_gpu_value to, logits; /* of one type; may be one */
    const int32_t *targets;
    const float *log_sums;
    int64_t rows, each, width, first, words;
    float smoothing, factor;
    int mixes;
    int64_t valid[TRI_GPU_SHARDS];
} tri_gpu_words_slope_args;

#define TRI_GPU_VOCAB_STATE 5 /* floats of a tri_vocab_state */

/* Each [rows][TRI_GPU_VOCAB_STATE]; out may be left. */
typedef struct tri_gpu_words_join_args {
    float *out;
    const float *left, *right;
    int64_t rows;
} tri_gpu_words_join_args;

/* valid: elements of a shard. */
typedef struct tri_gpu_mse_args {
    tri_gpu_value x, t;
    float *out;
    int64_t each;
    int64_t valid[TRI_GPU_SHARDS];
} tri_gpu_mse_args;

typedef struct tri_gpu_mse_back_args {
    tri_gpu_value dx, dt, x, t;
    float factor;
    int64_t each;
    int64_t valid[TRI_GPU_SHARDS];
} tri_gpu_mse_back_args;

typedef struct tri_gpu_window {
    int in[2], out[2], channels, out_channels;
    int kernel[2], stride[2], pad[2], dilation[2], groups;
} tri_gpu_window;

/* count: elements of y; back: of dx; below 2^31. */
typedef struct tri_gpu_pool_args {
    tri_gpu_value y, x;
    tri_gpu_window w;
    int average;
    int count;
} tri_gpu_pool_args;

typedef struct tri_gpu_pool_back_args {
    tri_gpu_value dx, x, dy;
    tri_gpu_window w;
    int average;
    int count;
} tri_gpu_pool_back_args;

typedef struct tri_gpu_global_pool_args {
    tri_gpu_value y, x;
    int64_t count, area, channels;
} tri_gpu_global_pool_args;

typedef struct tri_gpu_global_back_args {
    tri_gpu_value dx, dy;
    int64_t count, area, channels;
} tri_gpu_global_back_args;

typedef struct tri_gpu_relu_cut_args {
    tri_gpu_value dy, y;
    int64_t count;
} tri_gpu_relu_cut_args;

enum {
    TRI_GPU_PLAIN,      /* element (i, k) at i row + k column */
    TRI_GPU_PATCHES,    /* i: place of y, k: (tap, channel): x */
    TRI_GPU_PATCHES_DY, /* i: place of x, k: (tap, unit): dy */
    TRI_GPU_PATCHES_DW  /* i: (tap, channel), k: place of y: x; of c: j likewise, which lies as (channel, tap) */
};

/* One factor of a product; (shard, group) of the batch lies at shard * shard_stride + group * group_stride. */
typedef struct tri_gpu_operand {
    tri_gpu_value value;
    int source;
    int eights; /* 8 neighbours, along k or along i, lie together on multiples of 16 bytes */
    int pairs;  /* of c: elements (i, j) and (i, j + 1), j even, lie together on a multiple of their size */
    int64_t shard_stride, group_stride, row, column;
} tri_gpu_operand;

/* c[i, j] = sum over l < k of a(i, l) b(j, l), in order of l; plus bias[j], relu, or added to c. Factors of gemm_half
 * are rounded to `type`. chunks: above 1, the sums over `chunk` of l each are products of their own, chunk_stride apart
 * in c. */
typedef struct tri_gpu_gemm_args {
    tri_gpu_operand a, b, c;
    int m, n, k;
    int groups, relu, adds, type;
    int chunks, chunk;
    int64_t chunk_stride;
    const float *bias; /* NULL, or [groups][n] */
    tri_gpu_window w;  /* of a convolution */
} tri_gpu_gemm_args;
typedef tri_gpu_gemm_args tri_gpu_gemm_half_args, tri_gpu_gemm_wide_args;

#define TRI_GPU_QUERIES      32  /* of a tile; as many keys */
#define TRI_GPU_QUERIES_HALF 64  /* of a tile of tensor cores; as many keys */
#define TRI_GPU_THREADS_HALF 128 /* of its block: a warp has 16 of them */
#define TRI_GPU_DOTS         4   /* queries of a warp of attention_dot */

/* x [samples length][stride]: queries, keys, values; lse [samples length][queries]. */
typedef struct tri_gpu_attention_args {
    tri_gpu_value x, y;
    float *lse;
    int64_t length, stride, width;
    int queries, keys;
    float scale;
    int drops; /* with what follows, as of dropout */
    float rate, keep;
    uint64_t seed, stream;
    int64_t samples, heads, first_head; /* of a shard; of a layer */
    int64_t first_sample[TRI_GPU_SHARDS];
} tri_gpu_attention_args;
typedef tri_gpu_attention_args tri_gpu_attention_64_args, tri_gpu_attention_128_args;
typedef tri_gpu_attention_args tri_gpu_attention_drop_64_args, tri_gpu_attention_drop_128_args;

/* dot [samples length][queries] = dy y */
typedef struct tri_gpu_attention_dot_args {
    tri_gpu_value y, dy;
    float *dot;
    int64_t rows, width;
} tri_gpu_attention_dot_args;

typedef struct tri_gpu_attention_dq_args {
    tri_gpu_attention_args forward;
    tri_gpu_value dx, dy;
    const float *dot;
} tri_gpu_attention_dq_args;
typedef tri_gpu_attention_dq_args tri_gpu_attention_dkv_args;
typedef tri_gpu_attention_dq_args tri_gpu_attention_dq_64_args, tri_gpu_attention_dq_128_args;
typedef tri_gpu_attention_dq_args tri_gpu_attention_dq_drop_64_args, tri_gpu_attention_dq_drop_128_args;
typedef tri_gpu_attention_dq_args tri_gpu_attention_dkv_64_args, tri_gpu_attention_dkv_128_args;
typedef tri_gpu_attention_dq_args tri_gpu_attention_dkv_drop_64_args, tri_gpu_attention_dkv_drop_128_args;

/* --- generation: rows are tokens of sequences, f32 --- */

#define TRI_GPU_TOKENS 256 /* of one call, at most */

/* Where each row stands. */
typedef struct tri_gpu_tokens {
    int32_t sequence[TRI_GPU_TOKENS], place[TRI_GPU_TOKENS];
} tri_gpu_tokens;

/* count: pairs in all; heads of a row, those that turn. */
typedef struct tri_gpu_token_rope_args {
    float *to;
    const float *from;
    int64_t count;
    int heads, turned, half;
    double frequency[TRI_GPU_HEAD / 2]; /* [half] */
    tri_gpu_tokens tokens;
} tri_gpu_token_rope_args;

typedef struct tri_gpu_token_positions_args {
    float *y;
    const float *x, *table;
    int64_t count, width; /* elements; of a row */
    tri_gpu_tokens tokens;
} tri_gpu_token_positions_args;

#define TRI_GPU_PANEL 32 /* places whose keys lie beside each other, element by element */

/* cache: from one sequence to the next `each` floats: keys [keys][places / PANEL][width][PANEL], then values
 * [keys][places][width]. places: a multiple of PANEL. */
typedef struct tri_gpu_cache {
    float *data;
    int64_t each, places, width;
    int keys;
} tri_gpu_cache;

/* x [rows][queries + 2 keys][width]; count: elements of the keys of all rows. */
typedef struct tri_gpu_cache_write_args {
    tri_gpu_cache cache;
    const float *x;
    int64_t count;
    int queries;
    tri_gpu_tokens tokens;
} tri_gpu_cache_write_args;

/* y [rows][queries][width] */
typedef struct tri_gpu_cache_attention_args {
    tri_gpu_cache cache;
    const float *x;
    float *y;
    float scale;
    int queries;
    tri_gpu_tokens tokens;
} tri_gpu_cache_attention_args;

#endif
