/* SPDX-License-Identifier: Apache-2.0
 *
 * closed.c: mappings without access, and the handler that names the one that was touched.
 *
 * The handler prints, gives the signal back to whoever had it before, and returns: the touch happens again, and ends
 * the process as it would have without a name.
 */
#include "base/closed.h"

#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <pthread.h>

#define NAMES      64
#define FRAMES_MAX 24

static struct closed_name {
    atomic_uintptr_t first; /* 0: free; 1: being filled in */
    size_t nbytes;
    const char *what;
} names[NAMES];
static struct sigaction before;
static pthread_mutex_t catching = PTHREAD_MUTEX_INITIALIZER;

static const struct closed_name *name_find(uintptr_t at)
{
    for (size_t i = 0; i < NAMES; i++) {
        uintptr_t first = atomic_load(&names[i].first);
        if (first > 1 && at >= first && at - first < names[i].nbytes)
            return &names[i];
    }
    return NULL;
}

static void touched(int number, siginfo_t *info, void *context)
{
    const struct closed_name *name = name_find((uintptr_t)info->si_addr);
    void *frames[FRAMES_MAX];
    char line[256];
    (void)context;
    if (name) {
        int nbytes = snprintf(line, sizeof(line), "error: %s at %p\n", name->what, info->si_addr);
        ssize_t put = write(STDERR_FILENO, line, (size_t)nbytes);
        (void)put; /* there is nobody else to tell */
        backtrace_symbols_fd(frames, backtrace(frames, FRAMES_MAX), STDERR_FILENO);
    }
    sigaction(number, &before, NULL);
}

/* Again where somebody has taken the signal since. */
static void touches_catch(void)
{
    struct sigaction action = {.sa_sigaction = touched, .sa_flags = SA_SIGINFO}, now;
    void *load[1];
    (void)backtrace(load, 1); /* loads what it needs now, not inside a signal */
    sigemptyset(&action.sa_mask);
    TRI_ASSERT(pthread_mutex_lock(&catching) == 0);
    TRI_ASSERT(sigaction(SIGSEGV, NULL, &now) == 0);
    if (now.sa_sigaction != touched) {
        before = now;
        TRI_ASSERT(sigaction(SIGSEGV, &action, NULL) == 0);
    }
    TRI_ASSERT(pthread_mutex_unlock(&catching) == 0);
}

void *tri_closed_reserve(size_t nbytes)
{
    void *space = mmap(NULL, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space != MAP_FAILED)
        return space;
    tri_fail(TRI_ENOMEM, "address space: want %zu bytes, got none: %s", nbytes, strerror(errno));
    return NULL;
}

void tri_closed_release(void *space, size_t nbytes)
{
    if (space)
        munmap(space, nbytes);
}

tri_status tri_closed_open(void *pages, size_t nbytes)
{
    if (mprotect(pages, nbytes, PROT_READ | PROT_WRITE) != 0)
        return tri_fail(TRI_ENOMEM, "memory: want %zu bytes, got none: %s", nbytes, strerror(errno));
    return TRI_OK;
}

void tri_closed_close(void *pages, size_t nbytes)
{
    TRI_ASSERT(madvise(pages, nbytes, MADV_DONTNEED) == 0);
    TRI_ASSERT(mprotect(pages, nbytes, PROT_NONE) == 0);
}

void tri_closed_name(const void *first, size_t nbytes, const char *what)
{
    touches_catch();
    for (size_t i = 0; i < NAMES; i++) {
        uintptr_t none = 0;
        if (!atomic_compare_exchange_strong(&names[i].first, &none, 1))
            continue;
        names[i].nbytes = nbytes;
        names[i].what = what;
        atomic_store(&names[i].first, (uintptr_t)first);
        return;
    }
}

void tri_closed_unname(const void *first)
{
    for (size_t i = 0; first && i < NAMES; i++)
        if (atomic_load(&names[i].first) == (uintptr_t)first)
            atomic_store(&names[i].first, 0);
}
