/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/watch_impl.h"
#include "ranks/spawn.h"
#include "unit/net/cmocka_all.h"
#include "unit/net/tap.h"

#define HOGS 8

/* ---- two processes; the parent is rank 0 */

typedef struct pair {
    pid_t child;
    int fd; /* to the other one */
    tri_net *net;
} pair;

static void text_send(int fd, const char *text)
{
    char bytes[TRI_NET_ADDRESS_NBYTES] = "";

    snprintf(bytes, sizeof bytes, "%.*s", (int)sizeof bytes - 1, text);
    TRI_ASSERT(write(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes);
}

static void text_receive(int fd, char text[TRI_NET_ADDRESS_NBYTES])
{
    TRI_ASSERT(recv(fd, text, TRI_NET_ADDRESS_NBYTES, MSG_WAITALL) == TRI_NET_ADDRESS_NBYTES);
}

static tri_net *link_open(const char *transport, const char *beat_ms, int rank, int fd)
{
    char peer[TRI_NET_ADDRESS_NBYTES];
    const char *addresses[2] = {peer, peer};
    tri_net_config config;
    tri_net *net = NULL;

    tri_options_defaults(&tri_net_options, &config);
    TRI_ASSERT(tri_options_set(&tri_net_options, &config, "transport", transport) == TRI_OK);
    TRI_ASSERT(tri_options_set(&tri_net_options, &config, "heartbeat_ms", beat_ms) == TRI_OK);
    TRI_ASSERT(tri_net_open(&config, rank, 2, "token", NULL, &net) == TRI_OK);
    text_send(fd, tri_net_address(net));
    text_receive(fd, peer);
    TRI_ASSERT(tri_net_connect(net, addresses, tri_deadline_after_ms(10000)) == TRI_OK);
    return net;
}

typedef void (*child_body)(tri_net *net, int fd);

static pair pair_start(const char *transport, const char *beat_ms, child_body body)
{
    pair two = {.fd = -1};
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    two.child = fork();
    if (two.child == 0) {
        close(fds[0]);
        body(link_open(transport, beat_ms, 1, fds[1]), fds[1]);
        _exit(0);
    }
    close(fds[1]);
    two.fd = fds[0];
    two.net = link_open(transport, beat_ms, 0, fds[0]);
    return two;
}

static void pair_end(pair *two)
{
    tri_net_close(two->net);
    kill(two->child, SIGKILL);
    assert_int_equal(waitpid(two->child, NULL, 0), two->child);
    close(two->fd);
}

/* Waits for a byte from the other rank, for at most 20 s. */
static tri_status byte_await(tri_net *net, int peer)
{
    char byte;
    tri_move move = {.frame = {.kind = TRI_FRAME_DATA, .nbytes = 1}, .peer = peer, .bytes = &byte};

    return tri_net_move(net, &move, 1, tri_deadline_after_ms(20000), NULL, NULL);
}

static tri_status byte_send(tri_net *net, int peer)
{
    char byte = 1;
    tri_move move = {.send = true, .frame = {.kind = TRI_FRAME_DATA, .nbytes = 1}, .peer = peer, .bytes = &byte};

    return tri_net_move(net, &move, 1, tri_deadline_after_ms(20000), NULL, NULL);
}

typedef struct signal_later {
    pid_t process;
    int number;
} signal_later;

static void signal_soon(void *arg)
{
    const signal_later *later = arg;

    tri_sleep_ns(300 * TRI_NS_PER_MS);
    kill(later->process, later->number);
}

static void wait_for_byte(tri_net *net, int fd)
{
    char text[TRI_NET_ADDRESS_NBYTES] = "";
    tri_status status = byte_await(net, 0);

    snprintf(text, sizeof text, "%s: %.400s", tri_status_name(status), tri_last_error());
    text_send(fd, text);
}

static void stopped_over(const char *transport)
{
    pair two = pair_start(transport, "100", wait_for_byte);
    signal_later later = {two.child, SIGSTOP};
    char text[TRI_NET_ADDRESS_NBYTES];
    int origin = -1;
    tri_status cause = TRI_OK;
    tri_thread *thread;

    assert_int_equal(tri_thread_start(&thread, "stopper", signal_soon, &later), TRI_OK);
    assert_int_equal(byte_await(two.net, 1), TRI_EPEER);
    tri_thread_join(thread);
    assert_non_null(strstr(tri_last_error(), "rank 1 is stopped (by a signal): nothing heard of it for "));
    assert_true(tri_net_trouble(two.net));
    tri_net_blame(two.net, &origin, &cause);
    assert_true(origin == 1 && cause == TRI_EPEER);
    assert_int_equal(tri_watch_verdict_of(tri_net_watch(two.net), 1), TRI_VERDICT_STOPPED);
    assert_int_equal(tri_watch_state_of(tri_net_watch(two.net), 1), TRI_WATCH_LOST);
    kill(two.child, SIGCONT);
    text_receive(two.fd, text);
    assert_non_null(strstr(text, "TRI_EABORT: rank 0 gave this rank up: rank 1 is stopped"));
    pair_end(&two);
}

static void a_stopped_process_is_named_and_finds_that_it_was_given_up(void **state)
{
    (void)state;
    stopped_over("shm");
    stopped_over("tcp");
}

static void stop_at_once(tri_net *net, int fd)
{
    kill(getpid(), SIGSTOP); /* perhaps before its watch has beaten once */
    wait_for_byte(net, fd);
}

static void who_stops_at_once_is_named_too(void **state)
{
    pair two = pair_start("shm", "100", stop_at_once);

    (void)state;
    assert_int_equal(byte_await(two.net, 1), TRI_EPEER);
    assert_non_null(strstr(tri_last_error(), "rank 1 is stopped (by a signal)"));
    kill(two.child, SIGCONT);
    pair_end(&two);
}

/* A child of the rank holds its sockets open after its death. */
static void fork_and_wait(tri_net *net, int fd)
{
    pid_t parent = getpid();
    char text[TRI_NET_ADDRESS_NBYTES];

    (void)net;
    if (fork() == 0) {
        while (getppid() == parent)
            tri_sleep_ns(TRI_NS_PER_MS);
        tri_sleep_ns(3 * TRI_NS_PER_S);
        _exit(0);
    }
    text_send(fd, "forked");
    text_receive(fd, text); /* never: it ends with its parent */
}

static void a_death_is_seen_though_a_child_holds_the_sockets(void **state)
{
    pair two = pair_start("shm", "100", fork_and_wait);
    char text[TRI_NET_ADDRESS_NBYTES];

    (void)state;
    text_receive(two.fd, text);
    kill(two.child, SIGKILL);
    assert_int_equal(byte_await(two.net, 1), TRI_EPEER);
    assert_string_equal(tri_last_error(), "rank 1 is gone (its process has died)");
    pair_end(&two);
}

static void compute_and_send(tri_net *net, int fd)
{
    int64_t until_ns = tri_now_ns() + 2 * TRI_NS_PER_S;
    char text[TRI_NET_ADDRESS_NBYTES];

    while (tri_now_ns() < until_ns) {
    }
    text_send(fd, byte_send(net, 0) == TRI_OK ? "sent" : tri_last_error());
    text_receive(fd, text);
}

static void who_computes_for_long_on_a_full_machine_is_not_lost(void **state)
{
    pid_t hogs[HOGS], parent = getpid();
    pair two;
    char text[TRI_NET_ADDRESS_NBYTES];

    (void)state;
    for (int i = 0; i < HOGS; i++) {
        hogs[i] = fork();
        while (hogs[i] == 0) {
            if (getppid() != parent)
                _exit(0);
        }
    }
    two = pair_start("shm", "50", compute_and_send);
    assert_int_equal(byte_await(two.net, 1), TRI_OK);
    assert_false(tri_net_trouble(two.net));
    text_receive(two.fd, text);
    assert_string_equal(text, "sent");
    pair_end(&two);
    for (int i = 0; i < HOGS; i++) {
        kill(hogs[i], SIGKILL);
        waitpid(hogs[i], NULL, 0);
    }
}

/* ---- what the kernel says of a process is read while it goes on */

static _Atomic pid_t goes_on; /* 0: nobody; when its state is asked for, it goes on, beats, and sleeps again */

tri_status __real_tri_fs_read_part(const char *path, uint64_t at, void *bytes, size_t room, size_t *got);
tri_status __wrap_tri_fs_read_part(const char *path, uint64_t at, void *bytes, size_t room, size_t *got);
tri_status __wrap_tri_fs_read_part(const char *path, uint64_t at, void *bytes, size_t room, size_t *got)
{
    char start[32];

    snprintf(start, sizeof start, "/proc/%d/", (int)goes_on);
    tri_status status = __real_tri_fs_read_part(path, at, bytes, room, got);
    if (goes_on == 0 || strncmp(path, start, strlen(start)) != 0)
        return status;
    kill(goes_on, SIGCONT);
    goes_on = 0;
    do {
        tri_sleep_ns(50 * TRI_NS_PER_MS);
        status = __real_tri_fs_read_part(path, at, bytes, room, got);
    } while (status == TRI_OK && !memmem(bytes, *got, ") S ", 4));
    return status;
}

static void send_when_told(tri_net *net, int fd)
{
    char text[TRI_NET_ADDRESS_NBYTES];

    text_receive(fd, text);
    text_send(fd, byte_send(net, 0) == TRI_OK ? "sent" : tri_last_error());
    text_receive(fd, text);
}

static void who_beats_while_its_watcher_asks_for_it_is_not_lost(void **state)
{
    char text[TRI_NET_ADDRESS_NBYTES];
    pair two = pair_start("shm", "100", send_when_told);

    (void)state;
    tri_sleep_ns(300 * TRI_NS_PER_MS);
    goes_on = two.child;
    kill(two.child, SIGSTOP);
    while (goes_on) /* until its watcher asks */
        tri_sleep_ns(TRI_NS_PER_MS);
    tri_sleep_ns(500 * TRI_NS_PER_MS); /* until it has judged */
    text_send(two.fd, "now");
    assert_int_equal(byte_await(two.net, 1), TRI_OK);
    assert_false(tri_net_trouble(two.net));
    text_receive(two.fd, text);
    assert_string_equal(text, "sent");
    pair_end(&two);
}

static void close_and_wait(tri_net *net, int fd)
{
    char text[TRI_NET_ADDRESS_NBYTES];

    tri_net_close(net);
    text_receive(fd, text);
}

static void leaving_in_good_order_is_no_trouble(void **state)
{
    static const char *const transports[] = {"shm", "tcp"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        pair two = pair_start(transports[i], "100", close_and_wait);

        for (int wait = 0; wait < 1000 && !tri_net_has_left(two.net, 1); wait++)
            tri_sleep_ns(5 * TRI_NS_PER_MS);
        assert_true(tri_net_has_left(two.net, 1));
        text_send(two.fd, "go");
        kill(two.child, SIGKILL);
        tri_sleep_ns(20 * TRI_NS_PER_MS);
        assert_false(tri_net_trouble(two.net));
        assert_int_equal(tri_net_trouble_status(two.net), TRI_OK);
        pair_end(&two);
    }
}

static void without_beats_nobody_watches(void **state)
{
    pair two = pair_start("shm", "0", compute_and_send);

    (void)state;
    assert_null(strstr(tri_net_address(two.net), "watch="));
    assert_null(tri_net_watch(two.net));
    assert_false(tri_net_trouble(two.net) || tri_net_has_left(two.net, 1) || tri_net_tell(two.net, TRI_EIO, 0, "x"));
    assert_int_equal(byte_await(two.net, 1), TRI_OK);
    pair_end(&two);
}

/* ---- threads */

static void woken_count(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void told_while_waiting(spawn_rank *self, void *arg)
{
    tri_net *net = NULL;
    int origin = -1;
    tri_status cause = TRI_OK;
    atomic_int woken = 0;

    (void)arg;
    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    tri_watch_waker_set(tri_net_watch(net), woken_count, &woken);
    spawn_barrier(self);
    if (self->rank == 1) {
        tri_sleep_ns(20 * TRI_NS_PER_MS);
        SPAWN_CHECK(self, tri_net_tell(net, TRI_ENUMERIC, 1, "the loss is not a number"));
        SPAWN_CHECK(self, tri_net_tell(net, TRI_EIO, 1, "a second cause"));
    } else {
        SPAWN_CHECK(self, byte_await(net, 1) == TRI_EABORT);
    }
    tri_watch_waker_set(tri_net_watch(net), NULL, NULL);
    SPAWN_CHECK(self, atomic_load(&woken) > 0);
    SPAWN_CHECK(self, tri_net_trouble_status(net) == TRI_EABORT);
    SPAWN_CHECK(self, strcmp(tri_last_error(), "the loss is not a number") == 0);
    tri_net_blame(net, &origin, &cause);
    SPAWN_CHECK(self, origin == 1 && cause == TRI_ENUMERIC);
    spawn_barrier(self);
    tri_net_close(net);
}

static void what_a_rank_tells_ends_the_waits_of_all(void **state)
{
    (void)state;
    for (spawn_kind kind = SPAWN_SHM; kind <= SPAWN_AUTO; kind++) {
        spawn_config config = {.kind = kind, .world = 5};

        assert_true(spawn_ranks(&config, told_while_waiting, NULL));
    }
}

typedef struct late_hearing {
    bool sends;                /* rank 0 does, and rank 1 leaves without having read it */
    atomic_int blocks, closed; /* rank 0's watch thread hears nothing; rank 1 has said all it had to say */
} late_hearing;

/* Longer than a rank waits for the cause of a lost link. */
static void tick_block(void *arg, int64_t now_ns)
{
    late_hearing *late = arg;

    (void)now_ns;
    if (atomic_exchange(&late->blocks, 1) || atomic_load(&late->closed))
        return;
    while (!atomic_load(&late->closed))
        tri_sleep_ns(TRI_NS_PER_MS);
    tri_sleep_ns(400 * TRI_NS_PER_MS);
}

static void left_with_a_cause(spawn_rank *self, void *arg)
{
    late_hearing *late = arg;
    tri_watch_client client = {.tick = tick_block, .arg = late};
    tri_net *net = NULL;
    int origin = -1;
    tri_status cause = TRI_OK, status = TRI_OK;

    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    if (self->rank == 0 && late->sends)
        SPAWN_CHECK(self, byte_send(net, 1) == TRI_OK);
    if (self->rank == 0)
        tri_watch_client_set(tri_net_watch(net), &client);
    while (self->rank == 0 && !atomic_load(&late->blocks))
        tri_sleep_ns(TRI_NS_PER_MS);
    spawn_barrier(self);
    if (self->rank == 1) {
        tri_net_abort(net, TRI_ENUMERIC, 1, "the loss is not a number");
        tri_net_close(net);
        atomic_store(&late->closed, 1);
        return;
    }
    while (late->sends && status == TRI_OK)
        status = byte_send(net, 1);
    SPAWN_CHECK(self, (late->sends ? status : byte_await(net, 1)) == TRI_EABORT);
    SPAWN_CHECK(self, strcmp(tri_last_error(), "the loss is not a number") == 0);
    tri_net_blame(net, &origin, &cause);
    SPAWN_CHECK(self, origin == 1 && cause == TRI_ENUMERIC);
    tri_watch_client_set(tri_net_watch(net), NULL);
    tri_net_close(net);
}

static void the_cause_of_a_rank_that_left_is_heard_by_a_late_watch(void **state)
{
    (void)state;
    for (spawn_kind kind = SPAWN_SHM; kind <= SPAWN_UCX; kind++) {
        for (int sends = 0; sends < 2; sends++) {
            late_hearing late = {.sends = sends};
            spawn_config config = {.kind = kind, .world = 2};

            assert_true(spawn_ranks(&config, left_with_a_cause, &late));
        }
    }
}

static size_t note_write(void *arg, unsigned char *bytes)
{
    int rank = *(int *)arg;

    memset(bytes, rank + 1, (size_t)(100 * (rank + 1)));
    return (size_t)(100 * (rank + 1));
}

/* Until this rank has heard the other one twice. */
static void beats_of_await(tri_net *net, int rank)
{
    tri_watch *watch = tri_net_watch(net);

    for (uint64_t beats = 0; beats < 2; tri_sleep_ns(TRI_NS_PER_MS)) {
        tri_mutex_lock(&watch->mutex);
        beats = watch->peers[rank].beat_count;
        tri_mutex_unlock(&watch->mutex);
    }
}

/* Longer than a rank may be silent that the kernel says nothing of. */
static size_t note_wait(void *arg, unsigned char *bytes)
{
    (void)bytes;
    if (atomic_exchange((atomic_int *)arg, 0))
        tri_sleep_ns(900 * TRI_NS_PER_MS);
    return 0;
}

static void late_beat(spawn_rank *self, void *arg)
{
    tri_net *net = NULL;
    atomic_int waits = 1;
    tri_watch_client client = {.note = note_wait, .arg = &waits};

    (void)arg;
    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    if (self->rank != 0)
        beats_of_await(net, 0);
    spawn_barrier(self);
    if (self->rank == 0) {
        tri_watch_client_set(tri_net_watch(net), &client);
        for (int i = 0; i < 1000 && atomic_load(&waits); i++)
            tri_sleep_ns(10 * TRI_NS_PER_MS);
        tri_watch_client_set(tri_net_watch(net), NULL); /* when its call is over */
        for (int peer = 1; peer < self->world; peer++)
            SPAWN_CHECK(self, byte_send(net, peer) == TRI_OK);
    } else {
        SPAWN_CHECK(self, byte_await(net, 0) == TRI_OK);
    }
    SPAWN_CHECK(self, !tri_net_trouble(net));
    spawn_barrier(self);
    tri_net_close(net);
}

static void a_late_rank_of_the_same_process_is_not_lost(void **state)
{
    spawn_config config = {.kind = SPAWN_SHM, .world = 2};

    (void)state;
    assert_true(spawn_ranks(&config, late_beat, NULL));
}

/* ---- somebody between two hosts */

static tri_net *tapped_open(int rank, bool encrypts)
{
    tri_net_config config;
    tri_net *net = NULL;

    tri_options_defaults(&tri_net_options, &config);
    snprintf(config.host, sizeof config.host, "host-%d", rank);
    snprintf(config.interface, sizeof config.interface, "127.0.0.1");
    config.encrypt = encrypts;
    config.heartbeat_ms = 1600; /* that the disk of a full machine stops them for seconds is no silence here */
    TRI_ASSERT(tri_net_open(&config, rank, 2, "token", NULL, &net) == TRI_OK);
    return net;
}

typedef struct tapped {
    tri_net *nets[2];
    tap in; /* of the watch */
} tapped;

static void second_connect(void *arg)
{
    tapped *at = arg;
    char text[TRI_NET_ADDRESS_NBYTES];
    const char *own = tri_net_address(at->nets[0]), *watch = strstr(own, "watch_tcp="), *port = strchr(watch, '/') + 1;
    const char *addresses[2] = {text, tri_net_address(at->nets[1])};

    tap_open(&at->in, atoi(port));
    snprintf(text, sizeof text, "%.*s%d%s", (int)(port - own), own, at->in.port, port + strspn(port, "0123456789"));
    TRI_ASSERT(tri_net_connect(at->nets[1], addresses, tri_deadline_after_ms(20000)) == TRI_OK);
}

static void tapped_connect(tapped *at, bool encrypts)
{
    tri_thread *thread;

    for (int r = 0; r < 2; r++)
        at->nets[r] = tapped_open(r, encrypts);
    const char *addresses[2] = {tri_net_address(at->nets[0]), tri_net_address(at->nets[1])};
    assert_int_equal(tri_thread_start(&thread, "second", second_connect, at), TRI_OK);
    assert_int_equal(tri_net_connect(at->nets[0], addresses, tri_deadline_after_ms(20000)), TRI_OK);
    tri_thread_join(thread);
}

static void tapped_close(tapped *at)
{
    for (int r = 0; r < 2; r++)
        tri_net_close(at->nets[r]);
    tap_close(&at->in);
}

/* Until the ranks have said more than the handshake: a beat each. */
static void beats_await(tapped *at)
{
    size_t before = tap_nbytes(&at->in);

    for (int64_t until_ns = tri_deadline_after_ms(20000); tap_nbytes(&at->in) < before + 3 * TRI_WATCH_HEAD_NBYTES;) {
        assert_true(tri_now_ns() < until_ns);
        tri_sleep_ns(TRI_NS_PER_MS);
    }
}

/* Without encryption both are possible: so this looks at the right place. */
static void what_watches_say_cannot_be_read_or_forged_where_it_is_encrypted(void **state)
{
    (void)state;
    for (int encrypts = 0; encrypts < 2; encrypts++) {
        static const char words[] = "a forged cause";
        const watch_head head = {.kind = WATCH_CAUSE, .status = TRI_EIO, .origin = 1, .subject = -1, .nbytes = 14};
        unsigned char message[TRI_WATCH_HEAD_NBYTES + 14];
        tapped at;

        tapped_connect(&at, encrypts);
        beats_await(&at);
        assert_int_equal(tap_has(&at.in, "TRIW", 4), !encrypts);
        if (tri_watch_has_trouble(tri_net_watch(at.nets[0])))
            fail_msg("%s: %s", tri_status_name(tri_watch_trouble(tri_net_watch(at.nets[0]))), tri_last_error());
        tri_watch_head_encode(&head, message);
        memcpy(message + TRI_WATCH_HEAD_NBYTES, words, 14);
        assert_int_equal(send(at.in.ends[1], message, sizeof message, MSG_NOSIGNAL), sizeof message);
        for (int64_t until_ns = tri_deadline_after_ms(20000); !tri_watch_has_trouble(tri_net_watch(at.nets[0]));) {
            assert_true(tri_now_ns() < until_ns);
            tri_sleep_ns(TRI_NS_PER_MS);
        }
        assert_int_equal(tri_watch_trouble(tri_net_watch(at.nets[0])), encrypts ? TRI_EPEER : TRI_EABORT);
        assert_int_equal(strstr(tri_last_error(), "forged") == NULL, encrypts);
        tapped_close(&at);
    }
}

/* ---- another host: rank 0 is alone on its own, ranks 1 (another process) and 2 may be neighbours */

static tri_net *far_open(const char *host, int rank)
{
    tri_net_config config;
    tri_net *net = NULL;

    tri_options_defaults(&tri_net_options, &config);
    snprintf(config.host, sizeof config.host, "%s", host);
    TRI_ASSERT(tri_net_open(&config, rank, 3, "token", NULL, &net) == TRI_OK);
    return net;
}

typedef struct far_rendezvous {
    tri_net *net;
    const char *const *addresses;
} far_rendezvous;

static void far_connect(void *arg)
{
    const far_rendezvous *at = arg;

    TRI_ASSERT(tri_net_connect(at->net, at->addresses, tri_deadline_after_ms(10000)) == TRI_OK);
}

static void far_child(int fd)
{
    char texts[3][TRI_NET_ADDRESS_NBYTES];
    const char *addresses[3] = {texts[0], texts[1], texts[2]};
    far_rendezvous rendezvous = {far_open("b", 1), addresses};

    text_send(fd, tri_net_address(rendezvous.net));
    for (int i = 0; i < 3; i++)
        text_receive(fd, texts[i]);
    far_connect(&rendezvous);
    text_send(fd, "met");
    text_receive(fd, texts[0]); /* never: it ends with its parent */
}

static void far_stopped(const char *third_host, const char *want)
{
    char texts[3][TRI_NET_ADDRESS_NBYTES];
    const char *addresses[3] = {texts[0], texts[1], texts[2]};
    far_rendezvous meetings[2] = {{.addresses = addresses}, {.addresses = addresses}};
    tri_thread *thread;
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    pid_t child = fork();
    if (child == 0) {
        close(fds[0]); /* it ends with its parent */
        far_child(fds[1]);
    }
    close(fds[1]);
    text_receive(fds[0], texts[1]);
    for (int i = 0; i < 2; i++) {
        meetings[i].net = far_open(i == 0 ? "a" : third_host, 2 * i);
        snprintf(texts[2 * i], sizeof texts[0], "%s", tri_net_address(meetings[i].net));
    }
    for (int i = 0; i < 3; i++)
        text_send(fds[0], texts[i]);
    assert_int_equal(tri_thread_start(&thread, "third", far_connect, &meetings[1]), TRI_OK);
    far_connect(&meetings[0]);
    tri_thread_join(thread);
    text_receive(fds[0], texts[1]);
    for (int i = 0; i < 2; i++)
        beats_of_await(meetings[i].net, 1);
    kill(child, SIGSTOP);
    assert_int_equal(byte_await(meetings[0].net, 1), TRI_EPEER);
    assert_non_null(strstr(tri_last_error(), want));
    assert_int_equal(tri_watch_verdict_of(tri_net_watch(meetings[0].net), 1), TRI_VERDICT_STOPPED);
    for (int i = 0; i < 2; i++)
        tri_net_close(meetings[i].net);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(fds[0]);
}

static void a_stopped_rank_of_another_host_is_lost_with_and_without_a_neighbour(void **state)
{
    (void)state;
    far_stopped("b", "rank 1 is stopped");
    far_stopped("c", "though its host answers");
}

static size_t answer_write(void *arg, char *text, size_t capacity)
{
    return (size_t)snprintf(text, capacity, "rank %d answers", *(int *)arg);
}

static void notes_and_answers(spawn_rank *self, void *arg)
{
    tri_net *net = NULL;
    tri_watch *watch;
    tri_watch_client client = {.note = note_write, .answer = answer_write, .arg = &self->rank};
    unsigned char note[TRI_WATCH_NOTE_NBYTES];
    char text[TRI_WATCH_TEXT_NBYTES] = "", want[32];
    int peer = (self->rank + 1) % self->world;
    int64_t age_ns;
    size_t nbytes = 0;

    (void)arg;
    SPAWN_CHECK(self, spawn_net_open(self, &net) == TRI_OK);
    watch = tri_net_watch(net);
    tri_watch_client_set(watch, &client);
    spawn_barrier(self);
    for (int i = 0; i < 2000 && nbytes == 0; i++) {
        tri_sleep_ns(10 * TRI_NS_PER_MS);
        nbytes = tri_watch_note(watch, peer, note, &age_ns);
    }
    SPAWN_CHECK(self, nbytes == (size_t)(100 * (peer + 1)) && note[0] == peer + 1 && note[nbytes - 1] == peer + 1);
    tri_watch_ask(watch, peer);
    while (tri_watch_may_answer(watch, peer, 500))
        tri_sleep_ns(TRI_NS_PER_MS);
    SPAWN_CHECK(self, tri_watch_answer(watch, peer, text) > 0);
    SPAWN_CHECK(self, !tri_watch_may_answer(watch, peer, UINT64_MAX));
    snprintf(want, sizeof want, "rank %d answers", peer);
    SPAWN_CHECK(self, strcmp(text, want) == 0);
    spawn_barrier(self);
    tri_watch_client_set(watch, NULL);
    tri_net_close(net);
}

static void beats_carry_notes_and_questions_are_answered(void **state)
{
    (void)state;
    for (spawn_kind kind = SPAWN_SHM; kind <= SPAWN_TCP; kind++) {
        spawn_config config = {.kind = kind, .world = 3};

        assert_true(spawn_ranks(&config, notes_and_answers, NULL));
    }
}

/* ---- messages */

static void every_damaged_bit_of_a_head_is_found(void **state)
{
    const watch_head head = {.kind = WATCH_CAUSE,
                             .verdict = TRI_VERDICT_DIED,
                             .status = TRI_EPEER,
                             .origin = 3,
                             .subject = -1,
                             .nbytes = 20};
    unsigned char bytes[TRI_WATCH_HEAD_NBYTES];
    watch_head found;

    (void)state;
    tri_watch_head_encode(&head, bytes);
    assert_true(tri_watch_head_decode(bytes, &found));
    assert_true(found.kind == head.kind && found.verdict == head.verdict && found.status == head.status &&
                found.origin == 3 && found.subject == -1 && found.nbytes == 20);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_false(tri_watch_head_decode(bytes, &found));
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

static void heads_that_cannot_be_are_refused(void **state)
{
    static const watch_head wrong[] = {{.kind = 0},
                                       {.kind = WATCH_KIND_COUNT},
                                       {.kind = WATCH_BEAT, .nbytes = TRI_WATCH_NOTE_NBYTES + 1},
                                       {.kind = WATCH_CAUSE, .nbytes = TRI_WATCH_CAUSE_NBYTES},
                                       {.kind = WATCH_ANSWER, .nbytes = TRI_WATCH_TEXT_NBYTES},
                                       {.kind = WATCH_BYE, .nbytes = 1},
                                       {.kind = WATCH_CAUSE, .status = TRI_STATUS_COUNT},
                                       {.kind = WATCH_CAUSE, .verdict = TRI_VERDICT_COUNT}};
    unsigned char bytes[TRI_WATCH_HEAD_NBYTES];
    watch_head found;

    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(wrong); i++) {
        tri_watch_head_encode(&wrong[i], bytes);
        assert_false(tri_watch_head_decode(bytes, &found));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stopped_process_is_named_and_finds_that_it_was_given_up),
        cmocka_unit_test(who_stops_at_once_is_named_too),
        cmocka_unit_test(a_death_is_seen_though_a_child_holds_the_sockets),
        cmocka_unit_test(who_computes_for_long_on_a_full_machine_is_not_lost),
        cmocka_unit_test(who_beats_while_its_watcher_asks_for_it_is_not_lost),
        cmocka_unit_test(leaving_in_good_order_is_no_trouble),
        cmocka_unit_test(without_beats_nobody_watches),
        cmocka_unit_test(what_a_rank_tells_ends_the_waits_of_all),
        cmocka_unit_test(the_cause_of_a_rank_that_left_is_heard_by_a_late_watch),
        cmocka_unit_test(a_late_rank_of_the_same_process_is_not_lost),
        cmocka_unit_test(what_watches_say_cannot_be_read_or_forged_where_it_is_encrypted),
        cmocka_unit_test(a_stopped_rank_of_another_host_is_lost_with_and_without_a_neighbour),
        cmocka_unit_test(beats_carry_notes_and_questions_are_answered),
        cmocka_unit_test(every_damaged_bit_of_a_head_is_found),
        cmocka_unit_test(heads_that_cannot_be_are_refused),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
