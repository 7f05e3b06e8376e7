/* SPDX-License-Identifier: Apache-2.0
 *
 * test_redial.c: a worker that has lost its server reaches it again though each answer takes longer than its first try.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unit/ps/kv_rig.h"

#define DIM 4

/* Passes bytes on between the worker and the server, one connection after the other. */
typedef struct relay {
    int listener, to_port;
    atomic_bool cut, stop;
    atomic_int delay_ms; /* before bytes are passed on */
    atomic_int accepted;
    tri_thread *thread;
} relay;

static struct sockaddr_in loopback(int port)
{
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return place;
}

/* False: an end has closed. */
static bool pass(relay *self, int from, int to)
{
    char bytes[4096];
    ssize_t nbytes = recv(from, bytes, sizeof(bytes), 0);
    tri_sleep_ns(atomic_load(&self->delay_ms) * TRI_NS_PER_MS);
    for (ssize_t done = 0, sent; done < nbytes; done += sent)
        if ((sent = send(to, bytes + done, (size_t)(nbytes - done), MSG_NOSIGNAL)) <= 0)
            return false;
    return nbytes > 0;
}

static void connection_pass(relay *self, int worker)
{
    struct sockaddr_in place = loopback(self->to_port);
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool open = connect(server, (const struct sockaddr *)&place, sizeof(place)) == 0;
    atomic_fetch_add(&self->accepted, 1);
    while (open && !atomic_exchange(&self->cut, false) && !atomic_load(&self->stop)) {
        struct pollfd polls[2] = {{.fd = worker, .events = POLLIN}, {.fd = server, .events = POLLIN}};
        if (poll(polls, 2, 5) <= 0)
            continue;
        open = (!polls[0].revents || pass(self, worker, server)) && (!polls[1].revents || pass(self, server, worker));
    }
    close(worker);
    close(server);
}

static void relay_body(void *arg)
{
    relay *self = arg;
    while (!atomic_load(&self->stop)) {
        struct pollfd one = {.fd = self->listener, .events = POLLIN};
        if (poll(&one, 1, 5) > 0)
            connection_pass(self, accept(self->listener, NULL, NULL));
    }
}

/* address: of the server; becomes the relay's. */
static void relay_start(relay *self, char *address)
{
    struct sockaddr_in place = loopback(0);
    socklen_t length = sizeof(place);
    char *port = strstr(address, ",127.0.0.1/");
    assert_non_null(port);
    port += strlen(",127.0.0.1/");
    self->to_port = atoi(port);
    self->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(self->listener, (const struct sockaddr *)&place, length), 0);
    assert_int_equal(listen(self->listener, 8), 0);
    assert_int_equal(getsockname(self->listener, (struct sockaddr *)&place, &length), 0);
    sprintf(port, "%d", ntohs(place.sin_port));
    OK(tri_thread_start(&self->thread, "relay", relay_body, self));
}

static void a_server_that_answers_slowly_is_reached_again(void **state)
{
    static const char *const options[] = {"ps.retry_s=10", NULL};
    static relay between;
    char address[1024];
    const uint64_t key = 7;
    const float pushed[DIM] = {1, 2, 3, 4};
    float row[DIM];
    kv_rig rig = {.servers = 1, .workers = 1, .options = options};
    tri_kv *kv;
    tri_kv_table *table;
    (void)state;
    assert_true(kv_rig_serve(&rig));
    snprintf(address, sizeof(address), "%s", rig.addresses[0]);
    relay_start(&between, address);
    rig.addresses[0] = address;
    OK(kv_rig_join(&rig, 0, &kv));
    OK(tri_kv_table_open(kv, "table", DIM, "merge: add", &table));
    OK(tri_kv_push(table, -1, &key, pushed, 1, NULL));
    assert_int_equal(atomic_load(&between.accepted), 1);
    atomic_store(&between.delay_ms, 60);
    atomic_store(&between.cut, true);
    while (atomic_load(&between.accepted) < 2)
        tri_sleep_ns(TRI_NS_PER_MS);
    OK(tri_kv_pull(table, &key, 1, row, NULL));
    assert_memory_equal(row, pushed, sizeof(row));
    OK(tri_kv_close(kv));
    atomic_store(&between.stop, true);
    tri_thread_join(between.thread);
    close(between.listener);
    assert_true(kv_rig_close(&rig));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_server_that_answers_slowly_is_reached_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
