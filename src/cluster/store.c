/* SPDX-License-Identifier: Apache-2.0
 *
 * store.c: opens a store by its url and sends each call to it; the checks that all kinds share.
 */
#include "cluster/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cluster/store_impl.h"

static const unsigned char magic[4] = {'T', 'R', 'S', '2'};

static void put_number(unsigned char *out, uint64_t value, int nbytes)
{
    for (int i = 0; i < nbytes; i++)
        out[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t number_at(const unsigned char *in, int nbytes)
{
    uint64_t value = 0;

    for (int i = 0; i < nbytes; i++)
        value |= (uint64_t)in[i] << (8 * i);
    return value;
}

void tri_store_message_write(const tri_store_message *message, unsigned char out[TRI_STORE_HEADER_NBYTES])
{
    memcpy(out, magic, sizeof magic);
    out[4] = message->op;
    out[5] = message->status;
    put_number(out + 6, message->key_nbytes, 2);
    put_number(out + 8, message->value_nbytes, 4);
    put_number(out + 12, message->ticket, 4);
    put_number(out + 16, (uint64_t)message->number, 8);
}

tri_status tri_store_message_read(const unsigned char in[TRI_STORE_HEADER_NBYTES], tri_store_message *message)
{
    if (memcmp(in, magic, sizeof magic) != 0)
        return tri_fail(TRI_EFORMAT, "store message: want it to begin with TRS2, got bytes %02x %02x %02x %02x", in[0],
                        in[1], in[2], in[3]);
    message->op = in[4];
    message->status = in[5];
    message->key_nbytes = (uint16_t)number_at(in + 6, 2);
    message->value_nbytes = (uint32_t)number_at(in + 8, 4);
    message->ticket = (uint32_t)number_at(in + 12, 4);
    message->number = (int64_t)number_at(in + 16, 8);
    if ((message->op & ~TRI_STORE_REPLY) >= TRI_STORE_OP_COUNT)
        return tri_fail(TRI_EFORMAT, "store message: want an operation below %d, got %d", TRI_STORE_OP_COUNT,
                        message->op);
    if (message->key_nbytes > TRI_STORE_KEY_NBYTES)
        return tri_fail(TRI_EINVAL, "store key: want at most %d bytes, got %d", TRI_STORE_KEY_NBYTES,
                        message->key_nbytes);
    if (message->value_nbytes > TRI_STORE_VALUE_NBYTES)
        return tri_fail(TRI_EINVAL, "store value: want at most %u bytes, got %u", TRI_STORE_VALUE_NBYTES,
                        message->value_nbytes);
    return TRI_OK;
}

tri_status tri_store_proof(const char *token, const char *who, const unsigned char server_nonce[TRI_STORE_NONCE_NBYTES],
                           const unsigned char client_nonce[TRI_STORE_NONCE_NBYTES], unsigned char out[TRI_AUTH_NBYTES])
{
    unsigned char message[16 + 2 * TRI_STORE_NONCE_NBYTES] = {0};

    memcpy(message, "store ", 6);
    memcpy(message + 6, who, 6);
    memcpy(message + 16, server_nonce, TRI_STORE_NONCE_NBYTES);
    memcpy(message + 16 + TRI_STORE_NONCE_NBYTES, client_nonce, TRI_STORE_NONCE_NBYTES);
    return tri_auth_prove(token, message, sizeof message, out);
}

tri_status tri_store_key_check(const char *key, size_t nbytes)
{
    if (nbytes < 1 || nbytes > TRI_STORE_KEY_NBYTES)
        return tri_fail(TRI_EINVAL, "store key: want 1 to %d bytes, got %zu", TRI_STORE_KEY_NBYTES, nbytes);
    for (size_t i = 0; i < nbytes; i++) {
        char c = key[i];

        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
              c == '/' || c == '-'))
            return tri_fail(TRI_EINVAL, "store key: want bytes of [A-Za-z0-9_./-], got byte %d at %zu",
                            (unsigned char)c, i);
    }
    return TRI_OK;
}

tri_status tri_store_sum_make(const char *text, size_t nbytes, tri_store_sum sum, int64_t *after)
{
    long long before = 0, result;
    char *end = NULL;

    errno = 0;
    if (text)
        before = strtoll(text, &end, 10);
    if (text && (end == text || end != text + nbytes || errno))
        return tri_fail(TRI_EINVAL, "want a number there, got other bytes");
    if (sum.raises)
        result = before > sum.amount ? before : (long long)sum.amount;
    else if (__builtin_add_overflow(before, (long long)sum.amount, &result))
        return tri_fail(TRI_EINVAL, "the sum is beyond 64 bits");
    *after = result;
    return TRI_OK;
}

/* A port number up to `stop`; -1 when it is none. */
static int port_of(const char *text, const char *stop)
{
    int port = 0;

    if (text == stop || stop - text > 5)
        return -1;
    for (; text < stop; text++) {
        if (*text < '0' || *text > '9')
            return -1;
        port = port * 10 + (*text - '0');
    }
    return port >= 1 && port <= 65535 ? port : -1;
}

