/* SPDX-License-Identifier: Apache-2.0
 *
 * bpe.c: short words look through all their pairs for the lowest rank each time, which beats anything clever; long ones
 * keep the pairs in a heap, so that a text without a single gap stays n log n.
 */
#include "text/bpe.h"

#define SHORT_COUNT 96
#define NO_RANK     UINT32_MAX

tri_status tri_bpe_init(tri_bpe *bpe, size_t count)
{
    bpe->count = 0;
    bpe->slot_count = 16;
    while (bpe->slot_count < 2 * count)
        bpe->slot_count *= 2;
    bpe->slots = tri_alloc(bpe->slot_count * sizeof(*bpe->slots));
    if (bpe->slots == NULL)
        return TRI_ENOMEM;
    for (size_t i = 0; i < bpe->slot_count; i++)
        bpe->slots[i].left = -1;
    return TRI_OK;
}

static inline size_t home_slot(const tri_bpe *bpe, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key *= UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(key ^ key >> 32) & (bpe->slot_count - 1);
}

/* The slot of the pair, or the empty one where it belongs. */
static inline tri_merge *find_slot(const tri_bpe *bpe, int32_t left, int32_t right)
{
    size_t slot = home_slot(bpe, left, right);
    while (bpe->slots[slot].left >= 0 && (bpe->slots[slot].left != left || bpe->slots[slot].right != right))
        slot = (slot + 1) & (bpe->slot_count - 1);
    return &bpe->slots[slot];
}

void tri_bpe_add(tri_bpe *bpe, tri_merge merge)
{
    tri_merge *slot = find_slot(bpe, merge.left, merge.right);
    bpe->count += slot->left < 0;
    TRI_ASSERT(2 * bpe->count <= bpe->slot_count);
    *slot = merge;
}

void tri_bpe_fini(tri_bpe *bpe)
{
    tri_free(bpe->slots);
    *bpe = (tri_bpe){0};
}

/* --- short words --- */

static inline void look_up(const tri_bpe *bpe, const int32_t *tokens, size_t at, uint32_t *ranks, int32_t *merged)
{
    const tri_merge *slot = find_slot(bpe, tokens[at], tokens[at + 1]);
    ranks[at] = slot->left >= 0 ? slot->rank : NO_RANK;
    merged[at] = slot->merged;
}

static void run_short(const tri_bpe *bpe, int32_t *tokens, size_t *length)
{
    uint32_t ranks[SHORT_COUNT];
    int32_t merged[SHORT_COUNT];
    size_t count = *length;
    for (size_t i = 0; i + 1 < count; i++)
        look_up(bpe, tokens, i, ranks, merged);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            best = ranks[i] < ranks[best] ? i : best;
        if (ranks[best] == NO_RANK)
            break;
        tokens[best] = merged[best];
        for (size_t i = best + 1; i + 1 < count; i++) {
            tokens[i] = tokens[i + 1];
            ranks[i] = ranks[i + 1]; /* the last one is never read */
            merged[i] = merged[i + 1];
        }
        count--;
        if (best + 1 < count)
            look_up(bpe, tokens, best, ranks, merged);
        if (best > 0)
            look_up(bpe, tokens, best - 1, ranks, merged);
    }
    *length = count;
}

/* --- long words --- */

struct tri_bpe_node {
    int32_t token; /* -1: went into the one before */
    int32_t before, after;
};

/* A pair that can be merged, or could when it was put down. */
struct tri_bpe_offer {
    uint32_t rank;
    int32_t place; /* of the left node */
    int32_t left, right, merged;
};

static inline bool is_before(const struct tri_bpe_offer *a, const struct tri_bpe_offer *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->place < b->place;
}

