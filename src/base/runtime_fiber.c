/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime_fiber.c: stacks of their own and the switch between them, announced to the sanitizers and to valgrind.
 *
 * A stack is mapped, with a page below it that must not be touched: an overflow faults instead of writing elsewhere.
 * The switch keeps registers, floating-point environment and errno; contexts stay on the OS thread that made them.
 * On x86-64 it is a dozen instructions; elsewhere swapcontext, which also asks the kernel for the signal mask each
 * time.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/runtime_impl.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define FIBER_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(FIBER_ASAN)
#define FIBER_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__) && !defined(FIBER_TSAN)
#define FIBER_TSAN 1
#endif
#ifdef FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif
#ifdef TRI_VALGRIND
#include <valgrind/memcheck.h>
#endif

/* Bookkeeping of the switch itself is no business of ThreadSanitizer: contexts may be unordered. */
#if defined(FIBER_TSAN)
#define FIBER_UNSEEN __attribute__((no_sanitize("thread")))
#else
#define FIBER_UNSEEN
#endif

/* A hardware shadow stack must know of a switch, which swapcontext does. */
#if defined(__x86_64__) && !(defined(__CET__) && (__CET__ & 2))
#include <xmmintrin.h>

/* What the calling convention keeps: rbx, rbp, r12 to r15, and the two control words. */
void tri_context_jump(void **from, void *to) __attribute__((visibility("hidden")));
__asm__(".pushsection .text\n"
        ".hidden tri_context_jump\n"
        ".globl tri_context_jump\n"
        ".type tri_context_jump, @function\n"
        "tri_context_jump:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    subq $8, %rsp\n"
        "    stmxcsr (%rsp)\n"
        "    fnstcw 4(%rsp)\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    ldmxcsr (%rsp)\n"
        "    fldcw 4(%rsp)\n"
        "    addq $8, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size tri_context_jump, . - tri_context_jump\n"
        ".popsection\n");

/* machine: the stack pointer, which needs no memory of its own. */
static bool machine_create(tri_context *context)
{
    context->machine = NULL;
    return true;
}

/* Unseen: who ran on this stack before is nobody's business. */
FIBER_UNSEEN static void machine_prepare(tri_context *context, void (*entry)(void))
{
    /* As tri_context_jump leaves it: control words, six registers, where to continue, and no caller above. */
    volatile uint64_t *frame = (uint64_t *)((char *)context->stack + context->stack_nbytes) - 9;
    uint16_t x87;

    __asm__ volatile("fnstcw %0" : "=m"(x87));
    for (int i = 0; i < 9; i++) /* no memset, which sanitizers see */
        frame[i] = 0;
    frame[0] = (uint64_t)_mm_getcsr() | (uint64_t)x87 << 32;
    frame[7] = (uint64_t)(uintptr_t)entry;
    context->machine = (void *)frame;
}

FIBER_UNSEEN static void machine_switch(tri_context *from, tri_context *to)
{
    tri_context_jump(&from->machine, to->machine);
}

static void machine_destroy(tri_context *context)
{
    context->machine = NULL;
}
#else
#include <ucontext.h>

static bool machine_create(tri_context *context)
{
    context->machine = tri_alloc_zero(1, sizeof(ucontext_t));
    return context->machine != NULL;
}

static void machine_prepare(tri_context *context, void (*entry)(void))
{
    ucontext_t *machine = context->machine;

    TRI_ASSERT(getcontext(machine) == 0);
    machine->uc_stack.ss_sp = context->stack;
    machine->uc_stack.ss_size = context->stack_nbytes;
    makecontext(machine, entry, 0);
}

static void machine_switch(tri_context *from, tri_context *to)
{
    TRI_ASSERT(swapcontext(from->machine, to->machine) == 0);
}

static void machine_destroy(tri_context *context)
{
    tri_free(context->machine);
    context->machine = NULL;
}
#endif

/* The two sides of the switch in progress on this OS thread. */
static _Thread_local tri_context *switch_from, *switch_to;

tri_status tri_context_adopt(tri_context *context)
{
    *context = (tri_context){.stack = NULL};
    if (!machine_create(context))
        return TRI_ENOMEM;
#ifdef FIBER_TSAN
    context->race_fiber = __tsan_get_current_fiber();
#endif
    return TRI_OK;
}

