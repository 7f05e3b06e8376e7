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
#include "parallel/pipeline.h"
#include "parallel/tensor.h"
#include "train/config.h"
#include "train/control.h"
#include "train/inventory.h"
#include "train/stock.h"

/* The part of the data that a run looks at besides training: that for validation, or, where there is none, the test
 * part. Evaluated in the same shards as training. */
typedef struct tri_job_test {
    tri_data_part part;
    tri_loader *loader; /* NULL: there is no such part */
    tri_sampler sampler;
    int64_t first_shard, shard_count; /* that this rank evaluates */
    double *sums;                     /* [shards][TRI_LOSS_COLUMNS]: this rank's shards filled, the others zero */
    bool classes;                     /* targets are classes: accuracy has a meaning */
    bool tokens;                      /* several classes per sample: perplexity has a meaning */
    double loss, accuracy;            /* of the last evaluation; NaN: none */
    double perplexity;                /* likewise; NaN also: targets are no tokens */
    double weight;                    /* targets that counted in it */
} tri_job_test;

/* waves.c: where a large part of the batch is computed piece by piece: one gradient array per level of its tree. */
typedef struct tri_job_waves {
    int64_t shards;  /* computed at once */
    float **scratch; /* [levels] arrays; NULL when all shards are computed at once */
    int levels;
    bool searching; /* for how many at once are fastest: */
    int steps;      /* so far with `shards` at once, */
    double least_s; /* the least time of one of them, forward and backward, */
    int64_t best;   /* the fastest number before it (0: none), */
    double best_s;  /* its time, */
    double all_s;   /* and that of all shards at once */
} tri_job_waves;

/* batch_sums.c: of batch norms over the whole batch. */
typedef struct tri_job_batch_sums {
    int64_t count;    /* numbers of one sum, at most; 0: the model has none */
    int64_t *parts;   /* [data ranks]: parts of the tree that each has; NULL: one each */
    int64_t *counts;  /* [data ranks]: of a gather */
    double *gathered; /* the parts of all */
    tri_tree_step *steps;
    int step_count;   /* of their tree */
    int64_t spent_ns; /* so far */
} tri_job_batch_sums;

/* loss_scale.c: with values in f16. */
typedef struct tri_job_scale {
    double now;         /* a power of two; 0: there is none */
    int64_t good, lost; /* steps since it last changed; in a row that were skipped */
} tri_job_scale;

/* guard.c: train.on_nonfinite, train.on_spike. */
typedef enum tri_guard_act { TRI_GUARD_OFF, TRI_GUARD_STOP, TRI_GUARD_SKIP, TRI_GUARD_ROLLBACK } tri_guard_act;
typedef struct tri_job_guard {
    tri_guard_act on_nonfinite, on_spike;
    double loss;       /* mean of the latest steps, */
    int64_t steps;     /* of so many */
    int64_t acts;      /* steps of this run that were skipped or rolled back */
    double first_loss; /* of the first step that had one, 0: none had */
    bool grown;        /* far beyond it, which is warned of once */
    /* rollback: what the run was before step copy_step (-1: none yet); arrays as in tri_job_arrays */
    float *copies[1 + TRI_OPTIM_MAX_STATE];
    int64_t copy_step, copy_steps;
    double copy_loss;
    tri_job_scale copy_scale;
} tri_job_guard;

/* verify.c: train.verify_every. */
typedef struct tri_job_verify {
    int64_t every;                /* steps; 0: nothing is compared */
    uint64_t *digests;            /* [tiles of the store] */
    int64_t drops, own, compared; /* of all copies; repairs of what is here; step before which all were alike last */
    int in_a_row;                 /* of this step */
} tri_job_verify;

/* stragglers.c: train.on_straggler. Seconds of own work, of each rank where there are several. */
typedef struct tri_job_stragglers {
    double *busy;         /* [world]: since it was judged last; NULL: nobody looks */
    double *sorted;       /* [world] */
    bool *named;          /* [world]: slow when it was judged last */
    int64_t judged_steps; /* in busy */
    bool leaves;          /* this rank is slow, and shall leave */
} tri_job_stragglers;

/* used.c: which samples, as the sum of their marks (data.h). */
typedef struct tri_job_used {
    uint64_t own, sum;  /* of the step under way: of this rank's shards; of the batch */
    uint64_t all;       /* of the last step that was made */
    tri_ledger *ledger; /* rank 0, and whoever may become it; NULL: none is kept */
} tri_job_used;

/* What rates are compared with. */
typedef struct tri_job_figures {
    int64_t tokens; /* of a sample; 0: samples are no sequences */
    double flops;   /* of a sample, forward and backward */
    double peak;    /* flop/s of all ranks; 0: not measured */
} tri_job_figures;

/* plan.c: what a rank allocates for a run, bytes; data sets, input batches and buffers of links are not counted.
 * snapshot: of what it writes of a checkpoint, where that goes on beside the training. gradients: with partial sums and
 * what compressed sums keep; activations: with scratch of ops, and what crosses between stages; apart: if no two shared
 * memory. */
typedef struct tri_job_memory {
    size_t weights, gradients, optimizer;
    size_t activations, activations_apart;
    size_t snapshot;
} tri_job_memory;

/* What saving needs (save.c). */
typedef struct tri_job_saver tri_job_saver;

/* What of a state is no array; the same on all ranks (reform_state.c). */
typedef struct tri_job_rest {
    int64_t step, step_before, first_step, saved_step;
    tri_job_scale scale;
    double guard[4];
    int32_t guard_acts, drops; /* of the run, whoever has seen them */
    char bits[128];
    uint64_t used;
    tri_step_record record;
    double test[4];
} tri_job_rest;

