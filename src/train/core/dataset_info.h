/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset_info.h: dataset.yaml of a run folder.
 */
#ifndef TRI_TRAIN_DATASET_INFO_H
#define TRI_TRAIN_DATASET_INFO_H

#include "train/core/job.h"

/* dataset_info.c: dataset.yaml of a run folder: what the samples were, and what their classes are called, so that a
 * trained model can be used where they are not. Names are in the arena, info->table is held for the caller. */
tri_status tri_dataset_info_save(const tri_dataset_info *info, const tri_class_names *names, const char *path);
tri_status tri_dataset_info_load(const char *path, tri_dataset_info *info, tri_arena *names_arena,
                                 tri_class_names *names);
/* The same from its text, of at most `nbytes` bytes. */
#define TRI_DATASET_INFO_LIMIT ((size_t)64 << 20)
tri_status tri_dataset_info_parse(const char *text, size_t nbytes, const char *path, tri_dataset_info *info,
                                  tri_arena *names_arena, tri_class_names *names);
/* Of the classes' names and the columns of a table. */
uint64_t tri_job_classes_hash(const tri_job *job);
/* Takes over a hold of the table: data that are opened later have its columns. */
void tri_job_table_set(tri_job *job, const struct tri_table *table);
/* The same of what dataset.yaml says; without a table, numbers are read as they are, as they were before there were
 * tables. */
void tri_job_info_take(tri_job *job, const tri_dataset_info *info);

#endif
