/* SPDX-License-Identifier: Apache-2.0
 *
 * http.c: libmicrohttpd's loop run by a thread of ours, which also ends connections that last too long: its own limit
 * starts again with each byte that comes, so that one that sends a byte now and then would stay for ever.
 */
#include "monitor/http.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/utsname.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/runtime.h"

#define HTTP_LIMIT_NBYTES 8192u  /* of a request with its headers, and what the library keeps of it */
#define PEOPLE_NBYTES     65536u /* browsers send cookies of all servers of this host */
#define CONNECTIONS       64u
#define ADDRESS_QUOTA     48u /* of these, by one address: a proxy may stand for many readers */
#define UNASKED           16  /* without a whole request; of more the oldest are dropped */
#define LIFE_NS           (3 * TRI_NS_PER_S)
#define PEOPLE_LIFE_NS    (60 * TRI_NS_PER_S) /* a phone far away */
#define IDLE_S            2u
#define TURN_MS           100
#define PEM_NBYTES        (1u << 20)
#define STREAMS           24u
#define STREAM_NBYTES     (1u << 20) /* that wait for one reader */

/* A connection; those that are open are a list, the newest first. */
typedef struct http_line {
    struct http_line *next, *before;
    int64_t start_ns;
    int fd;
    bool asked;  /* its request is there */
    bool ended;  /* about to be closed */
    bool stream; /* has no end */
} http_line;

typedef struct http_stream http_stream;

struct tri_http {
    struct MHD_Daemon *daemon;
    tri_http_setup setup;
    void *arg;
    char address[128];
    char token[80], cookie[32];
    char *names;      /* as in the setup */
    char *cert, *key; /* texts; NULL: in clear */
    char reason[200]; /* what the library said last */
    tri_thread *thread;
    atomic_bool stop;
    http_line *lines; /* the thread's */
    http_stream *streams;
    unsigned stream_count;
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
                           "localhost), got '%.80s'",
                           text);
}

tri_status tri_http_address_check(const char *address)
{
    http_address read;
    return address_read(address, &read);
}

/* --- requests --- */

const char *tri_http_word(const tri_http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static enum MHD_Result response_send(struct MHD_Connection *connection, unsigned code, const char *type,
                                     struct MHD_Response *response)
{
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(response, "Content-Security-Policy", policy);
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    /* One that stays open would be closed at some time while its reader is about to ask again. */
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned code, const char *type, const char *text,
                              size_t nbytes)
{
    return response_send(connection, code, type,
                         MHD_create_response_from_buffer(nbytes, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY));
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned code, const char *text)
{
    return answer(connection, code, "text/plain; charset=utf-8", text, strlen(text));
}

/* --- streams --- */

/* Somebody who reads what is pushed. */
struct http_stream {
    http_stream *next;
    tri_http *http;
    struct MHD_Connection *connection;
    tri_string text; /* from `at` on it is still to be sent */
    size_t at;
    bool waits; /* suspended: it has all there is */
};

static ssize_t stream_read(void *arg, uint64_t position, char *bytes, size_t room)
{
    http_stream *stream = arg;
    (void)position;
    const size_t left = stream->text.nbytes - stream->at, nbytes = left < room ? left : room;
    if (nbytes > 0) {
        memcpy(bytes, stream->text.text + stream->at, nbytes);
        stream->at += nbytes;
        return (ssize_t)nbytes;
    }
    tri_string_clear(&stream->text);
    stream->at = 0;
    if (atomic_load(&stream->http->stop))
        return MHD_CONTENT_READER_END_OF_STREAM;
    stream->waits = true;
    MHD_suspend_connection(stream->connection);
    return 0;
}

static void stream_close(void *arg)
{
    http_stream *stream = arg, **at = &stream->http->streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    stream->http->stream_count--;
    tri_string_fini(&stream->text);
    tri_free(stream);
}

static enum MHD_Result stream_open(tri_http *http, struct MHD_Connection *connection, const char *type,
                                   tri_string *text)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    http_stream *stream = http->stream_count < STREAMS ? tri_alloc_zero(1, sizeof(*stream)) : NULL;
    http_line *line = info ? info->socket_context : NULL;
    if (!stream || !line) {
        tri_free(stream);
        return refuse(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "too many watch already\n");
    }
    *stream = (http_stream){http->streams, http, connection, *text, 0, false};
    *text = (tri_string){0};
    http->streams = stream;
    http->stream_count++;
    line->stream = true;
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, stream_read, stream, stream_close);
    if (!response)
        stream_close(stream);
    return response_send(connection, MHD_HTTP_OK, type, response);
}

static void stream_wake(http_stream *stream)
{
    if (stream->waits)
        MHD_resume_connection(stream->connection);
    stream->waits = false;
}

void tri_http_push(tri_http *http, const char *text, size_t nbytes)
{
    for (http_stream *stream = http->streams; stream; stream = stream->next) {
        /* One that does not read misses some: what comes later says all that is so then. */
        if (stream->text.nbytes - stream->at < STREAM_NBYTES)
            (void)tri_string_append_bytes(&stream->text, text, nbytes);
        stream_wake(stream);
    }
}

