/* SPDX-License-Identifier: Apache-2.0
 *
 * sum.c: slots in order of leaves; neighbours that are siblings become one.
 */
#include "ps/tables/sum.h"

#include "ps/pack.h"
#include "ps/tables/part.h"
#include "tensor/reduce.h"

#define SUM_MAGIC UINT32_C(0x6d757370) /* "psum" */

struct ps_sum_slot {
    tri_tree_part part;
    float *buffer;
    bool here; /* else it is awaited */
};

tri_status ps_sum_init(ps_sum *sum, int64_t leaves, int64_t elements)
{
    *sum = (ps_sum){.leaves = leaves, .elements = elements};
    if (leaves < 1 || (leaves & (leaves - 1)) != 0)
        return tri_fail(TRI_EINVAL, "sum of a server: want a power of two of leaves, got %lld", (long long)leaves);
    if (elements < 1 || elements > (int64_t)(SIZE_MAX / 8 / sizeof(float)))
        return tri_fail(TRI_EINVAL, "sum of a server: want elements, got %lld", (long long)elements);
    return TRI_OK;
}

void ps_sum_fini(ps_sum *sum)
{
    for (int i = 0; i < sum->slot_count; i++)
        tri_free(sum->slots[i].buffer);
    for (int i = 0; i < sum->pool_count; i++)
        tri_free(sum->pool[i]);
    for (int i = 0; i < sum->forgone_count; i++)
        tri_free(sum->forgone[i]);
    tri_free(sum->slots);
    tri_free(sum->pool);
    tri_free(sum->forgone);
    *sum = (ps_sum){0};
}

/* The first slot that ends behind leaf `first`; slot_count when none does. */
static int slot_after(const ps_sum *sum, int64_t first)
{
    int low = 0, high = sum->slot_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const tri_tree_part *part = &sum->slots[middle].part;
        *(part->first + part->count > first ? &high : &low) = middle + (part->first + part->count <= first);
    }
    return low;
}

/* Room for `least` things in a list. */
static void *list_grow(void *list, int *room, int least, size_t each)
{
    if (least <= *room)
        return list;
    int grown = 2 * least;
    list = tri_realloc(list, (size_t)grown * each);
    if (list)
        *room = grown;
    return list;
}

/* A place for one slot more, and one in the pool for every buffer, so that giving one back never fails; nor does
 * forgoing all that are awaited. */
static tri_status lists_grow(ps_sum *sum)
{
    int buffers = sum->slot_count + sum->pool_count + sum->forgone_count + 1;
    ps_sum_slot *slots = list_grow(sum->slots, &sum->slot_room, sum->slot_count + 1, sizeof(*slots));
    if (!slots)
        return TRI_ENOMEM;
    sum->slots = slots;
    float **pool = list_grow(sum->pool, &sum->pool_room, buffers, sizeof(float *));
    if (!pool)
        return TRI_ENOMEM;
    sum->pool = pool;
    float **forgone =
        list_grow(sum->forgone, &sum->forgone_room, sum->forgone_count + sum->awaited + 1, sizeof(float *));
    if (!forgone)
        return TRI_ENOMEM;
    sum->forgone = forgone;
    return TRI_OK;
}

static void gap_close(ps_sum *sum, int slot)
{
    sum->slot_count--;
    memmove(sum->slots + slot, sum->slots + slot + 1, (size_t)(sum->slot_count - slot) * sizeof(*sum->slots));
}

static void slot_remove(ps_sum *sum, int slot)
{
    sum->pool[sum->pool_count++] = sum->slots[slot].buffer;
    gap_close(sum, slot);
}

/* A slot with a buffer, awaited. */
static tri_status slot_insert(ps_sum *sum, int slot, tri_tree_part part)
{
    TRI_TRY(lists_grow(sum));
    float *buffer =
        sum->pool_count > 0 ? sum->pool[sum->pool_count - 1] : tri_alloc_bulk((size_t)sum->elements * sizeof(float));
    if (!buffer)
        return TRI_ENOMEM;
    sum->pool_count -= sum->pool_count > 0;
    memmove(sum->slots + slot + 1, sum->slots + slot, (size_t)(sum->slot_count - slot) * sizeof(*sum->slots));
    sum->slots[slot] = (ps_sum_slot){.part = part, .buffer = buffer};
    sum->slot_count++;
    sum->awaited++;
    return TRI_OK;
}

