/* SPDX-License-Identifier: Apache-2.0
 *
 * http.c: http:// and https://, one file, which is only read: in ranges where the server has them.
 */
#include "storage/storage_impl.h"

#ifdef TRI_HAS_CURL

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "storage/request.h"

static tri_status http_open(tri_storage *storage)
{
    return tri_requester_open((tri_requester **)&storage->state);
}

static void http_close(tri_storage *storage)
{
    tri_requester_close(storage->state);
}

static tri_status fail(const tri_request *request)
{
    const long http = request->http;
    tri_status status = http == 404 || http == 410  ? TRI_ENOTFOUND
                        : http == 412               ? TRI_EMISMATCH
                        : http >= 400 && http < 500 ? TRI_ECONFIG
                                                    : TRI_EIO;
    return tri_fail(status, "%.400s: HTTP %ld: %s", request->label, http,
                    http == 404                  ? "the server has no such file"
                    : http == 401 || http == 403 ? "the server does not give this file to everybody"
                    : http == 412                ? "the file was replaced while it was read"
                                                 : "the server does not give the file");
}

static tri_status ask(tri_storage *storage, const char *name, tri_request *request)
{
    char *url = tri_storage_name_url(storage, name);
    request->url = url;
    request->label = storage->label;
    request->follows = true;
    tri_status status = url != NULL ? tri_request_send(storage->state, request) : TRI_ENOMEM;
    if (status == TRI_OK && (request->http < 200 || request->http >= 300))
        status = fail(request);
    tri_free(url);
    return status;
}

static tri_status http_stat(tri_storage *storage, const char *name, tri_storage_entry *entry)
{
    tri_request request = {.method = "HEAD"};
    char length[32], etag[TRI_STORAGE_ETAG_NBYTES];
    tri_status status = ask(storage, name, &request);
    if (status == TRI_OK && !tri_request_reply(&request, "content-length", length, sizeof(length)))
        status =
            tri_fail(TRI_EUNSUPPORTED, "%.300s: the server does not say how many bytes the file has", storage->label);
    if (status == TRI_OK)
        entry->nbytes = strtoull(length, NULL, 10);
    if (status == TRI_OK)
        entry->is_whole =
            !tri_request_reply(&request, "accept-ranges", length, sizeof(length)) || strcmp(length, "bytes") != 0;
    if (status == TRI_OK && (tri_request_reply(&request, "etag", etag, sizeof(etag)) ||
                             tri_request_reply(&request, "last-modified", etag, sizeof(etag))))
        strcpy(entry->etag, strlen(etag) + 1 < sizeof(etag) ? etag : ""); /* a longer one may have been cut */
    if (status == TRI_OK && strncmp(entry->etag, "W/", 2) == 0)           /* pieces of two versions would look alike */
        entry->is_whole = true;
    tri_request_fini(&request);
    return status;
}

/* Asks for bytes of the content that the entry describes. */
static tri_status content_ask(tri_storage *storage, const tri_storage_entry *entry, uint64_t first,
                              tri_request *request)
{
    const size_t nbytes = request->into_nbytes;
    tri_status status = TRI_OK;
    request->method = "GET";
    if (nbytes < entry->nbytes)
        status =
            tri_string_appendf(&request->headers, "range: bytes=%" PRIu64 "-%" PRIu64 "\n", first, first + nbytes - 1);
    if (status == TRI_OK && entry->etag[0] == '"') /* a strong one */
        status = tri_string_appendf(&request->headers, "if-match: %s\n", entry->etag);
    else if (status == TRI_OK && entry->etag[0] && strncmp(entry->etag, "W/", 2) != 0) /* Last-Modified */
        status = tri_string_appendf(&request->headers, "if-unmodified-since: %s\n", entry->etag);
    if (status == TRI_OK)
        status = ask(storage, entry->name, request);
    tri_request_fini(request);
    return status;
}

static tri_status http_read(tri_storage *storage, const tri_storage_entry *entry, uint64_t first, size_t nbytes,
                            void *out)
{
    tri_request request = {.into = out, .into_nbytes = nbytes};
    return content_ask(storage, entry, first, &request);
}

static tri_status http_fetch(tri_storage *storage, const tri_storage_entry *entry, tri_fs_file *file)
{
    tri_request request = {.file = file, .into_nbytes = entry->nbytes};
    return content_ask(storage, entry, 0, &request);
}

#define ROW .open = http_open, .close = http_close, .stat = http_stat, .read = http_read, .fetch = http_fetch
const tri_storage_ops tri_storage_http = {.scheme = "http", ROW};
const tri_storage_ops tri_storage_https = {.scheme = "https", ROW};

#else

static tri_status http_open(tri_storage *storage)
{
    return tri_fail(TRI_EUNSUPPORTED,
                    "%.300s: this build has no libcurl (apt-get install libcurl4-openssl-dev, build again)",
                    storage->label);
}

static void http_close(tri_storage *storage)
{
    (void)storage;
}

const tri_storage_ops tri_storage_http = {.scheme = "http", .open = http_open, .close = http_close};
const tri_storage_ops tri_storage_https = {.scheme = "https", .open = http_open, .close = http_close};
#endif
