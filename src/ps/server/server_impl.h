/* SPDX-License-Identifier: Apache-2.0
 *
 * server_impl.h: what a parameter server is made of: clients (server/server.c), blocks of tables (server/dense.c), and
 * who waits for whom (server/bsp.c, server/ssp.c).
 *
 * For these files only.
 */
#ifndef TRI_PS_SERVER_IMPL_H
#define TRI_PS_SERVER_IMPL_H

#include <stdatomic.h>

#include "ps/replication/chain.h"
#include "ps/rpc/protocol.h"
#include "ps/server/server.h"
#include "ps/tables/spec.h"
#include "ps/tables/sum.h"

#define PS_TABLES_MAX    64
#define PS_TRACED_BLOCKS 4096   /* of a client; more would be a way to take memory */
typedef struct ps_save ps_save; /* replication/save_blocks.c */

/* Somebody who has a connection. */
typedef struct ps_client_connection {
    struct tri_ps_server *of;
    tri_connection *connection;
    int number; /* of the worker, -1: has not said */
    int server; /* that forwards to this one, its backup; -1: none. `number` is the message's worker then */
    int tables[PS_TABLES_MAX], table_count; /* of that server: numbers here */
    uint64_t heard;                         /* messages of that server */
    ps_quiet quiet;                         /* of it */
    ps_sum *sum;                            /* bsp: that the body under way belongs to, NULL: none */
    float *room;                            /* where it lies there */
    tri_tree_part part;
    int opens;         /* number of the table that it waits for to be ready, -1: none */
    uint64_t request;  /* of that */
    size_t owed;       /* bytes that lie here for it: answers to be sent, messages that wait */
    size_t unsent;     /* of these: answers */
    bool is_paused;    /* too many bytes lie here for it */
    bool is_stalled;   /* it got the answer that slots are elsewhere, and has not started again since */
    bool awaits_keys;  /* what is not said as LISTED; see rpc/protocol.h */
    tri_vector asked;  /* int64_t, by block: when it asked for the values that it waits for, 0: it does not */
    int64_t closes_ns; /* refused: its connection closes then, after it got the reason; 0: it is not */
    struct ps_client_connection *next;
} ps_client_connection;

typedef struct ps_block {
    bool held, filled, moves; /* held: there is memory for it */
    int64_t clock;            /* steps that its values have taken */
    float *values;            /* [count] */
    float *previous;          /* bsp: those a step before, for a worker that has to begin that step again */
    tri_optim *optim;         /* of these elements alone */
    ps_sum sum;               /* bsp: gradients of step `clock` */
    uint8_t *waits;           /* bsp: [workers] who wants the values of the next clock: 1, and PS_FLAG_EXACT */
    void *encoded;            /* bsp: values as they travel where they are coded, NULL: they lie in values */
    int64_t encoded_clock;    /* of these */
    int64_t *pushed;          /* ssp, async: [workers] steps of each that have come */
    float **seen;             /* with delay compensation: [workers] values that each pulled last, or NULL */
} ps_block;

typedef struct ps_table {
    ps_spec spec;
    uint64_t text_hash;
    ps_consistency consistency;
    tri_string text;  /* of which it was made */
    uint8_t *slots;   /* [spec.cut_count] of the view */
    ps_block *blocks; /* [spec.cut_count] */
    int held, filled;
    bool ready;
    bool restored; /* its values are of a checkpoint: workers may be further on by any number of steps */
    int number;
    /* bsp: the tail of the batch, of one step at a time */
    int64_t tail_clock;
    ps_sum tail;
    float tail_sum[TRI_PARAMS_TAIL], tail_before[TRI_PARAMS_TAIL]; /* of the step before */
    bool tail_whole, scaled;
    uint8_t *tail_waits; /* [workers] */
    float scale;         /* what gradients of that step are multiplied with, once `scaled` */
    double *squares;     /* of the norm's blocks, with clipping */
    float *scratch;      /* of a block with ties, where values are coded */
    /* ssp, async */
    int64_t *clocks; /* [workers] steps that each has finished; INT64_MAX: it has left (with bsp nobody has) */
    int64_t
        *went_on; /* [workers] the step that each has begun, as counted in `ahead`; bsp: see server/backup_workers.c */
    uint64_t *left_out; /* [workers] bsp with backup workers: steps without each one's part */
    int64_t *dealt;     /* [workers] with ps.schedule dynamic: number of the part that each has under way, -1: none */
    int64_t next_deal;  /* of the next part */
    uint64_t ahead[64]; /* how often a worker continued [i] steps ahead of the slowest (63: or more) */
    uint8_t **pulls;    /* [workers] blocks that each waits for, NULL: none */
} ps_table;

