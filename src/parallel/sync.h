/* SPDX-License-Identifier: Apache-2.0
 *
 * sync.h: how the gradients of all ranks become one, and how the moved weights come back: one table, one row a
 * strategy.
 *
 * The step calls begin, then (through the backward pass) ready for each entry, then finish, moves its slice, publish.
 * Where sync->ahead it calls wait for the tail and goes on; for any other entry before its kernels read it or write its
 * gradient again.
 * Here, and only here, nn/ (gradients) and comm/ (groups) meet.
 */
#ifndef TRI_PARALLEL_SYNC_H
#define TRI_PARALLEL_SYNC_H

#include <trireme/comm.h>

#include "base/options.h"
#include "comm/comm.h"
#include "nn/graph.h"
#include "optim/optim.h"
#include "parallel/kept.h"
#include "ps/ps.h"
#include "tensor/tree.h"

#define TRI_PARALLEL_OPTIONS(X)                                                                                        \
    X(NAME, layout, "given", 0, 0, "given|auto",                                                                       \
      "who lays the run out: given: the rows below; auto: what trireme plan chooses for the ranks that take part, "    \
      "where rows are not given; parallel: auto is short for it")                                                      \
    X(NAME, data, "auto", 0, 0, NULL, "ranks that share the batch out: auto (all that are left), or their number")     \
    X(NAME, tensor, "1", 0, 0, NULL, "ranks that share each layer out: auto, or their number, a power of two")         \
    X(INT, tensor_parts, "0", 0, 1024, NULL,                                                                           \
      "parts that each layer is cut into, a power of two that parallel.tensor divides: the bits depend on it, not on " \
      "the ranks; 0 = parallel.tensor")                                                                                \
    X(BOOL, sequence, "false", 0, 0, NULL,                                                                             \
      "tensor ranks share out the tokens too, between the layers that are cut: less memory; the bits depend on it")    \
    X(NAME, pipeline, "1", 0, 0, NULL, "stages that the layers are cut into: auto, or their number")                   \
    X(NAME, schedule, "1f1b", 0, 0, "gpipe|1f1b|interleaved",                                                          \
      "of a pipeline: gpipe: all micro-batches up, then all down; 1f1b: each down as soon as may be, less memory; "    \
      "interleaved: 1f1b with parallel.chunks stages a rank, less idle, more messages")                                \
    X(INT, chunks, "1", 1, 64, NULL, "stages that each rank of a pipeline has; interleaved wants 2 or more")           \
    X(NAME, cut, "flops", 0, 0, "flops|measured", "what makes stages equal: operations, or seconds of a short run")    \
    X(LIST, cut_at, "[]", 0, 0, NULL, "layers that stages begin with, such as [h.2, h.4], instead of parallel.cut")    \
    X(NAME, sync, "allreduce", 0, 0, "allreduce|zero1|zero2|zero3|local|diloco|ps",                                    \
      "who moves the weights: allreduce: every rank all of them; zero1: each its part, and keeps the optimizer's "     \
      "state of that part alone; zero2: and its gradients; zero3: and its weights; local: each rank its own, "         \
      "averaged now and then; diloco: each its own, and an outer "                                                     \
      "step now and then; ps: parameter servers (--servers)")                                                          \
    X(NAME, zero_ranks, "all", 0, 0, NULL,                                                                             \
      "zero1, zero2, zero3: ranks that spread one copy of the state over themselves; the others of the batch have "    \
      "copies of it: all, host (those of each host), or their number")                                                 \
    X(INT, bucket_kib, "1024", 1, 1048576, NULL, "gradients sent together, KiB")                                       \
    X(BOOL, overlap, "true", 0, 0, NULL, "send buckets while the backward pass goes on")                               \
    X(NAME, ahead, "auto", 0, 0, "auto|on|off",                                                                        \
      "begin the next step when the sums of its first layers are there, and let those go first; auto: between hosts")  \
    X(NAME, compress, "none", 0, 0, "none|bf16|int8|topk|powersgd",                                                    \
      "how matrices among the gradients cross between hosts (allreduce)")                                              \
    X(NAME, compress_between, "hosts", 0, 0, "hosts|ranks",                                                            \
      "hosts: the ranks of a host add up exactly first, and one of them sends; ranks: each rank sends")                \
    X(INT, compress_block, "256", 16, 65536, NULL, "int8: elements that share a scale")                                \
    X(REAL, compress_keep, "0.01", 1e-9, 1, NULL, "topk: part of the elements that is sent")                           \
    X(INT, compress_rank, "4", 1, 1024, NULL, "powersgd: columns of each of the two thin matrices")                    \
    X(NAME, compress_rest, "two_bits", 0, 0, "none|two_bits",                                                          \
      "powersgd: what the thin matrices do not say: two_bits: crosses in two bits an element; none: is kept back")     \
    X(INT, compress_after, "0", 0, 1e15, NULL, "allreduce: steps at the start of a run that nothing is compressed in") \
    X(INT, local_steps, "50", 1, 1e9, NULL, "local, diloco: steps of each rank from one exchange to the next")         \
    X(REAL, outer_lr, "0.7", 0, 100, NULL, "diloco: learning rate of the outer step")                                  \
    X(REAL, outer_momentum, "0.9", 0, 1, NULL, "diloco: its momentum, in Nesterov's form")                             \
    X(INT, outer_fragments, "1", 1, 4096, NULL, "diloco: parts of the weights that are exchanged in turns")            \
    X(INT, outer_delay, "0", 0, 1e9, NULL, "diloco: steps that go on while the sums of a fragment travel")             \
    X(REAL, outer_mix, "0.5", 0, 1, NULL, "diloco: part of a rank's own weights that stays where outer_delay is not 0")
