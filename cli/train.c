/* SPDX-License-Identifier: Apache-2.0
 *
 * train.c: `trireme train`: with -n it starts N workers of itself, without it it joins the job that started it.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <trireme/train.h>

#include "base/ask.h"
#include "base/fs.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/eval_follow.h"
#include "cli/page/page.h"
#include "cli/say.h"
#include "cli/train_elastic.h"
#include "cli/train_metrics.h"
#include "cli/train_ps.h"
#include "cli/train_report.h"
#include "cli/worker.h"
#include "monitor/trace.h"
#include "net/host.h"
#include "train/job.h"

typedef struct train_flags {
    const char *ranks, *servers, *restarts, *elastic, *spares, *wait_s, *alone_s, *attach, *store, *listen, *join,
        *hosts, *metrics, *page, *trace, *out, *resume, *keep_on, *dry_run;
} train_flags;

static train_flags given;
static const tri_flag flags[] = {
    {"-n", "N", "start N workers on this machine (or on --hosts); without it: join the job that started this process",
     &given.ranks},
    {"--servers", "N", "start N parameter servers beside the workers (parallel.sync=ps)", &given.servers},
    {"--restarts", "N",
     "with --servers or --elastic: start processes again that were killed by a signal, at most N times together "
     "(default 0)",
     &given.restarts},
    {"--elastic", "MIN:MAX",
     "workers may be killed, leave (SIGTERM) and join while the others go on, MIN to MAX of them", &given.elastic},
    {"--spares", "K",
     "with --elastic MIN:N and -n N: start K workers more that wait, ready, and take the place of whoever is missing "
     "(default 0)",
     &given.spares},
    {"--wait", "SECONDS",
     "with --elastic: how long fewer than MIN wait for others before they save and end (default 60)", &given.wait_s},
    {"--alone", "SECONDS",
     "with --elastic: how long workers whose launcher was killed go on without one, before they save and end (default "
     "300; 0: they are killed with it)",
     &given.alone_s},
    {"--attach", "RUN",
     "be the launcher of this run, whose own one was killed while its workers go on; as if the command were given "
     "again",
     &given.attach},
    {"--store", "URL",
     "with --elastic: where workers meet, etcd[s]://host:port[,host:port "
     "...][/prefix][?auth=FILE&ca=FILE&cert=FILE&key="
     "FILE] (default: in this process)",
     &given.store},
    {"--listen", "HOST[:PORT]",
     "with --elastic: workers of other hosts may join here; TRIREME_TOKEN is what they must know", &given.listen},
    {"--join", "HOST:PORT",
     "with --elastic: the N workers join the run whose launcher listens there (or the URL of its etcd that it printed)",
     &given.join},
    {"--hosts", "FILE",
     "start the workers by ssh: one 'host [slots=N]' per line; slurm: by srun on the nodes of this job", &given.hosts},
    {"--metrics", "ADDRESS", "serve /metrics for Prometheus (monitor.metrics), such as 9100 or 0.0.0.0:9100",
     &given.metrics},
    {"--page", "ADDRESS", "serve a web page of the run, such as 0 (any port, loopback) or 0.0.0.0:9200 (docs/page.md)",
     &given.page},
    {"--trace", "FILE[:FROM-TO]", "write what all workers did in these steps (monitor.trace), for ui.perfetto.dev",
     &given.trace},
    {"--out", "FOLDER", "run folder (default runs/NAME-DATE-TIME)", &given.out},
    {"--resume", "RUN", "continue the newest checkpoint of this run folder, with its configuration", &given.resume},
    {"--continue", NULL,
     "go on from the newest checkpoint in --out, or begin where there is none: for jobs that are started again",
     &given.keep_on},
    {"--dry-run", NULL,
     "print the resolved configuration with origins, the memory of a worker, groups and learning rate, and stop",
     &given.dry_run},
};

static int print_help(void)
{
    if (!tri_flags_help(tri_command_of(cmd_train), flags, TRI_COUNT_OF(flags)))
        return 0;
    tri_string text = {0};
    tri_status status = tri_string_append(&text, "\nOptions, in the file or as section.key=value:\n");
    if (status == TRI_OK)
        status = tri_string_append(&text, "\nmodel: (name or a list of layers)\n");
    if (status == TRI_OK)
        status = tri_models_help(&text);
    if (status == TRI_OK)
        status = tri_string_append(
            &text, "  for each: from: FOLDER (weights to begin with: Hugging Face's, a run, a checkpoint),\n"
                   "            freeze: [names] (parameters that do not move), reinit: [names] (that begin "
                   "anew)\n");
    for (const tri_config_section *at = tri_config_sections; at->table && status == TRI_OK; at++) {
        status = tri_string_append(&text, "\n");
        if (status == TRI_OK)
            status = tri_options_help(at->table, &text);
    }
    fputs(tri_string_text(&text), stdout);
    tri_string_fini(&text);
    return status == TRI_OK ? 0 : tri_command_fail(status);
}

/* "runs/cnn-20261121-085500". */
static tri_status run_folder_name(const tri_config *config, char *text, size_t capacity)
{
    const tri_yaml *name = tri_yaml_find(config->model, "name");
    time_t now = (time_t)(tri_wall_ns() / TRI_NS_PER_S);
    struct tm local;
    localtime_r(&now, &local);
    char stamp[32];
    strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", &local);
    snprintf(text, capacity, "runs/%.60s-%s", name && name->text ? name->text : "model", stamp);
    for (int i = 1; tri_fs_exists(text) && i < 1000; i++)
        snprintf(text, capacity, "runs/%.60s-%s.%d", name && name->text ? name->text : "model", stamp, i);
    return TRI_OK;
}

