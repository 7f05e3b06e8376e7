/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_idx.c: images and labels of IDX, plain or gzip: 2 bytes of where to cut, then both files.
 */
#include "fuzz/fuzz.h"
#include "fuzz/fuzz_dataset.h"

size_t tri_fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    tri_data_config config;
    tri_source images, labels;
    tri_dataset *dataset;
    if (nbytes < 2)
        return 0;
    tri_options_defaults(&tri_data_options, &config);
    fuzz_sources(bytes, nbytes, &images, &labels);
    if (tri_idx_parse(&config, &images, &labels, &dataset) == TRI_OK) {
        tri_fuzz_accepted++;
        fuzz_read(dataset);
    }
    return 0;
}

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("\x00\x1c\x00\x00\x08\x03\x00\x00\x00\x03\x00\x00\x00\x02\x00\x00\x00\x02"
                  "abcdefghijkl"
                  "\x00\x00\x08\x01\x00\x00\x00\x03\x00\x01\x02"),
    TRI_FUZZ_SEED("\x00\x18\x00\x00\x0d\x02\x00\x00\x00\x03\x00\x00\x00\x01"
                  "abcdefghijkl\x00\x00\x0c\x01"
                  "\x00\x00\x00\x03\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x00"),
    TRI_FUZZ_SEED("\x00$\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x01\x0d\x00\xf2\xff\x00\x00\x08\x02\x00\x00"
                  "\x00\x01\x00\x00\x00\x01x\x10l\xdb=\x0d\x00\x00\x00\x00\x00\x08\x01\x00\x00\x00\x01\x00"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"\x1f\x8b\x08", "\xff\xff\xff\xff", "\x7f\xff\xff\xff", "\x01\x01\x01\x01"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
