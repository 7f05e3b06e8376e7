/* SPDX-License-Identifier: Apache-2.0
 *
 * test_loader.c: the global batches are the same bytes whoever loads them and wherever the loading began.
 */
#include "data/augment.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/held.h"
#include "data/normalize.h"
#include "tensor/tree.h"
#include "unit/data/data_files.h"

#define COUNT    53
#define HEIGHT   6
#define WIDTH    5
#define PIXELS   (HEIGHT * WIDTH)
#define BATCH    20
#define SHARDS   8
#define ROWS_MAX 3
#define STEPS    7 /* two epochs and one step */

static char *image_folder(void)
{
    char *folder = make_folder();
    write_idx_pair(folder, "train", true, COUNT, HEIGHT, WIDTH, 10);
    return folder;
}

typedef struct global_batches {
    float input[STEPS][BATCH][PIXELS];
    int32_t target[STEPS][BATCH];
    int rows[STEPS];
} global_batches;

static tri_loader_setup setup_for(int rank, int world, int64_t first_step)
{
    return (tri_loader_setup){.sampler = {99, COUNT, BATCH, SHARDS, true},
                              .first_shard = tri_tree_first(SHARDS, rank, world),
                              .shard_count = tri_tree_count(SHARDS, rank, world),
                              .rows_max = ROWS_MAX,
                              .training = true,
                              .first_step = first_step,
                              .end_step = STEPS};
}

/* Copies one worker's valid rows to their places; checks that padding is zero. */
static void gather(const tri_loader_batch *batch, global_batches *all)
{
    const float *input = batch->input;
    const int32_t *target = batch->target;
    for (int s = 0; s < batch->shards; s++)
        for (int i = 0; i < ROWS_MAX; i++) {
            const float *row = input + (s * ROWS_MAX + i) * PIXELS;
            if (i < batch->rows[s]) {
                int64_t place = batch->first_sample[s] + i;
                assert_true(place < BATCH);
                memcpy(all->input[batch->step][place], row, sizeof(all->input[0][0]));
                all->target[batch->step][place] = target[s * ROWS_MAX + i];
                all->rows[batch->step]++;
                continue;
            }
            for (int p = 0; p < PIXELS; p++)
                assert_true(row[p] == 0.0f);
            assert_int_equal(target[s * ROWS_MAX + i], 0);
        }
}

static void load_all(const tri_data_config *config, int world, int64_t first_step, global_batches *all)
{
    tri_dataset *dataset;
    memset(all, 0xff, sizeof(*all));
    memset(all->rows, 0, sizeof(all->rows));
    assert_int_equal(tri_dataset_open(config, false, &dataset), TRI_OK);
    for (int rank = 0; rank < world; rank++) {
        tri_loader *loader;
        tri_loader_batch batch;
        tri_loader_setup setup = setup_for(rank, world, first_step);
        assert_int_equal(tri_loader_open(dataset, config, &setup, &loader), TRI_OK);
        for (int64_t step = first_step; step < STEPS; step++) {
            assert_int_equal(tri_loader_next(loader, &batch), TRI_OK);
            assert_int_equal(batch.step, step);
            assert_int_equal(batch.epoch, step / 3);
            gather(&batch, all);
        }
        assert_int_equal(tri_loader_next(loader, &batch), TRI_ENOTFOUND);
        tri_loader_close(loader);
    }
    tri_dataset_close(dataset);
}

static void all_numbers_of_workers_give_the_same_batches(void **state)
{
    (void)state;
    char *folder = image_folder();
    global_batches *one = malloc(sizeof(*one)), *many = malloc(sizeof(*many));
    for (int augmented = 0; augmented < 2; augmented++) {
        tri_data_config config = config_at(folder, "auto");
        config.crop = augmented ? 2 : 0;
        config.flip = augmented;
        load_all(&config, 1, 0, one);
        for (int step = 0; step < STEPS; step++)
            assert_int_equal(one->rows[step], step % 3 == 2 ? COUNT % BATCH : BATCH);
        for (int world = 2; world <= SHARDS; world++) {
            config.prefetch = world;
            load_all(&config, world, 0, many);
            assert_memory_equal(one, many, sizeof(*one));
        }
    }
    free(one);
    free(many);
    drop_folder(folder);
}

