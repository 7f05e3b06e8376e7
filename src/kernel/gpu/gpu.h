/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu.h: what kernels (*.cu) are written in: one text for nvcc, for clang without the CUDA SDK, and for the host.
 *
 * A kernel is C in the subset that is C++ too. Its arguments are one struct by value; the block's shared memory is one
 * object. On the host each CUDA thread is a fiber (tests/gpu/emulator.c), and the same additions give the same bits:
 * nothing is contracted (-fmad=false, -ffp-contract=off), gpu_fma() stands where a fused operation is wanted, and the
 * functions of mathematics are ours (math.h).
 */
#ifndef TRI_KERNEL_GPU_GPU_H
#define TRI_KERNEL_GPU_GPU_H

#include <stdint.h>

#include "kernel/gpu/args.h"

#if defined(__CUDACC__) && !defined(TRI_GPU_BARE) /* nvcc */
#define GPU_KERNEL(name)                                                                                               \
    extern "C" __global__ void __launch_bounds__(TRI_GPU_THREADS)                                                      \
        tri_cuda_##name(const __grid_constant__ tri_gpu_##name##_args a)
/* Always as many threads; registers leave room for that many blocks on a multiprocessor. */
#define GPU_KERNEL_OF(name, threads, blocks)                                                                           \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                                      \
        tri_cuda_##name(const __grid_constant__ tri_gpu_##name##_args a)
#define GPU_FN       static __device__ __forceinline__
#define GPU_FN_APART static __device__ __noinline__ /* its code is there once */
#define GPU_SHARED(type, name)                                                                                         \
    __shared__ type name##_memory;                                                                                     \
    type *const name = &name##_memory
#define gpu_tx()           ((int)threadIdx.x)
#define gpu_bx()           ((int)blockIdx.x)
#define gpu_by()           ((int)blockIdx.y)
#define gpu_bz()           ((int)blockIdx.z)
#define gpu_nx()           ((int)blockDim.x)
#define gpu_sync()         __syncthreads()
#define gpu_sync_warp()    __syncwarp()
#define gpu_lane(v, l)     __shfl_sync(0xffffffffu, v, l)
#define gpu_xor(v, m)      __shfl_xor_sync(0xffffffffu, v, m)
#define gpu_sqrt(x)        __fsqrt_rn(x)
#define gpu_fma(x, y, z)   __fmaf_rn(x, y, z)
#define gpu_fma64(x, y, z) __fma_rn(x, y, z)
#define gpu_aligned(place) __builtin_assume_aligned(place, 16)
#define gpu_address(tile)  ((uint32_t)__cvta_generic_to_shared(tile))
#define GPU_UNROLL         _Pragma("unroll")
#define GPU_ROLLED         _Pragma("unroll 1")
#define GPU_DEVICE         1
#elif defined(TRI_GPU_BARE) /* clang -x cuda -nocudainc -nocudalib */
#define GPU_KERNEL(name)                     extern "C" __attribute__((global)) void tri_cuda_##name(const tri_gpu_##name##_args a)
#define GPU_KERNEL_OF(name, threads, blocks) __attribute__((launch_bounds(threads, blocks))) GPU_KERNEL(name)
#define GPU_FN                               static __attribute__((device, always_inline)) inline
#define GPU_FN_APART                         static __attribute__((device, noinline))
#define GPU_SHARED(type, name)                                                                                         \
    __attribute__((shared)) static type name##_memory;                                                                 \
    type *const name = &name##_memory
#define gpu_tx()           ((int)__nvvm_read_ptx_sreg_tid_x())
#define gpu_bx()           ((int)__nvvm_read_ptx_sreg_ctaid_x())
#define gpu_by()           ((int)__nvvm_read_ptx_sreg_ctaid_y())
#define gpu_bz()           ((int)__nvvm_read_ptx_sreg_ctaid_z())
#define gpu_nx()           ((int)__nvvm_read_ptx_sreg_ntid_x())
#define gpu_sync()         __syncthreads()
#define gpu_sync_warp()    __nvvm_bar_warp_sync(0xffffffffu)
#define gpu_lane(v, l)     __nvvm_shfl_sync_idx_f32(0xffffffffu, v, l, 0x1f)
#define gpu_xor(v, m)      __nvvm_shfl_sync_bfly_f32(0xffffffffu, v, m, 0x1f)
#define gpu_sqrt(x)        __nvvm_sqrt_rn_f(x)
#define gpu_fma(x, y, z)   __nvvm_fma_rn_f(x, y, z)
#define gpu_fma64(x, y, z) __nvvm_fma_rn_d(x, y, z)
#define gpu_aligned(place) __builtin_assume_aligned(place, 16)
#define gpu_address(tile)  ((uint32_t)(uintptr_t)(const __attribute__((address_space(3))) uint32_t *)(tile))
#define GPU_UNROLL         _Pragma("unroll")
#define GPU_ROLLED         _Pragma("unroll 1")
#define GPU_DEVICE         1
#else /* the host */
#include <math.h>
#include <stddef.h>