/* Memory of an answer that was sent, for the next one. */
#define PS_SPARES 4
typedef struct ps_spare {
    void *memory;
    size_t nbytes;
} ps_spare;

struct tri_ps_server {
    tri_endpoint *endpoint;
    tri_ps_server_setup setup;
    ps_view view;
    ps_chain chain;
    int64_t look_ns;      /* when it looks for a view by itself next */
    int64_t beat_look_ns; /* when it looked last who is silent */
    bool yielded;         /* what workers wait for is not answered here any more: they are to ask again */
    uint64_t suspects;    /* bits of neighbours whose connection has ended */
    uint64_t ended;       /* bits of servers that ended in good order */
    ps_client_connection *clients;
    int refused;                    /* of these, who lose their connection soon */
    ps_client_connection **workers; /* [setup.workers] by number, NULL: not here */
    bool *left;                     /* [setup.workers] said goodbye */
    bool *joined;                   /* [setup.workers] has opened a table of this era */
    int left_count;
    struct ps_note *notes; /* [PS_SUBJECT_COUNT][setup.workers]; NULL: nobody has left one */
    ps_table *tables[PS_TABLES_MAX];
    int table_count;
    struct ps_kv *kv; /* tables of rows (server/kv.h) */
    ps_save *save;    /* of the latest checkpoint, NULL: there was none */
    ps_spare spares[PS_SPARES];
    int64_t era;               /* tables of earlier ones are of a run that has gone back to a checkpoint since */
    bool restored;             /* its values are of a checkpoint, and older than the run, */
    bool goes_back;            /* which goes back there as a whole */
    uint64_t shared[PS_SLOTS]; /* version of the view that gave the slot to whom this server backs up; 0: none did */
    bool rows_came;            /* workers have changed rows here */
    bool signal_reported;      /* the log says that it continues until workers have left */
    atomic_bool stop;
    tri_status status; /* what ended it */
    char message[TRI_ERROR_NBYTES];
};

/* --- server/server.c --- */
/* lasting: the body stays as it is until the client says more; else it is copied. Waits for the backup. */
void tri_ps_answer(ps_client_connection *client, const ps_head *head, const void *body, bool lasting);
/* Memory for the body of an answer; NULL: there is none. */
void *tri_ps_answer_room(tri_ps_server *server, size_t nbytes);
/* The same with such a body, which is given back when it is sent or not. TRI_ENOMEM: it was not. */
tri_status tri_ps_answer_take(ps_client_connection *client, const ps_head *head, void *body);
/* Bytes that lie here for a client, and that do not any more: who has too many is not read from meanwhile. */
void tri_ps_connection_bytes_add(ps_client_connection *client, size_t nbytes);
void tri_ps_connection_bytes_sub(ps_client_connection *client, size_t nbytes);
/* The client gets the reason and loses its connection. */
void tri_ps_refuse(tri_ps_server *server, ps_client_connection *client, tri_status status);
void tri_ps_answer_send(ps_client_connection *client, unsigned priority, const tri_message *message, const void *body,
                        bool lasting);
void tri_ps_answer_plain(ps_client_connection *client, ps_kind kind, uint64_t request, uint32_t table, int64_t clock);
void tri_ps_connection_remove(tri_ps_server *server, ps_client_connection *client);
void tri_ps_connection_close(tri_ps_server *server, ps_client_connection *client);
/* Who is pushing into a block loses its connection, and begins again. */
void tri_ps_rooms_leave(tri_ps_server *server, const ps_block *block);
/* The server ends with this, after the message under way. */
void tri_ps_end_with(tri_ps_server *server, tri_status status);
/* Whether a failure is no single client's (no memory, no number): then the server ends with it. */
bool tri_ps_concerns_all(tri_ps_server *server, tri_status status);

/* --- server/trace.c --- */
/* A message has come; a push is taken in; values go to a worker, or wait for the backup. */
void tri_ps_trace_asked(ps_client_connection *client, const ps_head *head, int64_t now_ns);
void tri_ps_trace_pushed(const tri_ps_server *server, int worker, const ps_head *head, int64_t start_ns);
void tri_ps_trace_answered(ps_client_connection *client, const ps_head *head);
/* PS_STATS with PS_FLAG_TIME or PS_FLAG_EVENTS. */
tri_status tri_ps_trace_tell(tri_ps_server *server, ps_client_connection *client, const ps_head *head);

/* --- server/annotations.c --- */
/* PS_NOTE */
tri_status tri_ps_note_take(tri_ps_server *server, ps_client_connection *client, const ps_head *head, const void *body);
void tri_ps_notes_free(tri_ps_server *server);

