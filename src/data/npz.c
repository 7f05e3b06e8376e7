/* SPDX-License-Identifier: Apache-2.0
 *
 * npz.c: the arrays of a .npz file, which is a zip archive of .npy files, as sources: stored bytes where they are,
 * deflated ones as a stream.
 *
 * Read is the central directory (APPNOTE.TXT 4.3.12), with the fields of Zip64, and of each entry its local header, for
 * its length. Nothing is believed that is not within the file. The checksum of a stored array is compared when it is
 * opened, that of a deflated one when it was inflated.
 */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/containers.h"
#include "data/npy.h"

#define END_NBYTES      ((size_t)22)
#define COMMENT_LIMIT   ((size_t)65535)
#define END_MARK        UINT32_C(0x06054b50)
#define END64_MARK      UINT32_C(0x06064b50)
#define LOCATOR_MARK    UINT32_C(0x07064b50)
#define LOCATOR_NBYTES  ((size_t)20)
#define END64_NBYTES    ((size_t)56)
#define ENTRY_MARK      UINT32_C(0x02014b50)
#define ENTRY_NBYTES    ((size_t)46)
#define LOCAL_MARK      UINT32_C(0x04034b50)
#define LOCAL_NBYTES    ((size_t)30)
#define ZIP64_FIELD     0x0001u
#define METHOD_STORED   0u
#define METHOD_DEFLATED 8u
#define FLAG_ENCRYPTED  1u

typedef struct zip_entry {
    const char *name;
    size_t name_nbytes;
    unsigned flags, method;
    uint32_t sum;                  /* CRC-32 of the array */
    uint64_t stored_nbytes, local; /* bytes in the archive, place of the local header */
} zip_entry;

