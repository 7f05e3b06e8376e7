/* SPDX-License-Identifier: Apache-2.0
 *
 * words.c: what the words of `trireme train` say, and which of them do not go together.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/path.h"
#include "cli/command.h"
#include "cli/say.h"
#include "cli/train/train.h"
#include "monitor/trace.h"
#include "storage/storage.h"
#include "train/elastic/reform.h"

#define ALONE_S       300
#define GRACE_MAX_S   86400
#define FOLDER_NBYTES 1000 /* of a path: names of files are put behind it */

/* A folder may be called lr=0.1. */
static bool is_file(const char *word)
{
    size_t nbytes = strcspn(word, "=");
    return !word[nbytes] || memchr(word, '/', nbytes) || tri_fs_exists(word);
}

static tri_status folder_check(const char *flag, const char *folder)
{
    if (!folder || strlen(folder) <= FOLDER_NBYTES)
        return TRI_OK;
    return tri_fail(TRI_ECONFIG, "%s: want the path of a folder of at most %d bytes, got %zu", flag, FOLDER_NBYTES,
                    strlen(folder));
}

/* What says where run folders of URLs are: the words of the command line, since the file may be in one of them. */
static tri_status storage_configure(const tri_train_words *words)
{
    static const char section[] = "storage.";
    tri_storage_config config;
    tri_options_defaults(&tri_storage_options, &config);
    for (int i = 0; words->overrides[i]; i++) {
        const char *word = words->overrides[i], *equals = strchr(word, '=');
        if (strncmp(word, section, sizeof(section) - 1) != 0)
            continue;
        char *field = tri_strndup(word + sizeof(section) - 1, (size_t)(equals - word) - (sizeof(section) - 1));
        tri_status status = field ? tri_options_set(&tri_storage_options, &config, field, equals + 1) : TRI_ENOMEM;
        tri_free(field);
        TRI_TRY_IN(status, "command line");
    }
    tri_storage_configure(&config);
    return TRI_OK;
}

/* A URL becomes the folder that its files have here. */
static tri_status folder_settle(const char *flag, const char **folder, const char **given)
{
    char *path = NULL;
    *given = *folder;
    TRI_TRY(folder_check(flag, *folder));
    if (!*folder || !tri_path_is_url(*folder))
        return TRI_OK;
    TRI_TRY_IN(tri_mirror_folder(*folder, &path), "%s", flag);
    *folder = path;
    return folder_check(flag, path);
}

/* The run that is resumed comes here from its URL, once on a host: ranks find what their launcher, or the first of
 * them, has fetched. */
static tri_status run_fetch(const tri_train_words *words)
{
    char path[1300];
    tri_cluster_place place;
    if (!words->resume || words->resume == words->resume_given)
        return TRI_OK;
    TRI_TRY(tri_cluster_detect(NULL, NULL, &place));
    const bool has_launcher = strncmp(place.started_by, "trireme", strlen("trireme")) == 0;
    TRI_TRY_IN(tri_mirror_pull_files(words->resume, NULL, has_launcher || place.rank != 0), "--resume");
    snprintf(path, sizeof(path), "%s/checkpoints", words->resume);
    TRI_TRY_IN(tri_mirror_pull_newest(path), "--resume");
    return TRI_OK;
}

