/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.h: the rows of a CSV or TSV file, one after the other (RFC 4180: quotes, doubled quotes, line ends CRLF or LF).
 */
#ifndef TRI_DATA_TABLES_ROWS_H
#define TRI_DATA_TABLES_ROWS_H

#include "base/containers.h"
#include "data/stream.h"

typedef struct tri_csv_rows {
    tri_stream stream;
    const char *origin;
    char separator;             /* of fields */
    const unsigned char *bytes; /* not yet looked at */
    size_t left;
    int64_t line;     /* where the reader is, from 1 */
    int64_t row_line; /* where the latest row began */
    tri_vector first; /* size_t: where each field of the latest row begins in text */
    char *text;       /* fields, each ended by a 0 byte */
    size_t text_nbytes, text_capacity;
    bool ends[256];     /* bytes that are more than text in a field without quotes */
    int64_t blank_line; /* of an empty line: only the end may follow; 0: none */
} tri_csv_rows;

/* The source must outlive it. */
tri_status tri_csv_rows_open(tri_csv_rows *rows, const tri_source *source, char separator);
/* Reads the next row; *more is false at the end. */
tri_status tri_csv_rows_next(tri_csv_rows *rows, bool *more);
/* Fields of the latest row. */
size_t tri_csv_rows_count(const tri_csv_rows *rows);
const char *tri_csv_rows_field(const tri_csv_rows *rows, size_t index);
void tri_csv_rows_close(tri_csv_rows *rows);

#endif
