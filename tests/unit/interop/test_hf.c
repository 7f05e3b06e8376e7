/* SPDX-License-Identifier: Apache-2.0
 *
 * test_hf.c: folders of Hugging Face (fixtures made by hf.py) as our models and back, and what is said of wrong ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "interop/convert.h"
#include "interop/pretrained.h"
#include "tensor/reduce.h"
#include "unit/checkpoint/write.h"

static const char *fixtures;
static char folder[64];

static void folder_make(void)
{
    strcpy(folder, "/tmp/trireme-hf-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

static void folder_remove(void)
{
    assert_int_equal(tri_fs_remove(folder), TRI_OK);
}

static void expect_error_has(const char *part)
{
    if (strstr(tri_last_error(), part) == NULL)
        fail_msg("want '%s' in '%s'", part, tri_last_error());
}

static tri_pretrained *open_at(const char *where, const char *name)
{
    char path[400];
    tri_pretrained *source;
    snprintf(path, sizeof(path), "%s/%s", where, name);
    if (tri_pretrained_open(path, &source) != TRI_OK)
        fail_msg("%s", tri_last_error());
    return source;
}

static char *text_of(const char *where, const char *name, const char *file)
{
    static char *text;
    char path[400];
    size_t nbytes;
    snprintf(path, sizeof(path), "%s/%s/%s", where, name, file);
    assert_int_equal(tri_fs_read(path, 0, &text, &nbytes), TRI_OK);
    return text;
}

static void convert(const tri_pretrained *source, const char *name, const char *to, tri_tensor_save save)
{
    char path[400];
    tri_convert_result result;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (tri_model_convert(source, path, to, save, &result) != TRI_OK)
        fail_msg("%s", tri_last_error());
}

static void expect_same_tensors(const tri_tensor_set *one, const tri_tensor_set *other)
{
    assert_int_equal(tri_tensor_set_count(one), tri_tensor_set_count(other));
    for (int i = 0; i < tri_tensor_set_count(one); i++) {
        const tri_stored_tensor *left = tri_tensor_set_at(one, i), *right = tri_tensor_set_find(other, left->name);
        assert_non_null(right);
        assert_int_equal(left->dtype, right->dtype);
        assert_true(tri_shape_equal(left->shape, right->shape));
        assert_memory_equal(left->bytes, right->bytes, left->nbytes);
    }
}

static void models_go_there_and_back_to_the_bit(void **state)
{
    (void)state;
    const char *const names[] = {"gpt2", "gpt2_shards", "llama", "llama_tied"};
    const tri_tensor_save as_it_is = {.dtype = TRI_DTYPE_COUNT};
    folder_make();
    for (size_t i = 0; i < TRI_COUNT_OF(names); i++) {
        tri_pretrained *theirs = open_at(fixtures, names[i]);
        assert_true(tri_pretrained_is_hf(theirs));
        convert(theirs, "ours", "", as_it_is);
        tri_pretrained *ours = open_at(folder, "ours");
        assert_false(tri_pretrained_is_hf(ours));
        convert(ours, "back", "", (tri_tensor_save){.dtype = TRI_DTYPE_COUNT, .shard_nbytes = 5000});
        tri_pretrained *back = open_at(folder, "back");
        assert_true(tri_pretrained_is_hf(back));
        assert_true(tri_tensor_set_file_count(tri_pretrained_tensors(back)) > 1);
        expect_same_tensors(tri_pretrained_tensors(theirs), tri_pretrained_tensors(back));
        char *before = text_of(fixtures, names[i], "config.json"), *after = text_of(folder, "back", "config.json");
        assert_string_equal(before, after);
        tri_free(before);
        tri_free(after);
        tri_pretrained_close(theirs);
        tri_pretrained_close(ours);
        tri_pretrained_close(back);
        folder_remove();
        assert_int_equal(tri_fs_make_folder(folder), TRI_OK);
    }
    folder_remove();
}

/* The llama fixture with matrices in bf16 and f16 and norms in f32, as half-precision checkpoints often are. */
static void write_mixed(tri_pretrained *source, const char *path, uint16_t halves[64][1024])
{
    const tri_tensor_set *set = tri_pretrained_tensors(source);
    tri_stored_tensor tensors[64];
    int count = tri_tensor_set_count(set);
    assert_true(count <= 64);
    for (int i = 0; i < count; i++) {
        tensors[i] = *tri_tensor_set_at(set, i);
        if (strstr(tensors[i].name, "norm") != NULL)
            continue;
        int64_t elements = tri_shape_count(tensors[i].shape);
        assert_true(elements <= 1024);
        tensors[i].dtype = strstr(tensors[i].name, "layers.0") != NULL ? TRI_BF16 : TRI_F16;
        assert_int_equal(tri_convert(halves[i], tensors[i].dtype, tensors[i].bytes, TRI_F32, elements), TRI_OK);
        tensors[i].bytes = halves[i];
        tensors[i].nbytes /= 2;
    }
    assert_int_equal(safetensors_write(path, tensors, count, NULL), TRI_OK);
}