typedef struct train_plan {
    const char *config_path;
    const char *const *overrides;
    char folder[1200];
    char resumed_config[1200];
    char metrics_word[128], trace_word[1100];
    char batch[48]; /* the word that train.batch auto became; last of the overrides */
} train_plan;

/* Where the run lives and which file configures it. */
static tri_status plan_make(int count, char **argv, train_plan *plan)
{
    int first_override = 0;
    if (count > 0 && !strchr(argv[0], '=')) {
        plan->config_path = argv[0];
        first_override = 1;
    }
    for (int i = first_override; i < count; i++)
        if (!strchr(argv[i], '='))
            return tri_fail(TRI_ECONFIG, "'%s' is neither a flag nor of the form section.key=value", argv[i]);
    plan->overrides = (const char *const *)argv + first_override;
    if (given.metrics) { /* in place of the flag */
        snprintf(plan->metrics_word, sizeof(plan->metrics_word), "monitor.metrics=%.100s", given.metrics);
        argv[count++] = plan->metrics_word;
    }
    if (given.trace) {
        snprintf(plan->trace_word, sizeof(plan->trace_word), "monitor.trace=%.1000s", given.trace);
        argv[count++] = plan->trace_word;
    }
    argv[count] = NULL;
    if (given.keep_on && (given.resume || !given.out))
        return tri_fail(TRI_ECONFIG, "--continue wants %s",
                        given.resume ? "no --resume beside it" : "--out FOLDER, the run's");
    if (given.keep_on)
        given.resume = given.out;
    if (given.resume && !plan->config_path) {
        snprintf(plan->resumed_config, sizeof(plan->resumed_config), "%s/config.yaml", given.resume);
        plan->config_path = plan->resumed_config;
    }
    if (!plan->config_path)
        return tri_fail(TRI_ECONFIG, "want a configuration file, such as examples/fashion_mnist.yaml");
    if (given.out)
        snprintf(plan->folder, sizeof(plan->folder), "%s", given.out);
    else if (given.resume)
        snprintf(plan->folder, sizeof(plan->folder), "%s", given.resume);
    return TRI_OK;
}

