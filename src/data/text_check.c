/* SPDX-License-Identifier: Apache-2.0
 *
 * text_check.c: files that are no plain text although they could be tokenized as one: UTF-16, JSON.
 */
#include <string.h>

#include "data/tokens.h"

#define LOOKED_NBYTES 4096

/* The encoding's name for iconv; NULL: none of 2 bytes a character. Most of such a text are letters with a zero byte.
 */
const char *tri_text_wide_encoding(const void *text, size_t nbytes)
{
    const unsigned char *bytes = text;
    size_t zeros[2] = {0, 0}, looked = nbytes < LOOKED_NBYTES ? nbytes & ~(size_t)1 : LOOKED_NBYTES;
    if (nbytes >= 2 && ((bytes[0] == 0xff && bytes[1] == 0xfe) || (bytes[0] == 0xfe && bytes[1] == 0xff)))
        return "UTF-16";
    for (size_t i = 0; i < looked; i++)
        zeros[i % 2] += bytes[i] == 0;
    if (looked < 4 || zeros[0] + zeros[1] < looked / 4)
        return NULL;
    return zeros[1] > 8 * zeros[0] ? "UTF-16LE" : zeros[0] > 8 * zeros[1] ? "UTF-16BE" : NULL;
}

static size_t skip_blank(const char *text, size_t nbytes, size_t at)
{
    while (at < nbytes && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || text[at] == '\n'))
        at++;
    return at;
}

/* Whether an object with a first name begins, or a list of objects: JSON lines, or one document. */
static bool is_json(const char *text, size_t nbytes)
{
    const bool marked = nbytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0;
    size_t at = skip_blank(text, nbytes, marked ? 3 : 0);
    if (at == nbytes || (text[at] != '{' && text[at] != '['))
        return false;
    const char wanted = text[at] == '{' ? '"' : '{';
    at = skip_blank(text, nbytes, at + 1);
    return at < nbytes && text[at] == wanted;
}

tri_status tri_text_check(const tri_source *source, const char *option)
{
    const char *encoding = tri_text_wide_encoding(source->bytes, source->nbytes);
    if (encoding != NULL)
        return tri_fail(TRI_EFORMAT, "%s: want text in UTF-8, got %s (iconv -f %s -t UTF-8 FILE >NEW; %s: as it is)",
                        source->origin, encoding, encoding, option);
    if (is_json((const char *)source->bytes, source->nbytes))
        return tri_fail(TRI_EFORMAT,
                        "%s: want plain text, got JSON: its names and braces would be learned (%s: as it is)",
                        source->origin, option);
    return TRI_OK;
}
