/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/view.h"

#include "unit/ps/ps_rig.h"

static void change(const ps_view *view, ps_change_kind kind, int number, ps_view *out)
{
    ps_change what = {kind, number};
    OK(ps_view_change(view, &what, out));
}

static void spread(const ps_view *view, int *least, int *most)
{
    *least = PS_SLOTS;
    *most = 0;
    int sum = 0;
    for (int i = 0; i < view->server_count; i++) {
        int count = ps_view_slots(view, view->servers[i]);
        *least = count < *least ? count : *least;
        *most = count > *most ? count : *most;
        sum += count;
    }
    assert_int_equal(sum, PS_SLOTS); /* nobody else has one */
}

static void slots_are_even_to_within_one(void **state)
{
    (void)state;
    static ps_view view;
    int least, most;
    for (int count = 1; count <= PS_MAX_SERVERS; count++) {
        OK(ps_view_first(count, &view));
        assert_int_equal(view.version, 1);
        assert_int_equal(view.server_count, count);
        spread(&view, &least, &most);
        assert_in_range(most - least, 0, 1);
    }
}

static void each_slot_has_a_server_and_the_next_one_as_its_backup(void **state)
{
    (void)state;
    static ps_view view;
    OK(ps_view_first(5, &view));
    change(&view, PS_WITHOUT, 1, &view);
    change(&view, PS_WITHOUT, 3, &view);
    assert_int_equal(ps_view_backup(&view, 0), 2);
    assert_int_equal(ps_view_backup(&view, 4), 0);
    assert_int_equal(ps_view_backup(&view, 3), -1);
    assert_true(ps_view_has(&view, 4));
    assert_false(ps_view_has(&view, 3));
    for (int slot = 0; slot < PS_SLOTS; slot++) {
        int roles[3] = {0}, numbers[] = {0, 2, 4};
        for (int i = 0; i < 3; i++)
            roles[ps_view_role(&view, numbers[i], slot)]++;
        assert_int_equal(roles[PS_PRIMARY], 1);
        assert_int_equal(roles[PS_BACKUP], 1);
    }
    OK(ps_view_first(1, &view));
    assert_int_equal(ps_view_backup(&view, 0), -1);
    assert_int_equal(ps_view_role(&view, 0, 5), PS_PRIMARY);
}

static void the_slots_of_one_that_is_gone_go_to_its_backup(void **state)
{
    (void)state;
    static ps_view before, after;
    for (int count = 2; count <= 9; count++)
        for (int gone = 0; gone < count; gone++) {
            OK(ps_view_first(count, &before));
            change(&before, PS_WITHOUT, gone, &after);
            assert_int_equal(after.version, 2);
            assert_int_equal(after.server_count, count - 1);
            assert_false(ps_view_has(&after, gone));
            for (int slot = 0; slot < PS_SLOTS; slot++) {
                assert_int_equal(after.slots[slot],
                                 before.slots[slot] == gone ? (gone + 1) % count : before.slots[slot]);
                if (before.slots[slot] == gone)
                    assert_int_equal(ps_view_role(&before, after.slots[slot], slot), PS_BACKUP);
            }
        }
}

/* Of any hosts: two of one host are neighbours only where it has more than half of all servers. */
static void a_backup_is_on_another_host(void **state)
{
    (void)state;
    static ps_view view, back;
    rig_random random = {{5, 1}, 0};
    for (int round = 0; round < 2000; round++) {
        int count = 2 + (int)rig_below(&random, 9), most = 0, alike = 0;
        int kinds = 1 + (int)rig_below(&random, (uint64_t)count), sizes[16] = {0};
        uint64_t hosts[16];
        for (int i = 0; i < count; i++) {
            hosts[i] = rig_below(&random, (uint64_t)kinds);
            sizes[hosts[i]]++;
            most = sizes[hosts[i]] > most ? sizes[hosts[i]] : most;
        }
        OK(ps_view_first(count, &view));
        ps_view_spread(&view, hosts);
        for (int i = 0; i < count; i++)
            alike += hosts[ps_view_backup(&view, i)] == hosts[i];
        assert_int_equal(alike > 0, 2 * most > count);
        int number = (int)rig_below(&random, (uint64_t)count);
        change(&view, PS_WITHOUT, number, &back);
        change(&back, PS_JOIN, number, &back); /* to its own place */
        assert_memory_equal(back.servers, view.servers, sizeof(view.servers));
    }
}

