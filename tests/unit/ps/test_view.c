/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/view.h"

#include "unit/ps/ps_rig.h"

static ps_place place(int number)
{
    ps_place server = {.number = number, .incarnation = (uint64_t)number * 1000 + 1};
    snprintf(server.address, sizeof(server.address), "tcp:10.0.0.%d:4711", number);
    return server;
}

static void make(int count, ps_view *view)
{
    static ps_place servers[PS_MAX_SERVERS];
    for (int i = 0; i < count; i++)
        servers[i] = place(i);
    OK(ps_view_make(servers, count, view));
}

static void spread(const ps_view *view, int *least, int *most)
{
    *least = PS_SLOTS;
    *most = 0;
    int sum = 0;
    for (int i = 0; i < view->server_count; i++) {
        int count = ps_view_slots(view, view->servers[i].number);
        *least = count < *least ? count : *least;
        *most = count > *most ? count : *most;
        sum += count;
    }
    assert_int_equal(sum, PS_SLOTS); /* nobody else has one */
}

static void expect_even(const ps_view *view)
{
    int least, most;
    spread(view, &least, &most);
    assert_in_range(most - least, 0, 1);
}

static void slots_are_even_to_within_one(void **state)
{
    (void)state;
    static ps_view view;
    for (int count = 1; count <= PS_MAX_SERVERS; count++) {
        make(count, &view);
        assert_int_equal(view.version, 1);
        assert_int_equal(view.server_count, count);
        expect_even(&view);
    }
}

static void the_order_of_servers_is_that_of_their_numbers(void **state)
{
    (void)state;
    static ps_view view, other;
    const ps_place forth[] = {place(3), place(7), place(90)}, back[] = {place(90), place(3), place(7)};
    OK(ps_view_make(forth, 3, &view));
    OK(ps_view_make(back, 3, &other));
    assert_memory_equal(&view, &other, sizeof(view));
    assert_int_equal(ps_view_backup(&view, 3), 7);
    assert_int_equal(ps_view_backup(&view, 90), 3);
    assert_int_equal(ps_view_backup(&view, 4), -1);
    assert_string_equal(ps_view_find(&view, 7)->address, "tcp:10.0.0.7:4711");
    assert_null(ps_view_find(&view, 4));
    for (int slot = 0; slot < PS_SLOTS; slot++) {
        int roles[3] = {0}, numbers[] = {3, 7, 90};
        for (int i = 0; i < 3; i++)
            roles[ps_view_role(&view, numbers[i], slot)]++;
        assert_int_equal(roles[PS_PRIMARY], 1);
        assert_int_equal(roles[PS_BACKUP], 1);
    }
    make(1, &view);
    assert_int_equal(ps_view_backup(&view, 0), -1);
    assert_int_equal(ps_view_role(&view, 0, 5), PS_PRIMARY);
}

static void a_newcomer_gets_its_share_and_nothing_else_moves(void **state)
{
    (void)state;
    static ps_view before, after;
    for (int count = 1; count < PS_MAX_SERVERS; count++) {
        make(count, &before);
        ps_place server = place(count % 2 ? 200 : 100);
        OK(ps_view_with(&before, &server, &after));
        int moved = 0;
        for (int slot = 0; slot < PS_SLOTS; slot++) {
            bool moves = before.slots[slot] != after.slots[slot];
            assert_true(!moves || after.slots[slot] == server.number);
            moved += moves;
        }
        assert_int_equal(moved, PS_SLOTS / (count + 1));
        assert_int_equal(after.version, 2);
        expect_even(&after);
    }
}

static void the_slots_of_one_that_is_gone_go_to_its_backup(void **state)
{
    (void)state;
    static ps_view before, after;
    for (int count = 2; count <= 9; count++)
        for (int gone = 0; gone < count; gone++) {
            make(count, &before);
            OK(ps_view_without(&before, gone, &after));
            assert_int_equal(after.version, 2);
            assert_int_equal(after.server_count, count - 1);
            assert_null(ps_view_find(&after, gone));
            for (int slot = 0; slot < PS_SLOTS; slot++) {
                assert_int_equal(after.slots[slot],
                                 before.slots[slot] == gone ? (gone + 1) % count : before.slots[slot]);
                if (before.slots[slot] == gone)
                    assert_int_equal(ps_view_role(&before, after.slots[slot], slot), PS_BACKUP);
            }
        }
}

