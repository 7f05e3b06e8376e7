/* SPDX-License-Identifier: Apache-2.0
 *
 * config.c: file and command line to one tri_config.
 *
 * The command line is first written into the YAML tree, so that both sources pass through the same checks; what is left
 * is one walk: section -> table -> field. `model:` stays a tree, nn/ reads it.
 */
#include "train/core/config.h"

#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "nn/model.h"
#include "parallel/mesh.h"

#define TRI_OPTION_STRUCT tri_train_config
static const tri_option rows[] = {TRI_TRAIN_OPTIONS(TRI_OPTION_ROW)};
#undef TRI_OPTION_STRUCT
const tri_option_table tri_train_options =
    TRI_OPTION_TABLE("train", tri_train_config, rows, "batch, length, precision and checks of a run");

const char *tri_kernels_of_host(const tri_train_config *train)
{
    return tri_kernels_word(train->kernels == TRI_KERNELS_REFERENCE ? TRI_KERNELS_REFERENCE : TRI_KERNELS_CPU);
}

tri_dtype tri_precision_dtype(tri_precision precision)
{
    static const tri_dtype dtypes[] = {
        [TRI_PRECISION_F32] = TRI_F32, [TRI_PRECISION_BF16] = TRI_BF16, [TRI_PRECISION_F16] = TRI_F16};
    return dtypes[precision];
}

/* --- rows that change the bits of the weights; all of `model:` does --- */

static bool is_one_of(const char *field, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], field) == 0)
            return true;
    return false;
}

static bool train_row_decides(const char *field)
{
    static const char *const names[] = {"batch",        "shards",          "epochs",
                                        "seed",         "precision",       "kernels",
                                        "loss_scale",   "loss_scale_init", "loss_scale_window",
                                        "on_nonfinite", "on_spike",        "spike_factor",
                                        "spike_window", "guard_limit"};
    return is_one_of(field, names, TRI_COUNT_OF(names));
}

static bool data_row_decides(const char *field)
{
    static const char *const others[] = {"prefetch", "test_limit", "path",    "tokenizer",
                                         "as_text",  "cache_mib",  "threads", "index"};
    return !is_one_of(field, others, TRI_COUNT_OF(others));
}

static bool each_row_decides(const char *field)
{
    (void)field;
    return true;
}

static bool parallel_row_decides(const char *field)
{
    static const char *const names[] = {"tensor_parts", "sequence"};
    return is_one_of(field, names, TRI_COUNT_OF(names));
}

static bool ps_row_decides(const char *field)
{
    return strcmp(field, "values") == 0;
}

static bool no_row_decides(const char *field)
{
    (void)field;
    return false;
}

/* --- rows in which the workers of a run may differ: they concern one host or one process --- */

bool tri_config_is_local(const char *key)
{
    static const char *const keys[] = {"train.threads",    "train.isa",      "train.device",   "train.shards_at_once",
                                       "data.path",        "data.prefetch",  "data.cache_mib", "data.threads",
                                       "data.index",       "comm.interface", "comm.host",      "comm.report_s",
                                       "comm.flight",      "comm.faults",    "comm.chaos",     "comm.ports",
                                       "comm.mpi_library", "monitor.log",    "monitor.notes"};
    return strncmp(key, "storage.", strlen("storage.")) == 0 || is_one_of(key, keys, TRI_COUNT_OF(keys));
}

const tri_config_section tri_config_sections[] = {
#define SECTION_ROW(name, decides) {&tri_##name##_options, offsetof(tri_config, name), decides},
    TRI_CONFIG_SECTIONS(SECTION_ROW)
#undef SECTION_ROW
        {NULL, 0, NULL},
};

enum { ORIGIN_FILE, ORIGIN_COMMAND_LINE };
#define CONFIG_FILE_LIMIT_NBYTES (1u << 20)

static void *section_struct(tri_config *config, const tri_config_section *section)
{
    return (char *)config + section->offset;
}

const tri_option *tri_config_row(const char *key, const tri_config_section **section)
{
    const char *dot = strchr(key, '.');
    for (const tri_config_section *at = tri_config_sections; dot && at->table; at++)
        for (size_t i = 0; i < at->table->count; i++) {
            const char *field = at->table->rows[i].field;
            if (strncmp(key, at->table->section, (size_t)(dot - key)) != 0 || at->table->section[dot - key] ||
                strcspn(dot + 1, "!= ") != strlen(field) || strncmp(dot + 1, field, strlen(field)) != 0)
                continue;
            if (section)
                *section = at;
            return &at->table->rows[i];
        }
    return NULL;
}

