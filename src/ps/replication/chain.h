/* SPDX-License-Identifier: Apache-2.0
 *
 * chain.h: a server and its backup: what changes its state goes there too, in order, and nobody hears of it before the
 * backup has it.
 *
 * Primary-backup replication of a state machine: the backup runs the same handlers on the same messages. It is given
 * what it lacks, block by block and slot by slot on the same connection, so each is whole at one point of the row of
 * messages. Included by the server's files only.
 */
#ifndef TRI_PS_CHAIN_H
#define TRI_PS_CHAIN_H

#include "net/endpoint.h"
#include "ps/key.h"
#include "ps/rpc/protocol.h"
#include "ps/view.h"

struct tri_ps_server;
struct ps_client_connection;
struct ps_table;

/* An answer that waits for the backup. */
typedef struct ps_kept {
    struct ps_kept *next;
    struct ps_client_connection *client; /* NULL: it is gone */
    uint64_t after;                      /* messages that the backup has then */
    unsigned priority;
    tri_message message;
    const void *body; /* one of ours: behind this struct */
    bool lasting;
} ps_kept;

/* How long nothing has come from a neighbour. */
typedef struct ps_quiet {
    uint64_t heard; /* bytes on its connection */
    int64_t silent_ns;
    int64_t excused_ns; /* it has said that it may be silent for so long; 0: it has not */
} ps_quiet;

typedef struct ps_chain {
    int backup;                 /* number of the backup that there should be, -1: none */
    tri_connection *connection; /* NULL: it is not reached (yet) */
    bool lost; /* the connection has ended, and it is not known yet whose end that was: nobody is answered */
    uint64_t sent, acknowledged;
    ps_kept *kept, **kept_end;
    ps_slots given;  /* slots of this server of which the backup has all */
    ps_slots giving; /* those that it is being given: */
    bool is_giving;
    int copy_table, copy_block; /* the next; copy_table past the last: all were */
    int copy_rows, copy_slot;   /* the same of tables of rows */
    int64_t shares_ns;          /* not before this slots are shared out */
    uint64_t reported;          /* version of the view for which the backup was reported complete */
    uint64_t beat;              /* messages that the backup has with the latest beat, */
    int64_t beat_ns;            /* which was sent then */
    int64_t leased_ns;          /* when the latest one was sent that it has acknowledged */
    ps_quiet quiet;             /* of the backup */
} ps_chain;

void tri_ps_chain_init(struct tri_ps_server *server);
void tri_ps_chain_fini(struct tri_ps_server *server);
/* The view has changed. */
void tri_ps_chain_tell(struct tri_ps_server *server);
/* A message of a worker that changes the state, before it is handled. */
void tri_ps_chain_forward(struct tri_ps_server *server, int worker, const tri_message *message, const void *body);
/* A message to the backup, which is there. */
void tri_ps_chain_say(struct tri_ps_server *server, const tri_message *message, const void *body);
/* True: the answer is kept until the backup has all messages so far, or there is another. */
bool tri_ps_chain_keep(struct tri_ps_server *server, struct ps_client_connection *client, unsigned priority,
                       const tri_message *message, const void *body, bool lasting);
/* Sends the answers that wait for no more than this number of messages. */
void tri_ps_chain_release(ps_chain *chain, uint64_t acknowledged);
void tri_ps_chain_forget(struct tri_ps_server *server, const struct ps_client_connection *client);
void tri_ps_chain_acknowledged(struct tri_ps_server *server, uint64_t messages);
bool tri_ps_chain_is_busy(const struct tri_ps_server *server);
/* The connection is gone: tri_ps_chain_suspect() follows. */
void tri_ps_chain_lost(struct tri_ps_server *server);
/* It has left in good order: what waits for it need not. */
void tri_ps_chain_alone(struct tri_ps_server *server);
/* This server was taken for dead: others have given its answers, or will. */
void tri_ps_chain_drop(struct tri_ps_server *server);

/* --- heartbeat.c --- */
/* 0: there are none. */
int64_t tri_ps_beat_ns(const struct tri_ps_server *server);
/* A heartbeat to the backup. */
void tri_ps_beat_send(struct tri_ps_server *server, int64_t now_ns);
/* So often it must be called, at least. */
int64_t tri_ps_beat_ms(const struct tri_ps_server *server, int64_t otherwise_ms);
/* Nobody can have done without this server yet. False: a beat is on its way to the backup. */
bool tri_ps_beat_is_leased(struct tri_ps_server *server);
void tri_ps_beat_acknowledged(ps_chain *chain);
/* This server is going to be busy for so long at most; a neighbour has said so. */
void tri_ps_beat_excuse(struct tri_ps_server *server, int64_t limit_ms);
void tri_ps_beat_excused(const struct tri_ps_server *server, ps_quiet *quiet, const tri_connection *connection,
                         double limit_ms);

#endif
