/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tokens.c: token files of all kinds, the windows that are drawn from them, and the same batches for any workers.
 */
#include "data/tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tensor/tree.h"
#include "unit/data/data_files.h"

#define CONTEXT 8

/* A file of ours with tokens first, first + 1, ... modulo the vocabulary. */
static void write_own(const char *folder, const char *name, int each, int64_t first, int64_t count, int64_t vocabulary)
{
    unsigned char *bytes = tri_alloc_zero(TRI_TOKEN_HEAD_NBYTES + (size_t)(count * each), 1);
    tri_token_head_write(bytes, each, count, vocabulary, vocabulary - 1);
    for (int64_t i = 0; i < count; i++)
        for (int b = 0; b < each; b++)
            bytes[TRI_TOKEN_HEAD_NBYTES + i * each + b] = (unsigned char)((first + i) % vocabulary >> 8 * b);
    write_file(folder, name, bytes, TRI_TOKEN_HEAD_NBYTES + (size_t)(count * each));
    tri_free(bytes);
}

/* nanoGPT's: the tokens alone. */
static void write_bare(const char *folder, const char *name, int64_t first, int64_t count)
{
    uint16_t *tokens = tri_alloc((size_t)count * 2);
    for (int64_t i = 0; i < count; i++)
        tokens[i] = (uint16_t)(first + i);
    write_file(folder, name, tokens, (size_t)count * 2);
    tri_free(tokens);
}

static tri_data_config tokens_config(const char *path)
{
    tri_data_config config = config_at(path, "tokens");
    config.context = CONTEXT;
    return config;
}

static tri_dataset *open_set(const tri_data_config *config, bool test)
{
    tri_dataset *dataset;
    if (tri_dataset_open(config, test, &dataset) != TRI_OK)
        fail_msg("%s", tri_last_error());
    return dataset;
}

/* The first token of window `index`; checks that the others follow it, and the targets too. */
static int32_t draw(tri_dataset *dataset, int64_t epoch, int64_t index, int32_t modulus)
{
    int32_t sample[CONTEXT], target[CONTEXT];
    assert_int_equal(dataset->ops->draw(dataset, 1, epoch, index, sample, target), TRI_OK);
    for (int i = 0; i < CONTEXT; i++) {
        assert_int_equal(sample[i], (sample[0] + i) % modulus);
        assert_int_equal(target[i], (sample[0] + i + 1) % modulus);
    }
    return sample[0];
}

static void shards_are_one_row_of_tokens(void **state)
{
    (void)state;
    char *folder = make_folder();
    write_own(folder, "train-00000.tokens", 2, 0, 100, 50000);
    write_own(folder, "train-00001.tokens", 2, 100, 3, 50000);
    write_own(folder, "train-00002.tokens", 2, 103, 30, 50000);
    write_own(folder, "validation-00000.tokens", 2, 1000, 26, 50000);
    tri_data_config config = tokens_config(folder);
    config.format = TRI_DATA_AUTO;
    config.windows = TRI_WINDOWS_FIXED;
    tri_dataset *training = open_set(&config, false), *test = open_set(&config, true);
    assert_int_equal(training->info.count, (133 - 1) / CONTEXT);
    assert_int_equal(training->info.classes, 50000);
    assert_int_equal(training->info.sample.dim[0], CONTEXT);
    assert_int_equal(training->info.target.dim[0], CONTEXT);
    for (int64_t i = 0; i < training->info.count; i++)
        assert_int_equal(draw(training, 0, i, 50000), i * CONTEXT);
    assert_int_equal(test->info.count, 3);
    assert_int_equal(draw(test, 5, 2, 50000), 1016);
    tri_dataset_close(training);
    tri_dataset_close(test);
    drop_folder(folder);
}

