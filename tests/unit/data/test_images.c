/* SPDX-License-Identifier: Apache-2.0
 *
 * test_images.c: image files are decoded and resized as Pillow does it (images/golden.py), folders of classes become
 * data sets, and batches are the same for any number of workers, threads and cached samples. Damaged files are named.
 */
#include "data/images/images.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data/augment.h"
#include "data/identity.h"
#include "unit/data/data_files.h"

#define TOLERANCE 2 /* other versions of the decoders */

static void read_fixture(const char *name, char **bytes, size_t *nbytes)
{
    char path[1200];
    snprintf(path, sizeof(path), IMAGE_FIXTURES "/%s", name);
    assert_int_equal(tri_fs_read(path, 0, bytes, nbytes), TRI_OK);
}

static void copy_fixture(const char *folder, const char *below, const char *name)
{
    char path[1200];
    char *bytes;
    size_t nbytes;
    read_fixture(name, &bytes, &nbytes);
    snprintf(path, sizeof(path), "%s/%s", folder, below);
    assert_int_equal(tri_fs_make_folder(path), TRI_OK);
    write_file(path, name, bytes, nbytes);
    tri_free(bytes);
}

/* --- pixels --- */

static void expect_pixels(const char *line, const uint8_t *pixels, int64_t count, const char *hex)
{
    assert_int_equal(strspn(hex, "0123456789abcdef"), (size_t)(2 * count));
    for (int64_t i = 0; i < count; i++) {
        unsigned wanted;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &wanted), 1);
        if (abs((int)wanted - pixels[i]) > TOLERANCE)
            fail_msg("byte %" PRId64 ": want %u, got %u: %.60s", i, wanted, pixels[i], line);
    }
}

static void expect_line(const char *line)
{
    tri_data_config config = config_default();
    tri_image image;
    tri_image_fit fit;
    char name[64], size[16], resize[16], filter[16], color[16], path[1200];
    long long height, width;
    int hex;
    assert_int_equal(
        sscanf(line, "%63s %15s %15s %15s %15s %lld %lld %n", name, size, resize, filter, color, &height, &width, &hex),
        7);
    strcpy(config.image_size, strcmp(size, "-") == 0 ? "" : size);
    (void)tri_options_set(&tri_data_options, &config, "image_resize", resize);
    (void)tri_options_set(&tri_data_options, &config, "image_filter", filter);
    (void)tri_options_set(&tri_data_options, &config, "image_color", color);
    assert_int_equal(tri_image_fit_read(&config, &fit), TRI_OK);
    snprintf(path, sizeof(path), IMAGE_FIXTURES "/%s", name);
    assert_int_equal(tri_image_read(&(tri_image_place){.path = path}, fit.channels, &image), TRI_OK);
    tri_image_head head;
    assert_int_equal(tri_image_head_read(&(tri_image_place){.path = path}, &head), TRI_OK);
    assert_true(head.height == image.height && head.width == image.width);
    if (fit.height == 0) {
        assert_true(image.height == height && image.width == width);
        expect_pixels(line, image.pixels, height * width * fit.channels, line + hex);
    } else {
        uint8_t sample[44 * 44 * 3];
        assert_true(fit.height == height && fit.width == width);
        assert_int_equal(tri_image_fit_apply(&fit, &image, NULL, sample), TRI_OK);
        expect_pixels(line, sample, height * width * fit.channels, line + hex);
    }
    tri_free(image.pixels);
}

static void images_are_decoded_and_resized_as_pillow_does(void **state)
{
    (void)state;
    char *text, *rest;
    size_t nbytes, lines = 0;
    read_fixture("golden.txt", &text, &nbytes);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest), lines++)
        expect_line(line);
    assert_in_range(lines, 40, 100);
    tri_free(text);
}

static void every_prefix_of_a_file_is_refused_with_its_name(void **state)
{
    (void)state;
    static const char *const names[] = {"rgb.png", "gray.jpg", "progressive.jpeg", "alpha.webp", "turned6.webp"};
    for (size_t f = 0; f < TRI_COUNT_OF(names); f++) {
        char *bytes;
        size_t nbytes;
        tri_image image;
        read_fixture(names[f], &bytes, &nbytes);
        const size_t whole = strcmp(names[f], "turned6.webp") == 0 ? 200 : nbytes - 8; /* EXIF may be missing */
        for (size_t n = 0; n < whole; n++) {
            uint8_t *cut = malloc(n + 1); /* its end is known to the address sanitizer */
            memcpy(cut, bytes, n);
            assert_int_equal(tri_image_decode(cut, n, names[f], 3, &image), TRI_EFORMAT);
            assert_error_has(names[f]);
            free(cut);
        }
        tri_free(bytes);
    }
}

