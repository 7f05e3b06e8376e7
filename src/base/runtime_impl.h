/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime_impl.h: what the files of the runtime share: the table of calls, the thread's common part, contexts.
 *
 * For runtime*.c only. A context is a stack and a place to continue from; it knows nothing of scheduling.
 */
#ifndef TRI_BASE_RUNTIME_IMPL_H
#define TRI_BASE_RUNTIME_IMPL_H

#include "base/runtime.h"

#define TRI_THREAD_NAME_NBYTES 32

/* The calls that differ between the two runtimes; slots are filled in both, but where NULL is said to mean something.
 */
typedef struct tri_runtime_ops {
    const char *name;
    int64_t (*now_ns)(void);
    int64_t (*wall_ns)(void);
    int64_t (*thread_cpu_ns)(void); /* NULL: nobody counts it */
    void (*sleep_ns)(int64_t ns);
    void (*yield)(void);
    void (*added)(size_t nbytes); /* NULL: its time has passed */
    void (*entropy)(void *bytes, size_t nbytes);
    tri_status (*thread_start)(tri_thread **out, const char *name, void (*body)(void *arg), void *arg);
    void (*thread_join)(tri_thread *thread);
    void (*mutex_lock)(tri_mutex *mutex);
    void (*mutex_unlock)(tri_mutex *mutex);
    bool (*cond_wait)(tri_cond *cond, tri_mutex *mutex, int64_t deadline_ns);
    void (*cond_wake)(tri_cond *cond, bool everybody);
} tri_runtime_ops;

extern const tri_runtime_ops tri_runtime_real;
extern const tri_runtime_ops tri_runtime_sim;

/* What a thread and a fiber have in common. */
struct tri_thread {
    const tri_runtime_ops *runtime; /* the one that started it, and so the one that joins it */
    char name[TRI_THREAD_NAME_NBYTES];
    void (*body)(void *arg);
    void *arg;
};

void tri_thread_init(tri_thread *thread, const tri_runtime_ops *runtime, const char *name, void (*body)(void *arg),
                     void *arg);

typedef struct tri_context {
    void *machine;       /* saved registers */
    void *stack;         /* lowest usable byte; the guard page is below. NULL: the OS thread's own stack */
    size_t stack_nbytes; /* without the guard page */
    const void *bottom;  /* of the stack, for AddressSanitizer, with its length */
    size_t bottom_nbytes;
    void *fake_stack; /* AddressSanitizer's, while switched away */
    void *race_fiber; /* ThreadSanitizer's */
    bool unordered;   /* a switch to it is no edge for ThreadSanitizer: whoever switches says what comes before what */
    unsigned number;  /* valgrind's, of the stack */
    int error_number; /* errno, while switched away */
} tri_context;

/* The smallest stack a context accepts. */
#define TRI_CONTEXT_STACK_MIN ((size_t)16 << 10)

/* The context of the running OS thread: a place to come back to. */
tri_status tri_context_adopt(tri_context *context);
/* A new stack on which entry() starts at the first switch; entry must not return, it switches away for good. */
tri_status tri_context_create(tri_context *context, size_t stack_nbytes, void (*entry)(void));
/* The stack of one that has ended, for another that starts at entry(). */
void tri_context_renew(tri_context *context, void (*entry)(void));
/* Continues at `to`; returns when somebody switches back to `from`. ended: nobody will. */
void tri_context_switch(tri_context *from, tri_context *to, bool ended);
/* The first thing entry() calls. */
void tri_context_entered(void);
/* Acts for the sanitizers as another context without switching; used to undo what an abandoned one did. */
void tri_context_pose(const tri_context *context);
/* Frees the stack; not from the context itself. A context of zeros is fine. */
void tri_context_destroy(tri_context *context);

#endif
