/* SPDX-License-Identifier: Apache-2.0
 *
 * config.h: the whole configuration of a run: the modules' structs side by side, and where each value came from.
 *
 * Sources, later ones win: defaults, the file, the command line. Unknown keys are errors that name the nearest key.
 */
#ifndef TRI_TRAIN_CONFIG_H
#define TRI_TRAIN_CONFIG_H

#include "base/arena.h"
#include "base/options.h"
#include "base/yaml.h"
#include "checkpoint/checkpoint.h"
#include "comm/comm.h"
#include "data/data.h"
#include "monitor/monitor.h"
#include "net/transport.h"
#include "optim/optim.h"
#include "parallel/sync.h"
#include "ps/ps.h"
#include "storage/storage.h"

#define tri_precision_words(W) W(TRI_PRECISION_F32, "f32") W(TRI_PRECISION_BF16, "bf16") W(TRI_PRECISION_F16, "f16")
TRI_ENUM(tri_precision)
#define tri_on_nonfinite_words(W)                                                                                      \
    W(TRI_NONFINITE_STOP, "stop") W(TRI_NONFINITE_SKIP, "skip") W(TRI_NONFINITE_ROLLBACK, "rollback")
TRI_ENUM(tri_on_nonfinite)
#define tri_on_spike_words(W)                                                                                          \
    W(TRI_SPIKE_OFF, "off") W(TRI_SPIKE_STOP, "stop") W(TRI_SPIKE_SKIP, "skip") W(TRI_SPIKE_ROLLBACK, "rollback")
TRI_ENUM(tri_on_spike)
#define tri_verify_every_words(W) W(, "auto") W(, "off")
#define TRI_VERIFY_AUTO           TRI_OPTION_WORD_COUNT(0)
#define TRI_VERIFY_OFF            TRI_OPTION_WORD_COUNT(1)
#define tri_on_straggler_words(W)                                                                                      \
    W(TRI_STRAGGLER_OFF, "off") W(TRI_STRAGGLER_WARN, "warn") W(TRI_STRAGGLER_REPLACE, "replace")
TRI_ENUM(tri_on_straggler)
#define tri_isa_wanted_words(W)                                                                                        \
    W(TRI_ISA_AUTO, "auto")                                                                                            \
    W(TRI_ISA_NATIVE, "native")                                                                                        \
    W(TRI_ISA_MOST_GENERIC, "generic")                                                                                 \
    W(TRI_ISA_MOST_AVX2, "avx2")                                                                                       \
    W(TRI_ISA_MOST_AVX512, "avx512") W(TRI_ISA_MOST_AVX512_BF16, "avx512_bf16") W(TRI_ISA_MOST_AMX, "amx")
TRI_ENUM(tri_isa_wanted)
#define tri_kernels_words(W)                                                                                           \
    W(TRI_KERNELS_CPU, "cpu")                                                                                          \
    W(TRI_KERNELS_REFERENCE, "reference") W(TRI_KERNELS_CUDA, "cuda") W(TRI_KERNELS_CUDA_OWN, "cuda_own")
TRI_ENUM(tri_kernels)

