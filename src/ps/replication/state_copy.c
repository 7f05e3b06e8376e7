/* SPDX-License-Identifier: Apache-2.0
 *
 * state_copy.c: what a server knows of a table and of a block, as bytes for its backup, and back.
 *
 * The bytes come from a server of the same job; they are checked for length all the same.
 */
#include "ps/pack.h"
#include "ps/replication/replication.h"
#include "ps/server/dense.h"

static tri_status put_floats(tri_string *out, const float *values, int64_t count)
{
    return tri_string_append_bytes(out, values, (size_t)count * sizeof(float));
}

static bool read_floats(ps_reader *reader, float *values, int64_t count)
{
    const unsigned char *bytes = ps_read(reader, (size_t)count * sizeof(float));
    if (bytes)
        memcpy(values, bytes, (size_t)count * sizeof(float));
    return bytes;
}

static tri_status put_numbers(tri_string *out, const int64_t *numbers, int count)
{
    for (int i = 0; i < count; i++)
        TRI_TRY(ps_put_u64(out, (uint64_t)numbers[i]));
    return TRI_OK;
}

/* Numbers that only grow: what is here may be further on than a server that has just come back. */
static void read_greater(ps_reader *reader, int64_t *numbers, int count)
{
    for (int i = 0; i < count; i++) {
        int64_t known = (int64_t)ps_read_u64(reader);
        numbers[i] = !reader->ended && known > numbers[i] ? known : numbers[i];
    }
}

static void read_numbers(ps_reader *reader, int64_t *numbers, int count)
{
    for (int i = 0; i < count; i++)
        numbers[i] = (int64_t)ps_read_u64(reader);
}

static tri_status put_sum(tri_string *out, const ps_sum *sum)
{
    tri_string bytes = {0};
    tri_status status = ps_sum_write(sum, &bytes);
    if (status == TRI_OK)
        status = ps_put_u64(out, bytes.nbytes);
    if (status == TRI_OK)
        status = tri_string_append_bytes(out, tri_string_text(&bytes), bytes.nbytes);
    tri_string_fini(&bytes);
    return status;
}

static tri_status read_sum(ps_reader *reader, ps_sum *sum)
{
    size_t nbytes = (size_t)ps_read_u64(reader);
    const unsigned char *bytes = ps_read(reader, nbytes);
    if (!bytes)
        return tri_fail(TRI_EFORMAT, "a copy of a sum is cut short");
    return ps_sum_read(sum, bytes, nbytes);
}

static tri_status cut_short(const ps_table *table)
{
    return tri_fail(TRI_EFORMAT, "a copy of table '%s' has not the bytes it should", table->spec.name);
}

/* --- tables --- */

tri_status tri_ps_table_write(const ps_table *table, tri_string *out)
{
    uint32_t scale;
    memcpy(&scale, &table->scale, sizeof(scale));
    uint32_t flags = (table->ready ? 1u : 0) | (table->tail_whole ? 2u : 0) | (table->scaled ? 4u : 0);
    TRI_TRY(ps_put_u32(out, flags));
    TRI_TRY(ps_put_u32(out, scale));
    TRI_TRY(ps_put_u64(out, (uint64_t)table->tail_clock));
    TRI_TRY(put_floats(out, table->tail_sum, TRI_PARAMS_TAIL));
    TRI_TRY(put_floats(out, table->tail_before, TRI_PARAMS_TAIL));
    TRI_TRY(put_sum(out, &table->tail));
    TRI_TRY(put_numbers(out, table->clocks, table->spec.workers));
    TRI_TRY(put_numbers(out, table->went_on, table->spec.workers));
    TRI_TRY(put_numbers(out, table->dealt, table->spec.workers));
    return ps_put_u64(out, (uint64_t)table->next_deal);
}

/* Both have heard some workers themselves. */
static tri_status tail_merge(ps_table *table, ps_reader *reader)
{
    ps_sum tail;
    tri_status status = ps_sum_init(&tail, table->spec.leaves, TRI_PARAMS_TAIL);
    if (status == TRI_OK)
        status = read_sum(reader, &tail);
    if (status == TRI_OK)
        status = ps_sum_merge(&table->tail, &tail);
    ps_sum_fini(&tail);
    return status;
}

