/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kv_steps.c: who waits for whom, rows that go, and workers that are replaced.
 */
#include <stdlib.h>

#include "ps/api/table.h"
#include "ps/server/kv.h"
#include "unit/ps/kv_rig.h"

/* --- ssp, async --- */

#define STALENESS 2
#define STEPS     25
#define KEYS      500

typedef struct pace_test {
    const char *options;
    atomic_int told; /* steps whose end the slow worker has told, or is about to */
    atomic_bool ahead_is_done;
    int most_ahead;
} pace_test;

/* Worker 1 is slow. */
static void pace_body(kv_seat *seat)
{
    pace_test *test = seat->rig->arg;
    uint64_t keys[KEYS];
    float ones[KEYS], got[KEYS];
    tri_kv_table *table;
    bool bounded = strstr(test->options, "ssp") != NULL;
    KV_OK(seat, tri_kv_table_open(seat->kv, "pace", 1, test->options, &table));
    for (int i = 0; i < KEYS; i++) {
        keys[i] = (uint64_t)i * 31;
        ones[i] = 1;
    }
    for (int step = 0; step < STEPS; step++) {
        KV_OK(seat, tri_kv_pull(table, keys, KEYS, got, NULL));
        if (seat->worker == 0) {
            int least = step - STALENESS > 0 ? step - STALENESS : 0, told = atomic_load(&test->told);
            test->most_ahead = step - told > test->most_ahead ? step - told : test->most_ahead;
            for (int i = 0; i < KEYS && bounded; i++)
                KV_CHECK(seat, got[i] >= (float)(step + least));
        } else if (bounded)
            tri_sleep_ns(8 * TRI_NS_PER_MS);
        else
            while (!atomic_load(&test->ahead_is_done))
                tri_sleep_ns(TRI_NS_PER_MS);
        KV_OK(seat, tri_kv_push(table, -1, keys, ones, KEYS, NULL));
        if (seat->worker == 1)
            atomic_store(&test->told, step + 1);
        KV_OK(seat, tri_kv_clock(seat->kv));
    }
    if (seat->worker == 0)
        atomic_store(&test->ahead_is_done, true);
    KV_OK(seat, tri_kv_barrier(seat->kv));
    KV_OK(seat, tri_kv_pull(table, keys, KEYS, got, NULL));
    for (int i = 0; i < KEYS; i++)
        KV_CHECK(seat, got[i] == 2 * STEPS);
}

static void ssp_keeps_a_worker_within_its_bound_of_the_slowest(void **state)
{
    pace_test test = {.options = "consistency: ssp, staleness: 2"};
    (void)state;
    assert_true(kv_rig_run(&(kv_rig){.servers = 3, .workers = 2, .body = pace_body, .arg = &test}));
    assert_in_range(test.most_ahead, 1, STALENESS);
}

static void with_async_nobody_waits(void **state)
{
    pace_test test = {.options = "consistency: async"};
    (void)state;
    assert_true(kv_rig_run(&(kv_rig){.servers = 2, .workers = 2, .body = pace_body, .arg = &test}));
    assert_int_equal(test.most_ahead, STEPS - 1);
}

/* --- rows that go --- */

static void evict_body(kv_seat *seat)
{
    enum { COUNT = 1000 };
    static uint64_t keys[COUNT];
    static float ones[COUNT], got[COUNT];
    tri_kv_table *old, *rare, *many;
    char text[2000];
    for (int i = 0; i < COUNT; i++) {
        keys[i] = (uint64_t)i;
        ones[i] = 1;
    }
    KV_OK(seat, tri_kv_table_open(seat->kv, "old", 1, "evict_age: 3, evict_every: 2", &old));
    KV_OK(seat, tri_kv_table_open(seat->kv, "rare", 1, "evict_fewer: 2, evict_every: 2", &rare));
    KV_OK(seat, tri_kv_table_open(seat->kv, "many", 1, "evict_most: 256, evict_every: 2", &many));
    for (int step = 0; step < 9; step++) {
        int64_t count = step < 2 ? COUNT : 100; /* the first hundred are pushed to all the time */
        KV_OK(seat, tri_kv_push(old, -1, keys, ones, count, NULL));
        KV_OK(seat, tri_kv_push(rare, -1, keys, ones, step % 2 ? 100 : COUNT, NULL));
        KV_OK(seat, tri_kv_push(many, -1, keys, ones, COUNT, NULL));
        KV_OK(seat, tri_kv_clock(seat->kv));
    }
    KV_OK(seat, tri_kv_barrier(seat->kv));
    KV_OK(seat, tri_kv_pull(old, keys, COUNT, got, NULL));
    for (int i = 0; i < COUNT; i++)
        KV_CHECK(seat, got[i] == (i < 100 ? 9.0f : 0.0f));
    KV_OK(seat, tri_kv_pull(rare, keys, COUNT, got, NULL));
    for (int i = 0; i < 100; i++)
        KV_CHECK(seat, got[i] == 9);
    KV_OK(seat, tri_kv_stats(seat->kv, text, sizeof(text)));
    KV_CHECK(seat, strstr(text, "table 'old': 100 rows") != NULL && strstr(text, "900 rows evicted") != NULL);
}

