/* SPDX-License-Identifier: Apache-2.0
 *
 * kv.h: tables of rows on a server: who may say what about them (server/kv*.c), what a table is
 * (server/kv_table.c), how a slot takes a push in (server/kv_apply.c), and files of them (replication/save_rows.c).
 *
 * Everything that a message changes belongs to a slot, and a message names its slots: so the same messages make the
 * same state, on whatever server a slot is and whatever else that one has. For these files and server/server.c only.
 */
#ifndef TRI_PS_SERVER_KV_H
#define TRI_PS_SERVER_KV_H

#include "ps/rpc/kv_body.h"
#include "ps/server/server_impl.h"
#include "ps/tables/gather.h"
#include "ps/tables/kv_spec.h"
#include "ps/tables/sparse.h"

typedef struct kv_slot {
    bool held;             /* a backup: it has what its server has in it */
    int64_t clock;         /* bsp: steps taken; else those that all workers have finished, INT64_MAX: all have left */
    uint64_t *last;        /* [workers] number of the latest push of each that was taken in */
    int64_t *clocks;       /* ssp, async: [workers] steps that each has finished; INT64_MAX: it has left */
    ps_gather gather;      /* bsp: what was pushed in step `clock` */
    uint64_t *before_keys; /* bsp: [before_count] rows that the latest step has changed, ascending, */
    float *before_rows;    /* as they were: for a worker that has to begin that step again */
    int64_t before_count;
} kv_slot;

/* A message that cannot be taken in yet. */
typedef struct kv_wait {
    struct kv_wait *next;
    ps_client_connection *client;
    int worker;
    ps_head head;
    unsigned char *body;
} kv_wait;

typedef struct kv_table {
    struct ps_kv *kv; /* that has it */
    ps_kv_spec spec;
    uint64_t text_hash;
    tri_string text; /* what it was made of */
    uint32_t id;     /* hash of its name: what messages call it */
    int number;      /* among those of this server */
    ps_sparse *rows;
    ps_merge_fn merge; /* NULL: the optimizer steps */
    void *merge_arg;
    kv_slot *slots; /* [PS_SLOTS] */
    uint64_t *last; /* [PS_SLOTS * workers] of all slots */
    int64_t *clocks;
    kv_wait *waits, **waits_end; /* in the order in which they came */
    bool moved;                  /* somebody may have become due */
    int64_t evicted;
    uint64_t pulled, pushed, twice; /* rows; pushes that came again */
    uint64_t named, asked;          /* lists that came as their hash; whose keys were asked for */
    uint64_t ahead[64];             /* ssp, async: how often a worker pulled [i] steps ahead of the slowest */
    /* scratch of a push: */
    int64_t *order; /* [order_room] rows by slot */
    int64_t order_room;
    uint64_t *some_keys;
    float *some_values;
    int64_t some_room;
} kv_table;

typedef struct kv_merge {
    char name[PS_NAME_NBYTES];
    ps_merge_fn fn;
    void *arg;
} kv_merge;

/* A barrier that a worker waits at. */
typedef struct kv_stop {
    int64_t passed;               /* barriers that this worker has come to */
    ps_client_connection *client; /* who waits there, NULL: nobody */
    uint64_t request;
} kv_stop;

typedef struct kv_save kv_save;

typedef struct ps_kv {
    kv_table *tables[PS_TABLES_MAX];
    int table_count;
    tri_vector merges; /* of kv_merge */
    kv_stop *stops;    /* [workers] */
    bool *left;        /* [workers] */
    int workers;
    ps_slots unreported; /* their server has not reported yet what tables it has */
    ps_rows_room room;
    kv_save *save; /* a file being written, NULL: none */
} ps_kv;

/* --- server/kv.c --- */
tri_status tri_ps_kv_create(int workers, ps_kv **out);
void tri_ps_kv_destroy(ps_kv *kv);
/* The client is going: nothing is kept for it. */
void tri_ps_kv_forget(ps_kv *kv, const ps_client_connection *client);
/* What is here of a slot means nothing any more. */
void tri_ps_kv_slot_drop(tri_ps_server *server, int slot);
/* What tables a server has is known here, whose backup this is; and it has nothing in them. */
void tri_ps_kv_reported(tri_ps_server *server, int from);
void tri_ps_kv_begin(tri_ps_server *server, int from);
/* The server of these slots has nothing in this table. */
void tri_ps_kv_slots_begin(const tri_ps_server *server, kv_table *table, int from);
/* It has not been given what some table has in that slot, or may have. */
bool tri_ps_kv_slot_lacks(const tri_ps_server *server, int slot);