/* The table that has `section.field`; *known tells whether the section exists at all. */
static const tri_config_section *section_find(const char *name, const char *field, bool *known)
{
    *known = false;
    for (const tri_config_section *at = tri_config_sections; at->table; at++) {
        if (strcmp(at->table->section, name) != 0)
            continue;
        *known = true;
        if (tri_options_find(at->table, field))
            return at;
    }
    return NULL;
}

enum { KEY_LIMIT = 256 };

typedef struct key_list {
    char keys[KEY_LIMIT][96];
    const char *items[KEY_LIMIT]; /* the fields in them */
    size_t count;
} key_list;

/* The keys of one section, or of all (NULL). */
static void keys_list(key_list *list, const char *section)
{
    static const char *const model[] = {"name", "layers", "from", "freeze", "reinit"};
    list->count = 0;
    for (size_t i = 0; i < TRI_COUNT_OF(model) && (!section || strcmp(section, "model") == 0); i++)
        snprintf(list->keys[list->count++], sizeof(list->keys[0]), "model.%s", model[i]);
    for (const tri_config_section *at = tri_config_sections; at->table; at++)
        for (size_t r = 0; r < at->table->count && list->count < KEY_LIMIT; r++)
            if (!section || strcmp(section, at->table->section) == 0)
                snprintf(list->keys[list->count++], sizeof(list->keys[0]), "%s.%s", at->table->section,
                         at->table->rows[r].field);
    for (size_t i = 0; i < list->count; i++)
        list->items[i] = strchr(list->keys[i], '.') + 1;
}

static const char *section_nearest(const char *word)
{
    const char *names[64] = {"model"};
    size_t count = 1;
    for (const tri_config_section *at = tri_config_sections; at->table && count < TRI_COUNT_OF(names); at++)
        names[count++] = at->table->section;
    return tri_options_nearest(word, names, count);
}

/* A key that is meant: its field is near one of its section's, or is one of another section; or a section that is
 * meant. The list's. */
static const char *key_nearest(key_list *list, const char *key)
{
    char section[64];
    const char *dot = strchr(key, '.'), *field = dot ? dot + 1 : key;
    snprintf(section, sizeof(section), "%.*s", dot ? (int)(dot - key) : 0, key);
    keys_list(list, section);
    const char *near = tri_options_nearest(field, list->items, list->count);
    for (size_t i = 0; near && i < list->count; i++)
        if (list->items[i] == near)
            return list->keys[i];
    keys_list(list, NULL);
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i], field) == 0)
            return list->keys[i];
    return dot ? NULL : section_nearest(key);
}

/* Fails with the key that is meant, where that is known. */
static tri_status unknown_key(const char *place, const char *key)
{
    key_list list;
    const char *last = strrchr(key, '.');
    const tri_foreign_key *foreign = tri_foreign_key_find(last ? last + 1 : key);
    if (foreign && foreign->sentence)
        return tri_fail(TRI_ECONFIG, "%s: there is no option '%s': %s", place, key, foreign->sentence);
    const char *nearest = foreign ? foreign->key : key_nearest(&list, key);
    if (nearest)
        return tri_fail(TRI_ECONFIG, "%s: there is no option '%s'; did you mean '%s'?", place, key, nearest);
    return tri_fail(TRI_ECONFIG, "%s: there is no option '%s' (trireme train --help lists them)", place, key);
}

/* A scalar, or a list where the option needs one. */
static tri_status field_set(tri_config *config, const tri_config_section *section, const tri_yaml *field,
                            const char *key)
{
    void *values = section_struct(config, section);
    if (field->kind == TRI_YAML_SCALAR)
        return tri_options_set(section->table, values, field->key, field->text);
    if (field->kind != TRI_YAML_LIST || tri_options_find(section->table, field->key)->type != TRI_OPTION_LIST)
        return tri_fail(TRI_ECONFIG, "%s: want one value", key);
    tri_string text = {0};
    tri_status status = tri_yaml_print_flow(field, &text);
    if (status == TRI_OK)
        status = tri_options_set(section->table, values, field->key, tri_string_text(&text));
    tri_string_fini(&text);
    return status;
}

