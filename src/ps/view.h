/* SPDX-License-Identifier: Apache-2.0
 *
 * view.h: who serves what: the living servers in a ring, and which of them has each of 128 slots.
 *
 * Everything that servers hold belongs to a slot: a dense block by ps_deal(), a key of a sparse table by its hash
 * (key.h). So a view is small whatever the tables are, and a server that comes or goes moves whole slots. The next
 * server of the ring is the backup of all slots of a server; servers of one host are kept apart in the ring, so that a
 * host that fails takes no server and its backup at once. Pure functions over plain values: whoever applies the same
 * changes has the same view. Included by files of ps/ and their tests only.
 */
#ifndef TRI_PS_VIEW_H
#define TRI_PS_VIEW_H

#include "base/containers.h"
#include "ps/key.h"

#define PS_MAX_SERVERS 64

typedef struct ps_view {
    uint64_t version; /* 1, and one more with each change */
    int server_count;
    int servers[PS_MAX_SERVERS]; /* numbers of those that live, in the order of the ring */
    int places[PS_MAX_SERVERS];  /* of each number, living or not, in the ring: they never change */
    int slots[PS_SLOTS];         /* number of the server of each */
} ps_view;

/* The first view, of servers 0 to count - 1: slots in turn, so that neighbours are on different servers. TRI_EINVAL:
 * too few or many. */
tri_status ps_view_first(int count, ps_view *out);
/* Orders the ring of a first view by the host of each server, so that neighbours are on different hosts, as far as that
 * can be; on one host it stays in the order of numbers. hosts: [server_count], equal numbers are one host. */
void ps_view_spread(ps_view *view, const uint64_t *hosts);

/* What makes the next view of one. */
typedef enum ps_change_kind {
    PS_WITHOUT = 1, /* server `number` is gone: its slots go to its backup, which holds them already */
    PS_JOIN,        /* it has come, or come back: a backup at first, without slots */
    PS_SHARE        /* half of what it has more than its backup, which holds them already, goes there */
} ps_change_kind;

typedef struct ps_change {
    ps_change_kind kind;
    int number;
} ps_change;

/* TRI_EINVAL: it cannot be; *out is untouched then. out may be view. */
tri_status ps_view_change(const ps_view *view, const ps_change *change, ps_view *out);
/* A change as a small number above 0, and back (TRI_EFORMAT). */
int64_t ps_change_code(const ps_change *change);
tri_status ps_change_read(int64_t code, ps_change *out);

bool ps_view_has(const ps_view *view, int number);
/* Number of the server behind this one in the ring; -1: it is alone, or not in the view. */
int ps_view_backup(const ps_view *view, int number);
/* How many slots a server has. */
int ps_view_slots(const ps_view *view, int number);
/* What a server is to a slot. */
typedef enum ps_role { PS_NOTHING, PS_PRIMARY, PS_BACKUP } ps_role;
ps_role ps_view_role(const ps_view *view, int number, int slot);

/* The slot of each block of a table, from the list of the blocks' bytes alone: the largest first, each to the slot with
 * the fewest bytes. Slots differ by at most one block, and equal blocks are in slots 0, 1, 2, ... in turn.
 * TRI_ENOMEM. */
tri_status ps_deal(const uint64_t *nbytes, int count, uint8_t *slots);

tri_status ps_view_write(const ps_view *view, tri_string *out);
/* TRI_EFORMAT: bytes of no view; *out is untouched then. */
tri_status ps_view_read(const void *bytes, size_t nbytes, ps_view *out);

#endif
