/* SPDX-License-Identifier: Apache-2.0
 *
 * net.c: opens and closes the links of a rank and waits on them.
 *
 * Each peer is reached over exactly one transport, decided when connecting: shm when the host ids are equal and both
 * sides offer it, else tcp; inside a hub, the hub's.
 */
#include "net/net.h"

#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "base/chaos.h"
#include "base/log.h"
#include "base/memory.h"
#include "net/auth.h"
#include "net/bytes.h"
#include "net/host.h"
#include "net/net_impl.h"

#define BYE_LIMIT_NS (100 * TRI_NS_PER_MS)
#define SLICE_MIN_NS INT64_C(50000)
#define SLICE_MAX_NS TRI_NS_PER_MS
#define HUB_HOST     "hub"
/* Where bytes are mostly read where they are, and ranks are many. */
#define HUB_SCRATCH_NBYTES ((size_t)8 << 10)
#define LINKS_LOGGED       2

static tri_status transport_add(tri_net *net, const tri_transport_ops *ops, tri_hub *hub)
{
    tri_transport_setup setup = {
        .config = &net->config, .rank = net->rank, .world = net->world, .token = net->token, .hub = hub};
    tri_transport *transport;
    size_t used = strlen(net->address);

    TRI_TRY(ops->open(&setup, &transport));
    if (ops == &tri_transport_sim)
        net->fabric = tri_hub_fabric(hub);
    if (net->config.faults[0] || tri_chaos_is_offered())
        TRI_TRY(tri_transport_faulty(transport, net->config.faults, &transport));
    net->names[net->transport_count] = ops->name;
    net->transports[net->transport_count++] = transport;
    snprintf(net->address + used, sizeof net->address - used, ";%s=%s", ops->name, transport->ops->address(transport));
    return TRI_OK;
}

static tri_status transports_open(tri_net *net, tri_hub *hub)
{
    const tri_transport_kind wanted = net->config.transport;
    char id[TRI_HOST_ID_NBYTES];

    net->over_hub = hub != NULL;
    if (hub)
        snprintf(id, sizeof id, HUB_HOST);
    else
        tri_host_id(id);
    if (net->config.host[0])
        snprintf(id, sizeof id, "%016llx", (unsigned long long)XXH3_64bits(net->config.host, strlen(net->config.host)));
    snprintf(net->address, sizeof net->address, "host=%s", id);
    if (wanted != TRI_TRANSPORT_AUTO) {
        const tri_transport_ops *ops = tri_transport_find(tri_transport_kind_word(wanted));

        if (!ops)
            return tri_fail(TRI_ECONFIG, "comm.transport ucx: this build has none: libucx-dev was missing");
        return transport_add(net, ops, hub);
    }
    if (hub)
        return transport_add(net, tri_sim_active() ? &tri_transport_sim : &tri_transport_inproc, hub);
    if (net->world == 1)
        return TRI_OK;
    TRI_TRY(transport_add(net, &tri_transport_shm, NULL));
    return transport_add(net, &tri_transport_tcp, NULL);
}

static void links_wake(void *arg)
{
    tri_net *net = arg;

    for (size_t i = 0; i < net->transport_count; i++) {
        if (net->transports[i]->ops->wake)
            net->transports[i]->ops->wake(net->transports[i]);
    }
}

static tri_status watch_open(tri_net *net)
{
    tri_transport_setup setup = {.config = &net->config, .rank = net->rank, .world = net->world, .token = net->token};
    char port[TRI_NET_ADDRESS_NBYTES];
    bool over_tcp = tri_net_address_value(net->address, tri_transport_tcp.name, port, sizeof port);
    size_t used = strlen(net->address);

    if (net->over_hub || net->world == 1 || net->config.heartbeat_ms == 0)
        return TRI_OK;
    TRI_TRY(tri_watch_open(&setup, over_tcp, links_wake, net, &net->watch));
    snprintf(net->address + used, sizeof net->address - used, ";watch=%s", tri_watch_address(net->watch));
    return TRI_OK;
}

