/* SPDX-License-Identifier: Apache-2.0
 *
 * http.c: libmicrohttpd's loop run by a thread of ours, which also ends connections that last too long: its own limit
 * begins anew with each byte that comes, so that one that sends a byte now and then would stay for ever.
 */
#include "monitor/http.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/runtime.h"

#define HTTP_LIMIT_NBYTES 8192u /* of a request with its headers, and what the library keeps of it */
#define CONNECTIONS       64u
#define LIFE_NS           (3 * TRI_NS_PER_S)
#define IDLE_S            2u
#define TURN_MS           100

/* A connection; those that are open are a list, the newest first. */
typedef struct http_line {
    struct http_line *next, *before;
    int64_t start_ns;
    int fd;
} http_line;

struct tri_http {
    struct MHD_Daemon *daemon;
    const tri_http_page *pages;
    void *arg;
    char address[128];
    tri_thread *thread;
    atomic_bool stop;
    http_line *lines; /* the thread's */
};

/* --- addresses --- */

typedef struct http_address {
    struct sockaddr_storage place;
    char host[64];
    int port;
    bool six;
} http_address;

static tri_status address_read(const char *text, http_address *out)
{
    *out = (http_address){.host = "127.0.0.1"};
    const char *colon = strrchr(text, ':'), *port = colon ? colon + 1 : text;
    size_t length = colon ? (size_t)(colon - text) : 0;
    char *end;
    long number = strtol(port, &end, 10);
    bool bracket = length >= 2 && text[0] == '[' && text[length - 1] == ']';
    bool good = *port >= '0' && *port <= '9' && *end == 0 && number >= 0 && number <= 65535 && length < 60;
    if (good && length > 0)
        snprintf(out->host, sizeof(out->host), "%.*s", (int)(length - 2 * bracket), text + bracket);
    if (strcmp(out->host, "localhost") == 0)
        snprintf(out->host, sizeof(out->host), "127.0.0.1");
    out->port = (int)number;
    struct sockaddr_in *four = (struct sockaddr_in *)&out->place;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&out->place;
    out->six = good && inet_pton(AF_INET, out->host, &four->sin_addr) != 1;
    if (good && out->six)
        good = bracket && inet_pton(AF_INET6, out->host, &six->sin6_addr) == 1;
    return good ? TRI_OK
                : tri_fail(TRI_ECONFIG,
                           "want an address to serve at, such as 9100, 0.0.0.0:9100 or [::1]:9100 (numbers, or "
                           "localhost), found '%.80s'",
                           text);
}

tri_status tri_http_address_check(const char *address)
{
    http_address read;
    return address_read(address, &read);
}

/* --- requests --- */

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned code, const char *type, const char *text,
                              size_t nbytes)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(nbytes, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    if (code >= 400)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned code, const char *text)
{
    return answer(connection, code, "text/plain; charset=utf-8", text, strlen(text));
}

static enum MHD_Result page_answer(tri_http *http, const tri_http_page *page, struct MHD_Connection *connection)
{
    tri_string text = {0};
    tri_status status = page->make(http->arg, &text);
    enum MHD_Result result =
        status == TRI_OK ? answer(connection, MHD_HTTP_OK, page->type, tri_string_text(&text), text.nbytes)
                         : refuse(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "not now: the run's log says why\n");
    if (status != TRI_OK)
        tri_log(TRI_LOG_WARN, "%s cannot be served: %s", page->path, tri_last_error());
    tri_string_fini(&text);
    return result;
}

static enum MHD_Result request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                               const char *version, const char *upload, size_t *upload_nbytes, void **state)
{
    tri_http *http = arg;
    (void)version;
    (void)upload;
    (void)upload_nbytes;
    (void)state;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "want GET\n");
    for (const tri_http_page *page = http->pages; page->path; page++)
        if (strcmp(page->path, url) == 0)
            return page_answer(http, page, connection);
    return refuse(connection, MHD_HTTP_NOT_FOUND, "there is no such page\n");
}

/* --- connections --- */

static void line_note(void *arg, struct MHD_Connection *connection, void **state,
                      enum MHD_ConnectionNotificationCode what)
{
    tri_http *http = arg;
    http_line *line = *state;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        *state = line = info ? tri_alloc_zero(1, sizeof(*line)) : NULL;
        if (!line)
            return;
        *line = (http_line){.next = http->lines, .start_ns = tri_now_ns(), .fd = info->connect_fd};
        if (http->lines)
            http->lines->before = line;
        http->lines = line;
    } else if (line) {
        *(line->before ? &line->before->next : &http->lines) = line->next;
        if (line->next)
            line->next->before = line->before;
        tri_free(line);
        *state = NULL;
    }
}

static void serve(void *arg)
{
    tri_http *http = arg;
    while (!atomic_load(&http->stop)) {
        MHD_run_wait(http->daemon, TURN_MS);
        int64_t old_ns = tri_now_ns() - LIFE_NS;
        for (const http_line *line = http->lines; line; line = line->next)
            if (line->start_ns < old_ns)
                shutdown(line->fd, SHUT_RDWR);
    }
}

static tri_status start(tri_http *http, http_address *at)
{
    if (at->six) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)&at->place;
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)at->port);
    } else {
        struct sockaddr_in *four = (struct sockaddr_in *)&at->place;
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)at->port);
    }
    http->daemon = MHD_start_daemon(MHD_USE_EPOLL | (at->six ? MHD_USE_IPv6 : 0u), (uint16_t)at->port, NULL, NULL,
                                    request, http, MHD_OPTION_SOCK_ADDR, &at->place, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                    (size_t)HTTP_LIMIT_NBYTES, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS,
                                    MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_NOTIFY_CONNECTION, line_note,
                                    http, MHD_OPTION_END);
    if (!http->daemon)
        return tri_fail(TRI_EIO,
                        "cannot serve at %s port %d: another program may be there, or the address is not of "
                        "this machine",
                        at->host, at->port);
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT);
    snprintf(http->address, sizeof(http->address), at->six ? "[%s]:%d" : "%s:%d", at->host,
             info ? info->port : at->port);
    return tri_thread_start(&http->thread, "http", serve, http);
}

tri_status tri_http_open(const char *address, int offset, const tri_http_page *pages, void *arg, tri_http **out)
{
    http_address at;
    TRI_TRY(address_read(address, &at));
    at.port += at.port > 0 ? offset : 0;
    tri_http *http = tri_alloc_zero(1, sizeof(*http));
    if (!http)
        return TRI_ENOMEM;
    http->pages = pages;
    http->arg = arg;
    tri_status status = start(http, &at);
    if (status != TRI_OK) {
        tri_http_close(http);
        return status;
    }
    *out = http;
    return TRI_OK;
}

const char *tri_http_address(const tri_http *http)
{
    return http->address;
}

void tri_http_close(tri_http *http)
{
    if (!http)
        return;
    atomic_store(&http->stop, true);
    if (http->thread)
        tri_thread_join(http->thread);
    if (http->daemon)
        MHD_stop_daemon(http->daemon);
    tri_free(http);
}
