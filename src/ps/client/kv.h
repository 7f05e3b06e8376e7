/* SPDX-License-Identifier: Apache-2.0
 *
 * kv.h: a client's tables of rows: calls under way (client/kv.c), batches cut into them (client/kv_split.c), and
 * what <trireme/ps.h> makes of both (src/ps/api).
 *
 * A call is one message to one server that has not been answered. Calls of a connection are kept in order of their
 * numbers, so that a connection that was lost, or the server that took over, gets them again in that order.
 */
#ifndef TRI_PS_CLIENT_KV_H
#define TRI_PS_CLIENT_KV_H

#include <trireme/ps.h>

#include "cluster/cluster.h"
#include "ps/client/client_impl.h"
#include "ps/rpc/kv_body.h"
#include "ps/tables/gather.h"
#include "ps/tables/kv_spec.h"

/* Of a row of the caller's that has the key of the one before: the answer has it once. */
#define KV_SAME_KEY (UINT32_C(1) << 31)

typedef struct ps_call {
    struct ps_call *next;
    int server;
    ps_head head;
    unsigned char *body;
    tri_part lent[2];                        /* behind the body: keys and rows where the caller has them; or none */
    XXH128_hash_t hash;                      /* of its keys, */
    size_t keys_nbytes;                      /* bytes that these take behind the slots; 0: they are always sent */
    unsigned char name[PS_ROWS_NAME_NBYTES]; /* what is sent in place of slots and keys where the hash is known */
    size_t weight;                           /* bytes under way: the message's and the answer's */
    tri_kv_work *work;                       /* NULL: nobody waits */
    bool pulls;                              /* the answer's rows go to the work's: */
    uint32_t *at; /* [count] where each one goes, NULL: one behind the other from `first` on */
    int64_t first, count;
    uint64_t order;         /* calls of a connection are sorted by this: what it was numbered at first */
    bool of_slots;          /* it goes to whoever has these: */
    ps_slots slots;         /* all of one server */
    const ps_kv_spec *spec; /* with rows: of their table */
    bool said;              /* on the present connection */
    /* the client's thread alone: */
    int posted;          /* how often the endpoint has its body */
    bool answered;       /* to be freed when it has not */
    bool filling;        /* its answer is coming straight into the caller's rows */
    tri_kv_work *lender; /* whose rows the client's thread reads or writes for it just now, or NULL */
} ps_call;

struct tri_kv_work {
    tri_ps_client *client;
    const tri_kv_table *table; /* of rows, or NULL */
    float *rows;               /* where they arrive */
    int missing;               /* answers */
    int borrowed;              /* how often the client's thread has the caller's rows just now */
    tri_status status;
    char *message;
    /* what answers said: */
    int64_t clock;        /* the least */
    uint64_t last, stops; /* the greatest */
    tri_string text;      /* of all, in the order in which they came */
    /* what is to be done when all have come; NULL: nothing */
    tri_status (*then)(tri_kv_work *work);
    char *folder;
    char *to_text;
    size_t to_capacity;
};

static inline size_t ps_call_lent_nbytes(const ps_call *call)
{
    return call->lent[0].nbytes + call->lent[1].nbytes;
}

/* Which of the work's rows the answer's row of a key is, and whether it is the one before once more. */
static inline uint32_t ps_call_at(const ps_call *call, int64_t i)
{
    return call->at ? call->at[i] : (uint32_t)(call->first + i);
}

/* A list of keys that a server knows by its hash. */
typedef struct kv_known {
    XXH128_hash_t hash;
    uint32_t table; /* 0: none */
} kv_known;

#define KV_KNOWN 512 /* lists of a server: fewer than it keeps */

typedef struct ps_kv_link {
    ps_call *calls;           /* by order */
    size_t under_way;         /* bytes */
    bool is_near;             /* its connection stays on this machine: bytes cost less than packing them */
    bool is_stalled;          /* slots are elsewhere: nothing is said until the view was looked at */
    kv_known known[KV_KNOWN]; /* a ring */
    int next_known;
    int64_t unheeded; /* lists that are not taken into it, since the server had forgotten some; */
    int refusals;     /* so often */
} ps_kv_link;

/* A table that is open: servers that join, or return, are sent its text. */
typedef struct ps_kv_open {
    struct ps_kv_open *next;
    tri_string text;
} ps_kv_open;

/* Under the client's mutex. */
typedef struct ps_kv_connections {
    ps_kv_link links[PS_MAX_SERVERS];
    ps_slots slots[PS_MAX_SERVERS]; /* of each server */
    uint64_t last;                  /* number of the latest call */
    size_t window;                  /* bytes under way on each connection */
    ps_kv_open *opens;
} ps_kv_connections;

/* A worker's own shards of a step, added up: a whole subtree. */
typedef struct kv_part {
    tri_tree_part part;
    ps_gather gather;
    bool is_out; /* it was pushed */
} kv_part;

struct tri_kv_table {
    tri_kv *kv;
    ps_kv_spec spec;
    uint32_t id;   /* what messages call it */
    bool is_known; /* the client says it to servers that come */
    int64_t step;
    int64_t total;  /* values of an array, whose last row is short; 0: rows */
    kv_part *parts; /* bsp: [part_count] */
    int part_count;
    struct tri_kv_table *next;
};

struct tri_kv_array {
    tri_kv_table *table;
    uint64_t *keys; /* [count] of its rows */
    int64_t count;
    struct tri_kv_array *next;
};

/* Memory of a batch, kept from one to the next. */
typedef struct kv_scratch {
    ps_pair *pairs; /* [2 * room] */
    uint64_t *keys; /* [room] */
    int64_t room;
    float *values;
    size_t values_room;
} kv_scratch;

