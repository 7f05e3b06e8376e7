/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_map.c: windows of tensors, packed by those who hold elements of them.
 *
 * What a rank sends of a window is its extents in their order, each from its first element of the window to its last;
 * rank 0 knows all extents and puts every element where it belongs.
 */
#include "train/checkpointing/shard_map.h"

#include <string.h>

#include "base/memory.h"

enum { ROW_TENSOR, ROW_PARTS, ROW_PART, ROW_DIM, ROW_GROUPS, ROW_PIECE_EXTENT, ROW_LEAD, ROW_LOW, ROW_HIGH, ROW_GIVES };

struct tri_shard_map {
    tri_group *group;
    int rank, ranks;
    const tri_tensors *tensors;
    tri_extent *own; /* in order of tensors */
    int own_count;
    tri_extent *all; /* rank 0: of the others, in order of tensors, then of ranks */
    int all_count;
    float *window, *packed; /* of TRI_SHARD_MAP_WINDOW elements; rank 0 has both, the others packed */
    bool spread;
};

/* Elements [first, first + count) of a tensor, and where those of an extent are for this rank: in its array, or (of
 * other ranks) in the window. */
typedef struct window_view {
    int64_t first, count;
    float *array, *window; /* one is NULL */
} window_view;

/* --- what is held --- */

