/* SPDX-License-Identifier: Apache-2.0
 *
 * watch_impl.h: what the files of the watch share: a peer, the page of beats, messages.
 *
 * watch.c is the thread, watch_ask.c is for the others, watch_link.c makes connections, watch_messages.c is what is
 * said on them, watch_judge.c decides who is lost. All fields of a peer but `state` and `verdict` are under
 * watch->mutex once the thread runs.
 */
#ifndef TRI_NET_WATCH_IMPL_H
#define TRI_NET_WATCH_IMPL_H

#include <stdatomic.h>
#include <sys/types.h>

#include "net/local.h"
#include "net/tcp_rendezvous.h"
#include "net/tls.h"
#include "net/watch.h"

#define TRI_WATCH_HEAD_NBYTES    ((size_t)24)
#define TRI_WATCH_OUT_NBYTES     ((size_t)6 << 10)
#define TRI_WATCH_ADDRESS_NBYTES (64 + TRI_TCP_ADDRESS_NBYTES)
#define TRI_WATCH_CAUSE_NBYTES   ((size_t)1024)
#define TRI_WATCH_PAGE_NBYTES    ((size_t)4096)

typedef enum watch_kind {
    WATCH_BEAT = 1, /* payload: the note */
    WATCH_CAUSE,    /* payload: text of the first cause */
    WATCH_BYE,
    WATCH_ASK,
    WATCH_ANSWER, /* payload: a text */
    WATCH_EXCUSE, /* `subject`, of the sender's host, is silent, but wants to run */
    WATCH_KIND_COUNT
} watch_kind;

typedef struct watch_head {
    uint16_t kind;
    uint8_t verdict; /* of a cause: tri_verdict, about `subject` */
    uint8_t status;  /* of a cause */
    int32_t origin;  /* of a cause: the rank where it began */
    int32_t subject; /* of a cause: the rank that is lost, -1: none is; of an excuse: who has it */
    uint32_t nbytes; /* of the payload */
} watch_head;

/* Each rank's, which the others of its host map to read. */
typedef struct watch_page {
    _Atomic uint64_t beats;
    _Atomic int64_t beat_ns;     /* when the latest was, by its clock */
    _Atomic uint32_t task;       /* thread that beats */
    _Atomic uint32_t note_stamp; /* odd while the note changes */
    _Atomic uint32_t note_nbytes;
    _Atomic uint64_t note[TRI_WATCH_NOTE_NBYTES / 8];
} watch_page;
_Static_assert(sizeof(watch_page) <= TRI_WATCH_PAGE_NBYTES, "one page");

typedef struct watch_peer {
    atomic_int state, verdict;
    int fd;                 /* -1: none (any more) */
    tri_tls *tls;           /* of another host, with comm.encrypt; else NULL */
    int process_fd;         /* pidfd, -1: none */
    pid_t process;          /* 0: not of this host, or not to be seen */
    const watch_page *page; /* NULL: not of this host */
    bool ready;             /* something may have come */
    bool closed;            /* its end of the connection */
    int error;              /* errno of the connection, 0: closed by the peer */
    bool asks;              /* it waits for an answer */
    uint64_t beats, beat_count;
    int64_t heard_ns;   /* of the latest beat */
    int64_t worst_ns;   /* between two beats lately */
    int64_t excused_ns; /* when another rank of its host last said that it wants to run */
    size_t in_nbytes, out_nbytes;
    unsigned char in[TRI_WATCH_HEAD_NBYTES + TRI_WATCH_TEXT_NBYTES];
    unsigned char out[TRI_WATCH_OUT_NBYTES];
    unsigned char note[TRI_WATCH_NOTE_NBYTES]; /* of another host */
    size_t note_nbytes;
    uint64_t asked_beat; /* beat_count when it was asked last */
    size_t answer_nbytes;
    char answer[TRI_WATCH_TEXT_NBYTES];
} watch_peer;

struct tri_watch {
    int rank, world;
    const char *token;
    bool encrypts;
    tri_tls_context *tls; /* NULL: nothing is encrypted */
    char host_id[TRI_LOCAL_NAME_NBYTES];
    int64_t beat_ns; /* between two */
    const atomic_bool *broken;
    void (*wake)(void *arg); /* of the links */
    void *wake_arg;
    void (*waker)(void *arg); /* of other sleeps, NULL: none */
    void *waker_arg;
    char address[TRI_WATCH_ADDRESS_NBYTES];
    int local_listener, memory_fd, event_fd;
    tri_tcp_door door;
    watch_page *page;
    watch_peer *peers; /* [world] */
    struct pollfd *polls;
    tri_thread *thread;
    atomic_bool stop;
    int64_t looked_ns, next_ns;
    int remote_count; /* peers whose beats come as messages */

    tri_mutex client_mutex; /* held while the client is called */
    tri_watch_client client;

    tri_mutex mutex;
    bool reported;
    atomic_bool trouble; /* set last: what follows does not change any more */
    tri_status cause;
    tri_verdict verdict;
    int origin, subject;
    char text[TRI_WATCH_CAUSE_NBYTES];
};

/* Under the mutex: who waits looks up. */
static inline void tri_watch_wake_all(tri_watch *watch)
{
    watch->wake(watch->wake_arg);
    if (watch->waker)
        watch->waker(watch->waker_arg);
}

/* watch.c: ends the sleep of the thread. */
void tri_watch_rouse(tri_watch *watch);

/* watch_link.c */
tri_status tri_watch_listen(tri_watch *watch, const tri_transport_setup *setup, bool over_tcp);
tri_status tri_watch_meet(tri_watch *watch, const char *own, const char *const *addresses, int64_t deadline_ns);
void tri_watch_unlink(tri_watch *watch);

/* watch_messages.c; all under the mutex */
void tri_watch_head_encode(const watch_head *head, unsigned char bytes[TRI_WATCH_HEAD_NBYTES]);
/* False: no head of this protocol. */
bool tri_watch_head_decode(const unsigned char bytes[TRI_WATCH_HEAD_NBYTES], watch_head *head);
/* Queues a message and sends what goes without waiting; one that finds no room is dropped. */
void tri_watch_say(watch_peer *peer, const watch_head *head, const void *payload);
void tri_watch_flush(watch_peer *peer);
/* Takes everything that has come from a peer. */
void tri_watch_hear(tri_watch *watch, int peer, int64_t now_ns);
/* The trouble of this rank, to everybody who has not heard. */
void tri_watch_spread(tri_watch *watch);

/* watch_judge.c; all under the mutex */
/* False: there is one already. */
bool tri_watch_trouble_set(tri_watch *watch, tri_status cause, int origin, int subject, tri_verdict verdict,
                           const char *text);
/* Looks at the beats of a peer of this host; false: none since the last look. */
bool tri_watch_page_read(watch_peer *peer, int64_t now_ns);
void tri_watch_page_write(watch_page *page, const unsigned char *note, size_t nbytes, int64_t now_ns);
void tri_watch_beat_heard(watch_peer *peer, int64_t at_ns);
/* Who has been silent for too long is lost. Returns when it should be asked again. */
int64_t tri_watch_judge(tri_watch *watch, int64_t now_ns);
/* The connection of this peer ended, or its process did. */
void tri_watch_peer_ended(tri_watch *watch, int peer, bool process_died);

static inline bool tri_watch_is(const watch_peer *peer, tri_watch_state state)
{
    return atomic_load_explicit(&peer->state, memory_order_relaxed) == (int)state;
}

#endif