/* "1.5 MiB". */
static const char *print_nbytes(size_t nbytes, char text[32])
{
    const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double value = (double)nbytes / 1024;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < TRI_COUNT_OF(units); unit++)
        value /= 1024;
    snprintf(text, 32, "%.1f %s", value, units[unit]);
    return text;
}

/* As comments, so that what --dry-run prints stays a configuration. Data that lie elsewhere are no reason to fail; what
 * the configuration itself says wrongly is. */
static tri_status plan_append(const tri_config *config, int ranks, tri_string *text)
{
    if (strcmp(config->parallel.layout, "auto") == 0)
        return tri_string_appendf(text,
                                  "# memory of a worker: parallel.layout is auto: 'trireme plan' with the same words "
                                  "tells of each layout\n");
    tri_job_memory memory;
    tri_string notes = {0};
    char weights[32], gradients[32], optimizer[32], activations[32], apart[32], snapshot[32];
    tri_status status = tri_job_describe(config, ranks, &memory, "# ", &notes);
    if (status == TRI_OK)
        status = tri_string_appendf(
            text,
            "# memory of a worker, of %d%s: weights %s, gradients %s, optimizer %s, activations %s "
            "(%s if unshared)%s%s\n%s",
            ranks, strcmp(config->parallel.zero_ranks, "host") == 0 ? " on one host" : "",
            print_nbytes(memory.weights, weights), print_nbytes(memory.gradients, gradients),
            print_nbytes(memory.optimizer, optimizer), print_nbytes(memory.activations, activations),
            print_nbytes(memory.activations_apart, apart), memory.snapshot > 0 ? ", copy for checkpoints " : "",
            memory.snapshot > 0 ? print_nbytes(memory.snapshot, snapshot) : "", tri_string_text(&notes));
    else if (status != TRI_ECONFIG)
        status = tri_string_appendf(text, "# memory of a worker: not known: %s\n", tri_last_error());
    tri_string_fini(&notes);
    return status;
}

static int dry_run(const tri_config *config, int ranks)
{
    tri_string text = {0};
    tri_status status = tri_config_print(config, &text);
    if (status == TRI_OK)
        status = plan_append(config, ranks, &text);
    fputs(tri_string_text(&text), stdout);
    tri_string_fini(&text);
    return status == TRI_OK ? 0 : tri_command_fail(status);
}

#define ALONE_S 300

/* What --servers stands for in the configuration. */
#define SERVERS_WORD "parallel.sync=ps"
/* What the launcher serves, workers leave where it finds it. */
#define METRICS_WORD "monitor.metrics=" TRI_MONITOR_GATHERED

/* The parent: starts this program on N ranks with the same words, and waits. */
/* MIN:MAX. */
static tri_status elastic_read(int64_t *least, int64_t *most)
{
    char first[24];
    const char *colon = strchr(given.elastic, ':');
    size_t nbytes = colon ? (size_t)(colon - given.elastic) : sizeof(first);
    if (nbytes >= sizeof(first))
        return tri_fail(TRI_ECONFIG, "--elastic wants MIN:MAX, such as 2:8, found '%.60s'", given.elastic);
    memcpy(first, given.elastic, nbytes);
    first[nbytes] = 0;
    TRI_TRY(tri_flag_int("--elastic", first, 1, 65536, least));
    return tri_flag_int("--elastic", colon + 1, *least, 65536, most);
}

/* Launchers on other hosts may have the same run folder. */
static void journal_path(const char *folder, bool joins, char path[1300])
{
    char host[TRI_HOST_ID_NBYTES];
    tri_host_id(host);
    snprintf(path, 1300, "%.1200s/launcher%s%s.journal", folder, joins ? "-" : "", joins ? host : "");
}

/* The words were looked at before. */
static double alone_seconds(void)
{
    int64_t seconds = ALONE_S;
    return given.alone_s && tri_flag_int("--alone", given.alone_s, 0, 1000000, &seconds) != TRI_OK ? ALONE_S
                                                                                                   : (double)seconds;
}

