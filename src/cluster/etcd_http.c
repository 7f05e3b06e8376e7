/* SPDX-License-Identifier: Apache-2.0
 *
 * etcd_http.c: one connection to one member at a time, by libcurl; the next member when it fails; a user's token.
 */
#include "cluster/etcd_http.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/curl.h"
#include "base/fs.h"

#define MEMBERS      16
#define NAME_NBYTES  300
#define ANSWER_LIMIT (8u << 20)
#define CONNECT_MS   500
#define LOGIN_NS     (5 * TRI_NS_PER_S) /* etcd hashes passwords slowly, on purpose */

struct tri_etcd {
    const tri_curl_calls *calls;
    CURL *curl;
    char *url; /* as it was given */
    const char *scheme;
    char members[MEMBERS][NAME_NBYTES];
    int count, at;                                 /* members; the one that is asked */
    char *auth, *ca, *cert, *key;                  /* files; NULL: none */
    char user[NAME_NBYTES], password[NAME_NBYTES]; /* "": none */
    struct curl_slist *headers;                    /* with a user: its token */
    bool insecure;                                 /* a password may go in clear */
    bool met;                                      /* one of them has answered */
    char reason[CURL_ERROR_SIZE];
};

/* --- the url --- */

static tri_status wrong(const char *url, const char *why)
{
    return tri_fail(TRI_ECONFIG,
                    "store url: want etcd[s]://host:port[,host:port ...][/prefix][?auth=FILE&ca=FILE&cert=FILE&"
                    "key=FILE&insecure=yes], %s: '%.200s'",
                    why, url);
}

static tri_status members_read(tri_etcd *etcd, char *list)
{
    char *save = NULL;

    for (char *one = strtok_r(list, ",", &save); one; one = strtok_r(NULL, ",", &save)) {
        const char *colon = strrchr(one, ':');
        size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;

        if (etcd->count == MEMBERS)
            return wrong(etcd->url, "of at most 16 members, got more");
        if (!colon || colon == one || digits < 1 || digits > 5 || colon[1 + digits] || strlen(one) >= NAME_NBYTES ||
            strpbrk(one, "@ \t"))
            return wrong(etcd->url, "got a member that is no host:port");
        snprintf(etcd->members[etcd->count++], NAME_NBYTES, "%s", one);
    }
    return etcd->count > 0 ? TRI_OK : wrong(etcd->url, "got no member");
}

