/* SPDX-License-Identifier: Apache-2.0
 *
 * s3.c: s3://bucket/prefix. AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL names another server, which is asked path-style.
 *
 * Bodies go out with a digest that the server compares (CRC-32C at AWS, MD5 elsewhere); TLS or that digest, not the
 * signature, covers them. Parts of one read are of one content (If-Match).
 */
#include "storage/storage_impl.h"

#if defined(TRI_HAS_CURL) && defined(TRI_HAS_EXPAT)

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/runtime.h"
#include "storage/credentials.h"
#include "storage/request.h"
#include "storage/s3_fail.h"
#include "storage/sign.h"
#include "storage/xml.h"

typedef struct s3 {
    tri_requester *requester;
    tri_credentials credentials;
    bool signs, is_known, is_aws;
    char bucket[128], region[64], endpoint[512]; /* endpoint: scheme://host[:port][/base] */
    char host[300];                              /* as the header says it */
    char base[512];                              /* what paths begin with: "", or "/bucket" */
    const char *prefix;                          /* of the keys, without / at either end */
} s3;

/* One operation. */
typedef struct call {
    s3 *store;
    const char *method;
    tri_string url, path, query;
    tri_request request;
    char payload[2 * TRI_SHA256_NBYTES + 1];
    char digest_name[32], digest[48]; /* of the body; "": none */
    char *label;
} call;

/* --- where --- */

static tri_status place_read(tri_storage *storage, s3 *store)
{
    const char *slash = strchr(storage->place, '/');
    const size_t length = slash != NULL ? (size_t)(slash - storage->place) : strlen(storage->place);
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    if (length < 1 || length >= sizeof(store->bucket) || strspn(storage->place, letters) != length)
        return tri_fail(TRI_ECONFIG, "%.300s: want s3://BUCKET/PREFIX, a bucket of letters, digits, . - _",
                        storage->label);
    snprintf(store->bucket, sizeof(store->bucket), "%.*s", (int)length, storage->place);
    store->prefix = slash != NULL ? slash + 1 : "";
    return TRI_OK;
}

static tri_status endpoint_read(tri_storage *storage, s3 *store)
{
    tri_aws_region(store->region, sizeof(store->region));
    tri_aws_setting((const char *const[]){"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", NULL}, "endpoint_url",
                    store->endpoint, sizeof(store->endpoint));
    store->is_aws = store->endpoint[0] == 0;
    bool by_host = store->is_aws && strchr(store->bucket, '.') == NULL; /* certificates have no names with two dots */
    if (store->is_aws)
        snprintf(store->endpoint, sizeof(store->endpoint), "https://%s%ss3.%s.amazonaws.com",
                 by_host ? store->bucket : "", by_host ? "." : "", store->region);
    for (size_t n = strlen(store->endpoint); n > 0 && store->endpoint[n - 1] == '/'; n--)
        store->endpoint[n - 1] = 0;
    const char *host = strstr(store->endpoint, "://");
    bool is_http = strncmp(store->endpoint, "http://", 7) == 0 || strncmp(store->endpoint, "https://", 8) == 0;
    if (!is_http || host[3] == 0)
        return tri_fail(TRI_ECONFIG, "AWS_ENDPOINT_URL: want http://HOST[:PORT] or https://HOST[:PORT], got '%.200s'",
                        store->endpoint);
    host += 3;
    const size_t length = strcspn(host, "/");
    snprintf(store->host, sizeof(store->host), "%.*s", (int)length, host);
    snprintf(store->base, sizeof(store->base), "%.200s%s%s", host + length, by_host ? "" : "/",
             by_host ? "" : store->bucket);
    store->endpoint[(size_t)(host - store->endpoint) + length] = 0;
    storage->endpoint = tri_strdup(store->endpoint);
    return storage->endpoint != NULL ? TRI_OK : TRI_ENOMEM;
}

static tri_status s3_open(tri_storage *storage)
{
    s3 *store = tri_alloc_zero(1, sizeof(*store));
    storage->state = store;
    if (store == NULL)
        return TRI_ENOMEM;
    store->signs = tri_storage_configured().sign;
    TRI_TRY(place_read(storage, store));
    TRI_TRY(endpoint_read(storage, store));
    return tri_requester_open(&store->requester);
}

static void s3_close(tri_storage *storage)
{
    s3 *store = storage->state;
    if (store == NULL)
        return;
    tri_requester_close(store->requester);
    memset(store, 0, sizeof(*store));
    tri_free(store);
}

/* --- one operation --- */

