/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt.c: `trireme ckpt verify|list|prune`: checkpoints of a run, wherever its places are, or any folder of them.
 *
 * A run is a folder with config.yaml: its own checkpoints, the best one, and those of checkpoint.levels. What is
 * damaged is named by file, tensor and bytes; only folders with a manifest are ever removed, and never the newest whole
 * one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "checkpoint/manifest.h"
#include "cli/command.h"
#include "train/core/config.h"

typedef struct ckpt_flags {
    const char *json, *keep, *keep_every;
} ckpt_flags;

static ckpt_flags given;
static const tri_flag flags[] = {
    {"--json", NULL, "list, verify: one JSON object", &given.json},
    {"--keep", "N", "prune: keep the newest N", &given.keep},
    {"--keep-every", "N", "prune: those of steps that N divides stay too", &given.keep_every},
};

/* --- what a path stands for --- */

/* One checkpoint. */
typedef struct ckpt_entry {
    char *path;
    int64_t step; /* of its name; -1: another name */
    uint64_t nbytes;
    tri_vector damages; /* of char *, what is wrong; none: it is whole */
    bool unheard;       /* there was no memory for one */
} ckpt_entry;

static tri_status entry_add(tri_vector *entries, char *path, int64_t step)
{
    ckpt_entry entry = {.path = path, .step = step, .damages = {.each = sizeof(char *)}};
    if (path && tri_vector_push(entries, &entry))
        return TRI_OK;
    tri_free(path);
    return TRI_ENOMEM;
}

static tri_status folder_add(tri_vector *entries, const char *folder)
{
    tri_vector list;
    if (!tri_fs_is_folder(folder)) /* before its first checkpoint there is none */
        return TRI_OK;
    TRI_TRY(tri_checkpoint_list(folder, &list));
    tri_status status = TRI_OK;
    for (size_t i = 0; i < list.count && status == TRI_OK; i++) {
        const tri_checkpoint_entry *entry = tri_vector_at(&list, i);
        status = entry_add(entries, tri_format("%s/%s", folder, entry->name), entry->step);
    }
    tri_checkpoint_list_free(&list);
    return status;
}

/* All places of a run; or the folder itself. */
static tri_status folders_find(const char *path, tri_checkpoint_folders *folders)
{
    char *config_path = tri_format("%s/config.yaml", path);
    tri_config config = {0};
    tri_status status = config_path ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK && tri_fs_exists(config_path)) {
        status = tri_config_load(config_path, NULL, NULL, &config);
        if (status == TRI_OK)
            status = tri_checkpoint_folders_find(&config.checkpoint, path, folders);
    } else if (status == TRI_OK) {
        *folders = (tri_checkpoint_folders){.items = {tri_strdup(path)}, .count = 1};
        status = folders->items[0] ? TRI_OK : TRI_ENOMEM;
    }
    tri_config_fini(&config);
    tri_free(config_path);
    return status;
}

static bool is_checkpoint(const char *path, int64_t *step)
{
    const char *slash = strrchr(path, '/');
    char *file = tri_format("%s/%s", path, TRI_MANIFEST_FILE);
    bool named = tri_checkpoint_name_step(slash ? slash + 1 : path, step), found = file && tri_fs_exists(file);
    if (!named)
        *step = -1;
    tri_free(file);
    return named || found;
}

/* A checkpoint, or all that a run or a folder has. */
static tri_status entries_find(const char *path, bool with_best, tri_vector *entries)
{
    int64_t step;
    if (!tri_fs_is_folder(path))
        return tri_fail(TRI_ENOTFOUND, "%s: want the folder of a run or of a checkpoint, got %s", path,
                        tri_fs_exists(path) ? "a file" : "nothing");
    if (is_checkpoint(path, &step))
        return entry_add(entries, tri_strdup(path), step);
    tri_checkpoint_folders folders = {0};
    tri_status status = folders_find(path, &folders);
    char *best = tri_format("%s/best", path);
    for (int i = 0; i < folders.count && status == TRI_OK; i++)
        status = folder_add(entries, folders.items[i]);
    if (status == TRI_OK && with_best)
        status = best ? folder_add(entries, best) : TRI_ENOMEM;
    tri_free(best);
    tri_checkpoint_folders_fini(&folders);
    if (status == TRI_OK && entries->count == 0)
        status = tri_fail(TRI_ENOTFOUND, "%s: no checkpoints here", path);
    return status;
}

