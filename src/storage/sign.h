/* SPDX-License-Identifier: Apache-2.0
 *
 * sign.h: AWS Signature Version 4, and the digests that servers compare.
 *
 * Signed here and not by CURLOPT_AWS_SIGV4: libcurl 7.88 neither sorts nor encodes query strings as S3 does.
 */
#ifndef TRI_STORAGE_SIGN_H
#define TRI_STORAGE_SIGN_H

#include "base/containers.h"

#define TRI_SHA256_NBYTES    32
#define TRI_SIGN_UNSIGNED    "UNSIGNED-PAYLOAD"
#define TRI_SIGN_DATE_NBYTES 17 /* 20130524T000000Z */

typedef struct tri_sign_header {
    const char *name, *value; /* name in lower case */
} tri_sign_header;

typedef struct tri_sign {
    const char *access, *secret, *region, *service;
    const char *date; /* YYYYMMDDTHHMMSSZ */
    const char *method;
    const char *path;               /* encoded */
    const char *query;              /* encoded, names in order */
    const tri_sign_header *headers; /* those that are signed, names in order */
    size_t header_count;
    const char *payload; /* hex SHA-256, or TRI_SIGN_UNSIGNED */
} tri_sign;
/* Appends the value of the header "authorization". TRI_EUNSUPPORTED: libcrypto refuses. */
tri_status tri_sign_authorization(const tri_sign *sign, tri_string *out);

/* Appends a text as S3 needs it in paths (keep_slash) and queries. */
tri_status tri_sign_encode(const char *text, bool keep_slash, tri_string *out);
tri_status tri_digest_sha256_hex(const void *bytes, size_t nbytes, char hex[2 * TRI_SHA256_NBYTES + 1]);
/* Hex MD5, piece by piece; NULL: libcrypto refuses, or there is no memory. */
typedef struct evp_md_ctx_st tri_md5;
tri_md5 *tri_md5_begin(void);
void tri_md5_put(tri_md5 *md5, const void *bytes, size_t nbytes);
/* Frees it, also where hex is NULL. */
void tri_md5_end(tri_md5 *md5, char hex[33]);
/* As headers carry them, in base64. */
tri_status tri_digest_md5_base64(const void *bytes, size_t nbytes, char text[32]);
void tri_digest_crc32c_base64(const void *bytes, size_t nbytes, char text[16]);
void tri_sign_date(int64_t wall_ns, char date[TRI_SIGN_DATE_NBYTES]);

#endif
