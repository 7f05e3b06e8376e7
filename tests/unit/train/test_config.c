/* SPDX-License-Identifier: Apache-2.0 */
#include "train/core/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char text[] = "model: {name: mlp, hidden: [32, 16]}\n"
                           "data: {name: synthetic}\n"
                           "optim:\n"
                           "  lr: 0.2\n";

/* Loads and expects a configuration error whose message has `part`. */
static void expect_error(const char *yaml, const char *override, const char *part)
{
    tri_config config;
    const char *const overrides[] = {override, NULL};
    assert_int_equal(tri_config_load(NULL, yaml, override ? overrides : NULL, &config), TRI_ECONFIG);
    if (!strstr(tri_last_error(), part))
        fail_msg("want '%s' in: %s", part, tri_last_error());
    tri_config_fini(&config);
}

static void the_command_line_wins_over_the_file_and_the_file_over_defaults(void **state)
{
    (void)state;
    tri_config config;
    const char *const overrides[] = {"optim.lr=0.05", "train.batch=64", "model.hidden=[8]", NULL};
    assert_int_equal(tri_config_load(NULL, text, NULL, &config), TRI_OK);
    assert_true(config.optim.lr == 0.2);
    assert_int_equal(config.train.batch, 128);
    tri_config_fini(&config);
    assert_int_equal(tri_config_load(NULL, text, overrides, &config), TRI_OK);
    assert_true(config.optim.lr == 0.05);
    assert_int_equal(config.train.batch, 64);
    assert_int_equal(tri_yaml_count(tri_yaml_find(config.model, "hidden")), 1);
    tri_config_fini(&config);
}

static void old_names_are_refused_with_the_new_ones(void **state)
{
    (void)state;
    expect_error("optim: {final_factor: 0.1}\n", NULL,
                 "configuration:1: 'optim.final_factor' has another name now: want 'optim.final_lr_fraction'");
    expect_error(text, "ps.deal=share", "command line: 'ps.deal' has another name now: want 'ps.schedule'");
    expect_error(text, "train.on_straggler=tell", "want 'train.on_straggler=warn'");
    for (const tri_renamed *row = tri_renamed_keys; row->old; row++) {
        assert_non_null(tri_config_row(row->now, NULL));
        assert_int_equal(strchr(row->old, '=') != NULL, strchr(row->now, '=') != NULL);
        assert_true(strchr(row->old, '=') || !tri_config_row(row->old, NULL));
    }
}

/* A configuration that an earlier version has printed: with another hash each run of it would start over. */
static void a_run_with_old_names_is_read_with_the_same_hash(void **state)
{
    (void)state;
    tri_config config, again;
    const char *const overrides[] = {"optim.final_lr_fraction=0.25", "ps.schedule=dynamic", NULL};
    tri_string printed = {0}, old = {0};
    uint64_t hash, hash_again;
    assert_int_equal(tri_config_load(NULL, text, overrides, &config), TRI_OK);
    assert_int_equal(tri_config_print(&config, &printed), TRI_OK);
    for (const char *at = tri_string_text(&printed); *at;) {
        static const char *const names[][2] = {{"final_lr_fraction:", "final_factor:"},
                                               {"schedule: \"dynamic\"", "deal: \"demand\""},
                                               {"on_straggler: \"warn\"", "on_straggler: \"tell\""}};
        int found = -1;
        for (int i = 0; i < 3; i++)
            found = strncmp(at, names[i][0], strlen(names[i][0])) == 0 ? i : found;
        assert_int_equal(found >= 0 ? tri_string_append(&old, names[found][1]) : tri_string_append_bytes(&old, at, 1),
                         TRI_OK);
        at += found >= 0 ? strlen(names[found][0]) : 1;
    }
    assert_non_null(strstr(tri_string_text(&old), "final_factor: 0.25"));
    assert_int_equal(tri_config_load(NULL, tri_string_text(&old), NULL, &again), TRI_OK);
    assert_true(again.optim.final_lr_fraction == 0.25);
    assert_int_equal(again.ps.schedule, PS_DYNAMIC);
    assert_int_equal(again.train.on_straggler, TRI_STRAGGLER_WARN);
    assert_int_equal(tri_config_hash(&config, &hash), TRI_OK);
    assert_int_equal(tri_config_hash(&again, &hash_again), TRI_OK);
    assert_int_equal(hash, hash_again);
    tri_string_fini(&printed);
    tri_string_fini(&old);
    tri_config_fini(&config);
    tri_config_fini(&again);
}

