/* SPDX-License-Identifier: Apache-2.0
 *
 * fabric.c: the fabric of a network: queues as times when something is free again, and dice.
 */
#include "net/fabric.h"

#include <math.h>

#include "base/memory.h"

#define TRI_OPTION_STRUCT tri_fabric_config
static const tri_option rows[] = {TRI_FABRIC_OPTIONS(TRI_OPTION_ROW)};
const tri_option_table tri_fabric_options =
    TRI_OPTION_TABLE("sim", tri_fabric_config, rows, "the network and the hosts of a simulation");

/* The same packet is lost at most this many times. */
#define LOSSES_MAX 64

typedef struct fabric_host {
    int64_t out_free_ns, in_free_ns; /* its interface, each way */
} fabric_host;

struct tri_fabric {
    tri_fabric_config config;
    int world, host_count;
    int64_t latency_ns, local_latency_ns, jitter_ns, resend_ns;
    double log_kept; /* log(1 - loss) */
    fabric_host *hosts;
    int64_t *sender_free_ns; /* [world]: the processor of each rank */
    unsigned char *slow;     /* [world] */
    int *host_of;            /* [world] */
    bool drawn;              /* the stragglers */
};

static int64_t ns_of(double us)
{
    return (int64_t)llround(us * 1e3);
}

static tri_status hosts_set(tri_fabric *fabric, const int *host)
{
    fabric->host_of = tri_alloc((size_t)fabric->world * sizeof *fabric->host_of);
    if (!fabric->host_of)
        return TRI_ENOMEM;
    for (int r = 0; r < fabric->world; r++) {
        fabric->host_of[r] = host ? host[r] : (int)(r / fabric->config.ranks_per_host);
        if (fabric->host_of[r] >= fabric->host_count)
            fabric->host_count = fabric->host_of[r] + 1;
    }
    fabric->hosts = tri_alloc_zero((size_t)fabric->host_count, sizeof *fabric->hosts);
    return fabric->hosts ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_fabric_create(const tri_fabric_config *config, int world, const int *host, tri_fabric **out)
{
    tri_fabric *fabric;

    *out = NULL;
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        const char *field = (const char *)config + rows[i].offset;
        double value = rows[i].type == TRI_OPTION_INT ? (double)*(const int64_t *)(const void *)field
                                                      : *(const double *)(const void *)field;

        if (!(value >= 0 && value <= rows[i].high))
            return tri_fail(TRI_EINVAL, "sim.%s: want 0 to %g, got %g", rows[i].field, rows[i].high, value);
    }
    fabric = tri_alloc_zero(1, sizeof *fabric);
    if (!fabric)
        return TRI_ENOMEM;
    *fabric = (tri_fabric){.config = *config, .world = world};
    /* In a configuration of zeros these are not set. */
    fabric->config.ranks_per_host += config->ranks_per_host == 0;
    fabric->config.slowdown += config->slowdown < 1 ? 1 - config->slowdown : 0;
    fabric->config.packet += config->packet == 0 ? 1500 : 0;
    fabric->latency_ns = ns_of(config->latency_us);
    fabric->local_latency_ns = ns_of(config->local_latency_us);
    fabric->jitter_ns = ns_of(config->jitter_us);
    fabric->resend_ns = ns_of(config->resend_us);
    fabric->log_kept = log1p(-config->loss);
    fabric->sender_free_ns = tri_alloc_zero((size_t)world, sizeof *fabric->sender_free_ns);
    fabric->slow = tri_alloc_zero((size_t)world, 1);
    if (!fabric->sender_free_ns || !fabric->slow || hosts_set(fabric, host) != TRI_OK) {
        tri_fabric_destroy(fabric);
        return TRI_ENOMEM;
    }
    *out = fabric;
    return TRI_OK;
}

void tri_fabric_destroy(tri_fabric *fabric)
{
    if (!fabric)
        return;
    tri_free(fabric->hosts);
    tri_free(fabric->host_of);
    tri_free(fabric->sender_free_ns);
    tri_free(fabric->slow);
    tri_free(fabric);
}

int tri_fabric_host(const tri_fabric *fabric, int rank)
{
    return fabric->host_of[rank];
}

int tri_fabric_host_count(const tri_fabric *fabric)
{
    return fabric->host_count;
}

