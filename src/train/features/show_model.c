/* SPDX-License-Identifier: Apache-2.0
 *
 * show_model.c: what a run is, for TensorBoard: its graph, its hyper-parameters, its configuration and notes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/runtime.h"
#include "train/features/show.h"

#define NAME_NBYTES 160u
#define HPARAMS     128

/* --- graph: of the whole model, whatever the layout --- */

/* "h.0/attn.c_attn": that of its parameter without the last word; else its op and number. Points between digits of a
 * layer become slashes, which TensorBoard folds. */
static void node_name(const tri_model *model, int number, char name[NAME_NBYTES])
{
    const tri_node *node = tri_vector_at(&model->nodes, (size_t)number);
    snprintf(name, NAME_NBYTES, "%s_%d", tri_op_name(node->op), number);
    if (node->param_count == 0 || node->tie >= 0)
        return;
    const tri_param_spec *param = tri_vector_at(&model->params, (size_t)node->param[0]);
    const char *end = strrchr(param->name, '.');
    if (end && end > param->name)
        snprintf(name, NAME_NBYTES, "%.*s", (int)(end - param->name), param->name);
    for (char *at = name; *at; at++)
        *at = *at == '.' ? '/' : *at;
}

static void value_name(const tri_model *model, tri_value value, char name[NAME_NBYTES])
{
    const tri_value_spec *spec = tri_vector_at(&model->values, (size_t)value);
    if (spec->producer >= 0)
        node_name(model, spec->producer, name);
    else
        snprintf(name, NAME_NBYTES, "%s", value == model->target ? "target" : "input");
}

static void node_put(tri_proto *graph, const tri_model *model, const char *name, const char *op, const tri_node *node,
                     tri_value output)
{
    char names[TRI_OP_MAX_INPUTS][NAME_NBYTES];
    const char *inputs[TRI_OP_MAX_INPUTS];
    const tri_value_spec *spec = tri_vector_at(&model->values, (size_t)output);
    int64_t dims[TRI_MAX_DIMS + 1] = {-1};
    for (int i = 0; i < spec->sample.ndim; i++)
        dims[1 + i] = spec->sample.dim[i];
    for (int i = 0; node && i < node->input_count; i++) {
        value_name(model, node->input[i], names[i]);
        inputs[i] = names[i];
    }
    tri_summary_graph_node(graph, &(tri_summary_node){.name = name,
                                                      .op = op,
                                                      .inputs = inputs,
                                                      .input_count = node ? node->input_count : 0,
                                                      .dims = dims,
                                                      .dim_count = 1 + spec->sample.ndim});
}

static void graph_put(tri_proto *body, const tri_model *model)
{
    char name[NAME_NBYTES];
    tri_proto graph = {0};
    if (model->input >= 0)
        node_put(&graph, model, "input", "Placeholder", NULL, model->input);
    if (model->target >= 0)
        node_put(&graph, model, "target", "Placeholder", NULL, model->target);
    for (size_t n = 0; n < model->nodes.count; n++) {
        const tri_node *node = tri_vector_at(&model->nodes, n);
        node_name(model, (int)n, name);
        node_put(&graph, model, name, tri_op_name(node->op), node, node->output);
    }
    tri_summary_graph(body, &graph);
    tri_string_fini(&graph.out);
}

/* --- hyper-parameters: what was given, and what everybody asks for --- */

typedef struct hparam_list {
    tri_hparam items[HPARAMS];
    tri_arena arena; /* of names and texts */
    int count;
} hparam_list;

static tri_status hparam_add(hparam_list *list, const char *section, const char *field, const char *text, bool number)
{
    char key[256];
    if (list->count == HPARAMS)
        return TRI_OK;
    snprintf(key, sizeof(key), "%s.%s", section, field);
    tri_hparam *item = &list->items[list->count++];
    item->name = tri_arena_strdup(&list->arena, key);
    item->text = number ? NULL : tri_arena_strdup(&list->arena, text);
    item->number = number ? strtod(text, NULL) : 0;
    return item->name && (number || item->text) ? TRI_OK : TRI_ENOMEM;
}

