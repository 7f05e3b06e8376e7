/* SPDX-License-Identifier: Apache-2.0
 *
 * spec.c: the description of a run that all of its workers must have in common, as lines "key=value": the model, every
 * option but those of one host, and facts about data and processor. A worker that joins compares it
 * (cluster/members.h).
 *
 * To add a fact: a row in `facts`.
 */
#include <stdio.h>
#include <string.h>

#include "kernel/kernel.h"
#include "train/core/dataset_info.h"
#include "train/core/job.h"
#include "train/elastic/spec.h"

/* --- facts --- */

static tri_status version_print(const tri_job *job, tri_string *out)
{
    (void)job;
    return tri_string_append(out, TRI_VERSION);
}

/* It decides the bits of results, as the instruction set does, on which members agree (isa.c). */
static tri_status library_print(const tri_job *job, tri_string *out)
{
    (void)job;
    return tri_string_append(out, tri_kernel_library());
}

static tri_status samples_print(const tri_job *job, tri_string *out)
{
    return tri_string_appendf(out, "%lld", (long long)job->elastic.data->info.count);
}

static tri_status typed_shape_print(tri_shape shape, tri_dtype dtype, tri_string *out)
{
    char text[96];

    return tri_string_appendf(out, "%s%s", tri_dtype_name(dtype), tri_shape_print(shape, text));
}

static tri_status sample_print(const tri_job *job, tri_string *out)
{
    return typed_shape_print(job->elastic.data->info.sample, job->elastic.data->info.dtype, out);
}

static tri_status target_print(const tri_job *job, tri_string *out)
{
    return typed_shape_print(job->elastic.data->info.target, job->elastic.data->info.target_dtype, out);
}

static tri_status classes_print(const tri_job *job, tri_string *out)
{
    TRI_TRY(tri_string_appendf(out, "%lld", (long long)job->elastic.data->info.classes));
    return job->data.names.count == 0 && !job->data.table
               ? TRI_OK
               : tri_string_appendf(out, " with names %016llx", (unsigned long long)tri_job_classes_hash(job));
}

static tri_status content_print(const tri_job *job, tri_string *out)
{
    return tri_string_appendf(out, "%016llx", (unsigned long long)job->data.fingerprint.digest);
}

static tri_status steps_print(const tri_job *job, tri_string *out)
{
    return tri_string_appendf(out, "%lld", (long long)job->progress.steps);
}

/* Of a card, with the library that multiplies there. */
static tri_status card_print(const tri_job *job, tri_string *out)
{
    const tri_device *device = job->device;
    return tri_string_append(out, device->ops->arithmetic ? device->ops->arithmetic(device) : "none");
}

static const struct {
    const char *key;
    tri_status (*print)(const tri_job *job, tri_string *out);
} facts[] = {
    {"version of trireme", version_print},
    {"oneDNN", library_print},
    {"card", card_print},
    {"samples of the training data", samples_print},
    {"shape of a sample", sample_print},
    {"shape of a target", target_print},
    {"classes", classes_print},
    {"digest of the training data", content_print},
    {"steps of the run", steps_print},
};

/* --- options and model --- */

/* A value has no line of its own. */
static tri_status line_add(const char *key, const tri_string *value, tri_string *out)
{
    TRI_TRY(tri_string_appendf(out, "%s=", key));
    for (const char *at = tri_string_text(value); *at; at++)
        TRI_TRY(tri_string_append_bytes(out, *at == '\n' ? " " : at, 1));
    return tri_string_append(out, "\n");
}

static tri_status options_add(const tri_config *config, const tri_config_section *section, tri_string *out)
{
    char key[256];
    tri_status status = TRI_OK;
    for (size_t r = 0; r < section->table->count && status == TRI_OK; r++) {
        const tri_option *row = &section->table->rows[r];
        tri_string value = {0};
        snprintf(key, sizeof(key), "%s.%s", section->table->section, row->field);
        if (tri_config_is_local(key))
            continue;
        status = tri_options_print(row, (const char *)config + section->offset, &value);
        if (status == TRI_OK)
            status = line_add(key, &value, out);
        tri_string_fini(&value);
    }
    return status;
}

/* A line for each value of the tree: "model.layers.1.conv2d.out=8". */
static tri_status tree_add(const tri_yaml *node, const char *path, tri_string *out)
{
    char key[512];
    int index = 0;
    if (node->kind == TRI_YAML_SCALAR)
        return line_add(path, &(tri_string){.text = (char *)(uintptr_t)node->text, .nbytes = strlen(node->text)}, out);
    for (const tri_yaml *at = node->child; at; at = at->next, index++) {
        if (at->key)
            snprintf(key, sizeof(key), "%.400s.%.100s", path, at->key);
        else
            snprintf(key, sizeof(key), "%.400s.%d", path, index);
        TRI_TRY(tree_add(at, key, out));
    }
    return TRI_OK;
}

static tri_status patterns_add(const char *key, const tri_patterns *patterns, tri_string *out)
{
    for (int i = 0; i < patterns->count; i++)
        TRI_TRY(tri_string_appendf(out, "model.%s.%d=%s\n", key, i, patterns->items[i]));
    return TRI_OK;
}

tri_status tri_job_spec(const tri_job *job, tri_string *out)
{
    const tri_config *config = &job->config;
    if (config->model)
        TRI_TRY(tree_add(config->model, "model", out));
    TRI_TRY(patterns_add("freeze", &config->freeze, out));
    TRI_TRY(patterns_add("reinit", &config->reinit, out));
    for (const tri_config_section *at = tri_config_sections; at->table; at++)
        TRI_TRY(options_add(config, at, out));
    tri_status status = TRI_OK;
    for (size_t i = 0; i < TRI_COUNT_OF(facts) && status == TRI_OK; i++) {
        tri_string value = {0};
        status = facts[i].print(job, &value);
        if (status == TRI_OK)
            status = line_add(facts[i].key, &value, out);
        tri_string_fini(&value);
    }
    return status;
}
