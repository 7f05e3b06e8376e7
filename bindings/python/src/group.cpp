/* SPDX-License-Identifier: Apache-2.0
 *
 * group.cpp: what torch.distributed asks of a process group, each in one or two calls of the C library.
 */
#include "group.hpp"

#include <algorithm>
#include <numeric>

#include "start.hpp"

namespace trireme
{

Group::Group(std::shared_ptr<Members> of, c10::intrusive_ptr<c10d::Store> store, double timeout_s)
    : Base(tri_group_rank(of->group), tri_group_count(of->group)), members(std::move(of)), store_(std::move(store)),
      timeout_s_(timeout_s)
{
    init();
}

Group::~Group()
{
    members->place->flush();
}

double Group::limitOf(std::chrono::milliseconds timeout) const
{
    double seconds = timeout.count() >= 0 ? static_cast<double>(timeout.count()) / 1000 : timeout_s_;
    return std::min(std::max(seconds, 0.001), 1e6);
}

void Group::setTimeout(std::chrono::milliseconds timeout)
{
    timeout_s_ = static_cast<double>(timeout.count()) / 1000;
}

void Group::shutdown()
{
    members->place->flush();
}

uint64_t Group::getSequenceNumberForGroup()
{
    return sequence_;
}

/* It begins at 0 on every rank. */
void Group::setSequenceNumberForGroup()
{
}

void Group::wantOne(const char *what, size_t count) const
{
    if (count != 1)
        raise(TRI_EINVAL, std::string(what) + ": want one tensor of each rank, got " + std::to_string(count));
}

void Group::wantRoot(const char *what, int64_t root) const
{
    if (root < 0 || root >= size_)
        raise(TRI_EINVAL, std::string(what) + ": want a rank from 0 to " + std::to_string(size_ - 1) + ", got " +
                              std::to_string(root));
}

namespace
{
void wantElements(const char *what, int64_t wanted, const at::Tensor &tensor)
{
    if (tensor.numel() != wanted)
        raise(TRI_EINVAL, std::string(what) + ": want " + std::to_string(wanted) + " elements, got " +
                              std::to_string(tensor.numel()));
}

void wantType(const char *what, const at::Tensor &like, const Tensors &tensors)
{
    for (const at::Tensor &tensor : tensors) {
        if (tensor.scalar_type() != like.scalar_type())
            raise(TRI_EINVAL, std::string(what) + ": want tensors of one type, got " + toString(like.scalar_type()) +
                                  " and " + toString(tensor.scalar_type()));
    }
}

void wantList(const char *what, const Tensors &tensors, int ranks)
{
    if (tensors.size() != static_cast<size_t>(ranks))
        raise(TRI_EINVAL, std::string(what) + ": want a list of " + std::to_string(ranks) + " tensors, got " +
                              std::to_string(tensors.size()));
}
} // namespace

/* --- all ranks have the same ------------------------------------------------------------------------------------- */

WorkPtr Group::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts)
{
    wantOne("broadcast", tensors.size());
    wantRoot("broadcast", opts.rootRank);
    Staging staging;
    at::Tensor data = staging.out(tensors[0], true);
    return start(c10d::OpType::BROADCAST, tensors, blocks(opts), opts.timeout, std::move(staging),
                 [group = members->group, data, root = static_cast<int>(opts.rootRank)] {
                     Span span = spanOf(data);
                     return tri_broadcast(group, span.data, span.count, span.dtype, root, nullptr);
                 });
}

static tri_status allReduce(tri_group *group, const at::Tensor &data, const Reduction &reduction)
{
    Span span = spanOf(data);
    tri_group_scale_next(group, reduction.factor);
    return tri_all_reduce(group, span.data, span.data, span.count, span.dtype, reduction.op, nullptr);
}

/* The elements of all ranks, in the order of the ranks. */
static at::Tensor allGatherRows(tri_group *group, const at::Tensor &own, const std::vector<int64_t> &rows)
{
    std::vector<int64_t> shape = own.sizes().vec(), counts;
    Span span = spanOf(own);
    shape[0] = 1;
    int64_t each = spanOf(at::empty(shape, own.options())).count;
    for (int64_t count : rows)
        counts.push_back(count * each);
    shape[0] = std::accumulate(rows.begin(), rows.end(), int64_t(0));
    at::Tensor all = at::empty(shape, own.options());
    tri_blocks blocks = {counts.data(), nullptr};
    check(tri_all_gather_v(group, span.data, all.data_ptr(), &blocks, span.dtype, nullptr));
    return all;
}

