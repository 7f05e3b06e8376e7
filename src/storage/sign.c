/* SPDX-License-Identifier: Apache-2.0
 *
 * sign.c: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
 */
#include "storage/sign.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/crc32c.h"
#include "base/runtime.h"

static tri_status refused(const char *what)
{
    return tri_fail(TRI_EUNSUPPORTED, "libcrypto refuses %s", what);
}

static void hex_print(const unsigned char *bytes, size_t nbytes, char *hex)
{
    for (size_t i = 0; i < nbytes; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
}

tri_status tri_digest_sha256_hex(const void *bytes, size_t nbytes, char hex[2 * TRI_SHA256_NBYTES + 1])
{
    unsigned char digest[TRI_SHA256_NBYTES];
    if (EVP_Digest(bytes, nbytes, digest, NULL, EVP_sha256(), NULL) != 1)
        return refused("SHA-256");
    hex_print(digest, sizeof(digest), hex);
    return TRI_OK;
}

tri_status tri_digest_md5_base64(const void *bytes, size_t nbytes, char text[32])
{
    unsigned char digest[16];
    if (EVP_Digest(bytes, nbytes, digest, NULL, EVP_md5(), NULL) != 1)
        return refused("MD5");
    EVP_EncodeBlock((unsigned char *)text, digest, sizeof(digest));
    return TRI_OK;
}

void tri_digest_crc32c_base64(const void *bytes, size_t nbytes, char text[16])
{
    const uint32_t crc = tri_crc32c(bytes, nbytes);
    const unsigned char big[4] = {(unsigned char)(crc >> 24), (unsigned char)(crc >> 16), (unsigned char)(crc >> 8),
                                  (unsigned char)crc};
    EVP_EncodeBlock((unsigned char *)text, big, sizeof(big));
}

tri_md5 *tri_md5_begin(void)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (context != NULL && EVP_DigestInit_ex(context, EVP_md5(), NULL) == 1)
        return context;
    EVP_MD_CTX_free(context);
    return NULL;
}

void tri_md5_put(tri_md5 *md5, const void *bytes, size_t nbytes)
{
    (void)EVP_DigestUpdate(md5, bytes, nbytes);
}

void tri_md5_end(tri_md5 *md5, char hex[33])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    if (md5 != NULL && hex != NULL && EVP_DigestFinal_ex(md5, digest, NULL) == 1)
        hex_print(digest, 16, hex);
    EVP_MD_CTX_free(md5);
}

tri_status tri_sign_encode(const char *text, bool keep_slash, tri_string *out)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (; *text != 0; text++)
        if (strchr(plain, *text) != NULL || (keep_slash && *text == '/'))
            TRI_TRY(tri_string_append_bytes(out, text, 1));
        else
            TRI_TRY(tri_string_appendf(out, "%%%02X", (unsigned char)*text));
    return TRI_OK;
}

void tri_sign_date(int64_t wall_ns, char date[TRI_SIGN_DATE_NBYTES])
{
    struct tm parts;
    time_t seconds = (time_t)(wall_ns / TRI_NS_PER_S);
    gmtime_r(&seconds, &parts);
    strftime(date, TRI_SIGN_DATE_NBYTES, "%Y%m%dT%H%M%SZ", &parts);
}

static tri_status hmac(const void *key, size_t key_nbytes, const char *text, unsigned char out[TRI_SHA256_NBYTES])
{
    unsigned int nbytes = 0;
    return HMAC(EVP_sha256(), key, (int)key_nbytes, (const unsigned char *)text, strlen(text), out, &nbytes) != NULL
               ? TRI_OK
               : refused("HMAC-SHA-256");
}

static tri_status names_print(const tri_sign *sign, tri_string *out)
{
    for (size_t i = 0; i < sign->header_count; i++)
        TRI_TRY(tri_string_appendf(out, "%s%s", i > 0 ? ";" : "", sign->headers[i].name));
    return TRI_OK;
}

/* What is signed, down to one hash. */
static tri_status request_hash(const tri_sign *sign, char hex[2 * TRI_SHA256_NBYTES + 1])
{
    tri_string text = {0};
    tri_status status = tri_string_appendf(&text, "%s\n%s\n%s\n", sign->method, sign->path, sign->query);
    for (size_t i = 0; i < sign->header_count && status == TRI_OK; i++)
        status = tri_string_appendf(&text, "%s:%s\n", sign->headers[i].name, sign->headers[i].value);
    if (status == TRI_OK)
        status = tri_string_append(&text, "\n");
    if (status == TRI_OK)
        status = names_print(sign, &text);
    if (status == TRI_OK)
        status = tri_string_appendf(&text, "\n%s", sign->payload);
    if (status == TRI_OK)
        status = tri_digest_sha256_hex(text.text, text.nbytes, hex);
    tri_string_fini(&text);
    return status;
}

static tri_status signature(const tri_sign *sign, const char *scope, char hex[2 * TRI_SHA256_NBYTES + 1])
{
    unsigned char key[TRI_SHA256_NBYTES], next[TRI_SHA256_NBYTES];
    char request[2 * TRI_SHA256_NBYTES + 1], day[9];
    tri_string text = {0};
    snprintf(day, sizeof(day), "%.8s", sign->date);
    char *secret = tri_format("AWS4%s", sign->secret);
    tri_status status = secret != NULL ? request_hash(sign, request) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_string_appendf(&text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", sign->date, scope, request);
    if (status == TRI_OK)
        status = hmac(secret, strlen(secret), day, key);
    const char *const steps[] = {sign->region, sign->service, "aws4_request", tri_string_text(&text)};
    for (size_t i = 0; i < TRI_COUNT_OF(steps) && status == TRI_OK; i++) {
        status = hmac(key, sizeof(key), steps[i], next);
        memcpy(key, next, sizeof(key));
    }
    if (status == TRI_OK)
        hex_print(key, sizeof(key), hex);
    tri_string_fini(&text);
    tri_free(secret);
    return status;
}

tri_status tri_sign_authorization(const tri_sign *sign, tri_string *out)
{
    char hex[2 * TRI_SHA256_NBYTES + 1];
    char *scope = tri_format("%.8s/%s/%s/aws4_request", sign->date, sign->region, sign->service);
    tri_status status = scope != NULL ? signature(sign, scope, hex) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_string_appendf(out, "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=", sign->access, scope);
    if (status == TRI_OK)
        status = names_print(sign, out);
    if (status == TRI_OK)
        status = tri_string_appendf(out, ", Signature=%s", hex);
    tri_free(scope);
    return status;
}
