/* SPDX-License-Identifier: Apache-2.0
 *
 * credentials.c: places where credentials are, in the order of the AWS SDKs: the first that has some.
 */
#include "storage/credentials.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/runtime.h"
#include "storage/sign.h"
#include "storage/xml.h"

#define FILE_MOST      ((uint64_t)1 << 20)
#define RENEW_NS       (300 * TRI_NS_PER_S) /* before they expire */
#define METADATA_MS    1000L
#define METADATA_TRIES 2

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != 0 ? value : NULL;
}

/* --- ~/.aws --- */

static void trim(const char **text, size_t *nbytes)
{
    while (*nbytes > 0 && strchr(" \t\r", (*text)[0]) != NULL)
        ++*text, --*nbytes;
    while (*nbytes > 0 && strchr(" \t\r", (*text)[*nbytes - 1]) != NULL)
        --*nbytes;
}

bool tri_aws_profile_find(const char *text, const char *section, const char *key, char *value, size_t room)
{
    bool inside = false, found = false;
    value[0] = 0;
    for (const char *line = text; *line != 0 && !found;) {
        const char *at = line, *equals;
        size_t nbytes = strcspn(line, "\n"), all = nbytes;
        const bool nested = *line == ' ' || *line == '\t'; /* of a value with lines of its own */
        trim(&at, &nbytes);
        if (nbytes > 1 && at[0] == '[' && at[nbytes - 1] == ']')
            inside = nbytes - 2 == strlen(section) && strncmp(at + 1, section, nbytes - 2) == 0;
        else if (inside && !nested && nbytes > 0 && at[0] != '#' && at[0] != ';' &&
                 (equals = memchr(at, '=', nbytes)) != NULL) {
            const char *name = at, *rest = equals + 1;
            size_t name_nbytes = (size_t)(equals - at), rest_nbytes = (size_t)(at + nbytes - rest);
            trim(&name, &name_nbytes);
            trim(&rest, &rest_nbytes);
            if (name_nbytes == strlen(key) && strncmp(name, key, name_nbytes) == 0 && rest_nbytes < room) {
                snprintf(value, room, "%.*s", (int)rest_nbytes, rest);
                found = true;
            }
        }
        line += all + (line[all] != 0);
    }
    return found;
}

static const char *profile_name(void)
{
    const char *name = variable("AWS_PROFILE");
    name = name != NULL ? name : variable("AWS_DEFAULT_PROFILE");
    return name != NULL ? name : "default";
}

static char *aws_file(const char *variable_name, const char *file)
{
    const char *path = variable(variable_name), *home = variable("HOME");
    return path != NULL ? tri_strdup(path) : home != NULL ? tri_format("%s/.aws/%s", home, file) : NULL;
}

/* A key of the profile, in `credentials`, then in `config`. */
static bool profile_setting(const char *key, char *value, size_t room)
{
    bool found = false;
    value[0] = 0;
    for (int i = 0; i < 2 && !found; i++) {
        char section[300], *text = NULL;
        char *path =
            i == 0 ? aws_file("AWS_SHARED_CREDENTIALS_FILE", "credentials") : aws_file("AWS_CONFIG_FILE", "config");
        const bool prefixed = i == 1 && strcmp(profile_name(), "default") != 0;
        snprintf(section, sizeof(section), "%s%.200s", prefixed ? "profile " : "", profile_name());
        if (path != NULL && tri_fs_exists(path) && tri_fs_read(path, FILE_MOST, &text, NULL) == TRI_OK)
            found = tri_aws_profile_find(text, section, key, value, room);
        tri_free(text);
        tri_free(path);
    }
    return found;
}

void tri_aws_setting(const char *const *variables, const char *key, char *value, size_t room)
{
    for (; *variables != NULL; variables++)
        if (variable(*variables) != NULL) {
            snprintf(value, room, "%s", variable(*variables));
            return;
        }
    if (!profile_setting(key, value, room))
        value[0] = 0;
}

void tri_aws_region(char *region, size_t room)
{
    tri_aws_setting((const char *const[]){"AWS_REGION", "AWS_DEFAULT_REGION", NULL}, "region", region, room);
    if (region[0] == 0)
        snprintf(region, room, "us-east-1");
}

/* --- the places --- */

