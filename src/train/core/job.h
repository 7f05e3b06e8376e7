/* SPDX-License-Identifier: Apache-2.0
 *
 * job.h: everything one rank of a run holds. build.c makes it, loop.c and step.c run it.
 */
#ifndef TRI_TRAIN_JOB_H
#define TRI_TRAIN_JOB_H

#include <trireme/train.h>

#include "base/strain.h"
#include "base/trace_id.h"
#include "data/held.h"
#include "data/identity.h"
#include "interop/pretrained.h"
#include "monitor/ledger.h"
#include "monitor/metrics.h"
#include "monitor/slow.h"
#include "monitor/trace.h"
#include "nn/graph.h"
#include "parallel/mesh.h"
#include "parallel/nccl_sums.h"
#include "parallel/pipeline.h"
#include "parallel/tensor.h"
#include "train/checkpointing/shard_map.h"
#include "train/core/config.h"
#include "train/core/control.h"
#include "train/elastic/state_shard.h"

/* The part of the data that a run looks at besides training: that for validation, or, where there is none, the test
 * part. Evaluated in the same shards as training. */
typedef struct tri_job_test {
    tri_data_part part;
    tri_loader *loader; /* NULL: there is no such part */
    tri_sampler sampler;
    int64_t first_shard, shard_count; /* that this rank evaluates */
    double *sums;                     /* [shards][columns]: this rank's shards filled, the others zero: those of the
                                         loss; of real targets (regression.c) further ones */
    int64_t columns;
    bool classes;          /* targets are classes: accuracy has a meaning */
    bool tokens;           /* several classes per sample: perplexity has a meaning */
    double loss, accuracy; /* of the last evaluation; NaN: none */
    double perplexity;     /* likewise; NaN also: targets are no tokens */
    double weight;         /* targets that counted in it */
    double mae, r2;        /* of real targets; NaN: not known */
} tri_job_test;

/* gradient_accumulation.c: where a large part of the batch is computed piece by piece: one gradient array per level of
 * its tree. */
typedef struct tri_accumulation {
    int64_t at_once; /* shards */
    float **scratch; /* [levels] arrays; NULL when all shards are computed at once */
    int levels;
    bool searching; /* for how many at once are fastest: */
    int steps;      /* so far with `at_once`, */
    double least_s; /* the least time of one of them, forward and backward, */
    int64_t best;   /* the fastest number before it (0: none), */
    double best_s;  /* its time, */
    double all_s;   /* and that of all shards at once */
} tri_accumulation;

/* Sums of batch norms over the whole batch, and how data ranks add them up (batch_sums.c). */
typedef struct tri_job_batch_sums {
    int64_t count;    /* numbers of one sum, at most; 0: the model has none */
    int64_t *parts;   /* [data ranks]: parts of the tree that each has; NULL: one each */
    int64_t *counts;  /* [data ranks]: of a gather */
    double *gathered; /* the parts of all */
    tri_tree_step *steps;
    int step_count;   /* of their tree */
    int64_t spent_ns; /* so far */
} tri_job_batch_sums;

/* plan.c: what a rank allocates for a run, bytes; data sets, input batches and buffers of links are not counted.
 * snapshot: of what it writes of a checkpoint, if it is written during training. gradients: with partial sums and
 * what compressed sums keep; activations: with scratch of ops, and what crosses between stages; apart: if no two shared
 * memory. With a card, all but the snapshot is in its memory, and `host` is what the host has besides: copies of what
 * travels to other ranks. */
typedef struct tri_job_memory {
    size_t weights, gradients, optimizer;
    size_t activations, activations_apart;
    size_t snapshot;
    bool card;
    size_t host;
} tri_job_memory;

/* The scalars of the training state, the same on all ranks; weights and the optimizer's arrays are elsewhere
 * (scalar_state.c). */
