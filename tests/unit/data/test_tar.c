/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tar.c: tar files in WebDataset's form: what is read, what is refused with file and place, what the index keeps,
 * and that no more of them is in memory than what is being decoded.
 */
#include "data/tar/samples.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/runtime.h"
#include "data/images/images.h"
#include "data/tar/tar.h"
#include "unit/data/data_files.h"

#define BLOCK 512

/* A header with its sum, and the content. */
static void entry_add(tri_string *tar, const char *name, char type, const void *bytes, size_t nbytes)
{
    static const char zeros[BLOCK];
    char header[BLOCK] = {0};
    unsigned sum = 0;
    memcpy(header, name, strnlen(name, 100));
    snprintf(header + 100, 8, "%07o", 0644);
    snprintf(header + 124, 12, "%011zo", nbytes);
    memset(header + 148, ' ', 8);
    header[156] = type;
    memcpy(header + 257, "ustar\00000", 8);
    for (int i = 0; i < BLOCK; i++)
        sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
    assert_int_equal(tri_string_append_bytes(tar, header, BLOCK), TRI_OK);
    assert_int_equal(tri_string_append_bytes(tar, bytes, nbytes), TRI_OK);
    assert_int_equal(tri_string_append_bytes(tar, zeros, (BLOCK - nbytes % BLOCK) % BLOCK), TRI_OK);
}

static void text_add(tri_string *tar, const char *name, const char *text)
{
    entry_add(tar, name, '0', text, strlen(text));
}

static void tar_end(tri_string *tar)
{
    static const char zeros[2 * BLOCK];
    assert_int_equal(tri_string_append_bytes(tar, zeros, sizeof(zeros)), TRI_OK);
}

static tri_status parse(const tri_string *tar, size_t nbytes, const char *field, tri_tar_samples *out)
{
    tri_source source;
    assert_int_equal(tri_source_init(&source, tar->text, nbytes, "a.tar"), TRI_OK);
    tri_status status = tri_tar_samples_parse(&source, field, out);
    tri_source_fini(&source);
    return status;
}

static void expect_wrong(tri_string *tar, const char *text)
{
    tri_tar_samples samples;
    assert_int_equal(parse(tar, tar->nbytes, "", &samples), TRI_EFORMAT);
    assert_error_has("a.tar: byte ");
    assert_error_has(text);
    tri_string_fini(tar);
}

static const tri_tar_sample *sample_at(const tri_tar_samples *samples, size_t i)
{
    assert_true(i < samples->items.count);
    return tri_vector_at(&samples->items, i);
}

/* --- samples --- */

static void entries_of_one_name_are_a_sample(void **state)
{
    (void)state;
    tri_string tar = {0};
    tri_tar_samples samples;
    entry_add(&tar, "folder/", '5', "", 0);
    text_add(&tar, "folder/b.1.jpg", "???"); /* another ending: 1.jpg */
    text_add(&tar, "folder/b.PNG", "image");
    text_add(&tar, "folder/b.cls", " 7\n");
    text_add(&tar, "._b.png", "macOS");
    text_add(&tar, "folder/c.json", "{\"class\": \"\xc3\xa4 x\", \"more\": 1}");
    text_add(&tar, "folder/c.webp", "image");
    text_add(&tar, "folder/c.txt", "a text");
    text_add(&tar, "folder/d.jpeg", "image");
    text_add(&tar, "folder/d.txt", "two\nlines describe it");
    tar_end(&tar);
    assert_int_equal(parse(&tar, tar.nbytes, "", &samples), TRI_OK);
    assert_int_equal(samples.items.count, 3);
    assert_int_equal(samples.others, 2);
    assert_string_equal(sample_at(&samples, 0)->label, "7");
    assert_int_equal(sample_at(&samples, 0)->nbytes, 5);
    assert_memory_equal(tar.text + sample_at(&samples, 0)->at, "image", 5);
    assert_string_equal(sample_at(&samples, 1)->label, "\xc3\xa4 x");
    assert_string_equal(sample_at(&samples, 2)->label, "");
    tri_tar_samples_fini(&samples);
    assert_int_equal(parse(&tar, tar.nbytes, "more", &samples), TRI_OK);
    assert_string_equal(sample_at(&samples, 0)->label, "");
    assert_string_equal(sample_at(&samples, 1)->label, "1");
    tri_tar_samples_fini(&samples);
    tri_string_fini(&tar);
}