static uint32_t job_of(const char *token)
{
    unsigned char digest[TRI_AUTH_NBYTES] = {0};

    if (tri_auth_sha256(token, strlen(token), digest) != TRI_OK)
        return 0;
    return tri_bytes_read_u32(digest);
}

tri_status tri_net_open(const tri_net_config *config, int rank, int world, const char *token, tri_hub *hub,
                        tri_net **out)
{
    tri_net *net;
    tri_status status = TRI_ENOMEM;

    *out = NULL;
    if (world < 1 || rank < 0 || rank >= world)
        return tri_fail(TRI_EINVAL, "net: want a rank of the world, got rank %d of %d", rank, world);
    if (!hub)
        TRI_TRY(tri_net_files_reserve(world));
    if (config->chaos) /* before the transports, which it changes */
        TRI_TRY(tri_chaos_offer());
    net = tri_alloc_zero(1, sizeof *net);
    if (!net)
        return TRI_ENOMEM;
    net->rank = rank;
    net->world = world;
    net->config = *config;
    net->abort_peer = -1;
    net->job = job_of(token ? token : "");
    net->token = tri_strdup(token ? token : "");
    net->routes = tri_alloc_zero((size_t)world, 1);
    net->hosts = hub ? NULL : tri_alloc_zero((size_t)world, sizeof *net->hosts);
    net->links = tri_alloc_zero((size_t)world, sizeof *net->links);
    net->active = tri_alloc_zero((size_t)world, sizeof *net->active);
    net->turn = tri_alloc_zero((size_t)world, sizeof *net->turn);
    net->want = tri_alloc_zero((size_t)world, 1);
    net->scratch_nbytes = hub ? HUB_SCRATCH_NBYTES : TRI_NET_SCRATCH_NBYTES;
    net->scratch = tri_alloc_bulk(net->scratch_nbytes);
    if (net->token && net->routes && (hub || net->hosts) && net->links && net->active && net->turn && net->want &&
        net->scratch)
        status = transports_open(net, hub);
    if (status == TRI_OK)
        status = watch_open(net);
    if (status != TRI_OK) {
        tri_net_close(net);
        return status;
    }
    *out = net;
    return TRI_OK;
}

const char *tri_net_address(const tri_net *net)
{
    return net->address;
}

bool tri_net_address_value(const char *address, const char *name, char *value, size_t capacity)
{
    size_t name_nbytes = strlen(name);

    while (*address) {
        size_t nbytes = strcspn(address, ";");

        if (nbytes > name_nbytes && strncmp(address, name, name_nbytes) == 0 && address[name_nbytes] == '=' &&
            nbytes - name_nbytes - 1 < capacity) {
            memcpy(value, address + name_nbytes + 1, nbytes - name_nbytes - 1);
            value[nbytes - name_nbytes - 1] = 0;
            return true;
        }
        address += nbytes + (address[nbytes] == ';');
    }
    return false;
}

/* Which transport reaches a peer, and what that transport wants to know. */
static tri_status route_find(const tri_net *net, int peer, const char *address, char *value, size_t *index)
{
    char host[64], mine[64];
    bool same_host = tri_net_address_value(address, "host", host, sizeof host) &&
                     tri_net_address_value(net->address, "host", mine, sizeof mine) && strcmp(host, mine) == 0;

    for (*index = 0; *index < net->transport_count; ++*index) {
        const char *name = net->names[*index];

        if ((same_host || tri_transport_find(name)->between_hosts) &&
            tri_net_address_value(address, name, value, TRI_NET_ADDRESS_NBYTES))
            return TRI_OK;
    }
    return tri_fail(TRI_EINVAL, "rank %d cannot be reached: want a way in common with %s, got %s", peer, net->address,
                    address);
}

