/* SPDX-License-Identifier: Apache-2.0
 *
 * faulty.h: kernels with a fault in each, which the emulator and the sanitizers must find.
 */
#ifndef TRI_TESTS_GPU_FAULTY_H
#define TRI_TESTS_GPU_FAULTY_H

#define TRI_GPU_FAULTY(X)                                                                                              \
    X(two_barriers)  /* half of the threads wait at another barrier */                                                 \
    X(leaver)        /* one thread ends before the barrier */                                                          \
    X(lane_leaver)   /* one lane ends before the exchange */                                                           \
    X(mixed_lanes)   /* lanes of a warp in two exchanges */                                                            \
    X(unset)         /* reads shared memory that nobody wrote */                                                       \
    X(race_shared)   /* a barrier is missing */                                                                        \
    X(race_blocks)   /* two blocks write one element */                                                                \
    X(race_lanes)    /* an exchange of registers taken for a barrier */                                                \
    X(no_race)       /* the first one with its barrier */                                                              \
    X(beyond_shared) /* writes behind the end of shared memory */                                                      \
    X(beyond)        /* writes behind the end of an array */

typedef struct tri_gpu_faulty_args {
    float *x;
} tri_gpu_faulty_args;

#define TRI_GPU_FAULTY_DECLARE(name)                                                                                   \
    typedef tri_gpu_faulty_args tri_gpu_##name##_args;                                                                 \
    void tri_cuda_##name(const void *args);
TRI_GPU_FAULTY(TRI_GPU_FAULTY_DECLARE)
#undef TRI_GPU_FAULTY_DECLARE

#endif
