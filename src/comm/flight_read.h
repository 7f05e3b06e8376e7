/* SPDX-License-Identifier: Apache-2.0
 *
 * flight_read.h: flight records read back, and the records of several ranks side by side: where they first differ.
 *
 * Records are outside bytes: each is checked before it is believed, and a damaged one is one clear line.
 */
#ifndef TRI_COMM_FLIGHT_READ_H
#define TRI_COMM_FLIGHT_READ_H

#include "comm/board.h"
#include "comm/comm.h"

typedef struct tri_flight_record {
    char job[9], host[65];
    int rank, world, origin;
    int64_t written_ns; /* wall clock */
    tri_status status;
    char cause[TRI_ERROR_NBYTES];
    int64_t calls; /* that the rank began in all */
    size_t kept;
    tri_board_call *list; /* [kept] by group and sequence; times of the wall clock */
} tri_flight_record;

/* `origin` names the text in messages. TRI_EFORMAT says which line is wrong. tri_flight_fini() what was read. */
tri_status tri_flight_parse(const char *text, size_t nbytes, const char *origin, tri_flight_record *out);
tri_status tri_flight_load(const char *path, tri_flight_record *out);
void tri_flight_fini(tri_flight_record *record);
/* The collective of a group with this number, NULL: it is not in the record. */
const tri_board_call *tri_flight_find(const tri_flight_record *record, uint32_t group, uint64_t sequence);
/* The call that began last, NULL: none. */
const tri_board_call *tri_flight_latest(const tri_flight_record *record);

typedef enum tri_divergence {
    TRI_DIVERGENCE_NONE,
    TRI_DIVERGENCE_DIFFERENT,   /* ranks called different things */
    TRI_DIVERGENCE_NEVER_BEGAN, /* a member that left a record did not come */
    TRI_DIVERGENCE_NEVER_ENDED, /* all came, and not all got through */
    TRI_DIVERGENCE_COUNT
} tri_divergence;
const char *tri_divergence_name(tri_divergence kind);

/* Where ranks first part. */
typedef struct tri_flight_merge {
    tri_divergence kind;
    uint32_t group;
    uint64_t sequence;
    int64_t first_ns; /* when the first rank began it */
    int late;         /* index of the record of the rank that is to blame or came last, -1: none */
} tri_flight_merge;

/* Records of one job: TRI_EFORMAT when they are of several, or two are of one rank. */
tri_status tri_flight_merge_find(const tri_flight_record *records, size_t count, tri_flight_merge *out);
/* Is this rank in the group of the call? Groups beyond the first 64 ranks are taken to have those that called. */
bool tri_flight_is_member(const tri_flight_record *records, size_t count, uint32_t group, int rank);

#endif
