/* SPDX-License-Identifier: Apache-2.0
 *
 * tensors.cpp: element types, reductions, packing.
 */
#include "tensors.hpp"

#include <algorithm>
#include <sstream>

#include "place.hpp"

namespace trireme
{

namespace
{
/* How many numbers of which type an element is; each 0: bytes. */
struct Type {
    tri_dtype dtype;
    int64_t each;
};

Type typeOf(const at::Tensor &tensor)
{
    switch (tensor.scalar_type()) {
    case at::kFloat:
        return {TRI_F32, 1};
    case at::kDouble:
        return {TRI_F64, 1};
    case at::kBFloat16:
        return {TRI_BF16, 1};
    case at::kHalf:
        return {TRI_F16, 1};
    case at::kChar:
        return {TRI_I8, 1};
    case at::kByte:
    case at::kBool:
        return {TRI_U8, 1};
    case at::kInt:
        return {TRI_I32, 1};
    case at::kLong:
        return {TRI_I64, 1};
    case at::kComplexHalf:
        return {TRI_F16, 2};
    case at::kComplexFloat:
        return {TRI_F32, 2};
    case at::kComplexDouble:
        return {TRI_F64, 2};
    default:
        return {TRI_U8, 0};
    }
}

bool isPlain(const at::Tensor &tensor)
{
    if (!tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg())
        return false;
    /* Blocks are addressed in elements of each other's memory. */
    auto align = static_cast<uintptr_t>(std::min<int64_t>(tensor.element_size(), 8));
    return reinterpret_cast<uintptr_t>(tensor.data_ptr()) % align == 0;
}

/* A stream takes longer to make than a small message to travel: only where something is wrong. */
template <class... Words> [[noreturn]] void refuse(const Words &...words)
{
    std::ostringstream text;
    (text << ... << words);
    raise(TRI_EUNSUPPORTED, text.str());
}

void want(const at::Tensor &tensor)
{
    if (tensor.layout() != at::kStrided)
        refuse("want a dense tensor (all_reduce also takes sparse COO ones), got one of layout ", tensor.layout());
    if (!tensor.device().is_cpu())
        refuse("want a tensor on the CPU, got one on ", tensor.device());
}

double factorOf(const c10d::ReduceOp &op)
{
    auto *supplement = dynamic_cast<c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
    if (!supplement)
        raise(TRI_EINVAL, "PREMUL_SUM: want its factor (torch.distributed._make_nccl_premul_sum), got none");
#if TORCH_VERSION_MAJOR >= 2
    const at::Tensor &tensor = supplement->tensor_factor;
    return tensor.defined() ? tensor.item().toDouble() : supplement->double_factor;
#else
    const std::vector<at::Tensor> &tensors = supplement->tensor_factors;
    if (!tensors.empty() && (tensors.size() != 1 || tensors[0].numel() != 1))
        raise(TRI_EINVAL, "PREMUL_SUM: want one factor, got " + std::to_string(tensors.size()) + " tensors");
    return tensors.empty() ? supplement->double_factor : tensors[0].item().toDouble();
#endif
}

tri_reduce_op nameOf(const c10d::ReduceOp &op)
{
    switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
        return TRI_REDUCE_SUM;
    case c10d::ReduceOp::AVG:
        return TRI_REDUCE_AVERAGE;
    case c10d::ReduceOp::PRODUCT:
        return TRI_REDUCE_PRODUCT;
    case c10d::ReduceOp::MIN:
        return TRI_REDUCE_MIN;
    case c10d::ReduceOp::MAX:
        return TRI_REDUCE_MAX;
    case c10d::ReduceOp::PREMUL_SUM:
        return TRI_REDUCE_PREMUL_SUM;
    default:
        raise(TRI_EUNSUPPORTED, "want one of SUM, AVG, MIN, MAX, PRODUCT and PREMUL_SUM, got a bitwise operation");
    }
}
} // namespace

Span spanOf(const at::Tensor &tensor)
{
    Type type = typeOf(tensor);
    int64_t each = type.each ? type.each : tensor.element_size();
    return {tensor.data_ptr(), tensor.numel() * each, type.dtype};
}

Reduction reductionOf(const c10d::ReduceOp &op, const at::Tensor &tensor)
{
    Reduction reduction = {nameOf(op), 1};
    bool adds =
        reduction.op == TRI_REDUCE_SUM || reduction.op == TRI_REDUCE_AVERAGE || reduction.op == TRI_REDUCE_PREMUL_SUM;
    if (reduction.op == TRI_REDUCE_PREMUL_SUM)
        reduction.factor = factorOf(op);
    if (typeOf(tensor).each == 0)
        refuse("want numbers that can be combined (float64, float32, bfloat16, float16, complex, int64, int32, int8, "
               "uint8, bool), got ",
               tensor.scalar_type());
    if (tensor.is_complex() && !adds)
        refuse("complex numbers can be added, averaged and multiplied by a factor; got ",
               tri_reduce_name(reduction.op));
    if (tensor.scalar_type() == at::kBool) {
        /* As torch adds them: or, and. */
        if (reduction.op != TRI_REDUCE_AVERAGE && adds)
            reduction.op = TRI_REDUCE_MAX;
        else if (reduction.op == TRI_REDUCE_PRODUCT)
            reduction.op = TRI_REDUCE_MIN;
        else if (reduction.op == TRI_REDUCE_AVERAGE)
            raise(TRI_EUNSUPPORTED, "bool: want SUM, PRODUCT, MIN or MAX, got an average");
    }
    return reduction;
}

Blocks blocksOf(const std::vector<at::Tensor> &tensors)
{
    Blocks blocks;
    for (const at::Tensor &tensor : tensors) {
        Span span = spanOf(tensor);
        blocks.dtype = span.dtype;
        blocks.counts.push_back(span.count);
        if (span.count > 0 && (!blocks.base || span.data < blocks.base))
            blocks.base = span.data;
    }
    for (const at::Tensor &tensor : tensors) {
        Span span = spanOf(tensor);
        int64_t nbytes = span.count ? static_cast<char *>(span.data) - static_cast<char *>(blocks.base) : 0;
        blocks.firsts.push_back(nbytes / static_cast<int64_t>(tri_dtype_nbytes(span.dtype)));
    }
    return blocks;
}

at::Tensor Staging::in(const at::Tensor &tensor)
{
    want(tensor);
    return isPlain(tensor) ? tensor : tensor.detach().clone(at::MemoryFormat::Contiguous).resolve_conj().resolve_neg();
}

at::Tensor Staging::out(const at::Tensor &tensor, bool reads)
{
    want(tensor);
    if (isPlain(tensor))
        return tensor;
    at::Tensor packed = reads ? in(tensor) : at::empty(tensor.sizes(), tensor.options());
    back_.emplace_back(tensor, packed);
    return packed;
}

std::vector<at::Tensor> Staging::in(const std::vector<at::Tensor> &tensors)
{
    std::vector<at::Tensor> packed;
    for (const at::Tensor &tensor : tensors)
        packed.push_back(in(tensor));
    return packed;
}

std::vector<at::Tensor> Staging::out(const std::vector<at::Tensor> &tensors)
{
    std::vector<at::Tensor> packed;
    for (const at::Tensor &tensor : tensors)
        packed.push_back(out(tensor, false));
    return packed;
}

void Staging::finish()
{
    for (auto &pair : back_)
        pair.first.copy_(pair.second);
}

} // namespace trireme