/* Every rank adds the elements of all. */
static void addSparse(tri_group *group, const at::Tensor &tensor)
{
    at::Tensor own = tensor.coalesce();
    std::vector<int64_t> shape = {own.sparse_dim(), own.dim()}, rows;
    shape.insert(shape.end(), own.sizes().begin(), own.sizes().end());
    auto digest = static_cast<int64_t>(c10::get_hash(shape));
    int64_t told[2] = {own._nnz(), digest};
    std::vector<int64_t> all(2 * static_cast<size_t>(tri_group_count(group)));
    check(tri_all_gather(group, told, all.data(), 2, TRI_I64, nullptr));
    for (size_t i = 0; i < all.size(); i += 2) {
        if (all[i + 1] != digest)
            raise(TRI_EMISMATCH,
                  "all_reduce: want sparse tensors of one shape, got another one of rank " + std::to_string(i / 2));
        rows.push_back(all[i]);
    }
    at::Tensor indices = allGatherRows(group, own.indices().t().contiguous(), rows);
    at::Tensor values = allGatherRows(group, own.values().contiguous(), rows);
    at::Tensor into = tensor;
    into.copy_(at::sparse_coo_tensor(indices.t(), values, own.sizes(), own.options()).coalesce());
}

WorkPtr Group::allreduceSparse(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    Reduction reduction = reductionOf(opts.reduceOp, tensors[0]);
    if (reduction.op != TRI_REDUCE_SUM)
        raise(TRI_EUNSUPPORTED,
              std::string("all_reduce: a sparse tensor: want SUM of numbers, got ") + tri_reduce_name(reduction.op));
    return start(c10d::OpType::ALLREDUCE, tensors, blocks(opts), opts.timeout, {},
                 [group = members->group, tensor = tensors[0]] {
                     addSparse(group, tensor);
                     return TRI_OK;
                 });
}

WorkPtr Group::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    wantOne("all_reduce", tensors.size());
    if (tensors[0].layout() == at::kSparse)
        return allreduceSparse(tensors, opts);
    Staging staging;
    at::Tensor data = staging.out(tensors[0], true);
    return start(c10d::OpType::ALLREDUCE, tensors, blocks(opts), opts.timeout, std::move(staging),
                 [group = members->group, data, reduction = reductionOf(opts.reduceOp, data)] {
                     return allReduce(group, data, reduction);
                 });
}

WorkPtr Group::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts)
{
    Staging staging;
    Tensors data;
    std::vector<Reduction> reductions;
    for (const at::Tensor &tensor : tensors) {
        data.push_back(staging.out(tensor, true));
        reductions.push_back(reductionOf(opts.reduceOp, tensor));
    }
    return start(c10d::OpType::ALLREDUCE_COALESCED, tensors, blocks(opts), opts.timeout, std::move(staging),
                 [group = members->group, data, reductions] {
                     tri_status status = TRI_OK;
                     for (size_t i = 0; i < data.size() && status == TRI_OK; i++)
                         status = allReduce(group, data[i], reductions[i]);
                     return status;
                 });
}

WorkPtr Group::barrier(const c10d::BarrierOptions &opts)
{
    return start(c10d::OpType::BARRIER, {}, blocks(opts), opts.timeout, {},
                 [group = members->group] { return tri_barrier(group, nullptr); });
}

/* --- sums in one place -------------------------------------------------------------------------------------------- */

WorkPtr Group::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
    wantOne("reduce", tensors.size());
    wantRoot("reduce", opts.rootRank);
    bool is_root = opts.rootRank == rank_;
    Staging staging;
    /* Elsewhere the tensor keeps its value. */
    at::Tensor data = is_root ? staging.out(tensors[0], true) : staging.in(tensors[0]);
    return start(c10d::OpType::REDUCE, tensors, blocks(opts), opts.timeout, std::move(staging),
                 [group = members->group, data, is_root, root = static_cast<int>(opts.rootRank),
                  reduction = reductionOf(opts.reduceOp, data)] {
                     Span span = spanOf(data);
                     tri_group_scale_next(group, reduction.factor);
                     return tri_reduce(group, span.data, is_root ? span.data : nullptr, span.count, span.dtype,
                                       reduction.op, root, nullptr);
                 });
}