static void heap_push(tri_bpe_scratch *scratch, struct tri_bpe_offer offer)
{
    size_t at = scratch->heap_count++;
    TRI_ASSERT(at < scratch->heap_capacity);
    while (at > 0 && is_before(&offer, &scratch->heap[(at - 1) / 2])) {
        scratch->heap[at] = scratch->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    scratch->heap[at] = offer;
}

static struct tri_bpe_offer heap_pop(tri_bpe_scratch *scratch)
{
    struct tri_bpe_offer *heap = scratch->heap, top = heap[0], last = heap[--scratch->heap_count];
    size_t at = 0, count = scratch->heap_count;
    for (size_t child = 1; child < count; child = 2 * at + 1) {
        child += child + 1 < count && is_before(&heap[child + 1], &heap[child]);
        if (!is_before(&heap[child], &last))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

static void make_offer(const tri_bpe *bpe, tri_bpe_scratch *scratch, int32_t place)
{
    const struct tri_bpe_node *nodes = scratch->nodes;
    if (place < 0 || nodes[place].after < 0)
        return;
    int32_t left = nodes[place].token, right = nodes[nodes[place].after].token;
    const tri_merge *slot = find_slot(bpe, left, right);
    if (slot->left >= 0)
        heap_push(scratch, (struct tri_bpe_offer){slot->rank, place, left, right, slot->merged});
}

static tri_status reserve(tri_bpe_scratch *scratch, size_t count)
{
    if (count <= scratch->node_capacity)
        return TRI_OK;
    tri_bpe_scratch_fini(scratch);
    scratch->nodes = tri_alloc(count * sizeof(*scratch->nodes));
    scratch->heap = tri_alloc(3 * count * sizeof(*scratch->heap)); /* a merge takes one and brings two at most */
    if (scratch->nodes == NULL || scratch->heap == NULL) {
        tri_bpe_scratch_fini(scratch);
        return TRI_ENOMEM;
    }
    scratch->node_capacity = count;
    scratch->heap_capacity = 3 * count;
    return TRI_OK;
}

static void merge_nodes(const tri_bpe *bpe, tri_bpe_scratch *scratch)
{
    struct tri_bpe_node *nodes = scratch->nodes;
    while (scratch->heap_count > 0) {
        struct tri_bpe_offer offer = heap_pop(scratch);
        struct tri_bpe_node *left = &nodes[offer.place];
        if (left->token != offer.left || left->after < 0 || nodes[left->after].token != offer.right)
            continue; /* one of the two has been merged since */
        struct tri_bpe_node *right = &nodes[left->after];
        left->token = offer.merged;
        left->after = right->after;
        right->token = -1;
        if (left->after >= 0)
            nodes[left->after].before = offer.place;
        make_offer(bpe, scratch, left->before);
        make_offer(bpe, scratch, offer.place);
    }
}

static tri_status run_long(const tri_bpe *bpe, tri_bpe_scratch *scratch, int32_t *tokens, size_t *length)
{
    TRI_TRY(reserve(scratch, *length));
    const int32_t count = (int32_t)*length;
    for (int32_t i = 0; i < count; i++)
        scratch->nodes[i] = (struct tri_bpe_node){tokens[i], i - 1, i + 1 < count ? i + 1 : -1};
    scratch->heap_count = 0;
    for (int32_t i = 0; i < count; i++)
        make_offer(bpe, scratch, i);
    merge_nodes(bpe, scratch);
    size_t left = 0;
    for (int32_t i = 0; i >= 0; i = scratch->nodes[i].after)
        tokens[left++] = scratch->nodes[i].token;
    *length = left;
    return TRI_OK;
}

tri_status tri_bpe_run(const tri_bpe *bpe, tri_bpe_scratch *scratch, int32_t *tokens, size_t *count)
{
    if (*count < 2 || bpe->count == 0)
        return TRI_OK;
    if (*count <= SHORT_COUNT) {
        run_short(bpe, tokens, count);
        return TRI_OK;
    }
    return run_long(bpe, scratch, tokens, count);
}

void tri_bpe_scratch_fini(tri_bpe_scratch *scratch)
{
    tri_free(scratch->nodes);
    tri_free(scratch->heap);
    *scratch = (tri_bpe_scratch){0};
}
