/* SPDX-License-Identifier: Apache-2.0
 *
 * test_finetune.c: runs that begin with the weights of another model: the same bits in every layout, frozen parts stand
 * still, and what does not fit is said by name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "checkpoint/safetensors.h"
#include "interop/pretrained.h"
#include "ranks/train/train_ranks.h"

#define FOLDER "trireme-test-finetune"

static const char *fixtures;

#define REST                                                                                                           \
    "data: {name: synthetic, synthetic_count: 96, synthetic_width: 48}\n"                                              \
    "train: {batch: 32, shards: 8, epochs: 2, seed: 7, threads: 1}\n"                                                  \
    "optim: {lr: 0.05, weight_decay: 1e-2, clip_norm: 1}\n"                                                            \
    "parallel: {bucket_kib: 1}\n"
static const char mlp[] = "model: {name: mlp, hidden: [24, 16]}\n" REST;
static const char cnn[] =
    "model:\n  layers: [reshape: [4, 4, 3], conv2d: {out: 4, kernel: 3, pad: 1}, batch_norm, relu,\n"
    "           flatten, linear: {out: 24, relu: true}, linear: classes]\n" REST;
static const char tokens[] = "data: {name: synthetic, synthetic_tokens: true, synthetic_count: 32, synthetic_width: 8, "
                             "classes: 19}\n"
                             "train: {batch: 8, shards: 4, epochs: 1, seed: 7, threads: 1}\n"
                             "optim: {name: adamw, lr: 0.01}\n";

static train_outcome run(const char *config, int world, const char *run_folder, const char *const *overrides)
{
    return train_threads(
        &(train_case){.config = config, .overrides = overrides, .run_folder = run_folder, .world = world});
}

static uint64_t expect_run(const char *config, int world, const char *run_folder, const char *const *overrides)
{
    train_outcome outcome = run(config, world, run_folder, overrides);
    if (outcome.status != TRI_OK)
        fail_msg("%d ranks: %s", world, outcome.message);
    assert_true(outcome.all_equal);
    return outcome.hash;
}

static void expect_failure(const char *config, int world, const char *const *overrides, const char *part)
{
    train_outcome outcome = run(config, world, NULL, overrides);
    assert_int_not_equal(outcome.status, TRI_OK);
    if (!strstr(outcome.message, part))
        fail_msg("want '%s' in '%s'", part, outcome.message);
}

/* The hash of a run with these overrides, the same for 1, 2 and 3 ranks. */
static uint64_t expect_equal_runs(const char *config, const char *const *overrides)
{
    uint64_t alone = expect_run(config, 1, NULL, overrides);
    assert_int_equal(expect_run(config, 2, NULL, overrides), alone);
    assert_int_equal(expect_run(config, 3, NULL, overrides), alone);
    return alone;
}

static const void *bytes_of(const tri_pretrained *source, const char *name, size_t *nbytes)
{
    const tri_stored_tensor *tensor = tri_tensor_set_find(tri_pretrained_tensors(source), name);
    assert_non_null(tensor);
    *nbytes = tensor->nbytes;
    return tensor->bytes;
}

/* Whether a parameter has the same bytes in two runs. */
static bool is_same(const char *one, const char *other, const char *name)
{
    tri_pretrained *left, *right;
    size_t left_nbytes, right_nbytes;
    assert_int_equal(tri_pretrained_open(one, &left), TRI_OK);
    assert_int_equal(tri_pretrained_open(other, &right), TRI_OK);
    const void *left_bytes = bytes_of(left, name, &left_nbytes), *right_bytes = bytes_of(right, name, &right_nbytes);
    bool same = left_nbytes == right_nbytes && memcmp(left_bytes, right_bytes, left_nbytes) == 0;
    tri_pretrained_close(left);
    tri_pretrained_close(right);
    return same;
}

static void a_fine_tuned_model_is_the_same_for_any_number_of_ranks(void **state)
{
    (void)state;
    const char *const configs[] = {mlp, cnn};
    for (size_t i = 0; i < 2; i++) {
        const char *const from[] = {"model.from=" FOLDER, "optim.lr=0.02", NULL}, *const lr[] = {"optim.lr=0.02", NULL};
        assert_int_equal(tri_fs_remove(FOLDER), TRI_OK);
        expect_run(configs[i], 1, FOLDER, NULL);
        assert_int_not_equal(expect_equal_runs(configs[i], from), expect_run(configs[i], 1, NULL, lr));
    }
    assert_int_equal(tri_fs_remove(FOLDER), TRI_OK);
}

