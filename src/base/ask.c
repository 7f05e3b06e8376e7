/* SPDX-License-Identifier: Apache-2.0
 *
 * ask.c: the signal carries the number of steps, as sigqueue() sends one.
 */
#include "base/ask.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"

static atomic_int asked;

static void ask_arrived(int number, siginfo_t *info, void *context)
{
    int steps = info && info->si_code == SI_QUEUE ? info->si_value.sival_int : 0;
    (void)number;
    (void)context;
    atomic_store(&asked, steps < 1 ? TRI_ASK_STEPS : steps < TRI_ASK_MOST ? steps : TRI_ASK_MOST);
}

void tri_ask_catch(void)
{
    struct sigaction action = {.sa_sigaction = ask_arrived, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigemptyset(&action.sa_mask);
    TRI_ASSERT(sigaction(SIGUSR2, &action, NULL) == 0);
}

int tri_ask_take(void)
{
    return atomic_load_explicit(&asked, memory_order_relaxed) ? atomic_exchange(&asked, 0) : 0;
}

/* By the mask of signals that it catches. */
static bool listens(int pid)
{
    char path[64], *text = NULL;
    size_t nbytes;
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    const char *line = tri_fs_read(path, 1u << 16, &text, &nbytes) == TRI_OK ? strstr(text, "\nSigCgt:") : NULL;
    unsigned long long mask = line ? strtoull(line + sizeof("\nSigCgt:") - 1, NULL, 16) : 0;
    tri_free(text);
    return mask >> (SIGUSR2 - 1) & 1;
}

tri_status tri_ask_send(int pid, int steps)
{
    union sigval value = {.sival_int = steps};
    if (!listens(pid))
        return tri_fail(TRI_EUNSUPPORTED, "process %d does not listen to SIGUSR2 (yet)", pid);
    if (sigqueue(pid, SIGUSR2, value) != 0)
        return tri_fail(TRI_EIO, "process %d cannot be asked: %s", pid, strerror(errno));
    return TRI_OK;
}
