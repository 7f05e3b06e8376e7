/* SPDX-License-Identifier: Apache-2.0
 *
 * json.h: JSON written piece by piece into a string (reading is jansson's, in the files that need it).
 *
 *     tri_json json = tri_json_object(&line);
 *     tri_json_int(&json, "step", 7);
 *     tri_json_real(&json, "loss", 0.25);
 *     status = tri_json_end(&json);           // first failure of any call above
 */
#ifndef TRI_BASE_JSON_H
#define TRI_BASE_JSON_H

#include "base/containers.h"

typedef struct tri_json {
    tri_string *out;
    struct tri_json *outer; /* takes over a failure of a nested container; NULL outside */
    tri_status status;      /* sticky */
    char close;             /* '}' or ']' */
    bool empty;
} tri_json;

tri_json tri_json_object(tri_string *out);
/* Nested containers: finish the inner one with tri_json_end before the outer continues. key NULL inside arrays. */
tri_json tri_json_object_in(tri_json *outer, const char *key);
tri_json tri_json_array_in(tri_json *outer, const char *key);
void tri_json_text(tri_json *json, const char *key, const char *value); /* escaped; invalid UTF-8 replaced */
void tri_json_int(tri_json *json, const char *key, int64_t value);
void tri_json_real(tri_json *json, const char *key, double value); /* shortest that reads back; NaN and inf: null */
void tri_json_bool(tri_json *json, const char *key, bool value);
tri_status tri_json_end(tri_json *json);

/* Bytes of the UTF-8 character at the beginning of a text that ends in a 0, 0 when it is none: RFC 3629, so no overlong
 * forms, no surrogates, nothing above U+10FFFF. */
size_t tri_utf8_nbytes(const char *character);

#endif