static void each_tensor_keeps_its_type_there_and_back(void **state)
{
    (void)state;
    static uint16_t halves[64][1024];
    const tri_tensor_save as_it_is = {.dtype = TRI_DTYPE_COUNT};
    const char *const types[] = {"bfloat16", "float16", "float32"};
    for (size_t i = 0; i < TRI_COUNT_OF(types); i++) {
        tri_pretrained *fixture = open_at(fixtures, "llama");
        char path[160], *config = text_of(fixtures, "llama", "config.json"), *at, changed[2000];
        folder_make();
        snprintf(path, sizeof(path), "%s/mixed", folder);
        assert_int_equal(tri_fs_make_folder(path), TRI_OK);
        snprintf(path, sizeof(path), "%s/mixed/model.safetensors", folder);
        write_mixed(fixture, path, halves);
        at = strstr(config, "float32");
        snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - config), config, types[i], at + strlen("float32"));
        snprintf(path, sizeof(path), "%s/mixed/config.json", folder);
        assert_int_equal(tri_fs_write_atomic(path, changed, strlen(changed)), TRI_OK);
        tri_pretrained *theirs = open_at(folder, "mixed");
        convert(theirs, "ours", "", as_it_is);
        tri_pretrained *ours = open_at(folder, "ours");
        convert(ours, "back", "", as_it_is);
        tri_pretrained *back = open_at(folder, "back");
        expect_same_tensors(tri_pretrained_tensors(theirs), tri_pretrained_tensors(back));
        char *after = text_of(folder, "back", "config.json");
        assert_string_equal(changed, after);
        tri_free(after);
        tri_free(config);
        tri_pretrained_close(fixture);
        tri_pretrained_close(theirs);
        tri_pretrained_close(ours);
        tri_pretrained_close(back);
        folder_remove();
    }
}

/* Elements of a view. */
static void expect_element(const tri_pretrained *source, const char *name, int64_t at, float wanted)
{
    float found;
    const tri_tensor_view *view = tri_pretrained_find(source, name);
    assert_non_null(view);
    tri_tensor_view_read(view, at, 1, &found);
    assert_true(found == wanted);
}

static float stored_element(const tri_pretrained *source, const char *name, int64_t at)
{
    const tri_stored_tensor *tensor = tri_tensor_set_find(tri_pretrained_tensors(source), name);
    float value;
    assert_non_null(tensor);
    memcpy(&value, (const char *)tensor->bytes + (size_t)at * sizeof(float), sizeof(value));
    return value;
}

