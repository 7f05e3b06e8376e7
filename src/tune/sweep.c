/* SPDX-License-Identifier: Apache-2.0
 *
 * sweep.c: reads the file of a sweep.
 */
#include "tune/sweep.h"

#include <stdio.h>
#include <string.h>

#include "base/fs.h"

#define TRI_OPTION_STRUCT tri_tune_config
static const tri_option rows[] = {TRI_TUNE_OPTIONS(TRI_OPTION_ROW)};
#undef TRI_OPTION_STRUCT
const tri_option_table tri_tune_options =
    TRI_OPTION_TABLE("tune", tri_tune_config, rows, "a search for good options; in its file they are at the top");

#define FILE_LIMIT_NBYTES (1u << 20)
#define DEFAULT_TRIALS    32

static tri_status unknown_key(const char *origin, const tri_yaml *node)
{
    const char *names[TRI_COUNT_OF(rows) + 2] = {"space", "set"};
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++)
        names[2 + i] = rows[i].field;
    const char *nearest = tri_options_nearest(node->key, names, TRI_COUNT_OF(names));
    return nearest ? tri_fail(TRI_ECONFIG, "%s:%d: a sweep has no '%s'; did you mean '%s'?", origin, node->line,
                              node->key, nearest)
                   : tri_fail(TRI_ECONFIG, "%s:%d: a sweep has no '%s' (trireme tune --help lists what it has)", origin,
                              node->line, node->key);
}

