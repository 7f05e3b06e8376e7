/* SPDX-License-Identifier: Apache-2.0
 *
 * shards.c: see shards.h. Braces are expanded first, the first pair of a pattern before those behind it, as a shell
 * does; then * and ? are compared with the names in the folder, in their order.
 */
#include "data/shards.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/fs.h"
#include "base/path.h"
#include "base/runtime.h"

#define PATHS_LIMIT 1000000
#define INDEXES     ".trireme"
#define WAIT_MS     20

static const char *const part_names[][5] = {
    [TRI_PART_TRAIN] = {"train", NULL}, [TRI_PART_TEST] = {"test", NULL}, [TRI_PART_VALIDATION] = {"val", "dev", NULL}};

static tri_status path_add(tri_vector *paths, char *path)
{
    if (path != NULL && paths->count < PATHS_LIMIT && tri_vector_push(paths, &path) != NULL)
        return TRI_OK;
    tri_free(path);
    return paths->count < PATHS_LIMIT
               ? TRI_ENOMEM
               : tri_fail(TRI_ECONFIG, "data.path: the pattern stands for more than %d files", PATHS_LIMIT);
}

/* --- braces --- */

/* The brace that closes the one at `open`, and its commas at the same depth. NULL: none. */
static const char *brace_end(const char *open)
{
    int depth = 0;
    for (const char *at = open; *at != 0; at++) {
        depth += (*at == '{') - (*at == '}');
        if (depth == 0)
            return at;
    }
    return NULL;
}

/* 000..012: two numbers. */
static bool range_read(const char *text, const char *end, long *first, long *last, int *digits)
{
    char *stop;
    if (text[0] < '0' || text[0] > '9')
        return false;
    *first = strtol(text, &stop, 10);
    *digits = (int)(stop - text);
    if (stop + 2 >= end || stop[0] != '.' || stop[1] != '.' || stop[2] < '0' || stop[2] > '9')
        return false;
    *last = strtol(stop + 2, &stop, 10);
    return stop == end && *digits <= 18 && *last >= *first;
}

static tri_status expand(const char *pattern, int depth, tri_vector *out);

static tri_status expand_with(const char *pattern, const char *open, const char *close, const char *word,
                              size_t word_nbytes, int depth, tri_vector *out)
{
    char *one = tri_format("%.*s%.*s%s", (int)(open - pattern), pattern, (int)word_nbytes, word, close + 1);
    tri_status status = one != NULL ? expand(one, depth + 1, out) : TRI_ENOMEM;
    tri_free(one);
    return status;
}

static tri_status expand(const char *pattern, int depth, tri_vector *out)
{
    const char *open = strchr(pattern, '{'), *close = open != NULL ? brace_end(open) : NULL;
    long first, last;
    int digits, inner = 0;
    if (depth > 16)
        return tri_fail(TRI_ECONFIG, "data.path: want at most 16 pairs of braces");
    if (close == NULL)
        return path_add(out, tri_strdup(pattern));
    if (range_read(open + 1, close, &first, &last, &digits)) {
        for (long i = first; i <= last; i++) {
            char word[24];
            const int nbytes = snprintf(word, sizeof(word), "%0*ld", open[1] == '0' ? digits : 1, i);
            TRI_TRY(expand_with(pattern, open, close, word, (size_t)nbytes, depth, out));
        }
        return TRI_OK;
    }
    const char *word = open + 1;
    for (const char *at = word; at <= close; at++) {
        if (at == close || (*at == ',' && inner == 0)) {
            TRI_TRY(expand_with(pattern, open, close, word, (size_t)(at - word), depth, out));
            word = at + 1;
        }
        inner += (*at == '{') - (*at == '}');
    }
    return TRI_OK;
}

/* --- names --- */

