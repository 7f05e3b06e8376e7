/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels.cu: all kernels as one module.
 */
#include "kernel/gpu/attention.cu"
#include "kernel/gpu/attention_half.cu"
#include "kernel/gpu/digest.cu"
#include "kernel/gpu/elementwise.cu"
#include "kernel/gpu/gemm.cu"
#include "kernel/gpu/gemm_wide.cu"
#include "kernel/gpu/loss.cu"
#include "kernel/gpu/map.cu"
#include "kernel/gpu/norm.cu"
#include "kernel/gpu/optim.cu"
#include "kernel/gpu/pool.cu"
#include "kernel/gpu/tokens.cu"
