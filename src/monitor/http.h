/* SPDX-License-Identifier: Apache-2.0
 *
 * http.h: a few pages over HTTP, by libmicrohttpd, on a thread of its own.
 *
 * Nobody can hold it up: requests have HTTP_LIMIT_NBYTES and three seconds to come, of many that have not come yet the
 * oldest are dropped, an address has a quota, and one loop serves all. GET and HEAD of the paths given, nothing else;
 * no body is read.
 */
#ifndef TRI_MONITOR_HTTP_H
#define TRI_MONITOR_HTTP_H

#include "base/containers.h"

typedef struct tri_http tri_http;
/* What was asked for. */
typedef struct tri_http_request {
    void *connection;
    unsigned code; /* of the answer; 200 unless the page says otherwise */
} tri_http_request;
/* A word of the address behind the '?', NULL: it is not there. */
const char *tri_http_word(const tri_http_request *request, const char *name);

typedef struct tri_http_page {
    const char *path, *type;
    tri_status (*make)(void *arg, tri_http_request *request, tri_string *out); /* on the server's thread */
    bool stream; /* continues with what tri_http_push() says, until the reader goes */
} tri_http_page;

typedef struct tri_http_setup {
    const char
        *address; /* PORT, HOST:PORT or [HOST]:PORT, HOST a number or localhost; without one loopback. Port 0: any */
    int offset;   /* is added to the port, unless that is 0 */
    const tri_http_page *pages; /* borrowed; path NULL at the end */
    void *arg;
    bool for_people; /* browsers: more cookies, more time for an answer */
    /* The header Host must be a number, localhost, this machine's name or one of these (separated by commas; NULL: no
     * more). A program may send none. */
    const char *names;
    const char *tls_cert, *tls_key; /* files, PEM; NULL or "": in clear */
    const char *token; /* and ?token= of the first request, and a cookie of all others, must be this. NULL: none */
    bool (*turn)(void *arg, tri_http *http); /* on the server's thread, at least ten times a second; NULL: nothing to
                                                do. true: there is more to do, at once */
} tri_http_setup;
tri_status tri_http_open(const tri_http_setup *setup, tri_http **out);
/* To the readers of all streams; by `turn` only. */
void tri_http_push(tri_http *http, const char *text, size_t nbytes);
/* "127.0.0.1:9100" */
const char *tri_http_address(const tri_http *http);
/* "https" or "http" */
const char *tri_http_scheme(const tri_http *http);
/* NULL does nothing. */
void tri_http_close(tri_http *http);
/* TRI_ECONFIG with what is wrong with an address. */
tri_status tri_http_address_check(const char *address);

#endif