static tri_status page_serve(const char *folder, tri_page_server **out)
{
    char url[256], *folders[] = {(char *)(uintptr_t)folder};
    TRI_TRY_IN(tri_fs_make_folder(folder), "while making the run folder");
    TRI_TRY_IN(tri_page_serve(given.page, NULL, folders, 1, url, out), "--page");
    tri_log(TRI_LOG_INFO, "page of this run at %s", url);
    return TRI_OK;
}

static int launch_workers(const train_plan *plan, tri_worker_roles roles, const char *metrics)
{
    char *argv[1024] = {NULL, "train", (char *)plan->config_path, "--out", (char *)plan->folder};
    int count = 5;
    if (given.keep_on) {
        argv[count++] = "--continue";
    } else if (given.resume) {
        argv[count++] = "--resume";
        argv[count++] = (char *)given.resume;
    }
    if (given.elastic) {
        argv[count++] = "--elastic";
        argv[count++] = (char *)given.elastic;
    }
    if (given.wait_s) {
        argv[count++] = "--wait";
        argv[count++] = (char *)given.wait_s;
    }
    if (given.alone_s) {
        argv[count++] = "--alone";
        argv[count++] = (char *)given.alone_s;
    }
    for (int i = 0; plan->overrides[i]; i++) {
        if (count + 3 == (int)TRI_COUNT_OF(argv))
            return tri_command_fail(tri_fail(TRI_ECONFIG, "too many section.key=value words: want at most %d", i));
        argv[count++] = (char *)plan->overrides[i];
    }
    char logs[1300], journal[1300];
    if (roles.servers > 0)
        argv[count++] = SERVERS_WORD;
    /* With Slurm a launcher that dies takes its steps along. */
    bool by_slurm = given.hosts && strcmp(given.hosts, "slurm") == 0;
    if (given.elastic && !by_slurm && alone_seconds() > 0) {
        journal_path(plan->folder, given.join != NULL, journal);
        roles.journal = journal;
        roles.attach = given.attach != NULL;
    }
    if (metrics[0])
        argv[count++] = METRICS_WORD;
    snprintf(logs, sizeof(logs), "%s/log", plan->folder);
    tri_status status = tri_fs_make_folder(logs);
    tri_launch_result result;
    tri_http *http = NULL;
    tri_page_server *page = NULL;
    if (status == TRI_OK && metrics[0] && strcmp(metrics, TRI_MONITOR_GATHERED) != 0)
        status = tri_train_metrics_serve(metrics, plan->folder, &http);
    if (status == TRI_OK && given.page)
        status = page_serve(plan->folder, &page);
    if (status == TRI_OK)
        status = tri_worker_launch(roles, given.hosts, argv, logs, &result);
    tri_page_close(page);
    tri_http_close(http);
    return status == TRI_OK ? result.exit_code : tri_command_fail(status);
}

/* A process that nobody started as a rank has nobody who keeps its output: it leaves the same log as a launched rank.
 */
static tri_status log_open_alone(const train_plan *plan)
{
    tri_cluster_place place;
    char path[1300];
    if (tri_cluster_detect(NULL, NULL, &place) != TRI_OK || strcmp(place.started_by, "alone") != 0)
        return TRI_OK; /* a wrong environment is told by tri_worker_join() */
    snprintf(path, sizeof(path), "%s/log", plan->folder);
    TRI_TRY_IN(tri_fs_make_folder(path), "while making the run folder");
    snprintf(path, sizeof(path), "%s/log/rank-0.log", plan->folder);
    return tri_log_copy_open(path);
}

/* By torchrun, mpirun, srun or a launcher of ours. */
static bool is_started(void)
{
    tri_cluster_place place;
    return tri_cluster_detect(NULL, NULL, &place) == TRI_OK && place.world > 1;
}