static tri_status call_prepare(void *arg, tri_request *request)
{
    call *one = arg;
    s3 *store = one->store;
    char date[TRI_SIGN_DATE_NBYTES];
    tri_string value = {0};
    if (one->digest_name[0])
        TRI_TRY(tri_string_appendf(&request->headers, "%s: %s\n", one->digest_name, one->digest));
    if (!store->signs)
        return TRI_OK;
    TRI_TRY(tri_credentials_find(store->requester, false, &store->credentials));
    tri_sign_date(tri_wall_ns(), date);
    tri_sign_header headers[6];
    size_t count = 0;
    const bool md5 = strcmp(one->digest_name, "content-md5") == 0;
    if (md5)
        headers[count++] = (tri_sign_header){one->digest_name, one->digest};
    headers[count++] = (tri_sign_header){"host", store->host};
    if (one->digest_name[0] && !md5) /* x-amz-checksum-... */
        headers[count++] = (tri_sign_header){one->digest_name, one->digest};
    headers[count++] = (tri_sign_header){"x-amz-content-sha256", one->payload};
    headers[count++] = (tri_sign_header){"x-amz-date", date};
    if (store->credentials.token[0])
        headers[count++] = (tri_sign_header){"x-amz-security-token", store->credentials.token};
    tri_sign sign = {.access = store->credentials.access,
                     .secret = store->credentials.secret,
                     .region = store->region,
                     .service = "s3",
                     .date = date,
                     .method = one->method,
                     .path = tri_string_text(&one->path),
                     .query = tri_string_text(&one->query),
                     .headers = headers,
                     .header_count = count,
                     .payload = one->payload};
    tri_status status = tri_sign_authorization(&sign, &value);
    if (status == TRI_OK)
        status = tri_string_appendf(&request->headers, "authorization: %s\nx-amz-content-sha256: %s\nx-amz-date: %s\n",
                                    value.text, one->payload, date);
    if (status == TRI_OK && store->credentials.token[0])
        status = tri_string_appendf(&request->headers, "x-amz-security-token: %s\n", store->credentials.token);
    tri_string_fini(&value);
    return status;
}

/* `key`: of an object; NULL: the bucket. `query`: encoded, names in order. */
static tri_status call_make(tri_storage *storage, const char *method, const char *key, const char *query, call *one)
{
    s3 *store = storage->state;
    *one = (call){.store = store, .method = method};
    strcpy(one->payload, TRI_SIGN_UNSIGNED);
    TRI_TRY(tri_string_append(&one->path, store->base));
    if (key != NULL || store->base[0] == 0)
        TRI_TRY(tri_string_append(&one->path, "/"));
    if (key != NULL)
        TRI_TRY(tri_sign_encode(key, true, &one->path));
    TRI_TRY(tri_string_append(&one->query, query));
    TRI_TRY(tri_string_appendf(&one->url, "%s%s%s%s", store->endpoint, one->path.text, query[0] ? "?" : "", query));
    one->label = key != NULL ? tri_format("s3://%s/%s", store->bucket, key) : tri_format("s3://%s", store->bucket);
    one->request =
        (tri_request){.method = method, .url = one->url.text, .label = one->label, .prepare = call_prepare, .arg = one};
    return one->label != NULL ? TRI_OK : TRI_ENOMEM;
}

static void call_fini(call *one)
{
    tri_request_fini(&one->request);
    tri_string_fini(&one->url);
    tri_string_fini(&one->path);
    tri_string_fini(&one->query);
    tri_free(one->label);
}

static tri_status body_set(call *one, const void *bytes, size_t nbytes)
{
    one->request.body = bytes;
    one->request.body_nbytes = nbytes;
    TRI_TRY(tri_string_append(&one->request.headers, "content-type: application/octet-stream\n"));
    if (one->store->is_aws) {
        strcpy(one->digest_name, "x-amz-checksum-crc32c");
        tri_digest_crc32c_base64(bytes, nbytes, one->digest);
        return TRI_OK;
    }
    if (tri_digest_md5_base64(bytes, nbytes, one->digest) == TRI_OK) /* a library in FIPS mode has no MD5 */
        strcpy(one->digest_name, "content-md5");
    return TRI_OK;
}

static tri_status fail(const call *one)
{
    const s3 *store = one->store;
    return tri_s3_fail(&(tri_s3_failure){.request = &one->request,
                                         .url = one->label,
                                         .endpoint = store->endpoint,
                                         .region = store->region,
                                         .source = store->signs ? store->credentials.source : "storage.sign=false"});
}

