/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kv_once.c: pushes are merged exactly once while connections are cut at any byte, and the same bits come out of
 * bsp for any number of workers and servers, with and without such cuts.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "ps/client/kv.h"
#include "unit/ps/kv_rig.h"

/* --- cutting --- */

#define MAX_DESCRIPTORS 256

typedef struct cutter {
    atomic_bool stop;
    atomic_int begun; /* workers that are there: */
    int workers;
    atomic_int cuts;
    tri_thread *thread;
    uint64_t seed;
} cutter;

/* A connection of this process, by any of its two ends. */
static bool is_connection(int descriptor)
{
    struct sockaddr_storage from, to;
    socklen_t length = sizeof(from), other = sizeof(to);
    return getsockname(descriptor, (struct sockaddr *)&from, &length) == 0 && from.ss_family == AF_INET &&
           getpeername(descriptor, (struct sockaddr *)&to, &other) == 0;
}

static void cutter_body(void *arg)
{
    cutter *self = arg;
    rig_random random = {.rng = {self->seed, 5}};
    while (!atomic_load(&self->stop)) {
        tri_sleep_ns((int64_t)(3 + rig_below(&random, 30)) * TRI_NS_PER_MS);
        if (atomic_load(&self->begun) < self->workers)
            continue;
        int first = (int)rig_below(&random, MAX_DESCRIPTORS);
        for (int i = 0; i < MAX_DESCRIPTORS; i++) {
            int descriptor = (first + i) % MAX_DESCRIPTORS;
            if (descriptor < 3 || !is_connection(descriptor))
                continue;
            (void)shutdown(descriptor, SHUT_RDWR);
            atomic_fetch_add(&self->cuts, 1);
            break;
        }
    }
}

static void cutter_start(cutter *self, int workers, uint64_t seed)
{
    self->workers = workers;
    self->seed = seed;
    OK(tri_thread_start(&self->thread, "cutter", cutter_body, self));
}

#define CUTS_LEAST 5 /* in the time of a test */

/* A worker that is done with `part` of `all` waits for as much of the cuts. */
static void cuts_await(const cutter *self, int part, int all)
{
    while (atomic_load(&self->cuts) < part * CUTS_LEAST / all)
        tri_sleep_ns(TRI_NS_PER_MS);
}

/* --- counting --- */

#define KEYS   2100 /* enough to be lent to a single server */
#define PUSHES 300
#define DIM    24

typedef struct count_test {
    cutter cutter;
    atomic_int done; /* workers */
} count_test;

/* Counts the pushes of a row in its first value, and makes of the others what depends on their order from one worker.
 */
static void count(void *arg, uint64_t key, float *row, const float *pushed, int dim)
{
    (void)arg, (void)key;
    row[0] += 1;
    for (int e = 1; e < dim; e++)
        row[e] = pushed[e] == 0 ? row[e] : (row[e] + 1 == pushed[e] ? pushed[e] : -1e9f);
}

static void count_body(kv_seat *seat)
{
    count_test *test = seat->rig->arg;
    uint64_t keys[KEYS];
    float *rows = calloc(KEYS * DIM, sizeof(float)), *got = calloc(KEYS * DIM, sizeof(float));
    tri_kv_table *table;
    tri_kv_work *work = NULL;
    atomic_fetch_add(&test->cutter.begun, 1);
    KV_OK(seat, tri_kv_table_open(seat->kv, "count", DIM, "merge: count", &table));
    for (int i = 0; i < KEYS; i++)
        keys[i] = (uint64_t)i * 1000003;
    for (int p = 1; p <= PUSHES; p++) {
        for (int i = 0; i < KEYS; i++)
            rows[i * DIM + 1 + seat->worker] = (float)p; /* the p-th push of this worker */
        if (p % 3 == 0) {
            KV_OK(seat, tri_kv_wait(work));
            KV_OK(seat, tri_kv_push_pull(table, keys, rows, got, KEYS, &work));
        } else
            KV_OK(seat, tri_kv_push(table, -1, keys, rows, KEYS, NULL));
        cuts_await(&test->cutter, p, PUSHES);
    }
    KV_OK(seat, tri_kv_wait(work));
    KV_OK(seat, tri_kv_barrier(seat->kv));
    KV_OK(seat, tri_kv_pull(table, keys, KEYS, got, NULL));
    int wrong = 0;
    for (int i = 0; i < KEYS; i++) {
        wrong += got[i * DIM] != (float)(PUSHES * seat->rig->workers);
        for (int w = 0; w < seat->rig->workers; w++)
            wrong += got[i * DIM + 1 + w] != (float)PUSHES;
    }
    KV_CHECK(seat, wrong == 0);
    if (atomic_fetch_add(&test->done, 1) + 1 == seat->rig->workers)
        atomic_store(&test->cutter.stop, true);
    while (!atomic_load(&test->cutter.stop))
        tri_sleep_ns(TRI_NS_PER_MS);
    tri_sleep_ns(300 * TRI_NS_PER_MS); /* connections are fixed before goodbye */
    free(rows);
    free(got);
}

