/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_ask.c: `trireme trace RUN`: asks one rank of a run for a trace of the next steps, and waits for the file: by a
 * signal where one is on this machine, else by a file in the run's folder. The rank tells the others.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ask.h"
#include "base/fs.h"
#include "base/runtime.h"
#include "cli/command.h"
#include "cli/run_process.h"
#include "cli/trace.h"

#define WAIT_S  60
#define LOOK_NS (20 * TRI_NS_PER_MS)

typedef struct ask_found {
    char folder[TRI_RUN_FOLDER_NBYTES];
    int pid, rank; /* pid 0: none yet; a low rank is better than a high one. Who starts ranks may have none here */
} ask_found;

static void process_look(void *arg, pid_t pid)
{
    ask_found *found = arg;
    char folder[TRI_RUN_FOLDER_NBYTES];
    if (!tri_proc_folder(pid, folder) || strcmp(folder, found->folder) != 0)
        return;
    int rank = tri_proc_rank(pid);
    if (rank < 0 || (found->pid && rank >= found->rank))
        return;
    found->pid = (int)pid;
    found->rank = rank;
}

static bool is_in(char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* The first trace that was not there before; *path: its. */
static tri_status traces_look(const char *folder, char *const *before, size_t before_count, char path[1400])
{
    char **names = NULL;
    size_t count = 0;
    path[0] = 0;
    if (!tri_fs_is_folder(folder))
        return TRI_OK;
    TRI_TRY(tri_fs_list(folder, &names, &count));
    for (size_t i = 0; i < count && !path[0]; i++) {
        const char *end = strrchr(names[i], '.');
        if (end && strcmp(end, ".json") == 0 && !is_in(before, before_count, names[i]))
            snprintf(path, 1400, "%.1100s/%.200s", folder, names[i]);
    }
    tri_fs_list_free(names, count);
    return TRI_OK;
}

static tri_status wait_for(const char *folder, char *const *before, size_t before_count, int64_t wait_s,
                           char path[1400])
{
    const int64_t until_ns = tri_now_ns() + wait_s * TRI_NS_PER_S;
    for (path[0] = 0; !path[0];) {
        TRI_TRY(traces_look(folder, before, before_count, path));
        if (path[0])
            break;
        if (tri_stop_signal())
            return tri_fail(TRI_ECANCELED, "stopped by a signal; the trace will be in %s", folder);
        if (tri_now_ns() > until_ns)
            return tri_fail(TRI_ETIMEOUT,
                            "%s has no new trace after %lld s: steps that take long (--wait), a run that has ended or "
                            "is tracing other steps (its log says so)",
                            folder, (long long)wait_s);
        tri_sleep_ns(LOOK_NS);
    }
    return TRI_OK;
}

/* Rank 0 looks for it. */
static tri_status file_leave(const char *run, int64_t steps, char path[1400])
{
    char text[32];
    snprintf(path, 1400, "%.1100s/traces", run);
    TRI_TRY(tri_fs_make_folder(path));
    snprintf(path, 1400, "%.1100s/" TRI_ASK_FILE, run);
    snprintf(text, sizeof(text), "%lld\n", (long long)steps);
    return tri_fs_write_swap(path, text, strlen(text));
}

/* Nobody has taken it: so nobody shall find it later. */
static tri_status file_take_back(const char *run, const char *path, tri_status status)
{
    char message[TRI_ERROR_NBYTES];
    snprintf(message, sizeof(message), "%s", tri_last_error());
    if (status == TRI_OK || !tri_fs_exists(path))
        return status == TRI_OK ? TRI_OK : tri_fail_copy(status, message);
    TRI_TRY(tri_fs_remove(path));
    return status == TRI_ECANCELED
               ? tri_fail_copy(status, message)
               : tri_fail(TRI_ENOTFOUND,
                          "%s: no rank of it is on this machine, and rank 0, wherever it is, does not take what is "
                          "asked for in its folder: has the run ended?",
                          run);
}

tri_status tri_trace_ask(const char *run, const char *steps_given, const char *wait_given)
{
    ask_found found = {.rank = -1};
    int64_t steps = TRI_ASK_STEPS, wait_s = WAIT_S;
    char traces[1200], path[1400], left[1400] = "", real[PATH_MAX], **before = NULL;
    size_t count = 0;
    if (steps_given)
        TRI_TRY(tri_flag_int("--steps", steps_given, 1, TRI_ASK_MOST, &steps));
    if (wait_given)
        TRI_TRY(tri_flag_int("--wait", wait_given, 1, 1000000, &wait_s));
    if (!tri_fs_is_folder(run) || !realpath(run, real) || strlen(real) >= sizeof(found.folder))
        return tri_fail(TRI_ECONFIG, "%s: there is no such folder of a run", run);
    memcpy(found.folder, real, strlen(real) + 1);
    tri_pids_visit(process_look, &found);
    snprintf(traces, sizeof(traces), "%.1100s/traces", run);
    if (tri_fs_is_folder(traces))
        TRI_TRY(tri_fs_list(traces, &before, &count));
    if (!found.pid)
        fprintf(stderr,
                "trace: no rank of %s is on this machine: rank 0, wherever it is, has %lld s to answer (--wait)\n", run,
                (long long)wait_s);
    tri_status status = found.pid ? tri_ask_send(found.pid, (int)steps) : file_leave(run, steps, left);
    if (status == TRI_OK)
        status = wait_for(traces, before, count, wait_s, path);
    tri_fs_list_free(before, count);
    if (left[0])
        status = file_take_back(run, left, status);
    if (status == TRI_OK)
        puts(path);
    return status;
}
