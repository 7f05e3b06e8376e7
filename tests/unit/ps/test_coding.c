/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/rpc/coding.h"
#include "ps/tables/coding_dense.h"

#include <stdlib.h>

#include "unit/ps/ps_rig.h"

#define MOST 3000

static uint64_t keys[MOST], back[MOST];
static unsigned char bytes[MOST * 9 + 16];

static int compare_keys(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* Ascending keys, no two alike, below 2^bits. */
static int64_t keys_make(rig_random *random, int64_t count, int bits)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        keys[i] = tri_rng_u64(random->rng, random->next++) >> (64 - bits);
    qsort(keys, (size_t)count, sizeof(*keys), compare_keys);
    for (int64_t i = 0; i < count; i++)
        if (i == 0 || keys[i] != keys[kept - 1])
            keys[kept++] = keys[i];
    return kept;
}

static size_t expect_back(int64_t count)
{
    size_t nbytes = ps_keys_write(keys, count, false, bytes), used = 0;
    assert_true(nbytes <= ps_keys_limit(count));
    memset(bytes + nbytes, 0xee, 16); /* what follows is somebody else's */
    memset(back, 0x55, sizeof(back));
    OK(ps_keys_read(bytes, nbytes + 16, count, back, &used));
    assert_int_equal(used, nbytes);
    assert_memory_equal(back, keys, (size_t)count * sizeof(*keys));
    memset(back, 0x55, sizeof(back));
    OK(ps_keys_read(bytes, nbytes, count, back, &used));
    assert_memory_equal(back, keys, (size_t)count * sizeof(*keys));
    if (count < MOST)
        assert_true(back[count] == UINT64_C(0x5555555555555555)); /* never more than announced */
    return nbytes;
}

static void keys_are_read_as_they_were_written(void **state)
{
    (void)state;
    rig_random random = {{9, 1}, 0};
    for (int round = 0; round < 400; round++) {
        int64_t count =
            keys_make(&random, (int64_t)rig_below(&random, round % 8 ? 20 : MOST), 1 + (int)rig_below(&random, 64));
        expect_back(count);
        for (int64_t i = count - 1; i > 0; i -= 3) { /* in another order */
            uint64_t kept = keys[i];
            keys[i] = keys[i / 2];
            keys[i / 2] = kept;
        }
        expect_back(count);
    }
    const uint64_t ends[] = {0, 1, UINT64_MAX - 1, UINT64_MAX};
    memcpy(keys, ends, sizeof(ends));
    expect_back(4);
    keys[2] = keys[1]; /* twice: as they are */
    assert_int_equal(expect_back(4), ps_keys_limit(4));
}

static void neighbours_take_little(void **state)
{
    (void)state;
    rig_random random = {{9, 2}, 0};
    for (uint64_t i = 0; i < MOST; i++)
        keys[i] = 1000000 + i;
    assert_int_equal(expect_back(MOST), 1 + MOST / 2 + 3); /* half a byte each */
    int64_t count = keys_make(&random, MOST, 20);          /* about 350 apart */
    assert_true(expect_back(count) < (size_t)count * 5 / 2);
    count = keys_make(&random, MOST, 64);
    assert_true(expect_back(count) <= ps_keys_limit(count)); /* never longer than as they are */
}

static void keys_that_are_written_plain_are_used_where_they_lie(void **state)
{
    (void)state;
    rig_random random = {{9, 5}, 0};
    size_t used;
    _Alignas(8) static unsigned char aligned[MOST * 8 + 16];
    int64_t count = keys_make(&random, MOST, 40); /* that could be shorter */
    size_t nbytes = ps_keys_write(keys, count, true, aligned);
    assert_int_equal(nbytes, ps_keys_limit(count));
    OK(ps_keys_read(aligned, nbytes, count, back, &used));
    assert_int_equal(used, nbytes);
    assert_memory_equal(back, keys, (size_t)count * sizeof(*keys));
    const uint64_t *lie = ps_keys_lie(aligned, nbytes, count);
    assert_ptr_equal(lie, aligned + 8);
    assert_memory_equal(lie, keys, (size_t)count * sizeof(*keys));
    assert_null(ps_keys_lie(aligned, nbytes - 1, count));
    assert_null(ps_keys_lie(aligned, nbytes, count + 1));
    assert_null(ps_keys_lie(aligned, nbytes, -1));
    assert_null(ps_keys_lie(aligned, nbytes, INT64_MAX));
    memmove(aligned + 1, aligned, nbytes);
    assert_null(ps_keys_lie(aligned + 1, nbytes, count));
    aligned[1 + 3] = 1; /* what is in between is zeros */
    FAILS(TRI_EFORMAT, "keys: want", ps_keys_read(aligned + 1, nbytes, count, back, &used));
    memmove(aligned, aligned + 1, nbytes);
    assert_null(ps_keys_lie(aligned, nbytes, count));
}

