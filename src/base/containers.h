/* SPDX-License-Identifier: Apache-2.0
 *
 * containers.h: a growing string, a growing array, a map from names to numbers.
 *
 * All are plain structs whose zero value is valid and empty; `fini` frees and leaves them empty. A failed append leaves
 * the container as it was.
 */
#ifndef TRI_BASE_CONTAINERS_H
#define TRI_BASE_CONTAINERS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"

typedef struct tri_string {
    char *text;    /* always ends in a 0 byte once something was appended; NULL before: use tri_string_text() */
    size_t nbytes; /* without the 0 */
    size_t capacity;
} tri_string;

/* Room for `more` bytes behind what is there: appending that many takes no memory. */
tri_status tri_string_reserve(tri_string *string, size_t more);
tri_status tri_string_append(tri_string *string, const char *text);
tri_status tri_string_append_bytes(tri_string *string, const void *bytes, size_t nbytes);
tri_status tri_string_appendf(tri_string *string, const char *format, ...) __attribute__((format(printf, 2, 3)));
tri_status tri_string_appendv(tri_string *string, const char *format, va_list args);
/* The shortest decimal that reads back as the same number ("0.25", "1e-05", "nan", "inf"), in any locale. */
tri_status tri_string_append_real(tri_string *string, double value);
/* Never NULL. */
const char *tri_string_text(const tri_string *string);
void tri_string_clear(tri_string *string);
/* Hands the text over: tri_free() it. The string is empty afterwards. NULL when memory is out. */
char *tri_string_detach(tri_string *string);
void tri_string_fini(tri_string *string);

typedef struct tri_vector {
    void *items;
    size_t count;
    size_t capacity;
    size_t each; /* bytes of one item; set before the first push: tri_vector v = {.each = sizeof(int)} */
} tri_vector;

/* Appends a copy of *item (or zeros for NULL); returns where it is, NULL when memory is out. */
void *tri_vector_push(tri_vector *vector, const void *item);
void *tri_vector_at(const tri_vector *vector, size_t index);
void tri_vector_fini(tri_vector *vector);

/* Names to 64-bit values; keys are copied. */
typedef struct tri_map {
    struct tri_map_slot *slots;
    size_t count;
    size_t capacity; /* a power of two, 0 when empty */
} tri_map;

tri_status tri_map_set(tri_map *map, const char *key, int64_t value);
/* False when absent; *value untouched then. */
bool tri_map_find(const tri_map *map, const char *key, int64_t *value);
bool tri_map_remove(tri_map *map, const char *key);
void tri_map_fini(tri_map *map);

#endif
