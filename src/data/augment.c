/* SPDX-License-Identifier: Apache-2.0
 *
 * augment.c: draws windows, factors of colors and rectangles; padding, random crop and mirroring are one copy: the same
 * as cutting a window out of the padded image.
 */
#include "data/augment.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "data/images/image.h"
#include "tensor/label.h"

#define TRIES 10

/* Numbers of the stream of a sample: what each is for decides the bits, and is fixed. */
enum { DRAW_DOWN, DRAW_RIGHT, DRAW_MIRROR, DRAW_BRIGHTNESS, DRAW_CONTRAST, DRAW_SATURATION, DRAW_ERASE, DRAW_HUE };
enum { MIX_WHICH, MIX_X, MIX_Y }; /* of the stream "data mix" */
#define MIX_BETA       16         /* 2 for each try */
#define BETA_TRIES     64
#define DRAW_WINDOW    16 /* 5 for each try */
#define DRAW_RECTANGLE 80 /* 5 for each try */

static tri_rng rng_of(const tri_augment *augment, int64_t epoch, int64_t index)
{
    return (tri_rng){augment->seed, tri_rng_stream("data augment", (uint64_t)epoch, (uint64_t)index)};
}

/* In [0, 1). */
static double uniform(tri_rng rng, uint64_t number)
{
    return (double)(tri_rng_u64(rng, number) >> 11) * 0x1p-53;
}

/* A window of `area` pixels within height x width whose ratio of sides is 1 to `most` or the inverse, by three numbers
 * from `number` on; its place by two more. Only operations that IEEE 754 rounds exactly. */
static bool window_try(tri_rng rng, uint64_t number, double area, double most, int64_t height, int64_t width,
                       tri_image_window *out)
{
    const double ratio = 1 + (most - 1) * uniform(rng, number);
    const bool upright = tri_rng_below(rng, number + 1, 2) == 1;
    const int64_t longer = (int64_t)(sqrt(area * ratio) + 0.5), shorter = (int64_t)(sqrt(area / ratio) + 0.5);
    out->width = upright ? shorter : longer;
    out->height = upright ? longer : shorter;
    if (out->width < 1 || out->height < 1 || out->width > width || out->height > height)
        return false;
    out->left = (int64_t)tri_rng_below(rng, number + 2, (uint64_t)(width - out->width) + 1);
    out->top = (int64_t)tri_rng_below(rng, number + 3, (uint64_t)(height - out->height) + 1);
    return true;
}

/* The largest in the middle whose sides are at most 4/3 of each other. */
static void window_middle(int64_t height, int64_t width, tri_image_window *out)
{
    out->width = width > height * 4 / 3 ? height * 4 / 3 : width;
    out->height = height > width * 4 / 3 ? width * 4 / 3 : height;
    out->width = out->width < 1 ? 1 : out->width;
    out->height = out->height < 1 ? 1 : out->height;
    out->left = (width - out->width) / 2;
    out->top = (height - out->height) / 2;
}

void tri_augment_window(const tri_augment *augment, int64_t epoch, int64_t index, int64_t height, int64_t width,
                        tri_image_window *out)
{
    const tri_rng rng = rng_of(augment, epoch, index);
    for (uint64_t number = DRAW_WINDOW; number < DRAW_WINDOW + 5 * TRIES; number += 5) {
        const double fraction = augment->least_area + (1 - augment->least_area) * uniform(rng, number);
        if (window_try(rng, number + 1, fraction * (double)(height * width), 4.0 / 3, height, width, out))
            return;
    }
    window_middle(height, width, out);
}

/* --- colors --- */

/* 1 - range to 1 + range. */
static float factor_of(tri_rng rng, uint64_t number, double range)
{
    return (float)(1 + range * (2 * uniform(rng, number) - 1));
}

/* base + factor (pixel - base), as a byte. */
static uint8_t blend(float base, float factor, uint8_t pixel)
{
    const float value = base + factor * ((float)pixel - base);
    return (uint8_t)(value <= 0 ? 0 : value >= 255 ? 255 : value + 0.5f);
}

static uint8_t gray_of(const uint8_t *pixel, int64_t channels)
{
    return channels == 3 ? tri_image_gray(pixel) : pixel[0];
}