/* `set: {section.key: value}` as words of a command line. */
static tri_status set_read(tri_sweep *sweep, const tri_yaml *node, const char *origin)
{
    int count = 0;
    sweep->set = tri_arena_alloc(&sweep->arena, (size_t)(node ? tri_yaml_count(node) : 0) + 1, sizeof(char *));
    if (!sweep->set)
        return TRI_ENOMEM;
    if (node && node->kind != TRI_YAML_MAP)
        return tri_fail(TRI_ECONFIG, "%s:%d: set: want section.key: value below it", origin, node->line);
    for (const tri_yaml *at = node ? node->child : NULL; at; at = at->next) {
        tri_string text = {0};
        if (!strchr(at->key, '.'))
            return tri_fail(TRI_ECONFIG, "%s:%d: set: want names of the form section.key, got '%s'", origin, at->line,
                            at->key);
        tri_status status =
            at->kind == TRI_YAML_SCALAR ? tri_string_append(&text, at->text) : tri_yaml_print_flow(at, &text);
        if (status == TRI_OK)
            sweep->set[count++] = tri_arena_format(&sweep->arena, "%s=%s", at->key, tri_string_text(&text));
        tri_string_fini(&text);
        TRI_TRY(status);
        if (!sweep->set[count - 1])
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

/* What decides which trials there are and what they do. */
static tri_status text_keep(tri_sweep *sweep, const tri_yaml *root)
{
    tri_string text = {0};
    tri_status status = TRI_OK;
    for (tri_yaml *at = root->child; at && status == TRI_OK; at = at->next) {
        if (strcmp(at->key, "trials") == 0 || strcmp(at->key, "parallel") == 0)
            continue;
        tri_yaml alone = *at, map = {.kind = TRI_YAML_MAP, .child = &alone};
        alone.next = NULL;
        status = tri_yaml_print_flow(&map, &text);
        if (status == TRI_OK)
            status = tri_string_append(&text, "\n");
    }
    if (status == TRI_OK && !(sweep->text = tri_arena_strdup(&sweep->arena, tri_string_text(&text))))
        status = TRI_ENOMEM;
    tri_string_fini(&text);
    return status;
}

/* Steps / eta^k down to min_steps, in rising order. */
static tri_status rungs_make(tri_sweep *sweep, const char *origin)
{
    tri_tune_config *tune = &sweep->tune;
    const bool asha = tune->schedule == TRI_SWEEP_ASHA;
    if (asha && tune->steps == 0)
        return tri_fail(TRI_ECONFIG, "%s: schedule asha: want steps, those of a whole trial", origin);
    if (tune->min_steps == 0)
        tune->min_steps = tune->steps / (tune->eta * tune->eta) > 0 ? tune->steps / (tune->eta * tune->eta) : 1;
    if (asha && tune->min_steps >= tune->steps)
        return tri_fail(TRI_ECONFIG, "%s: min_steps: want less than steps, %lld, got %lld", origin,
                        (long long)tune->steps, (long long)tune->min_steps);
    if (!asha)
        return TRI_OK;
    int64_t down[TRI_SWEEP_MAX_RUNGS];
    int count = 0;
    for (int64_t steps = tune->steps; steps >= tune->min_steps && count < TRI_SWEEP_MAX_RUNGS; steps /= tune->eta)
        down[count++] = steps;
    for (int i = 0; i < count; i++)
        sweep->rungs[i] = down[count - 1 - i];
    sweep->rung_count = count;
    return TRI_OK;
}

static tri_status check(tri_sweep *sweep, const char *path, bool outer)
{
    tri_tune_config *tune = &sweep->tune;
    const char *slash = strrchr(path, '/');
    int64_t grid = 0;
    if (!tune->config[0] && !outer)
        return tri_fail(TRI_ECONFIG, "%s: want config, the configuration that trials change", path);
    if (slash && tune->config[0] && tune->config[0] != '/')
        snprintf(sweep->config, sizeof(sweep->config), "%.*s/%s", (int)(slash - path), path, tune->config);
    else
        snprintf(sweep->config, sizeof(sweep->config), "%s", tune->config);
    sweep->wants_most = tune->metric == TRI_METRIC_TEST_ACCURACY || tune->metric == TRI_METRIC_TEST_R2;
    sweep->wants_pace = tune->metric == TRI_METRIC_STEP_SECONDS;
    sweep->each_step = sweep->wants_pace || tune->metric == TRI_METRIC_LOSS;
    if (sweep->wants_pace && tune->parallel == 0) /* trials would take each other's memory and caches */
        tune->parallel = 1;
    TRI_TRY(rungs_make(sweep, path));
    if (outer)
        return TRI_OK;
    if (sweep->space.count == 0)
        return tri_fail(TRI_ECONFIG, "%s: want space, the options that trials change", path);
    if (tune->search == TRI_SEARCH_GRID)
        TRI_TRY_IN(tri_space_grid(&sweep->space, &grid), "%s", path);
    if (tune->trials == 0 || (grid > 0 && grid < tune->trials))
        tune->trials = grid > 0 ? grid : DEFAULT_TRIALS;
    return TRI_OK;
}

static tri_status keys_read(tri_sweep *sweep, const tri_yaml *root, const char *origin)
{
    if (root->kind != TRI_YAML_MAP)
        return tri_fail(TRI_ECONFIG, "%s: want keys such as 'config:' and 'space:'", origin);
    for (const tri_yaml *at = root->child; at; at = at->next) {
        if (strcmp(at->key, "space") == 0 || strcmp(at->key, "set") == 0)
            continue;
        if (!tri_options_find(&tri_tune_options, at->key))
            return unknown_key(origin, at);
        if (at->kind != TRI_YAML_SCALAR)
            return tri_fail(TRI_ECONFIG, "%s:%d: %s: want one value", origin, at->line, at->key);
        TRI_TRY_IN(tri_options_set(&tri_tune_options, &sweep->tune, at->key, at->text), "%s:%d", origin, at->line);
    }
    TRI_TRY(set_read(sweep, tri_yaml_find(root, "set"), origin));
    TRI_TRY(tri_space_read(&sweep->arena, tri_yaml_find(root, "space"), origin, &sweep->space));
    return text_keep(sweep, root);
}

tri_status tri_sweep_load(const char *path, bool outer, tri_sweep *sweep)
{
    char *read;
    size_t nbytes;
    tri_yaml *root = NULL;
    *sweep = (tri_sweep){0};
    tri_options_defaults(&tri_tune_options, &sweep->tune);
    TRI_TRY_IN(tri_fs_read_config(path, FILE_LIMIT_NBYTES, &read, &nbytes), "while reading the sweep");
    tri_status status = tri_yaml_parse(&sweep->arena, read, nbytes, path, &root);
    tri_free(read);
    TRI_TRY(status);
    TRI_TRY(keys_read(sweep, root, path));
    return check(sweep, path, outer);
}

void tri_sweep_fini(tri_sweep *sweep)
{
    tri_arena_fini(&sweep->arena);
    *sweep = (tri_sweep){0};
}

double tri_sweep_cost(const tri_sweep *sweep, double value)
{
    return sweep->wants_most ? -value : value;
}
