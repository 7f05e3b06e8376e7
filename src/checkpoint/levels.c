/* SPDX-License-Identifier: Apache-2.0
 *
 * levels.c: when the run is saved, and where: the options of the section, and the list of further places.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/path.h"
#include "base/yaml.h"
#include "checkpoint/checkpoint.h"
#include "storage/storage.h"

#define TRI_OPTION_STRUCT tri_checkpoint_config
static const tri_option rows[] = {TRI_CHECKPOINT_OPTIONS(TRI_OPTION_ROW)};
const tri_option_table tri_checkpoint_options =
    TRI_OPTION_TABLE("checkpoint", tri_checkpoint_config, rows, "when the run is saved, and where");
#undef TRI_OPTION_STRUCT

#define TRI_OPTION_STRUCT tri_checkpoint_level
static const tri_option level_rows[] = {TRI_CHECKPOINT_LEVEL_OPTIONS(TRI_OPTION_ROW)};
static const tri_option_table level_options =
    TRI_OPTION_TABLE("checkpoint.levels", tri_checkpoint_level, level_rows, "one place");
#undef TRI_OPTION_STRUCT

static tri_status level_field(const tri_yaml *field, tri_checkpoint_level *level)
{
    const char *names[TRI_COUNT_OF(level_rows)];
    for (size_t i = 0; i < TRI_COUNT_OF(level_rows); i++)
        names[i] = level_rows[i].field;
    if (!tri_options_find(&level_options, field->key)) {
        const char *nearest = tri_options_nearest(field->key, names, TRI_COUNT_OF(names));
        return tri_fail(TRI_ECONFIG, "%.30s: want to, every_steps, every_s, keep or keep_every%s%s%s", field->key,
                        nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    }
    if (field->kind != TRI_YAML_SCALAR)
        return tri_fail(TRI_ECONFIG, "%s: want one value", field->key);
    return tri_options_set(&level_options, level, field->key, field->text);
}

static tri_status level_read(const tri_yaml *node, tri_checkpoint_level *level)
{
    tri_options_defaults(&level_options, level);
    if (node->kind != TRI_YAML_MAP)
        return tri_fail(TRI_ECONFIG, "want fields such as {to: /local, every_s: 300}");
    for (const tri_yaml *field = node->child; field; field = field->next)
        TRI_TRY(level_field(field, level));
    for (size_t nbytes = strlen(level->to); nbytes > 1 && level->to[nbytes - 1] == '/';)
        level->to[--nbytes] = '\0';
    if (!level->to[0])
        return tri_fail(TRI_ECONFIG, "want to, a folder");
    if (level->every_steps == 0 && level->every_s <= 0)
        return tri_fail(TRI_ECONFIG, "want every_steps or every_s above 0 for %.200s", level->to);
    return TRI_OK;
}

static tri_status list_read(const tri_yaml *list, const char *text, tri_checkpoint_levels *levels)
{
    if (list->kind != TRI_YAML_LIST)
        return tri_fail(TRI_ECONFIG, "checkpoint.levels: want a list of places, got '%.100s'", text);
    if (tri_yaml_count(list) >= TRI_CHECKPOINT_MAX_LEVELS)
        return tri_fail(TRI_ECONFIG, "checkpoint.levels: want at most %d places, got %d", TRI_CHECKPOINT_MAX_LEVELS - 1,
                        tri_yaml_count(list));
    for (const tri_yaml *node = list->child; node; node = node->next) {
        tri_checkpoint_level *level = &levels->items[levels->count];
        TRI_TRY_IN(level_read(node, level), "checkpoint.levels: place %d", levels->count);
        for (int i = 1; i < levels->count; i++)
            if (strcmp(levels->items[i].to, level->to) == 0)
                return tri_fail(TRI_ECONFIG, "checkpoint.levels: places %d and %d are both %.200s", i, levels->count,
                                level->to);
        levels->count++;
    }
    return TRI_OK;
}

tri_status tri_checkpoint_levels_read(const tri_checkpoint_config *config, tri_checkpoint_levels *levels)
{
    tri_arena arena = {0};
    tri_yaml *list = NULL;
    *levels = (tri_checkpoint_levels){.count = 1, .every_epochs = config->every_epochs};
    levels->items[0] = (tri_checkpoint_level){.every_steps = config->every_steps,
                                              .every_s = config->every_s,
                                              .keep = config->keep,
                                              .keep_every = config->keep_every};
    tri_status status = tri_yaml_parse(&arena, config->levels, strlen(config->levels), "checkpoint.levels", &list);
    if (status == TRI_OK)
        status = list_read(list, config->levels, levels);
    tri_arena_fini(&arena);
    return status;
}

/* The last part of the run folder's own name, whatever way it was called: that of `.` is another one. */
static char *run_name(const char *run_folder)
{
    char *real = realpath(run_folder, NULL);
    const char *path = real ? real : run_folder;
    size_t nbytes = strlen(path);
    while (nbytes > 1 && path[nbytes - 1] == '/')
        nbytes--;
    size_t first = nbytes;
    while (first > 0 && path[first - 1] != '/')
        first--;
    char *name = tri_format("%.*s", (int)(nbytes - first), path + first);
    free(real);
    return name;
}

