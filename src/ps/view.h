/* SPDX-License-Identifier: Apache-2.0
 *
 * view.h: who serves what: the living servers in a ring, and which of them has each of 128 slots.
 *
 * Everything that servers hold belongs to a slot: a dense block by ps_deal(), a key of a sparse table by its hash
 * (key.h). So a view is small whatever the tables are, and a server that comes or goes moves whole slots. The next
 * server of the ring, by number, is the backup of all slots of a server. Pure functions over plain values: whoever
 * applies the same changes has the same view. Included by files of ps/ and their tests only.
 */
#ifndef TRI_PS_VIEW_H
#define TRI_PS_VIEW_H

#include "base/containers.h"
#include "net/post.h"
#include "ps/key.h"

#define PS_MAX_SERVERS 64
#define PS_MAX_NUMBER  65535

typedef struct ps_place {
    int number;           /* 0 to PS_MAX_NUMBER; one that comes back may have its old one */
    uint64_t incarnation; /* tells a server from the one that had its number before */
    char address[TRI_POST_ADDRESS_NBYTES];
} ps_place;

typedef struct ps_view {
    uint64_t version; /* 1, and one more with each change */
    int server_count;
    ps_place servers[PS_MAX_SERVERS]; /* in order of numbers: the ring */
    int slots[PS_SLOTS];              /* number of the server of each */
} ps_view;

/* The first view, of servers in any order: slots in turn, so that neighbours lie on different servers. TRI_EINVAL: too
 * few or many servers, or a number twice. */
tri_status ps_view_make(const ps_place *servers, int count, ps_view *out);
/* The first view of servers 0 to count - 1, whose addresses stand elsewhere. */
tri_status ps_view_first(int count, ps_view *out);
/* A server is gone: its slots go to its backup, which holds them already. Not evened out. TRI_EINVAL: it is not there,
 * or the last one. out may be view. */
tri_status ps_view_without(const ps_view *view, int number, ps_view *out);
/* A server has come, or come back: slots are evened out. TRI_EINVAL: its number is taken, or there are too many. out
 * may be view. */
tri_status ps_view_with(const ps_view *view, const ps_place *server, ps_view *out);
/* The same without slots: a backup at first. */
tri_status ps_view_join(const ps_view *view, const ps_place *server, ps_view *out);
/* Slots of `from` go to `to`, which holds them already, until they have equally many to within one. Another version. */
void ps_view_share(ps_view *view, int from, int to);
/* Moves the fewest slots that make the numbers of slots of any two servers equal to within one, spread over all slots.
 * Another version, if any had to move. */
void ps_view_even(ps_view *view);

/* NULL: it is not in the view. */
const ps_place *ps_view_find(const ps_view *view, int number);
/* Number of the server behind this one in the ring; -1: it is alone, or not in the view. */
int ps_view_backup(const ps_view *view, int number);
/* Slots of a server. */
int ps_view_slots(const ps_view *view, int number);
/* What a server is to a slot. */
typedef enum ps_role { PS_NOTHING, PS_PRIMARY, PS_BACKUP } ps_role;
ps_role ps_view_role(const ps_view *view, int number, int slot);

/* The slot of each block of a table, from the list of the blocks' bytes alone: the largest first, each to the slot with
 * the fewest bytes. Slots differ by at most one block, and equal blocks lie in slots 0, 1, 2, ... in turn.
 * TRI_ENOMEM. */
tri_status ps_deal(const uint64_t *nbytes, int count, uint8_t *slots);

tri_status ps_view_write(const ps_view *view, tri_string *out);
/* TRI_EFORMAT: bytes of no view; *out is untouched then. */
tri_status ps_view_read(const void *bytes, size_t nbytes, ps_view *out);

#endif
