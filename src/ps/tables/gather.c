/* SPDX-License-Identifier: Apache-2.0
 *
 * gather.c: parts in order of leaves; their rows meet in one sorted list.
 */
#include "ps/tables/gather.h"

#include "ps/pack.h"
#include "ps/tables/part.h"

#define GATHER_MAGIC UINT32_C(0x74677370) /* "psgt" */

struct ps_gather_part {
    tri_tree_part part;
    int64_t count;
    uint64_t *keys; /* [count] */
    float *rows;    /* [count * dim], in the same memory */
};

tri_status ps_gather_init(ps_gather *gather, int64_t leaves, int dim)
{
    *gather = (ps_gather){.leaves = leaves, .dim = dim};
    if (leaves < 1 || (leaves & (leaves - 1)) != 0)
        return tri_fail(TRI_EINVAL, "sum of rows: want a power of two of leaves, got %lld", (long long)leaves);
    if (dim < 1)
        return tri_fail(TRI_EINVAL, "sum of rows: want rows of values, got %d", dim);
    return TRI_OK;
}

static void result_free(ps_gather *gather)
{
    tri_free(gather->keys);
    tri_free(gather->rows);
    gather->keys = NULL;
    gather->rows = NULL;
    gather->count = 0;
}

void ps_gather_reset(ps_gather *gather)
{
    for (int i = 0; i < gather->part_count; i++)
        tri_free(gather->parts[i].keys);
    gather->part_count = 0;
    gather->leaves_here = 0;
    gather->entries = 0;
    gather->dropped = false;
    result_free(gather);
}

void ps_gather_fini(ps_gather *gather)
{
    ps_gather_reset(gather);
    tri_free(gather->parts);
    *gather = (ps_gather){0};
}

/* The first part that ends behind this leaf. */
static int part_after(const ps_gather *gather, int64_t first)
{
    int at = 0;
    while (at < gather->part_count && gather->parts[at].part.first + gather->parts[at].part.count <= first)
        at++;
    return at;
}

/* Room for a part and its rows. */
static tri_status part_make(ps_gather *gather, int at, tri_tree_part part, int64_t count)
{
    if (gather->part_count == gather->part_room) {
        int room = gather->part_room > 0 ? 2 * gather->part_room : 4;
        ps_gather_part *parts = tri_realloc(gather->parts, (size_t)room * sizeof(*parts));
        if (!parts)
            return TRI_ENOMEM;
        gather->parts = parts;
        gather->part_room = room;
    }
    size_t floats = (size_t)count * (size_t)gather->dim;
    uint64_t *memory = tri_alloc((size_t)count * sizeof(uint64_t) + floats * sizeof(float));
    if (!memory)
        return TRI_ENOMEM;
    memmove(gather->parts + at + 1, gather->parts + at, (size_t)(gather->part_count - at) * sizeof(*gather->parts));
    gather->parts[at] = (ps_gather_part){part, count, memory, (float *)(void *)(memory + count)};
    gather->part_count++;
    gather->entries += count;
    gather->leaves_here += part.count;
    return TRI_OK;
}

static tri_status part_take(ps_gather *gather, tri_tree_part part, const void *keys, const void *rows, int64_t count)
{
    if (!ps_is_part(gather->leaves, part))
        return tri_fail(TRI_EINVAL, "part of a sum of rows: want a whole subtree of %lld leaves, got %lld from %lld on",
                        (long long)gather->leaves, (long long)part.count, (long long)part.first);
    int at = part_after(gather, part.first);
    long long first = part.first, last = part.first + part.count - 1;
    if (at < gather->part_count && gather->parts[at].part.first <= last)
        return tri_fail(TRI_EINVAL, "part of a sum of rows: leaves %lld to %lld overlap what is here", first, last);
    if (gather->dropped)
        return tri_fail(TRI_EINVAL, "part of a sum of rows: leaves %lld to %lld were dropped", first, last);
    TRI_TRY(part_make(gather, at, part, count));
    if (count > 0) {
        memcpy(gather->parts[at].keys, keys, (size_t)count * sizeof(uint64_t));
        memcpy(gather->parts[at].rows, rows, (size_t)count * (size_t)gather->dim * sizeof(float));
    }
    return TRI_OK;
}

