/* SPDX-License-Identifier: Apache-2.0
 *
 * samples.h: the samples of a tar file in WebDataset's form: entries that follow each other and have one name up to the
 * first dot are one sample: an image (.jpg, .jpeg, .png, .webp) and its label (.cls, .json or .txt).
 *
 * They are found once; an index file keeps the places and labels. docs/formats/data.md describes it.
 */
#ifndef TRI_DATA_TAR_SAMPLES_H
#define TRI_DATA_TAR_SAMPLES_H

#include "base/arena.h"
#include "base/containers.h"
#include "data/stream.h"

typedef struct tri_tar_sample {
    uint64_t at, nbytes; /* of the image within the file; nbytes 0: there is none, and the sample begins at `at` */
    uint64_t hash;       /* of the name up to the first dot */
    const char *label;   /* "": there is none */
} tri_tar_sample;

typedef struct tri_tar_samples {
    tri_arena arena;
    tri_vector items; /* tri_tar_sample, in the order of the file */
    tri_map labels;   /* label -> place of the only copy of its text in `texts` */
    tri_vector texts; /* const char * */
    int64_t others;   /* entries that are neither image nor label */
} tri_tar_samples;

/* Reads the headers and labels of a tar file. field: of a .json that holds the label; "": label, class or cls. All
 * that is wrong is TRI_EFORMAT with the file and the place of the header. */
tri_status tri_tar_samples_parse(const tri_source *source, const char *field, tri_tar_samples *out);
/* The same of a file, by its index where there is one that fits; else the index is written, if it can be. */
tri_status tri_tar_samples_load(const char *path, const char *index_folder, const char *field, tri_tar_samples *out);
/* As an index holds them; `head` is its first line. False: the text is another's, or damaged. */
tri_status tri_tar_index_print(const tri_tar_samples *samples, const char *head, tri_string *out);
bool tri_tar_index_parse(const char *text, size_t nbytes, const char *head, tri_tar_samples *out);
void tri_tar_samples_fini(tri_tar_samples *samples);

#endif