static void count_with_cuts(const char *const *options, int servers, uint64_t seed)
{
    static const tri_kv_merge_row merges[] = {{"count", count, NULL}, {NULL, NULL, NULL}};
    count_test test = {.done = 0};
    kv_rig rig = {
        .servers = servers, .workers = 3, .merges = merges, .options = options, .body = count_body, .arg = &test};
    cutter_start(&test.cutter, rig.workers, seed);
    bool well = kv_rig_run(&rig);
    atomic_store(&test.cutter.stop, true);
    tri_thread_join(test.cutter.thread);
    print_message("%d cuts\n", atomic_load(&test.cutter.cuts));
    assert_true(well);
}

static void a_push_counts_once_however_often_connections_are_cut(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++)
        count_with_cuts(NULL, seed == 1 ? 1 : 2, seed);
}

static void the_same_with_encryption(void **state)
{
    static const char *const options[] = {"comm.encrypt=on", NULL};
    (void)state;
    count_with_cuts(options, 2, 11);
}

/* --- arrays: rows that are sent and received where the caller has them --- */

#define VALUES (INT64_C(600000))
#define ROUNDS 25

static float *values_make(int add)
{
    float *values = malloc(VALUES * sizeof(float));
    for (int64_t i = 0; i < VALUES; i++)
        values[i] = (float)(i % 7 + add);
    return values;
}

static int values_wrong(const float *values, float each, float add)
{
    int wrong = 0;
    for (int64_t i = 0; i < VALUES; i++)
        wrong += values[i] != each * (float)(i % 7) + add;
    return wrong;
}

static void array_body(kv_seat *seat)
{
    count_test *test = seat->rig->arg;
    float *values = values_make(1), *got = calloc(VALUES, sizeof(float)), times = (float)(2 * ROUNDS);
    tri_kv_array *array;
    atomic_fetch_add(&test->cutter.begun, 1);
    KV_OK(seat, tri_kv_array_open(seat->kv, "array", VALUES, "merge: add", &array));
    for (int r = 0; r < ROUNDS; r++) {
        KV_OK(seat, tri_kv_array_push(array, -1, values, NULL));
        KV_OK(seat, tri_kv_array_push_pull(array, values, got, NULL));
        KV_OK(seat, tri_kv_array_pull(array, got, NULL));
        cuts_await(&test->cutter, r + 1, ROUNDS);
    }
    KV_CHECK(seat, values_wrong(values, 1, 1) == 0);
    KV_OK(seat, tri_kv_barrier(seat->kv));
    KV_OK(seat, tri_kv_array_pull(array, got, NULL));
    times *= (float)seat->rig->workers;
    KV_CHECK(seat, values_wrong(got, times, times) == 0);
    if (atomic_fetch_add(&test->done, 1) + 1 == seat->rig->workers)
        atomic_store(&test->cutter.stop, true);
    while (!atomic_load(&test->cutter.stop))
        tri_sleep_ns(TRI_NS_PER_MS);
    tri_sleep_ns(300 * TRI_NS_PER_MS);
    free(values);
    free(got);
}

static void arrays_count_once_too(void **state)
{
    (void)state;
    for (int servers = 1; servers <= 2; servers++) {
        count_test test = {.done = 0};
        kv_rig rig = {.servers = servers, .workers = 2, .body = array_body, .arg = &test};
        cutter_start(&test.cutter, rig.workers, (uint64_t)servers);
        bool well = kv_rig_run(&rig);
        atomic_store(&test.cutter.stop, true);
        tri_thread_join(test.cutter.thread);
        print_message("%d cuts\n", atomic_load(&test.cutter.cuts));
        assert_true(well);
    }
}

/* Stands still at the first row until a push has been given up. */
static void add_slowly(void *arg, uint64_t key, float *row, const float *pushed, int dim)
{
    atomic_bool *given_up = arg;
    (void)key;
    while (!atomic_load(given_up))
        tri_sleep_ns(TRI_NS_PER_MS);
    for (int e = 0; e < dim; e++)
        row[e] += pushed[e];
}

#define LARGE (8 * VALUES) /* more than sockets take */

