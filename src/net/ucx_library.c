/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_library.c: loads libucp and keeps it from printing and from catching signals.
 */
#include "net/ucx_library.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <ucs/debug/log_def.h>

#include "base/log.h"

#define LIBRARY "libucp.so.0"

static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
enum { SIGNAL_COUNT = sizeof(signals) / sizeof(signals[0]) };

static ucs_log_func_rc_t log_line(const char *file, unsigned line, const char *function, ucs_log_level_t level,
                                  const ucs_log_component_config_t *component, const char *format, va_list args)
{
    char text[512];

    (void)function;
    (void)level;
    (void)component;
    vsnprintf(text, sizeof text, format, args);
    tri_log(TRI_LOG_DEBUG, "ucx: %s (%s:%u)", text, file, line);
    return UCS_LOG_FUNC_RC_STOP;
}

/* Its constructors catch signals; whoever had them keeps them. */
static void *library_open(void)
{
    struct sigaction before[SIGNAL_COUNT];
    void *library;

    for (int i = 0; i < SIGNAL_COUNT; i++)
        sigaction(signals[i], NULL, &before[i]);
    library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    for (int i = 0; i < SIGNAL_COUNT; i++)
        sigaction(signals[i], &before[i], NULL);
    return library;
}

tri_status tri_ucx_load(tri_ucx_calls *calls)
{
    static atomic_flag quiet = ATOMIC_FLAG_INIT; /* the library's log is one for the process */
    void *library = library_open();
    __typeof__(ucs_log_push_handler) *push;

    if (!library)
        return tri_fail(TRI_ENOTFOUND, "comm.transport ucx: cannot load %s: %s (apt-get install libucx0)", LIBRARY,
                        dlerror());
#define FIND(name)                                                                                                     \
    calls->name = (__typeof__(name) *)dlsym(library, #name);                                                           \
    if (!calls->name)                                                                                                  \
        return tri_fail(TRI_ECONFIG, "comm.transport ucx: %s has no %s: want UCX 1.11 or later", LIBRARY, #name);
    TRI_UCX_CALLS(FIND)
#undef FIND
    push = (__typeof__(ucs_log_push_handler) *)dlsym(library, "ucs_log_push_handler");
    if (push && !atomic_flag_test_and_set(&quiet))
        push(log_line);
    return TRI_OK;
}
