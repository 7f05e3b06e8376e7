/* SPDX-License-Identifier: Apache-2.0
 *
 * cuts_choose.c: which sections make a stage: by cost, or as somebody says by names of layers.
 *
 * First the least cost of the most expensive stage, then, within stages of nearly that cost, the fewest bytes over all
 * cuts. Both by dynamic programming over (stages, sections): O(stages sections^2). Where ranks have several stages,
 * cuts are then moved one at a time as long as that makes the most expensive rank cheaper.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "nn/cuts.h"

#define NEARLY 1.02 /* as cheap as the cheapest */

double tri_section_cost(const tri_sections *sections, int section)
{
    bool measured = true;
    for (int s = 0; s < sections->count; s++)
        measured = measured && sections->items[s].seconds > 0;
    return measured ? sections->items[section].seconds : sections->items[section].flops;
}

/* best[k][s]: of the sections [s, end) in k stages; from[k][s]: where the second of them begins. */
typedef struct choice {
    const tri_sections *sections;
    int stages, count;
    double *sums; /* [count + 1]: cost of the sections before */
    double *best; /* [stages + 1][count + 1] */
    int *from;
} choice;

static double *best_of(const choice *v, int stages, int first)
{
    return &v->best[stages * (v->count + 1) + first];
}

static double bytes_before(const choice *v, int section)
{
    const tri_section *at = &v->sections->items[section];
    return section < v->count ? (double)(at->nbytes_up + at->nbytes_down) : 0;
}

/* limit infinite: the least maximum; else the fewest bytes of stages that cost no more. */
static void best_find(const choice *v, int stages, int first, double limit)
{
    double *best = best_of(v, stages, first);
    *best = INFINITY;
    for (int end = first + 1; end + stages - 1 <= v->count; end++) {
        double cost = v->sums[end] - v->sums[first], rest = *best_of(v, stages - 1, end);
        if (cost > limit)
            break;
        double all = isfinite(limit) ? rest + bytes_before(v, end) : fmax(cost, rest);
        if (all < *best) {
            *best = all;
            v->from[stages * (v->count + 1) + first] = end;
        }
    }
}

static void choice_run(const choice *v, double limit)
{
    for (int first = 0; first <= v->count; first++)
        *best_of(v, 0, first) = first == v->count ? 0 : INFINITY;
    for (int k = 1; k <= v->stages; k++)
        for (int first = v->count; first >= 0; first--)
            best_find(v, k, first, limit);
}

/* --- ranks with several stages --- */

/* Cost of the most expensive rank, and a little for the bytes that cross, as a share of those that cross everywhere. */
static double score(const choice *v, const int *first, int ranks)
{
    double most = 0, bytes = 0, all = 0;
    for (int rank = 0; rank < ranks; rank++) {
        double cost = 0;
        for (int s = rank; s < v->stages; s += ranks)
            cost += v->sums[first[s + 1]] - v->sums[first[s]];
        most = fmax(most, cost);
    }
    for (int s = 1; s < v->stages; s++)
        bytes += bytes_before(v, first[s]);
    for (int at = 1; at < v->count; at++)
        all += bytes_before(v, at);
    return most * (1 + (NEARLY - 1) * (all > 0 ? bytes / all : 0));
}

/* Moves cut `s` to where the score is best; whether that is another place. */
static bool cut_move(const choice *v, int *first, int s, int ranks)
{
    int kept = first[s], best = kept;
    double least = score(v, first, ranks);
    for (int at = first[s - 1] + 1; at < first[s + 1]; at++) {
        first[s] = at;
        double now = score(v, first, ranks);
        if (now < least * (1 - 1e-9)) {
            least = now;
            best = at;
        }
    }
    first[s] = best;
    return best != kept;
}

static void cuts_move(const choice *v, int *first, int ranks)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 1; s < v->stages; s++)
            moved = cut_move(v, first, s, ranks) || moved;
    }
}

static void choice_make(const choice *v, int ranks, tri_stages *out)
{
    choice_run(v, INFINITY);
    /* Where nothing has a cost, whatever is cut is as good. */
    choice_run(v, fmin(*best_of(v, v->stages, 0) * NEARLY, DBL_MAX));
    /* For now first_node[s] is the first section of stage s. */
    for (int k = v->stages, at = 0; k > 0; at = v->from[k * (v->count + 1) + at], k--)
        out->first_node[v->stages - k] = at;
    out->first_node[v->stages] = v->count;
    if (v->stages > ranks)
        cuts_move(v, out->first_node, ranks);
    out->count = v->stages;
    for (int s = 0; s < v->stages; s++)
        out->first_node[s] = v->sections->items[out->first_node[s]].first_node;
    out->first_node[v->stages] = v->sections->items[v->count - 1].end_node;
}