static void rows_go_by_age_by_how_rare_they_are_and_by_number(void **state)
{
    (void)state;
    assert_true(kv_rig_run(&(kv_rig){.servers = 1, .workers = 1, .body = evict_body}));
}

/* --- lists of keys that are known by their hash --- */

#define LIST 1000

/* Pushes of a few lists, none waited for before all are said. */
static void lists_push(kv_seat *seat, tri_kv_table *table, const uint64_t *keys, const float *ones, int times)
{
    tri_kv_work *works[64];
    for (int i = 0; i < times; i++)
        KV_OK(seat, tri_kv_push(table, -1, keys, ones, LIST, &works[i]));
    for (int i = 0; i < times; i++)
        KV_OK(seat, tri_kv_wait(works[i]));
}

static void stats_find(kv_seat *seat, long *named, long *asked)
{
    char text[2000];
    KV_OK(seat, tri_kv_stats(seat->kv, text, sizeof(text)));
    const char *at = strstr(text, "evicted, ");
    *named = *asked = -1;
    KV_CHECK(seat, at && sscanf(at, "evicted, %ld lists came as their hash, %ld were", named, asked) == 2);
}

static void lists_body(kv_seat *seat)
{
    static uint64_t keys[LIST], others[LIST];
    static float ones[LIST], got[LIST];
    tri_kv_table *table;
    long named, asked, before;
    for (int i = 0; i < LIST; i++) {
        keys[i] = (uint64_t)(LIST - i) * 7919;
        others[i] = UINT64_MAX - (uint64_t)i;
        ones[i] = 1;
    }
    KV_OK(seat, tri_kv_table_open(seat->kv, "lists", 1, seat->rig->arg, &table));
    lists_push(seat, table, others, ones, 1);
    for (int i = 0; i < 4; i++)
        lists_push(seat, table, keys, ones, 1);
    stats_find(seat, &named, &asked);
    KV_CHECK(seat, named == 3 && asked == 0);
    for (int step = 0; step < 4; step++) { /* other rows go, and all lists with them */
        KV_OK(seat, tri_kv_clock(seat->kv));
        lists_push(seat, table, keys, ones, 20);
    }
    stats_find(seat, &before, &asked);
    KV_CHECK(seat, asked == 1);
    for (int i = 0; i < 5; i++)
        lists_push(seat, table, keys, ones, 20);
    KV_OK(seat, tri_kv_pull(table, keys, LIST, got, NULL));
    stats_find(seat, &named, &asked);
    KV_CHECK(seat, named > before && asked == 1);
    for (int i = 0; i < LIST; i++)
        KV_CHECK(seat, got[i] == 184);
}

static void keys_that_a_server_knows_are_sent_as_their_hash(void **state)
{
    char options[2][64] = {"evict_fewer: 2, evict_every: 2", "evict_fewer: 2, evict_every: 2, values: bf16"};
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_true(kv_rig_run(&(kv_rig){.servers = 1, .workers = 1, .body = lists_body, .arg = options[i]}));
}

/* --- replaced --- */

#define OPTIONS "consistency: bsp, merge: optim, initial: normal, optim: {name: adagrad, lr: 0.1}"

typedef struct replace_test {
    bool dies;
    _Atomic uint64_t hash;
} replace_test;

/* Worker 1 dies three times, once after it has pushed a step whose end it does not tell, and comes back. */
static void replace_body(kv_seat *seat)
{
    replace_test *test = seat->rig->arg;
    tri_kv_table *table;
    uint64_t none = 0;
    KV_OK(seat, tri_kv_table_open(seat->kv, "bits", KV_DIM, OPTIONS, &table));
    for (int death = 0; test->dies && seat->worker == 1 && death < 3; death++) {
        kv_steps_run(seat, table, 2 * death + 2);
        if (death == 1)
            kv_shards_run(seat, table);
        KV_OK(seat, tri_kv_abandon(seat->kv));
        KV_OK(seat, kv_rig_join(seat->rig, 1, &seat->kv));
        KV_OK(seat, tri_kv_table_open(seat->kv, "bits", KV_DIM, OPTIONS, &table));
        KV_CHECK(seat, tri_kv_step(table) >= 2 * death + 1 && tri_kv_step(table) <= 2 * death + 3);
    }
    kv_steps_run(seat, table, 10);
    uint64_t hash = kv_rows_hash(seat, table);
    if (!atomic_compare_exchange_strong(&test->hash, &none, hash))
        KV_CHECK(seat, none == hash);
}

static void a_worker_that_is_replaced_changes_no_bit(void **state)
{
    uint64_t hashes[2];
    (void)state;
    for (int dies = 0; dies < 2; dies++) {
        replace_test test = {.dies = dies};
        assert_true(kv_rig_run(&(kv_rig){.servers = 2, .workers = 2, .body = replace_body, .arg = &test}));
        hashes[dies] = atomic_load(&test.hash);
    }
    assert_true(hashes[0] == hashes[1]);
}