static uint64_t host_hash(const char *address)
{
    char host[64] = "";

    if (address)
        (void)tri_net_address_value(address, "host", host, sizeof host);
    return XXH3_64bits(host, strlen(host));
}

static tri_status routes_find(tri_net *net, const char *const *addresses, char *texts, const char **routes)
{
    size_t world = (size_t)net->world;

    for (size_t peer = 0; peer < world; peer++) {
        char *value = texts + peer * TRI_NET_ADDRESS_NBYTES;
        size_t index = 0;

        if (net->hosts)
            net->hosts[peer] = host_hash(addresses && (int)peer != net->rank ? addresses[peer] : net->address);
        if ((int)peer == net->rank)
            continue;
        if (addresses && addresses[peer])
            TRI_TRY(route_find(net, (int)peer, addresses[peer], value, &index));
        else if (addresses || !net->over_hub)
            return tri_fail(TRI_EINVAL, "net: want the address of rank %zu, got none", peer);
        routes[index * world + peer] = value;
        net->routes[peer] = (unsigned char)(index + 1);
    }
    return TRI_OK;
}

/* Where a rank can ask whether a peer has said anything before it keeps a link for it. */
static bool is_lazy(const tri_net *net)
{
    return net->over_hub && net->transports[0]->ops->write_rest;
}

tri_net_link *tri_net_link_make(tri_net *net, int peer)
{
    tri_net_link *link = net->links[peer];

    if (link)
        return link;
    link = tri_alloc_zero(1, sizeof *link);
    if (!link)
        return NULL;
    link->transport = tri_net_transport(net, peer);
    link->sending = link->receiving = SIZE_MAX;
    net->links[peer] = link;
    return link;
}

tri_net_link *tri_net_link_heard(tri_net *net, int peer)
{
    tri_transport *transport = tri_net_transport(net, peer);
    const void *bytes;
    size_t nbytes;

    if (net->links[peer] || !transport)
        return net->links[peer];
    if (transport->ops->peek(transport, peer, &bytes, &nbytes) == TRI_OK && nbytes == 0)
        return NULL;
    return tri_net_link_make(net, peer);
}

/* One line about the links over the network; of many, the first few. */
static void links_log(const tri_net *net)
{
    char text[768], one[TRI_NET_DESCRIBE_NBYTES];
    size_t used = 0;
    tri_log_level level = net->rank == 0 ? TRI_LOG_INFO : TRI_LOG_DEBUG; /* one speaks for all */
    int count = 0;

    for (int peer = 0; peer < net->world; peer++) {
        if (!tri_net_transport(net, peer) || !tri_net_transport(net, peer)->ops->describe)
            continue;
        if (count++ >= LINKS_LOGGED || tri_log_level_now() < level)
            continue;
        tri_net_describe_peer(net, peer, one);
        used += (size_t)snprintf(text + used, sizeof text - used, "%srank %d: %s", used ? "; " : "", peer, one);
    }
    if (used > 0)
        tri_log(level, "rank %d reaches %s%s", net->rank, text, count > LINKS_LOGGED ? "; and others" : "");
}

tri_status tri_net_connect(tri_net *net, const char *const *addresses, int64_t deadline_ns)
{
    size_t world = (size_t)net->world;
    /* A route's text is short, and a hub needs none. */
    char *texts = tri_alloc_zero(world, addresses ? TRI_NET_ADDRESS_NBYTES : 1);
    const char **routes = tri_alloc_zero(TRI_NET_TRANSPORTS * world, sizeof *routes);
    tri_status status = TRI_ENOMEM;

    if (!texts || !routes)
        goto free_texts;
    status = routes_find(net, addresses, texts, routes);
    for (size_t i = 0; status == TRI_OK && i < net->transport_count; i++)
        status = net->transports[i]->ops->connect(net->transports[i], routes + i * world, deadline_ns);
    for (int peer = 0; status == TRI_OK && !is_lazy(net) && peer < net->world; peer++) {
        if (net->routes[peer] && !tri_net_link_make(net, peer))
            status = TRI_ENOMEM;
    }
    if (status == TRI_OK && net->watch)
        status = tri_watch_connect(net->watch, net->address, addresses, deadline_ns);
    net->all_watched = status == TRI_OK && net->watch;
    for (int peer = 0; net->all_watched && peer < net->world; peer++)
        net->all_watched = peer == net->rank || tri_watch_state_of(net->watch, peer) != TRI_WATCH_NONE;
    if (status != TRI_OK)
        memset(net->routes, 0, world);
    if (status == TRI_OK)
        links_log(net);
free_texts:
    tri_free(texts);
    tri_free(routes);
    return status;
}

