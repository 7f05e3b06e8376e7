/* SPDX-License-Identifier: Apache-2.0
 *
 * monitored.cpp: monitored_barrier: rank 0 names the ranks that do not come in time.
 *
 * Ranks meet at torch's store, so a barrier that fails leaves the links of the group as they were. Rank 0 numbers the
 * barriers: at its key are the one that it has opened, the one that has ended, and how that ended. A rank that missed a
 * barrier takes its number from there and meets the others in the next one.
 */
#include <sstream>
#include <thread>

#include "start.hpp"

namespace trireme
{

namespace
{
struct Monitored {
    using Clock = std::chrono::steady_clock;
    /* What rank 0 says: numbers of barriers, and the failure of the one that ended ("": it passed). */
    struct State {
        uint64_t opened = 0, ended = 0;
        std::string failure;
    };

    c10::intrusive_ptr<c10d::Store> store;
    int rank, ranks;
    Barriers &barriers;
    double limit_s;
    bool all; /* wait for all ranks, or only for the first that is late */

    std::string limit() const
    {
        return std::to_string(static_cast<int64_t>(limit_s * 1000)) + " ms";
    }

    Clock::time_point deadline(double seconds) const
    {
        return Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
    }

    void write(int of_rank, const std::string &text)
    {
        store->set(barrierKey(of_rank), std::vector<uint8_t>(text.begin(), text.end()));
    }

    State read(int of_rank)
    {
        State state;
        std::string key = barrierKey(of_rank);
        if (!store->check({key}))
            return state;
        std::vector<uint8_t> bytes = store->get(key);
        std::istringstream text(std::string(bytes.begin(), bytes.end()));
        text >> state.opened >> state.ended;
        text.get();
        std::getline(text, state.failure);
        return state;
    }

    /* Asks again and again until `done` says so; false: it is too late. */
    template <class Done> bool await(Clock::time_point until, Done done)
    {
        for (auto pause = std::chrono::milliseconds(1);; pause = std::min(2 * pause, std::chrono::milliseconds(20))) {
            if (done())
                return true;
            if (Clock::now() >= until)
                return false;
            std::this_thread::sleep_for(pause);
        }
    }

    /* Rank 0: the failure that names the ranks that are late, or "". */
    std::string lateRanks()
    {
        std::string names;
        int count = 0;
        auto until = deadline(limit_s);
        for (int r = 1; r < ranks && (all || count == 0); r++) {
            if (!await(until, [&] { return read(r).opened == barriers.latest; }))
                names += (count++ ? ", " : "") + std::to_string(r);
        }
        if (count == 0)
            return "";
        std::string text = (count > 1 ? "Ranks " : "Rank ") + names + " failed to pass monitoredBarrier in " + limit();
        return limit_s > 0.001 ? text : "Rank 0 timed out in monitoredBarrier after " + limit() + ": " + text;
    }

    void lead()
    {
        std::string number = std::to_string(++barriers.latest);
        write(0, number + " " + std::to_string(barriers.latest - 1) + " " + barriers.failure);
        barriers.failure = lateRanks();
        write(0, number + " " + number + " " + barriers.failure);
        if (!barriers.failure.empty())
            raise(TRI_ETIMEOUT, barriers.failure);
    }

    void follow()
    {
        State state;
        bool joined = false;
        auto ended = [&] {
            state = read(0);
            if (!joined && state.opened > state.ended && state.opened > barriers.latest) {
                joined = true;
                barriers.latest = state.opened;
                write(rank, std::to_string(state.opened));
                return false;
            }
            return joined ? state.ended >= barriers.latest : state.ended > barriers.latest;
        };
        std::string own = "Rank " + std::to_string(rank);
        if (!await(deadline(limit_s + std::min(limit_s, 1.0)), ended))
            raise(TRI_ETIMEOUT,
                  own + " timed out in monitoredBarrier after " + limit() + ": rank 0 failed to pass monitoredBarrier");
        barriers.latest = state.ended;
        if (!state.failure.empty())
            raise(TRI_ETIMEOUT, own +
                                    " successfully reached monitoredBarrier, but received errors while waiting for "
                                    "send/recv from rank 0: " +
                                    state.failure);
    }
};
} // namespace

void Group::monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks)
{
    Monitored barrier = {store_, rank_, size_, barriers_, limitOf(opts.timeout), wait_all_ranks};
    start(c10d::OpType::BARRIER, {}, true, opts.timeout, {}, [barrier]() mutable {
        if (barrier.rank == 0)
            barrier.lead();
        else
            barrier.follow();
        return TRI_OK;
    });
}

} // namespace trireme
