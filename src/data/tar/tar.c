/* SPDX-License-Identifier: Apache-2.0
 *
 * tar.c: see tar.h. Headers that only describe the next entry (names and lengths that a header has no room for) are
 * read and remembered until that entry.
 */
#include "data/tar/tar.h"

#include <inttypes.h>
#include <string.h>

#include "data/shards.h"

#define BLOCK         ((uint64_t)512)
#define NOTE_LIMIT    ((uint64_t)1 << 20) /* bytes of a pax header or a long name */
#define NUMBER_LIMIT  ((uint64_t)1 << 62)
#define NO_LENGTH     UINT64_MAX
#define TYPE_AT       156
#define SUM_AT        148
#define MAGIC_AT      257
#define PREFIX_AT     345
#define TYPE_FOLDER   '5'
#define TYPE_END      '\xff' /* ours: the end mark */
#define NAME_NBYTES   100
#define PREFIX_NBYTES 155

void tri_tar_open(tri_tar *tar, const tri_source *source)
{
    *tar = (tri_tar){.source = source, .long_nbytes = NO_LENGTH};
}

void tri_tar_close(tri_tar *tar)
{
    tri_string_fini(&tar->name);
    tri_string_fini(&tar->long_name);
}

static tri_status wrong(const tri_tar *tar, uint64_t at, const char *what)
{
    return tri_fail(TRI_EFORMAT, "%s: byte %" PRIu64 ": %s", tar->source->origin, at, what);
}

/* Octal digits, or GNU's binary form. False: neither. */
static bool number_read(const unsigned char *bytes, size_t nbytes, uint64_t *out)
{
    size_t i = 0;
    uint64_t value = 0;
    if (bytes[0] == 0x80) {
        for (i = 1; i < nbytes; i++) {
            if (value >= NUMBER_LIMIT >> 8)
                return false;
            value = value << 8 | bytes[i];
        }
        *out = value;
        return true;
    }
    while (i < nbytes && bytes[i] == ' ')
        i++;
    const size_t first = i;
    for (; i < nbytes && bytes[i] >= '0' && bytes[i] <= '7'; i++)
        value = value << 3 | (uint64_t)(bytes[i] - '0');
    *out = value;
    return i > first && (i == nbytes || bytes[i] == ' ' || bytes[i] == 0);
}

/* The sum of the header's bytes, those of the sum itself counted as blanks. */
static bool sum_is_right(const unsigned char *header)
{
    uint64_t sum = 0, wanted;
    for (size_t i = 0; i < BLOCK; i++)
        sum += i >= SUM_AT && i < SUM_AT + 8 ? ' ' : header[i];
    return number_read(header + SUM_AT, 8, &wanted) && wanted == sum;
}

static bool is_zero(const unsigned char *block)
{
    for (size_t i = 0; i < BLOCK; i++)
        if (block[i] != 0)
            return false;
    return true;
}

/* A header, its content and the padding are within the file. */
static tri_status bounds_check(const tri_tar *tar, uint64_t nbytes)
{
    const uint64_t left = tar->source->nbytes - tar->at - BLOCK;
    if (nbytes <= left && (nbytes + BLOCK - 1) / BLOCK * BLOCK <= left)
        return TRI_OK;
    return tri_fail(TRI_EFORMAT,
                    "%s: byte %" PRIu64 ": the entry has %" PRIu64 " bytes, and the file only %" PRIu64
                    " more: it is cut short",
                    tar->source->origin, tar->at, nbytes, left);
}

static tri_status header_read(const tri_tar *tar, uint64_t *nbytes)
{
    const unsigned char *header = tar->source->bytes + tar->at;
    const char *tool = tar->at == 0 ? tri_compression_tool(header, BLOCK) : NULL;
    if (tool != NULL)
        return tri_fail(TRI_EFORMAT,
                        "%s: want a tar file that is not compressed, since samples are read at their "
                        "places: %s < %s",
                        tar->source->origin, tool, tar->source->origin);
    if (memcmp(header + MAGIC_AT, "ustar", 5) != 0)
        return wrong(tar, tar->at, "want a header of a tar file (ustar), got something else");
    if (!sum_is_right(header))
        return wrong(tar, tar->at, "the checksum of the tar header is wrong: the file is damaged");
    if (!number_read(header + 124, 12, nbytes))
        return wrong(tar, tar->at, "the length in the tar header is not a number");
    return TRI_OK;
}

/* "17 path=a/b.jpg\n" of a pax header: key=value of `nbytes` bytes. */
static tri_status pax_apply(tri_tar *tar, const char *text, size_t nbytes, bool global)
{
    const char *equals = memchr(text, '=', nbytes);
    if (equals == NULL)
        return wrong(tar, tar->at, "a line of the pax header has no '='");
    const char *value = equals + 1;
    const size_t key = (size_t)(equals - text), length = nbytes - key - 1;
    if (key >= 10 && memcmp(text, "GNU.sparse", 10) == 0)
        return wrong(tar, tar->at, "a sparse file: write the archive without --sparse");
    const bool is_path = key == 4 && memcmp(text, "path", 4) == 0, is_size = key == 4 && memcmp(text, "size", 4) == 0;
    if (!is_path && !is_size)
        return TRI_OK;
    if (global)
        return wrong(tar, tar->at, "a global pax header gives all entries one path or size");
    if (is_path) {
        if (length == 0 || memchr(value, 0, length) != NULL)
            return wrong(tar, tar->at, "the path in the pax header is empty or has a zero byte");
        tri_string_clear(&tar->long_name);
        return tri_string_append_bytes(&tar->long_name, value, length);
    }
    uint64_t size = 0;
    for (size_t i = 0; i < length; i++) {
        if (value[i] < '0' || value[i] > '9' || size >= NUMBER_LIMIT / 10)
            return wrong(tar, tar->at, "the size in the pax header is not a number");
        size = size * 10 + (uint64_t)(value[i] - '0');
    }
    tar->long_nbytes = size;
    return TRI_OK;
}

