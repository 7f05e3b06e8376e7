/* SPDX-License-Identifier: Apache-2.0
 *
 * test_dataset.c: names and formats, CIFAR, and the synthetic problem.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/clicks.h"
#include "unit/data/data_files.h"

static void unknown_names_and_empty_folders_are_explained(void **state)
{
    (void)state;
    tri_data_config config = config_default();
    tri_dataset *dataset;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_ECONFIG);
    assert_error_has("data.name or data.path");
    strcpy(config.name, "fashion-mnsit");
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_ECONFIG);
    assert_error_has("nearest: fashion-mnist");
    char *folder = make_folder();
    config = config_at(folder, "auto");
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_EFORMAT);
    assert_error_has("x_train.npy");
    drop_folder(folder);
    config = config_at("/nowhere/at-all", "auto");
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_ENOTFOUND);
}

static void a_known_data_set_that_is_not_there_names_its_package(void **state)
{
    (void)state;
    if (tri_fs_is_folder("/usr/share/datasets/fashion-mnist"))
        skip();
    tri_data_config config = config_default();
    tri_dataset *dataset;
    strcpy(config.name, "fashion-mnist");
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_ENOTFOUND);
    assert_error_has("apt-get install dataset-fashion-mnist");
}

#define RECORD 3073

static void write_cifar(const char *folder, const char *name, int count, int first_label)
{
    unsigned char *bytes = malloc((size_t)count * RECORD);
    for (int i = 0; i < count; i++) {
        unsigned char *record = bytes + i * RECORD;
        record[0] = (unsigned char)(first_label + i);
        for (int c = 0; c < 3; c++)
            for (int p = 0; p < 1024; p++)
                record[1 + c * 1024 + p] = (unsigned char)(p + 50 * c + i);
    }
    write_file(folder, name, bytes, (size_t)count * RECORD);
    free(bytes);
}

static void cifar_planes_become_pixels(void **state)
{
    (void)state;
    char *folder = make_folder(), name[40];
    for (int i = 1; i <= 5; i++) {
        snprintf(name, sizeof(name), "data_batch_%d.bin", i);
        write_cifar(folder, name, 2, 2 * (i - 1));
    }
    tri_data_config config = config_at(folder, "auto");
    tri_dataset *dataset;
    unsigned char samples[2 * 3072];
    int32_t targets[2];
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, 10);
    assert_int_equal(dataset->info.classes, 10);
    assert_int_equal(tri_dataset_read(dataset, (const int64_t[]){3, 8}, 2, samples, targets), TRI_OK);
    assert_int_equal(targets[0], 3);
    assert_int_equal(targets[1], 8);
    for (int p = 0; p < 1024; p++)
        for (int c = 0; c < 3; c++) {
            assert_int_equal(samples[3 * p + c], (unsigned char)(p + 50 * c + 1));
            assert_int_equal(samples[3072 + 3 * p + c], (unsigned char)(p + 50 * c));
        }
    tri_dataset_close(dataset);
    assert_int_equal(tri_dataset_open(&config, true, &dataset), TRI_ENOTFOUND);
    assert_error_has("test_batch.bin");
    write_cifar(folder, "data_batch_4.bin", 2, 9); /* labels 9 and 10 */
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    assert_int_equal(tri_dataset_read(dataset, (const int64_t[]){6, 7}, 2, samples, targets), TRI_EFORMAT);
    assert_error_has("label 10 of sample 7");
    tri_dataset_close(dataset);
    write_file(folder, "data_batch_2.bin", samples, 3000);
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_EFORMAT);
    assert_error_has("multiple of 3073 bytes, got 3000");
    drop_folder(folder);
}

static void what_is_kept_is_read_from_memory(void **state)
{
    (void)state;
    char *folder = make_folder();
    write_idx_pair(folder, "train", false, 7, 2, 3, 5);
    tri_data_config config = config_at(folder, "idx");
    for (int enough = 0; enough < 2; enough++) {
        unsigned char samples[2][6], again[2][6];
        int32_t targets[2], targets_again[2];
        tri_dataset *dataset;
        assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
        assert_int_equal(tri_dataset_read(dataset, (const int64_t[]){1, 6}, 2, samples, targets), TRI_OK);
        tri_dataset_keep(dataset, enough ? 7 * 11 : 7 * 10);
        assert_int_equal(dataset->kept != NULL, enough);
        if (enough)
            dataset->kept[6 * 6 + 5] ^= 1; /* nobody else would give this */
        assert_int_equal(tri_dataset_read(dataset, (const int64_t[]){1, 6}, 2, again, targets_again), TRI_OK);
        again[1][5] ^= (unsigned char)enough;
        assert_memory_equal(again, samples, sizeof(samples));
        assert_memory_equal(targets_again, targets, sizeof(targets));
        tri_dataset_close(dataset);
    }
    drop_folder(folder);
}

