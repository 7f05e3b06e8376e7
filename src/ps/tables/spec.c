/* SPDX-License-Identifier: Apache-2.0
 *
 * spec.c: a table's description to text and back, and the cut into blocks that follows from it.
 */
#include "ps/tables/spec.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/yaml.h"
#include "kernel/kernel.h"

#define ELEMENTS_MAX (INT64_C(1) << 42)

/* --- blocks --- */

static int64_t entry_end(const tri_params *params, int e)
{
    return e + 1 < params->entry_count ? params->entries[e + 1].first : params->count;
}

static int64_t tied_within(const tri_params *params, const ps_cut *cut)
{
    int64_t tied = 0;
    for (int t = 0; t < params->tie_count; t++)
        tied += tri_param_within(&params->entries[params->ties[t].entry], (tri_slice){cut->first, cut->count}).count;
    return tied;
}

static void cut_add(ps_spec *spec, int64_t first, int64_t end)
{
    ps_cut cut = {.first = first, .count = end - first};
    cut.tied = tied_within(&spec->params, &cut);
    if (spec->cuts)
        spec->cuts[spec->cut_count] = cut;
    spec->cut_count++;
}

/* Blocks end where blocks of the norm do or between entries, so that norms come out the same; with spec->cuts NULL they
 * are only counted. */
static void cuts_walk(ps_spec *spec, int64_t each)
{
    const tri_params *params = &spec->params;
    int64_t first = 0;
    spec->cut_count = 0;
    for (int e = 0; e < params->entry_count; e++) {
        int64_t begin = params->entries[e].first, end = entry_end(params, e);
        if (first < begin && end - first > each) {
            cut_add(spec, first, begin);
            first = begin;
        }
        while (end - first > each && begin + params->entries[e].count - first > each) {
            cut_add(spec, first, first + each);
            first += each;
        }
    }
    if (first < params->count)
        cut_add(spec, first, params->count);
}

static tri_status cuts_make(ps_spec *spec)
{
    int64_t each = spec->ps.block_kib * 1024 / (int64_t)sizeof(float);
    each = each > TRI_NORM_BLOCK ? each / TRI_NORM_BLOCK * TRI_NORM_BLOCK : TRI_NORM_BLOCK;
    cuts_walk(spec, each);
    spec->cuts = tri_alloc_zero((size_t)spec->cut_count + 1, sizeof(*spec->cuts));
    if (!spec->cuts)
        return TRI_ENOMEM;
    cuts_walk(spec, each);
    return TRI_OK;
}

void tri_ps_ties_walk(const ps_spec *spec, const ps_cut *cut, ps_tie_piece piece, void *arg)
{
    const tri_params *params = &spec->params;
    for (int t = 0; cut->tied > 0 && t < params->tie_count; t++) {
        const tri_param *entry = &params->entries[params->ties[t].entry];
        tri_slice within = tri_param_within(entry, (tri_slice){cut->first, cut->count});
        if (within.count > 0)
            piece(arg, params->ties[t].first + (within.first - entry->first), within.first - cut->first, within.count);
    }
}

tri_status tri_ps_slots(const ps_spec *spec, uint8_t *slots)
{
    uint64_t *nbytes = tri_alloc((size_t)spec->cut_count * sizeof(*nbytes));
    if (!nbytes)
        return TRI_ENOMEM;
    for (int i = 0; i < spec->cut_count; i++)
        nbytes[i] = (uint64_t)spec->cuts[i].count * sizeof(float);
    tri_status status = ps_deal(nbytes, spec->cut_count, slots);
    tri_free(nbytes);
    return status;
}

tri_status tri_ps_owners(const ps_spec *spec, const ps_view *view, int *owners)
{
    uint8_t *slots = tri_alloc((size_t)spec->cut_count);
    tri_status status = slots ? tri_ps_slots(spec, slots) : TRI_ENOMEM;
    for (int i = 0; i < spec->cut_count && status == TRI_OK; i++)
        owners[i] = view->slots[slots[i]];
    tri_free(slots);
    return status;
}

