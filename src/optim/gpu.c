/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu.c: steps on a device whose kernels are "cuda": one launch for each run of elements of one entry.
 */
#include "kernel/gpu/flat.h"
#include "optim/step.h"

tri_gpu_step_args optim_gpu_args(const tri_optim_ops *ops, const optim_rates *rates, float decay)
{
    const bool nesterov = ops->gpu == TRI_GPU_MOMENTUM && rates->nesterov;
    return (tri_gpu_step_args){.optimizer = nesterov ? TRI_GPU_NESTEROV : ops->gpu,
                               .lr = rates->lr,
                               .grad_scale = rates->grad_scale,
                               .decay = ops->shrinks ? 0 : decay,
                               .shrink = ops->shrinks ? rates->lr * decay : 0,
                               .momentum = rates->momentum,
                               .beta1 = rates->beta1,
                               .beta2 = rates->beta2,
                               .epsilon = rates->epsilon,
                               .one_minus_beta1 = rates->one_minus_beta1,
                               .one_minus_beta2 = rates->one_minus_beta2,
                               .step_lr = rates->step_lr,
                               .root_scale = rates->root_scale,
                               .beta = rates->beta,
                               .l1 = rates->l1,
                               .l2 = rates->l2};
}

void optim_gpu_step(const tri_device *device, const tri_optim_ops *ops, const optim_rates *rates, float decay,
                    float *values, const float *grads, float *const *state, tri_param_copy copy, int64_t count)
{
    tri_gpu_step_args args = optim_gpu_args(ops, rates, decay);
    args.values = values;
    args.grads = grads;
    args.rounded = tri_gpu_value_make(copy.data, copy.dtype);
    args.count = count;
    for (int i = 0; i < TRI_OPTIM_MAX_STATE; i++)
        args.state[i] = state[i];
    if (args.optimizer == TRI_GPU_FTRL && rates->lr <= 0) /* nothing moves */
        return;
    if (!copy.data)
        tri_device_written(device, values, (size_t)count * sizeof(float));
    tri_gpu_step(tri_gpu_queue_of(device), &args);
}

void optim_gpu_average(const tri_device *device, float momentum, float scale, float *values, const float *sums,
                       int64_t count)
{
    const tri_gpu_step_args args = {.optimizer = TRI_GPU_AVERAGE,
                                    .grad_scale = scale,
                                    .momentum = momentum,
                                    .beta1 = 1.0f - momentum,
                                    .values = values,
                                    .grads = sums,
                                    .count = count};
    tri_device_written(device, values, (size_t)count * sizeof(float));
    tri_gpu_step(tri_gpu_queue_of(device), &args);
}
