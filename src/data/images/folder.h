/* SPDX-License-Identifier: Apache-2.0
 *
 * folder.h: which image files lie in a folder of classes, and which of them are for training.
 *
 * One sub-folder per class, numbered in the order of their names' bytes, as torchvision's ImageFolder; or the same
 * below train/, val/ and test/. What has no folder is a fraction of each class, chosen by the hashes of the files'
 * names (parts.h): it depends on nothing but names and seed.
 */
#ifndef TRI_DATA_IMAGES_FOLDER_H
#define TRI_DATA_IMAGES_FOLDER_H

#include "base/arena.h"
#include "base/containers.h"
#include "data/parts.h"

typedef struct tri_image_file {
    const char *path; /* below the folder */
    int64_t class;
    uint64_t hash; /* of the path below the folder of classes: the order of samples */
} tri_image_file;

typedef struct tri_image_folder {
    tri_arena arena;
    char *root;          /* folder of the classes */
    const char *part;    /* "train", "val", ...: the sub-folder it is; "": the data set is not split into folders */
    tri_vector classes;  /* const char *: names */
    tri_vector files;    /* tri_image_file, in the order of samples */
    int64_t other_files; /* that have no image's ending */
} tri_image_folder;

/* Whether it can be one: it looks for a first image. */
bool tri_image_folder_is(const char *path);
/* Whether there is a part, a folder or a fraction. */
bool tri_image_folder_has(const tri_data_config *config, tri_data_part part);
/* The files of a part; none, where there is none of it. */
tri_status tri_image_folder_open(const tri_data_config *config, tri_data_part part, tri_image_folder *out);
void tri_image_folder_fini(tri_image_folder *folder);
/* The whole path of a file; tri_free(). NULL: no memory. */
char *tri_image_folder_path(const tri_image_folder *folder, const tri_image_file *file);

#endif
