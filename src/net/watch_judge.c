/* SPDX-License-Identifier: Apache-2.0
 *
 * watch_judge.c: who is lost, and why this rank stops.
 *
 * Silence alone does not condemn. A thread that the kernel says is waiting for a core, or for its disk, is slow; a
 * watcher that itself was late takes that off; a rank of another host is excused by others there, for as long again;
 * and a peer whose beats came late before gets twice that time. So load evicts nobody, while a stopped process or a cut
 * link is found after three beats (six for a rank whose host answers, and that has no neighbour there).
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/task.h"
#include "net/watch_impl.h"

#define BEATS_MISSED   3
#define FIRST_LIMIT_NS (10 * TRI_NS_PER_S) /* until the first beat: the peer may still be waiting for others */
#define DISK_FACTOR    10                  /* factor of the limit for a thread that waits for its disk */
#define STARVED_FACTOR 10                  /* and for one that sleeps while another one of its process needs a core */
#define ASLEEP_FACTOR  2 /* and for one that just sleeps: its core may be a virtual one that stands still */
#define LIMIT_MAX_NS   (5 * TRI_NS_PER_S) /* but never less than three beats */

bool tri_watch_trouble_set(tri_watch *watch, tri_status cause, int origin, int subject, tri_verdict verdict,
                           const char *text)
{
    if (atomic_load(&watch->trouble))
        return false;
    watch->cause = cause;
    watch->origin = origin;
    watch->subject = subject;
    watch->verdict = verdict;
    snprintf(watch->text, sizeof watch->text, "%s", text);
    atomic_store(&watch->trouble, true);
    tri_watch_wake_all(watch);
    return true;
}

static void peer_lost(tri_watch *watch, int peer, tri_verdict verdict, const char *why)
{
    watch_peer *lost = &watch->peers[peer];
    char text[TRI_WATCH_CAUSE_NBYTES];

    snprintf(text, sizeof text, "rank %d %s", peer, why);
    atomic_store(&lost->verdict, (int)verdict);
    atomic_store(&lost->state, TRI_WATCH_LOST);
    if (tri_watch_trouble_set(watch, TRI_EPEER, peer, peer, verdict, text))
        tri_watch_spread(watch);
}

void tri_watch_peer_ended(tri_watch *watch, int peer, bool process_died)
{
    watch_peer *ended = &watch->peers[peer];
    char why[128];

    if (!tri_watch_is(ended, TRI_WATCH_ALIVE))
        return;
    if (process_died)
        peer_lost(watch, peer, TRI_VERDICT_DIED, "is gone (its process has died)");
    else if (ended->error == 0 || ended->error == ECONNRESET || ended->error == EPIPE)
        peer_lost(watch, peer, TRI_VERDICT_DIED, "is gone (connection closed)");
    else {
        snprintf(why, sizeof why, "is unreachable (%s)", strerror(ended->error));
        peer_lost(watch, peer, ended->error == EPROTO ? TRI_VERDICT_DIED : TRI_VERDICT_UNREACHABLE, why);
    }
}

/* ---- beats */

void tri_watch_beat_heard(watch_peer *peer, int64_t at_ns)
{
    int64_t gap_ns = at_ns - peer->heard_ns;

    /* Forgets slowly: half of a bad gap after some 35 beats. */
    peer->worst_ns -= peer->worst_ns / 50;
    if (peer->beat_count++ > 0 && gap_ns > peer->worst_ns)
        peer->worst_ns = gap_ns;
    peer->heard_ns = at_ns;
}

void tri_watch_page_write(watch_page *page, const unsigned char *note, size_t nbytes, int64_t now_ns)
{
    uint32_t stamp = atomic_load_explicit(&page->note_stamp, memory_order_relaxed);
    uint64_t words[TRI_WATCH_NOTE_NBYTES / 8] = {0};

    memcpy(words, note, nbytes);
    atomic_store(&page->note_stamp, stamp + 1);
    /* Who sees a word of the new note sees the odd stamp too. */
    for (size_t i = 0; i < (nbytes + 7) / 8; i++)
        atomic_store_explicit(&page->note[i], words[i], memory_order_release);
    atomic_store_explicit(&page->note_nbytes, (uint32_t)nbytes, memory_order_release);
    atomic_store(&page->note_stamp, stamp + 2);
    atomic_store(&page->beat_ns, now_ns);
    atomic_fetch_add(&page->beats, 1);
}