typedef struct finder {
    tri_requester *requester;
    tri_credentials *out;
    tri_string looked; /* what was not there */
} finder;

/* What credentials are fetched from says when they end: 2013-05-24T00:00:00Z. */
static int64_t time_read(const char *text)
{
    struct tm parts = {0};
    return strptime(text, "%Y-%m-%dT%H:%M:%S", &parts) != NULL ? (int64_t)timegm(&parts) * TRI_NS_PER_S : 0;
}

static bool copy(char *to, size_t room, const char *from)
{
    return from != NULL && from[0] != 0 && (size_t)snprintf(to, room, "%s", from) < room;
}

static tri_status from_environment(finder *find, bool *found)
{
    tri_credentials *out = find->out;
    const char *token = variable("AWS_SESSION_TOKEN");
    const char *access = variable("AWS_ACCESS_KEY_ID"), *secret = variable("AWS_SECRET_ACCESS_KEY");
    *found = access != NULL && secret != NULL;
    if ((access != NULL) != (secret != NULL))
        return tri_fail(TRI_ECONFIG, "%s is set without %s: want both",
                        access ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
                        access ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
    if (!*found)
        return tri_string_append(&find->looked, "AWS_ACCESS_KEY_ID");
    strcpy(out->source, "AWS_ACCESS_KEY_ID");
    bool good = copy(out->access, sizeof(out->access), access) && copy(out->secret, sizeof(out->secret), secret) &&
                (token == NULL || copy(out->token, sizeof(out->token), token));
    return good ? TRI_OK
                : tri_fail(TRI_ECONFIG, "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN: too long");
}

static tri_status form_add(tri_string *form, const char *name, const char *value)
{
    TRI_TRY(tri_string_appendf(form, "%s%s=", form->nbytes > 0 ? "&" : "", name));
    return tri_sign_encode(value, false, form);
}

static tri_status sts_ask(finder *find, const char *role, const char *token)
{
    char endpoint[512], region[64], expires[64];
    const char *session = variable("AWS_ROLE_SESSION_NAME");
    tri_credentials *out = find->out;
    tri_string form = {0};
    tri_aws_region(region, sizeof(region));
    tri_aws_setting((const char *const[]){"AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL", NULL}, "endpoint_url", endpoint,
                    sizeof(endpoint));
    if (endpoint[0] == 0)
        snprintf(endpoint, sizeof(endpoint), "https://sts.%s.amazonaws.com", region);
    tri_request request = {.method = "POST", .url = endpoint, .label = endpoint, .tries = 4};
    tri_status status = form_add(&form, "Action", "AssumeRoleWithWebIdentity");
    status = status == TRI_OK ? form_add(&form, "Version", "2011-06-15") : status;
    status = status == TRI_OK ? form_add(&form, "RoleArn", role) : status;
    status = status == TRI_OK ? form_add(&form, "RoleSessionName", session ? session : "trireme") : status;
    status = status == TRI_OK ? form_add(&form, "WebIdentityToken", token) : status;
    if (status == TRI_OK)
        status = tri_string_append(&request.headers, "content-type: application/x-www-form-urlencoded\n");
    request.body = form.text;
    request.body_nbytes = form.nbytes;
    if (status == TRI_OK)
        status = tri_request_send(find->requester, &request);
    const char *text = tri_string_text(&request.answer);
    const size_t nbytes = request.answer.nbytes;
    if (status == TRI_OK && request.http != 200) {
        tri_s3_error error;
        (void)tri_s3_error_read(text, nbytes, &error);
        status = tri_fail(TRI_ECONFIG, "%.300s: AssumeRoleWithWebIdentity of %.200s: HTTP %ld %s: %s", endpoint, role,
                          request.http, error.code, error.message);
    } else if (status == TRI_OK && (!tri_xml_find(text, nbytes, "AccessKeyId", out->access, sizeof(out->access)) ||
                                    !tri_xml_find(text, nbytes, "SecretAccessKey", out->secret, sizeof(out->secret)) ||
                                    !tri_xml_find(text, nbytes, "SessionToken", out->token, sizeof(out->token)) ||
                                    !tri_xml_find(text, nbytes, "Expiration", expires, sizeof(expires))))
        status = tri_fail(TRI_EFORMAT, "%.300s: AssumeRoleWithWebIdentity answers without credentials", endpoint);
    if (status == TRI_OK)
        out->expires_ns = time_read(expires);
    tri_request_fini(&request);
    tri_string_fini(&form);
    return status;
}

static tri_status from_web_identity(finder *find, bool *found)
{
    char role[512], file[1024], *token = NULL;
    tri_aws_setting((const char *const[]){"AWS_ROLE_ARN", NULL}, "role_arn", role, sizeof(role));
    tri_aws_setting((const char *const[]){"AWS_WEB_IDENTITY_TOKEN_FILE", NULL}, "web_identity_token_file", file,
                    sizeof(file));
    *found = role[0] != 0 && file[0] != 0;
    if (!*found)
        return tri_string_append(&find->looked, ", AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN");
    TRI_TRY_IN(tri_fs_read(file, FILE_MOST, &token, NULL), "AWS_WEB_IDENTITY_TOKEN_FILE");
    token[strcspn(token, "\r\n")] = 0;
    snprintf(find->out->source, sizeof(find->out->source), "AWS_WEB_IDENTITY_TOKEN_FILE");
    tri_status status = sts_ask(find, role, token);
    tri_free(token);
    return status;
}

static tri_status from_profile(finder *find, bool *found)
{
    static const char *const others[] = {"sso_session", "sso_start_url", "source_profile", "credential_process"};
    tri_credentials *out = find->out;
    char other[512];
    *found = profile_setting("aws_access_key_id", out->access, sizeof(out->access)) &&
             profile_setting("aws_secret_access_key", out->secret, sizeof(out->secret));
    if (*found) {
        (void)profile_setting("aws_session_token", out->token, sizeof(out->token));
        snprintf(out->source, sizeof(out->source), "profile '%.100s' of ~/.aws", profile_name());
        return TRI_OK;
    }
    for (size_t i = 0; i < TRI_COUNT_OF(others); i++)
        if (profile_setting(others[i], other, sizeof(other)))
            return tri_fail(TRI_ECONFIG,
                            "profile '%.100s' of ~/.aws has %s, which is not read here: want keys; "
                            "eval \"$(aws configure export-credentials --format env)\" gives them",
                            profile_name(), others[i]);
    if (strcmp(profile_name(), "default") != 0)
        return tri_fail(TRI_ECONFIG,
                        "AWS_PROFILE: no profile '%.100s' with keys in ~/.aws/credentials or ~/.aws/config",
                        profile_name());
    return tri_string_append(&find->looked, ", ~/.aws/credentials, ~/.aws/config");
}

/* The JSON that containers and instances get. */
static tri_status json_take(finder *find, const char *url, const tri_request *request)
{
    tri_credentials *out = find->out;
    json_t *root = json_loadb(tri_string_text(&request->answer), request->answer.nbytes, 0, NULL);
    const char *ends = json_string_value(json_object_get(root, "Expiration"));
    bool good = copy(out->access, sizeof(out->access), json_string_value(json_object_get(root, "AccessKeyId"))) &&
                copy(out->secret, sizeof(out->secret), json_string_value(json_object_get(root, "SecretAccessKey"))) &&
                copy(out->token, sizeof(out->token), json_string_value(json_object_get(root, "Token")));
    out->expires_ns = ends != NULL ? time_read(ends) : 0;
    json_decref(root);
    return good ? TRI_OK
                : tri_fail(TRI_EFORMAT, "%.300s: want credentials, got HTTP %ld without them", url, request->http);
}

static tri_status from_container(finder *find, bool *found)
{
    const char *relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI"),
               *given = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    const char *file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    char *token = NULL;
    *found = relative != NULL || full != NULL;
    if (!*found)
        return TRI_OK;
    char *url = relative != NULL ? tri_format("http://169.254.170.2%s", relative) : tri_strdup(full);
    tri_request request = {.method = "GET", .url = url, .label = url, .limit_ms = 5 * METADATA_MS, .tries = 4};
    tri_status status = url != NULL ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK && file != NULL)
        status = tri_fs_read(file, FILE_MOST, &token, NULL);
    if (status == TRI_OK && token != NULL)
        token[strcspn(token, "\r\n")] = 0;
    if (status == TRI_OK && (token != NULL || given != NULL))
        status = tri_string_appendf(&request.headers, "authorization: %s\n", token != NULL ? token : given);
    if (status == TRI_OK)
        status = tri_request_send(find->requester, &request);
    if (status == TRI_OK)
        status = json_take(find, url, &request);
    strcpy(find->out->source, "the container's role");
    tri_request_fini(&request);
    tri_free(token);
    tri_free(url);
    return status;
}

