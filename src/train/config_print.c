/* SPDX-License-Identifier: Apache-2.0
 *
 * config_print.c: the resolved configuration as text, and the hash of what decides the bits.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdio.h>
#include <string.h>

#include "train/config.h"

/* Rows that change the bits of the weights; all of model, data and optim do. */
static const char *const train_bits[] = {"batch", "shards", "epochs", "seed", "dtype", "kernels"};

static const void *table_struct(const tri_config *config, const tri_option_table *table)
{
    const struct {
        const tri_option_table *table;
        const void *values;
    } places[] = {
        {&tri_train_options, &config->train},
        {&tri_data_options, &config->data},
        {&tri_optim_options, &config->optim},
        {&tri_parallel_options, &config->parallel},
        {&tri_comm_options, &config->comm},
        {&tri_net_options, &config->net},
        {&tri_checkpoint_options, &config->checkpoint},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(places); i++)
        if (places[i].table == table)
            return places[i].values;
    return NULL;
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
    bool quoted = row->type == TRI_OPTION_NAME || row->type == TRI_OPTION_PATH;
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

static tri_status print_table(const tri_config *config, const tri_option_table *table, tri_string *out)
{
    for (size_t i = 0; i < table->count; i++) {
        tri_string value = {0};
        tri_status status = tri_options_print(&table->rows[i], table_struct(config, table), &value);
        if (status == TRI_OK)
            status = tri_string_appendf(out, "  %s: ", table->rows[i].field);
        if (status == TRI_OK)
            status = print_scalar(&table->rows[i], tri_string_text(&value), out);
        if (status == TRI_OK)
            status = tri_string_appendf(out, "  # %s\n", origin_of(config, table->section, table->rows[i].field));
        tri_string_fini(&value);
        TRI_TRY(status);
    }
    return TRI_OK;
}

tri_status tri_config_print(const tri_config *config, tri_string *out)
{
    if (config->model) {
        TRI_TRY(tri_string_append(out, "model:\n"));
        TRI_TRY(tri_yaml_print(config->model, 2, out));
    }
    const tri_option_table *const *tables = tri_config_tables();
    for (int i = 0; tables[i]; i++) {
        if (i == 0 || strcmp(tables[i]->section, tables[i - 1]->section) != 0)
            TRI_TRY(tri_string_appendf(out, "%s:\n", tables[i]->section));
        TRI_TRY(print_table(config, tables[i], out));
    }
    return TRI_OK;
}

static bool decides_bits(const tri_option_table *table, const char *field)
{
    if (table == &tri_optim_options)
        return true;
    if (table == &tri_data_options)
        return strcmp(field, "prefetch") != 0 && strcmp(field, "test_limit") != 0 && strcmp(field, "path") != 0;
    if (table != &tri_train_options)
        return false;
    for (size_t i = 0; i < TRI_COUNT_OF(train_bits); i++)
        if (strcmp(train_bits[i], field) == 0)
            return true;
    return false;
}

tri_status tri_config_hash(const tri_config *config, uint64_t *hash)
{
    tri_string text = {0};
    tri_status status = config->model ? tri_yaml_print(config->model, 0, &text) : TRI_OK;
    const tri_option_table *const *tables = tri_config_tables();
    for (int i = 0; tables[i] && status == TRI_OK; i++)
        for (size_t r = 0; r < tables[i]->count && status == TRI_OK; r++) {
            const tri_option *row = &tables[i]->rows[r];
            if (!decides_bits(tables[i], row->field))
                continue;
            status = tri_string_appendf(&text, "%s.%s=", tables[i]->section, row->field);
            if (status == TRI_OK)
                status = tri_options_print(row, table_struct(config, tables[i]), &text);
            if (status == TRI_OK)
                status = tri_string_append(&text, "\n");
        }
    *hash = XXH3_64bits(tri_string_text(&text), text.nbytes);
    tri_string_fini(&text);
    return status;
}
