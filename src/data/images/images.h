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

/* Whether it is one of image files, in a folder or in tar files. */
bool tri_images_is(const tri_dataset *dataset);
/* Of a data set of images that is open: */
const tri_image_counts *tri_images_counts(const tri_dataset *dataset);
const tri_image_folder *tri_images_folder(const tri_dataset *dataset);
/* "path: reason" of each file that was left out, and how many. */
const char *const *tri_images_broken(const tri_dataset *dataset, int64_t *count);
/* Decodes every file with `threads` threads; adds those that cannot be decoded to the broken ones. They stay samples.
 */
tri_status tri_images_check(tri_dataset *dataset, int threads);

/* The image files that a path stands for, itself or all below a folder, in the order of their names; tri_free() each
 * text. */
tri_status tri_images_list(const char *path, tri_vector *paths);

#endif
