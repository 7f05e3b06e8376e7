/* SPDX-License-Identifier: Apache-2.0
 *
 * head.c: height, width and EXIF orientation of an image file, from its first bytes and without a decoder; and whether
 * the file ends where its format says.
 */
#include <inttypes.h>
#include <string.h>

#include "base/fs.h"
#include "data/images/image.h"

#define FIRST_NBYTES ((size_t)4 << 10)
#define TAIL_NBYTES  ((size_t)4 << 10)

typedef struct byte_range {
    const uint8_t *bytes;
    size_t nbytes;
} byte_range;

static uint32_t big16(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static uint32_t big32(const uint8_t *at)
{
    return big16(at) << 16 | big16(at + 2);
}

static uint32_t little16(const uint8_t *at)
{
    return (uint32_t)at[1] << 8 | at[0];
}

static uint32_t little24(const uint8_t *at)
{
    return little16(at) | (uint32_t)at[2] << 16;
}

static uint32_t little32(const uint8_t *at)
{
    return little16(at) | little16(at + 2) << 16;
}

/* --- EXIF: a TIFF whose first directory may have tag 0x0112 --- */

#define TAG_ORIENTATION 0x0112
#define TYPE_SHORT      3

static int exif_orientation(const uint8_t *tiff, size_t nbytes)
{
    if (nbytes < 8 || (memcmp(tiff, "II*\0", 4) != 0 && memcmp(tiff, "MM\0*", 4) != 0))
        return 1;
    const bool little = tiff[0] == 'I';
    const size_t first = little ? little32(tiff + 4) : big32(tiff + 4);
    if (first > nbytes - 2)
        return 1;
    const size_t count = little ? little16(tiff + first) : big16(tiff + first);
    for (size_t i = 0; i < count && first + 2 + 12 * (i + 1) <= nbytes; i++) {
        const uint8_t *entry = tiff + first + 2 + 12 * i;
        if ((little ? little16(entry) : big16(entry)) != TAG_ORIENTATION ||
            (little ? little16(entry + 2) : big16(entry + 2)) != TYPE_SHORT)
            continue;
        const uint32_t value = little ? little16(entry + 8) : big16(entry + 8);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

/* --- the formats; *more: the bytes end too early --- */

static bool is_frame_marker(uint8_t marker)
{
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

static tri_status jpeg_head(byte_range file, const char *origin, tri_image_head *out, bool *more)
{
    for (size_t at = 2;;) {
        while (at + 1 < file.nbytes && file.bytes[at] == 0xff && file.bytes[at + 1] == 0xff)
            at++; /* fill bytes */
        *more = at + 4 > file.nbytes;
        if (*more)
            return TRI_OK;
        const uint8_t marker = file.bytes[at + 1];
        const size_t length = big16(file.bytes + at + 2);
        if (file.bytes[at] != 0xff || marker == 0xda || marker == 0xd9 || length < 2)
            return tri_fail(TRI_EFORMAT, "%s: the JPEG header has no frame", origin);
        *more = at + 2 + length > file.nbytes;
        if (*more)
            return TRI_OK;
        const uint8_t *content = file.bytes + at + 4;
        if (is_frame_marker(marker)) {
            if (length < 8)
                return tri_fail(TRI_EFORMAT, "%s: the JPEG header has no frame", origin);
            out->height = big16(content + 1);
            out->width = big16(content + 3);
            return TRI_OK;
        }
        if (marker == 0xe1 && length >= 8 && memcmp(content, "Exif\0", 6) == 0)
            out->orientation = exif_orientation(content + 6, length - 8);
        at += 2 + length;
    }
}

/* eXIf counts where it is before the pixels. */
static tri_status png_head(byte_range file, const char *origin, tri_image_head *out, bool *more)
{
    *more = file.nbytes < 33;
    if (*more)
        return TRI_OK;
    if (memcmp(file.bytes + 12, "IHDR", 4) != 0)
        return tri_fail(TRI_EFORMAT, "%s: want a PNG header (IHDR), got another chunk", origin);
    out->width = big32(file.bytes + 16);
    out->height = big32(file.bytes + 20);
    for (size_t at = 33;;) {
        *more = at + 8 > file.nbytes;
        if (*more || memcmp(file.bytes + at + 4, "IDAT", 4) == 0)
            return TRI_OK;
        const size_t length = big32(file.bytes + at);
        *more = length > file.nbytes - at - 8;
        if (*more)
            return TRI_OK;
        if (memcmp(file.bytes + at + 4, "eXIf", 4) == 0)
            out->orientation = exif_orientation(file.bytes + at + 8, length);
        if (length + 12 > file.nbytes - at) {
            *more = true;
            return TRI_OK;
        }
        at += 12 + length;
    }
}

/* The chunk EXIF is behind the pixels. */
static void webp_exif(byte_range file, tri_image_head *out, bool *more)
{
    for (size_t at = 12;;) {
        *more = at + 8 > file.nbytes;
        if (*more)
            return;
        const size_t length = little32(file.bytes + at + 4), padded = length + (length & 1);
        *more = length > file.nbytes - at - 8;
        if (*more)
            return;
        if (memcmp(file.bytes + at, "EXIF", 4) == 0) {
            const uint8_t *content = file.bytes + at + 8;
            const size_t start = length >= 6 && memcmp(content, "Exif\0", 6) == 0 ? 6 : 0;
            out->orientation = exif_orientation(content + start, length - start);
            return;
        }
        *more = padded > file.nbytes - at - 8;
        if (*more)
            return;
        at += 8 + padded;
    }
}

static tri_status webp_head(byte_range file, const char *origin, tri_image_head *out, bool *more)
{
    *more = file.nbytes < 30;
    if (*more)
        return TRI_OK;
    const uint8_t *content = file.bytes + 20;
    if (memcmp(file.bytes + 12, "VP8X", 4) == 0) {
        out->width = 1 + (int64_t)little24(content + 4);
        out->height = 1 + (int64_t)little24(content + 7);
        if (content[0] & 8)
            webp_exif(file, out, more);
    } else if (memcmp(file.bytes + 12, "VP8L", 4) == 0) {
        out->width = 1 + (int64_t)(little32(content + 1) & 0x3fff);
        out->height = 1 + (int64_t)(little32(content + 1) >> 14 & 0x3fff);
    } else if (memcmp(file.bytes + 12, "VP8 ", 4) == 0) {
        out->width = little16(content + 6) & 0x3fff;
        out->height = little16(content + 8) & 0x3fff;
    } else {
        return tri_fail(TRI_EFORMAT, "%s: the WebP header has no image", origin);
    }
    return TRI_OK;
}

static tri_status dims_check(const char *origin, const tri_image_head *head)
{
    if (head->height < 1 || head->width < 1)
        return tri_fail(TRI_EFORMAT, "%s: an image of %" PRId64 " x %" PRId64 " pixels", origin, head->width,
                        head->height);
    if (head->height > TRI_IMAGE_MAX_PIXELS / head->width)
        return tri_fail(TRI_EFORMAT, "%s: %" PRId64 " x %" PRId64 " pixels: want at most %" PRId64 " in an image",
                        origin, head->width, head->height, TRI_IMAGE_MAX_PIXELS);
    return TRI_OK;
}

tri_status tri_image_head_parse(const uint8_t *bytes, size_t nbytes, bool whole, const char *origin,
                                tri_image_head *out, bool *more)
{
    const byte_range file = {bytes, nbytes};
    *out = (tri_image_head){.format = tri_image_format_of(bytes, nbytes), .orientation = 1};
    *more = false;
    if (nbytes == 0)
        return tri_fail(TRI_EFORMAT, "%s: the file is empty", origin);
    if (out->format == NULL)
        return tri_fail(TRI_EFORMAT, "%s: want a JPEG, PNG or WebP image, got none by the first bytes", origin);
    TRI_TRY(out->format == &tri_image_jpeg  ? jpeg_head(file, origin, out, more)
            : out->format == &tri_image_png ? png_head(file, origin, out, more)
                                            : webp_head(file, origin, out, more));
    if (*more && !whole)
        return TRI_OK;
    if (*more && out->width == 0)
        return tri_fail(TRI_EFORMAT, "%s: the file ends in the header", origin);
    *more = false;
    if (out->orientation >= 5) {
        const int64_t width = out->width;
        out->width = out->height;
        out->height = width;
    }
    return dims_check(origin, out);
}

/* --- files --- */

/* Whether the last bytes can be the end of such a file. (JPEG: other data may follow its end.) */
static bool ends_well(const tri_image_format *format, const uint8_t *first, const uint8_t *tail, size_t nbytes,
                      uint64_t file_nbytes)
{
    if (format == &tri_image_webp)
        return little32(first + 4) + UINT64_C(8) <= file_nbytes;
    if (format == &tri_image_png)
        return nbytes >= 12 && memcmp(tail + nbytes - 8, "IEND", 4) == 0;
    return memmem(tail, nbytes, "\xff\xd9", 2) != NULL;
}

/* Where the end looks wrong the decoder decides. */
static tri_status tail_check(const tri_image_place *place, const tri_image_format *format, const uint8_t *first,
                             uint64_t nbytes)
{
    uint8_t tail[TAIL_NBYTES];
    size_t got;
    const uint64_t at = nbytes > TAIL_NBYTES ? nbytes - TAIL_NBYTES : 0;
    TRI_TRY(tri_image_place_read(place, at, tail, sizeof(tail), &got));
    if (ends_well(format, first, tail, got, nbytes))
        return TRI_OK;
    tri_image image;
    TRI_TRY(tri_image_read(place, 1, &image));
    tri_free(image.pixels);
    return TRI_OK;
}

/* The head is behind the first bytes. */
static tri_status head_search(const tri_image_place *place, uint64_t nbytes, tri_image_head *out)
{
    size_t got;
    bool more;
    uint8_t *all = tri_alloc_bulk((size_t)nbytes);
    tri_status status = all != NULL ? tri_image_place_read(place, 0, all, (size_t)nbytes, &got) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_image_head_parse(all, got, true, tri_image_place_name(place), out, &more);
    tri_free(all);
    return status;
}

tri_status tri_image_head_read(const tri_image_place *place, tri_image_head *out)
{
    uint8_t first[FIRST_NBYTES];
    size_t got;
    uint64_t nbytes = place->nbytes;
    bool more;
    if (nbytes == 0)
        TRI_TRY(tri_fs_nbytes(place->path, &nbytes));
    const char *name = tri_image_place_name(place);
    if (nbytes > TRI_IMAGE_MAX_NBYTES)
        return tri_fail(TRI_EFORMAT, "%s: a file of %" PRIu64 " bytes: want at most %" PRIu64, name, nbytes,
                        TRI_IMAGE_MAX_NBYTES);
    TRI_TRY(tri_image_place_read(place, 0, first, sizeof(first), &got));
    TRI_TRY(tri_image_head_parse(first, got, got == nbytes, name, out, &more));
    const tri_image_format *format = out->format;
    if (format->decode == NULL)
        return tri_fail(TRI_EUNSUPPORTED, "%s: a %s image, and this build has no %s (apt-get install %s, then build)",
                        name, format->name, format->library, format->package);
    if (more)
        TRI_TRY(head_search(place, nbytes, out));
    return tail_check(place, format, first, nbytes);
}
