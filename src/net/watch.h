/* SPDX-License-Identifier: Apache-2.0
 *
 * watch.h: one thread per rank that knows at all times who of the others is alive, and tells those who wait.
 *
 * It has a connection of its own to every peer. Inside a host: a unix socket whose end, with the peer's pidfd, says
 * that the process died, and a page that the peer counts its beats in. Between hosts: a TCP connection that beats
 * travel on. A rank that computes for long still beats, since its watch thread does. What is found first is the trouble
 * of this rank: every wait in net/ and comm/ looks at it (docs/design/communication.md).
 */
#ifndef TRI_NET_WATCH_H
#define TRI_NET_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/transport.h"

#define TRI_WATCH_NOTE_NBYTES 1024 /* of what each beat carries */
#define TRI_WATCH_TEXT_NBYTES 3072 /* of an answer */

typedef struct tri_watch tri_watch;

typedef enum tri_watch_state {
    TRI_WATCH_NONE,  /* oneself, or not watched */
    TRI_WATCH_ALIVE, /* beats, or is excused */
    TRI_WATCH_LEFT,  /* said goodbye */
    TRI_WATCH_LOST   /* found dead, stopped or unreachable */
} tri_watch_state;

/* What is wrong with a lost rank. */
typedef enum tri_verdict {
    TRI_VERDICT_NONE,
    TRI_VERDICT_DIED,
    TRI_VERDICT_STOPPED,
    TRI_VERDICT_UNREACHABLE,
    TRI_VERDICT_COUNT
} tri_verdict;

/* Called on the watch thread, one at a time; none of them may wait for long. */
typedef struct tri_watch_client {
    /* What this rank is doing, for the others: at most TRI_WATCH_NOTE_NBYTES. */
    size_t (*note)(void *arg, unsigned char *bytes);
    /* Once per beat. */
    void (*tick)(void *arg, int64_t now_ns);
    /* A peer asks what this rank is stuck in: at most `capacity` bytes of text; 0: not known yet, ask again. */
    size_t (*answer)(void *arg, char *text, size_t capacity);
    void *arg;
} tri_watch_client;

/* wake(arg): ends the waits of the rank's links, from any thread. over_tcp: also watch ranks of other hosts. */
tri_status tri_watch_open(const tri_transport_setup *setup, bool over_tcp, void (*wake)(void *arg), void *arg,
                          tri_watch **out);
/* The value of "watch=" in a rank's address; valid while open. */
const char *tri_watch_address(const tri_watch *watch);
/* Meets the peers, whose whole addresses (net.h) these are, and starts the thread. A peer that has no watch is not
 * watched. own: this rank's whole address. */
tri_status tri_watch_connect(tri_watch *watch, const char *own, const char *const *addresses, int64_t deadline_ns);
/* Says goodbye to all, ends the thread; NULL does nothing. */
void tri_watch_close(tri_watch *watch);

/* Who is asked for notes and answers; NULL: nobody, and none of its calls is running any more. */
void tri_watch_client_set(tri_watch *watch, const tri_watch_client *client);

/* Called too whenever the waits of the links are ended, for sleeps elsewhere: on any thread, with the watch's lock
 * held, so it may only ring. NULL: nobody, and the one before is not running any more. */
void tri_watch_waker_set(tri_watch *watch, void (*wake)(void *arg), void *arg);

/* Something ended the work of this rank: one relaxed load. */
bool tri_watch_has_trouble(const tri_watch *watch);
/* The failure, with its message: TRI_EPEER (a rank is lost), TRI_EABORT or TRI_EMISMATCH (a rank failed, or gave this
 * one up); TRI_OK without trouble. Any thread. */
tri_status tri_watch_trouble(const tri_watch *watch);
/* The rank where it began and what it was there; untouched without trouble. */
void tri_watch_blame(const tri_watch *watch, int *origin, tri_status *cause);
/* This rank fails: makes it its trouble, unless there is one, and tells all others, once. Never waits. Any thread. */
void tri_watch_tell(tri_watch *watch, tri_status cause, int origin, const char *text);

tri_watch_state tri_watch_state_of(const tri_watch *watch, int peer);
tri_verdict tri_watch_verdict_of(const tri_watch *watch, int peer);
/* The latest note of a peer and how old it is; 0: there is none. Any thread. */
size_t tri_watch_note(tri_watch *watch, int peer, unsigned char bytes[TRI_WATCH_NOTE_NBYTES], int64_t *age_ns);
/* Asks a peer what it is stuck in; the answer comes later, or never. Any thread. */
void tri_watch_ask(tri_watch *watch, int peer);
/* Whether an answer may still come: the peer is alive, has not answered, and has not beaten `beats` times since it was
 * asked last. Any thread. */
bool tri_watch_may_answer(tri_watch *watch, int peer, uint64_t beats);
/* The latest answer as a text, 0 when none has come. Any thread. */
size_t tri_watch_answer(tri_watch *watch, int peer, char text[TRI_WATCH_TEXT_NBYTES]);

#endif
