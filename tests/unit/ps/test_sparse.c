/* SPDX-License-Identifier: Apache-2.0
 *
 * test_sparse.c: every call is compared with a plain list of rows.
 */
#include "ps/tables/sparse.h"

#include "unit/ps/ps_rig.h"

#define DIM  5
#define KEYS 4000

static tri_optim_config optim_of(const char *name)
{
    tri_optim_config config;
    tri_options_defaults(&tri_optim_options, &config);
    OK(tri_options_set(&tri_optim_options, &config, "name", name));
    config.initial_accumulator = 0.125;
    return config;
}

static ps_sparse *make(const char *optim, ps_initial initial)
{
    tri_optim_config config = optim_of(optim ? optim : "sgd");
    ps_sparse_setup setup = {
        .name = "users", .dim = DIM, .seed = 11, .initial = initial, .scale = 0.5f, .optim = optim ? &config : NULL};
    ps_sparse *table;
    OK(ps_sparse_create(&setup, &table));
    return table;
}

/* Keys that look like nothing and like each other. */
static uint64_t key_of(uint64_t i)
{
    return i % 3 == 0 ? i : i % 3 == 1 ? i << 40 : ~i;
}

static void values_of(ps_initial initial, uint64_t key, float *values)
{
    tri_rng rng = {11, tri_rng_stream("row", XXH3_64bits("users", 5), key)};
    for (uint64_t e = 0; e < DIM; e++)
        values[e] = initial == PS_INITIAL_ZERO      ? 0
                    : initial == PS_INITIAL_UNIFORM ? 0.5f * (2 * tri_rng_uniform(rng, e) - 1)
                                                    : 0.5f * tri_rng_normal(rng, e);
}

/* A plain table. */
typedef struct plain_row {
    bool here;
    float values[DIM], state[2][DIM];
    uint32_t clock, touches;
} plain_row;

static plain_row plain[KEYS];
static uint64_t keys[KEYS];
static float rows[KEYS][DIM], pulled[KEYS][DIM];

static void plain_touch(uint64_t i, ps_initial initial, const tri_optim_rows *optim)
{
    if (plain[i].here)
        return;
    plain[i] = (plain_row){.here = true};
    values_of(initial, key_of(i), plain[i].values);
    for (int s = 0; optim && s < optim->states; s++)
        for (int e = 0; e < DIM; e++)
            plain[i].state[s][e] = tri_optim_rows_initial(optim, s);
}

static int64_t plain_count(void)
{
    int64_t count = 0;
    for (int i = 0; i < KEYS; i++)
        count += plain[i].here;
    return count;
}

static void expect_plain(ps_sparse *table, ps_initial initial)
{
    for (uint64_t i = 0; i < KEYS; i++)
        keys[i] = key_of(i);
    memset(pulled, 0x55, sizeof(pulled));
    OK(ps_sparse_pull(table, 0, keys, KEYS, pulled[0]));
    for (uint64_t i = 0; i < KEYS; i++) {
        float values[DIM];
        values_of(initial, key_of(i), values);
        assert_memory_equal(pulled[i], plain[i].here ? plain[i].values : values, sizeof(values));
    }
    assert_int_equal(ps_sparse_count(table), plain_count());
    /* And row by row, with state, age and count. */
    int64_t seen = 0;
    for (int slot = 0; slot < PS_SLOTS; slot++) {
        ps_cursor cursor = {0};
        ps_row row;
        uint64_t last = 0;
        int64_t in_slot = 0;
        while (ps_sparse_next(table, slot, &cursor, &row)) {
            uint64_t i = row.key % 3 == 0 && row.key < KEYS    ? row.key
                         : row.key >> 40 && row.key >> 63 == 0 ? row.key >> 40
                                                               : ~row.key;
            assert_true(i < KEYS && key_of(i) == row.key && plain[i].here);
            assert_int_equal(ps_key_slot(row.key), slot);
            assert_true(in_slot == 0 || ps_key_hash(row.key) > last);
            last = ps_key_hash(row.key);
            assert_memory_equal(row.values, plain[i].values, sizeof(plain[i].values));
            assert_int_equal(row.clock, plain[i].clock);
            assert_int_equal(row.touches, plain[i].touches);
            in_slot++;
        }
        assert_int_equal(ps_sparse_slot_count(table, slot), in_slot);
        seen += in_slot;
    }
    assert_int_equal(seen, ps_sparse_count(table));
}

