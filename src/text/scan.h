/* SPDX-License-Identifier: Apache-2.0
 *
 * scan.h: cuts a text into words that no token reaches across: the regular expressions of GPT-2, Llama 3 and Qwen2,
 * written out by hand, and the gaps of SentencePiece.
 */
#ifndef TRI_TEXT_SCAN_H
#define TRI_TEXT_SCAN_H

#include <stdbool.h>
#include <stddef.h>

typedef enum tri_scan_kind {
    TRI_SCAN_WHOLE,   /* the text is one word */
    TRI_SCAN_GPT,     /* GPT-2 */
    TRI_SCAN_LLAMA,   /* Llama 3, cl100k: numbers of up to 3 digits */
    TRI_SCAN_QWEN,    /* the same with single digits */
    TRI_SCAN_GAPS,    /* before each run of U+2581 */
    TRI_SCAN_EACH_GAP /* before each U+2581 */
} tri_scan_kind;

/* A kind from its regular expression; false when it is none that is known. */
bool tri_scan_find(const char *pattern, tri_scan_kind *kind);
/* Where the word that begins at `at` < nbytes ends. */
size_t tri_scan_word(tri_scan_kind kind, const unsigned char *text, size_t nbytes, size_t at);
/* Whether a word ends at 0 < `at` < nbytes, whatever is further away. May say no where it could say yes. */
bool tri_scan_is_cut(tri_scan_kind kind, const unsigned char *text, size_t nbytes, size_t at);

#endif
