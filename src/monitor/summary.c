/* SPDX-License-Identifier: Apache-2.0
 *
 * summary.c: Summary, GraphDef and the plug-ins' data of TensorBoard; field numbers of tensorboard/compat/proto/ and
 * tensorboard/plugins/.
 */
#include "monitor/summary.h"

#include <math.h>
#include <string.h>

enum { EVENT_GRAPH = 4, EVENT_SUMMARY = 5 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_IMAGE = 4, VALUE_TENSOR = 8, VALUE_METADATA = 9 };
enum { METADATA_PLUGIN = 1, METADATA_CLASS = 4, PLUGIN_NAME = 1, PLUGIN_CONTENT = 2, CLASS_TENSOR = 2 };
enum { TENSOR_DTYPE = 1, TENSOR_SHAPE = 2, TENSOR_CONTENT = 4, TENSOR_FLOAT = 5, TENSOR_STRING = 8 };
enum { DTYPE_FLOAT = 1, DTYPE_DOUBLE = 2, DTYPE_STRING = 7, SHAPE_DIM = 2, DIM_LENGTH = 1 };
enum { IMAGE_HEIGHT = 1, IMAGE_WIDTH = 2, IMAGE_CHANNELS = 3, IMAGE_PNG = 4 };
enum { GRAPH_NODE = 1, GRAPH_VERSIONS = 4, VERSIONS_PRODUCER = 1, NODE_NAME = 1, NODE_OP = 2, NODE_INPUT = 3 };
enum { NODE_ATTR = 5, ENTRY_KEY = 1, ENTRY_VALUE = 2, ATTR_LIST = 1, LIST_SHAPE = 7 };
enum { HPARAMS_EXPERIMENT = 2, HPARAMS_START = 3, HPARAMS_END = 4 };
enum { EXPERIMENT_HPARAM = 4, EXPERIMENT_METRIC = 5, INFO_NAME = 1, INFO_TYPE = 4, TYPE_TEXT = 1, TYPE_NUMBER = 3 };
enum { METRIC_NAME = 1, METRIC_TAG = 2, START_HPARAMS = 1, START_TIME = 5, END_STATUS = 1, END_TIME = 2 };
enum { STRUCT_NUMBER = 2, STRUCT_TEXT = 3, STATUS_SUCCESS = 1, STATUS_FAILURE = 2 };
#define GRAPH_VERSION 1395

typedef struct value_at {
    size_t summary, value;
} value_at;

static value_at value_open(tri_proto *body, const char *tag)
{
    value_at at = {.summary = tri_proto_open(body, EVENT_SUMMARY)};
    at.value = tri_proto_open(body, SUMMARY_VALUE);
    tri_proto_text(body, VALUE_TAG, tag);
    return at;
}

static void value_close(tri_proto *body, value_at at)
{
    tri_proto_close(body, at.value);
    tri_proto_close(body, at.summary);
}

static void plugin_put(tri_proto *body, const char *name, const tri_proto *content)
{
    size_t metadata = tri_proto_open(body, VALUE_METADATA), plugin = tri_proto_open(body, METADATA_PLUGIN);
    tri_proto_text(body, PLUGIN_NAME, name);
    if (content)
        tri_proto_bytes(body, PLUGIN_CONTENT, tri_string_text(&content->out), content->out.nbytes);
    tri_proto_close(body, plugin);
    tri_proto_int(body, METADATA_CLASS, CLASS_TENSOR);
    tri_proto_close(body, metadata);
}

static void shape_put(tri_proto *body, int field, const int64_t *dims, int count)
{
    size_t shape = tri_proto_open(body, field);
    for (int i = 0; i < count; i++) {
        size_t dim = tri_proto_open(body, SHAPE_DIM);
        tri_proto_int(body, DIM_LENGTH, dims[i]);
        tri_proto_close(body, dim);
    }
    tri_proto_close(body, shape);
}

void tri_summary_scalar(tri_proto *body, const char *tag, double value)
{
    value_at at = value_open(body, tag);
    tri_proto_float(body, VALUE_SIMPLE, (float)value);
    value_close(body, at);
}

void tri_summary_text(tri_proto *body, const char *tag, const char *text)
{
    int64_t one = 1;
    value_at at = value_open(body, tag);
    plugin_put(body, "text", NULL);
    size_t tensor = tri_proto_open(body, VALUE_TENSOR);
    tri_proto_int(body, TENSOR_DTYPE, DTYPE_STRING);
    shape_put(body, TENSOR_SHAPE, &one, 1);
    tri_proto_text(body, TENSOR_STRING, text);
    tri_proto_close(body, tensor);
    value_close(body, at);
}

tri_status tri_summary_picture(tri_proto *body, const char *tag, const tri_picture *picture)
{
    tri_string png = {0};
    tri_status status = tri_png_write(picture, &png);
    if (status == TRI_OK) {
        value_at at = value_open(body, tag);
        size_t image = tri_proto_open(body, VALUE_IMAGE);
        tri_proto_int(body, IMAGE_HEIGHT, picture->height);
        tri_proto_int(body, IMAGE_WIDTH, picture->width);
        tri_proto_int(body, IMAGE_CHANNELS, picture->channels);
        tri_proto_bytes(body, IMAGE_PNG, png.text, png.nbytes);
        tri_proto_close(body, image);
        value_close(body, at);
    }
    tri_string_fini(&png);
    return status;
}