tri_status ps_sum_room(ps_sum *sum, tri_tree_part part, float **out)
{
    if (!ps_is_part(sum->leaves, part))
        return tri_fail(TRI_EINVAL, "part of a sum: want a whole subtree of %lld leaves, got %lld from leaf %lld on",
                        (long long)sum->leaves, (long long)part.count, (long long)part.first);
    int slot = slot_after(sum, part.first);
    if (slot < sum->slot_count && sum->slots[slot].part.first < part.first + part.count) {
        const tri_tree_part *other = &sum->slots[slot].part;
        return tri_fail(TRI_EINVAL, "part of a sum: leaves %lld to %lld overlap %lld to %lld, which are %s",
                        (long long)part.first, (long long)(part.first + part.count - 1), (long long)other->first,
                        (long long)(other->first + other->count - 1), sum->slots[slot].here ? "here" : "on their way");
    }
    if (sum->dropped)
        return tri_fail(TRI_EINVAL, "part of a sum: leaves %lld to %lld were dropped", (long long)part.first,
                        (long long)(part.first + part.count - 1));
    TRI_TRY(slot_insert(sum, slot, part));
    *out = sum->slots[slot].buffer;
    return TRI_OK;
}

/* The slot that awaits this part in this room, or -1. */
static int slot_awaited(const ps_sum *sum, tri_tree_part part, const float *room)
{
    int slot = ps_is_part(sum->leaves, part) ? slot_after(sum, part.first) : sum->slot_count;
    if (slot >= sum->slot_count || sum->slots[slot].buffer != room || sum->slots[slot].here)
        return -1;
    const tri_tree_part *there = &sum->slots[slot].part;
    return there->first == part.first && there->count == part.count ? slot : -1;
}

/* A room that was forgone is back. */
static bool forgone_release(ps_sum *sum, const float *room)
{
    for (int i = 0; i < sum->forgone_count; i++)
        if (sum->forgone[i] == room) {
            sum->pool[sum->pool_count++] = sum->forgone[i];
            sum->forgone[i] = sum->forgone[--sum->forgone_count];
            return true;
        }
    return false;
}

static tri_status fail_awaited(tri_tree_part part)
{
    return tri_fail(TRI_EINVAL, "part of a sum: nobody awaits leaves %lld to %lld", (long long)part.first,
                    (long long)(part.first + part.count - 1));
}

/* into = into + from, which goes. */
static void slots_add(ps_sum *sum, int into, int from)
{
    tri_reduce_fn add = tri_reduce_find(TRI_REDUCE_SUM, TRI_F32);
    float *left = sum->slots[into].buffer;
    add(left, left, sum->slots[from].buffer, sum->elements);
}

static void siblings_add(ps_sum *sum, int slot)
{
    for (;;) {
        tri_tree_part part = sum->slots[slot].part;
        int left = part.first % (2 * part.count) == 0 ? slot : slot - 1;
        if (left < 0 || left + 1 >= sum->slot_count)
            return;
        const ps_sum_slot *a = &sum->slots[left], *b = &sum->slots[left + 1];
        bool siblings = a->part.count == part.count && b->part.count == part.count &&
                        a->part.first + part.count == b->part.first && a->part.first % (2 * part.count) == 0;
        if (!siblings || !a->here || !b->here)
            return;
        slots_add(sum, left, left + 1);
        slot_remove(sum, left + 1);
        sum->slots[left].part.count *= 2;
        slot = left;
    }
}

