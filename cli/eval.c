/* SPDX-License-Identifier: Apache-2.0
 *
 * eval.c: `trireme eval`: loss and accuracy of a checkpoint on a data set; with -n it starts N workers of itself.
 *
 * The figures are sums in the order of the shards: the same for any number of workers.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/runtime.h"
#include "cli/command.h"
#include "cli/eval_follow.h"
#include "cli/worker.h"
#include "train/core/build.h"
#include "train/core/evaluate.h"
#include "train/core/trained.h"

typedef struct eval_flags {
    const char *ranks, *hosts, *config, *train, *validation, *json, *follow, *patience;
} eval_flags;

static eval_flags given;
static const tri_flag flags[] = {
    {"-n", "N", "start N workers on this machine (or on --hosts)", &given.ranks},
    {"--hosts", "FILE",
     "start the workers by ssh: one '[user@]host [slots=N] [port=N]' per line; slurm: by srun on the nodes of this job",
     &given.hosts},
    {"--config", "FILE", "configuration of the model (default: config.yaml of the checkpoint's run)", &given.config},
    {"--train", NULL, "on the training data instead of the test data", &given.train},
    {"--validation", NULL, "on the validation data instead of the test data", &given.validation},
    {"--json", NULL, "one JSON object", &given.json},
    {"--follow", NULL, "each newest checkpoint of a running job, until its last step; also to RUN/evaluator.jsonl",
     &given.follow},
    {"--patience", "SECONDS", "with --follow: how long to wait for a new checkpoint (default 3600)", &given.patience},
};

typedef struct eval_plan {
    const char *path;
    const char *const *overrides;
    tri_trained trained;
} eval_plan;

static void print_text(const eval_plan *plan, const tri_job *job, double seconds)
{
    const tri_job_test *test = &job->test;
    const char *const part = tri_data_part_name(test->part);
    printf("%s: step %" PRId64 "\n", plan->trained.checkpoint, job->step);
    printf("%s loss %.4f\n", part, test->loss);
    if (!isnan(test->accuracy))
        printf("%s accuracy %.4f\n", part, test->accuracy);
    if (!isnan(test->mae))
        printf("%s mae %.4g\n", part, test->mae);
    if (!isnan(test->r2))
        printf("%s r2 %.4f\n", part, test->r2);
    if (!isnan(test->perplexity))
        printf("%s perplexity %.4g\n", part, test->perplexity);
    printf("%" PRId64 " samples, %.0f targets, %.0f samples/s\n", test->sampler.count, test->weight,
           (double)test->sampler.count / seconds);
    printf("weights: xxh3 %016" PRIx64 "\n", tri_params_hash(job->params));
}

static tri_status print_json(const eval_plan *plan, const tri_job *job, double seconds)
{
    const tri_job_test *test = &job->test;
    char hash[32];
    tri_string text = {0};
    tri_json json = tri_json_object(&text);
    snprintf(hash, sizeof(hash), "xxh3 %016" PRIx64, tri_params_hash(job->params));
    tri_json_text(&json, "checkpoint", plan->trained.checkpoint);
    tri_json_int(&json, "step", job->step);
    tri_json_text(&json, "weights", hash);
    tri_json_text(&json, "split", tri_data_part_name(test->part));
    tri_json_int(&json, "samples", test->sampler.count);
    tri_json_int(&json, "targets", (int64_t)test->weight);
    tri_json_real(&json, "loss", test->loss);
    tri_json_real(&json, "accuracy", test->accuracy);
    tri_json_real(&json, "perplexity", test->perplexity);
    if (!isnan(test->mae))
        tri_json_real(&json, "mae", test->mae);
    if (!isnan(test->r2))
        tri_json_real(&json, "r2", test->r2);
    tri_json_int(&json, "workers", job->world);
    tri_json_real(&json, "samples_per_s", (double)test->sampler.count / seconds);
    tri_status status = tri_json_end(&json);
    if (status == TRI_OK)
        puts(tri_string_text(&text));
    tri_string_fini(&text);
    return status;
}

static tri_status evaluate(const eval_plan *plan, tri_job *job)
{
    const tri_data_part part = given.train                                         ? TRI_PART_TRAIN
                               : given.validation                                  ? TRI_PART_VALIDATION
                               : tri_dataset_has(&job->config.data, TRI_PART_TEST) ? TRI_PART_TEST
                                                                                   : tri_job_evaluated_part(job);
    TRI_TRY_IN(tri_job_open_evaluation(job, part), "while opening the data to evaluate");
    int64_t start_ns = tri_now_ns();
    TRI_TRY(tri_job_evaluate(job));
    double seconds = (double)(tri_now_ns() - start_ns) / 1e9;
    if (job->rank != 0)
        return TRI_OK;
    if (given.json)
        return print_json(plan, job, seconds);
    print_text(plan, job, seconds);
    return TRI_OK;
}

/* One rank. */
static tri_status eval_rank(const eval_plan *plan)
{
    tri_config config = {0};
    tri_comm *comm = NULL;
    tri_job *job = NULL;
    tri_status status = tri_config_load(plan->trained.config, NULL, plan->overrides, &config);
    if (status == TRI_OK && !config.comm.flight[0])
        strcpy(config.comm.flight, "none"); /* a few calls of no interest */
    if (status == TRI_OK)
        status = tri_worker_join(&config.comm, &config.net, config.net.timeout_s, &comm);
    tri_config_fini(&config);
    TRI_TRY(status);
    tri_trained_setup setup = {.trained = &plan->trained, .overrides = plan->overrides, .comm = comm};
    status = tri_trained_open(&setup, &job);
    if (status == TRI_OK) {
        status = evaluate(plan, job);
        if (status != TRI_OK && job->world > 1)
            tri_comm_abort(comm, status, tri_last_error());
    }
    char message[TRI_ERROR_NBYTES];
    snprintf(message, sizeof(message), "%s", tri_last_error());
    tri_job_close(job);
    return tri_worker_leave(comm, status == TRI_OK ? TRI_OK : tri_fail_copy(status, message));
}

