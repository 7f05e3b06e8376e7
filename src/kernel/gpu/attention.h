/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.h: what kernels of attention share: where a head's keys lie, and dropout of weights.
 */
#ifndef TRI_KERNEL_GPU_ATTENTION_H
#define TRI_KERNEL_GPU_ATTENTION_H

#include "kernel/gpu/math.h"
#include "kernel/gpu/philox.h"

/* Number of a head's first weight in the stream of random numbers; that of key u for query t: t length + u further. */
GPU_FN int64_t attention_first(const tri_gpu_attention_args *a, int64_t sample, int64_t head)
{
    const int64_t number = a->first_sample[sample / a->samples] + sample % a->samples;
    return (number * a->heads + a->first_head + head) * a->length * a->length;
}

/* What the weight of key u for query t is multiplied with. */
GPU_FN float attention_keep(const tri_gpu_attention_args *a, int64_t sample, int64_t head, int64_t t, int64_t u)
{
    if (!a->drops || t >= a->length || u >= a->length) {
        return 1.0f;
    }
    const int64_t number = attention_first(a, sample, head) + t * a->length + u;
    return gpu_uniform(a->seed, a->stream, (uint64_t)number) >= a->rate ? a->keep : 0.0f;
}

/* Offset of a head's keys and values in a row. */
GPU_FN int64_t attention_key(const tri_gpu_attention_args *a, int64_t head)
{
    return (a->queries + (int)head / (a->queries / a->keys)) * a->width;
}

#endif
