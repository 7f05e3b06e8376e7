/* SPDX-License-Identifier: Apache-2.0
 *
 * board.h: what a rank is doing right now and what it did last: written by whoever runs a call, read by anybody.
 *
 * A ring of the latest calls, 64 bytes each, and the name of the latest one. One writer at a time, no lock and no clock
 * but tri_ticks(): begin and end cost some nanoseconds each. A reader tries again when the stamp says that it was
 * written meanwhile. The flight record (flight.h) is this ring in a file; notes to other ranks are its latest entry.
 */
#ifndef TRI_COMM_BOARD_H
#define TRI_COMM_BOARD_H

#include <stdatomic.h>

#include "base/runtime.h"
#include "net/net.h"

#define TRI_BOARD_CALLS       1024
#define TRI_BOARD_CALLS_SIM   32 /* of a rank in a simulation, where there may be thousands */
#define TRI_BOARD_NAME_NBYTES 48 /* TRI_COMM_NAME_NBYTES */
#define TRI_BOARD_RANKS       64 /* that fit into `members` */

/* One call; a cache line. */
typedef struct tri_board_entry {
    _Alignas(64) _Atomic uint64_t begin; /* ticks */
    _Atomic uint64_t end;                /* ticks, 0: it runs */
    _Atomic uint64_t sequence, count, name;
    _Atomic uint64_t members; /* bit r: rank r of the world is in the group, of the first 64 */
    _Atomic uint64_t what;    /* op, dtype << 8, status << 16, reduce << 32 */
    _Atomic uint32_t group;
    _Atomic uint32_t number; /* of the call on this rank, its low 32 bits; 0 while it is written */
} tri_board_entry;

typedef struct tri_board {
    uint64_t mask; /* of the ring */
    tri_board_entry *entries;
    _Alignas(64) _Atomic uint32_t stamp; /* odd while it is written */
    _Atomic uint32_t is_named;
    _Atomic uint64_t begun, ended; /* calls so far */
    _Atomic uint64_t name[TRI_BOARD_NAME_NBYTES / 8];
} tri_board;

/* What a reader finds: an entry, in numbers. */
typedef struct tri_board_call {
    uint64_t number; /* 1 is the first call, 0: none yet */
    bool runs;
    tri_frame frame; /* of op, dtype, reduce, group, sequence, count, name */
    tri_status status;
    uint64_t members;
    int64_t begin_ns, end_ns; /* tri_now_ns() scale */
    char name[TRI_BOARD_NAME_NBYTES];
} tri_board_call;

tri_board *tri_board_create(void);
void tri_board_destroy(tri_board *board);
/* The latest call; false: none yet, or it changed all the time. Any thread. */
bool tri_board_read(const tri_board *board, tri_board_call *call);
/* The call that began `back` calls before the latest, without its name; false: it is not kept. Any thread. */
bool tri_board_earlier(const tri_board *board, uint64_t back, tri_board_call *call);
/* Copies up to `limit` of the latest calls, oldest first, without names; returns how many. Those that change meanwhile
 * are left out. Any thread. */
size_t tri_board_copy(const tri_board *board, tri_board_call *calls, size_t limit);
/* Bit mask of the ranks of a group. */
uint64_t tri_board_members(const int *world_ranks, int count);

/* Whoever sees a field of a call sees that the stamp became odd before it. On x86 both are plain moves. */
#define TRI_BOARD_PUT(field, value) atomic_store_explicit(&(field), (value), memory_order_release)
#define TRI_BOARD_GET(field)        atomic_load_explicit(&(field), memory_order_acquire)

/* The runner begins a call. name: "" when it has none. */
static inline void tri_board_begin(tri_board *board, const tri_frame *frame, uint64_t members, const char *name)
{
    uint64_t number = TRI_BOARD_GET(board->begun);
    tri_board_entry *entry = &board->entries[number & board->mask];
    uint32_t stamp = TRI_BOARD_GET(board->stamp);

    TRI_BOARD_PUT(board->stamp, stamp + 1);
    TRI_BOARD_PUT(entry->number, 0);
    TRI_BOARD_PUT(entry->begin, tri_ticks());
    TRI_BOARD_PUT(entry->end, 0);
    TRI_BOARD_PUT(entry->sequence, frame->sequence);
    TRI_BOARD_PUT(entry->count, frame->count);
    TRI_BOARD_PUT(entry->name, frame->name);
    TRI_BOARD_PUT(entry->members, members);
    TRI_BOARD_PUT(entry->what, (uint64_t)frame->op | (uint64_t)frame->dtype << 8 | (uint64_t)frame->reduce << 32);
    TRI_BOARD_PUT(entry->group, frame->group);
    TRI_BOARD_PUT(entry->number, (uint32_t)(number + 1));
    if (name[0]) {
        uint64_t words[TRI_BOARD_NAME_NBYTES / 8];

        __builtin_memcpy(words, name, sizeof words);
        for (size_t i = 0; i < TRI_BOARD_NAME_NBYTES / 8; i++)
            TRI_BOARD_PUT(board->name[i], words[i]);
    }
    TRI_BOARD_PUT(board->is_named, name[0] != 0);
    TRI_BOARD_PUT(board->begun, number + 1);
    TRI_BOARD_PUT(board->stamp, stamp + 2);
}

/* The call that began last ends; quick: so soon that looking at the clock would take as long, so it ends when it began.
 */
static inline void tri_board_end(tri_board *board, tri_status status, bool quick)
{
    uint64_t number = TRI_BOARD_GET(board->begun);
    tri_board_entry *entry = &board->entries[(number - 1) & board->mask];

    if (status != TRI_OK)
        TRI_BOARD_PUT(entry->what, TRI_BOARD_GET(entry->what) | (uint64_t)status << 16);
    TRI_BOARD_PUT(entry->end, quick ? TRI_BOARD_GET(entry->begin) : tri_ticks());
    TRI_BOARD_PUT(board->ended, number);
}

#endif