typedef struct tri_scalar_state {
    int64_t step, step_before, first_step, saved_step;
    double loss_scale[3], guard[4];
    int32_t guard_acts, drops; /* of the run, whoever has seen them */
    char bits[128];
    uint64_t samples; /* sum of their marks, of the last step */
    tri_step_record record;
    double test[6];
} tri_scalar_state;

/* A data set of no more is read once and not again in each generation: to unpack Fashion-MNIST takes longer than all
 * else of a recovery. */
#define TRI_JOB_KEPT_NBYTES ((size_t)64 << 20)

/* reform.c: of a job whose ranks come and go. */
typedef struct tri_job_elastic {
    bool on;
    bool console;             /* rank 0, whoever it is, has one */
    bool has_state;           /* weights and optimizer state are those after job->step */
    bool touched;             /* without one: they are not those of the seed any more */
    tri_scalar_state begin;   /* before the first step */
    bool exchange_pending;    /* ranks apart: the step is made but for the exchange behind it */
    float *common;            /* ranks apart: what is alike on all, between generations; NULL: nothing is */
    bool kept;                /* it is there */
    tri_kept grads;           /* memory of gradients, from generation to generation */
    int64_t hash;             /* of the weights that this rank has handed on, while a generation forms */
    bool hashed;              /* it is there */
    bool dropped;             /* replicas differ without a majority: no state counts */
    bool behind;              /* whoever has a state was away so long that a checkpoint is newer */
    bool ends;                /* after this step: the ranks shall be others; the same on all */
    bool leaves;              /* then: this one does */
    const char *leave_reason; /* this rank shall leave; NULL: it shall not */
    bool wished;              /* with this step it said that it wants to, */
    int leavers;              /* as this many do */
    char *resume;             /* run folder that the first generation continues, or NULL */
    bool or_begin;            /* with resume: begins where that run has no checkpoint yet */
    tri_dataset *data;        /* of training */
    tri_dataset *test;        /* NULL: not opened yet, or none */
    tri_held held[2];         /* samples of either, from generation to generation */
    int64_t number;           /* of the generation */
    tri_isa isa;              /* the best instruction set that this worker offers */
    tri_scalar_state before;  /* the step under way */
    /* Agrees with the other ranks, by the store, whether the generation has formed: the first rank's word is
     * everybody's answer. NULL: there are no other ranks. */
    tri_status (*formed)(void *arg, bool word, bool *stands);
    bool given_up;                    /* all know that it has not */
    uint64_t spec_hash, claimed_hash; /* of what all must have in common (spec.h), and of what it has claimed */
    int misfit;                       /* rank of one that differs in what all must have alike; -1: none */
    int64_t lost_ns; /* when the last generation ended with a lost rank; 0: none has, or a step was made since */
    bool (*called)(void *arg);             /* somebody wants to join; NULL: nobody can */
    bool (*may_go)(void *arg);             /* enough others are left, or a spare is there; NULL: nobody may */
    void *called_arg;                      /* of all of them */
    const struct tri_elastic_place *place; /* NULL: it is no simulation */
} tri_job_elastic;

/* How far this rank is with a step. READY: of a sharded state alone. MOVED: also of ranks apart (local SGD), before
 * their exchange. Elsewhere always OPEN: a step that fails has moved nothing. */
typedef enum tri_step_phase {
    TRI_STEP_OPEN,  /* nothing has moved, and something may be missing */
    TRI_STEP_READY, /* nothing has moved, and all that moves is here, for the own role and the mirror's */
    TRI_STEP_MOVED  /* they have moved; job->step is not yet the next one */
} tri_step_phase;

/* A step for which this rank was READY, and of which it does not know whether somebody has made it
 * (uncommitted_step.c): of the set of `generation`; 0: there is none. */
typedef struct tri_uncommitted_step {
    int64_t generation;
    tri_scalar_state under_way; /* what the step has found out, and has not counted yet */
    tri_optim_scalars update;
    tri_sync_piece *pieces; /* of the own role, then of the mirror */
    int own_count, count;
    float *own_sums, *sums; /* theirs, in memory of the device */
} tri_uncommitted_step;