tri_status tri_train_words_read(tri_train_words *words, int count, char **argv)
{
    int first_override = 0;
    if (count > 0 && is_file(argv[0])) {
        words->config_path = argv[0];
        first_override = 1;
    }
    for (int i = first_override; i < count; i++)
        if (!strchr(argv[i], '='))
            return tri_fail(TRI_ECONFIG, "'%s' is neither a flag nor of the form section.key=value", argv[i]);
    words->overrides = (const char *const *)argv + first_override;
    if (words->metrics) { /* in place of the flag */
        snprintf(words->metrics_word, sizeof(words->metrics_word), "monitor.metrics=%.100s", words->metrics);
        argv[count++] = words->metrics_word;
    }
    if (words->trace) {
        snprintf(words->trace_word, sizeof(words->trace_word), "monitor.trace=%.1000s", words->trace);
        argv[count++] = words->trace_word;
    }
    argv[count] = NULL;
    TRI_TRY(storage_configure(words));
    TRI_TRY(folder_settle("--out", &words->out, &words->out_given));
    TRI_TRY(folder_settle("--resume", &words->resume, &words->resume_given));
    if (words->keep_on && (words->resume || !words->out))
        return tri_fail(TRI_ECONFIG, "--continue: want %s",
                        words->resume ? "no --resume beside it" : "--out FOLDER, the run's");
    if (words->overwrite && (words->keep_on || !words->out))
        return tri_fail(TRI_ECONFIG, "--overwrite %s",
                        words->keep_on ? "cannot be combined with --continue" : "requires --out FOLDER");
    if (words->keep_on) {
        words->resume = words->out;
        words->resume_given = words->out_given;
    }
    TRI_TRY(run_fetch(words));
    if (words->resume && !words->config_path) {
        snprintf(words->resumed_config, sizeof(words->resumed_config), "%s/config.yaml", words->resume);
        words->config_path = words->resumed_config;
    }
    if (!words->config_path)
        return tri_fail(TRI_ECONFIG, "want a configuration file, such as examples/fashion_mnist.yaml");
    if (words->out)
        snprintf(words->folder, sizeof(words->folder), "%s", words->out);
    else if (words->resume)
        snprintf(words->folder, sizeof(words->folder), "%s", words->resume);
    return TRI_OK;
}

tri_status tri_train_elastic_read(const tri_train_words *words, int64_t *least, int64_t *most)
{
    char first[24];
    const char *colon = strchr(words->elastic, ':');
    size_t nbytes = colon ? (size_t)(colon - words->elastic) : sizeof(first);
    if (nbytes >= sizeof(first))
        return tri_fail(TRI_ECONFIG, "--elastic: want MIN:MAX, such as 2:8, got '%.60s'", words->elastic);
    memcpy(first, words->elastic, nbytes);
    first[nbytes] = 0;
    TRI_TRY(tri_flag_int("--elastic", first, 1, 65536, least));
    return tri_flag_int("--elastic", colon + 1, *least, 65536, most);
}

/* The words were looked at before. */
double tri_train_alone_s(const tri_train_words *words)
{
    int64_t seconds = ALONE_S;
    return words->alone_s && tri_flag_int("--alone", words->alone_s, 0, 1000000, &seconds) != TRI_OK ? ALONE_S
                                                                                                     : (double)seconds;
}

double tri_train_grace_s(const tri_train_words *words)
{
    int64_t seconds = 0;
    return words->grace_s && tri_flag_int("--grace", words->grace_s, 1, GRACE_MAX_S, &seconds) != TRI_OK
               ? 0
               : (double)seconds;
}

bool tri_train_launches(const tri_train_words *words, const tri_worker_roles *roles)
{
    return roles->workers > 1 || (words->ranks && (words->hosts || roles->servers > 0 || words->elastic));
}

/* --- which go together --- */

