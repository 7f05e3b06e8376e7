/* SPDX-License-Identifier: Apache-2.0
 *
 * resize.c: separable resampling as Pillow does it: a filter as wide as the scale, weights in fixed point, rows first,
 * rounded to bytes between the two passes. B: taps of an output pixel.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/images/image.h"

#define WEIGHT_BITS 22 /* 255 times the sum of weights stays below 2^31 */

/* Output pixel i of [first, first + count) is the sum of inputs start[i] to start[i] + taps[i] - 1 by its weights. */
typedef struct resample_axis {
    int64_t count, most_taps;
    int32_t *start, *taps, *weights; /* weights: [count][most_taps] */
    double *real;                    /* [most_taps] weights of one pixel before rounding */
} resample_axis;

static double filter_weight(tri_image_filter filter, double x)
{
    if (filter == TRI_IMAGE_AREA)
        return x > -0.5 && x <= 0.5 ? 1 : 0;
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static void axis_fini(resample_axis *axis)
{
    tri_free(axis->start);
    tri_free(axis->taps);
    tri_free(axis->weights);
    tri_free(axis->real);
}

static void weights_fill(resample_axis *axis, int64_t i, double center, double stretch, tri_image_filter filter)
{
    int32_t *weights = axis->weights + i * axis->most_taps;
    double sum = 0;
    for (int32_t k = 0; k < axis->taps[i]; k++)
        sum += axis->real[k] = filter_weight(filter, (axis->start[i] + k - center + 0.5) / stretch);
    for (int32_t k = 0; k < axis->taps[i]; k++) {
        const double share = sum != 0 ? axis->real[k] / sum : axis->real[k];
        weights[k] = (int32_t)(0.5 + share * (1 << WEIGHT_BITS));
    }
}

/* window: [at, at + extent) of `length` inputs becomes `whole` outputs, of which `count` from `first` on are wanted. */
static tri_status axis_init(resample_axis *axis, int64_t length, double at, double extent, int64_t whole, int64_t first,
                            int64_t count, tri_image_filter filter)
{
    const double scale = extent / (double)whole, stretch = scale < 1 ? 1 : scale;
    const double support = stretch * (filter == TRI_IMAGE_AREA ? 0.5 : 1);
    axis->count = count;
    axis->most_taps = 2 * (int64_t)ceil(support) + 1;
    axis->start = tri_alloc((size_t)count * sizeof(int32_t));
    axis->taps = tri_alloc((size_t)count * sizeof(int32_t));
    axis->weights = tri_alloc_zero((size_t)(count * axis->most_taps), sizeof(int32_t));
    axis->real = tri_alloc((size_t)axis->most_taps * sizeof(double));
    if (axis->start == NULL || axis->taps == NULL || axis->weights == NULL || axis->real == NULL)
        return TRI_ENOMEM;
    for (int64_t i = 0; i < count; i++) {
        const double center = at + ((double)(first + i) + 0.5) * scale;
        int64_t from = (int64_t)(center - support + 0.5), to = (int64_t)(center + support + 0.5);
        from = from < 0 ? 0 : from;
        to = to > length ? length : to;
        axis->start[i] = (int32_t)from;
        axis->taps[i] = (int32_t)(to - from);
        weights_fill(axis, i, center, stretch, filter);
    }
    return TRI_OK;
}

static uint8_t to_byte(int32_t sum)
{
    const int32_t value = sum >> WEIGHT_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void row_of_three(const resample_axis *axis, const uint8_t *from, uint8_t *to)
{
    for (int64_t i = 0; i < axis->count; i++, to += 3) {
        const int32_t *weights = axis->weights + i * axis->most_taps;
        const uint8_t *pixel = from + 3 * (int64_t)axis->start[i];
        int32_t red = 1 << (WEIGHT_BITS - 1), green = red, blue = red;
        for (int32_t k = 0; k < axis->taps[i]; k++, pixel += 3) {
            red += weights[k] * pixel[0];
            green += weights[k] * pixel[1];
            blue += weights[k] * pixel[2];
        }
        to[0] = to_byte(red);
        to[1] = to_byte(green);
        to[2] = to_byte(blue);
    }
}

static void row_of_one(const resample_axis *axis, const uint8_t *from, uint8_t *to)
{
    for (int64_t i = 0; i < axis->count; i++) {
        const int32_t *weights = axis->weights + i * axis->most_taps;
        int32_t sum = 1 << (WEIGHT_BITS - 1);
        for (int32_t k = 0; k < axis->taps[i]; k++)
            sum += weights[k] * from[axis->start[i] + k];
        to[i] = to_byte(sum);
    }
}

/* Row i of the result from the rows that `rows` begins with. */
static void column_pass(const resample_axis *axis, int64_t i, const uint8_t *rows, int64_t line, int32_t *sums,
                        uint8_t *to)
{
    const int32_t *weights = axis->weights + i * axis->most_taps;
    for (int64_t x = 0; x < line; x++)
        sums[x] = 1 << (WEIGHT_BITS - 1);
    for (int32_t k = 0; k < axis->taps[i]; k++) {
        const uint8_t *row = rows + k * line;
        const int32_t weight = weights[k];
        for (int64_t x = 0; x < line; x++)
            sums[x] += weight * row[x];
    }
    for (int64_t x = 0; x < line; x++)
        to[x] = to_byte(sums[x]);
}

static tri_status resample(const tri_image *from, const resample_axis *across, const resample_axis *down, uint8_t *to)
{
    const int64_t first = down->start[0], line = across->count * from->channels;
    const int64_t end = down->start[down->count - 1] + down->taps[down->count - 1];
    uint8_t *rows = tri_alloc((size_t)((end - first) * line));
    int32_t *sums = tri_alloc((size_t)line * sizeof(int32_t));
    if (rows == NULL || sums == NULL) {
        tri_free(rows);
        tri_free(sums);
        return TRI_ENOMEM;
    }
    for (int64_t y = first; y < end; y++)
        (from->channels == 3 ? row_of_three : row_of_one)(across, from->pixels + y * from->width * from->channels,
                                                          rows + (y - first) * line);
    for (int64_t i = 0; i < down->count; i++)
        column_pass(down, i, rows + (down->start[i] - first) * line, line, sums, to + i * line);
    tri_free(rows);
    tri_free(sums);
    return TRI_OK;
}

/* Nothing is scaled: pixels are copied. */
static bool is_copy(const tri_image_resize_plan *plan)
{
    return plan->window_width == (double)plan->whole_width && plan->window_height == (double)plan->whole_height &&
           plan->x == floor(plan->x) && plan->y == floor(plan->y);
}

/* to: [height][width][channels]. Integer arithmetic; equal to Pillow's resize(box=) and crop(). TRI_ENOMEM. */
static tri_status image_resize(const tri_image *from, const tri_image_resize_plan *plan, uint8_t *to)
{
    if (is_copy(plan)) {
        const int64_t left = (int64_t)plan->x + plan->left, top = (int64_t)plan->y + plan->top;
        const size_t line = (size_t)(plan->width * from->channels);
        for (int64_t y = 0; y < plan->height; y++)
            memcpy(to + (size_t)y * line, from->pixels + ((top + y) * from->width + left) * from->channels, line);
        return TRI_OK;
    }
    resample_axis across = {0}, down = {0};
    tri_status status = axis_init(&across, from->width, plan->x, plan->window_width, plan->whole_width, plan->left,
                                  plan->width, plan->filter);
    if (status == TRI_OK)
        status = axis_init(&down, from->height, plan->y, plan->window_height, plan->whole_height, plan->top,
                           plan->height, plan->filter);
    if (status == TRI_OK)
        status = resample(from, &across, &down, to);
    axis_fini(&across);
    axis_fini(&down);
    return status;
}

/* --- samples --- */

tri_status tri_image_fit_read(const tri_data_config *config, tri_image_fit *out)
{
    long long height = 0, width = 0;
    char rest;
    const int found = config->image_size[0] ? sscanf(config->image_size, "%lldx%lld%c", &height, &width, &rest) : 0;
    if (found == 1 && strchr(config->image_size, 'x') == NULL)
        width = height;
    const bool valid = !config->image_size[0] ||
                       (found >= 1 && found <= 2 && height >= 1 && width >= 1 && height <= 65536 && width <= 65536 &&
                        strspn(config->image_size, "0123456789x") == strlen(config->image_size));
    if (!valid)
        return tri_fail(TRI_ECONFIG,
                        "data.image_size: want a number of pixels such as 224, or height x width such as "
                        "160x224, got '%s'",
                        config->image_size);
    *out = (tri_image_fit){.height = height,
                           .width = width,
                           .exact = config->image_resize == TRI_RESIZE_EXACT,
                           .filter = config->image_filter,
                           .channels = config->image_color == TRI_IMAGE_GRAY ? 1 : 3};
    return TRI_OK;
}

/* Half of what is left over, a half of a pixel to the even side: as torchvision's center_crop(). */
static int64_t half_of(int64_t rest)
{
    const int64_t half = rest / 2;
    return rest % 2 == 1 && half % 2 == 1 ? half + 1 : half;
}

tri_status tri_image_fit_apply(const tri_image_fit *fit, const tri_image *image, const tri_image_window *window,
                               uint8_t *sample)
{
    tri_image_resize_plan plan = {.window_width = (double)image->width,
                                  .window_height = (double)image->height,
                                  .whole_width = fit->width,
                                  .whole_height = fit->height,
                                  .width = fit->width,
                                  .height = fit->height,
                                  .filter = fit->filter};
    if (window != NULL) {
        plan.x = (double)window->left;
        plan.y = (double)window->top;
        plan.window_width = (double)window->width;
        plan.window_height = (double)window->height;
    } else if (!fit->exact) {
        const bool by_width = fit->width * image->height >= fit->height * image->width;
        if (by_width)
            plan.whole_height = fit->width * image->height / image->width;
        else
            plan.whole_width = fit->height * image->width / image->height;
        plan.left = half_of(plan.whole_width - fit->width);
        plan.top = half_of(plan.whole_height - fit->height);
    }
    return image_resize(image, &plan, sample);
}
