/* SPDX-License-Identifier: Apache-2.0
 *
 * labels.h: the values of a target column, and which classes they are, if they are classes at all.
 */
#ifndef TRI_DATA_TABLES_LABELS_H
#define TRI_DATA_TABLES_LABELS_H

#include "base/arena.h"
#include "base/containers.h"
#include "data/data.h"

typedef struct tri_label {
    const char *text; /* "3" also where the table has "3.0" */
    int64_t line;     /* of the first one */
} tri_label;

typedef struct tri_labels {
    tri_arena arena;
    tri_map found;     /* text -> its place in values */
    tri_vector values; /* tri_label: distinct ones, as they came; none is added above the limit */
    tri_vector rows;   /* int32_t: the place of each row's value, -1 above the limit */
    int64_t numbers;   /* values that are numbers, */
    int64_t integers;  /* and whole numbers */
    int64_t least, greatest;
    int64_t real_line, text_line; /* of the first that is no whole number, and no number; 0: none */
    char text[41];                /* which that is */
    /* Once classes are settled: */
    int32_t *classes;      /* [values] class of each value, -1: none */
    tri_class_names names; /* of the classes, texts in the arena; texts NULL: they are numbers */
} tri_labels;

void tri_labels_init(tri_labels *labels);
void tri_labels_fini(tri_labels *labels);
/* One more row; the field is trimmed. */
tri_status tri_labels_add(tri_labels *labels, const char *field, char decimal, int64_t line);
/* The place of a field's value in `values`. */
bool tri_labels_find(const tri_labels *labels, const char *field, int64_t *place);
/* A whole number, also as "3.0". */
bool tri_label_integer(const char *field, int64_t *out);
/* Whether they are classes, and how many; *classes 0: they are real numbers. wanted: data.classes. */
tri_status tri_labels_settle(tri_labels *labels, const char *origin, int64_t wanted, int64_t *classes);
/* Numbers them as `names` has them, or, where that has no texts, by themselves. TRI_EFORMAT: one is none of them. */
tri_status tri_labels_name(tri_labels *labels, const char *origin, const tri_class_names *names);

#endif
