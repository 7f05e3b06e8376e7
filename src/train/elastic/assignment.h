/* SPDX-License-Identifier: Apache-2.0
 *
 * assignment.h: which process holds which part of a state that no process has whole, and which state can be had from
 * those that are left. Pure functions of what each of them says (docs/design/recovery.md).
 *
 * A *role* is a place of a layout (stage, tensor rank, share): what a rank there keeps of weights and optimizer state.
 * A *set* is what one process has after one step of one generation: its own role, and the mirror of another rank's.
 */
#ifndef TRI_TRAIN_ASSIGNMENT_H
#define TRI_TRAIN_ASSIGNMENT_H

#include "parallel/mesh.h"

#define TRI_ROLES_MAX 65536
typedef struct tri_assignment_set {
    int64_t generation; /* whose layout; 0: there is none */
    int64_t step;       /* steps that are done */
    bool next;          /* all that the next step takes is here too: it can be done alone */
    int roles;          /* of the layout */
    int own, mirror;    /* -1: nothing that counts; no mirror */
} tri_assignment_set;

/* While a generation forms, a process has what it had and what it gets. */
typedef struct tri_assignment_note {
    tri_assignment_set sets[2];
} tri_assignment_note;

#define TRI_ROLE_NOTE_NBYTES 140
/* One word; "-" for nothing. */
void tri_assignment_note_print(const tri_assignment_note *note, char text[TRI_ROLE_NOTE_NBYTES]);
/* False: it is no such word. */
bool tri_assignment_note_read(const char *text, tri_assignment_note *out);

/* A state: of all that the processes have together, the one after the most steps that one of them has made, and of
 * several the newest generation's. */
typedef struct tri_assignment_state {
    int64_t generation, step; /* generation 0: there is none that they have whole */
    int64_t lost_step;        /* newest step of which there is something but not all; -1: none */
    int lost, roles;          /* then: roles that are missing, of `roles`; */
    int first_lost;           /* the first of them */
} tri_assignment_state;
tri_assignment_state tri_assignment_find(const tri_assignment_note *notes, int count);
/* Can a process give something of that state? After finishing a step, perhaps. NULL: no. */
const tri_assignment_set *tri_assignment_source(const tri_assignment_note *note, const tri_assignment_state *state);

/* The role of a rank, and how many there are; mesh->zero is over how many data ranks something is spread, 1 where they
 * are replicas. */
int tri_role_of(const tri_mesh *mesh, int rank);
int tri_role_count(const tri_mesh *mesh);
/* Whose mirror each rank keeps: of[r], in a mesh of as many ranks as `host`, `room` and `of` have numbers; another
 * host's where that can be. False, and no mirrors: each role is on two ranks already, and on two hosts if there are
 * two. */
bool tri_assignment_mirror(const tri_mesh *mesh, const int *host, int *room, int *of);

/* The largest layout like `wish` that `ranks` ranks can make; returns how many ranks that takes. Fewer tensor ranks and
 * stages than in `wish` where these are too many, never more. even: the data ranks are a power of two. */
int tri_assignment_layout(const tri_mesh *wish, int ranks, bool even, tri_mesh *out);
/* Of those that want to leave, who may: somebody who stays has all that they have. leaves[r] becomes false for the
 * others. */
void tri_assignment_leave(const tri_assignment_set *sets, int count, bool *leaves);

#endif
