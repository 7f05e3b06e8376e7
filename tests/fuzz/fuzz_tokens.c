/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_tokens.c: a byte of choices, then a token file, whose windows are drawn.
 */
#include "data/tokens.h"
#include "fuzz/fuzz.h"
#include "fuzz/fuzz_dataset.h"

#include <string.h>

size_t tri_fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    tri_data_config config;
    tri_source source;
    tri_dataset *dataset;
    if (nbytes < 1)
        return 0;
    tri_options_defaults(&tri_data_options, &config);
    config.context = 1 + (bytes[0] >> 4);
    config.windows = (tri_data_windows)(bytes[0] % 3);
    tri_token_files files = {.items = tri_alloc_zero(1, sizeof(tri_token_file))};
    TRI_ASSERT(files.items != NULL && tri_source_init(&source, bytes + 1, nbytes - 1, "fuzz") == TRI_OK);
    if (tri_token_file_parse(&source, bytes[0] & 4, &files.items[0]) != TRI_OK) {
        tri_token_files_close(&files);
        return 0;
    }
    files.count = 1;
    if (tri_tokens_parse(&config, bytes[0] & 8, true, &files, &dataset) == TRI_OK) {
        tri_fuzz_accepted++;
        fuzz_read(dataset);
    }
    return 0;
}

#define ZEROS  "\0\0\0\0\0\0\0\0"
#define ZEROS4 ZEROS ZEROS ZEROS ZEROS
/* 1,012 of them: the rest of the head of a file of llm.c. */
#define HEAD                                                                                                           \
    ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4    \
        ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS \
            ZEROS "\0\0\0\0"
const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED(
        "\x10TRITOKEN\x01\0\0\0\x02\0\0\0\x08\0\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0" ZEROS ZEROS ZEROS
        "\x01\0\x02\0\x03\0\x04\0\x05\0\x06\0\x07\0\x09\0"),
    TRI_FUZZ_SEED("\x05\0\0\x01\0\x02\0\x03\0\x04\0"),
    TRI_FUZZ_SEED("\x10\x88\xd8\x34\x01\1\0\0\0\4\0\0\0" HEAD "\1\0\2\0\3\0\4\0"),
    TRI_FUZZ_SEED("\x10\xa1\xd9\x34\x01\7\0\0\0\5\0\0\0" HEAD "\1\0\0\0\2\0\1\0\3\0\0\0\4\0\0\0\5\0\0\0"),
    TRI_FUZZ_REFUSED("\x10\x88\xd8\x34\x01\2\0\0\0\4\0\0\0" HEAD "\1\0\2\0\3\0\4\0"),
    TRI_FUZZ_REFUSED("\x10\0\0\x01\0\x02\0\x03\0\x04\0"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"TRITOKEN", "\x88\xd8\x34\x01", "\xa1\xd9\x34\x01",
                                      "\xff\xff\xff\xff\xff\xff\xff\x7f"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