static void bytes_without_so_many_keys_are_refused(void **state)
{
    (void)state;
    rig_random random = {{9, 3}, 0};
    size_t used;
    for (int form = 0; form < 2; form++) {
        int64_t count = keys_make(&random, 41, 40);
        if (form == 1)
            keys[5] = keys[6];
        size_t nbytes = ps_keys_write(keys, count, false, bytes);
        assert_int_equal(bytes[0], form == 0);
        for (size_t some = 0; some < nbytes; some++) {
            unsigned char *alone = malloc(some > 0 ? some : 1); /* so that a sanitizer sees a step too far */
            memcpy(alone, bytes, some);
            FAILS(TRI_EFORMAT, "keys: want", ps_keys_read(alone, some, count, back, &used));
            free(alone);
        }
        FAILS(TRI_EFORMAT, "keys: want -1", ps_keys_read(bytes, nbytes, -1, back, &used));
        FAILS(TRI_EFORMAT, "keys: want", ps_keys_read(bytes, nbytes, INT64_MAX, back, &used));
    }
    bytes[0] = 2;
    FAILS(TRI_EFORMAT, "keys: want 1", ps_keys_read(bytes, 100, 1, back, &used));
    /* One form for each list: no length that is too long, none behind the last, no step past the end. */
    const struct {
        const char *bytes;
        size_t nbytes;
        int64_t count;
    } wrong[] = {{"\1\1\0", 3, 1},
                 {"\1\x12\7\0\0", 5, 1},
                 {"\1\x11\x80", 3, 1},
                 {"\1\x09zzzzzzzzz", 11, 1},
                 {"\1\x18\xff\xff\xff\xff\xff\xff\xff\xff\1", 11, 2},
                 {"\1\x08\xff\xff\xff\xff\xff\xff\xff\xff", 10, 2}};
    for (size_t i = 0; i < TRI_COUNT_OF(wrong); i++)
        FAILS(TRI_EFORMAT, "keys: want", ps_keys_read(wrong[i].bytes, wrong[i].nbytes, wrong[i].count, back, &used));
    OK(ps_keys_read("\1\x08\xff\xff\xff\xff\xff\xff\xff\xff", 10, 1, back, &used));
    assert_true(back[0] == UINT64_MAX);
}

/* Whatever the bytes, what is read writes itself to the same keys again. */
static void any_bytes_are_keys_or_refused(void **state)
{
    (void)state;
    rig_random random = {{9, 4}, 0};
    int accepted = 0;
    for (int round = 0; round < 50000; round++) {
        unsigned char any[64];
        int64_t count = (int64_t)rig_below(&random, 12);
        size_t nbytes = rig_below(&random, sizeof(any)), used;
        for (size_t i = 0; i < nbytes; i++)
            any[i] = i == 0 ? 1 : (unsigned char)(rig_below(&random, 8) | rig_below(&random, 4) << 4);
        memset(back, 0x55, 16 * sizeof(*back));
        if (ps_keys_read(any, nbytes, count, back, &used) != TRI_OK)
            continue;
        accepted++;
        assert_true(used <= nbytes && back[count] == UINT64_C(0x5555555555555555));
        for (int64_t i = 1; i < count; i++)
            assert_true(back[i - 1] < back[i]);
        if (used < ps_keys_limit(count)) {
            assert_int_equal(ps_keys_write(back, count, false, bytes), used);
            assert_memory_equal(bytes, any, used);
        }
    }
    assert_true(accepted > 500);
}

#define VALUES 700

static void values_come_back_as_well_as_the_wire_can(void **state)
{
    (void)state;
    rig_random random = {{9, 5}, 0};
    static float values[VALUES], told[VALUES], left[VALUES], kept[VALUES];
    static unsigned char wire_bytes[VALUES * 8 + 1];
    const double errors[PS_WIRE_COUNT] = {0, 1.0 / 256, 0.51 / 127};
    for (int w = 0; w < PS_WIRE_COUNT; w++) {
        const ps_wire *wire = &ps_wires[w];
        for (int64_t block = 16; block <= 256; block *= 16) {
            for (int i = 0; i < VALUES; i++)
                kept[i] = values[i] = rig_normal(&random) * (float)(1 + i / 100 * 50);
            unsigned char *odd = wire_bytes + 1; /* bytes lie anywhere */
            assert_true(wire->nbytes(VALUES, block) <= VALUES * 8);
            wire->write(values, VALUES, block, odd, NULL);
            wire->read(odd, VALUES, block, told);
            for (int64_t i = 0; i < VALUES; i++) {
                double greatest = fabs((double)values[i]);
                for (int64_t j = i / block * block; w == PS_WIRE_INT8 && j < i / block * block + block && j < VALUES;
                     j++)
                    greatest = fmax(greatest, fabs((double)values[j]));
                assert_true(fabs((double)told[i] - (double)values[i]) <= errors[w] * greatest);
            }
            assert_memory_equal(values, kept, sizeof(values));
            /* What was not told, beside the values and in their place. */
            wire->write(values, VALUES, block, odd, left);
            for (int i = 0; i < VALUES; i++)
                assert_true(fabsf(told[i] + left[i] - values[i]) <= 1e-6f * fabsf(values[i]));
            wire->write(values, VALUES, block, odd, values);
            assert_memory_equal(values, left, sizeof(values));
            wire->read(odd, VALUES, block, kept);
            assert_memory_equal(kept, told, sizeof(kept));
        }
    }
    assert_int_equal(ps_wires[PS_WIRE_F32].nbytes(VALUES, 16), VALUES * 4);
    assert_int_equal(ps_wires[PS_WIRE_BF16].nbytes(VALUES, 16), VALUES * 2);
    assert_int_equal(ps_wires[PS_WIRE_INT8].nbytes(VALUES, 16), VALUES + 44 * 4);
}

