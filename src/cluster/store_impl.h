/* SPDX-License-Identifier: Apache-2.0
 *
 * store_impl.h: what the stores share: the message of the tcp protocol (docs/formats/wire.md), keys, urls, openers.
 *
 * For store*.c, members.c, cluster.c, launch*.c and the tests and fuzz targets of these only.
 */
#ifndef TRI_CLUSTER_STORE_IMPL_H
#define TRI_CLUSTER_STORE_IMPL_H

#include "cluster/store.h"
#include "net/auth.h"

#define TRI_STORE_KEY_NBYTES    255
#define TRI_STORE_VALUE_NBYTES  (1u << 20)
#define TRI_STORE_TOTAL_NBYTES  (64u << 20)
#define TRI_STORE_HEADER_NBYTES 24
#define TRI_STORE_NONCE_NBYTES  32
#define TRI_STORE_PROOF_NBYTES  (TRI_STORE_NONCE_NBYTES + TRI_AUTH_NBYTES)
#define TRI_STORE_REPLY         0x80
#define TRI_STORE_BEAT          "beat/" /* keys that say that somebody lives: worth nothing to who comes later */

typedef enum tri_store_op {
    TRI_STORE_GREET, /* server's first message: value = its nonce */
    TRI_STORE_PROVE, /* client's first message: value = its nonce, then its proof */
    TRI_STORE_SET,
    TRI_STORE_WAIT,
    TRI_STORE_ADD,
    TRI_STORE_REMOVE,
    TRI_STORE_CLAIM,
    TRI_STORE_RAISE,
    TRI_STORE_OP_COUNT
} tri_store_op;

typedef struct tri_store_message {
    uint8_t op;     /* tri_store_op; replies: | TRI_STORE_REPLY */
    uint8_t status; /* tri_status of a reply; 0 in requests */
    uint16_t key_nbytes;
    uint32_t value_nbytes;
    uint32_t ticket; /* the client's number of the request, in its reply too */
    int64_t number;  /* ADD, RAISE: the amount, in the reply the new value; WAIT: nanoseconds the client waits, -1 = for
                        ever */
} tri_store_message;

void tri_store_message_write(const tri_store_message *message, unsigned char out[TRI_STORE_HEADER_NBYTES]);
/* TRI_EFORMAT for another protocol; TRI_EINVAL for a key or value beyond the limits (fields are filled then). */
tri_status tri_store_message_read(const unsigned char in[TRI_STORE_HEADER_NBYTES], tri_store_message *message);
/* HMAC under the token of a word of six letters and both nonces: the proofs of "client" and "server", and "tlskey", by
 * which the connection is encrypted. */
tri_status tri_store_proof(const char *token, const char *who, const unsigned char server_nonce[TRI_STORE_NONCE_NBYTES],
                           const unsigned char client_nonce[TRI_STORE_NONCE_NBYTES],
                           unsigned char out[TRI_AUTH_NBYTES]);

/* TRI_EINVAL unless 1 to 255 bytes of [A-Za-z0-9_./-]. */
tri_status tri_store_key_check(const char *key, size_t nbytes);

/* What a number becomes. */
typedef struct tri_store_sum {
    int64_t amount;
    bool raises; /* to at least `amount`; else it is added */
} tri_store_sum;
/* text: of the number that is there, with a 0 byte after it; NULL: there is none. TRI_EINVAL where it is none. */
tri_status tri_store_sum_make(const char *text, size_t nbytes, tri_store_sum sum, int64_t *after);

typedef struct tri_store_url {
    bool is_file, is_etcd;
    char path[1024];           /* file */
    char host[256];            /* tcp, without brackets */
    int first_port, last_port; /* tcp; a range is tried in turn until the server of this job answers */
} tri_store_url;
/* "tcp://host:port", "tcp://host:first-last", "tcp://[v6]:port", "file:///folder", "etcd[s]://...", of which more is
 * looked at when it is opened; else TRI_ECONFIG. */
tri_status tri_store_url_parse(const char *text, tri_store_url *url);

tri_status tri_store_tcp_open(const tri_store_url *url, const char *token, tri_store_opening *opening,
                              int64_t deadline_ns, tri_store **out);
#ifdef TRI_HAS_CURL
tri_status tri_store_etcd_open(const char *url, tri_store_opening *opening, int64_t deadline_ns, tri_store **out);
#endif
tri_status tri_store_file_open(const tri_store_url *url, const char *token, int64_t deadline_ns, tri_store **out);

/* Clients that have shown the token. */
int tri_store_server_connected(tri_store_server *server);
/* Waits until no client is connected or the deadline. */
void tri_store_server_drain(tri_store_server *server, int64_t deadline_ns);

#endif
