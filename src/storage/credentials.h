/* SPDX-License-Identifier: Apache-2.0
 *
 * credentials.h: who asks S3, as other AWS tools find it: environment; web identity; ~/.aws by AWS_PROFILE; the
 * container's or the instance's role.
 */
#ifndef TRI_STORAGE_CREDENTIALS_H
#define TRI_STORAGE_CREDENTIALS_H

#include "storage/request.h"

typedef struct tri_credentials {
    char access[256], secret[256], token[12288]; /* token "": none */
    int64_t expires_ns;                          /* tri_wall_ns() scale; 0: never */
    char source[160];                            /* for messages */
} tri_credentials;
/* Those of this process: found once, and again before they expire or when `renew`. TRI_ECONFIG: there are none, with
 * where they were looked for. Any thread. */
tri_status tri_credentials_find(tri_requester *requester, bool renew, tri_credentials *out);

/* A setting of the environment, else of the profile: AWS_REGION and region, ...; "": none. */
void tri_aws_setting(const char *const *variables, const char *key, char *value, size_t room);
void tri_aws_region(char *region, size_t room);

/* The value of a key in a section of a text in the form of ~/.aws/config; false: none. For tests. */
bool tri_aws_profile_find(const char *text, const char *section, const char *key, char *value, size_t room);

#endif
