/* SPDX-License-Identifier: Apache-2.0
 *
 * predict_input.h: samples for `trireme predict`, one after the other: JSON lines, lines of CSV, rows of an .npy file.
 */
#ifndef TRI_CLI_PREDICT_INPUT_H
#define TRI_CLI_PREDICT_INPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tables/table.h"

typedef enum predict_format { PREDICT_JSON, PREDICT_CSV, PREDICT_NPY } predict_format;

/* One sample. numbers are the input's until the next sample. */
typedef struct predict_sample {
    int64_t line;  /* from 1: of the file, or the row of an array */
    int64_t index; /* of the run's data; -1: the numbers are the sample */
    const double *numbers;
    int64_t count;
    const char *const *fields; /* [columns of the table] in place of numbers; NULL: there is no table */
    char decimal;              /* of numbers in fields */
} predict_sample;

typedef struct predict_input predict_input;
/* path "-": standard input. format: "json", "csv", "npy", or "auto": by the name, JSON where it says nothing. */
tri_status predict_input_open(const char *path, const char *format, predict_input **out);
/* Samples are rows of such a table from now on: columns are found by their names. */
tri_status predict_input_table_set(predict_input *input, const tri_table *table);
void predict_input_close(predict_input *input);
/* The next sample; *end: there is none. TRI_EFORMAT: this one is wrong, the next call continues behind it (sample->line
 * says which it is). Any other failure ends the input. */
tri_status predict_input_next(predict_input *input, predict_sample *sample, bool *end);
/* Whether the next call will wait for somebody who writes. */
bool predict_input_waits(const predict_input *input);

#endif
