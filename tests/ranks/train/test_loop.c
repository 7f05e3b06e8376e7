/* SPDX-License-Identifier: Apache-2.0
 *
 * test_loop.c: what happens around steps: targets that do not count, evaluation, the best checkpoint, figures.
 *
 * The linker gives tri_dataset_open() of the whole program to __wrap_tri_dataset_open(): a data set of tokens whose
 * targets are ignored as a test asks for.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/memory.h"
#include "base/runtime.h"
#include "data/data.h"
#include "ranks/train/train_expect.h"
#include "train/checkpointing/resume.h"
#include "train/core/evaluate.h"
#include "train/core/features.h"
#include "train/core/job.h"

#define RUN_FOLDER "trireme-test-loop-run"
#define TOKENS     6
#define CLASSES    5
#define BATCH      16
#define COUNT      48
#define MAX_RANKS  5

/* --- the data set --- */

static int64_t ignored_below; /* of each batch, the first samples have no target that counts */

static tri_status tokens_read(tri_dataset *dataset, const int64_t *indices, int64_t count, void *samples, void *targets)
{
    (void)dataset;
    int32_t *sample = samples, *target = targets;
    for (int64_t i = 0; i < count; i++)
        for (int64_t t = 0; t < TOKENS; t++) {
            *sample++ = (int32_t)((indices[i] * 3 + t) % CLASSES);
            *target++ = indices[i] % BATCH < ignored_below || t == 0 ? -1 : (int32_t)((t * t + 1) % CLASSES);
        }
    return TRI_OK;
}

static void tokens_close(tri_dataset *dataset)
{
    tri_free(dataset);
}

static const tri_dataset_ops tokens_ops = {.name = "tokens", .read = tokens_read, .close = tokens_close};

tri_status __real_tri_dataset_open(const tri_data_config *config, bool test, tri_dataset **out);
tri_status __wrap_tri_dataset_open(const tri_data_config *config, bool test, tri_dataset **out);
tri_status __wrap_tri_dataset_open(const tri_data_config *config, bool test, tri_dataset **out)
{
    int64_t tokens = TOKENS;
    if (strcmp(config->path, "tokens") != 0)
        return __real_tri_dataset_open(config, test, out);
    *out = tri_alloc_zero(1, sizeof(**out));
    if (!*out)
        return TRI_ENOMEM;
    (*out)->ops = &tokens_ops;
    (*out)->info = (tri_dataset_info){.count = COUNT,
                                      .sample = tri_shape_make(1, &tokens),
                                      .dtype = TRI_I32,
                                      .target_dtype = TRI_I32,
                                      .target = tri_shape_make(1, &tokens),
                                      .classes = CLASSES};
    return TRI_OK;
}

static const char tokens_config[] = "model: {layers: [embedding: {rows: 5, width: 8}, linear: classes]}\n"
                                    "data: {path: tokens, shuffle: false}\n"
                                    "train: {batch: 16, shards: 8, epochs: 2, threads: 1, eval_every: 0}\n"
                                    "optim: {lr: 1, momentum: 0}\n";
static const char plain_config[] = "model: {name: mlp, hidden: [16]}\n"
                                   "data: {name: synthetic, synthetic_count: 640}\n"
                                   "train: {batch: 64, epochs: 2, threads: 1}\n";

/* --- ranks as threads, each with a job, for a body that looks into it --- */

typedef struct rank_place {
    tri_hub *hub;
    int rank, world;
    const char *config;
    bool (*body)(tri_job *job); /* false: a figure is wrong */
    bool right;
    tri_status status;
    char message[256];
} rank_place;

static void rank_run(void *arg)
{
    rank_place *place = arg;
    tri_comm_config comm_config;
    tri_net_config net_config;
    tri_comm *comm = NULL;
    tri_job *job = NULL;
    tri_options_defaults(&tri_comm_options, &comm_config);
    tri_options_defaults(&tri_net_options, &net_config);
    place->status = tri_comm_open_hub(place->hub, place->rank, place->world, &comm_config, &net_config, &comm);
    if (place->status == TRI_OK)
        place->status = tri_job_open(&(tri_job_setup){.config_text = place->config, .comm = comm}, &job);
    if (place->status == TRI_OK)
        place->right = place->body(job);
    snprintf(place->message, sizeof(place->message), "%s", tri_last_error());
    tri_job_close(job);
    tri_comm_leave(comm);
}