static tri_status check_count(const tri_sections *sections, int ranks, int each)
{
    int64_t wanted = (int64_t)ranks * each;
    if (ranks >= 1 && each >= 1 && wanted <= sections->count && wanted <= TRI_STAGES_MAX)
        return TRI_OK;
    return tri_fail(
        TRI_ECONFIG, "pipeline: want %d x %d stages, the model has %d sections between places where it may be cut: %s",
        ranks, each, sections->count, wanted > TRI_STAGES_MAX ? "too many" : "stages would be left without any");
}

tri_status tri_stages_choose(const tri_sections *sections, int ranks, int each, tri_stages *out)
{
    TRI_TRY(check_count(sections, ranks, each));
    int count = ranks * each;
    choice v = {.sections = sections, .stages = count, .count = sections->count};
    size_t cells = (size_t)(count + 1) * (size_t)(sections->count + 1);
    v.sums = tri_alloc_zero((size_t)sections->count + 1, sizeof(double));
    v.best = tri_alloc_zero(cells, sizeof(double));
    v.from = tri_alloc_zero(cells, sizeof(int));
    tri_status status = v.sums && v.best && v.from ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK) {
        for (int s = 0; s < v.count; s++)
            v.sums[s + 1] = v.sums[s] + tri_section_cost(sections, s);
        choice_make(&v, ranks, out);
    }
    tri_free(v.sums);
    tri_free(v.best);
    tri_free(v.from);
    return status;
}

/* --- by hand --- */

static bool is_of_layer(const char *param, const char *layer)
{
    size_t nbytes = strlen(layer);
    while (nbytes > 0 && layer[nbytes - 1] == '.')
        nbytes--;
    return nbytes > 0 && strncmp(param, layer, nbytes) == 0 && (param[nbytes] == '.' || param[nbytes] == 0);
}

/* The first node that makes a parameter of the layer, -1: none does. */
static int node_of_layer(const tri_model *model, const char *layer)
{
    const tri_node *nodes = model->nodes.items;
    const tri_param_spec *specs = model->params.items;
    for (int n = 0; n < (int)model->nodes.count; n++)
        for (int p = nodes[n].tie >= 0; p < nodes[n].param_count; p++)
            if (is_of_layer(specs[nodes[n].param[p]].name, layer))
                return n;
    return -1;
}

static tri_status cut_before(const tri_sections *sections, int node, const char *layer, int previous, int *out)
{
    const char *near = "";
    for (int s = 1; s < sections->count; s++) {
        if (sections->items[s].first_node == node) {
            if (node <= previous)
                return tri_fail(TRI_ECONFIG, "parallel.cut_at: cut before '%s': want layers in the order of the model",
                                layer);
            *out = node;
            return TRI_OK;
        }
        if (sections->items[s].first_node < node)
            near = sections->items[s].layer;
    }
    return tri_fail(TRI_ECONFIG,
                    "parallel.cut_at: the model cannot be cut before '%s': it begins it, or a fused relu or pool, or a "
                    "block that is formed again would be torn%s%s",
                    layer, near[0] ? "; the nearest place before it: " : "", near);
}

tri_status tri_stages_by_hand(const tri_model *model, const tri_sections *sections, const char *const *names, int count,
                              tri_stages *out)
{
    if (count < 0 || count >= TRI_STAGES_MAX)
        return tri_fail(TRI_ECONFIG, "parallel.cut_at: want at most %d cuts, got %d", TRI_STAGES_MAX - 1, count);
    *out = (tri_stages){.count = count + 1};
    for (int i = 0; i < count; i++) {
        int node = node_of_layer(model, names[i]);
        if (node < 0)
            return tri_fail(TRI_ECONFIG,
                            "parallel.cut_at: '%s' is the name of no layer with parameters (they are such as %s)",
                            names[i], sections->items[sections->count / 2].layer);
        TRI_TRY(cut_before(sections, node, names[i], out->first_node[i], &out->first_node[i + 1]));
    }
    out->first_node[count + 1] = (int)model->nodes.count;
    return TRI_OK;
}
