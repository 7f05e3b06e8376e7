/* SPDX-License-Identifier: Apache-2.0
 *
 * status.h: how a failure starts and travels inside the library.
 *
 * The origin speaks (tri_fail); callers pass on (TRI_TRY) or add what only they know (TRI_TRY_IN). One message per
 * condition: the thing, the wanted, the got.
 */
#ifndef TRI_BASE_STATUS_H
#define TRI_BASE_STATUS_H

#include <stddef.h>
#include <stdint.h>
#include <trireme/status.h>

/* Records the message for this thread (cut at 1023 bytes, control bytes replaced) and returns `code`. */
tri_status tri_fail(tri_status code, const char *format, ...) __attribute__((format(printf, 2, 3), cold));
/* Puts the context in front of the message that is set, if it is not there yet: "<context>: <message>".
 * Returns `code`. */
tri_status tri_fail_context(tri_status code, const char *format, ...) __attribute__((format(printf, 2, 3), cold));
/* Copies a message received from elsewhere (another thread, another rank) into this thread's slot. Returns `code`. */
tri_status tri_fail_copy(tri_status code, const char *message);

/* The same calls, so that the compiler sees that what comes back is `code`: without it gcc -O3 takes out parameters for
 * uninitialized after TRI_TRY. */
#define tri_fail(code, ...)                                                                                            \
    __extension__({                                                                                                    \
        const tri_status tri_fail_code_ = (code);                                                                      \
        (void)(tri_fail)(tri_fail_code_, __VA_ARGS__);                                                                 \
        tri_fail_code_;                                                                                                \
    })
#define tri_fail_context(code, ...)                                                                                    \
    __extension__({                                                                                                    \
        const tri_status tri_fail_context_code_ = (code);                                                              \
        (void)(tri_fail_context)(tri_fail_context_code_, __VA_ARGS__);                                                 \
        tri_fail_context_code_;                                                                                        \
    })

/* Passes a failure on. */
#define TRI_TRY(call)                                                                                                  \
    do {                                                                                                               \
        tri_status tri_try_status_ = (call);                                                                           \
        if (tri_try_status_ != TRI_OK)                                                                                 \
            return tri_try_status_;                                                                                    \
    } while (0)

/* Passes a failure on, adding what only this caller knows: TRI_TRY_IN(load(p), "while loading step %ld", step). */
#define TRI_TRY_IN(call, ...)                                                                                          \
    do {                                                                                                               \
        tri_status tri_try_status_ = (call);                                                                           \
        if (tri_try_status_ != TRI_OK)                                                                                 \
            return tri_fail_context(tri_try_status_, __VA_ARGS__);                                                     \
    } while (0)

/* For our own bugs only: prints file, line and condition, then aborts. */
void tri_assert_failed(const char *file, int line, const char *condition) __attribute__((noreturn, cold));
#define TRI_ASSERT(condition) ((condition) ? (void)0 : tri_assert_failed(__FILE__, __LINE__, #condition))
/* Checked in debug builds only. */
#ifdef NDEBUG
#define TRI_DASSERT(condition) ((void)0)
#else
#define TRI_DASSERT(condition) TRI_ASSERT(condition)
#endif

#define TRI_COUNT_OF(array)                     (sizeof(array) / sizeof((array)[0]))
#define tri_container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/* The runtime gives each fiber a slot of its own: swaps the message buffer of this OS thread (NULL = its own). */
void tri_error_slot_swap(char *slot);
#define TRI_ERROR_NBYTES 1024

static inline int64_t tri_int64_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t tri_int64_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
