/* SPDX-License-Identifier: Apache-2.0
 *
 * config_print.c: the resolved configuration as text, and the hash of what decides the bits.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "train/core/config.h"

static const void *section_struct(const tri_config *config, const tri_config_section *section)
{
    return (const char *)config + section->offset;
}

static const char *origin_of(const tri_config *config, const char *section, const char *field)
{
    char key[256];
    snprintf(key, sizeof(key), "%s.%s", section, field);
    int64_t origin;
    return tri_map_find(&config->origins, key, &origin) ? config->origin_names[origin] : "default";
}

/* A scalar that YAML reads back as it was. */
static tri_status print_scalar(const tri_option *row, const char *text, tri_string *out)
{
    bool quoted = row->words || row->type == TRI_OPTION_NAME || row->type == TRI_OPTION_TEXT ||
                  row->type == TRI_OPTION_PATH; /* a list is YAML as it is */
    if (!quoted)
        return tri_string_append(out, text);
    TRI_TRY(tri_string_append(out, "\""));
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            TRI_TRY(tri_string_append(out, "\\"));
        TRI_TRY(tri_string_append_bytes(out, text, 1));
    }
    return tri_string_append(out, "\"");
}

/* Characters that YAML has no place for, and those that end a line. */
static bool is_plain(const char *text, size_t nbytes)
{
    static const char *const others[] = {"\xe2\x80\xa8", "\xe2\x80\xa9", "\xef\xbb\xbf", "\xef\xbf\xbe",
                                         "\xef\xbf\xbf"};
    const unsigned char *bytes = (const unsigned char *)text;
    for (size_t i = 0; nbytes == 3 && i < TRI_COUNT_OF(others); i++)
        if (memcmp(text, others[i], 3) == 0)
            return false;
    return nbytes == 1 ? bytes[0] >= ' ' && bytes[0] != 0x7f : !(bytes[0] == 0xc2 && bytes[1] < 0xa0);
}

/* The name of a file may have any byte. */
static tri_status print_origin(const char *text, tri_string *out)
{
    while (*text) {
        size_t nbytes = tri_utf8_nbytes(text);
        if (nbytes > 0 && is_plain(text, nbytes)) {
            TRI_TRY(tri_string_append_bytes(out, text, nbytes));
        } else {
            nbytes = 1;
            TRI_TRY(tri_string_appendf(out, "\\x%02x", (unsigned char)*text));
        }
        text += nbytes;
    }
    return TRI_OK;
}

static tri_status print_section(const tri_config *config, const tri_config_section *section, tri_string *out)
{
    const tri_option_table *table = section->table;
    for (size_t i = 0; i < table->count; i++) {
        tri_string value = {0};
        tri_status status = tri_options_print(&table->rows[i], section_struct(config, section), &value);
        if (status == TRI_OK)
            status = tri_string_appendf(out, "  %s: ", table->rows[i].field);
        if (status == TRI_OK)
            status = print_scalar(&table->rows[i], tri_string_text(&value), out);
        if (status == TRI_OK)
            status = tri_string_append(out, "  # ");
        if (status == TRI_OK)
            status = print_origin(origin_of(config, table->section, table->rows[i].field), out);
        if (status == TRI_OK)
            status = tri_string_append(out, "\n");
        tri_string_fini(&value);
        TRI_TRY(status);
    }
    return TRI_OK;
}

tri_status tri_config_print(const tri_config *config, tri_string *out)
{
    if (config->model) {
        TRI_TRY(tri_string_append(out, "model:\n"));
        TRI_TRY(tri_config_model_print(config, out));
    }
    const char *last = "";
    for (const tri_config_section *at = tri_config_sections; at->table; at++) {
        if (strcmp(at->table->section, last) != 0)
            TRI_TRY(tri_string_appendf(out, "%s:\n", at->table->section));
        last = at->table->section;
        TRI_TRY(print_section(config, at, out));
    }
    return TRI_OK;
}

/* The hash of a configuration stays the same when an option gets another name. */
static tri_status hash_key_append(const char *section, const char *field, tri_string *text)
{
    char key[128];
    snprintf(key, sizeof(key), "%.60s.%.60s", section, field);
    const char *name = key;
    for (const tri_renamed *row = tri_renamed_keys; row->old; row++)
        name = strcmp(row->now, key) == 0 ? row->old : name;
    return tri_string_appendf(text, "%s=", name);
}