static void what_is_not_finite_stays_so(void **state)
{
    (void)state;
    float values[32] = {1, INFINITY}, told[32];
    unsigned char some[256];
    values[16] = 3;
    for (int w = 0; w < PS_WIRE_COUNT; w++) {
        ps_wires[w].write(values, 32, 16, some, NULL);
        ps_wires[w].read(some, 32, 16, told);
        assert_true(!isfinite(told[1]) && fabsf(told[16] - 3) < 1e-6f && told[31] == 0);
    }
}

/* A block with a running statistic, a frozen entry, gaps, short entries and a tie. */
static void a_block_is_told_entry_by_entry(void **state)
{
    (void)state;
    enum { COUNT = 1024, TIE = 1040, GRADS = 1360, FIRST = 16 };
    tri_param entries[] = {{.first = 0, .count = 300},
                           {.first = 304, .count = 3, .number = 1},
                           {.first = 320, .count = 40, .buffer = true, .number = 2},
                           {.first = 368, .count = 200, .frozen = true, .number = 3},
                           {.first = 576, .count = 448, .number = 4}};
    tri_tie tie = {.entry = 0, .first = TIE};
    ps_cut cut = {.first = FIRST, .count = COUNT - FIRST, .tied = 300 - FIRST};
    ps_spec spec = {.params = {.entries = entries, .entry_count = 5, .count = COUNT, .ties = &tie, .tie_count = 1}};
    rig_random random = {{3, 9}, 0};
    float grads[GRADS], sums[COUNT - FIRST + 300 - FIRST], told[COUNT - FIRST];
    unsigned char body[sizeof(sums)];
    for (int i = 0; i < GRADS; i++)
        grads[i] = rig_normal(&random) * (i >= 320 && i < 360 ? 1000.0f : 0.01f);
    for (int w = PS_WIRE_BF16; w < PS_WIRE_COUNT; w++) {
        float exact = 0, most = w == PS_WIRE_BF16 ? 0.0003f : 0.0005f;
        spec.ps.values = (ps_values)w;
        size_t nbytes = tri_ps_gradients_nbytes(&spec, &cut);
        assert_true(nbytes < sizeof(body) / (w == PS_WIRE_BF16 ? 1 : 3));
        memset(sums, 0xff, sizeof(sums));
        tri_ps_gradients_write(&spec, &cut, grads, body);
        tri_ps_gradients_read(&spec, &cut, body, sums);
        for (int i = FIRST; i < COUNT; i++) {
            bool nothing = i >= 300 && i < 304, gap = (i >= 307 && i < 320) || (i >= 360 && i < 576);
            float wanted = nothing || gap ? 0 : grads[i];
            assert_true(fabsf(sums[i - FIRST] - wanted) <= (i >= 320 && i < 360 ? exact : most));
        }
        for (int i = FIRST; i < 300; i++)
            assert_true(fabsf(sums[cut.count + i - FIRST] - grads[TIE + i]) <= most);
        tri_ps_values_write(&spec, &cut, grads + FIRST, body);
        memset(told, 0, sizeof(told));
        tri_ps_values_read(&spec, &cut, body, told);
        assert_memory_equal(told + 320 - FIRST, grads + 320, 40 * sizeof(float));
        assert_memory_equal(told + 368 - FIRST, grads + 368, 200 * sizeof(float));
        for (int i = 576; i < COUNT; i++)
            assert_true(fabsf(told[i - FIRST] - grads[i]) <= 0.004f * fabsf(grads[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_read_as_they_were_written),
        cmocka_unit_test(neighbours_take_little),
        cmocka_unit_test(keys_that_are_written_plain_are_used_where_they_lie),
        cmocka_unit_test(bytes_without_so_many_keys_are_refused),
        cmocka_unit_test(any_bytes_are_keys_or_refused),
        cmocka_unit_test(values_come_back_as_well_as_the_wire_can),
        cmocka_unit_test(what_is_not_finite_stays_so),
        cmocka_unit_test(a_block_is_told_entry_by_entry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
