/* SPDX-License-Identifier: Apache-2.0
 *
 * queue.cpp: operations one at a time, in order, in whichever thread comes first.
 */
#include "place.hpp"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

namespace trireme
{

void raise(tri_status status, const std::string &text)
{
    std::string message = "trireme: " + (text.empty() ? std::string(tri_status_text(status)) : text);
    if (status == TRI_EINVAL || status == TRI_EUNSUPPORTED)
        throw std::invalid_argument(message);
#if TORCH_VERSION_MAJOR >= 2
    C10_THROW_ERROR(DistBackendError, message);
#else
    throw std::runtime_error(message);
#endif
}

void check(tri_status status)
{
    if (status != TRI_OK)
        raise(status, tri_last_error());
}

Operation::Operation(c10d::OpType type, std::vector<at::Tensor> outputs)
    : c10d::Work(-1, type), outputs_(std::move(outputs))
{
}

void Operation::execute()
{
    try {
        at::NoGradGuard no_grad;
        run();
    } catch (...) {
        error_ = std::current_exception();
    }
    c10::intrusive_ptr<c10::ivalue::Future> future;
    {
        std::lock_guard<std::mutex> lock(future_mutex_);
        done_.store(true, std::memory_order_release);
        future = future_;
    }
    if (future && error_)
        future->setError(error_);
    else if (future)
        future->markCompleted(c10::IValue(outputs_));
}

bool Operation::isCompleted()
{
    return done_.load(std::memory_order_acquire);
}

bool Operation::isSuccess() const
{
    return done_.load(std::memory_order_acquire) && !error_;
}

std::exception_ptr Operation::exception() const
{
    return done_.load(std::memory_order_acquire) ? error_ : nullptr;
}

bool Operation::wait(std::chrono::milliseconds timeout)
{
    if (!isCompleted())
        place_->wait(*this, timeout);
    if (error_)
        std::rethrow_exception(error_);
    return true;
}

void Operation::synchronize()
{
    wait();
}

std::vector<at::Tensor> Operation::result()
{
    return outputs_;
}

c10::intrusive_ptr<c10::ivalue::Future> Operation::getFuture()
{
    std::lock_guard<std::mutex> lock(future_mutex_);
    if (future_)
        return future_;
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    /* execute() marks it, unless it has ended already. */
    if (isCompleted() && error_)
        future_->setError(error_);
    else if (isCompleted())
        future_->markCompleted(c10::IValue(outputs_));
    return future_;
}

/* --- the queue; `lock` is of its mutex ---------------------------------------------------------------------------- */

void Place::runFirst(Queue &queue, std::unique_lock<std::mutex> &lock)
{
    c10::intrusive_ptr<Operation> operation = std::move(queue.items.front());
    queue.items.pop_front();
    queue.busy = true;
    lock.unlock();
    operation->execute();
    lock.lock();
    queue.busy = false;
    if (queue.waiting)
        queue.ended.notify_all();
    if (!queue.items.empty())
        queue.work.notify_one();
    /* The last owner of a place may be its operation, so this goes after the queue was looked at, unlocked. */
    lock.unlock();
    operation.reset();
    lock.lock();
}

void Place::thread(const std::shared_ptr<Queue> &queue)
{
    std::unique_lock<std::mutex> lock(queue->mutex);
    while (!queue->closed) {
        if (!queue->busy && !queue->items.empty())
            runFirst(*queue, lock);
        else
            queue->work.wait(lock);
    }
}

void Place::startThread()
{
    if (!thread_.joinable())
        thread_ = std::thread([queue = queue_] { thread(queue); });
    queue_->work.notify_one();
}

void Place::moveOpen(Queue &queue)
{
    for (auto &pairs : queue.open)
        queue.items.push_back(std::move(pairs));
    queue.open.clear();
}

void Place::enter(const c10::intrusive_ptr<Operation> &operation)
{
    if (queue_->closed)
        raise(TRI_EINVAL, "this process group was destroyed");
    operation->place_ = shared_from_this();
}

void Place::run(const c10::intrusive_ptr<Operation> &operation)
{
    {
        std::unique_lock<std::mutex> lock(queue_->mutex);
        enter(operation);
        moveOpen(*queue_);
        queue_->items.push_back(operation);
        if (queue_->items.size() == 1 && !queue_->busy)
            runFirst(*queue_, lock);
    }
    operation->wait();
}

void Place::submit(const c10::intrusive_ptr<Operation> &operation)
{
    std::lock_guard<std::mutex> lock(queue_->mutex);
    enter(operation);
    moveOpen(*queue_);
    queue_->items.push_back(operation);
    startThread();
}

void Place::wait(Operation &operation, std::chrono::milliseconds timeout)
{
    std::shared_ptr<Queue> queue = queue_;
    auto deadline = std::chrono::steady_clock::now() + timeout;
    std::unique_lock<std::mutex> lock(queue->mutex);
    moveOpen(*queue);
    while (!operation.isCompleted()) {
        if (!queue->busy && !queue->items.empty()) {
            runFirst(*queue, lock);
            continue;
        }
        queue->waiting++;
        bool late = false;
        if (timeout == kNoTimeout)
            queue->ended.wait(lock);
        else
            late = queue->ended.wait_until(lock, deadline) == std::cv_status::timeout;
        queue->waiting--;
        if (late && !operation.isCompleted())
            raise(TRI_ETIMEOUT, "wait: the operation still runs after " + std::to_string(timeout.count()) + " ms");
    }
}

c10::intrusive_ptr<Pairs> Place::add(const std::shared_ptr<Members> &members, double limit_s, const Pairs::Pair &pair)
{
    std::lock_guard<std::mutex> lock(queue_->mutex);
    for (auto &pairs : queue_->open) {
        if (pairs->members == members) {
            pairs->pairs.push_back(pair);
            return pairs;
        }
    }
    auto pairs = c10::make_intrusive<Pairs>(members, limit_s);
    enter(pairs);
    pairs->pairs.push_back(pair);
    queue_->open.push_back(pairs);
    return pairs;
}

bool Place::isOpen(const c10::intrusive_ptr<Pairs> &pairs)
{
    std::lock_guard<std::mutex> lock(queue_->mutex);
    for (auto &open : queue_->open) {
        if (open == pairs)
            return true;
    }
    return false;
}

void Place::flush()
{
    std::lock_guard<std::mutex> lock(queue_->mutex);
    if (queue_->open.empty())
        return;
    moveOpen(*queue_);
    startThread();
}

} // namespace trireme
