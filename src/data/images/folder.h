/* SPDX-License-Identifier: Apache-2.0
 *
 * folder.h: which image files are in a folder of classes, and which of them are for training.
 *
 * One sub-folder per class, numbered in the order of their names' bytes, as torchvision's ImageFolder; or the same
 * below train/, val/ and test/. What has no folder is a fraction of each class, chosen by the hashes of the files'
 * names (parts.h): it depends on nothing but names and seed.
 */
#ifndef TRI_DATA_IMAGES_FOLDER_H
#define TRI_DATA_IMAGES_FOLDER_H

#include "base/arena.h"
#include "base/containers.h"
#include "data/images/image.h"
#include "data/parts.h"

typedef struct tri_image_file {
    const char *path; /* below the folder; of a tar file, all of it */
    int64_t class;
    uint64_t hash;       /* of the path below the folder of classes: the order of samples; in a tar file of the name */
    uint64_t at, nbytes; /* within the tar file; nbytes 0: it is a file of its own */
} tri_image_file;

typedef struct tri_image_folder {
    tri_arena arena;
    char *root;          /* folder of the classes */
    const char *part;    /* "train", "val", ...: the sub-folder it is; "": the data set is not split into folders */
    tri_vector classes;  /* const char *: names */
    tri_vector files;    /* tri_image_file, in the order of samples */
    int64_t other_files; /* that have no image's ending */
    int64_t tars;        /* files that the images are in; 0: each is a file of its own */
    tri_vector broken;   /* const char *: "path: reason" of samples that were left out */
} tri_image_folder;

/* Whether it can be one: it looks for a first image. */
bool tri_image_folder_is(const char *path);
/* Whether there is a part, a folder or a fraction. */
bool tri_image_folder_has(const tri_data_config *config, tri_data_part part);
/* The files of a part; none, where there is none of it. */
tri_status tri_image_folder_open(const tri_data_config *config, tri_data_part part, tri_image_folder *out);
void tri_image_folder_fini(tri_image_folder *folder);
/* Leaves the files of a part, which is a fraction of them. */
tri_status tri_image_folder_split(tri_image_folder *folder, const tri_parts *parts, tri_data_part part);
/* The same for tar files in WebDataset's form (tar/samples.h). Labels that are all whole numbers are the classes'
 * numbers, else classes are numbered in the order of their labels' bytes. */
tri_status tri_image_tar_open(const tri_data_config *config, tri_data_part part, tri_image_folder *out);
bool tri_image_tar_has(const tri_data_config *config, tri_data_part part);
/* Where a file is; tri_free() the path. */
tri_status tri_image_folder_place(const tri_image_folder *folder, const tri_image_file *file, tri_image_place *out);

#endif
