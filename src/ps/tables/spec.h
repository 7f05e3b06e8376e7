/* SPDX-License-Identifier: Apache-2.0
 *
 * spec.h: what a table of parameters is, as client and server both know it: its entries, how they move, and its blocks.
 *
 * The client says it once, as a text; the server checks and rebuilds it, so that both cut the same blocks and the
 * server moves them by the very code that a worker would (tri_optim). A dense table is a store (nn/params.h) of which
 * the values are elsewhere.
 */
#ifndef TRI_PS_SPEC_H
#define TRI_PS_SPEC_H

#include "optim/optim.h"
#include "ps/ps.h"
#include "ps/view.h"

#define PS_NAME_NBYTES 64

/* Elements of the store that travel and move together, with the gradients of ties that are added to them: one message's
 * body is [count] elements and then those of each tie. */
typedef struct ps_cut {
    int64_t first, count;
    int64_t tied; /* elements of ties behind them */
} ps_cut;

typedef struct ps_spec {
    char name[PS_NAME_NBYTES];
    tri_params params; /* entries and ties; no values, names are the arena's */
    int64_t leaves;    /* shards of a batch, a power of two */
    int workers;
    uint64_t job;  /* what all workers must have in common besides: a hash */
    int64_t era;   /* how often the run has gone back to a checkpoint (views.h) */
    int64_t steps; /* of the run: what a learning rate's schedule counts */
    tri_ps_config ps;
    tri_optim_config optim;
    ps_cut *cuts;
    int cut_count;
    tri_arena *arena; /* holds what a parsed one has */
} ps_spec;

/* Of a trainer's store, borrowed: names and arrays stay the params'. */
tri_status tri_ps_spec_of(const tri_params *params, const tri_ps_config *ps, const tri_optim_config *optim,
                          int64_t leaves, int workers, int64_t steps, ps_spec *spec);
tri_status tri_ps_spec_print(const ps_spec *spec, tri_string *out);
/* The bytes of a stranger: TRI_ECONFIG says what is wrong. Ends with fini whatever is returned. */
tri_status tri_ps_spec_parse(const char *text, size_t nbytes, ps_spec *spec);
void tri_ps_spec_fini(ps_spec *spec);

/* Of the gradients of ties: the part that belongs to elements of a block. Calls `piece` for each, in order. */
typedef void (*ps_tie_piece)(void *arg, int64_t grad_first, int64_t offset, int64_t count);
void tri_ps_ties_walk(const ps_spec *spec, const ps_cut *cut, ps_tie_piece piece, void *arg);
/* The slot of each block: slots[cut_count]. */
tri_status tri_ps_slots(const ps_spec *spec, uint8_t *slots);
/* The number of the server that has each block: owners[cut_count]. */
tri_status tri_ps_owners(const ps_spec *spec, const ps_view *view, int *owners);
/* The norm's blocks (tri_clip_squares) that a block's trained elements fill. */
tri_slice tri_ps_norm_blocks(const ps_spec *spec, const ps_cut *cut);
/* Does anything in it move? */
bool tri_ps_cut_moves(const ps_spec *spec, const ps_cut *cut);
/* Bytes of its gradients in a message. */
static inline size_t tri_ps_cut_nbytes(const ps_cut *cut)
{
    return (size_t)(cut->count + cut->tied) * sizeof(float);
}

#endif