/* --- distributions --- */

#define BIN_FIRST_EXPONENT (-40)

/* Values are counted by their highest eleven bits: sign, exponent, two bits of the mantissa. */
#define RAW_BINS      2048
#define RAW_SIGN      0x400
#define RAW_WHOLE     0x3fc              /* and above: infinities and NaN */
#define COUNT_AT_ONCE (INT64_C(1) << 30) /* 32 bits hold as many */

static void raw_fold(int64_t *counts, uint32_t raw[2][RAW_BINS])
{
    const int first = (127 + BIN_FIRST_EXPONENT) * 4;
    for (int bits = 0; bits < RAW_BINS; bits++) {
        const int64_t count = (int64_t)raw[0][bits] + raw[1][bits];
        int place = (bits & (RAW_SIGN - 1)) - first;
        if (count == 0 || (bits & (RAW_SIGN - 1)) >= RAW_WHOLE)
            continue;
        place = place < -1 ? -1 : place > TRI_HISTOGRAM_HALF - 1 ? TRI_HISTOGRAM_HALF - 1 : place;
        counts[TRI_HISTOGRAM_HALF + (bits & RAW_SIGN ? -1 - place : 1 + place)] += count;
    }
}

static uint32_t raw_bin(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits >> 21;
}

/* Training waits for it, so nothing is decided for a value; neighbours are often alike, and two tables keep one from
 * waiting for the other. */
void tri_histogram_count(int64_t *counts, const float *values, int64_t count, float scale)
{
    for (int64_t done = 0; done < count; done += COUNT_AT_ONCE) {
        const int64_t end = count - done < COUNT_AT_ONCE ? count : done + COUNT_AT_ONCE;
        uint32_t raw[2][RAW_BINS] = {{0}};
        int64_t i = done;
        for (; i + 1 < end; i += 2) {
            raw[0][raw_bin(values[i] * scale)]++;
            raw[1][raw_bin(values[i + 1] * scale)]++;
        }
        if (i < end)
            raw[0][raw_bin(values[i] * scale)]++;
        raw_fold(counts, raw);
    }
}

/* Where bin `place` of the positive ones begins. */
static double edge(int place)
{
    return ldexp(1 + (double)(place % 4) / 4, BIN_FIRST_EXPONENT + place / 4);
}

static void bin_put(tri_string *rows, double low, double high, double count)
{
    double row[3] = {low, high, count};
    for (int i = 0; i < 3; i++) {
        uint64_t bits;
        unsigned char text[8];
        memcpy(&bits, &row[i], sizeof(bits));
        for (int b = 0; b < 8; b++)
            text[b] = (unsigned char)(bits >> (8 * b));
        (void)tri_string_append_bytes(rows, text, sizeof(text));
    }
}

/* Bins of one sign that are nearer to zero than 2^-NEAR_OCTAVES of the largest become one with zero: nobody sees more.
 */
#define NEAR_OCTAVES 12

static int64_t bins_put(tri_string *rows, const int64_t *counts)
{
    const int64_t *zero = counts + TRI_HISTOGRAM_HALF;
    int largest = 0, low = 0, high = 0;
    for (int i = 1; i <= TRI_HISTOGRAM_HALF; i++) {
        low = zero[-i] > 0 ? i : low;
        high = zero[i] > 0 ? i : high;
    }
    largest = low > high ? low : high;
    int near = largest - 4 * NEAR_OCTAVES > 0 ? largest - 4 * NEAR_OCTAVES : 0;
    int64_t middle = 0, bins = 0;
    for (int i = -near; i <= near; i++)
        middle += zero[i];
    for (int i = low; i > near; i--, bins++)
        bin_put(rows, -edge(i), -edge(i - 1), (double)zero[-i]);
    double around = edge(near);
    bin_put(rows, low > near || high <= near ? -around : 0, high > near || low <= near ? around : 0, (double)middle);
    bins++;
    for (int i = near + 1; i <= high; i++, bins++)
        bin_put(rows, edge(i - 1), edge(i), (double)zero[i]);
    return bins;
}

void tri_summary_histogram(tri_proto *body, const char *tag, const int64_t *counts)
{
    tri_string rows = {0};
    int64_t total = 0;
    for (int i = 0; i < TRI_HISTOGRAM_BINS; i++)
        total += counts[i];
    if (total == 0)
        return;
    int64_t dims[2] = {bins_put(&rows, counts), 3};
    if (rows.nbytes != (size_t)dims[0] * 3 * sizeof(double)) {
        body->status = TRI_ENOMEM;
        tri_string_fini(&rows);
        return;
    }
    value_at at = value_open(body, tag);
    plugin_put(body, "histograms", NULL);
    size_t tensor = tri_proto_open(body, VALUE_TENSOR);
    tri_proto_int(body, TENSOR_DTYPE, DTYPE_DOUBLE);
    shape_put(body, TENSOR_SHAPE, dims, 2);
    tri_proto_bytes(body, TENSOR_CONTENT, rows.text, rows.nbytes);
    tri_proto_close(body, tensor);
    value_close(body, at);
    tri_string_fini(&rows);
}