/* A data set of no more is read once and not again in each generation: to unpack Fashion-MNIST takes longer than all
 * else of a recovery. */
#define TRI_JOB_KEPT_NBYTES ((size_t)64 << 20)

/* reform.c: of a job whose ranks come and go. */
typedef struct tri_job_elastic {
    bool on;
    bool console;        /* rank 0, whoever it is, has one */
    bool has_state;      /* weights and optimizer state are those after job->step */
    bool touched;        /* without one: they are not those of the seed any more */
    tri_job_rest begin;  /* before the first step */
    bool owes;           /* ranks apart: the step is made but for the exchange behind it */
    float *common;       /* ranks apart: what is alike on all, between generations; NULL: nothing is */
    bool kept;           /* it is there */
    tri_kept grads;      /* memory of gradients, from generation to generation */
    int64_t hash;        /* of the weights that this rank has handed on, while a generation forms */
    bool hashed;         /* it stands there */
    bool dropped;        /* nobody knows whose state is right: none counts */
    bool behind;         /* whoever has a state was away so long that a checkpoint is newer */
    bool ends;           /* after this step: the ranks shall be others; the same on all */
    bool leaves;         /* then: this one does */
    bool wished;         /* with this step it said that it wants to, */
    int leavers;         /* as so many do */
    char *resume;        /* run folder that the first generation continues, or NULL */
    bool or_begin;       /* with resume: begins where that run has no checkpoint yet */
    tri_dataset *data;   /* of training */
    tri_dataset *test;   /* NULL: not opened yet, or none */
    tri_held held[2];    /* samples of either, from generation to generation */
    int64_t number;      /* of the generation */
    tri_isa isa;         /* the best instruction set that this worker offers */
    tri_job_rest before; /* the step under way */
    /* What stands in the store: has the generation formed? The first word of all that ask is everybody's. NULL: there
     * are no others. */
    tri_status (*formed)(void *arg, bool word, bool *stands);
    bool given_up;                         /* it stands that it has not */
    uint64_t spec_hash, claimed_hash;      /* of what all must have in common (spec.h), and of what it has claimed */
    int misfit;                            /* rank of one that differs in what all must have alike; -1: none */
    int64_t lost_ns;                       /* when it was called; 0: nothing was lost, or it has made a step since */
    bool (*called)(void *arg);             /* somebody wants to join; NULL: nobody can */
    bool (*may_go)(void *arg);             /* enough others are left, or a spare is there; NULL: nobody may */
    void *called_arg;                      /* of all of them */
    const struct tri_elastic_place *place; /* NULL: it is no simulation */
} tri_job_elastic;

/* What monitor.trace needs (trace.c). */
typedef struct tri_job_trace tri_job_trace;
/* What monitor.watch_every_s needs (watch.c). */
typedef struct tri_job_watch tri_job_watch;
/* What some rank wants of all (asks.c). */
typedef struct tri_job_asks {
    int own;   /* steps that this rank shall have traced, and nobody has been told yet */
    int steps; /* that all trace from the next one on; 0: none */
    bool look;
    int64_t looked_ns; /* for a wish from another host */
    /* With parameter servers (notes.c): */
    int wish;         /* steps that somebody has asked this worker to have traced */
    int64_t from, to; /* the latest window that the first worker has told of; both 0: none */
    int64_t ahead;    /* how many steps ahead of it that was told */
    int moved;        /* how often it was told again, because some worker had heard of it too late */
} tri_job_asks;
/* What monitor.metrics needs (live.c). */
typedef struct tri_job_live tri_job_live;
/* What monitor.tensorboard needs (show.c). */
typedef struct tri_job_show tri_job_show;

/* How far this rank is with a step of a state that is spread. */
typedef enum tri_step_phase {
    TRI_STEP_OPEN,  /* nothing has moved, and something may be missing */
    TRI_STEP_READY, /* nothing has moved, and all that moves is here, for the own role and the mirror's */
    TRI_STEP_MOVED  /* they have moved; job->step is not yet the next one */
} tri_step_phase;

/* A step for which this rank was READY, and of which it does not know whether somebody has made it (due.c): of the set
 * of `generation`; 0: there is none. */
typedef struct tri_job_due {
    int64_t generation;
    tri_job_rest under_way; /* what the step has found out, and has not counted yet */
    tri_optim_figures moves;
    tri_sync_piece *pieces; /* of the own role, then of the mirror */
    int own_count, count;
    float *own_sums, *sums; /* theirs */
} tri_job_due;

/* Of elastic runs whose state is sharded (mirrors.c, reform_roles.c; docs/design/recovery.md). */
typedef struct tri_job_roles {
    bool on;
    tri_mesh wish; /* sizes that the configuration gives */
    char cut_at[sizeof(((tri_parallel_config *)NULL)->cut_at)];
    bool even;              /* data ranks must be a power of two */
    tri_role_state state;   /* that the generation goes on with */
    tri_stock_set now;      /* of this generation; its own params and optim are those of the job */
    tri_stock_set kept;     /* what was here before, until all have what they shall have */
    tri_job_rest kept_rest; /* what of that is no array; acted: as in the job */
    bool kept_acted;
    bool formed;  /* `now` is complete here, */
    bool settled; /* and with all ranks */
    tri_job_due due;
    int mirrored; /* rank whose role the mirror is; -1: there is no mirror */
    tri_step_phase phase;
    tri_job_rest under_way;    /* what a step that failed had found out */
    tri_sync_piece *pieces;    /* of the mirror */
    int piece_count;           /* of them */
    float *sums;               /* theirs */
    tri_batch *batch;          /* the sums of this role go to its mirror, those of the other one come; or NULL */
    int64_t every;             /* steps from one comparison of parts with their mirrors to the next; 0: none */
    int in_a_row;              /* repairs of them, of this step */
    tri_stock_sight sights[2]; /* of the own role and the mirror, when they were compared last */
    int64_t nbytes;            /* that it sends */
    int64_t step_start_ns;     /* of the step under way */
} tri_job_roles;