/* Of elastic runs whose state is sharded (mirrors.c, reform_assignment.c; docs/design/recovery.md). */
typedef struct tri_job_assignment {
    bool on;
    tri_mesh wish; /* sizes that the configuration gives */
    char cut_at[sizeof(((tri_parallel_config *)NULL)->cut_at)];
    bool even;                     /* data ranks must be a power of two */
    tri_assignment_state state;    /* that the generation continues from */
    tri_shard_set now;             /* of this generation; its own params and optim are those of the job */
    tri_shard_set kept;            /* what was here before, until all have what they shall have */
    tri_scalar_state kept_scalars; /* what of that is no array; acted: as in job->progress */
    bool kept_acted;
    bool formed;  /* `now` is complete here, */
    bool settled; /* and with all ranks */
    tri_uncommitted_step uncommitted;
    int mirrored;               /* rank whose role the mirror is; -1: there is no mirror */
    tri_scalar_state under_way; /* what a step that failed had found out */
    tri_sync_piece *pieces;     /* of the mirror */
    int piece_count;            /* of them */
    float *sums;                /* theirs, in memory of the device */
    tri_device_view *views;     /* of what the batch sends, the own pieces' sums, and last of `sums` */
    int view_count;
    tri_batch *batch;                /* the sums of this role go to its mirror, those of the other one come; or NULL */
    int64_t every;                   /* steps from one comparison of parts with their mirrors to the next; 0: none */
    int in_a_row;                    /* repairs of them, of this step */
    tri_state_shard_sight sights[2]; /* of the own role and the mirror, when they were compared last */
    int64_t good_step;               /* after which they were compared for a save, and the same; -1: none */
    int64_t nbytes;                  /* that it sends */
} tri_job_assignment;

/* What a run writes, and where. */
typedef struct tri_job_output {
    char *folder;         /* of the run; NULL: nothing is written */
    char *seen_folder;    /* of a worker that does not write the run: where it says what it does; NULL: nowhere */
    tri_metrics *metrics; /* rank 0 with a run folder, else NULL */
    tri_console *console; /* rank 0 with console, else NULL */
    bool quiet;           /* plan.c: of a run that says the same itself */
    bool result_printed;  /* the run's last lines, by this process */
} tri_job_output;

/* What identifies a run, and whether its bits are reproducible. */
typedef struct tri_job_identity {
    char trace_id[TRI_TRACE_ID_NBYTES]; /* the same on all ranks */
    uint64_t config_hash;
    char arithmetic[160]; /* of a card, with the algorithms of all ranks; "": not known yet (products.c) */
    char bits[128];       /* "reproducible", or why they are not */
} tri_job_identity;

/* The training data (eval, predict: those that the model was trained on), and what reads them. */
typedef struct tri_job_dataset {
    tri_dataset_info info;
    tri_data_identity fingerprint; /* of the training set: on rank 0, and whoever may become it */
    tri_class_names names;         /* of its classes; in: */
    tri_arena names_arena;
    struct tri_table *table; /* held: what the columns mean; NULL: the data are no table */
    tri_loader *loader;      /* NULL between generations, and where nothing is trained */
    tri_sampler sampler;
} tri_job_dataset;

/* The model, and what runs it. */
typedef struct tri_job_model {
    tri_graph *graph;            /* of a model in one stage, else NULL */
    tri_pipeline *pipeline;      /* of a model in several stages, else NULL */
    tri_stages stages;           /* where it is cut into them */
    tri_job_memory stage_memory; /* plan.c: of a planned stage, which has no pipeline object */
    tri_tensor_ranks *tensor;    /* NULL: each layer is here whole */
    bool forward_only;           /* eval, predict: the graph has no backward pass */
    char weights_path[1200];     /* eval, predict: the checkpoint; empty: who trains */
    int64_t sample_rows;         /* of the embedding that reads the samples; 0: not known */
    tri_shape unordered;         /* image that the model flattens in no stated order; ndim 0: there is none */
    tri_pretrained *source;      /* rank 0, while the job is built: what model.from names; else NULL */
    bool *frozen;                /* [parameters of the model] those that stand still */
    tri_tensors tensors;         /* of the whole model */
} tri_job_model;

