/* SPDX-License-Identifier: Apache-2.0
 *
 * protocol.h: what a worker and a parameter server say to each other, as heads of messages (net/endpoint.h).
 *
 * The words of a head always mean the same: request (echoed by the answer), clock (steps taken), table and block, part
 * (leaves of the batch that a body is the sum of), extra. docs/formats/ps.md has the bodies.
 */
#ifndef TRI_PS_PROTOCOL_H
#define TRI_PS_PROTOCOL_H

#include <string.h>

#include "net/endpoint.h"
#include "tensor/tree.h"

#define PS_VERSION 10
/* The text of a table. */
#define PS_TEXT_LIMIT_NBYTES ((size_t)64 << 20)
/* A folder and what is saved there. */
#define PS_PATH_LIMIT_NBYTES ((size_t)8 << 10)
/* No step is further on, and no part that is dealt. */
#define PS_CLOCK_MAX  (INT64_C(1) << 60)
#define PS_CLOCK_LOST INT64_C(-2)
/* A byte for each worker. */
#define PS_CHOICE_LIMIT_NBYTES ((size_t)1 << 20)
/* A number for each. */
#define PS_STOPS_LIMIT_NBYTES ((size_t)8 << 20)
/* No block or list of rows is longer; what a client may make a server hold before it is believed. */
#define PS_BODY_LIMIT_NBYTES ((size_t)256 << 20)

typedef enum ps_kind {
    PS_HELLO = 1,  /* request: PS_VERSION; clock: number of the client; -> the same */
    PS_OPEN,       /* body: a table's text; PS_FLAG_STARTS: answer at once, else when it has values -> clock, or -1;
                    PS_CLOCK_LOST: it had some, and lost them; INT64_MAX: nothing here moves, extra has the step of the latest
                    tail */
    PS_INIT,       /* clock, block; body: values, then each state array */
    PS_READY,      /* all blocks of the table were given: -> clock; PS_FLAG_STARTS: of those that are this server's, the
                    others may not be yet */
    PS_PUSH,       /* clock, block, part; body: gradients, then those of ties; extra: weight (ssp, async) */
    PS_TAIL,       /* bsp: clock, part; body: the tail -> PS_TAIL with the sum over all leaves */
    PS_SQUARES,    /* bsp with clipping, from the server: squares of the sum of a block */
    PS_MOVE,       /* bsp with clipping: clock, extra: what gradients are multiplied with; with backup workers and a
                      body: a byte for each worker, 1: its parts count in this step */
    PS_CLOCK,      /* ssp, async: this worker has pushed all of step `clock` - 1; bsp with backup workers: the same, to
                      the server of the first block that moves -> PS_TAIL when it is known who counts; extra: the step
                      that comes next */
    PS_PULL,       /* clock, block, extra: its number -> PS_VALUES once they are of that step (bsp), or allowed (ssp) */
    PS_VALUES,     /* clock, block, extra: number of the pull (ssp, async); body: values */
    PS_PULL_STATE, /* block, extra: number of the optimizer's array -> PS_STATE */
    PS_STATE,
    PS_STATS, /* -> text for people; with PS_FLAG_TIME: -> clock: the server's, in ns; with PS_FLAG_EVENTS: extra:
                 since when, by that -> body: ps_operation_record (ps/rpc/operation_record.h); extra: 1: it did more
                 than it remembers */
    PS_NOTE,  /* clock: a tag, block: a subject (ps/rpc/annotation.h); body: a note of this worker, or nothing -> clock:
                 how many  workers have left one of that tag; with PS_FLAG_ALL body: all of them */
    PS_SAVE,  /* clock: a step, extra: version of the view; body: a plan (ps/replication/save.h). The server will write
                 its blocks as  they are after that step -> extra: status, body: why not, clock: the step they are at
                 where that is  further on */
    PS_BYE,   /* this worker needs nothing more -> the same */
    PS_REFUSED, /* from the server, before it hangs up: why */
    PS_MOVED,   /* from a server: the block is another one's, or may be soon; clock: version of the view it knows */
    PS_LOOK,    /* clock: version of a view that the server may not know yet */
    /* Between a server and its backup: */
    PS_COPY_TABLE, /* body: what is known of a table */
    PS_COPY,       /* block; body: all of it */
    PS_ACK,        /* request: messages that the backup has */
    PS_LEAVE,      /* the server ends in good order */
    PS_BEAT,       /* a heartbeat, acknowledged; extra: the server may be silent for this many ms, nothing is */
    /* Tables of rows; request: numbers that ascend. -> PS_KV_DONE, or PS_KV_FAILED: this request alone has failed. */
    PS_KV_JOIN,    /* -> body: the last request and barrier that were heard of this worker */
    PS_KV_OPEN,    /* body: a table's text -> table, clock */
    PS_KV_PULL,    /* clock, block: count of rows; body: slots, keys -> body: values, when they may be had */
    PS_KV_PUSH,    /* clock, block, part (bsp), extra: number of the push; body: slots, keys, values -> and values with
                      PS_FLAG_PULL */
    PS_KV_CLOCK,   /* ssp, async: this worker has pushed all of step `clock` - 1; body: slots */
    PS_KV_BARRIER, /* clock: how many of them; body: slots, PS_BARRIER_SLOT alone -> when all workers have come to it */
    PS_KV_STATS,   /* -> body: lines of text for people */
    PS_KV_SAVE,    /* body: number of tables (4), of each its name's hash (4) and step (8), a folder -> body: what the
                      manifest says of the file */
    PS_KV_LOAD,    /* body: a folder */
    PS_KV_COPY,    /* between servers: block: a slot; body: all of it */
    PS_KV_STOPS,   /* between servers: body: barriers that each worker has come to, INT64_MAX: it has left */
    PS_KV_DONE,
    PS_KV_FAILED, /* extra: status; body: why */
    PS_KIND_COUNT
} ps_kind;