/* What train.sample_every needs (sample.c). */
typedef struct tri_job_sampler tri_job_sampler;

struct tri_job {
    tri_config config;
    tri_comm *comm;     /* NULL: alone */
    tri_comm *own_comm; /* opened by this job */
    tri_cluster alone;  /* of own_comm */
    tri_group *group;   /* of all ranks */
    int rank, world, threads;
    char trace_id[TRI_TRACE_ID_NBYTES]; /* of the run; the same on all ranks */
    tri_sync_servers servers; /* parameter servers, of which this is a worker; then world is 1. client NULL: none */
    tri_mesh mesh;
    char *run_folder;       /* NULL: nothing is written */
    char *seen_folder;      /* of a worker that does not write the run: where it says what it does; NULL: nowhere */
    tri_dataset_info info;  /* of what it is or was trained on, */
    tri_data_identity data; /* of the training set: on rank 0, and whoever may become it; */
    tri_class_names names;  /* and what its classes are called; in: */
    tri_arena names_arena;
    struct tri_table *table; /* held: what the columns of its data mean; NULL: they are no table */
    bool forward_only;       /* a trained model is looked at: the graph has no way down */

    tri_shape unordered;       /* image that the model flattens in no stated order; ndim 0: there is none */
    tri_pretrained *source;    /* rank 0, while the job is built: what model.from names; else NULL */
    bool *frozen;              /* [parameters of the model] those that stand still */
    tri_tensors tensors;       /* of the whole model */
    tri_inventory *weights_at; /* who holds what of the weights, */
    tri_inventory *states_at;  /* and of the optimizer's state: often the same */
    uint64_t hash;             /* of weights that are spread, */
    int64_t hashed_step;       /* after this step; -1: none */
    tri_params *params;
    tri_graph *graph;            /* NULL: */
    tri_pipeline *pipeline;      /* the model is in stages */
    tri_stages stages;           /* of these */
    tri_job_memory stage_memory; /* of a job without others, which has neither */
    tri_tensor_ranks *tensor;    /* NULL: each layer is here whole */
    tri_optim *optim;
    tri_sync *sync;
    tri_loader *loader;
    tri_sampler sampler;
    tri_job_test test;
    tri_job_waves waves;
    tri_job_batch_sums batch_sums;
    tri_job_scale scale;
    tri_job_guard guard;
    tri_job_verify verify;
    tri_job_stragglers stragglers;
    tri_job_used used;
    double *norm_blocks;
    tri_shares shares;                       /* who owns what of the store */
    tri_spread spread;                       /* what of the run */
    int64_t first_shard, shard_count;        /* of this rank */
    int64_t rows;                            /* samples of a shard, at most */
    size_t input_nbytes, target_nbytes;      /* of one shard of the loader's batch */
    char weights_path[1200];                 /* of who looks at a trained model: its checkpoint; empty: who trains */
    int64_t sample_rows;                     /* of the embedding that reads the samples; 0: not known */
    tri_tree_part parts[TRI_TREE_MAX_PARTS]; /* this rank's shards as whole subtrees, from shard 0 of the batch */
    int part_count;

    int met;                 /* tri_job_meet() without tri_job_part() */
    bool ahead;              /* some weights may move in the step after their gradients' */
    tri_optim_figures moves; /* of the last step */
    tri_gradient_hook hook;  /* of the program, or NULL */
    void *hook_arg;
    double settling_s; /* of this step: what was settled in its forward pass */
    int64_t waited_ns; /* of the sync, as it was last read */

    int64_t step, steps, steps_per_epoch, first_step;
    int64_t step_before; /* a worker of parameter servers may go on by no step, or by several */
    tri_job_figures figures;
    tri_step_record record;            /* of the last step */
    tri_step_record made;              /* of the last step that was made: `record` may be of the one under way */
    uint64_t sent_nbytes;              /* by this process, when the last step ended */
    double trained_s, trained_samples; /* of this process since it began */
    bool acted;                        /* what comes after job->step steps (features.h) is done */
    tri_job_elastic elastic;
    tri_job_roles roles;
    bool stop_wanted;       /* some rank was asked to stop; the same on all ranks after a step */
    int64_t saved_step;     /* of the newest checkpoint of this run, or under way; -1 = none */
    tri_job_saver *saver;   /* NULL: nothing is trained */
    tri_job_sampler *texts; /* rank 0 with train.sample_every, else NULL */
    tri_job_show *show;     /* NULL: nobody wants to see */
    tri_job_live *live;     /* likewise */
    tri_job_trace *trace;   /* likewise */
    tri_job_watch *watch;   /* likewise */
    tri_job_asks asks;
    tri_job_control control;
    double best_loss; /* test loss of the best checkpoint, infinite: none; known to rank 0 */
    uint64_t config_hash;
    char bits[128];
    int64_t told_ns;      /* when the last line of a step was written, with monitor.step_every_s */
    tri_metrics *metrics; /* rank 0 with a run folder, else NULL */
    tri_console *console; /* rank 0 with console, else NULL */
    bool result_told;     /* the run's last lines, by this process */
};

