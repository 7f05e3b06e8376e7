/* SPDX-License-Identifier: Apache-2.0
 *
 * place.cpp: joining through torch's store or by the environment, groups, sends and receives, leaving.
 */
#include "place.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>

#include <torch/csrc/utils/pybind.h>

namespace trireme
{

/* --- torch's store as the table where ranks meet ------------------------------------------------------------------ */

std::string barrierKey(int rank)
{
    return "trireme.barrier." + std::to_string(rank);
}

namespace
{
struct Meeting {
    c10::intrusive_ptr<c10d::Store> store;
    std::string text, error;
};

/* Torch's own text, without the stack that it may print below. */
std::string firstLine(const char *text)
{
    return std::string(text, strcspn(text, "\n"));
}

tri_status meetingSet(void *arg, const char *name, const char *text)
{
    auto *meeting = static_cast<Meeting *>(arg);
    try {
        meeting->store->set(name, std::vector<uint8_t>(text, text + strlen(text)));
        return TRI_OK;
    } catch (const std::exception &e) {
        meeting->error = firstLine(e.what());
        return TRI_EIO;
    }
}

/* It asks again and again: not every store stays usable after a wait that has timed out. */
const char *meetingWait(void *arg, const char *name, double timeout_s)
{
    using Clock = std::chrono::steady_clock;
    auto *meeting = static_cast<Meeting *>(arg);
    auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
    auto pause = std::chrono::milliseconds(1);
    try {
        while (!meeting->store->check({name})) {
            if (Clock::now() >= until)
                return nullptr;
            std::this_thread::sleep_until(std::min<Clock::time_point>(until, Clock::now() + pause));
            pause = std::min(2 * pause, std::chrono::milliseconds(50));
        }
        std::vector<uint8_t> bytes = meeting->store->get(name);
        meeting->text.assign(bytes.begin(), bytes.end());
        return meeting->text.c_str();
    } catch (const std::exception &e) {
        meeting->error = firstLine(e.what());
        return nullptr;
    }
}

/* So that a later group may meet at the same names. All have read what they needed: they are linked. */
void clear(const c10::intrusive_ptr<c10d::Store> &store, int world)
{
    std::vector<std::string> names = {"trireme.token", "trireme.addresses", barrierKey(0)};
    for (int r = 1; r < world; r++) {
        names.push_back("trireme.address." + std::to_string(r));
        names.push_back(barrierKey(r));
    }
    for (const std::string &name : names) {
        try {
            store->deleteKey(name);
        } catch (const std::exception &) {
            /* Not every store can. */
        }
    }
}

/* While it lives, a signal that Python receives (Ctrl-C) ends a wait for other ranks, and its exception is thrown. */
class Interruptible
{
  public:
    Interruptible()
    {
        raised_ = false;
        tri_join_interrupt_set(look);
    }
    ~Interruptible()
    {
        tri_join_interrupt_set(nullptr);
    }
    /* Where ranks were found all the same, they are left. */
    void rethrow(tri_comm *comm) const
    {
        if (!raised_)
            return;
        if (comm)
            tri_comm_leave(comm);
        pybind11::gil_scoped_acquire gil;
        throw pybind11::error_already_set();
    }