/* TO/RUN, so that runs do not meet there. */
tri_status tri_checkpoint_level_folder(const tri_checkpoint_level *level, const char *run_folder, char **folder)
{
    size_t nbytes = strlen(run_folder);
    while (nbytes > 1 && run_folder[nbytes - 1] == '/')
        nbytes--;
    if (!level->to[0])
        return (*folder = tri_format("%.*s/checkpoints", (int)nbytes, run_folder)) ? TRI_OK : TRI_ENOMEM;
    char *name = run_name(run_folder), *place = name ? tri_format("%s/%s", level->to, name) : NULL;
    *folder = NULL;
    tri_status status = place ? tri_mirror_folder(place, folder) : TRI_ENOMEM;
    tri_free(name);
    tri_free(place);
    return status;
}

tri_status tri_checkpoint_folders_find(const tri_checkpoint_config *config, const char *run_folder,
                                       tri_checkpoint_folders *out)
{
    tri_checkpoint_levels levels;
    *out = (tri_checkpoint_folders){0};
    tri_status status = tri_checkpoint_levels_read(config, &levels);
    for (int i = 0; i < levels.count && status == TRI_OK; i++) {
        char *folder;
        status = tri_checkpoint_level_folder(&levels.items[i], run_folder, &folder);
        if (folder && i > 0 && tri_checkpoint_is_others(folder, run_folder))
            tri_free(folder);
        else
            out->items[out->count++] = folder;
    }
    if (status != TRI_OK)
        tri_checkpoint_folders_fini(out);
    return status;
}

void tri_checkpoint_folders_fini(tri_checkpoint_folders *folders)
{
    for (int i = 0; i < folders->count; i++)
        tri_free(folders->items[i]);
    *folders = (tri_checkpoint_folders){0};
}

/* A place as a list has it, `to` in quotes. */
static tri_status level_print(const tri_checkpoint_level *level, tri_string *out)
{
    char *to = tri_path_is_url(level->to) ? tri_strdup(level->to) : tri_fs_absolute(level->to);
    tri_status status = to ? tri_string_appendf(out, "%s{to: '", out->nbytes > 1 ? ", " : "") : TRI_ENOMEM;
    for (const char *at = to; status == TRI_OK && *at; at++)
        status = tri_string_appendf(out, *at == '\'' ? "''" : "%c", *at);
    tri_free(to);
    TRI_TRY(status);
    TRI_TRY(tri_string_append(out, "'"));
    for (size_t i = 1; i < TRI_COUNT_OF(level_rows); i++) {
        TRI_TRY(tri_string_appendf(out, ", %s: ", level_rows[i].field));
        TRI_TRY(tri_options_print(&level_rows[i], level, out));
    }
    return tri_string_append(out, "}");
}

tri_status tri_checkpoint_levels_settle(tri_checkpoint_config *config)
{
    tri_checkpoint_levels levels;
    tri_string text = {0};
    bool relative = false;
    TRI_TRY(tri_checkpoint_levels_read(config, &levels));
    for (int i = 1; i < levels.count; i++)
        relative = relative || (levels.items[i].to[0] != '/' && !tri_path_is_url(levels.items[i].to));
    if (!relative)
        return TRI_OK;
    tri_status status = tri_string_append(&text, "[");
    for (int i = 1; i < levels.count && status == TRI_OK; i++)
        status = level_print(&levels.items[i], &text);
    if (status == TRI_OK)
        status = tri_string_append(&text, "]");
    if (status == TRI_OK)
        status = tri_options_set(&tri_checkpoint_options, config, "levels", tri_string_text(&text));
    tri_string_fini(&text);
    return status;
}

bool tri_checkpoint_levels_repeat(const tri_checkpoint_levels *levels)
{
    for (int i = 0; i < levels->count; i++)
        if (levels->items[i].every_steps > 0 || levels->items[i].every_s > 0)
            return true;
    return levels->every_epochs > 0;
}
