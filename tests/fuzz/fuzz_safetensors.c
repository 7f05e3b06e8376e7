/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_safetensors.c: a safetensors file; every byte of every tensor that it claims to hold is read.
 */
#include "base/status.h"
#include "checkpoint/safetensors.h"
#include "fuzz/fuzz.h"

size_t tri_fuzz_accepted;
volatile unsigned fuzz_sum; /* so that the reads are not left out */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    tri_safetensors *file;
    if (tri_safetensors_parse(bytes, nbytes, "f", &file) != TRI_OK)
        return 0;
    tri_fuzz_accepted++;
    for (int i = 0; i < tri_safetensors_count(file); i++) {
        const tri_stored_tensor *tensor = tri_safetensors_at(file, i);
        const uint8_t *values = tensor->bytes;
        TRI_ASSERT((size_t)tri_shape_count(tensor->shape) * tri_dtype_nbytes(tensor->dtype) == tensor->nbytes);
        TRI_ASSERT(tri_safetensors_find(file, tensor->name) == tensor);
        for (size_t j = 0; j < tensor->nbytes; j++)
            fuzz_sum += values[j];
    }
    (void)tri_safetensors_metadata(file, "format");
    tri_safetensors_close(file);
    return 0;
}

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("8\x00\x00\x00\x00\x00\x00\x00{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":["
                  "0,8]}}  abcdefgh"),
    TRI_FUZZ_SEED("\x90\x00\x00\x00\x00\x00\x00\x00{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":"
                  "\"U8\",\"shape\":[1,2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"I64\",\"shape\":[],\""
                  "data_offsets\":[2,10]}}     ab01234567"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"\"shape\":[0,1]",
                                      "18446744073709551615",
                                      "9223372036854775807",
                                      "[",
                                      "]",
                                      "{",
                                      "}",
                                      ",",
                                      "\"\\u0041\"",
                                      "\"BF16\"",
                                      "-1",
                                      "1e3",
                                      " "};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
