/* SPDX-License-Identifier: Apache-2.0
 *
 * server_impl.h: what a parameter server is made of: client connections, dense tables and their blocks. Calls are in
 * connection.h, dense.h, kv.h, replication/chain.h and replication/replication.h.
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
    float *room;                            /* where it is there */
    tri_tree_part part;
    int opens;         /* number of the table that it waits for to be ready, -1: none */
    uint64_t request;  /* of that */
    size_t owed;       /* bytes that are here for it: answers to be sent, messages that wait */
    size_t unsent;     /* of these: answers */
    bool is_paused;    /* too many bytes are here for it */
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
    uint8_t *waits;           /* bsp: [workers] who needs the values of the next clock: 1, and PS_FLAG_EXACT */
    void *encoded;            /* bsp: values as they travel where they are coded, NULL: they are in values */
    int64_t encoded_clock;    /* of these */
    int64_t *pushed;          /* ssp, async: [workers] steps of each that have come */
    float **seen;             /* with delay compensation: [workers] values that each pulled last, or NULL */
} ps_block;

/* A pull that waits (ssp, async). */
typedef struct ps_pull {
    uint8_t how; /* flags of it; 0: none waits */
    double number;
} ps_pull;

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
    ps_pull **pulls;    /* [workers] blocks that each waits for, NULL: none */
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
    /* A connection is going: whoever refers to it drops that (server.c). */
    void (*forget)(struct tri_ps_server *server, const ps_client_connection *client);
    tri_status status; /* what ended it */
    char message[TRI_ERROR_NBYTES];
};

#endif