static void files_of_llmc_and_nanogpt_are_read(void **state)
{
    (void)state;
    char *folder = make_folder(), path[256];
    tri_string file = {0};
    int32_t head[256] = {20240520, 1, 40};
    assert_int_equal(tri_string_append_bytes(&file, head, sizeof(head)), TRI_OK);
    for (uint16_t token = 500; token < 540; token++)
        assert_int_equal(tri_string_append_bytes(&file, &token, 2), TRI_OK);
    write_file(folder, "tiny_train_000001.bin", file.text, file.nbytes);
    write_file(folder, "tiny_val_000000.bin", file.text, file.nbytes);
    tri_data_config config = tokens_config(folder);
    config.format = TRI_DATA_AUTO;
    config.windows = TRI_WINDOWS_FIXED;
    tri_dataset *dataset = open_set(&config, false);
    assert_int_equal(dataset->info.classes, 50257);
    assert_int_equal(draw(dataset, 0, 1, 50257), 508);
    tri_dataset_close(dataset);
    drop_folder(folder);

    folder = make_folder();
    write_bare(folder, "train.bin", 0, 60);
    write_bare(folder, "val.bin", 300, 20);
    snprintf(path, sizeof(path), "%s/train.bin", folder);
    config = tokens_config(path);
    config.format = TRI_DATA_AUTO;
    dataset = open_set(&config, true);
    assert_int_equal(dataset->info.classes, 320); /* the greatest of both */
    assert_int_equal(draw(dataset, 0, 0, 65536), 300);
    tri_dataset_close(dataset);
    config.classes = 1000;
    dataset = open_set(&config, false);
    assert_int_equal(dataset->info.classes, 1000);
    tri_dataset_close(dataset);
    config.classes = 319;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_ECONFIG);
    assert_error_has("the vocabulary has 320 tokens");
    tri_string_fini(&file);
    drop_folder(folder);
}

static void the_last_word_of_a_name_says_which_set_it_is_of(void **state)
{
    static const char *const names[] = {"pretrain_train_000001.bin", "pretrain_val_000000.bin",
                                        "retrieval_train_1.bin"};
    char *folder = make_folder(), path[256], **paths;
    size_t count;
    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(names); i++)
        write_file(folder, names[i], "", 0);
    assert_int_equal(tri_tokens_find(folder, false, &paths, &count), TRI_OK);
    assert_int_equal(count, 2);
    assert_non_null(strstr(paths[0], names[0]));
    assert_non_null(strstr(paths[1], names[2]));
    tri_fs_list_free(paths, count);
    assert_int_equal(tri_tokens_find(folder, true, &paths, &count), TRI_OK);
    assert_int_equal(count, 1);
    assert_non_null(strstr(paths[0], names[1]));
    tri_fs_list_free(paths, count);
    snprintf(path, sizeof(path), "%s/%s", folder, names[0]);
    assert_int_equal(tri_tokens_find(path, true, &paths, &count), TRI_OK); /* its sibling */
    assert_int_equal(count, 1);
    assert_non_null(strstr(paths[0], names[1]));
    tri_fs_list_free(paths, count);
    drop_folder(folder);
}

static void a_file_alone_is_split(void **state)
{
    (void)state;
    char *folder = make_folder(), path[256];
    write_own(folder, "all.tokens", 4, 0, 1000, 100000);
    snprintf(path, sizeof(path), "%s/all.tokens", folder);
    tri_data_config config = tokens_config(path);
    config.windows = TRI_WINDOWS_FIXED;
    tri_dataset *training = open_set(&config, false), *test = open_set(&config, true);
    assert_int_equal(training->info.count, 899 / CONTEXT);
    assert_int_equal(draw(test, 0, 0, 100000), 900);
    assert_int_equal(test->info.count, 99 / CONTEXT);
    tri_dataset_close(training);
    tri_dataset_close(test);
    config.context = 950;
    assert_int_equal(tri_dataset_open(&config, false, &training), TRI_ECONFIG);
    assert_error_has("900 training tokens are less than a sample of data.context 950");
    drop_folder(folder);
}

static void windows_shift_with_the_epoch_or_lie_anywhere(void **state)
{
    (void)state;
    char *folder = make_folder();
    write_own(folder, "train-00000.tokens", 2, 0, 100, 50000);
    tri_data_config config = tokens_config(folder);
    strcpy(config.test, "0");
    tri_dataset *dataset = open_set(&config, false);
    bool seen[CONTEXT] = {false};
    assert_int_equal(dataset->info.count, 100 / CONTEXT - 1);
    for (int64_t epoch = 0; epoch < 100; epoch++) {
        const int32_t shift = draw(dataset, epoch, 0, 50000);
        assert_true(shift < CONTEXT);
        seen[shift] = true;
        for (int64_t i = 1; i < dataset->info.count; i++)
            assert_int_equal(draw(dataset, epoch, i, 50000), shift + i * CONTEXT);
    }
    for (int i = 0; i < CONTEXT; i++)
        assert_true(seen[i]);
    tri_dataset_close(dataset);
    config.windows = TRI_WINDOWS_RANDOM;
    dataset = open_set(&config, false);
    int32_t last = 0;
    for (int64_t i = 0; i < 2000; i++) {
        const int32_t first = draw(dataset, i / 11, i % 11, 50000);
        assert_int_equal(first, draw(dataset, i / 11, i % 11, 50000));
        assert_true(first < 100 - CONTEXT);
        last = first > last ? first : last;
    }
    assert_int_equal(last, 100 - CONTEXT - 1); /* the last one that has a target for each token */
    tri_dataset_close(dataset);
    drop_folder(folder);
}