static void starting_late_equals_skipping(void **state)
{
    (void)state;
    char *folder = image_folder();
    tri_data_config config = config_at(folder, "auto");
    config.crop = 1;
    config.flip = true;
    global_batches *whole = malloc(sizeof(*whole)), *late = malloc(sizeof(*late));
    load_all(&config, 2, 0, whole);
    for (int64_t first = 1; first < STEPS; first++) {
        load_all(&config, 3, first, late);
        size_t left = (size_t)(STEPS - first);
        assert_memory_equal(whole->input[first], late->input[first], left * sizeof(whole->input[0]));
        assert_memory_equal(whole->target[first], late->target[first], left * sizeof(whole->target[0]));
    }
    free(whole);
    free(late);
    drop_folder(folder);
}

/* Steps are passed over, also while the next ones are being prepared. */
static void seeking_equals_skipping(void **state)
{
    (void)state;
    char *folder = image_folder();
    tri_data_config config = config_at(folder, "auto");
    tri_dataset *dataset;
    global_batches *whole = malloc(sizeof(*whole)), *some = malloc(sizeof(*some));
    config.flip = true;
    load_all(&config, 1, 0, whole);
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    for (int round = 0; round < 40; round++) {
        tri_loader *loader;
        tri_loader_batch batch;
        tri_loader_setup setup = setup_for(0, 1, 0);
        int64_t each = 1 + round % 3;
        config.prefetch = round % 4;
        assert_int_equal(tri_loader_open(dataset, &config, &setup, &loader), TRI_OK);
        for (int64_t step = round % 2; step < STEPS; step += each) {
            if (step > 0)
                tri_loader_seek(loader, step);
            assert_int_equal(tri_loader_next(loader, &batch), TRI_OK);
            assert_int_equal(batch.step, step);
            memset(some, 0, sizeof(*some));
            gather(&batch, some);
            assert_memory_equal(some->input[step], whole->input[step],
                                (size_t)some->rows[step] * PIXELS * sizeof(float));
        }
        tri_loader_close(loader);
    }
    tri_dataset_close(dataset);
    free(whole);
    free(some);
    drop_folder(folder);
}

/* What kernels of the device find is what the host has. */
static void twin_check(const tri_device *device, const tri_loader_batch *batch)
{
    float input[SHARDS * ROWS_MAX * PIXELS];
    int32_t target[SHARDS * ROWS_MAX];
    const size_t rows = (size_t)batch->shards * ROWS_MAX;
    assert_non_null(batch->input_there);
    tri_device_to_host(device, input, batch->input_there, rows * PIXELS * sizeof(float));
    tri_device_to_host(device, target, batch->target_there, rows * sizeof(int32_t));
    assert_memory_equal(input, batch->input, rows * PIXELS * sizeof(float));
    assert_memory_equal(target, batch->target, rows * sizeof(int32_t));
}

static void batches_come_to_a_device(void **state)
{
    (void)state;
    char *folder = image_folder();
    tri_data_config config = config_at(folder, "auto");
    tri_dataset *dataset;
    tri_device *device;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    assert_int_equal(tri_device_open("fake", &device), TRI_OK);
    for (int64_t prefetch = 0; prefetch < 4; prefetch++) {
        tri_loader *loader;
        tri_loader_batch batch;
        tri_loader_setup setup = setup_for(0, 1, 0);
        const int64_t parts = prefetch == 3 ? 4 : 0;
        config.prefetch = parts > 0 ? 0 : prefetch;
        setup.device = device;
        assert_int_equal(tri_loader_open(dataset, &config, &setup, &loader), TRI_OK);
        for (int64_t i = 0; parts > 0 && i < parts * STEPS; i++) {
            assert_int_equal(tri_loader_part(loader, i / parts, i % parts * 2, 2, &batch), TRI_OK);
            twin_check(device, &batch);
        }
        for (int64_t step = 0; parts == 0 && step < STEPS; step++) {
            assert_int_equal(tri_loader_next(loader, &batch), TRI_OK);
            twin_check(device, &batch);
        }
        tri_loader_close(loader);
    }
    tri_device_close(device);
    tri_dataset_close(dataset);
    drop_folder(folder);
}

