/* SPDX-License-Identifier: Apache-2.0
 *
 * watch.c: the watch thread: beats, hears, looks at processes, and sleeps in poll().
 *
 * It wakes for a few microseconds per beat and so asks for a better priority, where that is permitted: on a machine
 * that is full of work the others must not take this rank for stopped.
 */
#include "net/watch.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memory.h"
#include "net/host.h"
#include "net/watch_impl.h"

#define PRIORITY        (-10)
#define REMOTE_MANY     64 /* from here on messages are taken several at a time */
#define REMOTE_PAUSE_NS (2 * TRI_NS_PER_MS)
#define CLOSE_LIMIT_NS  (100 * TRI_NS_PER_MS)
#define CLOSE_STEP_NS   (TRI_NS_PER_MS / 2)

/* ---- the thread */

void tri_watch_rouse(tri_watch *watch)
{
    const uint64_t one = 1;

    /* Full: it is awake. */
    (void)!write(watch->event_fd, &one, sizeof one);
}

static void beat(tri_watch *watch, int64_t now_ns)
{
    unsigned char note[TRI_WATCH_NOTE_NBYTES];
    watch_head head = {.kind = WATCH_BEAT};

    tri_mutex_lock(&watch->client_mutex);
    if (watch->client.note)
        head.nbytes = (uint32_t)watch->client.note(watch->client.arg, note);
    tri_mutex_unlock(&watch->client_mutex);
    tri_mutex_lock(&watch->mutex);
    tri_watch_page_write(watch->page, note, head.nbytes, tri_now_ns()); /* a lock or a core may have been waited for */
    for (int peer = 0; peer < watch->world; peer++) {
        const watch_peer *at = &watch->peers[peer];

        if (!at->page && at->out_nbytes == 0 && tri_watch_is(at, TRI_WATCH_ALIVE))
            tri_watch_say(&watch->peers[peer], &head, note);
    }
    tri_mutex_unlock(&watch->mutex);
    tri_mutex_lock(&watch->client_mutex);
    if (watch->client.tick)
        watch->client.tick(watch->client.arg, now_ns);
    tri_mutex_unlock(&watch->client_mutex);
}

static void questions_answer(tri_watch *watch)
{
    char text[TRI_WATCH_TEXT_NBYTES];
    watch_head head = {.kind = WATCH_ANSWER};
    bool asked = false;

    for (int peer = 0; peer < watch->world; peer++)
        asked |= watch->peers[peer].asks;
    if (!asked)
        return;
    /* At most every beat, until it is known. */
    tri_mutex_lock(&watch->client_mutex);
    if (watch->client.answer)
        head.nbytes = (uint32_t)watch->client.answer(watch->client.arg, text, sizeof text - 1);
    tri_mutex_unlock(&watch->client_mutex);
    if (head.nbytes == 0)
        return;
    tri_mutex_lock(&watch->mutex);
    for (int peer = 0; peer < watch->world; peer++) {
        if (watch->peers[peer].asks)
            tri_watch_say(&watch->peers[peer], &head, text);
        watch->peers[peer].asks = false;
    }
    tri_mutex_unlock(&watch->mutex);
}

static bool has_died(const watch_peer *peer)
{
    struct pollfd one = {.fd = peer->process_fd, .events = POLLIN};

    return peer->process_fd >= 0 && poll(&one, 1, 0) > 0;
}

/* Everything that was said is heard before anybody is found dead: who died may have said why, or somebody else. */
static void peers_look(tri_watch *watch, const bool *ended)
{
    int64_t now_ns = tri_now_ns();
    bool any = *ended;

    for (int peer = 0; peer < watch->world; peer++) {
        watch_peer *at = &watch->peers[peer];

        if (!tri_watch_is(at, TRI_WATCH_ALIVE))
            continue;
        tri_watch_flush(at);
        if (at->ready || *ended)
            tri_watch_hear(watch, peer, now_ns);
        at->ready = false;
        if (at->page)
            tri_watch_page_read(at, now_ns);
        any |= at->closed;
    }
    for (int peer = 0; any && peer < watch->world; peer++)
        tri_watch_hear(watch, peer, now_ns);
    for (int peer = 0; any && peer < watch->world; peer++) {
        const watch_peer *at = &watch->peers[peer];
        bool died = tri_watch_is(at, TRI_WATCH_ALIVE) && has_died(at);

        if (died)
            tri_watch_hear(watch, peer, now_ns); /* its last words */
        if (died || at->closed)
            tri_watch_peer_ended(watch, peer, died);
    }
}