typedef struct tri_parallel_config {
    TRI_PARALLEL_OPTIONS(TRI_OPTION_FIELD)
} tri_parallel_config;
extern const tri_option_table tri_parallel_options; /* section "parallel" */

typedef struct tri_sync tri_sync;

/* Of a worker of parameter servers, which is alone in its group. */
typedef struct tri_sync_servers {
    struct tri_ps_client *client;
    const tri_ps_config *config;
    const tri_optim_config *optim;
    int worker, workers; /* its part of the batch */
    int64_t steps;       /* of all epochs, as schedules count */
    int64_t last_step;   /* after which this run ends */
    uint64_t job;        /* what all workers must have in common */
} tri_sync_servers;

typedef struct tri_sync_setup {
    const tri_parallel_config *config;
    tri_group *group;                /* the ranks that share the batch */
    tri_group *zero;                 /* of these, the ones that spread one copy of the state over themselves */
    tri_group *replicas;             /* those that have the same of each copy; NULL: there is one */
    const tri_params *params;        /* borrowed */
    int64_t leaves;                  /* shards of the batch */
    int part_count;                  /* whole subtrees of this rank's shards */
    int threads;                     /* of this rank */
    bool between_hosts;              /* not all ranks are on one */
    bool whole_gradients;            /* the batch is computed in pieces, which are added before the sum over ranks */
    bool undoes;                     /* undo may be called */
    const tri_sync_servers *servers; /* NULL: there are none */
    tri_kept *kept;                  /* memory of gradients of the sync before, or NULL: there is none */
} tri_sync_setup;

/* A part of the store whose sums are there: this rank's optimizer moves it. */
typedef tri_slice tri_sync_slice;

/* The same where it lies elsewhere than in the store and in grads[0]: arrays begin with its first element. */
typedef struct tri_sync_piece {
    tri_slice slice;
    float *values, *sums;
} tri_sync_piece;

/* What is spread over the ranks, each with all before it. */
typedef enum tri_spread { TRI_SPREAD_NOTHING, TRI_SPREAD_STATE, TRI_SPREAD_GRADIENTS, TRI_SPREAD_WEIGHTS } tri_spread;

typedef struct tri_sync_ops {
    const char *name;
    const char *does;
    tri_status (*create)(const tri_sync_setup *setup, tri_sync **out);
    /* A step begins: nothing is ready. */
    tri_status (*begin)(tri_sync *sync);
    /* Entry `entry` is complete in all parts (numbers as tri_params_tail() has them). Blocks only
     * where nothing overlaps; failures wait for finish. */
    void (*ready)(tri_sync *sync, int entry);
    /* Waits until the slice of the sum is complete in grads[0], with the tail; or, where there are pieces, the sums of
     * these. Those of ties are apart until they are folded. */
    tri_status (*finish)(tri_sync *sync, tri_sync_slice *slice);
    /* The sums that finish left count for nothing, on any rank: what goes on from step to step is what it was before.
     * Once for each finish, with setup->undoes. NULL: nothing goes on. */
    void (*undo)(tri_sync *sync);
    /* Adds the sums of ties to those of their entries; between the two, what this rank has of the sum of a gradient
     * (numbers as tri_params_tail() has them) that several stages make. NULL, both: all is in grads[0]. */
    void (*fold)(tri_sync *sync);
    float *(*sum)(tri_sync *sync, int number, int64_t *count);
    /* Waits until the sum of an entry (params->entry_count: the tail) is complete; the slice is what has come with it,
     * empty when it was waited for before. After the backward pass. NULL: sync->ahead is never set. */
    tri_status (*wait)(tri_sync *sync, int entry, tri_sync_slice *slice);
    /* The slice is moved: gives it to whoever needs it. NULL: nobody does. */
    tri_status (*publish)(tri_sync *sync);
    /* Where each rank has weights of its own (tri_sync_is_apart); else all NULL. meet: collective, the weights become
     * the mean of all ranks', and this rank's own go to grads[0]; part brings those back. What lies in between must not
     * use the gradients. */
    tri_status (*meet)(tri_sync *sync);
    void (*part)(tri_sync *sync);
    /* Between the two: arrays over the entries of the store that are alike on all ranks and belong to a checkpoint;
     * NULL past the last. */
    const char *(*state_name)(const tri_sync *sync, int index);
    float *(*state)(tri_sync *sync, int index, int entry);
    /* Rank 0 has filled in its own; collective. */
    tri_status (*loaded)(tri_sync *sync);
    /* How the graph finds what is on its way or elsewhere. NULL: everything is in the store and in grads. */
    void (*hooks)(tri_sync *sync, tri_graph_hooks *hooks);
    /* Squares of the sum over all ranks, in the norm's blocks of the store, where the sums are elsewhere: between
     * finish and publish, which then says by what they are multiplied. NULL: the sums are here. */
    tri_status (*squares)(tri_sync *sync, double *blocks);
    /* Waits until the weights that are here are those after the last publish. NULL: they are. */
    tri_status (*settle)(tri_sync *sync);
    tri_spread spread;
    void (*destroy)(tri_sync *sync);
} tri_sync_ops;

