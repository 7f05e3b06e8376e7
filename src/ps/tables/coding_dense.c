/* SPDX-License-Identifier: Apache-2.0
 *
 * coding_dense.c: a walk over the pieces of a block, each coded by one row of ps_wires.
 */
#include "ps/tables/coding_dense.h"

#include <string.h>

#include "ps/rpc/coding.h"

#define SCALED 256 /* values that share a scale */

/* Elements that are coded together: of one entry, or of a tie. */
typedef struct piece {
    int64_t first;  /* in gradient arrays */
    int64_t offset; /* in a body of f32 */
    int64_t count;
    const ps_wire *wire; /* NULL: they do not travel */
} piece;

typedef struct walk {
    const float *from; /* NULL: nothing is written */
    bool of_store;     /* from[] is a whole gradient array, else the block's */
    float *to;         /* NULL: nothing is read */
    unsigned char *bytes;
    size_t nbytes; /* so far */
} walk;

static const ps_wire *wire_of(const ps_spec *spec, const tri_param *entry, int64_t count, bool gradients)
{
    ps_values kind = spec->ps.values;
    if (entry->frozen && gradients)
        return NULL;
    if (entry->buffer || entry->frozen)
        kind = PS_WIRE_F32;
    if (kind == PS_WIRE_INT8 && !gradients)
        kind = PS_WIRE_BF16;
    if (ps_wires[kind].nbytes(count, SCALED) > ps_wires[PS_WIRE_F32].nbytes(count, SCALED))
        kind = PS_WIRE_F32;
    return &ps_wires[kind];
}

static void piece_pass(walk *at, const piece *coded)
{
    if (!coded->wire) {
        if (at->to)
            memset(at->to + coded->offset, 0, (size_t)coded->count * sizeof(float));
        return;
    }
    if (at->from)
        coded->wire->write(at->from + (at->of_store ? coded->first : coded->offset), coded->count, SCALED,
                           at->bytes + at->nbytes, NULL);
    if (at->to)
        coded->wire->read(at->bytes + at->nbytes, coded->count, SCALED, at->to + coded->offset);
    at->nbytes += coded->wire->nbytes(coded->count, SCALED);
}

/* Entries in the order of the store. */
static void entries_walk(const ps_spec *spec, const ps_cut *cut, bool gradients, walk *at)
{
    int64_t end = 0;
    for (int e = 0; e < spec->params.entry_count; e++) {
        const tri_param *entry = &spec->params.entries[e];
        tri_slice within = tri_param_within(entry, (tri_slice){cut->first, cut->count});
        if (within.count == 0)
            continue;
        piece coded = {.first = within.first, .offset = within.first - cut->first, .count = within.count};
        coded.wire = wire_of(spec, entry, within.count, gradients);
        if (gradients && at->to)
            memset(at->to + end, 0, (size_t)(coded.offset - end) * sizeof(float));
        piece_pass(at, &coded);
        end = coded.offset + coded.count;
    }
    if (gradients && at->to)
        memset(at->to + end, 0, (size_t)(cut->count - end) * sizeof(float));
}

/* Ties, which follow the block's own. */
static void ties_walk(const ps_spec *spec, const ps_cut *cut, walk *at)
{
    int64_t offset = cut->count;
    for (int t = 0; cut->tied > 0 && t < spec->params.tie_count; t++) {
        const tri_param *entry = &spec->params.entries[spec->params.ties[t].entry];
        tri_slice within = tri_param_within(entry, (tri_slice){cut->first, cut->count});
        if (within.count == 0)
            continue;
        piece coded = {.first = spec->params.ties[t].first + (within.first - entry->first),
                       .offset = offset,
                       .count = within.count,
                       .wire = wire_of(spec, entry, within.count, true)};
        piece_pass(at, &coded);
        offset += within.count;
    }
}

static size_t block_walk(const ps_spec *spec, const ps_cut *cut, bool gradients, walk at)
{
    entries_walk(spec, cut, gradients, &at);
    if (gradients)
        ties_walk(spec, cut, &at);
    return at.nbytes;
}

size_t tri_ps_gradients_nbytes(const ps_spec *spec, const ps_cut *cut)
{
    return tri_ps_is_coded(&spec->ps) ? block_walk(spec, cut, true, (walk){0}) : tri_ps_cut_nbytes(cut);
}

void tri_ps_gradients_write(const ps_spec *spec, const ps_cut *cut, const float *grads, void *bytes)
{
    block_walk(spec, cut, true, (walk){.from = grads, .of_store = true, .bytes = bytes});
}

void tri_ps_gradients_read(const ps_spec *spec, const ps_cut *cut, const void *bytes, float *sums)
{
    block_walk(spec, cut, true, (walk){.to = sums, .bytes = (unsigned char *)(uintptr_t)bytes});
}

size_t tri_ps_values_nbytes(const ps_spec *spec, const ps_cut *cut)
{
    return tri_ps_is_coded(&spec->ps) ? block_walk(spec, cut, false, (walk){0}) : (size_t)cut->count * sizeof(float);
}

void tri_ps_values_write(const ps_spec *spec, const ps_cut *cut, const float *values, void *bytes)
{
    block_walk(spec, cut, false, (walk){.from = values, .bytes = bytes});
}

void tri_ps_values_read(const ps_spec *spec, const ps_cut *cut, const void *bytes, float *values)
{
    block_walk(spec, cut, false, (walk){.to = values, .bytes = (unsigned char *)(uintptr_t)bytes});
}