tri_slice tri_ps_norm_blocks(const ps_spec *spec, const ps_cut *cut)
{
    tri_slice blocks = {0, 0};
    for (int e = 0; e < spec->params.entry_count; e++) {
        const tri_param *entry = &spec->params.entries[e];
        tri_slice within = tri_param_within(entry, (tri_slice){cut->first, cut->count});
        if (within.count == 0 || entry->buffer || entry->frozen)
            continue;
        int64_t first = entry->block + (within.first - entry->first) / TRI_NORM_BLOCK;
        int64_t end = first + (within.count + TRI_NORM_BLOCK - 1) / TRI_NORM_BLOCK;
        if (blocks.count == 0)
            blocks.first = first;
        blocks.count = end - blocks.first;
    }
    return blocks;
}

bool tri_ps_cut_moves(const ps_spec *spec, const ps_cut *cut)
{
    for (int e = 0; e < spec->params.entry_count; e++) {
        const tri_param *entry = &spec->params.entries[e];
        if (!entry->frozen && tri_param_within(entry, (tri_slice){cut->first, cut->count}).count > 0)
            return true;
    }
    return false;
}

/* --- to text --- */

tri_status tri_ps_spec_of(const tri_params *params, const tri_ps_config *ps, const tri_optim_config *optim,
                          int64_t leaves, int workers, int64_t steps, ps_spec *spec)
{
    *spec = (ps_spec){.name = "weights",
                      .params = *params,
                      .leaves = leaves,
                      .workers = workers,
                      .steps = steps,
                      .ps = *ps,
                      .optim = *optim};
    return cuts_make(spec);
}

static tri_status options_print(const tri_option_table *table, const void *config, tri_string *out)
{
    TRI_TRY(tri_string_appendf(out, "%s:\n", table->section));
    for (size_t i = 0; i < table->count; i++) {
        tri_string value = {0};
        tri_status status = tri_options_print(&table->rows[i], config, &value);
        bool quoted = table->rows[i].type == TRI_OPTION_LIST || value.nbytes == 0;
        if (status == TRI_OK)
            status = tri_string_appendf(out, quoted ? "  %s: '%s'\n" : "  %s: %s\n", table->rows[i].field,
                                        tri_string_text(&value));
        tri_string_fini(&value);
        TRI_TRY(status);
    }
    return TRI_OK;
}

tri_status tri_ps_spec_print(const ps_spec *spec, tri_string *out)
{
    const tri_params *params = &spec->params;
    TRI_TRY(tri_string_appendf(
        out, "name: %s\njob: %016llx\nera: %lld\nleaves: %lld\nworkers: %d\nsteps: %lld\ncount: %lld\nblocks: %lld\n",
        spec->name, (unsigned long long)spec->job, (long long)spec->era, (long long)spec->leaves, spec->workers,
        (long long)spec->steps, (long long)params->count, (long long)params->block_count));
    TRI_TRY(options_print(&tri_ps_options, &spec->ps, out));
    TRI_TRY(options_print(&tri_optim_options, &spec->optim, out));
    TRI_TRY(tri_string_append(out, "entries:\n"));
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        TRI_TRY(tri_string_appendf(out, "- [%s, %lld, %lld, %lld, %d, %.9g]\n", entry->name, (long long)entry->first,
                                   (long long)entry->count, (long long)entry->block,
                                   (entry->decay ? 1 : 0) | (entry->buffer ? 2 : 0) | (entry->frozen ? 4 : 0),
                                   (double)entry->momentum));
    }
    TRI_TRY(tri_string_append(out, "ties:\n"));
    for (int t = 0; t < params->tie_count; t++)
        TRI_TRY(tri_string_appendf(out, "- [%d, %lld]\n", params->ties[t].entry, (long long)params->ties[t].first));
    return TRI_OK;
}

