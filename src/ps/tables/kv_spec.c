/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_spec.c: the description of a table of rows, to text and back.
 */
#include "ps/tables/kv_spec.h"

#include "base/yaml.h"

#define TRI_OPTION_STRUCT ps_table_config
static const tri_option rows[] = {TRI_PS_TABLE_OPTIONS(TRI_OPTION_ROW)};
#undef TRI_OPTION_STRUCT
const tri_option_table tri_ps_table_options =
    TRI_OPTION_TABLE("table", ps_table_config, rows, "tables of rows by key on parameter servers");

static tri_status name_set(ps_kv_spec *spec, const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length >= sizeof(spec->name))
        return tri_fail(TRI_ECONFIG, "a table: want a name of 1 to %d bytes, got %zu", PS_NAME_NBYTES - 1, length);
    for (size_t i = 0; i < length; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/", name[i]))
            return tri_fail(TRI_ECONFIG, "a table: want a name of letters, digits and _.-/, got '%s'", name);
    memcpy(spec->name, name, length + 1);
    return TRI_OK;
}

static tri_status optim_read(ps_kv_spec *spec, const tri_yaml *map)
{
    if (map->kind != TRI_YAML_MAP)
        return tri_fail(TRI_ECONFIG, "table '%s': optim: want a map of options", spec->name);
    for (const tri_yaml *at = map->child; at; at = at->next) {
        if (at->kind != TRI_YAML_SCALAR)
            return tri_fail(TRI_ECONFIG, "table '%s': optim.%s: want one value", spec->name, at->key);
        TRI_TRY(tri_options_set(&tri_optim_options, &spec->optim, at->key, at->text));
    }
    return TRI_OK;
}

static tri_status options_read(ps_kv_spec *spec, const tri_yaml *root, bool whole)
{
    if (root->kind != TRI_YAML_MAP)
        return tri_fail(TRI_ECONFIG, "table '%s': want options as 'key: value'", spec->name);
    for (const tri_yaml *at = root->child; at; at = at->next) {
        int64_t workers = 0;
        bool is_name = whole && strcmp(at->key, "name") == 0, is_workers = whole && strcmp(at->key, "workers") == 0;
        if (strcmp(at->key, "optim") == 0)
            TRI_TRY(optim_read(spec, at));
        else if (at->kind != TRI_YAML_SCALAR)
            return tri_fail(TRI_ECONFIG, "table '%s': %s: want one value", spec->name, at->key);
        else if (is_name)
            TRI_TRY(name_set(spec, at->text));
        else if (is_workers)
            TRI_TRY(tri_yaml_int(at, "workers", 1, 1 << 20, &workers));
        else
            TRI_TRY(tri_options_set(&tri_ps_table_options, &spec->table, at->key, at->text));
        spec->workers = is_workers ? (int)workers : spec->workers;
    }
    return TRI_OK;
}

/* Contradictions, and whether pushes are steps of the optimizer. */
static tri_status spec_check(ps_kv_spec *spec)
{
    const ps_table_config *table = &spec->table;
    spec->steps = strcmp(table->merge, "optim") == 0;
    if (spec->name[0] == '\0' || spec->workers < 1)
        return tri_fail(TRI_ECONFIG, "a table: there is no name, or no number of workers");
    if ((table->shards & (table->shards - 1)) != 0)
        return tri_fail(TRI_ECONFIG, "table '%s': shards: want a power of two, got %lld", spec->name,
                        (long long)table->shards);
    if (spec->steps && spec->optim.clip_norm > 0)
        return tri_fail(TRI_ECONFIG, "table '%s': optim.clip_norm: rows have no norm of the whole", spec->name);
    return spec->steps ? tri_schedule_check(&spec->optim) : TRI_OK;
}

static tri_status text_read(ps_kv_spec *spec, const char *text, size_t nbytes, bool whole)
{
    tri_arena arena = {0};
    tri_yaml *root;
    tri_status status = tri_yaml_parse(&arena, text, nbytes, "table", &root);
    if (status == TRI_OK)
        status = options_read(spec, root, whole);
    tri_arena_fini(&arena);
    return status;
}

static void defaults_set(ps_kv_spec *spec)
{
    *spec = (ps_kv_spec){.workers = 0};
    tri_options_defaults(&tri_ps_table_options, &spec->table);
    tri_options_defaults(&tri_optim_options, &spec->optim);
}

tri_status ps_kv_spec_make(const char *name, int dim, int workers, const char *options, ps_kv_spec *out)
{
    defaults_set(out);
    TRI_TRY(name_set(out, name));
    out->workers = workers;
    if (dim < 1 || dim > PS_MAX_DIM)
        return tri_fail(TRI_ECONFIG, "table '%s': want rows of 1 to %d values, got %d", name, PS_MAX_DIM, dim);
    if (options) {
        bool lines = strchr(options, '\n') != NULL || options[0] == '{';
        tri_string text = {0};
        tri_status status = tri_string_appendf(&text, lines ? "%s" : "{%s}", options);
        if (status == TRI_OK)
            status = text_read(out, tri_string_text(&text), text.nbytes, false);
        tri_string_fini(&text);
        TRI_TRY(status);
    }
    out->table.dim = dim;
    return spec_check(out);
}

static tri_status options_print(const tri_option_table *table, const void *config, const char *indent, tri_string *out)
{
    for (size_t i = 0; i < table->count; i++) {
        tri_string value = {0};
        tri_status status = tri_options_print(&table->rows[i], config, &value);
        bool quoted = table->rows[i].type == TRI_OPTION_LIST || value.nbytes == 0;
        if (status == TRI_OK && table->rows[i].type != TRI_OPTION_LIST)
            status = tri_string_appendf(out, quoted ? "%s%s: '%s'\n" : "%s%s: %s\n", indent, table->rows[i].field,
                                        tri_string_text(&value));
        tri_string_fini(&value);
        TRI_TRY(status);
    }
    return TRI_OK;
}

tri_status ps_kv_spec_print(const ps_kv_spec *spec, tri_string *out)
{
    TRI_TRY(tri_string_appendf(out, "name: %s\nworkers: %d\n", spec->name, spec->workers));
    TRI_TRY(options_print(&tri_ps_table_options, &spec->table, "", out));
    TRI_TRY(tri_string_append(out, "optim:\n"));
    return options_print(&tri_optim_options, &spec->optim, "  ", out);
}

uint32_t ps_kv_table_id(const char *name)
{
    return (uint32_t)XXH3_64bits(name, strlen(name));
}

tri_status ps_kv_spec_parse(const char *text, size_t nbytes, ps_kv_spec *out)
{
    defaults_set(out);
    TRI_TRY(text_read(out, text, nbytes, true));
    return spec_check(out);
}