static void parts_of_a_batch_are_what_it_is_made_of(void **state)
{
    (void)state;
    char *folder = image_folder();
    tri_data_config config = config_at(folder, "auto");
    tri_dataset *dataset;
    tri_loader *loader;
    tri_loader_setup setup = setup_for(0, 1, 0);
    global_batches *whole = malloc(sizeof(*whole)), *parts = malloc(sizeof(*parts));
    config.crop = 1;
    load_all(&config, 1, 0, whole);
    config.prefetch = 0;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    assert_int_equal(tri_loader_open(dataset, &config, &setup, &loader), TRI_OK);
    tri_dataset_close(dataset);
    for (int64_t count = 1; count <= SHARDS; count *= 2) {
        memset(parts, 0xff, sizeof(*parts));
        memset(parts->rows, 0, sizeof(parts->rows));
        for (int64_t i = STEPS * (SHARDS / count) - 1; i >= 0; i--) { /* in any order */
            tri_loader_batch batch;
            int64_t part = i * 5 % (STEPS * (SHARDS / count));
            assert_int_equal(tri_loader_part(loader, part % STEPS, part / STEPS * count, count, &batch), TRI_OK);
            assert_int_equal(batch.shards, count);
            gather(&batch, parts);
        }
        assert_memory_equal(parts, whole, sizeof(*whole));
    }
    tri_loader_close(loader);
    free(whole);
    free(parts);
    drop_folder(folder);
}

static void an_epoch_holds_every_image_as_stored(void **state)
{
    (void)state;
    char *folder = image_folder();
    tri_data_config config = config_at(folder, "auto");
    config.normalize = TRI_NORMALIZE_NONE;
    global_batches *all = malloc(sizeof(*all));
    load_all(&config, 4, 0, all);
    int seen[COUNT] = {0};
    for (int step = 0; step < 3; step++)
        for (int i = 0; i < all->rows[step]; i++) {
            int found = -1;
            for (int index = 0; index < COUNT && found < 0; index++) {
                bool same = index % 10 == all->target[step][i];
                for (int p = 0; p < PIXELS && same; p++)
                    same = all->input[step][i][p] == (float)((7 * (index * PIXELS + p) + 3) % 256);
                if (same && !seen[index])
                    found = index;
            }
            assert_true(found >= 0);
            seen[found]++;
        }
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(seen[i], 1);
    free(all);
    drop_folder(folder);
}

/* The last batch of an epoch ends before a shard's second tile begins. */
static void shards_of_more_than_a_tile_end_with_a_short_batch(void **state)
{
    (void)state;
    char *folder = image_folder();
    tri_data_config config = config_at(folder, "auto");
    for (int64_t batch = 17; batch < COUNT; batch++)
        for (int64_t shards = 1; shards <= 2; shards++) {
            tri_dataset *dataset;
            tri_loader *loader;
            tri_loader_batch loaded;
            const int64_t steps = (COUNT + batch - 1) / batch;
            const tri_loader_setup setup = {.sampler = {99, COUNT, batch, shards, true},
                                            .shard_count = shards,
                                            .rows_max = (batch + shards - 1) / shards,
                                            .training = true,
                                            .end_step = 2 * steps};
            int64_t rows = 0;
            assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
            assert_int_equal(tri_loader_open(dataset, &config, &setup, &loader), TRI_OK);
            for (int64_t step = 0; step < 2 * steps; step++) {
                assert_int_equal(tri_loader_next(loader, &loaded), TRI_OK);
                for (int64_t s = 0; s < shards; s++)
                    rows += loaded.rows[s];
            }
            assert_int_equal(rows, 2 * COUNT);
            tri_loader_close(loader);
            tri_dataset_close(dataset);
        }
    drop_folder(folder);
}

static void moves_and_mirrors_are_windows_of_the_padded_image(void **state)
{
    (void)state;
    tri_augment augment = {.seed = 5, .crop = 1, .flip = true, .height = 2, .width = 3, .channels = 1};
    const float from[6] = {1, 2, 3, 4, 5, 6}, black = -9;
    float to[6];
    tri_augment_apply(&augment, (tri_augment_move){.down = 1, .right = -1, .mirror = false}, from, &black, to);
    assert_memory_equal(to, ((const float[]){-9, 4, 5, -9, -9, -9}), sizeof(to));
    tri_augment_apply(&augment, (tri_augment_move){.mirror = true}, from, &black, to);
    assert_memory_equal(to, ((const float[]){3, 2, 1, 6, 5, 4}), sizeof(to));
    int counts[3][3][2] = {{{0}}};
    for (int64_t i = 0; i < 1800; i++) {
        tri_augment_move move = tri_augment_draw(&augment, 3, i);
        assert_true(move.down >= -1 && move.down <= 1 && move.right >= -1 && move.right <= 1);
        counts[move.down + 1][move.right + 1][move.mirror]++;
    }
    for (int i = 0; i < 18; i++)
        assert_in_range(((int *)counts)[i], 60, 140);
}

