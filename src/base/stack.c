/* SPDX-License-Identifier: Apache-2.0
 *
 * stack.c: the signal, its handler, and names for addresses.
 *
 * The handler only calls backtrace(), whose library was loaded before, and stores; an answer that comes too late for
 * its question is not read.
 */
#include "base/stack.h"

#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <pthread.h>

#include "base/task.h"

#define FRAMES_MAX    48
#define HANDLER_DEPTH 2 /* of the handler and of the kernel's way into it */
#define SIGNAL_OFFSET 6

static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
static atomic_int ready;              /* 1: the handler is ours */
static atomic_int question, answered; /* numbers; equal: the frames are the answer */
static void *frames[FRAMES_MAX];
static int frame_count;

static int signal_number(void)
{
    return SIGRTMIN + SIGNAL_OFFSET;
}

static void stack_asked(int number, siginfo_t *info, void *context)
{
    int error = errno, now = atomic_load(&question);

    (void)number;
    (void)context;
    if (info->si_code == SI_TKILL && now != atomic_load(&answered)) {
        frame_count = backtrace(frames, FRAMES_MAX);
        atomic_store(&answered, now);
    }
    errno = error;
}

tri_status tri_stack_catch(void)
{
    struct sigaction action = {.sa_sigaction = stack_asked, .sa_flags = SA_SIGINFO | SA_RESTART}, before;
    void *load[1];
    tri_status status = TRI_OK;

    TRI_ASSERT(pthread_mutex_lock(&asking) == 0);
    if (!atomic_load(&ready)) {
        (void)backtrace(load, 1); /* loads what it needs now, not inside a signal */
        sigemptyset(&action.sa_mask);
        if (sigaction(signal_number(), NULL, &before) != 0 || before.sa_handler != SIG_DFL ||
            sigaction(signal_number(), &action, NULL) != 0)
            status = tri_fail(TRI_EUNSUPPORTED, "stack: signal %d is somebody else's", signal_number());
        else
            atomic_store(&ready, 1);
    }
    TRI_ASSERT(pthread_mutex_unlock(&asking) == 0);
    return status;
}

int tri_stack_task(void)
{
    return (int)syscall(SYS_gettid);
}

static size_t frames_print(char *text, size_t capacity)
{
    int first = frame_count > HANDLER_DEPTH ? HANDLER_DEPTH : 0;
    char **names = backtrace_symbols(frames + first, frame_count - first);
    size_t used = 0;

    for (int i = 0; names && i < frame_count - first && used < capacity; i++) {
        int nbytes = snprintf(text + used, capacity - used, "%s%s", i > 0 ? "\n" : "", names[i]);

        if (nbytes < 0 || (size_t)nbytes >= capacity - used) {
            text[used] = 0; /* whole lines */
            break;
        }
        used += (size_t)nbytes;
    }
    free(names);
    return used;
}

int tri_stack_ask(int task)
{
    int number;

    if (!atomic_load(&ready))
        return 0;
    number = atomic_fetch_add(&question, 1) + 1;
    return syscall(SYS_tgkill, getpid(), task, signal_number()) == 0 ? number : 0;
}

size_t tri_stack_take(int number, char *text, size_t capacity)
{
    size_t nbytes = 0;

    TRI_ASSERT(pthread_mutex_lock(&asking) == 0);
    if (number != 0 && capacity > 0 && atomic_load(&answered) == number && atomic_load(&question) == number)
        nbytes = frames_print(text, capacity);
    TRI_ASSERT(pthread_mutex_unlock(&asking) == 0);
    return nbytes;
}

bool tri_stack_needs_core(int thread)
{
    tri_task task;
    return tri_task_look(getpid(), thread, &task) && task.state == 'R';
}