/* --- and back --- */

static tri_status whole_number(const tri_yaml *root, const char *key, int64_t low, int64_t high, int64_t *out)
{
    const tri_yaml *node = tri_yaml_find(root, key);
    if (!node)
        return tri_fail(TRI_ECONFIG, "a table: there is no '%s'", key);
    return tri_yaml_int(node, key, low, high, out);
}

static tri_status options_parse(const tri_option_table *table, const tri_yaml *root, void *config)
{
    tri_options_defaults(table, config);
    const tri_yaml *section = tri_yaml_find(root, table->section);
    for (const tri_yaml *at = section ? section->child : NULL; at; at = at->next)
        if (at->kind == TRI_YAML_SCALAR)
            TRI_TRY(tri_options_set(table, config, at->key ? at->key : "", at->text));
    return TRI_OK;
}

/* The numbers of one line of a list, behind its name; each within [0, ELEMENTS_MAX]. */
static tri_status line_read(const tri_yaml *line, const char *what, int64_t *numbers, int count)
{
    const tri_yaml *at = line;
    for (int i = 0; i < count; i++, at = at->next) {
        if (!at)
            return tri_fail(TRI_ECONFIG, "a table: %s: want %d numbers, got %d", what, count, i);
        TRI_TRY(tri_yaml_int(at, what, 0, ELEMENTS_MAX, &numbers[i]));
    }
    return TRI_OK;
}

static tri_status entry_read(ps_spec *spec, const tri_yaml *node, int e)
{
    enum { FIRST, COUNT, BLOCK, FLAGS, NUMBERS };
    tri_params *params = &spec->params;
    tri_param *entry = &params->entries[e];
    int64_t numbers[NUMBERS], end = e > 0 ? entry[-1].first + entry[-1].count : 0;
    int64_t block_end = e > 0 ? entry[-1].block + (entry[-1].count + TRI_NORM_BLOCK - 1) / TRI_NORM_BLOCK : 0;
    const tri_yaml *name = node->child;
    double momentum = 0;
    if (node->kind != TRI_YAML_LIST || tri_yaml_count(node) != NUMBERS + 2 || !name->text)
        return tri_fail(TRI_ECONFIG, "a table: entry %d: want [name, first, count, block, flags, momentum]", e);
    TRI_TRY(line_read(name->next, "entry", numbers, NUMBERS));
    TRI_TRY(tri_yaml_real(name->next->next->next->next->next, "momentum", 0, 1, &momentum));
    if (numbers[FIRST] < end || numbers[FIRST] % TRI_PARAMS_ALIGN != 0 || numbers[COUNT] < 1 ||
        numbers[COUNT] > params->count - numbers[FIRST] || numbers[BLOCK] < block_end ||
        numbers[BLOCK] > params->block_count - (numbers[COUNT] + TRI_NORM_BLOCK - 1) / TRI_NORM_BLOCK)
        return tri_fail(TRI_ECONFIG, "a table: entry %d ('%.60s') is where it cannot be", e, name->text);
    *entry = (tri_param){.name = name->text,
                         .number = e,
                         .first = numbers[FIRST],
                         .count = numbers[COUNT],
                         .block = numbers[BLOCK],
                         .decay = numbers[FLAGS] & 1,
                         .buffer = numbers[FLAGS] & 2,
                         .frozen = numbers[FLAGS] & 4,
                         .momentum = (float)momentum};
    return TRI_OK;
}

