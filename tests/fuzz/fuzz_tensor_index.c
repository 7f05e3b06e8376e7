/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_tensor_index.c: the index of a model in several files: no name that it gives leads out of the folder.
 */
#include <string.h>

#include "base/status.h"
#include "checkpoint/tensor_set.h"
#include "fuzz/fuzz.h"

size_t tri_fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    tri_tensor_index index;
    if (tri_tensor_index_parse((const char *)bytes, nbytes, "f", &index) == TRI_OK) {
        tri_fuzz_accepted++;
        TRI_ASSERT(index.file_count > 0 && (size_t)index.file_count <= index.tensors.count);
        for (int i = 0; i < index.file_count; i++)
            TRI_ASSERT(strchr(index.files[i], '/') == NULL && strcmp(index.files[i], "..") != 0);
    }
    tri_tensor_index_fini(&index);
    return 0;
}

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("{\"metadata\":{\"total_size\":24},\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\","
                  "\"z\":\"a.safetensors\"}}"),
    TRI_FUZZ_REFUSED("{\"weight_map\":{\"x\":\"../a\"}}"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"\"weight_map\":", "..", "/", "\"\"", "{", "}", "[", "]", ",", "null", "7"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
