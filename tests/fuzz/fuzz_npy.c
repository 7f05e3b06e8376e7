/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_npy.c: a pair of NumPy files: 2 bytes of where to cut, then both files.
 */
#include "fuzz/fuzz.h"
#include "fuzz/fuzz_dataset.h"

size_t tri_fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    tri_data_config config;
    tri_source x, y;
    tri_dataset *dataset;
    if (nbytes < 2)
        return 0;
    tri_options_defaults(&tri_data_options, &config);
    fuzz_sources(bytes, nbytes, &x, &y);
    if (tri_npy_parse(&config, &x, &y, &dataset) == TRI_OK) {
        tri_fuzz_accepted++;
        fuzz_read(dataset);
    }
    return 0;
}

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("\x00N\x93NUMPY\x01\x00<\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }\x0a"
                  "abcdefgh\x93NUMPY\x01\x00:\x00{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }"
                  "\x0a\x00\x01"),
    TRI_FUZZ_SEED("\x00H\x93NUMPY\x02\x00"
                  "8\x00\x00\x00{\"shape\":(2L,1,),'descr':'<f2','fortran_order':"
                  "False}  \x0a"
                  "abcd\x93NUMPY\x03\x00"
                  "3\x00\x00\x00{'descr':'<f8','fortran_order':Fals"
                  "e,'shape':(2,)}\x0a\x00\x00\x00\x00\x00\x00\xf0"
                  "?\x00\x00\x00\x00\x00\x00\x00@"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"'descr'",
                                      "'shape'",
                                      "'fortran_order'",
                                      "True",
                                      "False",
                                      "(",
                                      ")",
                                      "{",
                                      "}",
                                      ",",
                                      "[",
                                      "99999999999999999999",
                                      "4611686018427387904",
                                      "\x93NUMPY"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
