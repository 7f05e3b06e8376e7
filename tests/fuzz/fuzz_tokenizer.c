/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_tokenizer.c: a tokenizer.json, a 0 byte, and a text for it.
 */
#include "fuzz/fuzz.h"

#include <string.h>

#include "text/tokenizer.h"

size_t tri_fuzz_accepted;

/* What comes back must be made of tokens that are there, whole or in two pieces. */
static void encode(const tri_tokenizer *tokenizer, const char *text, size_t nbytes)
{
    tri_encoder *encoder;
    tri_ids whole = {0}, pieces = {0};
    tri_string back = {0};
    TRI_ASSERT(tri_encoder_create(tokenizer, &encoder) == TRI_OK);
    if (tri_encode(encoder, text, nbytes, TRI_ENCODE_WHOLE, &whole) == TRI_OK) {
        TRI_ASSERT(tri_decode(tokenizer, whole.items, whole.count, true, &back) == TRI_OK);
        whole.count = 0;
        TRI_ASSERT(tri_encode(encoder, text, nbytes, 0, &whole) == TRI_OK);
        const size_t cut = tri_tokenizer_cut(tokenizer, text, nbytes, nbytes / 2);
        TRI_ASSERT(tri_encode(encoder, text, cut, 0, &pieces) == TRI_OK);
        TRI_ASSERT(tri_encode(encoder, text + cut, nbytes - cut, cut > 0 ? TRI_ENCODE_RESUME : 0, &pieces) == TRI_OK);
        TRI_ASSERT(whole.count == pieces.count &&
                   (whole.count == 0 || memcmp(whole.items, pieces.items, whole.count * sizeof(int32_t)) == 0));
    }
    tri_string_fini(&back);
    tri_ids_fini(&whole);
    tri_ids_fini(&pieces);
    tri_encoder_destroy(encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    const uint8_t *end = nbytes > 0 ? memchr(bytes, 0, nbytes) : NULL;
    const size_t json_nbytes = end != NULL ? (size_t)(end - bytes) : nbytes;
    tri_tokenizer *tokenizer;
    if (nbytes == 0 || tri_tokenizer_parse((const char *)bytes, json_nbytes, "fuzz", &tokenizer) != TRI_OK)
        return 0;
    tri_fuzz_accepted++;
    if (end != NULL)
        encode(tokenizer, (const char *)end + 1, nbytes - json_nbytes - 1);
    tri_tokenizer_close(tokenizer);
    return 0;
}

#define BYTE_LEVEL                                                                                                     \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true},\"decoder\":{\"type\":\"ByteLevel\"}"
#define GAP "\xe2\x96\x81"

/* Patterns as they stand in JSON. */
#define GPT "'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+"
#define LLAMA                                                                                                          \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+"   \
    "[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define SPLIT_OF(pattern)                                                                                              \
    "{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\xc4\xa0\":3,\"\xc4\x8a\":4,\"1\":5,\"'\":6,\"!\":7,\"s\":8},"  \
    "\"merges\":[[\"a\",\"b\"]]},\"pre_tokenizer\":{\"type\":"                                                         \
    "\"Sequence\","                                                                                                    \
    "\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern "\"},\"behavior\":\"Isolated\","        \
    "\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"                     \
    "\"decoder\":{\"type\":\"ByteLevel\"}}"

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\xc4\xa0\":3,\"\xc4\xa0"
                  "ab\":4},\"merges\":"
                  "[\"a b\",[\"\xc4\xa0\",\"ab\"]]},\"added_tokens\":[{\"id\":5,\"content\":\"<s>\",\"special\":true,"
                  "\"lstrip\":true}]," BYTE_LEVEL "}\0ab ab<s> ba"),
    TRI_FUZZ_SEED("{\"model\":{\"vocab\":{\"<unk>\":0,\"" GAP "\":1,\"a\":2,\"" GAP "a\":3,\"<0xC3>\":4,\"<0xA9>\":5},"
                  "\"merges\":[\"" GAP " a\"],\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true},"
                  "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" GAP
                  "\"},"
                  "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" GAP "\"}]},"
                  "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Strip\","
                  "\"content\":\" \",\"start\":1,\"stop\":0}]}}\0a a zz\xc3\xa9 a"),
    TRI_FUZZ_SEED("{\"model\":{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[],\"ignore_merges\":true},\"pre_tokenizer\":"
                  "{\"type\":\"Metaspace\",\"replacement\":\"" GAP "\",\"prepend_scheme\":\"first\",\"split\":true},"
                  "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"a\"}},"
                  "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"a\":{\"ids\":[0]}}}}\0ab"),
    TRI_FUZZ_SEED("{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"" GAP "\":2},\"merges\":[]},\"pre_tokenizer\":{\"type\":"
                  "\"Metaspace\",\"replacement\":\"" GAP
                  "\",\"prepend_scheme\":\"always\",\"split\":true},\"decoder\":{"
                  "\"type\":\"Metaspace\",\"replacement\":\"" GAP "\",\"prepend_scheme\":\"always\"},\"added_tokens\":["
                  "{\"id\":3,\"content\":\"<s>\",\"rstrip\":true},{\"id\":4,\"content\":\"</s>\"}]}\0" GAP "a b<s>  a"),
    TRI_FUZZ_SEED(
        "{\"model\":{\"vocab\":{\"<unk>\":0,\"a\":1},\"merges\":[],\"unk_token\":\"<unk>\"},\"added_tokens\":["
        "{\"id\":2,\"content\":\"<s>\"}],\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}\0aaa<s>\f\faaa"),
    TRI_FUZZ_SEED(SPLIT_OF(LLAMA) "\0 ab1111 b's\n a!!\n"),
    TRI_FUZZ_SEED(SPLIT_OF(GPT) "\0 ab1111 b's\n a!  "),
    TRI_FUZZ_REFUSED("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":"
                     "{\"Regex\":\"x\"},\"behavior\":\"Isolated\",\"invert\":false}}"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"\"model\"",
                                      "\"vocab\"",
                                      "\"merges\"",
                                      "\"unk_token\"",
                                      "\"fuse_unk\"",
                                      "\"byte_fallback\"",
                                      "true",
                                      "false",
                                      "null",
                                      "\"type\"",
                                      "\"Sequence\"",
                                      "\"ByteLevel\"",
                                      "\"Metaspace\"",
                                      "\"use_regex\"",
                                      "\"added_tokens\"",
                                      "\"normalized\"",
                                      "\"rstrip\"",
                                      "2147483647",
                                      "-1",
                                      GAP,
                                      "\"Fuse\"",
                                      "[",
                                      "]",
                                      "{",
                                      "}",
                                      ",",
                                      ":"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