static void on_ranks(int world, const char *config, bool (*body)(tri_job *job))
{
    tri_hub *hub;
    tri_thread *threads[MAX_RANKS];
    rank_place places[MAX_RANKS];
    assert_int_equal(tri_hub_create(&(tri_hub_config){.world = world}, &hub), TRI_OK);
    for (int r = 0; r < world; r++) {
        places[r] = (rank_place){.hub = hub, .rank = r, .world = world, .config = config, .body = body};
        assert_int_equal(tri_thread_start(&threads[r], "rank", rank_run, &places[r]), TRI_OK);
    }
    for (int r = 0; r < world; r++)
        tri_thread_join(threads[r]);
    tri_hub_destroy(hub);
    for (int r = 0; r < world; r++)
        if (places[r].status != TRI_OK)
            fail_msg("rank %d of %d: %s", r, world, places[r].message);
    for (int r = 0; r < world; r++)
        assert_true(places[r].right);
}

/* --- targets that do not count --- */

/* All weights zero: each target that counts costs log(CLASSES), and the mean gradient of the bias is 1 / CLASSES less
 * the share of targets of that class, over all ranks' targets that count. */
static bool step_from_zero(tri_job *job)
{
    bool done;
    double share[CLASSES] = {0}, counted = 0;
    for (int64_t i = ignored_below; i < BATCH; i++)
        for (int64_t t = 1; t < TOKENS; t++, counted++)
            share[(t * t + 1) % CLASSES]++;
    const size_t nbytes = (size_t)job->params->count * sizeof(float);
    tri_device_fill(job->device, job->params->values, 0, nbytes);
    tri_status status = tri_job_step(job, &done);
    tri_device_view view;
    if (tri_device_view_open(&view, job->device, job->params->values, nbytes) != TRI_OK)
        return false;
    const float *values = view.host;
    const tri_param *bias = &job->params->entries[job->params->entry_count - 1];
    const float *tail = job->sync->tail;
    bool right = status == TRI_OK && (double)tail[TRI_TAIL_WEIGHT] == counted && bias->count == CLASSES &&
                 job->throughput.sample_tokens == TOKENS;
    for (int c = 0; c < CLASSES && counted > 0; c++)
        right = right && fabs((double)values[bias->first + c] - share[c] / counted + 1.0 / CLASSES) < 1e-6;
    right = right && (counted > 0 ? fabs(job->record.loss - log(CLASSES)) < 1e-6 : isnan(job->record.loss));
    for (int64_t i = 0; i < job->params->count; i++)
        right = right && isfinite(values[i]) && (counted > 0 || values[i] == 0);
    tri_device_view_close(&view);
    return right;
}

static void gradients_are_divided_by_the_targets_that_count_on_all_ranks(void **state)
{
    (void)state;
    const int64_t cases[] = {0, 4, 9, 15, BATCH}; /* 8: rank 0 of 2 has none; BATCH: nobody has */
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++)
        for (int world = 1; world <= MAX_RANKS; world++) {
            ignored_below = cases[i];
            on_ranks(world, tokens_config, step_from_zero);
        }
}

static void uneven_weights_give_the_same_bits_on_any_number_of_ranks(void **state)
{
    (void)state;
    ignored_below = 9;
    train_outcome alone = train_threads(&(train_case){.config = tokens_config, .world = 1});
    assert_int_equal(alone.status, TRI_OK);
    for (int world = 2; world <= MAX_RANKS; world++) {
        train_outcome outcome = train_threads(&(train_case){.config = tokens_config, .world = world});
        assert_int_equal(outcome.status, TRI_OK);
        assert_true(outcome.all_equal && outcome.hash == alone.hash);
    }
}

/* --- evaluation --- */

static double seen_loss[MAX_RANKS + 1];

static bool evaluate_once(tri_job *job)
{
    tri_status status = tri_job_evaluate(job);
    bool right = status == TRI_OK && job->test.weight == (double)(COUNT - 3 * ignored_below) * (TOKENS - 1) &&
                 fabs(job->test.perplexity - exp(job->test.loss)) < 1e-9;
    if (job->rank == 0)
        seen_loss[job->world] = job->test.loss;
    return right;
}