/* loop.c: a job with its place among the ranks of comm (NULL: alone), and nothing else. */
tri_status tri_job_create(tri_comm *comm, const char *run_folder, tri_job **out);
/* Closes what could not be opened; the others hear why. Returns `status`, whose message stays. */
tri_status tri_job_open_failed(tri_job *job, tri_status status);
/* The last lines of a run, once: a generation that ends what is done says nothing again. Collective. */
tri_status tri_job_print_result(tri_job *job);
/* TRI_ECANCELED: a signal has ended it, and the step is saved. */
tri_status tri_job_stopped(const tri_job *job);
/* form.c, for the ranks that there are: the sync; loaders, and files and lines of rank 0 (borrows dataset). */
tri_status tri_job_form_moves(tri_job *job);
tri_status tri_job_form_run(tri_job *job, tri_dataset *dataset);
/* That all ranks have what they must have in common; collective. */
tri_status tri_job_check_equal(tri_job *job);
/* The same, of a worker that joins, before anything else is done together. */
tri_status tri_job_check_spec(tri_job *job);
/* build.c */
tri_status tri_job_build(tri_job *job, const tri_job_setup *setup);
/* Reads and checks the configuration; which shards are this rank's. */
tri_status tri_job_configure(tri_job *job, const tri_job_setup *setup);
/* The loader of what tri_job_evaluate() goes through: the test data, or the training data without augmentation. */
tri_status tri_job_open_evaluation(tri_job *job, tri_data_part part);
/* The part that a run is evaluated on while it goes on. */
tri_data_part tri_job_evaluated_part(const tri_job *job);
/* data_summary.c: what the data are, once in a run, on rank 0: samples, classes, and which of these a part lacks.
 * evaluated NULL: there is no such part. */
tri_status tri_job_data_tell(const tri_job *job, tri_dataset *training, tri_dataset *evaluated);
/* Its parts that need no other rank; config, rank and world of the job are set. */
int tri_job_threads(const tri_config *config, int local_count);
void tri_job_split_shards(tri_job *job);
/* waves.c: what is computed at once by the configuration; whether the first steps search for what is fastest (wants the
 * graph); memory for it; what a step has taken. */
void tri_job_waves_split(tri_job *job);
void tri_job_waves_plan(tri_job *job);
tri_status tri_job_waves_open(tri_job *job);
void tri_job_waves_close(tri_job *job);
void tri_job_waves_step(tri_job *job);
/* build.c: data whose classes are numbered as the job's are. */
tri_status tri_job_open_data(const tri_job *job, tri_data_part part, tri_dataset **dataset);
/* Also finds the number of steps, and the job's names of classes: those of the run that it goes on with, else those of
 * the data. setup NULL: it goes on with none. Collective over the job's comm, if it has one. */
tri_status tri_job_open_train_data(tri_job *job, const tri_job_setup *setup, tri_dataset **dataset);
/* For what this rank moves (job->shares). */
tri_status tri_job_open_optim(tri_job *job);
/* Finds out who owns what of the store; the slices of weights that are here (tri_free), NULL: all are. */
tri_status tri_job_share_out(tri_job *job, tri_slice **own, int *count);
/* Whether some rank computes its shards piece by piece: all ranks then have whole gradients. */
bool tri_job_is_pieced(const tri_job *job);
/* Without what is known of hosts. */
tri_sync_setup tri_job_sync_setup(const tri_job *job);
tri_status tri_job_build_model(tri_job *job, const tri_model *given, const tri_dataset_info *info);
/* The same of the configuration's model in two halves: what lasts as long as the job, and what is for these ranks. */
tri_status tri_job_build_store(tri_job *job, const tri_dataset_info *info);
tri_status tri_job_build_graph(tri_job *job);
/* Store and optimizer of another rank's role, its share alone, without values. */
tri_status tri_job_build_mirror(tri_job *job, int rank, tri_stock *stock);
/* plan.c. Of the rank that holds most, of `ranks` on one host; with compressed sums, of hosts of one rank each. Opens
 * the training data for the shape of its samples and builds the model. */
tri_status tri_job_memory_plan(const tri_config *config, int ranks, tri_job_memory *memory);
/* Of a rank of one stage: that with most shards. */
tri_status tri_job_stage_plan(const tri_config *config, int ranks, int stage, tri_job_memory *memory);
/* The same of the rank that holds most, and appends lines about the optimizer, each beginning with `prefix`: its
 * groups, and the learning rate as a plot. */
tri_status tri_job_describe(const tri_config *config, int ranks, tri_job_memory *memory, const char *prefix,
                            tri_string *notes);

/* reform_state.c: are its pages worth a question? A newcomer's memory is there before it asks to be one of `world`:
 * weights, state and gradients, as they will lie where all are on its host, or not. Without it the others wait in the
 * first step until the system has made them. */
bool tri_job_state_is_large(const tri_job *job);
tri_status tri_job_state_prepare(tri_job *job, int world, bool one_host);
/* reform.c: a job whose ranks come and go. Whether a configuration can have that. */
tri_status tri_elastic_check(const tri_config *config);
/* Without any ranks (setup->comm is not looked at): data sets, weights, optimizer. */
tri_status tri_job_open_elastic(const tri_job_setup *setup, tri_job **out);
/* Grows with what this job's state holds; -1: it has none. */
int64_t tri_job_progress(const tri_job *job);
/* Has anybody saved this step of the run, or a later one, whole? */
bool tri_job_is_saved(const tri_job *job, int64_t step);
/* The ranks went on without this one for a while: others have written on. */
void tri_job_lost_touch(tri_job *job);
/* Of one that is about to hand its state to ranks which have not seen all steps before it: metrics and ledger of these
 * steps are in their files then. So whoever has a state can write all that the files lack, whoever dies. */
