/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kv.c: tables of rows and arrays over TCP, by the calls of <trireme/ps.h>.
 */
#include "unit/ps/kv_rig.h"

#include <dirent.h>
#include <stdlib.h>

#include "base/memory.h"

#define DIM 5

static void rows_fill(float *rows, const uint64_t *keys, int64_t count, int dim, float factor)
{
    for (int64_t i = 0; i < count; i++)
        for (int e = 0; e < dim; e++)
            rows[i * dim + e] = factor * (float)(keys[i] % 1000 + (uint64_t)e);
}

/* --- pull and push --- */

static void add_body(kv_seat *seat)
{
    enum { COUNT = 3000 };
    uint64_t keys[COUNT];
    float *rows = malloc(sizeof(float) * COUNT * DIM), *got = malloc(sizeof(float) * COUNT * DIM);
    tri_kv_table *table;
    rig_random random = {.rng = {7, 1}};
    KV_OK(seat, tri_kv_table_open(seat->kv, "sums", DIM, "merge: add", &table));
    for (int i = 0; i < COUNT; i++)
        keys[i] = rig_below(&random, i % 2 ? UINT64_MAX : 500); /* some twice, in no order */
    rows_fill(rows, keys, COUNT, DIM, 1);
    KV_OK(seat, tri_kv_push(table, -1, keys, rows, COUNT, NULL));
    KV_OK(seat, tri_kv_barrier(seat->kv));
    KV_OK(seat, tri_kv_pull(table, keys, COUNT, got, NULL));
    for (int i = 0; i < COUNT; i++) {
        int times = 0;
        for (int j = 0; j < COUNT; j++)
            times += keys[j] == keys[i];
        for (int e = 0; e < DIM; e++)
            KV_CHECK(seat, got[i * DIM + e] == (float)(times * seat->rig->workers) * rows[i * DIM + e]);
    }
    free(rows);
    free(got);
}

static void pushes_of_all_workers_add_up(void **state)
{
    (void)state;
    for (int servers = 1; servers <= 3; servers++)
        for (int workers = 1; workers <= 3; workers += 2)
            assert_true(kv_rig_run(&(kv_rig){.servers = servers, .workers = workers, .body = add_body}));
}

/* What each merge makes of two pushes, 3 and -2. */
static void twice(void *arg, uint64_t key, float *row, const float *pushed, int dim)
{
    (void)arg, (void)key;
    for (int e = 0; e < dim; e++)
        row[e] = row[e] * 2 + pushed[e];
}

static void merge_body(kv_seat *seat)
{
    static const struct {
        const char *options;
        float wanted;
    } cases[] = {{"merge: add", 1},
                 {"merge: assign", -2},
                 {"merge: min", -2},
                 {"merge: max", 3},
                 {"merge: twice", 4},
                 {"merge: optim, optim: {name: sgd, lr: 0.5, momentum: 0}", -0.5f},
                 {"{merge: add, values: bf16}", 1},
                 {"merge: add\nvalues: int8\n", 1}};
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        char name[16];
        uint64_t key = 1234567890123;
        float up[DIM], down[DIM], got[DIM];
        tri_kv_table *table;
        snprintf(name, sizeof(name), "t%zu", c);
        for (int e = 0; e < DIM; e++) {
            up[e] = 3;
            down[e] = -2;
        }
        KV_OK(seat, tri_kv_table_open(seat->kv, name, DIM, cases[c].options, &table));
        KV_OK(seat, tri_kv_push(table, -1, &key, up, 1, NULL));
        KV_OK(seat, tri_kv_push_pull(table, &key, down, got, 1, NULL));
        for (int e = 0; e < DIM; e++)
            KV_CHECK(seat, fabsf(got[e] - cases[c].wanted) < 1e-2f);
        KV_OK(seat, tri_kv_assign(table, &key, up, 1, NULL));
        KV_OK(seat, tri_kv_pull(table, &key, 1, got, NULL));
        KV_CHECK(seat, fabsf(got[0] - 3) < 1e-2f);
    }
}

