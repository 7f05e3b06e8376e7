/* SPDX-License-Identifier: Apache-2.0
 *
 * stop.c: the signals that ask a process to stop.
 *
 * The first one sets a flag; while a phase of stop.h lasts, it ends the process.
 */
#include "base/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/runtime.h"
#include "base/sim_process.h"
#include "base/wait.h"

static atomic_int stop_number;
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "a signal handler may only use lock-free atomics");

static atomic_bool stops_at_once;

/* A moment for a rank that is about to say why it ends by itself: a launcher stops the others as soon as one has
 * failed. */
enum { AT_ONCE_S = 1 };

static void stop_arrived(int number)
{
    int none = 0;

    atomic_compare_exchange_strong(&stop_number, &none, number);
    if (atomic_load(&stops_at_once))
        alarm(AT_ONCE_S);
}

static const char *_Atomic stops_when;

static void moment_is_over(int number)
{
    static const char begin[] = "trireme: stopped by a signal ";
    const char *when = atomic_load(&stops_when);
    struct iovec parts[] = {{(void *)(uintptr_t)begin, sizeof begin - 1},
                            {(void *)(uintptr_t)when, strlen(when)},
                            {(void *)(uintptr_t) "\n", 1}};

    (void)number;
    if (!atomic_load(&stops_at_once))
        return;
    if (writev(STDERR_FILENO, parts, TRI_COUNT_OF(parts)) < 0) { /* nobody reads it */
    }
    _exit(128 + atomic_load(&stop_number));
}

tri_status tri_stop_at_once_begin(const char *when)
{
    struct sigaction action = {.sa_handler = moment_is_over};

    sigemptyset(&action.sa_mask);
    TRI_ASSERT(sigaction(SIGALRM, &action, NULL) == 0);
    atomic_store(&stops_when, when);
    atomic_store(&stops_at_once, true);
    return tri_wait_check("the run was prepared");
}

void tri_stop_at_once_end(void)
{
    atomic_store(&stops_at_once, false);
    alarm(0);
}

void tri_stop_catch(void)
{
    /* Without SA_RESTART: a main thread that waits in a system call comes back and can look at the flag. A scheduler
     * and a launcher may both send USR1 or HUP, so these may come again. */
    static const struct {
        int number, flags;
        bool stays_ignored;
    } rows[] = {{SIGINT, (int)SA_RESETHAND, false},
                {SIGTERM, (int)SA_RESETHAND, false},
                {SIGHUP, 0, true},
                {SIGUSR1, 0, false}};
    struct sigaction before;

    for (size_t i = 0; i < TRI_COUNT_OF(rows); i++) {
        struct sigaction action = {.sa_handler = stop_arrived, .sa_flags = rows[i].flags};

        sigemptyset(&action.sa_mask);
        TRI_ASSERT(sigaction(rows[i].number, NULL, &before) == 0);
        if (!rows[i].stays_ignored || before.sa_handler != SIG_IGN)
            TRI_ASSERT(sigaction(rows[i].number, &action, NULL) == 0);
    }
}

static _Thread_local int (*stop_ask)(void);

void tri_stop_ask_set(int (*ask)(void))
{
    stop_ask = ask;
}

int tri_stop_signal(void)
{
    const tri_sim_process *process = tri_sim_process_now();
    int number = process ? process->signal : atomic_load(&stop_number);

    return number == 0 && stop_ask ? stop_ask() : number;
}