static void rows_begin_as_seed_table_and_key_say(void **state)
{
    (void)state;
    for (ps_initial initial = PS_INITIAL_ZERO; initial <= PS_INITIAL_NORMAL; initial++) {
        ps_sparse *table = make(NULL, initial);
        memset(plain, 0, sizeof(plain));
        expect_plain(table, initial);
        assert_int_equal(ps_sparse_count(table), 0); /* a pull makes no rows */
        uint64_t some[] = {key_of(3), key_of(4), key_of(3)};
        OK(ps_sparse_touch(table, 9, some, 3));
        plain_touch(3, initial, NULL);
        plain_touch(4, initial, NULL);
        plain[3].clock = plain[4].clock = 9;
        expect_plain(table, initial);
        float zeros[DIM] = {0}; /* one who is late makes nothing older */
        OK(ps_sparse_touch(table, 8, some, 1));
        OK(ps_sparse_push(table, &(ps_push){.clock = 7, .merge = ps_merge_add}, some + 1, zeros, 1));
        plain[4].touches = 1;
        expect_plain(table, initial);
        ps_sparse_destroy(table);
    }
}

static void pushes_of(ps_sparse *table, const char *name, rig_random *random)
{
    tri_optim_config config = optim_of(name);
    tri_optim_rows optim;
    OK(tri_optim_rows_init(&optim, &config));
    memset(plain, 0, sizeof(plain));
    for (int64_t step = 0; step < 60; step++) {
        int64_t count = (int64_t)rig_below(random, 400);
        tri_optim_scalars figures = {step, 0.1f, 0.5f, 1.0f};
        tri_optim_rows_begin(&optim, &figures);
        for (int64_t k = 0; k < count; k++) {
            uint64_t i = rig_below(random, KEYS);
            keys[k] = key_of(i);
            for (int e = 0; e < DIM; e++)
                rows[k][e] = rig_normal(random);
            plain_touch(i, PS_INITIAL_UNIFORM, &optim);
            float *pieces[] = {plain[i].state[0], plain[i].state[1]};
            tri_optim_rows_step(&optim, plain[i].values, rows[k], pieces, DIM);
            plain[i].clock = (uint32_t)step;
            plain[i].touches++;
        }
        ps_push push = {.clock = step, .figures = &figures};
        OK(ps_sparse_push(table, &push, keys, rows[0], count));
        if (step % 20 == 0)
            expect_plain(table, PS_INITIAL_UNIFORM);
    }
    expect_plain(table, PS_INITIAL_UNIFORM);
}

static void gradients_move_rows_as_the_optimizer_says(void **state)
{
    (void)state;
    rig_random random = {{4, 1}, 0};
    for (const char *const *name = tri_optim_names(); *name; name++) {
        ps_sparse *table = make(*name, PS_INITIAL_UNIFORM);
        assert_true(ps_sparse_steps(table));
        pushes_of(table, *name, &random);
        ps_sparse_destroy(table);
    }
}

static void merge_hash(void *arg, uint64_t key, float *row, const float *pushed, int dim)
{
    row[0] += (float)(key % 7) * pushed[dim - 1];
    ++*(int *)arg;
}

static void rows_take_in_what_the_merge_function_says(void **state)
{
    (void)state;
    ps_sparse *table = make(NULL, PS_INITIAL_ZERO);
    int calls = 0;
    assert_false(ps_sparse_steps(table));
    uint64_t two[] = {5, 6, 5};
    float pushed[3][DIM] = {{1, -1, 2, 0, 3}, {4, 4, 4, 4, 4}, {-5, 5, 0, 0, 1}}, out[2][DIM];
    const struct {
        ps_merge_fn merge;
        float want[DIM]; /* of key 5 */
    } cases[] = {{ps_merge_add, {-4, 4, 2, 0, 4}},
                 {ps_merge_assign, {-5, 5, 0, 0, 1}},
                 {ps_merge_min, {-5, -1, 0, 0, 0}},
                 {ps_merge_max, {1, 5, 2, 0, 3}},
                 {merge_hash, {20, 0, 0, 0, 0}}};
    for (size_t c = 0; c < TRI_COUNT_OF(cases); c++) {
        ps_push push = {.merge = cases[c].merge, .arg = &calls};
        assert_int_equal(ps_sparse_erase(table, two, 3), c ? 2 : 0);
        OK(ps_sparse_push(table, &push, two, pushed[0], 3));
        OK(ps_sparse_pull(table, 0, two, 2, out[0]));
        for (int e = 0; e < DIM; e++)
            assert_true(out[0][e] == cases[c].want[e]);
    }
    assert_int_equal(calls, 3);
    ps_sparse_destroy(table);
}