static void each_merge_does_what_its_name_says(void **state)
{
    static const tri_kv_merge_row merges[] = {{"twice", twice, NULL}, {NULL, NULL, NULL}};
    (void)state;
    assert_true(kv_rig_run(&(kv_rig){.servers = 2, .workers = 1, .merges = merges, .body = merge_body}));
}

/* The rate of a row's optimizer falls with the steps of the run, whoever counts them. */
static void schedule_body(kv_seat *seat)
{
    static const char *const kinds[] = {"async", "ssp", "bsp"};
    for (size_t c = 0; c < sizeof(kinds) / sizeof(kinds[0]); c++) {
        char options[256];
        uint64_t key = 77;
        float up[DIM] = {1, 1, 1, 1, 1}, got[DIM];
        tri_kv_table *table;
        snprintf(options, sizeof(options),
                 "consistency: %s, shards: 1, merge: optim, steps: 3, optim: {name: sgd, lr: 0.5, momentum: 0, "
                 "schedule: step, step_every: 1, step_factor: 0.5}",
                 kinds[c]);
        KV_OK(seat, tri_kv_table_open(seat->kv, kinds[c], DIM, options, &table));
        float wanted = 0, rate = 0.5f;
        int64_t begin = tri_kv_step(table);
        for (int64_t step = begin; step < begin + 3; step++, rate *= 0.5f) {
            KV_OK(seat, tri_kv_push(table, strcmp(kinds[c], "bsp") == 0 ? 0 : -1, &key, up, 1, NULL));
            KV_OK(seat, tri_kv_clock(seat->kv));
            KV_OK(seat, tri_kv_pull(table, &key, 1, got, NULL));
            wanted -= rate;
            for (int e = 0; e < DIM; e++)
                KV_CHECK(seat, got[e] == wanted);
        }
    }
}

static void the_rate_of_an_optimizer_follows_the_steps_of_the_run(void **state)
{
    (void)state;
    assert_true(kv_rig_run(&(kv_rig){.servers = 2, .workers = 1, .body = schedule_body}));
}

static void initial_body(kv_seat *seat)
{
    enum { COUNT = 4000 };
    uint64_t keys[COUNT];
    float *rows = malloc(sizeof(float) * COUNT * DIM), zeros[DIM] = {0};
    tri_kv_table *table;
    double sum = 0, squares = 0;
    KV_OK(seat, tri_kv_table_open(seat->kv, "n", DIM, "initial: normal, scale: 0.5, seed: 3", &table));
    for (int i = 0; i < COUNT; i++)
        keys[i] = (uint64_t)i;
    KV_OK(seat, tri_kv_pull(table, keys, COUNT, rows, NULL));
    for (int i = 0; i < COUNT * DIM; i++) {
        sum += (double)rows[i];
        squares += (double)rows[i] * (double)rows[i];
    }
    KV_CHECK(seat, fabs(sum / (COUNT * DIM)) < 0.02 && fabs(squares / (COUNT * DIM) - 0.25) < 0.02);
    float before = rows[7 * DIM];
    KV_OK(seat, tri_kv_push(table, -1, keys + 7, zeros, 1, NULL));
    KV_OK(seat, tri_kv_pull(table, keys + 7, 1, rows, NULL));
    KV_CHECK(seat, rows[0] == before);
    free(rows);
}

static void rows_begin_with_what_the_options_say(void **state)
{
    (void)state;
    assert_true(kv_rig_run(&(kv_rig){.servers = 2, .workers = 1, .body = initial_body}));
}

/* --- many at once --- */

