/* SPDX-License-Identifier: Apache-2.0
 *
 * step.h: the form of an optimizer: names of its state, and one fused pass over a run of elements of one entry.
 *
 * Included by files of optim/ and their tests only, and by rows.h for its struct.
 */
#ifndef TRI_OPTIM_STEP_H
#define TRI_OPTIM_STEP_H

#include "base/clones.h"
#include "kernel/gpu/args.h"
#include "optim/optim.h"

/* Figures of one step, worked out once for all slices. */
typedef struct optim_rates {
    float lr, grad_scale;
    float momentum; /* sgd */
    bool nesterov;  /* sgd */
    float beta1, beta2, epsilon;
    float one_minus_beta1, one_minus_beta2; /* rounded once, from f64 */
    float step_lr, root_scale;              /* adam: lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
    float beta, l1, l2;                     /* ftrl */
} optim_rates;

typedef struct tri_optim_ops {
    const char *name;
    const char *state[TRI_OPTIM_MAX_STATE]; /* names of state arrays, NULL past the last */
    bool accumulates[TRI_OPTIM_MAX_STATE]; /* sums of squares: they begin with optim.initial_accumulator, others at 0 */
    /* The same on a card: TRI_GPU_SGD .. of kernel/gpu/args.h, TRI_GPU_NO_STEP (0): it cannot; shrinks: weight decay is
     * decoupled there. On the CPU both are up to `step`. */
    int gpu;
    bool shrinks;
    /* count elements of one entry: values move, state moves; decay is this entry's. */
    void (*step)(const optim_rates *rates, float decay, float *values, const float *grads, float *const *state,
                 int64_t count);
} tri_optim_ops;

#define TRI_OPTIM_EXTERN(A, NAME, name) extern const tri_optim_ops tri_optim_##name;
TRI_OPTIM_LIST(TRI_OPTIM_EXTERN, )
#undef TRI_OPTIM_EXTERN
extern const tri_optim_ops tri_optim_sgd_plain; /* sgd without momentum, which keeps no state */

/* A moving average takes in its newest value with weight `fraction`; kept is 1 - fraction. Near 1 the rounding of kept
 * would shift the average (by 1.7e-4 at beta2 = 0.9999), so that a slow average moves by a fraction of the distance.
 * Of a fast one that form would cancel the newest value. */
static inline float optim_average(float average, float newest, float fraction, float kept)
{
    return fraction < 0.5f ? average + fraction * (newest - average) : kept * average + fraction * newest;
}

/* The row of optim.name, its options checked. */
tri_status optim_ops_find(const tri_optim_config *config, const tri_optim_ops **out);
optim_rates optim_rates_make(const tri_optim_config *config, const tri_optim_scalars *figures, double lr_scale);

/* gpu.c: what tri_optim_ops.step does and what running statistics do, on a device whose kernels are "cuda": the same
 * bits. state: TRI_OPTIM_MAX_STATE arrays, NULL past the last; copy: of these values (tri_params_copy_at()). */
tri_gpu_step_args optim_gpu_args(const tri_optim_ops *ops, const optim_rates *rates, float decay);
void optim_gpu_step(const tri_device *device, const tri_optim_ops *ops, const optim_rates *rates, float decay,
                    float *values, const float *grads, float *const *state, tri_param_copy copy, int64_t count);
void optim_gpu_average(const tri_device *device, float momentum, float scale, float *values, const float *sums,
                       int64_t count);

static inline float optim_state_initial(const tri_optim_ops *ops, const tri_optim_config *config, int index)
{
    return ops->accumulates[index] ? (float)config->initial_accumulator : 0.0f;
}

#endif
