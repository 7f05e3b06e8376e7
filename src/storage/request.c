/* SPDX-License-Identifier: Apache-2.0
 *
 * request.c: requests by libcurl.
 */
#include "storage/request.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/curl.h"
#include "base/log.h"
#include "base/runtime.h"
#include "storage/storage.h"

#define TRIES         9
#define PAUSE_MIN_MS  50
#define PAUSE_MAX_MS  5000
#define ANSWER_MOST   ((size_t)64 << 20)
#define CONNECT_MS    10000L
#define REDIRECTS     5L
#define IS_SUCCESS(n) ((n) >= 200 && (n) < 300)

struct tri_requester {
    const tri_curl_calls *calls;
    CURL *curl;
    char reason[CURL_ERROR_SIZE];
};

tri_status tri_requester_open(tri_requester **out)
{
    tri_requester *requester = tri_alloc_zero(1, sizeof(*requester));
    *out = requester;
    if (requester == NULL)
        return TRI_ENOMEM;
    TRI_TRY_IN(tri_curl_open(&requester->calls), "URLs of object stores");
    requester->curl = requester->calls->curl_easy_init();
    return requester->curl != NULL ? TRI_OK : TRI_ENOMEM;
}

void tri_requester_close(tri_requester *requester)
{
    if (requester == NULL)
        return;
    if (requester->curl != NULL)
        requester->calls->curl_easy_cleanup(requester->curl);
    tri_free(requester);
}

static size_t body_take(char *bytes, size_t each, size_t count, void *arg)
{
    tri_request *request = arg;
    const size_t nbytes = each * count;
    /* libcurl has seen the status line by now: `http` was set by header_take(). */
    if ((request->into == NULL && request->file == NULL) || !IS_SUCCESS(request->http)) {
        bool fits = request->answer.nbytes + nbytes <= ANSWER_MOST;
        return fits && tri_string_append_bytes(&request->answer, bytes, nbytes) == TRI_OK ? nbytes : 0;
    }
    if (nbytes > request->into_nbytes - request->got_nbytes) {
        request->overflows = true;
        return 0;
    }
    if (request->file == NULL)
        memcpy((char *)request->into + request->got_nbytes, bytes, nbytes);
    else if (tri_stop_signal() != 0)
        request->broke = tri_fail(TRI_ECANCELED, "stopped by a signal while files were fetched");
    else
        request->broke = tri_fs_file_write(request->file, bytes, nbytes, request->got_nbytes);
    if (request->broke != TRI_OK)
        return 0;
    request->got_nbytes += nbytes;
    return nbytes;
}

static size_t header_take(char *bytes, size_t each, size_t count, void *arg)
{
    tri_request *request = arg;
    const size_t nbytes = each * count;
    size_t length = nbytes;
    while (length > 0 && (bytes[length - 1] == '\r' || bytes[length - 1] == '\n'))
        length--;
    if (nbytes > 9 && strncmp(bytes, "HTTP/", 5) == 0) { /* the answer begins, or begins again after a redirect */
        const char *blank = memchr(bytes, ' ', nbytes);
        request->http = blank != NULL ? strtol(blank, NULL, 10) : 0;
        tri_string_clear(&request->replied);
        return nbytes;
    }
    size_t name = 0;
    while (name < length && bytes[name] != ':')
        name++;
    if (length == 0 || name == length || request->replied.nbytes > 65536)
        return nbytes;
    for (size_t i = 0; i < name; i++)
        bytes[i] = (char)tolower((unsigned char)bytes[i]);
    bool good = tri_string_append_bytes(&request->replied, bytes, length) == TRI_OK &&
                tri_string_append(&request->replied, "\n") == TRI_OK;
    return good ? nbytes : 0;
}