static void figures_of_the_data_set_are_applied(void **state)
{
    (void)state;
    tri_dataset_info info = {.sample = tri_shape_make(3, (const int64_t[]){1, 1, 2}),
                             .dtype = TRI_U8,
                             .mean = {0.5f, 0.25f},
                             .deviation = {0.5f, 0.125f}};
    static tri_normalizer normalizer;
    tri_data_config config = config_default();
    const unsigned char stored[2] = {255, 0};
    float out[2];
    assert_int_equal(tri_normalizer_init(&normalizer, &info, &config), TRI_OK);
    tri_normalizer_apply(&normalizer, stored, out);
    assert_true(out[0] == 1.0f && out[1] == -2.0f);
    tri_normalizer_black(&normalizer, 2, out);
    assert_true(out[0] == -1.0f && out[1] == -2.0f);
    config.normalize = TRI_NORMALIZE_UNIT;
    assert_int_equal(tri_normalizer_init(&normalizer, &info, &config), TRI_OK);
    tri_normalizer_apply(&normalizer, stored, out);
    assert_true(out[0] == 1.0f && out[1] == 0.0f);
    info.dtype = TRI_F32;
    assert_int_equal(tri_normalizer_init(&normalizer, &info, &config), TRI_ECONFIG);
    info.deviation[1] = 0;
    config.normalize = TRI_NORMALIZE_STANDARD;
    assert_int_equal(tri_normalizer_init(&normalizer, &info, &config), TRI_ECONFIG);
    config.normalize = TRI_NORMALIZE_AUTO;
    assert_int_equal(tri_normalizer_init(&normalizer, &info, &config), TRI_OK);
    tri_normalizer_apply(&normalizer, ((const float[]){3.5f, -4}), out);
    assert_true(out[0] == 3.5f && out[1] == -4.0f);
}

static tri_status open_floats(const float *values, const char *descr, tri_loader **loader)
{
    char *folder = make_folder(), head[100];
    const int64_t labels[2] = {0, 1};
    tri_string x = {0}, y = {0};
    snprintf(head, sizeof(head), "{'descr': '%s', 'fortran_order': False, 'shape': (2, 1)}", descr);
    make_npy(&x, 1, head, values, descr[2] == '8' ? 16 : 8);
    make_npy(&y, 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}", labels, 16);
    write_file(folder, "x_train.npy", x.text, x.nbytes);
    write_file(folder, "y_train.npy", y.text, y.nbytes);
    tri_string_fini(&x);
    tri_string_fini(&y);
    tri_data_config config = config_at(folder, "npy");
    tri_dataset *dataset;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    tri_loader_setup setup = {.sampler = {1, 2, 2, 1, false}, .shard_count = 1, .rows_max = 2, .end_step = 1};
    tri_status status = tri_loader_open(dataset, &config, &setup, loader);
    tri_dataset_close(dataset);
    drop_folder(folder);
    return status;
}

static void samples_that_no_model_can_eat_are_named(void **state)
{
    (void)state;
    tri_loader *loader;
    const int64_t tokens[2] = {5, INT64_C(1) << 40}, fine[2] = {5, -7};
    assert_int_equal(open_floats((const float[]){1, NAN}, "<f4", &loader), TRI_ENUMERIC);
    assert_error_has("element 0 of sample 1 is not a finite number");
    assert_int_equal(open_floats((const void *)tokens, "<i8", &loader), TRI_EFORMAT);
    assert_error_has("sample 1 holds the token 1099511627776");
    assert_int_equal(open_floats((const void *)fine, "<i8", &loader), TRI_OK);
    tri_loader_batch batch;
    assert_int_equal(tri_loader_next(loader, &batch), TRI_OK);
    assert_int_equal(((const int32_t *)batch.input)[0], 5);
    assert_int_equal(((const int32_t *)batch.input)[1], -7);
    assert_int_equal(tri_loader_nbytes(loader), 2 * 8 + 2 * 4);
    tri_loader_close(loader);
}

