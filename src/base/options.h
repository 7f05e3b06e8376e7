/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h: options as tables: one row gives field, key, default, bounds, words and help, and everything else follows
 * from it.
 *
 * A module writes an X-list in its header, TRI_<MODULE>_OPTIONS(X), with rows
 *     X(TYPE, field, "default", low, high, words or NULL, "help")
 *     X(TYPE, field, "default", low, high, words or NULL, "help", "conditions")
 * of TYPE BOOL, INT, REAL, ENUM (one of the words of an enum), COUNT (an integer, or a word), NAME (63 bytes), TEXT
 * (1023 bytes), PATH (a file or folder; with a high bound of 1, which TEXT may have too, or a URL) or LIST (1023 bytes:
 * YAML in flow form that its module parses). An option with conditions does something only where all of them are true:
 * "parallel.sync=ps ps.consistency=ssp|async", "optim.schedule!=constant". The module declares
 *     typedef struct tri_optim_config { TRI_OPTIM_OPTIONS(TRI_OPTION_FIELD) } tri_optim_config;
 * and defines in its .c
 *     static const tri_option rows[] = { TRI_OPTIM_OPTIONS(TRI_OPTION_ROW) };   (with TRI_OPTION_STRUCT defined)
 *     const tri_option_table tri_optim_options = TRI_OPTION_TABLE("optim", tri_optim_config, rows, "optimizer");
 * Configurations are plain values: copy them freely. The key of a field is "<section>.<field>". An enum is made from
 * its words:
 *     #define tri_cut_words(W) W(TRI_CUT_FLOPS, "flops") W(TRI_CUT_MEASURED, "measured")
 *     TRI_ENUM(tri_cut)              the type tri_cut, and tri_cut_word(), the word of a value
 *     X(ENUM, cut, "flops", 0, 0, tri_cut, "help")
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
    TRI_OPTION_ENUM,
    TRI_OPTION_COUNT,
    TRI_OPTION_NAME,
    TRI_OPTION_TEXT,
    TRI_OPTION_PATH,
    TRI_OPTION_LIST
} tri_option_type;

typedef struct tri_option {
    const char *field;
    tri_option_type type;
    size_t offset;            /* of the field in its struct, bytes */
    const char *fallback;     /* the default, as a user would write it */
    double low, high;         /* bounds of numbers, inclusive; both 0: none */
    const char *const *words; /* of ENUM and COUNT, NULL at the end; else NULL */
    const char *help;         /* one sentence, no final dot; starts lower case */
    const char *applies;      /* conditions; NULL: in every setting */
} tri_option;

typedef struct tri_option_table {
    const char *section; /* "optim" */
    const char *help;    /* what the section is about */
    const tri_option *rows;
    size_t count;
    size_t nbytes; /* of the struct */
} tri_option_table;

/* An enum whose members have words, from the list NAME_words(W). */
#define TRI_ENUM(name)                                                                                                 \
    typedef enum name { name##_words(TRI_OPTION_MEMBER) } name;                                                        \
    static inline const char *name##_word(name value)                                                                  \
    {                                                                                                                  \
        static const char *const words[] = {name##_words(TRI_OPTION_WORD)};                                            \
        return words[value];                                                                                           \
    }
#define TRI_OPTION_MEMBER(member, word) member,
#define TRI_OPTION_WORD(member, word)   word,
/* What a COUNT holds for the n-th of its words, from 0. */
#define TRI_OPTION_WORD_COUNT(n) (-1 - (int64_t)(n))
#define tri_auto_words(W)        W(, "auto")
#define TRI_OPTION_AUTO          TRI_OPTION_WORD_COUNT(0) /* a COUNT with tri_auto_words */

#define TRI_OPTION_C_BOOL(name)     bool
#define TRI_OPTION_C_INT(name)      int64_t
#define TRI_OPTION_C_REAL(name)     double
#define TRI_OPTION_C_ENUM(name)     name
#define TRI_OPTION_C_COUNT(name)    int64_t
#define TRI_OPTION_C_NAME(name)     tri_option_name
#define TRI_OPTION_C_TEXT(name)     tri_option_path
#define TRI_OPTION_C_PATH(name)     tri_option_path
#define TRI_OPTION_C_LIST(name)     tri_option_path
#define TRI_OPTION_WORDS_BOOL(name) NULL
#define TRI_OPTION_WORDS_INT(name)  NULL
#define TRI_OPTION_WORDS_REAL(name) NULL
#define TRI_OPTION_WORDS_ENUM(name)                                                                                    \
    (const char *const[])                                                                                              \
    {                                                                                                                  \
        name##_words(TRI_OPTION_WORD) NULL                                                                             \
    }
#define TRI_OPTION_WORDS_COUNT(name) TRI_OPTION_WORDS_ENUM(name)
#define TRI_OPTION_WORDS_NAME(name)  NULL
#define TRI_OPTION_WORDS_TEXT(name)  NULL
#define TRI_OPTION_WORDS_PATH(name)  NULL
#define TRI_OPTION_WORDS_LIST(name)  NULL

#define TRI_OPTION_FIELD(type, field, fallback, low, high, words, ...) TRI_OPTION_C_##type(words) field;
/* Define TRI_OPTION_STRUCT as the struct's type before using TRI_OPTION_ROW. */
#define TRI_OPTION_ROW(type, field, fallback, low, high, words, ...)                                                   \
    {#field,                                                                                                           \
     TRI_OPTION_##type,                                                                                                \
     offsetof(TRI_OPTION_STRUCT, field),                                                                               \
     fallback,                                                                                                         \
     low,                                                                                                              \
     high,                                                                                                             \
     TRI_OPTION_WORDS_##type(words),                                                                                   \
     TRI_OPTION_TEXTS(__VA_ARGS__, NULL, NULL)},
#define TRI_OPTION_TEXTS(help, applies, ...) help, applies
#define TRI_OPTION_TABLE(section, type, rows, help)                                                                    \
    {                                                                                                                  \
        section, help, rows, sizeof(rows) / sizeof((rows)[0]), sizeof(type)                                            \
    }

/* Sets every field to its default. */
void tri_options_defaults(const tri_option_table *table, void *config);
/* The row of a field name, or NULL. */
const tri_option *tri_options_find(const tri_option_table *table, const char *field);
/* Parses and stores one value. Failure TRI_ECONFIG names "<section>.<field>", what was wanted (type, bounds, words)
 * and what was found; the config is untouched then. INT accepts k, M, G suffixes (powers of 1000); BOOL
 * true/false/yes/no/on/off. */
tri_status tri_options_set(const tri_option_table *table, void *config, const char *field, const char *value);
/* The value of a word of an ENUM or COUNT, or -1 if it has no such word. */
int tri_option_word_find(const tri_option *row, const char *word);
/* Appends "at least 1", "0 to 1" and the like; nothing if there are no bounds. */
tri_status tri_option_bounds_print(const tri_option *row, tri_string *out);
/* Appends the value as a user would write it. */
tri_status tri_options_print(const tri_option *row, const void *config, tri_string *out);
/* Appends help: one line a row with key, default, help, what is allowed and conditions. */
tri_status tri_options_help(const tri_option_table *table, tri_string *out);
/* The candidate nearest to `word` by edit distance, or NULL when none is near (distance > 1/2 of the length). */
const char *tri_options_nearest(const char *word, const char *const *candidates, size_t count);

#endif
