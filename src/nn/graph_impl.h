/* SPDX-License-Identifier: Apache-2.0
 *
 * graph_impl.h: what a compiled graph is made of: roots of values, planned ops, and buffers with lifetimes.
 *
 * Times: op i of n runs at time i in the forward pass, and in the backward pass from time n on, where ops of blocks run
 * once more before they go down (again.c); behind them come gradients of parameters that wait. A buffer is busy from
 * `first` to `last`, both included; buffers whose times do not meet may share memory. Included by files of nn/ and
 * their tests only.
 */
#ifndef TRI_NN_GRAPH_IMPL_H
#define TRI_NN_GRAPH_IMPL_H

#include "nn/graph.h"
#include "nn/span.h"

/* Memory of all shards of a run. */
typedef struct graph_buffer {
    size_t nbytes;
    int first, last; /* times */
    size_t offset;   /* in graph->memory, a multiple of 64; of the first slot where it is held */
    bool lasts;      /* from run to run: it is one for all slots, and nothing else is there */
    bool held;       /* from the forward into the backward pass: each slot has one */
    int crossing;    /* the caller's memory: number in graph_slot.crossing; 0: planned here */
} graph_buffer;

/* One run between its forward and its backward pass. */
typedef struct graph_slot {
    tri_batch batch;
    uint64_t step;
    bool can_run_backward; /* a forward with training = true has run */
    tri_span_places base;  /* of what crosses */
    void **crossing;       /* [1 + crossing_count] */
} graph_slot;

typedef enum graph_source { GRAPH_COMPUTED, GRAPH_INPUT, GRAPH_TARGET, GRAPH_SUMS } graph_source;

/* One value of the model. Reshapes and fused relus have no memory of their own: `root` is the value that has.
 * What a fused pool alone reads is of no op and has no memory. */
typedef struct graph_value {
    int root;
    tri_dtype dtype;
    tri_shape sample;
    graph_source source;
    size_t nbytes; /* of one shard */
    int use_count; /* uses as input of ops */
    bool need_grad;
    int buffer, grad; /* numbers of buffers, -1: none */
    int din;          /* buffer of a gradient that leaves the span, -1: it does not */
    int again, block; /* buffer of its second life in its block, -1: none */
} graph_value;

typedef struct graph_op {
    tri_kernel kernel;
    tri_op_desc desc;
    int node, last_node;                  /* of the model: its first, and its last where others are fused */
    int input[TRI_OP_MAX_INPUTS], output; /* roots */
    int number[TRI_OP_MAX_PARAMS];        /* of its parameters, in the model */
    int param[TRI_OP_MAX_PARAMS];         /* entries of the store; -1: not there */
    int slot[TRI_OP_MAX_PARAMS];          /* numbers of their gradients: entries or ties */
    bool backward;                        /* takes part in the backward pass */
    bool moves[TRI_OP_MAX_PARAMS];        /* gradients of parameters that are wanted */
    bool open;                            /* an op further down adds to the gradient of parameter 0 */
    int block;                            /* 0: none */
    bool again;                           /* runs once more, at again_at, before its block goes down */
    bool late; /* gradients of its parameters may come at late_at, behind all of the backward pass */
    int again_at, down_at, late_at;   /* times; late_at: down_at where it is not late */
    int rounded[TRI_OP_MAX_PARAMS];   /* buffers of copies of parameters in 16 bits, -1: none */
    int saved, scratch, scratch_down; /* buffers, -1: none */
    int scratch_late;
    int saved_again, scratch_again;  /* of the second run */
    int dinput[TRI_OP_MAX_INPUTS];   /* buffer that backward writes, -1: gradient not wanted */
    int add_into[TRI_OP_MAX_INPUTS]; /* buffer it is then added to, -1: dinput is the gradient itself */
    bool adds_dinput;                /* or the kernel adds to what is in dinput[0] */
    bool made_by_next;               /* an add: the next op's kernel computes it too, forward */
    int64_t kept_first;              /* in what a sequence keeps */
    tri_op_call call;                /* filled for each run */
} graph_op;

struct tri_graph {
    tri_graph_config config;
    const tri_params *params;
    graph_value *values;
    int value_count;
    graph_op *ops;
    int op_count;
    int input, target, logits; /* values; logits -1: not in the span */
    bool share;                /* buffers share memory */
    bool planned_only;         /* it has no memory and is never run */
    graph_buffer *buffers;
    int buffer_count, buffer_capacity;
    char *memory; /* this, sums and staged: of params->device */
    void *host;   /* of the host: what kernels exchange with others */
    size_t planned_nbytes, plain_nbytes;
    size_t rounded_nbytes; /* of the planned ones, copies of weights */
    tri_graph_hooks hooks;
    int ranks;                       /* that share out the parts of the model */
    tri_op_ranks across;             /* sum NULL: none is set */
    tri_op_batch batch_sums;         /* likewise */
    float loss_scale;                /* 0: 1 */
    float (*sums)[TRI_LOSS_COLUMNS]; /* [slots][config.shards] */
    tri_device_view sums_view;       /* what the host sees of them */
    void *staged_input,
        *staged_target; /* [slots][config.shards]: the batch, where kernels cannot read the caller's; or NULL */
    double flops;
    tri_span span;
    int crossing_count; /* values and gradients that cross */
    graph_slot *slots;
    int slot_count;
    size_t slot_nbytes; /* from one slot's memory to the next */
    /* of the runs: */
    int64_t kept_count;          /* of a sequence */
    const tri_place_span *spans; /* [span_count] */
    int span_count;
    float *kept; /* [sequences][kept_count] */
    int part_count, part_capacity;
    tri_tree_part parts[TRI_TREE_MAX_PARTS];
    float *grads[TRI_TREE_MAX_PARTS];
    bool placed;     /* the hooks say where gradients go */
    float **dparam;  /* [entry or tie][part_capacity]: where each gradient of each part is */
    int slot;        /* of the next runs */
    tri_batch batch; /* of the slot's run */
};