/* Each condition names an option, and words that it has. */
static void conditions_of_options_are_about_options(void **state)
{
    (void)state;
    tri_config config;
    assert_int_equal(tri_config_load(NULL, text, NULL, &config), TRI_OK);
    int count = 0;
    for (const tri_config_section *at = tri_config_sections; at->table; at++)
        for (size_t i = 0; i < at->table->count; i++) {
            const char *applies = at->table->rows[i].applies;
            tri_string unmet = {0};
            assert_int_equal(tri_config_unmet(&config, "synthetic", applies, &unmet), TRI_OK);
            tri_string_fini(&unmet);
            for (; applies && *applies; applies += strcspn(applies, " "), applies += *applies == ' ', count++) {
                const tri_option *row = tri_config_row(applies, NULL);
                const char *word = strchr(applies, '=') + 1;
                for (char text_of[64]; *word && *word != ' '; word += strcspn(word, "| "), word += *word == '|') {
                    snprintf(text_of, sizeof(text_of), "%.*s", (int)strcspn(word, "| "), word);
                    if (row->type == TRI_OPTION_ENUM && tri_option_word_find(row, text_of) < 0)
                        fail_msg("%s: %s has no word %s", at->table->rows[i].field, row->field, text_of);
                }
            }
        }
    assert_true(count > 50);
    tri_string unmet = {0};
    assert_int_equal(tri_config_unmet(&config, "csv", "data.format=npy|csv parallel.sync=ps", &unmet), TRI_OK);
    assert_string_equal(tri_string_text(&unmet), "parallel.sync=ps, got allreduce");
    tri_string_fini(&unmet);
    tri_config_fini(&config);
}

static void unknown_keys_name_the_nearest_one(void **state)
{
    (void)state;
    expect_error("optim: {lrr: 1}\n", NULL, "did you mean 'optim.lr'?");
    expect_error("optimm: {lr: 1}\n", NULL, "there is no option 'optimm'");
    expect_error(text, "train.bach=3", "command line: there is no option 'train.bach'; did you mean 'train.batch'?");
    expect_error(text, "nonsense", "is not of the form section.key=value");
}

static void wrong_values_say_line_wanted_and_found(void **state)
{
    (void)state;
    expect_error("\ntrain:\n  batch: many\n", NULL, "configuration:3");
    expect_error("train: {batch: 0}\n", NULL, "train.batch");
    expect_error("train: [1, 2]\n", NULL, "'train' needs keys and values below it");
    expect_error("train: {batch: [1]}\n", NULL, "train.batch: want one value");
    expect_error("model: [cnn]\n", NULL, "'model' needs keys below it");
    expect_error("checkpoint: often\n", NULL, "'checkpoint' needs keys and values below it");
    expect_error("- a\n- b\n", NULL, "want sections");
}

static void the_printed_configuration_reads_back_to_the_same(void **state)
{
    (void)state;
    tri_config config, again;
    const char *const overrides[] = {"data.path=/a \"b\"/c\\d", "optim.lr=0.3", NULL};
    tri_string first = {0}, second = {0};
    assert_int_equal(tri_config_load(NULL, text, overrides, &config), TRI_OK);
    assert_int_equal(tri_config_print(&config, &first), TRI_OK);
    assert_non_null(strstr(tri_string_text(&first), "lr: 0.3  # command line"));
    assert_non_null(strstr(tri_string_text(&first), "batch: 128  # default"));
    assert_int_equal(tri_config_load(NULL, tri_string_text(&first), NULL, &again), TRI_OK);
    assert_string_equal(again.data.path, config.data.path);
    uint64_t hash, hash_again;
    assert_int_equal(tri_config_hash(&config, &hash), TRI_OK);
    assert_int_equal(tri_config_hash(&again, &hash_again), TRI_OK);
    assert_int_equal(hash, hash_again);
    tri_string_fini(&first);
    tri_string_fini(&second);
    tri_config_fini(&config);
    tri_config_fini(&again);
}

static void a_lone_word_is_the_name(void **state)
{
    (void)state;
    tri_config config;
    const char *const overrides[] = {"data.limit=7", NULL};
    assert_int_equal(tri_config_load(NULL, "model: cnn\ndata: fashion-mnist\noptim: adam\n", overrides, &config),
                     TRI_OK);
    assert_string_equal(tri_yaml_find(config.model, "name")->text, "cnn");
    assert_string_equal(config.data.name, "fashion-mnist");
    assert_int_equal(config.data.limit, 7);
    assert_int_equal(config.optim.name, TRI_OPTIM_ADAM);
    tri_config_fini(&config);
}