static void entries_fini(tri_vector *entries)
{
    for (size_t i = 0; i < entries->count; i++) {
        ckpt_entry *entry = tri_vector_at(entries, i);
        for (size_t k = 0; k < entry->damages.count; k++)
            tri_free(*(char **)tri_vector_at(&entry->damages, k));
        tri_vector_fini(&entry->damages);
        tri_free(entry->path);
    }
    tri_vector_fini(entries);
}

/* --- looking at one --- */

static const char *damage_at(const ckpt_entry *entry, size_t i)
{
    return *(char **)tri_vector_at(&entry->damages, i);
}

static void hear(void *arg, const char *what)
{
    ckpt_entry *entry = arg;
    char *copy = tri_strdup(what);
    if (copy && tri_vector_push(&entry->damages, &copy))
        return;
    tri_free(copy);
    entry->unheard = true;
}

static tri_status entry_examine(ckpt_entry *entry)
{
    tri_manifest manifest;
    if (tri_manifest_load(entry->path, &manifest) == TRI_OK) {
        for (int i = 0; i < manifest.file_count; i++)
            entry->nbytes += manifest.files[i].nbytes;
        entry->step = manifest.run.step;
        tri_manifest_fini(&manifest);
    }
    tri_status status = tri_checkpoint_examine(entry->path, hear, entry);
    if (status != TRI_OK && !tri_checkpoint_is_damage(status))
        return status;
    return entry->unheard ? TRI_ENOMEM : TRI_OK;
}

/* A run that continues has removed it meanwhile. */
static bool entry_is_gone(const ckpt_entry *entry)
{
    return entry->damages.count > 0 && !tri_fs_exists(entry->path);
}

/* --- verify, list --- */

static tri_status entry_list(const ckpt_entry *entry, tri_json *list)
{
    tri_json object = tri_json_object_in(list, NULL), damages = tri_json_array_in(&object, "damages");
    for (size_t i = 0; i < entry->damages.count; i++)
        tri_json_text(&damages, NULL, damage_at(entry, i));
    tri_json_end(&damages);
    tri_json_text(&object, "path", entry->path);
    tri_json_int(&object, "step", entry->step);
    tri_json_int(&object, "nbytes", (int64_t)entry->nbytes);
    tri_json_bool(&object, "whole", entry->damages.count == 0);
    return tri_json_end(&object);
}

static void entry_print(const ckpt_entry *entry, bool everything)
{
    size_t count = entry->damages.count;
    for (size_t i = 0; everything && i < count; i++)
        printf("  %s\n", damage_at(entry, i));
    if (count == 0)
        printf("%s: whole, step %" PRId64 ", %" PRIu64 " bytes\n", entry->path, entry->step, entry->nbytes);
    else if (everything)
        printf("%s: damaged in %zu place%s, see above\n", entry->path, count, count == 1 ? "" : "s");
    else
        printf("%s: damaged: %s\n", entry->path, damage_at(entry, 0));
}

static tri_status entries_tell(tri_vector *entries, bool everything, tri_json *list)
{
    size_t damaged = 0, count = 0;
    const char *first = NULL;
    for (size_t i = 0; i < entries->count; i++) {
        ckpt_entry *entry = tri_vector_at(entries, i);
        TRI_TRY(entry_examine(entry));
        if (entry_is_gone(entry))
            continue;
        if (list)
            TRI_TRY(entry_list(entry, list));
        else
            entry_print(entry, everything);
        count++;
        damaged += entry->damages.count > 0;
        first = first || entry->damages.count == 0 ? first : damage_at(entry, 0);
    }
    if (damaged == 0 || !everything)
        return TRI_OK;
    return tri_fail(TRI_EFORMAT, "%zu of %zu checkpoints damaged: %s", damaged, count, first);
}