WorkPtr Group::reduce_scatter(Tensors &outputs, TensorLists &inputs, const c10d::ReduceScatterOptions &opts)
{
    wantOne("reduce_scatter", outputs.size());
    wantOne("reduce_scatter", inputs.size());
    wantList("reduce_scatter", inputs[0], size_);
    wantType("reduce_scatter", outputs[0], inputs[0]);
    wantElements("reduce_scatter: output", inputs[0][static_cast<size_t>(rank_)].numel(), outputs[0]);
    Staging staging;
    Tensors in = staging.in(inputs[0]);
    at::Tensor out = staging.out(outputs[0], false);
    return start(c10d::OpType::REDUCE_SCATTER, outputs, blocks(opts), opts.timeout, std::move(staging),
                 [group = members->group, in, out, from = blocksOf(in), reduction = reductionOf(opts.reduceOp, out)] {
                     tri_blocks parts = {from.counts.data(), from.firsts.data()};
                     tri_group_scale_next(group, reduction.factor);
                     return tri_reduce_scatter_v(group, from.base, &parts, out.data_ptr(), from.dtype, reduction.op,
                                                 nullptr);
                 });
}

static tri_status reduceScatter(tri_group *group, const at::Tensor &in, const at::Tensor &out,
                                const Reduction &reduction)
{
    Span span = spanOf(out);
    tri_group_scale_next(group, reduction.factor);
    return tri_reduce_scatter(group, in.data_ptr(), span.data, span.count, span.dtype, reduction.op, nullptr);
}

WorkPtr Group::_reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &opts)
{
    wantType("reduce_scatter_tensor", output, {input});
    wantElements("reduce_scatter_tensor: input", output.numel() * size_, input);
    Staging staging;
    at::Tensor in = staging.in(input), out = staging.out(output, false);
    return start(c10d::OpType::_REDUCE_SCATTER_BASE, {output}, blocks(opts), opts.timeout, std::move(staging),
                 [group = members->group, in, out, reduction = reductionOf(opts.reduceOp, out)] {
                     return reduceScatter(group, in, out, reduction);
                 });
}

WorkPtr Group::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                               const c10d::ReduceScatterOptions &opts)
{
    wantList("reduce_scatter_tensor_coalesced: inputs", inputs, static_cast<int>(outputs.size()));
    for (size_t i = 0; i < outputs.size(); i++) {
        wantType("reduce_scatter_tensor_coalesced", outputs[i], {inputs[i]});
        wantElements("reduce_scatter_tensor_coalesced: input", outputs[i].numel() * size_, inputs[i]);
    }
    Staging staging;
    Tensors in = staging.in(inputs), out = staging.out(outputs);
    std::vector<Reduction> reductions;
    for (const at::Tensor &tensor : out)
        reductions.push_back(reductionOf(opts.reduceOp, tensor));
    return start(c10d::OpType::_REDUCE_SCATTER_BASE, outputs, blocks(opts), opts.timeout, std::move(staging),
                 [group = members->group, in, out, reductions] {
                     tri_status status = TRI_OK;
                     for (size_t i = 0; i < out.size() && status == TRI_OK; i++)
                         status = reduceScatter(group, in[i], out[i], reductions[i]);
                     return status;
                 });
}

/* --- blocks move -------------------------------------------------------------------------------------------------- */

WorkPtr Group::allgather(TensorLists &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts)
{
    wantOne("all_gather", outputs.size());
    wantOne("all_gather", inputs.size());
    wantList("all_gather", outputs[0], size_);
    wantType("all_gather", inputs[0], outputs[0]);
    wantElements("all_gather: own output", inputs[0].numel(), outputs[0][static_cast<size_t>(rank_)]);
    Staging staging;
    at::Tensor in = staging.in(inputs[0]);
    Tensors out = staging.out(outputs[0]);
    return start(c10d::OpType::ALLGATHER, outputs[0], blocks(opts), opts.timeout, std::move(staging),
                 [group = members->group, in, out, to = blocksOf(out)] {
                     tri_blocks parts = {to.counts.data(), to.firsts.data()};
                     return tri_all_gather_v(group, in.data_ptr(), to.base, &parts, to.dtype, nullptr);
                 });
}

