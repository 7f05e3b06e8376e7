/* SPDX-License-Identifier: Apache-2.0
 *
 * s3_fail.h: what a server's refusal means, in one sentence: URL, HTTP status, S3's code, and what to do.
 */
#ifndef TRI_STORAGE_S3_FAIL_H
#define TRI_STORAGE_S3_FAIL_H

#include "storage/request.h"

typedef struct tri_s3_failure {
    const tri_request *request; /* answered */
    const char *url, *endpoint, *region;
    const char *source; /* of the credentials */
} tri_s3_failure;
/* TRI_ENOTFOUND, TRI_ECONFIG: a person has to fix it; TRI_EMISMATCH: the object has changed; TRI_EIO. */
tri_status tri_s3_fail(const tri_s3_failure *failure);

#endif
