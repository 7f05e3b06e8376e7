/* SPDX-License-Identifier: Apache-2.0
 *
 * http.h: a few pages over HTTP, by libmicrohttpd, on a thread of its own.
 *
 * Nobody can hold it up: requests have HTTP_LIMIT_NBYTES, a connection has three seconds for all of its life, and one
 * loop serves all. GET and HEAD of the paths given, nothing else; no body is read.
 */
#ifndef TRI_MONITOR_HTTP_H
#define TRI_MONITOR_HTTP_H

#include "base/containers.h"

typedef struct tri_http_page {
    const char *path, *type;
    tri_status (*make)(void *arg, tri_string *out); /* on the server's thread */
} tri_http_page;

typedef struct tri_http tri_http;
/* address: PORT, HOST:PORT or [HOST]:PORT, HOST a number or localhost; without one loopback alone. Port 0: any. Pages
 * are borrowed, path NULL at the end. `offset` is added to the port, unless it is 0. */
tri_status tri_http_open(const char *address, int offset, const tri_http_page *pages, void *arg, tri_http **out);
/* "127.0.0.1:9100" */
const char *tri_http_address(const tri_http *http);
/* NULL does nothing. */
void tri_http_close(tri_http *http);
/* TRI_ECONFIG with what is wrong with an address. */
tri_status tri_http_address_check(const char *address);

#endif