/* Who has something to say: polls[1 ..] are the connections, in the order of the peers. */
static void peers_mark(tri_watch *watch, nfds_t end)
{
    nfds_t at = 1;

    for (int peer = 0; peer < watch->world && at < end; peer++) {
        if (watch->peers[peer].fd != watch->polls[at].fd)
            continue;
        watch->peers[peer].ready = watch->polls[at++].revents != 0;
    }
}

/* Sleeps until something happens; *ended: a process did. */
static void peers_wait(tri_watch *watch, int64_t until_ns, bool *ended)
{
    nfds_t count = 0, processes;
    int64_t left_ns = until_ns - tri_now_ns();
    int ready = 0;
    struct timespec limit = {.tv_nsec = left_ns < 0 ? 0 : left_ns < TRI_NS_PER_S ? (long)left_ns : 999999999};
    uint64_t rung;

    watch->polls[count++] = (struct pollfd){.fd = watch->event_fd, .events = POLLIN};
    tri_mutex_lock(&watch->mutex);
    for (int peer = 0; peer < watch->world; peer++) {
        const watch_peer *at = &watch->peers[peer];

        if (tri_watch_is(at, TRI_WATCH_ALIVE) && !at->closed)
            watch->polls[count++] =
                (struct pollfd){.fd = at->fd, .events = (short)(POLLIN | (at->out_nbytes > 0 ? POLLOUT : 0))};
    }
    processes = count;
    for (int peer = 0; peer < watch->world; peer++) {
        const watch_peer *at = &watch->peers[peer];

        if (tri_watch_is(at, TRI_WATCH_ALIVE) && at->process_fd >= 0)
            watch->polls[count++] = (struct pollfd){.fd = at->process_fd, .events = POLLIN};
    }
    tri_mutex_unlock(&watch->mutex);
    *ended = false;
    ready = ppoll(watch->polls, count, &limit, NULL);
    if (ready <= 0)
        return;
    if (watch->polls[0].revents)
        (void)!read(watch->event_fd, &rung, sizeof rung);
    peers_mark(watch, processes);
    for (nfds_t i = processes; i < count; i++)
        *ended |= watch->polls[i].revents != 0;
}

static void watch_main(void *arg)
{
    tri_watch *watch = arg;
    long task = syscall(SYS_gettid);
    int64_t judge_ns = 0;
    bool ended = false;

    (void)setpriority(PRIO_PROCESS, (id_t)task, PRIORITY);
    atomic_store(&watch->page->task, (uint32_t)task);
    watch->looked_ns = watch->next_ns = tri_now_ns();
    while (!atomic_load(&watch->stop)) {
        int64_t now_ns = tri_now_ns();

        if (now_ns >= watch->next_ns) {
            watch->next_ns = now_ns + watch->beat_ns;
            judge_ns = 0;
            beat(watch, now_ns);
        }
        tri_mutex_lock(&watch->mutex);
        peers_look(watch, &ended);
        /* Not after each message: it looks at everybody. */
        if (now_ns >= judge_ns)
            judge_ns = tri_watch_judge(watch, tri_now_ns());
        tri_mutex_unlock(&watch->mutex);
        questions_answer(watch);
        if (watch->remote_count > REMOTE_MANY)
            tri_sleep_ns(REMOTE_PAUSE_NS);
        peers_wait(watch, judge_ns < watch->next_ns ? judge_ns : watch->next_ns, &ended);
    }
}

