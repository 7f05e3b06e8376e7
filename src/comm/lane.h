/* SPDX-License-Identifier: Apache-2.0
 *
 * lane.h: the lane of a group whose ranks are all on one host: small messages by flags in cache lines.
 *
 * Each rank has a page of slots that all others map. A call on the lane has a number, the same on all ranks; its
 * message of rank r is in slot number % TRI_LANE_SLOTS of r's page, with the signature of the call, so that ranks
 * that call different things find out at the first line they read. A slot is written again when all ranks are done with
 * the call before. Nothing is sent, nobody is called: a message of a few bytes takes as long as one line from core to
 * core, and one that needs the line behind it hardly longer, as both are asked for at once.
 */
#ifndef TRI_COMM_LANE_H
#define TRI_COMM_LANE_H

#include <string.h>

#include "base/cache.h"
#include "comm/call.h"
#include "net/doorbell.h"
#include "net/region.h"

#define TRI_LANE_SLOTS          4
#define TRI_LANE_RANKS_MAX      64
#define TRI_LANE_INLINE_NBYTES  48
#define TRI_LANE_MESSAGE_NBYTES 4096
#define TRI_LANE_STAGE_NBYTES   ((size_t)1 << 20)

typedef struct tri_lane_slot {
    _Alignas(TRI_LINES_APART) _Atomic uint64_t number; /* of the call whose message is here */
    uint64_t signature;
    unsigned char few[TRI_LANE_INLINE_NBYTES];                /* the message, if it fits */
    _Alignas(64) unsigned char many[TRI_LANE_MESSAGE_NBYTES]; /* else here */
} tri_lane_slot;

/* For reports; read only by who finds that something is wrong. */
typedef struct tri_lane_note {
    tri_frame frame;
    char name[TRI_COMM_NAME_NBYTES];
} tri_lane_note;

#define TRI_LANE_NOTE_WORDS (sizeof(tri_lane_note) / sizeof(uint64_t))
_Static_assert(sizeof(tri_lane_note) % sizeof(uint64_t) == 0, "a note is words");

typedef struct tri_lane_notes {
    _Alignas(TRI_LINES_APART) tri_lane_note posted[TRI_LANE_SLOTS]; /* what the slots' signatures are of */
    _Atomic uint64_t latest_stamp;                                  /* odd while `latest` is written */
    _Atomic uint64_t latest[TRI_LANE_NOTE_WORDS];                   /* a note: call that posted nothing here */
} tri_lane_notes;

/* Written by its rank alone, read by all. */
typedef struct tri_lane_page {
    tri_doorbell doorbell;
    _Alignas(TRI_LINES_APART) _Atomic uint64_t done; /* number of the latest call that this rank has finished */
    tri_lane_notes notes;
    tri_lane_slot slots[TRI_LANE_SLOTS];
    /* Room for what the others are to reach of ordinary memory; costs nothing until it is used. */
    _Alignas(4096) unsigned char stage[TRI_LANE_STAGE_NBYTES];
} tri_lane_page;

struct tri_lane {
    tri_group *group;
    uint64_t number; /* of the latest call on the lane */
    bool spins;      /* this rank has a core of its own */
    tri_region own, *peers;
    tri_lane_page **pages; /* [ranks] */
    tri_lane *next;        /* of the comm's open lanes */
    bool listed;           /* among them; a group may outlive its comm */
    bool unchecked;        /* the latest call read nothing: tri_lane_check_root */
    uint64_t *seen_done;   /* [ranks]: what was last read of their `done` */
};

/* Collective, on the runner's thread: opens the lane of a group, or leaves it without one on all ranks. */
tri_status tri_lane_open(tri_group *group);
void tri_lane_close(tri_lane *lane);
/* Ends the sleeps of this rank on all lanes of a comm. Any thread. */
void tri_lanes_wake(void *comm);
/* The comm is about to go. */
void tri_lanes_forget(tri_comm *comm);