static void matrices_are_turned_and_stacked(void **state)
{
    (void)state;
    tri_pretrained *gpt2 = open_at(fixtures, "gpt2"), *llama = open_at(fixtures, "llama");
    /* [out 24, in 8] here, [8, 24] there. */
    for (int r = 0; r < 24; r++)
        for (int c = 0; c < 8; c++)
            expect_element(gpt2, "h.1.attn.c_attn.weight", r * 8 + c,
                           stored_element(gpt2, "transformer.h.1.attn.c_attn.weight", c * 24 + r));
    /* 16 rows of queries, 8 of keys, 8 of values, 16 columns. */
    const char *const qkv = "model.layers.1.self_attn.qkv_proj.weight";
    for (int at = 0; at < 16 * 16; at++)
        expect_element(llama, qkv, at, stored_element(llama, "model.layers.1.self_attn.q_proj.weight", at));
    for (int at = 0; at < 8 * 16; at++) {
        expect_element(llama, qkv, 256 + at, stored_element(llama, "model.layers.1.self_attn.k_proj.weight", at));
        expect_element(llama, qkv, 384 + at, stored_element(llama, "model.layers.1.self_attn.v_proj.weight", at));
    }
    for (int at = 0; at < 12 * 16; at++)
        expect_element(llama, "model.layers.0.mlp.gate_up_proj.weight", 192 + at,
                       stored_element(llama, "model.layers.0.mlp.up_proj.weight", at));
    tri_pretrained_close(gpt2);
    tri_pretrained_close(llama);
}

/* The gpt2 fixture with other names: without the prefix, with masks and the tied head. */
static void files_may_lack_the_prefix_and_hold_masks(void **state)
{
    (void)state;
    tri_pretrained *source = open_at(fixtures, "gpt2"), *other;
    const tri_tensor_set *set = tri_pretrained_tensors(source);
    const unsigned char mask[16] = {1, 1, 1, 1};
    const float small = -1e4f;
    tri_stored_tensor tensors[64];
    int count = tri_tensor_set_count(set);
    char path[160], *config = text_of(fixtures, "gpt2", "config.json");
    for (int i = 0; i < count; i++) {
        tensors[i] = *tri_tensor_set_at(set, i);
        tensors[i].name += strlen("transformer.");
    }
    tensors[count] = *tri_tensor_set_find(set, "transformer.wte.weight");
    tensors[count++].name = "lm_head.weight";
    tensors[count++] = (tri_stored_tensor){"h.0.attn.bias", TRI_U8, {4, {1, 1, 4, 4}}, mask, 16};
    tensors[count++] = (tri_stored_tensor){"h.0.attn.masked_bias", TRI_F32, {0, {0}}, &small, 4};
    folder_make();
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    assert_int_equal(safetensors_write(path, tensors, count, NULL), TRI_OK);
    snprintf(path, sizeof(path), "%s/config.json", folder);
    assert_int_equal(tri_fs_write_atomic(path, config, strlen(config)), TRI_OK);
    other = open_at(folder, ".");
    int ours, theirs;
    (void)tri_pretrained_views(source, &ours);
    (void)tri_pretrained_views(other, &theirs);
    assert_int_equal(ours, theirs);
    expect_element(other, "h.1.mlp.c_fc.weight", 8, stored_element(source, "transformer.h.1.mlp.c_fc.weight", 1));
    tri_pretrained_close(source);
    tri_pretrained_close(other);
    tri_free(config);
    folder_remove();
}

/* A folder with a fixture's weights and a head beside them: a copy of the embedding in f16 whose element `at` is one
 * more; -1: none is. */
static void write_with_head(const char *fixture, const char *embedding, int64_t at)
{
    static uint16_t half[1024];
    float values[1024];
    tri_pretrained *source = open_at(fixtures, fixture);
    const tri_tensor_set *set = tri_pretrained_tensors(source);
    const tri_stored_tensor *rows = tri_tensor_set_find(set, embedding);
    tri_stored_tensor tensors[64];
    char path[160], *config = text_of(fixtures, fixture, "config.json");
    int count = tri_tensor_set_count(set);
    int64_t elements = tri_shape_count(rows->shape);
    assert_true(elements <= 1024 && count < 64);
    for (int i = 0; i < count; i++)
        tensors[i] = *tri_tensor_set_at(set, i);
    tensors[count] = *rows;
    tensors[count].name = "lm_head.weight";
    if (at >= 0) {
        memcpy(values, rows->bytes, rows->nbytes);
        values[at] += 1;
        assert_int_equal(tri_convert(half, TRI_F16, values, TRI_F32, elements), TRI_OK);
        tensors[count].dtype = TRI_F16;
        tensors[count].nbytes /= 2;
        tensors[count].bytes = half;
    }
    folder_make();
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    assert_int_equal(safetensors_write(path, tensors, count + 1, NULL), TRI_OK);
    snprintf(path, sizeof(path), "%s/config.json", folder);
    assert_int_equal(tri_fs_write_atomic(path, config, strlen(config)), TRI_OK);
    tri_free(config);
    tri_pretrained_close(source);
}