static void long_names_and_lengths_are_read_from_the_headers_before(void **state)
{
    (void)state;
    tri_string tar = {0};
    tri_tar_samples samples;
    char name[301] = {0}, pax[400];
    memset(name, 'n', 250);
    strcpy(name + 250, "/1.png");
    entry_add(&tar, "././@LongLink", 'L', name, strlen(name) + 1);
    text_add(&tar, "cut", "image");
    strcpy(name + 250, "/1.cls");
    snprintf(pax, sizeof(pax), "%zu path=%s\n", strlen(name) + 10, name);
    entry_add(&tar, "PaxHeader", 'x', pax, strlen(pax));
    text_add(&tar, "cut", "3");
    tar_end(&tar);
    assert_int_equal(parse(&tar, tar.nbytes, "", &samples), TRI_OK);
    assert_int_equal(samples.items.count, 1);
    assert_string_equal(sample_at(&samples, 0)->label, "3");
    tri_tar_samples_fini(&samples);
    tri_string_fini(&tar);
}

static void what_is_wrong_is_said_with_file_and_byte(void **state)
{
    (void)state;
    tri_string tar = {0};
    tri_tar_samples samples;
    text_add(&tar, "a.png", "image");
    text_add(&tar, "a.cls", "1");
    for (size_t n = 0; n < tar.nbytes; n += 256) { /* every cut of it */
        assert_int_equal(parse(&tar, n, "", &samples), TRI_EFORMAT);
        assert_error_has("cut short");
    }
    expect_wrong(&tar, "ends without its end mark: it is cut short");
    entry_add(&tar, "a.png", '1', "", 0);
    expect_wrong(&tar, "byte 0: a link: want files alone");
    entry_add(&tar, "a.png", 'S', "", 0);
    expect_wrong(&tar, "a sparse file");
    entry_add(&tar, "x", 'x', "22 GNU.sparse.major=1\n", 22);
    expect_wrong(&tar, "a sparse file");
    entry_add(&tar, "x", 'x', "99 path=a\n", 10);
    expect_wrong(&tar, "the pax header is damaged");
    entry_add(&tar, "x", 'x', "30 size=99999999999999999999a\n", 30);
    expect_wrong(&tar, "the size in the pax header is not a number");
    entry_add(&tar, "x", 'x', "20 size=99999999999\n", 20);
    text_add(&tar, "a.png", "image");
    expect_wrong(&tar, "the entry has 99999999999 bytes, and the file only 512 more");
    text_add(&tar, "a.png", "image");
    tar.text[3] ^= 1;
    expect_wrong(&tar, "the checksum of the tar header is wrong");
    text_add(&tar, "a.png", "image");
    text_add(&tar, "b.png", "image");
    text_add(&tar, "a.cls", "1");
    expect_wrong(&tar, "byte 2048: the name 'a' comes twice, first at byte 0");
    text_add(&tar, "a.png", "image");
    text_add(&tar, "a.png", "image");
    expect_wrong(&tar, "byte 1024 (a.png): the name comes twice");
    text_add(&tar, "a.png", "image");
    text_add(&tar, "a.jpg", "image");
    expect_wrong(&tar, "a second image of the sample");
    text_add(&tar, "a.cls", "\xff");
    expect_wrong(&tar, "byte 0 (a.cls): want a label of one line in UTF-8");
    text_add(&tar, "a.json", "{\"label\": 1,");
    expect_wrong(&tar, "byte 0 (a.json): line 1 of the JSON");
    text_add(&tar, "a.json", "{\"label\": [1]}");
    expect_wrong(&tar, "want a text or a whole number as label");
}

/* --- files --- */

static void file_of(const char *name, char **bytes, size_t *nbytes)
{
    char path[1200];
    snprintf(path, sizeof(path), IMAGE_FIXTURES "/%s", name);
    assert_int_equal(tri_fs_read(path, 0, bytes, nbytes), TRI_OK);
}

/* `count` samples of classes 0, 1, 2, 0, ...; those of the same remainder by 3 have one image. */
static void tar_write(const char *folder, const char *name, int first, int count)
{
    static const char *const images[] = {"rgb.png", "gray.jpg", "tall.png"};
    tri_string tar = {0};
    for (int i = first; i < first + count; i++) {
        char *bytes, entry[64], label[16];
        size_t nbytes;
        file_of(images[i % 3], &bytes, &nbytes);
        snprintf(entry, sizeof(entry), "%05d.%s", i, strrchr(images[i % 3], '.') + 1);
        entry_add(&tar, entry, '0', bytes, nbytes);
        tri_free(bytes);
        snprintf(entry, sizeof(entry), "%05d.cls", i);
        snprintf(label, sizeof(label), "%d", i % 3);
        text_add(&tar, entry, label);
    }
    tar_end(&tar);
    write_file(folder, name, tar.text, tar.nbytes);
    tri_string_fini(&tar);
}