tri_status ps_gather_take(ps_gather *gather, tri_tree_part part, const uint64_t *keys, const float *rows, int64_t count)
{
    TRI_ASSERT(count >= 0 && count <= UINT32_MAX);
    return part_take(gather, part, keys, rows, count);
}

bool ps_gather_has(const ps_gather *gather, tri_tree_part part)
{
    int64_t next = part.first, end = part.first + part.count;
    if (!ps_is_part(gather->leaves, part))
        return false;
    for (int at = part_after(gather, part.first); at < gather->part_count && next < end; at++) {
        if (gather->parts[at].part.first > next)
            return false;
        next = gather->parts[at].part.first + gather->parts[at].part.count;
    }
    return next >= end;
}

int64_t ps_gather_count(const ps_gather *gather)
{
    return gather->leaves_here;
}

void ps_gather_drop(ps_gather *gather)
{
    gather->dropped = true;
}

bool ps_gather_is_whole(const ps_gather *gather)
{
    return gather->dropped || gather->leaves_here == gather->leaves;
}

/* --- adding up --- */

typedef struct finish_memory {
    ps_pair *pairs;       /* [2 entries] */
    tri_tree_part *parts; /* [part_count] those that have the key */
    tri_tree_step *steps; /* [part_count] */
    float **rows;         /* [part_count] theirs */
} finish_memory;

static void row_add(float *sum, const float *row, int dim)
{
    for (int e = 0; e < dim; e++)
        sum[e] += row[e];
}

/* The sum of a key's rows, pairs[0 .. count) in order of parts, is in the first one's place. */
static const float *key_sum(const ps_gather *gather, const finish_memory *memory, const ps_pair *pairs, int64_t count)
{
    int held = 0;
    for (int64_t i = 0; i < count; i++) {
        const ps_gather_part *part = &gather->parts[pairs[i].part];
        float *row = part->rows + (size_t)pairs[i].at * (size_t)gather->dim;
        if (i > 0 && pairs[i].part == pairs[i - 1].part) {
            row_add(memory->rows[held - 1], row, gather->dim);
            continue;
        }
        memory->parts[held] = part->part;
        memory->rows[held++] = row;
    }
    int steps = tri_tree_plan_some(memory->parts, held, memory->steps);
    for (int s = 0; s < steps; s++)
        row_add(memory->rows[memory->steps[s].into], memory->rows[memory->steps[s].from], gather->dim);
    return memory->rows[0];
}

static int64_t pairs_list(const ps_gather *gather, ps_pair *pairs)
{
    int64_t listed = 0, distinct = 0;
    for (int p = 0; p < gather->part_count; p++)
        for (int64_t i = 0; i < gather->parts[p].count; i++)
            pairs[listed++] = (ps_pair){gather->parts[p].keys[i], (uint32_t)p, (uint32_t)i};
    ps_pairs_sort(pairs, pairs + listed, listed);
    for (int64_t i = 0; i < listed; i++)
        distinct += i == 0 || pairs[i].key != pairs[i - 1].key;
    return distinct;
}

static tri_status keys_sum(ps_gather *gather, const finish_memory *memory)
{
    int64_t distinct = pairs_list(gather, memory->pairs);
    size_t dim = (size_t)gather->dim;
    gather->keys = tri_alloc((size_t)distinct * sizeof(uint64_t));
    gather->rows = tri_alloc((size_t)distinct * dim * sizeof(float));
    if (!gather->keys || !gather->rows) {
        result_free(gather);
        return TRI_ENOMEM;
    }
    for (int64_t i = 0, end = 0; i < gather->entries; i = end) {
        while (end < gather->entries && memory->pairs[end].key == memory->pairs[i].key)
            end++;
        const float *sum = key_sum(gather, memory, memory->pairs + i, end - i);
        memcpy(gather->rows + (size_t)gather->count * dim, sum, dim * sizeof(float));
        gather->keys[gather->count++] = memory->pairs[i].key;
    }
    return TRI_OK;
}

