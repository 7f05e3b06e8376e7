/* SPDX-License-Identifier: Apache-2.0
 *
 * show_pictures.c: filters of the first layer, and the first samples of the test data with what the model takes them
 * for. Pictures of images alone: samples of H W C with one or three channels.
 *
 * A sample has a frame, green where the model is right and red where it is wrong, and below it two numbers: what it
 * was taken for, and what it is.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tensor/label.h"
#include "train/checkpointing/arrays.h"
#include "train/features/show.h"

#define GAP           2
#define FILTERS       64
#define FILTER_PIXELS 24 /* of a side, at least */
#define SAMPLE_PIXELS 56
#define DIGIT_WIDTH   3
#define DIGIT_HEIGHT  5
#define PREDICTED_TAG "predictions"

typedef struct colour {
    unsigned char channel[3];
} colour;
static const colour paper = {{255, 255, 255}}, ink = {{40, 40, 40}}, right = {{40, 150, 60}}, wrong = {{200, 40, 40}};

static bool is_image(tri_shape sample)
{
    return sample.ndim == 3 && (sample.dim[2] == 1 || sample.dim[2] == 3);
}

static tri_status picture_make(tri_picture *picture, int64_t width, int64_t height)
{
    *picture = (tri_picture){.width = width, .height = height, .channels = 3};
    picture->pixels = tri_alloc((size_t)width * (size_t)height * 3);
    if (!picture->pixels)
        return TRI_ENOMEM;
    memset(picture->pixels, paper.channel[0], (size_t)width * (size_t)height * 3);
    return TRI_OK;
}

static void box_fill(tri_picture *picture, int64_t x, int64_t y, int64_t width, int64_t height, colour fill)
{
    for (int64_t row = y; row < y + height && row < picture->height; row++)
        for (int64_t column = x; column < x + width && column < picture->width; column++)
            memcpy(picture->pixels + (row * picture->width + column) * 3, fill.channel, 3);
}

/* An image of height x width elements, each at values[(row * width + column) * step + channel * channel_step], drawn
 * with squares of `zoom` pixels; low is black. */
typedef struct small_image {
    const float *values;
    int64_t height, width, step, channels, channel_step, zoom;
    float low, high;
} small_image;

static void tile_draw(tri_picture *picture, int64_t x, int64_t y, const small_image *tile)
{
    for (int64_t i = 0; i < tile->height * tile->width; i++) {
        colour fill;
        for (int64_t c = 0; c < 3; c++) {
            float value = tile->values[i * tile->step + (c < tile->channels ? c : 0) * tile->channel_step];
            float part = tile->high > tile->low ? (value - tile->low) / (tile->high - tile->low) : 0.5f;
            fill.channel[c] = (unsigned char)lrintf(255 * (part >= 0 && part <= 1 ? part : part > 1 ? 1.0f : 0.0f));
        }
        box_fill(picture, x + i % tile->width * tile->zoom, y + i / tile->width * tile->zoom, tile->zoom, tile->zoom,
                 fill);
    }
}

static int64_t zoom_to(int64_t pixels, int64_t elements)
{
    return elements >= pixels ? 1 : (pixels + elements - 1) / elements;
}

static int64_t columns_of(int64_t count)
{
    return (int64_t)ceil(sqrt((double)count));
}

/* --- filters --- */

/* The first tensor as images, if that is what it holds: [D,C,kh,kw] of a convolution, [D,HWC] of a linear layer. */
static bool filters_find(const tri_job *job, small_image *shape)
{
    const tri_tensor_row *first = job->model.tensors.count > 0 ? &job->model.tensors.items[0] : NULL;
    const tri_shape *sample = &job->data.info.sample;
    if (!first || !is_image(*sample))
        return false;
    int64_t channels = sample->dim[2];
    const int64_t *dim = first->shape.dim;
    if (first->shape.ndim == 4 && dim[1] == channels)
        *shape = (small_image){.height = dim[2], .width = dim[3], .step = 1, .channel_step = dim[2] * dim[3]};
    else if (first->shape.ndim == 2 && dim[1] == tri_shape_count(*sample))
        *shape = (small_image){.height = sample->dim[0], .width = sample->dim[1], .step = channels, .channel_step = 1};
    else
        return false;
    shape->channels = channels;
    shape->zoom = zoom_to(FILTER_PIXELS, shape->width);
    return true;
}

