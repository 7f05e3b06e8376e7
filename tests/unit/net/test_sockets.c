/* SPDX-License-Identifier: Apache-2.0
 *
 * test_sockets.c: links over tcp of several connections and several interfaces, and how a rank finds its way.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/tcp_address.h"
#include "ranks/spawn.h"
#include "unit/net/cmocka_all.h"

#define LARGE ((size_t)3 << 20)

static tri_frame frame_of(size_t nbytes)
{
    return (tri_frame){.kind = TRI_FRAME_DATA, .op = 1, .sequence = 5, .count = nbytes, .nbytes = nbytes};
}

/* Opens with options given as "field=value". */
static tri_status open_with(spawn_rank *self, const char *const *settings, tri_net **out)
{
    for (size_t i = 0; settings && settings[i]; i++) {
        char field[64];
        const char *value = strchr(settings[i], '=') + 1;

        snprintf(field, sizeof field, "%.*s", (int)(value - 1 - settings[i]), settings[i]);
        if (tri_options_set(&tri_net_options, &self->config, field, value) != TRI_OK)
            return TRI_ECONFIG;
    }
    return spawn_net_open(self, out);
}

static unsigned char byte_at(int from, int to, int round, size_t i)
{
    return (unsigned char)(i * 31 + (i >> 8) * 7 + (size_t)(from * 5 + to * 3 + round));
}

/* Everybody sends to everybody, of many lengths: heads and payloads fall on all places of a segment. */
static void exchange_all(spawn_rank *self, tri_net *net)
{
    static const size_t lengths[] = {0, 1, 63, 64, 4000, 16320, 16384, 16385, 65537, 300000, 100, 1000003};
    unsigned char *bytes = calloc(16, 1 << 20);

    for (int round = 0; round < (int)TRI_COUNT_OF(lengths); round++) {
        size_t nbytes = lengths[round];
        tri_move moves[16];
        size_t count = 0;

        for (int peer = 0; peer < self->world; peer++) {
            unsigned char *out = bytes + ((size_t)peer << 20), *in = bytes + ((size_t)(8 + peer) << 20);

            if (peer == self->rank)
                continue;
            for (size_t i = 0; i < nbytes; i++)
                out[i] = byte_at(self->rank, peer, round, i);
            moves[count++] = (tri_move){.peer = peer, .send = true, .frame = frame_of(nbytes), .bytes = out};
            moves[count++] = (tri_move){.peer = peer, .frame = frame_of(nbytes), .bytes = in};
        }
        SPAWN_CHECK(self, tri_net_move(net, moves, count, tri_deadline_after_ms(20000), NULL, NULL) == TRI_OK);
        for (int peer = 0; peer < self->world; peer++) {
            size_t wrong = 0;

            for (size_t i = 0; peer != self->rank && i < nbytes; i++)
                wrong += bytes[((size_t)(8 + peer) << 20) + i] != byte_at(peer, self->rank, round, i);
            SPAWN_CHECK(self, wrong == 0);
        }
    }
    free(bytes);
}

typedef struct sockets_case {
    const char *const *settings;
    const char *described; /* what must stand in tri_net_describe_peer */
    const char *also;      /* or NULL */
} sockets_case;

static void handshake(spawn_rank *self, void *arg)
{
    const sockets_case *all = arg;
    char text[TRI_NET_DESCRIBE_NBYTES];
    tri_net *net = NULL;

    SPAWN_CHECK(self, open_with(self, all->settings, &net) == TRI_OK);
    tri_net_describe_peer(net, (self->rank + 1) % self->world, text);
    SPAWN_CHECK(self, strncmp(text, "tcp, ", 5) == 0 && strstr(text, all->described));
    SPAWN_CHECK(self, !all->also || strstr(text, all->also));
    tri_net_describe_peer(net, self->rank, text);
    SPAWN_CHECK(self, strcmp(text, "self") == 0);
    SPAWN_CHECK(self, tri_net_round_trip_ns(net) > 0);
    exchange_all(self, net);
    tri_link_load load = tri_net_load(net, (self->rank + 1) % self->world);
    SPAWN_CHECK(self, load.acked_nbytes > 400000 && load.acked_nbytes < 1 << 22); /* the last of it may be on its way */
    SPAWN_CHECK(self, load.busy_s >= 0 && load.busy_s < 20);                      /* counted in ticks of the clock */
    SPAWN_CHECK(self, load.round_trip_s > 0 && load.resent_segments >= 0);
    SPAWN_CHECK(self, tri_net_load(net, self->rank).acked_nbytes == 0);
    spawn_barrier(self);
    tri_net_close(net);
}

