/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_wide.cu: large products by tensor cores: the bits of gemm_half in tiles of 128 x 128. The next tile comes from
 * memory into registers, 16 bytes at a time, while the last one is multiplied; shared memory has room for both. Two
 * blocks fit on a multiprocessor.
 *
 * Factors are in 16 bits, and lie along k or along their rows, on multiples of 16 bytes (tri_gpu_gemm() looks).
 */
#include "kernel/gpu/gemm.h"

typedef struct wide_tiles {
    uint32_t a[2][HALF_WORDS(TRI_GPU_WIDE)], b[2][HALF_WORDS(TRI_GPU_WIDE)];
} __attribute__((aligned(16))) wide_tiles;

/* What a thread has of a factor's tiles: twice 8 elements: along k of two rows, or 8 rows of two neighbours along k. */
typedef struct wide_part {
    const char *from;  /* the first ones in the next tile */
    int64_t other;     /* bytes from there to the others */
    int64_t step;      /* bytes to the next tile */
    int end[2];        /* they are there where the tile's k is below */
    int along_k, word; /* where they go */
    gpu_quad quad[2];
} wide_part;

/* Rows from `first` on. */
GPU_FN wide_part wide_make(const tri_gpu_gemm_args *a, const tri_gpu_operand *o, int first, int rows)
{
    wide_part p;
    p.along_k = gemm_along_k(o, GEMM_PLAIN);
    const int row = p.along_k ? gemm_row(gpu_tx()) : gpu_tx() / 16 * 8;
    const int k = p.along_k ? gpu_tx() % 4 * 8 : gpu_tx() % 16 * 2;
    const int64_t at = gemm_base(a, o) + (first + row) * o->row + k * o->column;
    p.from = (const char *)o->value.data + at * 2;
    p.other = p.along_k ? o->row * TRI_GPU_WIDE : o->column * 2; /* TRI_GPU_WIDE / 2 rows of 2 bytes each */
    p.step = o->column * (2 * HALF_DEPTH);
    p.end[0] = first + row < rows ? a->k - k : 0;
    p.end[1] = p.along_k ? (first + row + TRI_GPU_WIDE / 2 < rows ? a->k - k : 0) : p.end[0] - 1;
    p.word = half_place(row) + (p.along_k ? gpu_tx() % 4 * 4 : gpu_tx() % 16);
    return p;
}

GPU_FN void wide_load(wide_part *p, int k0)
{
    const gpu_quad zeros = {{0, 0, 0, 0}};
    GPU_UNROLL
    for (int s = 0; s < 2; s++) {
        p->quad[s] = zeros;
        if (k0 < p->end[s]) {
            __builtin_memcpy(&p->quad[s], gpu_aligned(p->from + s * p->other), sizeof p->quad[s]);
        }
    }
    p->from += p->step;
}

GPU_FN void wide_keep(const wide_part *p, uint32_t *tile)
{
    uint32_t *const words = tile + p->word;
    if (p->along_k) {
        half_store(words, p->quad[0]);
        half_store(words + HALF_WORDS(TRI_GPU_WIDE / 2), p->quad[1]);
        return;
    }
    GPU_UNROLL
    for (int e = 0; e < 8; e++) {
        const int shift = e % 2 * 16;
        words[e * HALF_STRIDE] = (p->quad[0].word[e / 2] >> shift & 0xffffu) | p->quad[1].word[e / 2] >> shift << 16;
    }
}

/* 16 elements of k, from word `word` on, for a warp's 64 x 32. */
GPU_FN void wide_steps(const uint32_t *a, const uint32_t *b, int wm, int wn, int word, float sum[4][4][4],
                       const int type)
{
    uint32_t left[4], right[2][4];
    GPU_UNROLL
    for (int j = 0; j < 2; j++) {
        half_block(right[j], b, wn + 16 * j, word, GEMM_B);
    }
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        half_block(left, a, wm + 16 * i, word, GEMM_A);
        GPU_UNROLL
        for (int j = 0; j < 4; j++) {
            gpu_mma(type, sum[i][j], left, right[j / 2] + j % 2 * 2);
        }
    }
}

/* type: a constant. */
GPU_FN void wide_sums(const tri_gpu_gemm_args *a, wide_tiles *shared, int wm, int wn, float sum[4][4][4],
                      const int type)
{
    wide_part left = wide_make(a, &a->a, gpu_bx() * TRI_GPU_WIDE, a->m),
              right = wide_make(a, &a->b, gpu_by() * TRI_GPU_WIDE, a->n);
    int turn = 0;
    wide_load(&left, 0);
    wide_load(&right, 0);
    wide_keep(&left, shared->a[0]);
    wide_keep(&right, shared->b[0]);
    gpu_sync();
    for (int k0 = 0; k0 < a->k; k0 += HALF_DEPTH) {
        const int more = k0 + HALF_DEPTH < a->k;
        if (more) {
            wide_load(&left, k0 + HALF_DEPTH);
            wide_load(&right, k0 + HALF_DEPTH);
        }
        wide_steps(shared->a[turn], shared->b[turn], wm, wn, 0, sum, type);
        if (k0 + 16 < a->k) {
            wide_steps(shared->a[turn], shared->b[turn], wm, wn, 8, sum, type);
        }
        turn ^= 1;
        if (more) { /* nobody reads that one since the last barrier */
            wide_keep(&left, shared->a[turn]);
            wide_keep(&right, shared->b[turn]);
        }
        gpu_sync();
    }
}

GPU_KERNEL_OF(gemm_wide, TRI_GPU_THREADS, 2)
{
    GPU_SHARED(wide_tiles, shared);
    const int warp = gpu_tx() / 32, wm = warp / 4 * 64, wn = warp % 4 * 32, g = gpu_tx() % 32 / 4, t = gpu_tx() % 4;
    const int m0 = gpu_bx() * TRI_GPU_WIDE + wm, n0 = gpu_by() * TRI_GPU_WIDE + wn;
    const gemm_out out = gemm_out_make(&a);
    float sum[4][4][4] = {{{0}}};
    if (a.type == TRI_GPU_BF16) {
        wide_sums(&a, shared, wm, wn, sum, TRI_GPU_BF16);
    } else {
        wide_sums(&a, shared, wm, wn, sum, TRI_GPU_F16);
    }
    GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        GPU_UNROLL
        for (int j = 0; j < 4; j++) {
            GPU_UNROLL
            for (int r = 0; r < 2; r++) {
                gemm_write_pair(&a, out, m0 + 16 * i + g + 8 * r, n0 + 8 * j + 2 * t, sum[i][j] + 2 * r, GEMM_PLAIN);
            }
        }
    }
}
