/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_lines.c: JSON lines: the first byte chooses between texts, their characters and a table.
 */
#include <string.h>

#include "data/lines/lines.h"
#include "fuzz/fuzz.h"
#include "fuzz/fuzz_dataset.h"

size_t tri_fuzz_accepted;

static void table_open(tri_source *source)
{
    tri_data_config config;
    tri_dataset *dataset = NULL;
    tri_options_defaults(&tri_data_options, &config);
    config.missing = TRI_MISSING_MEAN;
    strcpy(config.ignore, "[skip]");
    if (tri_lines_parse(&config, source, &dataset) != TRI_OK)
        return;
    int64_t *places = tri_alloc((size_t)dataset->info.count * sizeof(*places));
    for (int64_t i = 0; i < dataset->info.count; i++)
        places[i] = i;
    tri_status status = dataset->ops->learn(dataset, &config, places, dataset->info.count);
    tri_free(places);
    if (status != TRI_OK) {
        tri_dataset_close(dataset);
        return;
    }
    tri_fuzz_accepted++;
    fuzz_read(dataset);
}

static void texts_read(const tri_source *source)
{
    tri_string text = {0};
    const char *line;
    size_t nbytes;
    int64_t good = 0;
    const size_t cut = tri_lines_cut(source, source->nbytes / 2);
    TRI_ASSERT(cut <= source->nbytes && (cut == source->nbytes || cut == 0 || source->bytes[cut - 1] == '\n'));
    for (int half = 0; half < 2; half++) {
        tri_lines lines = {source, half ? cut : 0, half ? source->nbytes : cut};
        while (tri_lines_next(&lines, &line, &nbytes)) {
            TRI_ASSERT((const unsigned char *)line >= source->bytes && nbytes > 0);
            good += tri_line_text(source, line, nbytes, "text", &text) == TRI_OK;
        }
    }
    tri_string_clear(&text);
    (void)tri_lines_characters(source, "text", &text);
    tri_fuzz_accepted += good > 0;
    tri_string_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    tri_source source;
    if (nbytes < 1)
        return 0;
    TRI_ASSERT(tri_source_init(&source, bytes + 1, nbytes - 1, "f") == TRI_OK);
    if (bytes[0] & 1)
        table_open(&source);
    else
        texts_read(&source);
    tri_source_fini(&source);
    return 0;
}

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("\0\xef\xbb\xbf{\"text\": \"a\\u00e4\", \"n\": [1, {}]}\r\n\n{\"text\": \"\xe2\x82\xac\"}"),
    TRI_FUZZ_SEED("\1{\"skip\": [], \"x\": 1.5, \"kind\": \"a, \\\"b\\\"\", \"y\": 0}\n{\"y\": 1, \"x\": null, "
                  "\"kind\": \"c\"}\n"),
    TRI_FUZZ_SEED("\1{\"skip\": 0, \"a\": true, \"y\": \"no\"}\n{\"a\": false, \"y\": \"yes\"}\n{\"a\": false, \"y\": "
                  "\"yes\"}\n"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"{",     "}",    "\"text\"", ": ", "null", "\n", "\\ud83d\\ude00",
                                      "1e999", "\xff", "\"\""};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