#define TRI_TRAIN_OPTIONS(X)                                                                                           \
    X(INT, batch, "128", 1, 1e9, NULL, "samples of a step, over all ranks; auto: the largest batch whose memory fits") \
    X(INT, shards, "8", 1, 65536, NULL,                                                                                \
      "shards of the batch, a power of two, whose gradients are summed as a tree; at least as many as data ranks: "    \
      "the bits depend on it, not on the ranks")                                                                       \
    X(INT, shards_at_once, "0", 0, 65536, NULL,                                                                        \
      "shards per micro-batch, a power of two; 0: autotune in the first steps")                                        \
    X(INT, epochs, "5", 1, 1e9, NULL, "passes over the training data")                                                 \
    X(INT, steps, "0", 0, 1e15, NULL,                                                                                  \
      "stop after this many steps; 0: at the end of the epochs; the schedule still spans all epochs")                  \
    X(INT, seed, "1", 0, 9e15, NULL, "seed of initial weights, order of samples, dropout and augmentation")            \
    X(INT, threads, "0", 0, 1024, NULL,                                                                                \
      "threads of each rank; 0: OMP_NUM_THREADS or the cores of the rank, or fewer while these prove faster")          \
    X(ENUM, precision, "f32", 0, 0, tri_precision,                                                                     \
      "bf16: linear layers (on a card also convolutions) multiply in bf16, and activations and their gradients from "  \
      "there on are bf16; f16: the same with loss scaling; weights, their gradients and all sums stay f32")            \
    X(INT, loss_scale, "0", 0, 1e12, NULL,                                                                             \
      "factor of the loss, a power of two; 0: dynamic: halved after an overflow (the step is skipped), doubled after " \
      "train.loss_scale_window steps",                                                                                 \
      "train.precision=f16")                                                                                           \
    X(INT, loss_scale_init, "1024", 1, 1e12, NULL, "initial value of the dynamic loss scale",                          \
      "train.precision=f16 train.loss_scale=0")                                                                        \
    X(INT, loss_scale_window, "2000", 1, 1e12, NULL,                                                                   \
      "steps without an overflow after which the dynamic loss scale is doubled",                                       \
      "train.precision=f16 train.loss_scale=0")                                                                        \
    X(ENUM, on_nonfinite, "stop", 0, 0, tri_on_nonfinite,                                                              \
      "NaN or Inf in loss or gradient: stop, skip the step, or roll back to a copy (checkpoint.every_steps)")          \
    X(ENUM, on_spike, "off", 0, 0, tri_on_spike,                                                                       \
      "the same for a spike of the loss (train.spike_factor); off: spikes are not detected")                           \
    X(REAL, spike_factor, "3", 1, 1e9, NULL, "a loss above this factor times its running mean counts as a spike",      \
      "train.on_spike!=off")                                                                                           \
    X(INT, spike_window, "50", 1, 1e9, NULL,                                                                           \
      "window of the running mean in steps; no spike is detected before it is full", "train.on_spike!=off")            \
    X(INT, guard_limit, "10", 0, 1e9, NULL,                                                                            \
      "skipped steps and rollbacks in a run, and repairs of one rank, after which the run stops; 0: no limit")         \
    X(COUNT, verify_every, "auto", 1, 999999999, tri_verify_every,                                                     \
      "steps between comparisons of replicas, whose weights must have the same bits, and of mirrored state; auto: "    \
      "each step if that is inexpensive, else less often")                                                             \
    X(ENUM, on_straggler, "warn", 0, 0, tri_on_straggler, "a straggler: warn, or (with --elastic) replace the worker") \
    X(REAL, straggler_factor, "3", 2, 1e6, NULL, "slowdown relative to the median rank that counts as a straggler",    \
      "train.on_straggler!=off")                                                                                       \
    X(INT, straggler_steps, "10", 1, 1e9, NULL,                                                                        \
      "steps that the slowdown lasts at least (and at least half a second of work)", "train.on_straggler!=off")        \
    X(ENUM, isa, "auto", 0, 0, tri_isa_wanted,                                                                         \
      "instruction set of kernels; auto: the best that all processors of the run have; native: the best of the own "   \
      "processor, and ranks that differ are refused; or an upper bound")                                               \
    X(NAME, device, "auto", 0, 0, NULL,                                                                                \
      "where to train: auto (the CPU) or cpu; cuda or cuda:N: an NVIDIA card, not tried on one yet; fake: the CPU's "  \
      "kernels in memory that the host cannot touch, for tests")                                                       \
    X(ENUM, kernels, "cpu", 0, 0, tri_kernels,                                                                         \
      "cpu: the fast kernels of train.device (cuda on a card); reference: slow and simple ones of the CPU; cuda: "     \
      "those of a card, with cublasLt for matrix products where it is; cuda_own: without it, so the bits do not "      \
      "depend on its version")                                                                                         \
    X(INT, eval_every, "1", 0, 1e9, NULL, "epochs between evaluations on the test set; 0: only at the end")            \
    X(INT, eval_every_steps, "0", 0, 1e15, NULL,                                                                       \
      "steps between evaluations, instead of train.eval_every; 0: train.eval_every counts")                            \
    X(INT, eval_batches, "0", 0, 1e12, NULL,                                                                           \
      "batches of an evaluation, the same samples each time, spread over the test set; 0: the whole test set")         \
    X(INT, norm_every, "10", 0, 1e9, NULL,                                                                             \
      "steps between gradient norms in metrics.jsonl; 0: none; each step with optim.clip_norm")                        \
    X(INT, sample_every, "0", 0, 1e15, NULL,                                                                           \
      "steps between sample texts of a language model (gpt2, llama), printed and in metrics.jsonl: temperature 0.8, "  \
      "top 200, seed train.seed; needs a tokenizer.json in the run folder or beside model.from; 0: none")              \
    X(TEXT, sample_prompt, "", 0, 0, NULL,                                                                             \
      "prompt of the sample texts; empty: the end-of-text token, else a new line", "train.sample_every!=0")            \
    X(INT, sample_tokens, "100", 1, 1e6, NULL, "tokens of a sample text", "train.sample_every!=0")