/* Servers that whoever started this process speaks of want a run that uses them. */
static tri_status check_servers(const tri_config *config)
{
    tri_cluster_place place;
    TRI_TRY(tri_cluster_detect(NULL, NULL, &place));
    if (place.servers > 0 && strcmp(config->parallel.sync, "ps") != 0)
        return tri_fail(TRI_ECONFIG, "parallel.sync: the job has %d parameter servers (started by %s): want ps, got %s",
                        place.servers, place.started_by, config->parallel.sync);
    return TRI_OK;
}

static tri_status train_elastic(const train_plan *plan, const tri_config *config)
{
    int64_t least, most, wait_s = 60;
    TRI_TRY(elastic_read(&least, &most));
    if (given.wait_s)
        TRI_TRY(tri_flag_int("--wait", given.wait_s, 0, 1000000, &wait_s));
    TRI_TRY_IN(tri_fs_make_folder(plan->folder), "while making the run folder"); /* no launcher may have */
    return tri_train_elastic(&(tri_elastic_words){.config_path = plan->config_path,
                                                  .overrides = plan->overrides,
                                                  .folder = plan->folder,
                                                  .resume = given.resume,
                                                  .or_begin = given.keep_on,
                                                  .config = config,
                                                  .least = (int)least,
                                                  .most = (int)most,
                                                  .wait_s = (double)wait_s,
                                                  .alone_s = alone_seconds()});
}

/* Whoever is its launcher by then may not be its parent. */
static void exit_tell(const train_plan *plan, int code)
{
    tri_cluster_place place;
    char logs[1300];
    if (!given.elastic || alone_seconds() <= 0 || tri_cluster_detect(NULL, NULL, &place) != TRI_OK || place.starts < 0)
        return;
    snprintf(logs, sizeof(logs), "%s/log", plan->folder);
    if (tri_fs_is_folder(logs))
        tri_launch_exit_note(logs, place.rank, place.starts, code);
}

/* One rank. */
static tri_status train_rank(const train_plan *plan, const tri_config *config)
{
    tri_comm *comm = NULL;
    tri_job *job = NULL;
    TRI_TRY(log_open_alone(plan));
    TRI_TRY(check_servers(config));
    if (given.elastic)
        return train_elastic(plan, config);
    if (strcmp(config->parallel.sync, "ps") == 0)
        return tri_train_ps(plan->config_path, plan->overrides, plan->folder, given.resume, given.keep_on, config);
    tri_comm_config comm_config = config->comm;
    if (!comm_config.flight[0] && snprintf(comm_config.flight, sizeof(comm_config.flight), "%s/flight", plan->folder) >=
                                      (int)sizeof(comm_config.flight))
        comm_config.flight[0] = 0; /* a run folder with so long a name keeps no records */
    TRI_TRY(tri_worker_join(&comm_config, &config->net, config->net.timeout_s, &comm));
    tri_group *world = tri_comm_world(comm);
    tri_job_setup setup = {.config = plan->config_path,
                           .overrides = plan->overrides,
                           .comm = comm,
                           .run_folder = plan->folder,
                           .resume = given.resume,
                           .or_begin = given.keep_on,
                           .console = true};
    tri_status status = tri_job_open(&setup, &job);
    if (status == TRI_OK && tri_group_rank(world) == 0)
        tri_log(TRI_LOG_INFO, "%d ranks, run folder %s", tri_group_count(world), plan->folder);
    if (status == TRI_OK)
        status = tri_job_run(job);
    char message[TRI_ERROR_NBYTES];
    snprintf(message, sizeof(message), "%s", tri_last_error());
    tri_job_close(job);
    return tri_worker_leave(comm, status == TRI_OK ? TRI_OK : tri_fail_copy(status, message));
}

