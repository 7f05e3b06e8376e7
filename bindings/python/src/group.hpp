/* SPDX-License-Identifier: Apache-2.0
 *
 * group.hpp: torch.distributed's process group over a tri_group: a c10d::Backend (torch 2) or c10d::ProcessGroup
 * (1.13).
 *
 * Functions that only one of both has are plain virtual functions in the other.
 */
#pragma once

#include <string>
#include <vector>

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

#include "place.hpp"
#include "tensors.hpp"

namespace trireme
{

#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

/* Calls of monitored_barrier on this rank. */
struct Barriers {
    uint64_t latest = 0; /* number of the latest one that this rank has joined or heard of */
    std::string failure; /* rank 0: of the latest, "": it passed */
};

class Group : public Base
{
  public:
    Group(std::shared_ptr<Members> members, c10::intrusive_ptr<c10d::Store> store, double timeout_s);
    ~Group() override;

    const std::string getBackendName() const override
    {
        return "trireme";
    }

    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkPtr allgather(TensorLists &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_coalesced(TensorLists &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
    WorkPtr gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &opts) override;
    WorkPtr scatter(Tensors &outputs, TensorLists &inputs, const c10d::ScatterOptions &opts) override;
    WorkPtr reduce_scatter(Tensors &outputs, TensorLists &inputs, const c10d::ReduceScatterOptions &opts) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override;
    WorkPtr send(Tensors &tensors, int to, int tag) override;
    WorkPtr recv(Tensors &tensors, int from, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;
    WorkPtr barrier(const c10d::BarrierOptions &opts) override;
    void monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks) override;
    uint64_t getSequenceNumberForGroup() override;
    void setSequenceNumberForGroup() override;

    /* Names and presence differ between versions. */
    virtual WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &opts);
    virtual WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &opts);
    virtual WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                                  std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &opts);
    virtual WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                    const c10d::AllgatherOptions &opts);
    virtual WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                    const c10d::ReduceScatterOptions &opts);
    virtual bool supportsCoalescing() const;
    void startCoalescing() override;
#if TORCH_VERSION_MAJOR >= 2
    WorkPtr endCoalescing() override;
#else
    void endCoalescing(std::vector<WorkPtr> &works) override;
#endif
    virtual void setTimeout(std::chrono::milliseconds timeout);
    virtual void shutdown();

    /* Horovod's all-reduce: ranks that have joined take part with nothing (join.cpp). */
    WorkPtr allreduceJoined(Tensors tensors, const c10d::ReduceOp &op, const std::string &name);
    /* Blocks until all ranks have joined; the one that came last. */
    int64_t join();

    const std::shared_ptr<Members> members;

  private:
    /* Runs `call` (returns tri_status) in the queue: at once where the caller blocks, else when its turn comes. */
    template <class Call>
    WorkPtr start(c10d::OpType type, Tensors outputs, bool blocks, std::chrono::milliseconds timeout, Staging staging,
                  Call call);
    double limitOf(std::chrono::milliseconds timeout) const;
    WorkPtr allreduceSparse(Tensors &tensors, const c10d::AllreduceOptions &opts);
    WorkPtr pair(Tensors &tensors, int peer, int tag, bool sends);
    void wantOne(const char *what, size_t count) const;
    void wantRoot(const char *what, int64_t root) const;

    const c10::intrusive_ptr<c10d::Store> store_;
    double timeout_s_;
    uint64_t sequence_ = 0;
    Barriers barriers_;
    WorkPtr latest_; /* between startCoalescing and endCoalescing */
    bool coalescing_ = false;
};

} // namespace trireme
