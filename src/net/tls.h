/* SPDX-License-Identifier: Apache-2.0
 *
 * tls.h: TLS 1.3 on one connection, with a key that both ends know already: no certificates.
 *
 * The external pre-shared key comes from the job's token and the nonces of the handshake that the connection went
 * through, so it is of use on that connection alone; with it an ephemeral Diffie-Hellman exchange. The kernel encrypts
 * where it can (kTLS). Descriptors stay the caller's. TRI_EUNSUPPORTED where OpenSSL refuses.
 */
#ifndef TRI_NET_TLS_H
#define TRI_NET_TLS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/runtime.h"
#include "net/auth.h"

/* Bytes that travel as one piece. */
#define TRI_TLS_RECORD_NBYTES ((size_t)16384)

typedef struct tri_tls tri_tls;

/* What all connections have alike; outlives them. bulk: they carry much, in records of TRI_TLS_RECORD_NBYTES of which
 * several are read at once; else they take little memory. */
typedef struct tri_tls_context tri_tls_context;
tri_status tri_tls_context_create(bool bulk, tri_tls_context **out);
void tri_tls_context_destroy(tri_tls_context *context);

/* On a nonblocking socket; client: this end dialed. */
tri_status tri_tls_open(tri_tls_context *context, int fd, bool client, const unsigned char key[TRI_AUTH_NBYTES],
                        tri_tls **out);
/* Continues the handshake; *events: what of the socket to wait for (POLLIN or POLLOUT), 0: it is done. TRI_EPEER:
 * the other end does not know the key, or is gone. */
tri_status tri_tls_shake(tri_tls *tls, short *events);

typedef struct tri_tls_end {
    tri_tls *tls;
    int fd, peer;
} tri_tls_end;
/* All handshakes at once, so that no order of peers can make two ranks wait for each other. `name` is the caller's, for
 * messages. broken: once it is set, the handshakes are given up; NULL: a stop signal ends them. TRI_EPEER,
 * TRI_ETIMEOUT: names the peer. */
tri_status tri_tls_shake_all(const char *name, const tri_tls_end *ends, size_t count, const atomic_bool *broken,
                             int64_t deadline_ns);
/* Neither call blocks, as in transport.h. TRI_EPEER: the connection is gone, and errno says why: 0: the peer closed it,
 * EPROTO: the peer did not send what came. If a write takes some of the bytes, the caller continues with the rest:
 * a whole record is under way. */
tri_status tri_tls_write(tri_tls *tls, const void *bytes, size_t nbytes, size_t *taken);
tri_status tri_tls_read(tri_tls *tls, void *bytes, size_t nbytes, size_t *given);
/* Bytes have come that no poll of the socket will tell of. */
bool tri_tls_has_bytes(const tri_tls *tls);
bool tri_tls_by_kernel(const tri_tls *tls);
/* NULL does nothing. */
void tri_tls_close(tri_tls *tls);

#endif