/* Nothing more will come: all slots become one. */
static void finish_dropped(ps_sum *sum)
{
    while (sum->slot_count > 1) {
        /* Neighbours whose common subtree is the smallest: the next sum of tri_tree_plan_some(). */
        int least = 0;
        uint64_t least_differ = UINT64_MAX;
        for (int i = 0; i + 1 < sum->slot_count; i++) {
            uint64_t differ = (uint64_t)(sum->slots[i].part.first ^ sum->slots[i + 1].part.first);
            if (differ < least_differ) {
                least = i;
                least_differ = differ;
            }
        }
        slots_add(sum, least, least + 1);
        slot_remove(sum, least + 1);
    }
    if (sum->slot_count == 1)
        sum->slots[0].part = (tri_tree_part){0, sum->leaves};
}

tri_status ps_sum_take(ps_sum *sum, tri_tree_part part, const float *room)
{
    int slot = slot_awaited(sum, part, room);
    if (slot < 0)
        return forgone_release(sum, room) ? TRI_OK : fail_awaited(part);
    sum->slots[slot].here = true;
    sum->awaited--;
    sum->leaves_here += part.count;
    if (!sum->apart)
        siblings_add(sum, slot);
    if (sum->dropped && sum->awaited == 0)
        finish_dropped(sum);
    return TRI_OK;
}

tri_status ps_sum_leave(ps_sum *sum, tri_tree_part part, const float *room)
{
    int slot = slot_awaited(sum, part, room);
    if (slot < 0)
        return forgone_release(sum, room) ? TRI_OK : fail_awaited(part);
    slot_remove(sum, slot);
    sum->awaited--;
    if (sum->dropped && sum->awaited == 0)
        finish_dropped(sum);
    return TRI_OK;
}

bool ps_sum_has(const ps_sum *sum, tri_tree_part part)
{
    int64_t next = part.first;
    if (!ps_is_part(sum->leaves, part))
        return false;
    for (int i = slot_after(sum, part.first); i < sum->slot_count && sum->slots[i].here; i++) {
        if (sum->slots[i].part.first > next)
            return false;
        next = sum->slots[i].part.first + sum->slots[i].part.count;
        if (next >= part.first + part.count)
            return true;
    }
    return false;
}

int64_t ps_sum_count(const ps_sum *sum)
{
    return sum->leaves_here;
}

void ps_sum_forgo(ps_sum *sum, int64_t first, int64_t count)
{
    int slot = slot_after(sum, first);
    while (slot < sum->slot_count && sum->slots[slot].part.first < first + count) {
        if (sum->slots[slot].here) {
            sum->leaves_here -= sum->slots[slot].part.count;
            slot_remove(sum, slot);
            continue;
        }
        sum->forgone[sum->forgone_count++] = sum->slots[slot].buffer; /* somebody still writes to it */
        sum->awaited--;
        gap_close(sum, slot);
    }
}

void ps_sum_drop(ps_sum *sum)
{
    sum->dropped = true;
    if (sum->awaited == 0)
        finish_dropped(sum);
}

bool ps_sum_is_whole(const ps_sum *sum)
{
    if (sum->awaited > 0 || (sum->apart && !sum->dropped))
        return false;
    return sum->dropped || (sum->slot_count == 1 && sum->slots[0].part.count == sum->leaves);
}

float *ps_sum_root(const ps_sum *sum)
{
    return ps_sum_is_whole(sum) && sum->slot_count == 1 ? sum->slots[0].buffer : NULL;
}

void ps_sum_reset(ps_sum *sum)
{
    TRI_ASSERT(sum->awaited == 0);
    while (sum->slot_count > 0)
        slot_remove(sum, sum->slot_count - 1);
    sum->dropped = false;
    sum->leaves_here = 0;
}

tri_status ps_sum_merge(ps_sum *sum, const ps_sum *other)
{
    for (int i = 0; i < other->slot_count; i++) {
        tri_tree_part part = other->slots[i].part;
        float *room;
        if (!other->slots[i].here || ps_sum_has(sum, part))
            continue;
        int slot = slot_after(sum, part.first); /* parts of it, since it is not part of one */
        while (slot < sum->slot_count && sum->slots[slot].part.first < part.first + part.count) {
            sum->leaves_here -= sum->slots[slot].part.count;
            slot_remove(sum, slot);
        }
        TRI_TRY(ps_sum_room(sum, part, &room));
        memcpy(room, other->slots[i].buffer, (size_t)sum->elements * sizeof(float));
        TRI_TRY(ps_sum_take(sum, part, room));
    }
    return TRI_OK;
}