/* What is known of the step that is further on. */
tri_status tri_ps_table_read(ps_table *table, const void *bytes, size_t nbytes)
{
    ps_reader reader = ps_reader_make(bytes, nbytes);
    uint32_t flags = ps_read_u32(&reader), scale = ps_read_u32(&reader);
    int64_t clock = (int64_t)ps_read_u64(&reader);
    float sums[2][TRI_PARAMS_TAIL];
    read_floats(&reader, sums[0], TRI_PARAMS_TAIL);
    read_floats(&reader, sums[1], TRI_PARAMS_TAIL);
    if (reader.ended)
        return cut_short(table);
    table->ready = table->ready || (flags & 1);
    if (clock == table->tail_clock && (flags & 4) && table->tail_whole && !table->scaled) {
        table->scaled = true;
        memcpy(&table->scale, &scale, sizeof(scale));
    }
    if (clock < table->tail_clock || (clock == table->tail_clock && table->tail_whole))
        return TRI_OK;
    if (clock > table->tail_clock || (flags & 2)) {
        table->tail_clock = clock;
        table->tail_whole = flags & 2;
        table->scaled = flags & 4;
        memcpy(&table->scale, &scale, sizeof(scale));
        memcpy(table->tail_sum, sums[0], sizeof(sums[0]));
        memcpy(table->tail_before, sums[1], sizeof(sums[1]));
        TRI_TRY(read_sum(&reader, &table->tail));
    } else
        TRI_TRY(tail_merge(table, &reader));
    read_greater(&reader, table->clocks, table->spec.workers);
    read_greater(&reader, table->went_on, table->spec.workers);
    read_greater(&reader, table->dealt, table->spec.workers);
    read_greater(&reader, &table->next_deal, 1);
    return reader.ended ? cut_short(table) : TRI_OK;
}

/* --- blocks --- */

tri_status tri_ps_block_write(const ps_table *table, const ps_block *block, tri_string *out)
{
    const ps_cut *cut = &table->spec.cuts[block - table->blocks];
    int64_t count = cut->count;
    tri_slice squares = tri_ps_norm_blocks(&table->spec, cut);
    TRI_TRY(ps_put_u32(out, (block->filled ? 1u : 0) | (block->previous ? 2u : 0)));
    TRI_TRY(ps_put_u64(out, (uint64_t)block->clock));
    TRI_TRY(put_floats(out, block->values, count));
    if (block->previous)
        TRI_TRY(put_floats(out, block->previous, count));
    for (int i = 0; i < TRI_OPTIM_MAX_STATE && tri_optim_state_name(block->optim, i); i++)
        TRI_TRY(put_floats(out, tri_optim_state(block->optim, i), count));
    TRI_TRY(put_numbers(out, block->pushed, table->spec.workers));
    TRI_TRY(tri_string_append_bytes(out, table->squares + squares.first, (size_t)squares.count * sizeof(double)));
    return table->consistency == PS_BSP ? put_sum(out, &block->sum) : TRI_OK;
}

tri_status tri_ps_block_read(ps_table *table, ps_block *block, const void *bytes, size_t nbytes)
{
    ps_reader reader = ps_reader_make(bytes, nbytes);
    const ps_cut *cut = &table->spec.cuts[block - table->blocks];
    int64_t count = cut->count;
    tri_slice squares = tri_ps_norm_blocks(&table->spec, cut);
    uint32_t flags = ps_read_u32(&reader);
    block->clock = (int64_t)ps_read_u64(&reader);
    read_floats(&reader, block->values, count);
    if (((flags & 2) != 0) != (block->previous != NULL))
        return cut_short(table);
    if (block->previous)
        read_floats(&reader, block->previous, count);
    for (int i = 0; i < TRI_OPTIM_MAX_STATE && tri_optim_state_name(block->optim, i); i++)
        read_floats(&reader, tri_optim_state(block->optim, i), count);
    read_numbers(&reader, block->pushed, table->spec.workers);
    const unsigned char *known = ps_read(&reader, (size_t)squares.count * sizeof(double));
    if (!known)
        return cut_short(table);
    memcpy(table->squares + squares.first, known, (size_t)squares.count * sizeof(double));
    tri_ps_block_filled(table, block, flags & 1);
    return table->consistency == PS_BSP ? read_sum(&reader, &block->sum) : TRI_OK;
}