static tri_data_config config_of(const char *path)
{
    tri_data_config config = config_at(path, "auto");
    strcpy(config.image_size, "8");
    return config;
}

static void folders_patterns_and_parts_are_found(void **state)
{
    (void)state;
    char *folder = make_folder(), path[1200];
    tri_dataset *dataset;
    tar_write(folder, "train-08.tar", 0, 4);
    tar_write(folder, "train-09.tar", 4, 4);
    tar_write(folder, "train-10.tar", 8, 4);
    tar_write(folder, "val-0.tar", 12, 3);
    static const struct {
        const char *path;
        int64_t count;
    } cases[] = {{"", 12},
                 {"/train-09.tar", 4},
                 {"/train-{08..10}.tar", 12},
                 {"/{train-09,val-0}.tar", 7},
                 {"/train-*.tar", 12},
                 {"/train-?9.tar", 4}};
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        snprintf(path, sizeof(path), "%s%s", folder, cases[i].path);
        tri_data_config config = config_of(path);
        strcpy(config.test, "0");
        assert_int_equal(tri_dataset_open(&config, TRI_PART_TRAIN, &dataset), TRI_OK);
        assert_string_equal(dataset->ops->name, "webdataset");
        assert_int_equal(dataset->info.count, cases[i].count);
        tri_dataset_close(dataset);
    }
    tri_data_config config = config_of(folder);
    assert_int_equal(tri_dataset_open(&config, TRI_PART_VALIDATION, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, 3);
    assert_int_equal(dataset->info.classes, 3);
    tri_dataset_close(dataset);
    snprintf(config.path, sizeof(config.path), "%s/train-{08..11}.tar", folder);
    assert_int_equal(tri_dataset_open(&config, TRI_PART_TRAIN, &dataset), TRI_ENOTFOUND);
    assert_error_has("train-11.tar: there is no such file");
    snprintf(config.path, sizeof(config.path), "%s/train.tar.gz", folder);
    write_file(folder, "train.tar.gz", "x", 1);
    assert_int_equal(tri_dataset_open(&config, TRI_PART_TRAIN, &dataset), TRI_EFORMAT);
    assert_error_has("train.tar.gz: want a .tar file that is not compressed");
    drop_folder(folder);
    folder = make_folder();
    static const struct {
        const char *path, *bytes, *tool;
    } compressed[] = {{"a.tar.gz", "\x1f\x8b", "gunzip"},
                      {"a.tgz", "\x1f\x8b", "gunzip"},
                      {"a.tar", "\x1f\x8b", "gunzip <"},
                      {"a.tar.xz",
                       "\xfd"
                       "7zXZ",
                       "unxz"},
                      {"a.tar.zst", "\x28\xb5\x2f\xfd", "unzstd"},
                      {"a.jsonl.bz2", "BZh9", "bunzip2"}};
    for (size_t i = 0; i < TRI_COUNT_OF(compressed); i++) { /* the file, then its folder */
        char whole[1400], content[BLOCK] = {0};
        memcpy(content, compressed[i].bytes, strlen(compressed[i].bytes));
        snprintf(path, sizeof(path), "%s/%s", folder, compressed[i].path);
        write_file(folder, compressed[i].path, content, BLOCK);
        snprintf(whole, sizeof(whole), "%s: want ", path);
        for (int k = 0; k < 2; k++) {
            strcpy(config.path, k == 0 ? path : folder);
            assert_int_equal(tri_dataset_open(&config, TRI_PART_TRAIN, &dataset), TRI_EFORMAT);
            assert_error_has(whole);
            assert_error_has(" not compressed, since samples are read at their places: ");
            assert_error_has(compressed[i].tool);
        }
        assert_int_equal(tri_fs_remove(path), TRI_OK);
    }
    drop_folder(folder);
}

