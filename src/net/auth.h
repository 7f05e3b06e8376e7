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

#define TRI_AUTH_NBYTES 32

tri_status tri_auth_sha256(const void *bytes, size_t nbytes, unsigned char out[TRI_AUTH_NBYTES]);
/* HMAC-SHA-256 of the message under the token (a text of any length). */
tri_status tri_auth_prove(const char *token, const void *message, size_t nbytes, unsigned char out[TRI_AUTH_NBYTES]);
/* In a time that does not depend on where they differ. */
bool tri_auth_equals(const unsigned char a[TRI_AUTH_NBYTES], const unsigned char b[TRI_AUTH_NBYTES]);

#endif