static void flight_body(kv_seat *seat)
{
    enum { WORKS = 200, COUNT = 400, WIDE = 64 };
    static tri_kv_work *works[KV_MAX][WORKS];
    float *rows = malloc(sizeof(float) * COUNT * WIDE), *got = malloc(sizeof(float) * WORKS * COUNT * WIDE);
    uint64_t keys[COUNT];
    tri_kv_table *table;
    KV_OK(seat, tri_kv_table_open(seat->kv, "flight", WIDE, "merge: add", &table));
    for (int i = 0; i < COUNT; i++)
        keys[i] = (uint64_t)(i * 7919 + seat->worker * 1000000);
    for (int i = 0; i < COUNT * WIDE; i++)
        rows[i] = 1;
    for (int w = 0; w < WORKS; w++)
        KV_OK(seat,
              tri_kv_push_pull(table, keys, rows, got + (size_t)w * COUNT * WIDE, COUNT, &works[seat->worker][w]));
    for (int w = 0; w < WORKS; w++)
        KV_OK(seat, tri_kv_wait(works[seat->worker][w]));
    for (int w = 0; w < WORKS; w++)
        for (int i = 0; i < COUNT * WIDE; i++)
            KV_CHECK(seat, got[(size_t)w * COUNT * WIDE + (size_t)i] == (float)(w + 1));
    free(rows);
    free(got);
}

static void many_requests_are_under_way_at_once_within_the_window(void **state)
{
    static const char *const options[] = {"ps.window_kib=300", NULL};
    (void)state;
    assert_true(kv_rig_run(&(kv_rig){.servers = 2, .workers = 2, .body = flight_body, .options = options}));
}

/* --- arrays --- */

static void array_body(kv_seat *seat)
{
    static const int64_t counts[] = {1, 255, 257, 4096, 100000, 3000001};
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        int64_t count = counts[c];
        float *values = malloc(sizeof(float) * (size_t)(count + 1));
        char name[32];
        tri_kv_array *array;
        snprintf(name, sizeof(name), "array%zu", c);
        KV_OK(seat, tri_kv_array_open(seat->kv, name, count, "merge: add", &array));
        for (int64_t i = 0; i < count; i++)
            values[i] = (float)(i % 1000);
        values[count] = 12345;
        KV_OK(seat, tri_kv_array_push(array, -1, values, NULL));
        KV_OK(seat, tri_kv_barrier(seat->kv));
        KV_OK(seat, tri_kv_array_pull(array, values, NULL));
        int64_t wrong = 0;
        for (int64_t i = 0; i < count; i++)
            wrong += values[i] != (float)(i % 1000 * seat->rig->workers);
        KV_CHECK(seat, wrong == 0 && values[count] == 12345);
        KV_OK(seat, tri_kv_barrier(seat->kv));
        free(values);
    }
}

static void arrays_add_up_whatever_their_length(void **state)
{
    (void)state;
    for (int servers = 1; servers <= 3; servers++)
        assert_true(kv_rig_run(&(kv_rig){.servers = servers, .workers = 2, .body = array_body}));
}

/* --- what goes wrong is the call's alone --- */

