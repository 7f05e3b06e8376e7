/* SPDX-License-Identifier: Apache-2.0
 *
 * status.c: the message of the latest failure, one slot a thread (or fiber).
 *
 * Messages are composed in a local buffer first: the arguments may point into the slot itself (tri_last_error() as an
 * argument of tri_fail() is common). Nothing here allocates, so that "out of memory" can be reported.
 */
#include "base/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char own_slot[TRI_ERROR_NBYTES];
static _Thread_local char *slot; /* NULL: own_slot */

static const struct {
    const char *name, *text;
    tri_scope scope;
} codes[] = {
#define STATUS_ROW(code, scope, text) [code] = {#code, text, scope},
    TRI_STATUS_LIST(STATUS_ROW)
#undef STATUS_ROW
};

static bool is_known(tri_status status)
{
    return (unsigned)status < TRI_STATUS_COUNT;
}

const char *tri_status_name(tri_status status)
{
    return is_known(status) ? codes[status].name : "TRI_UNKNOWN";
}

const char *tri_status_text(tri_status status)
{
    return is_known(status) ? codes[status].text : "unknown status";
}

/* A number nobody knows (from a newer peer) is taken for the worst that leaves the process alive. */
tri_scope tri_status_scope(tri_status status)
{
    return is_known(status) ? codes[status].scope : TRI_SCOPE_GROUP;
}

static char *slot_now(void)
{
    return slot ? slot : own_slot;
}

const char *tri_last_error(void)
{
    return slot_now();
}

void tri_error_slot_swap(char *next)
{
    slot = next;
}

/* Stores the text as one line: bytes that would break a line or a terminal become spaces; a cut never splits a UTF-8
 * character. */
static void store(const char *text)
{
    char *to = slot_now();
    size_t nbytes = strnlen(text, TRI_ERROR_NBYTES - 1);
    if (text[nbytes] != '\0')
        while (nbytes > 0 && ((unsigned char)text[nbytes] & 0xc0) == 0x80)
            nbytes--;
    memmove(to, text, nbytes);
    to[nbytes] = '\0';
    for (size_t i = 0; i < nbytes; i++)
        if ((unsigned char)to[i] < 0x20 || to[i] == 0x7f)
            to[i] = ' ';
}

/* One byte more than a slot holds, so that store() sees that a text was cut and where. */
#define COMPOSE_NBYTES (TRI_ERROR_NBYTES + 1)

tri_status(tri_fail)(tri_status code, const char *format, ...)
{
    char text[COMPOSE_NBYTES];
    va_list args;
    va_start(args, format);
    int written = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    store(written < 0 ? tri_status_text(code) : text);
    return code;
}

tri_status(tri_fail_context)(tri_status code, const char *format, ...)
{
    char context[COMPOSE_NBYTES], text[2 * COMPOSE_NBYTES];
    va_list args;
    va_start(args, format);
    int written = vsnprintf(context, sizeof(context), format, args);
    va_end(args);
    const char *before = slot_now();
    size_t nbytes = strlen(context);
    if (written >= 0 && strncmp(before, context, nbytes) == 0 && before[nbytes] == ':')
        return code; /* another rank has failed in the same place, and said where */
    snprintf(text, sizeof(text), "%s: %s", written < 0 ? tri_status_text(code) : context,
             before[0] ? before : tri_status_text(code));
    store(text);
    return code;
}

tri_status tri_fail_copy(tri_status code, const char *message)
{
    store(message ? message : "");
    return code;
}

void tri_assert_failed(const char *file, int line, const char *condition)
{
    fprintf(stderr, "trireme: bug at %s:%d: not true: %s\n", file, line, condition);
    abort();
}