static void give_up_body(kv_seat *seat)
{
    atomic_bool *given_up = seat->rig->arg;
    float *values = malloc(LARGE * sizeof(float)), *got = malloc(LARGE * sizeof(float));
    int wrong = 0;
    tri_kv_array *array;
    for (int64_t i = 0; i < LARGE; i++)
        values[i] = (float)(i % 1000);
    KV_OK(seat, tri_kv_array_open(seat->kv, "array", LARGE, "merge: slowly", &array));
    seat->kv->net.timeout_s = 1; /* of this call alone: the others wait for as long as the machine needs */
    KV_FAILS(seat, TRI_ETIMEOUT, "did not answer", tri_kv_array_push(array, -1, values, NULL));
    seat->kv->net.timeout_s = 60;
    memset(values, 0xff, LARGE * sizeof(float)); /* it is the caller's again */
    free(values);
    atomic_store(given_up, true);
    KV_OK(seat, tri_kv_array_pull(array, got, NULL)); /* behind that push, which still counts */
    for (int64_t i = 0; i < LARGE; i++)
        wrong += got[i] != (float)(i % 1000) && got[i] != 0;
    KV_CHECK(seat, wrong == 0);
    free(got);
}

static void what_was_lent_is_the_callers_again_when_a_push_is_given_up(void **state)
{
    atomic_bool given_up = false;
    const tri_kv_merge_row merges[] = {{"slowly", add_slowly, &given_up}, {NULL, NULL, NULL}};
    kv_rig rig = {.servers = 1, .workers = 1, .merges = merges, .body = give_up_body, .arg = &given_up};
    (void)state;
    assert_true(kv_rig_run(&rig));
}

/* --- bsp: the same bits --- */

#define STEPS 12

typedef struct bits_test {
    cutter cutter;
    bool cuts;
    const char *options;
    atomic_int done;
    _Atomic uint64_t hash;
} bits_test;

static void bits_body(kv_seat *seat)
{
    bits_test *test = seat->rig->arg;
    tri_kv_table *table;
    atomic_fetch_add(&test->cutter.begun, 1);
    KV_OK(seat, tri_kv_table_open(seat->kv, "bits", KV_DIM, test->options, &table));
    kv_steps_run(seat, table, STEPS);
    uint64_t hash = kv_rows_hash(seat, table), none = 0;
    if (!atomic_compare_exchange_strong(&test->hash, &none, hash))
        KV_CHECK(seat, none == hash);
    if (atomic_fetch_add(&test->done, 1) + 1 == seat->rig->workers)
        atomic_store(&test->cutter.stop, true);
    while (!atomic_load(&test->cutter.stop))
        tri_sleep_ns(TRI_NS_PER_MS);
    if (test->cuts)
        tri_sleep_ns(300 * TRI_NS_PER_MS);
}

static uint64_t bits_of(const char *options, int servers, int workers, bool cuts)
{
    bits_test test = {.options = options, .cuts = cuts};
    kv_rig rig = {.servers = servers, .workers = workers, .body = bits_body, .arg = &test};
    if (cuts)
        cutter_start(&test.cutter, workers, (uint64_t)(servers * 10 + workers));
    bool well = kv_rig_run(&rig);
    atomic_store(&test.cutter.stop, true);
    if (cuts) {
        tri_thread_join(test.cutter.thread);
        print_message("%d cuts\n", atomic_load(&test.cutter.cuts));
    }
    assert_true(well);
    return atomic_load(&test.hash);
}

static void bsp_gives_the_same_bits_for_any_workers_and_servers(void **state)
{
    static const char *const options[] = {
        "consistency: bsp, merge: optim, initial: normal, optim: {name: adagrad, lr: 0.1}",
        "consistency: bsp, merge: optim, optim: {name: ftrl, lr: 0.1, l1: 0.01}, evict_every: 4, evict_age: 3",
        "consistency: bsp, merge: optim, optim: {name: adam, lr: 0.01}, evict_every: 3, evict_most: 256, values: bf16",
        "consistency: bsp, merge: add"};
    (void)state;
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        uint64_t wanted = bits_of(options[i], 1, 1, false);
        for (int servers = 1; servers <= 3; servers++)
            for (int workers = 1; workers <= 4; workers++)
                if (i == 0 || servers + workers == 5)
                    assert_true(bits_of(options[i], servers, workers, false) == wanted);
        print_message("%s: %016llx\n", options[i], (unsigned long long)wanted);
    }
}

static void bsp_gives_the_same_bits_while_connections_are_cut(void **state)
{
    const char *options = "consistency: bsp, merge: optim, initial: normal, optim: {name: adagrad, lr: 0.1}";
    (void)state;
    uint64_t wanted = bits_of(options, 1, 1, false);
    assert_true(bits_of(options, 2, 3, true) == wanted);
    assert_true(bits_of(options, 3, 2, true) == wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_push_counts_once_however_often_connections_are_cut),
        cmocka_unit_test(the_same_with_encryption),
        cmocka_unit_test(arrays_count_once_too),
        cmocka_unit_test(what_was_lent_is_the_callers_again_when_a_push_is_given_up),
        cmocka_unit_test(bsp_gives_the_same_bits_for_any_workers_and_servers),
        cmocka_unit_test(bsp_gives_the_same_bits_while_connections_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