void tri_net_close(tri_net *net)
{
    unsigned char bye[TRI_FRAME_NBYTES];

    if (!net)
        return;
    tri_frame_encode(&(tri_frame){.kind = TRI_FRAME_BYE}, bye);
    if (net->links && net->routes && net->want)
        tri_net_tell_all(net, bye, sizeof bye, BYE_LIMIT_NS);
    tri_watch_close(net->watch);
    for (size_t i = 0; i < net->transport_count; i++)
        net->transports[i]->ops->close(net->transports[i]);
    tri_free(net->hosts);
    tri_free(net->scratch);
    tri_free(net->want);
    tri_free(net->turn);
    tri_free(net->active);
    for (int peer = 0; net->links && peer < net->world; peer++)
        tri_free(net->links[peer]);
    tri_free(net->links);
    tri_free(net->routes);
    tri_free(net->token);
    tri_free(net);
}

int tri_net_rank(const tri_net *net)
{
    return net->rank;
}

int tri_net_world(const tri_net *net)
{
    return net->world;
}

bool tri_net_is_local(const tri_net *net)
{
    return net->over_hub;
}

uint32_t tri_net_job(const tri_net *net)
{
    return net->job;
}

void tri_net_moved(const tri_net *net, int peer, uint32_t group, uint64_t sequence, uint64_t *sent, uint64_t *received)
{
    tri_net_link *link = net->links[peer];
    bool same = link && atomic_load_explicit(&link->moved_group, memory_order_relaxed) == group &&
                atomic_load_explicit(&link->moved_sequence, memory_order_relaxed) == sequence;

    *sent = same ? atomic_load_explicit(&link->sent_nbytes, memory_order_relaxed) : 0;
    *received = same ? atomic_load_explicit(&link->received_nbytes, memory_order_relaxed) : 0;
}

const char *tri_net_transport_name(const tri_net *net, int peer)
{
    return net->routes[peer] ? net->names[net->routes[peer] - 1] : "self";
}

const tri_fabric *tri_net_fabric(const tri_net *net)
{
    return net->fabric;
}

tri_net_traffic tri_net_traffic_now(const tri_net *net)
{
    return net->traffic;
}

bool tri_net_trouble(const tri_net *net)
{
    return net->watch && tri_watch_has_trouble(net->watch);
}

tri_status tri_net_trouble_status(const tri_net *net)
{
    return net->watch ? tri_watch_trouble(net->watch) : TRI_OK;
}

void tri_net_blame(const tri_net *net, int *origin, tri_status *cause)
{
    if (net->watch)
        tri_watch_blame(net->watch, origin, cause);
}

uint64_t tri_net_host_of(const tri_net *net, int rank)
{
    if (net->fabric)
        return (uint64_t)tri_fabric_host(net->fabric, rank);
    return net->hosts ? net->hosts[rank] : 0;
}

bool tri_net_has_left(const tri_net *net, int peer)
{
    return net->watch && tri_watch_state_of(net->watch, peer) == TRI_WATCH_LEFT;
}

bool tri_net_has_lost(const tri_net *net, int peer)
{
    tri_transport *transport = tri_net_transport(net, peer);

    if (net->watch)
        return tri_watch_state_of(net->watch, peer) == TRI_WATCH_LOST || tri_net_has_left(net, peer);
    return transport && transport->ops->has_lost && transport->ops->has_lost(transport, peer);
}

