/* SPDX-License-Identifier: Apache-2.0
 *
 * status.h: how every Trireme call says what happened.
 *
 * A call that can fail returns a tri_status. Its *scope* says what is lost: the call alone (try something else), the
 * group (dead on all ranks: form the next one), or the process (save if you can and leave). The text of the latest
 * failure of this thread is in tri_last_error(): one line, with the thing, what was wanted and what was found.
 */
#ifndef TRIREME_STATUS_H
#define TRIREME_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#ifndef TRI_API
#if defined(__GNUC__)
#define TRI_API __attribute__((visibility("default")))
#else
#define TRI_API
#endif
#endif

/* What a failure costs. */
typedef enum tri_scope { TRI_SCOPE_CALL, TRI_SCOPE_GROUP, TRI_SCOPE_PROCESS } tri_scope;

/* code, scope, text. Order is part of the wire format (an abort carries the number): append only. */
#define TRI_STATUS_LIST(X)                                                                                             \
    X(TRI_OK, TRI_SCOPE_CALL, "ok")                                                                                    \
    X(TRI_EINVAL, TRI_SCOPE_CALL, "invalid argument")                                                                  \
    X(TRI_ENOMEM, TRI_SCOPE_PROCESS, "out of memory")                                                                  \
    X(TRI_EIO, TRI_SCOPE_CALL, "input/output failed")                                                                  \
    X(TRI_ENOTFOUND, TRI_SCOPE_CALL, "not found")                                                                      \
    X(TRI_EFORMAT, TRI_SCOPE_CALL, "damaged or of an unknown format")                                                  \
    X(TRI_ECONFIG, TRI_SCOPE_CALL, "wrong configuration")                                                              \
    X(TRI_EUNSUPPORTED, TRI_SCOPE_CALL, "not supported")                                                               \
    X(TRI_ENUMERIC, TRI_SCOPE_CALL, "not a number")                                                                    \
    X(TRI_ETIMEOUT, TRI_SCOPE_GROUP, "time limit passed")                                                              \
    X(TRI_EPEER, TRI_SCOPE_GROUP, "lost a peer")                                                                       \
    X(TRI_EMISMATCH, TRI_SCOPE_GROUP, "ranks called different things")                                                 \
    X(TRI_EABORT, TRI_SCOPE_GROUP, "another rank failed")                                                              \
    X(TRI_ECANCELED, TRI_SCOPE_CALL, "canceled")                                                                       \
    X(TRI_EINTERNAL, TRI_SCOPE_PROCESS, "a bug in Trireme")

typedef enum tri_status {
#define TRI_STATUS_ENUM(code, scope, text) code,
    TRI_STATUS_LIST(TRI_STATUS_ENUM)
#undef TRI_STATUS_ENUM
        TRI_STATUS_COUNT
} tri_status;

/* "TRI_EIO"; never NULL. */
TRI_API const char *tri_status_name(tri_status status);
/* "input/output failed"; never NULL. */
TRI_API const char *tri_status_text(tri_status status);
TRI_API tri_scope tri_status_scope(tri_status status);
/* The latest failure of the calling thread, one line, "" when none. Valid until the next failing call. */
TRI_API const char *tri_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
