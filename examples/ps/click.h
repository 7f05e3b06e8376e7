/* SPDX-License-Identifier: Apache-2.0
 *
 * click.h: a log of clicks as large as one likes: fields whose values follow a power law, and a click that depends on
 * some of them and on pairs. Sample i is a function of i alone, so workers need no file.
 */
#ifndef TRIREME_EXAMPLE_CLICK_H
#define TRIREME_EXAMPLE_CLICK_H

#include <math.h>
#include <stdint.h>

#define CLICK_FIELDS 8

typedef struct click {
    uint64_t keys[CLICK_FIELDS]; /* field in the upper bits, its value in the lower ones */
    float clicked;               /* 0 or 1 */
} click;

/* Mixes a number: the same in, the same out (splitmix64). */
static inline uint64_t click_mix(uint64_t number)
{
    number += UINT64_C(0x9e3779b97f4a7c15);
    number = (number ^ (number >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ (number >> 27)) * UINT64_C(0x94d049bb133111eb);
    return number ^ (number >> 31);
}

/* In [0, 1). */
static inline double click_uniform(uint64_t number)
{
    return (double)(click_mix(number) >> 11) * 0x1p-53;
}

/* A value in [0, count): small ones are often, value v about as often as 1 / (v + 1). */
static inline uint64_t click_power(uint64_t number, uint64_t count)
{
    uint64_t value = (uint64_t)(pow((double)count + 1, click_uniform(number)) - 1);
    return value < count ? value : count - 1;
}

static inline click click_make(uint64_t index, uint64_t values)
{
    click out = {{0}, 0};
    double score = -0.5;
    for (uint64_t f = 0; f < CLICK_FIELDS; f++) {
        out.keys[f] = f << 40 | click_power(index * CLICK_FIELDS + f, values);
        if (f < 4)
            score += 1.2 * (click_uniform(out.keys[f] * 31) - 0.5);
    }
    score += click_mix(out.keys[0]) % 2 == click_mix(out.keys[5]) % 2 ? 1.0 : -1.0;
    out.clicked = click_uniform(~index) < 1 / (1 + exp(-2 * score)) ? 1.0f : 0.0f;
    return out;
}

/* What a click costs whose score is this, and the slope of that. */
static inline double click_loss(double score, double clicked, double *slope)
{
    double probability = 1 / (1 + exp(-score));
    *slope = probability - clicked;
    return log1p(exp(-fabs(score))) + (score > 0 ? score : 0) - clicked * score;
}

#endif