static void after_any_changes_the_next_newcomer_finds_it_even(void **state)
{
    (void)state;
    static ps_view view, again;
    rig_random random = {{3, 1}, 0};
    for (int round = 0; round < 200; round++) {
        make(1 + (int)rig_below(&random, 8), &view);
        again = view;
        for (int change = 0; change < 12; change++) {
            int number = (int)rig_below(&random, 16);
            ps_place server = place(number);
            uint64_t version = view.version;
            bool there = ps_view_find(&view, number) != NULL;
            if (there && view.server_count > 1) {
                OK(ps_view_without(&view, number, &view));
                OK(ps_view_without(&again, number, &again));
            } else if (!there) {
                OK(ps_view_with(&view, &server, &view));
                OK(ps_view_with(&again, &server, &again));
                expect_even(&view);
            } else
                continue;
            assert_int_equal(view.version, version + 1);
            assert_memory_equal(&view, &again, sizeof(view));
            int least, most;
            spread(&view, &least, &most);
        }
        uint64_t version = view.version;
        int least, most;
        spread(&view, &least, &most);
        ps_view_even(&view);
        assert_int_equal(view.version, version + (most - least > 1));
        expect_even(&view);
    }
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    static ps_view view;
    static ps_place many[PS_MAX_SERVERS + 1];
    ps_place twice[] = {place(1), place(1)}, wrong = place(-1);
    FAILS(TRI_EINVAL, "servers: want at least 1", ps_view_make(NULL, 0, &view));
    FAILS(TRI_EINVAL, "server 1 is in the view already", ps_view_make(twice, 2, &view));
    FAILS(TRI_EINVAL, "want a number of 0 to 65535, got -1", ps_view_make(&wrong, 1, &view));
    for (int i = 0; i <= PS_MAX_SERVERS; i++)
        many[i] = place(i);
    FAILS(TRI_EINVAL, "servers: want at most 64", ps_view_make(many, PS_MAX_SERVERS + 1, &view));
    make(1, &view);
    FAILS(TRI_EINVAL, "server 0 is the last one", ps_view_without(&view, 0, &view));
    FAILS(TRI_EINVAL, "server 5 is not in the view", ps_view_without(&view, 5, &view));
    FAILS(TRI_EINVAL, "server 0 is in the view already", ps_view_with(&view, &many[0], &view));
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
        servers[ps_view_find(view, view->slots[dealt[i]]) - view->servers] += nbytes[i];
    }
}

static void bytes_are_even_over_slots_and_servers(void **state)
{
    (void)state;
    static ps_view view, grown;
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
            make(world, &view);
            loads_find(nbytes, dealt, count, &view, slots, servers);
            uint64_t most = most_of(slots, PS_SLOTS), least = least_of(slots, PS_SLOTS);
            assert_true(most - least <= block);
            /* A server may have a slot more. */
            assert_true(most_of(servers, world) - least_of(servers, world) <= most + block);
            ps_place server = place(world);
            OK(ps_view_with(&view, &server, &grown));
            loads_find(nbytes, dealt, count, &grown, slots, servers);
            if (count >= 8 * PS_SLOTS)
                assert_true(most_of(servers, world + 1) - least_of(servers, world + 1) <= 2 * (most + block));
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
            make(world, &view);
            loads_find(nbytes, dealt, count, &view, slots, servers);
            assert_true(most_of(servers, world) - least_of(servers, world) <= 1);
            ps_place server = place(world); /* one comes: nearly as good */
            OK(ps_view_with(&view, &server, &view));
            loads_find(nbytes, dealt, count, &view, slots, servers);
            assert_true(most_of(servers, world + 1) - least_of(servers, world + 1) <= 2);
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
    make(5, &view);
    OK(ps_view_without(&view, 2, &view));
    memset(&back, 0x55, sizeof(back));
    OK(ps_view_write(&view, &bytes));
    OK(ps_view_read(bytes.text, bytes.nbytes, &back));
    assert_int_equal(back.version, 2);
    assert_int_equal(back.server_count, 4);
    assert_memory_equal(back.slots, view.slots, sizeof(view.slots));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(back.servers[i].number, view.servers[i].number);
        assert_true(back.servers[i].incarnation == view.servers[i].incarnation);
        assert_string_equal(back.servers[i].address, view.servers[i].address);
    }
    tri_string_fini(&bytes);
}

/* Bytes that were spoilt and given the right check again must fail by themselves, or be a view that can be used. */
static void bytes_that_are_no_view_are_refused(void **state)
{
    (void)state;
    static ps_view view, back;
    rig_random random = {{3, 3}, 0};
    tri_string bytes = {0};
    make(3, &view);
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
        ps_view_even(&back);
        expect_even(&back);
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
    make(3, &view);
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
        cmocka_unit_test(the_order_of_servers_is_that_of_their_numbers),
        cmocka_unit_test(a_newcomer_gets_its_share_and_nothing_else_moves),
        cmocka_unit_test(the_slots_of_one_that_is_gone_go_to_its_backup),
        cmocka_unit_test(after_any_changes_the_next_newcomer_finds_it_even),
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
