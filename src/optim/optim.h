/* SPDX-License-Identifier: Apache-2.0
 *
 * optim.h: steps over slices of the flat store, schedules of the learning rate, clipping.
 *
 * One row per optimizer (TRI_OPTIM_LIST). State arrays have the same table of entries as the parameters. A step is
 * elementwise, so any cut into slices gives the same bits; buffers (running statistics) are entries too and follow
 * their own rule: value += momentum (sum / shards - value).
 */
#ifndef TRI_OPTIM_OPTIM_H
#define TRI_OPTIM_OPTIM_H

#include <trireme/optim.h>

#include "base/options.h"
#include "nn/params.h"

/* X(A, NAME, name): the choices of optim.name; some file has the row tri_optim_<name>. */
#define TRI_OPTIM_LIST(X, A)          X(A, SGD, sgd) X(A, ADAM, adam) X(A, ADAMW, adamw) X(A, ADAGRAD, adagrad) X(A, FTRL, ftrl)
#define TRI_OPTIM_WORD(W, NAME, name) W(TRI_OPTIM_##NAME, #name)
#define tri_optim_kind_words(W)       TRI_OPTIM_LIST(TRI_OPTIM_WORD, W)
TRI_ENUM(tri_optim_kind)
#define tri_decay_scope_words(W) W(TRI_DECAY_ALL, "all") W(TRI_DECAY_WEIGHTS, "weights")
TRI_ENUM(tri_decay_scope)
#define tri_lr_schedule_words(W)                                                                                       \
    W(TRI_LR_CONSTANT, "constant")                                                                                     \
    W(TRI_LR_STEP, "step") W(TRI_LR_COSINE, "cosine") W(TRI_LR_LINEAR, "linear") W(TRI_LR_WSD, "wsd")
TRI_ENUM(tri_lr_schedule)
#define tri_decay_shape_words(W) W(TRI_DECAY_LINEAR, "linear") W(TRI_DECAY_COSINE, "cosine") W(TRI_DECAY_SQRT, "1-sqrt")
TRI_ENUM(tri_decay_shape)

#define TRI_OPTIM_OPTIONS(X)                                                                                           \
    X(ENUM, name, "sgd", 0, 0, tri_optim_kind, "optimizer")                                                            \
    X(REAL, lr, "0.1", 0, 1e6, NULL, "peak learning rate")                                                             \
    X(REAL, momentum, "0.9", 0, 1, NULL, "momentum; 0: none", "optim.name=sgd")                                        \
    X(BOOL, nesterov, "false", 0, 0, NULL, "Nesterov momentum", "optim.name=sgd")                                      \
    X(REAL, weight_decay, "0", 0, 1e3, NULL, "weight decay: decoupled for adamw, L2 otherwise")                        \
    X(ENUM, decay, "all", 0, 0, tri_decay_scope, "parameters to decay: all, or weights (no biases, no norms)")         \
    X(REAL, beta1, "0.9", 0, 1, NULL, "decay rate of the first moment", "optim.name=adam|adamw")                       \
    X(REAL, beta2, "0.999", 0, 1, NULL, "decay rate of the second moment", "optim.name=adam|adamw")                    \
    X(REAL, epsilon, "1e-8", 0, 1, NULL, "added to the root of the second moment", "optim.name=adam|adamw|adagrad")    \
    X(REAL, initial_accumulator, "0", 0, 1e9, NULL, "initial value of the sums of squares", "optim.name=adagrad|ftrl") \
    X(REAL, beta, "1", 0, 1e6, NULL, "added to the root of the sum of squares", "optim.name=ftrl")                     \
    X(REAL, l1, "0", 0, 1e9, NULL, "L1 regularization: weights whose sum of gradients stays below this are 0",         \
      "optim.name=ftrl")                                                                                               \
    X(REAL, l2, "0", 0, 1e9, NULL, "L2 regularization", "optim.name=ftrl")                                             \
    X(REAL, clip_norm, "0", 0, 1e9, NULL, "clip gradients to this global norm; 0: no clipping")                        \
    X(LIST, groups, "[]", 0, 0, NULL,                                                                                  \
      "parameter groups: rules by glob, [{match: \"*.bias\", weight_decay: 0, lr_scale: 0.1}, ...]; the first rule "   \
      "that matches a name decides")                                                                                   \
    X(ENUM, schedule, "constant", 0, 0, tri_lr_schedule,                                                               \
      "learning rate after warm-up; wsd: constant, then a decay at the end (warmup-stable-decay)")                     \
    X(INT, schedule_steps, "0", 0, 1e15, NULL, "decay steps; 0: the whole run", "optim.schedule!=constant")            \
    X(INT, warmup_steps, "0", 0, 1e12, NULL, "steps over which the learning rate rises linearly from 0")               \
    X(REAL, final_lr_fraction, "0", 0, 1, NULL, "final learning rate as a fraction of optim.lr",                       \
      "optim.schedule=cosine|linear|wsd")                                                                              \
    X(REAL, min_lr, "0", 0, 1e6, NULL, "final learning rate; the greater of this and optim.final_lr_fraction counts",  \
      "optim.schedule=cosine|linear|wsd")                                                                              \
    X(REAL, decay_fraction, "0.2", 0, 1, NULL, "fraction of all steps, at the end, in which the learning rate decays", \
      "optim.schedule=wsd")                                                                                            \
    X(ENUM, decay_shape, "1-sqrt", 0, 0, tri_decay_shape, "shape of that decay", "optim.schedule=wsd")                 \
    X(INT, step_every, "0", 0, 1e12, NULL, "steps between two reductions of the learning rate; 0: a third of the run", \
      "optim.schedule=step")                                                                                           \
    X(REAL, step_factor, "0.1", 0, 1, NULL, "factor of each reduction", "optim.schedule=step")
