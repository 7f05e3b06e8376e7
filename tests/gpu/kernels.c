/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels.c: the kernels of kernel/gpu, compiled for the host.
 */
#include "kernel/gpu/kernels.cu"
