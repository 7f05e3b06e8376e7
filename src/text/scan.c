/* SPDX-License-Identifier: Apache-2.0
 *
 * scan.c: each alternative of an expression is tried in its order, as a backtracking matcher would; the comments quote
 * it. Letters, numbers and spaces are those of Unicode; a byte that is no UTF-8 counts as none of them.
 */
#include "text/scan.h"

#include <string.h>

#include "base/status.h"
#include "text/unicode.h"

typedef struct known_pattern {
    const char *text;
    tri_scan_kind kind;
} known_pattern;

static const known_pattern patterns[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", TRI_SCAN_GPT},
    {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", TRI_SCAN_GPT},
    {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s", TRI_SCAN_GPT},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     TRI_SCAN_LLAMA},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     TRI_SCAN_QWEN},
};

bool tri_scan_find(const char *pattern, tri_scan_kind *kind)
{
    for (size_t i = 0; i < TRI_COUNT_OF(patterns); i++)
        if (strcmp(patterns[i].text, pattern) == 0) {
            *kind = patterns[i].kind;
            return true;
        }
    return false;
}

typedef struct text_end {
    const unsigned char *bytes;
    size_t nbytes;
} text_end;

/* Class of the character at `at`, and where the next one begins. */
static inline tri_char_class class_at(text_end text, size_t at, size_t *next)
{
    const unsigned char byte = text.bytes[at];
    *next = at + 1;
    if (byte < 0x80) {
        if ((unsigned char)((byte | 0x20) - 'a') < 26)
            return TRI_CHAR_LETTER;
        if (byte == ' ' || (unsigned char)(byte - '\t') < 5)
            return TRI_CHAR_SPACE;
        return (unsigned char)(byte - '0') < 10 ? TRI_CHAR_NUMBER : TRI_CHAR_OTHER;
    }
    uint32_t code;
    *next = at + tri_utf_read(text.bytes + at, text.nbytes - at, &code);
    return tri_unicode_class(code);
}

/* End of the run of characters of the class from `at` on, at most `limit` of them. */
static inline size_t run_end(text_end text, size_t at, tri_char_class class, size_t limit)
{
    for (size_t next; limit > 0 && at < text.nbytes && class_at(text, at, &next) == class; limit--)
        at = next;
    return at;
}

static inline bool is_line_end(unsigned char byte)
{
    return byte == '\n' || byte == '\r';
}

/* 's|'t|'re|'ve|'m|'ll|'d after the apostrophe; 0: none of them. `fold`: capitals too, and U+017F, a long s. */
static inline size_t contraction_end(text_end text, size_t at, bool fold)
{
    const unsigned char *byte = text.bytes + at + 1;
    const size_t left = text.nbytes - at - 1;
    if (left == 0)
        return 0;
    const unsigned char mask = fold ? 0x20 : 0;
    const int first = byte[0] | mask;
    if (byte[0] < 0x80 && (first == 's' || first == 't' || first == 'm' || first == 'd'))
        return at + 2;
    if (left < 2)
        return 0;
    if (fold && byte[0] == 0xc5 && byte[1] == 0xbf)
        return at + 3;
    const int second = byte[1] | mask;
    if (byte[0] < 0x80 && byte[1] < 0x80 &&
        ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')))
        return at + 3;
    return 0;
}

/* \s+(?!\S)|\s+ : a run of spaces leaves its last one to the word behind it, unless that is all it has. */
static size_t spaces_end(text_end text, size_t at)
{
    size_t last = at, end = at;
    for (size_t next; end < text.nbytes && class_at(text, end, &next) == TRI_CHAR_SPACE; end = next)
        last = end;
    return end == text.nbytes || last == at ? end : last;
}

static size_t gpt_word(text_end text, size_t at)
{
    size_t next, end;
    if (text.bytes[at] == '\'' && (end = contraction_end(text, at, false)) != 0)
        return end;
    const size_t first = at + (text.bytes[at] == ' ' && at + 1 < text.nbytes); /* " ?" */
    const tri_char_class class = class_at(text, first, &next);
    if (class == TRI_CHAR_SPACE)
        return spaces_end(text, at);
    return run_end(text, next, class, SIZE_MAX); /* \p{L}+, \p{N}+, [^\s\p{L}\p{N}]+ */
}

/* \s*[\r\n]+ : up to the last line end of the run; else \s+(?!\S)|\s+ . */
static size_t lines_end(text_end text, size_t at)
{
    size_t line = at, next;
    for (size_t end = at; end < text.nbytes && class_at(text, end, &next) == TRI_CHAR_SPACE; end = next)
        if (is_line_end(text.bytes[end]))
            line = next;
    return line > at ? line : spaces_end(text, at);
}

static size_t llama_word(text_end text, size_t at, size_t digits)
{
    size_t next, end;
    if (text.bytes[at] == '\'' && (end = contraction_end(text, at, true)) != 0)
        return end;
    const tri_char_class class = class_at(text, at, &next);
    if (class == TRI_CHAR_LETTER)
        return run_end(text, next, class, SIZE_MAX);
    if (class == TRI_CHAR_NUMBER)
        return run_end(text, next, class, digits - 1); /* \p{N}{1,3} */
    size_t behind;
    const tri_char_class second = next < text.nbytes ? class_at(text, next, &behind) : TRI_CHAR_SPACE;
    if (second == TRI_CHAR_LETTER && !is_line_end(text.bytes[at]))
        return run_end(text, behind, second, SIZE_MAX); /* [^\r\n\p{L}\p{N}]?\p{L}+ */
    if (class == TRI_CHAR_OTHER || (text.bytes[at] == ' ' && second == TRI_CHAR_OTHER)) {
        end = run_end(text, next, TRI_CHAR_OTHER, SIZE_MAX); /* ?[^\s\p{L}\p{N}]+[\r\n]* */
        while (end < text.nbytes && is_line_end(text.bytes[end]))
            end++;
        return end;
    }
    return lines_end(text, at);
}

static inline bool is_gap(text_end text, size_t at)
{
    return text.nbytes - at >= 3 && memcmp(text.bytes + at, "\xe2\x96\x81", 3) == 0;
}

/* Gaps and what follows them, up to the next gap. */
static size_t gap_word(text_end text, size_t at, bool each)
{
    if (each && is_gap(text, at))
        at += 3;
    while (!each && is_gap(text, at))
        at += 3;
    while (at < text.nbytes) {
        const unsigned char *found = memchr(text.bytes + at, 0xe2, text.nbytes - at);
        if (found == NULL)
            return text.nbytes;
        at = (size_t)(found - text.bytes);
        if (is_gap(text, at))
            return at;
        at++;
    }
    return at;
}

size_t tri_scan_word(tri_scan_kind kind, const unsigned char *bytes, size_t nbytes, size_t at)
{
    const text_end text = {bytes, nbytes};
    switch (kind) {
    case TRI_SCAN_GPT:
        return gpt_word(text, at);
    case TRI_SCAN_LLAMA:
        return llama_word(text, at, 3);
    case TRI_SCAN_QWEN:
        return llama_word(text, at, 1);
    case TRI_SCAN_GAPS:
        return gap_word(text, at, false);
    case TRI_SCAN_EACH_GAP:
        return gap_word(text, at, true);
    default:
        return nbytes;
    }
}

/* The character that ends before `at`. */
static tri_char_class class_before(text_end text, size_t at)
{
    size_t first = at - 1, next;
    while (first > 0 && at - first < 4 && (text.bytes[first] & 0xc0) == 0x80)
        first--;
    tri_char_class class = class_at(text, first, &next);
    return next == at ? class : TRI_CHAR_OTHER;
}

bool tri_scan_is_cut(tri_scan_kind kind, const unsigned char *bytes, size_t nbytes, size_t at)
{
    const text_end text = {bytes, nbytes};
    size_t next;
    if (kind == TRI_SCAN_WHOLE)
        return false;
    if (kind == TRI_SCAN_GAPS || kind == TRI_SCAN_EACH_GAP) /* a space becomes a gap */
        return bytes[at] == ' ' && class_before(text, at) != TRI_CHAR_SPACE && class_before(text, at) != TRI_CHAR_OTHER;
    if (class_at(text, at, &next) != TRI_CHAR_SPACE)
        return false;
    const tri_char_class before = class_before(text, at);
    return before == TRI_CHAR_LETTER || before == TRI_CHAR_NUMBER || (kind == TRI_SCAN_GPT && before == TRI_CHAR_OTHER);
}
