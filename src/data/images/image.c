/* SPDX-License-Identifier: Apache-2.0
 *
 * image.c: the table of image formats, and what comes after a decoder: EXIF orientation and the number of channels.
 */
#include "data/images/image.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/path.h"

static const tri_image_format *const formats[] = {&tri_image_jpeg, &tri_image_png, &tri_image_webp};

const tri_image_format *tri_image_format_of(const uint8_t *bytes, size_t nbytes)
{
    for (size_t i = 0; i < TRI_COUNT_OF(formats); i++)
        if (formats[i]->is(bytes, nbytes))
            return formats[i];
    return NULL;
}

const tri_image_format *tri_image_format_named(const char *path)
{
    for (size_t i = 0; i < TRI_COUNT_OF(formats); i++) {
        char ending[8];
        int used;
        for (const char *at = formats[i]->endings; sscanf(at, "%7s%n", ending, &used) == 1; at += used)
            if (tri_path_ends_in(path, ending))
                return formats[i];
    }
    return NULL;
}

const char *tri_image_decoders(void)
{
    static _Thread_local char text[160];
    int at = 0;
    text[0] = 0;
    for (size_t i = 0; i < TRI_COUNT_OF(formats); i++) {
        char one[48];
        if (formats[i]->version == NULL)
            continue;
        formats[i]->version(one, sizeof(one));
        at += snprintf(text + at, sizeof(text) - (size_t)at, "%s%s", at > 0 ? ", " : "", one);
    }
    return text;
}

/* --- orientation --- */

/* EXIF: which stored pixel is shown at (y, x) of the turned image of this height and width. */
static const uint8_t *turned_at(const tri_image *stored, int orientation, int64_t y, int64_t x)
{
    const bool swapped = orientation >= 5;
    int64_t row = swapped ? x : y, column = swapped ? y : x;
    if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8)
        column = stored->width - 1 - column;
    if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7)
        row = stored->height - 1 - row;
    return stored->pixels + (row * stored->width + column) * stored->channels;
}

static tri_status turn(tri_image *image, int orientation)
{
    if (orientation == 1)
        return TRI_OK;
    const tri_image stored = *image;
    if (orientation >= 5) {
        image->height = stored.width;
        image->width = stored.height;
    }
    uint8_t *to = image->pixels = tri_alloc_bulk((size_t)(stored.height * stored.width * stored.channels));
    for (int64_t y = 0; y < image->height && to != NULL; y++)
        for (int64_t x = 0; x < image->width; x++, to += stored.channels)
            memcpy(to, turned_at(&stored, orientation, y, x), (size_t)stored.channels);
    tri_free(stored.pixels);
    return image->pixels != NULL ? TRI_OK : TRI_ENOMEM;
}

/* --- channels --- */

static tri_status convert(tri_image *image, int channels)
{
    const int64_t count = image->height * image->width;
    if (image->channels == channels)
        return TRI_OK;
    uint8_t *to = tri_alloc_bulk((size_t)(count * channels));
    for (int64_t i = 0; i < count && to != NULL; i++) {
        if (channels == 1)
            to[i] = tri_image_gray(image->pixels + 3 * i);
        else
            memset(to + 3 * i, image->pixels[i], 3);
    }
    tri_free(image->pixels);
    image->pixels = to;
    image->channels = channels;
    return to != NULL ? TRI_OK : TRI_ENOMEM;
}

tri_status tri_image_decode(const uint8_t *bytes, size_t nbytes, const char *origin, int channels, tri_image *out)
{
    tri_image_head head;
    bool more;
    *out = (tri_image){0};
    TRI_TRY(tri_image_head_parse(bytes, nbytes, true, origin, &head, &more));
    if (head.format->decode == NULL)
        return tri_fail(TRI_EUNSUPPORTED, "%s: a %s image, and this build has no %s (apt-get install %s, then build)",
                        origin, head.format->name, head.format->library, head.format->package);
    TRI_TRY(head.format->decode(bytes, nbytes, origin, out));
    tri_status status = turn(out, head.orientation);
    if (status == TRI_OK)
        status = convert(out, channels);
    if (status == TRI_OK)
        return TRI_OK;
    tri_free(out->pixels);
    *out = (tri_image){0};
    return status;
}

/* --- places --- */

const char *tri_image_place_name(const tri_image_place *place)
{
    static _Thread_local char text[1200];
    if (place->nbytes == 0)
        return place->path;
    snprintf(text, sizeof(text), "%s: the image at byte %" PRIu64, place->path, place->at);
    return text;
}

tri_status tri_image_place_read(const tri_image_place *place, uint64_t first, void *bytes, size_t room, size_t *got)
{
    *got = 0;
    if (place->nbytes > 0)
        room = first >= place->nbytes ? 0 : room < place->nbytes - first ? room : (size_t)(place->nbytes - first);
    return tri_fs_read_part(place->path, place->at + first, bytes, room, got);
}

static tri_status part_read(const tri_image_place *place, char **bytes, size_t *nbytes)
{
    if (place->nbytes > TRI_IMAGE_MAX_NBYTES)
        return tri_fail(TRI_EFORMAT, "%s has %" PRIu64 " bytes: want at most %" PRIu64, tri_image_place_name(place),
                        place->nbytes, TRI_IMAGE_MAX_NBYTES);
    *bytes = tri_alloc((size_t)place->nbytes);
    if (*bytes == NULL)
        return TRI_ENOMEM;
    tri_status status = tri_image_place_read(place, 0, *bytes, (size_t)place->nbytes, nbytes);
    if (status == TRI_OK && *nbytes < place->nbytes)
        status = tri_fail(TRI_EFORMAT, "%s: the file has become shorter", tri_image_place_name(place));
    if (status != TRI_OK)
        tri_free(*bytes);
    return status;
}

tri_status tri_image_read(const tri_image_place *place, int channels, tri_image *out)
{
    char *bytes;
    size_t nbytes;
    TRI_TRY(place->nbytes > 0 ? part_read(place, &bytes, &nbytes)
                              : tri_fs_read(place->path, TRI_IMAGE_MAX_NBYTES, &bytes, &nbytes));
    tri_status status = tri_image_decode((const uint8_t *)bytes, nbytes, tri_image_place_name(place), channels, out);
    tri_free(bytes);
    return status;
}