/* The same words again, without those that are for the launcher. */
static tri_status launch_ranks(const eval_plan *plan, int64_t ranks, int *code)
{
    char *argv[1024] = {NULL, "eval", (char *)plan->path};
    int count = 3;
    tri_launch_result result;
    for (size_t i = 0; i < TRI_COUNT_OF(flags); i++) {
        if (!*flags[i].value || flags[i].value == &given.ranks || flags[i].value == &given.hosts)
            continue;
        argv[count++] = (char *)flags[i].name;
        if (flags[i].argument)
            argv[count++] = (char *)*flags[i].value;
    }
    for (int i = 0; plan->overrides[i]; i++) {
        if (count + 1 == (int)TRI_COUNT_OF(argv))
            return tri_fail(TRI_ECONFIG, "too many section.key=value words: want at most %d", i);
        argv[count++] = (char *)plan->overrides[i];
    }
    TRI_TRY(tri_worker_launch((tri_worker_roles){.workers = ranks}, given.hosts, argv, NULL, &result));
    *code = result.exit_code;
    return TRI_OK;
}

static tri_status plan_make(int count, char **argv, eval_plan *plan)
{
    if (count < 1 || strchr(argv[0], '='))
        return tri_fail(TRI_ECONFIG, "want a run or a checkpoint (trireme eval --help)");
    for (int i = 1; i < count; i++)
        if (!strchr(argv[i], '='))
            return tri_fail(TRI_ECONFIG, "'%s' is neither a flag nor of the form section.key=value", argv[i]);
    plan->path = argv[0];
    plan->overrides = (const char *const *)argv + 1;
    argv[count] = NULL;
    if (given.follow) /* there may be nothing yet */
        return TRI_OK;
    return tri_trained_find(plan->path, given.config, &plan->trained);
}

static tri_status follow(const eval_plan *plan)
{
    if (tri_command_reads_copy())
        return tri_fail(TRI_ECONFIG, "--follow: want a run folder that grows, got a URL, of which a copy is evaluated");
    int64_t patience_s = (int64_t)TRI_EVAL_PATIENCE_S;
    const char *with = given.ranks   ? "-n"
                       : given.hosts ? "--hosts"
                       : given.json  ? "--json"
                       : given.train ? "--train"
                                     : NULL;
    if (with)
        return tri_fail(TRI_ECONFIG, "--follow evaluates in this process, on the test data: want it without %s", with);
    if (given.patience)
        TRI_TRY(tri_flag_int("--patience", given.patience, 1, 1000000000, &patience_s));
    tri_stop_catch();
    return tri_eval_follow(plan->path, given.config, plan->overrides, (double)patience_s);
}

int cmd_eval(int argc, char **argv)
{
    int count, code = 0;
    eval_plan plan = {0};
    int64_t ranks = 0;
    tri_status status = tri_flags_parse(tri_command_of(cmd_eval), flags, TRI_COUNT_OF(flags), argc, argv, &count);
    if (status == TRI_ECANCELED)
        return 0;
    if (status == TRI_OK)
        status = plan_make(count, argv, &plan);
    if (status == TRI_OK && given.ranks)
        status = tri_flag_int("-n", given.ranks, 1, 65536, &ranks);
    if (status == TRI_OK && given.hosts && !given.ranks && !given.follow)
        status = tri_launch_hosts_share(given.hosts, 0, &ranks);
    if (status == TRI_OK && given.patience && !given.follow)
        status = tri_fail(TRI_ECONFIG, "--patience requires --follow");
    if (status == TRI_OK && given.follow)
        status = follow(&plan);
    else if (status == TRI_OK && (ranks > 1 || given.hosts))
        status = launch_ranks(&plan, ranks, &code);
    else if (status == TRI_OK)
        status = eval_rank(&plan);
    return status == TRI_OK ? code : tri_command_fail(status);
}