tri_status tri_job_lines_settle(tri_job *job);
typedef struct tri_job_generation {
    int64_t number;             /* from 1 */
    int count;                  /* of ranks */
    const int64_t *progress;    /* of each */
    const tri_role_note *notes; /* what each has of a spread state */
} tri_job_generation;
/* What this process has of one. */
tri_role_note tri_job_role_note(const tri_job *job);
/* Before unform(): a step for which this rank was ready is made if somebody has made it, and else kept. */
tri_status tri_job_decide(tri_job *job, const tri_job_generation *generation);
/* For the ranks of comm, borrowed until tri_job_unform(); collective. All then have the newest state that one has.
 * After a failure: unform. */
tri_status tri_job_form(tri_job *job, tri_comm *comm, const tri_job_generation *generation);
void tri_job_unform(tri_job *job);
/* Trains until the end of the run, or elastic.ends. A failure leaves the state whole, and the others hear why. */
tri_status tri_job_run_generation(tri_job *job);
/* Nothing is left to do. */
bool tri_job_is_over(const tri_job *job);
/* Saves, and fails with words: too few ranks are left. Collective. */
tri_status tri_job_give_up(tri_job *job, int least);

/* reform_state.c: how one rank's whole state becomes everybody's. */
tri_job_rest tri_job_rest_of(const tri_job *job);
/* had_state: one step behind, it has not told of the last one. */
tri_status tri_job_rest_take(tri_job *job, const tri_job_rest *rest, bool had_state);
/* What is here of a state is of no use: the next generation does without it, and begins where a run does. */
void tri_job_state_drop(tri_job *job);
/* Says so. */
void tri_job_begin_tell(const tri_job *job, int64_t generation, bool found);
/* The newest state that anybody has is that after `step`: is a checkpoint more than a step newer? Collective. */
tri_status tri_job_is_behind(tri_job *job, int64_t generation, int64_t step, bool *behind);
/* Nobody has a state: that of the seed, of model.from, or the newest checkpoint; *found: that. Collective. */
tri_status tri_job_state_begin(tri_job *job, int64_t generation, bool *found);
tri_status tri_job_state_find(tri_job *job, const tri_job_generation *generation);
/* Is there a rank, by the progress of each, that has not seen how the state after step `newest` came about? */
bool tri_job_state_is_news(const tri_job *job, const int64_t *progress, int64_t newest);
/* reform_parts.c: the whole state of all ranks that have it ([world], the same on all) to the others; collective. */
tri_status tri_job_state_hand(tri_job *job, const bool *has);

/* reform_roles.c, where job->roles.on: what the configuration asks for; how many of so many ranks can work together
 * (all, where it is not on); the layout of so many ranks, into the configuration, which from then on does not say what
 * was asked for; stores and optimizer for it, of the own role and of the mirror; their contents (collective); and once
 * all ranks have them (collective). */
tri_status tri_job_roles_open(tri_job *job);
int tri_job_roles_fit(const tri_job *job, int ranks);
tri_status tri_job_roles_lay(tri_job *job, int ranks);
tri_status tri_job_roles_build(tri_job *job);
tri_status tri_job_roles_find(tri_job *job, const tri_job_generation *generation);
tri_status tri_job_roles_settle(tri_job *job);
/* Before a process says what it has: it finds out whether the generation had formed that it was in. */
tri_status tri_job_roles_resolve(tri_job *job);
void tri_job_roles_close(tri_job *job);
/* Collective where several want to leave at once: job->elastic.leaves. */
tri_status tri_job_leave_agree(tri_job *job);

/* mirrors.c: once the sync is there; collective. */
tri_status tri_job_mirror_open(tri_job *job);
void tri_job_mirror_close(tri_job *job);
/* Between the sums of a step and the moving of the weights, where job->roles.on: nothing moves anywhere before all
 * ranks have all that moves. same: nor if a part of the state and its mirror differ. */
tri_status tri_job_commit(tri_job *job, bool *same);
/* What this rank moves in a step, as the sync has it: into room for its pieces and one; returns how many. */
int tri_job_own_pieces(const tri_job *job, tri_sync_piece *pieces);
/* The mirror moves as its owner does. */
void tri_job_mirror_move(tri_job *job);
/* due.c: the step under way, for which this rank is ready, is kept for when it is known whether to make it; making it,
 * of the set that has it. */
tri_status tri_job_due_keep(tri_job *job);
tri_status tri_job_due_make(tri_job *job, tri_stock_set *set);
void tri_job_due_close(tri_job *job);

/* initial.c: model.from, model.freeze, model.reinit. The architecture, before its hash is formed; collective. */
tri_status tri_job_model_find(tri_job *job, const tri_job_setup *setup);
/* What data.tokenizer: auto stands for, as rank 0 finds it. */
tri_status tri_job_tokenizer_find(tri_job *job, const tri_job_setup *setup);
/* Rank 0's text, of at most so many bytes, on all ranks of more than one; the others' is empty. what: for messages. */
tri_status tri_job_text_spread(tri_job *job, tri_string *text, size_t limit, const char *what);
/* Marks what model.freeze names, in job->frozen. */
tri_status tri_job_freeze(tri_job *job, const tri_model *model);
/* Weights, over those of the seed; collective. */
tri_status tri_job_weights_find(tri_job *job);
void tri_job_initial_print(const tri_job *job, tri_console *console);
/* Rank 0, with a run folder: config.json of models that Hugging Face has too. */
tri_status tri_job_config_write(tri_job *job);

