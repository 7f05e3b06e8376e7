/* SPDX-License-Identifier: Apache-2.0
 *
 * monitored.cpp: monitored_barrier: rank 0 names the ranks that do not come in time.
 *
 * Ranks meet at torch's store, by one key of each rank with the number of its latest barrier: a barrier that fails
 * leaves the links of the group as they were.
 */
#include <thread>

#include "start.hpp"

namespace trireme
{

namespace
{
using Clock = std::chrono::steady_clock;

struct Monitored {
    c10::intrusive_ptr<c10d::Store> store;
    int rank, ranks;
    uint64_t number;
    double limit_s;
    bool all; /* wait for all ranks, or only for the first that is late */

    std::string limit() const
    {
        return std::to_string(static_cast<int64_t>(limit_s * 1000)) + " ms";
    }

    Clock::time_point deadline(double more_s) const
    {
        return Clock::now() + std::chrono::milliseconds(static_cast<int64_t>((limit_s + more_s) * 1000));
    }

    void tell(const std::string &key, const std::string &text)
    {
        std::string value = std::to_string(number) + " " + text;
        store->set(key, std::vector<uint8_t>(value.begin(), value.end()));
    }

    /* What was told at the key in this barrier; false: nothing in time. */
    bool hear(const std::string &key, Clock::time_point until, std::string &text)
    {
        std::string prefix = std::to_string(number) + " ";
        for (auto pause = std::chrono::milliseconds(1);; pause = std::min(2 * pause, std::chrono::milliseconds(20))) {
            if (store->check({key})) {
                std::vector<uint8_t> bytes = store->get(key);
                text.assign(bytes.begin(), bytes.end());
                if (text.compare(0, prefix.size(), prefix) == 0) {
                    text.erase(0, prefix.size());
                    return true;
                }
            }
            if (Clock::now() >= until)
                return false;
            std::this_thread::sleep_for(pause);
        }
    }

    std::string late()
    {
        std::string names, text;
        int count = 0;
        auto until = deadline(0);
        for (int r = 1; r < ranks && (all || count == 0); r++) {
            if (hear(barrierKey(r), until, text))
                continue;
            names += (count++ ? ", " : "") + std::to_string(r);
        }
        if (count == 0)
            return "";
        return (count > 1 ? "Ranks " : "Rank ") + names + " failed to pass monitoredBarrier in " + limit();
    }

    void first()
    {
        std::string text = late();
        tell(barrierKey(0), text);
        if (!text.empty())
            raise(TRI_ETIMEOUT, text);
    }

    void other()
    {
        std::string text, own = "Rank " + std::to_string(rank);
        tell(barrierKey(rank), "");
        if (!hear(barrierKey(0), deadline(std::min(limit_s, 1.0)), text))
            raise(TRI_ETIMEOUT,
                  own + " timed out in monitoredBarrier after " + limit() + ": rank 0 failed to pass monitoredBarrier");
        if (!text.empty())
            raise(TRI_ETIMEOUT, own + " successfully reached monitoredBarrier, but rank 0 says: " + text);
    }
};
} // namespace

void Group::monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks)
{
    Monitored barrier = {store_, rank_, size_, ++monitored_, limitOf(opts.timeout), wait_all_ranks};
    start(c10d::OpType::BARRIER, {}, true, opts.timeout, {}, [barrier]() mutable {
        if (barrier.rank == 0)
            barrier.first();
        else
            barrier.other();
        return TRI_OK;
    });
}

} // namespace trireme
