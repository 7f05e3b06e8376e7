/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_map.c: windows of tensors, packed by those who hold elements of them.
 *
 * What a rank sends of a window is its holdings in their order, each from its first element of the window to its last;
 * rank 0 knows all holdings and puts every element where it belongs.
 */
#include "train/checkpointing/shard_map.h"

#include <string.h>

#include "base/memory.h"

enum { ROW_TENSOR, ROW_PARTS, ROW_PART, ROW_DIM, ROW_GROUPS, ROW_EXTENT, ROW_LEAD, ROW_LOW, ROW_HIGH, ROW_GIVES };

struct tri_inventory {
    tri_group *group;
    int rank, ranks;
    const tri_tensors *tensors;
    tri_holding *own; /* in order of tensors */
    int own_count;
    tri_holding *all; /* rank 0: of the others, in order of tensors, then of ranks */
    int all_count;
    float *window, *packed; /* of TRI_INVENTORY_WINDOW elements; rank 0 has both, the others packed */
    bool spread;
};

/* Elements [first, first + count) of a tensor, and where those of a holding are for this rank: in its array, or (of
 * other ranks) in the window. */
typedef struct window_view {
    int64_t first, count;
    float *array, *window; /* one is NULL */
} window_view;

/* --- what is held --- */

tri_status tri_holdings_of_slice(const tri_params *params, const tri_tensors *tensors, tri_sync_slice slice, int64_t at,
                                 bool uncut, tri_vector *list)
{
    list->each = sizeof(tri_holding);
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        tri_slice here = tri_param_within(entry, slice);
        if (here.count == 0)
            continue;
        tri_holding holding = {.tensor = tensors->of_param[entry->number],
                               .shape = entry->shape,
                               .piece = entry->piece,
                               .low = here.first - entry->first,
                               .high = here.first - entry->first + here.count,
                               .gives = (uncut || !tri_param_is_replicated(entry)) && !entry->copy,
                               .at = here.first - slice.first + at};
        if (!tri_vector_push(list, &holding))
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

/* --- rank 0 learns of all --- */

void tri_holding_write(const tri_holding *holding, int64_t row[TRI_HOLDING_ROW])
{
    row[ROW_TENSOR] = holding->tensor;
    row[ROW_PARTS] = holding->piece.parts;
    row[ROW_PART] = holding->piece.part;
    row[ROW_DIM] = holding->piece.dim;
    row[ROW_GROUPS] = holding->piece.groups;
    row[ROW_EXTENT] = holding->piece.extent;
    row[ROW_LEAD] = holding->piece.lead;
    row[ROW_LOW] = holding->low;
    row[ROW_HIGH] = holding->high;
    row[ROW_GIVES] = holding->gives;
}

/* The ranks of one run have the same model: what a peer holds is a piece of one of its tensors, or it is refused. */
tri_status tri_holding_read(const tri_tensors *tensors, const int64_t row[TRI_HOLDING_ROW], int rank,
                            tri_holding *holding)
{
    *holding = (tri_holding){.rank = rank, .tensor = (int)row[ROW_TENSOR]};
    if (row[ROW_TENSOR] < 0 || row[ROW_TENSOR] >= tensors->count)
        return tri_fail(TRI_EFORMAT, "rank %d holds tensor %lld of %d", rank, (long long)row[ROW_TENSOR],
                        tensors->count);
    const tri_tensor_row *tensor = &tensors->items[row[ROW_TENSOR]];
    tri_piece piece = {(int)row[ROW_PARTS],  (int)row[ROW_PART], (int)row[ROW_DIM],
                       (int)row[ROW_GROUPS], row[ROW_EXTENT],    (int)row[ROW_LEAD]};
    holding->shape = tensor->shape;
    bool good = piece.parts >= 0;
    if (good && piece.parts > 0) {
        good = tri_piece_is_sound(piece) && piece.dim >= 0 && piece.dim < tensor->shape.ndim &&
               piece.extent == tensor->shape.dim[piece.dim];
        if (good)
            holding->shape.dim[piece.dim] = tri_piece_count(piece);
    }
    holding->piece = piece;
    holding->low = row[ROW_LOW];
    holding->high = row[ROW_HIGH];
    holding->gives = row[ROW_GIVES] != 0;
    good =
        good && holding->low >= 0 && holding->low < holding->high && holding->high <= tri_shape_count(holding->shape);
    return good
               ? TRI_OK
               : tri_fail(TRI_EFORMAT, "rank %d says that it holds elements %lld to %lld of piece %d of %d of %s", rank,
                          (long long)holding->low, (long long)holding->high, piece.part, piece.parts, tensor->name);
}

/* Rows of all ranks by rank, to holdings by tensor. */
static tri_status rows_sort(tri_inventory *inventory, const int64_t *rows, const int64_t *counts)
{
    tri_holding holding;
    int64_t total = 0;
    for (int r = 1; r < inventory->ranks; r++)
        total += counts[r];
    inventory->all = tri_alloc_zero((size_t)total + 1, sizeof(*inventory->all));
    if (!inventory->all)
        return TRI_ENOMEM;
    for (int tensor = 0; tensor < inventory->tensors->count; tensor++) {
        const int64_t *row = rows + counts[0] * TRI_HOLDING_ROW;
        for (int r = 1; r < inventory->ranks; r++)
            for (int64_t i = 0; i < counts[r]; i++, row += TRI_HOLDING_ROW) {
                if (tensor == 0)
                    TRI_TRY(tri_holding_read(inventory->tensors, row, r, &holding));
                if (row[ROW_TENSOR] != tensor)
                    continue;
                TRI_TRY(tri_holding_read(inventory->tensors, row, r, &holding));
                inventory->all[inventory->all_count++] = holding;
            }
    }
    return TRI_OK;
}

/* Every rank's rows to rank 0. */
static tri_status rows_gather(tri_inventory *inventory, const int64_t *mine, const int64_t *counts, int64_t *firsts)
{
    int64_t total = 0, *lengths = firsts + inventory->ranks;
    for (int r = 0; r < inventory->ranks; r++) {
        firsts[r] = total;
        lengths[r] = counts[r] * TRI_HOLDING_ROW;
        total += lengths[r];
    }
    int64_t *rows = inventory->rank == 0 ? tri_alloc_zero((size_t)total + 1, sizeof(int64_t)) : NULL;
    if (inventory->rank == 0 && !rows)
        return TRI_ENOMEM;
    tri_blocks blocks = {lengths, firsts};
    tri_group_name_next(inventory->group, "who holds what");
    tri_status status = tri_gather_v(inventory->group, mine, rows, &blocks, TRI_I64, 0, NULL);
    tri_group_name_next(inventory->group, "");
    if (status == TRI_OK && inventory->rank == 0)
        status = rows_sort(inventory, rows, counts);
    tri_free(rows);
    return status;
}

static tri_status holdings_exchange(tri_inventory *inventory)
{
    size_t ranks = (size_t)inventory->ranks;
    int64_t count = inventory->own_count, gives = 0;
    int64_t *mine = tri_alloc_zero((size_t)count * TRI_HOLDING_ROW + 1, sizeof(int64_t));
    int64_t *counts = tri_alloc_zero(5 * ranks, sizeof(int64_t)), *both = counts ? counts + 3 * ranks : NULL;
    tri_status status = mine && counts ? TRI_OK : TRI_ENOMEM;
    for (int64_t i = 0; status == TRI_OK && i < count; i++) {
        tri_holding_write(&inventory->own[i], mine + i * TRI_HOLDING_ROW);
        gives += inventory->own[i].gives;
    }
    if (status == TRI_OK) {
        tri_group_name_next(inventory->group, "who holds what");
        status = tri_all_gather(inventory->group, (int64_t[]){count, gives}, both, 2, TRI_I64, NULL);
        tri_group_name_next(inventory->group, "");
    }
    for (int r = 0; status == TRI_OK && r < inventory->ranks; r++) {
        counts[r] = both[2 * r];
        inventory->spread = inventory->spread || (r > 0 && both[2 * r + 1] > 0);
    }
    if (status == TRI_OK)
        status = rows_gather(inventory, mine, counts, counts + ranks);
    tri_free(mine);
    tri_free(counts);
    return status;
}

static tri_status inventory_fill(tri_inventory *inventory, const tri_vector *holdings)
{
    inventory->own = tri_alloc_zero(holdings->count + 1, sizeof(*inventory->own));
    if (!inventory->own)
        return TRI_ENOMEM;
    for (int tensor = 0; tensor < inventory->tensors->count; tensor++)
        for (size_t i = 0; i < holdings->count; i++) {
            const tri_holding *holding = tri_vector_at(holdings, i);
            if (holding->tensor == tensor)
                inventory->own[inventory->own_count++] = *holding;
        }
    if (inventory->ranks > 1)
        TRI_TRY(holdings_exchange(inventory));
    inventory->packed = tri_alloc(TRI_INVENTORY_WINDOW * sizeof(float));
    inventory->window = inventory->rank == 0 ? tri_alloc(TRI_INVENTORY_WINDOW * sizeof(float)) : NULL;
    return inventory->packed && (inventory->window || inventory->rank > 0) ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_inventory_create(tri_group *group, const tri_tensors *tensors, const tri_vector *holdings,
                                tri_inventory **out)
{
    tri_inventory *inventory = tri_alloc_zero(1, sizeof(*inventory));
    if (!inventory)
        return TRI_ENOMEM;
    inventory->group = group;
    inventory->rank = tri_group_rank(group);
    inventory->ranks = tri_group_count(group);
    inventory->tensors = tensors;
    tri_status status = inventory_fill(inventory, holdings);
    if (status != TRI_OK) {
        tri_inventory_destroy(inventory);
        return status;
    }
    *out = inventory;
    return TRI_OK;
}

void tri_inventory_destroy(tri_inventory *inventory)
{
    if (!inventory)
        return;
    tri_free(inventory->own);
    tri_free(inventory->all);
    tri_free(inventory->window);
    tri_free(inventory->packed);
    tri_free(inventory);
}

const tri_holding *tri_inventory_own(const tri_inventory *inventory, int *count)
{
    *count = inventory->own_count;
    return inventory->own;
}

bool tri_inventory_is_spread(const tri_inventory *inventory)
{
    return inventory->spread;
}

/* --- windows --- */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The elements of a holding in a window, to `packed` or from it (NULL: only counted); returns how many. */
static int64_t holding_move(const tri_holding *holding, const window_view *view, float *packed, bool to_packed)
{
    int64_t done = 0, run;
    for (int64_t place = view->first, end = view->first + view->count; place < end; place += run) {
        int64_t at = tri_piece_find(holding->shape, holding->piece, place, &run);
        run = smaller(run, end - place);
        if (at < 0)
            continue;
        int64_t skip = holding->low > at ? holding->low - at : 0, count = smaller(at + run, holding->high) - at - skip;
        if (count <= 0)
            continue;
        float *here = view->array ? view->array + holding->at + at + skip - holding->low
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
    int64_t count = TRI_INVENTORY_WINDOW - first % TRI_INVENTORY_WINDOW;
    return (window_view){first, smaller(count, tensor->count - first), array, NULL};
}

/* First of the holdings of a tensor. */
static int first_of(const tri_holding *holdings, int count, int tensor)
{
    int low = 0, high = count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (holdings[middle].tensor >= tensor)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Own elements of the tensor in a window, to packed or from it. */
static int64_t own_move(tri_inventory *inventory, int tensor, const window_view *view, bool to_packed)
{
    int64_t done = 0;
    int i = first_of(inventory->own, inventory->own_count, tensor);
    for (; i < inventory->own_count && inventory->own[i].tensor == tensor; i++)
        if (inventory->own[i].gives || !to_packed)
            done += holding_move(&inventory->own[i], view, inventory->packed + done, to_packed);
    return done;
}

/* Rank 0: elements of one peer, whose holdings are [i, end), in the window, to packed or from it; or counted. */
static int64_t peer_move(tri_inventory *inventory, int i, int end, window_view view, bool gives, float *packed,
                         bool to_packed)
{
    int64_t done = 0;
    view.array = NULL;
    view.window = inventory->window;
    for (; i < end; i++)
        if (inventory->all[i].gives || !gives)
            done += holding_move(&inventory->all[i], &view, packed ? packed + done : NULL, to_packed);
    return done;
}

/* One message of elements between rank 0 and another. */
static tri_status packed_send(tri_inventory *inventory, int64_t count, int to)
{
    tri_group_name_next(inventory->group, "tensors");
    tri_status status = tri_send(inventory->group, inventory->packed, count, TRI_F32, to, NULL);
    tri_group_name_next(inventory->group, "");
    return status;
}

static tri_status packed_receive(tri_inventory *inventory, int64_t count, int from)
{
    tri_group_name_next(inventory->group, "tensors");
    tri_status status = tri_receive(inventory->group, inventory->packed, count, TRI_F32, from, NULL);
    tri_group_name_next(inventory->group, "");
    return status;
}

/* Past the last holding of the tensor by the rank of holding i. */
static int peer_end(const tri_inventory *inventory, int i)
{
    const tri_holding *all = inventory->all;
    int end = i + 1;
    while (end < inventory->all_count && all[end].tensor == all[i].tensor && all[end].rank == all[i].rank)
        end++;
    return end;
}

/* Rank 0: what the peers hold of a window, from them into it or out of it to them. */
static tri_status peers_exchange(tri_inventory *inventory, int tensor, const window_view *view, bool gives)
{
    int i = first_of(inventory->all, inventory->all_count, tensor);
    for (int end; i < inventory->all_count && inventory->all[i].tensor == tensor; i = end) {
        end = peer_end(inventory, i);
        int rank = inventory->all[i].rank;
        int64_t count = peer_move(inventory, i, end, *view, gives, NULL, false);
        if (count == 0)
            continue;
        if (gives) {
            TRI_TRY(packed_receive(inventory, count, rank));
            peer_move(inventory, i, end, *view, true, inventory->packed, false);
        } else {
            peer_move(inventory, i, end, *view, false, inventory->packed, true);
            TRI_TRY(packed_send(inventory, count, rank));
        }
    }
    return TRI_OK;
}

/* All of the tensor lies here in one piece: its element 0; else NULL. */
static float *whole_here(const tri_inventory *inventory, float *array, int tensor)
{
    int i = first_of(inventory->own, inventory->own_count, tensor);
    if (i == inventory->own_count)
        return NULL;
    const tri_holding *holding = &inventory->own[i];
    bool whole = holding->tensor == tensor && holding->gives && holding->piece.parts <= 1 && holding->low == 0 &&
                 holding->high == inventory->tensors->items[tensor].count;
    return whole ? array + holding->at : NULL;
}

float *tri_inventory_alone(const tri_inventory *inventory, float *array, int tensor)
{
    int i = first_of(inventory->all, inventory->all_count, tensor);
    bool others = i < inventory->all_count && inventory->all[i].tensor == tensor;
    return others ? NULL : whole_here(inventory, array, tensor);
}

/* Own elements of the window are copied by way of `packed`, as others' are. */
tri_status tri_inventory_read(tri_inventory *inventory, float *array, int64_t place, int64_t *count,
                              const float **values)
{
    int tensor = tri_tensors_find(inventory->tensors, place);
    const tri_tensor_row *row = &inventory->tensors->items[tensor];
    float *whole = whole_here(inventory, array, tensor);
    window_view view = window_at(row, place - row->first, array);
    if (whole) {
        *values = whole + view.first;
        return TRI_OK;
    }
    *count = smaller(*count, view.count);
    TRI_TRY(peers_exchange(inventory, tensor, &view, true));
    int i = first_of(inventory->own, inventory->own_count, tensor);
    for (; i < inventory->own_count && inventory->own[i].tensor == tensor; i++) {
        window_view window = {view.first, view.count, NULL, inventory->window};
        if (!inventory->own[i].gives)
            continue;
        holding_move(&inventory->own[i], &view, inventory->packed, true);
        holding_move(&inventory->own[i], &window, inventory->packed, false);
    }
    *values = inventory->window;
    return TRI_OK;
}

tri_status tri_inventory_write(tri_inventory *inventory, float *array, int64_t place, const float *values)
{
    int tensor = tri_tensors_find(inventory->tensors, place);
    const tri_tensor_row *row = &inventory->tensors->items[tensor];
    for (int64_t first = 0; first < row->count;) {
        window_view view = window_at(row, first, array), window = {first, view.count, NULL, inventory->window};
        memcpy(inventory->window, values + first, (size_t)view.count * sizeof(float));
        TRI_TRY(peers_exchange(inventory, tensor, &view, false));
        int i = first_of(inventory->own, inventory->own_count, tensor);
        for (; i < inventory->own_count && inventory->own[i].tensor == tensor; i++) {
            holding_move(&inventory->own[i], &window, inventory->packed, true);
            holding_move(&inventory->own[i], &view, inventory->packed, false);
        }
        first += view.count;
    }
    return TRI_OK;
}

tri_status tri_inventory_give(tri_inventory *inventory, float *array, int tensor)
{
    const tri_tensor_row *row = &inventory->tensors->items[tensor];
    for (int64_t first = 0; first < row->count;) {
        window_view view = window_at(row, first, array);
        int64_t count = own_move(inventory, tensor, &view, true);
        if (count > 0)
            TRI_TRY(packed_send(inventory, count, 0));
        first += view.count;
    }
    return TRI_OK;
}

/* What comes is unpacked as it will be counted: a rank that holds nothing of a window gets nothing. */
tri_status tri_inventory_take(tri_inventory *inventory, float *array, int tensor)
{
    const tri_tensor_row *row = &inventory->tensors->items[tensor];
    for (int64_t first = 0; first < row->count;) {
        window_view view = window_at(row, first, array);
        int64_t count = 0;
        int i = first_of(inventory->own, inventory->own_count, tensor);
        for (; i < inventory->own_count && inventory->own[i].tensor == tensor; i++)
            count += holding_move(&inventory->own[i], &view, NULL, false);
        if (count > 0) {
            TRI_TRY(packed_receive(inventory, count, 0));
            own_move(inventory, tensor, &view, false);
        }
        first += view.count;
    }
    return TRI_OK;
}