/* --- as bytes: magic, flags, leaves, elements, leaves here, slots; first, count and elements of each slot --- */

tri_status ps_sum_write(const ps_sum *sum, tri_string *out)
{
    int here = sum->slot_count - sum->awaited;
    TRI_TRY(ps_put_u32(out, SUM_MAGIC));
    TRI_TRY(ps_put_u32(out, sum->dropped));
    TRI_TRY(ps_put_u64(out, (uint64_t)sum->leaves));
    TRI_TRY(ps_put_u64(out, (uint64_t)sum->elements));
    TRI_TRY(ps_put_u64(out, (uint64_t)sum->leaves_here));
    TRI_TRY(ps_put_u64(out, (uint64_t)here));
    for (int i = 0; i < sum->slot_count; i++) {
        const ps_sum_slot *slot = &sum->slots[i];
        if (!slot->here)
            continue;
        TRI_TRY(ps_put_u64(out, (uint64_t)slot->part.first));
        TRI_TRY(ps_put_u64(out, (uint64_t)slot->part.count));
        TRI_TRY(tri_string_append_bytes(out, slot->buffer, (size_t)sum->elements * sizeof(float)));
    }
    return TRI_OK;
}

static tri_status read_slots(ps_sum *sum, ps_reader *reader, uint64_t count)
{
    int64_t end = 0;
    for (uint64_t i = 0; i < count; i++) {
        tri_tree_part part = {(int64_t)ps_read_u64(reader), 0};
        part.count = (int64_t)ps_read_u64(reader);
        const unsigned char *elements = ps_read(reader, (size_t)sum->elements * sizeof(float));
        if (!elements || !ps_is_part(sum->leaves, part) || part.first < end)
            return tri_fail(TRI_EFORMAT, "bytes of a sum: part %llu is cut short or none", (unsigned long long)i);
        end = part.first + part.count;
        TRI_TRY(slot_insert(sum, sum->slot_count, part));
        sum->awaited--;
        sum->slots[i].here = true;
        memcpy(sum->slots[i].buffer, elements, (size_t)sum->elements * sizeof(float));
    }
    return TRI_OK;
}

tri_status ps_sum_read(ps_sum *sum, const void *bytes, size_t nbytes)
{
    ps_reader reader = ps_reader_make(bytes, nbytes);
    ps_sum_reset(sum);
    uint32_t magic = ps_read_u32(&reader), dropped = ps_read_u32(&reader);
    uint64_t leaves = ps_read_u64(&reader), elements = ps_read_u64(&reader);
    uint64_t leaves_here = ps_read_u64(&reader), count = ps_read_u64(&reader);
    if (reader.ended || magic != SUM_MAGIC || dropped > 1)
        return tri_fail(TRI_EFORMAT, "bytes of a sum: there is none in %zu bytes", nbytes);
    if (leaves != (uint64_t)sum->leaves || elements != (uint64_t)sum->elements)
        return tri_fail(TRI_EFORMAT, "bytes of a sum: want %lld leaves and %lld elements, got %llu and %llu",
                        (long long)sum->leaves, (long long)sum->elements, (unsigned long long)leaves,
                        (unsigned long long)elements);
    tri_status status = read_slots(sum, &reader, count);
    uint64_t covered = 0;
    for (int i = 0; i < sum->slot_count; i++)
        covered += (uint64_t)sum->slots[i].part.count;
    if (status == TRI_OK && (reader.left > 0 || leaves_here > covered || (leaves_here < covered && !dropped)))
        status = tri_fail(TRI_EFORMAT, "bytes of a sum: %zu bytes too many, or %llu leaves in parts of %llu",
                          reader.left, (unsigned long long)leaves_here, (unsigned long long)covered);
    if (status != TRI_OK) {
        ps_sum_reset(sum);
        return status;
    }
    sum->dropped = dropped;
    sum->leaves_here = (int64_t)leaves_here;
    if (dropped)
        finish_dropped(sum);
    return TRI_OK;
}