#include "tensor/half.h"

typedef struct gpu_thread {
    int tx, bx, by, bz, nx;
} gpu_thread;
extern gpu_thread gpu_now; /* the CUDA thread that runs */
void gpu_sync(void);
void gpu_sync_warp(void);
float gpu_lane(float v, int lane);
void *gpu_shared(size_t nbytes);
/* The place, which is a multiple of 16. */
const void *gpu_aligned(const void *place);
/* d += a b of one tensor-core step of a warp: m16n8k16; type: TRI_GPU_BF16, TRI_GPU_F16. */
void gpu_mma(int type, float *d, const uint32_t *a, const uint32_t *b);
#define GPU_KERNEL(name)                                                                                               \
    static void name##_body(const tri_gpu_##name##_args a);                                                            \
    void tri_cuda_##name(const void *args);                                                                            \
    void tri_cuda_##name(const void *args)                                                                             \
    {                                                                                                                  \
        name##_body(*(const tri_gpu_##name##_args *)args);                                                             \
    }                                                                                                                  \
    static void name##_body(const tri_gpu_##name##_args a)
#define GPU_KERNEL_OF(name, threads, blocks) GPU_KERNEL(name)
#define GPU_FN                               static inline
#define GPU_FN_APART                         static inline
#define GPU_SHARED(type, name)               type *const name = (type *)gpu_shared(sizeof(type))
#define gpu_tx()                             (gpu_now.tx)
#define gpu_bx()                             (gpu_now.bx)
#define gpu_by()                             (gpu_now.by)
#define gpu_bz()                             (gpu_now.bz)
#define gpu_nx()                             (gpu_now.nx)
#define gpu_xor(v, m)                        gpu_lane(v, (gpu_now.tx & 31) ^ (m))
#define gpu_sqrt(x)                          sqrtf(x)
#define gpu_fma(x, y, z)                     fmaf(x, y, z)
#define gpu_fma64(x, y, z)                   fma(x, y, z)
#define GPU_UNROLL
#define GPU_ROLLED
#endif

GPU_FN uint32_t gpu_bits(float x)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}

