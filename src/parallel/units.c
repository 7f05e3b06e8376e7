/* SPDX-License-Identifier: Apache-2.0
 *
 * units.c: cuts the store into units, and units into shares.
 */
#include "parallel/units.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "kernel/kernel.h"

/* The first element behind an entry, with the gap that follows it. */
static int64_t entry_end(const tri_params *params, int e)
{
    return e + 1 < params->entry_count ? params->entries[e + 1].first : params->count;
}

static int64_t nbytes_of(const tri_params *params, int first, int last)
{
    return (entry_end(params, last) - params->entries[first].first) * (int64_t)sizeof(float);
}

/* Several stages hold it, and make gradients of it. */
static bool is_shared(const tri_params *params, int e)
{
    bool shared = params->entries[e].away;
    for (int t = 0; t < params->tie_count && !shared; t++)
        shared = params->ties[t].entry == e && params->ties[t].away;
    return shared;
}

/* The first entry of a run of frozen ones that ends with `last` and would fill a unit; -1: there is none. */
static int frozen_first(const tri_params *params, int last, int64_t nbytes_each)
{
    int first = last + 1;
    while (first > 0 && params->entries[first - 1].frozen)
        first--;
    return first <= last && nbytes_of(params, first, last) >= nbytes_each ? first : -1;
}

/* The first entry of the unit that ends with `last`. Frozen runs that would fill one are apart from what moves, and
 * what stages share is by itself. */
static int unit_first(const tri_params *params, int last, int64_t nbytes_each)
{
    int first = last, run = frozen_first(params, last, nbytes_each), limit = run >= 0 ? run : 0;
    while (first > limit && nbytes_of(params, first, last) < nbytes_each && !is_shared(params, last)) {
        if ((run < 0 && frozen_first(params, first - 1, nbytes_each) >= 0) || is_shared(params, first - 1))
            break;
        first--;
    }
    return first;
}

/* The place nearest to `wanted` at which a unit may be cut: ends of blocks of the norm, and between entries. */
static int64_t nearest_cut(const tri_params *params, int first, int last, int64_t wanted)
{
    int e = first;
    while (e < last && entry_end(params, e) <= wanted)
        e++;
    int64_t begin = params->entries[e].first, end = entry_end(params, e);
    int64_t low = begin + (wanted - begin) / TRI_NORM_BLOCK * TRI_NORM_BLOCK, high = low + TRI_NORM_BLOCK;
    high = high < begin + params->entries[e].count ? high : end;
    return wanted - low <= high - wanted ? low : high;
}

/* Cuts [first, last] into shares, as even as they come; rank `from` has the first. Returns the least of them. */
static int64_t unit_cut(const tri_params *params, tri_unit *unit, int ranks, int first, int last, int from)
{
    int64_t begin = unit->first, least = unit->count;
    for (int i = 0; i < ranks; i++) {
        int64_t wanted = unit->first + unit->count * (i + 1) / ranks;
        int64_t end = i == ranks - 1 ? unit->first + unit->count : nearest_cut(params, first, last, wanted);
        int rank = (i + from) % ranks;
        unit->firsts[rank] = begin - unit->first;
        unit->counts[rank] = end - begin;
        least = end - begin < least ? end - begin : least;
        begin = end;
    }
    return least;
}

/* Small units, which do not do for all ranks, fall to other ones in turn. In large ones a rank's share is at the same
 * place, so that of a buffer that passes from unit to unit others see no more than their part. */
static void unit_share(const tri_units *units, const tri_params *params, tri_unit *unit, int first, int last)
{
    int number = (int)(unit - units->items);
    if (unit_cut(params, unit, units->ranks, first, last, 0) == 0 && !is_shared(params, first))
        (void)unit_cut(params, unit, units->ranks, first, last, number % units->ranks);
}

/* Each rank has of a tie what it has of its entry, which is in one unit. */
static void tie_share(const tri_units *units, const tri_params *params, tri_unit *unit)
{
    int e = params->ties[unit->tie].entry;
    const tri_param *entry = &params->entries[e];
    const tri_unit *whole = &units->items[units->of[e]];
    for (int r = 0; r < units->ranks; r++) {
        int64_t low = whole->first + whole->firsts[r] - entry->first, high = low + whole->counts[r];
        low = low < 0 ? 0 : low < entry->count ? low : entry->count;
        high = high < low ? low : high < entry->count ? high : entry->count;
        unit->firsts[r] = low;
        unit->counts[r] = high - low;
    }
}

