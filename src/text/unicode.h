/* SPDX-License-Identifier: Apache-2.0
 *
 * unicode.h: characters of UTF-8 text, whether they are letters, numbers or white space, and their canonical
 * composition.
 */
#ifndef TRI_TEXT_UNICODE_H
#define TRI_TEXT_UNICODE_H

#include <stddef.h>
#include <stdint.h>

#include "base/containers.h"

typedef enum tri_char_class { TRI_CHAR_OTHER, TRI_CHAR_LETTER, TRI_CHAR_NUMBER, TRI_CHAR_SPACE } tri_char_class;

#define TRI_UNICODE_BLOCK_COUNT 804
#define TRI_UNICODE_END         0x110000u
#define TRI_UTF_INVALID         UINT32_MAX

extern const uint8_t tri_unicode_blocks[TRI_UNICODE_BLOCK_COUNT];
extern const uint64_t tri_unicode_classes[][8];

/* Three numbers, in order of the first, or of the first two. */
typedef struct tri_unicode_triple {
    uint32_t a, b, c;
} tri_unicode_triple;
#define TRI_UNICODE_MARK_COUNT          393
#define TRI_UNICODE_DECOMPOSITION_COUNT 2081
#define TRI_UNICODE_COMPOSITION_COUNT   961
extern const tri_unicode_triple tri_unicode_marks[TRI_UNICODE_MARK_COUNT]; /* first, last, combining class */
extern const tri_unicode_triple
    tri_unicode_decompositions[TRI_UNICODE_DECOMPOSITION_COUNT];                         /* of, first, second or 0 */
extern const tri_unicode_triple tri_unicode_compositions[TRI_UNICODE_COMPOSITION_COUNT]; /* first, second, to */

/* compose.c: appends the text in normalization form C (Unicode Standard Annex 15). What is no UTF-8 stays as it is. */
tri_status tri_unicode_compose(const char *text, size_t nbytes, tri_string *out);

/* \p{L}, \p{N}, \s or none of them; none also for TRI_UTF_INVALID. */
static inline tri_char_class tri_unicode_class(uint32_t code)
{
    if (code >> 8 >= TRI_UNICODE_BLOCK_COUNT)
        return TRI_CHAR_OTHER;
    const uint64_t *words = tri_unicode_classes[tri_unicode_blocks[code >> 8]];
    return (tri_char_class)(words[code >> 5 & 7] >> 2 * (code & 31) & 3);
}

/* The character at text[0], at most nbytes >= 1 long; returns its bytes. What is no UTF-8 (overlong, a surrogate, cut
 * short) is TRI_UTF_INVALID, one byte long. */
static inline size_t tri_utf_read(const unsigned char *text, size_t nbytes, uint32_t *code)
{
    const uint32_t lead = text[0];
    if (lead < 0x80) {
        *code = lead;
        return 1;
    }
    const size_t wanted = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    *code = TRI_UTF_INVALID;
    if (lead < 0xc2 || lead > 0xf4 || wanted > nbytes)
        return 1;
    uint32_t value = lead & (0x7fu >> wanted);
    for (size_t i = 1; i < wanted; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 1;
        value = value << 6 | (text[i] & 0x3f);
    }
    if ((wanted == 3 && (value < 0x800 || value >> 11 == 0x1b)) ||
        (wanted == 4 && (value < 0x10000 || value >= TRI_UNICODE_END)))
        return 1;
    *code = value;
    return wanted;
}

/* Writes a character, returns its bytes (at most 4). */
static inline size_t tri_utf_write(uint32_t code, unsigned char *out)
{
    if (code < 0x80) {
        out[0] = (unsigned char)code;
        return 1;
    }
    const size_t nbytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = nbytes - 1; i > 0; i--, code >>= 6)
        out[i] = (unsigned char)(0x80 | (code & 0x3f));
    out[0] = (unsigned char)((0xf00u >> nbytes & 0xf0) | code);
    return nbytes;
}

#endif