/* Old names of an option and of its value become the new ones in a file that a run has written; elsewhere they fail. */
static tri_status renamed_take(const tri_config *config, tri_yaml *field, const char *place, char key[256])
{
    char pair[512];
    for (const tri_renamed *row = tri_renamed_keys; row->old; row++) {
        snprintf(pair, sizeof(pair), "%s=%.200s", key, field->kind == TRI_YAML_SCALAR ? field->text : "");
        const bool is_key = strcmp(row->old, key) == 0;
        if (!is_key && strcmp(row->old, pair) != 0)
            continue;
        if (!config->is_printed)
            return tri_fail(TRI_ECONFIG, "%s: '%s' has another name now: want '%s'", place, row->old, row->now);
        if (is_key)
            snprintf(key, 256, "%s", row->now);
        field->key = is_key ? strchr(row->now, '.') + 1 : field->key;
        field->text = is_key ? field->text : strchr(row->now, '=') + 1;
    }
    return TRI_OK;
}

/* One `section: {field: value, ...}`. */
static tri_status section_read(tri_config *config, const tri_yaml *section, const char *origin)
{
    bool known;
    char place[1100];
    snprintf(place, sizeof(place), section->line > 0 ? "%.1000s:%d" : "%.1000s", origin, section->line);
    (void)section_find(section->key, "", &known);
    if (!known)
        return unknown_key(place, section->key);
    if (section->kind == TRI_YAML_SCALAR && section->text[0] == 0)
        return TRI_OK; /* "optim:" with nothing below it */
    if (section->kind != TRI_YAML_MAP)
        return tri_fail(TRI_ECONFIG, "%s:%d: '%s' needs keys and values below it", origin, section->line, section->key);
    for (tri_yaml *field = section->child; field; field = field->next) {
        char key[256];
        snprintf(key, sizeof(key), "%.80s.%.120s", section->key, field->key);
        int64_t from_line = ORIGIN_FILE;
        (void)tri_map_find(&config->origins, key, &from_line);
        snprintf(place, sizeof(place), from_line == ORIGIN_FILE ? "%.1000s:%d" : "command line", origin, field->line);
        TRI_TRY(renamed_take(config, field, place, key));
        const tri_config_section *found = section_find(section->key, field->key, &known);
        if (!found)
            return unknown_key(place, key);
        TRI_TRY_IN(field_set(config, found, field, key), "%s", place);
        TRI_TRY(tri_map_set(&config->origins, key, from_line));
    }
    return TRI_OK;
}

/* Writes "a.b=text" into the tree and remembers where it came from. */
static tri_status override_apply(tri_config *config, const char *override)
{
    const char *equals = strchr(override, '=');
    const char *dot = strchr(override, '.');
    if (!equals || !dot || dot > equals || dot == override)
        return tri_fail(TRI_ECONFIG, "command line: '%s' is not of the form section.key=value", override);
    char *key = tri_arena_strdup(&config->arena, override);
    if (!key)
        return TRI_ENOMEM;
    key[equals - override] = 0;
    TRI_TRY(tri_map_set(&config->origins, key, ORIGIN_COMMAND_LINE));
    TRI_TRY_IN(tri_yaml_set(&config->arena, config->root, key, equals + 1), "command line");
    return TRI_OK;
}

static tri_status config_parse(tri_config *config, const char *path, const char *text)
{
    char *read = NULL;
    size_t nbytes = text ? strlen(text) : 0;
    if (!text && path) {
        TRI_TRY_IN(tri_fs_read_config(path, CONFIG_FILE_LIMIT_NBYTES, &read, &nbytes),
                   "while reading the configuration");
        text = read;
    }
    config->is_printed = text && strstr(text, "  # default\n");
    tri_status status =
        tri_yaml_parse(&config->arena, text ? text : "", nbytes, config->origin_names[ORIGIN_FILE], &config->root);
    tri_free(read);
    if (status == TRI_OK && config->root->kind != TRI_YAML_MAP)
        status =
            tri_fail(TRI_ECONFIG, "%s: want sections such as 'model:' and 'train:'", config->origin_names[ORIGIN_FILE]);
    return status;
}