static void wrong_body(kv_seat *seat)
{
    tri_kv_table *table, *bsp;
    uint64_t key = 5;
    float row[DIM] = {1, 2, 3, 4, 5};
    KV_OK(seat, tri_kv_table_open(seat->kv, "one", DIM, "merge: add", &table));
    KV_FAILS(seat, TRI_EMISMATCH, "other options", tri_kv_table_open(seat->kv, "one", DIM + 1, "merge: add", &bsp));
    KV_FAILS(seat, TRI_ECONFIG, "no 'nonsense'", tri_kv_table_open(seat->kv, "two", DIM, "merge: nonsense", &bsp));
    KV_FAILS(seat, TRI_ECONFIG, "table.initial", tri_kv_table_open(seat->kv, "two", DIM, "initial: ones", &bsp));
    KV_FAILS(seat, TRI_ECONFIG, "table.color", tri_kv_table_open(seat->kv, "two", DIM, "color: red", &bsp));
    KV_FAILS(seat, TRI_ECONFIG, "optim.lr", tri_kv_table_open(seat->kv, "two", DIM, "optim: {lr: fast}", &bsp));
    KV_FAILS(seat, TRI_ECONFIG, "power of two", tri_kv_table_open(seat->kv, "two", DIM, "shards: 3", &bsp));
    KV_FAILS(seat, TRI_ECONFIG, "want a name", tri_kv_table_open(seat->kv, "a b", DIM, NULL, &bsp));
    KV_FAILS(seat, TRI_ECONFIG, "want rows of", tri_kv_table_open(seat->kv, "two", 0, NULL, &bsp));
    KV_OK(seat, tri_kv_table_open(seat->kv, "bsp", DIM, "consistency: bsp", &bsp));
    KV_FAILS(seat, TRI_EINVAL, "no shards", tri_kv_push(table, 0, &key, row, 1, NULL));
    KV_FAILS(seat, TRI_EINVAL, "want one of this worker's shards", tri_kv_push(bsp, -1, &key, row, 1, NULL));
    KV_OK(seat, tri_kv_push(bsp, 3, &key, row, 1, NULL));
    KV_FAILS(seat, TRI_EINVAL, "already", tri_kv_push(bsp, 3, &key, row, 1, NULL));
    KV_FAILS(seat, TRI_EINVAL, "bsp", tri_kv_push_pull(bsp, &key, row, row, 1, NULL));
    KV_FAILS(seat, TRI_EINVAL, "rows", tri_kv_push(table, -1, &key, row, -1, NULL));
    KV_OK(seat, tri_kv_push(table, -1, &key, row, 1, NULL));
    KV_OK(seat, tri_kv_pull(table, &key, 1, row, NULL));
    KV_CHECK(seat, row[4] == 5);
}

static void what_is_wrong_with_a_call_is_said_and_harms_nothing(void **state)
{
    (void)state;
    assert_true(kv_rig_run(&(kv_rig){.servers = 2, .workers = 1, .body = wrong_body}));
}

/* --- many workers --- */

static int threads_count(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *entry; (entry = readdir(tasks));)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* Each worker here has a thread of its own; the server has none more for it. */
static void a_server_has_no_thread_for_each_of_its_workers(void **state)
{
    enum { WORKERS = 24 };
    (void)state;
    kv_rig rig = {.servers = 1, .workers = WORKERS};
    tri_kv *kvs[WORKERS];
    const uint64_t key = 5;
    float row[DIM] = {1}, got[DIM] = {0};
    int first = 0;
    assert_true(kv_rig_serve(&rig));
    for (int w = 0; w < WORKERS; w++) {
        tri_kv_table *table;
        OK(kv_rig_join(&rig, w, &kvs[w]));
        OK(tri_kv_table_open(kvs[w], "table", DIM, "merge: add", &table));
        OK(tri_kv_push_pull(table, &key, row, got, 1, NULL));
        first = w == 0 ? threads_count() : first;
    }
    assert_int_equal(threads_count(), first + WORKERS - 1);
    assert_true(got[0] == WORKERS);
    for (int w = 0; w < WORKERS; w++)
        OK(tri_kv_close(kvs[w]));
    assert_true(kv_rig_close(&rig));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushes_of_all_workers_add_up),
        cmocka_unit_test(each_merge_does_what_its_name_says),
        cmocka_unit_test(the_rate_of_an_optimizer_follows_the_steps_of_the_run),
        cmocka_unit_test(rows_begin_with_what_the_options_say),
        cmocka_unit_test(many_requests_are_under_way_at_once_within_the_window),
        cmocka_unit_test(arrays_add_up_whatever_their_length),
        cmocka_unit_test(a_server_has_no_thread_for_each_of_its_workers),
        cmocka_unit_test(what_is_wrong_with_a_call_is_said_and_harms_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
