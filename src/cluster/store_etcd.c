/* SPDX-License-Identifier: Apache-2.0
 *
 * store_etcd.c: a store in an etcd cluster: it outlives launchers, and the loss of any of its members but a majority.
 *
 * A claim is one transaction (put if nobody has), an add a compare-and-swap on the revision, a wait a look and then a
 * watch from that look's revision on, so that nothing is missed between the two. Keys of a job have a prefix of their
 * own. A call whose member does not answer is asked of the next one, although the first may have done it: so a store
 * puts a mark of its own with each claim and each number that it changes, and knows by it what it has done already.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/etcd_http.h"
#include "cluster/store_impl.h"

#define ASK_NS   TRI_NS_PER_S /* of one question to one member */
#define WATCH_NS (10 * TRI_NS_PER_S)
#define PAUSE_NS (20 * TRI_NS_PER_MS)

typedef struct etcd_store {
    tri_store base;
    tri_mutex mutex;
    tri_etcd *etcd;
    char prefix[TRI_ETCD_PREFIX_NBYTES];
    char mark[32];              /* key of the number of this store's latest transaction */
    int64_t changes;            /* transactions so far */
    tri_store_opening *opening; /* until it is open: a stop signal ends its waits; else NULL */
} etcd_store;

/* --- base 64, as JSON carries bytes --- */

static char *base64_of(const void *bytes, size_t nbytes)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = bytes;
    char *text = tri_alloc((nbytes + 2) / 3 * 4 + 1), *out = text;

    for (size_t i = 0; text && i < nbytes; i += 3) {
        size_t left = nbytes - i;
        uint32_t word = (uint32_t)in[i] << 16 | (left > 1 ? (uint32_t)in[i + 1] << 8 : 0) | (left > 2 ? in[i + 2] : 0);

        for (int k = 0; k < 4; k++)
            *out++ = (size_t)k > left ? '=' : letters[word >> (18 - 6 * k) & 63];
    }
    if (text)
        *out = 0;
    return text;
}