static void frozen_parts_stand_still_and_all_else_moves(void **state)
{
    (void)state;
    /* Buckets of 1 KiB: 24 x 48 floats do not travel; 4 x 27 floats lie within a bucket. */
    static const struct {
        const char *config, *freeze, *still[4], *moves[3];
    } cases[] = {
        {mlp, "model.freeze=[fc1.*]", {"fc1.weight", "fc1.bias"}, {"fc2.weight", "fc3.bias"}},
        {mlp, "model.freeze=[fc2.weight, fc3.weight]", {"fc2.weight", "fc3.weight"}, {"fc1.weight", "fc2.bias"}},
        {cnn,
         "model.freeze=[conv*, bn1.*]",
         {"conv1.weight", "bn1.weight", "bn1.running_mean"},
         {"fc1.weight", "fc2.bias"}},
        {cnn, "model.freeze=fc1.*", {"fc1.weight", "fc1.bias"}, {"conv1.weight", "bn1.running_var", "fc2.weight"}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *const overrides[] = {"model.from=" FOLDER "/a", cases[i].freeze, NULL};
        assert_int_equal(tri_fs_remove(FOLDER), TRI_OK);
        expect_run(cases[i].config, 1, FOLDER "/a", NULL);
        train_outcome outcome = run(cases[i].config, 2, FOLDER "/b", overrides);
        if (outcome.status != TRI_OK)
            fail_msg("%s: %s", cases[i].freeze, outcome.message);
        for (int n = 0; n < 4 && cases[i].still[n]; n++)
            assert_true(is_same(FOLDER "/a", FOLDER "/b", cases[i].still[n]));
        for (int n = 0; n < 3 && cases[i].moves[n]; n++)
            assert_false(is_same(FOLDER "/a", FOLDER "/b", cases[i].moves[n]));
        assert_int_equal(expect_equal_runs(cases[i].config, overrides), outcome.hash);
    }
    assert_int_equal(tri_fs_remove(FOLDER), TRI_OK);
}

/* By one third of a sum of three that are the same many elements would move. */
static void nor_do_frozen_parts_move_by_means_of_workers_apart(void **state)
{
    (void)state;
    static const char *const syncs[] = {"parallel.sync=local", "parallel.sync=diloco"};
    for (size_t s = 0; s < TRI_COUNT_OF(syncs); s++) {
        const char *const overrides[] = {"model.from=" FOLDER "/a", "model.freeze=[fc1.*]", syncs[s],
                                         "parallel.local_steps=1", NULL};
        assert_int_equal(tri_fs_remove(FOLDER), TRI_OK);
        expect_run(mlp, 1, FOLDER "/a", NULL);
        expect_run(mlp, 3, FOLDER "/b", overrides);
        assert_true(is_same(FOLDER "/a", FOLDER "/b", "fc1.weight"));
        assert_true(is_same(FOLDER "/a", FOLDER "/b", "fc1.bias"));
        assert_false(is_same(FOLDER "/a", FOLDER "/b", "fc2.weight"));
    }
    assert_int_equal(tri_fs_remove(FOLDER), TRI_OK);
}

static void a_head_of_another_size_begins_anew_when_asked(void **state)
{
    (void)state;
    const char *const wider[] = {"model.from=" FOLDER, "data.classes=7", NULL};
    const char *const anew[] = {"model.from=" FOLDER, "data.classes=7", "model.reinit=[fc3.*]", NULL};
    assert_int_equal(tri_fs_remove(FOLDER), TRI_OK);
    expect_run(mlp, 1, FOLDER, NULL);
    for (int world = 1; world <= 2; world++)
        expect_failure(mlp, world, wider, "'fc3.weight': the model needs [7, 16], got [10, 16] (model.reinit");
    expect_equal_runs(mlp, anew);
    assert_int_equal(tri_fs_remove(FOLDER), TRI_OK);
}

static void a_resumed_run_needs_its_source_no_more(void **state)
{
    (void)state;
    const char *const from[] = {"model.from=" FOLDER "/a", "model.freeze=[fc1.*]", NULL};
    const char *const half[] = {"model.from=" FOLDER "/a", "model.freeze=[fc1.*]", "train.steps=3", NULL};
    assert_int_equal(tri_fs_remove(FOLDER), TRI_OK);
    expect_run(mlp, 1, FOLDER "/a", NULL);
    uint64_t whole = expect_run(mlp, 1, NULL, from);
    expect_run(mlp, 2, FOLDER "/b", half);
    assert_int_equal(tri_fs_remove(FOLDER "/a"), TRI_OK);
    train_outcome outcome = train_threads(
        &(train_case){.config = mlp, .overrides = from, .run_folder = FOLDER "/b", .resume = FOLDER "/b", .world = 3});
    if (outcome.status != TRI_OK)
        fail_msg("%s", outcome.message);
    assert_int_equal(outcome.hash, whole);
    assert_int_equal(tri_fs_remove(FOLDER), TRI_OK);
}

static void what_does_not_fit_is_said_on_every_rank(void **state)
{
    (void)state;
    const char *const gone[] = {"model.from=nowhere", NULL}, *const none[] = {"model.freeze=[fc9.*]", NULL};
    const char *const all[] = {"model.freeze='*'", NULL}, *const alone[] = {"model.reinit=[fc1.*]", NULL};
    const char *const anew[] = {"model.from=" FOLDER, "model.reinit=[fc9.*]", NULL};
    assert_int_equal(tri_fs_remove(FOLDER), TRI_OK);
    expect_run(mlp, 1, FOLDER, NULL);
    for (int world = 1; world <= 2; world++) {
        expect_failure(mlp, world, gone, "model.from: nowhere: there is no such file or folder");
        expect_failure(mlp, world, none, "model.freeze: 'fc9.*' is the name of no parameter");
        expect_failure(mlp, world, all, "every parameter is frozen");
        expect_failure(mlp, world, alone, "model.reinit requires model.from");
        expect_failure(mlp, world, anew, "model.reinit: 'fc9.*' is the name of no parameter");
    }
    assert_int_equal(tri_fs_remove(FOLDER), TRI_OK);
}

static void models_of_hugging_face_are_fine_tuned_and_handed_back(void **state)
{
    (void)state;
    static const struct {
        const char *name, *freeze, *still, *moves;
    } cases[] = {
        {"gpt2", "model.freeze=['wte.*', 'wpe.*', 'h.0.*']", "h.0.attn.c_attn.weight", "h.1.attn.c_attn.weight"},
        {"gpt2_shards", "model.freeze=['h.1.*']", "h.1.mlp.c_fc.weight", "wte.weight"},
        {"llama", "model.freeze=['model.embed_tokens.*']", "model.embed_tokens.weight", "lm_head.weight"},
        {"llama_tied", "model.freeze=['*norm*']", "model.norm.weight", "model.embed_tokens.weight"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char from[600], path[512];
        snprintf(path, sizeof(path), "%s/%s", fixtures, cases[i].name);
        snprintf(from, sizeof(from), "model.from=%s", path);
        const char *const overrides[] = {from, cases[i].freeze, "model.initializer_range=0.1", NULL};
        char config[600];
        snprintf(config, sizeof(config), "model: {}\n%s", tokens);
        assert_int_equal(tri_fs_remove(FOLDER), TRI_OK);
        uint64_t hash = expect_run(config, 3, FOLDER, overrides);
        assert_int_equal(expect_equal_runs(config, overrides), hash);
        /* The run has a config.json with which it is a model again, in our layout. */
        tri_pretrained *before, *after;
        assert_int_equal(tri_pretrained_open(path, &before), TRI_OK);
        if (tri_pretrained_open(FOLDER, &after) != TRI_OK)
            fail_msg("%s", tri_last_error());
        assert_false(tri_pretrained_is_hf(after));
        assert_non_null(tri_pretrained_config(after));
        for (int which = 0; which < 2; which++) {
            float left[4], right[4];
            const char *name = which ? cases[i].moves : cases[i].still;
            tri_tensor_view_read(tri_pretrained_find(before, name), 0, 4, left);
            tri_tensor_view_read(tri_pretrained_find(after, name), 0, 4, right);
            assert_int_equal(memcmp(left, right, sizeof(left)) == 0, which == 0);
        }
        tri_pretrained_close(before);
        tri_pretrained_close(after);
    }
    assert_int_equal(tri_fs_remove(FOLDER), TRI_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fine_tuned_model_is_the_same_for_any_number_of_ranks),
        cmocka_unit_test(frozen_parts_stand_still_and_all_else_moves),
        cmocka_unit_test(nor_do_frozen_parts_move_by_means_of_workers_apart),
        cmocka_unit_test(a_head_of_another_size_begins_anew_when_asked),
        cmocka_unit_test(a_resumed_run_needs_its_source_no_more),
        cmocka_unit_test(what_does_not_fit_is_said_on_every_rank),
        cmocka_unit_test(models_of_hugging_face_are_fine_tuned_and_handed_back),
    };
    if (argc != 2)
        return 2;
    fixtures = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