static tri_status stack_map(tri_context *context, size_t wanted_nbytes)
{
    size_t page_nbytes = (size_t)sysconf(_SC_PAGESIZE);
    size_t stack_nbytes = (wanted_nbytes + page_nbytes - 1) / page_nbytes * page_nbytes;
    char *map = mmap(NULL, stack_nbytes + page_nbytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

    if (map == MAP_FAILED)
        return tri_fail(TRI_ENOMEM, "stack of a fiber: cannot map %zu bytes: %s", stack_nbytes, strerror(errno));
    if (mprotect(map, page_nbytes, PROT_NONE) != 0) {
        int error_number = errno;

        munmap(map, stack_nbytes + page_nbytes);
        return tri_fail(TRI_ENOMEM, "stack of a fiber: cannot guard it (vm.max_map_count?): %s",
                        strerror(error_number));
    }
    context->stack = map + page_nbytes;
    context->stack_nbytes = stack_nbytes;
    context->bottom = context->stack;
    context->bottom_nbytes = stack_nbytes;
#ifdef TRI_VALGRIND
    context->number = VALGRIND_STACK_REGISTER(context->stack, (char *)context->stack + stack_nbytes - 1);
#endif
    return TRI_OK;
}

tri_status tri_context_create(tri_context *context, size_t stack_nbytes, void (*entry)(void))
{
    tri_status status;

    if (stack_nbytes < TRI_CONTEXT_STACK_MIN || stack_nbytes > SIZE_MAX / 2)
        return tri_fail(TRI_EINVAL, "stack of a fiber: want at least %zu bytes, got %zu", TRI_CONTEXT_STACK_MIN,
                        stack_nbytes);
    *context = (tri_context){.stack = NULL};
    if (!machine_create(context))
        return TRI_ENOMEM;
    status = stack_map(context, stack_nbytes);
    if (status != TRI_OK) {
        machine_destroy(context);
        return status;
    }
    machine_prepare(context, entry);
#ifdef FIBER_TSAN
    context->race_fiber = __tsan_create_fiber(0);
#endif
    return TRI_OK;
}

void tri_context_renew(tri_context *context, void (*entry)(void))
{
#ifdef FIBER_ASAN
    __asan_unpoison_memory_region(context->stack, context->stack_nbytes);
#endif
#ifdef FIBER_TSAN
    if (!context->unordered) { /* a new one is expensive, and whoever says what comes before what needs none */
        __tsan_destroy_fiber(context->race_fiber);
        context->race_fiber = __tsan_create_fiber(0);
    }
#endif
#ifdef TRI_VALGRIND
    (void)VALGRIND_MAKE_MEM_UNDEFINED(context->stack, context->stack_nbytes);
#endif
    context->fake_stack = NULL;
    context->error_number = 0;
    machine_prepare(context, entry);
}

FIBER_UNSEEN void tri_context_entered(void)
{
#ifdef FIBER_ASAN
    /* Also tells where the stack is that was left, which is how the OS thread's own becomes known. */
    __sanitizer_finish_switch_fiber(switch_to->fake_stack, &switch_from->bottom, &switch_from->bottom_nbytes);
#endif
    errno = switch_to->error_number;
}

FIBER_UNSEEN void tri_context_switch(tri_context *from, tri_context *to, bool ended)
{
    from->error_number = errno;
    switch_from = from;
    switch_to = to;
#ifdef FIBER_ASAN
    __sanitizer_start_switch_fiber(ended ? NULL : &from->fake_stack, to->bottom, to->bottom_nbytes);
#else
    (void)ended;
#endif
#ifdef FIBER_TSAN
    __tsan_switch_to_fiber(to->race_fiber, to->unordered ? __tsan_switch_to_fiber_no_sync : 0);
#endif
    machine_switch(from, to);
    tri_context_entered();
}

void tri_context_pose(const tri_context *context)
{
#ifdef FIBER_TSAN
    __tsan_switch_to_fiber(context->race_fiber, 0);
#else
    (void)context;
#endif
}

void tri_context_destroy(tri_context *context)
{
    size_t page_nbytes = (size_t)sysconf(_SC_PAGESIZE);

    if (context->stack) {
#ifdef FIBER_ASAN
        /* The frames of a context that never returned have left their marks; the next mapping here must not see them.
         */
        __asan_unpoison_memory_region(context->stack, context->stack_nbytes);
#endif
#ifdef FIBER_TSAN
        __tsan_destroy_fiber(context->race_fiber);
#endif
#ifdef TRI_VALGRIND
        VALGRIND_STACK_DEREGISTER(context->number);
#endif
        munmap((char *)context->stack - page_nbytes, context->stack_nbytes + page_nbytes);
    }
    machine_destroy(context);
    *context = (tri_context){.stack = NULL};
}