static void one_that_comes_back_is_a_backup_at_first(void **state)
{
    (void)state;
    static ps_view before, after;
    OK(ps_view_first(3, &before));
    change(&before, PS_WITHOUT, 1, &before);
    change(&before, PS_JOIN, 1, &after);
    assert_memory_equal(after.slots, before.slots, sizeof(after.slots));
    assert_int_equal(ps_view_slots(&after, 1), 0);
    assert_int_equal(ps_view_backup(&after, 0), 1);
    change(&after, PS_WITHOUT, 0, &after); /* and takes over */
    assert_int_equal(ps_view_slots(&after, 1), ps_view_slots(&before, 0));
}

static void what_is_shared_goes_to_the_backup_and_few_blocks_are_even_too(void **state)
{
    (void)state;
    static ps_view before, after;
    OK(ps_view_first(2, &before));
    change(&before, PS_WITHOUT, 1, &before);
    change(&before, PS_JOIN, 1, &before);
    change(&before, PS_SHARE, 0, &after);
    int of_first = 0;
    for (int slot = 0; slot < PS_SLOTS; slot++) {
        of_first += after.slots[slot] == 1;
        assert_in_range(2 * of_first - slot, 0, 1); /* of each number of slots, half */
    }
    FAILS(TRI_EINVAL, "server 0 has not more slots", ps_view_change(&after, &(ps_change){PS_SHARE, 0}, &after));
}

/* Whatever happened: everybody shares with its backup, until nobody can. */
static void after_any_changes_sharing_makes_it_even(void **state)
{
    (void)state;
    static ps_view view;
    rig_random random = {{3, 1}, 0};
    for (int round = 0; round < 200; round++) {
        int servers = 2 + (int)rig_below(&random, 8), least, most;
        OK(ps_view_first(servers, &view));
        for (int i = 0; i < 12; i++) {
            int number = (int)rig_below(&random, (uint64_t)servers);
            uint64_t version = view.version;
            if (ps_view_has(&view, number) && view.server_count == 1)
                continue;
            change(&view, ps_view_has(&view, number) ? PS_WITHOUT : PS_JOIN, number, &view);
            assert_int_equal(view.version, version + 1);
            spread(&view, &least, &most);
        }
        for (int shared = 1, times = 0; shared > 0; times++) {
            shared = 0;
            for (int i = 0; i < view.server_count; i++)
                shared += ps_view_change(&view, &(ps_change){PS_SHARE, view.servers[i]}, &view) == TRI_OK;
            assert_true(times < 200);
        }
        spread(&view, &least, &most);
        assert_in_range(most - least, 0, view.server_count - 1);
    }
}

static void a_change_is_read_as_it_was_written(void **state)
{
    (void)state;
    ps_change back;
    for (int kind = PS_WITHOUT; kind <= PS_SHARE; kind++)
        for (int number = 0; number < PS_MAX_SERVERS; number++) {
            ps_change what = {(ps_change_kind)kind, number};
            OK(ps_change_read(ps_change_code(&what), &back));
            assert_memory_equal(&what, &back, sizeof(what));
        }
    FAILS(TRI_EFORMAT, "there is none of number 0", ps_change_read(0, &back));
    FAILS(TRI_EFORMAT, "there is none of number 256", ps_change_read(256, &back));
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    static ps_view view;
    FAILS(TRI_EINVAL, "servers: want 1 to 64, got 0", ps_view_first(0, &view));
    FAILS(TRI_EINVAL, "servers: want 1 to 64, got 65", ps_view_first(65, &view));
    OK(ps_view_first(1, &view));
    FAILS(TRI_EINVAL, "server 0 is the last one", ps_view_change(&view, &(ps_change){PS_WITHOUT, 0}, &view));
    FAILS(TRI_EINVAL, "server 5 is not in the view", ps_view_change(&view, &(ps_change){PS_WITHOUT, 5}, &view));
    FAILS(TRI_EINVAL, "server 0 is in the view already", ps_view_change(&view, &(ps_change){PS_JOIN, 0}, &view));
    FAILS(TRI_EINVAL, "want a number of 0 to 63, got -1", ps_view_change(&view, &(ps_change){PS_JOIN, -1}, &view));
    assert_int_equal(view.version, 1);
}

