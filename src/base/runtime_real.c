/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime_real.c: the runtime of the real machine: pthreads and the monotonic clock.
 *
 * Deadlines are absolute on CLOCK_MONOTONIC, so that setting the wall clock disturbs nobody. A lock that is in use by a
 * fiber of a simulation in another thread is waited for like any other: fibers take the pthread lock too.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/chaos.h"
#include "base/memory.h"
#include "base/runtime_impl.h"

typedef struct real_thread {
    tri_thread base;
    pthread_t id;
} real_thread;

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    TRI_ASSERT(clock_gettime(clock, &now) == 0);
    return (int64_t)now.tv_sec * TRI_NS_PER_S + (int64_t)now.tv_nsec;
}

static struct timespec timespec_of(int64_t ns)
{
    if (ns < 0)
        ns = 0;
    return (struct timespec){.tv_sec = (time_t)(ns / TRI_NS_PER_S), .tv_nsec = (long)(ns % TRI_NS_PER_S)};
}

static int64_t real_now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static int64_t real_thread_cpu_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static int64_t real_wall_ns(void)
{
    return clock_ns(CLOCK_REALTIME) + tri_chaos_clock_ns();
}

static void real_yield(void)
{
    sched_yield();
}

static void real_sleep_ns(int64_t ns)
{
    int64_t until_ns;
    struct timespec until;

    if (ns <= 0) {
        real_yield();
        return;
    }
    if (__builtin_add_overflow(real_now_ns(), ns, &until_ns))
        until_ns = TRI_FOREVER;
    until = timespec_of(until_ns);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}

static void real_entropy(void *bytes, size_t nbytes)
{
    char *at = bytes;

    while (nbytes > 0) {
        ssize_t got = getrandom(at, nbytes, 0);

        TRI_ASSERT(got >= 0 || errno == EINTR);
        if (got > 0) {
            at += got;
            nbytes -= (size_t)got;
        }
    }
}

static void *thread_main(void *arg)
{
    real_thread *thread = arg;
    char name[16];

    /* The kernel's limit. */
    memcpy(name, thread->base.name, sizeof name - 1);
    name[sizeof name - 1] = 0;
    pthread_setname_np(pthread_self(), name);
    thread->base.body(thread->base.arg);
    return NULL;
}

static tri_status real_thread_start(tri_thread **out, const char *name, void (*body)(void *arg), void *arg)
{
    /* Faults of the thread itself must still reach their handlers (sanitizers, debuggers). */
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t blocked, before;
    int rc;
    real_thread *thread = tri_alloc_zero(1, sizeof *thread);

    if (!thread)
        return TRI_ENOMEM;
    tri_thread_init(&thread->base, &tri_runtime_real, name, body, arg);
    sigfillset(&blocked);
    for (size_t i = 0; i < TRI_COUNT_OF(faults); i++)
        sigdelset(&blocked, faults[i]);
    /* A thread inherits the mask of the one that starts it. */
    TRI_ASSERT(pthread_sigmask(SIG_SETMASK, &blocked, &before) == 0);
    rc = pthread_create(&thread->id, NULL, thread_main, thread);
    TRI_ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    if (rc != 0) {
        tri_free(thread);
        return tri_fail(TRI_ENOMEM, "thread %s: cannot be started: %s", name, strerror(rc));
    }
    *out = &thread->base;
    return TRI_OK;
}

static void real_thread_join(tri_thread *base)
{
    real_thread *thread = tri_container_of(base, real_thread, base);

    TRI_ASSERT(pthread_join(thread->id, NULL) == 0);
    tri_free(thread);
}

void tri_mutex_init(tri_mutex *mutex)
{
    *mutex = (tri_mutex){.sim = NULL};
    TRI_ASSERT(pthread_mutex_init(&mutex->real, NULL) == 0);
}

void tri_mutex_fini(tri_mutex *mutex)
{
    TRI_ASSERT(!mutex->waiters);
    TRI_ASSERT(pthread_mutex_destroy(&mutex->real) == 0);
}

static void real_mutex_lock(tri_mutex *mutex)
{
    TRI_ASSERT(pthread_mutex_lock(&mutex->real) == 0);
}

static void real_mutex_unlock(tri_mutex *mutex)
{
    TRI_ASSERT(pthread_mutex_unlock(&mutex->real) == 0);
}

void tri_cond_init(tri_cond *cond)
{
    pthread_condattr_t attributes;

    *cond = (tri_cond){.waiters = NULL};
    TRI_ASSERT(pthread_condattr_init(&attributes) == 0);
    TRI_ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    TRI_ASSERT(pthread_cond_init(&cond->real, &attributes) == 0);
    pthread_condattr_destroy(&attributes);
}

void tri_cond_fini(tri_cond *cond)
{
    TRI_ASSERT(!cond->waiters);
    TRI_ASSERT(pthread_cond_destroy(&cond->real) == 0);
}

static bool real_cond_wait(tri_cond *cond, tri_mutex *mutex, int64_t deadline_ns)
{
    struct timespec deadline;
    int rc;

    if (deadline_ns == TRI_FOREVER) {
        TRI_ASSERT(pthread_cond_wait(&cond->real, &mutex->real) == 0);
        return true;
    }
    deadline = timespec_of(deadline_ns);
    rc = pthread_cond_timedwait(&cond->real, &mutex->real, &deadline);
    TRI_ASSERT(rc == 0 || rc == ETIMEDOUT);
    return rc == 0;
}

static void real_cond_wake(tri_cond *cond, bool everybody)
{
    if (everybody)
        pthread_cond_broadcast(&cond->real);
    else
        pthread_cond_signal(&cond->real);
}

const tri_runtime_ops tri_runtime_real = {
    .name = "real",
    .now_ns = real_now_ns,
    .thread_cpu_ns = real_thread_cpu_ns,
    .wall_ns = real_wall_ns,
    .sleep_ns = real_sleep_ns,
    .yield = real_yield,
    .entropy = real_entropy,
    .thread_start = real_thread_start,
    .thread_join = real_thread_join,
    .mutex_lock = real_mutex_lock,
    .mutex_unlock = real_mutex_unlock,
    .cond_wait = real_cond_wait,
    .cond_wake = real_cond_wake,
};