typedef struct tri_train_config {
    TRI_TRAIN_OPTIONS(TRI_OPTION_FIELD)
} tri_train_config;
extern const tri_option_table tri_train_options; /* section "train" */
tri_dtype tri_precision_dtype(tri_precision precision);
/* The kind of tri_kernel_plan() on the host, whatever the device is. */
const char *tri_kernels_of_host(const tri_train_config *train);

/* All there is besides `model:`, in the order of print and help: X(NAME, rows that decide the bits) stands for a member
 * NAME of type tri_NAME_config with the table tri_NAME_options. The second is a predicate of config.c. Two that share a
 * section of the file are side by side. */
#define TRI_CONFIG_SECTIONS(X)                                                                                         \
    X(train, train_row_decides)                                                                                        \
    X(data, data_row_decides)                                                                                          \
    X(optim, each_row_decides)                                                                                         \
    X(parallel, parallel_row_decides)                                                                                  \
    X(ps, ps_row_decides)                                                                                              \
    X(comm, no_row_decides)                                                                                            \
    X(net, no_row_decides)                                                                                             \
    X(checkpoint, no_row_decides)                                                                                      \
    X(storage, no_row_decides)                                                                                         \
    X(monitor, no_row_decides)

/* Globs over names of parameters. */
typedef struct tri_patterns {
    const char **items;
    int count;
} tri_patterns;
bool tri_patterns_match(const tri_patterns *patterns, const char *name);

typedef struct tri_config {
#define TRI_CONFIG_FIELD(name, decides) tri_##name##_config name;
    TRI_CONFIG_SECTIONS(TRI_CONFIG_FIELD)
#undef TRI_CONFIG_FIELD
    tri_yaml *model;             /* the map under `model:`, without the three that follow */
    const char *from;            /* model.from: weights to begin with; NULL: none. Of a URL the local copy; */
    const char *from_given;      /* and what was given */
    tri_patterns freeze, reinit; /* model.freeze, model.reinit */
    tri_yaml *root;              /* everything that was given, file and command line */
    bool batch_auto;             /* train.batch is auto, and not found yet */
    bool is_printed;             /* the file was written by tri_config_print() */
    tri_map origins;             /* "optim.lr" -> index in origin_names; absent: default */
    const char *origin_names[2]; /* the file's name, "command line" */
    tri_arena arena;
} tri_config;

/* path or text (with `path` as its name) or neither; overrides as in tri_job_setup. */
tri_status tri_config_load(const char *path, const char *text, const char *const *overrides, tri_config *config);
void tri_config_fini(tri_config *config);
/* An option of other programs: its key here, or a sentence. */
typedef struct tri_foreign_key {
    const char *name, *key, *sentence; /* one of key and sentence is NULL */
} tri_foreign_key;
extern const tri_foreign_key tri_foreign_keys[];
extern const int tri_foreign_key_count;
/* NULL if no other program has an option of this name. */
const tri_foreign_key *tri_foreign_key_find(const char *name);
/* Options, and values of options ("section.option=value"), that had another name before. */
typedef struct tri_renamed {
    const char *old, *now;
} tri_renamed;
extern const tri_renamed tri_renamed_keys[]; /* old NULL at the end */

