/* SPDX-License-Identifier: Apache-2.0
 *
 * vocabulary.c: the table of hashes is open addressing with linear probing, at most half full.
 */
#include "text/vocabulary.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "text/unicode.h"

static tri_vocabulary_entry *entry_at(const tri_vocabulary *vocabulary, int64_t id)
{
    return (tri_vocabulary_entry *)vocabulary->entries.items + id;
}

static bool entry_is(const tri_vocabulary *vocabulary, int64_t id, const void *text, size_t nbytes)
{
    const tri_vocabulary_entry *entry = entry_at(vocabulary, id);
    return entry->nbytes == nbytes && memcmp(vocabulary->bytes.text + entry->first, text, nbytes) == 0;
}

/* The slot that holds the text, or the empty one where it belongs. */
static size_t find_slot(const tri_vocabulary *vocabulary, const void *text, size_t nbytes)
{
    size_t slot = (size_t)XXH3_64bits(text, nbytes) & (vocabulary->slot_count - 1);
    while (vocabulary->slots[slot] != 0 && !entry_is(vocabulary, vocabulary->slots[slot] - 1, text, nbytes))
        slot = (slot + 1) & (vocabulary->slot_count - 1);
    return slot;
}

static tri_status grow_slots(tri_vocabulary *vocabulary)
{
    size_t old_count = vocabulary->slot_count;
    uint32_t *old = vocabulary->slots;
    size_t count = old_count > 0 ? 2 * old_count : 1024;
    uint32_t *slots = tri_alloc_zero(count, sizeof(*slots));
    if (slots == NULL)
        return TRI_ENOMEM;
    vocabulary->slots = slots;
    vocabulary->slot_count = count;
    for (size_t i = 0; i < old_count; i++)
        if (old[i] != 0) {
            const tri_vocabulary_entry *entry = entry_at(vocabulary, old[i] - 1);
            slots[find_slot(vocabulary, vocabulary->bytes.text + entry->first, entry->nbytes)] = old[i];
        }
    tri_free(old);
    return TRI_OK;
}

static tri_status index_text(tri_vocabulary *vocabulary, int32_t id, const void *text, size_t nbytes)
{
    if (2 * (vocabulary->found_count + 1) > vocabulary->slot_count)
        TRI_TRY(grow_slots(vocabulary));
    size_t slot = find_slot(vocabulary, text, nbytes);
    if (vocabulary->slots[slot] != 0)
        return tri_fail(TRI_EFORMAT, "token '%.*s' is there twice, as %u and %d", (int)nbytes, (const char *)text,
                        vocabulary->slots[slot] - 1, id);
    vocabulary->slots[slot] = (uint32_t)id + 1;
    vocabulary->found_count++;
    return TRI_OK;
}

tri_status tri_vocabulary_add(tri_vocabulary *vocabulary, int32_t id, const void *text, size_t nbytes, bool indexed)
{
    vocabulary->entries.each = sizeof(tri_vocabulary_entry);
    if (nbytes > UINT32_MAX / 2)
        return tri_fail(TRI_EFORMAT, "token %d: %zu bytes are too many", id, nbytes);
    while (vocabulary->entries.count <= (size_t)id)
        if (tri_vector_push(&vocabulary->entries, NULL) == NULL)
            return TRI_ENOMEM;
    if (entry_at(vocabulary, id)->present) {
        size_t other_nbytes;
        const char *other = tri_vocabulary_text(vocabulary, id, &other_nbytes);
        return tri_fail(TRI_EFORMAT, "tokens '%.*s' and '%.*s' both have the id %d", (int)other_nbytes, other,
                        (int)nbytes, (const char *)text, id);
    }
    size_t first = vocabulary->bytes.nbytes;
    TRI_TRY(tri_string_append_bytes(&vocabulary->bytes, text, nbytes));
    TRI_TRY(tri_string_append_bytes(&vocabulary->bytes, "", 1));
    if (indexed)
        TRI_TRY(index_text(vocabulary, id, text, nbytes));
    *entry_at(vocabulary, id) = (tri_vocabulary_entry){first, (uint32_t)nbytes, true};
    return TRI_OK;
}

int32_t tri_vocabulary_find(const tri_vocabulary *vocabulary, const void *text, size_t nbytes)
{
    if (vocabulary->slot_count == 0)
        return -1;
    return (int32_t)vocabulary->slots[find_slot(vocabulary, text, nbytes)] - 1;
}

const char *tri_vocabulary_text(const tri_vocabulary *vocabulary, int32_t id, size_t *nbytes)
{
    *nbytes = 0;
    if (id < 0 || (size_t)id >= vocabulary->entries.count || !entry_at(vocabulary, id)->present)
        return NULL;
    *nbytes = entry_at(vocabulary, id)->nbytes;
    return vocabulary->bytes.text + entry_at(vocabulary, id)->first;
}

void tri_vocabulary_fini(tri_vocabulary *vocabulary)
{
    tri_string_fini(&vocabulary->bytes);
    tri_vector_fini(&vocabulary->entries);
    tri_free(vocabulary->slots);
    *vocabulary = (tri_vocabulary){0};
}

/* --- bytes as letters: 33-126, 161-172 and 174-255 are themselves, the others follow from 256 on --- */

static bool is_own_letter(uint32_t byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

uint32_t tri_byte_letter(unsigned char byte)
{
    if (is_own_letter(byte))
        return byte;
    return byte <= 32 ? 256u + byte : byte <= 160 ? 256u + 33 + byte - 127 : 256u + 67;
}

bool tri_byte_letters_read(const void *text, size_t nbytes, unsigned char *out, size_t *out_nbytes)
{
    const unsigned char *bytes = text;
    *out_nbytes = 0;
    for (size_t at = 0; at < nbytes;) {
        uint32_t code;
        at += tri_utf_read(bytes + at, nbytes - at, &code);
        uint32_t other = code - 256;
        if (code < 256 && is_own_letter(code))
            out[(*out_nbytes)++] = (unsigned char)code;
        else if (code >= 256 && other <= 67)
            out[(*out_nbytes)++] = (unsigned char)(other <= 32 ? other : other < 67 ? other - 33 + 127 : 173);
        else
            return false;
    }
    return true;
}
