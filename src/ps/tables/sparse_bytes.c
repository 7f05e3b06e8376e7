/* SPDX-License-Identifier: Apache-2.0
 *
 * sparse_bytes.c: rows as bytes: magic, dim, floats of a row, rows; of each key, clock, pushes, floats, in order of
 * hashes.
 */
#include "ps/pack.h"
#include "ps/tables/sparse_impl.h"

#define SPARSE_MAGIC UINT32_C(0x77727370) /* "psrw" */
#define HEAD_NBYTES  20
#define ROW_NBYTES   16 /* and the floats */
#define BLOCK        64 /* rows that are looked up together */

tri_status ps_sparse_write(const ps_sparse *table, int slot, ps_cursor *cursor, int64_t most, tri_string *out,
                           int64_t *count)
{
    ps_row row;
    ps_cursor at = *cursor;
    size_t begin = out->nbytes;
    int64_t written = 0;
    TRI_TRY(ps_put_u32(out, SPARSE_MAGIC));
    TRI_TRY(ps_put_u32(out, (uint32_t)table->dim));
    TRI_TRY(ps_put_u32(out, (uint32_t)table->floats));
    TRI_TRY(ps_put_u64(out, 0));
    for (; written < most && ps_sparse_next(table, slot, &at, &row); written++) {
        TRI_TRY(ps_put_u64(out, row.key));
        TRI_TRY(ps_put_u32(out, row.clock));
        TRI_TRY(ps_put_u32(out, row.touches));
        TRI_TRY(tri_string_append_bytes(out, row.values, (size_t)table->floats * sizeof(float)));
    }
    tri_bytes_write_u64((unsigned char *)out->text + begin + 12, (uint64_t)written);
    *cursor = at;
    *count = written;
    return TRI_OK;
}

static tri_status check_bytes(const ps_sparse *table, ps_reader reader, uint64_t *count)
{
    size_t nbytes = reader.left;
    uint32_t magic = ps_read_u32(&reader), dim = ps_read_u32(&reader), floats = ps_read_u32(&reader);
    *count = ps_read_u64(&reader);
    if (reader.ended || magic != SPARSE_MAGIC)
        return tri_fail(TRI_EFORMAT, "rows of table %s: there are none in %zu bytes", table->name, nbytes);
    if (dim != (uint32_t)table->dim || floats != (uint32_t)table->floats)
        return tri_fail(TRI_EFORMAT, "rows of table %s: want %d values and %d with state, got %u and %u", table->name,
                        table->dim, table->floats, dim, floats);
    size_t each = ROW_NBYTES + (size_t)table->floats * sizeof(float);
    if (reader.left % each != 0 || reader.left / each != *count)
        return tri_fail(TRI_EFORMAT, "rows of table %s: want %llu of %zu bytes each, got %zu bytes", table->name,
                        (unsigned long long)*count, each, reader.left);
    return TRI_OK;
}

static tri_status read_rows(ps_sparse *table, ps_reader *reader, int64_t count)
{
    size_t floats_nbytes = (size_t)table->floats * sizeof(float);
    uint64_t keys[BLOCK] = {0};
    for (int64_t i = 0; i < count; i++)
        keys[i] = tri_bytes_read_u64(reader->at + (size_t)i * (ROW_NBYTES + floats_nbytes));
    const sparse_list *found;
    TRI_TRY(sparse_resolve(table, 0, keys, count, &found));
    for (int64_t i = 0; i < count; i++) {
        sparse_row *row = sparse_row_at(table, found->rows[i]);
        ps_read_u64(reader);
        row->clock = ps_read_u32(reader);
        row->touches = ps_read_u32(reader);
        memcpy(sparse_floats(row), ps_read(reader, floats_nbytes), floats_nbytes);
    }
    return TRI_OK;
}

tri_status ps_sparse_read(ps_sparse *table, const void *bytes, size_t nbytes)
{
    ps_reader reader = ps_reader_make(bytes, nbytes);
    uint64_t count;
    TRI_TRY(check_bytes(table, reader, &count));
    ps_read(&reader, HEAD_NBYTES);
    for (uint64_t first = 0; first < count; first += BLOCK)
        TRI_TRY(read_rows(table, &reader, count - first < BLOCK ? (int64_t)(count - first) : BLOCK));
    return TRI_OK;
}