static tri_status hash_text_append(const tri_config *config, const tri_config_section *section, tri_string *text)
{
    for (size_t r = 0; r < section->table->count; r++) {
        const tri_option *row = &section->table->rows[r];
        if (!section->row_decides(row->field))
            continue;
        TRI_TRY(hash_key_append(section->table->section, row->field, text));
        TRI_TRY(tri_options_print(row, section_struct(config, section), text));
        TRI_TRY(tri_string_append(text, "\n"));
    }
    return TRI_OK;
}

static tri_status patterns_append(const char *key, const tri_patterns *patterns, tri_string *text)
{
    for (int i = 0; i < patterns->count; i++)
        TRI_TRY(tri_string_appendf(text, "model.%s=%s\n", key, patterns->items[i]));
    return TRI_OK;
}

static tri_status model_append(const tri_config *config, tri_string *text)
{
    if (config->model)
        TRI_TRY(tri_yaml_print(config->model, 0, text));
    TRI_TRY(patterns_append("freeze", &config->freeze, text));
    return patterns_append("reinit", &config->reinit, text);
}

tri_status tri_config_hash(const tri_config *config, uint64_t *hash)
{
    tri_string text = {0};
    tri_status status = model_append(config, &text);
    for (const tri_config_section *at = tri_config_sections; at->table && status == TRI_OK; at++)
        status = hash_text_append(config, at, &text);
    if (status == TRI_OK && tri_guard_copies(config)) /* it says what a rollback goes back to */
        status = tri_string_appendf(&text, "checkpoint.every_steps=%lld\n", (long long)config->checkpoint.every_steps);
    *hash = XXH3_64bits(tri_string_text(&text), text.nbytes);
    tri_string_fini(&text);
    return status;
}

static tri_status changed_append(const char *section, const char *field, const char *before, const char *now,
                                 tri_string *out)
{
    const char *comma = out->nbytes > 0 ? ", " : "";
    return tri_string_appendf(out, "%s%s.%s %s -> %s", comma, section, field, before[0] ? before : "(none)",
                              now[0] ? now : "(none)");
}

static tri_status row_compare(const tri_config_section *section, const tri_option *row, const tri_config *before,
                              const tri_config *now, tri_string *out)
{
    tri_string texts[2] = {{0}, {0}};
    tri_status status = tri_options_print(row, section_struct(before, section), &texts[0]);
    if (status == TRI_OK)
        status = tri_options_print(row, section_struct(now, section), &texts[1]);
    const char *old = tri_string_text(&texts[0]), *new = tri_string_text(&texts[1]);
    if (status == TRI_OK && strcmp(old, new) != 0)
        status = changed_append(section->table->section, row->field, old, new, out);
    tri_string_fini(&texts[0]);
    tri_string_fini(&texts[1]);
    return status;
}

static tri_status model_compare(const tri_config *before, const tri_config *now, tri_string *out)
{
    tri_string texts[2] = {{0}, {0}};
    tri_status status = model_append(before, &texts[0]);
    if (status == TRI_OK)
        status = model_append(now, &texts[1]);
    if (status == TRI_OK && strcmp(tri_string_text(&texts[0]), tri_string_text(&texts[1])) != 0)
        status = tri_string_append(out, "model");
    tri_string_fini(&texts[0]);
    tri_string_fini(&texts[1]);
    return status;
}

tri_status tri_config_changes(const tri_config *before, const tri_config *now, tri_string *out)
{
    TRI_TRY(model_compare(before, now, out));
    for (const tri_config_section *at = tri_config_sections; at->table; at++)
        for (size_t r = 0; r < at->table->count; r++)
            if (at->row_decides(at->table->rows[r].field))
                TRI_TRY(row_compare(at, &at->table->rows[r], before, now, out));
    if (tri_guard_copies(now) && before->checkpoint.every_steps != now->checkpoint.every_steps)
        return tri_string_appendf(out, "%scheckpoint.every_steps %lld -> %lld", out->nbytes > 0 ? ", " : "",
                                  (long long)before->checkpoint.every_steps, (long long)now->checkpoint.every_steps);
    return TRI_OK;
}
