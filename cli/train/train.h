/* SPDX-License-Identifier: Apache-2.0
 *
 * train.h: what `trireme train` got as options, and the ways that it goes.
 */
#ifndef TRI_CLI_TRAIN_TRAIN_H
#define TRI_CLI_TRAIN_TRAIN_H

#include "cli/page/page.h"
#include "cli/worker.h"
#include "train/core/config.h"

/* Flags as they were given (NULL: not), and what they and the other words say together. */
typedef struct tri_train_words {
    const char *ranks, *servers, *restarts, *elastic, *spares, *wait_s, *alone_s, *grace_s, *attach, *store, *listen,
        *join, *hosts, *metrics, *page, *trace, *out, *resume, *keep_on, *overwrite, *dry_run;
    const char *config_path;
    const char *const *overrides;
    const char *out_given, *resume_given; /* as they were given; `out` and `resume` are the folders of URLs here */
    char folder[1200];                    /* of the run; "": not known yet */
    char resumed_config[1200];
    char metrics_word[128], trace_word[1100], ranks_word[24];
    char batch[48]; /* the word that train.batch auto became; last of the overrides */
} tri_train_words;

/* --- words.c --- */

/* Where the run lives and which file configures it; argv: the words that are no flags, with room for more of them. */
tri_status tri_train_words_read(tri_train_words *words, int count, char **argv);
/* Who is started, by the flags; workers 0: nobody, this process is one of a job. */
tri_status tri_train_roles_read(tri_train_words *words, tri_worker_roles *roles);
/* Whether this process starts the workers, and is none. */
bool tri_train_launches(const tri_train_words *words, const tri_worker_roles *roles);
/* MIN:MAX. */
tri_status tri_train_elastic_read(const tri_train_words *words, int64_t *least, int64_t *most);
/* --alone. */
double tri_train_alone_s(const tri_train_words *words);
/* --grace; 0: it was not given. */
double tri_train_grace_s(const tri_train_words *words);
/* What flags say of the configuration, and what they want of it; it is checked. */
tri_status tri_train_configure(tri_train_words *words, const tri_worker_roles *roles, tri_config *config);

/* The folder of a run that nobody has named. */
void tri_train_folder_name(tri_train_words *words, const tri_config *config);

/* --- ways to train: each prints its own errors and returns the exit code --- */

/* dry_run.c: prints what would be. */
int tri_train_dry_run(tri_config *config, int ranks);
/* launch.c: starts this program on N ranks with the same words, and waits. metrics: where figures of all are served. */
int tri_train_launch(const tri_train_words *words, tri_worker_roles roles, const tri_monitor_config *monitor);
/* rank.c: this process trains, as a rank of a job or alone. */
int tri_train_here(const tri_train_words *words, const tri_config *config);
/* rank.c: the evaluator of a TF_CONFIG: no rank of the job, it looks at what the chief writes. */
int tri_train_evaluate(const tri_train_words *words);

/* --- shared by these --- */

/* By torchrun, mpirun, srun or a launcher of ours. */
bool tri_train_is_started(void);
/* folder.c: makes the run folder, which belongs to this process and those that it starts until all have ended. Refuses
 * (TRI_ECONFIG) where another run writes there, or where an earlier run is stored that this one does not continue;
 * --overwrite moves that one aside. journal: of the launcher, or NULL. */
tri_status tri_train_folder_begin(const tri_train_words *words, const char *journal);
/* The same of an earlier run alone, for a rank of a job that others have started. */
tri_status tri_train_folder_check(const tri_train_words *words);
/* Launchers on other hosts may have the same run folder. */
void tri_train_journal_path(const char *folder, bool joins, char path[1300]);
/* --page. */
tri_status tri_train_page_serve(const tri_train_words *words, const tri_monitor_config *monitor, tri_page_server **out);

#endif
