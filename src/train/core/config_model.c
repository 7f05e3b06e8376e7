/* SPDX-License-Identifier: Apache-2.0
 *
 * config_model.c: the part of `model:` that is the trainer's: where its weights come from, what stands still, what
 * is initialized. What is left is nn/'s.
 */
#include <fnmatch.h>
#include <string.h>

#include "base/path.h"
#include "generate/source.h"
#include "interop/pretrained.h"
#include "train/core/config.h"

bool tri_patterns_match(const tri_patterns *patterns, const char *name)
{
    for (int i = 0; i < patterns->count; i++)
        if (fnmatch(patterns->items[i], name, 0) == 0)
            return true;
    return false;
}

/* Takes a child out of the map; NULL when there is none. */
static tri_yaml *child_take(tri_yaml *map, const char *key)
{
    for (tri_yaml **at = &map->child; *at; at = &(*at)->next) {
        if (strcmp((*at)->key, key) != 0)
            continue;
        tri_yaml *found = *at;
        *at = found->next;
        found->next = NULL;
        return found;
    }
    return NULL;
}

static tri_status wants_patterns(const tri_yaml *node)
{
    return tri_fail(TRI_ECONFIG, "model.%s: want names of parameters such as [\"conv*\", \"fc1.weight\"]", node->key);
}

/* One pattern, or a list of them. */
static tri_status patterns_read(tri_config *config, const char *key, tri_patterns *patterns)
{
    const tri_yaml *node = child_take(config->model, key);
    if (!node)
        return TRI_OK;
    int count = node->kind == TRI_YAML_LIST ? tri_yaml_count(node) : 1;
    patterns->items = tri_arena_alloc(&config->arena, (size_t)count + 1, sizeof(char *));
    if (!patterns->items)
        return TRI_ENOMEM;
    for (const tri_yaml *item = node->kind == TRI_YAML_LIST ? node->child : node; item; item = item->next) {
        if (item->kind != TRI_YAML_SCALAR || !item->text[0])
            return wants_patterns(node);
        patterns->items[patterns->count++] = item->text;
    }
    return patterns->count > 0 ? TRI_OK : wants_patterns(node);
}

/* What a URL names is read from a local copy. */
static tri_status from_settle(tri_config *config)
{
    char *path = NULL;
    TRI_TRY(tri_place_check(config->from));
    TRI_TRY(tri_storage_local_run(config->from, true, &path));
    config->from = tri_arena_strdup(&config->arena, path);
    tri_free(path);
    return config->from ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_config_model_split(tri_config *config)
{
    if (!config->model)
        return TRI_OK;
    const tri_yaml *from = child_take(config->model, "from");
    if (from && (from->kind != TRI_YAML_SCALAR || !from->text[0]))
        return tri_fail(TRI_ECONFIG, "model.from: want a folder or a safetensors file");
    config->from = config->from_given = from ? from->text : NULL;
    if (config->from)
        TRI_TRY_IN(from_settle(config), "model.from");
    TRI_TRY(patterns_read(config, "freeze", &config->freeze));
    TRI_TRY(patterns_read(config, "reinit", &config->reinit));
    if (config->reinit.count > 0 && !config->from)
        return tri_fail(TRI_ECONFIG, "model.reinit requires model.from: without it every parameter is initialized");
    return TRI_OK;
}

bool tri_config_model_is_open(const tri_config *config)
{
    return config->from && !tri_yaml_find(config->model, "name") && !tri_yaml_find(config->model, "layers");
}

/* What was given replaces what was found. */
static tri_status child_put(tri_yaml *map, tri_yaml *child, const char *origin)
{
    const tri_yaml *found = tri_yaml_find(map, child->key);
    if (found && strcmp(child->key, "name") == 0 &&
        (child->kind != TRI_YAML_SCALAR || strcmp(found->text, child->text) != 0))
        return tri_fail(TRI_ECONFIG, "model.name: %s is a %s, the configuration needs %s", origin, found->text,
                        child->text ? child->text : "something else");
    (void)child_take(map, child->key);
    tri_yaml **tail = &map->child;
    while (*tail)
        tail = &(*tail)->next;
    *tail = child;
    return TRI_OK;
}

tri_status tri_config_model_take(tri_config *config, const char *text, const char *origin)
{
    tri_yaml *found;
    TRI_TRY(tri_yaml_parse(&config->arena, text, strlen(text), origin, &found));
    for (tri_yaml *child = config->model->child, *next; child; child = next) {
        next = child->next;
        child->next = NULL;
        TRI_TRY(child_put(found, child, origin));
    }
    found->key = config->model->key;
    config->model = found;
    return TRI_OK;
}

tri_status tri_config_tokenizer_find(tri_config *config, const char *run)
{
    char *path = NULL;
    if (!config->from || strcmp(config->data.tokenizer, "auto") != 0)
        return TRI_OK;
    tri_status status = run ? tri_text_tokenizer_path(run, &path) : TRI_ENOTFOUND;
    if (status == TRI_ENOTFOUND)
        status = tri_text_tokenizer_path(config->from, &path);
    if (status == TRI_ENOTFOUND)
        return TRI_OK;
    TRI_TRY(status);
    config->data.own_tokenizer = tri_arena_strdup(&config->arena, path);
    tri_free(path);
    return config->data.own_tokenizer ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_config_model_find(tri_config *config)
{
    tri_pretrained *source;
    tri_string text = {0};
    if (!config->from)
        return TRI_OK;
    TRI_TRY(tri_config_tokenizer_find(config, NULL));
    TRI_TRY_IN(tri_pretrained_open(config->from, &source), "model.from");
    tri_status status = TRI_OK;
    if (tri_pretrained_config(source))
        status = tri_hf_config_model(tri_pretrained_config(source), &text);
    if (status == TRI_OK && text.nbytes > 0)
        status = tri_config_model_take(config, text.text, config->from);
    tri_string_fini(&text);
    tri_pretrained_close(source);
    return status;
}

/* --- printing --- */

static tri_status print_quoted(const char *text, tri_string *out)
{
    TRI_TRY(tri_string_append(out, "\""));
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            TRI_TRY(tri_string_append(out, "\\"));
        TRI_TRY(tri_string_append_bytes(out, text, 1));
    }
    return tri_string_append(out, "\"");
}

static tri_status print_patterns(const char *key, const tri_patterns *patterns, tri_string *out)
{
    if (patterns->count == 0)
        return TRI_OK;
    TRI_TRY(tri_string_appendf(out, "  %s: [", key));
    for (int i = 0; i < patterns->count; i++) {
        TRI_TRY(tri_string_append(out, i ? ", " : ""));
        TRI_TRY(print_quoted(patterns->items[i], out));
    }
    return tri_string_append(out, "]\n");
}

tri_status tri_config_model_print(const tri_config *config, tri_string *out)
{
    if (config->model->child)
        TRI_TRY(tri_yaml_print(config->model, 2, out));
    if (config->from) {
        TRI_TRY(tri_string_append(out, "  from: "));
        TRI_TRY(print_quoted(config->from_given, out));
        TRI_TRY(tri_string_append(out, "\n"));
    }
    TRI_TRY(print_patterns("freeze", &config->freeze, out));
    return print_patterns("reinit", &config->reinit, out);
}