static bool is_hidden(const char *name)
{
    return name[0] == '.';
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* The names in a folder that `is` takes. */
static tri_status folder_add(const char *folder, bool (*is)(const char *name, const void *arg), const void *arg,
                             tri_vector *out)
{
    char **names;
    size_t count;
    TRI_TRY(tri_fs_list(folder, &names, &count));
    tri_status status = TRI_OK;
    for (size_t i = 0; i < count && status == TRI_OK; i++)
        if (!is_hidden(names[i]) && is(names[i], arg))
            status = path_add(out, tri_format("%s/%s", folder, names[i]));
    tri_fs_list_free(names, count);
    return status;
}

static bool name_matches(const char *name, const void *pattern)
{
    return fnmatch(pattern, name, 0) == 0;
}

/* One pattern without braces. */
static tri_status glob_add(const char *pattern, tri_vector *out)
{
    const char *base = base_of(pattern);
    if (strpbrk(base, "*?[") == NULL || tri_fs_exists(pattern))
        return path_add(out, tri_strdup(pattern));
    char *folder = base > pattern ? tri_strndup(pattern, (size_t)(base - pattern - 1)) : tri_strdup(".");
    const size_t before = out->count;
    tri_status status =
        folder != NULL ? folder_add(folder[0] != 0 ? folder : "/", name_matches, base, out) : TRI_ENOMEM;
    tri_free(folder);
    if (status == TRI_OK && out->count == before)
        return tri_fail(TRI_ENOTFOUND, "%s: no file has such a name", pattern);
    return status;
}

static tri_status pattern_add(const char *pattern, tri_vector *out)
{
    tri_vector all = {.each = sizeof(char *)};
    tri_status status = expand(pattern, 0, &all);
    for (size_t i = 0; i < all.count; i++) {
        char *one = *(char **)tri_vector_at(&all, i);
        if (status == TRI_OK)
            status = glob_add(one, out);
        tri_free(one);
    }
    tri_vector_fini(&all);
    return status;
}

/* Commas and blanks outside braces part several patterns, unless a file has such a name. */
static tri_status patterns_add(const char *text, tri_vector *out)
{
    int depth = 0;
    const char *first = text;
    if (tri_fs_exists(text))
        return path_add(out, tri_strdup(text));
    for (const char *at = text;; at++) {
        if (*at == 0 || ((*at == ',' || *at == ' ') && depth == 0)) {
            char *one = at > first ? tri_strndup(first, (size_t)(at - first)) : NULL;
            tri_status status = at == first ? TRI_OK : one != NULL ? pattern_add(one, out) : TRI_ENOMEM;
            tri_free(one);
            if (status != TRI_OK || *at == 0)
                return status;
            first = at + 1;
        }
        depth += (*at == '{') - (*at == '}');
    }
}

/* --- folders --- */

typedef struct name_rule {
    const char *ending;
    const char *const *starts; /* NULL: any name */
} name_rule;

static bool rule_takes(const char *name, const void *arg)
{
    const name_rule *rule = arg;
    bool takes = rule->starts == NULL;
    for (int i = 0; !takes && rule->starts[i] != NULL; i++)
        takes = strncmp(name, rule->starts[i], strlen(rule->starts[i])) == 0;
    return takes && tri_path_ends_in(name, rule->ending);
}

static bool starts_like(const char *name, const void *starts)
{
    const char *const *all = starts;
    bool does = false;
    for (int i = 0; !does && all[i] != NULL; i++)
        does = strncmp(name, all[i], strlen(all[i])) == 0;
    return does;
}

/* Files of the part by their names, or in sub-folders of such names. */
static tri_status part_add(const char *folder, tri_data_part part, const char *ending, tri_vector *out)
{
    const name_rule rule = {ending, part_names[part]};
    const name_rule any = {ending, NULL};
    tri_vector folders = {.each = sizeof(char *)};
    tri_status status = folder_add(folder, rule_takes, &rule, out);
    if (status == TRI_OK && out->count == 0)
        status = folder_add(folder, starts_like, part_names[part], &folders);
    for (size_t i = 0; i < folders.count; i++) {
        char *inner = *(char **)tri_vector_at(&folders, i);
        if (status == TRI_OK && tri_fs_is_folder(inner))
            status = folder_add(inner, rule_takes, &any, out);
        tri_free(inner);
    }
    tri_vector_fini(&folders);
    return status;
}

static tri_status folder_find(const char *folder, tri_data_part part, const char *ending, tri_shards *out)
{
    const name_rule any = {ending, NULL};
    TRI_TRY(part_add(folder, TRI_PART_TRAIN, ending, &out->paths));
    if (out->paths.count == 0) /* no names say parts */
        return folder_add(folder, rule_takes, &any, &out->paths);
    if (part == TRI_PART_TRAIN)
        return TRI_OK;
    tri_vector own = {.each = sizeof(char *)};
    tri_status status = part_add(folder, part, ending, &own);
    if (status != TRI_OK || own.count == 0) {
        tri_vector_fini(&own);
        return status;
    }
    tri_shards_fini(out);
    *out = (tri_shards){.paths = own, .own = true};
    return TRI_OK;
}

const char *tri_compression_tool(const void *bytes, size_t nbytes)
{
    static const struct {
        const char *mark, *tool;
    } marks[] = {{"\x1f\x8b", "gunzip"},
                 {"\xfd"
                  "7zXZ",
                  "unxz"},
                 {"\x28\xb5\x2f\xfd", "unzstd"},
                 {"BZh", "bunzip2"}};
    for (size_t i = 0; i < TRI_COUNT_OF(marks); i++)
        if (nbytes >= strlen(marks[i].mark) && memcmp(bytes, marks[i].mark, strlen(marks[i].mark)) == 0)
            return marks[i].tool;
    return NULL;
}

static tri_status file_check_compressed(const char *path)
{
    char head[8];
    size_t got = 0;
    if (!tri_fs_exists(path) || tri_fs_is_folder(path) || tri_fs_read_part(path, 0, head, sizeof(head), &got) != TRI_OK)
        return TRI_OK;
    const char *tool = tri_compression_tool(head, got);
    return tool == NULL ? TRI_OK
                        : tri_fail(TRI_EFORMAT,
                                   "%s: want data that are not compressed, since samples are read at "
                                   "their places: %s %s",
                                   path, tool, path);
}

tri_status tri_shards_find(const char *path, tri_data_part part, const char *ending, tri_shards *out)
{
    *out = (tri_shards){.paths = {.each = sizeof(char *)}};
    tri_status status = tri_fs_is_folder(path) ? folder_find(path, part, ending, out) : patterns_add(path, &out->paths);
    if (status == TRI_OK && out->paths.count == 0)
        status = tri_fail(TRI_ENOTFOUND, "%s: no %s file in it", path, ending);
    for (size_t i = 0; status == TRI_OK && i < out->paths.count; i++) {
        const char *one = *(char **)tri_vector_at(&out->paths, i);
        if (!tri_path_ends_in(one, ending))
            status = file_check_compressed(one);
        if (status == TRI_OK && !tri_path_ends_in(one, ending))
            status = tri_fail(TRI_EFORMAT, "%s: want a %s file that is not compressed", one, ending);
        if (status == TRI_OK && !tri_fs_exists(one))
            status = tri_fail(TRI_ENOTFOUND, "%s: there is no such file", one);
    }
    if (status != TRI_OK)
        tri_shards_fini(out);
    return status;
}

tri_status tri_shards_check_compressed(const char *path)
{
    char **names = NULL;
    size_t count = 0;
    if (!tri_fs_is_folder(path))
        return file_check_compressed(path);
    if (tri_fs_list(path, &names, &count) != TRI_OK)
        return TRI_OK; /* whoever looks for data says that */
    tri_status status = TRI_OK;
    for (size_t i = 0; i < count && status == TRI_OK; i++) {
        if (!strstr(names[i], ".tar") && !strstr(names[i], ".tgz") && !strstr(names[i], ".jsonl"))
            continue;
        char *one = tri_format("%s/%s", path, names[i]);
        status = one != NULL ? file_check_compressed(one) : TRI_ENOMEM;
        tri_free(one);
    }
    tri_fs_list_free(names, count);
    return status;
}

bool tri_shards_can(const char *path, const char *ending)
{
    tri_shards shards;
    if (!tri_fs_is_folder(path)) /* also of a compressed one, for the sake of the message */
        return strstr(base_of(path), ending) != NULL;
    const bool found = tri_shards_find(path, TRI_PART_TRAIN, ending, &shards) == TRI_OK;
    tri_shards_fini(&shards);
    return found;
}

void tri_shards_fini(tri_shards *shards)
{
    for (size_t i = 0; i < shards->paths.count; i++)
        tri_free(*(char **)tri_vector_at(&shards->paths, i));
    tri_vector_fini(&shards->paths);
    *shards = (tri_shards){0};
}

tri_status tri_index_lock(const char *kept, tri_fs_lock *lock)
{
    char *path = tri_format("%.*s/lock", (int)(strrchr(kept, '/') - kept), kept);
    tri_status status = path != NULL ? TRI_OK : TRI_ENOMEM;
    *lock = (tri_fs_lock){0};
    while (status == TRI_OK && !tri_fs_lock_try(path, lock)) { /* a wait for the lock itself would not see a signal */
        tri_sleep_ns(WAIT_MS * TRI_NS_PER_MS);
        if (tri_stop_signal() != 0)
            status = tri_fail(TRI_ECANCELED, "stopped by a signal while another process made %s", kept);
    }
    tri_free(path);
    return status;
}

tri_status tri_index_path(const char *folder, const char *file, const char *what, char **out)
{
    const char *base = base_of(file);
    char *own = folder[0] != 0 ? tri_strdup(folder) : tri_format("%.*s%s", (int)(base - file), file, INDEXES);
    char *whole = folder[0] != 0 ? tri_fs_absolute(file) : NULL;
    tri_status status = own != NULL && (whole != NULL || folder[0] == 0) ? tri_fs_make_folder(own) : TRI_ENOMEM;
    *out = NULL;
    if (status == TRI_OK && whole != NULL) /* files of one name are in many folders */
        *out = tri_format("%s/%s-%016" PRIx64 ".%s", own, base, XXH3_64bits(whole, strlen(whole)), what);
    else if (status == TRI_OK)
        *out = tri_format("%s/%s.%s", own, base, what);
    tri_free(own);
    tri_free(whole);
    return status == TRI_OK && *out == NULL ? TRI_ENOMEM : status;
}
