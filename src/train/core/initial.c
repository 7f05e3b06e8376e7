/* SPDX-License-Identifier: Apache-2.0
 *
 * initial.c: what a run begins with when that is not what its seed gives: the architecture and the weights of another
 * model, and parts that stand still.
 *
 * Rank 0 touches the files; the others get text and weights by broadcast into the store itself, so that no shared file
 * system is needed and no rank holds a second copy.
 */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "parallel/compress.h"
#include "train/checkpointing/arrays.h"
#include "train/core/initial.h"
#include "train/core/job.h"

#define ARCHITECTURE_LIMIT ((int64_t)1 << 20) /* bytes */
#define PROGRESS_NS        (5 * TRI_NS_PER_S)

/* --- architecture --- */

static tri_status source_open(tri_job *job, tri_string *text)
{
    TRI_TRY_IN(tri_pretrained_open(job->config.from, &job->model.source), "model.from");
    const tri_hf_config *found = tri_pretrained_config(job->model.source);
    return found ? tri_hf_config_model(found, text) : TRI_OK;
}

tri_status tri_job_text_spread(tri_job *job, tri_string *text, size_t limit, const char *what)
{
    int64_t nbytes = (int64_t)text->nbytes;
    TRI_TRY(tri_broadcast(job->group, &nbytes, 1, TRI_I64, 0, NULL));
    if (nbytes < 0 || nbytes > (int64_t)limit)
        return tri_fail(TRI_EFORMAT, "%s: want at most %zu bytes, got %lld", what, limit, (long long)nbytes);
    while ((int64_t)text->nbytes < nbytes)
        TRI_TRY(tri_string_append(text, " "));
    return nbytes > 0 ? tri_broadcast(job->group, text->text, nbytes, TRI_U8, 0, NULL) : TRI_OK;
}

tri_status tri_job_model_find(tri_job *job, const tri_job_setup *setup)
{
    tri_string text = {0};
    if (!job->config.from || (setup->resume && !setup->or_begin && !tri_config_model_is_open(&job->config)))
        return TRI_OK;
    tri_status status = job->rank == 0 ? source_open(job, &text) : TRI_OK;
    if (status == TRI_OK && job->world > 1)
        status = tri_job_text_spread(job, &text, ARCHITECTURE_LIMIT, "model.from: the architecture");
    if (status == TRI_OK && text.nbytes > 0 && !setup->model)
        status = tri_config_model_take(&job->config, text.text, job->config.from);
    tri_string_fini(&text);
    return status;
}

tri_status tri_job_tokenizer_find(tri_job *job, const tri_job_setup *setup)
{
    tri_string path = {0};
    tri_config *config = &job->config;
    if (!config->from || strcmp(config->data.tokenizer, "auto") != 0)
        return TRI_OK;
    tri_status status = job->rank == 0 ? tri_config_tokenizer_find(config, setup->resume) : TRI_OK;
    if (status == TRI_OK && job->rank == 0 && config->data.own_tokenizer)
        status = tri_string_append(&path, config->data.own_tokenizer);
    if (status == TRI_OK && job->world > 1)
        status = tri_job_text_spread(job, &path, ARCHITECTURE_LIMIT, "data.tokenizer: the path");
    if (status == TRI_OK && path.nbytes > 0)
        config->data.own_tokenizer = tri_arena_strdup(&config->arena, path.text);
    tri_string_fini(&path);
    return status;
}

/* --- frozen parts --- */

static tri_status patterns_check(const tri_patterns *patterns, const char *key, const tri_tensors *tensors)
{
    for (int i = 0; i < patterns->count; i++) {
        tri_patterns one = {patterns->items + i, 1};
        bool found = false;
        for (int t = 0; t < tensors->count && !found; t++)
            found = tri_patterns_match(&one, tensors->items[t].name);
        if (!found)
            return tri_fail(TRI_ECONFIG, "model.%s: '%s' is the name of no parameter (they are such as '%s' and '%s')",
                            key, patterns->items[i], tensors->items[0].name, tensors->items[tensors->count - 1].name);
    }
    return TRI_OK;
}