/* Rows that came in any order, and some of them went, lie as if they had come in another. */
static void the_same_rows_are_the_same_bytes_whatever_their_history(void **state)
{
    (void)state;
    rig_random random = {{4, 2}, 0};
    static int order[KEYS];
    tri_string first = {0}, second = {0};
    ps_sparse *a = make("adam", PS_INITIAL_NORMAL), *b = make("adam", PS_INITIAL_NORMAL);
    for (int i = 0; i < KEYS; i++)
        keys[i] = key_of((uint64_t)i);
    OK(ps_sparse_touch(a, 1, keys, KEYS / 2));
    rig_shuffle(&random, order, KEYS);
    for (int i = 0; i < KEYS; i++) {
        uint64_t key = key_of((uint64_t)order[i]);
        OK(ps_sparse_touch(b, 1, &key, 1));
    }
    for (int i = KEYS - 1; i >= 0; i--)
        if (order[i] >= KEYS / 2) {
            uint64_t key = key_of((uint64_t)order[i]);
            assert_int_equal(ps_sparse_erase(b, &key, 1), 1);
        }
    assert_int_equal(ps_sparse_erase(b, keys + KEYS / 2, KEYS / 2), 0);
    assert_int_equal(ps_sparse_count(b), KEYS / 2);
    for (int slot = 0; slot < PS_SLOTS; slot++) {
        ps_cursor one = {0}, two = {0};
        int64_t count;
        OK(ps_sparse_write(a, slot, &one, INT64_MAX, &first, &count));
        assert_int_equal(count, ps_sparse_slot_count(a, slot));
        OK(ps_sparse_write(b, slot, &two, INT64_MAX, &second, &count));
    }
    assert_int_equal(first.nbytes, second.nbytes);
    assert_memory_equal(first.text, second.text, first.nbytes);
    tri_string_fini(&first);
    tri_string_fini(&second);
    ps_sparse_destroy(a);
    ps_sparse_destroy(b);
}

static void a_table_goes_on_elsewhere_from_its_bytes(void **state)
{
    (void)state;
    rig_random random = {{4, 3}, 0};
    ps_sparse *table = make("adagrad", PS_INITIAL_UNIFORM), *copy = make("adagrad", PS_INITIAL_UNIFORM);
    pushes_of(table, "adagrad", &random);
    for (uint64_t i = 0; i < KEYS; i += 2) /* what is there is replaced */
        if (plain[i].here)
            OK(ps_sparse_touch(copy, 70, &keys[i], 1));
    for (int slot = 0; slot < PS_SLOTS; slot++) {
        ps_cursor cursor = {0};
        for (int64_t count = 7; count == 7;) {
            tri_string bytes = {0};
            OK(ps_sparse_write(table, slot, &cursor, 7, &bytes, &count));
            OK(ps_sparse_read(copy, bytes.text, bytes.nbytes));
            tri_string_fini(&bytes);
        }
    }
    expect_plain(copy, PS_INITIAL_UNIFORM);
    /* State came along: one more push gives the same. */
    tri_optim_scalars figures = {60, 0.1f, 1.0f, 1.0f};
    ps_push push = {.clock = 60, .figures = &figures};
    static float mine[KEYS][DIM], theirs[KEYS][DIM];
    OK(ps_sparse_push(table, &push, keys, rows[0], KEYS));
    OK(ps_sparse_push(copy, &push, keys, rows[0], KEYS));
    OK(ps_sparse_pull(table, 0, keys, KEYS, mine[0]));
    OK(ps_sparse_pull(copy, 0, keys, KEYS, theirs[0]));
    assert_memory_equal(mine, theirs, sizeof(mine));
    /* A slot that moved away is gone. */
    int64_t in_slot = ps_sparse_slot_count(copy, 17), before = ps_sparse_count(copy);
    assert_true(in_slot > 0);
    ps_sparse_drop(copy, 17);
    assert_int_equal(ps_sparse_slot_count(copy, 17), 0);
    assert_int_equal(ps_sparse_count(copy), before - in_slot);
    ps_cursor none = {0};
    ps_row row;
    assert_false(ps_sparse_next(copy, 17, &none, &row));
    ps_sparse_destroy(table);
    ps_sparse_destroy(copy);
}

