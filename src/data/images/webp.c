/* SPDX-License-Identifier: Apache-2.0
 *
 * webp.c: WebP by libwebp, lossy and lossless, as RGB; alpha is dropped, animations are refused.
 */
#include "data/images/image.h"

#include <string.h>

static bool is_webp(const uint8_t *bytes, size_t nbytes)
{
    return nbytes >= 16 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0;
}

#ifdef TRI_HAS_WEBP
#include <stdio.h>

#include <webp/decode.h>

static tri_status decode(const uint8_t *bytes, size_t nbytes, const char *origin, tri_image *out)
{
    WebPBitstreamFeatures features;
    if (WebPGetFeatures(bytes, nbytes, &features) != VP8_STATUS_OK)
        return tri_fail(TRI_EFORMAT, "%s: the WebP header is damaged or cut short", origin);
    if (features.has_animation)
        return tri_fail(TRI_EFORMAT, "%s: an animation: want a single image", origin);
    if (features.width < 1 || features.height < 1 || features.height > TRI_IMAGE_MAX_PIXELS / features.width)
        return tri_fail(TRI_EFORMAT, "%s: more than 64 million pixels", origin);
    *out = (tri_image){.height = features.height, .width = features.width, .channels = 3};
    const size_t line = (size_t)features.width * 3, room = line * (size_t)features.height;
    out->pixels = tri_alloc_bulk(room);
    if (out->pixels == NULL)
        return TRI_ENOMEM;
    if (WebPDecodeRGBInto(bytes, nbytes, out->pixels, room, (int)line) != NULL)
        return TRI_OK;
    tri_free(out->pixels);
    out->pixels = NULL;
    return tri_fail(TRI_EFORMAT, "%s: the WebP image is damaged or cut short", origin);
}

static void version(char *text, size_t nbytes)
{
    const int number = WebPGetDecoderVersion();
    snprintf(text, nbytes, "libwebp %d.%d.%d", number >> 16, number >> 8 & 255, number & 255);
}
#define DECODE  decode
#define VERSION version
#else /* this build has no library */
#define DECODE  NULL
#define VERSION NULL
#endif

const tri_image_format tri_image_webp = {.name = "WebP",
                                         .endings = ".webp",
                                         .library = "libwebp",
                                         .package = "libwebp-dev",
                                         .is = is_webp,
                                         .decode = DECODE,
                                         .version = VERSION};