static tri_unit *unit_add(tri_units *units, int64_t first, int64_t count, const char *name)
{
    tri_unit *unit = &units->items[units->count];
    int64_t *places = units->places + (int64_t)units->count * 3 * units->ranks;
    *unit = (tri_unit){.first = first,
                       .count = count,
                       .tie = -1,
                       .counts = places,
                       .firsts = places + units->ranks,
                       .at = places + (int64_t)2 * units->ranks};
    snprintf(unit->name, sizeof(unit->name), "unit %d (from %.24s)", units->count++, name);
    return unit;
}

/* The unit of entries `first` to `last`, behind those that are there. */
static void unit_make(tri_units *units, const tri_params *params, int first, int last)
{
    int64_t begin = params->entries[first].first;
    tri_unit *unit = unit_add(units, begin, entry_end(params, last) - begin, params->entries[first].name);
    unit->entry_count = last - first + 1;
    unit->away = params->entries[first].away;
    unit->frozen = true;
    for (int e = first; e <= last; e++) {
        units->of[e] = units->count - 1;
        unit->frozen = unit->frozen && params->entries[e].frozen;
    }
    unit_share(units, params, unit, first, last);
    for (int r = 0; r < units->ranks && units->count > 1; r++)
        unit->at[r] = unit[-1].at[r] + unit[-1].counts[r];
}

/* From the end, so that a bias, which follows the weights of its layer, is in one unit with them. */
static void entries_cut(tri_units *units, const tri_params *params, int64_t nbytes_each)
{
    int *begins = units->of; /* until it is filled: whether a unit begins there */
    for (int last = params->entry_count - 1, first; last >= 0; last = first - 1) {
        first = unit_first(params, last, nbytes_each);
        begins[first] = 1;
    }
    for (int first = 0, last; first < params->entry_count; first = last + 1) {
        for (last = first; last + 1 < params->entry_count && !begins[last + 1]; last++)
            ;
        unit_make(units, params, first, last);
    }
    units->store_count = units->count;
}

static void ties_cut(tri_units *units, const tri_params *params)
{
    for (int t = 0; t < params->tie_count; t++) {
        const tri_param *entry = &params->entries[params->ties[t].entry];
        tri_unit *unit = unit_add(units, params->ties[t].first, entry->count, "ties");
        unit->tie = t;
        unit->entry_count = 1;
        unit->frozen = entry->frozen;
        unit->away = params->ties[t].away;
        units->of[params->entry_count + t] = units->count - 1;
        tie_share(units, params, unit);
    }
}

tri_status tri_units_init(tri_units *units, const tri_params *params, int64_t nbytes_each, int ranks)
{
    size_t most = (size_t)tri_params_tail(params);
    *units = (tri_units){.ranks = ranks};
    units->items = tri_alloc_zero(most + 1, sizeof(tri_unit));
    units->of = tri_alloc_zero(most + 1, sizeof(int));
    units->places = tri_alloc_zero((most + 1) * 3 * (size_t)ranks, sizeof(int64_t));
    if (!units->items || !units->of || !units->places) {
        tri_units_fini(units);
        return TRI_ENOMEM;
    }
    entries_cut(units, params, nbytes_each);
    ties_cut(units, params);
    return TRI_OK;
}

void tri_units_fini(tri_units *units)
{
    tri_free(units->items);
    tri_free(units->of);
    tri_free(units->places);
    *units = (tri_units){0};
}

void tri_units_largest(const tri_units *units, tri_units_kind kind, int most, int64_t *counts)
{
    memset(counts, 0, (size_t)most * sizeof(*counts));
    for (int u = 0; u < (kind == TRI_UNITS_READ ? units->store_count : units->count); u++) {
        const tri_unit *unit = &units->items[u];
        int64_t count = kind == TRI_UNITS_SUMMED && (unit->frozen || unit->away) ? 0 : unit->count;
        for (int i = 0; i < most; i++) { /* who is larger goes before, and moves the others on */
            const int64_t here = counts[i];
            counts[i] = count > here ? count : here;
            count = count > here ? here : count;
        }
    }
}

int64_t tri_units_owned(const tri_units *units, int rank)
{
    if (units->store_count == 0)
        return 0;
    const tri_unit *last = &units->items[units->store_count - 1];
    return last->at[rank] + last->counts[rank];
}