static uint64_t most_of(const uint64_t *numbers, int count)
{
    uint64_t most = 0;
    for (int i = 0; i < count; i++)
        most = numbers[i] > most ? numbers[i] : most;
    return most;
}

static uint64_t least_of(const uint64_t *numbers, int count)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < count; i++)
        least = numbers[i] < least ? numbers[i] : least;
    return least;
}

/* Bytes of each slot and of each server. */
static void loads_find(const uint64_t *nbytes, const uint8_t *dealt, int count, const ps_view *view, uint64_t *slots,
                       uint64_t *servers)
{
    memset(slots, 0, PS_SLOTS * sizeof(*slots));
    memset(servers, 0, PS_MAX_SERVERS * sizeof(*servers));
    for (int i = 0; i < count; i++) {
        slots[dealt[i]] += nbytes[i];
        servers[view->slots[dealt[i]]] += nbytes[i];
    }
}

static void bytes_are_even_over_slots_and_servers(void **state)
{
    (void)state;
    static ps_view view;
    static uint64_t nbytes[3000];
    static uint8_t dealt[3000];
    uint64_t slots[PS_SLOTS], servers[PS_MAX_SERVERS];
    rig_random random = {{3, 2}, 0};
    for (int round = 0; round < 200; round++) {
        int count = round == 0 ? 0 : (int)rig_below(&random, round % 2 ? 130 : 3000);
        for (int i = 0; i < count; i++)
            nbytes[i] = round % 3 == 0 ? 65536 : rig_below(&random, 4) ? 65536 : 64 * rig_below(&random, 1024);
        OK(ps_deal(nbytes, count, dealt));
        uint64_t block = most_of(nbytes, count);
        for (int world = 1; world <= 8; world++) {
            OK(ps_view_first(world, &view));
            loads_find(nbytes, dealt, count, &view, slots, servers);
            uint64_t most = most_of(slots, PS_SLOTS), least = least_of(slots, PS_SLOTS);
            assert_true(most - least <= block);
            /* A server may have a slot more. */
            assert_true(most_of(servers, world) - least_of(servers, world) <= most + block);
        }
    }
}

static void few_equal_blocks_are_even_to_within_one(void **state)
{
    (void)state;
    static ps_view view;
    static uint64_t nbytes[PS_SLOTS];
    static uint8_t dealt[PS_SLOTS];
    uint64_t slots[PS_SLOTS], servers[PS_MAX_SERVERS];
    for (int count = 1; count <= PS_SLOTS; count++)
        for (int world = 1; world <= 9; world++) {
            nbytes[count - 1] = 1;
            OK(ps_deal(nbytes, count, dealt));
            for (int i = 0; i < count; i++)
                assert_int_equal(dealt[i], i);
            OK(ps_view_first(world, &view));
            loads_find(nbytes, dealt, count, &view, slots, servers);
            assert_true(most_of(servers, world) - least_of(servers, world) <= 1);
        }
}

static void keys_are_spread_over_the_slots(void **state)
{
    (void)state;
    uint64_t slots[PS_SLOTS] = {0};
    assert_int_equal(ps_key_hash(0), UINT64_C(0xc77b3abb6f87acd9)); /* for ever: bytes on disk follow it */
    for (uint64_t key = 0; key < 128000; key++)
        slots[ps_key_slot(key << 20)]++;
    assert_true(least_of(slots, PS_SLOTS) > 850 && most_of(slots, PS_SLOTS) < 1150);
}