tri_status tri_extents_of_slice(const tri_params *params, const tri_tensors *tensors, tri_sync_slice slice, int64_t at,
                                bool uncut, tri_vector *list)
{
    list->each = sizeof(tri_extent);
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        tri_slice here = tri_param_within(entry, slice);
        if (here.count == 0)
            continue;
        tri_extent extent = {.tensor = tensors->of_param[entry->number],
                             .shape = entry->shape,
                             .piece = entry->piece,
                             .low = here.first - entry->first,
                             .high = here.first - entry->first + here.count,
                             .gives = (uncut || !tri_param_is_replicated(entry)) && !entry->copy,
                             .at = here.first - slice.first + at};
        if (!tri_vector_push(list, &extent))
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

/* --- rank 0 learns of all --- */

void tri_extent_write(const tri_extent *extent, int64_t row[TRI_EXTENT_ROW])
{
    row[ROW_TENSOR] = extent->tensor;
    row[ROW_PARTS] = extent->piece.parts;
    row[ROW_PART] = extent->piece.part;
    row[ROW_DIM] = extent->piece.dim;
    row[ROW_GROUPS] = extent->piece.groups;
    row[ROW_PIECE_EXTENT] = extent->piece.extent;
    row[ROW_LEAD] = extent->piece.lead;
    row[ROW_LOW] = extent->low;
    row[ROW_HIGH] = extent->high;
    row[ROW_GIVES] = extent->gives;
}

/* The ranks of one run have the same model: what a peer holds is a piece of one of its tensors, or it is refused. */
tri_status tri_extent_read(const tri_tensors *tensors, const int64_t row[TRI_EXTENT_ROW], int rank, tri_extent *extent)
{
    *extent = (tri_extent){.rank = rank, .tensor = (int)row[ROW_TENSOR]};
    if (row[ROW_TENSOR] < 0 || row[ROW_TENSOR] >= tensors->count)
        return tri_fail(TRI_EFORMAT, "rank %d holds tensor %lld of %d", rank, (long long)row[ROW_TENSOR],
                        tensors->count);
    const tri_tensor_row *tensor = &tensors->items[row[ROW_TENSOR]];
    tri_piece piece = {(int)row[ROW_PARTS],  (int)row[ROW_PART],    (int)row[ROW_DIM],
                       (int)row[ROW_GROUPS], row[ROW_PIECE_EXTENT], (int)row[ROW_LEAD]};
    extent->shape = tensor->shape;
    bool good = piece.parts >= 0;
    if (good && piece.parts > 0) {
        good = tri_piece_is_sound(piece) && piece.dim >= 0 && piece.dim < tensor->shape.ndim &&
               piece.extent == tensor->shape.dim[piece.dim];
        if (good)
            extent->shape.dim[piece.dim] = tri_piece_count(piece);
    }
    extent->piece = piece;
    extent->low = row[ROW_LOW];
    extent->high = row[ROW_HIGH];
    extent->gives = row[ROW_GIVES] != 0;
    good = good && extent->low >= 0 && extent->low < extent->high && extent->high <= tri_shape_count(extent->shape);
    return good
               ? TRI_OK
               : tri_fail(TRI_EFORMAT, "rank %d says that it holds elements %lld to %lld of piece %d of %d of %s", rank,
                          (long long)extent->low, (long long)extent->high, piece.part, piece.parts, tensor->name);
}

/* Rows of all ranks by rank, to extents by tensor. */
static tri_status rows_sort(tri_shard_map *map, const int64_t *rows, const int64_t *counts)
{
    tri_extent extent;
    int64_t total = 0;
    for (int r = 1; r < map->ranks; r++)
        total += counts[r];
    map->all = tri_alloc_zero((size_t)total + 1, sizeof(*map->all));
    if (!map->all)
        return TRI_ENOMEM;
    for (int tensor = 0; tensor < map->tensors->count; tensor++) {
        const int64_t *row = rows + counts[0] * TRI_EXTENT_ROW;
        for (int r = 1; r < map->ranks; r++)
            for (int64_t i = 0; i < counts[r]; i++, row += TRI_EXTENT_ROW) {
                if (tensor == 0)
                    TRI_TRY(tri_extent_read(map->tensors, row, r, &extent));
                if (row[ROW_TENSOR] != tensor)
                    continue;
                TRI_TRY(tri_extent_read(map->tensors, row, r, &extent));
                map->all[map->all_count++] = extent;
            }
    }
    return TRI_OK;
}

/* Every rank's rows to rank 0. */
static tri_status rows_gather(tri_shard_map *map, const int64_t *mine, const int64_t *counts, int64_t *firsts)
{
    int64_t total = 0, *lengths = firsts + map->ranks;
    for (int r = 0; r < map->ranks; r++) {
        firsts[r] = total;
        lengths[r] = counts[r] * TRI_EXTENT_ROW;
        total += lengths[r];
    }
    int64_t *rows = map->rank == 0 ? tri_alloc_zero((size_t)total + 1, sizeof(int64_t)) : NULL;
    if (map->rank == 0 && !rows)
        return TRI_ENOMEM;
    tri_blocks blocks = {lengths, firsts};
    tri_group_name_next(map->group, "who holds what");
    tri_status status = tri_gather_v(map->group, mine, rows, &blocks, TRI_I64, 0, NULL);
    tri_group_name_next(map->group, "");
    if (status == TRI_OK && map->rank == 0)
        status = rows_sort(map, rows, counts);
    tri_free(rows);
    return status;
}

static tri_status extents_exchange(tri_shard_map *map)
{
    size_t ranks = (size_t)map->ranks;
    int64_t count = map->own_count, gives = 0;
    int64_t *mine = tri_alloc_zero((size_t)count * TRI_EXTENT_ROW + 1, sizeof(int64_t));
    int64_t *counts = tri_alloc_zero(5 * ranks, sizeof(int64_t)), *both = counts ? counts + 3 * ranks : NULL;
    tri_status status = mine && counts ? TRI_OK : TRI_ENOMEM;
    for (int64_t i = 0; status == TRI_OK && i < count; i++) {
        tri_extent_write(&map->own[i], mine + i * TRI_EXTENT_ROW);
        gives += map->own[i].gives;
    }
    if (status == TRI_OK) {
        tri_group_name_next(map->group, "who holds what");
        status = tri_all_gather(map->group, (int64_t[]){count, gives}, both, 2, TRI_I64, NULL);
        tri_group_name_next(map->group, "");
    }
    for (int r = 0; status == TRI_OK && r < map->ranks; r++) {
        counts[r] = both[2 * r];
        map->spread = map->spread || (r > 0 && both[2 * r + 1] > 0);
    }
    if (status == TRI_OK)
        status = rows_gather(map, mine, counts, counts + ranks);
    tri_free(mine);
    tri_free(counts);
    return status;
}

static tri_status map_fill(tri_shard_map *map, const tri_vector *extents)
{
    map->own = tri_alloc_zero(extents->count + 1, sizeof(*map->own));
    if (!map->own)
        return TRI_ENOMEM;
    for (int tensor = 0; tensor < map->tensors->count; tensor++)
        for (size_t i = 0; i < extents->count; i++) {
            const tri_extent *extent = tri_vector_at(extents, i);
            if (extent->tensor == tensor)
                map->own[map->own_count++] = *extent;
        }
    if (map->ranks > 1)
        TRI_TRY(extents_exchange(map));
    map->packed = tri_alloc(TRI_SHARD_MAP_WINDOW * sizeof(float));
    map->window = map->rank == 0 ? tri_alloc(TRI_SHARD_MAP_WINDOW * sizeof(float)) : NULL;
    return map->packed && (map->window || map->rank > 0) ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_shard_map_create(tri_group *group, const tri_tensors *tensors, const tri_vector *extents,
                                tri_shard_map **out)
{
    tri_shard_map *map = tri_alloc_zero(1, sizeof(*map));
    if (!map)
        return TRI_ENOMEM;
    map->group = group;
    map->rank = tri_group_rank(group);
    map->ranks = tri_group_count(group);
    map->tensors = tensors;
    tri_status status = map_fill(map, extents);
    if (status != TRI_OK) {
        tri_shard_map_destroy(map);
        return status;
    }
    *out = map;
    return TRI_OK;
}

void tri_shard_map_destroy(tri_shard_map *map)
{
    if (!map)
        return;
    tri_free(map->own);
    tri_free(map->all);
    tri_free(map->window);
    tri_free(map->packed);
    tri_free(map);
}

const tri_extent *tri_shard_map_own(const tri_shard_map *map, int *count)
{
    *count = map->own_count;
    return map->own;
}

bool tri_shard_map_is_spread(const tri_shard_map *map)
{
    return map->spread;
}

/* --- windows --- */

/* The elements of an extent in a window, to `packed` or from it (NULL: only counted); returns how many. */
static int64_t extent_move(const tri_extent *extent, const window_view *view, float *packed, bool to_packed)
{
    int64_t done = 0, run;
    for (int64_t place = view->first, end = view->first + view->count; place < end; place += run) {
        int64_t at = tri_piece_find(extent->shape, extent->piece, place, &run);
        run = tri_int64_min(run, end - place);
        if (at < 0)
            continue;
        int64_t skip = extent->low > at ? extent->low - at : 0,
                count = tri_int64_min(at + run, extent->high) - at - skip;
        if (count <= 0)
            continue;
        float *here = view->array ? view->array + extent->at + at + skip - extent->low
                                  : view->window + place - view->first + skip;
        if (packed)
            memcpy(to_packed ? packed + done : here, to_packed ? here : packed + done, (size_t)count * sizeof(float));
        done += count;
    }
    return done;
}

/* Windows end at multiples of their length. */
static window_view window_at(const tri_tensor_row *tensor, int64_t first, float *array)
{
    int64_t count = TRI_SHARD_MAP_WINDOW - first % TRI_SHARD_MAP_WINDOW;
    return (window_view){first, tri_int64_min(count, tensor->count - first), array, NULL};
}

/* First of the extents of a tensor. */
static int first_of(const tri_extent *extents, int count, int tensor)
{
    int low = 0, high = count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (extents[middle].tensor >= tensor)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Own elements of the tensor in a window, to packed or from it. */
static int64_t own_move(tri_shard_map *map, int tensor, const window_view *view, bool to_packed)
{
    int64_t done = 0;
    int i = first_of(map->own, map->own_count, tensor);
    for (; i < map->own_count && map->own[i].tensor == tensor; i++)
        if (map->own[i].gives || !to_packed)
            done += extent_move(&map->own[i], view, map->packed + done, to_packed);
    return done;
}

/* Rank 0: elements of one peer, whose extents are [i, end), in the window, to packed or from it; or counted. */
static int64_t peer_move(tri_shard_map *map, int i, int end, window_view view, bool gives, float *packed,
                         bool to_packed)
{
    int64_t done = 0;
    view.array = NULL;
    view.window = map->window;
    for (; i < end; i++)
        if (map->all[i].gives || !gives)
            done += extent_move(&map->all[i], &view, packed ? packed + done : NULL, to_packed);
    return done;
}

/* One message of elements between rank 0 and another. */
static tri_status packed_send(tri_shard_map *map, int64_t count, int to)
{
    tri_group_name_next(map->group, "tensors");
    tri_status status = tri_send(map->group, map->packed, count, TRI_F32, to, NULL);
    tri_group_name_next(map->group, "");
    return status;
}

static tri_status packed_receive(tri_shard_map *map, int64_t count, int from)
{
    tri_group_name_next(map->group, "tensors");
    tri_status status = tri_receive(map->group, map->packed, count, TRI_F32, from, NULL);
    tri_group_name_next(map->group, "");
    return status;
}

/* Past the last extent of the tensor by the rank of extent i. */
static int peer_end(const tri_shard_map *map, int i)
{
    const tri_extent *all = map->all;
    int end = i + 1;
    while (end < map->all_count && all[end].tensor == all[i].tensor && all[end].rank == all[i].rank)
        end++;
    return end;
}

/* Rank 0: what the peers hold of a window, from them into it or out of it to them. */
static tri_status peers_exchange(tri_shard_map *map, int tensor, const window_view *view, bool gives)
{
    int i = first_of(map->all, map->all_count, tensor);
    for (int end; i < map->all_count && map->all[i].tensor == tensor; i = end) {
        end = peer_end(map, i);
        int rank = map->all[i].rank;
        int64_t count = peer_move(map, i, end, *view, gives, NULL, false);
        if (count == 0)
            continue;
        if (gives) {
            TRI_TRY(packed_receive(map, count, rank));
            peer_move(map, i, end, *view, true, map->packed, false);
        } else {
            peer_move(map, i, end, *view, false, map->packed, true);
            TRI_TRY(packed_send(map, count, rank));
        }
    }
    return TRI_OK;
}

/* All of the tensor is here in one piece: its element 0; else NULL. */
static float *whole_here(const tri_shard_map *map, float *array, int tensor)
{
    int i = first_of(map->own, map->own_count, tensor);
    if (i == map->own_count)
        return NULL;
    const tri_extent *extent = &map->own[i];
    bool whole = extent->tensor == tensor && extent->gives && extent->piece.parts <= 1 && extent->low == 0 &&
                 extent->high == map->tensors->items[tensor].count;
    return whole ? array + extent->at : NULL;
}

float *tri_shard_map_alone(const tri_shard_map *map, float *array, int tensor)
{
    int i = first_of(map->all, map->all_count, tensor);
    bool others = i < map->all_count && map->all[i].tensor == tensor;
    return others ? NULL : whole_here(map, array, tensor);
}

/* Own elements of the window are copied by way of `packed`, as others' are. */
tri_status tri_shard_map_read(tri_shard_map *map, float *array, int64_t place, int64_t *count, const float **values)
{
    int tensor = tri_tensors_find(map->tensors, place);
    const tri_tensor_row *row = &map->tensors->items[tensor];
    float *whole = whole_here(map, array, tensor);
    window_view view = window_at(row, place - row->first, array);
    if (whole) {
        *values = whole + view.first;
        return TRI_OK;
    }
    *count = tri_int64_min(*count, view.count);
    TRI_TRY(peers_exchange(map, tensor, &view, true));
    int i = first_of(map->own, map->own_count, tensor);
    for (; i < map->own_count && map->own[i].tensor == tensor; i++) {
        window_view window = {view.first, view.count, NULL, map->window};
        if (!map->own[i].gives)
            continue;
        extent_move(&map->own[i], &view, map->packed, true);
        extent_move(&map->own[i], &window, map->packed, false);
    }
    *values = map->window;
    return TRI_OK;
}

tri_status tri_shard_map_write(tri_shard_map *map, float *array, int64_t place, const float *values)
{
    int tensor = tri_tensors_find(map->tensors, place);
    const tri_tensor_row *row = &map->tensors->items[tensor];
    for (int64_t first = 0; first < row->count;) {
        window_view view = window_at(row, first, array), window = {first, view.count, NULL, map->window};
        memcpy(map->window, values + first, (size_t)view.count * sizeof(float));
        TRI_TRY(peers_exchange(map, tensor, &view, false));
        int i = first_of(map->own, map->own_count, tensor);
        for (; i < map->own_count && map->own[i].tensor == tensor; i++) {
            extent_move(&map->own[i], &window, map->packed, true);
            extent_move(&map->own[i], &view, map->packed, false);
        }
        first += view.count;
    }
    return TRI_OK;
}

tri_status tri_shard_map_give(tri_shard_map *map, float *array, int tensor)
{
    const tri_tensor_row *row = &map->tensors->items[tensor];
    for (int64_t first = 0; first < row->count;) {
        window_view view = window_at(row, first, array);
        int64_t count = own_move(map, tensor, &view, true);
        if (count > 0)
            TRI_TRY(packed_send(map, count, 0));
        first += view.count;
    }
    return TRI_OK;
}

/* What comes is unpacked as it will be counted: a rank that holds nothing of a window gets nothing. */
tri_status tri_shard_map_take(tri_shard_map *map, float *array, int tensor)
{
    const tri_tensor_row *row = &map->tensors->items[tensor];
    for (int64_t first = 0; first < row->count;) {
        window_view view = window_at(row, first, array);
        int64_t count = 0;
        int i = first_of(map->own, map->own_count, tensor);
        for (; i < map->own_count && map->own[i].tensor == tensor; i++)
            count += extent_move(&map->own[i], &view, NULL, false);
        if (count > 0) {
            TRI_TRY(packed_receive(map, count, 0));
            own_move(map, tensor, &view, false);
        }
        first += view.count;
    }
    return TRI_OK;
}