static float mean_gray(const uint8_t *pixels, int64_t count, int64_t channels)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += gray_of(pixels + i * channels, channels);
    return (float)(int64_t)((double)sum / (double)count + 0.5);
}

static void blend_all(uint8_t *pixels, int64_t count, float base, float factor)
{
    uint8_t table[256];
    for (int i = 0; i < 256; i++)
        table[i] = blend(base, factor, (uint8_t)i);
    for (int64_t i = 0; i < count; i++)
        pixels[i] = table[pixels[i]];
}

/* Turns the hue of an RGB pixel, in the circle of 6 colors; value and saturation stay. */
static void hue_turn(uint8_t *pixel, float turn)
{
    const float r = pixel[0], g = pixel[1], b = pixel[2];
    const float most = r > g ? (r > b ? r : b) : g > b ? g : b, least = r < g ? (r < b ? r : b) : g < b ? g : b;
    const float range = most - least;
    if (range <= 0)
        return;
    float hue = turn + (most == r ? (g - b) / range : most == g ? 2 + (b - r) / range : 4 + (r - g) / range);
    hue -= 6 * floorf(hue / 6);
    const int sector = hue < 6 ? (int)hue : 0;
    const float part = hue - (float)sector, falling = most - range * part, rising = least + range * part;
    const float colors[6][3] = {{most, rising, least},  {falling, most, least}, {least, most, rising},
                                {least, falling, most}, {rising, least, most},  {most, least, falling}};
    for (int c = 0; c < 3; c++)
        pixel[c] = (uint8_t)(colors[sector][c] + 0.5f);
}

void tri_augment_colors(const tri_augment *augment, int64_t epoch, int64_t index, uint8_t *pixels)
{
    const int64_t channels = augment->channels, count = augment->height * augment->width;
    const tri_rng rng = rng_of(augment, epoch, index);
    if (augment->brightness > 0)
        blend_all(pixels, count * channels, 0, factor_of(rng, DRAW_BRIGHTNESS, augment->brightness));
    if (augment->contrast > 0)
        blend_all(pixels, count * channels, mean_gray(pixels, count, channels),
                  factor_of(rng, DRAW_CONTRAST, augment->contrast));
    if (channels != 3)
        return;
    const float factor = factor_of(rng, DRAW_SATURATION, augment->saturation);
    for (uint8_t *pixel = pixels; augment->saturation > 0 && pixel < pixels + count * channels; pixel += 3) {
        const float gray = (float)gray_of(pixel, channels);
        for (int c = 0; c < 3; c++)
            pixel[c] = blend(gray, factor, pixel[c]);
    }
    const float turn = (float)(6 * augment->hue * (2 * uniform(rng, DRAW_HUE) - 1));
    for (uint8_t *pixel = pixels; augment->hue > 0 && pixel < pixels + count * channels; pixel += 3)
        hue_turn(pixel, turn);
}

void tri_augment_erase(const tri_augment *augment, int64_t epoch, int64_t index, float *image)
{
    const int64_t height = augment->height, width = augment->width, channels = augment->channels;
    const tri_rng rng = rng_of(augment, epoch, index);
    tri_image_window hole;
    bool found = false;
    if (!(uniform(rng, DRAW_ERASE) < augment->erase))
        return;
    for (uint64_t number = DRAW_RECTANGLE; !found && number < DRAW_RECTANGLE + 5 * TRIES; number += 5) {
        const double fraction = 0.02 + 0.31 * uniform(rng, number);
        found = window_try(rng, number + 1, fraction * (double)(height * width), 3.3, height, width, &hole);
    }
    for (int64_t y = hole.top; found && y < hole.top + hole.height; y++)
        memset(image + (y * width + hole.left) * channels, 0, (size_t)(hole.width * channels) * sizeof(float));
}

/* --- moves --- */

tri_augment_move tri_augment_draw(const tri_augment *augment, int64_t epoch, int64_t index)
{
    const tri_rng rng = rng_of(augment, epoch, index);
    uint64_t places = 2 * (uint64_t)augment->crop + 1;
    return (tri_augment_move){
        .down = (int64_t)tri_rng_below(rng, DRAW_DOWN, places) - augment->crop,
        .right = (int64_t)tri_rng_below(rng, DRAW_RIGHT, places) - augment->crop,
        .mirror = augment->flip && tri_rng_below(rng, DRAW_MIRROR, 2) == 1,
    };
}

