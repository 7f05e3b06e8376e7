/* SPDX-License-Identifier: Apache-2.0
 *
 * containers.c: string and vector double their room; the map is open addressing with linear probing.
 *
 * Invariant of the map: a key is at its home slot or after it without a free slot between (removal shifts back
 * instead of leaving marks), and at least a quarter of the slots is free, so that every search ends.
 */
#include "base/containers.h"

#include <float.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/status.h"

/* --- string --- */

tri_status tri_string_reserve(tri_string *string, size_t more)
{
    size_t need;
    if (__builtin_add_overflow(string->nbytes, more, &need) || need >= (size_t)PTRDIFF_MAX / 4)
        return tri_fail(TRI_ENOMEM, "string: want %zu bytes more than %zu, more than any machine has", more,
                        string->nbytes);
    need++;
    if (need <= string->capacity)
        return TRI_OK;
    size_t capacity = string->capacity ? string->capacity : 32;
    while (capacity < need)
        capacity *= 2;
    char *text = tri_realloc(string->text, capacity);
    if (!text)
        return TRI_ENOMEM;
    string->text = text;
    string->capacity = capacity;
    text[string->nbytes] = '\0';
    return TRI_OK;
}

tri_status tri_string_append(tri_string *string, const char *text)
{
    return tri_string_append_bytes(string, text, strlen(text));
}

tri_status tri_string_append_bytes(tri_string *string, const void *bytes, size_t nbytes)
{
    TRI_TRY(tri_string_reserve(string, nbytes));
    if (nbytes)
        memcpy(string->text + string->nbytes, bytes, nbytes);
    string->nbytes += nbytes;
    string->text[string->nbytes] = '\0';
    return TRI_OK;
}

tri_status tri_string_appendf(tri_string *string, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tri_status status = tri_string_appendv(string, format, args);
    va_end(args);
    return status;
}

tri_status tri_string_appendv(tri_string *string, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int written = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (written < 0)
        return tri_fail(TRI_EINVAL, "format \"%s\": want a text, got an error of vsnprintf", format);
    TRI_TRY(tri_string_reserve(string, (size_t)written));
    vsnprintf(string->text + string->nbytes, (size_t)written + 1, format, args);
    string->nbytes += (size_t)written;
    return TRI_OK;
}

tri_status tri_string_append_real(tri_string *string, double value)
{
    static const int digits[] = {9, DBL_DIG, DBL_DIG + 1, DBL_DECIMAL_DIG}; /* %g leaves zeros at the end out */
    char text[40];
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before = plain ? uselocale(plain) : (locale_t)0;
    for (size_t i = 0; i < TRI_COUNT_OF(digits); i++) {
        snprintf(text, sizeof(text), "%.*g", digits[i], value);
        if (strtod(text, NULL) == value)
            break;
    }
    if (plain) {
        uselocale(before);
        freelocale(plain);
    }
    return tri_string_append(string, text);
}

const char *tri_string_text(const tri_string *string)
{
    return string->text ? string->text : "";
}

void tri_string_clear(tri_string *string)
{
    string->nbytes = 0;
    if (string->text)
        string->text[0] = '\0';
}

char *tri_string_detach(tri_string *string)
{
    char *text = string->text ? string->text : tri_strdup("");
    if (text)
        *string = (tri_string){0};
    return text;
}

void tri_string_fini(tri_string *string)
{
    tri_free(string->text);
    *string = (tri_string){0};
}

/* --- vector --- */