  private:
    static int look()
    {
        if (raised_ || !PyGILState_GetThisThreadState())
            return raised_ ? SIGINT : 0;
        pybind11::gil_scoped_acquire gil;
        raised_ = PyErr_CheckSignals() != 0;
        return raised_ ? SIGINT : 0;
    }
    static thread_local bool raised_;
};
thread_local bool Interruptible::raised_ = false;

/* Threads of a closed queue. The caller may be one of them: an operation may be the last owner of its place. What the
 * others still hold may need the GIL to go. */
void joinAll(std::vector<std::thread> &threads)
{
    std::unique_ptr<pybind11::gil_scoped_release> released;
    if (!threads.empty() && Py_IsInitialized() && PyGILState_Check())
        released = std::make_unique<pybind11::gil_scoped_release>();
    for (std::thread &thread : threads) {
        if (thread.get_id() == std::this_thread::get_id())
            thread.detach();
        else
            thread.join();
    }
}

std::mutex places_mutex;
std::vector<std::weak_ptr<Place>> places;

std::shared_ptr<Place> keep(std::shared_ptr<Place> place)
{
    std::lock_guard<std::mutex> lock(places_mutex);
    places.erase(std::remove_if(places.begin(), places.end(), [](auto &weak) { return weak.expired(); }), places.end());
    places.push_back(place);
    return place;
}
} // namespace

Place::Place(tri_comm *comm) : comm_(comm)
{
}

std::shared_ptr<Place> Place::join(const c10::intrusive_ptr<c10d::Store> &store, int rank, int world, double timeout_s)
{
    Meeting meeting{store, {}, {}};
    tri_meeting table = {&meeting, meetingSet, meetingWait};
    tri_comm *comm = nullptr;
    Interruptible signals;
    tri_status status = tri_comm_join_by(&table, rank, world, timeout_s, &comm);
    signals.rethrow(status == TRI_OK ? comm : nullptr);
    if (status != TRI_OK)
        raise(status, tri_last_error() + (meeting.error.empty() ? "" : " (torch's store: " + meeting.error + ")"));
    std::shared_ptr<Place> place(new Place(comm));
    if (rank == 0)
        clear(store, world);
    check(tri_barrier(tri_comm_world(comm), nullptr));
    return keep(place);
}

std::shared_ptr<Place> Place::joinByStarter(double timeout_s)
{
    tri_comm *comm = nullptr;
    Interruptible signals;
    tri_status status = tri_comm_join(timeout_s, &comm);
    signals.rethrow(status == TRI_OK ? comm : nullptr);
    check(status);
    return keep(std::shared_ptr<Place>(new Place(comm)));
}

bool Place::leave(double seconds)
{
    std::vector<std::thread> threads;
    {
        std::unique_lock<std::mutex> lock(queue_->mutex);
        auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
        moveOpen(*queue_);
        while (queue_->busy || queue_->marking || !queue_->items.empty() || !queue_->completed.empty()) {
            if (hasWork(*queue_))
                wakeThread(queue_); /* this thread waits no longer than `seconds` */
            queue_->waiting++;
            bool late = queue_->ended.wait_until(lock, deadline) == std::cv_status::timeout;
            queue_->waiting--;
            if (late)
                return false;
        }
        queue_->closed = true;
        queue_->work.notify_all();
        threads.swap(queue_->threads);
    }
    joinAll(threads);
    tri_comm_leave(comm_);
    comm_ = nullptr;
    return true;
}

void Place::abandon()
{
    std::lock_guard<std::mutex> lock(queue_->mutex);
    queue_->closed = true;
    queue_->work.notify_all();
}

Place::~Place()
{
    /* Nothing is queued: operations own their place. */
    if (comm_)
        leave(0);
}

void Place::leaveAll()
{
    std::vector<std::weak_ptr<Place>> all;
    {
        std::lock_guard<std::mutex> lock(places_mutex);
        all.swap(places);
    }
    for (auto &weak : all) {
        std::shared_ptr<Place> place = weak.lock();
        /* What still runs waits for a rank that does not come; the end of the process tells the others. */
        if (place && place->comm_ && !place->leave(1)) {
            place->abandon();
            new std::shared_ptr<Place>(place); /* its thread goes on, so it is never freed */
        }
    }
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

Members::Members(std::shared_ptr<Place> of) : place(std::move(of)), group(tri_comm_world(place->comm()))
{
}

void Members::limit(double seconds)
{
    if (seconds == limit_s_)
        return;
    check(tri_group_limit(group, seconds));
    limit_s_ = seconds;
}

/* --- sends and receives ------------------------------------------------------------------------------------------- */

Pairs::Pairs(std::shared_ptr<Members> of, double limit_s)
    : Operation(c10d::OpType::UNKNOWN, {}), members(std::move(of)), limit_s_(limit_s)
{
}

/* A tag is part of the operation's name: ranks whose tags differ are told so. */
tri_status Pairs::call(const Pair &pair)
{
    tri_group *group = members->group;
    if (pair.tag)
        tri_group_name_next(group, ("tag " + std::to_string(pair.tag)).c_str());
    tri_status status = pair.sends ? tri_send(group, pair.data, pair.count, pair.dtype, pair.peer, nullptr)
                                   : tri_receive(group, pair.data, pair.count, pair.dtype, pair.peer, nullptr);
    if (pair.tag)
        tri_group_name_next(group, "");
    return status;
}

tri_status Pairs::callAll()
{
    if (pairs.size() == 1)
        return call(pairs[0]);
    tri_batch *batch = nullptr;
    tri_status status = tri_batch_begin(members->group);
    if (status != TRI_OK)
        return status;
    for (auto &pair : pairs)
        (void)call(pair); /* the end of the batch tells the first error */
    status = tri_batch_end(members->group, &batch);
    if (status == TRI_OK)
        status = tri_batch_run(batch, nullptr);
    tri_batch_destroy(batch);
    return status;
}

void Pairs::run()
{
    members->limit(limit_s_);
    check(callAll());
    for (auto &pair : pairs) {
        if (!pair.sends && !pair.packed.is_same(pair.tensor))
            pair.tensor.copy_(pair.packed);
    }
}

} // namespace trireme