/* Which rank holds which elements of weights and optimizer state. */
typedef struct tri_job_placement {
    tri_shares shares;         /* of the store: who updates what */
    tri_spread spread;         /* what of weights, gradients and state is spread over ranks */
    tri_shard_map *weights_at; /* of the weights, */
    tri_shard_map *states_at;  /* and of the optimizer's state: often the same map */
    uint64_t weights_hash;     /* of weights that are spread, */
    int64_t hashed_step;       /* after this step; -1: none */
} tri_job_placement;

/* The shards of each batch that this rank computes. */
typedef struct tri_job_shards {
    int64_t first, count;
    int64_t rows;                            /* samples of a shard, at most */
    size_t input_nbytes, target_nbytes;      /* of one shard of the loader's batch */
    tri_tree_part parts[TRI_TREE_MAX_PARTS]; /* as whole subtrees, from shard 0 of the batch */
    int part_count;
    tri_accumulation accumulation;
    tri_job_batch_sums batch_sums;
} tri_job_shards;

/* The optimizer's update of a step. */
typedef struct tri_job_update {
    tri_optim_scalars scalars;   /* of the last step */
    tri_device_view norm_blocks; /* [block_count] of doubles: of the norm of the gradient */
    bool ahead;                  /* the update of some weights may overlap with the next step's forward pass */
    tri_gradient_hook hook;      /* of the program, or NULL */
    void *hook_arg;
} tri_job_update;

/* How far the run is, besides job->step. */
typedef struct tri_job_progress {
    int64_t steps, steps_per_epoch, first_step;
    int64_t step_before;       /* a worker of parameter servers may continue by no step, or by several */
    int64_t saved_step;        /* of the newest checkpoint of this run, or under way; -1 = none */
    tri_step_record committed; /* of the last step that was made: job->record may be of the one under way */
    tri_step_phase phase;      /* of the step under way, */
    int64_t step_start_ns;     /* which has begun then */
    bool acted;                /* what comes after job->step steps (features.h) is done */
    bool stop_wanted;          /* some rank was asked to stop; the same on all ranks after a step */
} tri_job_progress;

/* Times and rates of this process. */
typedef struct tri_job_throughput {
    int64_t sample_tokens;             /* 0: samples are no sequences */
    double sample_flops;               /* forward and backward */
    double peak_flops;                 /* per second, of all ranks; 0: not known */
    double settling_s;                 /* time in this step's forward pass that went into the last step's update */
    int64_t waited_ns;                 /* sync->waited_ns and batch_sums.spent_ns, when step.c last read them */
    uint64_t sent_nbytes;              /* when the last step ended */
    double trained_s, trained_samples; /* since it began */
} tri_job_throughput;

/* Whether a library multiplies on the card, and what sums gradients between ranks: NCCL or the host. */
typedef struct tri_job_card {
    char no_library[160];              /* why none multiplies; "": none was wanted, or one does */
    tri_sync_cards sums;               /* all zero: the host sums */
    char sums_line[560];               /* the line that says it; "": none has */
    char no_nccl[TRI_NCCL_WHY_NBYTES]; /* why NCCL is not used again by this process; "": it may be */
} tri_job_card;

/* All that one rank of a run holds. Direct members: the ranks, the device, and the objects that a step works on; the
 * rest by subject. What belongs to one generation ends with tri_job_unform(). */