static tri_status elastic_check(const tri_worker_roles *roles)
{
    int64_t least, most, wait_s;
    if (given.wait_s && !given.elastic)
        return tri_fail(TRI_ECONFIG, "--wait goes with --elastic");
    const struct {
        const char *name, *value;
    } rows[] = {{"--store", given.store}, {"--listen", given.listen}, {"--join", given.join}};
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++)
        if (rows[i].value && (!given.elastic || !given.ranks))
            return tri_fail(TRI_ECONFIG, "%s goes with -n N and --elastic MIN:MAX", rows[i].name);
    if ((given.join || given.listen || given.store) && given.hosts)
        return tri_fail(TRI_ECONFIG, "--store, --listen and --join go without --hosts: each host has its own launcher");
    if ((given.join != NULL) + (given.listen != NULL) + (given.store != NULL) > 1)
        return tri_fail(TRI_ECONFIG, "--store, --listen and --join: want one of them");
    if (given.spares && (!given.elastic || !given.ranks))
        return tri_fail(TRI_ECONFIG, "--spares goes with -n N and --elastic MIN:N");
    if (given.spares && given.join)
        return tri_fail(TRI_ECONFIG, "--spares goes without --join: whoever joins beyond MAX workers is a spare");
    if (given.alone_s && !given.elastic)
        return tri_fail(TRI_ECONFIG, "--alone goes with --elastic");
    if (given.alone_s)
        TRI_TRY(tri_flag_int("--alone", given.alone_s, 0, 1000000, &wait_s));
    if (given.wait_s)
        TRI_TRY(tri_flag_int("--wait", given.wait_s, 0, 1000000, &wait_s));
    if (!given.elastic)
        return TRI_OK;
    TRI_TRY(elastic_read(&least, &most));
    if (given.servers)
        return tri_fail(TRI_ECONFIG, "--elastic goes without --servers: workers of servers come and go by --restarts");
    if (given.spares && roles->workers != most)
        return tri_fail(TRI_ECONFIG,
                        "--spares: spares wait while the %lld workers of --elastic %s are there: want -n %lld, got %s",
                        (long long)most, given.elastic, (long long)most, given.ranks);
    if (given.ranks && (roles->workers > most || (roles->workers < least && !given.join)))
        return tri_fail(TRI_ECONFIG, "--elastic %s: want as many workers to begin with, got -n %lld", given.elastic,
                        (long long)roles->workers);
    return TRI_OK;
}

/* --elastic wants more of a configuration than others; MAX workers have a shard each. */
static tri_status elastic_configure(const tri_config *config)
{
    int64_t least, most;
    if (!given.elastic)
        return tri_stragglers_check(config, false);
    TRI_TRY(elastic_read(&least, &most));
    if (most > config->train.shards)
        return tri_fail(TRI_ECONFIG, "--elastic %s: want at most train.shards workers, %lld", given.elastic,
                        (long long)config->train.shards);
    return tri_elastic_check(config);
}

/* The evaluator of a TF_CONFIG: no rank of the job, it looks at what the chief writes. */
static tri_status evaluate_run(const train_plan *plan)
{
    if (!plan->folder[0])
        return tri_fail(TRI_ECONFIG,
                        "TF_CONFIG: an evaluator follows the checkpoints of the run: want --out FOLDER (or "
                        "--resume RUN), the same as the chief's, on a file system that both see");
    tri_log_label_set("evaluator");
    return tri_eval_follow(plan->folder, NULL, plan->overrides, TRI_EVAL_PATIENCE_S);
}

