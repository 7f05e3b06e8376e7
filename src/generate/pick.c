/* SPDX-License-Identifier: Apache-2.0
 *
 * pick.c: draws by inversion: candidates in order of their probability, one random number each.
 *
 * Tokens that together cannot reach what top_p leaves out are dropped before the rest is sorted: each of them has less
 * than (1 - top_p) / words.
 */
#include "generate/pick.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"

typedef struct candidate {
    double weight; /* exp((logit - greatest) / temperature) */
    int32_t token;
} candidate;

struct tri_picker {
    candidate *items;
    bool *seen;
};

tri_status tri_picker_create(int64_t words, tri_picker **out)
{
    tri_picker *picker = tri_alloc_zero(1, sizeof(*picker));
    if (!picker)
        return TRI_ENOMEM;
    picker->items = tri_alloc_zero((size_t)words, sizeof(*picker->items));
    picker->seen = tri_alloc_zero((size_t)words, sizeof(*picker->seen));
    if (!picker->items || !picker->seen) {
        tri_picker_destroy(picker);
        return TRI_ENOMEM;
    }
    *out = picker;
    return TRI_OK;
}

void tri_picker_destroy(tri_picker *picker)
{
    if (!picker)
        return;
    tri_free(picker->items);
    tri_free(picker->seen);
    tri_free(picker);
}

/* The lighter one last; of equals the first token first, so that no sort can change the order. */
static int by_weight(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->token < y->token ? -1 : x->token > y->token;
}

static int32_t greatest(const float *logits, int64_t words)
{
    int64_t best = 0;
    for (int64_t i = 1; i < words; i++)
        if (logits[i] > logits[best] || isnan(logits[best]))
            best = i;
    return (int32_t)best;
}

/* A heap whose root is the last by weight, but for what stands at `at`. */
static void heap_sink(candidate *heap, int64_t count, int64_t at)
{
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && by_weight(&heap[child + 1], &heap[child]) > 0;
        if (by_weight(&heap[child], &heap[at]) <= 0)
            return;
        const candidate kept = heap[at];
        heap[at] = heap[child];
        heap[child] = kept;
    }
}

/* The first `most` by weight to the front, in order; a vocabulary is long, and most of it is not wanted. */
static void firsts_sort(candidate *items, int64_t count, int64_t most)
{
    for (int64_t at = most / 2; at-- > 0;)
        heap_sink(items, most, at);
    for (int64_t i = most; i < count; i++) {
        if (by_weight(&items[i], &items[0]) >= 0)
            continue;
        items[0] = items[i];
        heap_sink(items, most, 0);
    }
    qsort(items, (size_t)most, sizeof(*items), by_weight);
}

/* Each token once, however often it was there. */
static void repeats_damp(bool *seen, float *logits, int64_t words, double repeat, const int32_t *before, int64_t count)
{
    memset(seen, 0, (size_t)words * sizeof(*seen));
    for (int64_t i = 0; i < count; i++) {
        if (before[i] >= words || seen[before[i]])
            continue;
        float *logit = &logits[before[i]];
        *logit = (float)(*logit > 0 ? (double)*logit / repeat : (double)*logit * repeat);
        seen[before[i]] = true;
    }
}

/* Those that may be drawn; returns their number and the sum of all weights, also of those left out. */
static int64_t candidates_find(candidate *items, const float *logits, int64_t words, double top,
                               const tri_pick_rule *rule, double *all)
{
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < words; i++) {
        const double weight = exp(((double)logits[i] - top) / rule->temperature);
        if (weight > 0) { /* NaN is not */
            items[count++] = (candidate){weight, (int32_t)i};
            sum += weight;
        }
    }
    *all = sum;
    if (rule->top_p >= 1 || rule->top_k > 0) /* top_p counts what top_k leaves */
        return count;
    const double least = (1 - rule->top_p) * sum / (double)words;
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        if (items[i].weight >= least)
            items[kept++] = items[i];
    return kept;
}

static int32_t draw(const candidate *items, int64_t count, double sum, tri_rng rng, uint64_t number)
{
    const double wanted = (double)(tri_rng_u64(rng, number) >> 11) * 0x1p-53 * sum;
    double before = 0;
    for (int64_t i = 0; i < count; i++) {
        before += items[i].weight;
        if (wanted < before)
            return items[i].token;
    }
    return items[count - 1].token;
}

int32_t tri_pick(tri_picker *picker, float *logits, int64_t words, const tri_pick_rule *rule, const int32_t *before,
                 int64_t count)
{
    if (rule->repeat != 1)
        repeats_damp(picker->seen, logits, words, rule->repeat, before, count);
    const int32_t best = greatest(logits, words);
    if (rule->temperature == 0 || rule->top_k == 1 || isnan(logits[best]))
        return best;
    candidate *items = picker->items;
    double all, sum = 0;
    int64_t kept = candidates_find(items, logits, words, (double)logits[best], rule, &all), left = 0;
    if (kept == 0) /* Inf among the logits */
        return best;
    const bool few = rule->top_k > 0 && rule->top_k < kept;
    if (few || rule->top_p < 1)
        firsts_sort(items, kept, few ? rule->top_k : kept);
    if (few) {
        kept = rule->top_k;
        all = 0;
        for (int64_t i = 0; i < kept; i++)
            all += items[i].weight;
    }
    for (; left < kept && (left == 0 || rule->top_p >= 1 || sum < rule->top_p * all); left++)
        sum += items[left].weight;
    const tri_rng rng = {rule->seed, tri_rng_stream("generate", 0, 0)};
    return draw(items, left, sum, rng, (uint64_t)count);
}
