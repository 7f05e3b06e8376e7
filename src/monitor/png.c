/* SPDX-License-Identifier: Apache-2.0
 *
 * png.c: pictures as PNG: head, one block of deflated rows, end. No filters: what is drawn here is small.
 */
#include <zlib.h>

#include "monitor/summary.h"

static tri_status chunk_append(tri_string *out, const char kind[5], const void *bytes, size_t nbytes)
{
    unsigned char text[4];
    size_t at = out->nbytes + 4;
    for (int i = 0; i < 4; i++)
        text[i] = (unsigned char)(nbytes >> (8 * (3 - i)));
    TRI_TRY(tri_string_append_bytes(out, text, 4));
    TRI_TRY(tri_string_append_bytes(out, kind, 4));
    TRI_TRY(tri_string_append_bytes(out, bytes, nbytes));
    uLong crc = crc32(0, (const Bytef *)out->text + at, (uInt)(out->nbytes - at));
    for (int i = 0; i < 4; i++)
        text[i] = (unsigned char)(crc >> (8 * (3 - i)));
    return tri_string_append_bytes(out, text, 4);
}

/* Each row has the number of its filter in front: none. */
static tri_status rows_append(tri_string *out, const tri_picture *picture)
{
    size_t row = (size_t)picture->width * (size_t)picture->channels;
    tri_string plain = {0};
    tri_status status = TRI_OK;
    for (int64_t y = 0; y < picture->height && status == TRI_OK; y++) {
        status = tri_string_append_bytes(&plain, "", 1);
        if (status == TRI_OK)
            status = tri_string_append_bytes(&plain, picture->pixels + (size_t)y * row, row);
    }
    uLongf packed_nbytes = compressBound(plain.nbytes);
    unsigned char *packed = tri_alloc(packed_nbytes);
    if (!packed)
        status = TRI_ENOMEM;
    if (status == TRI_OK && compress2(packed, &packed_nbytes, (const Bytef *)tri_string_text(&plain), plain.nbytes,
                                      Z_DEFAULT_COMPRESSION) != Z_OK)
        status = tri_fail(TRI_ENOMEM, "zlib could not pack a picture of %zu bytes", plain.nbytes);
    if (status == TRI_OK)
        status = chunk_append(out, "IDAT", packed, packed_nbytes);
    tri_free(packed);
    tri_string_fini(&plain);
    return status;
}

tri_status tri_png_write(const tri_picture *picture, tri_string *out)
{
    unsigned char head[13] = {[8] = 8, [9] = picture->channels == 3 ? 2 : 0}; /* 8 bits; grey, or three colours */
    for (int i = 0; i < 4; i++) {
        head[i] = (unsigned char)(picture->width >> (8 * (3 - i)));
        head[4 + i] = (unsigned char)(picture->height >> (8 * (3 - i)));
    }
    TRI_TRY(tri_string_append_bytes(out, "\x89PNG\r\n\x1a\n", 8));
    TRI_TRY(chunk_append(out, "IHDR", head, sizeof(head)));
    TRI_TRY(rows_append(out, picture));
    return chunk_append(out, "IEND", "", 0);
}