static void a_head_that_differs_from_tied_embeddings_is_kept(void **state)
{
    (void)state;
    const struct {
        const char *fixture, *embedding;
        int64_t at;
    } cases[] = {{"gpt2", "transformer.wte.weight", 19 * 8 - 1},
                 {"gpt2", "transformer.wte.weight", -1},
                 {"llama_tied", "model.embed_tokens.weight", 0},
                 {"llama_tied", "model.embed_tokens.weight", -1}};
    const tri_tensor_save as_it_is = {.dtype = TRI_DTYPE_COUNT};
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        bool differs = cases[i].at >= 0;
        write_with_head(cases[i].fixture, cases[i].embedding, cases[i].at);
        tri_pretrained *theirs = open_at(folder, ".");
        assert_int_equal(tri_pretrained_find(theirs, "lm_head.weight") != NULL, differs);
        assert_int_equal(tri_hf_config_number(tri_pretrained_config(theirs), TRI_ROLE_TIED), !differs);
        convert(theirs, "ours", "", as_it_is);
        tri_pretrained *ours = open_at(folder, "ours");
        convert(ours, "back", "", as_it_is);
        tri_pretrained *back = open_at(folder, "back");
        assert_int_equal(tri_hf_config_number(tri_pretrained_config(back), TRI_ROLE_TIED), !differs);
        if (differs)
            expect_same_tensors(tri_pretrained_tensors(theirs), tri_pretrained_tensors(back));
        else
            assert_null(tri_tensor_set_find(tri_pretrained_tensors(back), "lm_head.weight"));
        tri_pretrained_close(theirs);
        tri_pretrained_close(ours);
        tri_pretrained_close(back);
        folder_remove();
    }
}

/* Opens a fixture's weights with another config.json; wants a failure that says so. */
static void expect_names_fail(const char *name, const char *from, const char *to, const char *part)
{
    tri_pretrained *source = open_at(fixtures, name), *opened;
    char *config = text_of(fixtures, name, "config.json"), path[160], *at = strstr(config, from);
    tri_string changed = {0};
    assert_non_null(at);
    assert_int_equal(tri_string_append_bytes(&changed, config, (size_t)(at - config)), TRI_OK);
    assert_int_equal(tri_string_append(&changed, to), TRI_OK);
    assert_int_equal(tri_string_append(&changed, at + strlen(from)), TRI_OK);
    folder_make();
    convert(source, "m", "hf", (tri_tensor_save){.dtype = TRI_DTYPE_COUNT});
    snprintf(path, sizeof(path), "%s/m/config.json", folder);
    assert_int_equal(tri_fs_write_atomic(path, changed.text, changed.nbytes), TRI_OK);
    snprintf(path, sizeof(path), "%s/m", folder);
    assert_int_equal(tri_pretrained_open(path, &opened), TRI_EFORMAT);
    expect_error_has(part);
    tri_pretrained_close(source);
    tri_string_fini(&changed);
    tri_free(config);
    folder_remove();
}

