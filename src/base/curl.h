/* SPDX-License-Identifier: Apache-2.0
 *
 * curl.h: libcurl, loaded when it is first asked for: linked, it would bring thirty libraries into each start.
 *
 * Only what is in the table is called; where the build had no libcurl this file is not there (TRI_HAS_CURL).
 */
#ifndef TRI_BASE_CURL_H
#define TRI_BASE_CURL_H

#define CURL_DISABLE_TYPECHECK /* it would make macros of the names in the table below */
#include <curl/curl.h>

#include "base/status.h"

#define TRI_CURL_CALLS(X)                                                                                              \
    X(curl_global_init)                                                                                                \
    X(curl_easy_init)                                                                                                  \
    X(curl_easy_setopt)                                                                                                \
    X(curl_easy_perform)                                                                                               \
    X(curl_easy_getinfo)                                                                                               \
    X(curl_easy_strerror)                                                                                              \
    X(curl_easy_cleanup)                                                                                               \
    X(curl_slist_append)                                                                                               \
    X(curl_slist_free_all)

typedef struct tri_curl_calls {
#define TRI_CURL_FIELD(name) __typeof__(name) *name;
    TRI_CURL_CALLS(TRI_CURL_FIELD)
#undef TRI_CURL_FIELD
} tri_curl_calls;

/* TRI_ENOTFOUND: it is not on this machine. Any thread. */
tri_status tri_curl_open(const tri_curl_calls **calls);

#endif
