/* SPDX-License-Identifier: Apache-2.0
 *
 * json_read.c: jansson parses; here its findings become messages.
 */
#include "text/json_read.h"

#include "base/fs.h"
#include "text/tokenizer_impl.h"

#define FILE_NBYTES_LIMIT (UINT64_C(1) << 30)

tri_status tri_json_load(const char *text, size_t nbytes, const char *origin, json_t **out)
{
    json_error_t error;
    *out = json_loadb(text, nbytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (*out == NULL)
        return tri_fail(TRI_EFORMAT, "%s:%d: not JSON: %s", origin, error.line, error.text);
    if (json_is_object(*out))
        return TRI_OK;
    json_decref(*out);
    *out = NULL;
    return tri_fail(TRI_EFORMAT, "%s: want a JSON object", origin);
}

tri_status tri_json_load_file(const char *path, json_t **out, char **text, size_t *nbytes)
{
    char *read = NULL;
    size_t length = 0;
    TRI_TRY(tri_fs_read(path, FILE_NBYTES_LIMIT, &read, &length));
    tri_status status = tri_json_load(read, length, path, out);
    if (status == TRI_OK && text != NULL) {
        *text = read;
        *nbytes = length;
    } else {
        tri_free(read);
    }
    return status;
}

static const char *type_name(json_type type)
{
    switch (type) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a text";
    case JSON_INTEGER:
        return "a whole number";
    case JSON_REAL:
        return "a number";
    case JSON_NULL:
        return "null";
    default:
        return "true or false";
    }
}

tri_status tri_json_field(const json_t *object, const char *name, json_type type, bool needed, const char *origin,
                          const char *where, json_t **out)
{
    json_t *value = json_object_get(object, name);
    *out = value == NULL || json_is_null(value) ? NULL : value;
    if (*out == NULL && !needed)
        return TRI_OK;
    if (*out == NULL)
        return tri_fail(TRI_EFORMAT, "%s: %s: the field '%s' is missing", origin, where, name);
    if (json_typeof(value) != type)
        return tri_fail(TRI_EFORMAT, "%s: %s: want %s as '%s', got %s", origin, where, type_name(type), name,
                        type_name(json_typeof(value)));
    return TRI_OK;
}

tri_status tri_json_flag(const json_t *object, const char *name, bool fallback, const char *origin, const char *where,
                         bool *out)
{
    const json_t *value = json_object_get(object, name);
    *out = value != NULL && !json_is_null(value) ? json_is_true(value) : fallback;
    if (value != NULL && !json_is_null(value) && !json_is_boolean(value))
        return tri_fail(TRI_EFORMAT, "%s: %s: want true or false as '%s', got %s", origin, where, name,
                        type_name(json_typeof(value)));
    return TRI_OK;
}

tri_status tri_json_type(const json_t *object, const char *origin, const char *where, const char **out)
{
    json_t *type;
    if (!json_is_object(object))
        return tri_fail(TRI_EFORMAT, "%s: %s: want an object", origin, where);
    TRI_TRY(tri_json_field(object, "type", JSON_STRING, true, origin, where, &type));
    *out = json_string_value(type);
    return TRI_OK;
}

tri_status tri_json_id(const json_t *value, size_t count, const char *origin, const char *where, int32_t *out)
{
    const json_int_t id = json_integer_value(value), limit = (json_int_t)(count * TRI_IDS_SPREAD + 65536);
    if (!json_is_integer(value) || id < 0 || id >= limit || id >= INT32_MAX)
        return tri_fail(TRI_EFORMAT, "%s: token '%.64s': want an id from 0 to %lld (there are %zu tokens), got %lld",
                        origin, where, (long long)limit - 1, count, (long long)id);
    *out = (int32_t)id;
    return TRI_OK;
}