/* What a page that could not be made is answered with. */
static unsigned code_of(tri_status status)
{
    return status == TRI_ECONFIG     ? MHD_HTTP_BAD_REQUEST
           : status == TRI_ENOTFOUND ? MHD_HTTP_NOT_FOUND
                                     : MHD_HTTP_INTERNAL_SERVER_ERROR;
}

static enum MHD_Result page_answer(tri_http *http, const tri_http_page *page, struct MHD_Connection *connection)
{
    tri_string text = {0};
    tri_http_request request = {connection, MHD_HTTP_OK};
    tri_status status = page->make(http->arg, &request, &text);
    const unsigned code = status == TRI_OK ? request.code : code_of(status);
    enum MHD_Result result;
    if (code == MHD_HTTP_INTERNAL_SERVER_ERROR)
        tri_log(TRI_LOG_WARN, "%s cannot be served: %s", page->path, tri_last_error());
    if (code == MHD_HTTP_INTERNAL_SERVER_ERROR)
        result = refuse(connection, code, "not now: the run's log says why\n");
    else if (status != TRI_OK)
        result = refuse(connection, code, tri_last_error());
    else if (page->stream)
        result = stream_open(http, connection, page->type, &text);
    else
        result = answer(connection, code, page->type, tri_string_text(&text), text.nbytes);
    tri_string_fini(&text);
    return result;
}

/* --- who may ask --- */

/* A web site can make its own host name resolve to this machine (DNS rebinding); a browser would then let the pages of
 * that site read the answers. So Host must be a number, localhost, or a name of this machine. */
static bool name_is_permitted(const char *names, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = names; *at; at += *at == ',') {
        const size_t nbytes = strcspn(at, ",");
        if (nbytes == length && length > 0 && strncasecmp(at, name, length) == 0)
            return true;
        at += nbytes;
    }
    return false;
}

static bool host_is_ours(const tri_http *http, const char *host)
{
    char name[256];
    struct utsname own;
    struct in6_addr number;
    if (!host) /* a browser always sends one */
        return !http->setup.for_people;
    if (snprintf(name, sizeof(name), "%s", host) >= (int)sizeof(name))
        return false;
    char *bracket = name[0] == '[' ? strchr(name, ']') : NULL, *colon = strrchr(bracket ? bracket : name, ':');
    if (colon)
        *colon = 0;
    if (bracket) {
        *bracket = 0;
        return inet_pton(AF_INET6, name + 1, &number) == 1;
    }
    return inet_pton(AF_INET, name, &number) == 1 || strcasecmp(name, "localhost") == 0 ||
           (uname(&own) == 0 && strcasecmp(name, own.nodename) == 0) || name_is_permitted(http->names, name);
}

/* Takes as long whatever is wrong. */
static bool token_is(const tri_http *http, const char *given)
{
    const size_t length = strlen(http->token), nbytes = given ? strlen(given) : 0;
    unsigned char differs = nbytes != length;
    for (size_t i = 0; i < length; i++)
        differs |= (unsigned char)(http->token[i] ^ (i < nbytes ? given[i] : 0));
    return differs == 0;
}

/* The token goes from the address into a cookie, which is sent to this server alone, and the address without it is what
 * is seen, kept and copied. */
static enum MHD_Result token_keep(tri_http *http, struct MHD_Connection *connection, const char *url)
{
    char cookie[256];
    struct MHD_Response *response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    snprintf(cookie, sizeof(cookie), "%s=%s; Path=/; HttpOnly; SameSite=Strict%s", http->cookie, http->token,
             http->cert ? "; Secure" : "");
    MHD_add_response_header(response, MHD_HTTP_HEADER_SET_COOKIE, cookie);
    MHD_add_response_header(response, MHD_HTTP_HEADER_LOCATION, url);
    return response_send(connection, MHD_HTTP_SEE_OTHER, "text/plain", response);
}

static enum MHD_Result request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                               const char *version, const char *upload, size_t *upload_nbytes, void **state)
{
    tri_http *http = arg;
    const tri_http_page *page = http->setup.pages;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info && info->socket_context)
        ((http_line *)info->socket_context)->asked = true;
    (void)version;
    (void)upload;
    (void)upload_nbytes;
    (void)state;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "want GET\n");
    if (!host_is_ours(http, MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST)))
        return refuse(
            connection, MHD_HTTP_MISDIRECTED_REQUEST,
            "want this machine's number, its name or localhost as Host (monitor.http_names permits others)\n");
    while (page->path && strcmp(page->path, url) != 0)
        page++;
    if (http->token[0] && page->path &&
        token_is(http, MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "token")))
        return token_keep(http, connection, page->path);
    if (http->token[0] && !token_is(http, MHD_lookup_connection_value(connection, MHD_COOKIE_KIND, http->cookie)))
        return refuse(connection, MHD_HTTP_UNAUTHORIZED, "want the address with its token, as it was printed\n");
    return page->path ? page_answer(http, page, connection)
                      : refuse(connection, MHD_HTTP_NOT_FOUND, "there is no such page\n");
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