static void bytes_that_are_no_rows_are_refused(void **state)
{
    (void)state;
    rig_random random = {{4, 4}, 0};
    ps_sparse *table = make("adagrad", PS_INITIAL_ZERO), *other = make("adam", PS_INITIAL_ZERO);
    uint64_t some[] = {1, 2, 3, 4};
    tri_string bytes = {0};
    ps_cursor cursor = {0};
    int64_t count;
    OK(ps_sparse_touch(table, 1, some, 4));
    OK(ps_sparse_write(table, ps_key_slot(3), &cursor, 100, &bytes, &count));
    assert_int_equal(count, 1);
    FAILS(TRI_EFORMAT, "want 5 values and 15 with state, got 5 and 10",
          ps_sparse_read(other, bytes.text, bytes.nbytes));
    assert_int_equal(ps_sparse_count(other), 0);
    for (size_t nbytes = 0; nbytes < bytes.nbytes; nbytes++)
        assert_int_equal(ps_sparse_read(table, bytes.text, nbytes), TRI_EFORMAT);
    for (int round = 0; round < 2000; round++) {
        char spoilt[256];
        memcpy(spoilt, bytes.text, bytes.nbytes);
        for (uint64_t i = 0; i <= rig_below(&random, 3); i++)
            spoilt[rig_below(&random, bytes.nbytes)] = (char)rig_below(&random, 256);
        tri_status status = ps_sparse_read(table, spoilt, bytes.nbytes);
        assert_true(status == TRI_OK || status == TRI_EFORMAT);
    }
    tri_string_fini(&bytes);
    ps_sparse_destroy(table);
    ps_sparse_destroy(other);
}

/* Fills both tables with rows of any age and count. */
static void fill_for_eviction(ps_sparse *table, rig_random *random)
{
    float zeros[DIM] = {0};
    memset(plain, 0, sizeof(plain));
    for (int i = 0; i < 3 * KEYS; i++) {
        uint64_t number = rig_below(random, KEYS), key = key_of(number);
        ps_push push = {.clock = i / 500, .merge = ps_merge_add};
        OK(ps_sparse_push(table, &push, &key, zeros, 1));
        plain_touch(number, PS_INITIAL_UNIFORM, NULL);
        plain[number].clock = (uint32_t)push.clock;
        plain[number].touches++;
    }
}

static bool plain_goes_before(uint64_t a, uint64_t b)
{
    if (plain[a].clock != plain[b].clock)
        return plain[a].clock < plain[b].clock;
    if (plain[a].touches != plain[b].touches)
        return plain[a].touches < plain[b].touches;
    return key_of(a) < key_of(b);
}

static void plain_evict(const ps_evict *evict)
{
    for (int i = 0; i < KEYS; i++) {
        plain_row *row = &plain[i];
        if (row->clock < evict->before || (row->touches < evict->fewer && row->clock < evict->unless))
            row->here = false;
        if (evict->fewer > 0)
            row->touches = 0;
    }
    while (evict->most > 0 && plain_count() > evict->most) {
        int64_t first = -1;
        for (int64_t i = 0; i < KEYS; i++)
            if (plain[i].here && (first < 0 || plain_goes_before((uint64_t)i, (uint64_t)first)))
                first = i;
        plain[first].here = false;
    }
}

