/* SPDX-License-Identifier: Apache-2.0
 *
 * auth.c: SHA-256 (FIPS 180-4) and HMAC (RFC 2104) of OpenSSL's libcrypto.
 *
 * A libcrypto that refuses (its configuration forbids the algorithm, memory is out) is an error, never a proof of
 * zeros.
 */
#include "net/auth.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "base/runtime.h"

static tri_status crypto_fail(const char *what)
{
    const char *reason = ERR_reason_error_string(ERR_get_error());

    ERR_clear_error();
    return tri_fail(TRI_EUNSUPPORTED, "libcrypto: want %s, got: %s", what, reason ? reason : "no reason");
}

tri_status tri_auth_sha256(const void *bytes, size_t nbytes, unsigned char out[TRI_AUTH_NBYTES])
{
    return EVP_Digest(bytes, nbytes, out, NULL, EVP_sha256(), NULL) == 1 ? TRI_OK : crypto_fail("SHA-256");
}

tri_status tri_auth_prove(const char *token, const void *message, size_t nbytes, unsigned char out[TRI_AUTH_NBYTES])
{
    size_t key_nbytes = strlen(token);

    TRI_ASSERT(key_nbytes <= INT32_MAX);
    return HMAC(EVP_sha256(), token, (int)key_nbytes, message, nbytes, out, NULL) ? TRI_OK
                                                                                  : crypto_fail("HMAC-SHA-256");
}

void tri_auth_hex(const unsigned char *bytes, size_t nbytes, char *hex)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < nbytes; i++) {
        hex[2 * i] = digits[bytes[i] >> 4];
        hex[2 * i + 1] = digits[bytes[i] & 15];
    }
    hex[2 * nbytes] = 0;
}

void tri_auth_token_make(char token[TRI_AUTH_HEX_NBYTES])
{
    unsigned char bytes[TRI_AUTH_NBYTES];

    tri_entropy(bytes, sizeof bytes);
    tri_auth_hex(bytes, sizeof bytes, token);
}

tri_status tri_auth_job_id(const char *token, char id[TRI_AUTH_JOB_NBYTES])
{
    static const char label[] = "trireme job id";
    unsigned char digest[TRI_AUTH_NBYTES];

    TRI_TRY(tri_auth_prove(token, label, sizeof label - 1, digest));
    tri_auth_hex(digest, (TRI_AUTH_JOB_NBYTES - 1) / 2, id);
    return TRI_OK;
}

bool tri_auth_equals(const unsigned char a[TRI_AUTH_NBYTES], const unsigned char b[TRI_AUTH_NBYTES])
{
    return CRYPTO_memcmp(a, b, TRI_AUTH_NBYTES) == 0;
}