static void bytes_arrive_in_order_over_any_number_of_connections(void **state)
{
    static const char *const counts[][2] = {{"tcp_connections=1", "1 connection,"},
                                            {"tcp_connections=2", "2 connections,"},
                                            {"tcp_connections=5", "5 connections,"},
                                            {"tcp_connections=8", "8 connections,"}};

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(counts); i++) {
        const char *settings[] = {counts[i][0], NULL};
        sockets_case all = {settings, counts[i][1], NULL};
        spawn_config config = {.kind = SPAWN_TCP, .world = i % 2 ? 3 : 2};

        assert_true(spawn_ranks(&config, handshake, &all));
    }
}

static void near_ranks_have_one_connection(void **state)
{
    sockets_case all = {NULL, "1 connection, 127.0.0.1 to 127.0.0.1, round trip ", NULL};
    spawn_config config = {.kind = SPAWN_TCP, .world = 3};

    (void)state;
    assert_true(spawn_ranks(&config, handshake, &all));
}

static void connections_are_spread_over_the_interfaces_that_are_named(void **state)
{
    static const char *const two[] = {"interface=127.0.0.1,127.0.0.2", NULL};
    static const char *const four[] = {"interface=127.0.0.1,127.0.0.2", "tcp_connections=4", NULL};
    sockets_case all[] = {{two, "2 connections,", "127.0.0.2"}, {four, "4 connections,", "127.0.0.2"}};

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(all); i++) {
        spawn_config config = {.kind = SPAWN_TCP, .world = 3};

        assert_true(spawn_ranks(&config, handshake, &all[i]));
    }
}

/* ---- finding the way */

enum { SILENT = 6 };

/* Puts wrong places before the right one of rank 0: nobody listens there, or somebody silent. */
static void wrong_places_first(spawn_rank *self, void *arg)
{
    const int *silent = arg;
    const char *const *addresses;
    const char *shown[2], *comma;
    char text[1024];
    size_t used;
    tri_net *net = NULL;

    SPAWN_CHECK(self, tri_options_set(&tri_net_options, &self->config, "interface", "127.0.0.1") == TRI_OK);
    SPAWN_CHECK(self, tri_net_open(&self->config, self->rank, self->world, self->token, NULL, &net) == TRI_OK);
    addresses = spawn_exchange(self, tri_net_address(net));
    comma = strchr(strstr(addresses[0], "tcp="), ',');
    used = (size_t)snprintf(text, sizeof text, "%.*s,127.0.0.1/1", (int)(comma - addresses[0]), addresses[0]);
    for (int i = 0; i < SILENT; i++) {
        struct sockaddr_in place = {.sin_family = AF_INET};
        socklen_t nbytes = sizeof place;

        SPAWN_CHECK(self, getsockname(silent[i], (struct sockaddr *)&place, &nbytes) == 0);
        used += (size_t)snprintf(text + used, sizeof text - used, ",127.0.0.%d/%d", 3 + i, ntohs(place.sin_port));
    }
    snprintf(text + used, sizeof text - used, "%s", comma);
    shown[0] = text;
    shown[1] = addresses[1];
    spawn_barrier(self);
    /* The silent ones take 5 s each: 30 s if they were tried one after the other. */
    SPAWN_CHECK(self, tri_net_connect(net, shown, tri_deadline_after_ms(25000)) == TRI_OK);
    exchange_all(self, net);
    spawn_barrier(self);
    tri_net_close(net);
}

