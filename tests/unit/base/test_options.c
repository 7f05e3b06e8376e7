/* SPDX-License-Identifier: Apache-2.0
 *
 * test_options.c: a table with one row of each type, as modules write them.
 */
#include "base/options.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

#define test_kind_words(W) W(TEST_SGD, "sgd") W(TEST_ADAMW, "adamw") W(TEST_LAMB, "lamb")
TRI_ENUM(test_kind)

#define TEST_OPTIONS(X)                                                                                                \
    X(ENUM, name, "adamw", 0, 0, test_kind, "the rule that moves the weights")                                         \
    X(REAL, lr, "0.001", 0, 1, NULL, "learning rate after warmup")                                                     \
    X(REAL, shift, "-0.5", 0, 0, NULL, "any number")                                                                   \
    X(INT, warmup, "2k", 0, 1e6, NULL, "steps until the learning rate is whole")                                       \
    X(INT, seed, "-1", 0, 0, NULL, "any integer")                                                                      \
    X(INT, count, "1", 1, 1e19, NULL,                                                                                  \
      "how many there are of whatever this option counts, told at such a length that "                                 \
      "the text does not fit in one line of help and has to continue in the next")                                     \
    X(COUNT, ranks, "auto", 1, 64, tri_auto, "ranks")                                                                  \
    X(BOOL, nesterov, "no", 0, 0, NULL, "look ahead", "optim.name=sgd optim.lr!=0")                                    \
    X(NAME, label, "", 0, 0, NULL, "any name")                                                                         \
    X(PATH, path, "/tmp/x", 0, 0, NULL, "where to write")

typedef struct test_config {
    TEST_OPTIONS(TRI_OPTION_FIELD)
} test_config;

#define TRI_OPTION_STRUCT test_config
static const tri_option rows[] = {TEST_OPTIONS(TRI_OPTION_ROW)};
static const tri_option_table table = TRI_OPTION_TABLE("optim", test_config, rows, "how weights move");

static void defaults_are_what_the_table_says(void **state)
{
    (void)state;
    test_config config, other;
    memset(&config, 0xff, sizeof(config));
    memset(&other, 0x11, sizeof(other));
    tri_options_defaults(&table, &config);
    tri_options_defaults(&table, &other);
    assert_int_equal(config.name, TEST_ADAMW);
    assert_string_equal(test_kind_word(config.name), "adamw");
    assert_int_equal(config.ranks, TRI_OPTION_AUTO);
    assert_true(config.lr == 0.001);
    assert_true(config.shift == -0.5);
    assert_int_equal(config.warmup, 2000);
    assert_int_equal(config.seed, -1);
    assert_false(config.nesterov);
    assert_string_equal(config.label, "");
    assert_string_equal(config.path, "/tmp/x");
    assert_memory_equal(&config, &other, sizeof(config)); /* to the last byte of padding */
}

static void a_path_is_no_url(void **state)
{
    test_config config;

    (void)state;
    tri_options_defaults(&table, &config);
    assert_int_equal(tri_options_set(&table, &config, "path", "s3://bucket/run"), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "optim.path"));
    assert_non_null(strstr(tri_last_error(), "want a local path, got the URL scheme s3://"));
    assert_string_equal(config.path, "/tmp/x");
    assert_int_equal(tri_options_set(&table, &config, "path", "a:/b"), TRI_OK);
}

static void fields_are_found_by_name(void **state)
{
    (void)state;
    assert_ptr_equal(tri_options_find(&table, "lr"), &rows[1]);
    assert_null(tri_options_find(&table, "l"));
    assert_null(tri_options_find(&table, "optim.lr"));
}

typedef struct setting {
    const char *field, *text, *printed; /* printed NULL: refused */
} setting;