/* --- slots, without a wire --- */

static void text_of(const char *options, tri_string *text)
{
    ps_kv_spec spec;
    OK(ps_kv_spec_make("slots", 3, 2, options, &spec));
    OK(ps_kv_spec_print(&spec, text));
}

static void part_push(kv_table *table, int worker, uint64_t request, int first_slot, int end_slot)
{
    uint64_t keys[KEYS];
    float values[KEYS * 3];
    ps_rows_body body = {.keys = keys, .values = values};
    ps_head head = {.kind = PS_KV_PUSH, .extra = (double)request, .part = {worker, 1}};
    for (int s = first_slot; s < end_slot; s++)
        ps_slots_add(&body.slots, s);
    for (uint64_t k = 0; k < KEYS; k++)
        if (ps_slots_has(&body.slots, ps_key_slot(k)))
            keys[body.count++] = k;
    for (int64_t i = 0; i < body.count * 3; i++)
        values[i] = (float)(worker + 1);
    OK(tri_ps_kv_push(table, worker, &head, &body));
}

static void pull_is(const kv_table *table, int64_t clock, float lower, float upper)
{
    uint64_t keys[KEYS];
    float values[KEYS * 3];
    ps_rows_body body = {.keys = keys, .count = KEYS};
    memset(&body.slots, 255, sizeof(body.slots));
    for (uint64_t k = 0; k < KEYS; k++)
        keys[k] = k;
    OK(tri_ps_kv_pull(table, clock, &body, values));
    for (int k = 0; k < KEYS; k++)
        assert_true(values[3 * k] == (ps_key_slot(keys[k]) < PS_SLOTS / 2 ? lower : upper));
}

/* Half of the slots have taken a step, the other half one of its two parts. */
static kv_table *half_made(ps_kv *kv)
{
    tri_string text = {0};
    kv_table *table;
    text_of("consistency: bsp, shards: 2, merge: add", &text);
    OK(tri_ps_kv_table_make(kv, tri_string_text(&text), text.nbytes, &table));
    tri_string_fini(&text);
    part_push(table, 0, 5, 0, PS_SLOTS);
    part_push(table, 1, 6, 0, PS_SLOTS / 2);
    return table;
}

static void a_step_can_begin_again_where_some_slots_have_taken_it(void **state)
{
    ps_kv *kv;
    (void)state;
    OK(tri_ps_kv_create(2, &kv));
    kv_table *table = half_made(kv);
    assert_int_equal(table->slots[0].clock, 1);
    assert_int_equal(table->slots[PS_SLOTS - 1].clock, 0);
    pull_is(table, 0, 0, 0);
    pull_is(table, 1, 3, 0);
    part_push(table, 1, 7, 0, PS_SLOTS); /* said again, to all */
    pull_is(table, 1, 3, 3);
    pull_is(table, 0, 0, 0);
    tri_ps_kv_destroy(kv);
}

static void a_slot_goes_to_another_server_in_the_middle_of_a_step(void **state)
{
    ps_kv *kv, *other;
    kv_table *to;
    tri_string bytes = {0};
    (void)state;
    OK(tri_ps_kv_create(2, &kv));
    OK(tri_ps_kv_create(2, &other));
    kv_table *from = half_made(kv);
    OK(tri_ps_kv_table_make(other, tri_string_text(&from->text), from->text.nbytes, &to));
    for (int s = 0; s < PS_SLOTS; s++) {
        tri_string_clear(&bytes);
        OK(tri_ps_kv_slot_write(from, s, true, &bytes));
        for (size_t cut = 0; cut < bytes.nbytes && s < 2; cut++)
            assert_int_equal(tri_ps_kv_slot_read(to, s, bytes.text, cut), TRI_EFORMAT);
        OK(tri_ps_kv_slot_read(to, s, bytes.text, bytes.nbytes));
    }
    assert_int_equal(to->slots[3].last[1], 6);
    pull_is(to, 0, 0, 0);
    part_push(to, 0, 5, 0, PS_SLOTS); /* which it has had */
    part_push(to, 1, 6, 0, PS_SLOTS / 2);
    pull_is(to, 1, 3, 0);
    part_push(to, 1, 6, PS_SLOTS / 2, PS_SLOTS);
    pull_is(to, 1, 3, 3);
    tri_string_fini(&bytes);
    tri_ps_kv_destroy(kv);
    tri_ps_kv_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ssp_keeps_a_worker_within_its_bound_of_the_slowest),
        cmocka_unit_test(with_async_nobody_waits),
        cmocka_unit_test(keys_that_a_server_knows_are_sent_as_their_hash),
        cmocka_unit_test(rows_go_by_age_by_how_rare_they_are_and_by_number),
        cmocka_unit_test(a_worker_that_is_replaced_changes_no_bit),
        cmocka_unit_test(a_step_can_begin_again_where_some_slots_have_taken_it),
        cmocka_unit_test(a_slot_goes_to_another_server_in_the_middle_of_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