bool tri_watch_page_read(watch_peer *peer, int64_t now_ns)
{
    uint64_t beats = atomic_load((_Atomic uint64_t *)(uintptr_t)&peer->page->beats);
    int64_t at_ns = atomic_load((_Atomic int64_t *)(uintptr_t)&peer->page->beat_ns);

    if (beats == peer->beats)
        return false;
    peer->beats = beats;
    /* Another clock, in a container with its own: take ours. */
    if (at_ns > now_ns || now_ns - at_ns > 10 * TRI_NS_PER_S || at_ns < peer->heard_ns)
        at_ns = now_ns;
    tri_watch_beat_heard(peer, at_ns);
    return true;
}

/* What the kernel says of the thread that should beat: 'R' wants to run, 'T' is stopped; '?' cannot be known. */
static char task_state(const watch_peer *peer)
{
    tri_task task;
    /* Before the watch thread has come to run: of the main thread. */
    uint32_t thread = peer->process > 0 ? atomic_load((_Atomic uint32_t *)(uintptr_t)&peer->page->task) : 0;

    return tri_task_look(peer->process, (pid_t)thread, &task) ? task.state : '?';
}

/* Microseconds of a round trip, and milliseconds since the other kernel last answered. */
static bool connection_asked(const watch_peer *peer, uint32_t *trip_us, uint32_t *quiet_ms)
{
    struct tcp_info info;
    socklen_t nbytes = sizeof info;

    if (getsockopt(peer->fd, IPPROTO_TCP, TCP_INFO, &info, &nbytes) != 0)
        return false;
    *trip_us = info.tcpi_rtt;
    *quiet_ms = info.tcpi_last_ack_recv;
    return true;
}

static int64_t silence_limit(const tri_watch *watch, const watch_peer *peer, int64_t now_ns)
{
    int64_t three_ns = BEATS_MISSED * watch->beat_ns, limit_ns = three_ns;
    uint32_t trip_us, quiet_ms;

    if (peer->beat_count == 0 && !peer->page)
        return FIRST_LIMIT_NS > three_ns ? FIRST_LIMIT_NS : three_ns;
    if (limit_ns < 2 * peer->worst_ns)
        limit_ns = 2 * peer->worst_ns;
    /* Asked only of who is silent that long. */
    if (!peer->page && now_ns - peer->heard_ns >= limit_ns && connection_asked(peer, &trip_us, &quiet_ms))
        limit_ns += 2000 * (int64_t)trip_us;
    if (limit_ns > LIMIT_MAX_NS)
        limit_ns = LIMIT_MAX_NS;
    return limit_ns > three_ns ? limit_ns : three_ns;
}

/* The kernel says why a rank of this host is silent, and that it would beat if it could. */
static bool wants_to_run(const watch_peer *peer, char state, int64_t silent_ns, int64_t limit_ns)
{
    if (state == 'R')
        return true;
    if (state == 'D')
        return silent_ns < DISK_FACTOR * limit_ns;
    /* It waits for another thread of its own, which has not got a core, or waits for its disk. */
    return (state == 'S' || state == '?') && silent_ns < STARVED_FACTOR * limit_ns && tri_task_any_busy(peer->process);
}

/* Other hosts see only that it is silent: they hear of it before they may give it up. */
static void local_excuse(tri_watch *watch, int index, int64_t silent_ns, int64_t limit_ns)
{
    const watch_head head = {.kind = WATCH_EXCUSE, .subject = index};
    const watch_peer *late = &watch->peers[index];

    if (watch->remote_count == 0 || 2 * silent_ns < BEATS_MISSED * watch->beat_ns ||
        !wants_to_run(late, task_state(late), silent_ns, limit_ns))
        return;
    for (int peer = 0; peer < watch->world; peer++) {
        if (!watch->peers[peer].page && tri_watch_is(&watch->peers[peer], TRI_WATCH_ALIVE))
            tri_watch_say(&watch->peers[peer], &head, NULL);
    }
}