bool tri_net_is_cut(const tri_net *net, int peer)
{
    tri_transport *transport = tri_net_transport(net, peer);

    if (!net->watch)
        return transport && transport->ops->has_lost && transport->ops->unanswered_ns(transport, peer) > 0;
    if (tri_watch_state_of(net->watch, peer) != TRI_WATCH_LOST || net->hosts[peer] == net->hosts[net->rank])
        return false;
    tri_verdict verdict = tri_watch_verdict_of(net->watch, peer); /* known before it is lost */
    return verdict == TRI_VERDICT_UNREACHABLE || verdict == TRI_VERDICT_DIED;
}

tri_watch *tri_net_watch(const tri_net *net)
{
    return net->watch;
}

bool tri_net_tell(tri_net *net, tri_status cause, int origin_rank, const char *message)
{
    if (net->watch)
        tri_watch_tell(net->watch, cause, origin_rank, message);
    return net->watch != NULL;
}

int64_t tri_net_round_trip_ns(const tri_net *net)
{
    int64_t most_ns = 0;

    for (int peer = 0; peer < net->world; peer++) {
        const tri_transport *transport = tri_net_transport(net, peer);
        int64_t ns = transport && transport->ops->round_trip_ns ? transport->ops->round_trip_ns(transport, peer) : 0;

        most_ns = ns > most_ns ? ns : most_ns;
    }
    return most_ns;
}

tri_link_load tri_net_load(const tri_net *net, int peer)
{
    const tri_transport *transport = tri_net_transport(net, peer);
    tri_link_load load = {0};

    if (transport && transport->ops->load)
        transport->ops->load(transport, peer, &load);
    return load;
}

void tri_net_describe_peer(const tri_net *net, int peer, char text[TRI_NET_DESCRIBE_NBYTES])
{
    const tri_transport *transport = tri_net_transport(net, peer);
    int used = snprintf(text, TRI_NET_DESCRIBE_NBYTES, "%s", tri_net_transport_name(net, peer));

    if (!transport || !transport->ops->describe)
        return;
    used += snprintf(text + used, TRI_NET_DESCRIBE_NBYTES - (size_t)used, ", ");
    transport->ops->describe(transport, peer, text + used, TRI_NET_DESCRIBE_NBYTES - (size_t)used);
}

static bool is_wanted(const tri_net *net, const tri_transport *transport)
{
    for (int peer = 0; peer < net->world; peer++) {
        if (net->want[peer] && tri_net_transport(net, peer) == transport)
            return true;
    }
    return false;
}

tri_status tri_net_wait(tri_net *net, int64_t deadline_ns)
{
    tri_transport *wanted[TRI_NET_TRANSPORTS];
    size_t count = 0;

    for (size_t i = 0; i < net->transport_count; i++) {
        if (net->transport_count == 1 || is_wanted(net, net->transports[i]))
            wanted[count++] = net->transports[i];
    }
    if (count == 0) {
        tri_sleep_ns(deadline_ns - tri_now_ns());
        return TRI_OK;
    }
    if (count == 1)
        return wanted[0]->ops->wait(wanted[0], net->want, deadline_ns);
    /* Nothing wakes for several: a short turn at each, longer while nothing comes (move.c sets it back). */
    net->slice_ns = net->slice_ns < SLICE_MIN_NS ? SLICE_MIN_NS : 2 * net->slice_ns;
    if (net->slice_ns > SLICE_MAX_NS)
        net->slice_ns = SLICE_MAX_NS;
    for (size_t i = 0; i < count; i++) {
        int64_t until_ns = tri_now_ns() + net->slice_ns;

        TRI_TRY(wanted[i]->ops->wait(wanted[i], net->want, until_ns < deadline_ns ? until_ns : deadline_ns));
    }
    return TRI_OK;
}