/* One list for each input; outputs[i] are the places of input i. */
WorkPtr Group::allgather_coalesced(TensorLists &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts)
{
    Staging staging;
    Tensors in = staging.in(inputs), all;
    std::vector<Blocks> to;
    /* torch's order: outputs[rank][i]. */
    wantList("all_gather_coalesced", outputs.empty() ? Tensors() : Tensors(outputs.size()), size_);
    for (size_t i = 0; i < inputs.size(); i++) {
        Tensors column;
        for (Tensors &of_rank : outputs) {
            wantList("all_gather_coalesced: outputs of a rank", of_rank, static_cast<int>(inputs.size()));
            column.push_back(of_rank[i]);
        }
        wantType("all_gather_coalesced", inputs[i], column);
        wantElements("all_gather_coalesced: own output", inputs[i].numel(), column[static_cast<size_t>(rank_)]);
        Tensors out = staging.out(column);
        to.push_back(blocksOf(out));
        all.insert(all.end(), out.begin(), out.end());
    }
    return start(c10d::OpType::ALLGATHER_COALESCED, all, blocks(opts), opts.timeout, std::move(staging),
                 [group = members->group, in, all, to] {
                     tri_status status = TRI_OK;
                     for (size_t i = 0; i < in.size() && status == TRI_OK; i++) {
                         tri_blocks parts = {to[i].counts.data(), to[i].firsts.data()};
                         status = tri_all_gather_v(group, in[i].data_ptr(), to[i].base, &parts, to[i].dtype, nullptr);
                     }
                     return status;
                 });
}

static tri_status allGather(tri_group *group, const at::Tensor &in, const at::Tensor &out)
{
    Span span = spanOf(in);
    return tri_all_gather(group, span.data, out.data_ptr(), span.count, span.dtype, nullptr);
}

WorkPtr Group::_allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &opts)
{
    wantType("all_gather_into_tensor", output, {input});
    wantElements("all_gather_into_tensor: output", input.numel() * size_, output);
    Staging staging;
    at::Tensor in = staging.in(input), out = staging.out(output, false);
    return start(c10d::OpType::_ALLGATHER_BASE, {output}, blocks(opts), opts.timeout, std::move(staging),
                 [group = members->group, in, out] { return allGather(group, in, out); });
}

WorkPtr Group::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts)
{
    wantList("all_gather_into_tensor_coalesced: inputs", inputs, static_cast<int>(outputs.size()));
    for (size_t i = 0; i < outputs.size(); i++) {
        wantType("all_gather_into_tensor_coalesced", outputs[i], {inputs[i]});
        wantElements("all_gather_into_tensor_coalesced: output", inputs[i].numel() * size_, outputs[i]);
    }
    Staging staging;
    Tensors in = staging.in(inputs), out = staging.out(outputs);
    return start(c10d::OpType::_ALLGATHER_BASE, outputs, blocks(opts), opts.timeout, std::move(staging),
                 [group = members->group, in, out] {
                     tri_status status = TRI_OK;
                     for (size_t i = 0; i < in.size() && status == TRI_OK; i++)
                         status = allGather(group, in[i], out[i]);
                     return status;
                 });
}

WorkPtr Group::gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &opts)
{
    wantOne("gather", inputs.size());
    wantRoot("gather", opts.rootRank);
    bool is_root = opts.rootRank == rank_;
    Staging staging;
    at::Tensor in = staging.in(inputs[0]);
    Tensors out;
    Blocks to;
    if (is_root) {
        wantOne("gather: lists at the root", outputs.size());
        wantList("gather", outputs[0], size_);
        wantType("gather", inputs[0], outputs[0]);
        wantElements("gather: own output", inputs[0].numel(), outputs[0][static_cast<size_t>(rank_)]);
        out = staging.out(outputs[0]);
        to = blocksOf(out);
    } else {
        to.counts.assign(static_cast<size_t>(size_), 0);
        to.counts[static_cast<size_t>(rank_)] = spanOf(in).count;
    }
    return start(c10d::OpType::GATHER, is_root ? outputs[0] : Tensors(), blocks(opts), opts.timeout, std::move(staging),
                 [group = members->group, in, out, to, root = static_cast<int>(opts.rootRank)] {
                     tri_blocks parts = {to.counts.data(), to.firsts.empty() ? nullptr : to.firsts.data()};
                     Span span = spanOf(in);
                     return tri_gather_v(group, span.data, to.base, &parts, span.dtype, root, nullptr);
                 });
}