static tri_status pax_read(tri_tar *tar, const char *text, size_t nbytes, bool global)
{
    while (nbytes > 0) {
        size_t length = 0, digits = 0;
        while (digits < nbytes && digits < 8 && text[digits] >= '0' && text[digits] <= '9')
            length = length * 10 + (size_t)(text[digits++] - '0');
        if (digits == 0 || digits == nbytes || text[digits] != ' ' || length < digits + 3 || length > nbytes ||
            text[length - 1] != '\n')
            return wrong(tar, tar->at, "the pax header is damaged");
        TRI_TRY(pax_apply(tar, text + digits + 1, length - digits - 2, global));
        text += length;
        nbytes -= length;
    }
    return TRI_OK;
}

/* The content of a header that describes the next entry. */
static tri_status note_read(tri_tar *tar, char type, uint64_t nbytes)
{
    const char *content = (const char *)tar->source->bytes + tar->at + BLOCK;
    if (nbytes > NOTE_LIMIT)
        return wrong(tar, tar->at, "a name or pax header of more than 1 MiB");
    if (type == 'x' || type == 'g')
        return pax_read(tar, content, (size_t)nbytes, type == 'g');
    if (type == 'K') /* where a link leads */
        return TRI_OK;
    tri_string_clear(&tar->long_name);
    const size_t length = strnlen(content, (size_t)nbytes);
    return length > 0 ? tri_string_append_bytes(&tar->long_name, content, length)
                      : wrong(tar, tar->at, "the long name is empty");
}

static tri_status name_find(tri_tar *tar)
{
    const char *header = (const char *)tar->source->bytes + tar->at;
    tri_string_clear(&tar->name);
    if (tar->long_name.nbytes > 0)
        return tri_string_append_bytes(&tar->name, tar->long_name.text, tar->long_name.nbytes);
    const size_t prefix = header[MAGIC_AT + 5] == 0 ? strnlen(header + PREFIX_AT, PREFIX_NBYTES) : 0; /* GNU: none */
    if (prefix > 0)
        TRI_TRY(tri_string_appendf(&tar->name, "%.*s/", (int)prefix, header + PREFIX_AT));
    return tri_string_append_bytes(&tar->name, header, strnlen(header, NAME_NBYTES));
}

static tri_status type_check(const tri_tar *tar, char type)
{
    switch (type) {
    case 0:
    case '0':
    case '7':
    case TYPE_FOLDER:
        return TRI_OK;
    case '1':
    case '2':
        return wrong(tar, tar->at, "a link: want files alone (tar --dereference --hard-dereference)");
    case 'S':
        return wrong(tar, tar->at, "a sparse file: write the archive without --sparse");
    case '3':
    case '4':
    case '6':
        return wrong(tar, tar->at, "a device or a pipe: want files alone");
    default:
        return tri_fail(TRI_EFORMAT, "%s: byte %" PRIu64 ": an entry of unknown type 0x%02x", tar->source->origin,
                        tar->at, (unsigned)(unsigned char)type);
    }
}

static bool is_note(char type)
{
    return type == 'x' || type == 'g' || type == 'L' || type == 'K';
}

/* The next file or folder, with what headers before it say of it. */
static tri_status entry_next(tri_tar *tar, tri_tar_entry *entry, char *type)
{
    const uint64_t first = tar->at;
    uint64_t nbytes = 0;
    tri_string_clear(&tar->long_name);
    tar->long_nbytes = NO_LENGTH;
    for (;; tar->at += BLOCK + (nbytes + BLOCK - 1) / BLOCK * BLOCK) {
        if (tar->source->nbytes < BLOCK || tar->at > tar->source->nbytes - BLOCK)
            return wrong(tar, tar->at, "the tar file ends without its end mark: it is cut short");
        const unsigned char *header = tar->source->bytes + tar->at;
        *type = (char)header[TYPE_AT];
        if (is_zero(header)) {
            *type = TYPE_END;
            return tar->at == first ? TRI_OK : wrong(tar, tar->at, "the entry that a header describes is missing");
        }
        TRI_TRY(header_read(tar, &nbytes));
        if (!is_note(*type))
            break;
        TRI_TRY(bounds_check(tar, nbytes));
        TRI_TRY(note_read(tar, *type, nbytes));
    }
    TRI_TRY(type_check(tar, *type));
    nbytes = *type == TYPE_FOLDER ? 0 : tar->long_nbytes != NO_LENGTH ? tar->long_nbytes : nbytes;
    TRI_TRY(bounds_check(tar, nbytes));
    TRI_TRY(name_find(tar));
    *entry = (tri_tar_entry){tri_string_text(&tar->name), first, tar->at + BLOCK, nbytes};
    tar->at += BLOCK + (nbytes + BLOCK - 1) / BLOCK * BLOCK;
    return TRI_OK;
}

tri_status tri_tar_next(tri_tar *tar, tri_tar_entry *entry, bool *more)
{
    char type = TYPE_FOLDER;
    while (type == TYPE_FOLDER)
        TRI_TRY(entry_next(tar, entry, &type));
    *more = type != TYPE_END;
    return TRI_OK;
}
