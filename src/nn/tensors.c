/* SPDX-License-Identifier: Apache-2.0
 *
 * tensors.c: pieces of one name become one tensor, in the place of the first of them.
 */
#include "nn/tensors.h"

/* The tensor of that name, or -1. */
static int64_t tensor_named(const tri_map *names, const char *name)
{
    int64_t index;
    return tri_map_find(names, name, &index) ? index : -1;
}

static tri_status tensors_fill(const tri_model *model, tri_map *names, tri_tensors *tensors)
{
    const tri_param_spec *specs = model->params.items;
    for (int p = 0; p < tensors->param_count; p++) {
        int64_t index = tensor_named(names, specs[p].name);
        if (index < 0) {
            index = tensors->count++;
            tri_tensor_row *row = &tensors->items[index];
            row->name = tri_arena_strdup(&tensors->arena, specs[p].name);
            if (!row->name)
                return TRI_ENOMEM;
            row->shape = tri_piece_whole(specs[p].shape, specs[p].piece);
            row->count = tri_shape_count(row->shape);
            row->first = tensors->total;
            tensors->total += row->count;
            TRI_TRY(tri_map_set(names, row->name, index));
        }
        tensors->of_param[p] = (int)index;
    }
    return TRI_OK;
}

tri_status tri_tensors_init(const tri_model *model, tri_tensors *tensors)
{
    size_t count = model->params.count;
    tri_map names = {0};
    *tensors = (tri_tensors){.param_count = (int)count};
    tensors->items = tri_arena_alloc(&tensors->arena, count + 1, sizeof(*tensors->items));
    tensors->of_param = tri_arena_alloc(&tensors->arena, count + 1, sizeof(int));
    if (!tensors->items || !tensors->of_param)
        return TRI_ENOMEM;
    tri_status status = tensors_fill(model, &names, tensors);
    tri_map_fini(&names);
    return status;
}

void tri_tensors_fini(tri_tensors *tensors)
{
    tri_arena_fini(&tensors->arena);
    *tensors = (tri_tensors){0};
}

int tri_tensors_find(const tri_tensors *tensors, int64_t at)
{
    int low = 0, high = tensors->count - 1;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (tensors->items[middle].first <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}
