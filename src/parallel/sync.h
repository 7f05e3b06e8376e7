/* SPDX-License-Identifier: Apache-2.0
 *
 * sync.h: how the gradients of all ranks become one, and how the moved weights come back: one table, one row a
 * strategy.
 *
 * The step calls begin, then (through the backward pass) ready for each entry, then finish, moves its slice, publish.
 * Where sync->ahead it calls wait for the tail and continues; for any other entry before its kernels read it or write
 * its gradient again. Here, and only here, nn/ (gradients) and comm/ (groups) meet.
 */
#ifndef TRI_PARALLEL_SYNC_H
#define TRI_PARALLEL_SYNC_H

#include <trireme/comm.h>

#include "base/options.h"
#include "comm/comm.h"
#include "nn/graph.h"
#include "optim/optim.h"
#include "parallel/kept.h"
#include "parallel/schedule.h"
#include "ps/ps.h"
#include "tensor/tree.h"

#define tri_layout_source_words(W) W(TRI_LAYOUT_GIVEN, "given") W(TRI_LAYOUT_AUTO, "auto")
TRI_ENUM(tri_layout_source)
#define tri_cut_words(W) W(TRI_CUT_FLOPS, "flops") W(TRI_CUT_MEASURED, "measured")
TRI_ENUM(tri_cut)
#define tri_sync_kind_words(W)                                                                                         \
    W(TRI_SYNC_ALLREDUCE, "allreduce")                                                                                 \
    W(TRI_SYNC_ZERO1, "zero1")                                                                                         \
    W(TRI_SYNC_ZERO2, "zero2")                                                                                         \
    W(TRI_SYNC_ZERO3, "zero3") W(TRI_SYNC_LOCAL, "local") W(TRI_SYNC_DILOCO, "diloco") W(TRI_SYNC_PS, "ps")
TRI_ENUM(tri_sync_kind)
#define tri_zero_ranks_words(W) W(, "all") W(, "host")
#define TRI_ZERO_RANKS_ALL      TRI_OPTION_WORD_COUNT(0)
#define TRI_ZERO_RANKS_HOST     TRI_OPTION_WORD_COUNT(1)
#define tri_ahead_mode_words(W) W(TRI_AHEAD_AUTO, "auto") W(TRI_AHEAD_ON, "on") W(TRI_AHEAD_OFF, "off")
TRI_ENUM(tri_ahead_mode)
#define tri_backend_words(W) W(TRI_BACKEND_AUTO, "auto") W(TRI_BACKEND_HOST, "host") W(TRI_BACKEND_NCCL, "nccl")
TRI_ENUM(tri_backend)
#define tri_compress_kind_words(W)                                                                                     \
    W(TRI_COMPRESS_NONE, "none")                                                                                       \
    W(TRI_COMPRESS_BF16, "bf16")                                                                                       \
    W(TRI_COMPRESS_INT8, "int8") W(TRI_COMPRESS_TOPK, "topk") W(TRI_COMPRESS_POWERSGD, "powersgd")
TRI_ENUM(tri_compress_kind)
#define tri_compress_scope_words(W) W(TRI_COMPRESS_HOSTS, "hosts") W(TRI_COMPRESS_RANKS, "ranks")
TRI_ENUM(tri_compress_scope)
#define tri_compress_residual_words(W) W(TRI_RESIDUAL_KEPT, "none") W(TRI_RESIDUAL_TWO_BITS, "two_bits")
TRI_ENUM(tri_compress_residual)

