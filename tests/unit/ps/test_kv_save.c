/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kv_save.c: rows to files while workers go on, and back by any number of servers.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/fs.h"
#include "unit/ps/kv_rig.h"

#define OPTIONS "consistency: bsp, merge: optim, initial: normal, optim: {name: adam, lr: 0.01}"
#define HALF    5
#define END     11

static char folder[256];

typedef struct save_test {
    bool saves;
    _Atomic uint64_t hash;
} save_test;

static void bsp_body(kv_seat *seat)
{
    save_test *test = seat->rig->arg;
    tri_kv_table *table, *other;
    tri_kv_work *work = NULL;
    uint64_t none = 0;
    KV_OK(seat, tri_kv_table_open(seat->kv, "bits", KV_DIM, OPTIONS, &table));
    KV_OK(seat, tri_kv_table_open(seat->kv, "other", 3, "merge: add, values: bf16", &other));
    if (test->saves) {
        kv_steps_run(seat, table, HALF);
        if (seat->worker == 0)
            KV_OK(seat, tri_kv_save(seat->kv, folder, &work));
    } else {
        KV_OK(seat, tri_kv_load(seat->kv, folder));
        KV_CHECK(seat, tri_kv_step(table) == HALF);
    }
    kv_steps_run(seat, table, END);
    KV_OK(seat, tri_kv_wait(work));
    uint64_t hash = kv_rows_hash(seat, table);
    if (!atomic_compare_exchange_strong(&test->hash, &none, hash))
        KV_CHECK(seat, none == hash);
}

static uint64_t bsp_run(int servers, int workers, bool saves)
{
    save_test test = {.saves = saves};
    assert_true(kv_rig_run(&(kv_rig){.servers = servers, .workers = workers, .body = bsp_body, .arg = &test}));
    return atomic_load(&test.hash);
}

static void what_was_saved_at_a_step_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    uint64_t wanted = bsp_run(1, 1, true);
    for (int servers = 1; servers <= 3; servers++) {
        assert_true(bsp_run(servers, 4 - servers, true) == wanted);
        for (int others = 1; others <= 3; others++)
            assert_true(bsp_run(others, servers, false) == wanted);
    }
}

/* --- of one moment --- */

#define ROWS 4000

static void moment_body(kv_seat *seat)
{
    uint64_t *keys = malloc(ROWS * sizeof(uint64_t));
    float *rows = malloc(ROWS * sizeof(float));
    tri_kv_table *table;
    tri_kv_work *work;
    KV_OK(seat, tri_kv_table_open(seat->kv, "moment", 1, "merge: add", &table));
    for (int i = 0; i < ROWS; i++) {
        keys[i] = (uint64_t)i;
        rows[i] = 1;
    }
    KV_OK(seat, tri_kv_push(table, -1, keys, rows, ROWS, NULL));
    KV_OK(seat, tri_kv_save(seat->kv, folder, &work));
    for (int p = 0; p < 20; p++)
        KV_OK(seat, tri_kv_push(table, -1, keys, rows, ROWS, NULL));
    KV_OK(seat, tri_kv_wait(work));
    KV_OK(seat, tri_kv_pull(table, keys, ROWS, rows, NULL));
    for (int i = 0; i < ROWS; i++)
        KV_CHECK(seat, rows[i] == 21);
    KV_OK(seat, tri_kv_load(seat->kv, folder));
    KV_OK(seat, tri_kv_pull(table, keys, ROWS, rows, NULL));
    for (int i = 0; i < ROWS; i++)
        KV_CHECK(seat, rows[i] == 1);
    free(keys);
    free(rows);
}

static void pushes_after_it_are_not_in_a_save(void **state)
{
    (void)state;
    assert_true(kv_rig_run(&(kv_rig){.servers = 2, .workers = 1, .body = moment_body}));
}

/* --- what is wrong --- */

static void spoil(const char *name, size_t at, bool cut)
{
    char path[300], *bytes;
    size_t nbytes;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    OK(tri_fs_read(path, 0, &bytes, &nbytes));
    bytes[nbytes - at] ^= 1;
    OK(tri_fs_write_swap(path, bytes, cut ? nbytes - at : nbytes));
    tri_free(bytes);
}

static void wrong_body(kv_seat *seat)
{
    tri_kv_table *table, *narrow;
    KV_OK(seat, tri_kv_table_open(seat->kv, "others", 1, "merge: add", &narrow));
    KV_FAILS(seat, TRI_ENOTFOUND, "'moment' is not open", tri_kv_load(seat->kv, folder));
    KV_OK(seat, tri_kv_table_open(seat->kv, "moment", 2, "merge: add", &table));
    KV_FAILS(seat, TRI_EFORMAT, "want 2 values", tri_kv_load(seat->kv, folder));
    KV_FAILS(seat, TRI_ENOTFOUND, "manifest.yaml", tri_kv_load(seat->kv, "/nowhere/at/all"));
    KV_FAILS(seat, TRI_ENOTFOUND, "/proc", tri_kv_save(seat->kv, "/proc/nowhere", NULL));
}

static void damaged_body(kv_seat *seat)
{
    tri_kv_table *table;
    KV_OK(seat, tri_kv_table_open(seat->kv, "moment", 1, "merge: add", &table));
    spoil("server-1.rows", 100, false);
    KV_FAILS(seat, TRI_EFORMAT, "damaged", tri_kv_load(seat->kv, folder));
    spoil("server-1.rows", 100, false);
    KV_OK(seat, tri_kv_load(seat->kv, folder));
    spoil("server-0.rows", 10, true);
    KV_FAILS(seat, TRI_EFORMAT, "not as long", tri_kv_load(seat->kv, folder));
}

static void files_that_are_damaged_or_of_other_tables_are_refused(void **state)
{
    (void)state;
    assert_true(kv_rig_run(&(kv_rig){.servers = 2, .workers = 1, .body = moment_body}));
    assert_true(kv_rig_run(&(kv_rig){.servers = 2, .workers = 1, .body = wrong_body}));
    assert_true(kv_rig_run(&(kv_rig){.servers = 1, .workers = 1, .body = damaged_body}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_saved_at_a_step_goes_on_with_the_same_bits),
        cmocka_unit_test(pushes_after_it_are_not_in_a_save),
        cmocka_unit_test(files_that_are_damaged_or_of_other_tables_are_refused),
    };
    snprintf(folder, sizeof(folder), "%s/trireme-kv-%d", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)tri_fs_remove(folder);
    return failed;
}