/* control.c (control.h): the sum over all ranks is started; there; told to all that want it. Whether control data
 * travel with each step. */
void tri_job_control_send(tri_job *job);
tri_status tri_job_control_wait(tri_job *job);
void tri_job_control_read(tri_job *job);
void tri_job_control_close(tri_job *job);
bool tri_job_control_travels(const tri_job *job);
/* step.c: one step, station 5 of the journey. */
tri_status tri_job_step_run(tri_job *job);
/* What follows in a step that was interrupted once the weights had moved. */
tri_status tri_job_step_end(tri_job *job);
/* The weights are those after the last step; a step leaves some to the next one where job->ahead. */
tri_status tri_job_settle(tri_job *job);
/* Those of one entry, for tri_graph_hooks. */
tri_status tri_job_entry_bring(void *job, int entry, const float **values);
/* stages.c: where the model is cut; the store of this rank's stages; their pipeline; where the last step's time went
 * (collective). */
tri_status tri_job_cut(tri_job *job, const tri_model *model, const tri_graph_config *graph);
tri_status tri_job_stage_store(tri_job *job, const tri_model *model);
tri_status tri_job_pipeline_make(tri_job *job, const tri_model *model, const tri_graph_config *graph);
tri_status tri_job_stages_print(tri_job *job);
/* What the graphs of this rank's stages take, of a job without others. */
tri_status tri_job_stage_memory(const tri_job *job, const tri_model *model, const tri_graph_config *graph,
                                tri_job_memory *memory);
/* used.c: RUN/ledger, where this run keeps one: opened on rank 0, and by whoever may become it, which keeps the latest
 * steps until it leads. */
tri_status tri_job_used_open(tri_job *job);
tri_status tri_job_used_lead(tri_job *job);
/* The step is made. */
void tri_job_used_write(tri_job *job);
/* weak.c: comm.chaos. Whether `trireme chaos` may strike. */
tri_status tri_job_weak_open(const tri_job *job);
/* hook.c: the gradients of this rank, to the program's hook. */
tri_status tri_job_hook_run(tri_job *job);
/* servers.c: parameter servers. Checks what the configuration says of them; before the shards are split. */
tri_status tri_job_servers_find(tri_job *job, struct tri_ps_client *client);
/* Not the first worker: writes nothing, evaluates nothing, loads no files. */
bool tri_job_follows(const tri_job *job);
/* The number by which others know this one, and how many there are: of workers of parameter servers, who know no other
 * ranks; else of ranks. */
int tri_job_number(const tri_job *job);
int tri_job_count(const tri_job *job);
/* Workers on this host. */
int tri_job_servers_local(const tri_job *job);
/* Once the number of steps is known. */
void tri_job_servers_plan(tri_job *job);
/* The first weights go to the servers, or those that they have come here; the step with them. */
tri_status tri_job_servers_start(tri_job *job);
/* refill.c: from now on a lost server is given its blocks of a checkpoint, where the others need not go back. */
void tri_job_refill_open(tri_job *job);
void tri_job_refill_close(tri_job *job);
/* Parts of a batch that workers are dealt one by one; 0: each has its share. */
int64_t tri_job_deals(const tri_job *job);
/* Whether what a worker computes with is rounded, and it has to fetch what it evaluates and saves. */
bool tri_job_servers_meets(const tri_job *job);
/* Before a checkpoint: the optimizer's state, as the servers have it. */
tri_status tri_job_servers_state(tri_job *job);
/* batch_sums.c: for a model whose batch norms are over the whole batch, once the graph is there; refuses layouts that
 * compute a batch in pieces. */
tri_status tri_job_batch_sums_make(tri_job *job, const tri_model *model);
void tri_job_batch_sums_close(tri_job *job);
/* loss_scale.c: before the first step. */
void tri_job_scale_open(tri_job *job);
/* Rank 0's becomes everybody's; collective. */
tri_status tri_job_scale_spread(tri_job *job);
/* guard.c: before the first step; after resuming, when rank 0's becomes everybody's (collective). */
tri_status tri_job_guard_open(tri_job *job);
void tri_job_guard_close(tri_job *job);
tri_status tri_job_guard_spread(tri_job *job);
/* What the run is now, before `step`, becomes what a rollback goes back to; with tri_guard_copies(). */
tri_status tri_job_guard_copy(tri_job *job, int64_t step);
/* loop.c: a stop ended the evaluation that the end of the run asks for, so the run is not over. */
bool tri_job_evaluation_is_cut(const tri_job *job);
/* By all ranks. Rank 0 writes it to the log and metrics.jsonl; a rank that may continue that file keeps the line. */
tri_status tri_job_event_tell(tri_job *job, const char *event, const char *text);
/* verify.c: once the model is there. */
tri_status tri_job_verify_open(tri_job *job);
/* The sums of a step are there: do replicas differ? The same on all ranks. */
bool tri_job_verify_differs(const tri_job *job);
/* Then, collective, between finish and publish or between steps: names and repairs them, or fails on all ranks. */
tri_status tri_job_verify_repair(tri_job *job);
/* `ranks` differ, and it cannot be said who is right: fails on all ranks; where these come and go, the next generation
 * begins at the newest checkpoint. Collective. */