const tri_fabric_config *tri_fabric_figures(const tri_fabric *fabric)
{
    return &fabric->config;
}

int64_t tri_fabric_ahead_ns(const tri_fabric *fabric)
{
    return fabric->latency_ns;
}

/* ---- dice */

/* From 0 to below 1. */
static double chance(void)
{
    return (double)(tri_sim_random() >> 11) * 0x1p-53;
}

/* As many ranks as asked for, any of them alike. */
static void stragglers_draw(tri_fabric *fabric)
{
    double wanted = fabric->config.stragglers;
    int left = (int)(wanted < 1 ? ceil(wanted * fabric->world) : fmin(wanted, fabric->world));

    fabric->drawn = true;
    for (int rank = 0; rank < fabric->world && left > 0; rank++) {
        if (chance() * (fabric->world - rank) < left) {
            fabric->slow[rank] = 1;
            left--;
        }
    }
}

double tri_fabric_slowness(tri_fabric *fabric, int rank)
{
    if (!fabric->drawn)
        stragglers_draw(fabric);
    return fabric->slow[rank] ? fabric->config.slowdown : 1;
}

/* A stream is in order: what is behind a lost packet waits until it has come again, however often it is lost. */
static int64_t delay_by_loss(const tri_fabric *fabric, size_t nbytes)
{
    double packets = ceil((double)nbytes / (double)fabric->config.packet);
    int losses = 0;

    if (fabric->config.loss <= 0)
        return 0;
    /* One of the packets of the message; after that, that one alone. */
    while (losses < LOSSES_MAX && chance() < -expm1(fabric->log_kept * (losses == 0 ? packets : 1)))
        losses++;
    return losses * fabric->resend_ns;
}

/* ---- queues */

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t ns_of_bytes(size_t nbytes, int64_t bandwidth)
{
    return bandwidth > 0 ? (int64_t)llround((double)nbytes / (double)bandwidth * 1e9) : 0;
}

tri_fabric_trip tri_fabric_send(tri_fabric *fabric, int from, int to, tri_fabric_link *link, size_t nbytes)
{
    const tri_fabric_config *config = &fabric->config;
    bool local = tri_fabric_host(fabric, from) == tri_fabric_host(fabric, to);
    fabric_host *host = &fabric->hosts[tri_fabric_host(fabric, from)];
    int64_t start_ns = later(tri_now_ns(), fabric->sender_free_ns[from]);
    int64_t link_ns = ns_of_bytes(nbytes, local ? config->local_bandwidth : config->bandwidth);
    int64_t node_ns = local ? 0 : ns_of_bytes(nbytes, config->node_bandwidth);
    tri_fabric_trip trip;

    start_ns += ns_of(config->message_us * tri_fabric_slowness(fabric, from));
    fabric->sender_free_ns[from] = start_ns;
    start_ns = later(start_ns, link->free_ns);
    if (!local)
        start_ns = later(start_ns, host->out_free_ns);
    link->free_ns = start_ns + link_ns;
    trip.head_ns = start_ns + (local ? fabric->local_latency_ns : fabric->latency_ns);
    if (!local) {
        host->out_free_ns = start_ns + node_ns;
        trip.head_ns += delay_by_loss(fabric, nbytes);
    }
    if (fabric->jitter_ns > 0)
        trip.head_ns += (int64_t)(chance() * (double)(fabric->jitter_ns + 1));
    trip.head_ns = later(trip.head_ns, link->latest_ns);
    link->latest_ns = trip.head_ns;
    trip.tail_ns = trip.head_ns + later(link_ns, node_ns);
    if (local)
        link->latest_ns = trip.tail_ns;
    return trip;
}

void tri_fabric_hold(tri_fabric_link *link, tri_fabric_trip *trip, int64_t ns)
{
    trip->head_ns += ns;
    trip->tail_ns += ns;
    link->latest_ns += ns;
}

int64_t tri_fabric_receive(tri_fabric *fabric, int to, tri_fabric_trip trip, size_t nbytes)
{
    fabric_host *host = &fabric->hosts[tri_fabric_host(fabric, to)];
    int64_t node_ns = ns_of_bytes(nbytes, fabric->config.node_bandwidth);
    int64_t start_ns = later(trip.head_ns, host->in_free_ns);

    host->in_free_ns = start_ns + node_ns;
    return later(start_ns + node_ns, trip.tail_ns);
}