void tri_augment_apply(const tri_augment *augment, tri_augment_move move, const float *from, const float *black,
                       float *to)
{
    int64_t height = augment->height, width = augment->width, channels = augment->channels;
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++) {
            int64_t source_y = y + move.down, source_x = (move.mirror ? width - 1 - x : x) + move.right;
            bool inside = source_y >= 0 && source_y < height && source_x >= 0 && source_x < width;
            const float *pixel = inside ? from + (source_y * width + source_x) * channels : black;
            memcpy(to, pixel, (size_t)channels * sizeof(float));
            to += channels;
        }
}

/* --- two images in one --- */

/* A number with the distribution Beta(alpha, alpha), alpha at most 1 (Joehnk, Metrika 1964). */
static double beta_draw(tri_rng rng, double alpha)
{
    for (uint64_t number = MIX_BETA; number < MIX_BETA + 2 * BETA_TRIES; number += 2) {
        const double u = uniform(rng, number), v = uniform(rng, number + 1);
        const double x = pow(u, 1 / alpha), y = pow(v, 1 / alpha);
        if (x + y <= 1)
            return x + y > 0 ? x / (x + y) : u > v ? 1 : 0;
    }
    return 0.5;
}

static int64_t clip(int64_t value, int64_t most)
{
    return value < 0 ? 0 : value > most ? most : value;
}

/* A rectangle of the other image, cut where it leaves this one. */
static void rectangle_draw(const tri_augment *augment, tri_rng rng, double stays, tri_augment_mix *out)
{
    const int64_t height = augment->height, width = augment->width;
    const double side = sqrt(1 - stays);
    const int64_t tall = (int64_t)((double)height * side), wide = (int64_t)((double)width * side);
    const int64_t x = (int64_t)tri_rng_below(rng, MIX_X, (uint64_t)width),
                  y = (int64_t)tri_rng_below(rng, MIX_Y, (uint64_t)height);
    out->top = clip(y - tall / 2, height);
    out->bottom = clip(y + tall / 2, height);
    out->left = clip(x - wide / 2, width);
    out->right = clip(x + wide / 2, width);
    const int64_t area = (out->bottom - out->top) * (out->right - out->left), all = height * width;
    out->share = (int32_t)(((all - area) * TRI_LABEL_WHOLE + all / 2) / all);
}

tri_augment_mix tri_augment_mix_draw(const tri_augment *augment, int64_t epoch, int64_t index)
{
    const tri_rng rng = {augment->seed, tri_rng_stream("data mix", (uint64_t)epoch, (uint64_t)index)};
    const bool both = augment->mixup > 0 && augment->cutmix > 0;
    const bool cuts = both ? tri_rng_below(rng, MIX_WHICH, 2) == 1 : augment->cutmix > 0;
    const double stays = beta_draw(rng, cuts ? augment->cutmix : augment->mixup);
    tri_augment_mix mix = {.weight = 1, .share = (int32_t)(stays * TRI_LABEL_WHOLE + 0.5)};
    if (cuts)
        rectangle_draw(augment, rng, stays, &mix);
    else
        mix.weight = (float)mix.share / TRI_LABEL_WHOLE;
    return mix;
}

static float weight_at(const tri_augment_mix *mix, int64_t y, int64_t x)
{
    return y >= mix->top && y < mix->bottom && x >= mix->left && x < mix->right ? 0 : mix->weight;
}

void tri_augment_mix_apply(const tri_augment *augment, const tri_augment_mix mixes[2], float *one, float *other)
{
    for (int64_t y = 0; y < augment->height; y++)
        for (int64_t x = 0; x < augment->width; x++) {
            const float a = weight_at(&mixes[0], y, x), b = weight_at(&mixes[1], y, x);
            for (int64_t c = 0; c < augment->channels; c++, one++, other++) {
                const float first = *one, second = *other;
                *one = a * first + (1 - a) * second;
                *other = b * second + (1 - b) * first;
            }
        }
}