/* Flags of messages. */
#define PS_FLAG_STARTS                                                                                                 \
    UINT16_C(1) /* PS_OPEN: this client gives the first values; PS_HELLO of a server: it has none yet */
#define PS_FLAG_PULL UINT16_C(2) /* PS_PUSH, PS_TAIL: and what comes of it is wanted */
#define PS_FLAG_ALL                                                                                                    \
    UINT16_C(4) /* PS_PULL (ssp, async): once all workers have finished step `clock` - 1; PS_NOTE: those of all */
#define PS_FLAG_ASSIGN UINT16_C(8) /* PS_KV_PUSH: rows become these values, at once, whatever the table's merge is */

#define PS_FLAG_SERVER UINT16_C(16) /* PS_HELLO: from the server `clock`, whose backup this is; extra: its view */

#define PS_FLAG_REFUSED UINT16_C(64) /* PS_MOVED: a message was not taken in, and is to be said again */

#define PS_FLAG_EXACT UINT16_C(128) /* PS_PULL, PS_VALUES: f32, whatever ps.values says */

#define PS_FLAG_DEAL                                                                                                   \
    UINT16_C(256) /* PS_CLOCK, ps.schedule dynamic: done with all parts before `clock` -> the next one */

#define PS_FLAG_COPY UINT16_C(32) /* PS_KV_OPEN to a backup: the slots of this table follow */

/* PS_KV_DONE: the server knows this list of keys by its hash now. PS_MOVED: it does not, and hears nothing more about
 * slots until PS_LOOK with the same flag. */
#define PS_FLAG_LISTED UINT16_C(512)

#define PS_FLAG_TIME   UINT16_C(1024) /* PS_STATS */
#define PS_FLAG_EVENTS UINT16_C(2048) /* PS_STATS */

/* Whoever has this slot counts who has come to a barrier. */
#define PS_BARRIER_SLOT 0

/* In messages to a backup the upper bits of `table` are the worker's number. */
#define PS_TABLE_BITS 8
#define PS_TABLE_MASK ((UINT32_C(1) << PS_TABLE_BITS) - 1)
/* PS_OPEN of a connection that was lost: `request` of messages whose answers nobody counts. */
#define PS_AGAIN UINT64_C(1)

/* A head with its words by name. */
typedef struct ps_head {
    ps_kind kind;
    uint16_t flags;
    uint64_t nbytes;
    uint64_t request;
    int64_t clock;
    uint32_t table, block;
    tri_tree_part part;
    double extra;
} ps_head;

/* About tables of rows: `table` is the hash of its name; in messages to a backup `request` is the worker's number. */
static inline bool ps_kind_is_kv(ps_kind kind)
{
    return kind >= PS_KV_JOIN;
}

static inline tri_message ps_head_write(const ps_head *head)
{
    tri_message message = {.kind = (uint16_t)head->kind, .flags = head->flags, .nbytes = head->nbytes};
    message.words[0] = head->request;
    message.words[1] = (uint64_t)head->clock;
    message.words[2] = head->table | (uint64_t)head->block << 32;
    message.words[3] = (uint32_t)head->part.first | (uint64_t)(uint32_t)head->part.count << 32;
    memcpy(&message.words[4], &head->extra, sizeof(head->extra));
    return message;
}

static inline ps_head ps_head_read(const tri_message *message)
{
    ps_head head = {.kind = (ps_kind)message->kind, .flags = message->flags, .nbytes = message->nbytes};
    head.request = message->words[0];
    head.clock = (int64_t)message->words[1];
    head.table = (uint32_t)message->words[2];
    head.block = (uint32_t)(message->words[2] >> 32);
    head.part = (tri_tree_part){(uint32_t)message->words[3], (uint32_t)(message->words[3] >> 32)};
    memcpy(&head.extra, &message->words[4], sizeof(head.extra));
    return head;
}

#endif
