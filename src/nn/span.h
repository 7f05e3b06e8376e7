/* SPDX-License-Identifier: Apache-2.0
 *
 * span.h: a graph of some of a model's nodes, for one stage of a pipeline: what crosses its ends, and slots for several
 * runs at once.
 *
 * Everything is decided on the whole model, then the nodes outside of [first_node, end_node) are dropped: each kernel
 * is the one of the whole graph, and so is each bit. A value crosses an end when a node before it makes the value and
 * one behind it reads the value; a span that only passes a value on relays it, and its gradient, to which it adds those
 * of its own readers. Ends are places where cuts.h says that a model may be cut.
 *
 * Gradients of what the span holds are written as in graph.h; the tail is, and is announced, only where the loss is.
 */
#ifndef TRI_NN_SPAN_H
#define TRI_NN_SPAN_H

#include "nn/graph.h"

typedef struct tri_crossing {
    int value; /* of the model */
    tri_dtype dtype;
    int64_t count; /* elements of one shard */
    size_t nbytes; /* of one shard */
    bool grad;     /* its gradient crosses too, the other way; of the same type and length */
    int relay;     /* of an outgoing one that was not made here: its number among the incoming ones; else -1 */
} tri_crossing;

typedef struct tri_span {
    tri_crossing *in, *out; /* by value; a span's outgoing ones are the incoming ones of the next */
    int in_count, out_count;
    bool has_input, has_target, has_loss; /* reads the model's input, its target; holds the loss */
} tri_span;

const tri_span *tri_graph_span(const tri_graph *graph);

/* Bytes of the values, or of the gradients, that cross an end in a run of this many shards: they are one after the
 * other, each at a multiple of 64 bytes. */
size_t tri_crossings_nbytes(const tri_crossing *crossings, int count, int shards, bool grads);

/* Where they are: memory of the params' device, at multiples of 64 bytes, the caller's. NULL where nothing crosses. */
typedef struct tri_span_places {
    void *in;   /* incoming values, there before the forward pass and until the backward pass is over */
    void *out;  /* outgoing ones, written in the forward pass; like the incoming ones kept until the backward pass is
                   over */
    void *dout; /* gradients of outgoing ones, there before the backward pass, which may overwrite them */
    void *din;  /* of incoming ones, written in the backward pass */
} tri_span_places;

/* The next forward, or backward, is that of slot `slot`. A backward belongs to the slot's latest forward, whose batch
 * is borrowed until then. A graph has slots where its configuration asks for them: then gradients are set before
 * backward, and forward writes none. */
void tri_graph_slot_enter(tri_graph *graph, int slot, const tri_span_places *places);

/* tri_graph_backward() of a graph with slots in two halves, for those who wait for `din`: after the first one that is
 * written, after the second one all gradients of parameters are (those of linear layers come there). Between the two
 * the slot stays, and what is in its places. */
tri_status tri_graph_backward_values(tri_graph *graph);
tri_status tri_graph_backward_weights(tri_graph *graph);

/* Bytes of one shard of the batch's input and target. */
void tri_graph_batch_nbytes(const tri_graph *graph, size_t *input_nbytes, size_t *target_nbytes);
/* Does this graph write the gradient of that number (entries, ties, the tail last)? */
bool tri_graph_writes(const tri_graph *graph, int number);

#endif