/* The next call on the lane: its slot is free. The message (at most TRI_LANE_MESSAGE_NBYTES) is written to where
 * tri_lane_message() says, then posted; a rank with nothing to say need not. */
tri_status tri_lane_begin(tri_call *call);
void *tri_lane_message(const tri_lane *lane, size_t nbytes);
void tri_lane_post(const tri_lane *lane, const tri_call *call);
/* Waits for the message of a rank. TRI_EMISMATCH, TRI_ETIMEOUT, TRI_EPEER, TRI_EABORT. */
tri_status tri_lane_await(tri_call *call, int peer, size_t nbytes, const void **message);
/* After a call of which this rank read nothing, at its end and when the next one begins: has a rank that should have
 * posted nothing posted the call with another root? Of two such ranks the later one finds the other's post; each looks
 * twice because their stores may pass each other on the way. */
tri_status tri_lane_check_root(const tri_call *call);
/* This rank has read all it needs of the call. */
void tri_lane_end(const tri_lane *lane);
/* This rank's next message will probably be as long: asks for the lines of its slot, which are with those who read them
 * last, if all are done with them, while the caller continues. */
void tri_lane_expect(const tri_lane *lane, size_t nbytes);
/* For a reader whose peer does not wait for it, and may have posted its next message already: glance() asks for that
 * one's number, and fetch_ahead(), a little later, for the message, if it is there; it will probably be as long. */
void tri_lane_glance(const tri_lane *lane, int peer);
void tri_lane_fetch_ahead(const tri_lane *lane, int peer, size_t nbytes);
/* A barrier on the lane that tells all ranks nbytes (at most TRI_LANE_INLINE_NBYTES) of each; words: [ranks][nbytes],
 * or NULL. */
tri_status tri_lane_meet(tri_call *call, const void *word, size_t nbytes, void *words);

static inline void tri_lane_note_write(tri_lane_note *note, const tri_call *call)
{
    note->frame = call->frame;
    note->name[0] = 0;
    if (call->name[0])
        memcpy(note->name, call->name, sizeof(note->name));
}

/* Whoever sees a word of the new note sees the odd stamp too. On x86 all of it is plain moves. */
static inline void tri_lane_latest_write(tri_lane_notes *notes, const tri_lane_note *note)
{
    uint64_t words[TRI_LANE_NOTE_WORDS], stamp = atomic_load_explicit(&notes->latest_stamp, memory_order_relaxed);
    memcpy(words, note, sizeof(words));
    atomic_store_explicit(&notes->latest_stamp, stamp + 1, memory_order_relaxed);
    for (size_t i = 0; i < TRI_LANE_NOTE_WORDS; i++)
        atomic_store_explicit(&notes->latest[i], words[i], memory_order_release);
    atomic_store_explicit(&notes->latest_stamp, stamp + 2, memory_order_release);
}

/* false: its rank was writing it. */
static inline bool tri_lane_latest_read(tri_lane_notes *notes, tri_lane_note *note)
{
    uint64_t words[TRI_LANE_NOTE_WORDS], stamp = atomic_load_explicit(&notes->latest_stamp, memory_order_acquire);
    for (size_t i = 0; i < TRI_LANE_NOTE_WORDS; i++)
        words[i] = atomic_load_explicit(&notes->latest[i], memory_order_acquire);
    memcpy(note, words, sizeof(words));
    return stamp % 2 == 0 && atomic_load_explicit(&notes->latest_stamp, memory_order_relaxed) == stamp;
}

/* What the others are shown of a call that goes another way, or says nothing on the lane; what is between two ranks has
 * other numbers and is nobody else's business. */
static inline void tri_lane_announce(const tri_call *call)
{
    tri_lane *lane = call->group->lane;
    tri_lane_note note;
    if (!lane || call->op == TRI_COMM_SEND_RECV)
        return;
    memset(note.name, 0, sizeof(note.name));
    tri_lane_note_write(&note, call);
    tri_lane_latest_write(&lane->pages[call->group->rank]->notes, &note);
}

#endif
