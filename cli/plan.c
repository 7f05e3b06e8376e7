/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: `trireme plan`: which layouts of a run there are, what each would take, and which one to choose.
 *
 * Without a described cluster it starts itself on as many ranks as the run would have: they measure together, and rank
 * 0 prints. With one it is alone, and measures the sections of the model only.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/stop.h"
#include "base/wait.h"
#include "cli/command.h"
#include "cli/plan.h"
#include "cli/worker.h"

#define PROGRESS_NS (2 * TRI_NS_PER_S)

typedef struct plan_flags {
    const char *ranks, *hosts, *cluster, *price, *json, *all;
} plan_flags;

static plan_flags given;
static const tri_flag flags[] = {
    {"-n", "N", "workers of this machine (or of --hosts, --cluster); without it: as many as it has cores, or all",
     &given.ranks},
    {"--hosts", "FILE",
     "measure on the hosts of this list, started by ssh: one '[user@]host [slots=N] [port=N]' per line", &given.hosts},
    {"--cluster", "FILE", "plan for the workers that this YAML file describes (docs/parallel.md)", &given.cluster},
    {"--price", "P", "of a host, an hour: the table then tells what an epoch costs", &given.price},
    {"--all", NULL, "every layout that can be, and each that cannot; else the fastest, and one line a reason",
     &given.all},
    {"--json", NULL, "one object a line: a layout each, the choice last", &given.json},
};

static void print_more_help(void)
{
    puts("\nA layout is data x tensor x pipeline workers, a strategy (parallel.sync) and a schedule. For each:\n"
         "  memory     of the worker that needs most: weights, gradients, optimizer, activations\n"
         "  sent       bytes that a worker sends in a step\n"
         "  step       seconds, and where they go: computing, sums inside layers (tensor), waiting for other\n"
         "             stages (bubble), sums of gradients and gathers that are not hidden, the optimizer\n"
         "  epoch      hours:minutes:seconds, and what it costs where a price is known\n"
         "The starred one is what 'parallel: auto' in a configuration takes. Sections of the model are measured\n"
         "here, one at a time; a model that is too large for that is worked out from its operations.\n\n"
         "  trireme plan examples/fashion_mnist.yaml -n 2\n"
         "  trireme plan big.yaml --cluster examples/cluster.yaml --price 2.5 train.batch=512");
}

typedef struct plan_words {
    const char *config_path;
    const char *const *overrides;
    double price;
} plan_words;

static tri_status words_read(int count, char **argv, plan_words *words)
{
    argv[count] = NULL;
    if (count < 1 || strchr(argv[0], '='))
        return tri_fail(TRI_ECONFIG, "want a configuration file, such as examples/fashion_mnist.yaml");
    for (int i = 1; i < count; i++)
        if (!strchr(argv[i], '='))
            return tri_fail(TRI_ECONFIG, "'%s' is neither a flag nor of the form section.key=value", argv[i]);
    *words = (plan_words){.config_path = argv[0], .overrides = (const char *const *)argv + 1};
    if (given.cluster && given.hosts)
        return tri_fail(TRI_ECONFIG, "want --cluster (described) or --hosts (measured), got both");
    if (!given.price)
        return TRI_OK;
    char *end;
    words->price = strtod(given.price, &end);
    if (*end || end == given.price || !(words->price >= 0) || !isfinite(words->price))
        return tri_fail(TRI_ECONFIG, "--price: want a number of at least 0, got '%s'", given.price);
    return TRI_OK;
}

/* A line now and then. */
static void show_progress(void *arg, const char *what)
{
    int64_t *said_ns = arg, now_ns = tri_now_ns();
    if (now_ns - *said_ns < PROGRESS_NS)
        return;
    *said_ns = now_ns;
    fprintf(stderr, "plan: %s ...\n", what);
}

/* Measures, works out, and prints where this is rank 0. */
static tri_status plan_run(const plan_words *words, tri_config *config, tri_comm *comm, tri_plan_cluster *described)
{
    int64_t said_ns = tri_now_ns();
    bool speaks = !comm || tri_group_rank(tri_comm_world(comm)) == 0, is_described = described != NULL;
    tri_layouts *layouts = tri_alloc_zero(1, sizeof(*layouts));
    tri_string text = {0};
    if (!layouts)
        return TRI_ENOMEM;
    for (int h = 0; described && words->price > 0 && h < described->host_count; h++)
        described->hosts[h].price_per_hour = words->price;
    tri_layout_setup setup = {.config = config,
                              .comm = comm,
                              .described = described,
                              .price = words->price,
                              .progress = speaks ? show_progress : NULL,
                              .progress_arg = &said_ns};
    tri_status status = tri_stop_at_once_begin("before the plan was made");
    if (status == TRI_OK)
        status = tri_layouts_find(&setup, layouts);
    tri_stop_at_once_end();
    if (status == TRI_OK)
        status = tri_wait_check("the layouts were measured");
    if (status == TRI_OK && speaks)
        status = given.json ? tri_plan_print_json(layouts, &text)
                            : tri_plan_print(layouts, is_described, given.all != NULL, &text);
    if (status == TRI_OK)
        fputs(tri_string_text(&text), stdout);
    tri_string_fini(&text);
    tri_layouts_close(layouts);
    tri_free(layouts);
    return status;
}

