/* SPDX-License-Identifier: Apache-2.0
 *
 * tls.c: OpenSSL's libssl with an external pre-shared key (RFC 8446, 2.2 and 4.2.11).
 *
 * A record that the socket takes only in part is held here, and its last byte counts as taken when all of it has gone:
 * so whoever writes a frame knows that it has left.
 */
#include "net/tls.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/wait.h"

#define BROKEN_NS         (5 * TRI_NS_PER_MS) /* between two looks at whether it cannot succeed */
#define IDENTITY          "trireme"
#define READ_AHEAD_NBYTES ((size_t)128 << 10)
#define SMALL_NBYTES      ((size_t)4096) /* of a record where memory counts */

struct tri_tls_context {
    SSL_CTX *ssl;
    bool bulk;
};

struct tri_tls {
    SSL *ssl;
    unsigned char key[TRI_AUTH_NBYTES];
    bool dry; /* what was read ahead, if anything, is no whole record */
    bool bulk;
    size_t record_nbytes; /* at most */
    size_t held_nbytes;   /* of `held`: a record that has not gone as a whole; its last byte is not counted yet */
    unsigned char held[];
};

static const unsigned char cipher_id[2] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256 */

/* ---- a write to a connection that is gone must not kill the process */

static void pipe_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGPIPE);
}

static void pipe_block(sigset_t *before)
{
    sigset_t pipe;

    pipe_set(&pipe);
    pthread_sigmask(SIG_BLOCK, &pipe, before);
}

/* Where it was not blocked before, none can have been pending: one that is now comes from the call that failed. */
static void pipe_restore(const sigset_t *before, bool failed)
{
    const struct timespec now = {0};
    const int number = errno; /* of the call */
    sigset_t pipe;

    if (sigismember(before, SIGPIPE) == 1)
        return;
    pipe_set(&pipe);
    while (failed && sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR)
        ;
    pthread_sigmask(SIG_SETMASK, before, NULL);
    errno = number;
}

/* ---- opening */

static tri_status tls_fail(const char *what)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());

    ERR_clear_error();
    return tri_fail(TRI_EUNSUPPORTED, "libssl: want %s, got: %s", what, reason ? reason : "no reason");
}