static tri_status filters_draw(tri_job *job, small_image filter, const float *values)
{
    const tri_tensor_row *first = &job->model.tensors.items[0];
    int64_t each = first->count / first->shape.dim[0], count = first->shape.dim[0];
    char tag[256];
    tri_picture picture;
    count = count < FILTERS ? count : FILTERS;
    for (int64_t i = 0; i < count * each; i++)
        filter.high = fabsf(values[i]) > filter.high ? fabsf(values[i]) : filter.high;
    filter.low = -filter.high;
    int64_t columns = columns_of(count), wide = filter.width * filter.zoom + GAP;
    int64_t high = filter.height * filter.zoom + GAP;
    TRI_TRY(picture_make(&picture, columns * wide + GAP, (count + columns - 1) / columns * high + GAP));
    for (int64_t i = 0; i < count; i++) {
        filter.values = values + i * each;
        tile_draw(&picture, GAP + i % columns * wide, GAP + i / columns * high, &filter);
    }
    snprintf(tag, sizeof(tag), "filters/%.200s", first->name);
    tri_status status = tri_summary_picture(&tri_show_of(job)->body, tag, &picture);
    tri_free(picture.pixels);
    return status;
}

/* Rank 0, of windows of whoever holds them. */
static tri_status filters_read(tri_job *job, float *array, float *values)
{
    const float *window;
    for (int64_t at = 0, count = 0, all = job->model.tensors.items[0].count; at < all; at += count) {
        count = all - at;
        TRI_TRY(tri_shard_map_read(job->placement.weights_at, array, at, &count, &window));
        memcpy(values + at, window, (size_t)count * sizeof(float));
    }
    return TRI_OK;
}

static tri_status filters_write(tri_job *job, float *array)
{
    small_image shape;
    if (!filters_find(job, &shape))
        return TRI_OK;
    if (job->rank > 0)
        return tri_shard_map_is_spread(job->placement.weights_at)
                   ? tri_shard_map_give(job->placement.weights_at, array, 0)
                   : TRI_OK;
    float *values = tri_alloc((size_t)job->model.tensors.items[0].count * sizeof(float));
    tri_status status = values ? filters_read(job, array, values) : TRI_ENOMEM;
    if (status == TRI_OK && tri_show_of(job)->file)
        status = filters_draw(job, shape, values);
    tri_free(values);
    return status;
}

/* --- predictions --- */

tri_status tri_show_pictures_open(tri_job *job)
{
    tri_show_samples *samples = &tri_show_of(job)->samples;
    bool classes = job->data.info.classes > 1 && tri_shape_count(job->data.info.target) == 1;
    if (job->config.monitor.image_every == 0 || !is_image(job->data.info.sample) || !classes)
        return TRI_OK;
    samples->elements = tri_shape_count(job->data.info.sample);
    samples->classes = job->data.info.classes;
    samples->inputs = tri_alloc((size_t)(TRI_SHOW_SAMPLES * samples->elements) * sizeof(float));
    samples->logits = tri_alloc((size_t)(TRI_SHOW_SAMPLES * samples->classes) * sizeof(float));
    samples->targets = tri_alloc(TRI_SHOW_SAMPLES * sizeof(int32_t));
    return samples->inputs && samples->logits && samples->targets ? TRI_OK : TRI_ENOMEM;
}

void tri_show_batch(tri_job *job, const tri_batch *batch)
{
    tri_job_show *show = tri_show_of(job);
    tri_show_samples *samples = show ? &show->samples : NULL;
    const float *logits = samples && samples->targets && job->model.graph ? tri_graph_logits(job->model.graph) : NULL;
    if (!logits || job->rank > 0 || !batch->input || !batch->target)
        return;
    samples->count = batch->rows[0] < TRI_SHOW_SAMPLES ? batch->rows[0] : TRI_SHOW_SAMPLES;
    memcpy(samples->inputs, batch->input, (size_t)(samples->count * samples->elements) * sizeof(float));
    for (int64_t i = 0; i < samples->count; i++)
        samples->targets[i] = tri_label_main(((const int32_t *)batch->target)[i]);
    memcpy(samples->logits, logits, (size_t)(samples->count * samples->classes) * sizeof(float));
}

static int64_t best_of(const float *logits, int64_t count)
{
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static double probability_of(const float *logits, int64_t count, int64_t one)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - (double)logits[one]);
    return 1 / sum;
}

/* Five rows of three pixels, the highest bit first. */
static const unsigned short digits[10] = {075557, 026227, 071747, 071717, 055711,
                                          074717, 074757, 071111, 075757, 075717};