static int listener_open(const char *address)
{
    struct sockaddr_in place = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(inet_pton(AF_INET, address, &place.sin_addr), 1);
    assert_int_equal(bind(fd, (const struct sockaddr *)&place, sizeof place), 0);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

static void places_that_lead_nowhere_cost_little(void **state)
{
    spawn_config config = {.kind = SPAWN_TCP, .world = 2};
    int silent[SILENT];
    char address[16];

    (void)state;
    for (int i = 0; i < SILENT; i++) {
        snprintf(address, sizeof address, "127.0.0.%d", 3 + i);
        silent[i] = listener_open(address);
    }
    assert_true(spawn_ranks(&config, wrong_places_first, silent));
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
}

/* Who listens at an address that another host offers too is somebody else: rank 2, say, where rank 0 was meant. */
static void same_address_twice(spawn_rank *self, void *arg)
{
    const char *const *addresses;
    const char *shown[3];
    char text[1024];
    tri_net *net = NULL;

    (void)arg;
    SPAWN_CHECK(self, tri_net_open(&self->config, self->rank, self->world, self->token, NULL, &net) == TRI_OK);
    addresses = spawn_exchange(self, tri_net_address(net));
    for (int r = 0; r < 3; r++)
        shown[r] = addresses[r];
    if (self->rank == 2) {
        const char *first = strstr(addresses[1], ",127.0.0.1/"), *rest = strchr(strstr(addresses[0], "tcp="), ',');

        snprintf(text, sizeof text, "%.*s%.*s%s", (int)(rest - addresses[0]), addresses[0],
                 (int)(strcspn(first + 1, ",") + 1), first, rest);
        shown[0] = text;
    }
    SPAWN_CHECK(self, tri_net_connect(net, shown, tri_deadline_after_ms(20000)) == TRI_OK);
    exchange_all(self, net);
    spawn_barrier(self);
    tri_net_close(net);
}

static void an_address_of_another_rank_is_not_taken_for_the_right_one(void **state)
{
    spawn_config config = {.kind = SPAWN_TCP, .world = 3};

    (void)state;
    assert_true(spawn_ranks(&config, same_address_twice, NULL));
}

static void places_are_sorted_by_nearness(void **state)
{
    const char *own = "aaaa,172.17.0.1/5,10.77.0.1/6,fd00::1/7";
    const char *text = "bbbb,172.17.0.1/1,192.168.7.7/2,10.77.0.2/3,127.0.0.1/4,fd00::2/8";
    static const char *const expected[] = {"fd00::2", "10.77.0.2", "192.168.7.7", "172.17.0.1"};
    tri_tcp_place places[TRI_TCP_PLACES_MAX];
    char one[INET6_ADDRSTRLEN];

    (void)state;
    assert_int_equal(tri_tcp_places(text, own, places), 4);
    /* What shares most bits with one of one's own is first; one's own address is somebody else's there: last. */
    for (size_t i = 0; i < TRI_COUNT_OF(expected); i++) {
        tri_tcp_place_print(&places[i], one);
        assert_string_equal(one, expected[i]);
    }
    assert_int_equal(tri_tcp_places("aaaa,10.0.0.1/1,127.0.0.1/2", own, places), 2);
    tri_tcp_place_print(&places[0], one);
    assert_string_equal(one, "127.0.0.1");
    assert_int_equal(ntohs(places[0].four.sin_port), 2);
    assert_int_equal(tri_tcp_places("bbbb", own, places), 0);
    assert_int_equal(tri_tcp_places("bbbb,10.0.0.1/1,rubbish", own, places), 0);
}

static void each_listener_is_bound_to_one_address(void **state)
{
    int fds[TRI_TCP_PLACES_MAX], count;
    char text[TRI_TCP_ADDRESS_NBYTES];

    (void)state;
    assert_int_equal(tri_tcp_listen("", "", fds, &count, text), TRI_OK);
    assert_true(count >= 1);
    for (int i = 0; i < count; i++) {
        tri_tcp_place place;
        socklen_t nbytes = sizeof place;
        char one[INET6_ADDRSTRLEN];

        assert_int_equal(getsockname(fds[i], &place.any, &nbytes), 0);
        tri_tcp_place_print(&place, one);
        assert_string_not_equal(one, "0.0.0.0");
        assert_string_not_equal(one, "::");
        assert_non_null(strstr(text, one));
        close(fds[i]);
    }
    assert_int_equal(tri_tcp_listen("127.0.0.2,127.0.0.1", "", fds, &count, text), TRI_OK);
    assert_int_equal(count, 2);
    assert_true(strstr(text, ",127.0.0.2/") < strstr(text, ",127.0.0.1/"));
    close(fds[0]);
    close(fds[1]);
}

/* Two listeners on a range of two ports, the first range from 19000 that is free: the system gives none of these to
 * others by itself, as it does with ports from 32768. */
static int two_listeners_open(char ports[32], int fds[2][TRI_TCP_PLACES_MAX], char text[2][TRI_TCP_ADDRESS_NBYTES])
{
    for (int first = 19000; first < 20000; first += 2) {
        int count;

        snprintf(ports, 32, "%d-%d", first, first + 1);
        if (tri_tcp_listen("127.0.0.1", ports, fds[0], &count, text[0]) != TRI_OK)
            continue;
        if (tri_tcp_listen("127.0.0.1", ports, fds[1], &count, text[1]) == TRI_OK)
            return first;
        close(fds[0][0]);
    }
    fail_msg("no two free ports from 19000 to 20000");
    return 0;
}

static void listeners_keep_to_the_ports_that_are_given(void **state)
{
    int fds[2][TRI_TCP_PLACES_MAX], third[TRI_TCP_PLACES_MAX], count;
    char ports[32], text[2][TRI_TCP_ADDRESS_NBYTES], other[TRI_TCP_ADDRESS_NBYTES];

    (void)state;
    int first = two_listeners_open(ports, fds, text);
    int used[2] = {atoi(strrchr(text[0], '/') + 1), atoi(strrchr(text[1], '/') + 1)};
    assert_true(used[0] >= first && used[0] <= first + 1);
    assert_true(used[1] >= first && used[1] <= first + 1);
    assert_int_not_equal(used[0], used[1]);
    assert_int_equal(tri_tcp_listen("127.0.0.1", ports, third, &count, other), TRI_EIO);
    assert_non_null(strstr(tri_last_error(), "comm.ports: want a free port"));
    close(fds[0][0]);
    assert_int_equal(tri_tcp_listen("127.0.0.1", ports, third, &count, other), TRI_OK);
    assert_int_equal(atoi(strrchr(other, '/') + 1), used[0]);
    close(third[0]);
    close(fds[1][0]);
}

static void ranges_of_ports_that_cannot_be_are_refused(void **state)
{
    static const char *const wrong[] = {"40100-40000", "0-10",         "1-65536", "-5", "40000-",
                                        "a",           "40000-40100x", "1 2",     "+5"};
    int first, last;

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(wrong); i++) {
        assert_int_equal(tri_tcp_ports_parse(wrong[i], &first, &last), TRI_ECONFIG);
        assert_non_null(strstr(tri_last_error(), "comm.ports: want a range of ports such as 40000-40100"));
    }
    assert_int_equal(tri_tcp_ports_parse("40000-40100", &first, &last), TRI_OK);
    assert_true(first == 40000 && last == 40100);
    assert_int_equal(tri_tcp_ports_parse("40000", &first, &last), TRI_OK);
    assert_true(first == 40000 && last == 40000);
    assert_int_equal(tri_tcp_ports_parse("", &first, &last), TRI_OK);
    assert_true(first == 0 && last == 0);
}

