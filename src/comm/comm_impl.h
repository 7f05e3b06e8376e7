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
    tri_tree_place place; /* where this group's shards stand in the tree */
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
    tri_hosts *hosts; /* NULL: nothing to gain from how its ranks lie on hosts */
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

/* What kept memory is for; each use may lie inside the next. */
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

/* verbs.c */
/* Starts a batch of moves; they happen all at once in tri_moves_run. `part` numbers the messages of a call. */
void tri_moves_begin(tri_call *call);
void tri_moves_send(tri_call *call, int to, uint32_t part, const void *bytes, size_t nbytes);
void tri_moves_receive(tri_call *call, int from, uint32_t part, void *bytes, size_t nbytes);
/* The payload goes through the sink; nbytes as it travels. */
void tri_moves_receive_into(tri_call *call, int from, uint32_t part, size_t nbytes, const tri_sink *sink);
tri_status tri_moves_run(tri_call *call);

tri_status tri_verb_send(tri_call *call, int to, uint32_t part, const void *bytes, size_t nbytes);
tri_status tri_verb_receive(tri_call *call, int from, uint32_t part, void *bytes, size_t nbytes);
tri_status tri_verb_exchange(tri_call *call, int to, const void *sent, size_t sent_nbytes, int from, void *received,
                             size_t received_nbytes, uint32_t part);
/* out = left op (what comes), count elements. */
tri_status tri_verb_receive_reduce(tri_call *call, int from, uint32_t part, tri_dtype dtype, const void *left,
                                   void *out, int64_t count);
tri_status tri_verb_exchange_reduce(tri_call *call, int to, const void *sent, int64_t send_count, int from,
                                    const void *left, void *out, int64_t count, uint32_t part);
/* How a look at the links ended: notes where an abort came from, and passes the status on. */
tri_status tri_call_heard(tri_comm *comm, tri_status status, const tri_frame *found);
/* At least nbytes of memory, 64-byte aligned, kept for the next call; contents are lost when it grows. NULL: out of
 * memory. */
void *tri_call_keep(const tri_call *call, tri_keep what, size_t nbytes);
void *tri_call_scratch(const tri_call *call, size_t nbytes);
/* The type in which the call's elements are added: f32 for halves. */
tri_dtype tri_call_adds_in(const tri_call *call);
size_t tri_call_nbytes(const tri_call *call, int64_t count);
/* Blocks of the ranks in `in` and `out`. */
int64_t tri_call_in_count(const tri_call *call, int rank);
int64_t tri_call_out_count(const tri_call *call, int rank);
const char *tri_call_in_block(const tri_call *call, int rank);
char *tri_call_out_block(const tri_call *call, int rank);
/* For algorithms that work in place: what is in `in` is copied to `out` where they differ. */
void tri_call_place(const tri_call *call);
/* Sum to result: divides for AVERAGE. */
tri_status tri_call_finish(const tri_call *call, tri_dtype dtype, void *data, int64_t count);
/* The failure of a call that meets another one: prints both. name: of the other, NULL: look among those known here. */
tri_status tri_call_mismatch(const tri_call *call, const tri_frame *found, const char *name, int culprit);
/* In a long wait outside the net: has anybody died, stopped, or called something else? */
tri_status tri_call_look_around(tri_call *call);
/* tri_probe_sender: *call->sender is the rank whose message waits. */
tri_status tri_call_probe(tri_call *call);
/* The failure of a call that waits for a rank whose link has ended: says why, if anybody knows. */
tri_status tri_call_lost(tri_call *call, int peer);
/* "all_reduce #12 f32 x 100 sum 'bucket 3'" */
void tri_call_describe(const tri_comm *comm, const tri_frame *frame, char text[192]);
/* The same with a name that is known: "" or NULL: it is not. Any thread. */
void tri_call_describe_as(const tri_frame *frame, const char *name, char text[192]);

/* select.c */
extern const tri_algorithm *const tri_algorithms[]; /* NULL at the end */
const tri_algorithm *tri_algorithm_select(const tri_call *call);
/* measure.c: collective over the world, before anybody else uses the links. */
tri_status tri_prices_measure(tri_comm *comm);
tri_price tri_price_of_group(const tri_group *group);
int tri_log_ceil(int ranks);

/* rules.c: parses comm.algorithm. TRI_ECONFIG names the piece of text that is wrong. */
tri_status tri_rules_parse(const char *text, bool any_order, tri_rule rules[TRI_COMM_RULES_MAX], int *rule_count);
const tri_algorithm *tri_rules_find(const tri_comm *comm, tri_comm_op op, int64_t nbytes);

/* plan.c */
/* Kept in the group. */
#define TRI_TREE_OF_RANKS ((tri_tree_place){0}) /* one leaf per rank */
tri_status tri_plan_find(tri_group *group, tri_tree_place place, const tri_plan **out);
void tri_plan_fini(tri_plan *plan);

/* group.c */
/* Of a group that serves another one, the same on all its ranks. */
uint32_t tri_group_inner_id(const tri_group *group, uint32_t kind, int index);
tri_status tri_group_create(tri_comm *comm, uint32_t id, const int *world_ranks, int count, tri_group **out);

/* work.c */
tri_status tri_work_submit(tri_call *call, tri_work **work);
tri_status tri_work_thread_start(tri_comm *comm);
/* Runs what is queued, ends the thread, frees all works. */
void tri_work_thread_stop(tri_comm *comm);
/* Under the lock: numbers the call within its group, or between the two ranks. */
void tri_call_number(tri_call *call);