static void damaged_bytes_never_crash(void **state)
{
    (void)state;
    static const char *const names[] = {"palette.png", "rgb.jpg", "turned6.png", "rgb.webp", "cmyk.jpg"};
    for (size_t f = 0; f < TRI_COUNT_OF(names); f++) {
        char *bytes;
        size_t nbytes;
        read_fixture(names[f], &bytes, &nbytes);
        for (size_t i = 0; i < nbytes; i++) {
            tri_image image;
            const char was = bytes[i];
            bytes[i] = (char)(was ^ (1 << i % 8));
            tri_status status = tri_image_decode((const uint8_t *)bytes, nbytes, names[f], 3, &image);
            assert_true(status == TRI_OK || status == TRI_EFORMAT || status == TRI_ENOMEM);
            tri_free(image.pixels);
            bytes[i] = was;
        }
        tri_free(bytes);
    }
}

static void an_image_of_too_many_pixels_is_refused(void **state)
{
    (void)state;
    tri_image image;
    char *bytes;
    size_t nbytes;
    read_fixture("rgb.png", &bytes, &nbytes);
    memcpy(bytes + 16, "\0\1\0\0\0\1\0\0", 8); /* 65536 x 65536 */
    assert_int_equal(tri_image_decode((const uint8_t *)bytes, nbytes, "large.png", 3, &image), TRI_EFORMAT);
    assert_error_has("large.png: 65536 x 65536 pixels: want at most");
    tri_free(bytes);
}

/* --- folders --- */

static const char *const ant_files[] = {"rgb.png", "gray.jpg", "cmyk.jpg", "alpha.webp", "photo.png", "turned8.jpg"};
static const char *const bee_files[] = {"tall.png", "turned6.jpg",      "bits.png",    "rgb.jpg",
                                        "rgb.webp", "progressive.jpeg", "turned5.jpg", "gray16.png"};

static char *image_folder(void)
{
    char *folder = make_folder();
    for (size_t i = 0; i < TRI_COUNT_OF(bee_files); i++)
        copy_fixture(folder, "bee", bee_files[i]);
    for (size_t i = 0; i < TRI_COUNT_OF(ant_files); i++)
        copy_fixture(folder, i < 3 ? "ant" : "ant/more", ant_files[i]);
    copy_fixture(folder, ".hidden", "rgb.png");
    write_file(folder, "notes.txt", "?", 1);
    return folder;
}

static tri_data_config config_of(const char *folder)
{
    tri_data_config config = config_at(folder, "auto");
    strcpy(config.image_size, "8");
    return config;
}

static void a_folder_is_split_by_class_and_numbered_by_name(void **state)
{
    (void)state;
    char *folder = image_folder();
    tri_data_config config = config_of(folder);
    int counts[2][2] = {{0}};
    strcpy(config.test, "0.25");
    for (int test = 0; test < 2; test++) {
        tri_dataset *dataset;
        void *samples, *targets;
        assert_int_equal(tri_dataset_open(&config, test, &dataset), TRI_OK);
        assert_string_equal(dataset->ops->name, "images");
        assert_int_equal(dataset->info.classes, 2);
        assert_string_equal(dataset->names.texts[0], "ant");
        assert_string_equal(dataset->names.texts[1], "bee");
        assert_int_equal(read_whole(dataset, &samples, &targets), TRI_OK);
        for (int64_t i = 0; i < dataset->info.count; i++)
            counts[test][((int32_t *)targets)[i]]++;
        tri_free(samples);
        tri_free(targets);
        tri_dataset_close(dataset);
    }
    assert_int_equal(counts[1][0], 2);
    assert_int_equal(counts[1][1], 2);
    assert_int_equal(counts[0][0], 4);
    assert_int_equal(counts[0][1], 6);
    drop_folder(folder);
}

