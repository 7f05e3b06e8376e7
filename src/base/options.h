/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h: options as tables: one row gives field, key, default, bounds and help, and everything else follows from
 * it.
 *
 * A module writes an X-list in its header, TRI_<MODULE>_OPTIONS(X), with rows
 *     X(TYPE, field, "default", low, high, "a|b|c" or NULL, "help")
 * of TYPE BOOL, INT, REAL, NAME (63 bytes), TEXT (1023 bytes), PATH (a file or folder: 1023 bytes that are no URL) or
 * LIST (1023 bytes: a YAML list in flow form, which its module parses), declares
 *     typedef struct tri_optim_config { TRI_OPTIM_OPTIONS(TRI_OPTION_FIELD) } tri_optim_config;
 * and defines in its .c
 *     static const tri_option rows[] = { TRI_OPTIM_OPTIONS(TRI_OPTION_ROW) };   (with TRI_OPTION_STRUCT defined)
 *     const tri_option_table tri_optim_options = TRI_OPTION_TABLE("optim", tri_optim_config, rows, "how weights move");
 * Configurations are plain values: copy them freely. The key of a field is "<section>.<field>".
 */
#ifndef TRI_BASE_OPTIONS_H
#define TRI_BASE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/containers.h"

typedef char tri_option_name[64];
typedef char tri_option_path[1024];

typedef enum tri_option_type {
    TRI_OPTION_BOOL,
    TRI_OPTION_INT,
    TRI_OPTION_REAL,
    TRI_OPTION_NAME,
    TRI_OPTION_TEXT,
    TRI_OPTION_PATH,
    TRI_OPTION_LIST
} tri_option_type;

typedef struct tri_option {
    const char *field;
    tri_option_type type;
    size_t offset;        /* of the field in its struct, bytes */
    const char *fallback; /* the default, as a user would write it */
    double low, high;     /* bounds of numbers, inclusive; both 0: none */
    const char *choices;  /* "a|b|c" for NAME, or NULL */
    const char *help;     /* one sentence, no final dot; starts lower case */
} tri_option;

typedef struct tri_option_table {
    const char *section; /* "optim" */
    const char *help;    /* what the section is about */
    const tri_option *rows;
    size_t count;
    size_t nbytes; /* of the struct */
} tri_option_table;

#define TRI_OPTION_C_BOOL                                                 bool
#define TRI_OPTION_C_INT                                                  int64_t
#define TRI_OPTION_C_REAL                                                 double
#define TRI_OPTION_C_NAME                                                 tri_option_name
#define TRI_OPTION_C_TEXT                                                 tri_option_path
#define TRI_OPTION_C_PATH                                                 tri_option_path
#define TRI_OPTION_C_LIST                                                 tri_option_path
#define TRI_OPTION_FIELD(type, field, fallback, low, high, choices, help) TRI_OPTION_C_##type field;
/* Define TRI_OPTION_STRUCT as the struct's type before using TRI_OPTION_ROW. */
#define TRI_OPTION_ROW(type, field, fallback, low, high, choices, help)                                                \
    {#field, TRI_OPTION_##type, offsetof(TRI_OPTION_STRUCT, field), fallback, low, high, choices, help},
#define TRI_OPTION_TABLE(section, type, rows, help)                                                                    \
    {                                                                                                                  \
        section, help, rows, sizeof(rows) / sizeof((rows)[0]), sizeof(type)                                            \
    }

/* Sets every field to its default. */
void tri_options_defaults(const tri_option_table *table, void *config);
/* The row of a field name, or NULL. */
const tri_option *tri_options_find(const tri_option_table *table, const char *field);
/* Parses and stores one value. Failure TRI_ECONFIG names "<section>.<field>", what was wanted (type, bounds, choices)
 * and what was found; the config is untouched then. INT accepts k, M, G suffixes (powers of 1000); BOOL
 * true/false/yes/no/on/off. */
tri_status tri_options_set(const tri_option_table *table, void *config, const char *field, const char *value);
/* Appends the value as a user would write it. */
tri_status tri_options_print(const tri_option *row, const void *config, tri_string *out);
/* Appends help: one line a row with key, default, bounds or choices, and help. */
tri_status tri_options_help(const tri_option_table *table, tri_string *out);
/* The candidate nearest to `word` by edit distance, or NULL when none is near (distance > 1/2 of the length). */
const char *tri_options_nearest(const char *word, const char *const *candidates, size_t count);

#endif