/* Who is started, by the flags; workers 0: nobody, this process is one of a job. */
static tri_status roles_read(tri_worker_roles *roles)
{
    if (given.ranks)
        TRI_TRY(tri_flag_int("-n", given.ranks, 1, 65536, &roles->workers));
    if (given.servers)
        TRI_TRY(tri_flag_int("--servers", given.servers, 1, 64, &roles->servers));
    if (given.restarts)
        TRI_TRY(tri_flag_int("--restarts", given.restarts, 0, INT32_MAX, &roles->restarts));
    if (given.spares)
        TRI_TRY(tri_flag_int("--spares", given.spares, 1, 1024, &roles->spares));
    if (given.restarts && !given.servers && !given.elastic)
        return tri_fail(
            TRI_ECONFIG,
            "--restarts goes with --servers or --elastic: ranks of other jobs cannot be replaced one by one");
    roles->elastic = given.elastic != NULL;
    roles->store = given.store;
    roles->listen = given.listen;
    roles->join = given.join;
    TRI_TRY(elastic_check(roles));
    if (given.servers && !given.ranks)
        return tri_fail(TRI_ECONFIG, "--servers wants the number of workers too: -n N");
    if (given.hosts && !given.ranks)
        return tri_fail(TRI_ECONFIG, "--hosts wants the number of workers too: -n N");
    return TRI_OK;
}

/* --servers is short for parallel.sync ps; what else the configuration asks for is not passed over. */
static tri_status servers_configure(tri_config *config, const tri_worker_roles *roles)
{
    const char *sync = config->parallel.sync;
    if (roles->servers == 0)
        return TRI_OK;
    if (strcmp(sync, "allreduce") != 0 && strcmp(sync, "ps") != 0)
        return tri_fail(TRI_ECONFIG, "--servers goes with parallel.sync ps, got %s", sync);
    return tri_options_set(&tri_parallel_options, &config->parallel, "sync", "ps");
}

/* train.batch auto becomes a number here, before there are ranks: all of them are told the same one. */
static tri_status batch_find(train_plan *plan, tri_config *config, const tri_worker_roles *roles)
{
    const char **end = (const char **)(uintptr_t)plan->overrides; /* in argv, whose flags have left room */
    if (!config->batch_auto)
        return TRI_OK;
    if (given.hosts || given.elastic || given.servers || (given.ranks == NULL && is_started()))
        return tri_fail(TRI_ECONFIG, "train.batch auto: want workers of this machine alone, started by 'trireme train "
                                     "-n N' without --hosts, --elastic and --servers, or a number");
    TRI_TRY(tri_batch_fit(config, roles->workers > 0 ? (int)roles->workers : 1));
    snprintf(plan->batch, sizeof(plan->batch), "train.batch=%lld", (long long)config->train.batch);
    char line[64];
    snprintf(line, sizeof(line), "train.batch auto: %lld", (long long)config->train.batch);
    tri_log_tell(stderr, TRI_LOG_INFO, line);
    while (*end)
        end++;
    end[0] = plan->batch;
    end[1] = NULL;
    return TRI_OK;
}

/* Whether this process starts the workers, and is none. */
static bool launches(const tri_worker_roles *roles)
{
    return roles->workers > 1 || (given.ranks && (given.hosts || roles->servers > 0 || given.elastic));
}

/* Rank 0 looks too; but the launcher's words are the clearer ones, where it is on the same host. */
static tri_status trace_check(const tri_config *config, const tri_worker_roles *roles)
{
    tri_trace_window window;
    if (!config->monitor.trace[0] || !launches(roles) || given.hosts || given.join)
        return TRI_OK;
    TRI_TRY(tri_trace_window_read(config->monitor.trace, &window));
    return tri_trace_path_check(window.path);
}