static tri_loader *open_loader(tri_dataset *dataset, const tri_data_config *config, int rank, int world, int64_t step)
{
    tri_loader *loader;
    tri_loader_setup setup = {.sampler = {99, dataset->info.count, 6, 4, true},
                              .first_shard = tri_tree_first(4, rank, world),
                              .shard_count = tri_tree_count(4, rank, world),
                              .rows_max = 2,
                              .training = true,
                              .first_step = step,
                              .end_step = 12};
    assert_int_equal(tri_loader_open(dataset, config, &setup, &loader), TRI_OK);
    return loader;
}

/* All samples of the steps from `first` on, by step and place in the batch; 0 where there is none. */
static void load_all(const tri_data_config *config, int world, int64_t first, int32_t all[12][6][CONTEXT])
{
    memset(all, 0, 12 * 6 * CONTEXT * sizeof(int32_t));
    for (int rank = 0; rank < world; rank++) {
        tri_dataset *dataset = open_set(config, false);
        tri_loader *loader = open_loader(dataset, config, rank, world, first);
        tri_loader_batch batch;
        tri_dataset_close(dataset); /* the loader holds it */
        for (int64_t step = first; step < 12; step++) {
            assert_int_equal(tri_loader_next(loader, &batch), TRI_OK);
            for (int s = 0; s < batch.shards; s++)
                for (int i = 0; i < batch.rows[s]; i++)
                    memcpy(all[step][batch.first_sample[s] + i], (const int32_t *)batch.input + (s * 2 + i) * CONTEXT,
                           CONTEXT * sizeof(int32_t));
        }
        assert_int_equal(tri_loader_nbytes(loader), 0);
        tri_loader_close(loader);
    }
}

static void batches_are_the_same_for_any_workers_and_from_any_step(void **state)
{
    (void)state;
    static const char *const windows[] = {"shifted", "random", "fixed"};
    static int32_t one[12][6][CONTEXT], many[12][6][CONTEXT];
    char *folder = make_folder();
    write_own(folder, "train-00000.tokens", 2, 0, 190, 50000);
    for (size_t w = 0; w < TRI_COUNT_OF(windows); w++) {
        tri_data_config config = tokens_config(folder);
        strcpy(config.test, "0");
        (void)tri_options_set(&tri_data_options, &config, "windows", windows[w]);
        load_all(&config, 1, 0, one);
        for (int world = 2; world <= 4; world++)
            for (config.prefetch = 0; config.prefetch <= 2; config.prefetch += 2) {
                load_all(&config, world, 0, many);
                assert_memory_equal(one, many, sizeof(one));
            }
        load_all(&config, 3, 7, many);
        assert_memory_equal(one[7], many[7], 5 * sizeof(one[0]));
    }
    drop_folder(folder);
}

static void a_token_out_of_the_vocabulary_is_named_when_its_batch_comes(void **state)
{
    (void)state;
    char *folder = make_folder();
    unsigned char bytes[TRI_TOKEN_HEAD_NBYTES + 200] = {0};
    tri_token_head_write(bytes, 2, 100, 10, -1);
    bytes[TRI_TOKEN_HEAD_NBYTES + 2 * 50] = 10;
    write_file(folder, "train-00000.tokens", bytes, sizeof(bytes));
    tri_data_config config = tokens_config(folder);
    strcpy(config.test, "0");
    config.windows = TRI_WINDOWS_FIXED;
    for (config.prefetch = 0; config.prefetch <= 2; config.prefetch += 2) {
        tri_dataset *dataset = open_set(&config, false);
        tri_loader *loader = open_loader(dataset, &config, 0, 1, 0);
        tri_loader_batch batch;
        tri_status status = TRI_OK;
        for (int step = 0; step < 2 && status == TRI_OK; step++) /* an epoch is two batches */
            status = tri_loader_next(loader, &batch);
        assert_int_equal(status, TRI_EFORMAT);
        assert_error_has("train-00000.tokens: token 50 is 10, which is none of the 10 of the vocabulary");
        tri_loader_close(loader);
        tri_dataset_close(dataset);
    }
    drop_folder(folder);
}