/* share false: every buffer has memory of its own and nothing is computed in place; tests compare with it. */
tri_status tri_graph_compile_as(const tri_model *model, const tri_params *params, const tri_graph_config *config,
                                bool share, tri_graph **out);
/* graph.c: the op's parameters are there, from bring to done. */
tri_status tri_graph_op_bring(tri_graph *graph, graph_op *op);
void tri_graph_op_done(const tri_graph *graph, const graph_op *op);
/* Backward reads what the op read. */
static inline bool tri_graph_op_reads_down(const graph_op *op)
{
    const tri_kernel_ops *ops = op->kernel.ops;
    return op->backward && ops->backward_input && (!ops->input_for_weight || op->moves[0]);
}
/* The first failure of what kernels of this run did with others. */
tri_status tri_graph_others(const tri_graph *graph);
/* The op writes gradients: tells its call where to. */
void tri_graph_op_parts(tri_graph *graph, graph_op *op);
/* compile.c: a store without entries: enough to decide what is compiled; its of_model is the caller's to free. */
tri_status tri_graph_store_none(const tri_model *model, tri_params *none);
/* again.c: decides which ops run again, which are late, and the times of all. */
void tri_graph_plan_times(tri_graph *graph);
/* Gradients of its parameters may come behind those of all values, where somebody waits for these; not in blocks, whose
 * values would all be kept. */
bool tri_graph_op_can_wait(const graph_op *op);
/* Op o is the last one of a block; the first op of o's block. */
bool tri_graph_ends_block(const tri_graph *graph, int o);
int tri_graph_block_first(const tri_graph *graph, int o);
/* Decides the buffers of all ops, their times and offsets, and allocates the memory in the device of the params. */
tri_status tri_graph_plan_memory(tri_graph *graph);
/* Also of a graph whose planning failed. */
void tri_graph_free_memory(tri_graph *graph);
/* Gives offsets to buffers so that those whose times meet do not overlap; returns the bytes of the whole. */
size_t tri_graph_pack(graph_buffer *buffers, int count, int *order);
double tri_graph_count_flops(const tri_graph *graph);
/* Of one sample of one op: those that can wait; all, again: also where it runs once more in the backward pass. */
double tri_graph_op_late_flops(const tri_graph *graph, const graph_op *op);
double tri_graph_op_flops(const tri_graph *graph, const graph_op *op, bool again);
/* compile.c: what is decided of the whole model: ops, types, which gradients are wanted. Values and ops are there. */
tri_status tri_graph_decide(tri_graph *graph, const tri_model *model);
/* span.c: drops the ops outside of the span, finds what crosses its ends. */
tri_status tri_graph_cut(tri_graph *graph, const tri_model *model);
/* Op o may be the first of a span: it begins no torn block, and no relu of an op before it. */
bool tri_graph_may_begin(const tri_graph *graph, int o);
/* A buffer for each value and gradient that crosses; before those of the ops. */
void tri_graph_plan_crossings(tri_graph *graph);
/* The slot's pointers for a run of this many shards. */
void tri_graph_crossings_place(tri_graph *graph, int shards);
/* What the span only passes on, forward or backward. */
void tri_graph_relay(tri_graph *graph, bool down);
void tri_graph_span_fini(tri_graph *graph);
/* graph.c: the call of an op in the slot's run; grads: with where the gradients of its parameters go. */
void tri_graph_call_fill(tri_graph *graph, graph_op *op, uint64_t step, bool training, bool grads);
/* The parts that were set cover this many shards. */
tri_status tri_graph_check_parts(const tri_graph *graph, int shards);
/* The sums of the slot's run, as the host sees them, NULL without a loss; as kernels write them. */
const float (*tri_graph_sums_host(const tri_graph *graph))[TRI_LOSS_COLUMNS];
static inline float (*tri_graph_sums(const tri_graph *graph))[TRI_LOSS_COLUMNS]
{
    return graph->sums + (size_t)graph->slot * (size_t)graph->config.shards;
}
/* Memory of a buffer, or NULL for -1. */
void *tri_graph_buffer(const tri_graph *graph, int buffer);
/* Where a root value is in this run. */
void *tri_graph_value(const tri_graph *graph, int value);
/* Where ops of `block` find it in the backward pass. */
void *tri_graph_value_down(const tri_graph *graph, int value, int block);

#endif