tri_status tri_job_verify_tie(tri_job *job, const char *ranks);
tri_status tri_job_verify_drop(tri_job *job, const char *what);
/* train.verify_every, where so many bytes are hashed: steps; 0: off. */
int64_t tri_job_verify_steps(const tri_job *job, double nbytes);
/* verify_mirrors.c: parts of a spread state and their mirrors. Once these are there. */
tri_status tri_job_mirrors_verify_open(tri_job *job);
/* They are compared before this step moves them; the same on all ranks. */
bool tri_job_mirrors_due(const tri_job *job, int64_t step);
/* A set has been written, up to this step. */
void tri_job_mirrors_written(const tri_job *job, tri_stock_set *set, int64_t step);
/* Collective, called `name`; the same on all ranks. */
tri_status tri_job_mirrors_compare(tri_job *job, const char *name, bool *same);
/* Then, collective, where they are not the same: names and repairs them, or fails on all ranks. */
tri_status tri_job_mirrors_repair(tri_job *job);
/* Without the others: what has changed in memory since it was written takes no role any more. */
void tri_job_mirrors_check(const tri_job *job, tri_stock_set *set, int64_t step);
/* stragglers.c: whether a configuration can have them replaced; by watch.c, whose rows of all ranks are of so many
 * steps (collective). */
tri_status tri_stragglers_check(const tri_config *config, bool elastic);
tri_status tri_job_stragglers_open(tri_job *job);
void tri_job_stragglers_close(tri_job *job);
tri_status tri_job_stragglers_judge(tri_job *job, const tri_slow_row *rows, int64_t steps);
/* across.c: collective over the ranks that share one model out. The tail of the whole model's gradient, and gradients
 * of tied weights, once the sums over the data are there: */
tri_status tri_job_sums_meet(tri_job *job);
/* The operations of the whole model from those of its parts. */
tri_status tri_job_flops_meet(tri_job *job);
/* Whether this rank counts an entry that others may have too. */
bool tri_job_counts_entry(const tri_job *job, const tri_param *entry);
/* Norm of the mean gradient, from the sums that the sync has here. */
tri_status tri_job_gradient_norm(tri_job *job, double *norm);
/* evaluate.c: the test set, or the part of it that train.eval_batches asks for; collective. */
tri_status tri_job_evaluate(tri_job *job);
/* features.c: what comes each `every` steps (0: never) and at the end. */
bool tri_job_is_due(const tri_job *job, int64_t every);
/* Evaluates, tells the figures, and keeps the best checkpoint; collective. */
tri_status tri_job_evaluate_and_tell(tri_job *job);
/* sample.c, rank 0: sizes it. */
tri_status tri_job_sample_plan(tri_job *job, const tri_model *given, const tri_dataset_info *info);
/* live.c: figures of this rank, where somebody wants them. */
/* What holds this rank up, and why the others wait for it (NULL: they do not). */
void tri_job_live_strain(tri_job *job, const tri_strain *strain, const char *cause);
/* Something for a time line of the run. */
void tri_job_live_event(tri_job *job, const char *event, const char *text);
/* ids.c, collective: trace_id is found, and the log told who this is. The span of a rank, or of the steps that it
 * traces from `step` on (-1: of all); the same as what the log's lines belong to. */
tri_status tri_job_ids_meet(tri_job *job);
void tri_job_span_id(const tri_job *job, int rank, int64_t step, char span[TRI_SPAN_ID_NBYTES]);
void tri_job_who_tell(const tri_job *job, int64_t step);
/* show.c: a run for TensorBoard, on all ranks; what is called does nothing where it is off. Somebody else is rank 0. */
void tri_job_show_yield(tri_job *job);
/* show_pictures.c: a test batch went up; the first one of an evaluation is kept. */
void tri_job_show_batch(tri_job *job, const tri_batch *batch);
/* best.c: keeps the weights that were evaluated in RUN/best if they are better; on rank 0, with checkpoint.keep_best.
 */
tri_status tri_job_best_offer(tri_job *job);
/* dataset_info.c: dataset.yaml of a run folder: what the samples were, and what their classes are called, so that a
 * trained model can be used where they are not. Names are in the arena, info->table is held for the caller. */
tri_status tri_dataset_info_save(const tri_dataset_info *info, const tri_class_names *names, const char *path);
tri_status tri_dataset_info_load(const char *path, tri_dataset_info *info, tri_arena *names_arena,
                                 tri_class_names *names);
/* The same from its text, of at most so many bytes. */
#define TRI_DATASET_INFO_LIMIT ((size_t)64 << 20)
tri_status tri_dataset_info_parse(const char *text, size_t nbytes, const char *path, tri_dataset_info *info,
                                  tri_arena *names_arena, tri_class_names *names);
/* 0: there are none. */
uint64_t tri_class_names_hash(const tri_class_names *names);
/* Of the classes' names and the columns of a table. */
uint64_t tri_job_classes_hash(const tri_job *job);
/* Takes over a hold of the table: data that are opened later have its columns. */
void tri_job_table_set(tri_job *job, const struct tri_table *table);
/* The same of what dataset.yaml says; without a table, numbers are read as they stand, as they were before there were
 * tables. */