/* First member of each implementation's struct. */
struct tri_sync {
    const tri_sync_ops *ops;
    float **grads;      /* [part_count] arrays of tri_params_grad_count() + TRI_PARAMS_TAIL elements: the backward pass
                           writes them, finish leaves the sum over all ranks in the first; NULL: hooks place them */
    bool whole;         /* finish leaves all sums in grads[0]; else each piece's */
    float *tail;        /* of the first part; its sum over all ranks */
    int64_t step;       /* the trainer's, from 0 */
    int64_t next_step;  /* after publish, where the next one is not step + 1; -1: it is */
    int64_t part;       /* where parts of the batch are dealt: the one to compute in that step */
    float grad_scale;   /* the trainer's, before publish: what the sums are multiplied with */
    bool ahead;         /* the next step may begin before all sums are there */
    bool begun;         /* of ranks apart: what is alike on all of them is there (state) */
    float called;       /* of ranks apart: what this rank put into TRI_TAIL_CALL of the sum that the tail has now */
    int64_t exposed_ns; /* of the last step: time spent waiting in finish and publish */
    int64_t waited_ns;  /* since the sync was made: time spent waiting in hooks */
    const tri_sync_piece *pieces; /* what this rank moves; NULL: the slice that finish gives */
    int piece_count;
};

/* All rows, NULL at the end. */
extern const tri_sync_ops *const tri_sync_table[];
/* Whether each rank moves weights of its own, and by its own gradients alone, from one exchange to the next. */
bool tri_sync_is_apart(const tri_parallel_config *config);
/* Options that do not go together. */
tri_status tri_sync_check(const tri_parallel_config *config);
/* What a manifest says of the bits where they depend on the layout; "" where they do not. */
#define TRI_SYNC_BITS_NBYTES 120
const char *tri_sync_bits(const tri_parallel_config *config, int ranks, bool between_hosts,
                          char text[TRI_SYNC_BITS_NBYTES]);
/* What is spread over this number of ranks. */
tri_spread tri_sync_spread(const tri_parallel_config *config, int ranks);

/* Who owns what of the store: keeps the optimizer's state of it (and more: tri_spread) and moves it. */
typedef struct tri_share {
    tri_slice slice;
    int rank;
    int64_t at; /* elements that the rank owns before it */
} tri_share;
typedef struct tri_shares {
    tri_share *items; /* in the order of the store, all of it */
    int count;
} tri_shares;
/* A function of its arguments; where nothing is spread one share of rank -1, which stands for all. */
tri_status tri_shares_init(tri_shares *shares, const tri_parallel_config *config, const tri_params *params, int ranks);
void tri_shares_fini(tri_shares *shares);
/* The slices of one rank, in order (tri_free). */
tri_status tri_shares_of(const tri_shares *shares, int rank, tri_slice **slices, int *count);

/* A rank among those that share the batch, `zero` of which in a row spread one copy of the state over themselves. */
typedef struct tri_sync_place {
    int rank, ranks, zero;
} tri_sync_place;
/* What such a rank keeps, with what passes through, compressed sums as between hosts; no group is looked at. */
typedef struct tri_sync_bytes {
    size_t weights, gradients, outer; /* outer: diloco's anchor, momentum and sums */
} tri_sync_bytes;
tri_status tri_sync_memory(const tri_sync_setup *setup, tri_sync_place place, tri_sync_bytes *bytes);
/* Whole subtrees of the shards that such ranks have together: sums that the others' are added to. */
int tri_sync_subtrees(const tri_sync_setup *setup, tri_sync_place place);
/* Before there is a sync: its arrays, with pages that are there, so that nobody waits for these in the first step.
 * shared: ranks will reach each other's memory. For allreduce, whose arrays are as long as the model. */
tri_status tri_sync_kept_make(tri_kept *kept, const tri_parallel_config *config, const tri_params *params,
                              int part_count, bool shared);
tri_status tri_sync_create(const tri_sync_setup *setup, tri_sync **out);
void tri_sync_destroy(tri_sync *sync);

#endif
