/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.c: runs a fuzz target without libFuzzer: each seed, each prefix of it, each bit turned, then random mutations
 * for about a second. The numbers come from a fixed seed; "driver FILE..." runs files that a fuzzer found.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fuzz/fuzz.h"

#define LIMIT_NBYTES 4096
#define SECONDS      1.0

static uint64_t random_state = 88172645463325252u;

static uint64_t draw(uint64_t bound)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % bound;
}

/* A copy of exactly that many bytes, so that a sanitizer sees the first one too many. */
static void run(const unsigned char *bytes, size_t nbytes)
{
    unsigned char *copy = malloc(nbytes > 0 ? nbytes : 1);
    if (copy == NULL)
        abort();
    memcpy(copy, bytes, nbytes);
    LLVMFuzzerTestOneInput(copy, nbytes);
    free(copy);
}

static void run_seed(const tri_fuzz_seed *seed)
{
    unsigned char bytes[LIMIT_NBYTES];
    memcpy(bytes, seed->bytes, seed->nbytes);
    size_t accepted = tri_fuzz_accepted;
    run(bytes, seed->nbytes);
    if ((tri_fuzz_accepted > accepted) != seed->good) {
        printf("seed %td: want it to be %s\n", seed - tri_fuzz_seeds, seed->good ? "accepted" : "refused");
        exit(1);
    }
    for (size_t i = 0; i <= seed->nbytes; i++)
        run(bytes, i);
    for (size_t i = 0; i < seed->nbytes; i++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (unsigned char)(1 << bit);
            run(bytes, seed->nbytes);
            bytes[i] ^= (unsigned char)(1 << bit);
        }
}

/* Opens a gap at a random place and fills it. */
static size_t insert(unsigned char *bytes, size_t nbytes, const void *what, size_t count)
{
    if (nbytes + count > LIMIT_NBYTES)
        return nbytes;
    size_t at = draw(nbytes + 1);
    memmove(bytes + at + count, bytes + at, nbytes - at);
    memcpy(bytes + at, what, count);
    return nbytes + count;
}

static size_t mutate(unsigned char *bytes, size_t nbytes)
{
    static const unsigned char edges[] = {0, 1, 0x7f, 0x80, 0xff, '0', '9', '-', '"', '\n'};
    unsigned char byte = (unsigned char)draw(256);
    size_t at = nbytes > 0 ? draw(nbytes) : 0, count = nbytes > 0 ? draw(nbytes - at) + 1 : 0;
    switch (draw(6)) {
    case 0:
        if (nbytes > 0)
            bytes[at] = byte;
        return nbytes;
    case 1:
        if (nbytes > 0)
            bytes[at] = edges[draw(sizeof(edges))];
        return nbytes;
    case 2: /* out with some */
        memmove(bytes + at, bytes + at + count, nbytes - at - count);
        return nbytes - count;
    case 3:
        return insert(bytes, nbytes, &byte, 1);
    case 4: { /* twice */
        unsigned char part[64];
        count = count < sizeof(part) ? count : sizeof(part);
        memcpy(part, bytes + at, count);
        return insert(bytes, nbytes, part, count);
    }
    default: {
        const char *word = tri_fuzz_word_count > 0 ? tri_fuzz_words[draw(tri_fuzz_word_count)] : "\xff\xff\xff\xff";
        return insert(bytes, nbytes, word, strlen(word));
    }
    }
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int run_files(int count, char **paths)
{
    static unsigned char bytes[1 << 20];
    for (int i = 0; i < count; i++) {
        FILE *file = fopen(paths[i], "rb");
        if (file == NULL)
            return 1;
        run(bytes, fread(bytes, 1, sizeof(bytes), file));
        fclose(file);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return run_files(argc - 1, argv + 1);
    for (size_t i = 0; i < tri_fuzz_seed_count; i++)
        run_seed(&tri_fuzz_seeds[i]);
    long rounds = 0;
    for (double end = seconds_now() + SECONDS; seconds_now() < end; rounds++) {
        unsigned char bytes[LIMIT_NBYTES];
        const tri_fuzz_seed *seed = &tri_fuzz_seeds[draw(tri_fuzz_seed_count)];
        size_t nbytes = seed->nbytes;
        memcpy(bytes, seed->bytes, nbytes);
        for (uint64_t i = 1 + draw(8); i > 0; i--)
            nbytes = mutate(bytes, nbytes);
        run(bytes, nbytes);
    }
    printf("%zu seeds, %ld mutations, %zu accepted\n", tri_fuzz_seed_count, rounds, tri_fuzz_accepted);
    return 0;
}
