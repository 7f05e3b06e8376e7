/* SPDX-License-Identifier: Apache-2.0
 *
 * vocabulary.h: texts by number and numbers by text: all bytes are in one block, a table of hashes finds them.
 */
#ifndef TRI_TEXT_VOCABULARY_H
#define TRI_TEXT_VOCABULARY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/containers.h"

typedef struct tri_vocabulary {
    tri_string bytes;   /* of all texts */
    tri_vector entries; /* tri_vocabulary_entry by id */
    uint32_t *slots;    /* id + 1 by hash, 0: empty */
    size_t slot_count;  /* a power of two */
    size_t found_count; /* texts in the table */
} tri_vocabulary;

typedef struct tri_vocabulary_entry {
    size_t first;
    uint32_t nbytes;
    bool present;
} tri_vocabulary_entry;

/* Stores a text; `indexed`: tri_vocabulary_find finds it. An id that is taken, or a text that is found already, is
 * TRI_EFORMAT. */
tri_status tri_vocabulary_add(tri_vocabulary *vocabulary, int32_t id, const void *text, size_t nbytes, bool indexed);
/* -1: none. */
int32_t tri_vocabulary_find(const tri_vocabulary *vocabulary, const void *text, size_t nbytes);
/* NULL: none. Valid until the next add. */
const char *tri_vocabulary_text(const tri_vocabulary *vocabulary, int32_t id, size_t *nbytes);
/* One more than the greatest id. */
static inline int64_t tri_vocabulary_count(const tri_vocabulary *vocabulary)
{
    return (int64_t)vocabulary->entries.count;
}
void tri_vocabulary_fini(tri_vocabulary *vocabulary);

/* GPT-2 writes each byte as a printable character; these are its tables. */
uint32_t tri_byte_letter(unsigned char byte);
/* Bytes of a text written in such characters; false when one is none of them. */
bool tri_byte_letters_read(const void *text, size_t nbytes, unsigned char *out, size_t *out_nbytes);

#endif