/* --- server/messages.c --- */
/* The client is the server that has the slot, and this one is its backup. */
bool tri_ps_backs(const tri_ps_server *server, const ps_client_connection *client, int slot);
/* PS_CHANGES: goes to the backup too. PS_OF_BLOCK: wants the server that has the block. PS_OF_SERVER: not for workers.
 * PS_OF_SLOTS: wants the server that has the slots in its body. PS_IS_PUSH, PS_IS_PULL: counted as such. */
enum { PS_CHANGES = 1, PS_OF_BLOCK = 2, PS_OF_SERVER = 4, PS_OF_SLOTS = 8, PS_IS_PUSH = 16, PS_IS_PULL = 32 };
bool tri_ps_message_is(ps_kind kind, unsigned what);
/* Before its body is read. */
tri_status tri_ps_message_check(const ps_client_connection *client, const ps_head *head);
tri_status tri_ps_message_handle(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body);

/* --- replication/view_changes.c --- */
/* A neighbour's connection has ended. */
tri_status tri_ps_neighbour_look(tri_ps_server *server);
/* A server that nobody talks to finds out by itself when it was taken for dead. */
tri_status tri_ps_idle_look(tri_ps_server *server);
/* Neighbours need not wonder. */
void tri_ps_leave_tell(tri_ps_server *server);
/* Dials another server; its address is in the store. */
tri_status tri_ps_reach(tri_ps_server *server, int number, int64_t limit_ms, tri_connection **connection);
/* Takes all views that are there and newer than its own. */
tri_status tri_ps_view_look(tri_ps_server *server);
/* Something that the server of a slot has is not here. */
bool tri_ps_slot_lacks(const tri_ps_server *server, int slot);
/* What is here of a slot means nothing any more. */
void tri_ps_slot_leave(tri_ps_server *server, int slot);
/* Changes the view, or takes what somebody else was first with. */
tri_status tri_ps_view_make(tri_ps_server *server, const ps_change *change);

/* --- server/dense.c: statuses are TRI_EFORMAT for what a sound client does not say --- */
/* The table of this text: one that is here, or a new one. */
tri_status tri_ps_table_make(tri_ps_server *server, const ps_client_connection *client, const char *text, size_t nbytes,
                             ps_table **out);
void tri_ps_table_destroy(ps_table *table);
bool tri_ps_is_primary(const tri_ps_server *server, const ps_table *table, int block);
/* Memory for a block of another server; and without it. */
tri_status tri_ps_block_hold(const tri_ps_server *server, ps_table *table, int block);
void tri_ps_block_drop(ps_table *table, int block);
void tri_ps_block_filled(ps_table *table, ps_block *block, bool filled);
/* The table and the block that a head names; block NULL: none is asked for. */
tri_status tri_ps_block_find(tri_ps_server *server, const ps_head *head, ps_table **table, ps_block **block);
/* First values; those of a table that is ready stay. */
tri_status tri_ps_block_fill(ps_table *table, ps_block *block, const ps_head *head, const float *body);
/* Whether all blocks that are this server's to give have values; what a worker says of one that has none is refused:
 * gradients for it would be lost, and zeros taken for weights. */
tri_status tri_ps_table_given(const tri_ps_server *server, const ps_table *table);
tri_status tri_ps_block_serves(const ps_client_connection *client, const ps_table *table, const ps_block *block);
/* All servers have been given theirs: workers that wait for it may begin. */
void tri_ps_table_ready(const tri_ps_server *server, ps_table *table, const ps_head *head);
/* The step that a worker begins with; with bsp the earliest that some block here has yet to take. */
int64_t tri_ps_table_clock(const tri_ps_server *server, const ps_table *table, int worker);
/* how: PS_FLAG_EXACT. previous: those of the step before. */
void tri_ps_values_answer(ps_client_connection *client, const ps_table *table, ps_block *block, uint16_t how,
                          bool previous);
/* What came of a push, as elements; those of ties behind the block's own. */
void tri_ps_gradients_decode(const ps_table *table, const ps_block *block, const void *body, float *sums);
/* Adds gradients of ties, which follow the block's own, to those. */
void tri_ps_block_fold(const ps_table *table, const ps_block *block, float *sums);
void tri_ps_block_move(const ps_table *table, ps_block *block, const float *sums, const tri_optim_figures *figures);
/* The least number of pushes of a step: they are counted in steps, or in parts that are dealt. */
int64_t tri_ps_push_number(const ps_table *table, int64_t clock);
double tri_ps_rate(const ps_table *table, int64_t step);

/* --- replication/restore.c --- */
/* To be called after each turn: who has left while this server was not there. TRI_EPEER: who is left would wait for
 * one that had ended before all went back. */
tri_status tri_ps_restored_look(tri_ps_server *server);
/* The leader has given the values of a checkpoint: what is in them does not count again. next_deal: of the next part,
 * as far as workers have reported. */