/* Sends it, once more with new credentials where these have expired. */
static tri_status call_send(call *one)
{
    for (int attempt = 0;; attempt++) {
        TRI_TRY(tri_request_send(one->store->requester, &one->request));
        if (one->request.http >= 200 && one->request.http < 300)
            return TRI_OK;
        const char *text = tri_string_text(&one->request.answer);
        bool expired =
            strstr(text, "<Code>ExpiredToken<") != NULL || strstr(text, "<Code>TokenRefreshRequired<") != NULL;
        if (!expired || attempt > 0 || !one->store->signs)
            return fail(one);
        TRI_TRY(tri_credentials_find(one->store->requester, true, &one->store->credentials));
    }
}

static char *key_of(const tri_storage *storage, const char *name)
{
    const s3 *store = storage->state;
    if (name[0] == 0 || store->prefix[0] == 0)
        return tri_strdup(name[0] == 0 ? store->prefix : name);
    return tri_format("%s/%s", store->prefix, name);
}

/* --- objects --- */

static void etag_take(const tri_request *request, char etag[TRI_STORAGE_ETAG_NBYTES])
{
    char text[TRI_STORAGE_ETAG_NBYTES];
    (void)tri_request_reply(request, "etag", text, sizeof(text));
    const size_t first = strspn(text, "\"");
    snprintf(etag, TRI_STORAGE_ETAG_NBYTES, "%.*s", (int)strcspn(text + first, "\""), text + first);
}

/* Answers to HEAD have no body: a first byte is asked for, so that the server says what is wrong. */
static tri_status reason_ask(tri_storage *storage, const char *key, tri_status status)
{
    call one;
    char message[TRI_ERROR_NBYTES];
    snprintf(message, sizeof(message), "%s", tri_last_error());
    tri_status asked = call_make(storage, "GET", key, "", &one);
    if (asked == TRI_OK)
        asked = tri_string_append(&one.request.headers, "range: bytes=0-0\n");
    if (asked == TRI_OK)
        asked = call_send(&one);
    call_fini(&one);
    return asked != TRI_OK && asked != TRI_ENOMEM ? asked : tri_fail_copy(status, message);
}

static tri_status s3_stat(tri_storage *storage, const char *name, tri_storage_entry *entry)
{
    call one;
    char *key = key_of(storage, name), length[32];
    if (key == NULL || key[0] == 0) {
        tri_free(key);
        return tri_fail(TRI_ENOTFOUND, "%.300s: names a bucket, no object", storage->label);
    }
    tri_status status = call_make(storage, "HEAD", key, "", &one);
    if (status == TRI_OK)
        status = call_send(&one);
    if (status == TRI_OK && tri_request_reply(&one.request, "content-length", length, sizeof(length)))
        entry->nbytes = strtoull(length, NULL, 10);
    if (status == TRI_OK) {
        etag_take(&one.request, entry->etag);
        bool encrypts = tri_request_reply(&one.request, "x-amz-server-side-encryption", length, sizeof(length));
        entry->has_md5 = !encrypts || (one.store->is_aws && strcmp(length, "AES256") == 0);
    } else if (one.request.http >= 300)
        status = reason_ask(storage, key, status);
    call_fini(&one);
    tri_free(key);
    return status;
}

static tri_status page_ask(tri_storage *storage, const char *prefix, tri_s3_page *page)
{
    call one;
    tri_string query = {0};
    tri_status status = TRI_OK;
    if (page->next.nbytes > 0) {
        status = tri_string_append(&query, "continuation-token=");
        if (status == TRI_OK)
            status = tri_sign_encode(page->next.text, false, &query);
        if (status == TRI_OK)
            status = tri_string_append(&query, "&");
    }
    if (status == TRI_OK)
        status = tri_string_append(&query, "list-type=2&prefix=");
    if (status == TRI_OK)
        status = tri_sign_encode(prefix, false, &query);
    tri_status made = call_make(storage, "GET", NULL, tri_string_text(&query), &one);
    if (status == TRI_OK)
        status = made;
    if (status == TRI_OK) { /* people know the prefix by its URL */
        tri_free(one.label);
        one.label = tri_strdup(storage->url);
        one.request.label = one.label;
        status = one.label != NULL ? TRI_OK : TRI_ENOMEM;
    }
    if (status == TRI_OK)
        status = call_send(&one);
    if (status == TRI_OK)
        status = tri_s3_page_read(tri_string_text(&one.request.answer), one.request.answer.nbytes, one.label, page);
    call_fini(&one);
    tri_string_fini(&query);
    return status;
}

