/* SPDX-License-Identifier: Apache-2.0
 *
 * gloo.cc: the operations of Gloo over its TCP transport, measured as core.h does. One process a rank, BENCH_RANK of
 * BENCH_RANKS; they find each other in the folder BENCH_STORE, and connect by the interface BENCH_INTERFACE (lo).
 * BENCH_GLOO=bcube takes its other all-reduce.
 */
#include <gloo/algorithm.h>

#include <map>
#include <memory>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include "core.h"

static std::shared_ptr<gloo::rendezvous::Context> context;
static bool bcube;
/* Gloo's reduce-scatter is an object made for one buffer. */
static std::map<float *, std::unique_ptr<gloo::Algorithm>> scatters;

static void add(void *out, const void *a, const void *b, size_t count)
{
    gloo::sum<float>(out, a, b, count);
}

static void fence()
{
    gloo::BarrierOptions options(context);
    options.setTag(1);
    gloo::barrier(options);
}

static void call_all_reduce(core_case *c, float *out)
{
    gloo::AllreduceOptions options(context);
    options.setAlgorithm(bcube ? gloo::AllreduceOptions::Algorithm::BCUBE : gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(out, c->count);
    options.setReduceFunction(add);
    options.setTag(2);
    gloo::allreduce(options);
}

static void call_reduce(core_case *c, float *out)
{
    gloo::ReduceOptions options(context);
    options.setOutput(out, c->count);
    options.setReduceFunction(add);
    options.setRoot(0);
    options.setTag(3);
    gloo::reduce(options);
}

static void call_reduce_scatter(core_case *c, float *in)
{
    auto &made = scatters[in];
    if (!made)
        made = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
            context, std::vector<float *>{in}, (int)c->count, std::vector<int>(c->ranks, (int)c->part));
    made->run();
    c->result_in_input = 1;
}

template <typename Options>
static void call_plain(void (*run)(Options &), Options &options, float *in, size_t in_count, float *out,
                       size_t out_count, uint32_t tag)
{
    options.setInput(in, in_count);
    options.setOutput(out, out_count);
    options.setTag(tag);
    run(options);
}

static void call_rooted(core_case *c, float *in, float *out)
{
    if (c->op == CORE_BROADCAST) {
        gloo::BroadcastOptions options(context);
        options.setRoot(0);
        options.setOutput(out, c->count);
        options.setTag(4);
        gloo::broadcast(options);
    } else if (c->op == CORE_GATHER) {
        gloo::GatherOptions options(context);
        options.setRoot(0);
        options.setInput(in, c->part);
        if (c->rank == 0)
            options.setOutput(out, c->count);
        options.setTag(5);
        gloo::gather(options);
    } else {
        gloo::ScatterOptions options(context);
        std::vector<float *> parts;
        for (int r = 0; r < c->ranks && c->rank == 0; r++)
            parts.push_back(in + (size_t)r * c->part);
        options.setRoot(0);
        if (c->rank == 0)
            options.setInputs(parts, c->part);
        options.setOutput(out, c->part);
        options.setTag(6);
        gloo::scatter(options);
    }
}

static void call(core_case *c, float *in, float *out)
{
    gloo::AllgatherOptions gather(context);
    gloo::AlltoallOptions exchange(context);
    switch (c->op) {
    case CORE_ALL_REDUCE:
        return call_all_reduce(c, out);
    case CORE_REDUCE:
        return call_reduce(c, out);
    case CORE_REDUCE_SCATTER:
        return call_reduce_scatter(c, in);
    case CORE_ALL_GATHER:
        return call_plain(gloo::allgather, gather, in, c->part, out, c->count, 7);
    case CORE_ALL_TO_ALL:
        return call_plain(gloo::alltoall, exchange, in, c->count, out, c->count, 8);
    case CORE_BARRIER:
        return fence();
    default:
        return call_rooted(c, in, out);
    }
}

static void release(float *memory)
{
    fence();
    scatters.clear();
    core_free(memory);
}

int main(int argc, char **argv)
{
    const char *rank = getenv("BENCH_RANK"), *ranks = getenv("BENCH_RANKS"), *store = getenv("BENCH_STORE"),
               *algorithm = getenv("BENCH_GLOO"), *interface = getenv("BENCH_INTERFACE");
    if (!rank || !ranks || !store)
        core_die("BENCH_RANK, BENCH_RANKS, BENCH_STORE", "not set: bench/compare and bench/tcp do");
    bcube = algorithm && strcmp(algorithm, "bcube") == 0;
    core_begin();
    gloo::transport::tcp::attr attributes;
    attributes.iface = interface ? interface : "lo";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore files(store);
    context = std::make_shared<gloo::rendezvous::Context>(atoi(rank), atoi(ranks));
    context->connectFullMesh(files, device);
    core_open(atoi(rank), atoi(ranks));
    core_yields = 1;
    static const core_peer peer = {call, fence, core_malloc, release};
    int code = core_main(argc, argv, &peer);
    fence();
    return code;
}