static void old_and_rare_rows_go_and_the_first_of_too_many(void **state)
{
    (void)state;
    const ps_evict cases[] = {{.before = 10},
                              {.fewer = 3, .unless = 20},
                              {.most = 1234},
                              {.most = 1},
                              {.before = 8, .fewer = 2, .unless = 25, .most = 2500},
                              {.before = 1000},
                              {.most = KEYS},
                              {0}};
    for (size_t c = 0; c < TRI_COUNT_OF(cases); c++) {
        rig_random random = {{4, 5}, 0};
        ps_sparse *table = make(NULL, PS_INITIAL_UNIFORM);
        fill_for_eviction(table, &random);
        int64_t evicted, before = plain_count();
        OK(ps_sparse_evict(table, &cases[c], &evicted));
        plain_evict(&cases[c]);
        assert_int_equal(evicted, before - plain_count());
        expect_plain(table, PS_INITIAL_UNIFORM);
        /* They come back with what they began with, in memory that is there. */
        size_t nbytes = ps_sparse_nbytes(table);
        for (uint64_t i = 0; i < KEYS; i++) {
            keys[i] = key_of(i);
            plain_touch(i, PS_INITIAL_UNIFORM, NULL);
        }
        OK(ps_sparse_touch(table, 0, keys, KEYS));
        expect_plain(table, PS_INITIAL_UNIFORM);
        assert_true(ps_sparse_nbytes(table) <= nbytes + (size_t)KEYS * 32);
        ps_sparse_destroy(table);
    }
}

/* Keys whose hashes agree in 23 bits: they all belong to one place of the index, whatever its size. */
static void keys_with_hashes_that_are_alike_do_no_harm(void **state)
{
    (void)state;
    enum { ALIKE = 24 };
    static uint64_t alike[ALIKE];
    int found = 0;
    for (uint64_t key = 1; found < ALIKE; key++)
        if (ps_key_hash(key) >> 46 == 0x3ffff) /* the last place of the last slot */
            alike[found++] = key;
    ps_sparse *table = make(NULL, PS_INITIAL_ZERO);
    float row[DIM] = {1}, out[ALIKE][DIM];
    ps_push push = {.merge = ps_merge_add};
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < ALIKE; i++) {
            int at = round ? i : ALIKE - 1 - i;
            row[0] = (float)at;
            OK(ps_sparse_push(table, &push, &alike[at], row, 1));
        }
    OK(ps_sparse_pull(table, 0, alike, ALIKE, out[0]));
    for (int i = 0; i < ALIKE; i++)
        assert_true(out[i][0] == (float)(2 * i));
    assert_int_equal(ps_sparse_erase(table, alike + 5, 10), 10);
    OK(ps_sparse_pull(table, 0, alike, ALIKE, out[0]));
    for (int i = 0; i < ALIKE; i++)
        assert_true(out[i][0] == (i >= 5 && i < 15 ? 0 : (float)(2 * i)));
    assert_true(ps_sparse_nbytes(table) < (size_t)4 << 20);
    ps_sparse_destroy(table);
}

/* Hashes that agree in all that an index remembers of them: the rows' keys decide. */
static void keys_with_the_same_tag_are_told_apart(void **state)
{
    (void)state;
    static const uint64_t pairs[][2] = {{339176, 2854905}, {2941375, 2142344}, {517169, 252168}};
    for (size_t p = 0; p < TRI_COUNT_OF(pairs); p++)
        for (int turned = 0; turned < 2; turned++) {
            const uint64_t order[] = {pairs[p][turned], pairs[p][!turned]};
            ps_sparse *table = make(NULL, PS_INITIAL_ZERO);
            ps_push push = {.merge = ps_merge_add};
            float one[DIM] = {1}, two[DIM] = {2}, out[2][DIM];
            assert_true(ps_key_hash(order[0]) >> 25 == ps_key_hash(order[1]) >> 25);
            OK(ps_sparse_push(table, &push, order, one, 1));
            OK(ps_sparse_pull(table, 0, order, 2, out[0]));
            assert_true(out[0][0] == 1 && out[1][0] == 0);
            OK(ps_sparse_push(table, &push, order + 1, two, 1));
            OK(ps_sparse_pull(table, 0, order, 2, out[0]));
            assert_true(out[0][0] == 1 && out[1][0] == 2);
            ps_cursor cursor = {0};
            ps_row first, second;
            assert_true(ps_sparse_next(table, ps_key_slot(order[0]), &cursor, &first));
            assert_true(ps_sparse_next(table, ps_key_slot(order[0]), &cursor, &second));
            assert_true(ps_key_hash(first.key) < ps_key_hash(second.key));
            assert_false(ps_sparse_next(table, ps_key_slot(order[0]), &cursor, &second));
            assert_int_equal(ps_sparse_erase(table, order, 1), 1);
            OK(ps_sparse_pull(table, 0, order, 2, out[0]));
            assert_true(out[0][0] == 0 && out[1][0] == 2);
            ps_sparse_destroy(table);
        }
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    tri_optim_config config = optim_of("adam");
    ps_sparse_setup setup = {.name = "t", .dim = 0};
    ps_sparse *table;
    FAILS(TRI_EINVAL, "table t: want rows of 1 to 1048576 values, got 0", ps_sparse_create(&setup, &table));
    setup.dim = 1;
    setup.scale = INFINITY;
    FAILS(TRI_EINVAL, "want a finite scale", ps_sparse_create(&setup, &table));
    setup.scale = 1;
    setup.optim = &config;
    config.beta1 = 1;
    FAILS(TRI_ECONFIG, "optim.beta1", ps_sparse_create(&setup, &table));
}