/* --- server/kv_messages.c --- */
/* A message about rows; statuses as those of all messages. */
tri_status tri_ps_kv_message(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body);

/* --- server/kv_rows.c --- */
tri_status tri_ps_kv_rows(tri_ps_server *server, ps_client_connection *client, kv_table *table, const ps_head *head,
                          void *body);
/* Of a forwarded message: those that this server has as a backup, and was given. False: all that it names. */
bool tri_ps_kv_own_slots(const tri_ps_server *server, const ps_client_connection *client, const kv_table *table,
                         ps_slots *slots);
/* A message that has the hash of its keys alone, which this server does not know: they have to be said. */
bool tri_ps_kv_is_unknown(const tri_ps_server *server, const ps_client_connection *client, const ps_head *head,
                          const void *body);
/* Some of the slots that the message names are another server's. */
bool tri_ps_kv_is_elsewhere(const tri_ps_server *server, const ps_head *head, const void *body);
/* Who waited and need not any more. */
tri_status tri_ps_kv_waits_run(tri_ps_server *server, kv_table *table);
/* The client is going. */
void tri_ps_kv_waits_forget(ps_kv *kv, const ps_client_connection *client);
/* The view has changed: clients that wait here for slots that have moved get an answer. */
void tri_ps_kv_view(tri_ps_server *server);

/* --- server/kv_clock.c --- */
tri_status tri_ps_kv_clock(tri_ps_server *server, ps_client_connection *client, kv_table *table, const ps_head *head,
                           void *body);
tri_status tri_ps_kv_barrier(ps_kv *kv, ps_client_connection *client, const ps_head *head, const void *body);
/* Barriers are another server's affair now: clients that wait here get an answer. */
void tri_ps_kv_stops_yield(tri_ps_server *server);
/* What is known of them, as a message to the backup; and what the server knows whose backup this is. */
void tri_ps_kv_stops_send(tri_ps_server *server);
tri_status tri_ps_kv_stops_take(ps_kv *kv, const void *body, size_t nbytes);
/* A worker has left: nobody waits for it. */
tri_status tri_ps_kv_left(tri_ps_server *server, int worker);

/* --- server/kv_table.c --- */
/* The table that a message is about, NULL: there is none. */
kv_table *tri_ps_kv_table_of(const ps_kv *kv, const ps_head *head);
/* A message was answered with a failure that is the call's alone; or it is done. */
tri_status tri_ps_kv_failed(ps_client_connection *client, const ps_head *head, tri_status status);
void tri_ps_kv_done(ps_client_connection *client, uint64_t request, uint32_t table, int64_t clock);
tri_status tri_ps_kv_table_make(ps_kv *kv, const char *text, size_t nbytes, kv_table **out);
void tri_ps_kv_table_destroy(kv_table *table);
/* The slot has finished another step: rows that are due go. */
tri_status tri_ps_kv_evict(kv_table *table, int slot);
/* ssp, async: the steps that all workers have finished, after clocks of the slot have changed. */
tri_status tri_ps_kv_clock_find(kv_table *table, int slot);

/* --- server/kv_apply.c --- */
/* Takes in a push that is due. */
tri_status tri_ps_kv_push(kv_table *table, int worker, const ps_head *head, const ps_rows_body *body);
/* values[count * dim]: as they are, or were when the slots had finished `clock` steps. TRI_ENOMEM. */
tri_status tri_ps_kv_pull(const kv_table *table, int64_t clock, const ps_rows_body *body, float *values);

/* --- replication/slot_bytes.c --- */
/* A slot's rows and clock; `whole`: and all else that it is made of. */
tri_status tri_ps_kv_slot_write(const kv_table *table, int slot, bool whole, tri_string *out);
/* In place of what is there. TRI_EFORMAT: bytes of no such slot; then what is in it means nothing. */
tri_status tri_ps_kv_slot_read(kv_table *table, int slot, const void *bytes, size_t nbytes);

/* --- replication/save_rows.c --- */
tri_status tri_ps_kv_save(tri_ps_server *server, ps_client_connection *client, const ps_head *head, const void *body);
tri_status tri_ps_kv_load(tri_ps_server *server, ps_client_connection *client, const ps_head *head, const void *body);
/* The rows of a slot are going to change. */
tri_status tri_ps_kv_save_before(const kv_table *table, int slot);
/* There is something to be written now, between two messages; and a part of it is. */
bool tri_ps_kv_is_busy(const ps_kv *kv);
tri_status tri_ps_kv_go_on(tri_ps_server *server);
/* The client is going; NULL: all are. */
void tri_ps_kv_save_forget(ps_kv *kv, const ps_client_connection *client);

#endif