static int run(int count, char **argv)
{
    train_plan plan = {0};
    tri_config config = {0};
    tri_worker_roles roles = {0};
    tri_status status = plan_make(count, argv, &plan);
    if (status == TRI_OK)
        status = roles_read(&roles);
    if (status == TRI_OK)
        status = tri_config_load(plan.config_path, NULL, plan.overrides, &config);
    if (status == TRI_OK)
        status = tri_say_form(config.monitor.log);
    if (status == TRI_OK)
        status = servers_configure(&config, &roles);
    if (status == TRI_OK)
        status = batch_find(&plan, &config, &roles);
    if (status == TRI_OK)
        status = tri_config_check(&config, (int)roles.workers);
    if (status == TRI_OK)
        status = elastic_configure(&config);
    if (status == TRI_OK && !given.dry_run)
        status = trace_check(&config, &roles);
    bool evaluates = status == TRI_OK && roles.workers == 0 && !given.dry_run && tri_cluster_is_evaluator(NULL, NULL);
    if (status == TRI_OK && !plan.folder[0] && !evaluates)
        status = run_folder_name(&config, plan.folder, sizeof(plan.folder));
    int code;
    if (status != TRI_OK)
        code = tri_command_fail(status);
    else if (given.dry_run && (status = tri_config_model_find(&config)) != TRI_OK)
        code = tri_command_fail(status);
    else if (given.dry_run)
        code = dry_run(&config, roles.workers > 0 ? (int)roles.workers : 1);
    else if (evaluates)
        code = (status = evaluate_run(&plan)) == TRI_OK ? 0 : tri_command_fail(status);
    else if ((status = tri_say_ids(plan.folder, given.resume || given.attach, launches(&roles))) != TRI_OK)
        code = tri_command_fail(status);
    else if (launches(&roles))
        code = launch_workers(&plan, roles, config.monitor.metrics);
    else {
        tri_page_server *page = NULL;
        tri_train_report *report = NULL;
        if (given.page && is_started())
            status =
                tri_fail(TRI_ECONFIG, "--page goes with a launcher of ours, or with one process alone; of other runs "
                                      "'trireme page RUN' shows the same");
        else if (given.page)
            status = page_serve(plan.folder, &page);
        if (status == TRI_OK)
            status = tri_train_report_start(plan.folder, config.monitor.report_every_s, &report);
        if (status == TRI_OK)
            status = train_rank(&plan, &config);
        tri_train_report_end(report);
        tri_page_close(page);
        code = status == TRI_OK ? 0 : tri_command_fail(status);
        tri_log_copy_close();
        fflush(stdout);
        exit_tell(&plan, code);
    }
    tri_config_fini(&config);
    return code;
}

/* The command that began the run, in the folder where it was given. */
static tri_status attach_words(int *argc, char ***argv)
{
    char path[1300], run[PATH_MAX], *folder;
    char **words, **all;
    int count;
    if (*argc > 0)
        return tri_fail(TRI_ECONFIG, "--attach RUN goes alone: all else is as the run was begun with, got '%s'",
                        (*argv)[0]);
    if (!realpath(given.attach, run))
        return tri_fail(TRI_ENOTFOUND, "--attach wants the folder of a run, found no %s", given.attach);
    journal_path(run, true, path);
    if (!tri_fs_exists(path))
        journal_path(run, false, path);
    TRI_TRY(tri_launch_command_read(path, &words, &count, &folder));
    all = tri_alloc_zero((size_t)count + 1, sizeof(*all));
    for (int i = 1; all && i < count; i++) /* the program's name; "train", as what the command was called by */
        all[i - 1] = words[i];
    tri_free(words);
    if (!all)
        return TRI_ENOMEM;
    if (chdir(folder) != 0)
        return tri_fail(TRI_EIO, "%s: the run was begun in this folder, which cannot be entered: %s", folder,
                        strerror(errno));
    given = (train_flags){0};
    TRI_TRY(tri_flags_parse(tri_command_of(cmd_train), flags, TRI_COUNT_OF(flags), count - 1, all, &count));
    given.attach = given.out = tri_strdup(run);
    *argc = count;
    *argv = all;
    return given.out ? TRI_OK : TRI_ENOMEM;
}

int cmd_train(int argc, char **argv)
{
    int count;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return print_help();
    tri_status status = tri_flags_parse(tri_command_of(cmd_train), flags, TRI_COUNT_OF(flags), argc, argv, &count);
    if (status == TRI_OK && given.attach)
        status = attach_words(&count, &argv);
    if (status != TRI_OK)
        return tri_command_fail(status);
    tri_stop_catch();
    tri_ask_catch();
    return run(count, argv);
}