static void running_out_of_memory_changes_nothing(void **state)
{
    (void)state;
    uint64_t live = tri_memory_now().live;
    tri_optim_scalars figures = {0, 0.1f, 1.0f, 1.0f};
    ps_push push = {.clock = 1, .figures = &figures};
    for (int i = 0; i < KEYS; i++) {
        keys[i] = key_of((uint64_t)i);
        for (int e = 0; e < DIM; e++)
            rows[i][e] = (float)(i + e);
    }
    static float expected[KEYS][DIM];
    ps_sparse *table = make("adagrad", PS_INITIAL_ZERO);
    OK(ps_sparse_push(table, &push, keys, rows[0], KEYS));
    OK(ps_sparse_pull(table, 0, keys, KEYS, expected[0]));
    ps_sparse_destroy(table);
    bool done = false;
    for (uint64_t n = 1; !done; n += 1 + n / 16) {
        tri_optim_config config = optim_of("adagrad");
        ps_sparse_setup setup = {.name = "users", .dim = DIM, .seed = 11, .optim = &config};
        tri_memory_fail_at(n);
        tri_status status = ps_sparse_create(&setup, &table);
        if (status == TRI_OK) {
            status = ps_sparse_push(table, &push, keys, rows[0], KEYS);
            bool again = status != TRI_OK;
            tri_memory_fail_at(0);
            if (again)
                OK(ps_sparse_push(table, &push, keys, rows[0], KEYS));
            OK(ps_sparse_pull(table, 0, keys, KEYS, pulled[0]));
            assert_memory_equal(pulled, expected, sizeof(expected));
            int64_t evicted;
            tri_memory_fail_at(1);
            assert_int_equal(ps_sparse_evict(table, &(ps_evict){.before = 9, .most = 5}, &evicted), TRI_ENOMEM);
            tri_memory_fail_at(0);
            assert_int_equal(ps_sparse_count(table), KEYS);
            ps_sparse_destroy(table);
        }
        tri_memory_fail_at(0);
        done = status == TRI_OK;
        assert_true(done || status == TRI_ENOMEM);
    }
    assert_int_equal(tri_memory_now().live, live);
}

/* A list that comes again is known by its keys: what it says is what each of them says by itself. */
static void expect_each(ps_sparse *table, const uint64_t *list, int64_t count)
{
    float alone[DIM];
    OK(ps_sparse_pull(table, 0, list, count, pulled[0]));
    for (int64_t i = 0; i < count; i++) {
        OK(ps_sparse_pull(table, 0, &list[i], 1, alone));
        assert_memory_equal(pulled[i], alone, sizeof(alone));
    }
}

/* What is looked up once serves until something else is, or a row has gone. */
static void expect_look(ps_sparse *table, ps_look look, const uint64_t *list, int64_t count)
{
    static float with[KEYS][DIM], without[KEYS][DIM];
    OK(ps_sparse_pull(table, look, list, count, with[0]));
    OK(ps_sparse_pull(table, 0, list, count, without[0]));
    assert_memory_equal(with, without, (size_t)count * sizeof(with[0]));
}