static int digit_of(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* With a 0 byte behind it. TRI_EFORMAT: it is none. */
static tri_status base64_read(const char *text, char **bytes, size_t *nbytes)
{
    size_t length = strlen(text), count = 0;
    uint32_t word = 0;
    int held = 0;

    while (length > 0 && text[length - 1] == '=')
        length--;
    char *out = tri_alloc(length * 3 / 4 + 2);
    if (!out)
        return TRI_ENOMEM;
    for (size_t i = 0; i < length; i++) {
        int digit = digit_of(text[i]);

        if (digit < 0) {
            tri_free(out);
            return tri_fail(TRI_EFORMAT, "etcd: want bytes in base 64, got byte %d", (unsigned char)text[i]);
        }
        word = word << 6 | (uint32_t)digit;
        held += 6;
        if (held >= 8)
            out[count++] = (char)(word >> (held -= 8));
    }
    out[count] = 0;
    *bytes = out;
    *nbytes = count;
    return TRI_OK;
}

/* --- questions --- */

/* Of one question: who answers, and until when. */
typedef struct patience {
    int64_t gone_ns; /* since when nobody does; 0: somebody did */
} patience;

/* Whether to ask again after status. */
static bool asks_on(const etcd_store *store, patience *at, tri_status status, int64_t deadline_ns)
{
    int64_t now_ns = tri_now_ns();

    if (status != TRI_EPEER) {
        at->gone_ns = 0;
        return false;
    }
    if (at->gone_ns == 0)
        at->gone_ns = now_ns;
    if (store->base.patience_ns > 0 ? now_ns - at->gone_ns >= store->base.patience_ns || tri_stop_signal()
                                    : now_ns >= deadline_ns)
        return false;
    if (store->opening && tri_stop_signal())
        return false;
    if (store->opening && store->opening->late && tri_wait_is_long(&store->opening->wait))
        store->opening->late(store->opening->arg, tri_last_error());
    tri_sleep_ns(PAUSE_NS);
    return true;
}

/* *root: the answer; json_decref. */
static tri_status ask(etcd_store *store, const char *path, const char *question, int64_t deadline_ns, json_t **root)
{
    tri_string answer = {0};
    patience at = {0};
    json_error_t error;
    tri_status status;

    *root = NULL;
    do {
        status = tri_etcd_ask(store->etcd, path, question, ASK_NS, &answer);
    } while (asks_on(store, &at, status, deadline_ns));
    if (status == TRI_OK && !(*root = json_loads(tri_string_text(&answer), 0, &error)))
        status = tri_fail(TRI_EFORMAT, "etcd: %s", error.text);
    tri_string_fini(&answer);
    return status;
}

/* The JSON text of a format whose words are base 64; NULL: memory is out. */
static char *key64(const etcd_store *store, const char *key)
{
    char full[TRI_ETCD_PREFIX_NBYTES + TRI_STORE_KEY_NBYTES + 1];

    return base64_of(full, (size_t)snprintf(full, sizeof full, "%s%s", store->prefix, key));
}

/* What a look has found. */
typedef struct found {
    bool is_there;
    char *bytes; /* the caller's */
    size_t nbytes;
    long long revision, changed; /* of the look; of the key */
} found;

/* From an object with "header" and "kvs". etcd writes 64-bit numbers as texts, and leaves out what is empty. */
static tri_status found_read(json_t *range, json_t *header, found *out)
{
    json_t *first = json_array_get(json_object_get(range, "kvs"), 0);
    const char *revision = json_string_value(json_object_get(header, "revision"));
    const char *changed = json_string_value(json_object_get(first, "mod_revision"));
    const char *value = json_string_value(json_object_get(first, "value"));

    *out = (found){.is_there = first != NULL,
                   .revision = revision ? strtoll(revision, NULL, 10) : 0,
                   .changed = changed ? strtoll(changed, NULL, 10) : 0};
    return first ? base64_read(value ? value : "", &out->bytes, &out->nbytes) : TRI_OK;
}

/* {"key":..}; NULL: memory is out. */
static char *key_text(const etcd_store *store, const char *key)
{
    char *name = key64(store, key), *text = name ? tri_format("{\"key\":\"%s\"}", name) : NULL;

    tri_free(name);
    return text;
}

/* {"key":..,"value":..}; value: in base 64. */
static char *put_text(const etcd_store *store, const char *key, const char *value)
{
    char *name = key64(store, key);
    char *text = name && value ? tri_format("{\"key\":\"%s\",\"value\":\"%s\"}", name, value) : NULL;

    tri_free(name);
    return text;
}

static tri_status look(etcd_store *store, const char *key, int64_t deadline_ns, found *out)
{
    char *question = key_text(store, key);
    json_t *root = NULL;
    tri_status status = question ? ask(store, "kv/range", question, deadline_ns, &root) : TRI_ENOMEM;

    *out = (found){0};
    if (status == TRI_OK)
        status = found_read(root, json_object_get(root, "header"), out);
    json_decref(root);
    tri_free(question);
    return status;
}

/* A transaction: puts the value of `key`, and `mark` (in base 64) beside it, if the "CREATE" or "MOD" revision of the
 * key is this one; else looks at both. */
static char *swap_text(const etcd_store *store, const char *key, const char *target, long long revision,
                       const char *value, const char *mark)
{
    const char *field = strcmp(target, "CREATE") == 0 ? "create_revision" : "mod_revision";
    char *name = key64(store, key), *puts = put_text(store, key, value), *looks = key_text(store, key);
    char *mark_put = put_text(store, store->mark, mark), *mark_look = key_text(store, store->mark), *text = NULL;

    if (name && puts && looks && mark_put && mark_look)
        text = tri_format("{\"compare\":[{\"key\":\"%s\",\"target\":\"%s\",\"%s\":\"%lld\"}],"
                          "\"success\":[{\"request_put\":%s},{\"request_put\":%s}],"
                          "\"failure\":[{\"request_range\":%s},{\"request_range\":%s}]}",
                          name, target, field, revision, puts, mark_put, looks, mark_look);
    tri_free(name);
    tri_free(puts);
    tri_free(looks);
    tri_free(mark_put);
    tri_free(mark_look);
    return text;
}

static json_t *range_of(json_t *root, size_t index)
{
    return json_object_get(json_array_get(json_object_get(root, "responses"), index), "response_range");
}

/* Puts the value if the key's "CREATE" or "MOD" revision is this one. *done: it was, now or when the same was asked of
 * a member that has not answered; else *out is what is there. */
static tri_status swap(etcd_store *store, const char *key, const char *target, long long revision, const void *bytes,
                       size_t nbytes, int64_t deadline_ns, bool *done, found *out)
{
    char mark_text[32], *value = base64_of(bytes, nbytes);
    char *mark =
        base64_of(mark_text, (size_t)snprintf(mark_text, sizeof mark_text, "%lld", (long long)store->changes++));
    char *question = value && mark ? swap_text(store, key, target, revision, value, mark) : NULL;
    json_t *root = NULL;

    *out = (found){0};
    tri_status status = question ? ask(store, "kv/txn", question, deadline_ns, &root) : TRI_ENOMEM;
    *done = json_is_true(json_object_get(root, "succeeded"));
    if (status == TRI_OK && !*done) {
        json_t *row = json_array_get(json_object_get(range_of(root, 1), "kvs"), 0);
        const char *there = json_string_value(json_object_get(row, "value"));
        *done = there && strcmp(there, mark) == 0;
    }
    if (status == TRI_OK && !*done)
        status = found_read(range_of(root, 0), json_object_get(root, "header"), out);
    json_decref(root);
    tri_free(value);
    tri_free(mark);
    tri_free(question);
    return status;
}

/* --- the calls --- */

static tri_status put(etcd_store *store, const char *key, const void *bytes, size_t nbytes, int64_t deadline_ns)
{
    char *value = base64_of(bytes, nbytes), *question = put_text(store, key, value);
    json_t *root = NULL;
    tri_status status = question ? ask(store, "kv/put", question, deadline_ns, &root) : TRI_ENOMEM;

    json_decref(root);
    tri_free(value);
    tri_free(question);
    return status;
}

static tri_status etcd_set(tri_store *base, const char *key, const void *bytes, size_t nbytes, int64_t deadline_ns)
{
    etcd_store *store = tri_container_of(base, etcd_store, base);

    tri_mutex_lock(&store->mutex);
    tri_status status = put(store, key, bytes, nbytes, deadline_ns);
    tri_mutex_unlock(&store->mutex);
    return status;
}

/* Until something happens to the key after a look, or the time is over. */
static tri_status watch(etcd_store *store, const char *key, long long revision, int64_t deadline_ns)
{
    int64_t left_ns = deadline_ns == TRI_FOREVER ? WATCH_NS : deadline_ns - tri_now_ns();
    char *name = key64(store, key);
    char *question =
        name ? tri_format("{\"create_request\":{\"key\":\"%s\",\"start_revision\":\"%lld\"}}", name, revision + 1)
             : NULL;
    tri_status status = question ? TRI_OK : TRI_ENOMEM;

    if (status == TRI_OK && left_ns > 0)
        status = tri_etcd_watch(store->etcd, question, left_ns < WATCH_NS ? left_ns : WATCH_NS);
    tri_free(name);
    tri_free(question);
    return status == TRI_EPEER ? TRI_OK : status; /* the next look finds out who is there */
}

static tri_status etcd_wait(tri_store *base, const char *key, char **bytes, size_t *nbytes, int64_t deadline_ns)
{
    etcd_store *store = tri_container_of(base, etcd_store, base);
    found at;
    tri_status status;

    tri_mutex_lock(&store->mutex);
    do {
        status = look(store, key, deadline_ns, &at);
        if (status == TRI_OK && !at.is_there)
            status = tri_now_ns() >= deadline_ns ? TRI_ETIMEOUT : watch(store, key, at.revision, deadline_ns);
    } while (status == TRI_OK && !at.is_there);
    tri_mutex_unlock(&store->mutex);
    if (status == TRI_OK) {
        *bytes = at.bytes;
        *nbytes = at.nbytes;
    }
    return status == TRI_ETIMEOUT
               ? tri_fail(status, "store key %s: want it to be set before the deadline, nobody did", key)
               : status;
}

/* What changes nothing is a look alone. */
static tri_status number_change(tri_store *base, const char *key, tri_store_sum sum, int64_t *after,
                                int64_t deadline_ns)
{
    etcd_store *store = tri_container_of(base, etcd_store, base);
    char text[32];
    bool done = false;
    found at;
    int64_t before;

    tri_mutex_lock(&store->mutex);
    tri_status status = look(store, key, deadline_ns, &at);
    while (status == TRI_OK && !done) {
        found now = {0};

        status = tri_store_sum_make(at.bytes, at.nbytes, (tri_store_sum){0}, &before);
        if (status == TRI_OK)
            status = tri_store_sum_make(at.bytes, at.nbytes, sum, after);
        if (status != TRI_OK)
            tri_fail_context(status, "store key %s", key);
        snprintf(text, sizeof text, "%lld", (long long)*after);
        if (status == TRI_OK && *after == before)
            done = true;
        else if (status == TRI_OK)
            status = swap(store, key, "MOD", at.changed, text, strlen(text), deadline_ns, &done, &now);
        tri_free(at.bytes);
        at = now;
    }
    tri_mutex_unlock(&store->mutex);
    tri_free(at.bytes);
    return status;
}

static tri_status etcd_add(tri_store *base, const char *key, int64_t amount, int64_t *after, int64_t deadline_ns)
{
    return number_change(base, key, (tri_store_sum){amount, false}, after, deadline_ns);
}

static tri_status etcd_raise(tri_store *base, const char *key, int64_t least, int64_t *after, int64_t deadline_ns)
{
    return number_change(base, key, (tri_store_sum){least, true}, after, deadline_ns);
}

static tri_status etcd_remove(tri_store *base, const char *key, int64_t deadline_ns)
{
    etcd_store *store = tri_container_of(base, etcd_store, base);
    char *question = key_text(store, key);
    json_t *root = NULL;

    tri_mutex_lock(&store->mutex);
    tri_status status = question ? ask(store, "kv/deleterange", question, deadline_ns, &root) : TRI_ENOMEM;
    tri_mutex_unlock(&store->mutex);
    json_decref(root);
    tri_free(question);
    return status;
}

static tri_status etcd_claim(tri_store *base, const char *key, const void *mine, size_t mine_nbytes, char **bytes,
                             size_t *nbytes, int64_t deadline_ns)
{
    etcd_store *store = tri_container_of(base, etcd_store, base);
    bool done = false;
    found at = {0};

    tri_mutex_lock(&store->mutex);
    tri_status status = swap(store, key, "CREATE", 0, mine, mine_nbytes, deadline_ns, &done, &at);
    tri_mutex_unlock(&store->mutex);
    if (status == TRI_OK && done) {
        at.bytes = tri_alloc(mine_nbytes + 1);
        if (!at.bytes)
            return TRI_ENOMEM;
        memcpy(at.bytes, mine, mine_nbytes);
        at.bytes[mine_nbytes] = 0;
        at.nbytes = mine_nbytes;
    }
    if (status == TRI_OK && !at.bytes)
        status = tri_fail(TRI_EFORMAT, "etcd: want the value of %s, got nothing", key);
    *bytes = at.bytes;
    *nbytes = at.nbytes;
    return status;
}

/* All keys under the prefix of the url; without one nothing says which are ours. */
static tri_status etcd_clear(tri_store *base, int64_t deadline_ns)
{
    etcd_store *store = tri_container_of(base, etcd_store, base);
    char end[TRI_ETCD_PREFIX_NBYTES];
    size_t nbytes = strlen(store->prefix);
    json_t *root = NULL;

    if (nbytes == 0)
        return TRI_OK;
    memcpy(end, store->prefix, nbytes);
    end[nbytes - 1]++; /* the slash: the first text behind all that begin with the prefix */
    char *from = base64_of(store->prefix, nbytes), *to = base64_of(end, nbytes);
    char *question = from && to ? tri_format("{\"key\":\"%s\",\"range_end\":\"%s\"}", from, to) : NULL;
    tri_mutex_lock(&store->mutex);
    tri_status status = question ? ask(store, "kv/deleterange", question, deadline_ns, &root) : TRI_ENOMEM;
    tri_mutex_unlock(&store->mutex);
    json_decref(root);
    tri_free(from);
    tri_free(to);
    tri_free(question);
    return status;
}

static void etcd_close(tri_store *base)
{
    etcd_store *store = tri_container_of(base, etcd_store, base);

    tri_etcd_close(store->etcd);
    tri_mutex_fini(&store->mutex);
    tri_free(store);
}

static const tri_store_ops etcd_ops = {
    .name = "etcd",
    .does = "keys in an etcd cluster, which outlives any of its members and the launcher",
    .set = etcd_set,
    .wait = etcd_wait,
    .add = etcd_add,
    .raise = etcd_raise,
    .remove = etcd_remove,
    .claim = etcd_claim,
    .clear = etcd_clear,
    .close = etcd_close,
};

tri_status tri_store_etcd_open(const char *url, tri_store_opening *opening, int64_t deadline_ns, tri_store **out)
{
    etcd_store *store = tri_alloc_zero(1, sizeof *store);
    uint64_t number;
    found at;

    *out = NULL;
    if (!store)
        return TRI_ENOMEM;
    store->base.ops = &etcd_ops;
    tri_mutex_init(&store->mutex);
    tri_entropy(&number, sizeof number);
    snprintf(store->mark, sizeof store->mark, "marks/%016llx", (unsigned long long)number);
    tri_status status = tri_etcd_open(url, &store->etcd, store->prefix);
    store->opening = opening;
    if (status == TRI_OK) /* somebody answers, and lets us in */
        status = look(store, "opened", deadline_ns, &at);
    store->opening = NULL;
    if (status == TRI_EPEER && tri_stop_signal())
        status = tri_wait_check("connecting to etcd");
    else if (status == TRI_EPEER)
        status = tri_fail_context(TRI_ETIMEOUT, "store %.200s: want an answer before the deadline", url);
    if (status != TRI_OK) {
        etcd_close(&store->base);
        return status;
    }
    tri_free(at.bytes);
    *out = &store->base;
    return TRI_OK;
}
