/* SPDX-License-Identifier: Apache-2.0
 *
 * train.c: `trireme train`: with -n it starts N workers of itself, without it it joins the job that started it.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ask.h"
#include "base/fs.h"
#include "cli/command.h"
#include "cli/say.h"
#include "cli/train/train.h"
#include "nn/model.h"

static tri_train_words given;
static const tri_flag flags[] = {
    {"-n", "N",
     "start N workers on this machine (or on --hosts; without it: one for each slot there); without it and --hosts: "
     "join the job that started this process",
     &given.ranks},
    {"--servers", "N", "start N parameter servers beside the workers (parallel.sync=ps)", &given.servers},
    {"--restarts", "N",
     "with --servers or --elastic: start processes again that were killed or failed, at most N times together "
     "(default 0)",
     &given.restarts},
    {"--elastic", "MIN:MAX",
     "workers may be killed, leave (SIGTERM) and join while the others continue, MIN to MAX of them", &given.elastic},
    {"--spares", "K",
     "with --elastic MIN:N and -n N: start K workers more that wait, ready, and take the place of one that is missing "
     "(default 0)",
     &given.spares},
    {"--wait", "SECONDS",
     "with --elastic: how long fewer than MIN wait for others before they save and end (default 60)", &given.wait_s},
    {"--alone", "SECONDS",
     "with --elastic: how long workers whose launcher was killed continue without one, before they save and end "
     "(default "
     "300; 0: they are killed with it)",
     &given.alone_s},
    {"--grace", "SECONDS",
     "with --elastic: time between SIGTERM and SIGKILL (a spot instance, a pod); a worker that cannot finish its "
     "step leaves 2 s before it ends (default: nobody kills it)",
     &given.grace_s},
    {"--attach", "RUN", "take over a running job whose launcher died, as if the command were given again",
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
     "start the workers by ssh: one '[user@]host [slots=N] [port=N]' per line; slurm: by srun on the nodes of this job",
     &given.hosts},
    {"--metrics", "ADDRESS", "serve /metrics for Prometheus (monitor.metrics), such as 9100 or 0.0.0.0:9100",
     &given.metrics},
    {"--page", "ADDRESS",
     "serve a web page of the run, such as 0 (any port, loopback) or 0.0.0.0:9200 (docs/monitoring.md)", &given.page},
    {"--trace", "FILE[:FROM-TO]", "write what all workers did in these steps (monitor.trace), for ui.perfetto.dev",
     &given.trace},
    {"--out", "FOLDER", "run folder (default runs/NAME-DATE-TIME)", &given.out},
    {"--resume", "RUN", "continue the newest checkpoint of this run folder, with its configuration", &given.resume},
    {"--continue", NULL,
     "continue from the newest checkpoint in --out, or begin where there is none: for jobs that are started again",
     &given.keep_on},
    {"--overwrite", NULL,
     "where --out has an earlier run: move it aside, FOLDER to FOLDER.1, and begin a new one (default: refuse)",
     &given.overwrite},
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
                   "            freeze: [names] (parameters that do not move), reinit: [names] (that are initialized "
                   "again)\n");
    for (const tri_config_section *at = tri_config_sections; at->table && status == TRI_OK; at++) {
        status = tri_string_append(&text, "\n");
        if (status == TRI_OK)
            status = tri_options_help(at->table, &text);
    }
    fputs(tri_string_text(&text), stdout);
    tri_string_fini(&text);
    return status == TRI_OK ? 0 : tri_command_fail(status);
}

/* The files of a run at a URL go there at its end, by whoever began it. */
static int files_push(int code)
{
    tri_cluster_place place;
    if (tri_cluster_detect(NULL, NULL, &place) != TRI_OK || place.rank != 0 ||
        strncmp(place.started_by, "trireme", strlen("trireme")) == 0 ||
        tri_mirror_push_files(given.folder, NULL) == TRI_OK)
        return code;
    const int failed = tri_command_fail(tri_fail_context(TRI_EIO, "the files of the run are not uploaded"));
    return code != 0 ? code : failed;
}

static int run(int count, char **argv)
{
    tri_config config = {0};
    tri_worker_roles roles = {0};
    bool evaluates = false;
    int code;
    tri_status status = tri_train_words_read(&given, count, argv);
    if (status == TRI_OK)
        status = tri_train_roles_read(&given, &roles);
    if (status == TRI_OK) {
        evaluates = roles.workers == 0 && !given.dry_run && tri_cluster_is_evaluator(NULL, NULL);
        status = tri_train_configure(&given, &roles, &config);
    }
    if (status == TRI_OK && !given.folder[0] && !evaluates)
        tri_train_folder_name(&given, &config);
    bool launches = tri_train_launches(&given, &roles);
    if (status == TRI_OK && !given.dry_run && !evaluates)
        status = tri_say_ids(given.folder, given.resume || given.attach, launches);
    if (status != TRI_OK)
        code = tri_command_fail(status);
    else if (given.dry_run)
        code = tri_train_dry_run(&config, roles.workers > 0 ? (int)roles.workers : 1);
    else if (evaluates)
        code = tri_train_evaluate(&given);
    else if (launches)
        code = tri_train_launch(&given, roles, &config.monitor);
    else
        code = tri_train_here(&given, &config);
    if (status == TRI_OK && !given.dry_run && !evaluates)
        code = files_push(code);
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
        return tri_fail(TRI_ENOTFOUND, "--attach: want the folder of a run, got no %s", given.attach);
    tri_train_journal_path(run, true, path);
    if (!tri_fs_exists(path))
        tri_train_journal_path(run, false, path);
    TRI_TRY(tri_launch_command_read(path, &words, &count, &folder));
    all = tri_alloc_zero((size_t)count + 1, sizeof(*all));
    for (int i = 1; all && i < count; i++) /* the program's name; "train", as what the command was called by */
        all[i - 1] = words[i];
    tri_free(words);
    tri_status status = all ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK && chdir(folder) != 0)
        status = tri_fail(TRI_EIO, "%s: the run was begun in this folder, which cannot be entered: %s", folder,
                          strerror(errno));
    tri_free(folder);
    TRI_TRY(status);
    given = (tri_train_words){0};
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