static void a_text_is_tokenized_in_memory(void **state)
{
    (void)state;
    char *folder = make_folder(), path[256], text[1000];
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)('a' + i % 26);
    write_file(folder, "x.txt", text, sizeof(text));
    snprintf(path, sizeof(path), "%s/x.txt", folder);
    tri_data_config config = tokens_config(path);
    config.format = TRI_DATA_AUTO;
    config.windows = TRI_WINDOWS_FIXED;
    tri_dataset *dataset = open_set(&config, true);
    assert_int_equal(dataset->info.classes, 26);
    assert_int_equal(draw(dataset, 0, 0, 26), 900 % 26);
    assert_string_equal(tri_tokenizer_kind(dataset->tokenizer), "char");
    tri_dataset_close(dataset);
    strcpy(config.tokenizer, "byte");
    dataset = open_set(&config, false);
    assert_int_equal(dataset->info.classes, 257);
    assert_int_equal(dataset->info.count, (900 - 1) / CONTEXT);
    tri_dataset_close(dataset);
    strcpy(config.tokenizer, "/no/such");
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_ENOTFOUND);
    assert_error_has("no tokenizer '/no/such'");
    drop_folder(folder);
}

static void refuse(const void *bytes, size_t nbytes, bool bare, tri_status status, const char *text)
{
    tri_source source;
    tri_token_file file;
    assert_int_equal(tri_source_init(&source, bytes, nbytes, "f"), TRI_OK);
    assert_int_equal(tri_token_file_parse(&source, bare, &file), status);
    assert_error_has(text);
}

static void heads_that_cannot_be_are_refused(void **state)
{
    (void)state;
    unsigned char bytes[1024 + 8] = {0};
    refuse(bytes, 7, false, TRI_EFORMAT, "no token file");
    refuse(bytes, 7, true, TRI_EFORMAT, "want 3 tokens of 2 bytes behind a head of 0 bytes, got 7 bytes");
    tri_token_head_write(bytes, 2, 4, 100, -1);
    refuse(bytes, 64 + 6, false, TRI_EFORMAT, "want 4 tokens of 2 bytes behind a head of 64 bytes, got 6");
    tri_token_head_write(bytes, 2, -1, 100, -1);
    refuse(bytes, 64 + 8, false, TRI_EFORMAT, "want -1 tokens");
    tri_token_head_write(bytes, 4, INT64_C(1) << 62, 100, -1);
    refuse(bytes, 64, false, TRI_EFORMAT, "got 0 bytes");
    tri_token_head_write(bytes, 3, 4, 100, -1);
    refuse(bytes, 64 + 12, false, TRI_EFORMAT, "want tokens of 2 or 4 bytes, got 3");
    tri_token_head_write(bytes, 2, 4, 65537, -1);
    refuse(bytes, 64 + 8, false, TRI_EFORMAT, "want a vocabulary of 1 to 65536 tokens");
    tri_token_head_write(bytes, 2, 4, 100, 100);
    refuse(bytes, 64 + 8, false, TRI_EFORMAT, "got 100 and 100");
    bytes[8] = 9;
    refuse(bytes, 64 + 8, false, TRI_EUNSUPPORTED, "want version 1 of token files, got 9");
    const int32_t head[3] = {20240520, 2, 4};
    memcpy(bytes, head, sizeof(head));
    refuse(bytes, sizeof(bytes), true, TRI_EUNSUPPORTED, "want version 1 of llm.c's token file 20240520, got 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_are_one_row_of_tokens),
        cmocka_unit_test(files_of_llmc_and_nanogpt_are_read),
        cmocka_unit_test(the_last_word_of_a_name_says_which_set_it_is_of),
        cmocka_unit_test(a_file_alone_is_split),
        cmocka_unit_test(windows_shift_with_the_epoch_or_lie_anywhere),
        cmocka_unit_test(batches_are_the_same_for_any_workers_and_from_any_step),
        cmocka_unit_test(a_token_out_of_the_vocabulary_is_named_when_its_batch_comes),
        cmocka_unit_test(a_text_is_tokenized_in_memory),
        cmocka_unit_test(heads_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