static void wrong_interfaces_are_named(void **state)
{
    static const char *const wrong[][2] = {{"127.0.0.1,nosuch0", "nosuch0"},
                                           {"0.0.0.0", "0.0.0.0"},
                                           {"lo,,lo", "got "},
                                           {"192.0.2.1", "cannot listen on 192.0.2.1"}};
    int fds[TRI_TCP_PLACES_MAX], count;
    char text[TRI_TCP_ADDRESS_NBYTES];

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(wrong); i++) {
        assert_int_not_equal(tri_tcp_listen(wrong[i][0], "", fds, &count, text), TRI_OK);
        assert_non_null(strstr(tri_last_error(), wrong[i][1]));
        assert_non_null(strstr(tri_last_error(), "comm.interface"));
        for (int k = 0; k < count; k++)
            close(fds[k]);
    }
}

/* ---- cuts */

/* Descriptors of this process that are connections to a peer of this process over 127.0.0.1. */
static int connections_find(int fds[64])
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    for (struct dirent *entry; (entry = readdir(folder)) && count < 64;) {
        struct sockaddr_in place;
        socklen_t nbytes = sizeof place;
        int fd = atoi(entry->d_name), kind = 0;
        socklen_t kind_nbytes = sizeof kind;

        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &kind_nbytes) == 0 && kind == SOCK_STREAM &&
            getpeername(fd, (struct sockaddr *)&place, &nbytes) == 0 && place.sin_family == AF_INET)
            fds[count++] = fd;
    }
    closedir(folder);
    return count;
}