static void groups_are_a_list_in_the_file_or_on_the_command_line(void **state)
{
    (void)state;
    static const char yaml[] = "data: {name: synthetic}\n"
                               "optim:\n"
                               "  groups:\n"
                               "    - match: \"*.bias\"\n"
                               "      weight_decay: 0\n"
                               "    - {match: fc1.weight, lr_scale: 0.5}\n";
    static const char flow[] = "[{match: \"*.bias\", weight_decay: 0}, {match: fc1.weight, lr_scale: 0.5}]";
    const char *const overrides[] = {"optim.groups=[{match: x}]", NULL};
    tri_config config, again;
    tri_string printed = {0};
    uint64_t hash, hash_again;
    assert_int_equal(tri_config_load(NULL, yaml, NULL, &config), TRI_OK);
    assert_string_equal(config.optim.groups, flow);
    assert_int_equal(tri_config_hash(&config, &hash), TRI_OK);
    assert_int_equal(tri_config_print(&config, &printed), TRI_OK);
    assert_non_null(strstr(tri_string_text(&printed), flow));
    assert_int_equal(tri_config_load(NULL, tri_string_text(&printed), NULL, &again), TRI_OK);
    assert_string_equal(again.optim.groups, flow);
    assert_int_equal(tri_config_hash(&again, &hash_again), TRI_OK);
    assert_int_equal(hash, hash_again);
    tri_config_fini(&again);
    assert_int_equal(tri_config_load(NULL, yaml, overrides, &again), TRI_OK);
    assert_string_equal(again.optim.groups, "[{match: x}]");
    assert_int_equal(tri_config_hash(&again, &hash_again), TRI_OK);
    assert_int_not_equal(hash, hash_again);
    tri_config_fini(&again);
    tri_config_fini(&config);
    tri_string_fini(&printed);
    expect_error("optim: {groups: {match: x}}\n", NULL, "optim.groups: want one value");
    expect_error("optim: {lr: [1]}\n", NULL, "configuration:1: optim.lr: want one value");
}

static void contradictions_are_found(void **state)
{
    (void)state;
    const char *const cases[][2] = {{"train.shards=6", "power of two"},
                                    {"train.shards=1", "8 workers but train.shards is 1"},
                                    {"train.batch=4", "at least one sample per shard"},
                                    {"parallel.data=3", "needs 3 ranks, but 8 take part"},
                                    {"optim.min_lr=1", "optim.min_lr: want at most optim.lr"}};
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        tri_config config;
        const char *const overrides[] = {cases[i][0], NULL};
        assert_int_equal(tri_config_load(NULL, text, overrides, &config), TRI_OK);
        assert_int_equal(tri_config_check(&config, 8), TRI_ECONFIG);
        if (!strstr(tri_last_error(), cases[i][1]))
            fail_msg("want '%s' in: %s", cases[i][1], tri_last_error());
        tri_config_fini(&config);
    }
}

static void what_only_changes_the_layout_leaves_the_hash(void **state)
{
    (void)state;
    const struct {
        const char *override;
        bool same;
    } cases[] = {{"train.threads=2", true},
                 {"parallel.bucket_kib=4", true},
                 {"checkpoint.keep=9", true},
                 {"train.steps=3", true},
                 {"train.eval_every_steps=3", true},
                 {"train.norm_every=1", true},
                 {"train.eval_batches=3", true},
                 {"checkpoint.keep_best=true", true},
                 {"optim.decay_fraction=0.3", false},
                 {"train.seed=2", false},
                 {"optim.lr=0.1", false},
                 {"model.hidden=[9]", false},
                 {"data.flip=true", false},
                 {"data.path=x", true},
                 {"comm.transport=tcp", true},
                 {"train.kernels=reference", false}};
    tri_config config;
    uint64_t base, hash;
    assert_int_equal(tri_config_load(NULL, text, NULL, &config), TRI_OK);
    assert_int_equal(tri_config_hash(&config, &base), TRI_OK);
    tri_config_fini(&config);
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        const char *const overrides[] = {cases[i].override, NULL};
        assert_int_equal(tri_config_load(NULL, text, overrides, &config), TRI_OK);
        assert_int_equal(tri_config_hash(&config, &hash), TRI_OK);
        if ((hash == base) != cases[i].same)
            fail_msg("%s: hash %s", cases[i].override, hash == base ? "did not change" : "changed");
        tri_config_fini(&config);
    }
}