GPU_FN float gpu_float(uint32_t bits)
{
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

/* x; what is computed from it is computed behind the call, and does not take registers before. */
GPU_FN int gpu_again(int x)
{
#ifdef GPU_DEVICE
    asm volatile("" : "+r"(x));
#endif
    return x;
}

#define GPU_LEAST gpu_float(0xff800000u) /* minus infinity */

#ifdef GPU_DEVICE
/* To nearest even; a NaN stays one, but which one differs between a card and the host. */
GPU_FN uint16_t gpu_to_bf16(float x)
{
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

GPU_FN float gpu_from_f16(uint16_t bits)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

GPU_FN uint16_t gpu_to_f16(float x)
{
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

GPU_FN void gpu_mma(int type, float *d, const uint32_t *a, const uint32_t *b)
{
    if (type == TRI_GPU_BF16) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
}
/* Four matrices of 8 x 8 elements of 16 bits in shared memory: lane l gives the place of row l % 8 of number l / 8, and
 * gets elements 2 t and 2 t + 1 of row g of each; g = l / 4, t = l % 4. */
GPU_FN void gpu_load_matrices(uint32_t m[4], const uint32_t *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(gpu_address(row))
                 : "memory");
}

/* A block of 16 x 16 elements of 16 bits in shared memory, whose rows begin `words` words apart, a multiple of 4. As a
 * left factor: for gpu_mma(). */
GPU_FN void gpu_load_left(uint32_t left[4], const uint32_t *tile, int words)
{
    gpu_load_matrices(left, tile + gpu_tx() % 16 * words + gpu_tx() % 32 / 16 * 4);
}

/* Its rows as columns of two right factors: rows 0 to 7 of right, rows 8 to 15 of right + 2. */
GPU_FN void gpu_load_right(uint32_t right[4], const uint32_t *tile, int words)
{
    gpu_load_matrices(right, tile + (gpu_tx() % 8 + gpu_tx() % 32 / 16 * 8) * words + gpu_tx() % 16 / 8 * 4);
}

/* Its columns as columns of two right factors. */
GPU_FN void gpu_load_turned(uint32_t right[4], const uint32_t *tile, int words)
{
    const uint32_t *const row = tile + gpu_tx() % 16 * words + gpu_tx() % 32 / 16 * 4;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(right[0]), "=r"(right[1]), "=r"(right[2]), "=r"(right[3])
                 : "r"(gpu_address(row))
                 : "memory");
}
#else
GPU_FN uint16_t gpu_to_bf16(float x)
{
    const uint32_t bits = gpu_bits(x);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
}

#define gpu_from_f16(bits) half_from_f16(bits)
#define gpu_to_f16(x)      half_to_f16(x)

GPU_FN void gpu_load_left(uint32_t left[4], const uint32_t *tile, int words)
{
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4;
    for (int i = 0; i < 4; i++) {
        left[i] = tile[(i % 2 * 8 + g) * words + i / 2 * 4 + t];
    }
}

GPU_FN void gpu_load_right(uint32_t right[4], const uint32_t *tile, int words)
{
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4;
    for (int i = 0; i < 4; i++) {
        right[i] = tile[(i / 2 * 8 + g) * words + i % 2 * 4 + t];
    }
}

GPU_FN void gpu_load_turned(uint32_t right[4], const uint32_t *tile, int words)
{
    const int g = gpu_tx() % 32 / 4, t = gpu_tx() % 4, shift = g % 2 * 16;
    for (int i = 0; i < 4; i++) {
        const uint32_t *const upper = tile + (i % 2 * 8 + 2 * t) * words + (i / 2 * 8 + g) / 2;
        right[i] = (upper[0] >> shift & 0xffffu) | upper[words] >> shift << 16;
    }
}
#endif

GPU_FN float gpu_from_half(uint16_t bits, int type)
{
    return type == TRI_GPU_BF16 ? gpu_float((uint32_t)bits << 16) : gpu_from_f16(bits);
}

GPU_FN uint16_t gpu_to_half(float x, int type)
{
    return type == TRI_GPU_BF16 ? gpu_to_bf16(x) : gpu_to_f16(x);
}

/* Two neighbours of an array in 16 bits. */
GPU_FN uint32_t gpu_pair(float x, float y, int type)
{
#ifdef GPU_DEVICE
    uint32_t pair;
    if (type == TRI_GPU_BF16) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    }
    return pair;
#else
    return (uint32_t)gpu_to_half(x, type) | (uint32_t)gpu_to_half(y, type) << 16;
#endif
}

/* 16 bytes, on a multiple of 16. */
typedef struct gpu_quad {
    uint32_t word[4];
} __attribute__((aligned(16))) gpu_quad;

/* Four elements of 16 bits, or two of 32; two of 16. */
typedef uint64_t __attribute__((may_alias)) gpu_four;
typedef uint32_t __attribute__((may_alias)) gpu_two;

/* Those from element i on. */
GPU_FN gpu_quad gpu_load_quad(tri_gpu_value v, int64_t i)
{
    gpu_quad quad;
    __builtin_memcpy(&quad, gpu_aligned((const char *)v.data + i * (v.type == TRI_GPU_F32 ? 4 : 2)), sizeof quad);
    return quad;
}

/* The value that an array of that type keeps of x. */
GPU_FN float gpu_round(float x, int type)
{
    return type == TRI_GPU_F32 ? x : gpu_from_half(gpu_to_half(x, type), type);
}

/* Element i of an array of that type. */
GPU_FN float gpu_load(tri_gpu_value v, int64_t i)
{
    return v.type == TRI_GPU_F32 ? ((const float *)v.data)[i] : gpu_from_half(((const uint16_t *)v.data)[i], v.type);
}

GPU_FN void gpu_store(tri_gpu_value v, int64_t i, float x)
{
    if (v.type == TRI_GPU_F32) {
        ((float *)v.data)[i] = x;
    } else {
        ((uint16_t *)v.data)[i] = gpu_to_half(x, v.type);
    }
}

/* Number of this thread along x, and the place of its first element where each thread has TRI_GPU_EACH of them, a
 * block's width apart. */