static tri_status elastic_check(const tri_train_words *words, const tri_worker_roles *roles)
{
    int64_t least, most, wait_s;
    if (words->wait_s && !words->elastic)
        return tri_fail(TRI_ECONFIG, "--wait requires --elastic");
    const struct {
        const char *name, *value;
    } rows[] = {{"--store", words->store}, {"--listen", words->listen}, {"--join", words->join}};
    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++)
        if (rows[i].value && (!words->elastic || !words->ranks))
            return tri_fail(TRI_ECONFIG, "%s requires -n N and --elastic MIN:MAX", rows[i].name);
    if ((words->join || words->listen || words->store) && words->hosts)
        return tri_fail(TRI_ECONFIG,
                        "--store, --listen and --join cannot be combined with --hosts: each host has its own launcher");
    if ((words->join != NULL) + (words->listen != NULL) + (words->store != NULL) > 1)
        return tri_fail(TRI_ECONFIG, "--store, --listen and --join: want one of them");
    if (words->spares && (!words->elastic || !words->ranks))
        return tri_fail(TRI_ECONFIG, "--spares requires -n N and --elastic MIN:N");
    if (words->spares && words->join)
        return tri_fail(TRI_ECONFIG,
                        "--spares cannot be combined with --join: one that joins beyond MAX workers is a spare");
    if (words->alone_s && !words->elastic)
        return tri_fail(TRI_ECONFIG, "--alone requires --elastic");
    if (words->grace_s && !words->elastic)
        return tri_fail(TRI_ECONFIG, "--grace requires --elastic");
    if (words->grace_s)
        TRI_TRY(tri_flag_int("--grace", words->grace_s, 1, GRACE_MAX_S, &wait_s));
    if (words->alone_s)
        TRI_TRY(tri_flag_int("--alone", words->alone_s, 0, 1000000, &wait_s));
    if (words->wait_s)
        TRI_TRY(tri_flag_int("--wait", words->wait_s, 0, 1000000, &wait_s));
    if (!words->elastic)
        return TRI_OK;
    TRI_TRY(tri_train_elastic_read(words, &least, &most));
    if (words->servers)
        return tri_fail(TRI_ECONFIG,
                        "--elastic cannot be combined with --servers: workers of servers come and go by --restarts");
    if (words->spares && roles->workers != most)
        return tri_fail(TRI_ECONFIG,
                        "--spares: spares wait while the %lld workers of --elastic %s are there: want -n %lld, got %s",
                        (long long)most, words->elastic, (long long)most, words->ranks);
    if (words->ranks && (roles->workers > most || (roles->workers < least && !words->join)))
        return tri_fail(TRI_ECONFIG, "--elastic %s: want as many workers to begin with, got -n %lld", words->elastic,
                        (long long)roles->workers);
    return TRI_OK;
}

/* Without -n all slots of the hosts have a worker, of an elastic job at most MAX. */
static tri_status hosts_count(tri_train_words *words)
{
    int64_t servers = 0, spares = 0, workers, least, most;
    if (!words->hosts || words->ranks)
        return TRI_OK;
    if (words->servers)
        TRI_TRY(tri_flag_int("--servers", words->servers, 1, 64, &servers));
    if (words->spares)
        TRI_TRY(tri_flag_int("--spares", words->spares, 1, 1024, &spares));
    TRI_TRY(tri_launch_hosts_share(words->hosts, servers + spares, &workers));
    if (words->elastic) {
        TRI_TRY(tri_train_elastic_read(words, &least, &most));
        workers = workers < most ? workers : most;
    }
    snprintf(words->ranks_word, sizeof(words->ranks_word), "%lld", (long long)workers);
    words->ranks = words->ranks_word;
    return TRI_OK;
}

tri_status tri_train_roles_read(tri_train_words *words, tri_worker_roles *roles)
{
    TRI_TRY(hosts_count(words));
    if (words->ranks)
        TRI_TRY(tri_flag_int("-n", words->ranks, 1, 65536, &roles->workers));
    if (words->servers)
        TRI_TRY(tri_flag_int("--servers", words->servers, 1, 64, &roles->servers));
    if (words->restarts)
        TRI_TRY(tri_flag_int("--restarts", words->restarts, 0, INT32_MAX, &roles->restarts));
    if (words->spares)
        TRI_TRY(tri_flag_int("--spares", words->spares, 1, 1024, &roles->spares));
    if (words->restarts && !words->servers && !words->elastic)
        return tri_fail(
            TRI_ECONFIG,
            "--restarts requires --servers or --elastic: ranks of other jobs cannot be replaced one by one");
    roles->elastic = words->elastic != NULL;
    roles->grace_s = words->grace_s;
    roles->store = words->store;
    roles->listen = words->listen;
    roles->join = words->join;
    TRI_TRY(elastic_check(words, roles));
    if (words->servers && !words->ranks)
        return tri_fail(TRI_ECONFIG, "--servers requires the number of workers: -n N");
    return TRI_OK;
}

/* --- the configuration --- */