static void samples_without_a_label_are_refused_or_left_out(void **state)
{
    (void)state;
    char *folder = make_folder();
    char *bytes;
    size_t nbytes;
    tri_string tar = {0};
    tri_dataset *dataset;
    int64_t count;
    file_of("rgb.png", &bytes, &nbytes);
    entry_add(&tar, "a.png", '0', bytes, nbytes);
    text_add(&tar, "a.cls", "ant");
    entry_add(&tar, "b.png", '0', bytes, nbytes);
    tar_end(&tar);
    write_file(folder, "x.tar", tar.text, tar.nbytes);
    tri_data_config config = config_of(folder);
    strcpy(config.test, "0");
    assert_int_equal(tri_dataset_open(&config, TRI_PART_TRAIN, &dataset), TRI_EFORMAT);
    assert_error_has("the sample has no label (.cls, .json or .txt) (data.broken=skip continues without)");
    config.broken = TRI_BROKEN_SKIP;
    assert_int_equal(tri_dataset_open(&config, TRI_PART_TRAIN, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, 1);
    assert_string_equal(dataset->names.texts[0], "ant");
    assert_non_null(strstr(tri_images_broken(dataset, &count)[0], "x.tar: byte "));
    assert_int_equal(count, 1);
    tri_dataset_close(dataset);
    tri_free(bytes);
    tri_string_fini(&tar);
    drop_folder(folder);
}

static void a_label_that_is_a_name_is_found_before_one_that_is_a_number(void **state)
{
    (void)state;
    static const char *const labels[] = {"07", "7", "cat"};
    char *folder = make_folder();
    char *bytes;
    size_t nbytes;
    tri_string tar = {0};
    tri_dataset *dataset;
    file_of("rgb.png", &bytes, &nbytes);
    for (int i = 0; i < 3; i++) {
        char name[2][8] = {"a.png", "a.cls"};
        name[0][0] = name[1][0] = (char)('a' + i);
        entry_add(&tar, name[0], '0', bytes, nbytes);
        text_add(&tar, name[1], labels[i]);
    }
    tar_end(&tar);
    write_file(folder, "x.tar", tar.text, tar.nbytes);
    tri_data_config config = config_of(folder);
    strcpy(config.test, "0");
    assert_int_equal(tri_dataset_open(&config, TRI_PART_TRAIN, &dataset), TRI_OK);
    assert_int_equal(dataset->info.count, 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(dataset->names.texts[i], labels[i]);
    tri_dataset_close(dataset);
    tri_free(bytes);
    tri_string_fini(&tar);
    drop_folder(folder);
}

static void the_index_is_used_until_the_file_changes(void **state)
{
    (void)state;
    char *folder = make_folder(), path[1200], index[1200], *before, *after;
    size_t nbytes;
    tri_tar_samples samples;
    tar_write(folder, "x.tar", 0, 5);
    snprintf(path, sizeof(path), "%s/x.tar", folder);
    snprintf(index, sizeof(index), "%s/.trireme/x.tar.index", folder);
    for (int i = 0; i < 3; i++) { /* made, read, damaged */
        assert_int_equal(tri_tar_samples_load(path, "", "", &samples), TRI_OK);
        assert_int_equal(samples.items.count, 5);
        assert_string_equal(sample_at(&samples, 4)->label, "1");
        tri_tar_samples_fini(&samples);
        assert_int_equal(tri_fs_read(index, 0, i == 0 ? &before : &after, &nbytes), TRI_OK);
        if (i == 0)
            continue;
        assert_string_equal(after, before);
        after[nbytes / 2] ^= 1;
        write_file(folder, ".trireme/x.tar.index", after, nbytes);
        tri_free(after);
    }
    assert_int_equal(tri_fs_remove(path), TRI_OK);
    tar_write(folder, "x.tar", 0, 6);
    assert_int_equal(tri_tar_samples_load(path, "", "", &samples), TRI_OK);
    assert_int_equal(samples.items.count, 6);
    tri_tar_samples_fini(&samples);
    tri_free(before);
    drop_folder(folder);
}

typedef struct loading {
    char path[1200];
    atomic_bool done;
    tri_status status;
    tri_tar_samples samples;
} loading;

static void load(void *arg)
{
    loading *one = arg;
    one->status = tri_tar_samples_load(one->path, "", "", &one->samples);
    atomic_store(&one->done, true);
}

static void one_process_makes_the_index_and_others_take_it(void **state)
{
    (void)state;
    char *folder = make_folder(), lock_path[1200], *text;
    size_t nbytes;
    tri_fs_lock lock;
    tri_thread *thread;
    loading one = {0};
    tar_write(folder, "x.tar", 0, 5);
    snprintf(one.path, sizeof(one.path), "%s/x.tar", folder);
    load(&one); /* its index, of fewer samples, is what the other process makes */
    assert_int_equal(one.status, TRI_OK);
    snprintf(lock_path, sizeof(lock_path), "%s/.trireme/x.tar.index", folder);
    assert_int_equal(tri_fs_read(lock_path, 0, &text, &nbytes), TRI_OK);
    char *head = tri_strndup(text, (size_t)(strchr(text, '\n') + 1 - text));
    tri_string other = {0};
    one.samples.items.count = 2;
    assert_int_equal(tri_tar_index_print(&one.samples, head, &other), TRI_OK);
    tri_tar_samples_fini(&one.samples);
    assert_int_equal(tri_fs_remove(lock_path), TRI_OK);
    atomic_store(&one.done, false);
    snprintf(lock_path, sizeof(lock_path), "%s/.trireme/lock", folder);
    assert_true(tri_fs_lock_try(lock_path, &lock));
    assert_int_equal(tri_thread_start(&thread, "load", load, &one), TRI_OK);
    for (int i = 0; i < 50 && !atomic_load(&one.done); i++)
        tri_sleep_ns(TRI_NS_PER_MS); /* it does not end: nothing is measured */
    assert_false(atomic_load(&one.done));
    write_file(folder, ".trireme/x.tar.index", other.text, other.nbytes);
    tri_fs_lock_release(&lock);
    tri_thread_join(thread);
    assert_int_equal(one.status, TRI_OK);
    assert_int_equal(one.samples.items.count, 2);
    tri_tar_samples_fini(&one.samples);
    tri_string_fini(&other);
    tri_free(head);
    tri_free(text);
    drop_folder(folder);
}

/* An epoch of 24 MiB: what is in memory at most is far less. */
static void a_set_is_never_held_whole(void **state)
{
    (void)state;
    char *folder = make_folder(), *padding = calloc(1, 1 << 20), path[1200];
    tri_string tar = {0};
    char *bytes;
    size_t nbytes;
    tri_dataset *dataset;
    tri_loader *loader;
    tri_loader_batch batch;
    snprintf(path, sizeof(path), "%s/x.tar", folder);
    file_of("gray.jpg", &bytes, &nbytes);
    for (int i = 0; i < 24; i++) { /* 24 MiB: other data may follow the end of a JPEG */
        char name[32];
        snprintf(name, sizeof(name), "%02d.jpg", i);
        memcpy(padding, bytes, nbytes);
        memcpy(padding + (1 << 20) - 2, "\xff\xd9", 2);
        entry_add(&tar, name, '0', padding, 1 << 20);
        snprintf(name, sizeof(name), "%02d.cls", i);
        text_add(&tar, name, "0");
        if (i == 23)
            tar_end(&tar);
        assert_int_equal(tri_fs_append(path, tar.text, tar.nbytes), TRI_OK);
        tri_string_clear(&tar);
    }
    tri_string_fini(&tar);
    tri_data_config config = config_of(folder);
    strcpy(config.test, "0");
    config.threads = 2;
    assert_int_equal(tri_dataset_open(&config, TRI_PART_TRAIN, &dataset), TRI_OK);
    const tri_loader_setup setup = {.sampler = {.seed = 7, .count = 24, .batch = 6, .shards = 2, .shuffle = true},
                                    .shard_count = 2,
                                    .rows_max = 3,
                                    .training = true,
                                    .end_step = 4};
    assert_int_equal(tri_loader_open(dataset, &config, &setup, &loader), TRI_OK);
    for (int step = 0; step < 4; step++)
        assert_int_equal(tri_loader_next(loader, &batch), TRI_OK);
    assert_in_range(tri_memory_now().peak_nbytes, 1 << 20, 10 << 20);
    tri_loader_close(loader);
    tri_dataset_close(dataset);
    free(padding);
    tri_free(bytes);
    drop_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_is_never_held_whole), /* the first: it looks at the peak of memory */
        cmocka_unit_test(entries_of_one_name_are_a_sample),
        cmocka_unit_test(long_names_and_lengths_are_read_from_the_headers_before),
        cmocka_unit_test(what_is_wrong_is_said_with_file_and_byte),
        cmocka_unit_test(folders_patterns_and_parts_are_found),
        cmocka_unit_test(samples_without_a_label_are_refused_or_left_out),
        cmocka_unit_test(a_label_that_is_a_name_is_found_before_one_that_is_a_number),
        cmocka_unit_test(the_index_is_used_until_the_file_changes),
        cmocka_unit_test(one_process_makes_the_index_and_others_take_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
