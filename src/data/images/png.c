/* SPDX-License-Identifier: Apache-2.0
 *
 * png.c: PNG by libpng: palettes become RGB, 1, 2 and 4 bits 8, of 16 bits the upper 8 count, alpha is dropped.
 *
 * libpng reports an error by a jump back to decode().
 */
#include "data/images/image.h"

#include <string.h>

static bool is_png(const uint8_t *bytes, size_t nbytes)
{
    return nbytes >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0;
}

#ifdef TRI_HAS_PNG
#include <setjmp.h>
#include <stdio.h>

#include <png.h>

#define MAX_SIDE         1000000
#define CHUNK_MAX_NBYTES ((png_alloc_size_t)64 << 20)

typedef struct decode_state {
    const uint8_t *bytes; /* what was not read yet */
    size_t nbytes;
    const char *origin;
    png_structp png;
    png_infop info;
    uint8_t *pixels;
    png_bytep *lines;
} decode_state;

static void fail(png_structp png, png_const_charp text)
{
    const decode_state *state = png_get_error_ptr(png);
    (void)tri_fail(TRI_EFORMAT, "%s: %s", state->origin, text);
    png_longjmp(png, 1);
}

static void warn(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void read_bytes(png_structp png, png_bytep to, size_t nbytes)
{
    decode_state *state = png_get_io_ptr(png);
    if (nbytes > state->nbytes)
        png_error(png, "the file ends in the middle of the image");
    memcpy(to, state->bytes, nbytes);
    state->bytes += nbytes;
    state->nbytes -= nbytes;
}

static void plan_conversion(decode_state *state)
{
    const int color = png_get_color_type(state->png, state->info);
    if (color == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(state->png);
    else if (!(color & PNG_COLOR_MASK_COLOR) && png_get_bit_depth(state->png, state->info) < 8)
        png_set_expand_gray_1_2_4_to_8(state->png);
    png_set_strip_16(state->png);
    png_set_strip_alpha(state->png);
    (void)png_set_interlace_handling(state->png);
    png_read_update_info(state->png, state->info);
}

static tri_status decode_or_jump(decode_state *state, tri_image *out)
{
    png_set_user_limits(state->png, MAX_SIDE, MAX_SIDE);
    png_set_chunk_malloc_max(state->png, CHUNK_MAX_NBYTES);
    png_set_read_fn(state->png, state, read_bytes);
    png_read_info(state->png, state->info);
    out->height = png_get_image_height(state->png, state->info);
    out->width = png_get_image_width(state->png, state->info);
    if (out->height > TRI_IMAGE_MAX_PIXELS / out->width)
        png_error(state->png, "more than 64 million pixels");
    plan_conversion(state);
    out->channels = png_get_channels(state->png, state->info);
    const size_t line = png_get_rowbytes(state->png, state->info);
    if ((out->channels != 1 && out->channels != 3) || line != (size_t)out->width * (size_t)out->channels)
        png_error(state->png, "a layout of pixels that is not known");
    state->pixels = tri_alloc_bulk((size_t)out->height * line);
    state->lines = tri_alloc((size_t)out->height * sizeof(*state->lines));
    if (state->pixels == NULL || state->lines == NULL)
        return TRI_ENOMEM;
    for (int64_t i = 0; i < out->height; i++)
        state->lines[i] = state->pixels + (size_t)i * line;
    png_read_image(state->png, state->lines);
    png_read_end(state->png, NULL);
    return TRI_OK;
}

static tri_status decode(const uint8_t *bytes, size_t nbytes, const char *origin, tri_image *out)
{
    decode_state *state = tri_alloc_zero(1, sizeof(*state)); /* a jump leaves what is in memory as it is */
    if (state == NULL)
        return TRI_ENOMEM;
    *state = (decode_state){.bytes = bytes, .nbytes = nbytes, .origin = origin};
    state->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, state, fail, warn);
    state->info = state->png != NULL ? png_create_info_struct(state->png) : NULL;
    tri_status status = TRI_ENOMEM;
    if (state->info != NULL) {
        if (setjmp(png_jmpbuf(state->png)) == 0)
            status = decode_or_jump(state, out);
        else
            status = TRI_EFORMAT;
    }
    png_destroy_read_struct(&state->png, &state->info, NULL);
    tri_free(state->lines);
    if (status == TRI_OK)
        out->pixels = state->pixels;
    else
        tri_free(state->pixels);
    tri_free(state);
    return status;
}

static void version(char *text, size_t nbytes)
{
    snprintf(text, nbytes, "libpng %s", png_get_libpng_ver(NULL));
}
#define DECODE  decode
#define VERSION version
#else /* this build has no library */
#define DECODE  NULL
#define VERSION NULL
#endif

const tri_image_format tri_image_png = {.name = "PNG",
                                        .endings = ".png",
                                        .library = "libpng",
                                        .package = "libpng-dev",
                                        .is = is_png,
                                        .decode = DECODE,
                                        .version = VERSION};