/* One of the four connections between the two ranks is cut while both wait for the other. */
static void cut_one(spawn_rank *self, void *arg)
{
    static const char *const settings[] = {"tcp_connections=4", NULL};
    int which = *(int *)arg, fds[64];
    tri_net *net = NULL;
    char byte;
    tri_move move = {.peer = 1 - self->rank, .frame = frame_of(1), .bytes = &byte};

    SPAWN_CHECK(self, open_with(self, settings, &net) == TRI_OK);
    spawn_barrier(self);
    if (self->rank == 0) {
        SPAWN_CHECK(self, connections_find(fds) == 8);
        SPAWN_CHECK(self, shutdown(fds[which], SHUT_RDWR) == 0);
    }
    SPAWN_CHECK(self, tri_net_move(net, &move, 1, tri_deadline_after_ms(20000), NULL, NULL) == TRI_EPEER);
    SPAWN_CHECK(self, strstr(tri_last_error(), "is gone (connection closed)"));
    spawn_barrier(self);
    tri_net_close(net);
}

static void a_cut_of_one_of_several_connections_is_a_dead_peer(void **state)
{
    (void)state;
    for (int which = 0; which < 8; which++) {
        spawn_config config = {.kind = SPAWN_TCP, .world = 2};

        assert_true(spawn_ranks(&config, cut_one, &which));
    }
}

/* A rank that leaves in good order closes all its connections, which is no cut, though it is read late. */
static void leaves_in_order(spawn_rank *self, void *arg)
{
    static const char *const settings[] = {"tcp_connections=4", NULL};
    unsigned char *bytes = calloc(1, LARGE);
    tri_net *net = NULL;
    tri_move move = {.peer = 1 - self->rank, .send = self->rank == 1, .frame = frame_of(100000), .bytes = bytes};

    (void)arg;
    SPAWN_CHECK(self, open_with(self, settings, &net) == TRI_OK);
    if (self->rank == 1) {
        SPAWN_CHECK(self, tri_net_move(net, &move, 1, tri_deadline_after_ms(20000), NULL, NULL) == TRI_OK);
        tri_net_close(net);
        spawn_barrier(self);
    } else {
        spawn_barrier(self);
        tri_sleep_ns(500 * TRI_NS_PER_MS);
        SPAWN_CHECK(self, tri_net_move(net, &move, 1, tri_deadline_after_ms(20000), NULL, NULL) == TRI_OK);
        SPAWN_CHECK(self, tri_net_move(net, &move, 1, tri_deadline_after_ms(20000), NULL, NULL) == TRI_EPEER);
        SPAWN_CHECK(self, strstr(tri_last_error(), "it left in good order"));
        tri_net_close(net);
    }
    free(bytes);
}

static void a_goodbye_over_several_connections_is_read_to_its_end(void **state)
{
    spawn_config config = {.kind = SPAWN_TCP, .world = 2};

    (void)state;
    assert_true(spawn_ranks(&config, leaves_in_order, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_arrive_in_order_over_any_number_of_connections),
        cmocka_unit_test(near_ranks_have_one_connection),
        cmocka_unit_test(connections_are_spread_over_the_interfaces_that_are_named),
        cmocka_unit_test(places_that_lead_nowhere_cost_little),
        cmocka_unit_test(an_address_of_another_rank_is_not_taken_for_the_right_one),
        cmocka_unit_test(places_are_sorted_by_nearness),
        cmocka_unit_test(each_listener_is_bound_to_one_address),
        cmocka_unit_test(listeners_keep_to_the_ports_that_are_given),
        cmocka_unit_test(ranges_of_ports_that_cannot_be_are_refused),
        cmocka_unit_test(wrong_interfaces_are_named),
        cmocka_unit_test(a_cut_of_one_of_several_connections_is_a_dead_peer),
        cmocka_unit_test(a_goodbye_over_several_connections_is_read_to_its_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