static void local_judge(tri_watch *watch, int index, int64_t silent_ns, int64_t limit_ns)
{
    char state = task_state(&watch->peers[index]), why[128];
    bool is_new = watch->peers[index].beat_count == 0 && silent_ns < FIRST_LIMIT_NS;

    if (is_new && state != 'T' && state != 't')
        return;
    /* '?': of another process namespace, or its watch has ended and it has not come to say goodbye. */
    if ((state == 'S' || state == '?') && silent_ns < ASLEEP_FACTOR * limit_ns)
        return;
    if (wants_to_run(&watch->peers[index], state, silent_ns, limit_ns))
        return;
    /* It may have got its core since its page was read, and sleep again after a beat. However long ago that beat is by
     * now: this thread may have waited for a core itself meanwhile. */
    if (tri_watch_page_read(&watch->peers[index], tri_now_ns()))
        return;
    if (state == 'T' || state == 't')
        snprintf(why, sizeof why, "is stopped (%s): nothing heard of it for %.2f s",
                 state == 'T' ? "by a signal" : "by a debugger", (double)silent_ns * 1e-9);
    else
        snprintf(why, sizeof why, "is stopped: nothing heard of it for %.2f s", (double)silent_ns * 1e-9);
    peer_lost(watch, index, TRI_VERDICT_STOPPED, why);
}

/* Returns when it should be asked again. */
static int64_t remote_judge(tri_watch *watch, int index, int64_t now_ns, int64_t limit_ns)
{
    const watch_peer *peer = &watch->peers[index];
    int64_t silent_ns = now_ns - peer->heard_ns, until_ns = peer->heard_ns + ASLEEP_FACTOR * limit_ns;
    uint32_t trip_us, quiet_ms;
    bool answers = connection_asked(peer, &trip_us, &quiet_ms) &&
                   (int64_t)quiet_ms * TRI_NS_PER_MS < silent_ns - watch->beat_ns / 2;
    char why[128];

    if (peer->excused_ns > 0 && peer->excused_ns + limit_ns > until_ns)
        until_ns = peer->excused_ns + limit_ns;
    if (answers && now_ns < until_ns)
        return until_ns;
    if (answers)
        snprintf(why, sizeof why, "is stopped: nothing heard of it for %.2f s, though its host answers",
                 (double)silent_ns * 1e-9);
    else
        snprintf(why, sizeof why, "is unreachable: nothing heard of it or its host for %.2f s",
                 (double)silent_ns * 1e-9);
    peer_lost(watch, index, answers ? TRI_VERDICT_STOPPED : TRI_VERDICT_UNREACHABLE, why);
    return TRI_FOREVER;
}

/* While this watcher did not run, nobody was silent, and no excuse grew old. */
static void lateness_take_off(watch_peer *peer, int64_t late_ns, int64_t now_ns)
{
    peer->heard_ns = peer->heard_ns + late_ns < now_ns ? peer->heard_ns + late_ns : now_ns;
    if (peer->excused_ns > 0)
        peer->excused_ns = peer->excused_ns + late_ns < now_ns ? peer->excused_ns + late_ns : now_ns;
}

int64_t tri_watch_judge(tri_watch *watch, int64_t now_ns)
{
    int64_t next_ns = TRI_FOREVER, late_ns = now_ns - watch->looked_ns - watch->beat_ns;

    watch->looked_ns = now_ns;
    for (int index = 0; index < watch->world; index++) {
        watch_peer *peer = &watch->peers[index];
        int64_t limit_ns, again_ns = TRI_FOREVER;

        if (!tri_watch_is(peer, TRI_WATCH_ALIVE))
            continue;
        if (late_ns > watch->beat_ns)
            lateness_take_off(peer, late_ns, now_ns);
        limit_ns = silence_limit(watch, peer, now_ns);
        if (peer->page)
            local_excuse(watch, index, now_ns - peer->heard_ns, limit_ns);
        if (now_ns - peer->heard_ns >= limit_ns) {
            if (peer->page)
                local_judge(watch, index, now_ns - peer->heard_ns, limit_ns);
            else
                again_ns = remote_judge(watch, index, now_ns, limit_ns);
        } else
            again_ns = peer->heard_ns + limit_ns;
        if (again_ns < next_ns)
            next_ns = again_ns;
    }
    return next_ns;
}