static tri_status settings_read(tri_etcd *etcd, char *text)
{
    char *save = NULL;
    const struct {
        const char *name;
        char **file;
    } rows[] = {{"auth", &etcd->auth}, {"ca", &etcd->ca}, {"cert", &etcd->cert}, {"key", &etcd->key}};

    for (char *one = strtok_r(text, "&", &save); one; one = strtok_r(NULL, "&", &save)) {
        char *value = strchr(one, '=');
        size_t row = 0;

        if (!value || !value[1])
            return wrong(etcd->url, "got a setting without a file");
        *value++ = 0;
        while (row < TRI_COUNT_OF(rows) && strcmp(rows[row].name, one) != 0)
            row++;
        if (strcmp(one, "insecure") == 0 && strcmp(value, "yes") == 0) {
            etcd->insecure = true;
            continue;
        }
        if (row == TRI_COUNT_OF(rows))
            return wrong(etcd->url, "got another setting");
        if (!tri_fs_exists(value))
            return tri_fail(TRI_ENOTFOUND, "store url: %s=%s: there is no such file", one, value);
        tri_free(*rows[row].file);
        if (!(*rows[row].file = tri_strdup(value)))
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

/* What goes there leaves this host. */
static bool is_far(const char *member)
{
    return strncmp(member, "127.", 4) != 0 && strncmp(member, "localhost:", 10) != 0 &&
           strncmp(member, "[::1]:", 6) != 0;
}

/* "user:password"; neither the command line nor the environment of a process shall hold it. */
static tri_status user_read(tri_etcd *etcd)
{
    char *text;
    size_t nbytes;

    if (!etcd->auth)
        return TRI_OK;
    TRI_TRY(tri_fs_read(etcd->auth, 4096, &text, &nbytes));
    text[strcspn(text, "\r\n")] = 0;
    char *colon = strchr(text, ':');
    bool good = colon && colon > text && strlen(text) < NAME_NBYTES;
    if (good) {
        *colon = 0;
        snprintf(etcd->user, sizeof etcd->user, "%.200s", text);
        snprintf(etcd->password, sizeof etcd->password, "%.290s", colon + 1);
    }
    tri_free(text);
    return good ? TRI_OK : tri_fail(TRI_ECONFIG, "%s: want a line user:password", etcd->auth);
}

static tri_status url_read(tri_etcd *etcd, char *text, char prefix[TRI_ETCD_PREFIX_NBYTES])
{
    bool tls = strncmp(text, "etcds://", 8) == 0;
    char *list = text + (tls ? 8 : 7), *settings = strchr(list, '?'), *path;

    etcd->scheme = tls ? "https" : "http";
    if (settings)
        *settings++ = 0;
    path = strchr(list, '/');
    if (path)
        *path++ = 0;
    for (size_t end = path ? strlen(path) : 0; end > 0 && path[end - 1] == '/'; end--)
        path[end - 1] = 0;
    if (path && strlen(path) > TRI_ETCD_PREFIX_NBYTES - 2)
        return wrong(etcd->url, "got a long prefix");
    snprintf(prefix, TRI_ETCD_PREFIX_NBYTES, "%s%s", path ? path : "", path && path[0] ? "/" : "");
    TRI_TRY(members_read(etcd, list));
    if (settings)
        TRI_TRY(settings_read(etcd, settings));
    if (!tls && (etcd->ca || etcd->cert || etcd->key))
        return wrong(etcd->url, "ca, cert and key require etcds");
    for (int i = 0; etcd->auth && !tls && !etcd->insecure && i < etcd->count; i++)
        if (is_far(etcd->members[i]))
            return tri_fail(
                TRI_ECONFIG,
                "store url: auth=FILE: want etcds:// (TLS), so that the password does not go to %s in clear, "
                "got etcd:// (&insecure=yes permits it)",
                etcd->members[i]);
    return user_read(etcd);
}

/* --- asking --- */

static size_t answer_take(char *bytes, size_t each, size_t count, void *arg)
{
    tri_string *answer = arg;

    if (answer->nbytes + each * count > ANSWER_LIMIT || tri_string_append_bytes(answer, bytes, each * count) != TRI_OK)
        return 0;
    return each * count;
}

/* The first line says that the watch is set up; whatever comes after it ends the call. */
static size_t event_take(char *bytes, size_t each, size_t count, void *arg)
{
    bool *seen = arg;

    for (size_t i = 0; i < each * count; i++) {
        if (*seen && bytes[i] != '\n')
            return 0;
        *seen = *seen || bytes[i] == '\n';
    }
    return each * count;
}

/* An option that only a wrong library refuses. */
#define SET(option, value) (void)etcd->calls->curl_easy_setopt(etcd->curl, option, value)

static void member_set(tri_etcd *etcd, const char *path, const char *question, int64_t limit_ns)
{
    char url[NAME_NBYTES + 64];

    snprintf(url, sizeof url, "%s://%s/v3/%s", etcd->scheme, etcd->members[etcd->at], path);
    SET(CURLOPT_URL, url);
    SET(CURLOPT_POSTFIELDS, question);
    SET(CURLOPT_POSTFIELDSIZE, (long)strlen(question));
    SET(CURLOPT_TIMEOUT_MS, (long)(limit_ns / TRI_NS_PER_MS + 1));
    SET(CURLOPT_HTTPHEADER, etcd->headers);
}

static tri_status unreachable(tri_etcd *etcd, const char *why)
{
    tri_fail(TRI_EPEER, "etcd %s: %s", etcd->members[etcd->at], why);
    etcd->at = (etcd->at + 1) % etcd->count;
    return TRI_EPEER;
}

/* What etcd answers where it does not do it. Codes are gRPC's: another member may do it (1 canceled, 4 late, 8 too
 * much, 14 unavailable). TRI_EABORT: the token of the user is not good any more. */
static tri_status refused(tri_etcd *etcd, const tri_string *answer)
{
    json_t *root = json_loads(tri_string_text(answer), 0, NULL);
    const char *words = json_string_value(json_object_get(root, "error"));
    int code = (int)json_integer_value(json_object_get(root, "code"));
    tri_status status;

    if (!words || code == 1 || code == 4 || code == 8 || code == 14)
        status = unreachable(etcd, words ? words : "no JSON gateway of etcd");
    else if (code == 16 || strstr(words, "invalid auth token"))
        status = tri_fail(TRI_EABORT, "etcd %s: %s", etcd->members[etcd->at], words);
    else
        status = tri_fail(TRI_ECONFIG, "etcd %s refuses: %s", etcd->members[etcd->at], words);
    json_decref(root);
    return status;
}

/* What waiting does not fix, unless it was right before: then one member of several is another one. */
static bool is_wrong_trust(CURLcode code)
{
    return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_CERTPROBLEM;
}

static tri_status ask_once(tri_etcd *etcd, const char *path, const char *question, int64_t limit_ns, tri_string *answer)
{
    long http = 0;

    tri_string_clear(answer);
    member_set(etcd, path, question, limit_ns);
    SET(CURLOPT_WRITEFUNCTION, answer_take);
    SET(CURLOPT_WRITEDATA, answer);
    etcd->reason[0] = 0;
    CURLcode code = etcd->calls->curl_easy_perform(etcd->curl);
    const char *why = etcd->reason[0] ? etcd->reason : etcd->calls->curl_easy_strerror(code);
    if (is_wrong_trust(code) && !etcd->met)
        return tri_fail(TRI_ECONFIG, "etcd %s: %s (?ca=FILE names who signs its certificate)", etcd->members[etcd->at],
                        why);
    if (code != CURLE_OK)
        return unreachable(etcd, why);
    etcd->met = true;
    etcd->calls->curl_easy_getinfo(etcd->curl, CURLINFO_RESPONSE_CODE, &http);
    return http == 200 ? TRI_OK : refused(etcd, answer);
}

/* A token for the user of the url. */
static tri_status login(tri_etcd *etcd, int64_t limit_ns)
{
    tri_string answer = {0};
    json_t *words = json_pack("{s:s, s:s}", "name", etcd->user, "password", etcd->password);
    char *question = words ? json_dumps(words, JSON_COMPACT) : NULL, *header = NULL;
    tri_status status = question ? TRI_OK : TRI_ENOMEM;

    etcd->calls->curl_slist_free_all(etcd->headers);
    etcd->headers = NULL;
    if (status == TRI_OK)
        status = ask_once(etcd, "auth/authenticate", question, limit_ns, &answer);
    json_t *root = status == TRI_OK ? json_loads(tri_string_text(&answer), 0, NULL) : NULL;
    const char *token = json_string_value(json_object_get(root, "token"));
    if (status == TRI_OK && !token)
        status =
            tri_fail(TRI_EFORMAT, "etcd %s: want a token for user %s, got none", etcd->members[etcd->at], etcd->user);
    if (status == TRI_OK && !(header = tri_format("Authorization: %s", token)))
        status = TRI_ENOMEM;
    if (status == TRI_OK)
        etcd->headers = etcd->calls->curl_slist_append(NULL, header);
    tri_free(header);
    json_decref(root);
    json_decref(words);
    if (question)
        memset(question, 0, strlen(question));
    free(question);
    tri_string_fini(&answer);
    return status == TRI_EABORT ? TRI_ECONFIG : status;
}

tri_status tri_etcd_ask(tri_etcd *etcd, const char *path, const char *question, int64_t limit_ns, tri_string *answer)
{
    if (etcd->user[0] && !etcd->headers)
        TRI_TRY(login(etcd, LOGIN_NS));
    tri_status status = ask_once(etcd, path, question, limit_ns, answer);
    if (status == TRI_EABORT && etcd->user[0]) {
        TRI_TRY(login(etcd, LOGIN_NS));
        status = ask_once(etcd, path, question, limit_ns, answer);
    }
    return status == TRI_EABORT ? TRI_ECONFIG : status;
}

tri_status tri_etcd_watch(tri_etcd *etcd, const char *question, int64_t limit_ns)
{
    bool seen = false;

    member_set(etcd, "watch", question, limit_ns);
    SET(CURLOPT_WRITEFUNCTION, event_take);
    SET(CURLOPT_WRITEDATA, &seen);
    etcd->reason[0] = 0;
    CURLcode code = etcd->calls->curl_easy_perform(etcd->curl);
    if (code == CURLE_OK || code == CURLE_OPERATION_TIMEDOUT || (code == CURLE_WRITE_ERROR && seen))
        return TRI_OK;
    return unreachable(etcd, etcd->reason[0] ? etcd->reason : etcd->calls->curl_easy_strerror(code));
}

/* --- opening --- */

tri_status tri_etcd_open(const char *url, tri_etcd **out, char prefix[TRI_ETCD_PREFIX_NBYTES])
{
    tri_etcd *etcd = tri_alloc_zero(1, sizeof *etcd);
    char *text = tri_strdup(url);

    *out = NULL;
    tri_status status = etcd && text && (etcd->url = tri_strdup(url)) ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK)
        status = url_read(etcd, text, prefix);
    if (status == TRI_OK)
        status = tri_fail_context(tri_curl_open(&etcd->calls), "store etcd");
    if (status == TRI_OK && !(etcd->curl = etcd->calls->curl_easy_init()))
        status = TRI_ENOMEM;
    tri_free(text);
    if (status != TRI_OK) {
        tri_etcd_close(etcd);
        return status;
    }
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_NOPROXY, "*");
    SET(CURLOPT_TCP_NODELAY, 1L);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    SET(CURLOPT_ERRORBUFFER, etcd->reason);
    SET(CURLOPT_POST, 1L);
    if (etcd->ca)
        SET(CURLOPT_CAINFO, etcd->ca);
    if (etcd->cert)
        SET(CURLOPT_SSLCERT, etcd->cert);
    if (etcd->key)
        SET(CURLOPT_SSLKEY, etcd->key);
    *out = etcd;
    return TRI_OK;
}

void tri_etcd_close(tri_etcd *etcd)
{
    if (!etcd)
        return;
    if (etcd->curl)
        etcd->calls->curl_easy_cleanup(etcd->curl);
    if (etcd->headers)
        etcd->calls->curl_slist_free_all(etcd->headers);
    tri_free(etcd->auth);
    tri_free(etcd->ca);
    tri_free(etcd->cert);
    tri_free(etcd->key);
    tri_free(etcd->url);
    memset(etcd->password, 0, sizeof etcd->password);
    tri_free(etcd);
}