static const setting settings[] = {
    {"nesterov", "true", "true"},
    {"nesterov", "yes", "true"},
    {"nesterov", "on", "true"},
    {"nesterov", "off", "false"},
    {"nesterov", "False", NULL},
    {"nesterov", "1", NULL},
    {"nesterov", "", NULL},
    {"seed", "0", "0"},
    {"seed", "+12", "12"},
    {"seed", "-3k", "-3000"},
    {"seed", "7M", "7000000"},
    {"seed", "2G", "2000000000"},
    {"seed", "9223372036854775807", "9223372036854775807"},
    {"seed", "-9223372036854775808", "-9223372036854775808"},
    {"seed", "9223372036854775808", NULL},
    {"seed", "9223372036854775807k", NULL},
    {"seed", "99999999999999999999", NULL},
    {"seed", "12abc", NULL},
    {"seed", "1.5", NULL},
    {"seed", "1e3", NULL},
    {"seed", "", NULL},
    {"seed", " 1", NULL},
    {"seed", "1 ", NULL},
    {"seed", "k", NULL},
    {"seed", "1kk", NULL},
    {"seed", "0x10", NULL},
    {"seed", "--1", NULL},
    {"seed", "-", NULL},
    {"seed", "1K", NULL},
    {"warmup", "1M", "1000000"},
    {"warmup", "1000001", NULL},
    {"warmup", "-1", NULL},
    {"warmup", "0", "0"},
    {"count", "0", NULL},
    {"count", "9223372036854775807", "9223372036854775807"},
    {"lr", "0", "0"},
    {"lr", "1", "1"},
    {"lr", "1e-3", "0.001"},
    {"lr", ".5", "0.5"},
    {"lr", "1.0000001", NULL},
    {"lr", "-0.1", NULL},
    {"lr", "nan", NULL},
    {"lr", "inf", NULL},
    {"lr", "", NULL},
    {"lr", "0.5x", NULL},
    {"lr", "0,5", NULL},
    {"lr", " 0.5", NULL},
    {"lr", "0.5 ", NULL},
    {"lr", "abc", NULL},
    {"lr", "0x1", NULL},
    {"shift", "nan", NULL},
    {"shift", "-NAN", NULL},
    {"shift", "nan(1)", NULL},
    {"shift", "-inf", "-inf"},
    {"shift", "1e999", NULL},
    {"shift", "1e300", "1e+300"},
    {"shift", "+2.25", "2.25"},
    {"shift", "infinity", NULL},
    {"name", "sgd", "sgd"},
    {"name", "lamb", "lamb"},
    {"name", "sg", NULL},
    {"name", "sgd|adamw", NULL},
    {"name", "", NULL},
    {"name", "SGD", NULL},
    {"ranks", "auto", "auto"},
    {"ranks", "64", "64"},
    {"ranks", "65", NULL},
    {"ranks", "-1", NULL},
    {"ranks", "aut", NULL},
    {"ranks", "", NULL},
    {"label", "anything goes", "anything goes"},
    {"path", "", ""},
    {"path", "/a b", "/a b"},
};

static void values_are_taken_or_refused_untouched(void **state)
{
    (void)state;
    for (size_t i = 0; i < TRI_COUNT_OF(settings); i++) {
        const setting *row = &settings[i];
        test_config config, before;
        tri_options_defaults(&table, &config);
        before = config;
        tri_status status = tri_options_set(&table, &config, row->field, row->text);
        if (!row->printed) {
            if (status != TRI_ECONFIG)
                fail_msg("%s = \"%s\" was taken", row->field, row->text);
            assert_memory_equal(&config, &before, sizeof(config));
            continue;
        }
        if (status != TRI_OK)
            fail_msg("%s", tri_last_error());
        tri_string out = {0};
        assert_int_equal(tri_options_print(tri_options_find(&table, row->field), &config, &out), TRI_OK);
        assert_string_equal(tri_string_text(&out), row->printed);
        tri_string_fini(&out);
    }
}

static void long_names_and_paths_are_refused(void **state)
{
    (void)state;
    test_config config;
    tri_options_defaults(&table, &config);
    char text[1100];
    memset(text, 'n', sizeof(text));
    text[64] = '\0';
    assert_int_equal(tri_options_set(&table, &config, "label", text), TRI_ECONFIG);
    text[63] = '\0';
    assert_int_equal(tri_options_set(&table, &config, "label", text), TRI_OK);
    assert_string_equal(config.label, text);
    memset(text, 'n', sizeof(text));
    text[1024] = '\0';
    assert_int_equal(tri_options_set(&table, &config, "path", text), TRI_ECONFIG);
    text[1023] = '\0';
    assert_int_equal(tri_options_set(&table, &config, "path", text), TRI_OK);
    assert_string_equal(config.path, text);
}

