/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_impl.h: what the files of comm/ share: a call, the verbs it is written in, algorithms, groups, the queue.
 *
 * A call is a plain value made by calls.c, ordered by work.c, run by one algorithm. While it runs, the runner alone
 * uses the links, the moves and the scratch memory of its comm. Ranks here are ranks of the group unless a name says
 * `world`.
 */
#ifndef TRI_COMM_COMM_IMPL_H
#define TRI_COMM_COMM_IMPL_H

#include <stdatomic.h>

#include "base/runtime.h"
#include "comm/board.h"
#include "comm/comm.h"
#include "tensor/reduce.h"
#include "tensor/tree.h"

#define TRI_COMM_NAME_NBYTES 48

typedef struct tri_algorithm tri_algorithm;
typedef struct tri_lane tri_lane;
typedef struct tri_hosts tri_hosts;
typedef struct tri_engine tri_engine;

typedef struct tri_call {
    tri_group *group;
    tri_comm_op op;
    tri_dtype dtype;
    tri_reduce_op reduce;
    int root;       /* the peer of a send or receive */
    bool sends;     /* TRI_COMM_SEND_RECV: which of both */
    bool canonical; /* the order of additions is fixed */
    int64_t count;  /* elements: of a block where every rank has one of its own, else of the data */
    const void *in;
    void *out;                        /* in place: the same as in */
    tri_blocks in_blocks, out_blocks; /* counts NULL: count elements each */
    double scale;                     /* TRI_REDUCE_PREMUL_SUM */
    tri_batch *batch;                 /* TRI_COMM_BATCH */
    int *sender;                      /* tri_probe_sender: waits for a message, receives none */
    float *const *parts;              /* of the sums of shards: tri_comm_is_tree() */
    int part_count;
    tri_tree_place place; /* where this group's shards are in the tree */
    float *const *outs;   /* one for each whole subtree of theirs; NULL: all shards are theirs, and out has the sum */
    char name[TRI_COMM_NAME_NBYTES];
    const tri_algorithm *algorithm; /* NULL: the cheapest */
    unsigned priority;              /* 1 goes first; 0: in the order made */
    tri_frame frame;                /* what every frame of the call says */
} tri_call;

/* Figures of the slowest transport inside a group. */
typedef struct tri_price {
    const char *transport;
    bool shares_memory; /* what one rank maps, the others can */
    bool between_hosts; /* its figures are guesses until they are measured */
    double latency_us;  /* of a message */
    double message_us;  /* of one more message at the same time */
    double round_us;    /* of a round that ends when all have what they wait for, besides what it moves */
    double us_per_byte; /* moved */
    double us_per_byte_reduced;
} tri_price;

struct tri_algorithm {
    const char *name;
    const char *does; /* one line for --explain */
    tri_comm_op op;
    /* NULL: it can; else why not. The slot empty: it always can. */
    const char *(*cannot)(const tri_call *call);
    double (*cost_us)(const tri_price *price, int ranks, double nbytes);
    tri_status (*run)(tri_call *call);
};

/* A whole subtree of a group's shards: its sum is in a slot after the steps [first, end). */
typedef struct tri_plan_root {
    int slot, first, end;
} tri_plan_root;

/* Slots of the parts of all ranks, and the order in which they are added. */
typedef struct tri_plan {
    int slot_count;
    int *first_slot; /* [ranks + 1] */
    int step_count;
    tri_tree_step *steps;
    int root_count; /* 1 where all shards are the group's */
    tri_plan_root roots[TRI_TREE_MAX_PARTS];
    tri_tree_place place; /* TRI_TREE_OF_RANKS: leaves 0 */
} tri_plan;

struct tri_group {
    tri_comm *comm;
    uint64_t members; /* tri_board_members */
    uint32_t id;
    int rank, count;
    int *world_rank;            /* [count] */
    _Atomic int64_t timeout_ms; /* of one wait */
    uint64_t sequence;          /* of the latest collective; this and the next four are the caller's */
    uint16_t roots;             /* digest of the roots of all collectives so far */
    uint64_t *sent;             /* [count] messages to each rank */
    uint64_t *received;
    unsigned priority; /* of the next operations */
    uint32_t splits;
    uint64_t ordered;                /* calls with a priority so far; under comm->mutex */
    uint32_t regions;                /* tri_group_alloc so far; under comm->mutex */
    char name[TRI_COMM_NAME_NBYTES]; /* of the next operations */
    double scale;                    /* of the next operations that multiply first */
    tri_batch *collecting;           /* between tri_batch_begin and tri_batch_end */
    tri_price price;
    tri_hosts *hosts; /* NULL: nothing to gain from how its ranks are placed on hosts */
    int found_sender; /* by the latest probe; the runner's, as all below */
    bool lane_asked;
    tri_lane *lane;     /* NULL: not all on one host */
    tri_group *order;   /* agrees which call is next; NULL: none had a priority so far */
    uint64_t agreed;    /* calls with a priority up to this one are made on all ranks */
    double ordered_us;  /* what those that have run since the agreement should have taken */
    tri_plan rank_plan; /* made at first use */
    tri_plan tree_plan;
};