#define TRI_PARALLEL_OPTIONS(X)                                                                                        \
    X(ENUM, layout, "given", 0, 0, tri_layout_source,                                                                  \
      "given: the layout below; auto: the layout that trireme plan chooses for the ranks of the run, as far as the "   \
      "options below leave it open; 'parallel: auto' is short for it")                                                 \
    X(COUNT, data, "auto", 1, 1048576, tri_auto, "data-parallel ranks; auto: all that tensor and pipeline leave")      \
    X(COUNT, tensor, "1", 1, 1048576, tri_auto, "tensor-parallel ranks, a power of two")                               \
    X(INT, tensor_parts, "0", 0, 1024, NULL,                                                                           \
      "parts that each layer is cut into, a power of two that parallel.tensor divides: the bits depend on it, not on " \
      "the ranks; 0: parallel.tensor")                                                                                 \
    X(BOOL, sequence, "false", 0, 0, NULL,                                                                             \
      "sequence parallelism: tensor ranks split the tokens too, between the layers that are cut: less memory; the "    \
      "bits depend on it")                                                                                             \
    X(COUNT, pipeline, "1", 1, 1048576, tri_auto,                                                                      \
      "pipeline stages; a micro-batch has train.shards_at_once shards, 0: 1")                                          \
    X(ENUM, schedule, "1f1b", 0, 0, tri_pipe_kind,                                                                     \
      "gpipe: all forward, then all backward; 1f1b: one forward, one backward, which takes less memory; interleaved: " \
      "1f1b with several stages per rank (parallel.chunks): less idle time, more messages",                            \
      "parallel.pipeline!=1")                                                                                          \
    X(INT, chunks, "1", 1, 64, NULL, "stages of each rank; interleaved needs 2 or more", "parallel.pipeline!=1")       \
    X(ENUM, cut, "flops", 0, 0, tri_cut, "balance stages by operations, or by the measured seconds of a short run",    \
      "parallel.pipeline!=1")                                                                                          \
    X(LIST, cut_at, "[]", 0, 0, NULL,                                                                                  \
      "first layer of each stage but the first, such as [h.2, h.4], instead of parallel.cut", "parallel.pipeline!=1")  \
    X(ENUM, sync, "allreduce", 0, 0, tri_sync_kind,                                                                    \
      "gradient synchronization: allreduce; zero1 shards optimizer state; zero2 also gradients; zero3 also weights; "  \
      "local: local SGD; diloco; ps: parameter servers (--servers)")                                                   \
    X(ENUM, backend, "auto", 0, 0, tri_backend,                                                                        \
      "who sums the gradients of ranks on cards (train.device: cuda); nccl: NCCL moves them from card to card, where " \
      "they are added; host: they are copied to the host and added there; auto: nccl where every rank has a card of "  \
      "its own and NCCL, else host; the weights are the same",                                                         \
      "parallel.sync=allreduce|zero1|zero2|zero3")                                                                     \
    X(COUNT, zero_ranks, "all", 1, 1048576, tri_zero_ranks,                                                            \
      "data ranks that shard one copy of the state: all, host (those of each host), or their number; the other data "  \
      "ranks hold further copies",                                                                                     \
      "parallel.sync=zero1|zero2|zero3")                                                                               \
    X(COUNT, bucket_kib, "auto", 1, 1048576, tri_auto,                                                                 \
      "size of a gradient bucket, KiB; with zero1 to zero3 also of weights; auto: 1024, with train.device cuda 16384") \
    X(BOOL, overlap, "true", 0, 0, NULL, "send buckets during the backward pass")                                      \
    X(ENUM, ahead, "auto", 0, 0, tri_ahead_mode,                                                                       \
      "start the next step when the sums of its first layers are complete, and send those first; auto: if ranks are "  \
      "on several hosts",                                                                                              \
      "parallel.sync=allreduce parallel.compress=none")                                                                \
    X(ENUM, compress, "none", 0, 0, tri_compress_kind,                                                                 \
      "compression of gradient matrices between hosts; with diloco, of the outer update (bf16, int8); vectors, "       \
      "running statistics and the loss are always exact",                                                              \
      "parallel.sync=allreduce|diloco")                                                                                \
    X(ENUM, compress_between, "hosts", 0, 0, tri_compress_scope,                                                       \
      "hosts: the ranks of a host add up exactly first, and one of them sends; ranks: each rank sends",                \
      "parallel.sync=allreduce parallel.compress!=none")                                                               \
    X(INT, compress_block, "256", 16, 65536, NULL, "elements that share a scale", "parallel.compress=int8")            \
    X(REAL, compress_fraction, "0.01", 1e-9, 1, NULL, "fraction of the elements that is sent",                         \
      "parallel.compress=topk")                                                                                        \
    X(INT, compress_rank, "4", 1, 1024, NULL, "rank of the PowerSGD approximation", "parallel.compress=powersgd")      \
    X(ENUM, compress_residual, "two_bits", 0, 0, tri_compress_residual,                                                \
      "PowerSGD residual: quantized to 2 bits, or (none) kept as error feedback", "parallel.compress=powersgd")        \
    X(INT, compress_after, "0", 0, 1e15, NULL, "steps at the start of a run without compression",                      \
      "parallel.sync=allreduce parallel.compress!=none")                                                               \
    X(INT, local_steps, "50", 1, 1e9, NULL, "steps of each rank between two exchanges", "parallel.sync=local|diloco")  \
    X(REAL, outer_lr, "0.7", 0, 100, NULL, "learning rate of the outer optimizer", "parallel.sync=diloco")             \
    X(REAL, outer_momentum, "0.9", 0, 1, NULL, "Nesterov momentum of the outer optimizer", "parallel.sync=diloco")     \
    X(INT, outer_fragments, "1", 1, 4096, NULL, "fragments of the weights that are exchanged in turns",                \
      "parallel.sync=diloco")                                                                                          \
    X(INT, outer_delay, "0", 0, 1e9, NULL, "steps that continue while the sums of a fragment travel",                  \
      "parallel.sync=diloco")                                                                                          \
    X(REAL, outer_mix, "0.5", 0, 1, NULL, "fraction of a rank's own weights that stays when sums arrive late",         \
      "parallel.sync=diloco parallel.outer_delay!=0")
