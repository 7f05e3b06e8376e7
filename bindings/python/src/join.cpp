/* SPDX-License-Identifier: Apache-2.0
 *
 * join.cpp: all-reduces that ranks without data take part in: Horovod's join.
 *
 * Before each one all ranks say in a few bytes what they are about to do. A rank that has joined hears it from the
 * others and contributes elements that change nothing; averages count the ranks that have data.
 */
#include <limits>

#include "start.hpp"

namespace trireme
{

namespace
{
struct Word {
    int64_t joined; /* 0: has data; else for how many operations it has had none */
    int64_t count;  /* tensors */
    int64_t op;
    int64_t digest; /* of their types and lengths, and the name */
};
constexpr int64_t word_count = sizeof(Word) / sizeof(int64_t);

void mix(int64_t &digest, int64_t value)
{
    digest = static_cast<int64_t>((static_cast<uint64_t>(digest) ^ static_cast<uint64_t>(value)) * 0x9E3779B97F4A7C15u);
}

std::vector<Word> tellAll(tri_group *group, const Word &own)
{
    std::vector<Word> all(static_cast<size_t>(tri_group_count(group)));
    check(tri_all_gather(group, &own, all.data(), word_count, TRI_I64, nullptr));
    return all;
}

/* A rank that has data, -1: none. */
int firstActive(const std::vector<Word> &all)
{
    for (size_t r = 0; r < all.size(); r++) {
        if (!all[r].joined)
            return static_cast<int>(r);
    }
    return -1;
}

int64_t countActive(const std::vector<Word> &all)
{
    int64_t count = 0;
    for (const Word &word : all)
        count += !word.joined;
    return count;
}

void wantAlike(const std::vector<Word> &all, const std::string &name)
{
    size_t first = static_cast<size_t>(firstActive(all));
    for (size_t r = first; r < all.size(); r++) {
        if (!all[r].joined && (all[r].digest != all[first].digest || all[r].op != all[first].op))
            raise(TRI_EMISMATCH, "allreduce '" + name + "': ranks " + std::to_string(first) + " and " +
                                     std::to_string(r) + " have different tensors, operations or names");
    }
}

at::ScalarType torchType(int64_t dtype)
{
    switch (dtype) {
    case TRI_F32:
        return at::kFloat;
    case TRI_F64:
        return at::kDouble;
    case TRI_BF16:
        return at::kBFloat16;
    case TRI_F16:
        return at::kHalf;
    case TRI_I8:
        return at::kChar;
    case TRI_I32:
        return at::kInt;
    case TRI_I64:
        return at::kLong;
    default:
        return at::kByte;
    }
}

/* Elements that change no result. */
at::Tensor nothing(int64_t dtype, int64_t count, tri_reduce_op op)
{
    at::Tensor tensor = at::zeros({count}, at::TensorOptions().dtype(torchType(dtype)));
    if (op == TRI_REDUCE_PRODUCT)
        tensor.fill_(1);
    if (op != TRI_REDUCE_MIN && op != TRI_REDUCE_MAX)
        return tensor;
    double sign = op == TRI_REDUCE_MIN ? 1 : -1;
    if (tensor.is_floating_point())
        return tensor.fill_(sign * std::numeric_limits<double>::infinity());
    switch (tensor.scalar_type()) {
    case at::kByte:
        return tensor.fill_(op == TRI_REDUCE_MIN ? 255 : 0);
    case at::kChar:
        return tensor.fill_(op == TRI_REDUCE_MIN ? 127 : -128);
    case at::kInt:
        return tensor.fill_(op == TRI_REDUCE_MIN ? INT32_MAX : INT32_MIN);
    default:
        return tensor.fill_(op == TRI_REDUCE_MIN ? INT64_MAX : INT64_MIN);
    }
}

/* The sum that an average is where not every rank has data. */
tri_reduce_op withJoined(tri_reduce_op op, bool all_active)
{
    return op == TRI_REDUCE_AVERAGE && !all_active ? TRI_REDUCE_SUM : op;
}

tri_status reduceSpan(tri_group *group, const Span &span, tri_reduce_op op)
{
    return tri_all_reduce(group, span.data, span.data, span.count, span.dtype, op, nullptr);
}
} // namespace

WorkPtr Group::allreduceJoined(Tensors tensors, const c10d::ReduceOp &op, const std::string &name)
{
    Staging staging;
    Tensors data;
    Word own = {0, static_cast<int64_t>(tensors.size()), 0, 0};
    tri_reduce_op reduce = TRI_REDUCE_SUM;
    std::vector<int64_t> shapes;
    for (char letter : name)
        mix(own.digest, letter);
    for (const at::Tensor &tensor : tensors) {
        data.push_back(staging.out(tensor, true));
        reduce = reductionOf(op, tensor).op;
        if (reduce == TRI_REDUCE_PREMUL_SUM)
            raise(TRI_EUNSUPPORTED, "allreduce: want a sum with prescale_factor, got PREMUL_SUM");
        Span span = spanOf(data.back());
        mix(own.digest, span.dtype);
        mix(own.digest, span.count);
        shapes.push_back(span.dtype);
        shapes.push_back(span.count);
    }
    own.op = reduce;
    return start(c10d::OpType::ALLREDUCE_COALESCED, tensors, false, c10d::kUnsetTimeout, std::move(staging),
                 [group = members->group, data, own, reduce, shapes, name]() mutable {
                     std::vector<Word> all = tellAll(group, own);
                     wantAlike(all, name);
                     int64_t active = countActive(all);
                     bool all_active = active == tri_group_count(group);
                     if (!all_active && !shapes.empty())
                         check(tri_broadcast(group, shapes.data(), static_cast<int64_t>(shapes.size()), TRI_I64,
                                             firstActive(all), nullptr));
                     for (at::Tensor &tensor : data) {
                         check(reduceSpan(group, spanOf(tensor), withJoined(reduce, all_active)));
                         if (reduce == TRI_REDUCE_AVERAGE && !all_active)
                             tensor.copy_(tensor.div(static_cast<double>(active)));
                     }
                     return TRI_OK;
                 });
}

int64_t Group::join()
{
    int64_t last = -1;
    start(c10d::OpType::BARRIER, {}, true, c10d::kUnsetTimeout, {}, [group = members->group, &last] {
        for (int64_t rounds = 1;; rounds++) {
            std::vector<Word> all = tellAll(group, {rounds, 0, 0, 0});
            int active = firstActive(all);
            if (active < 0) {
                for (size_t r = 0; r < all.size(); r++) {
                    if (last < 0 || all[r].joined <= all[static_cast<size_t>(last)].joined)
                        last = static_cast<int64_t>(r);
                }
                return TRI_OK;
            }
            const Word &word = all[static_cast<size_t>(active)];
            std::vector<int64_t> shapes(static_cast<size_t>(2 * word.count));
            if (word.count > 0)
                check(tri_broadcast(group, shapes.data(), 2 * word.count, TRI_I64, active, nullptr));
            auto op = static_cast<tri_reduce_op>(word.op);
            for (size_t i = 0; i < shapes.size(); i += 2) {
                at::Tensor tensor = nothing(shapes[i], shapes[i + 1], op);
                check(reduceSpan(group, spanOf(tensor), withJoined(op, false)));
            }
        }
    });
    return last;
}

} // namespace trireme