static uint64_t number_at(const unsigned char *bytes, int count)
{
    uint64_t value = 0;
    for (int i = 0; i < count; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static tri_status wrong(const tri_source *source, const char *what)
{
    return tri_fail(TRI_EFORMAT, "%s: want a .npz file, a zip archive of .npy files: %s", source->origin, what);
}

/* Where the central directory is, and how many entries it has. */
static tri_status directory_find(const tri_source *source, uint64_t *first, uint64_t *count)
{
    const size_t nbytes = source->nbytes;
    const size_t lowest = nbytes > END_NBYTES + COMMENT_LIMIT ? nbytes - END_NBYTES - COMMENT_LIMIT : 0;
    size_t at = nbytes >= END_NBYTES ? nbytes - END_NBYTES : 0;
    while (at > lowest && number_at(source->bytes + at, 4) != END_MARK)
        at--;
    if (nbytes < END_NBYTES || number_at(source->bytes + at, 4) != END_MARK)
        return wrong(source, "its end is missing");
    const unsigned char *const end = source->bytes + at;
    *count = number_at(end + 10, 2);
    *first = number_at(end + 16, 4);
    if (at < LOCATOR_NBYTES || number_at(end - LOCATOR_NBYTES, 4) != LOCATOR_MARK)
        return TRI_OK;
    const uint64_t wide = number_at(end - LOCATOR_NBYTES + 8, 8);
    if (nbytes < END64_NBYTES || wide > nbytes - END64_NBYTES || number_at(source->bytes + wide, 4) != END64_MARK)
        return wrong(source, "the end in 64 bits is not where it should be");
    *count = number_at(source->bytes + wide + 32, 8);
    *first = number_at(source->bytes + wide + 48, 8);
    return TRI_OK;
}

/* Numbers that do not fit 32 bits are in an extra field, in this order: length, bytes in the archive, place. */
static void wide_read(const unsigned char *extra, size_t nbytes, bool wide_length, zip_entry *entry)
{
    for (size_t at = 0; at + 4 <= nbytes;) {
        const size_t field = number_at(extra + at + 2, 2);
        size_t inner = at + 4 + (wide_length ? 8 : 0);
        if (number_at(extra + at, 2) != ZIP64_FIELD || field > nbytes - at - 4) {
            at += 4 + field;
            continue;
        }
        if (entry->stored_nbytes == UINT32_MAX && inner + 8 <= at + 4 + field) {
            entry->stored_nbytes = number_at(extra + inner, 8);
            inner += 8;
        }
        if (entry->local == UINT32_MAX && inner + 8 <= at + 4 + field)
            entry->local = number_at(extra + inner, 8);
        return;
    }
}

/* The entry at *at of the directory; *at is moved behind it. */
static tri_status entry_read(const tri_source *source, uint64_t *at, zip_entry *entry)
{
    if (source->nbytes < ENTRY_NBYTES || *at > source->nbytes - ENTRY_NBYTES ||
        number_at(source->bytes + *at, 4) != ENTRY_MARK)
        return wrong(source, "its directory is damaged");
    const unsigned char *const bytes = source->bytes + *at;
    const uint64_t name = number_at(bytes + 28, 2), extra = number_at(bytes + 30, 2),
                   comment = number_at(bytes + 32, 2);
    if (name + extra + comment > source->nbytes - ENTRY_NBYTES - *at)
        return wrong(source, "its directory is cut short");
    *entry = (zip_entry){.name = (const char *)bytes + ENTRY_NBYTES,
                         .name_nbytes = (size_t)name,
                         .flags = (unsigned)number_at(bytes + 8, 2),
                         .method = (unsigned)number_at(bytes + 10, 2),
                         .sum = (uint32_t)number_at(bytes + 16, 4),
                         .stored_nbytes = number_at(bytes + 20, 4),
                         .local = number_at(bytes + 42, 4)};
    wide_read(bytes + ENTRY_NBYTES + name, (size_t)extra, number_at(bytes + 24, 4) == UINT32_MAX, entry);
    *at += ENTRY_NBYTES + name + extra + comment;
    return TRI_OK;
}

/* Leaves of the archive the bytes of one entry. */
static tri_status entry_open(tri_source *source, const zip_entry *entry)
{
    if (entry->flags & FLAG_ENCRYPTED || (entry->method != METHOD_STORED && entry->method != METHOD_DEFLATED))
        return wrong(source, "an array is encrypted, or packed otherwise than by deflate");
    if (source->nbytes < LOCAL_NBYTES || entry->local > source->nbytes - LOCAL_NBYTES ||
        number_at(source->bytes + entry->local, 4) != LOCAL_MARK)
        return wrong(source, "an array is not where the directory says");
    const unsigned char *const local = source->bytes + entry->local;
    const uint64_t head = LOCAL_NBYTES + number_at(local + 26, 2) + number_at(local + 28, 2);
    const uint64_t left = source->nbytes - entry->local;
    if (head > left || entry->stored_nbytes > left - head)
        return wrong(source, "an array is cut short");
    char *origin = tri_format("%s: %.*s", source->origin, (int)entry->name_nbytes, entry->name);
    if (origin == NULL)
        return TRI_ENOMEM;
    tri_free(source->origin);
    source->origin = origin;
    source->bytes = local + head;
    source->nbytes = (size_t)entry->stored_nbytes;
    source->plain = true;
    source->deflated = entry->method == METHOD_DEFLATED;
    source->has_sum = true;
    source->sum = entry->sum;
    return source->deflated ? TRI_OK : tri_source_check_sum(source, tri_source_sum(0, source->bytes, source->nbytes));
}

static tri_status fail_absent(const tri_source *source, const char *name, const tri_string *names)
{
    return tri_fail(TRI_ENOTFOUND, "%s: want the array %.*s, it has: %s", source->origin, (int)strlen(name) - 4, name,
                    tri_string_text(names));
}

tri_status tri_npz_narrow(tri_source *source, const char *name)
{
    uint64_t at = 0, count = 0;
    tri_string names = {0};
    TRI_TRY(directory_find(source, &at, &count));
    tri_status status = TRI_OK;
    for (uint64_t i = 0; i < count && status == TRI_OK; i++) {
        zip_entry entry = {0};
        status = entry_read(source, &at, &entry);
        if (status == TRI_OK && entry.name_nbytes == strlen(name) &&
            strncasecmp(entry.name, name, entry.name_nbytes) == 0) {
            tri_string_fini(&names);
            return entry_open(source, &entry);
        }
        if (status == TRI_OK && i < 20)
            status = tri_string_appendf(&names, "%s%.*s", i > 0 ? ", " : "",
                                        (int)(entry.name_nbytes > 4 ? entry.name_nbytes - 4 : entry.name_nbytes),
                                        entry.name);
    }
    if (status == TRI_OK)
        status = fail_absent(source, name, &names);
    tri_string_fini(&names);
    return status;
}