static void folders_for_training_and_validation_are_parts(void **state)
{
    (void)state;
    char *folder = make_folder();
    tri_data_config config = config_of(folder);
    tri_dataset *dataset;
    copy_fixture(folder, "train/ant", "rgb.png");
    copy_fixture(folder, "train/bee", "gray.jpg");
    copy_fixture(folder, "train/bee", "rgb.jpg");
    copy_fixture(folder, "val/bee", "rgb.webp");
    copy_fixture(folder, "test/ant", "rgb.webp");
    copy_fixture(folder, "test/bee", "rgb.webp");
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, 3);
    tri_dataset_close(dataset);
    assert_int_equal(tri_dataset_open(&config, TRI_PART_VALIDATION, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, 1);
    assert_int_equal(dataset->info.classes, 2);
    tri_dataset_close(dataset);
    assert_int_equal(tri_dataset_open(&config, TRI_PART_TEST, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, 2);
    tri_dataset_close(dataset);
    copy_fixture(folder, "val/cat", "rgb.webp");
    assert_int_equal(tri_dataset_open(&config, TRI_PART_VALIDATION, &dataset), TRI_EFORMAT);
    assert_error_has("val/cat: want a class that the training images have");
    drop_folder(folder);
}

static void images_of_several_sizes_need_one(void **state)
{
    (void)state;
    char *folder = image_folder();
    tri_data_config config = config_at(folder, "auto");
    tri_dataset *dataset;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_ECONFIG);
    assert_error_has("data.image_size: images of several sizes need one");
    strcpy(config.image_size, "8x");
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_ECONFIG);
    assert_error_has("want a number of pixels such as 224, or height x width such as 160x224, got '8x'");
    strcpy(config.image_size, "5x7");
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    assert_int_equal(dataset->info.sample.dim[0], 5);
    assert_int_equal(dataset->info.sample.dim[1], 7);
    tri_dataset_close(dataset);
    drop_folder(folder);
}

static void a_class_without_images_is_named(void **state)
{
    (void)state;
    char *folder = image_folder(), path[1200];
    tri_data_config config = config_of(folder);
    tri_dataset *dataset;
    snprintf(path, sizeof(path), "%s/cat", folder);
    assert_int_equal(tri_fs_make_folder(path), TRI_OK);
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_EFORMAT);
    assert_error_has("/cat: want .jpg, .png or .webp files of this class, got none");
    drop_folder(folder);
}

/* A file that is cut short, one that is none, and one whose head is right. */
static void broken_files_are_refused_or_skipped(void **state)
{
    (void)state;
    char *folder = image_folder(), path[1200], *bytes;
    tri_data_config config = config_of(folder);
    tri_dataset *dataset;
    void *samples, *targets;
    size_t nbytes;
    strcpy(config.test, "0");
    snprintf(path, sizeof(path), "%s/bee", folder);
    read_fixture("photo.png", &bytes, &nbytes);
    write_file(path, "cut.png", bytes, nbytes / 2);
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_EFORMAT);
    assert_error_has("bee/cut.png: the file ends in the middle of the image");
    write_file(path, "cut.png", "hello", 5);
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_EFORMAT);
    assert_error_has("bee/cut.png: want a JPEG, PNG or WebP image");
    config.broken = TRI_BROKEN_SKIP;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, TRI_COUNT_OF(ant_files) + TRI_COUNT_OF(bee_files));
    tri_dataset_close(dataset);
    bytes[nbytes / 2] ^= 4; /* only the decoder finds this */
    write_file(path, "cut.png", bytes, nbytes);
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, TRI_COUNT_OF(ant_files) + TRI_COUNT_OF(bee_files) + 1);
    assert_int_equal(read_whole(dataset, &samples, &targets), TRI_OK);
    tri_free(samples);
    tri_free(targets);
    tri_dataset_close(dataset);
    config.broken = TRI_BROKEN_REFUSE;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    assert_int_equal(read_whole(dataset, &samples, &targets), TRI_EFORMAT);
    assert_error_has("bee/cut.png");
    tri_free(samples);
    tri_free(targets);
    tri_dataset_close(dataset);
    tri_free(bytes);
    drop_folder(folder);
}

static void the_digest_depends_on_names_classes_and_pixels(void **state)
{
    (void)state;
    char *folder = image_folder(), path[1200], other[1200];
    tri_data_config config = config_of(folder);
    uint64_t digests[5];
    snprintf(path, sizeof(path), "%s/bee/rgb.jpg", folder);
    snprintf(other, sizeof(other), "%s/ant/other.jpg", folder);
    for (int i = 0; i < 5; i++) {
        tri_dataset *dataset;
        tri_data_identity identity;
        if (i == 2)
            config.image_filter = TRI_IMAGE_AREA;
        if (i == 3)
            assert_int_equal(tri_fs_rename(path, other), TRI_OK);
        if (i == 4)
            assert_int_equal(tri_fs_append(other, "more", 4), TRI_OK);
        assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
        assert_int_equal(tri_dataset_identify(dataset, 1 << 20, &identity), TRI_OK);
        digests[i] = identity.digest;
        tri_dataset_close(dataset);
    }
    assert_true(digests[0] == digests[1] && digests[1] != digests[2] && digests[2] != digests[3] &&
                digests[3] != digests[4]);
    drop_folder(folder);
}

