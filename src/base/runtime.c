/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime.c: sends each call to the runtime of its caller, and holds what both runtimes share.
 *
 * A call made by a fiber meets the simulation, every other call the real machine. A thread is joined by the runtime
 * that started it.
 */
#include "base/runtime.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>

#include "base/runtime_impl.h"
#include "base/sim_process.h"
#include "base/stop.h"
#include "base/wait.h"

static const tri_runtime_ops *runtime_here(void)
{
    return tri_sim_active() ? &tri_runtime_sim : &tri_runtime_real;
}

int64_t tri_now_ns(void)
{
    return runtime_here()->now_ns();
}

int64_t tri_wall_ns(void)
{
    return runtime_here()->wall_ns();
}

int64_t tri_thread_cpu_ns(void)
{
    const tri_runtime_ops *here = runtime_here();
    return here->thread_cpu_ns ? here->thread_cpu_ns() : 0;
}

int64_t tri_deadline_after_ms(int64_t ms)
{
    int64_t ns, deadline_ns;

    if (ms < 0 || __builtin_mul_overflow(ms, TRI_NS_PER_MS, &ns) ||
        __builtin_add_overflow(tri_now_ns(), ns, &deadline_ns))
        return TRI_FOREVER;
    return deadline_ns;
}

void tri_sleep_ns(int64_t ns)
{
    runtime_here()->sleep_ns(ns);
}

void tri_yield(void)
{
    runtime_here()->yield();
}

void tri_added(size_t nbytes)
{
    if (runtime_here()->added)
        runtime_here()->added(nbytes);
}

void tri_entropy(void *bytes, size_t nbytes)
{
    runtime_here()->entropy(bytes, nbytes);
}

void tri_thread_init(tri_thread *thread, const tri_runtime_ops *runtime, const char *name, void (*body)(void *arg),
                     void *arg)
{
    size_t nbytes = strnlen(name, sizeof thread->name - 1);

    thread->runtime = runtime;
    memcpy(thread->name, name, nbytes);
    thread->name[nbytes] = 0;
    thread->body = body;
    thread->arg = arg;
}

tri_status tri_thread_start(tri_thread **out, const char *name, void (*body)(void *arg), void *arg)
{
    *out = NULL;
    return runtime_here()->thread_start(out, name, body, arg);
}

void tri_thread_join(tri_thread *thread)
{
    if (thread)
        thread->runtime->thread_join(thread);
}

void tri_mutex_lock(tri_mutex *mutex)
{
    runtime_here()->mutex_lock(mutex);
}

void tri_mutex_unlock(tri_mutex *mutex)
{
    runtime_here()->mutex_unlock(mutex);
}

bool tri_cond_wait(tri_cond *cond, tri_mutex *mutex, int64_t deadline_ns)
{
    return runtime_here()->cond_wait(cond, mutex, deadline_ns);
}

void tri_cond_signal(tri_cond *cond)
{
    runtime_here()->cond_wake(cond, false);
}

void tri_cond_broadcast(tri_cond *cond)
{
    runtime_here()->cond_wake(cond, true);
}

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
    static const char begin[] = "error: stopped by a signal ";
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

int tri_cores_online(void)
{
    long count = sysconf(_SC_NPROCESSORS_ONLN);

    return count > 0 ? (int)count : 1;
}