/* --- graph --- */

void tri_summary_graph_node(tri_proto *graph, const tri_summary_node *node)
{
    size_t open = tri_proto_open(graph, GRAPH_NODE);
    tri_proto_text(graph, NODE_NAME, node->name);
    tri_proto_text(graph, NODE_OP, node->op);
    for (int i = 0; i < node->input_count; i++)
        tri_proto_text(graph, NODE_INPUT, node->inputs[i]);
    size_t attr = tri_proto_open(graph, NODE_ATTR);
    tri_proto_text(graph, ENTRY_KEY, "_output_shapes");
    size_t value = tri_proto_open(graph, ENTRY_VALUE), list = tri_proto_open(graph, ATTR_LIST);
    shape_put(graph, LIST_SHAPE, node->dims, node->dim_count);
    tri_proto_close(graph, list);
    tri_proto_close(graph, value);
    tri_proto_close(graph, attr);
    tri_proto_close(graph, open);
}

void tri_summary_graph(tri_proto *body, tri_proto *graph)
{
    size_t versions = tri_proto_open(graph, GRAPH_VERSIONS);
    tri_proto_int(graph, VERSIONS_PRODUCER, GRAPH_VERSION);
    tri_proto_close(graph, versions);
    if (graph->status != TRI_OK)
        body->status = graph->status;
    tri_proto_bytes(body, EVENT_GRAPH, tri_string_text(&graph->out), graph->out.nbytes);
}

/* --- hyper-parameters --- */

/* A value that is nothing but the plug-in's data. */
static void hparams_put(tri_proto *body, const char *tag, tri_proto *data)
{
    int64_t one = 1;
    value_at at = value_open(body, tag);
    plugin_put(body, "hparams", data);
    size_t tensor = tri_proto_open(body, VALUE_TENSOR);
    tri_proto_int(body, TENSOR_DTYPE, DTYPE_FLOAT);
    shape_put(body, TENSOR_SHAPE, &one, 1);
    tri_proto_float(body, TENSOR_FLOAT, 0);
    tri_proto_close(body, tensor);
    value_close(body, at);
    if (data->status != TRI_OK)
        body->status = data->status;
    tri_string_fini(&data->out);
}

static void experiment_put(tri_proto *body, const tri_hparam *hparams, int count, const char *const *metrics,
                           int metric_count)
{
    tri_proto data = {0};
    size_t experiment = tri_proto_open(&data, HPARAMS_EXPERIMENT);
    for (int i = 0; i < count; i++) {
        size_t info = tri_proto_open(&data, EXPERIMENT_HPARAM);
        tri_proto_text(&data, INFO_NAME, hparams[i].name);
        tri_proto_int(&data, INFO_TYPE, hparams[i].text ? TYPE_TEXT : TYPE_NUMBER);
        tri_proto_close(&data, info);
    }
    for (int i = 0; i < metric_count; i++) {
        size_t info = tri_proto_open(&data, EXPERIMENT_METRIC), name = tri_proto_open(&data, METRIC_NAME);
        tri_proto_text(&data, METRIC_TAG, metrics[i]);
        tri_proto_close(&data, name);
        tri_proto_close(&data, info);
    }
    tri_proto_close(&data, experiment);
    hparams_put(body, "_hparams_/experiment", &data);
}

void tri_summary_session_start(tri_proto *body, const tri_hparam *hparams, int count, const char *const *metrics,
                               int metric_count, double wall_s)
{
    tri_proto data = {0};
    experiment_put(body, hparams, count, metrics, metric_count);
    size_t start = tri_proto_open(&data, HPARAMS_START);
    for (int i = 0; i < count; i++) {
        size_t entry = tri_proto_open(&data, START_HPARAMS);
        tri_proto_text(&data, ENTRY_KEY, hparams[i].name);
        size_t value = tri_proto_open(&data, ENTRY_VALUE);
        if (hparams[i].text)
            tri_proto_text(&data, STRUCT_TEXT, hparams[i].text);
        else
            tri_proto_double(&data, STRUCT_NUMBER, hparams[i].number);
        tri_proto_close(&data, value);
        tri_proto_close(&data, entry);
    }
    tri_proto_double(&data, START_TIME, wall_s);
    tri_proto_close(&data, start);
    hparams_put(body, "_hparams_/session_start_info", &data);
}

void tri_summary_session_end(tri_proto *body, bool succeeded, double wall_s)
{
    tri_proto data = {0};
    size_t end = tri_proto_open(&data, HPARAMS_END);
    tri_proto_int(&data, END_STATUS, succeeded ? STATUS_SUCCESS : STATUS_FAILURE);
    tri_proto_double(&data, END_TIME, wall_s);
    tri_proto_close(&data, end);
    hparams_put(body, "_hparams_/session_end_info", &data);
}
