/* SPDX-License-Identifier: Apache-2.0
 *
 * s3_fail.c: a table of S3's codes.
 */
#include "storage/s3_fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/runtime.h"
#include "storage/xml.h"

/* $E: the endpoint, $S: where the credentials are from, $R: the region of the bucket, $r: the one that was asked for,
 * $T: how far the clocks are apart. */
static const struct {
    const char *code;
    tri_status status;
    const char *hint;
} codes[] = {
    {"NoSuchBucket", TRI_ENOTFOUND, "$E has no such bucket: check its name, and AWS_ENDPOINT_URL"},
    {"NoSuchKey", TRI_ENOTFOUND, "the bucket has no such object"},
    {"NoSuchUpload", TRI_ENOTFOUND, "somebody has aborted this upload"},
    {"AccessDenied", TRI_ECONFIG, "the credentials ($S) do not permit it: check the policies of user and bucket"},
    {"AllAccessDisabled", TRI_ECONFIG, "the bucket is switched off"},
    {"InvalidAccessKeyId", TRI_ECONFIG, "$E does not know this access key ($S)"},
    {"SignatureDoesNotMatch", TRI_ECONFIG, "the secret key is not that of the access key ($S)"},
    {"ExpiredToken", TRI_ECONFIG, "the session has expired ($S): log in again"},
    {"InvalidToken", TRI_ECONFIG, "the session token is wrong ($S): log in again, or unset AWS_SESSION_TOKEN"},
    {"RequestTimeTooSkewed", TRI_ECONFIG, "the clock of this host is $T off: set it (NTP)"},
    {"AuthorizationHeaderMalformed", TRI_ECONFIG, "the bucket is in region $R, not $r: export AWS_REGION=$R"},
    {"PermanentRedirect", TRI_ECONFIG, "the bucket is in region $R, not $r: export AWS_REGION=$R"},
    {"TemporaryRedirect", TRI_ECONFIG, "the bucket is in region $R, not $r: export AWS_REGION=$R"},
    {"IllegalLocationConstraintException", TRI_ECONFIG, "the bucket is in region $R, not $r: export AWS_REGION=$R"},
    {"PreconditionFailed", TRI_EMISMATCH, "the object was replaced while it was read"},
    {"EntityTooLarge", TRI_ECONFIG, "the server takes no object of this length"},
    {"QuotaExceeded", TRI_EIO, "the server has no room left"},
    {"SlowDown", TRI_EIO, "the server is overloaded: fewer storage.connections"},
    {"", TRI_EIO, "the server's answer"},
};

static const struct {
    long http;
    const char *code;
} statuses[] = {{301, "PermanentRedirect"}, {307, "TemporaryRedirect"}, {404, "NoSuchKey"},
                {403, "AccessDenied"},      {401, "AccessDenied"},      {412, "PreconditionFailed"}};

static void skew_print(const tri_request *request, char *text, size_t room)
{
    char date[64];
    struct tm parts = {0};
    snprintf(text, room, "minutes");
    if (!tri_request_reply(request, "date", date, sizeof(date)) ||
        strptime(date, "%a, %d %b %Y %H:%M:%S", &parts) == NULL)
        return;
    long long seconds = (long long)(tri_wall_ns() / TRI_NS_PER_S) - (long long)timegm(&parts);
    snprintf(text, room, "%lld s", seconds < 0 ? -seconds : seconds);
}

static void hint_print(const tri_s3_failure *failure, const tri_s3_error *error, const char *hint, char *out,
                       size_t room)
{
    char skew[32], region[64];
    size_t nbytes = 0;
    skew_print(failure->request, skew, sizeof(skew));
    snprintf(region, sizeof(region), "%s", error->region);
    if (region[0] == 0 && !tri_request_reply(failure->request, "x-amz-bucket-region", region, sizeof(region)))
        strcpy(region, "another one");
    out[0] = 0;
    for (; *hint != 0 && nbytes + 1 < room; hint++) {
        const char one[2] = {*hint, 0}, *text = one;
        if (*hint == '$') {
            hint++;
            text = *hint == 'E'   ? failure->endpoint
                   : *hint == 'S' ? failure->source
                   : *hint == 'R' ? region
                   : *hint == 'T' ? skew
                                  : failure->region;
        }
        nbytes += (size_t)snprintf(out + nbytes, room - nbytes, "%s", text);
    }
}

tri_status tri_s3_fail(const tri_s3_failure *failure)
{
    const tri_request *request = failure->request;
    tri_s3_error error;
    char hint[400];
    size_t row = 0;
    (void)tri_s3_error_read(tri_string_text(&request->answer), request->answer.nbytes, &error);
    for (size_t i = 0; i < TRI_COUNT_OF(statuses) && error.code[0] == 0; i++)
        if (statuses[i].http == request->http)
            strcpy(error.code, statuses[i].code);
    while (codes[row].code[0] != 0 && strcmp(codes[row].code, error.code) != 0)
        row++;
    hint_print(failure, &error, codes[row].code[0] == 0 && error.message[0] ? error.message : codes[row].hint, hint,
               sizeof(hint));
    return tri_fail(codes[row].status, "%.300s: HTTP %ld %s: %s", failure->url, request->http, error.code, hint);
}