tri_status ps_gather_finish(ps_gather *gather)
{
    TRI_ASSERT(ps_gather_is_whole(gather) && !gather->keys);
    size_t parts = (size_t)gather->part_count + 1;
    finish_memory memory = {.pairs = tri_alloc((size_t)(2 * gather->entries) * sizeof(ps_pair)),
                            .parts = tri_alloc(parts * sizeof(tri_tree_part)),
                            .steps = tri_alloc(parts * sizeof(tri_tree_step)),
                            .rows = tri_alloc(parts * sizeof(float *))};
    tri_status status = TRI_ENOMEM;
    if (memory.pairs && memory.parts && memory.steps && memory.rows)
        status = keys_sum(gather, &memory);
    tri_free(memory.pairs);
    tri_free(memory.parts);
    tri_free(memory.steps);
    tri_free(memory.rows);
    return status;
}

/* --- as bytes: magic, dropped, leaves, dim, parts; first, count, rows of each part, keys, rows --- */

tri_status ps_gather_write(const ps_gather *gather, tri_string *out)
{
    TRI_ASSERT(!gather->keys);
    TRI_TRY(ps_put_u32(out, GATHER_MAGIC));
    TRI_TRY(ps_put_u32(out, gather->dropped));
    TRI_TRY(ps_put_u64(out, (uint64_t)gather->leaves));
    TRI_TRY(ps_put_u32(out, (uint32_t)gather->dim));
    TRI_TRY(ps_put_u32(out, (uint32_t)gather->part_count));
    for (int i = 0; i < gather->part_count; i++) {
        const ps_gather_part *part = &gather->parts[i];
        TRI_TRY(ps_put_u64(out, (uint64_t)part->part.first));
        TRI_TRY(ps_put_u64(out, (uint64_t)part->part.count));
        TRI_TRY(ps_put_u64(out, (uint64_t)part->count));
        TRI_TRY(tri_string_append_bytes(out, part->keys, (size_t)part->count * sizeof(uint64_t)));
        TRI_TRY(tri_string_append_bytes(out, part->rows, (size_t)part->count * (size_t)gather->dim * sizeof(float)));
    }
    return TRI_OK;
}

static tri_status read_part(ps_gather *gather, ps_reader *reader)
{
    size_t dim = (size_t)gather->dim;
    tri_tree_part part = {(int64_t)ps_read_u64(reader), 0};
    part.count = (int64_t)ps_read_u64(reader);
    uint64_t count = ps_read_u64(reader);
    if (reader->ended || count > reader->left / (sizeof(uint64_t) + dim * sizeof(float)) || count > UINT32_MAX)
        return tri_fail(TRI_EFORMAT, "bytes of a sum of rows: cut short");
    const unsigned char *keys = ps_read(reader, (size_t)count * sizeof(uint64_t));
    const unsigned char *rows = ps_read(reader, (size_t)count * dim * sizeof(float));
    tri_status status = part_take(gather, part, keys, rows, (int64_t)count);
    return status == TRI_EINVAL ? tri_fail_copy(TRI_EFORMAT, tri_last_error()) : status;
}

tri_status ps_gather_read(ps_gather *gather, const void *bytes, size_t nbytes)
{
    ps_reader reader = ps_reader_make(bytes, nbytes);
    ps_gather_reset(gather);
    uint32_t magic = ps_read_u32(&reader), dropped = ps_read_u32(&reader);
    uint64_t leaves = ps_read_u64(&reader);
    uint32_t dim = ps_read_u32(&reader), parts = ps_read_u32(&reader);
    if (reader.ended || magic != GATHER_MAGIC || dropped > 1)
        return tri_fail(TRI_EFORMAT, "bytes of a sum of rows: there is none in %zu bytes", nbytes);
    if (leaves != (uint64_t)gather->leaves || dim != (uint32_t)gather->dim)
        return tri_fail(TRI_EFORMAT, "bytes of a sum of rows: want %lld leaves and %d values, got %llu and %u",
                        (long long)gather->leaves, gather->dim, (unsigned long long)leaves, dim);
    tri_status status = TRI_OK;
    for (uint32_t i = 0; i < parts && status == TRI_OK; i++)
        status = read_part(gather, &reader);
    if (status == TRI_OK && reader.left > 0)
        status = tri_fail(TRI_EFORMAT, "bytes of a sum of rows: %zu bytes too many", reader.left);
    if (status != TRI_OK) {
        ps_gather_reset(gather);
        return status;
    }
    gather->dropped = dropped;
    return TRI_OK;
}