typedef struct tri_optim_config {
    TRI_OPTIM_OPTIONS(TRI_OPTION_FIELD)
} tri_optim_config;
extern const tri_option_table tri_optim_options; /* section "optim" */

/* The learning rate of step (from 0) of `steps`, warm-up included; a pure function. steps is that of all epochs:
 * schedule_steps, where given, comes before it. */
double tri_schedule_rate(const tri_optim_config *config, int64_t step, int64_t steps);
/* Contradictions between the options of a schedule. */
tri_status tri_schedule_check(const tri_optim_config *config);
/* Appends a plot of the rates of steps 0 to `shown` - 1 as a few lines of text, each beginning with `prefix`. */
tri_status tri_schedule_plot(const tri_optim_config *config, int64_t shown, int64_t steps, const char *prefix,
                             tri_string *out);

#define TRI_OPTIM_MAX_STATE 2

/* Figures of one step, the same for all slices. */
typedef struct tri_optim_scalars {
    int64_t step; /* from 0 */
    double lr;
    float grad_scale;   /* multiplies each gradient: clip factor / global weight */
    float buffer_scale; /* multiplies each buffer's sum: 1 / shards; 0: there were none, and buffers stand still */
} tri_optim_scalars;

/* State: arrays of params->count elements, in the device of the params, which must outlive the optimizer.
 * threads: of each step. */
tri_status tri_optim_create(const tri_optim_config *config, const tri_params *params, int threads, tri_optim **out);
/* For these slices of the store alone, which are in order and are copied: the state arrays hold no other elements,
 * slice after slice. */
tri_status tri_optim_create_share(const tri_optim_config *config, const tri_params *params, const tri_slice *share,
                                  int share_count, int threads, tri_optim **out);
/* For one slice, [first, first + count). */
tri_status tri_optim_create_part(const tri_optim_config *config, const tri_params *params, int64_t first, int64_t count,
                                 int threads, tri_optim **out);
void tri_optim_destroy(tri_optim *optim);
/* values[i] moves for i in [first, first + count), elements that the optimizer was made for, with element i of grads
 * the sum over the batch (both arrays begin at element 0 of the store); allocation-free. */
void tri_optim_step(tri_optim *optim, const tri_optim_scalars *figures, float *values, const float *grads,
                    int64_t first, int64_t count);
/* The same of elements of one slice of its share, with arrays that begin at element `first`. */
void tri_optim_step_at(tri_optim *optim, const tri_optim_scalars *figures, float *values, const float *grads,
                       int64_t first, int64_t count);
/* State for checkpoints: name "momentum", "exp_avg", "exp_avg_sq", ...; NULL past the last. */
const char *tri_optim_state_name(const tri_optim *optim, int index);
float *tri_optim_state(tri_optim *optim, int index);
/* In whose memory they are. */
const tri_device *tri_optim_device(const tri_optim *optim);
/* Elements of each state array. */
int64_t tri_optim_count(const tri_optim *optim);
/* State arrays that an optimizer of this name and these options has; 0 where there is none such. */
int tri_optim_states(const tri_optim_config *config);
/* Bytes of all state arrays. */
size_t tri_optim_nbytes(const tri_optim *optim);

/* Appends a line for each group of optim.groups: how many parameters follow it, learning rate, weight decay; each line
 * begins with `prefix`. */
tri_status tri_optim_groups_print(const tri_optim_config *config, const tri_params *params, const char *prefix,
                                  tri_string *out);

/* Writes the sums of squares of the gradients of elements [first, first + count) of the store to their places among the
 * blocks of the whole model, params->block_count of them; others, those of buffers and of what is frozen are left
 * alone. grads begins at element `first`; blocks, too, are the device's. A slice begins and ends at elements where
 * blocks of entries begin, or between entries. */
void tri_clip_squares(const tri_params *params, const float *grads, int64_t first, int64_t count, double *blocks,
                      int threads);
/* Norm of scale times the gradient with these blocks, which are used up. */
double tri_clip_norm(double *blocks, int64_t count, double scale);

#endif