static tri_status run_described(const plan_words *words, tri_config *config, int64_t ranks)
{
    tri_plan_cluster cluster;
    tri_status status = tri_plan_cluster_load(given.cluster, &cluster);
    if (status == TRI_OK && ranks > 0)
        status = tri_plan_cluster_cut(&cluster, (int)ranks);
    if (status == TRI_OK)
        status = plan_run(words, config, NULL, &cluster);
    tri_plan_cluster_fini(&cluster);
    return status;
}

static tri_status run_rank(const plan_words *words, tri_config *config)
{
    tri_comm *comm = NULL;
    TRI_TRY(tri_worker_join(&config->comm, &config->net, config->net.timeout_s, &comm));
    tri_status status = plan_run(words, config, comm, NULL);
    if (status != TRI_OK && tri_group_count(tri_comm_world(comm)) > 1)
        tri_comm_abort(comm, status, tri_last_error());
    return tri_worker_leave(comm, status);
}

static tri_status start_ranks(const plan_words *words, int64_t ranks, int *code)
{
    char *argv[1024] = {NULL, "plan", (char *)(uintptr_t)words->config_path};
    int count = 3;
    const struct {
        const char *flag, *value;
    } passed[] = {{"--price", given.price}, {"--json", given.json}, {"--all", given.all}};
    for (size_t i = 0; i < TRI_COUNT_OF(passed); i++) {
        if (passed[i].value)
            argv[count++] = (char *)(uintptr_t)passed[i].flag;
        if (passed[i].value && passed[i].value[0])
            argv[count++] = (char *)(uintptr_t)passed[i].value;
    }
    for (int i = 0; words->overrides[i]; i++) {
        if (count + 1 == (int)TRI_COUNT_OF(argv))
            return tri_fail(TRI_ECONFIG, "too many section.key=value words: want at most %d", i);
        argv[count++] = (char *)(uintptr_t)words->overrides[i];
    }
    tri_launch_result result;
    TRI_TRY(tri_worker_launch((tri_worker_roles){.workers = ranks}, given.hosts, argv, NULL, &result));
    *code = result.exit_code;
    return TRI_OK;
}

static bool is_rank(void)
{
    tri_cluster_place place;
    return !given.ranks && !given.hosts && tri_cluster_detect(NULL, NULL, &place) == TRI_OK && place.world > 1;
}

static tri_status run(const plan_words *words, tri_config *config, int *code)
{
    int64_t ranks = 0;
    if (given.ranks)
        TRI_TRY(tri_flag_int("-n", given.ranks, 1, 65536, &ranks));
    TRI_TRY(tri_config_load(words->config_path, NULL, words->overrides, config));
    TRI_TRY(tri_config_check(config, 0));
    TRI_TRY(tri_config_model_find(config));
    if (!config->model)
        return tri_fail(TRI_ECONFIG, "model: want a name or layers");
    if (given.cluster)
        return run_described(words, config, ranks);
    if (is_rank())
        return run_rank(words, config);
    if (given.hosts && ranks == 0)
        TRI_TRY(tri_launch_hosts_slots(given.hosts, &ranks));
    if (ranks == 0)
        ranks = tri_cores_online();
    return ranks > 1 || given.hosts ? start_ranks(words, ranks, code) : run_rank(words, config);
}

int cmd_plan(int argc, char **argv)
{
    int count, code = 0;
    plan_words words;
    tri_config config = {0};
    tri_status status = tri_flags_parse(tri_command_of(cmd_plan), flags, TRI_COUNT_OF(flags), argc, argv, &count);
    if (status == TRI_ECANCELED) {
        print_more_help();
        return 0;
    }
    tri_stop_catch();
    if (status == TRI_OK)
        status = words_read(count, argv, &words);
    if (status == TRI_OK)
        status = run(&words, &config, &code);
    if (status != TRI_OK)
        code = tri_command_fail(status);
    tri_config_fini(&config);
    return code;
}