static void setting_leaves_no_bytes_of_the_old_text(void **state)
{
    (void)state;
    test_config config, fresh;
    tri_options_defaults(&table, &config);
    fresh = config;
    tri_options_set(&table, &config, "path", "/a/much/longer/path");
    tri_options_set(&table, &config, "path", "/tmp/x");
    assert_memory_equal(&config, &fresh, sizeof(config));
}

static void refusals_tell_the_wanted_and_the_got(void **state)
{
    (void)state;
    test_config config;
    tri_options_defaults(&table, &config);
    tri_options_set(&table, &config, "lr", "2");
    assert_string_equal(tri_last_error(), "optim.lr: want a number, 0 to 1, got \"2\"");
    tri_options_set(&table, &config, "count", "0");
    assert_string_equal(tri_last_error(), "optim.count: want an integer (k, M, G allowed), at least 1, got \"0\"");
    tri_options_set(&table, &config, "seed", NULL);
    assert_string_equal(tri_last_error(), "optim.seed: want an integer (k, M, G allowed), got \"\"");
    tri_options_set(&table, &config, "nesterov", "maybe");
    assert_string_equal(tri_last_error(), "optim.nesterov: want true or false (yes/no, on/off), got \"maybe\"");
    tri_options_set(&table, &config, "name", "adam");
    assert_string_equal(tri_last_error(),
                        "optim.name: want one of sgd|adamw|lamb, got \"adam\" (did you mean \"adamw\"?)");
    tri_options_set(&table, &config, "ranks", "0");
    assert_string_equal(tri_last_error(), "optim.ranks: want auto or an integer, 1 to 64, got \"0\"");
    tri_options_set(&table, &config, "name", "rmsprop");
    assert_string_equal(tri_last_error(), "optim.name: want one of sgd|adamw|lamb, got \"rmsprop\"");
    assert_int_equal(tri_options_set(&table, &config, "wramup", "1"), TRI_ECONFIG);
    assert_string_equal(tri_last_error(), "optim.wramup: want an option of section optim, got an unknown name (did you "
                                          "mean \"optim.warmup\"?)");
    assert_int_equal(tri_options_set(&table, &config, "zzzzzz", "1"), TRI_ECONFIG);
    assert_null(strstr(tri_last_error(), "did you mean"));
}

static void help_is_aligned_and_wrapped(void **state)
{
    (void)state;
    tri_string out = {0};
    assert_int_equal(tri_options_help(&table, &out), TRI_OK);
    assert_string_equal(
        tri_string_text(&out),
        "optim: how weights move\n"
        "  optim.name      adamw   the rule that moves the weights (sgd|adamw|lamb)\n"
        "  optim.lr        0.001   learning rate after warmup (0 to 1)\n"
        "  optim.shift     -0.5    any number\n"
        "  optim.warmup    2k      steps until the learning rate is whole (0 to 1000000)\n"
        "  optim.seed      -1      any integer\n"
        "  optim.count     1       how many there are of whatever this option counts, told at such a length\n"
        "                          that the text does not fit in one line of help and has to continue in the\n"
        "                          next (at least 1)\n"
        "  optim.ranks     auto    ranks (auto|1 to 64)\n"
        "  optim.nesterov  no      look ahead [optim.name=sgd optim.lr!=0]\n"
        "  optim.label     -       any name\n"
        "  optim.path      /tmp/x  where to write\n");
    tri_string_fini(&out);
}

