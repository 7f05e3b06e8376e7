/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime.c: sends each call to the runtime of its caller.
 *
 * A call that a fiber makes runs in the simulation, every other call on the real machine. A thread is joined by the
 * runtime that started it.
 */
#include "base/runtime.h"

#include <string.h>
#include <unistd.h>

#include "base/runtime_impl.h"
#include "base/runtime_sched.h"

bool tri_sim_active(void)
{
    return tri_fiber_now != NULL;
}

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

int tri_cores_online(void)
{
    long count = sysconf(_SC_NPROCESSORS_ONLN);

    return count > 0 ? (int)count : 1;
}