/* ---- open, close */

tri_status tri_watch_open(const tri_transport_setup *setup, bool over_tcp, void (*wake)(void *arg), void *arg,
                          tri_watch **out)
{
    size_t world = (size_t)setup->world;
    tri_watch *watch = tri_alloc_zero(1, sizeof *watch);
    tri_status status = TRI_ENOMEM;

    *out = NULL;
    if (!watch)
        return TRI_ENOMEM;
    watch->rank = setup->rank;
    watch->world = setup->world;
    watch->token = setup->token;
    watch->encrypts = setup->config->encrypt;
    watch->beat_ns = setup->config->heartbeat_ms * TRI_NS_PER_MS;
    watch->broken = setup->config->broken;
    watch->wake = wake;
    watch->wake_arg = arg;
    watch->local_listener = watch->memory_fd = -1;
    tri_host_id(watch->host_id);
    tri_mutex_init(&watch->client_mutex);
    tri_mutex_init(&watch->mutex);
    watch->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    watch->peers = tri_alloc_zero(world, sizeof *watch->peers);
    watch->polls = tri_alloc_zero(1 + 2 * world, sizeof *watch->polls);
    for (size_t i = 0; watch->peers && i < world; i++)
        watch->peers[i].fd = watch->peers[i].process_fd = -1;
    if (watch->peers && watch->polls)
        status = watch->event_fd >= 0 ? TRI_OK : tri_fail(TRI_EIO, "watch: eventfd: %s", strerror(errno));
    if (status == TRI_OK)
        status = tri_watch_listen(watch, setup, over_tcp);
    if (status != TRI_OK) {
        tri_watch_close(watch);
        return status;
    }
    *out = watch;
    return TRI_OK;
}

const char *tri_watch_address(const tri_watch *watch)
{
    return watch->address;
}

tri_status tri_watch_connect(tri_watch *watch, const char *own, const char *const *addresses, int64_t deadline_ns)
{
    char name[16];

    TRI_TRY(tri_watch_meet(watch, own, addresses, deadline_ns));
    snprintf(name, sizeof name, "watch %d", watch->rank);
    return tri_thread_start(&watch->thread, name, watch_main, watch);
}

/* Bytes of the goodbye that have not arrived yet. Takes what comes, so that closing does not reset the connection. */
static bool has_unsent(watch_peer *peer)
{
    unsigned char waste[1024];
    int left = 0;

    tri_watch_flush(peer);
    while (recv(peer->fd, waste, sizeof waste, MSG_DONTWAIT) > 0) {
    }
    return peer->out_nbytes > 0 || (!peer->page && ioctl(peer->fd, SIOCOUTQ, &left) == 0 && left > 0);
}

static void goodbye_say(tri_watch *watch)
{
    const watch_head bye = {.kind = WATCH_BYE};
    int64_t until_ns = tri_now_ns() + CLOSE_LIMIT_NS;
    bool left = true;

    for (int peer = 0; peer < watch->world; peer++)
        tri_watch_say(&watch->peers[peer], &bye, NULL);
    while (left) {
        left = false;
        for (int peer = 0; peer < watch->world; peer++)
            left |= tri_watch_is(&watch->peers[peer], TRI_WATCH_ALIVE) && has_unsent(&watch->peers[peer]);
        if (left && tri_now_ns() >= until_ns)
            return;
        if (left)
            tri_sleep_ns(CLOSE_STEP_NS);
    }
}

void tri_watch_close(tri_watch *watch)
{
    if (!watch)
        return;
    if (watch->thread) {
        atomic_store(&watch->stop, true);
        tri_watch_rouse(watch);
        tri_thread_join(watch->thread);
        goodbye_say(watch);
    }
    tri_watch_unlink(watch);
    tri_mutex_fini(&watch->mutex);
    tri_mutex_fini(&watch->client_mutex);
    tri_free(watch->peers);
    tri_free(watch->polls);
    tri_free(watch);
}