#define wide_kind_words(W)                                                                                             \
    W(WIDE_A, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")                                                                        \
    W(WIDE_B, "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb") W(WIDE_C, "cccccccccccccccccccccccccccccc") W(WIDE_D, "dddddddddd")
TRI_ENUM(wide_kind)
#define WIDE_OPTIONS(X) X(ENUM, kind, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 0, 0, wide_kind, "one of many")
typedef struct wide_config {
    WIDE_OPTIONS(TRI_OPTION_FIELD)
} wide_config;
#undef TRI_OPTION_STRUCT
#define TRI_OPTION_STRUCT wide_config
static const tri_option wide[] = {WIDE_OPTIONS(TRI_OPTION_ROW)};

static void long_choices_break_after_a_bar(void **state)
{
    (void)state;
    const tri_option_table wide_table = TRI_OPTION_TABLE("w", wide_config, wide, "wide");
    tri_string out = {0};
    assert_int_equal(tri_options_help(&wide_table, &out), TRI_OK);
    size_t lines = 0;
    for (const char *at = tri_string_text(&out); *at;) {
        size_t nbytes = strcspn(at, "\n");
        assert_true(nbytes <= 100);
        at += nbytes + 1;
        lines++;
    }
    assert_int_equal(lines, 4); /* section, key and its long default, two lines of text */
    assert_non_null(strstr(tri_string_text(&out), "|\n"));
    tri_string_fini(&out);
}

static void help_reports_lack_of_memory(void **state)
{
    (void)state;
    tri_memory_counts before = tri_memory_now();
    tri_status status = TRI_ENOMEM;
    for (uint64_t n = 1; status != TRI_OK; n++) {
        tri_string out = {0};
        tri_memory_fail_at(n);
        status = tri_options_help(&table, &out);
        tri_memory_fail_at(0);
        tri_string_fini(&out);
        assert_true(status == TRI_OK || status == TRI_ENOMEM);
        assert_int_equal(tri_memory_now().live, before.live);
        assert_true(n < 1000);
    }
    test_config config;
    tri_options_defaults(&table, &config);
    tri_memory_fail_at(1);
    assert_int_equal(tri_options_set(&table, &config, "lr", "x"), TRI_ENOMEM);
}

static void the_nearest_word_is_near(void **state)
{
    (void)state;
    static const char *const words[] = {"train", "launch", "bench", "sim", "tune"};
    const size_t count = TRI_COUNT_OF(words);
    assert_string_equal(tri_options_nearest("trian", words, count), "train"); /* swapped neighbours: distance 1 */
    assert_string_equal(tri_options_nearest("launhc", words, count), "launch");
    assert_string_equal(tri_options_nearest("tun", words, count), "tune");
    assert_string_equal(tri_options_nearest("benchh", words, count), "bench");
    assert_string_equal(tri_options_nearest("isum", words + 3, 1), "sim"); /* 2 of 4 is still near */
    assert_null(tri_options_nearest("sox", words, count));                 /* 2 of 3 is not */
    assert_string_equal(tri_options_nearest("sim", words, count), "sim");
    assert_null(tri_options_nearest("checkpoint", words, count));
    const char *const far[] = {"sample_tokens", "on_straggler", "eval_batches"};
    assert_null(tri_options_nearest("early_stopping", far, 3));
    assert_null(tri_options_nearest("", words, count));
    assert_null(tri_options_nearest("x", words, 0));
    char huge[1000];
    memset(huge, 'a', sizeof(huge));
    huge[999] = '\0';
    assert_null(tri_options_nearest(huge, words, count));
    const char *const huge_words[] = {huge};
    assert_null(tri_options_nearest("a", huge_words, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_what_the_table_says),
        cmocka_unit_test(a_path_is_no_url),
        cmocka_unit_test(fields_are_found_by_name),
        cmocka_unit_test(values_are_taken_or_refused_untouched),
        cmocka_unit_test(long_names_and_paths_are_refused),
        cmocka_unit_test(setting_leaves_no_bytes_of_the_old_text),
        cmocka_unit_test(refusals_tell_the_wanted_and_the_got),
        cmocka_unit_test(help_is_aligned_and_wrapped),
        cmocka_unit_test(long_choices_break_after_a_bar),
        cmocka_unit_test(help_reports_lack_of_memory),
        cmocka_unit_test(the_nearest_word_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