static void what_nobody_reads_is_not_prepared(void **state)
{
    (void)state;
    char *folder = image_folder();
    tri_data_config config = config_at(folder, "auto");
    tri_dataset *dataset;
    for (int skips = 1; skips < 4; skips++) {
        bool input = !(skips & 1), target = !(skips & 2);
        config.prefetch = skips == 2 ? 0 : 2;
        config.crop = 2;
        tri_loader_setup setup = setup_for(0, 2, 0), some = setup;
        tri_loader *whole, *part;
        tri_loader_batch all, few;
        some.skips_input = !input;
        some.skips_target = !target;
        assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
        assert_int_equal(tri_loader_open(dataset, &config, &setup, &whole), TRI_OK);
        assert_int_equal(tri_loader_open(dataset, &config, &some, &part), TRI_OK);
        tri_dataset_close(dataset);
        assert_int_equal(tri_loader_nbytes(part), (size_t)(COUNT / 2) * (input * PIXELS + target * sizeof(int32_t)));
        for (int step = 0; step < STEPS; step++) {
            assert_int_equal(tri_loader_next(whole, &all), TRI_OK);
            assert_int_equal(tri_loader_next(part, &few), TRI_OK);
            size_t rows = (size_t)all.shards * ROWS_MAX;
            assert_int_equal(few.shards, all.shards);
            assert_memory_equal(few.rows, all.rows, (size_t)all.shards * sizeof(*all.rows));
            assert_memory_equal(few.first_sample, all.first_sample, (size_t)all.shards * sizeof(*all.first_sample));
            assert_true((few.input != NULL) == input && (few.target != NULL) == target);
            if (input)
                assert_memory_equal(few.input, all.input, rows * PIXELS * sizeof(float));
            if (target)
                assert_memory_equal(few.target, all.target, rows * sizeof(int32_t));
        }
        tri_loader_close(whole);
        tri_loader_close(part);
    }
    drop_folder(folder);
}

/* --- what a loader keeps of the one before it --- */

static const tri_dataset_ops *real_ops;
static int64_t rows_read; /* of the files */
static bool reading_fails;

static tri_status counted_read(tri_dataset *dataset, const int64_t *indices, int64_t count, void *samples,
                               void *targets)
{
    rows_read += count;
    return reading_fails ? tri_fail(TRI_EIO, "the disk fails")
                         : real_ops->read(dataset, indices, count, samples, targets);
}

static tri_dataset *counted_open(const tri_data_config *config, tri_dataset_ops *ops)
{
    tri_dataset *dataset;
    assert_int_equal(tri_dataset_open(config, false, &dataset), TRI_OK);
    real_ops = dataset->ops;
    *ops = *real_ops;
    ops->read = counted_read;
    dataset->ops = ops;
    rows_read = 0;
    return dataset;
}

static int64_t rows_of(const tri_loader_setup *setup, int64_t first, int64_t end)
{
    int64_t rows = 0;
    for (int64_t s = 0; s < setup->shard_count; s++)
        if (setup->first_shard + s >= first && setup->first_shard + s < end)
            rows += tri_sampler_part_count(&setup->sampler, setup->first_shard + s);
    return rows;
}

/* The batches of one worker of some setup are those of a loader that has read all of it. */
static void held_check(tri_dataset *dataset, const tri_data_config *config, const tri_loader_setup *setup)
{
    tri_loader *loader, *fresh;
    tri_loader_setup other = *setup;
    tri_loader_batch batch, wanted;
    other.held = NULL;
    assert_int_equal(tri_loader_open(dataset, config, setup, &loader), TRI_OK);
    const int64_t before = rows_read;
    assert_int_equal(tri_loader_open(dataset, config, &other, &fresh), TRI_OK);
    rows_read = before;
    assert_int_equal(tri_loader_nbytes(loader), tri_loader_nbytes(fresh));
    for (int64_t step = setup->first_step; step < STEPS; step++) {
        assert_int_equal(tri_loader_next(loader, &batch), TRI_OK);
        assert_int_equal(tri_loader_next(fresh, &wanted), TRI_OK);
        const size_t rows = (size_t)batch.shards * ROWS_MAX;
        assert_true((batch.input != NULL) == (wanted.input != NULL) &&
                    (batch.target != NULL) == (wanted.target != NULL));
        if (batch.input)
            assert_memory_equal(batch.input, wanted.input, rows * PIXELS * sizeof(float));
        if (batch.target)
            assert_memory_equal(batch.target, wanted.target, rows * sizeof(int32_t));
        assert_true(batch.marks == wanted.marks);
    }
    tri_loader_close(loader);
    tri_loader_close(fresh);
}

