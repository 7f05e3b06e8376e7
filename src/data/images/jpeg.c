/* SPDX-License-Identifier: Apache-2.0
 *
 * jpeg.c: JPEG by libjpeg-turbo: gray stays gray, YCbCr becomes RGB, CMYK and YCCK become RGB as Pillow converts them.
 *
 * libjpeg reports an error by a jump back to decode(). Data that are damaged or end too early are errors here; libjpeg
 * itself only warns and leaves the rest gray.
 */
#include "data/images/image.h"

static bool is_jpeg(const uint8_t *bytes, size_t nbytes)
{
    return nbytes >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

#ifdef TRI_HAS_JPEG
#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#include <jerror.h>

#define SCAN_LIMIT 200 /* a small file can ask for any number of passes over a large image */
#define TEXT(x)    TEXT_OF(x)
#define TEXT_OF(x) #x

typedef struct decode_state {
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    struct jpeg_decompress_struct jpeg;
    const char *origin;
    uint8_t *pixels, *line; /* line: of CMYK */
} decode_state;

static void fail(j_common_ptr jpeg)
{
    decode_state *state = (decode_state *)jpeg->err;
    char text[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, text);
    (void)tri_fail(TRI_EFORMAT, "%s: %s", state->origin, text);
    longjmp(state->back, 1);
}

static void warn(j_common_ptr jpeg, int level)
{
    const int code = jpeg->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
                      code == JWRN_ARITH_BAD_CODE || code == JWRN_MUST_RESYNC))
        fail(jpeg);
}

static void scan_check(j_common_ptr jpeg)
{
    decode_state *state = (decode_state *)jpeg->err;
    if (((j_decompress_ptr)jpeg)->input_scan_number <= SCAN_LIMIT)
        return;
    (void)tri_fail(TRI_EFORMAT, "%s: more than %d scans", state->origin, SCAN_LIMIT);
    longjmp(state->back, 1);
}

/* x y / 255, rounded. */
static uint8_t scale(unsigned x, unsigned y)
{
    const unsigned product = x * y + 128;
    return (uint8_t)((product + (product >> 8)) >> 8);
}

static void line_from_cmyk(const uint8_t *cmyk, bool inverted, int64_t width, uint8_t *rgb)
{
    for (int64_t i = 0; i < width; i++, cmyk += 4)
        for (int c = 0; c < 3; c++) {
            const unsigned ink = inverted ? 255u - cmyk[c] : cmyk[c], light = inverted ? cmyk[3] : 255u - cmyk[3];
            *rgb++ = (uint8_t)(light - scale(ink, light));
        }
}

static void read_lines(decode_state *state)
{
    struct jpeg_decompress_struct *jpeg = &state->jpeg;
    const bool cmyk = jpeg->out_color_space == JCS_CMYK;
    const size_t width = jpeg->output_width, channels = jpeg->out_color_space == JCS_GRAYSCALE ? 1 : 3;
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *to = state->pixels + jpeg->output_scanline * width * channels;
        JSAMPROW line = cmyk ? state->line : to;
        if (jpeg_read_scanlines(jpeg, &line, 1) == 1 && cmyk)
            line_from_cmyk(line, jpeg->saw_Adobe_marker, (int64_t)width, to);
    }
}

static tri_status decode_or_jump(decode_state *state, const uint8_t *bytes, size_t nbytes, tri_image *out)
{
    struct jpeg_decompress_struct *jpeg = &state->jpeg;
    jpeg_mem_src(jpeg, bytes, (unsigned long)nbytes);
    (void)jpeg_read_header(jpeg, TRUE);
    if ((int64_t)jpeg->image_height * jpeg->image_width > TRI_IMAGE_MAX_PIXELS)
        return tri_fail(TRI_EFORMAT, "%s: more than %" PRId64 " pixels", state->origin, TRI_IMAGE_MAX_PIXELS);
    const bool four = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    const bool gray = jpeg->jpeg_color_space == JCS_GRAYSCALE;
    jpeg->out_color_space = four ? JCS_CMYK : gray ? JCS_GRAYSCALE : JCS_RGB;
    (void)jpeg_start_decompress(jpeg);
    out->height = jpeg->output_height;
    out->width = jpeg->output_width;
    out->channels = gray ? 1 : 3;
    state->pixels = tri_alloc((size_t)(out->height * out->width * out->channels));
    state->line = four ? tri_alloc((size_t)out->width * 4) : NULL;
    if (state->pixels == NULL || (four && state->line == NULL))
        return TRI_ENOMEM;
    read_lines(state);
    (void)jpeg_finish_decompress(jpeg);
    return TRI_OK;
}

static tri_status decode(const uint8_t *bytes, size_t nbytes, const char *origin, tri_image *out)
{
    decode_state *state = tri_alloc_zero(1, sizeof(*state)); /* a jump leaves what is in memory as it is */
    if (state == NULL)
        return TRI_ENOMEM;
    state->origin = origin;
    state->jpeg.err = jpeg_std_error(&state->errors);
    state->errors.error_exit = fail;
    state->errors.emit_message = warn;
    tri_status status = TRI_EFORMAT;
    if (setjmp(state->back) == 0) {
        jpeg_create_decompress(&state->jpeg);
        state->progress.progress_monitor = scan_check;
        state->jpeg.progress = &state->progress;
        status = decode_or_jump(state, bytes, nbytes, out);
    } else {
        status = TRI_EFORMAT;
    }
    jpeg_destroy_decompress(&state->jpeg);
    tri_free(state->line);
    if (status == TRI_OK)
        out->pixels = state->pixels;
    else
        tri_free(state->pixels);
    tri_free(state);
    return status;
}

static void version(char *text, size_t nbytes)
{
#ifdef LIBJPEG_TURBO_VERSION
    snprintf(text, nbytes, "libjpeg-turbo %s", TEXT(LIBJPEG_TURBO_VERSION));
#else
    snprintf(text, nbytes, "libjpeg %d", JPEG_LIB_VERSION);
#endif
}
#define DECODE  decode
#define VERSION version
#else /* this build has no library */
#define DECODE  NULL
#define VERSION NULL
#endif

const tri_image_format tri_image_jpeg = {.name = "JPEG",
                                         .endings = ".jpg .jpeg",
                                         .library = "libjpeg-turbo",
                                         .package = "libjpeg62-turbo-dev",
                                         .is = is_jpeg,
                                         .decode = DECODE,
                                         .version = VERSION};