void *tri_vector_push(tri_vector *vector, const void *item)
{
    TRI_ASSERT(vector->each > 0);
    if (vector->count == vector->capacity) {
        size_t capacity = vector->capacity ? vector->capacity * 2 : 8;
        size_t nbytes;
        if (__builtin_mul_overflow(capacity, vector->each, &nbytes)) {
            tri_fail(TRI_ENOMEM, "vector: want %zu items of %zu bytes, more than any machine has", capacity,
                     vector->each);
            return NULL;
        }
        /* The item may be one of our own. */
        uintptr_t offset = (uintptr_t)item - (uintptr_t)vector->items;
        bool ours = vector->items && item && (uintptr_t)item >= (uintptr_t)vector->items &&
                    offset < vector->count * vector->each;
        void *items = tri_realloc(vector->items, nbytes);
        if (!items)
            return NULL;
        vector->items = items;
        vector->capacity = capacity;
        if (ours)
            item = (const char *)items + offset;
    }
    void *place = (char *)vector->items + vector->count * vector->each;
    if (item)
        memcpy(place, item, vector->each);
    else
        memset(place, 0, vector->each);
    vector->count++;
    return place;
}

void *tri_vector_at(const tri_vector *vector, size_t index)
{
    TRI_ASSERT(index < vector->count);
    return (char *)vector->items + index * vector->each;
}

void tri_vector_fini(tri_vector *vector)
{
    tri_free(vector->items);
    *vector = (tri_vector){.each = vector->each};
}

/* --- map --- */

typedef struct tri_map_slot {
    char *key; /* NULL: free */
    uint64_t hash;
    int64_t value;
} tri_map_slot;

static uint64_t hash_of(const char *key)
{
    return XXH3_64bits(key, strlen(key));
}

/* The slot that holds the key, or the free one where it belongs. Needs capacity > 0. */
static size_t slot_of(const tri_map *map, const char *key, uint64_t hash)
{
    size_t mask = map->capacity - 1;
    size_t at = (size_t)hash & mask;
    while (map->slots[at].key && (map->slots[at].hash != hash || strcmp(map->slots[at].key, key) != 0))
        at = (at + 1) & mask;
    return at;
}

static tri_status map_grow(tri_map *map)
{
    tri_map larger = {.count = map->count, .capacity = map->capacity ? map->capacity * 2 : 16};
    larger.slots = tri_alloc_zero(larger.capacity, sizeof(tri_map_slot));
    if (!larger.slots)
        return TRI_ENOMEM;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].key)
            larger.slots[slot_of(&larger, map->slots[i].key, map->slots[i].hash)] = map->slots[i];
    tri_free(map->slots);
    *map = larger;
    return TRI_OK;
}

tri_status tri_map_set(tri_map *map, const char *key, int64_t value)
{
    uint64_t hash = hash_of(key);
    if (map->capacity) {
        tri_map_slot *slot = &map->slots[slot_of(map, key, hash)];
        if (slot->key) {
            slot->value = value;
            return TRI_OK;
        }
    }
    if ((map->count + 1) * 4 > map->capacity * 3)
        TRI_TRY(map_grow(map));
    char *copy = tri_strdup(key);
    if (!copy)
        return TRI_ENOMEM;
    map->slots[slot_of(map, key, hash)] = (tri_map_slot){copy, hash, value};
    map->count++;
    return TRI_OK;
}

bool tri_map_find(const tri_map *map, const char *key, int64_t *value)
{
    if (!map->capacity)
        return false;
    const tri_map_slot *slot = &map->slots[slot_of(map, key, hash_of(key))];
    if (!slot->key)
        return false;
    *value = slot->value;
    return true;
}

bool tri_map_remove(tri_map *map, const char *key)
{
    if (!map->capacity)
        return false;
    size_t mask = map->capacity - 1;
    size_t hole = slot_of(map, key, hash_of(key));
    if (!map->slots[hole].key)
        return false;
    tri_free(map->slots[hole].key);
    /* Whoever behind could not reach its slot without passing the hole moves into it, leaving the next hole. */
    for (size_t at = (hole + 1) & mask; map->slots[at].key; at = (at + 1) & mask) {
        size_t home = (size_t)map->slots[at].hash & mask;
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            map->slots[hole] = map->slots[at];
            hole = at;
        }
    }
    map->slots[hole] = (tri_map_slot){0};
    map->count--;
    return true;
}

void tri_map_fini(tri_map *map)
{
    for (size_t i = 0; i < map->capacity; i++)
        tri_free(map->slots[i].key);
    tri_free(map->slots);
    *map = (tri_map){0};
}