static void the_fine_label_of_cifar_hundred_counts(void **state)
{
    (void)state;
    char *folder = make_folder();
    unsigned char bytes[2 * 3074] = {[0] = 7, [1] = 42, [3074] = 3, [3075] = 99};
    write_file(folder, "train.bin", bytes, sizeof(bytes));
    tri_data_config config = config_at(folder, "cifar");
    tri_dataset *dataset;
    void *samples, *targets;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    assert_int_equal(dataset->info.classes, 100);
    assert_int_equal(read_whole(dataset, &samples, &targets), TRI_OK);
    assert_int_equal(((int32_t *)targets)[0], 42);
    assert_int_equal(((int32_t *)targets)[1], 99);
    tri_free(samples);
    tri_free(targets);
    tri_dataset_close(dataset);
    drop_folder(folder);
}

static tri_dataset *open_synthetic(bool test, int classes)
{
    tri_data_config config = config_default();
    tri_dataset *dataset;
    strcpy(config.name, "synthetic");
    config.classes = classes;
    assert_int_equal(tri_dataset_open(&config, test, &dataset), TRI_OK);
    return dataset;
}

/* Nearest class mean, the means learned from the training set. */
static void the_synthetic_classes_can_be_learned_but_not_perfectly(void **state)
{
    (void)state;
    tri_dataset *training = open_synthetic(false, 0), *test = open_synthetic(true, 0);
    assert_int_equal(training->info.count, 4096);
    assert_int_equal(test->info.count, 512);
    double means[10][32] = {{0}}, counts[10] = {0};
    void *samples, *targets;
    assert_int_equal(read_whole(training, &samples, &targets), TRI_OK);
    for (int i = 0; i < 4096; i++) {
        int32_t label = ((int32_t *)targets)[i];
        counts[label]++;
        for (int j = 0; j < 32; j++)
            means[label][j] += (double)((float *)samples)[32 * i + j];
    }
    tri_free(samples);
    tri_free(targets);
    assert_int_equal(read_whole(test, &samples, &targets), TRI_OK);
    int right = 0;
    for (int i = 0; i < 512; i++) {
        int best = 0;
        double least = INFINITY;
        for (int c = 0; c < 10; c++) {
            double distance = 0;
            for (int j = 0; j < 32; j++)
                distance += pow((double)((float *)samples)[32 * i + j] - means[c][j] / counts[c], 2);
            if (distance < least) {
                least = distance;
                best = c;
            }
        }
        right += best == ((int32_t *)targets)[i];
    }
    print_message("nearest mean: %d of 512\n", right);
    assert_in_range(right, 450, 511);
    tri_free(samples);
    tri_free(targets);
    tri_dataset_close(training);
    tri_dataset_close(test);
}

static void a_synthetic_sample_depends_on_its_index_alone(void **state)
{
    (void)state;
    tri_dataset *dataset = open_synthetic(false, -1);
    assert_int_equal(dataset->info.target_dtype, TRI_F32);
    float samples[3 * 32], alone[32], targets[3], target;
    assert_int_equal(tri_dataset_read(dataset, (const int64_t[]){3, 77, 4000}, 3, samples, targets), TRI_OK);
    assert_int_equal(tri_dataset_read(dataset, (const int64_t[]){77}, 1, alone, &target), TRI_OK);
    assert_memory_equal(samples + 32, alone, sizeof(alone));
    assert_memory_equal(targets + 1, &target, 4);
    assert_memory_not_equal(samples, alone, sizeof(alone));
    assert_int_equal(tri_dataset_read(dataset, (const int64_t[]){77, 3}, 2, samples, targets), TRI_EINVAL);
    assert_int_equal(tri_dataset_read(dataset, (const int64_t[]){4096}, 1, samples, targets), TRI_EINVAL);
    tri_dataset_close(dataset);
}

static void synthetic_tokens_are_followed_by_their_targets(void **state)
{
    (void)state;
    tri_data_config config = config_default();
    tri_dataset *dataset;
    strcpy(config.name, "synthetic");
    config.synthetic_tokens = true;
    config.classes = 11;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    assert_true(dataset->info.dtype == TRI_I32 && dataset->info.target_dtype == TRI_I32);
    assert_true(tri_shape_equal(dataset->info.sample, dataset->info.target) && dataset->info.classes == 11);
    int32_t sample[4][32], target[4][32], follows = 0;
    assert_int_equal(tri_dataset_read(dataset, (int64_t[]){0, 1, 2, 3}, 4, sample, target), TRI_OK);
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < 32; t++) {
            assert_in_range(sample[i][t], 0, 10);
            assert_true(t == 31 || sample[i][t + 1] == target[i][t]);
            follows += target[i][t] == (3 * sample[i][t] + 1) % 11;
        }
    assert_in_range(follows, 85, 115); /* of 128, three in four and one in 44 */
    tri_dataset_close(dataset);
    config.classes = -1;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "data.synthetic_tokens: want data.classes of at least 1, got -1"));
}