void tri_job_info_take(tri_job *job, const tri_dataset_info *info);
/* arrays.c: who holds what; collective, once all objects are there. */
tri_status tri_job_inventories_open(tri_job *job);
void tri_job_inventories_close(tri_job *job);
/* Do ranks besides rank 0 have to give what a checkpoint needs? The same on all ranks. */
bool tri_job_is_spread(const tri_job *job);
/* Weights (0) and the optimizer's state of a rank, as the host sees them. */
typedef struct tri_job_arrays {
    tri_job *job;
    tri_arena arena;
    tri_device_view views[1 + TRI_OPTIM_MAX_STATE];
    int count;
    tri_checkpoint_pieces pieces; /* rank 0's way to the arrays of all */
} tri_job_arrays;
/* Does not move; ends with tri_job_arrays_close() whatever is returned. */
tri_status tri_job_arrays_open(tri_job *job, bool with_state, tri_job_arrays *arrays);
void tri_job_arrays_close(tri_job_arrays *arrays);
/* The host's view of them has changed. */
void tri_job_arrays_written(const tri_job_arrays *arrays);
/* Rank 0: names, shapes and places of all tensors of one array; texts are the arrays'. */
tri_status tri_job_arrays_slices(tri_job_arrays *arrays, int index, tri_checkpoint_slice *slices);
/* The other ranks, while rank 0 saves (they give) or loads all tensors of all arrays, in order. */
tri_status tri_job_arrays_follow(tri_job_arrays *arrays, bool gives);
/* What ranks that differ in their data alone have in common, from the first of them; collective. */
tri_status tri_job_arrays_spread(tri_job_arrays *arrays);
/* Of the weights after the last step; collective where they are spread, once a step. */
tri_status tri_job_weights_hash(tri_job *job, uint64_t *hash);
/* apart.c: ranks with weights of their own (tri_sync_is_apart), and workers of parameter servers with rounded ones.
 * Elsewhere meet and part do nothing. Between meet and part, which may be nested, the weights are the mean of all
 * ranks' (collective), or the servers'. */
bool tri_job_is_apart(const tri_job *job);
tri_status tri_job_meet(tri_job *job);
void tri_job_part(tri_job *job);
typedef struct tri_job_apart {
    tri_job *job;
    int own_count, common_count;                 /* arrays: of each rank, weights first; alike on all ranks */
    tri_device_view arrays[TRI_OPTIM_MAX_STATE]; /* the optimizer's */
    float *buffer;                               /* rank 0: a piece on its way */
    tri_checkpoint_pieces pieces;
} tri_job_apart;
/* Met (saving) or after rank 0 has read the model (loading). Does not move; ends with close whatever is returned. */
tri_status tri_job_apart_open(tri_job *job, tri_job_apart *apart);
void tri_job_apart_close(tri_job_apart *apart);
void tri_job_apart_written(const tri_job_apart *apart);
/* An entry in an array of this rank. */
const float *tri_job_apart_values(const tri_job_apart *apart, int array, int entry);
int tri_job_apart_slice_count(const tri_job_apart *apart);
/* Is it a checkpoint of such ranks? */
bool tri_job_apart_saved(const tri_job *job, const char *checkpoint);
tri_status tri_job_apart_slices(tri_job_apart *apart, tri_arena *arena, tri_checkpoint_slice *out);
/* All ranks but 0, while it saves or loads. */
tri_status tri_job_apart_exchange(tri_job *job, bool saves);
/* Collective, after loading: each rank is where it was. */
tri_status tri_job_apart_loaded(tri_job *job);
/* reform_apart.c: where ranks come and go. What the sync holds that is alike on all ranks is kept for the next
 * generation. */
void tri_job_apart_keep(tri_job *job);
/* Ranks that are behind, and newcomers, become copies of one of those that have made the most steps. */
tri_status tri_job_apart_find(tri_job *job, int64_t generation);
/* Are all ranks needed for a checkpoint: is something spread, or are ranks apart? The same on all ranks. */
bool tri_job_saves_together(const tri_job *job);
/* Rank 0's word becomes everybody's, where all are needed for what it decides; elsewhere the others have 0. */
tri_status tri_job_first_decides(tri_job *job, int64_t *word);
/* Everybody's in any case; collective. */
tri_status tri_job_first_tells(tri_job *job, int64_t *word);
/* resume.c: all that a checkpoint holds: names and shapes on all ranks; on rank 0 also where it lies, or the way there.
 * Does not move; ends with close whatever is returned. */
typedef struct tri_job_slices {
    tri_job_arrays arrays;
    tri_job_apart apart; /* instead of the arrays of state, where each rank has its own */
    tri_checkpoint_content content;
} tri_job_slices;
tri_status tri_job_slices_open(tri_job *job, bool with_state, tri_job_slices *slices);
void tri_job_slices_close(tri_job_slices *slices);
/* The other ranks while rank 0 saves or loads by the slices' pieces. */
tri_status tri_job_slices_follow(tri_job *job, bool with_state, bool saves);
/* save.c: checkpoints of a run, when they are due and where; collective where tri_job_saves_together(). */
/* Until what is being written beside the training is complete, or has failed. */
void tri_job_save_wait(tri_job *job);
bool tri_job_save_is_due(const tri_job *job);
/* To all places, and it is complete and durable: what was under way, and this step. */
tri_status tri_job_save(tri_job *job);
/* A checkpoint of this step in `folder`, which rank 0 needs to know alone; by all ranks where they save together, else
 * by rank 0 alone or all. *saved, on rank 0: it is there; if not, people were told. */
tri_status tri_job_save_to(tri_job *job, const char *folder, int64_t keep, bool *saved);
/* The newest whole checkpoint of a run, in all its places; tri_free() *path. TRI_ENOTFOUND: there is none. */
tri_status tri_job_newest_find(tri_job *job, const char *run_folder, char **path);
/* resume.c: the newest whole checkpoint of a run, wherever its places are; rank 0 reads the files. */
tri_status tri_job_resume(tri_job *job, const char *run_folder);
/* Its weights alone, the mean of ranks apart: for any number of them. */
tri_status tri_job_resume_weights(tri_job *job, const char *run_folder);
/* Collective: has the run one? Rank 0 looks. */
tri_status tri_job_can_resume(tri_job *job, const char *run_folder, bool *can);
/* The weights of one checkpoint, whose path rank 0 needs to know alone; job->step becomes its step. */
tri_status tri_job_load_weights(tri_job *job, const char *checkpoint);
#endif
