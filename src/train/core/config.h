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

#define TRI_TRAIN_OPTIONS(X)                                                                                           \
    X(INT, batch, "128", 1, 1e9, NULL, "samples of one step, over all ranks; auto: the most whose memory fits")        \
    X(INT, shards, "8", 1, 65536, NULL,                                                                                \
      "parts of the batch, a power of two, that are summed as a tree: the bits depend on it, not on the ranks")        \
    X(INT, shards_at_once, "0", 0, 65536, NULL,                                                                        \
      "shards computed together, a power of two, less memory when small; 0 = as many of a rank's as are fastest")      \
    X(INT, epochs, "5", 1, 1e9, NULL, "times through the data")                                                        \
    X(INT, steps, "0", 0, 1e15, NULL, "end after this many steps, 0 = at the end of the epochs")                       \
    X(INT, seed, "1", 0, 9e15, NULL, "of initial weights, order of samples, dropout, augmentation")                    \
    X(INT, threads, "0", 0, 1024, NULL, "threads of each rank, 0 = OMP_NUM_THREADS or the cores given to it")          \
    X(NAME, precision, "f32", 0, 0, "f32|bf16|f16", "type of values between layers and of factors of products")        \
    X(INT, loss_scale, "0", 0, 1e12, NULL, "f16: factor of the loss, a power of two; 0 = found by itself")             \
    X(INT, loss_scale_init, "1024", 1, 1e12, NULL, "what it begins with, where it is found by itself")                 \
    X(INT, loss_scale_window, "2000", 1, 1e12, NULL, "steps without an overflow after which it is doubled")            \
    X(NAME, on_nonfinite, "stop", 0, 0, "stop|skip|rollback",                                                          \
      "a loss or a gradient that is no number: end the run; let the step move nothing; that, and go back to the "      \
      "weights of the newest checkpoint")                                                                              \
    X(NAME, on_spike, "off", 0, 0, "off|stop|skip|rollback", "the same for a loss that jumps (spike_factor)")          \
    X(REAL, spike_factor, "3", 1, 1e9, NULL, "a loss jumps that is above the mean of those before times this")         \
    X(INT, spike_window, "50", 1, 1e9, NULL, "steps that mean goes over; none before so many is judged")               \
    X(INT, guard_limit, "10", 0, 1e9, NULL, "times that guards act in a run, or one rank is repaired, 0 = any")        \
    X(NAME, verify_every, "auto", 0, 0, NULL,                                                                          \
      "steps between comparisons of replicas, whose weights must have the same bits, and of mirrors: auto (each "      \
      "step, where that is cheap), off, or their number")                                                              \
    X(NAME, on_straggler, "tell", 0, 0, "off|tell|replace",                                                            \
      "a worker whose own part of a step takes straggler_factor times the median: name it; with --elastic also have "  \
      "it leave")                                                                                                      \
    X(REAL, straggler_factor, "3", 2, 1e6, NULL, "how many times the median; one may have twice the shards")           \
    X(INT, straggler_steps, "10", 1, 1e9, NULL, "steps over which it is, at least, and half a second of work")         \
    X(NAME, isa, "auto", 0, 0, "auto|native|generic|avx2|avx512|avx512_bf16|amx",                                      \
      "instruction set of kernels: auto: the best that all processors of the run have; native: the best of each")      \
    X(NAME, kernels, "cpu", 0, 0, "cpu|reference", "who computes: reference is slow and plain")                        \
    X(INT, eval_every, "1", 0, 1e9, NULL, "epochs between evaluations on the test set, 0 = only at the end")           \
    X(INT, eval_every_steps, "0", 0, 1e15, NULL, "steps between them, instead of eval_every; 0 = eval_every counts")   \
    X(INT, eval_batches, "0", 0, 1e12, NULL, "batches of an evaluation, spread over the test set, 0 = all of it")      \
    X(INT, norm_every, "10", 0, 1e9, NULL,                                                                             \
      "steps between gradient norms in metrics.jsonl, 0 = none; with optim.clip_norm each step has one")               \
    X(INT, sample_every, "0", 0, 1e15, NULL, "steps between texts that the model writes (gpt2, llama); 0 = none")      \
    X(TEXT, sample_prompt, "", 0, 0, NULL, "what they begin with; empty: as trireme generate without a prompt")        \
    X(INT, sample_tokens, "100", 1, 1e6, NULL, "tokens of such a text")
typedef struct tri_train_config {
    TRI_TRAIN_OPTIONS(TRI_OPTION_FIELD)
} tri_train_config;
extern const tri_option_table tri_train_options; /* section "train" */

/* All there is besides `model:`, in the order of print and help: X(NAME, rows that decide the bits) stands for a member
 * NAME of type tri_NAME_config with the table tri_NAME_options. The second is a predicate of config.c. Two that share a
 * section of the file stand side by side. */
#define TRI_CONFIG_SECTIONS(X)                                                                                         \
    X(train, train_row_decides)                                                                                        \
    X(data, data_row_decides)                                                                                          \
    X(optim, each_row_decides)                                                                                         \
    X(parallel, parallel_row_decides)                                                                                  \
    X(ps, ps_row_decides)                                                                                              \
    X(comm, no_row_decides)                                                                                            \
    X(net, no_row_decides)                                                                                             \
    X(checkpoint, no_row_decides)                                                                                      \
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
    const char *from;            /* model.from: weights to begin with; NULL: none */
    tri_patterns freeze, reinit; /* model.freeze, model.reinit */
    tri_yaml *root;              /* everything that was given, file and command line */
    bool batch_auto;             /* train.batch is auto, and not found yet */
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

/* Finds contradictions between options, for a number of ranks. 0: the number is not known yet, and what depends on it
 * is left out. */
tri_status tri_config_check(const tri_config *config, int ranks);
/* Whether the workers of one run may differ in "section.option". */
bool tri_config_is_local(const char *key);
/* unused_options.c: a line for each of these words that changes nothing in this run, once its layout is known, and the
 * format that its data have. */
void tri_config_idle_tell(const tri_config *config, const char *format, const char *const *overrides);
/* batch_fit.c: finds train.batch where it is auto, for so many ranks on this machine. */
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
/* `what` lets a step move nothing, which wants all workers to do so together; `besides` ends the message. */
tri_status tri_guard_skip_check(const tri_config *config, const char *what, const char *besides);
/* verify.c */
tri_status tri_verify_check(const tri_config *config);
/* Whether train.verify_every is a number of steps. */
bool tri_verify_number(const char *text, int64_t *value);
/* Whether stragglers can be replaced. */
tri_status tri_stragglers_check(const tri_config *config, bool elastic);
/* What train.on_nonfinite and train.on_spike say. */
typedef enum tri_guard_act { TRI_GUARD_OFF, TRI_GUARD_STOP, TRI_GUARD_SKIP, TRI_GUARD_ROLLBACK } tri_guard_act;
tri_guard_act tri_guard_act_of(const char *text);
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