enum { FIELDS = 8, CLICKS = 20000, CLICK_KEYS = 8000 };

static void clicks_follow_the_power_law_and_their_hidden_chances(void **state)
{
    (void)state;
    tri_data_config config = config_default();
    tri_dataset *dataset, *real;
    static int32_t samples[CLICKS][FIELDS], targets[CLICKS];
    static int64_t indices[CLICKS], counts[CLICK_KEYS];
    strcpy(config.name, "synthetic");
    config.synthetic_count = CLICKS;
    config.synthetic_width = FIELDS;
    config.synthetic_keys = CLICK_KEYS;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    assert_true(dataset->info.dtype == TRI_I32 && dataset->info.target_dtype == TRI_I32 && dataset->info.classes == 2);
    for (int64_t i = 0; i < CLICKS; i++)
        indices[i] = i;
    assert_int_equal(tri_dataset_read(dataset, indices, CLICKS, samples, targets), TRI_OK);
    tri_clicks clicks = tri_clicks_make(1, FIELDS, CLICK_KEYS);
    double mean = 0, said[4] = {0}, clicked[4] = {0}, count[4] = {0}, apart = 0;
    clicks.weights.seed = clicks.seed = UINT64_C(0x7472697265); /* that of the data set */
    for (int i = 0; i < CLICKS; i++) {
        uint64_t keys[FIELDS];
        for (int f = 0; f < FIELDS; f++) {
            assert_in_range(samples[i][f], f * 1000, f * 1000 + 999);
            counts[samples[i][f]]++;
            keys[f] = (uint64_t)samples[i][f];
        }
        assert_in_range(targets[i], 0, 1);
        double chance = tri_clicks_chance(&clicks, keys);
        int quarter = (int)(chance * 4);
        count[quarter]++;
        said[quarter] += chance;
        clicked[quarter] += targets[i];
        mean += targets[i];
        apart += (chance - 0.3) * (chance - 0.3);
    }
    assert_true(mean / CLICKS > 0.2 && mean / CLICKS < 0.4);
    assert_true(apart / CLICKS > 0.04); /* there is something to learn */
    for (int q = 0; q < 4; q++)
        assert_true(count[q] > 500 && fabs(said[q] - clicked[q]) < 4 * sqrt(count[q]));
    /* k^-1.1, by the integral from k to k + 1 over that from 1 to 1001. */
    for (int f = 0; f < FIELDS; f++)
        for (int k = 1; k <= 100; k *= 10) {
            double law = (pow(k, -0.1) - pow(k + 1, -0.1)) / (1 - pow(1001, -0.1));
            assert_true(fabs((double)counts[f * 1000 + k - 1] - CLICKS * law) < 5 * sqrt(CLICKS * law) + 1);
        }
    config.classes = -1; /* the same, as numbers */
    assert_int_equal(tri_dataset_open(&config, false, &real), TRI_OK);
    static int32_t again[CLICKS][FIELDS];
    static float numbers[CLICKS];
    assert_int_equal(tri_dataset_read(real, indices, CLICKS, again, numbers), TRI_OK);
    assert_memory_equal(again, samples, sizeof(samples));
    for (int i = 0; i < CLICKS; i++)
        assert_true(numbers[i] == (float)targets[i]);
    tri_dataset_close(dataset);
    tri_dataset_close(real);
}

static void clicks_that_cannot_be_are_refused(void **state)
{
    (void)state;
    tri_data_config config = config_default();
    tri_dataset *dataset;
    strcpy(config.name, "synthetic");
    config.synthetic_keys = 31;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "want at least data.synthetic_width, which is 32, got 31"));
    config.synthetic_keys = 32;
    config.classes = 1;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "want data.classes of at least 2, or -1, got 1"));
    config.synthetic_tokens = true;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "data.synthetic_keys and data.synthetic_tokens: want one of them"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_names_and_empty_folders_are_explained),
        cmocka_unit_test(a_known_data_set_that_is_not_there_names_its_package),
        cmocka_unit_test(cifar_planes_become_pixels),
        cmocka_unit_test(what_is_kept_is_read_from_memory),
        cmocka_unit_test(the_fine_label_of_cifar_hundred_counts),
        cmocka_unit_test(the_synthetic_classes_can_be_learned_but_not_perfectly),
        cmocka_unit_test(a_synthetic_sample_depends_on_its_index_alone),
        cmocka_unit_test(synthetic_tokens_are_followed_by_their_targets),
        cmocka_unit_test(clicks_follow_the_power_law_and_their_hidden_chances),
        cmocka_unit_test(clicks_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
