/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_csv.c: a table: the first byte chooses the kind of target, the rest is the file.
 */
#include "fuzz/fuzz.h"
#include "fuzz/fuzz_dataset.h"

size_t tri_fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    tri_data_config config;
    tri_source source;
    tri_dataset *dataset;
    if (nbytes < 1)
        return 0;
    tri_options_defaults(&tri_data_options, &config);
    config.classes = bytes[0] % 4 - 1;
    config.target_column = bytes[0] / 4 % 4 - 1;
    TRI_ASSERT(tri_source_init(&source, bytes + 1, nbytes - 1, "f") == TRI_OK);
    if (tri_csv_parse(&config, bytes[0] & 128, true, &source, NULL, &dataset) == TRI_OK) {
        tri_fuzz_accepted++;
        fuzz_read(dataset);
    }
    return 0;
}

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("\1a,b,c\n1,2.5,0\n-3,4e-4,1\n"),
    TRI_FUZZ_SEED("\1\xef\xbb\xbf\"a \"\"x\"\"\",b,c\r\n1,2.5,\"red\"\r\n\"2\",-1e3,blue\r\n\r\n"),
    TRI_FUZZ_SEED("\4"
                  "0.5,1,2\n-1,3,4\n"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"\"",          "\"\"", "\r\n", "\n", ",", "1e999", "nan", "99999999999999999999",
                                      "\x1f\x8b\x08"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