static tri_status entries_read(ps_spec *spec, const tri_yaml *list)
{
    tri_params *params = &spec->params;
    params->entry_count = params->model_count = tri_yaml_count(list);
    params->entries = tri_arena_alloc(spec->arena, (size_t)params->entry_count + 1, sizeof(tri_param));
    params->names = tri_arena_alloc(spec->arena, (size_t)params->entry_count + 1, sizeof(char *));
    if (!params->entries || !params->names)
        return TRI_ENOMEM;
    if (params->entry_count == 0)
        return tri_fail(TRI_ECONFIG, "a table: there are no entries");
    int e = 0;
    for (const tri_yaml *node = list->child; node; node = node->next, e++) {
        TRI_TRY(entry_read(spec, node, e));
        params->names[e] = params->entries[e].buffer ? NULL : (char *)params->entries[e].name;
    }
    return TRI_OK;
}

static tri_status ties_read(ps_spec *spec, const tri_yaml *list)
{
    tri_params *params = &spec->params;
    int64_t least = params->count, numbers[2];
    int count = list ? tri_yaml_count(list) : 0;
    params->ties = tri_arena_alloc(spec->arena, (size_t)count + 1, sizeof(tri_tie));
    if (!params->ties)
        return TRI_ENOMEM;
    for (const tri_yaml *node = list ? list->child : NULL; node; node = node->next) {
        TRI_TRY(line_read(node->child, "tie", numbers, 2));
        if (numbers[0] >= params->entry_count || numbers[1] < least)
            return tri_fail(TRI_ECONFIG, "a table: tie %d is where it cannot be", params->tie_count);
        params->ties[params->tie_count++] = (tri_tie){.entry = (int)numbers[0], .first = numbers[1]};
        least = numbers[1] + params->entries[numbers[0]].count;
    }
    return TRI_OK;
}

tri_status tri_ps_spec_parse(const char *text, size_t nbytes, ps_spec *spec)
{
    tri_yaml *root;
    *spec = (ps_spec){.params.device = tri_device_host()};
    spec->arena = tri_alloc_zero(1, sizeof(*spec->arena));
    if (!spec->arena)
        return TRI_ENOMEM;
    TRI_TRY(tri_yaml_parse(spec->arena, text, nbytes, "table", &root));
    const tri_yaml *name = tri_yaml_find(root, "name");
    int64_t workers;
    if (!name || !name->text || !name->text[0] || strlen(name->text) >= PS_NAME_NBYTES)
        return tri_fail(TRI_ECONFIG, "a table: want a name of at most %d bytes", PS_NAME_NBYTES - 1);
    snprintf(spec->name, sizeof(spec->name), "%s", name->text);
    TRI_TRY(whole_number(root, "era", 0, INT64_C(1) << 50, &spec->era));
    TRI_TRY(whole_number(root, "leaves", 1, 1 << 20, &spec->leaves));
    TRI_TRY(whole_number(root, "workers", 1, 1 << 20, &workers));
    TRI_TRY(whole_number(root, "steps", 0, INT64_C(1) << 50, &spec->steps));
    TRI_TRY(whole_number(root, "count", 1, ELEMENTS_MAX, &spec->params.count));
    TRI_TRY(whole_number(root, "blocks", 0, ELEMENTS_MAX, &spec->params.block_count));
    spec->workers = (int)workers;
    if ((spec->leaves & (spec->leaves - 1)) != 0)
        return tri_fail(TRI_ECONFIG, "a table: leaves: want a power of two, got %lld", (long long)spec->leaves);
    TRI_TRY(options_parse(&tri_ps_options, root, &spec->ps));
    TRI_TRY(options_parse(&tri_optim_options, root, &spec->optim));
    const tri_yaml *entries = tri_yaml_find(root, "entries");
    if (!entries)
        return tri_fail(TRI_ECONFIG, "a table: there is no 'entries'");
    TRI_TRY(entries_read(spec, entries));
    TRI_TRY(ties_read(spec, tri_yaml_find(root, "ties")));
    return cuts_make(spec);
}

void tri_ps_spec_fini(ps_spec *spec)
{
    tri_free(spec->cuts);
    spec->cuts = NULL;
    if (spec->arena) {
        tri_arena_fini(spec->arena);
        tri_free(spec->arena);
        spec->arena = NULL;
    }
}
