/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_csv.c: a table: the first byte chooses the kind of target and the rules, the rest is the file. What is learned
 * of it is printed, read back, and used for the same file.
 */
#include <string.h>

#include "data/tables/table.h"
#include "fuzz/fuzz.h"
#include "fuzz/fuzz_dataset.h"

size_t tri_fuzz_accepted;

/* The plan as dataset.yaml has it. */
static tri_table *plan_copy(const tri_table *table)
{
    tri_string text = {0};
    tri_arena arena = {0};
    tri_yaml *root = NULL;
    tri_table *copy = NULL;
    TRI_ASSERT(tri_table_print(table, &text) == TRI_OK);
    if (tri_yaml_parse(&arena, text.text, text.nbytes, "plan", &root) == TRI_OK) /* not what has a control character */
        TRI_ASSERT(tri_table_parse(tri_yaml_find(root, "table"), &copy) == TRI_OK &&
                   tri_table_hash(copy) == tri_table_hash(table));
    tri_string_fini(&text);
    tri_arena_fini(&arena);
    return copy;
}

static tri_dataset *table_open(tri_data_config *config, const uint8_t *bytes, size_t nbytes)
{
    tri_source source;
    tri_dataset *dataset = NULL;
    TRI_ASSERT(tri_source_init(&source, bytes, nbytes, "f") == TRI_OK);
    if (tri_csv_parse(config, &source, &dataset) != TRI_OK)
        return NULL;
    int64_t *places = tri_alloc((size_t)dataset->info.count * sizeof(*places));
    for (int64_t i = 0; i < dataset->info.count; i++)
        places[i] = i;
    tri_status status = config->table ? TRI_OK : dataset->ops->learn(dataset, config, places, dataset->info.count);
    tri_free(places);
    if (status == TRI_OK)
        return dataset;
    tri_dataset_close(dataset);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    static const char *const targets[] = {"[]", "[0]", "[1]", "[a, b]"};
    tri_data_config config;
    if (nbytes < 1)
        return 0;
    tri_options_defaults(&tri_data_options, &config);
    config.classes = bytes[0] % 4 - 1;
    strcpy(config.target, targets[bytes[0] / 4 % 4]);
    config.missing = bytes[0] & 16 ? TRI_MISSING_MEAN : TRI_MISSING_REFUSE;
    config.decimal = bytes[0] & 32 ? TRI_DECIMAL_COMMA : TRI_DECIMAL_AUTO;
    tri_dataset *dataset = table_open(&config, bytes + 1, nbytes - 1);
    if (dataset == NULL)
        return 0;
    tri_fuzz_accepted++;
    tri_table *const plan = plan_copy(dataset->table);
    fuzz_read(dataset);
    config.table = plan;
    dataset = plan != NULL ? table_open(&config, bytes + 1, nbytes - 1) : NULL;
    if (dataset != NULL)
        fuzz_read(dataset);
    tri_table_release(plan);
    return 0;
}

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("\1a,b,c\n1,2.5,0\n-3,4e-4,1\n"),
    TRI_FUZZ_SEED("\1\xef\xbb\xbf\"a \"\"x\"\"\",b,c\r\n1,2.5,\"red\"\r\n\"2\",-1e3,blue\r\n\r\n"),
    TRI_FUZZ_SEED("\4"
                  "0.5,1,2\n-1,3,4\n"),
    TRI_FUZZ_SEED("\x11"
                  "a;b;day;y\n1,5;red;2024-03-31;0\n;blue;31.12.2023 10:30;1\n2,5;;NA;0\n"),
    TRI_FUZZ_SEED("\0,0,1,label\n0,0.5,1,2.5\n1,0.7,3,1e3\n"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"\"",
                                      "\"\"",
                                      "\r\n",
                                      "\n",
                                      ",",
                                      "1e999",
                                      "nan",
                                      "99999999999999999999",
                                      ";",
                                      "\t",
                                      "|",
                                      "NA",
                                      "2024-03-31T10:00Z",
                                      "\xff\xfe",
                                      "\x1f\x8b\x08"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
