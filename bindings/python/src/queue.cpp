/* SPDX-License-Identifier: Apache-2.0
 *
 * queue.cpp: operations one at a time, in order, in whichever thread comes first.
 */
#include "place.hpp"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

namespace trireme
{

/* The words by which scripts tell these failures from others. */
static const char *kindOf(tri_status status)
{
    if (status == TRI_ETIMEOUT)
        return "Timed out (timeout of the call or of its process group): ";
    return status == TRI_EPEER ? "Connection closed: " : "";
}

void raise(tri_status status, const std::string &text)
{
    std::string message =
        std::string("trireme: ") + kindOf(status) + (text.empty() ? std::string(tri_status_text(status)) : text);
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

bool Operation::execute()
{
    try {
        at::NoGradGuard no_grad;
        run();
    } catch (...) {
        error_ = std::current_exception();
    }
    std::lock_guard<std::mutex> lock(future_mutex_);
    done_.store(true, std::memory_order_release);
    return future_ != nullptr;
}

void Operation::complete()
{
    if (error_)
        future_->setError(error_);
    else
        future_->markCompleted(c10::IValue(outputs_));
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
    /* complete() marks it, unless the operation has ended already. */
    if (isCompleted() && error_)
        future_->setError(error_);
    else if (isCompleted())
        future_->markCompleted(c10::IValue(outputs_));
    return future_;
}

/* --- the queue; `lock` is of its mutex ---------------------------------------------------------------------------- */

Place::Queue::~Queue()
{
    for (std::thread &thread : threads)
        thread.detach();
}

bool Place::hasWork(const Queue &queue)
{
    return !queue.completed.empty() || (!queue.busy && !queue.items.empty());
}

/* Starts a thread unless one is idle. There are as many as callbacks that wait at the same time, and two. */
void Place::wakeThread(const QueuePtr &queue)
{
    if (queue->idle > 0) {
        queue->work.notify_one();
        return;
    }
    try {
        queue->threads.emplace_back([queue] { thread(queue); });
        queue->idle++;
    } catch (const std::system_error &) {
        /* No thread now: whoever waits serves the queue, and the next operation tries again. */
    }
}

void Place::runFirst(const QueuePtr &queue, std::unique_lock<std::mutex> &lock)
{
    c10::intrusive_ptr<Operation> operation = std::move(queue->items.front());
    queue->items.pop_front();
    queue->busy = true;
    lock.unlock();
    bool has_future = operation->execute();
    lock.lock();
    queue->busy = false;
    if (queue->closed) { /* abandoned */
        (void)operation.release();
        return;
    }
    if (has_future)
        queue->completed.push_back(std::move(operation));
    if (queue->waiting)
        queue->ended.notify_all();
    if (hasWork(*queue))
        wakeThread(queue);
    /* The last owner of a place may be its operation, so this goes after the queue was looked at, unlocked. */
    lock.unlock();
    operation.reset();
    lock.lock();
}

void Place::completeFirst(const QueuePtr &queue, std::unique_lock<std::mutex> &lock)
{
    c10::intrusive_ptr<Operation> operation = std::move(queue->completed.front());
    queue->completed.pop_front();
    queue->marking++;
    if (hasWork(*queue))
        wakeThread(queue);
    lock.unlock();
    operation->complete();
    lock.lock();
    queue->marking--;
    if (queue->waiting)
        queue->ended.notify_all();
    lock.unlock();
    operation.reset();
    lock.lock();
}

void Place::thread(const QueuePtr &queue)
{
    std::unique_lock<std::mutex> lock(queue->mutex);
    while (!queue->closed) {
        if (!hasWork(*queue)) {
            queue->work.wait(lock);
            continue;
        }
        queue->idle--;
        if (!queue->completed.empty())
            completeFirst(queue, lock);
        else
            runFirst(queue, lock);
        queue->idle++;
    }
    queue->idle--;
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
            runFirst(queue_, lock);
    }
    operation->wait();
}

void Place::submit(const c10::intrusive_ptr<Operation> &operation)
{
    std::lock_guard<std::mutex> lock(queue_->mutex);
    enter(operation);
    moveOpen(*queue_);
    queue_->items.push_back(operation);
    if (!queue_->busy)
        wakeThread(queue_);
}

void Place::wait(Operation &operation, std::chrono::milliseconds timeout)
{
    std::shared_ptr<Queue> queue = queue_;
    auto deadline = std::chrono::steady_clock::now() + timeout;
    std::unique_lock<std::mutex> lock(queue->mutex);
    moveOpen(*queue);
    while (!operation.isCompleted()) {
        if (!queue->busy && !queue->items.empty()) {
            runFirst(queue, lock);
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
    if (!queue_->busy)
        wakeThread(queue_);
}

} // namespace trireme