static void classes_are_numbered_as_the_model_has_them(void **state)
{
    (void)state;
    char *folder = image_folder();
    tri_data_config config = config_of(folder);
    const char *texts[] = {"bee", "cat", "ant"};
    const tri_class_names names = {texts, 3}, fewer = {texts, 2};
    tri_dataset *dataset;
    void *samples, *targets;
    int counts[3] = {0};
    strcpy(config.test, "0");
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    assert_int_equal(tri_dataset_rename(dataset, &fewer), TRI_EFORMAT);
    assert_error_has("the class 'ant' is none of the 2 classes that the model was trained on");
    assert_int_equal(tri_dataset_rename(dataset, &names), TRI_OK);
    assert_int_equal(dataset->info.classes, 3);
    assert_int_equal(read_whole(dataset, &samples, &targets), TRI_OK);
    for (int64_t i = 0; i < dataset->info.count; i++)
        counts[((int32_t *)targets)[i]]++;
    assert_int_equal(counts[0], TRI_COUNT_OF(bee_files));
    assert_int_equal(counts[2], TRI_COUNT_OF(ant_files));
    tri_free(samples);
    tri_free(targets);
    tri_dataset_close(dataset);
    drop_folder(folder);
}

/* --- batches --- */

#define BATCH  6
#define SHARDS 4
#define ROWS   2
#define STEPS  9
#define EACH   (8 * 8 * 3)

typedef struct all_batches {
    float input[STEPS][BATCH][EACH];
    int32_t target[STEPS][BATCH];
} all_batches;

static void load_all(const tri_data_config *config, int world, int64_t first_step, all_batches *all)
{
    tri_dataset *dataset;
    assert_int_equal(tri_dataset_open(config, false, &dataset), TRI_OK);
    assert_int_equal(tri_dataset_measure(dataset, config), TRI_OK);
    for (int rank = 0; rank < world; rank++) {
        tri_loader *loader;
        tri_loader_batch batch;
        const int first = SHARDS * rank / world;
        const tri_loader_setup setup = {.sampler = {7, dataset->info.count, BATCH, SHARDS, true},
                                        .first_shard = first,
                                        .shard_count = SHARDS * (rank + 1) / world - first,
                                        .rows_max = ROWS,
                                        .training = true,
                                        .first_step = first_step,
                                        .end_step = STEPS};
        assert_int_equal(tri_loader_open(dataset, config, &setup, &loader), TRI_OK);
        for (int64_t step = first_step; step < STEPS; step++) {
            assert_int_equal(tri_loader_next(loader, &batch), TRI_OK);
            for (int s = 0; s < batch.shards; s++)
                for (int i = 0; i < batch.rows[s]; i++) {
                    const int64_t place = batch.first_sample[s] + i;
                    memcpy(all->input[step][place], (const float *)batch.input + (s * ROWS + i) * EACH,
                           sizeof(all->input[0][0]));
                    all->target[step][place] = ((const int32_t *)batch.target)[s * ROWS + i];
                }
        }
        tri_loader_close(loader);
    }
    tri_dataset_close(dataset);
}

static void batches_depend_on_no_worker_thread_or_cache(void **state)
{
    (void)state;
    char *folder = image_folder();
    all_batches *one = calloc(1, sizeof(*one)), *many = calloc(1, sizeof(*many));
    tri_data_config config = config_of(folder);
    for (int augmented = 0; augmented < 2; augmented++) {
        if (augmented) {
            config.random_crop = 0.1;
            config.crop = 1;
            config.flip = true;
            config.brightness = config.contrast = config.saturation = 0.4;
            config.erase = 0.5;
            config.hue = 0.1;
            config.mixup = 0.4;
            config.cutmix = 1;
            config.normalize = TRI_NORMALIZE_STANDARD;
        }
        config.prefetch = 0;
        load_all(&config, 1, 0, one);
        for (int world = 1; world <= 3; world++)
            for (int threads = 0; threads < 4; threads++) {
                config.prefetch = threads;
                config.threads = threads;
                config.cache_mib = threads % 2;
                memset(many, 0, sizeof(*many));
                load_all(&config, world, 0, many);
                assert_memory_equal(one, many, sizeof(*one));
            }
        memset(many, 0, sizeof(*many));
        load_all(&config, 2, 4, many); /* a run that goes on */
        assert_memory_equal(one->input[4], many->input[4], (STEPS - 4) * sizeof(one->input[0]));
    }
    free(one);
    free(many);
    drop_folder(folder);
}

