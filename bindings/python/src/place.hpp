/* SPDX-License-Identifier: Apache-2.0
 *
 * place.hpp: this process's place among the ranks (a tri_comm) and the one queue of operations on it.
 *
 * An operation is a c10d::Work that calls the C library's blocking form. It runs in whichever thread comes first: the
 * caller that blocks, whoever waits for it, or a thread of the queue, which is there so that works nobody waits for
 * make progress and futures complete. Operations run one at a time, in the order in which they were made. The thread
 * that runs one never holds the GIL. Callbacks of futures run in threads of the queue, after the operation has made way
 * for the next: a callback may wait for other operations, since another thread serves the queue meanwhile.
 */
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/version.h>
#include <trireme/comm.h>

namespace trireme
{

/* Throws: ValueError for arguments, else RuntimeError (torch 2: DistBackendError, which is one). */
[[noreturn]] void raise(tri_status status, const std::string &text);
/* Throws the latest failure of this thread unless status is TRI_OK. */
void check(tri_status status);

/* Where a rank of a group tells the number of its latest monitored barrier, in torch's store. */
std::string barrierKey(int rank);

class Place;

class Operation : public c10d::Work
{
  public:
    Operation(c10d::OpType type, std::vector<at::Tensor> outputs);

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void synchronize() override;
    std::vector<at::Tensor> result() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  protected:
    virtual void run() = 0;

  private:
    friend class Place;
    /* True: someone holds its future, which complete() then marks. */
    bool execute();
    void complete();

    std::shared_ptr<Place> place_; /* of the queue it is in */
    std::vector<at::Tensor> outputs_;
    std::atomic<bool> done_{false};
    std::exception_ptr error_; /* written before done_ */
    std::mutex future_mutex_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/* All ranks of a place. */
class Members
{
  public:
    explicit Members(std::shared_ptr<Place> of);
    Members(const Members &) = delete;

    /* Limits the waits of what follows. For operations that run. */
    void limit(double seconds);

    const std::shared_ptr<Place> place;
    tri_group *const group;

  private:
    double limit_s_ = 0;
};

/* Sends and receives of one group that have been asked for and not begun: they travel all at the same time, so that no
 * order of asking makes ranks wait for each other. */
class Pairs : public Operation
{
  public:
    struct Pair {
        bool sends;
        int peer, tag;
        void *data;
        int64_t count;
        tri_dtype dtype;
        at::Tensor tensor, packed; /* packed is copied to tensor after a receive, if it is another */
    };

    explicit Pairs(std::shared_ptr<Members> members, double limit_s);

    const std::shared_ptr<Members> members;
    std::vector<Pair> pairs;

  protected:
    void run() override;
    const double limit_s_;

  private:
    tri_status call(const Pair &pair);
    tri_status callAll();
};

class Place : public std::enable_shared_from_this<Place>
{
  public:
    /* Meets the others through torch's store, or as whoever started this process says. */
    static std::shared_ptr<Place> join(const c10::intrusive_ptr<c10d::Store> &store, int rank, int world,
                                       double timeout_s);
    static std::shared_ptr<Place> joinByStarter(double timeout_s);
    ~Place();

    /* At the end of the process: leaves every place that is left. */
    static void leaveAll();

    tri_comm *comm() const
    {
        return comm_;
    }

    /* Runs it now, after all that came before; throws its error. */
    void run(const c10::intrusive_ptr<Operation> &operation);
    void submit(const c10::intrusive_ptr<Operation> &operation);
    /* timeout 0: as long as the operation's own limit lets it run. Does not throw the operation's error. */
    void wait(Operation &operation, std::chrono::milliseconds timeout);
    /* Adds to the pairs of this group that have not begun. */
    c10::intrusive_ptr<Pairs> add(const std::shared_ptr<Members> &members, double limit_s, const Pairs::Pair &pair);
    /* Pairs that were asked for begin. */
    void flush();
    bool isOpen(const c10::intrusive_ptr<Pairs> &pairs);
    /* Waits at most `seconds` for what is queued, then leaves and ends the threads; false: something still runs, and
     * nothing was left. */
    bool leave(double seconds);
    /* The process ends: what still runs touches nothing of Python's any more when it is through. */
    void abandon();

  private:
    struct Queue {
        std::mutex mutex;
        std::condition_variable work, ended;
        std::deque<c10::intrusive_ptr<Operation>> items;
        std::deque<c10::intrusive_ptr<Operation>> completed; /* their futures are to be marked */
        std::vector<c10::intrusive_ptr<Pairs>> open;
        bool busy = false, closed = false;
        int waiting = 0;
        int idle = 0;    /* threads that look for something to do */
        int marking = 0; /* threads that mark a future, and so may be in a callback */
        std::vector<std::thread> threads;
        ~Queue();
    };
    using QueuePtr = std::shared_ptr<Queue>;

    explicit Place(tri_comm *comm);
    static void thread(const QueuePtr &queue);
    static void runFirst(const QueuePtr &queue, std::unique_lock<std::mutex> &lock);
    static void completeFirst(const QueuePtr &queue, std::unique_lock<std::mutex> &lock);
    static bool hasWork(const Queue &queue);
    static void wakeThread(const QueuePtr &queue);
    static void moveOpen(Queue &queue);
    void enter(const c10::intrusive_ptr<Operation> &operation);

    tri_comm *comm_;
    QueuePtr queue_ = std::make_shared<Queue>();
};

} // namespace trireme