GPU_FN int64_t gpu_thread_x(void)
{
    return (int64_t)gpu_bx() * gpu_nx() + gpu_tx();
}

GPU_FN int64_t gpu_first(void)
{
    return (int64_t)gpu_bx() * gpu_nx() * TRI_GPU_EACH + gpu_tx();
}

/* Where the TRI_GPU_EACH neighbours begin that a thread has. */
GPU_FN int64_t gpu_run(void)
{
    return gpu_thread_x() * TRI_GPU_EACH;
}

/* `have` of the neighbours from element i on, all or as many as that; the others are 0. In one access where all are
 * there, on a multiple of their size. */
GPU_FN void gpu_load_run(tri_gpu_value v, int64_t i, int64_t have, float x[TRI_GPU_EACH])
{
    const int width = v.type == TRI_GPU_F32 ? 4 : 2;
    const char *const at = (const char *)v.data + i * width;
    if (have >= TRI_GPU_EACH && (uintptr_t)at % (uintptr_t)(TRI_GPU_EACH * width) == 0) {
        if (width == 4) {
            gpu_quad quad;
            __builtin_memcpy(&quad, gpu_aligned(at), sizeof quad);
            GPU_UNROLL
            for (int k = 0; k < TRI_GPU_EACH; k++) {
                x[k] = gpu_float(quad.word[k]);
            }
        } else {
            const uint64_t four = *(const gpu_four *)at;
            GPU_UNROLL
            for (int k = 0; k < TRI_GPU_EACH; k++) {
                x[k] = gpu_from_half((uint16_t)(four >> 16 * k), v.type);
            }
        }
        return;
    }
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        x[k] = k < have ? gpu_load(v, i + k) : 0.0f;
    }
}

GPU_FN void gpu_store_run(tri_gpu_value v, int64_t i, int64_t have, const float x[TRI_GPU_EACH])
{
    const int width = v.type == TRI_GPU_F32 ? 4 : 2;
    char *const at = (char *)v.data + i * width;
    if (have >= TRI_GPU_EACH && (uintptr_t)at % (uintptr_t)(TRI_GPU_EACH * width) == 0) {
        if (width == 4) {
            gpu_quad quad;
            GPU_UNROLL
            for (int k = 0; k < TRI_GPU_EACH; k++) {
                quad.word[k] = gpu_bits(x[k]);
            }
            __builtin_memcpy((void *)(uintptr_t)gpu_aligned(at), &quad, sizeof quad);
        } else {
            *(gpu_four *)at = (uint64_t)gpu_pair(x[0], x[1], v.type) | (uint64_t)gpu_pair(x[2], x[3], v.type) << 32;
        }
        return;
    }
    GPU_UNROLL
    for (int k = 0; k < TRI_GPU_EACH; k++) {
        if (k < have) {
            gpu_store(v, i + k, x[k]);
        }
    }
}

/* An array in f32. */
GPU_FN tri_gpu_value gpu_f32(const float *data)
{
    tri_gpu_value v;
    v.data = (void *)(uintptr_t)data;
    v.type = TRI_GPU_F32;
    return v;
}

/* Sums and maxima over a warp; every lane gets them. */
GPU_FN float gpu_warp_sum(float v)
{
    GPU_UNROLL
    for (int m = 16; m > 0; m >>= 1) {
        v += gpu_xor(v, m);
    }
    return v;
}

GPU_FN float gpu_larger(float a, float b)
{
    return a > b || a != a ? a : b; /* NaN wins */
}

/* The same, of two zeros either. */
GPU_FN float gpu_most(float a, float b)
{
#ifdef GPU_DEVICE
    float most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
    return most;
#else
    return gpu_larger(a, b);
#endif
}

GPU_FN float gpu_warp_max(float v)
{
    GPU_UNROLL
    for (int m = 16; m > 0; m >>= 1) {
        v = gpu_larger(v, gpu_xor(v, m));
    }
    return v;
}

/* Sum over a block; `part` is shared, of at least 32 floats, and free again on return. */
GPU_FN float gpu_block_sum(float v, float *part)
{
    const int lane = gpu_tx() & 31, warp = gpu_tx() >> 5, warps = gpu_nx() >> 5;
    v = gpu_warp_sum(v);
    if (lane == 0) {
        part[warp] = v;
    }
    gpu_sync();
    v = gpu_warp_sum(lane < warps ? part[lane] : 0.0f);
    gpu_sync();
    return v;
}

#endif