static void a_list_that_comes_again_says_what_its_keys_say(void **state)
{
    (void)state;
    enum { LIST = 500, LISTS = 40 };
    ps_sparse *table = make(NULL, PS_INITIAL_UNIFORM);
    ps_slots slots, wanted;
    ps_look look;
    ps_push push = {.merge = ps_merge_add, .clock = 1};
    for (uint64_t i = 0; i < KEYS; i++)
        keys[i] = key_of(i);
    for (int64_t i = 0; i < KEYS; i++)
        for (int e = 0; e < DIM; e++)
            rows[i][e] = (float)(i + e);
    keys[7] = keys[3]; /* twice in one list */
    for (int round = 0; round < 6; round++) {
        expect_each(table, keys, LIST); /* of rows that are not there at first */
        OK(ps_sparse_push(table, &push, keys, rows[0], LIST));
        expect_each(table, keys, LIST);
        OK(ps_sparse_slots(table, keys, LIST, &slots, &look));
        wanted = ps_keys_slots(keys, LIST);
        assert_memory_equal(&slots, &wanted, sizeof(slots));
        push.look = look;
        OK(ps_sparse_push(table, &push, keys, rows[0], LIST));
        push.look = 0;
        expect_look(table, look, keys, LIST);
        OK(ps_sparse_slots(table, keys + 20, LIST, &slots, &look));
        assert_int_equal(ps_sparse_erase(table, keys + 30, 1), 1);
        expect_look(table, look, keys + 20, LIST);
        OK(ps_sparse_slots(table, keys, LIST, &slots, &look));
        OK(ps_sparse_push(table, &push, keys + 30, rows[0], LIST));
        expect_look(table, look, keys, LIST);
        for (int l = 0; l < LISTS; l++) /* more lists than are kept for so few rows */
            OK(ps_sparse_push(table, &push, keys + l * 80, rows[0], LIST + l));
        expect_each(table, keys, LIST);
        if (round % 3 == 0)
            assert_int_equal(ps_sparse_erase(table, keys + 10, 200), 200);
        if (round % 3 == 1)
            ps_sparse_drop(table, ps_key_slot(keys[1]));
        if (round % 3 == 2) { /* other rows have the memory of those that went */
            assert_int_equal(ps_sparse_erase(table, keys + 10, 200), 200);
            OK(ps_sparse_push(table, &push, keys + LIST, rows[LIST], KEYS - LIST));
            OK(ps_sparse_push(table, &push, keys + 210, rows[0], 1));
        }
    }
    keys[7] = key_of(7);
    ps_sparse_destroy(table);
}

/* Of so many rows that the indexes of some slots share memory. */
static void slots_with_many_rows_come_and_go(void **state)
{
    (void)state;
    enum { MANY = 20000, AT_ONCE = 500, SLOTS = 3 };
    static uint64_t many[MANY];
    static float out[AT_ONCE][DIM];
    tri_memory_counts before = tri_memory_now();
    ps_sparse *table = make(NULL, PS_INITIAL_ZERO);
    ps_push push = {.merge = ps_merge_assign, .clock = 1};
    int64_t listed = 0;
    for (uint64_t key = 1; listed < MANY; key++)
        if (ps_key_slot(key) < SLOTS)
            many[listed++] = key;
    for (int round = 0; round < 2; round++) {
        for (int64_t first = 0; first < MANY; first += AT_ONCE) {
            for (int64_t i = 0; i < AT_ONCE; i++)
                rows[i][0] = (float)(first + i);
            OK(ps_sparse_push(table, &push, many + first, rows[0], AT_ONCE));
        }
        for (int64_t first = 0; first < MANY; first += AT_ONCE) {
            OK(ps_sparse_pull(table, 0, many + first, AT_ONCE, out[0]));
            for (int64_t i = 0; i < AT_ONCE; i++)
                assert_true(out[i][0] == (float)(first + i));
        }
        assert_int_equal(ps_sparse_count(table), MANY);
        for (int slot = 0; slot < SLOTS; slot++)
            ps_sparse_drop(table, slot);
        assert_int_equal(ps_sparse_count(table), 0);
    }
    ps_sparse_destroy(table);
    assert_int_equal(tri_memory_now().live, before.live);
}

/* All rows of a table, as bytes. */
static void write_all(ps_sparse *table, tri_string *out)
{
    for (int slot = 0; slot < PS_SLOTS; slot++) {
        ps_cursor cursor = {0};
        int64_t count;
        OK(ps_sparse_write(table, slot, &cursor, INT64_MAX, out, &count));
    }
}