static void a_view_is_read_as_it_was_written(void **state)
{
    (void)state;
    static ps_view view, back;
    tri_string bytes = {0};
    OK(ps_view_first(5, &view));
    change(&view, PS_WITHOUT, 2, &view);
    memset(&back, 0x55, sizeof(back));
    OK(ps_view_write(&view, &bytes));
    OK(ps_view_read(bytes.text, bytes.nbytes, &back));
    assert_int_equal(back.version, 2);
    assert_int_equal(back.server_count, 4);
    assert_memory_equal(&back, &view, sizeof(view));
    tri_string_fini(&bytes);
}

/* Bytes that were spoilt and given the right check again must fail by themselves, or be a view that can be used. */
static void bytes_that_are_no_view_are_refused(void **state)
{
    (void)state;
    static ps_view view, back;
    rig_random random = {{3, 3}, 0};
    tri_string bytes = {0};
    OK(ps_view_first(3, &view));
    OK(ps_view_write(&view, &bytes));
    for (size_t nbytes = 0; nbytes < bytes.nbytes; nbytes++)
        FAILS(TRI_EFORMAT, "view of the servers: there is none", ps_view_read(bytes.text, nbytes, &back));
    bytes.text[20] ^= 1;
    FAILS(TRI_EFORMAT, "there is none", ps_view_read(bytes.text, bytes.nbytes, &back));
    bytes.text[20] ^= 1;
    int refused = 0;
    for (int round = 0; round < 20000; round++) {
        unsigned char spoilt[1024];
        size_t fields = bytes.nbytes - 8;
        memcpy(spoilt, bytes.text, bytes.nbytes);
        for (uint64_t i = 0; i <= rig_below(&random, 3); i++)
            spoilt[rig_below(&random, fields)] = (unsigned char)rig_below(&random, 256);
        fields -= rig_below(&random, 4) == 0 ? rig_below(&random, fields) : 0;
        uint64_t check = XXH3_64bits(spoilt, fields);
        memcpy(spoilt + fields, &check, 8);
        tri_status status = ps_view_read(spoilt, fields + 8, &back);
        assert_true(status == TRI_OK || status == TRI_EFORMAT);
        refused += status != TRI_OK;
        if (status != TRI_OK)
            continue;
        int least, most;
        spread(&back, &least, &most);
        assert_true(least >= 0 && most <= PS_SLOTS);
    }
    assert_in_range(refused, 5000, 19999);
    tri_string_fini(&bytes);
}

static void running_out_of_memory_leaks_nothing(void **state)
{
    (void)state;
    static ps_view view;
    uint64_t live = tri_memory_now().live, nbytes[3] = {1, 2, 3};
    uint8_t dealt[3];
    bool done = false;
    OK(ps_view_first(3, &view));
    for (uint64_t n = 1; !done; n++) {
        tri_string bytes = {0};
        tri_memory_fail_at(n);
        tri_status status = ps_deal(nbytes, 3, dealt);
        if (status == TRI_OK)
            status = ps_view_write(&view, &bytes);
        tri_memory_fail_at(0);
        done = status == TRI_OK;
        assert_true(done || status == TRI_ENOMEM);
        tri_string_fini(&bytes);
    }
    assert_int_equal(tri_memory_now().live, live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_even_to_within_one),
        cmocka_unit_test(each_slot_has_a_server_and_the_next_one_as_its_backup),
        cmocka_unit_test(the_slots_of_one_that_is_gone_go_to_its_backup),
        cmocka_unit_test(a_backup_is_on_another_host),
        cmocka_unit_test(one_that_comes_back_is_a_backup_at_first),
        cmocka_unit_test(what_is_shared_goes_to_the_backup_and_few_blocks_are_even_too),
        cmocka_unit_test(after_any_changes_sharing_makes_it_even),
        cmocka_unit_test(a_change_is_read_as_it_was_written),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(bytes_are_even_over_slots_and_servers),
        cmocka_unit_test(few_equal_blocks_are_even_to_within_one),
        cmocka_unit_test(keys_are_spread_over_the_slots),
        cmocka_unit_test(a_view_is_read_as_it_was_written),
        cmocka_unit_test(bytes_that_are_no_view_are_refused),
        cmocka_unit_test(running_out_of_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