/* Keys become names below the prefix; markers of folders (keys that end in /) are none. */
static void names_cut(tri_vector *entries, size_t prefix_nbytes)
{
    size_t kept = 0;
    for (size_t i = 0; i < entries->count; i++) {
        tri_storage_entry *entry = tri_vector_at(entries, i);
        const size_t nbytes = strlen(entry->name);
        if (nbytes <= prefix_nbytes || entry->name[nbytes - 1] == '/') {
            tri_free(entry->name);
            continue;
        }
        memmove(entry->name, entry->name + prefix_nbytes, nbytes - prefix_nbytes + 1);
        *(tri_storage_entry *)tri_vector_at(entries, kept++) = *entry;
    }
    entries->count = kept;
}

static tri_status s3_list(tri_storage *storage, tri_vector *entries)
{
    const s3 *store = storage->state;
    char *prefix = store->prefix[0] ? tri_format("%s/", store->prefix) : tri_strdup("");
    tri_s3_page page = {.entries = entries};
    tri_status status = prefix != NULL ? TRI_OK : TRI_ENOMEM;
    do
        status = status == TRI_OK ? page_ask(storage, prefix, &page) : status;
    while (status == TRI_OK && page.is_cut);
    for (size_t i = 0; i < entries->count && status == TRI_OK; i++) {
        const char *key = ((tri_storage_entry *)tri_vector_at(entries, i))->name;
        if (strncmp(key, prefix, strlen(prefix)) != 0)
            status = tri_fail(TRI_EFORMAT, "%.300s: a list with '%.200s'", storage->label, key);
    }
    if (status == TRI_OK)
        names_cut(entries, strlen(prefix));
    tri_string_fini(&page.next);
    tri_free(prefix);
    return status;
}

static tri_status s3_read(tri_storage *storage, const tri_storage_entry *entry, uint64_t first, size_t nbytes,
                          void *out)
{
    call one;
    char *key = key_of(storage, entry->name);
    tri_status status = key != NULL ? call_make(storage, "GET", key, "", &one) : TRI_ENOMEM;
    if (key == NULL)
        return status;
    if (status == TRI_OK && nbytes < entry->nbytes)
        status = tri_string_appendf(&one.request.headers, "range: bytes=%" PRIu64 "-%" PRIu64 "\n", first,
                                    first + nbytes - 1);
    if (status == TRI_OK && entry->etag[0])
        status = tri_string_appendf(&one.request.headers, "if-match: \"%s\"\n", entry->etag);
    one.request.into = out;
    one.request.into_nbytes = nbytes;
    if (status == TRI_OK)
        status = call_send(&one);
    call_fini(&one);
    tri_free(key);
    return status;
}

static tri_status s3_put(tri_storage *storage, const char *name, const void *bytes, size_t nbytes)
{
    call one;
    char *key = key_of(storage, name);
    tri_status status = key != NULL ? call_make(storage, "PUT", key, "", &one) : TRI_ENOMEM;
    if (key == NULL)
        return status;
    if (status == TRI_OK)
        status = body_set(&one, bytes, nbytes);
    if (status == TRI_OK)
        status = call_send(&one);
    call_fini(&one);
    tri_free(key);
    return status;
}

static tri_status s3_remove(tri_storage *storage, const char *name)
{
    call one;
    char *key = key_of(storage, name);
    tri_status status = key != NULL ? call_make(storage, "DELETE", key, "", &one) : TRI_ENOMEM;
    if (key == NULL)
        return status;
    if (status == TRI_OK)
        status = call_send(&one);
    call_fini(&one);
    tri_free(key);
    return status == TRI_ENOTFOUND ? TRI_OK : status;
}

/* --- in parts --- */

static tri_status s3_parts_begin(tri_storage *storage, const char *name, tri_string *mark)
{
    call one;
    char *key = key_of(storage, name), id[1024];
    tri_status status = key != NULL ? call_make(storage, "POST", key, "uploads=", &one) : TRI_ENOMEM;
    if (key == NULL)
        return status;
    if (status == TRI_OK && one.store->is_aws) { /* of the parts; S3 refuses x-amz-* headers that are not signed */
        strcpy(one.digest_name, "x-amz-checksum-algorithm");
        strcpy(one.digest, "CRC32C");
    }
    if (status == TRI_OK)
        status = call_send(&one);
    if (status == TRI_OK &&
        !tri_xml_find(tri_string_text(&one.request.answer), one.request.answer.nbytes, "UploadId", id, sizeof(id)))
        status = tri_fail(TRI_EFORMAT, "%.300s: a multipart upload without an UploadId", one.label);
    if (status == TRI_OK)
        status = tri_sign_encode(id, false, mark);
    call_fini(&one);
    tri_free(key);
    return status;
}