typedef struct tri_parallel_config {
    TRI_PARALLEL_OPTIONS(TRI_OPTION_FIELD)
} tri_parallel_config;
extern const tri_option_table tri_parallel_options; /* section "parallel" */

/* Of a bucket; auto: of the host. */
static inline int64_t tri_bucket_nbytes(const tri_parallel_config *config)
{
    return 1024 * (config->bucket_kib == TRI_OPTION_AUTO ? 1024 : config->bucket_kib);
}

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

/* Sums between cards by NCCL (sync_nccl.c). All fields zero: the host sums. */
typedef struct tri_sync_cards {
    bool nccl;
    bool any_order;   /* not the canonical one */
    int64_t limit_ms; /* of a wait for other ranks */
    char *failed;     /* [TRI_NCCL_WHY_NBYTES] of the run: why NCCL has failed where no rank was lost, "" so far */
} tri_sync_cards;

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
    tri_sync_cards cards;
    tri_kept *kept; /* memory of gradients of the sync before, or NULL: there is none */
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
    /* The sums that finish left count for nothing, on any rank: what continues from step to step is what it was before.
     * Once for each finish, with setup->undoes. NULL: nothing continues. */
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
    /* Where each rank has weights of its own (tri_sync_is_local); else all NULL. meet: collective, the weights become
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
    /* The step has failed, here or on another rank: nothing that it has queued waits for others from now on, and all
     * that is left is destroy. Keeps tri_last_error(). NULL: nothing is queued. */
    void (*stop)(tri_sync *sync);
    /* There are no more steps, and all ranks have got here. Collective. NULL: nothing is to be done. */
    void (*end)(tri_sync *sync);
    void (*destroy)(tri_sync *sync);
} tri_sync_ops;

/* First member of each implementation's struct. */
struct tri_sync {
    const tri_sync_ops *ops;
    float **grads;      /* [part_count] arrays of tri_params_grad_count() + TRI_PARAMS_TAIL elements: the backward pass
                           writes them, finish leaves the sum over all ranks in the first; NULL: hooks place them */
    bool whole;         /* finish leaves all sums in grads[0]; else each piece's */
    float *tail;        /* of the first part; its sum over all ranks. The host's, whatever has the gradients */
    int64_t step;       /* the trainer's, from 0 */
    int64_t next_step;  /* after publish, where the next one is not step + 1; -1: it is */
    int64_t part;       /* where parts of the batch are dealt: the one to compute in that step */
    float grad_scale;   /* the trainer's, before publish: what the sums are multiplied with */
    bool ahead;         /* the next step may begin before all sums are there */
    bool over;          /* the trainer's: ranks do not meet (again) before `end` */
    bool begun;         /* of ranks apart: what is alike on all of them is there (state) */
    float called;       /* of ranks apart: what this rank put into TRI_TAIL_CALL of the sum that the tail has now */
    int64_t exposed_ns; /* of the last step: time spent waiting in finish and publish */
    int64_t waited_ns;  /* since the sync was made: time spent waiting in hooks */
    int64_t computing_ns;     /* of the last finish: in which the device still computed gradients */
    float *own;               /* of ranks apart, between meet and part: this rank's own weights; the host's */
    const tri_device *beside; /* has the queue of its sums on the same card; NULL: there is none */
    tri_sync *inner; /* of sync_staged.c: the strategy, over arrays of the host; NULL: it is the strategy itself */
    const tri_sync_piece *pieces; /* what this rank moves; NULL: the slice that finish gives */
    int piece_count;
};

/* All rows, NULL at the end. */
extern const tri_sync_ops *const tri_sync_table[]; /* by tri_sync_kind */
/* Whether each rank moves weights of its own, and by its own gradients alone, from one exchange to the next. */
bool tri_sync_is_local(const tri_parallel_config *config);
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
/* What such a rank keeps, with what passes through, compressed sums as between hosts; no group is looked at. On a
 * device that has memory of its own, weights and gradients are there, and `host` is what the strategy keeps of them on
 * the host (sync_staged.c). */
typedef struct tri_sync_bytes {
    size_t weights, gradients, outer; /* outer: diloco's anchor, momentum and sums; of the host */
    size_t host;
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
