/* SPDX-License-Identifier: Apache-2.0
 *
 * kept.c: a list of memory by its length and kind.
 */
#include "parallel/kept.h"

#include "base/memory.h"

/* The first of this length that has the kind, moved to *out. */
static void item_move(tri_kept *kept, size_t nbytes, bool shared, tri_group_memory *out)
{
    for (int i = 0; kept && i < kept->count; i++) {
        tri_group_memory *item = &kept->items[i];
        if (item->nbytes != nbytes || (shared ? !item->region.bytes : !item->plain))
            continue;
        if (shared)
            out->region = item->region;
        else
            out->plain = item->plain;
        *item = kept->items[--kept->count];
        return;
    }
}

/* Each item is of one kind. */
static void item_add(tri_kept *kept, tri_group_memory item)
{
    if (!item.plain && !item.region.bytes)
        return;
    if (kept->count == kept->room) {
        int room = 2 * kept->room + 4;
        tri_group_memory *larger = tri_realloc(kept->items, (size_t)room * sizeof(*larger));
        if (!larger) {
            tri_group_memory_free(&item);
            return;
        }
        kept->items = larger;
        kept->room = room;
    }
    kept->items[kept->count++] = item;
}

static tri_status group_take(tri_kept *kept, tri_group *group, size_t nbytes, void **out)
{
    tri_group_memory memory = {.nbytes = nbytes};
    item_move(kept, nbytes, true, &memory);
    item_move(kept, nbytes, false, &memory);
    tri_status status = tri_group_alloc_kept(group, nbytes, &memory, out);
    item_add(kept, (tri_group_memory){.nbytes = nbytes, .region = memory.region});
    item_add(kept, (tri_group_memory){.nbytes = nbytes, .plain = memory.plain});
    return status;
}

tri_status tri_kept_take(tri_kept *kept, tri_group *group, size_t nbytes, void **out)
{
    tri_group_memory memory = {0};
    if (group)
        return kept ? group_take(kept, group, nbytes, out) : tri_group_alloc(group, nbytes, out);
    item_move(kept, nbytes, false, &memory);
    *out = memory.plain ? memory.plain : tri_alloc_bulk(nbytes);
    return *out ? TRI_OK : TRI_ENOMEM;
}

void tri_kept_give(tri_kept *kept, tri_group *group, size_t nbytes, void *memory)
{
    tri_group_memory item = {.nbytes = nbytes, .plain = memory};
    if (!memory)
        return;
    if (!kept && group) {
        tri_group_free(group, memory);
        return;
    }
    if (!kept) {
        tri_free(memory);
        return;
    }
    if (group) {
        item = (tri_group_memory){0};
        tri_group_free_kept(group, memory, &item);
    }
    item_add(kept, item);
}

tri_status tri_kept_make(tri_kept *kept, size_t nbytes, bool shared)
{
    tri_group_memory item;
    TRI_TRY(tri_group_memory_make(nbytes, shared, &item));
    item_add(kept, item);
    return TRI_OK;
}

void tri_kept_drop_others(tri_kept *kept, const size_t *nbytes, int count)
{
    for (int i = 0; kept && i < kept->count;) {
        bool wanted = false;
        for (int k = 0; k < count; k++)
            wanted = wanted || kept->items[i].nbytes == nbytes[k];
        if (wanted) {
            i++;
            continue;
        }
        tri_group_memory_free(&kept->items[i]);
        kept->items[i] = kept->items[--kept->count];
    }
}

void tri_kept_fini(tri_kept *kept)
{
    while (kept->count > 0)
        tri_group_memory_free(&kept->items[--kept->count]);
    tri_free(kept->items);
    *kept = (tri_kept){0};
}