static void what_is_the_trainers_is_taken_out_of_the_model(void **state)
{
    (void)state;
    tri_config config, again;
    tri_string printed = {0};
    const char *const yaml = "model: {name: mlp, from: 'a \"b\"', freeze: fc1.*, reinit: [fc3.*, fc2.bias]}\n";
    assert_int_equal(tri_config_load(NULL, yaml, NULL, &config), TRI_OK);
    assert_string_equal(config.from, "a \"b\"");
    assert_int_equal(config.freeze.count, 1);
    assert_int_equal(config.reinit.count, 2);
    assert_int_equal(tri_yaml_count(config.model), 1);
    assert_true(tri_patterns_match(&config.freeze, "fc1.weight"));
    assert_false(tri_patterns_match(&config.freeze, "fc11.weight"));
    assert_true(tri_patterns_match(&config.reinit, "fc2.bias"));
    assert_int_equal(tri_config_print(&config, &printed), TRI_OK);
    assert_int_equal(tri_config_load(NULL, printed.text, NULL, &again), TRI_OK);
    assert_string_equal(again.from, config.from);
    assert_string_equal(again.reinit.items[0], "fc3.*");
    tri_config_fini(&again);
    tri_config_fini(&config);
    tri_string_fini(&printed);
    expect_error("model: {name: mlp, from: [a]}\n", NULL, "model.from: want a folder or a safetensors file");
    expect_error("model: {name: mlp, freeze: {a: b}}\n", NULL, "model.freeze: want names of parameters");
    expect_error("model: {name: mlp, freeze: []}\n", NULL, "model.freeze: want names of parameters");
}

static void the_name_of_a_file_may_have_any_byte(void **state)
{
    (void)state;
    tri_config config, again;
    tri_string printed = {0};
    static const char name[] = "caf\xe9 \xc3\xa9\n\x01\x7f\xc2\x85\xe2\x80\xa8\xef\xbb\xbf\xed\xa0\x80/run.yaml";
    assert_int_equal(tri_config_load(name, text, NULL, &config), TRI_OK);
    assert_int_equal(tri_config_print(&config, &printed), TRI_OK);
    assert_non_null(strstr(printed.text, "lr: 0.2  # caf\\xe9 \xc3\xa9\\x0a\\x01\\x7f\\xc2\\x85\\xe2\\x80\\xa8"
                                         "\\xef\\xbb\\xbf\\xed\\xa0\\x80/run.yaml\n"));
    assert_int_equal(tri_config_load(NULL, printed.text, NULL, &again), TRI_OK);
    assert_true(again.optim.lr == 0.2);
    tri_config_fini(&again);
    tri_config_fini(&config);
    tri_string_fini(&printed);
}

static void where_weights_come_from_does_not_decide_the_bits_but_what_stands_still_does(void **state)
{
    (void)state;
    static const struct {
        const char *override;
        bool same;
    } cases[] = {{"model.from=x", true}, {"model.freeze=fc1.*", false}};
    tri_config config;
    uint64_t plain, other;
    assert_int_equal(tri_config_load(NULL, text, NULL, &config), TRI_OK);
    assert_int_equal(tri_config_hash(&config, &plain), TRI_OK);
    tri_config_fini(&config);
    for (size_t i = 0; i < 2; i++) {
        const char *const overrides[] = {cases[i].override, NULL};
        assert_int_equal(tri_config_load(NULL, text, overrides, &config), TRI_OK);
        assert_int_equal(tri_config_hash(&config, &other), TRI_OK);
        assert_int_equal(plain == other, cases[i].same);
        tri_config_fini(&config);
    }
}

static void given_fields_stand_over_those_of_the_source(void **state)
{
    (void)state;
    tri_config config;
    tri_string printed = {0};
    const char *const found = "name: gpt2\nn_layer: 2\nresid_pdrop: 0.1\n";
    assert_int_equal(tri_config_load(NULL, "model: {from: x, resid_pdrop: 0}\n", NULL, &config), TRI_OK);
    assert_true(tri_config_model_is_open(&config));
    assert_int_equal(tri_config_model_take(&config, found, "x"), TRI_OK);
    assert_false(tri_config_model_is_open(&config));
    assert_int_equal(tri_yaml_print(config.model, 0, &printed), TRI_OK);
    assert_string_equal(printed.text, "name: gpt2\nn_layer: 2\nresid_pdrop: 0\n");
    tri_string_fini(&printed);
    tri_config_fini(&config);
    assert_int_equal(tri_config_load(NULL, "model: {name: mlp, from: x}\n", NULL, &config), TRI_OK);
    assert_int_equal(tri_config_model_take(&config, found, "x"), TRI_ECONFIG);
    assert_non_null(strstr(tri_last_error(), "model.name: x is a gpt2, the configuration needs mlp"));
    tri_config_fini(&config);
}