/* One request to the instance's metadata; *answer is the caller's. */
static tri_status metadata_ask(finder *find, const char *method, const char *path, const char *header,
                               tri_request *request)
{
    const char *base = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    char *url = tri_format("%s/latest/%s", base != NULL ? base : "http://169.254.169.254", path);
    *request = (tri_request){.method = method,
                             .url = url,
                             .label = "the metadata service of this instance",
                             .limit_ms = METADATA_MS,
                             .tries = METADATA_TRIES};
    tri_status status = url != NULL ? tri_string_append(&request->headers, header) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_request_send(find->requester, request);
    if (status == TRI_OK && request->http != 200)
        status = tri_fail(TRI_ENOTFOUND, "the metadata service of this instance: HTTP %ld", request->http);
    request->url = NULL;
    tri_free(url);
    return status;
}

static tri_status instance_ask(finder *find)
{
    tri_request request;
    char header[600], path[300];
    tri_status status =
        metadata_ask(find, "PUT", "api/token", "x-aws-ec2-metadata-token-ttl-seconds: 21600\n", &request);
    snprintf(header, sizeof(header), "x-aws-ec2-metadata-token: %.500s\n", tri_string_text(&request.answer));
    tri_request_fini(&request);
    TRI_TRY(status);
    status = metadata_ask(find, "GET", "meta-data/iam/security-credentials/", header, &request);
    const char *role = tri_string_text(&request.answer);
    snprintf(path, sizeof(path), "meta-data/iam/security-credentials/%.*s", (int)strcspn(role, "\r\n"), role);
    tri_request_fini(&request);
    TRI_TRY(status);
    status = metadata_ask(find, "GET", path, header, &request);
    if (status == TRI_OK)
        status = json_take(find, "the metadata service of this instance", &request);
    tri_request_fini(&request);
    return status;
}

