/* SPDX-License-Identifier: Apache-2.0
 *
 * price.c: what messages and bytes cost in a group, by its slowest transport and by what the ranks measured together.
 */
#include <string.h>

#include "comm/run.h"

/* Slowest last. Default figures: a shared-memory ring at about 5 GB/s, sockets of near hosts at about 3 GB/s both ways
 * at once, adding at about 8 GB/s. */
static const tri_price prices[] = {
    {.transport = "inproc",
     .shares_memory = true,
     .latency_us = 1,
     .message_us = 0.3,
     .us_per_byte = 1.0 / 5000,
     .us_per_byte_reduced = 1.0 / 8000},
    {.transport = "shm",
     .shares_memory = true,
     .latency_us = 1,
     .message_us = 0.3,
     .us_per_byte = 1.0 / 5000,
     .us_per_byte_reduced = 1.0 / 8000},
    {.transport = "sim",
     .latency_us = 20,
     .message_us = 2,
     .us_per_byte = 1.0 / 1200,
     .us_per_byte_reduced = 1.0 / 8000},
    {.transport = "ucx",
     .between_hosts = true,
     .latency_us = 5,
     .message_us = 1,
     .us_per_byte = 1.0 / 3000,
     .us_per_byte_reduced = 1.0 / 8000},
    {.transport = "tcp",
     .between_hosts = true,
     .latency_us = 40, /* of a phase: a small message takes a quarter of it, a large one waits for the slower side */
     .message_us = 4,
     .round_us = 20,
     .us_per_byte = 1.0 / 3000,
     .us_per_byte_reduced = 1.0 / 16000},
};

/* A simulated network says itself what it costs. */
static void price_by_fabric(const tri_group *group, tri_price *price)
{
    const tri_fabric *fabric = tri_net_fabric(group->comm->net);
    if (!fabric)
        return;
    const tri_fabric_config *figures = tri_fabric_figures(fabric);
    bool local = true;
    for (int r = 1; r < group->count; r++)
        local &= tri_fabric_host(fabric, group->world_rank[r]) == tri_fabric_host(fabric, group->world_rank[0]);
    int64_t slowest = local ? figures->local_bandwidth : figures->bandwidth;
    if (!local && figures->node_bandwidth > 0 && (slowest == 0 || figures->node_bandwidth < slowest))
        slowest = figures->node_bandwidth;
    double latency_us = local ? figures->local_latency_us : figures->latency_us;
    if (latency_us > 0)
        price->latency_us = latency_us + figures->message_us;
    if (figures->message_us > 0)
        price->message_us = figures->message_us;
    if (slowest > 0)
        price->us_per_byte = 1e6 / (double)slowest;
    if (figures->add_rate > 0)
        price->us_per_byte_reduced = 1e6 / (double)figures->add_rate;
}

#define TCP_ROW (TRI_COUNT_OF(prices) - 1)
#define NEAR_US 200

/* A message over tcp takes half a round trip at least. How wide a link is cannot be seen when it is made; the farther,
 * the narrower, as a rule: 1 Gbit/s beyond a fifth of a millisecond, 100 Mbit/s beyond five. */
static tri_price tcp_price(tri_price price, int64_t far_us)
{
    if (far_us < NEAR_US)
        return price;
    price.latency_us = price.round_us = (double)far_us / 2;
    price.us_per_byte = far_us < 5000 ? 1.0 / 119 : 1.0 / 12;
    return price;
}

/* Between hosts as it was measured, where it was. */
static void price_by_measure(const tri_comm *comm, tri_price *price)
{
    if (price->between_hosts && comm->us_per_byte > 0)
        price->us_per_byte = comm->us_per_byte;
    if (price->between_hosts && comm->us_per_byte_reduced > 0)
        price->us_per_byte_reduced = comm->us_per_byte_reduced;
    /* Farther away it is half the round trip, which is known better. */
    if (!price->between_hosts || comm->latency_us <= 0 || comm->far_us >= NEAR_US)
        return;
    price->latency_us = comm->latency_us;
    if (comm->message_us > 0)
        price->message_us = comm->message_us;
    else if (price->message_us > comm->latency_us / 2)
        price->message_us = comm->latency_us / 2;
}

tri_price tri_price_of_group(const tri_group *group)
{
    size_t worst = 0;
    for (int r = 0; r < group->count; r++) {
        if (r == group->rank)
            continue;
        const char *name = tri_net_transport_name(group->comm->net, group->world_rank[r]);
        size_t at = TCP_ROW; /* unknown: as the slowest */
        for (size_t i = 0; i < TRI_COUNT_OF(prices); i++) {
            if (strcmp(prices[i].transport, name) == 0)
                at = i;
        }
        worst = at > worst ? at : worst;
    }
    tri_price price = worst == TCP_ROW ? tcp_price(prices[worst], group->comm->far_us) : prices[worst];
    price_by_measure(group->comm, &price);
    price_by_fabric(group, &price);
    return price;
}
