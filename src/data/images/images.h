/* SPDX-License-Identifier: Apache-2.0
 *
 * images.h: what is known of a folder of images besides its samples.
 */
#ifndef TRI_DATA_IMAGES_IMAGES_H
#define TRI_DATA_IMAGES_IMAGES_H

#include "data/images/folder.h"
#include "data/images/image.h"

/* Of the heads that were read. */
typedef struct tri_image_counts {
    int64_t heads, jpeg, png, webp;
    int64_t least_height, least_width, most_height, most_width;
} tri_image_counts;

#endif