WorkPtr Group::scatter(Tensors &outputs, TensorLists &inputs, const c10d::ScatterOptions &opts)
{
    wantOne("scatter", outputs.size());
    wantRoot("scatter", opts.rootRank);
    bool is_root = opts.rootRank == rank_;
    Staging staging;
    at::Tensor out = staging.out(outputs[0], false);
    Tensors in;
    Blocks from;
    if (is_root) {
        wantOne("scatter: lists at the root", inputs.size());
        wantList("scatter", inputs[0], size_);
        wantType("scatter", outputs[0], inputs[0]);
        wantElements("scatter: output", inputs[0][static_cast<size_t>(rank_)].numel(), outputs[0]);
        in = staging.in(inputs[0]);
        from = blocksOf(in);
    } else {
        from.counts.assign(static_cast<size_t>(size_), 0);
        from.counts[static_cast<size_t>(rank_)] = spanOf(out).count;
    }
    return start(c10d::OpType::SCATTER, outputs, blocks(opts), opts.timeout, std::move(staging),
                 [group = members->group, in, out, from, root = static_cast<int>(opts.rootRank)] {
                     tri_blocks parts = {from.counts.data(), from.firsts.empty() ? nullptr : from.firsts.data()};
                     Span span = spanOf(out);
                     return tri_scatter_v(group, from.base, &parts, span.data, span.dtype, root, nullptr);
                 });
}

WorkPtr Group::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts)
{
    wantList("all_to_all: outputs", outputs, size_);
    wantList("all_to_all: inputs", inputs, size_);
    wantType("all_to_all", inputs[0], inputs);
    wantType("all_to_all", inputs[0], outputs);
    Staging staging;
    Tensors in = staging.in(inputs), out = staging.out(outputs);
    return start(c10d::OpType::ALLTOALL, outputs, blocks(opts), opts.timeout, std::move(staging),
                 [group = members->group, in, out, from = blocksOf(in), to = blocksOf(out)] {
                     tri_blocks sent = {from.counts.data(), from.firsts.data()};
                     tri_blocks received = {to.counts.data(), to.firsts.data()};
                     return tri_all_to_all_v(group, from.base, &sent, to.base, &received, from.dtype, nullptr);
                 });
}

namespace
{
/* Rows of the first dimension to counts of numbers. */
std::vector<int64_t> countsOf(const char *what, const at::Tensor &tensor, std::vector<int64_t> rows, int ranks)
{
    int64_t all = tensor.dim() > 0 ? tensor.size(0) : 1;
    if (rows.empty()) {
        if (all % ranks != 0)
            raise(TRI_EINVAL, std::string(what) + ": want a first dimension that " + std::to_string(ranks) +
                                  " ranks divide, got " + std::to_string(all));
        rows.assign(static_cast<size_t>(ranks), all / ranks);
    }
    int64_t sum = std::accumulate(rows.begin(), rows.end(), int64_t(0));
    if (rows.size() != static_cast<size_t>(ranks) || sum != all)
        raise(TRI_EINVAL, std::string(what) + ": want " + std::to_string(ranks) + " splits that make " +
                              std::to_string(all) + " rows, got " + std::to_string(rows.size()) + " that make " +
                              std::to_string(sum));
    int64_t each = all > 0 ? spanOf(tensor).count / all : 0;
    for (int64_t &row : rows)
        row *= each;
    return rows;
}
} // namespace

WorkPtr Group::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                             std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &opts)
{
    wantType("all_to_all_single", output, {input});
    Staging staging;
    at::Tensor in = staging.in(input), out = staging.out(output, false);
    return start(c10d::OpType::ALLTOALL_BASE, {output}, blocks(opts), opts.timeout, std::move(staging),
                 [group = members->group, in, out, from = countsOf("all_to_all_single: input", in, input_splits, size_),
                  to = countsOf("all_to_all_single: output", out, output_splits, size_)] {
                     tri_blocks sent = {from.data(), nullptr}, received = {to.data(), nullptr};
                     return tri_all_to_all_v(group, in.data_ptr(), &sent, out.data_ptr(), &received, spanOf(in).dtype,
                                             nullptr);
                 });
}

} // namespace trireme
