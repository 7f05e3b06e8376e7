/* SPDX-License-Identifier: Apache-2.0
 *
 * sample.c: text of the model while it learns: train.sample_every. Rank 0 writes it; the other ranks continue.
 *
 * The weights are packed again for each sample into memory that was planned when the job was built. The draws are those
 * of the seed, the same each time, so that texts of different steps compare.
 */
#include <string.h>

#include "generate/source.h"
#include "train/checkpointing/arrays.h"
#include "train/core/features.h"
#include "train/core/step.h"

#define TEMPERATURE 0.8
#define TOP_K       200
#define LINE_NBYTES 900 /* of a line for people, at most */

typedef struct sample_state {
    tri_tokenizer *tokenizer;
    tri_token_graph *graph;
    tri_generator *generator;
    int64_t places;
    float *gathered; /* [tensors.total], where rank 0 does not have all weights whole; else NULL */
} sample_state;

/* Rank 0 with train.sample_every; else NULL. */
static sample_state *texts_of(const tri_job *job)
{
    return job->states[TRI_FEATURE_SAMPLES];
}

static void part(tri_job *job)
{
    sample_state *sampler = texts_of(job);
    if (!sampler)
        return;
    tri_generator_destroy(sampler->generator);
    tri_token_graph_destroy(sampler->graph);
    tri_tokenizer_close(sampler->tokenizer);
    tri_free(sampler->gathered);
    tri_free(sampler);
    job->states[TRI_FEATURE_SAMPLES] = NULL;
}

static tri_status plan(tri_job *job, const tri_model *given, const tri_dataset_info *info)
{
    tri_model *built = NULL;
    if (job->config.train.sample_every == 0 || job->rank != 0)
        return TRI_OK;
    sample_state *texts = job->states[TRI_FEATURE_SAMPLES] = tri_alloc_zero(1, sizeof(*texts));
    if (!texts)
        return TRI_ENOMEM;
    if (!given) {
        TRI_TRY(tri_model_build(job->config.model, info->sample, info->classes, &built));
        given = built;
    }
    texts->places = job->throughput.sample_tokens > 0 ? job->throughput.sample_tokens : 1;
    tri_token_graph_config config = {
        .device = job->device, .dtype = TRI_F32, .threads = job->threads, .sequences = 1, .places = texts->places};
    tri_status status = tri_token_graph_compile(given, &config, &texts->graph);
    tri_model_destroy(built);
    return status == TRI_OK ? TRI_OK : tri_fail_context(status, "train.sample_every");
}

static tri_generate_request request_make(const tri_job *job)
{
    const tri_train_config *train = &job->config.train;
    return (tri_generate_request){
        .prompt = train->sample_prompt,
        .prompt_nbytes = strlen(train->sample_prompt),
        .max_tokens = train->sample_tokens,
        .rule = {.temperature = TEMPERATURE, .top_k = TOP_K, .top_p = 1, .repeat = 1, .seed = (uint64_t)train->seed}};
}

static tri_status generate(const tri_job *job, const tri_generate_request *request, tri_generate_result *result)
{
    TRI_TRY(tri_generator_run(texts_of(job)->generator, request, 1, NULL, result));
    return result->status == TRI_OK ? TRI_OK : tri_fail_copy(result->status, result->error);
}

/* What the data or the model that this run began with are made of. */
static tri_status tokenizer_find(tri_job *job)
{
    tri_tokenizer **tokenizer = &texts_of(job)->tokenizer;
    tri_status status = TRI_ENOTFOUND;
    if (job->output.folder)
        status = tri_text_tokenizer_find(job->output.folder, tokenizer);
    if (status == TRI_ENOTFOUND && job->config.from)
        status = tri_text_tokenizer_find(job->config.from, tokenizer);
    if (status == TRI_ENOTFOUND)
        return tri_fail(TRI_ECONFIG,
                        "train.sample_every requires a tokenizer.json in the run folder (data of text bring it "
                        "there) or beside model.from; there is none");
    return status;
}