/* order.c: the choice among queued calls; under the lock but for tri_order_call. */
/* The queue is not empty: is there something to agree before its next call? */
bool tri_order_is_open(const tri_comm *comm);
/* What this rank offers: the last of its calls that may change places with the first. */
uint64_t tri_order_reach(const tri_comm *comm);
/* The call that takes the minimum of all ranks' reaches. */
tri_status tri_order_call(tri_group *group, int64_t *reach, tri_call *call);
void tri_order_agreed(tri_group *group, int64_t reach);
/* Takes the next call out of the queue, which is not empty. */
tri_work *tri_order_take(tri_comm *comm);

/* call_run.c: the body of a call, on the runner's thread. */
tri_status tri_call_run(tri_call *call);
/* A call that is part of another, of a group of its own; its sequence is there already. */
tri_status tri_call_run_inside(tri_call *call);
/* What every frame of the call says; its sequence is there already. */
void tri_call_fill_frame(tri_call *call);

/* batch.c */
tri_status tri_batch_append(tri_batch *batch, const tri_call *call);
void tri_batch_fail(tri_batch *batch, tri_status status);
void tri_batch_number(tri_batch *batch);
tri_status tri_batch_run_calls(tri_call *call);
/* Its sends and receives, by the host. */
tri_status tri_batch_run_pairs(tri_call *call);
const tri_call *tri_batch_calls(const tri_batch *batch, size_t *count);

/* comm.c */
/* Where a rank is, besides what its net knows. */
typedef struct tri_comm_place {
    int local_rank, local_count; /* among the ranks of its host */
    int64_t generation;          /* of the membership */
} tri_comm_place;
/* Closes one that could not be opened, and returns what the rank ends with; the message stays. */
tri_status tri_comm_open_failed(tri_comm *comm, tri_status status);
/* Common part of both ways to open; takes net, also on failure. */
tri_status tri_comm_create(tri_net *net, tri_comm_place place, const tri_comm_config *config,
                           const tri_net_config *net_config, tri_comm **out);

/* alg_lane.c */
bool tri_lane_takes(const tri_call *call);
tri_status tri_lane_run(tri_call *call);

/* From one rank to all, or from all to one. In the others each rank gives something to all. */
static inline bool tri_comm_has_root(tri_comm_op op)
{
    return op == TRI_COMM_REDUCE || op == TRI_COMM_BROADCAST || op == TRI_COMM_GATHER || op == TRI_COMM_SCATTER;
}

/* Does this rank only give something away? Then nothing that it receives shows it that another rank has another root.
 */
static inline bool tri_call_only_gives(const tri_call *call)
{
    bool from_root = call->op == TRI_COMM_BROADCAST || call->op == TRI_COMM_SCATTER;
    return tri_comm_has_root(call->op) && from_root == (call->group->rank == call->root);
}

/* Sums over shards: canonical whatever comm.order says. */
static inline bool tri_comm_is_tree(tri_comm_op op)
{
    return op == TRI_COMM_ALL_REDUCE_TREE || op == TRI_COMM_REDUCE_SCATTER_TREE;
}

/* alg_direct.c: the sum over ranks that a canonical sum of whole subtrees comes to. */
tri_call tri_call_over_ranks(const tri_call *call);

/* alg_*.c */
extern const tri_algorithm tri_all_reduce_by_tree, tri_reduce_by_tree, tri_broadcast_by_tree;
extern const tri_algorithm tri_all_reduce_by_halving;
extern const tri_algorithm tri_all_reduce_by_sharing, tri_reduce_by_sharing, tri_reduce_scatter_by_sharing;
extern const tri_algorithm tri_all_gather_by_sharing, tri_all_to_all_by_sharing, tri_broadcast_by_sharing;
extern const tri_algorithm tri_gather_by_sharing, tri_scatter_by_sharing;
extern const tri_algorithm tri_all_reduce_by_direct, tri_reduce_by_direct, tri_reduce_scatter_by_direct;
extern const tri_algorithm tri_all_reduce_by_exchange;
extern const tri_algorithm tri_all_reduce_by_doubling;
extern const tri_algorithm tri_tree_by_subtree, tri_tree_by_parts;
extern const tri_algorithm tri_scatter_tree_by_subtree, tri_scatter_tree_by_parts;
extern const tri_algorithm tri_all_reduce_by_ring, tri_reduce_scatter_by_ring;
extern const tri_algorithm tri_all_gather_by_direct, tri_all_gather_by_doubling, tri_all_gather_by_ring,
    tri_all_gather_by_dissemination;
extern const tri_algorithm tri_broadcast_by_direct, tri_broadcast_by_scatter;
extern const tri_algorithm tri_barrier_by_dissemination, tri_pair_by_link;
extern const tri_algorithm tri_all_reduce_by_hosts, tri_reduce_scatter_by_hosts, tri_all_gather_by_hosts;
extern const tri_algorithm tri_broadcast_by_hosts, tri_barrier_by_hosts;
extern const tri_algorithm tri_all_reduce_by_lane, tri_reduce_by_lane, tri_broadcast_by_lane, tri_all_gather_by_lane;
extern const tri_algorithm tri_reduce_scatter_by_lane, tri_gather_by_lane, tri_scatter_by_lane;
extern const tri_algorithm tri_all_to_all_by_lane, tri_barrier_by_lane;
extern const tri_algorithm tri_gather_by_direct, tri_gather_by_tree, tri_scatter_by_direct, tri_scatter_by_tree;
extern const tri_algorithm tri_all_to_all_by_direct, tri_all_to_all_by_pairs;

#endif