static SSL_SESSION *session_make(SSL *ssl)
{
    const tri_tls *tls = SSL_get_app_data(ssl);
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, cipher_id);
    SSL_SESSION *session = SSL_SESSION_new();

    if (session && cipher && SSL_SESSION_set1_master_key(session, tls->key, sizeof tls->key) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static int client_session(SSL *ssl, const EVP_MD *digest, const unsigned char **id, size_t *id_nbytes,
                          SSL_SESSION **session)
{
    (void)digest;
    *id = (const unsigned char *)IDENTITY;
    *id_nbytes = strlen(IDENTITY);
    *session = session_make(ssl);
    return *session != NULL;
}

static int server_session(SSL *ssl, const unsigned char *id, size_t id_nbytes, SSL_SESSION **session)
{
    *session = NULL;
    if (id_nbytes != strlen(IDENTITY) || memcmp(id, IDENTITY, id_nbytes) != 0)
        return 1; /* no such key: without certificates the handshake ends */
    *session = session_make(ssl);
    return *session != NULL;
}

tri_status tri_tls_context_create(bool bulk, tri_tls_context **out)
{
    tri_tls_context *made = tri_alloc_zero(1, sizeof *made);
    SSL_CTX *context = SSL_CTX_new(TLS_method());

    *out = NULL;
    if (!made) {
        SSL_CTX_free(context);
        return TRI_ENOMEM;
    }
    if (!context || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") != 1 || SSL_CTX_set_num_tickets(context, 0) != 1) {
        SSL_CTX_free(context);
        tri_free(made);
        return tls_fail("TLS 1.3 with TLS_AES_128_GCM_SHA256");
    }
    SSL_CTX_set_options(context, SSL_OP_ENABLE_KTLS | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  (bulk ? 0 : SSL_MODE_RELEASE_BUFFERS));
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_psk_use_session_callback(context, client_session);
    SSL_CTX_set_psk_find_session_callback(context, server_session);
    *made = (tri_tls_context){context, bulk};
    *out = made;
    return TRI_OK;
}

void tri_tls_context_destroy(tri_tls_context *context)
{
    if (context)
        SSL_CTX_free(context->ssl);
    tri_free(context);
}

tri_status tri_tls_open(tri_tls_context *context, int fd, bool client, const unsigned char key[TRI_AUTH_NBYTES],
                        tri_tls **out)
{
    const size_t record_nbytes = context->bulk ? TRI_TLS_RECORD_NBYTES : SMALL_NBYTES;
    tri_tls *tls = tri_alloc_zero(1, sizeof *tls + record_nbytes);

    *out = NULL;
    if (!tls)
        return TRI_ENOMEM;
    memcpy(tls->key, key, sizeof tls->key);
    tls->bulk = context->bulk;
    tls->record_nbytes = record_nbytes;
    tls->ssl = SSL_new(context->ssl);
    if (!tls->ssl || SSL_set_fd(tls->ssl, fd) != 1 || SSL_set_app_data(tls->ssl, tls) != 1) {
        tri_tls_close(tls);
        return tls_fail("a connection");
    }
    if (client)
        SSL_set_connect_state(tls->ssl);
    else
        SSL_set_accept_state(tls->ssl);
    *out = tls;
    return TRI_OK;
}

void tri_tls_close(tri_tls *tls)
{
    if (!tls)
        return;
    SSL_free(tls->ssl);
    OPENSSL_cleanse(tls->key, sizeof tls->key);
    tri_free(tls);
}

/* ---- moving */

static tri_status gone_fail(int number, const char *why)
{
    (void)tri_fail(TRI_EPEER, "%s", why);
    errno = number;
    return TRI_EPEER;
}

/* What became of a call: TRI_OK with the socket's event to wait for, or TRI_EPEER and errno. */
static tri_status result_of(const tri_tls *tls, int result, short *events)
{
    int error = SSL_get_error(tls->ssl, result), number = errno;
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    char text[160];

    *events = error == SSL_ERROR_WANT_READ ? POLLIN : error == SSL_ERROR_WANT_WRITE ? POLLOUT : 0;
    if (*events != 0)
        return TRI_OK;
    ERR_clear_error();
    if (error == SSL_ERROR_SSL) {
        snprintf(text, sizeof text, "TLS: %s", reason ? reason : "no reason");
        return gone_fail(EPROTO, text);
    }
    if (error == SSL_ERROR_SYSCALL && number != 0 && number != EPIPE && number != ECONNRESET)
        return gone_fail(number, strerror(number));
    return gone_fail(0, "connection closed");
}

tri_status tri_tls_shake(tri_tls *tls, short *events)
{
    sigset_t before;
    int result;

    *events = 0;
    ERR_clear_error();
    pipe_block(&before);
    errno = 0;
    result = SSL_do_handshake(tls->ssl);
    pipe_restore(&before, result != 1);
    if (result != 1)
        return result_of(tls, result, events);
    /* Several records with one call; where the kernel decrypts it gives one at a time anyway. */
    if (tls->bulk && !tri_tls_by_kernel(tls)) {
        SSL_set_default_read_buffer_len(tls->ssl, READ_AHEAD_NBYTES);
        SSL_set_read_ahead(tls->ssl, 1);
    }
    return TRI_OK;
}

/* One round over all ends; fills polls with those that are not done. */
static tri_status ends_shake(const char *name, const tri_tls_end *ends, size_t count, struct pollfd *polls,
                             nfds_t *left, int *late)
{
    char reason[128];
    short events;

    *left = 0;
    for (size_t i = 0; i < count; i++) {
        if (tri_tls_shake(ends[i].tls, &events) != TRI_OK) {
            snprintf(reason, sizeof reason, "%s", tri_last_error());
            return tri_fail(TRI_EPEER, "%s: rank %d cannot be talked to encrypted: %s", name, ends[i].peer, reason);
        }
        if (events == 0)
            continue;
        *late = ends[i].peer;
        polls[(*left)++] = (struct pollfd){.fd = ends[i].fd, .events = events};
    }
    return TRI_OK;
}

/* As in the rendezvous of ranks: where ranks come and go, the membership decides what a stop signal does. */
static tri_status shake_check(const char *name, const atomic_bool *broken)
{
    if (broken && atomic_load(broken))
        return tri_fail(TRI_EPEER, "%s: a rank has ended before all connections were encrypted", name);
    return broken ? TRI_OK : tri_wait_check("connecting to the other ranks");
}

tri_status tri_tls_shake_all(const char *name, const tri_tls_end *ends, size_t count, const atomic_bool *broken,
                             int64_t deadline_ns)
{
    const int64_t slice_ns = broken ? BROKEN_NS : TRI_WAIT_SLICE_NS;
    struct pollfd *polls = tri_alloc_zero(count + 1, sizeof *polls);
    tri_status status = polls ? TRI_OK : TRI_ENOMEM;
    nfds_t left = 1;
    int late = -1;

    while (status == TRI_OK && left > 0) {
        int64_t left_ns = deadline_ns - tri_now_ns();

        status = ends_shake(name, ends, count, polls, &left, &late);
        if (status != TRI_OK || left == 0)
            break;
        status = shake_check(name, broken);
        if (status != TRI_OK)
            break;
        if (left_ns <= 0)
            status = tri_fail(TRI_ETIMEOUT, "%s: rank %d did not begin to encrypt in time", name, late);
        else if (poll(polls, left, (int)((left_ns < slice_ns ? left_ns : slice_ns) / TRI_NS_PER_MS) + 1) < 0 &&
                 errno != EINTR)
            status = tri_fail(TRI_EIO, "%s: cannot wait: %s", name, strerror(errno));
    }
    tri_free(polls);
    return status;
}

/* One record at most; *gone when the socket took all of it. */
static tri_status record_write(tri_tls *tls, const void *bytes, size_t nbytes, bool *gone)
{
    sigset_t before;
    size_t written = 0;
    short events;
    int result;

    ERR_clear_error();
    pipe_block(&before);
    errno = 0;
    result = SSL_write_ex(tls->ssl, bytes, nbytes, &written);
    pipe_restore(&before, result != 1);
    *gone = result == 1;
    return *gone ? TRI_OK : result_of(tls, result, &events);
}

tri_status tri_tls_write(tri_tls *tls, const void *bytes, size_t nbytes, size_t *taken)
{
    bool gone;

    *taken = 0;
    if (nbytes == 0)
        return TRI_OK;
    if (tls->held_nbytes > 0) {
        TRI_TRY(record_write(tls, tls->held, tls->held_nbytes, &gone));
        if (!gone)
            return TRI_OK;
        tls->held_nbytes = 0;
        *taken = 1;
        return TRI_OK;
    }
    nbytes = nbytes < tls->record_nbytes ? nbytes : tls->record_nbytes;
    TRI_TRY(record_write(tls, bytes, nbytes, &gone));
    *taken = gone ? nbytes : nbytes - 1;
    if (!gone) {
        memcpy(tls->held, bytes, nbytes);
        tls->held_nbytes = nbytes;
    }
    return TRI_OK;
}

tri_status tri_tls_read(tri_tls *tls, void *bytes, size_t nbytes, size_t *given)
{
    sigset_t before;
    short events;
    int result;

    *given = 0;
    ERR_clear_error();
    pipe_block(&before);
    errno = 0;
    result = SSL_read_ex(tls->ssl, bytes, nbytes, given);
    pipe_restore(&before, result != 1);
    tls->dry = result != 1;
    return result == 1 ? TRI_OK : result_of(tls, result, &events);
}

bool tri_tls_has_bytes(const tri_tls *tls)
{
    return !tls->dry && SSL_has_pending(tls->ssl) == 1;
}

bool tri_tls_by_kernel(const tri_tls *tls)
{
    return BIO_get_ktls_send(SSL_get_wbio(tls->ssl)) && BIO_get_ktls_recv(SSL_get_rbio(tls->ssl));
}
