/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_tar.c: a tar file in WebDataset's form, and its index: what was found, is written and read back.
 */
#include <stdio.h>
#include <string.h>

#include "data/tar/samples.h"
#include "fuzz/fuzz.h"

#define HEAD "head\n"

size_t tri_fuzz_accepted;

static void index_check(const tri_tar_samples *samples)
{
    tri_string text = {0};
    tri_tar_samples copy;
    TRI_ASSERT(tri_tar_index_print(samples, HEAD, &text) == TRI_OK);
    TRI_ASSERT(tri_tar_index_parse(text.text, text.nbytes, HEAD, &copy));
    TRI_ASSERT(copy.items.count == samples->items.count && copy.others == samples->others);
    for (size_t i = 0; i < copy.items.count; i++) {
        const tri_tar_sample *a = tri_vector_at(&samples->items, i), *b = tri_vector_at(&copy.items, i);
        TRI_ASSERT(a->at == b->at && a->nbytes == b->nbytes && a->hash == b->hash && strcmp(a->label, b->label) == 0);
    }
    tri_tar_samples_fini(&copy);
    tri_string_fini(&text);
}

/* Nobody guesses the sums of headers. */
static void sums_write(uint8_t *bytes, size_t nbytes)
{
    for (size_t at = 0; at + 512 <= nbytes; at += 512) {
        unsigned sum = 0;
        char text[8];
        if (memcmp(bytes + at + 257, "ustar", 5) != 0)
            continue;
        memset(bytes + at + 148, ' ', 8);
        for (size_t i = 0; i < 512; i++)
            sum += bytes[at + i];
        snprintf(text, sizeof(text), "%06o", sum);
        memcpy(bytes + at + 148, text, sizeof(text));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    tri_source source;
    tri_tar_samples samples;
    if (nbytes < 1)
        return 0;
    uint8_t *copy = tri_alloc(nbytes);
    memcpy(copy, bytes + 1, nbytes - 1);
    if (bytes[0] & 2)
        sums_write(copy, nbytes - 1);
    if (bytes[0] & 4 && tri_tar_index_parse((const char *)copy, nbytes - 1, HEAD, &samples))
        tri_tar_samples_fini(&samples);
    TRI_ASSERT(tri_source_init(&source, copy, nbytes - 1, "f") == TRI_OK);
    if (tri_tar_samples_parse(&source, bytes[0] & 1 ? "field" : "", &samples) == TRI_OK) {
        for (size_t i = 0; i < samples.items.count; i++) {
            const tri_tar_sample *sample = tri_vector_at(&samples.items, i);
            TRI_ASSERT(sample->at <= source.nbytes && sample->nbytes <= source.nbytes - sample->at);
        }
        index_check(&samples);
        tri_fuzz_accepted++;
        tri_tar_samples_fini(&samples);
    }
    tri_source_fini(&source);
    tri_free(copy);
    return 0;
}

/* An entry, or a header and its content; the sums are right where the input asks for it. */
typedef struct seed_entry {
    char name[100], mode[24], size[12], time[12], sum[8], type, link[100], magic[8], rest[247];
    char content[512];
} seed_entry;

typedef struct seed_tar {
    char flags;
    seed_entry entries[3];
    char end[512];
} __attribute__((packed)) seed_tar;

static const seed_tar plain = {
    .flags = 2,
    .entries = {{.name = "a.png", .size = "5", .type = '0', .magic = "ustar", .content = "image"},
                {.name = "a.cls", .size = "2", .type = '0', .magic = "ustar", .content = "7\n"},
                {.name = "b.webp", .size = "5", .type = '0', .magic = "ustar", .content = "image"}}};
static const seed_tar described = {
    .flags = 2,
    .entries = {{.name = "x", .size = "27", .type = 'x', .magic = "ustar", .content = "14 path=a.jpg\n9 size=6\n"},
                {.name = "cut", .size = "5", .type = '0', .magic = "ustar", .content = "image"},
                {.name = "a.json", .size = "16", .type = '0', .magic = "ustar", .content = "{\"label\": \"b\"}"}}};
static const seed_tar long_name = {
    .flags = 2,
    .entries = {{.name = "././@LongLink", .size = "12", .type = 'L', .magic = "ustar", .content = "dir/a.jpeg"},
                {.name = "cut", .size = "5", .type = '0', .magic = "ustar", .content = "image"},
                {.name = "dir/a.txt", .size = "5", .type = '0', .magic = "ustar", .content = "a dog"}}};

const tri_fuzz_seed tri_fuzz_seeds[] = {
    {&plain, sizeof(plain), true}, {&described, sizeof(described), true}, {&long_name, sizeof(long_name), true}};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"ustar", "path=", "size=",          ".cls",
                                      ".json", ".png",  "{\"label\": 1}", "GNU.sparse."};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
