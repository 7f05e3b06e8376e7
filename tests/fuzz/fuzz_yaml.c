/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_yaml.c: a configuration; what could be parsed must print, and parse again to as many nodes.
 */
#include "base/status.h"
#include "base/yaml.h"
#include "fuzz/fuzz.h"

size_t tri_fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    tri_arena arena = {0};
    tri_yaml *root = NULL, *again = NULL;
    if (tri_yaml_parse(&arena, (const char *)bytes, nbytes, "f", &root) == TRI_OK) {
        tri_string text = {0};
        tri_fuzz_accepted++;
        TRI_ASSERT(tri_yaml_print(root, 0, &text) == TRI_OK);
        TRI_ASSERT(tri_yaml_parse(&arena, tri_string_text(&text), text.nbytes, "again", &again) == TRI_OK);
        TRI_ASSERT(tri_yaml_count(root) == tri_yaml_count(again));
        tri_string_fini(&text);
    }
    tri_arena_fini(&arena);
    return 0;
}

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED(
        "train:\n  batch: 256\n  epochs: 3\ndata: {name: fashion-mnist, limit: 1k}\nlist: [1, 2.5, \"a b\"]\n"),
    TRI_FUZZ_SEED("a: |\n  block\n  text\nb: >-\n  folded\n  text\nc:\n- x\n- y: 1\n  z: 'q''q'\n# end\n"),
    TRI_FUZZ_REFUSED("a: &x 1\nb: *x\nc: !!str 5\n--- {}\n"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {": ", "- ",     "\n  ",      "[[[[[[", "{a: {a: ", "&a ",
                                      "*a", "!!map ", "\"\\x00\"", "---\n",  "? "};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