static tri_status tell(const char *path, bool everything)
{
    tri_vector entries = {.each = sizeof(ckpt_entry)};
    tri_string text = {0};
    tri_status status = entries_find(path, true, &entries);
    bool as_json = given.json && status == TRI_OK;
    tri_json object = as_json ? tri_json_object(&text) : (tri_json){0};
    tri_json list = as_json ? tri_json_array_in(&object, "checkpoints") : (tri_json){0};
    if (status == TRI_OK)
        status = entries_tell(&entries, everything, as_json ? &list : NULL);
    if (as_json) {
        tri_json_end(&list);
        if (tri_json_end(&object) == TRI_OK)
            puts(tri_string_text(&text));
    }
    tri_string_fini(&text);
    entries_fini(&entries);
    return status;
}

/* --- prune --- */

static tri_status folder_prune(const tri_checkpoint_place *place)
{
    char *newest = NULL;
    int64_t step = -1;
    int removed = 0;
    if (!tri_fs_is_folder(place->folder))
        return TRI_OK;
    tri_status status = tri_checkpoint_newest(place->folder, &newest, NULL);
    if (status == TRI_ENOTFOUND) { /* none is whole: none can be spared */
        printf("%s: nothing removed: no checkpoint here is whole\n", place->folder);
        return TRI_OK;
    }
    if (status == TRI_OK)
        (void)is_checkpoint(newest, &step);
    if (status == TRI_OK)
        status = tri_checkpoint_prune(place, step, &removed);
    if (status == TRI_OK)
        printf("%s: %d removed\n", place->folder, removed);
    tri_free(newest);
    return status;
}

static tri_status prune(const char *path)
{
    int64_t keep, keep_every = 0, step;
    tri_checkpoint_folders folders = {0};
    if (!given.keep)
        return tri_fail(TRI_ECONFIG, "ckpt prune: want --keep N, how many stay");
    TRI_TRY(tri_flag_int("--keep", given.keep, 1, 1000000, &keep));
    if (given.keep_every)
        TRI_TRY(tri_flag_int("--keep-every", given.keep_every, 1, INT64_C(1000000000000000), &keep_every));
    if (!tri_fs_is_folder(path) || is_checkpoint(path, &step))
        return tri_fail(TRI_ENOTFOUND, "%s: want the folder of a run, or one of checkpoints", path);
    tri_status status = folders_find(path, &folders);
    for (int i = 0; i < folders.count && status == TRI_OK; i++)
        status = folder_prune(&(tri_checkpoint_place){folders.items[i], keep, keep_every});
    tri_checkpoint_folders_fini(&folders);
    return status;
}

/* --- the command --- */

static tri_status verify(const char *path)
{
    return tell(path, true);
}

static tri_status list(const char *path)
{
    return tell(path, false);
}

static const struct {
    const char *name;
    tri_status (*run)(const char *path);
} words[] = {{"verify", verify}, {"list", list}, {"prune", prune}};

static tri_status run(int count, char **argv)
{
    for (size_t i = 0; count == 2 && i < TRI_COUNT_OF(words); i++)
        if (strcmp(argv[0], words[i].name) == 0) {
            size_t nbytes = strlen(argv[1]);
            while (nbytes > 1 && argv[1][nbytes - 1] == '/')
                argv[1][--nbytes] = 0;
            return words[i].run(argv[1]);
        }
    return tri_fail(TRI_ECONFIG, "ckpt: want verify, list or prune, and the folder of a run or of a checkpoint");
}

int cmd_ckpt(int argc, char **argv)
{
    return tri_command_run(tri_command_of(cmd_ckpt), flags, TRI_COUNT_OF(flags), argc, argv, run);
}