static tri_status from_instance(finder *find, bool *found)
{
    const char *off = variable("AWS_EC2_METADATA_DISABLED");
    *found = false;
    if (off != NULL && strcmp(off, "true") == 0)
        return TRI_OK;
    *found = instance_ask(find) == TRI_OK;
    strcpy(find->out->source, "the instance's role");
    return *found ? TRI_OK : tri_string_append(&find->looked, ", the role of the container or of the instance");
}

static tri_status look(tri_requester *requester, tri_credentials *out)
{
    static tri_status (*const places[])(finder *, bool *) = {from_environment, from_web_identity, from_profile,
                                                             from_container, from_instance};
    finder find = {.requester = requester, .out = out};
    tri_status status = TRI_OK;
    bool found = false;
    *out = (tri_credentials){0};
    for (size_t i = 0; i < TRI_COUNT_OF(places) && status == TRI_OK && !found; i++)
        status = places[i](&find, &found);
    if (status == TRI_OK && !found)
        status =
            tri_fail(TRI_ECONFIG, "no credentials for s3://: looked for %s (storage.sign=false reads public buckets)",
                     tri_string_text(&find.looked));
    tri_string_fini(&find.looked);
    return status;
}

tri_status tri_credentials_find(tri_requester *requester, bool renew, tri_credentials *out)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static tri_credentials known;
    static bool is_known;
    tri_status status = TRI_OK;
    pthread_mutex_lock(&mutex);
    bool ends = known.expires_ns != 0 && tri_wall_ns() + RENEW_NS > known.expires_ns;
    if (renew && is_known && strcmp(out->access, known.access) != 0)
        renew = false; /* another thread has renewed them */
    if (!is_known || renew || ends) {
        tri_credentials fresh;
        status = look(requester, &fresh);
        if (status == TRI_OK) {
            known = fresh;
            is_known = true;
        } else if (!renew && is_known && tri_wall_ns() < known.expires_ns)
            status = TRI_OK; /* the old ones are valid yet; the next request asks again */
    }
    if (status == TRI_OK)
        *out = known;
    pthread_mutex_unlock(&mutex);
    return status;
}
