/* SPDX-License-Identifier: Apache-2.0
 *
 * image.h: image files to pixels, and pixels to samples of one size.
 *
 * Files come from anywhere: whatever is wrong with one is TRI_EFORMAT with its name, never a crash. The same file gives
 * the same pixels on every machine whose decoders have the same versions (tri_image_decoders()).
 */
#ifndef TRI_DATA_IMAGES_IMAGE_H
#define TRI_DATA_IMAGES_IMAGE_H

#include "data/data.h"

#define TRI_IMAGE_MAX_PIXELS (INT64_C(64) << 20)
#define TRI_IMAGE_MAX_NBYTES (UINT64_C(512) << 20) /* of a file */

typedef struct tri_image {
    int64_t height, width;
    int channels;    /* 1: gray, 3: RGB */
    uint8_t *pixels; /* [height][width][channels]; tri_free() */
} tri_image;

/* Luma of ITU-R 601, as Pillow rounds it. */
static inline uint8_t tri_image_gray(const uint8_t *rgb)
{
    return (uint8_t)((19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 0x8000u) >> 16);
}

/* One row per file format. */
typedef struct tri_image_format {
    const char *name;
    const char *endings; /* of file names, between blanks */
    const char *library, *package;
    bool (*is)(const uint8_t *bytes, size_t nbytes);
    /* Gray or RGB as the file has it, alpha dropped, not turned. NULL: this build has no library for it. */
    tri_status (*decode)(const uint8_t *bytes, size_t nbytes, const char *origin, tri_image *out);
    void (*version)(char *text, size_t nbytes); /* of the library */
} tri_image_format;
extern const tri_image_format tri_image_jpeg, tri_image_png, tri_image_webp;

/* Of the file's first bytes; NULL: none that is known. */
const tri_image_format *tri_image_format_of(const uint8_t *bytes, size_t nbytes);
/* Of a file's name. */
const tri_image_format *tri_image_format_named(const char *path);
/* "libjpeg-turbo 2.1.5, libpng 1.6.39, libwebp 1.2.4": the libraries that this build decodes with. */
const char *tri_image_decoders(void);

typedef struct tri_image_head {
    const tri_image_format *format;
    int64_t height, width; /* as the image is shown */
    int orientation;       /* of EXIF, 1 to 8; 1: as stored */
} tri_image_head;
/* Reads the head from a file's first bytes. *more: they end before the head does, and nothing was filled; only where
 * they are not the `whole` file. */
tri_status tri_image_head_parse(const uint8_t *bytes, size_t nbytes, bool whole, const char *origin,
                                tri_image_head *out, bool *more);
/* An image file, or part of a larger file that is one. */
typedef struct tri_image_place {
    char *path;
    uint64_t at, nbytes; /* nbytes 0: the whole file */
} tri_image_place;
/* The same of a file, of which only some is read. A file whose end is missing is TRI_EFORMAT. */
tri_status tri_image_head_read(const tri_image_place *place, tri_image_head *out);

/* Decodes, turns by EXIF, converts to `channels` channels (as Pillow's convert()). */
tri_status tri_image_decode(const uint8_t *bytes, size_t nbytes, const char *origin, int channels, tri_image *out);
tri_status tri_image_read(const tri_image_place *place, int channels, tri_image *out);
/* For messages: the path, and the place within a larger file. */
const char *tri_image_place_name(const tri_image_place *place);
/* Some or all of its bytes, from `first` on; fewer only where it ends. */
tri_status tri_image_place_read(const tri_image_place *place, uint64_t first, void *bytes, size_t room, size_t *got);

/* The pixels [left, left + width) x [top, top + height) of the image's window, resized to whole_width x whole_height.
 */
typedef struct tri_image_resize_plan {
    double x, y, window_width, window_height; /* within the image */
    int64_t whole_width, whole_height;
    int64_t left, top, width, height;
    tri_image_filter filter;
} tri_image_resize_plan;

/* How images become samples (data.image_size, image_resize, image_filter, image_color). */
typedef struct tri_image_fit {
    int64_t height, width; /* 0: as the files are */
    bool exact;            /* sides are scaled each by its own; else the shorter one, and the middle is cut out */
    tri_image_filter filter;
    int channels;
} tri_image_fit;
tri_status tri_image_fit_read(const tri_data_config *config, tri_image_fit *out);
/* A sample [fit->height][fit->width][fit->channels]. window: part of the image that is scaled to all of it, NULL:
 * as fit says. */
typedef struct tri_image_window {
    int64_t left, top, width, height;
} tri_image_window;
tri_status tri_image_fit_apply(const tri_image_fit *fit, const tri_image *image, const tri_image_window *window,
                               uint8_t *sample);

#endif