/* "data: fashion-mnist" is short for "data: {name: fashion-mnist}", in every section that has a name; "parallel: auto"
 * for "parallel: {layout: auto}". */
static tri_status expand_names(tri_config *config)
{
    for (tri_yaml *node = config->root->child; node; node = node->next) {
        bool known, layout = strcmp(node->key, "parallel") == 0;
        bool named = layout || strcmp(node->key, "model") == 0 || section_find(node->key, "name", &known) != NULL;
        if (node->kind != TRI_YAML_SCALAR || !node->text[0] || !named)
            continue;
        tri_yaml *name = tri_arena_alloc(&config->arena, 1, sizeof(*name));
        if (!name)
            return TRI_ENOMEM;
        *name = (tri_yaml){
            .kind = TRI_YAML_SCALAR, .key = layout ? "layout" : "name", .text = node->text, .line = node->line};
        node->kind = TRI_YAML_MAP;
        node->text = NULL;
        node->child = name;
    }
    return TRI_OK;
}

/* "train.batch: auto" is no number yet; the default stands for it until tri_batch_fit() has found one. */
static void batch_auto_take(tri_config *config)
{
    tri_yaml *batch = tri_yaml_find(tri_yaml_find(config->root, "train"), "batch");
    config->batch_auto = batch && batch->kind == TRI_YAML_SCALAR && strcmp(batch->text, "auto") == 0;
    if (config->batch_auto)
        batch->text = tri_options_find(&tri_train_options, "batch")->fallback;
}

static bool is_given(const tri_config *config, const char *key)
{
    int64_t origin;
    return tri_map_find(&config->origins, key, &origin);
}

/* One of the three options that is given turns the defaults of the others off. Default saves take no memory for a copy.
 */
static void saves_settle(tri_config *config)
{
    tri_checkpoint_config *saves = &config->checkpoint;
    bool steps = is_given(config, "checkpoint.every_steps"), epochs = is_given(config, "checkpoint.every_epochs"),
         seconds = is_given(config, "checkpoint.every_s");
    if (!epochs && (steps || seconds))
        saves->every_epochs = 0;
    if (!seconds && (steps || epochs))
        saves->every_s = 0;
    if (!steps && !epochs && !seconds && !is_given(config, "checkpoint.async"))
        saves->async = false;
}

/* Where neither says it, batch norms have mean and variance of the whole batch, as in one process of PyTorch. Local SGD
 * has no whole batch. */
static tri_status norms_settle(tri_config *config)
{
    const tri_sync_kind sync = config->parallel.sync;
    if (!config->model || is_given(config, "train.shards") || tri_yaml_find(config->model, "sync_batch_norm") ||
        sync == TRI_SYNC_LOCAL || sync == TRI_SYNC_DILOCO || !tri_model_has_batch_norms(config->model))
        return TRI_OK;
    return tri_yaml_set(&config->arena, config->model, "sync_batch_norm", "true");
}

/* NCCL takes longer to begin, and links between cards are faster. */
static void bucket_settle(tri_config *config)
{
    if (config->parallel.bucket_kib == TRI_OPTION_AUTO && tri_device_is_card(config->train.device))
        config->parallel.bucket_kib = 16384;
}

tri_status tri_config_load(const char *path, const char *text, const char *const *overrides, tri_config *config)
{
    *config = (tri_config){0};
    for (const tri_config_section *at = tri_config_sections; at->table; at++)
        tri_options_defaults(at->table, section_struct(config, at));
    const char *origin = tri_arena_strdup(&config->arena, path ? path : "configuration");
    if (!origin)
        return TRI_ENOMEM;
    config->origin_names[ORIGIN_FILE] = origin;
    config->origin_names[ORIGIN_COMMAND_LINE] = "command line";
    TRI_TRY(config_parse(config, path, text));
    TRI_TRY(expand_names(config));
    for (int i = 0; overrides && overrides[i]; i++)
        TRI_TRY(override_apply(config, overrides[i]));
    batch_auto_take(config);
    for (const tri_yaml *node = config->root->child; node; node = node->next)
        if (strcmp(node->key, "model") != 0)
            TRI_TRY(section_read(config, node, origin));
    saves_settle(config);
    bucket_settle(config);
    tri_storage_configure(&config->storage);
    config->model = tri_yaml_find(config->root, "model");
    if (config->model && config->model->kind != TRI_YAML_MAP)
        return tri_fail(TRI_ECONFIG, "%s:%d: 'model' needs keys below it, such as 'name: cnn'", origin,
                        config->model->line);
    TRI_TRY(norms_settle(config));
    return tri_config_model_split(config);
}