struct tri_work {
    tri_call call;
    tri_comm *comm;
    tri_work *next;      /* in the queue or the list of free ones */
    tri_work *next_made; /* all of them */
    uint64_t made;       /* of the calls of its group that have a priority */
    tri_status status;
    atomic_bool done;
};

/* What becomes of a payload piece by piece: out = left op piece, or out = piece as another type. */
typedef struct tri_sink {
    tri_reduce_fn combine; /* NULL: convert */
    tri_dtype from, to;    /* of the piece and of out */
    const void *left;
    void *out;
} tri_sink;

/* "all_reduce, 0 to 65535 bytes: tree" */
typedef struct tri_rule {
    tri_comm_op op;
    int64_t low, high; /* bytes, high not included */
    const tri_algorithm *algorithm;
} tri_rule;
#define TRI_COMM_RULES_MAX 32

/* The latest names seen, so that another rank's call can be printed with its name. */
#define TRI_COMM_NAMES_KEPT 64
typedef struct tri_known_name {
    uint64_t hash;
    char text[TRI_COMM_NAME_NBYTES];
} tri_known_name;

/* What kept memory is for; each use may be inside the next. */
typedef enum tri_keep {
    TRI_KEEP_SCRATCH, /* of an algorithm */
    TRI_KEEP_FLOORS,  /* between the operations of one in two floors */
    TRI_KEEP_SCALED,  /* elements times the factor of this rank */
    TRI_KEEP_COUNT
} tri_keep;

struct tri_comm {
    tri_net *net;
    tri_cluster *cluster; /* owned (tri_comm_join), or NULL */
    int rank, world, local_rank, local_count;
    uint32_t generation; /* in every frame */
    int64_t timeout_ms;  /* of one wait */
    int64_t far_us;      /* round trip between the two ranks that are the farthest apart, alike on all; 0: not known */
    double us_per_byte, us_per_byte_reduced, latency_us, message_us; /* measured between hosts, alike on all; 0: not */
    bool any_order;
    tri_engine *engine;     /* NULL: our own algorithms run everything */
    unsigned engine_cannot; /* bit of each operation that the engine left to the host */
    tri_rule rules[TRI_COMM_RULES_MAX];
    int rule_count;
    tri_group *world_group;

    atomic_uint busy;     /* 1: somebody runs a call; taken by compare-and-swap, also without the lock */
    atomic_size_t queued; /* works in the queue; changed under the lock */
    atomic_int failed;    /* tri_status of the first cause; set once, under the lock, after cause and origin */

    tri_mutex mutex; /* guards the fields up to the next blank line */
    tri_cond ready;  /* the thread waits: something to do */
    tri_cond ended;  /* callers wait: a work is done */
    tri_work *first, *last;
    tri_work *free_works, *all_works;
    struct tri_shared *shared; /* memory of groups */
    bool closing;
    atomic_bool abort_waits; /* tri_comm_abort came while busy: the runner tells the others */
    int origin;
    size_t cause_nbytes; /* of `cause`, for the other ranks: what follows is about this one */
    char cause[TRI_ERROR_NBYTES];

    tri_mutex lane_mutex; /* guards the list of open lanes; no other lock is taken while it is held */
    tri_lane *lanes;

    tri_thread *thread;
    tri_board *board;          /* what the runner does, for everybody */
    struct tri_report *report; /* of waits that last; NULL without a watch */
    tri_option_path flight_folder;

    /* The runner's. */
    tri_move *moves;
    tri_sink *sinks; /* [move_capacity], of the move of the same index */
    size_t move_count, move_capacity;
    atomic_uint_fast64_t *sent_to; /* [world], bytes so far; others read it. NULL: too many to count */
    tri_status move_status;        /* of adding moves */
    void *kept[TRI_KEEP_COUNT];    /* memory that stays for the next call */
    size_t kept_nbytes[TRI_KEEP_COUNT];
    tri_known_name names[TRI_COMM_NAMES_KEPT];
    unsigned name_next;
    bool flight_written;
    int found_origin;       /* of the abort that came from a peer, -1: none */
    tri_status found_cause; /* what it said */
    tri_status first_cause; /* of the rank that failed first; TRI_OK: nobody has */
};

#endif
