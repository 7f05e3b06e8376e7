/* SPDX-License-Identifier: Apache-2.0
 *
 * lines.h: JSON lines: a file with an object in each line, as texts to learn from or as the rows of a table.
 *
 * Every message names the file and the line.
 */
#ifndef TRI_DATA_LINES_LINES_H
#define TRI_DATA_LINES_LINES_H

#include "base/containers.h"
#include "data/stream.h"

#define TRI_LINES_ENDING ".jsonl"

/* The lines of [at, end) of a source that are not blank. */
typedef struct tri_lines {
    const tri_source *source;
    size_t at, end;
} tri_lines;
/* False at the end. */
bool tri_lines_next(tri_lines *lines, const char **line, size_t *nbytes);
/* Where the first line at or behind a place begins. */
size_t tri_lines_cut(const tri_source *source, size_t at);
/* Appends the text in this field of a line. */
tri_status tri_line_text(const tri_source *source, const char *line, size_t nbytes, const char *field, tri_string *out);
/* Whether the first line of a file has a text in this field. */
bool tri_lines_have_text(const char *path, const char *field);
/* Appends each character of all texts once. */
tri_status tri_lines_characters(const tri_source *source, const char *field, tri_string *out);
/* The lines as CSV with a header: a column for each name, in the order in which names come first. `ignored`: names
 * whose columns stay empty, whatever is in them. */
tri_status tri_lines_to_csv(const tri_source *source, const tri_vector *ignored, tri_string *out);

#endif