static void missing_and_unknown_tensors_are_named(void **state)
{
    (void)state;
    expect_names_fail("gpt2", "\"n_layer\": 2", "\"n_layer\": 3",
                      "12 tensors of a gpt2 of 3 layers missing: 'transformer.h.2.ln_1.weight', "
                      "'transformer.h.2.ln_1.bias', 'transformer.h.2.attn.c_attn.weight', "
                      "'transformer.h.2.attn.c_attn.bias' and 8 more");
    expect_names_fail("gpt2", "\"n_layer\": 2", "\"n_layer\": 1", "12 tensors that a gpt2 of 1 layers does not have");
    expect_names_fail("gpt2", "\"n_layer\": 2", "\"tie_word_embeddings\": false, \"n_layer\": 2",
                      "1 tensor of a gpt2 of 2 layers missing: 'lm_head.weight'");
    expect_names_fail("llama", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 4",
                      "'model.layers.0.self_attn.k_proj.weight': want 16 rows, got [8, 16]");
    expect_names_fail("llama", "\"intermediate_size\": 12", "\"intermediate_size\": 13", "want 13 rows, got [12, 16]");
    expect_names_fail("llama_tied", "\"attention_bias\": true", "\"attention_bias\": false",
                      "8 tensors that a llama of 2 layers does not have");
}

static bool keeps_head(void *arg, const char *name)
{
    (void)arg;
    return strcmp(name, "wte.weight") == 0;
}

static void reading_changes_nothing_unless_all_fits(void **state)
{
    (void)state;
    tri_pretrained *source = open_at(fixtures, "gpt2");
    float wpe[16 * 8] = {0}, wte[4] = {7, 7, 7, 7};
    const tri_checkpoint_slice slices[] = {{.name = "wpe.weight", .shape = {2, {16, 8}}, .values = wpe},
                                           {.name = "wte.weight", .shape = {2, {2, 2}}, .values = wte}};
    assert_int_equal(tri_pretrained_read(source, slices, 2, &(tri_pretrained_load){0}), TRI_EFORMAT);
    expect_error_has("'wte.weight': the model needs [2, 2], got [19, 8] (model.reinit initializes it)");
    const tri_pretrained_load keep = {.keeps = keeps_head};
    assert_int_equal(tri_pretrained_read(source, slices, 2, &keep), TRI_EFORMAT);
    expect_error_has("26 tensors that the model does not have: 'h.0.ln_1.weight'");
    const tri_checkpoint_slice more[] = {{.name = "wpe.weight", .shape = {2, {16, 8}}, .values = wpe},
                                         {.name = "new", .shape = {1, {4}}, .values = wte}};
    assert_int_equal(tri_pretrained_read(source, more, 2, &keep), TRI_EFORMAT);
    expect_error_has("1 tensor of the model missing: 'new'; not of the model: 'h.0.ln_1.weight'");
    assert_true(wpe[0] == 0.0f && wte[0] == 7.0f);
    tri_pretrained_close(source);
}

static void folders_that_are_taken_are_left_alone(void **state)
{
    (void)state;
    tri_pretrained *source = open_at(fixtures, "gpt2");
    tri_convert_result result;
    const tri_tensor_save save = {.dtype = TRI_F16};
    char path[160];
    folder_make();
    snprintf(path, sizeof(path), "%s/x", folder);
    assert_int_equal(tri_fs_write_atomic(path, "x", 1), TRI_OK);
    assert_int_equal(tri_model_convert(source, folder, "trireme", save, &result), TRI_ECONFIG);
    expect_error_has("want a folder that is not there yet or is empty, got 1 files in it");
    assert_int_equal(tri_model_convert(source, path, "trireme", save, &result), TRI_ECONFIG);
    expect_error_has("got a file");
    tri_pretrained_close(source);
    assert_int_equal(tri_pretrained_open("/nowhere", &source), TRI_ENOTFOUND);
    expect_error_has("/nowhere: there is no such file or folder");
    folder_remove();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_go_there_and_back_to_the_bit),
        cmocka_unit_test(each_tensor_keeps_its_type_there_and_back),
        cmocka_unit_test(matrices_are_turned_and_stacked),
        cmocka_unit_test(files_may_lack_the_prefix_and_hold_masks),
        cmocka_unit_test(a_head_that_differs_from_tied_embeddings_is_kept),
        cmocka_unit_test(missing_and_unknown_tensors_are_named),
        cmocka_unit_test(reading_changes_nothing_unless_all_fits),
        cmocka_unit_test(folders_that_are_taken_are_left_alone),
    };
    if (argc != 2)
        return 2;
    fixtures = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