/* --elastic needs more of a configuration than others; MAX workers have a shard each. */
static tri_status elastic_configure(const tri_train_words *words, const tri_config *config)
{
    int64_t least, most;
    if (!words->elastic)
        return tri_stragglers_check(config, false);
    TRI_TRY(tri_train_elastic_read(words, &least, &most));
    if (most > config->train.shards)
        return tri_fail(TRI_ECONFIG, "--elastic %s: want at most train.shards workers, %lld", words->elastic,
                        (long long)config->train.shards);
    return tri_elastic_check(config);
}

/* --servers is short for parallel.sync ps; what else the configuration asks for is not passed over. */
static tri_status servers_configure(tri_config *config, const tri_worker_roles *roles)
{
    tri_sync_kind *sync = &config->parallel.sync;
    if (roles->servers == 0)
        return TRI_OK;
    if (*sync != TRI_SYNC_ALLREDUCE && *sync != TRI_SYNC_PS)
        return tri_fail(TRI_ECONFIG, "--servers requires parallel.sync ps, got %s", tri_sync_kind_word(*sync));
    *sync = TRI_SYNC_PS;
    return TRI_OK;
}

/* train.batch auto becomes a number here, before there are ranks: all of them get the same one. */
static tri_status batch_find(tri_train_words *words, tri_config *config, const tri_worker_roles *roles)
{
    const char **end = (const char **)(uintptr_t)words->overrides; /* in argv, whose flags have left room */
    if (!config->batch_auto)
        return TRI_OK;
    if (words->hosts || words->elastic || words->servers || (words->ranks == NULL && tri_train_is_started()))
        return tri_fail(TRI_ECONFIG, "train.batch auto: want workers of this machine alone, started by 'trireme train "
                                     "-n N' without --hosts, --elastic and --servers, or a number");
    TRI_TRY(tri_batch_fit(config, roles->workers > 0 ? (int)roles->workers : 1));
    snprintf(words->batch, sizeof(words->batch), "train.batch=%lld", (long long)config->train.batch);
    char line[64];
    snprintf(line, sizeof(line), "train.batch auto: %lld", (long long)config->train.batch);
    tri_log_tell(stderr, TRI_LOG_INFO, line);
    while (*end)
        end++;
    end[0] = words->batch;
    end[1] = NULL;
    return TRI_OK;
}

/* Rank 0 looks too; but the launcher's words are the clearer ones, where it is on the same host. */
static tri_status trace_check(const tri_train_words *words, const tri_config *config, const tri_worker_roles *roles)
{
    tri_trace_window window;
    if (!config->monitor.trace[0] || !tri_train_launches(words, roles) || words->hosts || words->join)
        return TRI_OK;
    TRI_TRY(tri_trace_window_read(config->monitor.trace, &window));
    return tri_trace_path_check(window.path);
}

/* "runs/cnn-20261121-085500". */
void tri_train_folder_name(tri_train_words *words, const tri_config *config)
{
    const tri_yaml *name = tri_yaml_find(config->model, "name");
    const char *model = name && name->text ? name->text : "model";
    time_t now = (time_t)(tri_wall_ns() / TRI_NS_PER_S);
    struct tm local;
    char stamp[32];
    localtime_r(&now, &local);
    strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", &local);
    snprintf(words->folder, sizeof(words->folder), "runs/%.60s-%s", model, stamp);
    for (int i = 1; tri_fs_exists(words->folder) && i < 1000; i++)
        snprintf(words->folder, sizeof(words->folder), "runs/%.60s-%s.%d", model, stamp, i);
}

tri_status tri_train_configure(tri_train_words *words, const tri_worker_roles *roles, tri_config *config)
{
    TRI_TRY(tri_config_load(words->config_path, NULL, words->overrides, config));
    TRI_TRY(tri_say_form(config->monitor.log));
    TRI_TRY(servers_configure(config, roles));
    TRI_TRY(batch_find(words, config, roles));
    TRI_TRY(tri_config_check(config, (int)roles->workers));
    TRI_TRY(elastic_configure(words, config));
    if (!words->dry_run)
        TRI_TRY(trace_check(words, config, roles));
    return TRI_OK;
}
