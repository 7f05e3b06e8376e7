/* SPDX-License-Identifier: Apache-2.0
 *
 * learn.h: what the columns of a table are, learned from its fields; and what their values are, from the training rows.
 */
#ifndef TRI_DATA_TABLES_LEARN_H
#define TRI_DATA_TABLES_LEARN_H

#include "data/tables/rows.h"
#include "data/tables/table.h"

/* What was seen of one column. */
typedef struct tri_column_seen {
    int64_t numbers, integers, dates, others, missing;
    int64_t other_line, missing_line; /* of the first; 0: none */
    char other[41];
    bool counts;   /* its values count the rows, from 0 or 1 on: */
    int64_t first; /* the first one */
    /* Of the values of the training rows: */
    int64_t filled, count; /* with a value, in all */
    double mean, squares, greatest;
} tri_column_seen;

typedef struct tri_learning {
    const tri_data_config *config;
    const char *origin;
    tri_arena arena;                                           /* of the lists */
    tri_vector targets, columns, ignored, reals, dates, texts; /* const char *: options */
    tri_column_seen *seen;                                     /* [columns of the table] */
    int64_t rows, trained;                                     /* of the first and of the second pass */
} tri_learning;

/* Reads the options. */
tri_status tri_learning_init(tri_learning *learning, const tri_data_config *config, const char *origin);
void tri_learning_fini(tri_learning *learning);
/* The columns: their names, from the first row or as numbers, and which are targets. */
tri_status tri_learning_begin(tri_learning *learning, tri_table *table, const tri_csv_rows *first, bool header);
/* One row of the whole file; fields are trimmed. */
void tri_learning_row(tri_learning *learning, const tri_table *table, const char *const *fields, char decimal,
                      int64_t line);
/* The kind of each column, but for texts and figures; what cannot be is an error that names a line. */
tri_status tri_learning_kinds(tri_learning *learning, tri_table *table);
/* One training row. */
tri_status tri_learning_values(tri_learning *learning, tri_table *table, const char *const *fields, char decimal,
                               int64_t line);
/* Texts and figures of all columns, from those rows. */
tri_status tri_learning_end(tri_learning *learning, tri_table *table);

#endif