/* One worker through generations of 1 to 8, at any rank: it reads what it has not got, once. */
static void parts_that_stay_are_not_read_again(void **state)
{
    (void)state;
    char *folder = image_folder();
    tri_data_config config = config_at(folder, "auto");
    tri_dataset_ops ops;
    tri_dataset *dataset = counted_open(&config, &ops);
    tri_held held = {0};
    int64_t first = 0, end = 0, kept = 0, all = 0;
    config.crop = 1;
    for (int round = 0; round < 200; round++) {
        int world = 1 + round * 5 % SHARDS, rank = round * 11 % world;
        tri_loader_setup setup = setup_for(rank, world, round % STEPS);
        const int64_t before = rows_read, stays = rows_of(&setup, first, end), rows = rows_of(&setup, 0, SHARDS);
        setup.held = &held;
        held_check(dataset, &config, &setup);
        assert_int_equal(rows_read - before, rows - stays);
        assert_int_equal(held.count, rows);
        first = setup.first_shard;
        end = first + setup.shard_count;
        kept += stays;
        all += rows;
    }
    assert_true(kept > all / 4 && held.read_count == rows_read);
    tri_held_fini(&held);
    tri_dataset_close(dataset);
    drop_folder(folder);
}

/* Another seed, another data set, samples that were not wanted before: nothing of it is of use. */
static void what_is_of_other_samples_is_let_go(void **state)
{
    (void)state;
    char *folder = image_folder();
    tri_data_config config = config_at(folder, "auto");
    tri_dataset_ops ops;
    tri_dataset *dataset = counted_open(&config, &ops);
    tri_held held = {0};
    tri_loader_setup setup = setup_for(0, 2, 0);
    setup.held = &held;
    held_check(dataset, &config, &setup);
    const int64_t rows = rows_read;
    held_check(dataset, &config, &setup);
    assert_int_equal(rows_read, rows);
    setup.skips_input = true; /* a stage that wants targets alone */
    held_check(dataset, &config, &setup);
    assert_true(held.samples == NULL && rows_read == rows);
    setup.first_shard = SHARDS - setup.shard_count; /* another part of these */
    held_check(dataset, &config, &setup);
    assert_true(held.samples == NULL && rows_read == rows + held.count);
    setup.skips_input = false;
    held_check(dataset, &config, &setup);
    assert_int_equal(rows_read, rows + 2 * held.count);
    setup.sampler.seed++;
    held_check(dataset, &config, &setup);
    assert_int_equal(rows_read, rows + 3 * held.count);
    tri_held_fini(&held);
    tri_dataset_close(dataset);
    drop_folder(folder);
}

/* A read that fails, and each allocation: an error, nothing held, and the next loader reads all. */
static void what_cannot_be_read_is_not_held(void **state)
{
    (void)state;
    char *folder = image_folder();
    tri_data_config config = config_at(folder, "auto");
    tri_dataset_ops ops;
    tri_dataset *dataset = counted_open(&config, &ops);
    tri_held held = {0};
    tri_loader *loader;
    const uint64_t live = tri_memory_now().live;
    bool done = false;
    for (uint64_t n = 0; !done; n++) {
        assert_true(n < 1000);
        tri_loader_setup setup = setup_for(0, 2, 0);
        setup.held = &held;
        held_check(dataset, &config, &setup);
        setup = setup_for(1, 3, 0);
        setup.held = &held;
        reading_fails = n == 0;
        tri_memory_fail_at(n);
        tri_status status = tri_loader_open(dataset, &config, &setup, &loader);
        tri_memory_fail_at(0);
        reading_fails = false;
        done = status == TRI_OK;
        tri_loader_close(loader);
        assert_true(n > 0 || held.count == 0);
        held_check(dataset, &config, &setup);
        tri_held_fini(&held);
        assert_int_equal(tri_memory_now().live, live);
    }
    tri_dataset_close(dataset);
    drop_folder(folder);
}