static bool is_asked_for(const char *key)
{
    static const char *const keys[] = {"train.batch", "train.seed", "train.epochs", "optim.name", "optim.lr"};
    for (size_t i = 0; i < TRI_COUNT_OF(keys); i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

static tri_status section_list(hparam_list *list, const tri_config *config, const tri_config_section *section)
{
    const tri_option_table *table = section->table;
    for (size_t r = 0; r < table->count; r++) {
        const tri_option *row = &table->rows[r];
        char key[256];
        int64_t origin;
        tri_string text = {0};
        snprintf(key, sizeof(key), "%s.%s", table->section, row->field);
        if (!is_asked_for(key) && !tri_map_find(&config->origins, key, &origin))
            continue;
        tri_status status = tri_options_print(row, (const char *)config + section->offset, &text);
        if (status == TRI_OK)
            status = hparam_add(list, table->section, row->field, tri_string_text(&text),
                                row->type == TRI_OPTION_INT || row->type == TRI_OPTION_REAL);
        tri_string_fini(&text);
        TRI_TRY(status);
    }
    return TRI_OK;
}

static tri_status hparams_list(hparam_list *list, const tri_config *config)
{
    const tri_yaml *model = config->model ? config->model->child : NULL;
    for (; model; model = model->next) {
        char *end;
        if (model->kind != TRI_YAML_SCALAR)
            continue;
        (void)strtod(model->text, &end);
        TRI_TRY(hparam_add(list, "model", model->key, model->text, end > model->text && *end == 0));
    }
    for (const tri_config_section *at = tri_config_sections; at->table; at++)
        if (at->table != &tri_monitor_options && at->table != &tri_checkpoint_options)
            TRI_TRY(section_list(list, config, at));
    return TRI_OK;
}

static tri_status hparams_write(tri_job *job)
{
    tri_job_show *show = tri_show_of(job);
    hparam_list *list = tri_alloc_zero(1, sizeof(*list));
    if (!list)
        return TRI_ENOMEM;
    tri_status status = hparams_list(list, &job->config);
    if (status == TRI_OK) {
        tri_summary_session_start(&show->body, list->items, list->count, tri_tensorboard_metrics,
                                  tri_tensorboard_metric_count, (double)tri_wall_ns() / 1e9);
        tri_tensorboard_write(show->file, TRI_EVENT_HEAD, 0, &show->body);
    }
    tri_arena_fini(&list->arena);
    tri_free(list);
    return status;
}

/* --- */

tri_status tri_show_head_write(tri_job *job)
{
    tri_job_show *show = tri_show_of(job);
    tri_model *model = NULL;
    TRI_TRY(hparams_write(job));
    if (!job->config.model) /* the program's own model is gone by now */
        return TRI_OK;
    TRI_TRY(tri_model_build(job->config.model, job->data.info.sample, job->data.info.classes, &model));
    graph_put(&show->body, model);
    tri_model_destroy(model);
    tri_tensorboard_write(show->file, TRI_EVENT_HEAD, 0, &show->body);
    return TRI_OK;
}

static tri_status config_put(tri_job *job)
{
    tri_string plain = {0}, text = {0};
    tri_status status = tri_config_print(&job->config, &plain);
    if (status == TRI_OK)
        status = tri_string_appendf(&text, "```yaml\n%s```\n", tri_string_text(&plain));
    if (status == TRI_OK)
        tri_summary_text(&tri_show_of(job)->body, "run/config", tri_string_text(&text));
    tri_string_fini(&plain);
    tri_string_fini(&text);
    return status;
}

tri_status tri_show_texts_write(tri_job *job)
{
    tri_job_show *show = tri_show_of(job);
    char layout[64];
    tri_string about = {0};
    TRI_TRY(config_put(job));
    tri_status status = tri_string_appendf(&about, "%d worker%s (%s), %d thread%s each; bits: %s", job->world,
                                           job->world == 1 ? "" : "s", tri_mesh_print(&job->mesh, layout), job->threads,
                                           job->threads == 1 ? "" : "s", job->identity.bits);
    if (status == TRI_OK)
        tri_summary_text(&show->body, "run/layout", tri_string_text(&about));
    if (job->config.monitor.notes[0])
        tri_summary_text(&show->body, "run/notes", job->config.monitor.notes);
    tri_string_fini(&about);
    tri_tensorboard_write(show->file, TRI_EVENT_MODEL, job->step, &show->body);
    return status;
}