enum { RUN_ROWS = (1 << 20) + 700, RUN_LIST = 1500 }; /* of one value, the slab ends in the middle of the last list */
static uint64_t run_keys[RUN_ROWS], run_back[RUN_ROWS];

static ps_sparse *run_table(const ps_sparse_setup *setup, const uint64_t *list)
{
    ps_sparse *table;
    OK(ps_sparse_create(setup, &table));
    OK(ps_sparse_touch(table, 0, list, RUN_ROWS));
    return table;
}

/* Once forwards, where all of the list lies in a row (or not, where two rows were exchanged), once backwards. */
static void run_push(ps_sparse *forth, ps_sparse *back, const ps_push *push)
{
    static float values[RUN_LIST], reversed[RUN_LIST];
    const uint64_t *list = run_keys + RUN_ROWS - RUN_LIST, *other = run_back;
    for (int i = 0; i < RUN_LIST; i++)
        values[i] = reversed[RUN_LIST - 1 - i] = (float)(i % 17 - 5);
    OK(ps_sparse_push(forth, push, list, values, RUN_LIST));
    OK(ps_sparse_push(back, push, other, reversed, RUN_LIST));
    OK(ps_sparse_pull(forth, 0, list, RUN_LIST, values));
    OK(ps_sparse_pull(back, 0, other, RUN_LIST, reversed));
    for (int i = 0; i < RUN_LIST; i++)
        assert_true(values[i] == reversed[RUN_LIST - 1 - i]);
}

static void rows_that_lie_in_a_row_take_in_what_they_would_elsewhere(void **state)
{
    (void)state;
    tri_optim_config optim = optim_of("adagrad");
    tri_optim_scalars figures = {1, 0.1f, 1.0f, 1.0f};
    int calls = 0;
    const ps_push kinds[] = {{.merge = ps_merge_add}, {.figures = &figures}, {.merge = merge_hash, .arg = &calls}};
    for (int i = 0; i < RUN_ROWS; i++)
        run_keys[i] = run_back[RUN_ROWS - 1 - i] = key_of((uint64_t)i);
    for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
        ps_sparse_setup setup = {.name = "run", .dim = 1, .optim = kinds[k].figures ? &optim : NULL};
        ps_sparse *forth = run_table(&setup, run_keys), *back = run_table(&setup, run_keys);
        uint64_t *two = run_keys + RUN_ROWS - RUN_LIST + 200;
        tri_string first = {0}, second = {0};
        for (int64_t clock = 1; clock < 6; clock++) {
            ps_push push = kinds[k];
            push.clock = clock;
            run_push(forth, back, &push);
            if (clock != 3)
                continue;
            assert_int_equal(ps_sparse_erase(forth, two, 2), 2); /* each comes back in the other's place */
            assert_int_equal(ps_sparse_erase(back, two, 2), 2);
        }
        write_all(forth, &first);
        write_all(back, &second);
        assert_int_equal(first.nbytes, second.nbytes);
        assert_memory_equal(first.text, second.text, first.nbytes);
        tri_string_fini(&first);
        tri_string_fini(&second);
        ps_sparse_destroy(forth);
        ps_sparse_destroy(back);
    }
    assert_int_equal(calls, 2 * 5 * RUN_LIST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_begin_as_seed_table_and_key_say),
        cmocka_unit_test(gradients_move_rows_as_the_optimizer_says),
        cmocka_unit_test(rows_take_in_what_the_merge_function_says),
        cmocka_unit_test(the_same_rows_are_the_same_bytes_whatever_their_history),
        cmocka_unit_test(a_table_goes_on_elsewhere_from_its_bytes),
        cmocka_unit_test(bytes_that_are_no_rows_are_refused),
        cmocka_unit_test(old_and_rare_rows_go_and_the_first_of_too_many),
        cmocka_unit_test(keys_with_hashes_that_are_alike_do_no_harm),
        cmocka_unit_test(keys_with_the_same_tag_are_told_apart),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(running_out_of_memory_changes_nothing),
        cmocka_unit_test(a_list_that_comes_again_says_what_its_keys_say),
        cmocka_unit_test(slots_with_many_rows_come_and_go),
        cmocka_unit_test(rows_that_lie_in_a_row_take_in_what_they_would_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
