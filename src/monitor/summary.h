/* SPDX-License-Identifier: Apache-2.0
 *
 * summary.h: what an Event of TensorBoard can say: numbers, texts, distributions, pictures, a graph, hyper-parameters.
 *
 * Each call appends to `body`, fields of one Event; several calls make one Event with several values. Tags are names
 * with a group in front of the slash.
 */
#ifndef TRI_MONITOR_SUMMARY_H
#define TRI_MONITOR_SUMMARY_H

#include "monitor/proto.h"

void tri_summary_scalar(tri_proto *body, const char *tag, double value);
/* Markdown. */
void tri_summary_text(tri_proto *body, const char *tag, const char *text);
/* counts[TRI_HISTOGRAM_BINS]; nothing where all are zero. */
void tri_summary_histogram(tri_proto *body, const char *tag, const int64_t *counts);
/* Bytes, row after row, of 1 (grey) or 3 (red, green, blue) channels. */
typedef struct tri_picture {
    int64_t width, height;
    int channels;
    unsigned char *pixels; /* [height][width][channels] */
} tri_picture;
tri_status tri_summary_picture(tri_proto *body, const char *tag, const tri_picture *picture);

/* A node of a run's graph. */
typedef struct tri_summary_node {
    const char *name, *op;
    const char *const *inputs; /* names */
    int input_count;
    const int64_t *dims; /* of what it makes; -1: any */
    int dim_count;
} tri_summary_node;
/* `graph` holds nodes until it becomes the Event's. */
void tri_summary_graph_node(tri_proto *graph, const tri_summary_node *node);
void tri_summary_graph(tri_proto *body, tri_proto *graph);

/* A hyper-parameter: a number where text is NULL. */
typedef struct tri_hparam {
    const char *name, *text;
    double number;
} tri_hparam;
/* The experiment and the start of a session: what is compared between runs, and by which scalars. */
void tri_summary_session_start(tri_proto *body, const tri_hparam *hparams, int count, const char *const *metrics,
                               int metric_count, double wall_s);
void tri_summary_session_end(tri_proto *body, bool succeeded, double wall_s);

/* PNG, by zlib. */
tri_status tri_png_write(const tri_picture *picture, tri_string *out);

/* Values counted by their bits: quarters of each power of two from 2^-40 to 2^24, of either sign; smaller ones are
 * zeros, larger ones are in the last bin, NaN in none. Counts of parts add up to those of the whole, so
 * they are the same whoever has counted. */
#define TRI_HISTOGRAM_HALF 256
#define TRI_HISTOGRAM_BINS (2 * TRI_HISTOGRAM_HALF + 1)
/* Of the values times scale. */
void tri_histogram_count(int64_t *counts, const float *values, int64_t count, float scale);

#endif
