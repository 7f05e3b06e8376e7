/* SPDX-License-Identifier: Apache-2.0
 *
 * auth.h: proofs that two ranks of a job know its token, without sending it.
 *
 * HMAC-SHA-256 (RFC 2104, FIPS 180-4). It authenticates the two ends when a link is made; what travels afterwards is
 * neither encrypted nor signed unless tls.h does it. TRI_EUNSUPPORTED where libcrypto refuses.
 */
#ifndef TRI_NET_AUTH_H
#define TRI_NET_AUTH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define TRI_AUTH_NBYTES     32
#define TRI_AUTH_HEX_NBYTES (2 * TRI_AUTH_NBYTES + 1)
#define TRI_AUTH_JOB_NBYTES 33
/* Bytes of a token that somebody chose. */
#define TRI_AUTH_TOKEN_LEAST 16

tri_status tri_auth_sha256(const void *bytes, size_t nbytes, unsigned char out[TRI_AUTH_NBYTES]);
/* HMAC-SHA-256 of the message under the token (a text of any length). */
tri_status tri_auth_prove(const char *token, const void *message, size_t nbytes, unsigned char out[TRI_AUTH_NBYTES]);
/* A new token: 64 hex digits of random bytes. */
void tri_auth_token_make(char token[TRI_AUTH_HEX_NBYTES]);
/* What a job is called in names, logs and files that others can read: 32 hex digits that do not tell the token. */
tri_status tri_auth_job_id(const char *token, char id[TRI_AUTH_JOB_NBYTES]);
/* 2 * nbytes digits and a 0 byte. */
void tri_auth_hex(const unsigned char *bytes, size_t nbytes, char *hex);
/* In a time that does not depend on where they differ. */
bool tri_auth_equals(const unsigned char a[TRI_AUTH_NBYTES], const unsigned char b[TRI_AUTH_NBYTES]);

#endif