static int64_t number_draw(tri_picture *picture, int64_t x, int64_t y, int64_t zoom, int64_t number, colour fill)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)number);
    for (const char *digit = text; *digit; digit++, x += (DIGIT_WIDTH + 1) * zoom)
        for (int bit = 0; *digit >= '0' && bit < DIGIT_WIDTH * DIGIT_HEIGHT; bit++)
            if (digits[*digit - '0'] >> (DIGIT_WIDTH * DIGIT_HEIGHT - 1 - bit) & 1)
                box_fill(picture, x + bit % DIGIT_WIDTH * zoom, y + bit / DIGIT_WIDTH * zoom, zoom, zoom, fill);
    return x;
}

static void sample_draw(tri_picture *picture, int64_t x, int64_t y, const tri_show_samples *samples, int64_t i,
                        small_image *sample)
{
    const float *values = samples->inputs + i * samples->elements;
    int64_t found = best_of(samples->logits + i * samples->classes, samples->classes);
    colour frame = found == samples->targets[i] ? right : wrong;
    int64_t width = sample->width * sample->zoom, height = sample->height * sample->zoom;
    sample->values = values;
    sample->low = sample->high = values[0];
    for (int64_t e = 0; e < samples->elements; e++) {
        sample->low = values[e] < sample->low ? values[e] : sample->low;
        sample->high = values[e] > sample->high ? values[e] : sample->high;
    }
    box_fill(picture, x, y, width + 2 * GAP, height + 2 * GAP, frame);
    tile_draw(picture, x + GAP, y + GAP, sample);
    int64_t below = y + height + 3 * GAP;
    int64_t end = number_draw(picture, x + GAP, below, GAP, found, frame);
    number_draw(picture, end + 4 * GAP, below, GAP, samples->targets[i], ink);
}

static tri_status samples_draw(tri_job *job)
{
    tri_job_show *show = tri_show_of(job);
    const tri_show_samples *samples = &show->samples;
    const int64_t *dim = job->data.info.sample.dim;
    tri_picture picture;
    small_image sample = {.height = dim[0],
                          .width = dim[1],
                          .step = dim[2],
                          .channels = dim[2],
                          .channel_step = 1,
                          .zoom = zoom_to(SAMPLE_PIXELS, dim[1])};
    int64_t columns = columns_of(samples->count), rows = (samples->count + columns - 1) / columns;
    int64_t wide = sample.width * sample.zoom + 4 * GAP, high = sample.height * sample.zoom + (DIGIT_HEIGHT + 6) * GAP;
    TRI_TRY(picture_make(&picture, columns * wide + GAP, rows * high + GAP));
    for (int64_t i = 0; i < samples->count; i++)
        sample_draw(&picture, GAP + i % columns * wide, GAP + i / columns * high, samples, i, &sample);
    tri_status status = tri_summary_picture(&show->body, PREDICTED_TAG, &picture);
    tri_free(picture.pixels);
    return status;
}

static tri_status samples_tell(tri_job *job)
{
    tri_job_show *show = tri_show_of(job);
    const tri_show_samples *samples = &show->samples;
    tri_string text = {0};
    tri_status status =
        tri_string_append(&text, "| sample | taken for | probability | is |\n| --- | --- | --- | --- |\n");
    for (int64_t i = 0; i < samples->count && status == TRI_OK; i++) {
        const float *logits = samples->logits + i * samples->classes;
        int64_t found = best_of(logits, samples->classes);
        status = tri_string_appendf(&text, "| %lld | %lld | %.3f | %d |\n", (long long)i, (long long)found,
                                    probability_of(logits, samples->classes, found), (int)samples->targets[i]);
    }
    if (status == TRI_OK)
        tri_summary_text(&show->body, PREDICTED_TAG "/table", tri_string_text(&text));
    tri_string_fini(&text);
    return status;
}

tri_status tri_show_pictures_write(tri_job *job)
{
    const tri_job_show *show = tri_show_of(job);
    tri_job_arrays arrays;
    tri_status status = tri_job_arrays_open(job, false, &arrays);
    if (status == TRI_OK)
        status = filters_write(job, arrays.views[0].host);
    tri_job_arrays_close(&arrays);
    if (status == TRI_OK && show->file && show->samples.count > 0) {
        status = samples_draw(job);
        if (status == TRI_OK)
            status = samples_tell(job);
    }
    return status;
}
