/* SPDX-License-Identifier: Apache-2.0
 *
 * pairs.cpp: send and receive, and regions in which several operations are asked for at once.
 */
#include "group.hpp"

namespace trireme
{

namespace
{
/* What the caller of send or recv holds: its pairs begin when it is waited for, asked, or dropped. */
class Pending : public c10d::Work
{
  public:
    Pending(c10d::OpType type, int peer, std::shared_ptr<Place> place, c10::intrusive_ptr<Pairs> pairs)
        : c10d::Work(-1, type), peer_(peer), place_(std::move(place)), pairs_(std::move(pairs))
    {
    }

    ~Pending() override
    {
        begin();
    }

    bool isCompleted() override
    {
        begin();
        return pairs_->isCompleted();
    }

    bool isSuccess() const override
    {
        return pairs_->isSuccess();
    }

    std::exception_ptr exception() const override
    {
        return pairs_->exception();
    }

    int sourceRank() const override
    {
        return peer_;
    }

    bool wait(std::chrono::milliseconds timeout) override
    {
        return pairs_->wait(timeout);
    }

    void synchronize() override
    {
        pairs_->wait();
    }

    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override
    {
        begin();
        return pairs_->getFuture();
    }

  private:
    void begin()
    {
        if (place_->isOpen(pairs_))
            place_->flush();
    }

    int peer_;
    std::shared_ptr<Place> place_;
    c10::intrusive_ptr<Pairs> pairs_;
};
} // namespace

WorkPtr Group::pair(Tensors &tensors, int peer, int tag, bool sends)
{
    wantOne(sends ? "send" : "recv", tensors.size());
    wantRoot(sends ? "send" : "recv", peer);
    if (peer == rank_)
        raise(TRI_EINVAL,
              std::string(sends ? "send" : "recv") + ": want another rank than this one, got " + std::to_string(peer));
    Staging staging;
    at::Tensor packed = sends ? staging.in(tensors[0]) : staging.out(tensors[0], false);
    Span span = spanOf(packed);
    Pairs::Pair asked = {sends, peer, tag, span.data, span.count, span.dtype, tensors[0], packed};
    auto pairs = members->place->add(members, limitOf(c10d::kUnsetTimeout), asked);
    sequence_++;
    if (coalescing_) {
        latest_ = pairs; /* they begin at the end, also when nobody keeps what is returned here */
        return pairs;
    }
    return c10::make_intrusive<Pending>(sends ? c10d::OpType::SEND : c10d::OpType::RECV, peer, members->place, pairs);
}

WorkPtr Group::send(Tensors &tensors, int to, int tag)
{
    return pair(tensors, to, tag, true);
}

WorkPtr Group::recv(Tensors &tensors, int from, int tag)
{
    return pair(tensors, from, tag, false);
}

namespace
{
/* Waits for a message of any rank, then receives that. */
class FromAny : public Pairs
{
  public:
    FromAny(std::shared_ptr<Members> of, double limit_s, const Pair &pair) : Pairs(std::move(of), limit_s)
    {
        pairs.push_back(pair);
    }

    int sourceRank() const override
    {
        return pairs[0].peer;
    }

  protected:
    void run() override
    {
        members->limit(limit_s_);
        check(tri_probe_sender(members->group, &pairs[0].peer));
        Pairs::run();
    }
};
} // namespace

WorkPtr Group::recvAnysource(Tensors &tensors, int tag)
{
    wantOne("recv", tensors.size());
    at::Tensor packed = Staging().out(tensors[0], false);
    Span span = spanOf(packed);
    Pairs::Pair asked = {false, -1, tag, span.data, span.count, span.dtype, tensors[0], packed};
    auto operation = c10::make_intrusive<FromAny>(members, limitOf(c10d::kUnsetTimeout), asked);
    sequence_++;
    members->place->submit(operation);
    return operation;
}

bool Group::supportsCoalescing() const
{
    return true;
}

void Group::startCoalescing()
{
    members->place->flush();
    coalescing_ = true;
    latest_.reset();
}

#if TORCH_VERSION_MAJOR >= 2
WorkPtr Group::endCoalescing()
{
    coalescing_ = false;
    members->place->flush();
    /* In order: when the latest has ended, all have. */
    return std::move(latest_);
}
#else
void Group::endCoalescing(std::vector<WorkPtr> & /* works */)
{
    coalescing_ = false;
    latest_.reset();
    members->place->flush();
}
#endif

} // namespace trireme