/* The numbers come from a program in Python, not from augment.c. */
static void augmentation_keeps_its_numbers(void **state)
{
    (void)state;
    static const tri_image_window wanted[] = {{314, 66, 458, 390}, {506, 236, 266, 325}, {549, 29, 382, 494}};
    const tri_augment augment = {
        .seed = 3, .least_area = 0.08, .brightness = 0.5, .height = 1, .width = 1, .channels = 3};
    for (int64_t i = 0; i < 3; i++) {
        tri_image_window window;
        tri_augment_window(&augment, 2, i, 700, 1000, &window);
        assert_memory_equal(&window, &wanted[i], sizeof(window));
    }
    uint8_t pixels[2][3] = {{100, 0, 255}, {100, 0, 255}}; /* times 0.5506 and 1.1461 */
    for (int64_t i = 0; i < 2; i++)
        tri_augment_colors(&augment, 2, i, pixels[i]);
    assert_memory_equal(pixels, ((const uint8_t[2][3]){{55, 0, 140}, {115, 0, 255}}), sizeof(pixels));
}

/* Random crops are taken from the whole image; the same option works for images in memory. */
static void augmentation_is_a_function_of_seed_epoch_and_index(void **state)
{
    (void)state;
    const tri_augment augment = {
        .seed = 3, .least_area = 0.08, .erase = 0.5, .brightness = 0.5, .height = 4, .width = 5, .channels = 3};
    int64_t least = 1000 * 700, windows = 0, erased = 0, changed = 0;
    for (int64_t i = 0; i < 500; i++) {
        tri_image_window window, again;
        uint8_t pixels[60], gray[60];
        float image[60], sum = 0;
        tri_augment_window(&augment, 2, i, 700, 1000, &window);
        tri_augment_window(&augment, 2, i, 700, 1000, &again);
        assert_memory_equal(&window, &again, sizeof(window));
        assert_true(window.left >= 0 && window.top >= 0 && window.left + window.width <= 1000 &&
                    window.top + window.height <= 700);
        assert_true(3 * window.width <= 4 * window.height + 4 && 3 * window.height <= 4 * window.width + 4);
        least = window.width * window.height < least ? window.width * window.height : least;
        tri_augment_window(&augment, 3, i, 700, 1000, &again);
        windows += memcmp(&window, &again, sizeof(window)) != 0;
        memset(gray, 100, sizeof(gray));
        memset(pixels, 100, sizeof(pixels));
        tri_augment_colors(&augment, 2, i, pixels);
        assert_in_range(pixels[0], 50, 150);
        changed += memcmp(pixels, gray, sizeof(gray)) != 0;
        for (int p = 0; p < 60; p++)
            image[p] = 1;
        tri_augment_erase(&augment, 2, i, image);
        for (int p = 0; p < 60; p++)
            sum += image[p];
        erased += sum < 60;
    }
    assert_in_range(least, 700 * 1000 * 8 / 100 - 2000, 700 * 1000 / 5);
    assert_true(windows > 490 && changed > 450);
    assert_in_range(erased, 150, 350);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_are_decoded_and_resized_as_pillow_does),
        cmocka_unit_test(every_prefix_of_a_file_is_refused_with_its_name),
        cmocka_unit_test(damaged_bytes_never_crash),
        cmocka_unit_test(an_image_of_too_many_pixels_is_refused),
        cmocka_unit_test(a_folder_is_split_by_class_and_numbered_by_name),
        cmocka_unit_test(folders_for_training_and_validation_are_parts),
        cmocka_unit_test(images_of_several_sizes_need_one),
        cmocka_unit_test(a_class_without_images_is_named),
        cmocka_unit_test(broken_files_are_refused_or_skipped),
        cmocka_unit_test(the_digest_depends_on_names_classes_and_pixels),
        cmocka_unit_test(classes_are_numbered_as_the_model_has_them),
        cmocka_unit_test(batches_depend_on_no_worker_thread_or_cache),
        cmocka_unit_test(augmentation_keeps_its_numbers),
        cmocka_unit_test(augmentation_is_a_function_of_seed_epoch_and_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
