/* SPDX-License-Identifier: Apache-2.0
 *
 * sim.c: ranks as fibers of a simulation, over a hub whose links take virtual time.
 *
 * A link sends one byte after the other at its bandwidth; each write arrives a latency and a seeded jitter after its
 * last byte was sent, and never before an earlier one. What is in flight is bounded by the ring (comm.slot_kib), as by
 * the window of a real connection. Space in the ring is seen by the sender at once.
 */
#include "net/hub.h"

void tri_pipe_stamp_written(const tri_hub_config *config, tri_pipe *pipe)
{
    tri_pipe_model *model = pipe->model;
    uint64_t upto = atomic_load(&pipe->ends.tail);
    uint64_t before = model->arrived;
    int64_t now_ns = tri_now_ns();
    int64_t at_ns;

    if (model->count > 0)
        before = model->stamps[(model->first + model->count - 1) % TRI_PIPE_STAMPS].upto;
    if (model->sent_all_ns < now_ns)
        model->sent_all_ns = now_ns;
    if (config->bytes_per_second > 0)
        model->sent_all_ns += (int64_t)((double)(upto - before) / config->bytes_per_second * 1e9);
    at_ns = model->sent_all_ns + config->latency_ns;
    if (config->jitter_ns > 0)
        at_ns += (int64_t)(tri_sim_random() % ((uint64_t)config->jitter_ns + 1));
    if (at_ns < model->latest_ns)
        at_ns = model->latest_ns;
    model->latest_ns = at_ns;
    /* Full: the latest two arrive together. */
    if (model->count == TRI_PIPE_STAMPS)
        model->count--;
    model->stamps[(model->first + model->count++) % TRI_PIPE_STAMPS] = (tri_pipe_stamp){.upto = upto, .at_ns = at_ns};
}

uint64_t tri_pipe_arrived(tri_pipe *pipe)
{
    tri_pipe_model *model = pipe->model;
    int64_t now_ns = tri_now_ns();

    while (model->count > 0 && model->stamps[model->first].at_ns <= now_ns) {
        model->arrived = model->stamps[model->first].upto;
        model->first = (model->first + 1) % TRI_PIPE_STAMPS;
        model->count--;
    }
    return model->arrived - atomic_load(&pipe->ends.head);
}

int64_t tri_pipe_next_ns(const tri_pipe *pipe)
{
    const tri_pipe_model *model = pipe->model;

    return model->count > 0 ? model->stamps[model->first].at_ns : TRI_FOREVER;
}

static tri_status sim_open(const tri_transport_setup *setup, tri_transport **out)
{
    *out = NULL;
    if (!tri_sim_active())
        return tri_fail(TRI_EINVAL, "net sim: works only inside a simulation; threads use inproc");
    return tri_hub_endpoint_open(&tri_transport_sim, setup, true, out);
}

const tri_transport_ops tri_transport_sim = {
    .name = "sim",
    .does = "ranks as fibers of a simulation, on virtual time",
    .open = sim_open,
    .address = tri_hub_endpoint_address,
    .connect = tri_hub_endpoint_connect,
    .write_some = tri_hub_endpoint_write_some,
    .read_some = tri_hub_endpoint_read_some,
    .peek = tri_hub_endpoint_peek,
    .consume = tri_hub_endpoint_consume,
    .wait = tri_hub_endpoint_wait,
    .close = tri_hub_endpoint_close,
};