void tri_config_fini(tri_config *config)
{
    tri_map_fini(&config->origins);
    tri_arena_fini(&config->arena);
    *config = (tri_config){0};
}

/* ranks 0: not known yet. */
static tri_status check_tensor(const tri_parallel_config *parallel, int ranks)
{
    int64_t parts = parallel->tensor_parts;
    if ((ranks & (ranks - 1)) != 0)
        return tri_fail(TRI_ECONFIG, "parallel.tensor: want a power of two, got %d", ranks);
    if ((parts & (parts - 1)) != 0 || (parts > 0 && parts < ranks))
        return tri_fail(TRI_ECONFIG,
                        "parallel.tensor_parts: want a power of two that parallel.tensor (%d) divides, got %lld",
                        ranks > 0 ? ranks : 1, (long long)parts);
    return TRI_OK;
}

/* Each worker of parameter servers trains the whole model by itself. */
static tri_status check_served(const tri_parallel_config *parallel)
{
    if (parallel->sync == TRI_SYNC_PS && (parallel->tensor != 1 || parallel->pipeline != 1))
        return tri_fail(TRI_ECONFIG, "parallel.sync ps: each worker has the whole model: want parallel.tensor 1 and "
                                     "parallel.pipeline 1");
    return TRI_OK;
}

tri_status tri_config_check(const tri_config *config, int ranks)
{
    const tri_train_config *train = &config->train;
    tri_checkpoint_levels levels;
    if (config->batch_auto)
        return tri_fail(TRI_ECONFIG, "train.batch auto: want 'trireme train', which finds it for the workers that it "
                                     "starts on this machine (-n N), or a number");
    TRI_TRY(tri_checkpoint_levels_read(&config->checkpoint, &levels));
    if ((train->shards & (train->shards - 1)) != 0)
        return tri_fail(TRI_ECONFIG, "train.shards: want a power of two, got %lld", (long long)train->shards);
    if ((train->shards_at_once & (train->shards_at_once - 1)) != 0)
        return tri_fail(TRI_ECONFIG, "train.shards_at_once: want a power of two or 0, got %lld",
                        (long long)train->shards_at_once);
    TRI_TRY(check_served(&config->parallel));
    tri_mesh mesh = {0};
    if (ranks > 0 && config->parallel.layout != TRI_LAYOUT_AUTO)
        TRI_TRY(tri_mesh_shape(&config->parallel, ranks, &mesh));
    TRI_TRY(check_tensor(&config->parallel, mesh.tensor));
    if (mesh.data > train->shards)
        return tri_fail(TRI_ECONFIG,
                        "%d workers but train.shards is %lld: want at least one shard per worker (train.shards=%d)",
                        mesh.data, (long long)train->shards, 1 << (32 - __builtin_clz((unsigned)mesh.data - 1)));
    if (train->batch < train->shards)
        return tri_fail(TRI_ECONFIG, "train.batch is %lld but train.shards is %lld: want at least one sample per shard",
                        (long long)train->batch, (long long)train->shards);
    TRI_TRY(tri_sync_check(&config->parallel));
    if (tri_sync_is_local(&config->parallel) &&
        (mesh.tensor > 1 || mesh.pipeline > 1 || config->parallel.tensor_parts > 1))
        return tri_fail(TRI_ECONFIG,
                        "parallel.sync %s needs whole models: parallel.tensor, tensor_parts and pipeline 1",
                        tri_sync_kind_word(config->parallel.sync));
    TRI_TRY(tri_loss_scale_check(config));
    TRI_TRY(tri_guard_check(config));
    TRI_TRY(tri_verify_check(config));
    TRI_TRY(tri_schedule_check(&config->optim));
    TRI_TRY(tri_monitor_check(&config->monitor));
    if (!config->data.name[0] && !config->data.path[0])
        return tri_fail(TRI_ECONFIG, "data: want data.name (such as fashion-mnist) or data.path");
    return TRI_OK;
}