bool tri_request_reply(const tri_request *request, const char *name, char *value, size_t room)
{
    const size_t length = strlen(name);
    for (const char *line = tri_string_text(&request->replied); *line != 0;) {
        size_t nbytes = strcspn(line, "\n");
        if (nbytes > length && strncmp(line, name, length) == 0 && line[length] == ':') {
            const char *at = line + length + 1;
            while (*at == ' ')
                at++;
            snprintf(value, room, "%.*s", (int)(line + nbytes - at), at);
            return true;
        }
        line += nbytes + (line[nbytes] != 0);
    }
    value[0] = 0;
    return false;
}

void tri_request_fini(tri_request *request)
{
    tri_string_fini(&request->headers);
    tri_string_fini(&request->answer);
    tri_string_fini(&request->replied);
}

#define SET(option, value) (void)requester->calls->curl_easy_setopt(requester->curl, option, value)

static tri_status headers_make(const tri_requester *requester, const tri_request *request, struct curl_slist **list)
{
    char *text = tri_strdup(tri_string_text(&request->headers));
    struct curl_slist *longer = requester->calls->curl_slist_append(NULL, "Expect:");
    for (char *line = text, *end; line != NULL && longer != NULL && *line != 0; line = end + 1) {
        *list = longer;
        end = strchr(line, '\n');
        *end = 0;
        longer = requester->calls->curl_slist_append(*list, line);
    }
    *list = longer != NULL ? longer : *list;
    bool good = text != NULL && longer != NULL;
    tri_free(text);
    return good ? TRI_OK : TRI_ENOMEM;
}

static void options_set(tri_requester *requester, tri_request *request, struct curl_slist *headers)
{
    const double timeout_s = tri_storage_configured().timeout_s;
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_URL, request->url);
    SET(CURLOPT_ERRORBUFFER, requester->reason);
    SET(CURLOPT_HTTPHEADER, headers);
    SET(CURLOPT_WRITEFUNCTION, body_take);
    SET(CURLOPT_WRITEDATA, request);
    SET(CURLOPT_HEADERFUNCTION, header_take);
    SET(CURLOPT_HEADERDATA, request);
    SET(CURLOPT_CONNECTTIMEOUT_MS, request->limit_ms > 0 ? request->limit_ms : CONNECT_MS);
    SET(CURLOPT_TIMEOUT_MS, request->limit_ms);
    SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
    SET(CURLOPT_LOW_SPEED_TIME, (long)(timeout_s + 0.999));
    SET(CURLOPT_TCP_NODELAY, 1L);
    SET(CURLOPT_BUFFERSIZE, 256L << 10);
    SET(CURLOPT_UPLOAD_BUFFERSIZE, 1L << 20);
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_FOLLOWLOCATION, request->follows ? 1L : 0L);
    SET(CURLOPT_MAXREDIRS, REDIRECTS);
    SET(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_USERAGENT, "trireme/" TRI_VERSION);
    SET(CURLOPT_HTTPGET, 1L); /* undoes what the request before had */
    if (strcmp(request->method, "HEAD") == 0)
        SET(CURLOPT_NOBODY, 1L);
    else if (strcmp(request->method, "PUT") == 0 || strcmp(request->method, "POST") == 0) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDS, request->body != NULL ? request->body : "");
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_nbytes);
    }
    SET(CURLOPT_CUSTOMREQUEST, request->method);
}

static CURLcode send_once(tri_requester *requester, tri_request *request, tri_status *status)
{
    struct curl_slist *headers = NULL;
    const size_t before = request->headers.nbytes;
    CURLcode code = CURLE_OK;
    request->http = 0;
    request->got_nbytes = 0;
    request->overflows = false;
    tri_string_clear(&request->answer);
    tri_string_clear(&request->replied);
    requester->reason[0] = 0;
    *status = request->prepare != NULL ? request->prepare(request->arg, request) : TRI_OK;
    if (*status == TRI_OK)
        *status = headers_make(requester, request, &headers);
    if (*status == TRI_OK) {
        options_set(requester, request, headers);
        code = requester->calls->curl_easy_perform(requester->curl);
    }
    requester->calls->curl_slist_free_all(headers);
    if (request->headers.text != NULL) { /* the next try is signed again */
        request->headers.nbytes = before;
        request->headers.text[before] = 0;
    }
    return code;
}