static void line_end(http_line *line)
{
    line->ended = true;
    shutdown(line->fd, SHUT_RDWR);
}

/* Whose time is over: of those that have asked, that for the answer; and of too many that have not, the oldest. */
static void lines_judge(tri_http *http)
{
    const int64_t now_ns = tri_now_ns(), answer_ns = http->setup.for_people ? PEOPLE_LIFE_NS : LIFE_NS;
    int unasked = 0;
    for (http_line *line = http->lines; line; line = line->next) { /* the newest first */
        if (line->ended || line->stream)
            continue;
        unasked += !line->asked;
        if (now_ns - line->start_ns > (line->asked ? answer_ns : LIFE_NS) || (!line->asked && unasked > UNASKED))
            line_end(line);
    }
}

static void serve(void *arg)
{
    tri_http *http = arg;
    while (!atomic_load(&http->stop)) {
        const bool more = http->setup.turn && http->setup.turn(http->arg, http);
        MHD_run_wait(http->daemon, more ? 0 : TURN_MS);
        lines_judge(http);
    }
    for (http_stream *stream = http->streams; stream; stream = stream->next)
        stream_wake(stream);
}

/* What the library says, of clients too, is for its caller's message alone. */
static void reason_note(void *arg, const char *format, va_list words)
{
    tri_http *http = arg;
    if (vsnprintf(http->reason, sizeof(http->reason), format, words) > 0)
        http->reason[strcspn(http->reason, "\n")] = 0;
}

static tri_status tls_read(tri_http *http)
{
    const char *cert = http->setup.tls_cert ? http->setup.tls_cert : "";
    const char *key = http->setup.tls_key ? http->setup.tls_key : "";
    size_t nbytes;
    if (!cert[0] && !key[0])
        return TRI_OK;
    if (!cert[0] || !key[0])
        return tri_fail(TRI_ECONFIG, "https: want certificates and their key, got only %s", cert[0] ? cert : key);
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return tri_fail(TRI_EUNSUPPORTED, "https: this libmicrohttpd was built without TLS");
    TRI_TRY(tri_fs_read_config(cert, PEM_NBYTES, &http->cert, &nbytes));
    return tri_fs_read_config(key, PEM_NBYTES, &http->key, &nbytes);
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
    const struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, http->cert},
                                         {MHD_OPTION_HTTPS_MEM_KEY, 0, http->key},
                                         {MHD_OPTION_END, 0, NULL}};
    const struct MHD_OptionItem *const more = http->cert ? tls : &tls[2];
    const unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
                           (at->six ? MHD_USE_IPv6 : 0u) | (http->cert ? MHD_USE_TLS : 0u);
    http->daemon = MHD_start_daemon(
        flags, (uint16_t)at->port, NULL, NULL, request, http, MHD_OPTION_EXTERNAL_LOGGER, reason_note, http,
        MHD_OPTION_SOCK_ADDR, &at->place, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)(http->setup.for_people ? PEOPLE_NBYTES : HTTP_LIMIT_NBYTES), MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, ADDRESS_QUOTA, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S,
        MHD_OPTION_NOTIFY_CONNECTION, line_note, http, MHD_OPTION_ARRAY, more, MHD_OPTION_END);
    if (!http->daemon && http->cert && strstr(http->reason, "TLS"))
        return tri_fail(TRI_ECONFIG, "%s and %s: want certificates and their key (PEM), got: %s", http->setup.tls_cert,
                        http->setup.tls_key, http->reason);
    if (!http->daemon)
        return tri_fail(TRI_EIO,
                        "cannot serve at %s port %d: another program may be there, or the address is not of "
                        "this machine",
                        at->host, at->port);
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT);
    snprintf(http->address, sizeof(http->address), at->six ? "[%s]:%d" : "%s:%d", at->host,
             info ? info->port : at->port);
    snprintf(http->cookie, sizeof(http->cookie), "trireme-%d", info ? info->port : at->port);
    return tri_thread_start(&http->thread, "http", serve, http);
}

tri_status tri_http_open(const tri_http_setup *setup, tri_http **out)
{
    http_address at;
    TRI_TRY(address_read(setup->address, &at));
    at.port += at.port > 0 ? setup->offset : 0;
    tri_http *http = tri_alloc_zero(1, sizeof(*http));
    if (!http)
        return TRI_ENOMEM;
    http->setup = *setup;
    http->arg = setup->arg;
    snprintf(http->token, sizeof(http->token), "%s", setup->token ? setup->token : "");
    http->names = tri_strdup(setup->names ? setup->names : "");
    tri_status status = http->names ? tls_read(http) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = start(http, &at);
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

const char *tri_http_scheme(const tri_http *http)
{
    return http->cert ? "https" : "http";
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
    tri_free(http->names);
    tri_free(http->cert);
    tri_free(http->key);
    tri_free(http);
}
