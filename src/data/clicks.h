/* SPDX-License-Identifier: Apache-2.0
 *
 * clicks.h: a log of clicks that is made up: what parameter servers and their tables are for.
 *
 * A sample has one key in each field, frequent ones far more often than others (Zipf), and a label: was it clicked? The
 * chance of that is a factorization machine's whose weights stay hidden: a sum over keys and over pairs of keys, so
 * that a linear model learns some of it and one with factors more. Everything is a pure function of (seed, index):
 * weights too, so that there is no table whatever the number of keys.
 */
#ifndef TRI_DATA_CLICKS_H
#define TRI_DATA_CLICKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"

typedef struct tri_clicks {
    tri_rng weights;
    uint64_t seed;
    int64_t keys; /* of all fields: field f has [f keys / fields, (f + 1) keys / fields), the first is the commonest */
    int fields;
    double linear, pair; /* what a weight and a factor are multiplied by */
} tri_clicks;

/* keys >= fields >= 1 */
tri_clicks tri_clicks_make(uint64_t seed, int fields, int64_t keys);
/* Fills keys[fields]; true: it was clicked. */
bool tri_clicks_sample(const tri_clicks *clicks, uint64_t index, uint64_t *keys);
/* What the chance of a click is. */
double tri_clicks_chance(const tri_clicks *clicks, const uint64_t *keys);

#endif
