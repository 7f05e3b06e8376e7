/* SPDX-License-Identifier: Apache-2.0
 *
 * post.c: one request by libcurl; redirections are not followed, so the token goes where it was meant to go.
 */
#include "monitor/post.h"

#include <stdio.h>
#include <string.h>

#include "base/containers.h"
#include "base/fs.h"

#ifndef TRI_HAS_CURL
tri_status tri_post_json(const tri_post_place *place, const char *body, int64_t limit_ms)
{
    (void)place, (void)body, (void)limit_ms;
    return tri_fail(TRI_ENOTFOUND, "this build has no libcurl (apt-get install libcurl4-openssl-dev, build again)");
}
#else

#include "base/curl.h"

#define TOKEN_NBYTES 16384u
#define ANSWER_MOST  400

typedef struct request {
    const tri_curl_calls *calls;
    CURL *curl;
    struct curl_slist *headers;
    tri_string answer; /* the beginning of it, for people */
    char reason[CURL_ERROR_SIZE];
} request;

static size_t answer_take(char *bytes, size_t each, size_t count, void *arg)
{
    tri_string *answer = arg;
    const size_t nbytes = each * count, room = answer->nbytes < ANSWER_MOST ? ANSWER_MOST - answer->nbytes : 0;
    return tri_string_append_bytes(answer, bytes, nbytes < room ? nbytes : room) == TRI_OK ? nbytes : 0;
}

static tri_status header_add(request *one, const char *text)
{
    struct curl_slist *longer = one->calls->curl_slist_append(one->headers, text);
    one->headers = longer ? longer : one->headers;
    return longer ? TRI_OK : TRI_ENOMEM;
}

static tri_status token_add(request *one, const char *path)
{
    char *text, header[TOKEN_NBYTES + 32];
    size_t nbytes;
    if (!path[0])
        return TRI_OK;
    TRI_TRY(tri_fs_read(path, TOKEN_NBYTES, &text, &nbytes));
    snprintf(header, sizeof(header), "Authorization: Bearer %.*s", (int)strcspn(text, "\r\n"), text);
    memset(text, 0, nbytes);
    tri_free(text);
    tri_status status = header_add(one, header);
    memset(header, 0, sizeof(header));
    return status;
}

#define SET(option, value) (void)one->calls->curl_easy_setopt(one->curl, option, value)

static tri_status request_send(request *one, const tri_post_place *place, const char *body, int64_t limit_ms)
{
    long http = 0;
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_URL, place->url);
    SET(CURLOPT_POSTFIELDS, body);
    SET(CURLOPT_HTTPHEADER, one->headers);
    SET(CURLOPT_TIMEOUT_MS, (long)limit_ms);
    SET(CURLOPT_ERRORBUFFER, one->reason);
    SET(CURLOPT_WRITEFUNCTION, answer_take);
    SET(CURLOPT_WRITEDATA, &one->answer);
    if (place->ca[0])
        SET(CURLOPT_CAINFO, place->ca);
    CURLcode code = one->calls->curl_easy_perform(one->curl);
    if (code != CURLE_OK)
        return tri_fail(TRI_EPEER, "%s: %s", place->url,
                        one->reason[0] ? one->reason : one->calls->curl_easy_strerror(code));
    one->calls->curl_easy_getinfo(one->curl, CURLINFO_RESPONSE_CODE, &http);
    if (http >= 200 && http < 300)
        return TRI_OK;
    return tri_fail(TRI_EPEER, "%s: want 200, got %ld: %s", place->url, http, tri_string_text(&one->answer));
}

tri_status tri_post_json(const tri_post_place *place, const char *body, int64_t limit_ms)
{
    request one = {0};
    if (strncmp(place->url, "https://", 8) != 0 && strncmp(place->url, "http://", 7) != 0)
        return tri_fail(TRI_ECONFIG, "want an address that begins with https:// or http://, got '%.200s'", place->url);
    TRI_TRY(tri_curl_open(&one.calls));
    one.curl = one.calls->curl_easy_init();
    tri_status status = one.curl ? header_add(&one, "Content-Type: application/json") : TRI_ENOMEM;
    if (status == TRI_OK)
        status = token_add(&one, place->token);
    if (status == TRI_OK)
        status = request_send(&one, place, body, limit_ms);
    if (one.curl)
        one.calls->curl_easy_cleanup(one.curl);
    one.calls->curl_slist_free_all(one.headers);
    tri_string_fini(&one.answer);
    return status;
}
#endif
