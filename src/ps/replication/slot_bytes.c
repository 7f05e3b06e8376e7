/* SPDX-License-Identifier: Apache-2.0
 *
 * slot_bytes.c: a slot of a table as bytes, for a file or for another server.
 *
 * magic, whole, clock, rows (their bytes, and how many those are); a whole one also has what was heard of each worker,
 * and with bsp the step under way and what the latest one has changed.
 */
#include "base/memory.h"
#include "ps/pack.h"
#include "ps/server/kv.h"

#define SLOT_MAGIC UINT32_C(0x6c737370) /* "pssl" */

/* The number of bytes goes in front of what is appended behind `at`. */
static void length_fill(tri_string *out, size_t at)
{
    tri_bytes_write_u64((unsigned char *)out->text + at, out->nbytes - at - 8);
}

static tri_status numbers_write(const void *numbers, size_t count, tri_string *out)
{
    return tri_string_append_bytes(out, numbers, count * sizeof(uint64_t));
}

static tri_status before_write(const kv_slot *slot, int dim, tri_string *out)
{
    TRI_TRY(ps_put_u64(out, (uint64_t)slot->before_count));
    TRI_TRY(numbers_write(slot->before_keys, (size_t)slot->before_count, out));
    return tri_string_append_bytes(out, slot->before_rows, (size_t)slot->before_count * (size_t)dim * sizeof(float));
}

static tri_status whole_write(const kv_table *table, const kv_slot *slot, tri_string *out)
{
    size_t workers = (size_t)table->spec.workers;
    TRI_TRY(numbers_write(slot->last, workers, out));
    if (slot->clocks)
        return numbers_write(slot->clocks, workers, out);
    size_t at = out->nbytes;
    TRI_TRY(ps_put_u64(out, 0));
    TRI_TRY(ps_gather_write(&slot->gather, out));
    length_fill(out, at);
    return before_write(slot, (int)table->spec.table.dim, out);
}

tri_status tri_ps_kv_slot_write(const kv_table *table, int number, bool whole, tri_string *out)
{
    const kv_slot *slot = &table->slots[number];
    ps_cursor cursor = {0};
    int64_t count;
    TRI_TRY(ps_put_u32(out, SLOT_MAGIC));
    TRI_TRY(ps_put_u32(out, whole));
    TRI_TRY(ps_put_u64(out, (uint64_t)slot->clock));
    size_t at = out->nbytes;
    TRI_TRY(ps_put_u64(out, 0));
    TRI_TRY(ps_sparse_write(table->rows, number, &cursor, INT64_MAX, out, &count));
    length_fill(out, at);
    return whole ? whole_write(table, slot, out) : TRI_OK;
}

static tri_status before_read(kv_slot *slot, size_t dim, ps_reader *reader)
{
    uint64_t count = ps_read_u64(reader);
    if (reader->ended || count > reader->left / (sizeof(uint64_t) + dim * sizeof(float)))
        return tri_fail(TRI_EFORMAT, "bytes of a slot: cut short");
    uint64_t *keys = tri_alloc((size_t)count * sizeof(uint64_t));
    float *rows = tri_alloc((size_t)count * dim * sizeof(float));
    if (!keys || !rows) {
        tri_free(keys);
        tri_free(rows);
        return TRI_ENOMEM;
    }
    memcpy(keys, ps_read(reader, (size_t)count * sizeof(uint64_t)), (size_t)count * sizeof(uint64_t));
    memcpy(rows, ps_read(reader, (size_t)count * dim * sizeof(float)), (size_t)count * dim * sizeof(float));
    tri_free(slot->before_keys);
    tri_free(slot->before_rows);
    slot->before_keys = keys;
    slot->before_rows = rows;
    slot->before_count = (int64_t)count;
    return TRI_OK;
}

static tri_status whole_read(const kv_table *table, kv_slot *slot, ps_reader *reader)
{
    size_t nbytes = (size_t)table->spec.workers * sizeof(uint64_t);
    const unsigned char *last = ps_read(reader, nbytes);
    const unsigned char *clocks = slot->clocks ? ps_read(reader, nbytes) : last;
    if (!last || !clocks)
        return tri_fail(TRI_EFORMAT, "bytes of a slot: cut short");
    memcpy(slot->last, last, nbytes);
    if (slot->clocks) {
        memcpy(slot->clocks, clocks, nbytes);
        return TRI_OK;
    }
    uint64_t gather = ps_read_u64(reader);
    const unsigned char *at = gather <= reader->left ? ps_read(reader, (size_t)gather) : NULL;
    if (!at)
        return tri_fail(TRI_EFORMAT, "bytes of a slot: cut short");
    TRI_TRY(ps_gather_read(&slot->gather, at, (size_t)gather));
    return before_read(slot, (size_t)table->spec.table.dim, reader);
}

/* A slot that was not whole: all workers have finished the same steps, and have pushed nothing since. */
static void slot_begin(const kv_table *table, kv_slot *slot)
{
    for (int w = 0; slot->clocks && w < table->spec.workers; w++)
        slot->clocks[w] = slot->clock;
    if (!slot->clocks)
        ps_gather_reset(&slot->gather);
    slot->before_count = 0;
}

tri_status tri_ps_kv_slot_read(kv_table *table, int number, const void *bytes, size_t nbytes)
{
    kv_slot *slot = &table->slots[number];
    ps_reader reader = ps_reader_make(bytes, nbytes);
    uint32_t magic = ps_read_u32(&reader), whole = ps_read_u32(&reader);
    int64_t clock = (int64_t)ps_read_u64(&reader);
    uint64_t length = ps_read_u64(&reader);
    const unsigned char *rows = length <= reader.left ? ps_read(&reader, (size_t)length) : NULL;
    if (!rows || magic != SLOT_MAGIC || whole > 1 || clock < 0)
        return tri_fail(TRI_EFORMAT, "bytes of a slot: there is none in %zu bytes", nbytes);
    ps_sparse_drop(table->rows, number);
    TRI_TRY(ps_sparse_read(table->rows, rows, (size_t)length));
    slot->clock = clock;
    if (whole)
        TRI_TRY(whole_read(table, slot, &reader));
    else
        slot_begin(table, slot);
    return reader.left == 0 ? TRI_OK : tri_fail(TRI_EFORMAT, "bytes of a slot: %zu too many", reader.left);
}