tri_status tri_job_freeze(tri_job *job, const tri_model *model)
{
    const tri_param_spec *specs = model->params.items;
    bool moves = false;
    TRI_TRY(patterns_check(&job->config.freeze, "freeze", &job->model.tensors));
    for (size_t p = 0; p < model->params.count; p++) {
        bool frozen = tri_patterns_match(&job->config.freeze, specs[p].name);
        moves = moves || (!frozen && !specs[p].buffer);
        job->model.frozen[p] = frozen;
    }
    return moves ? TRI_OK : tri_fail(TRI_ECONFIG, "model.freeze: every parameter is frozen: there is nothing to train");
}

/* --- weights --- */

typedef struct load_progress {
    const char *from;
    int64_t said_ns; /* when */
} load_progress;

static void load_say(void *arg, int64_t count, int64_t all)
{
    load_progress *progress = arg;
    int64_t now_ns = tri_now_ns();
    if (now_ns - progress->said_ns < PROGRESS_NS)
        return;
    progress->said_ns = now_ns;
    tri_log(TRI_LOG_INFO, "reading weights of %s: %lld %%", progress->from, (long long)(100 * count / all));
}

static bool is_initialized(void *arg, const char *name)
{
    return tri_patterns_match(arg, name);
}

/* Weights of PyTorch behind a flattened image are for C H W, those of Trireme for H W C: names and shapes agree in
 * both, so that only the configuration can say which they are. */
static tri_status order_check(const tri_job *job)
{
    char image[96];
    if (!tri_pretrained_is_foreign(job->model.source) || job->model.unordered.ndim == 0)
        return TRI_OK;
    return tri_fail(
        TRI_ECONFIG,
        "%s: nothing says that Trireme wrote these weights, and the order of flatten for an image %s is "
        "not given: want 'flatten: chw' (PyTorch's) or 'flatten: hwc' in the layers, or as a field of model",
        job->config.from, tri_shape_print(job->model.unordered, image));
}

/* Rank 0. */
static tri_status weights_read(tri_job *job, tri_job_arrays *arrays)
{
    load_progress progress = {job->config.from, tri_now_ns()};
    tri_pretrained_load load = {
        .keeps = is_initialized, .keeps_arg = &job->config.reinit, .progress = load_say, .progress_arg = &progress};
    tri_checkpoint_slice *slices = tri_alloc_zero((size_t)job->model.tensors.count, sizeof(*slices));
    if (!slices)
        return TRI_ENOMEM;
    tri_status status = tri_job_arrays_slices(arrays, 0, slices);
    if (status == TRI_OK && !job->model.source) /* closed with the first generation of a run that starts again */
        status = tri_pretrained_open(job->config.from, &job->model.source);
    if (status == TRI_OK)
        status = order_check(job);
    if (status == TRI_OK)
        status = tri_pretrained_read(job->model.source, slices, job->model.tensors.count, &load);
    tri_free(slices);
    return status;
}

/* The others: what they hold of tensors that are read. */
static tri_status weights_take(tri_job *job, tri_job_arrays *arrays)
{
    for (int i = 0; i < job->model.tensors.count; i++)
        if (!tri_patterns_match(&job->config.reinit, job->model.tensors.items[i].name))
            TRI_TRY(tri_shard_map_take(job->placement.weights_at, arrays->views[0].host, i));
    return TRI_OK;
}

tri_status tri_job_weights_find(tri_job *job)
{
    tri_job_arrays arrays;
    if (!job->config.from)
        return TRI_OK;
    TRI_TRY(patterns_check(&job->config.reinit, "reinit", &job->model.tensors));
    tri_status status = tri_job_arrays_open(job, false, &arrays);
    if (status == TRI_OK)
        status = job->rank == 0 ? weights_read(job, &arrays) : weights_take(job, &arrays);
    if (status != TRI_OK)
        status = tri_fail_context(status, "model.from");
    else
        status = tri_job_arrays_spread(&arrays);
    if (status == TRI_OK)
        tri_job_arrays_written(&arrays);
    tri_job_arrays_close(&arrays);
    return status;
}

/* --- what people read --- */