static tri_status form(tri_job *job)
{
    sample_state *texts = texts_of(job);
    if (!texts)
        return TRI_OK;
    tri_generate_request request = request_make(job);
    tri_generate_result result = {0};
    if (tri_shard_map_is_spread(job->placement.weights_at) || job->config.parallel.tensor_parts > 1) {
        texts->gathered = tri_alloc_bulk((size_t)job->model.tensors.total * sizeof(float));
        if (!texts->gathered)
            return tri_fail(TRI_ENOMEM, "train.sample_every: rank 0 needs %lld bytes for all weights",
                            (long long)(job->model.tensors.total * (int64_t)sizeof(float)));
    }
    TRI_TRY(tokenizer_find(job));
    TRI_TRY(tri_generator_create(texts->graph, texts->tokenizer, 1, texts->places, &texts->generator));
    request.max_tokens = 0; /* whether the prompt can be written */
    tri_status status = generate(job, &request, &result);
    tri_generate_result_fini(&result);
    return status == TRI_OK ? TRI_OK : tri_fail_context(TRI_ECONFIG, "train.sample_prompt");
}

/* --- weights --- */

/* A tensor's elements where all of it is in one place: in the store, or in what was gathered. */
typedef struct weights_arg {
    const tri_job *job;
    const float *values;
} weights_arg;

static tri_status weights_read(void *arg, const char *name, int64_t first, int64_t count, float *out)
{
    const weights_arg *weights = arg;
    const tri_job *job = weights->job;
    const float *tensor = NULL;
    if (!texts_of(job)->gathered)
        tensor = weights->values + tri_params_find(job->params, name)->first;
    for (int i = 0; texts_of(job)->gathered && i < job->model.tensors.count && !tensor; i++)
        if (strcmp(job->model.tensors.items[i].name, name) == 0)
            tensor = texts_of(job)->gathered + job->model.tensors.items[i].first;
    memcpy(out, tensor + first, (size_t)count * sizeof(float));
    return TRI_OK;
}

/* Rank 0's own copy of all weights, where its store does not have them whole. */
static tri_status weights_gather(tri_job *job, tri_job_arrays *arrays)
{
    for (int i = 0; i < job->model.tensors.count; i++) {
        const tri_tensor_row *row = &job->model.tensors.items[i];
        for (int64_t at = 0, count; at < row->count; at += count) {
            const float *values;
            count = row->count - at;
            TRI_TRY(
                tri_shard_map_read(job->placement.weights_at, arrays->views[0].host, row->first + at, &count, &values));
            memcpy(texts_of(job)->gathered + row->first + at, values, (size_t)count * sizeof(float));
        }
    }
    return TRI_OK;
}

static tri_status weights_load(tri_job *job, tri_job_arrays *arrays)
{
    weights_arg arg = {job, arrays->views[0].host};
    if (texts_of(job)->gathered)
        TRI_TRY(weights_gather(job, arrays));
    return tri_token_graph_load(texts_of(job)->graph, &(tri_weights_source){weights_read, &arg});
}

/* Line by line, no character cut. */
static void text_print(tri_console *console, const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\n"), taken = length < LINE_NBYTES ? length : LINE_NBYTES;
        while (taken < length && taken > 0 && ((unsigned char)text[taken] & 0xc0) == 0x80)
            taken--;
        tri_console_line(console, "  | %.*s", (int)taken, text);
        text += taken + (taken == length && text[length] == '\n');
    }
}

static tri_status text_write(tri_job *job)
{
    tri_generate_request request = request_make(job);
    tri_generate_result result = {0};
    tri_string whole = {0};
    tri_status status = generate(job, &request, &result);
    if (status == TRI_OK)
        status = tri_string_appendf(&whole, "%s%s", request.prompt, tri_string_text(&result.text));
    if (status == TRI_OK && job->output.metrics)
        status =
            tri_metrics_write_sample(job->output.metrics, job->step - 1, request.prompt, tri_string_text(&result.text));
    if (status == TRI_OK && job->output.console) {
        tri_console_line(job->output.console, "sample after step %lld:", (long long)job->step);
        text_print(job->output.console, tri_string_text(&whole));
    }
    tri_string_fini(&whole);
    tri_generate_result_fini(&result);
    return status;
}

static tri_status text_sample(tri_job *job)
{
    tri_job_arrays arrays;
    if (job->config.train.sample_every == 0)
        return TRI_OK;
    TRI_TRY(tri_job_settle(job));
    tri_status status = tri_job_arrays_open(job, false, &arrays);
    if (status == TRI_OK)
        status = texts_of(job) ? weights_load(job, &arrays) : tri_job_arrays_follow(&arrays, true);
    tri_job_arrays_close(&arrays);
    return status == TRI_OK && texts_of(job) ? text_write(job) : status;
}

static bool is_due(const tri_job *job)
{
    return tri_job_is_due(job, job->config.train.sample_every);
}

const tri_feature tri_feature_samples = {
    .plan = plan, .form = form, .is_due = is_due, .run = text_sample, .part = part};
