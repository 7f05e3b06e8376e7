/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_request.c: a line of a batch of prompts: what is accepted lies within its bounds.
 */
#include "base/status.h"
#include "fuzz/fuzz.h"
#include "generate/request.h"

size_t tri_fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    tri_generate_request request = {.max_tokens = 3, .rule = {.temperature = 1, .top_p = 1, .repeat = 1}, .stop = "s"};
    if (tri_generate_request_parse((const char *)bytes, nbytes, "f", &request) != TRI_OK)
        return 0;
    tri_fuzz_accepted++;
    TRI_ASSERT(request.prompt != NULL && request.prompt[request.prompt_nbytes] == 0);
    TRI_ASSERT(tri_generate_request_check(&request) == TRI_OK);
    tri_generate_request_fini(&request);
    return 0;
}

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("{\"prompt\": \"a\\u0000b\", \"max_tokens\": 5, \"temperature\": 0.5, \"stop\": \"x\"}"),
    TRI_FUZZ_SEED("{\"prompt\": \"\", \"top_k\": 1, \"top_p\": 0.9, \"repeat\": 1.1, \"seed\": 3}"),
    TRI_FUZZ_REFUSED("{\"prompt\": 1}"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"\"prompt\":", "\"top_p\":", "\"seed\":", "1e999", "-1",
                                      "null",        "\\u0000",    "{",         "}"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