struct tri_job {
    tri_config config;
    tri_comm *comm;     /* NULL: alone */
    tri_comm *own_comm; /* opened by this job */
    tri_cluster alone;  /* of own_comm */
    tri_group *group;   /* of all ranks */
    int rank, world, threads;
    tri_sync_servers servers; /* parameter servers, of which this is a worker; then world is 1. client NULL: none */
    tri_mesh mesh;
    tri_device *device; /* in whose memory weights, state, gradients and activations are */
    tri_params *params;
    tri_optim *optim;
    tri_sync *sync;
    int met; /* tri_job_meet() without tri_job_part() (local_sgd.c) */
    int64_t step;
    tri_step_record record; /* of the last step */
    tri_job_output output;
    tri_job_identity identity;
    tri_job_dataset data;
    tri_job_model model;
    tri_job_placement placement;
    tri_job_shards shards;
    tri_job_test test;
    tri_job_update update;
    tri_job_progress progress;
    tri_job_throughput throughput;
    tri_job_card card;
    tri_job_elastic elastic;
    tri_job_assignment assignment;
    tri_job_control control;
    void **states; /* of the features (features.h) */
};

/* How job->identity.bits begins where a flipped bit was found only after steps that may have used it. */
#define TRI_BITS_LATE "not reproducible (a flipped bit was in use "
/* loop.c: a job with its place among the ranks of comm (NULL: alone), and nothing else. */
tri_status tri_job_create(tri_comm *comm, const char *run_folder, tri_job **out);
/* From now on calls of job->group wait an hour, for a rank that reads or writes files, until
 * tri_group_limit(job->group, what this returns). */
double tri_job_patience_begin(tri_job *job);
/* Waits for all ranks, of which one may read or write files, an hour instead of comm.timeout_s; collective. */
tri_status tri_job_await_all(tri_job *job);
/* Closes what could not be opened; the others hear why. Returns `status`, whose message stays. */
tri_status tri_job_open_failed(tri_job *job, tri_status status);
/* card_sums.c: before memory of a card is freed: where a rank is lost, nothing waits for it any more. */
void tri_job_sums_stop(tri_job *job);
/* No rank makes a further step with these ranks. Collective; again, or behind a failure, it does nothing. */
tri_status tri_job_sums_end(tri_job *job);
/* The last lines of a run, once: a generation that ends what is done says nothing again. Collective. */
tri_status tri_job_print_result(tri_job *job);
/* TRI_ECANCELED: a signal has ended it, and the step is saved. */
tri_status tri_job_stopped(const tri_job *job);
/* Not the first worker: writes nothing, evaluates nothing, loads no files. */
bool tri_job_follows(const tri_job *job);
/* The number by which others know this one, and how many there are: of workers of parameter servers, who know no other
 * ranks; else of ranks. */
int tri_job_number(const tri_job *job);
int tri_job_count(const tri_job *job);
/* loop.c: a stop ended the evaluation that the end of the run asks for, so the run is not over. */
bool tri_job_evaluation_is_cut(const tri_job *job);
/* By all ranks. Rank 0 writes it to the log and metrics.jsonl; a rank that may continue that file keeps the line. */
tri_status tri_job_event_tell(tri_job *job, const char *event, const char *text);
/* features.c: what comes each `every` steps (0: never) and at the end. */
bool tri_job_is_due(const tri_job *job, int64_t every);
/* local_sgd.c: ranks with weights of their own (tri_sync_is_local), and workers of parameter servers with rounded ones.
 * Elsewhere meet and part do nothing. Between meet and part, which may be nested, the weights are the mean of all
 * ranks' (collective), or the servers'. */
bool tri_job_has_own_weights(const tri_job *job);
/* The kind of tri_kernel_plan() that its graphs are planned with, and what their bits depend on: ranks with another
 * text are refused, and a checkpoint has it. */
const char *tri_job_kernels(const tri_job *job);
const char *tri_job_arithmetic(const tri_job *job);

#endif
