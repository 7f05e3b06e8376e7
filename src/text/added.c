/* SPDX-License-Identifier: Apache-2.0
 *
 * added.c: finds added tokens in a text: the leftmost, of those the longest; then what each needs around it.
 */
#include <string.h>

#include "text/tokenizer_impl.h"
#include "text/unicode.h"

/* The character that ends before `at`, and where it begins. */
static uint32_t character_before(const unsigned char *text, size_t at, size_t *first)
{
    uint32_t code;
    for (*first = at - 1; *first > 0 && at - *first < 4 && (text[*first] & 0xc0) == 0x80;)
        --*first;
    if (tri_utf_read(text + *first, at - *first, &code) == at - *first)
        return code;
    *first = at - 1;
    return TRI_UTF_INVALID;
}

static size_t spaces_before(const unsigned char *text, size_t at)
{
    size_t first;
    while (at > 0 && tri_unicode_class(character_before(text, at, &first)) == TRI_CHAR_SPACE)
        at = first;
    return at;
}

static size_t spaces_after(const unsigned char *text, size_t nbytes, size_t at)
{
    uint32_t code;
    while (at < nbytes) {
        size_t next = at + tri_utf_read(text + at, nbytes - at, &code);
        if (tri_unicode_class(code) != TRI_CHAR_SPACE)
            break;
        at = next;
    }
    return at;
}

/* The longest token that begins at text[0]. */
static const tri_added *match_here(const tri_added_set *set, const char *text, size_t nbytes)
{
    const unsigned char byte = (unsigned char)text[0];
    for (uint32_t i = set->first[byte]; i < set->first[byte + 1]; i++)
        if (set->items[i].nbytes <= nbytes && memcmp(set->items[i].text, text, set->items[i].nbytes) == 0)
            return &set->items[i];
    return NULL;
}

/* Where a first byte of the set is from `at` on. */
static size_t find_first(const tri_added_set *set, const char *text, size_t nbytes, size_t at)
{
    const unsigned char byte = (unsigned char)set->items[0].text[0];
    if (set->first[byte + 1] - set->first[byte] == set->count) { /* all begin alike */
        const char *found = memchr(text + at, byte, nbytes - at);
        return found != NULL ? (size_t)(found - text) : nbytes;
    }
    while (at < nbytes && set->first[(unsigned char)text[at]] == set->first[(unsigned char)text[at] + 1])
        at++;
    return at;
}

bool tri_added_find(const tri_added_set *set, const char *text, size_t nbytes, size_t from, size_t taken,
                    tri_added_match *match)
{
    const unsigned char *bytes = (const unsigned char *)text;
    if (set->count == 0)
        return false;
    for (size_t at = find_first(set, text, nbytes, from); at < nbytes; at = find_first(set, text, nbytes, from)) {
        const tri_added *found = match_here(set, text + at, nbytes - at);
        from = found != NULL ? at + found->nbytes : at + 1;
        if (found == NULL)
            continue;
        *match = (tri_added_match){.first = at, .end = from, .id = found->id, .from = from};
        if (found->lstrip)
            match->first = spaces_before(bytes, at);
        if (match->first < taken)
            match->first = taken;
        if (found->rstrip)
            match->end = spaces_after(bytes, nbytes, from);
        return true;
    }
    return false;
}

bool tri_added_ends(const tri_added_set *set, const char *text, size_t at)
{
    for (size_t i = 0; i < set->count; i++) {
        const tri_added *added = &set->items[i];
        if (added->nbytes <= at && memcmp(text + at - added->nbytes, added->text, added->nbytes) == 0)
            return true;
    }
    return false;
}

bool tri_added_reaches(const tri_added_set *set, const char *text, size_t nbytes, size_t at)
{
    for (size_t i = 0; i < set->count; i++) {
        const tri_added *added = &set->items[i];
        for (size_t back = 1; back < added->nbytes && back <= at; back++)
            if (nbytes - (at - back) >= added->nbytes && memcmp(text + at - back, added->text, added->nbytes) == 0)
                return true;
    }
    return false;
}
