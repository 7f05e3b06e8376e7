/* SPDX-License-Identifier: Apache-2.0
 *
 * clicks.c: a log of clicks that is made up.
 */
#include "data/clicks.h"

#include <math.h>

#define EXPONENT                                                                                                       \
    1.1 /* of the law: key k of a field comes as often as k^-1.1 says, about as in logs of advertisements */
#define BIAS    -1.2 /* about every fourth is clicked */
#define FACTORS 3

tri_clicks tri_clicks_make(uint64_t seed, int fields, int64_t keys)
{
    /* Numbers in [-1, 1) have a variance of a third. Both sums have a deviation of about 1.2 whatever the fields. */
    double pairs = fields > 1 ? 0.5 * fields * (fields - 1) : 1;
    return (tri_clicks){.weights = {seed, tri_rng_stream("clicks weight", 0, 0)},
                        .seed = seed,
                        .keys = keys,
                        .fields = fields,
                        .linear = 1.2 * sqrt(3.0 / fields),
                        .pair = 1.2 * sqrt(9.0 / (FACTORS * pairs))};
}

/* The place of a key in its field, by the inverse of the law's integral. */
static uint64_t place_of(double uniform, uint64_t count)
{
    double power = 1 - EXPONENT, end = pow((double)count + 1, power);
    uint64_t place = (uint64_t)(pow(1 + uniform * (end - 1), 1 / power) - 1);
    return place < count ? place : count - 1;
}

double tri_clicks_chance(const tri_clicks *clicks, const uint64_t *keys)
{
    /* The sum over pairs is half of (square of the sum - sum of squares), factor by factor. */
    double linear = 0, sums[FACTORS] = {0}, squares[FACTORS] = {0}, pairs = 0;
    for (int f = 0; f < clicks->fields; f++) {
        float numbers[1 + FACTORS];
        tri_rng_fill_uniform(clicks->weights, (1 + FACTORS) * keys[f], 1 + FACTORS, numbers);
        linear += 2 * (double)numbers[0] - 1;
        for (int i = 0; i < FACTORS; i++) {
            double factor = 2 * (double)numbers[1 + i] - 1;
            sums[i] += factor;
            squares[i] += factor * factor;
        }
    }
    for (int i = 0; i < FACTORS; i++)
        pairs += 0.5 * (sums[i] * sums[i] - squares[i]);
    return 1 / (1 + exp(-(BIAS + clicks->linear * linear + clicks->pair * pairs)));
}

bool tri_clicks_sample(const tri_clicks *clicks, uint64_t index, uint64_t *keys)
{
    tri_rng rng = {clicks->seed, tri_rng_stream("clicks sample", index, 0)};
    uint64_t fields = (uint64_t)clicks->fields, all = (uint64_t)clicks->keys;
    for (uint64_t f = 0; f < fields; f++) {
        uint64_t first = f * all / fields, end = (f + 1) * all / fields;
        uint64_t word = tri_rng_u64(rng, f);
        keys[f] = first + place_of((double)(word >> 11) * 0x1p-53, end - first);
    }
    return (double)(tri_rng_u64(rng, fields) >> 11) * 0x1p-53 < tri_clicks_chance(clicks, keys);
}