static void setups_that_cannot_be_are_refused(void **state)
{
    (void)state;
    char *folder = image_folder();
    tri_data_config config = config_at(folder, "auto");
    tri_dataset *dataset;
    tri_loader *loader;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    tri_loader_setup setup = setup_for(0, 1, 0);
    setup.rows_max = 2;
    assert_int_equal(tri_loader_open(dataset, &config, &setup, &loader), TRI_EINVAL);
    assert_error_has("room is for 2");
    setup = setup_for(1, 2, 0);
    setup.shard_count = 5;
    assert_int_equal(tri_loader_open(dataset, &config, &setup, &loader), TRI_EINVAL);
    setup = setup_for(0, 1, 0);
    setup.sampler.count--;
    assert_int_equal(tri_loader_open(dataset, &config, &setup, &loader), TRI_EINVAL);
    tri_dataset_close(dataset);
    drop_folder(folder);
    config = config_default();
    strcpy(config.name, "synthetic");
    config.flip = true;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    setup = (tri_loader_setup){
        .sampler = {1, 4096, 64, 4, true}, .shard_count = 4, .rows_max = 16, .training = true, .end_step = 3};
    assert_int_equal(tri_loader_open(dataset, &config, &setup, &loader), TRI_ECONFIG);
    assert_error_has("are for images");
    tri_dataset_close(dataset);
}

static void closing_early_joins_and_batches_allocate_nothing(void **state)
{
    (void)state;
    tri_data_config config = config_default();
    tri_dataset *dataset;
    tri_loader *loader;
    tri_loader_batch batch;
    strcpy(config.name, "synthetic");
    uint64_t live = tri_memory_now().live;
    assert_int_equal(tri_dataset_open(&config, false, &dataset), TRI_OK);
    tri_loader_setup setup = {.sampler = {1, 4096, 64, 4, true},
                              .first_shard = 1,
                              .shard_count = 2,
                              .rows_max = 16,
                              .training = true,
                              .end_step = 1000000};
    assert_int_equal(tri_loader_open(dataset, &config, &setup, &loader), TRI_OK);
    tri_dataset_close(dataset);
    uint64_t calls = tri_memory_now().calls;
    for (int i = 0; i < 200; i++)
        assert_int_equal(tri_loader_next(loader, &batch), TRI_OK);
    assert_int_equal(tri_memory_now().calls, calls);
    tri_loader_close(loader);
    assert_int_equal(tri_memory_now().live, live);
}

static void every_failing_allocation_gives_an_error_and_no_leak(void **state)
{
    (void)state;
    char *folder = image_folder();
    tri_data_config config = config_at(folder, "auto");
    config.crop = 1;
    uint64_t live = tri_memory_now().live;
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        assert_true(n < 1000);
        tri_dataset *dataset = NULL;
        tri_loader *loader = NULL;
        tri_loader_setup setup = setup_for(0, 2, 0);
        tri_memory_fail_at(n);
        tri_status status = tri_dataset_open(&config, false, &dataset);
        if (status == TRI_OK)
            status = tri_loader_open(dataset, &config, &setup, &loader);
        tri_memory_fail_at(0);
        tri_loader_batch batch;
        done = status == TRI_OK && n > 40;
        if (status == TRI_OK)
            assert_int_equal(tri_loader_next(loader, &batch), TRI_OK);
        tri_loader_close(loader);
        tri_dataset_close(dataset);
        assert_int_equal(tri_memory_now().live, live);
    }
    drop_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_numbers_of_workers_give_the_same_batches),
        cmocka_unit_test(starting_late_equals_skipping),
        cmocka_unit_test(seeking_equals_skipping),
        cmocka_unit_test(batches_come_to_a_device),
        cmocka_unit_test(parts_of_a_batch_are_what_it_is_made_of),
        cmocka_unit_test(an_epoch_holds_every_image_as_stored),
        cmocka_unit_test(shards_of_more_than_a_tile_end_with_a_short_batch),
        cmocka_unit_test(moves_and_mirrors_are_windows_of_the_padded_image),
        cmocka_unit_test(figures_of_the_data_set_are_applied),
        cmocka_unit_test(samples_that_no_model_can_eat_are_named),
        cmocka_unit_test(what_nobody_reads_is_not_prepared),
        cmocka_unit_test(parts_that_stay_are_not_read_again),
        cmocka_unit_test(what_is_of_other_samples_is_let_go),
        cmocka_unit_test(what_cannot_be_read_is_not_held),
        cmocka_unit_test(setups_that_cannot_be_are_refused),
        cmocka_unit_test(closing_early_joins_and_batches_allocate_nothing),
        cmocka_unit_test(every_failing_allocation_gives_an_error_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