/* Finds contradictions between options, for a number of ranks. 0: the number is not known yet, and what depends on it
 * is left out. */
tri_status tri_config_check(const tri_config *config, int ranks);
/* Whether the workers of one run may differ in "section.option". */
bool tri_config_is_local(const char *key);
/* The option that a text such as "section.option=value" begins with, and its section; NULL: there is none. */
struct tri_config_section;
const tri_option *tri_config_row(const char *key, const struct tri_config_section **section);
/* unused_options.c: appends the first of an option's conditions that is not true, and what is true instead; nothing if
 * all are. `format`: the format of the data. */
tri_status tri_config_unmet(const tri_config *config, const char *format, const char *applies, tri_string *unmet);
/* Warns about each of these options that has no effect in this run, once its layout and the format of its data are
 * known. */
void tri_config_unused_tell(const tri_config *config, const char *format, const char *const *overrides);
/* batch_fit.c: finds train.batch where it is auto, for `ranks` ranks on this machine. */
tri_status tri_batch_fit(tri_config *config, int ranks);
/* Parts of tri_config_check(). loss_scale.c: */
tri_status tri_loss_scale_check(const tri_config *config);
/* guard.c */
tri_status tri_guard_check(const tri_config *config);
/* Whether a step may move nothing. */
bool tri_guard_skips(const tri_config *config);
/* Whether sums may count for nothing: those of a step that moves nothing, or of weights that had to be repaired. */
bool tri_sums_may_be_undone(const tri_config *config);
/* Whether weights and state are kept once more, to go back to. */
bool tri_guard_copies(const tri_config *config);
/* verify.c */
tri_status tri_verify_check(const tri_config *config);
/* Whether stragglers can be replaced. */
tri_status tri_stragglers_check(const tri_config *config, bool elastic);
/* What train.on_nonfinite and train.on_spike say. */
typedef enum tri_guard_act { TRI_GUARD_OFF, TRI_GUARD_STOP, TRI_GUARD_SKIP, TRI_GUARD_ROLLBACK } tri_guard_act;
tri_guard_act tri_guard_on_nonfinite(const tri_config *config);
tri_guard_act tri_guard_on_spike(const tri_config *config);
/* The resolved configuration as YAML, each value with its origin as a comment; reads back to the same configuration. */
tri_status tri_config_print(const tri_config *config, tri_string *out);
/* xxh3 of what decides the bits: model, data, train (batch, shards, seed, epochs, kernels), optim. */
tri_status tri_config_hash(const tri_config *config, uint64_t *hash);

/* What decides the bits and differs, as "train.batch 40 -> 60, model". */
tri_status tri_config_changes(const tri_config *before, const tri_config *now, tri_string *out);

/* config_model.c: takes from, freeze and reinit out of `model:`. */
tri_status tri_config_model_split(tri_config *config);
/* Whether the architecture has to come from what model.from names. */
bool tri_config_model_is_open(const tri_config *config);
/* `model:` becomes the fields of `text` (YAML, of a model at `origin`) under those that were given. */
tri_status tri_config_model_take(tri_config *config, const char *text, const char *origin);
/* The same with the text that model.from's config.json gives, if it has one. */
tri_status tri_config_model_find(tri_config *config);
/* What data.tokenizer: auto stands for: the tokenizer of the run (a folder of it; NULL: it begins), else that of
 * model.from; where there is neither, nothing. */
tri_status tri_config_tokenizer_find(tri_config *config, const char *run);
/* As YAML below `model:`. */
tri_status tri_config_model_print(const tri_config *config, tri_string *out);

/* One row of TRI_CONFIG_SECTIONS. */
typedef struct tri_config_section {
    const tri_option_table *table;          /* table->section is the name in the file */
    size_t offset;                          /* of the struct in tri_config, bytes */
    bool (*row_decides)(const char *field); /* whether the bits of the weights depend on it */
} tri_config_section;
extern const tri_config_section tri_config_sections[]; /* table NULL at the end */

#endif
