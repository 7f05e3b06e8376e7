// SPDX-License-Identifier: Apache-2.0
//
// peer_gloo.cc: all_reduce of Gloo, measured as `trireme bench` measures (see peer_mpi.c). usage: RANK=r WORLD_SIZE=n
// peer_gloo FOLDER INTERFACE BYTES,BYTES,...; the ranks meet by files in FOLDER.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kSamples = 101;
constexpr double kBudget = 0.4;
std::shared_ptr<gloo::rendezvous::Context> context;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <typename T, void (*Combine)(void *, const void *, const void *, size_t)>
void allReduce(T *data, size_t count, uint32_t tag) {
    gloo::AllreduceOptions options(context);
    options.setOutput(data, count);
    options.setTag(tag);
    options.setReduceFunction(Combine);
    gloo::allreduce(options);
}

double callsTime(std::vector<float> &data, int calls) {
    double start = now();
    for (int i = 0; i < calls; i++)
        allReduce<float, gloo::sum<float>>(data.data(), data.size(), 1);
    return (now() - start) / calls;
}

int fromRankZero(int value) {
    gloo::BroadcastOptions options(context);
    options.setRoot(0);
    options.setTag(2);
    options.setOutput(&value, 1);
    gloo::broadcast(options);
    return value;
}

void measure(size_t nbytes) {
    std::vector<float> data(nbytes / 4);
    std::vector<double> times;
    double one = callsTime(data, 3);
    int calls = fromRankZero(std::clamp(int(kBudget / kSamples / one), 1, 1000));
    double first = now();
    for (bool enough = false; !enough && times.size() < kSamples;) {
        gloo::BarrierOptions barrier(context);
        barrier.setTag(3);
        gloo::barrier(barrier);
        times.push_back(callsTime(data, calls));
        if (times.size() % 10 == 0)
            enough = fromRankZero(now() - first > 3 * kBudget);
    }
    allReduce<double, gloo::max<double>>(times.data(), times.size(), 4);
    std::sort(times.begin(), times.end());
    std::fill(data.begin(), data.end(), 1.0f);
    callsTime(data, 1);
    auto wrong = std::count_if(data.begin(), data.end(), [](float x) { return x != float(context->size); });
    if (context->rank == 0)
        std::printf("{\"op\":\"all_reduce\",\"bytes\":%zu,\"time_us\":%.2f,\"wrong\":%ld}\n", nbytes,
                    times[times.size() / 2] * 1e6, long(wrong));
    std::fflush(stdout);
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 4 || !getenv("RANK") || !getenv("WORLD_SIZE"))
        return 2;
    gloo::transport::tcp::attr attributes;
    attributes.iface = argv[2];
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(argv[1]);
    context = std::make_shared<gloo::rendezvous::Context>(atoi(getenv("RANK")), atoi(getenv("WORLD_SIZE")));
    context->connectFullMesh(store, device);
    std::stringstream sizes(argv[3]);
    for (std::string text; std::getline(sizes, text, ',');)
        measure(std::stoul(text));
    gloo::BarrierOptions last(context);
    last.setTag(5);
    gloo::barrier(last);
    return 0;
}