void tri_ps_table_restored(const tri_ps_server *server, ps_table *table, const ps_head *head, int64_t next_deal);
/* TRI_EABORT: the run has gone back to a checkpoint since the table was made. */
/* Of a worker that is in an era before. */
tri_status tri_ps_era_fail(void);
tri_status tri_ps_era_check(tri_ps_server *server, const ps_spec *spec);
/* A client tells of a new one: what is here of the one before goes, and all other clients. */
void tri_ps_era_begin(tri_ps_server *server, const ps_client_connection *but, int64_t era);

/* --- replication/save_blocks.c --- */
/* Somebody asks for this server's part of a checkpoint. */
tri_status tri_ps_save_ask(tri_ps_server *server, ps_client_connection *client, const ps_head *head, const void *body);
/* The block is going to move. */
void tri_ps_save_before(tri_ps_server *server, const ps_table *table, const ps_block *block);
/* To be called after each turn: copies what is due, and has it written. */
void tri_ps_save_go_on(tri_ps_server *server);
bool tri_ps_save_is_busy(const tri_ps_server *server);
/* One that is not copied yet will not be. */
void tri_ps_save_fail(tri_ps_server *server, const char *why);
/* The same, and one that is being written is waited for: its table goes. */
void tri_ps_save_end(tri_ps_server *server);
void tri_ps_save_destroy(ps_save *save);

/* --- replication/state_copy.c --- */
tri_status tri_ps_table_write(const ps_table *table, tri_string *out);
tri_status tri_ps_table_read(ps_table *table, const void *bytes, size_t nbytes);
tri_status tri_ps_block_write(const ps_table *table, const ps_block *block, tri_string *out);
tri_status tri_ps_block_read(ps_table *table, ps_block *block, const void *bytes, size_t nbytes);

/* --- server/bsp.c --- */
/* Where the body of a push shall lie: client->room of client->sum; sum NULL: it has come before. */
tri_status tri_ps_bsp_place(ps_client_connection *client, const ps_table *table, ps_block *block, const ps_head *head);
tri_status tri_ps_bsp_push(tri_ps_server *server, ps_client_connection *client, ps_table *table, ps_block *block,
                           const ps_head *head);
tri_status tri_ps_bsp_tail(tri_ps_server *server, ps_client_connection *client, ps_table *table, const ps_head *head,
                           const float *body);
tri_status tri_ps_bsp_move(tri_ps_server *server, ps_table *table, const ps_head *head);
/* More is known of the tail, which was that of step `before`. */
void tri_ps_bsp_tail_copied(tri_ps_server *server, ps_table *table, int64_t before);
/* Moves a block for which all is there: one that was copied may wait for nothing more. */
void tri_ps_bsp_copied(tri_ps_server *server, ps_table *table, ps_block *block);
tri_status tri_ps_bsp_pull(ps_client_connection *client, const ps_table *table, ps_block *block, const ps_head *head);

/* Sums of a step that has been chosen for have become whole, or may have. */
void tri_ps_bsp_chosen(tri_ps_server *server, ps_table *table);

/* --- server/backup_workers.c --- */
/* Are there backup workers? */
bool tri_ps_chooses(const ps_table *table);
/* Others were chosen in the step under way. */
bool tri_ps_is_left_out(const ps_table *table, int worker);
/* All parts of the chosen are here, for the first time: the sum is whole then. */
bool tri_ps_chosen_are_here(const ps_table *table, ps_sum *sum);
void tri_ps_chosen_answer(ps_client_connection *client, const ps_table *table);
/* A worker has pushed all of step `clock` - 1. */
tri_status tri_ps_bsp_clock(tri_ps_server *server, ps_client_connection *client, ps_table *table, const ps_head *head);
/* A worker says who was chosen. */
tri_status tri_ps_bsp_choice(tri_ps_server *server, ps_table *table, const ps_head *head, const uint8_t *chosen);
tri_status tri_ps_choices_print(const ps_table *table, tri_string *out);

/* --- server/ssp.c --- */
tri_status tri_ps_ssp_push(const ps_client_connection *client, const ps_table *table, ps_block *block,
                           const ps_head *head, float *body);
tri_status tri_ps_ssp_clock(const tri_ps_server *server, ps_client_connection *client, ps_table *table,
                            const ps_head *head);
tri_status tri_ps_ssp_pull(ps_client_connection *client, ps_table *table, ps_block *block, const ps_head *head);
/* A worker has left: nobody waits for it. */
tri_status tri_ps_ssp_left(const tri_ps_server *server, ps_table *table, int worker);
tri_status tri_ps_stats(const tri_ps_server *server, tri_string *out);

#endif