static void perplexity_is_that_of_the_targets_that_count(void **state)
{
    (void)state;
    ignored_below = 9;
    for (int world = 1; world <= MAX_RANKS; world++) {
        on_ranks(world, tokens_config, evaluate_once);
        assert_true(seen_loss[world] == seen_loss[1]);
    }
}

static void few_batches_are_taken_from_all_over_the_test_set(void **state)
{
    (void)state;
    tri_job *job;
    const char *const overrides[] = {"train.eval_batches=1", NULL};
    ignored_below = 0;
    assert_int_equal(tri_job_open(&(tri_job_setup){.config_text = tokens_config, .overrides = overrides}, &job),
                     TRI_OK);
    for (int i = 0; i < 2; i++) { /* the second evaluation has the same samples */
        assert_int_equal(tri_job_evaluate(job), TRI_OK);
        assert_true(job->test.weight == BATCH * (TOKENS - 1));
        seen_loss[i] = job->test.loss;
    }
    assert_true(seen_loss[0] == seen_loss[1]);
    tri_job_close(job);
}

static void thinned_sets_read_every_nth_sample(void **state)
{
    (void)state;
    tri_data_config config;
    tri_dataset *dataset;
    tri_options_defaults(&tri_data_options, &config);
    strcpy(config.path, "tokens");
    const int64_t indices[] = {0, 1, 6};
    int32_t samples[3][TOKENS], targets[3][TOKENS];
    assert_int_equal(tri_dataset_open(&config, true, &dataset), TRI_OK);
    tri_dataset_thin(dataset, COUNT); /* nothing to thin */
    assert_int_equal(dataset->info.count, COUNT);
    tri_dataset_thin(dataset, 12);
    assert_int_equal(dataset->info.count, 12);
    assert_int_equal(tri_dataset_read(dataset, indices, 3, samples, targets), TRI_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(samples[i][0], indices[i] * 4 * 3 % CLASSES);
    tri_dataset_close(dataset);
}

/* Lines of metrics.jsonl with `part`. */
static int count_lines(const char *part)
{
    char *text;
    size_t nbytes;
    int count = 0;
    assert_int_equal(tri_fs_read(RUN_FOLDER "/metrics.jsonl", 0, &text, &nbytes), TRI_OK);
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
        count++;
    tri_free(text);
    return count;
}

static void evaluating_often_and_keeping_the_best_changes_no_weights(void **state)
{
    (void)state;
    const char *const often[] = {"train.eval_every_steps=3",
                                 "train.eval_batches=1",
                                 "checkpoint.keep_best=true",
                                 "checkpoint.every_steps=2",
                                 "checkpoint.keep=2",
                                 "train.norm_every=1",
                                 NULL};
    uint64_t hash = expect_run(&(train_case){.config = plain_config, .world = 1});
    for (int world = 1; world <= 3; world += 2) {
        assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
        assert_int_equal(expect_run(&(train_case){
                             .config = plain_config, .overrides = often, .run_folder = RUN_FOLDER, .world = world}),
                         hash);
        assert_int_equal(count_lines("\"test_loss\":"), 7); /* after 3, 6, ..., 18 and at the end, 20 */
        assert_int_equal(count_lines("\"grad_norm\":null"), 0);
        assert_int_equal(count_lines("\"tokens_per_s\":null"), 20);
        assert_true(tri_fs_is_folder(RUN_FOLDER "/checkpoints/step-00000020"));
        assert_true(tri_fs_is_folder(RUN_FOLDER "/checkpoints/step-00000018"));
        assert_false(tri_fs_exists(RUN_FOLDER "/checkpoints/step-00000016"));
        assert_true(tri_fs_exists(RUN_FOLDER "/best/best.json"));
        assert_true(tri_fs_exists(RUN_FOLDER "/peak.json"));
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

static void norms_come_every_so_many_steps_or_with_clipping_in_each(void **state)
{
    (void)state;
    const struct {
        const char *overrides[3];
        int missing;
    } cases[] = {{{"train.norm_every=10", NULL}, 18},
                 {{"train.norm_every=0", NULL}, 20},
                 {{"train.norm_every=0", "optim.clip_norm=1", NULL}, 0}};
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
        expect_run(&(train_case){
            .config = plain_config, .overrides = cases[i].overrides, .run_folder = RUN_FOLDER, .world = 2});
        assert_int_equal(count_lines("\"grad_norm\":null"), cases[i].missing);
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

/* --- the last lines --- */

/* One whose worker was lost in the last barrier ends what is done again, in another generation. */
static void the_result_is_told_once(void **state)
{
    (void)state;
    tri_job *job;
    char line[200];
    int told = 0;
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(tri_job_open(&(tri_job_setup){.config_text = plain_config, .console = true}, &job), TRI_OK);
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    dup2(fileno(file), STDOUT_FILENO);
    tri_status statuses[2] = {tri_job_run(job), tri_job_print_result(job)};
    tri_job_close(job);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    assert_int_equal(statuses[0], TRI_OK);
    assert_int_equal(statuses[1], TRI_OK);
    rewind(file);
    while (fgets(line, sizeof(line), file))
        told += strstr(line, "weights: xxh3") != NULL;
    fclose(file);
    assert_int_equal(told, 1);
}

/* --- the best checkpoint --- */

static int64_t best_step(void)
{
    char **names;
    size_t count;
    long long step = -1;
    assert_int_equal(tri_fs_list(RUN_FOLDER "/best", &names, &count), TRI_OK);
    assert_int_equal(count, 2); /* best.json and one checkpoint */
    assert_string_equal(names[0], "best.json");
    assert_int_equal(sscanf(names[1], "step-%lld", &step), 1);
    tri_fs_list_free(names, count);
    return step;
}

static double best_loss(void)
{
    char *text, *at;
    size_t nbytes;
    assert_int_equal(tri_fs_read(RUN_FOLDER "/best/best.json", 4096, &text, &nbytes), TRI_OK);
    assert_non_null(at = strstr(text, "\"test_loss\":"));
    double loss = atof(at + strlen("\"test_loss\":"));
    tri_free(text);
    return loss;
}

static void the_best_checkpoint_is_that_with_the_least_loss(void **state)
{
    (void)state;
    tri_job *job;
    const char *const overrides[] = {"checkpoint.keep_best=true", "train.eval_every=0", NULL};
    tri_job_setup setup = {.config_text = plain_config, .overrides = overrides, .run_folder = RUN_FOLDER};
    const double losses[][2] = {{2, 2}, {1, 4}, {1.5, 4}, {1, 4}, {0.5, 10}}; /* offered every 2 steps; the best step */
    bool done;
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    assert_int_equal(tri_job_open(&setup, &job), TRI_OK);
    for (size_t i = 0; i < TRI_COUNT_OF(losses); i++) {
        assert_int_equal(tri_job_step(job, &done), TRI_OK);
        assert_int_equal(tri_job_step(job, &done), TRI_OK);
        job->test.loss = losses[i][0];
        assert_int_equal(tri_features_evaluated(job), TRI_OK);
        assert_int_equal(best_step(), (int64_t)losses[i][1]);
        if (i == 1)
            assert_int_equal(tri_job_save(job), TRI_OK);
    }
    tri_job_close(job);
    /* A run that continues from step 4 rewrites what came later: the best of step 10 is gone with it. */
    setup.resume = RUN_FOLDER;
    assert_int_equal(tri_job_open(&setup, &job), TRI_OK);
    assert_int_equal(job->step, 4);
    assert_false(tri_fs_exists(RUN_FOLDER "/best"));
    job->test.loss = 3;
    assert_int_equal(tri_features_evaluated(job), TRI_OK);
    tri_job_close(job);
    assert_int_equal(tri_job_open(&setup, &job), TRI_OK);
    assert_true(best_loss() == 3);
    job->test.loss = 3.5;
    assert_int_equal(tri_features_evaluated(job), TRI_OK);
    assert_int_equal(best_step(), 4);
    tri_job_close(job);
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

/* --- the peak --- */

static void the_peak_is_measured_once_for_a_folder(void **state)
{
    (void)state;
    static const char before[] = "{\"of\": \"%s\", \"threads\": 1, \"kernels\": \"%s\", \"flops\": 123456789}";
    tri_job *job;
    char text[256];
    tri_job_setup setup = {.config_text = plain_config, .run_folder = RUN_FOLDER};
    assert_true(tri_kernel_peak(TRI_F32, 1, 0.01) > 1e8);
    assert_true(tri_kernel_peak(TRI_BF16, 1, 0.01) > 1e8);
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    for (int i = 0; i < 4; i++) { /* as it was measured; of another processor; not whole; of another precision */
        assert_int_equal(tri_fs_make_folder(RUN_FOLDER), TRI_OK);
        snprintf(text, sizeof(text), before, i == 3 ? "bf16" : "f32", i == 1 ? "another" : tri_kernel_arithmetic());
        assert_int_equal(tri_fs_write_atomic(RUN_FOLDER "/peak.json", text, i == 2 ? 9 : strlen(text)), TRI_OK);
        assert_int_equal(tri_job_open(&setup, &job), TRI_OK);
        assert_int_equal(job->throughput.peak_flops == 123456789, i == 0);
        assert_true(job->throughput.peak_flops > 1e8);
        tri_job_close(job);
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

static void rates_of_tokens_and_operations_follow_from_samples(void **state)
{
    (void)state;
    tri_job *job;
    bool done;
    ignored_below = 4;
    tri_job_setup setup = {.config_text = tokens_config, .run_folder = RUN_FOLDER};
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
    assert_int_equal(tri_job_open(&setup, &job), TRI_OK);
    assert_int_equal(tri_job_step(job, &done), TRI_OK);
    const tri_step_record *record = &job->record;
    assert_true(fabs(record->tokens_per_s / record->samples_per_s - TOKENS) < 1e-9);
    /* 8 x 5 multiply-adds a token; upward, weights, embedding */
    assert_true(fabs(job->throughput.sample_flops - 3 * 2.0 * 8 * 5 * TOKENS) < 1e-9);
    assert_true(fabs(record->mfu * job->throughput.peak_flops / record->samples_per_s - job->throughput.sample_flops) <
                1e-6);
    assert_true(record->grad_norm > 0);
    tri_job_close(job);
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

static void statistics_spoil(tri_job *job)
{
    const float nan = NAN;
    tri_device_from_host(job->device, job->params->values + tri_params_find(job->params, "bn1.running_mean")->first,
                         &nan, sizeof(nan));
}

/* Training is by statistics of the batch: only the evaluation sees it. */
static void a_test_loss_that_is_no_number_is_told(void **state)
{
    (void)state;
    static const char config[] = "model: {layers: [linear: 16, batch_norm, relu, linear: classes]}\n"
                                 "data: {name: synthetic, synthetic_count: 640}\n"
                                 "train: {batch: 64, epochs: 2, threads: 1}\n";
    for (int world = 1; world <= 2; world++) {
        assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
        train_outcome outcome = expect_outcome(
            &(train_case){.config = config, .world = world, .run_folder = RUN_FOLDER, .before_step = statistics_spoil});
        assert_true(isnan(outcome.test_loss));
        assert_int_equal(lines_with(RUN_FOLDER, "\"test_loss\":null"), 2); /* epochs */
    }
    assert_int_equal(tri_fs_remove(RUN_FOLDER), TRI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_divided_by_the_targets_that_count_on_all_ranks),
        cmocka_unit_test(uneven_weights_give_the_same_bits_on_any_number_of_ranks),
        cmocka_unit_test(perplexity_is_that_of_the_targets_that_count),
        cmocka_unit_test(few_batches_are_taken_from_all_over_the_test_set),
        cmocka_unit_test(thinned_sets_read_every_nth_sample),
        cmocka_unit_test(evaluating_often_and_keeping_the_best_changes_no_weights),
        cmocka_unit_test(norms_come_every_so_many_steps_or_with_clipping_in_each),
        cmocka_unit_test(the_result_is_told_once),
        cmocka_unit_test(the_best_checkpoint_is_that_with_the_least_loss),
        cmocka_unit_test(the_peak_is_measured_once_for_a_folder),
        cmocka_unit_test(rates_of_tokens_and_operations_follow_from_samples),
        cmocka_unit_test(a_test_loss_that_is_no_number_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