/* "section.field" of a table, or of `model:`. */
static bool is_key(const char *key)
{
    const char *dot = strchr(key, '.');
    if (strncmp(key, "model.", 6) == 0)
        return strcmp(dot, ".name") == 0 || strcmp(dot, ".layers") == 0 || strcmp(dot, ".from") == 0;
    for (const tri_config_section *at = tri_config_sections; at->table; at++)
        if (strlen(at->table->section) == (size_t)(dot - key) &&
            strncmp(at->table->section, key, (size_t)(dot - key)) == 0)
            return tri_options_find(at->table, dot + 1) != NULL;
    return false;
}

static void names_of_other_programs_lead_to_the_key_here(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"train: {learning_rate: 1}", "there is no option 'train.learning_rate'; did you mean 'optim.lr'?"},
        {"optim: {learning_rate: 1}", "did you mean 'optim.lr'?"},
        {"train: {lr: 1}", "did you mean 'optim.lr'?"},
        {"train: {gradient_accumulation_steps: 4}", "train.shards_at_once"},
        {"train: {gpus: 2}", "the device of each rank is train.device"},
        {"train: {early_stopping: true}", "there is no early stop: checkpoint.keep_best"},
        {"train: {patience: 3}", "there is no early stop"},
        {"monitor: {wandb: true}", "monitor.tensorboard"},
        {"train: {loss: mse}", "the loss follows from the data"},
        {"train: {momentum: 0.9}", "did you mean 'optim.momentum'?"}, /* of another section */
        {"train: {epocs: 3}", "did you mean 'train.epochs'?"},
        {"trian: {batch: 3}", "there is no option 'trian'; did you mean 'train'?"},
        {"batch: 3", "there is no option 'batch'; did you mean 'train.batch'?"},
        {"learning_rate: 3", "there is no option 'learning_rate'; did you mean 'optim.lr'?"},
        {"train: {gpu: 1}", "there is no option 'train.gpu' (trireme train --help lists them)"},
        {"train: {checkpoint_frequency: 1}", "(trireme train --help lists them)"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++)
        expect_error(cases[i][0], NULL, cases[i][1]);
    expect_error("{}", "trian.batch=3", "did you mean 'train'?");
    for (int i = 0; i < tri_foreign_key_count; i++) {
        const tri_foreign_key *row = &tri_foreign_keys[i];
        assert_true((row->key != NULL) != (row->sentence != NULL));
        assert_ptr_equal(tri_foreign_key_find(row->name), row); /* once in the table */
        if (row->key != NULL && !is_key(row->key))
            fail_msg("%s: there is no option %s", row->name, row->key);
        for (const tri_config_section *at = tri_config_sections; at->table && row->key; at++)
            if (tri_options_find(at->table, row->name) && strcmp(row->name, strchr(row->key, '.') + 1) != 0)
                fail_msg("%s.%s is an option here", at->table->section, row->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_command_line_wins_over_the_file_and_the_file_over_defaults),
        cmocka_unit_test(old_names_are_refused_with_the_new_ones),
        cmocka_unit_test(a_run_with_old_names_is_read_with_the_same_hash),
        cmocka_unit_test(conditions_of_options_are_about_options),
        cmocka_unit_test(unknown_keys_name_the_nearest_one),
        cmocka_unit_test(wrong_values_say_line_wanted_and_found),
        cmocka_unit_test(the_printed_configuration_reads_back_to_the_same),
        cmocka_unit_test(a_lone_word_is_the_name),
        cmocka_unit_test(groups_are_a_list_in_the_file_or_on_the_command_line),
        cmocka_unit_test(contradictions_are_found),
        cmocka_unit_test(what_only_changes_the_layout_leaves_the_hash),
        cmocka_unit_test(what_is_the_trainers_is_taken_out_of_the_model),
        cmocka_unit_test(the_name_of_a_file_may_have_any_byte),
        cmocka_unit_test(where_weights_come_from_does_not_decide_the_bits_but_what_stands_still_does),
        cmocka_unit_test(given_fields_stand_over_those_of_the_source),
        cmocka_unit_test(names_of_other_programs_lead_to_the_key_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