tri_status tri_store_url_parse(const char *text, tri_store_url *url)
{
    const char *host, *colon, *dash, *end;
    size_t nbytes;

    memset(url, 0, sizeof *url);
    if (strncmp(text, "file:///", 8) == 0) {
        nbytes = strlen(text + 7);
        if (nbytes < 2 || nbytes >= sizeof url->path)
            return tri_fail(TRI_ECONFIG, "store url: want file:///<folder> of at most %zu bytes, got '%.200s'",
                            sizeof url->path - 1, text);
        url->is_file = true;
        memcpy(url->path, text + 7, nbytes + 1);
        return TRI_OK;
    }
    if (strncmp(text, "etcd://", 7) == 0 || strncmp(text, "etcds://", 8) == 0) {
        url->is_etcd = true;
        return TRI_OK;
    }
    host = text + 6;
    colon = strncmp(text, "tcp://", 6) == 0 ? strrchr(host, ':') : NULL;
    if (!colon)
        return tri_fail(TRI_ECONFIG,
                        "store url: want tcp://<host>:<port>, file:///<folder> or etcd://<host>:<port>, got '%.200s'",
                        text);
    end = colon + strlen(colon);
    dash = strchr(colon, '-');
    url->first_port = port_of(colon + 1, dash ? dash : end);
    url->last_port = dash ? port_of(dash + 1, end) : url->first_port;
    if (url->first_port < 1 || url->last_port < url->first_port)
        return tri_fail(TRI_ECONFIG, "store url: want a port of 1 to 65535 (or first-last), got '%.200s'", text);
    nbytes = (size_t)(colon - host);
    if (nbytes >= 2 && host[0] == '[' && host[nbytes - 1] == ']') {
        host++;
        nbytes -= 2;
    }
    if (nbytes < 1 || nbytes >= sizeof url->host)
        return tri_fail(TRI_ECONFIG, "store url: want a host of 1 to %zu bytes, got '%.200s'", sizeof url->host - 1,
                        text);
    memcpy(url->host, host, nbytes);
    return TRI_OK;
}

tri_status tri_store_open_as(const char *url, const char *token, tri_store_opening *opening, int64_t deadline_ns,
                             tri_store **out)
{
    tri_store_url parsed;

    *out = NULL;
    TRI_TRY(tri_store_url_parse(url, &parsed));
    if (parsed.is_etcd)
#ifdef TRI_HAS_CURL
        return tri_store_etcd_open(url, opening, deadline_ns, out);
#else
        return tri_fail(TRI_EUNSUPPORTED,
                        "store %.200s: this build has no etcd (apt-get install libcurl4-openssl-dev, then build again)",
                        url);
#endif
    return parsed.is_file ? tri_store_file_open(&parsed, token, deadline_ns, out)
                          : tri_store_tcp_open(&parsed, token, opening, deadline_ns, out);
}

static void late_log(void *arg, const char *reason)
{
    tri_log(TRI_LOG_WARN, "waiting for the store %s (%s)", (const char *)arg, reason);
}

tri_status tri_store_open(const char *url, const char *token, int64_t deadline_ns, tri_store **out)
{
    tri_store_opening opening = {.late = late_log, .arg = (void *)(uintptr_t)url};

    tri_wait_begin(&opening.wait);
    return tri_store_open_as(url, token, &opening, deadline_ns, out);
}

static tri_status value_check(const char *key, size_t nbytes)
{
    if (nbytes > TRI_STORE_VALUE_NBYTES)
        return tri_fail(TRI_EINVAL, "store key %s: want a value of at most %u bytes, got %zu", key,
                        TRI_STORE_VALUE_NBYTES, nbytes);
    return TRI_OK;
}

tri_status tri_store_set(tri_store *store, const char *key, const void *bytes, size_t nbytes, int64_t deadline_ns)
{
    TRI_TRY(tri_store_key_check(key, strlen(key)));
    TRI_TRY(value_check(key, nbytes));
    return store->ops->set(store, key, bytes, nbytes, deadline_ns);
}

tri_status tri_store_wait(tri_store *store, const char *key, char **bytes, size_t *nbytes, int64_t deadline_ns)
{
    *bytes = NULL;
    *nbytes = 0;
    TRI_TRY(tri_store_key_check(key, strlen(key)));
    return store->ops->wait(store, key, bytes, nbytes, deadline_ns);
}

tri_status tri_store_add(tri_store *store, const char *key, int64_t amount, int64_t *after, int64_t deadline_ns)
{
    *after = 0;
    TRI_TRY(tri_store_key_check(key, strlen(key)));
    return store->ops->add(store, key, amount, after, deadline_ns);
}

tri_status tri_store_raise(tri_store *store, const char *key, int64_t least, int64_t *after, int64_t deadline_ns)
{
    *after = 0;
    TRI_TRY(tri_store_key_check(key, strlen(key)));
    return store->ops->raise(store, key, least, after, deadline_ns);
}

tri_status tri_store_remove(tri_store *store, const char *key, int64_t deadline_ns)
{
    TRI_TRY(tri_store_key_check(key, strlen(key)));
    return store->ops->remove(store, key, deadline_ns);
}

tri_status tri_store_claim(tri_store *store, const char *key, const void *mine, size_t mine_nbytes, char **bytes,
                           size_t *nbytes, int64_t deadline_ns)
{
    *bytes = NULL;
    *nbytes = 0;
    TRI_TRY(tri_store_key_check(key, strlen(key)));
    TRI_TRY(value_check(key, mine_nbytes));
    return store->ops->claim(store, key, mine, mine_nbytes, bytes, nbytes, deadline_ns);
}

tri_status tri_store_clear(tri_store *store, int64_t deadline_ns)
{
    return store->ops->clear ? store->ops->clear(store, deadline_ns) : TRI_OK;
}

void tri_store_close(tri_store *store)
{
    if (store)
        store->ops->close(store);
}
