/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz.h: a fuzz target: one parser of outside bytes, and seeds to start from.
 *
 * The same file links with libFuzzer (TRI_FUZZ) or with driver.c, which CTest runs for a second.
 */
#ifndef TRI_TEST_FUZZ_H
#define TRI_TEST_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes);

typedef struct tri_fuzz_seed {
    const void *bytes;
    size_t nbytes;
    bool good; /* accepted by the parser: else the seed would lead nowhere */
} tri_fuzz_seed;
#define TRI_FUZZ_SEED(text)                                                                                            \
    {                                                                                                                  \
        text, sizeof(text) - 1, true                                                                                   \
    }
#define TRI_FUZZ_REFUSED(text)                                                                                         \
    {                                                                                                                  \
        text, sizeof(text) - 1, false                                                                                  \
    }
/* Inputs that the parser accepted so far: the target counts. */
extern size_t tri_fuzz_accepted;
/* For the driver, and for libFuzzer to begin with (seeds.c). */
extern const tri_fuzz_seed tri_fuzz_seeds[];
extern const size_t tri_fuzz_seed_count;
/* Words that the parser knows: put in at random. */
extern const char *const tri_fuzz_words[];
extern const size_t tri_fuzz_word_count;

#endif
