/* SPDX-License-Identifier: Apache-2.0
 *
 * json_read.h: fields of JSON that comes from outside, with messages that name file and field.
 */
#ifndef TRI_TEXT_JSON_READ_H
#define TRI_TEXT_JSON_READ_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* A whole text; release it with json_decref. */
tri_status tri_json_load(const char *text, size_t nbytes, const char *origin, json_t **out);
/* A file of at most a GiB; *text as read (tri_free), unless NULL. */
tri_status tri_json_load_file(const char *path, json_t **out, char **text, size_t *nbytes);
/* object[name] must be of the type; absent or null gives NULL where `needed` is false. `where` is for messages. */
tri_status tri_json_field(const json_t *object, const char *name, json_type type, bool needed, const char *origin,
                          const char *where, json_t **out);
/* A boolean that may be absent. */
tri_status tri_json_flag(const json_t *object, const char *name, bool fallback, const char *origin, const char *where,
                         bool *out);
/* The field `type`. */
tri_status tri_json_type(const json_t *object, const char *origin, const char *where, const char **out);
/* An id out of a vocabulary of that many tokens. */
tri_status tri_json_id(const json_t *value, size_t count, const char *origin, const char *where, int32_t *out);

#endif