static void compression_print(const tri_job *job, tri_console *console)
{
    const tri_parallel_config *parallel = &job->config.parallel;
    const tri_compress_ops *compress = tri_compress_find(parallel);
    if (!compress || tri_sync_is_local(parallel)) /* it compresses always, and keeps nothing */
        return;
    if (!tri_compress_is_used(parallel, job->mesh.data, tri_group_is_between_hosts(job->mesh.data_group)))
        tri_console_line(console,
                         "parallel.compress %s: nothing is compressed, all ranks are on one host "
                         "(parallel.compress_between: ranks compresses there too)",
                         tri_compress_kind_word(parallel->compress));
    else if (job->step > 0 && compress->keeps)
        tri_console_line(console, "parallel.compress %s: what earlier steps left to be sent is not in the checkpoint",
                         tri_compress_kind_word(parallel->compress));
}

void tri_job_initial_print(const tri_job *job, tri_console *console)
{
    const tri_params *params = job->params;
    int frozen = 0, fresh = 0;
    char mesh[64];
    if (job->mesh.model_group || job->mesh.replica_group)
        tri_console_line(console, "mesh: %s", tri_mesh_print(&job->mesh, mesh));
    int64_t frozen_count = 0, count = 0;
    for (int e = 0; e < params->entry_count; e++) {
        const tri_param *entry = &params->entries[e];
        count += entry->count;
        frozen += entry->frozen;
        frozen_count += entry->frozen ? entry->count : 0;
        fresh += tri_patterns_match(&job->config.reinit, entry->name);
    }
    if (strcmp(job->identity.bits, "reproducible") != 0)
        tri_console_line(console, "bits: %s", job->identity.bits);
    compression_print(job, console);
    if (job->config.from && job->step == 0)
        tri_console_line(console, "weights from %s: %d parameters", job->config.from, params->entry_count - fresh);
    if (fresh > 0 && job->step == 0)
        tri_console_line(console, "initialized: %d of %d parameters", fresh, params->entry_count);
    if (frozen > 0)
        tri_console_line(console, "frozen: %d of %d parameters, %lld of %lld elements", frozen, params->entry_count,
                         (long long)frozen_count, (long long)count);
}

/* --- config.json of the run --- */

static int64_t rows_of(const tri_job *job, const char *name)
{
    const tri_param *entry = name ? tri_params_find(job->params, name) : NULL;
    return entry ? entry->shape.dim[0] : 0;
}

static tri_status config_open(tri_job *job, const tri_family *family, const char *path, tri_hf_config **out)
{
    tri_hf_facts facts = {{0}};
    facts.numbers[TRI_ROLE_VOCABULARY] = rows_of(job, family->embedding);
    facts.numbers[TRI_ROLE_INNER] = rows_of(job, family->gate_up) / 2;
    facts.numbers[TRI_ROLE_POSITIONS] = (int64_t)(job->shards.input_nbytes / sizeof(int32_t)) / job->shards.rows;
    if (job->step > 0 && tri_fs_exists(path)) /* resumed: what the source's had is in this one */
        TRI_TRY(tri_hf_config_open(path, out));
    else if (job->model.source && tri_pretrained_config(job->model.source)) {
        tri_string text = {0};
        tri_status status = tri_hf_config_print(tri_pretrained_config(job->model.source), TRI_F32, &text);
        if (status == TRI_OK)
            status = tri_hf_config_parse(text.text, text.nbytes, path, out);
        tri_string_fini(&text);
        TRI_TRY(status);
    } else
        return tri_hf_config_make(family, job->config.model, &facts, out);
    return tri_hf_config_update(*out, job->config.model, &facts);
}

tri_status tri_job_config_write(tri_job *job)
{
    const tri_yaml *name = tri_yaml_find(job->config.model, "name");
    const tri_family *family = name && name->text ? tri_family_find(name->text) : NULL;
    char path[1200];
    tri_hf_config *config = NULL;
    tri_string text = {0};
    if (!family || tri_yaml_find(job->config.model, "layers"))
        return TRI_OK;
    snprintf(path, sizeof(path), "%s/" TRI_HF_CONFIG_FILE, job->output.folder);
    tri_status status = config_open(job, family, path, &config);
    if (status == TRI_OK)
        status = tri_hf_config_print(config, TRI_F32, &text);
    if (status == TRI_OK)
        status = tri_fs_write_atomic(path, text.text, text.nbytes);
    tri_string_fini(&text);
    tri_hf_config_close(config);
    return status;
}