struct tri_kv {
    tri_ps_client *client;
    tri_net_config net;
    tri_ps_config ps;
    char *token;
    tri_cluster *cluster; /* of tri_kv_join(), or NULL */
    tri_kv_server *own;   /* alone */
    tri_kv_table *tables;
    tri_kv_array *arrays;
    int64_t stops; /* barriers that were passed */
    kv_scratch scratch;
};

/* --- client/kv.c --- */
/* Once, before all else. */
tri_status tri_ps_kv_open(tri_ps_client *client, uint64_t *stops);
/* After the endpoint is closed. */
void tri_ps_kv_close(tri_ps_client *client);
/* The client's thread, with the mutex: */
void tri_ps_kv_send(tri_ps_client *client);
void tri_ps_kv_moved(tri_ps_client *client, int server, uint64_t request);
/* The view was looked at: calls go to whoever has their slots now. */
void tri_ps_kv_reown(tri_ps_client *client);
/* and without it: on a connection that was dialed, */
void tri_ps_kv_greet(tri_ps_client *client, int server);
tri_kv_work *tri_ps_kv_work(tri_ps_client *client);
/* Numbers a call and puts it behind those of its server, when there is room for it. Takes it, whatever is returned. */
tri_status tri_ps_kv_call(tri_ps_client *client, ps_call *call);
void tri_ps_kv_call_free(ps_call *call);
/* Its whole body, head.nbytes of them, with what was lent to it; NULL: no memory. */
unsigned char *tri_ps_kv_call_join(const ps_call *call);
/* The client's thread has no use for the caller's rows any more. */
void tri_ps_kv_give_back(tri_ps_client *client, ps_call *call);
/* A message to a server; slots NULL: it names none, else they are its body. work may be NULL. */
tri_status tri_ps_kv_ask_one(tri_ps_client *client, tri_kv_work *work, const tri_kv_table *table, const ps_head *head,
                             const void *body, const ps_slots *slots, int server);
/* The same to each server; with `slots` its body is the slots of that server. */
tri_status tri_ps_kv_ask(tri_ps_client *client, tri_kv_work *work, const tri_kv_table *table, const ps_head *head,
                         const void *body, bool slots, const char *what);
/* A message to whoever has the slot, which is its body. */
tri_status tri_ps_kv_ask_slot(tri_ps_client *client, tri_kv_work *work, const ps_head *head, int slot);
/* Waits if work is NULL, else hands it over. Takes `made`; status: of what was queued for it. */
tri_status tri_ps_kv_end(tri_kv_work *made, tri_status status, const char *what, tri_kv_work **work);
/* Waits for the answers to PS_KV_OPEN: the step to begin with. Takes the work. */
tri_status tri_ps_kv_opened(tri_kv_work *work, int64_t *step);
/* The table of this text is open. */
tri_status tri_ps_kv_open_note(tri_ps_client *client, const tri_string *text);
bool tri_ps_kv_serves(tri_ps_client *client, int server);

/* --- client/key_lists.c: the client's thread, with the mutex: --- */
/* How a call is sent now: its head, and where its body is. */
void tri_ps_kv_parts(const ps_kv_link *link, ps_call *call, ps_head *head, tri_part parts[TRI_MESSAGE_PARTS]);
/* What the answer to a call says of its keys. */
void tri_ps_kv_known_note(ps_kv_link *link, const ps_call *call, const ps_head *answer);
/* The server does not know the keys of this call by their hash: it and what comes behind is said again. */
void tri_ps_kv_refused(tri_ps_client *client, int server, uint64_t request);
/* The connection is a new one. */
void tri_ps_kv_known_forget(ps_kv_link *link);

/* --- client/kv_receive.c: the client's thread, with the mutex: --- */
/* Where the body of an answer shall be: in the caller's rows, where they are one piece there; or NULL. */
void *tri_ps_kv_place(tri_ps_client *client, int server, const ps_head *head);
/* The server's connection has ended, in the middle of an answer perhaps. */
void tri_ps_kv_lost(tri_ps_client *client, int server);
/* Takes the call of this number out; NULL: there is none, it was answered before. */
ps_call *tri_ps_kv_call_take(tri_ps_client *client, int server, uint64_t request);
/* and without it: */
void tri_ps_kv_take(tri_ps_client *client, int server, const ps_head *head, const void *body);

/* --- client/kv_reassign.c --- */
/* All slots of the call are its server's, or the server is there. */
bool tri_ps_kv_fits(const tri_ps_client *client, const ps_call *call);
/* Puts a call among those of its server, by its order. */
void tri_ps_kv_insert(ps_kv_connections *connections, ps_call *call);

/* --- client/kv_split.c --- */
typedef struct kv_batch {
    ps_kind kind;
    uint16_t flags;
    tri_tree_part part;
    const uint64_t *keys;
    const float *rows; /* NULL: pulled only */
    int64_t count;
    int64_t first; /* which row of the caller's the first one is, where it is a part of a batch */
    bool adds;     /* rows of equal keys are added up */
    bool to_all;   /* a message to every server, also without rows */
    bool lends;    /* the caller waits, and writes nothing to its rows meanwhile: they need no copy, nor do its keys */
} kv_batch;
/* Cuts a batch into calls; answers go to the work, which may be NULL. */
tri_status tri_ps_kv_split(tri_kv_table *table, const kv_batch *batch, tri_kv_work *work);
/* The client's thread: rows of an answer to where they belong. TRI_EFORMAT, TRI_ENOMEM. */
tri_status tri_ps_kv_scatter(const ps_call *call, const tri_kv_work *work, const void *body, size_t nbytes);
void tri_ps_kv_scratch_fini(kv_scratch *scratch);

#endif
