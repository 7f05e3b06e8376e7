/* SPDX-License-Identifier: Apache-2.0
 *
 * table.h: what a table's columns mean: a plan that is learned from the training rows, kept in dataset.yaml, and used
 * for every other table and sample of the run.
 *
 * Columns are found by name. A sample is the numbers of all features, in the order of the training table: one number of
 * a real, an integer or a date, standardized; one per text that was seen and one for unknown texts of a text column.
 */
#ifndef TRI_DATA_TABLES_TABLE_H
#define TRI_DATA_TABLES_TABLE_H

#include "base/arena.h"
#include "base/containers.h"
#include "base/yaml.h"
#include "data/data.h"
#include "data/stream.h"

/* X(id, name, wanted, read): one row per kind of column; read: how a field becomes one number (kinds.c), NULL: it does
 * not. */
#define TRI_COLUMN_KINDS(X)                                                                                            \
    X(REAL, "real", "a finite number", real_read)                                                                      \
    X(INTEGER, "integer", "a finite number", real_read)                                                                \
    X(DATE, "date", "a date such as 2024-03-31 (data.date_format)", date_read)                                         \
    X(TEXT, "text", "a text", NULL)                                                                                    \
    X(CLASS, "class", "a class", NULL)                                                                                 \
    X(UNUSED, "unused", "anything", NULL)
#define TRI_COLUMN_ID(id, name, wanted, read) TRI_COLUMN_##id,
typedef enum tri_column_kind { TRI_COLUMN_KINDS(TRI_COLUMN_ID) TRI_COLUMN_KIND_COUNT } tri_column_kind;

typedef struct tri_column {
    const char *name;
    tri_column_kind kind;
    bool target;
    bool fills;             /* a missing value is `fill`, of a text an unknown one; else it is an error */
    double fill;            /* as it is in a table */
    double mean, deviation; /* a number x becomes (x - mean) / deviation */
    tri_vector
        texts;       /* const char *: of a text column, in the order of their bytes; of classes, where they are texts */
    tri_map numbers; /* text -> its place in texts */
    int64_t first, width; /* its numbers within a sample, of a target within the targets */
} tri_column;

/* Not changed once it is learned. */
typedef struct tri_table {
    tri_arena arena;
    int holders;
    bool header;          /* the first line names the columns; else they are called 0, 1, ... */
    char date_format[64]; /* "": those that are known */
    tri_vector missing;   /* const char *: texts that stand for a missing value, besides the empty one */
    tri_column *columns;  /* [count] in the order of the training table */
    size_t count;
    int64_t width, targets; /* numbers of a sample, of its target */
    int64_t classes;        /* 0: targets are real */
} tri_table;

/* Where a field is, for messages. */
typedef struct tri_table_place {
    const char *origin;
    int64_t line;
} tri_table_place;

const char *tri_column_kind_name(tri_column_kind kind);
/* Whether a column's value is one number. */
bool tri_column_is_number(tri_column_kind kind);
/* A number, "," or "." as decimal mark; a date as days since 1970-01-01. False: it is none. */
bool tri_table_number_read(const char *field, char decimal, double *out);
bool tri_table_integer_read(const char *field, int64_t *out);
bool tri_table_date_read(const char *field, const char *format, double *out);
bool tri_table_is_missing(const tri_vector *missing, const char *field);
/* The field without blanks around it, cut in place. */
char *tri_table_trim(char *field);
/* The field as the numbers of its column, a feature or a real target: column->width floats. TRI_EFORMAT names place and
 * column. */
tri_status tri_column_encode(const tri_table *table, const tri_column *column, const tri_table_place *place,
                             const char *field, char decimal, float *out);

/* Real targets as they are in the table, of standardized ones: [table->targets]. */
void tri_table_targets_restore(const tri_table *table, double *targets);

/* An empty one, held once. NULL: no memory. */
tri_table *tri_table_create(void);
void tri_table_hold(tri_table *table);
/* NULL does nothing. The last holder frees it. */
void tri_table_release(tri_table *table);
/* Adds a text to a column's. */
tri_status tri_column_text_add(tri_table *table, tri_column *column, const char *text);
/* Sets first and width of all columns, width and targets of the table. */
void tri_table_lay(tri_table *table);
/* The column of this name, -1: none. */
int64_t tri_table_find(const tri_table *table, const char *name);
/* Names as pandas makes them different: a, a.1, a.2. names: those so far; *out is the arena's. */
tri_status tri_table_name_make(tri_arena *arena, tri_map *names, const char *text, const char **out);
/* Which column each of the fields of a first line names: at[i], -1: none. TRI_EFORMAT lists what is missing and what is
 * foreign; `ignored`: names that may be foreign; targets may be missing unless they are needed. */
tri_status tri_table_match(const tri_table *table, const tri_table_place *place, const char *const *fields,
                           size_t count, const tri_vector *ignored, bool needs_targets, int64_t *at);
/* "separator ',', header: yes, target: price (real), 7 features: age (integer), ..." */
tri_status tri_table_describe(const tri_table *table, tri_string *out);
/* As a part of dataset.yaml, and back. */
tri_status tri_table_print(const tri_table *table, tri_string *out);
tri_status tri_table_parse(const tri_yaml *node, tri_table **out);
/* Of everything that decides what a row means. */
uint64_t tri_table_hash(const tri_table *table);

/* --- files --- */

/* How a file is written: learned from its first rows, where options do not say. */
typedef struct tri_table_dialect {
    char separator, decimal;
    bool header;
} tri_table_dialect;
tri_status tri_table_dialect_find(const tri_data_config *config, const tri_source *source, const tri_vector *missing,
                                  tri_table_dialect *out);
/* Makes a source UTF-8 where it is not: its bytes are then `*converted`, to be freed after it; NULL: they were good. */
tri_status tri_table_decode(const tri_data_config *config, tri_source *source, char **converted);
/* The texts of an option that is a list; in the arena. */
tri_status tri_table_list_read(tri_arena *arena, const char *option, const char *what, tri_vector *out);
bool tri_table_is_utf8(const char *text);

#endif