/* Whether another try may go better. */
static bool is_passing(const tri_request *request, CURLcode code)
{
    static const long codes[] = {408, 429, 500, 502, 503, 504};
    if (code != CURLE_OK)
        return code != CURLE_URL_MALFORMAT && code != CURLE_UNSUPPORTED_PROTOCOL &&
               code != CURLE_PEER_FAILED_VERIFICATION && code != CURLE_SSL_CACERT_BADFILE &&
               code != CURLE_TOO_MANY_REDIRECTS && code != CURLE_COULDNT_RESOLVE_PROXY && code != CURLE_OUT_OF_MEMORY;
    for (size_t i = 0; i < TRI_COUNT_OF(codes); i++)
        if (request->http == codes[i])
            return true;
    /* S3 says so with other codes too. */
    return request->http == 400 && strstr(tri_string_text(&request->answer), "<Code>RequestTimeout<") != NULL;
}

static void pause_before(const tri_request *request, int attempt)
{
    uint32_t random;
    char after[16];
    int64_t most_ms = PAUSE_MIN_MS;
    for (int i = 1; i < attempt && most_ms < PAUSE_MAX_MS; i++)
        most_ms *= 2;
    most_ms = most_ms < PAUSE_MAX_MS ? most_ms : PAUSE_MAX_MS;
    tri_entropy(&random, sizeof(random));
    int64_t ms = most_ms / 4 + (int64_t)((double)most_ms * 0.75 * random / 4294967296.0);
    if (tri_request_reply(request, "retry-after", after, sizeof(after)) && atol(after) > 0 && atol(after) <= 60)
        ms = 1000 * atol(after);
    tri_sleep_ns(ms * TRI_NS_PER_MS);
}

/* An answer that was cut short is none. */
static bool is_short(const tri_request *request)
{
    const bool has_place = request->into != NULL || request->file != NULL;
    return IS_SUCCESS(request->http) && has_place && request->got_nbytes != request->into_nbytes;
}

tri_status tri_request_send(tri_requester *requester, tri_request *request)
{
    const int tries = request->tries > 0 ? request->tries : TRIES;
    char what[CURL_ERROR_SIZE + 64];
    for (int attempt = 1;; attempt++) {
        tri_status status;
        CURLcode code = send_once(requester, request, &status);
        TRI_TRY(status);
        TRI_TRY(request->broke);
        if (request->overflows)
            return tri_fail(TRI_EUNSUPPORTED, "%.400s: want %zu bytes, got more: the server gives no ranges of files",
                            request->label, request->into_nbytes);
        if (code == CURLE_OK && !is_short(request) && !is_passing(request, code))
            return TRI_OK;
        if (code != CURLE_OK)
            snprintf(what, sizeof(what), "%s",
                     requester->reason[0] ? requester->reason : requester->calls->curl_easy_strerror(code));
        else if (is_short(request))
            snprintf(what, sizeof(what), "want %zu bytes, got %zu", request->into_nbytes, request->got_nbytes);
        else
            snprintf(what, sizeof(what), "HTTP %ld", request->http);
        if (attempt < tries && (is_passing(request, code) || is_short(request))) {
            tri_log(TRI_LOG_DEBUG, "%s: %s; try %d of %d follows", request->label, what, attempt + 1, tries);
            pause_before(request, attempt);
            continue;
        }
        if (code == CURLE_OK && !is_short(request)) /* the caller knows what the answer says */
            return TRI_OK;
        return tri_fail(TRI_EIO, "%.400s: no answer after %d %s: %.400s", request->label, attempt,
                        attempt == 1 ? "try" : "tries", what);
    }
}
