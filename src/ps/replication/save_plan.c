/* SPDX-License-Identifier: Apache-2.0
 *
 * save_plan.c: the plan of a checkpoint that servers receive, to bytes and back.
 */
#include <stdio.h>
#include <string.h>

#include "ps/pack.h"
#include "ps/replication/save.h"

#define TEXT_LIMIT_NBYTES 4096

/* --- to bytes --- */

static tri_status put_text(const char *text, tri_string *out)
{
    TRI_TRY(ps_put_u32(out, (uint32_t)strlen(text)));
    return tri_string_append(out, text);
}

static tri_status put_slices(const tri_checkpoint_slice *slices, int count, tri_string *out)
{
    TRI_TRY(ps_put_u32(out, (uint32_t)count));
    for (int i = 0; i < count; i++) {
        TRI_TRY(put_text(slices[i].name, out));
        TRI_TRY(ps_put_u32(out, (uint32_t)slices[i].shape.ndim));
        for (int d = 0; d < slices[i].shape.ndim; d++)
            TRI_TRY(ps_put_u64(out, (uint64_t)slices[i].shape.dim[d]));
    }
    return TRI_OK;
}

tri_status ps_save_plan_write(const ps_save_plan *plan, tri_string *out)
{
    TRI_TRY(ps_put_u32(out, (uint32_t)plan->target_count));
    for (int i = 0; i < plan->target_count; i++) {
        TRI_TRY(ps_put_u64(out, plan->targets[i].mark));
        TRI_TRY(put_text(plan->targets[i].folder, out));
    }
    TRI_TRY(put_slices(plan->content.model, plan->content.model_count, out));
    TRI_TRY(put_slices(plan->content.state, plan->content.state_count, out));
    TRI_TRY(ps_put_u64(out, (uint64_t)plan->row_count));
    for (int64_t i = 0; i < plan->row_count; i++) {
        const ps_save_row *row = &plan->rows[i];
        TRI_TRY(ps_put_u32(out, row->tensor));
        TRI_TRY(ps_put_u64(out, (uint64_t)row->place));
        TRI_TRY(ps_put_u64(out, (uint64_t)row->count));
        TRI_TRY(ps_put_u64(out, (uint64_t)row->at));
    }
    return TRI_OK;
}

/* --- and back --- */

static tri_status wrong(const char *what)
{
    return tri_fail(TRI_EFORMAT, "a plan of a checkpoint: %s", what);
}

static tri_status read_text(ps_reader *reader, tri_arena *arena, const char **out)
{
    size_t nbytes = ps_read_u32(reader);
    const unsigned char *bytes = nbytes <= TEXT_LIMIT_NBYTES ? ps_read(reader, nbytes) : NULL;
    if (!bytes || memchr(bytes, 0, nbytes))
        return wrong("want a text");
    char *text = tri_arena_alloc(arena, nbytes + 1, 1);
    if (!text)
        return TRI_ENOMEM;
    memcpy(text, bytes, nbytes);
    text[nbytes] = 0;
    *out = text;
    return TRI_OK;
}

/* A count of things, each of which takes at least `least` bytes. */
static bool read_count(ps_reader *reader, uint64_t count, size_t least_nbytes)
{
    return !reader->ended && count <= reader->left / least_nbytes;
}

static tri_status read_shape(ps_reader *reader, tri_shape *shape)
{
    int64_t dims[TRI_MAX_DIMS], count = 1;
    uint32_t ndim = ps_read_u32(reader);
    if (ndim > TRI_MAX_DIMS)
        return wrong("a tensor has too many dimensions");
    for (uint32_t d = 0; d < ndim; d++) {
        dims[d] = (int64_t)ps_read_u64(reader);
        if (dims[d] < 1 || dims[d] > INT64_MAX / 8 / count)
            return wrong("a tensor's shape cannot be");
        count *= dims[d];
    }
    *shape = tri_shape_make((int)ndim, dims);
    return TRI_OK;
}

static tri_status read_slices(ps_reader *reader, tri_arena *arena, const tri_checkpoint_slice **out, int *out_count)
{
    uint32_t count = ps_read_u32(reader);
    if (!read_count(reader, count, 8))
        return wrong("want tensors");
    tri_checkpoint_slice *slices = tri_arena_alloc(arena, (size_t)count + 1, sizeof(*slices));
    if (!slices)
        return TRI_ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        slices[i] = (tri_checkpoint_slice){0};
        TRI_TRY(read_text(reader, arena, &slices[i].name));
        TRI_TRY(read_shape(reader, &slices[i].shape));
    }
    *out = slices;
    *out_count = (int)count;
    return TRI_OK;
}

/* Rows ascend in the store, and are within their tensors. */
static tri_status read_rows(ps_reader *reader, int64_t elements, tri_arena *arena, ps_save_plan *plan)
{
    uint64_t count = ps_read_u64(reader);
    int64_t end = 0;
    if (!read_count(reader, count, 28))
        return wrong("want rows");
    ps_save_row *rows = tri_arena_alloc(arena, (size_t)count + 1, sizeof(*rows));
    if (!rows)
        return TRI_ENOMEM;
    for (uint64_t i = 0; i < count; i++) {
        ps_save_row row = {.tensor = ps_read_u32(reader)};
        row.place = (int64_t)ps_read_u64(reader);
        row.count = (int64_t)ps_read_u64(reader);
        row.at = (int64_t)ps_read_u64(reader);
        int64_t most = row.tensor < (uint32_t)plan->content.model_count
                           ? tri_shape_count(plan->content.model[row.tensor].shape)
                           : 0;
        if (reader->ended || row.place < 0 || row.count < 1 || row.place > most || row.count > most - row.place ||
            row.at < end || row.at > elements || row.count > elements - row.at)
            return wrong("a row is where it cannot be");
        end = row.at + row.count;
        rows[i] = row;
    }
    plan->rows = rows;
    plan->row_count = (int64_t)count;
    return TRI_OK;
}

tri_status ps_save_plan_read(const void *bytes, size_t nbytes, int64_t count, tri_arena *arena, ps_save_plan *plan)
{
    ps_reader reader = ps_reader_make(bytes, nbytes);
    uint32_t targets = ps_read_u32(&reader);
    *plan = (ps_save_plan){0};
    if (targets > TRI_CHECKPOINT_MAX_LEVELS)
        return wrong("too many places");
    for (uint32_t i = 0; i < targets; i++) {
        plan->targets[i].mark = ps_read_u64(&reader);
        TRI_TRY(read_text(&reader, arena, &plan->targets[i].folder));
    }
    plan->target_count = (int)targets;
    TRI_TRY(read_slices(&reader, arena, &plan->content.model, &plan->content.model_count));
    TRI_TRY(read_slices(&reader, arena, &plan->content.state, &plan->content.state_count));
    TRI_TRY(read_rows(&reader, count, arena, plan));
    return reader.left == 0 ? TRI_OK : wrong("there is more behind it");
}

/* --- notes --- */

tri_status ps_save_note_print(int64_t least, int64_t most, tri_string *out)
{
    return tri_string_appendf(out, "pushes %lld %lld", (long long)least, (long long)most);
}

bool ps_save_notes_read(const char *notes, int64_t *least, int64_t *most)
{
    bool any = false;
    for (const char *line = notes; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        long long low, high;
        if (sscanf(line, "pushes %lld %lld", &low, &high) != 2)
            continue;
        *least = any && *least < low ? *least : low;
        *most = any && *most > high ? *most : high;
        any = true;
    }
    return any;
}
