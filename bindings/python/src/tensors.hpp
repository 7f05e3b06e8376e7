/* SPDX-License-Identifier: Apache-2.0
 *
 * tensors.hpp: what a torch tensor is to the C library: memory, a count and an element type.
 *
 * Contiguous tensors are used where they lie. Others are packed first and, when they are written, unpacked afterwards.
 */
#pragma once

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <trireme/tensor.h>

namespace trireme
{

struct Span {
    void *data;
    int64_t count;
    tri_dtype dtype;
};

/* To be moved: every type; complex numbers are pairs, types that the library does not know are bytes. */
Span spanOf(const at::Tensor &tensor);

/* To be combined; spans are of the numbers then. */
struct Reduction {
    tri_reduce_op op;
    double factor; /* TRI_REDUCE_PREMUL_SUM */
};
/* ValueError for an operation or a type that cannot be combined. */
Reduction reductionOf(const c10d::ReduceOp &op, const at::Tensor &tensor);

/* Blocks of ranks that lie wherever their tensors lie; all of one type. */
struct Blocks {
    void *base = nullptr;
    std::vector<int64_t> counts, firsts;
    tri_dtype dtype = TRI_U8;
};
Blocks blocksOf(const std::vector<at::Tensor> &tensors);

class Staging
{
  public:
    /* The tensor, or a packed copy. */
    at::Tensor in(const at::Tensor &tensor);
    /* The tensor, or packed memory whose content finish() copies back; it has the tensor's content when `reads`. */
    at::Tensor out(const at::Tensor &tensor, bool reads);
    std::vector<at::Tensor> in(const std::vector<at::Tensor> &tensors);
    std::vector<at::Tensor> out(const std::vector<at::Tensor> &tensors);
    void finish();

  private:
    std::vector<std::pair<at::Tensor, at::Tensor>> back_; /* tensor, packed */
};

} // namespace trireme