static tri_status s3_part_put(tri_storage *storage, const char *name, const char *mark, int number, uint64_t first,
                              const void *bytes, size_t nbytes, char etag[TRI_STORAGE_ETAG_NBYTES])
{
    call one;
    (void)first;
    char *key = key_of(storage, name), *query = tri_format("partNumber=%d&uploadId=%s", number, mark);
    tri_status status = key != NULL && query != NULL ? call_make(storage, "PUT", key, query, &one) : TRI_ENOMEM;
    if (key != NULL && query != NULL) {
        if (status == TRI_OK)
            status = body_set(&one, bytes, nbytes);
        if (status == TRI_OK)
            status = call_send(&one);
        if (status == TRI_OK)
            etag_take(&one.request, etag);
        if (status == TRI_OK && one.store->is_aws) /* it comes back at the end, behind the ETag */
            snprintf(etag + strlen(etag), TRI_STORAGE_ETAG_NBYTES - strlen(etag), "|%.40s", one.digest);
        call_fini(&one);
    }
    tri_free(key);
    tri_free(query);
    return status;
}

static tri_status parts_print(char (*etags)[TRI_STORAGE_ETAG_NBYTES], int count, tri_string *out)
{
    TRI_TRY(tri_string_append(out, "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"));
    for (int i = 0; i < count; i++) {
        const int length = (int)strcspn(etags[i], "|");
        TRI_TRY(
            tri_string_appendf(out, "<Part><PartNumber>%d</PartNumber><ETag>\"%.*s\"</ETag>", i + 1, length, etags[i]));
        if (etags[i][length] == '|')
            TRI_TRY(tri_string_appendf(out, "<ChecksumCRC32C>%s</ChecksumCRC32C>", etags[i] + length + 1));
        TRI_TRY(tri_string_append(out, "</Part>"));
    }
    return tri_string_append(out, "</CompleteMultipartUpload>");
}

static tri_status s3_parts_end(tri_storage *storage, const char *name, const char *mark,
                               char (*etags)[TRI_STORAGE_ETAG_NBYTES], int count)
{
    call one;
    tri_string body = {0};
    char *key = key_of(storage, name), *query = tri_format("uploadId=%s", mark);
    tri_status status = key != NULL && query != NULL ? call_make(storage, "POST", key, query, &one) : TRI_ENOMEM;
    if (key != NULL && query != NULL) {
        if (status == TRI_OK)
            status = parts_print(etags, count, &body);
        one.request.body = body.text;
        one.request.body_nbytes = body.nbytes;
        if (status == TRI_OK)
            status = tri_string_append(&one.request.headers, "content-type: application/xml\n");
        for (int attempt = 0; status == TRI_OK && attempt < 4; attempt++) {
            tri_s3_error error;
            status = call_send(&one);
            /* It may fail with status 200, once it has begun to answer. */
            if (status != TRI_OK ||
                !tri_s3_error_read(tri_string_text(&one.request.answer), one.request.answer.nbytes, &error))
                break;
            status = attempt < 3 ? TRI_OK : fail(&one);
            tri_sleep_ns((attempt + 1) * 200 * TRI_NS_PER_MS);
        }
        call_fini(&one);
    }
    tri_string_fini(&body);
    tri_free(key);
    tri_free(query);
    return status;
}

static void s3_parts_abort(tri_storage *storage, const char *name, const char *mark)
{
    call one;
    char *key = key_of(storage, name), *query = tri_format("uploadId=%s", mark);
    if (key != NULL && query != NULL) {
        if (call_make(storage, "DELETE", key, query, &one) == TRI_OK) {
            one.request.tries = 2;
            (void)call_send(&one);
        }
        call_fini(&one);
    }
    tri_free(key);
    tri_free(query);
}

const tri_storage_ops tri_storage_s3 = {.scheme = "s3",
                                        .open = s3_open,
                                        .close = s3_close,
                                        .stat = s3_stat,
                                        .list = s3_list,
                                        .read = s3_read,
                                        .put = s3_put,
                                        .remove = s3_remove,
                                        .parts_begin = s3_parts_begin,
                                        .part_put = s3_part_put,
                                        .parts_end = s3_parts_end,
                                        .parts_abort = s3_parts_abort};
#else

static tri_status s3_open(tri_storage *storage)
{
    return tri_fail(
        TRI_EUNSUPPORTED,
        "%.300s: this build has no libcurl or no expat (apt-get install libcurl4-openssl-dev libexpat1-dev, "
        "build again)",
        storage->label);
}

static void s3_close(tri_storage *storage)
{
    (void)storage;
}

const tri_storage_ops tri_storage_s3 = {.scheme = "s3", .open = s3_open, .close = s3_close};
#endif
