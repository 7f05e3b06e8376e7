/* SPDX-License-Identifier: Apache-2.0
 *
 * test_members_reach.c: members that do not reach each other, on virtual time: the largest set that is connected goes
 * on, newcomers are left out first, and whoever was left out joins again when it reaches all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "cluster/members_impl.h"

enum { MOST = 8 };

typedef struct net {
    tri_store *store;
    int initial_members;
    const char *cuts;    /* pairs of ranks of generation 1, such as "01 12" */
    int64_t heal_ns;     /* all are whole from then on; 0: never */
    bool stays;          /* links that were cut stay so; who tries the other one finds that it is reached again */
    int64_t trial_ns;    /* how long it takes to find that some are not reached */
    int least;           /* members of a generation; 0: 1 */
    char list[4 * MOST]; /* of generation 2, as numbers of processes: "0 2 " */
    int64_t closed_ns;   /* when it was closed, at the latest */
    int64_t whole_ns;    /* when all were in one again; 0: never */
    int count;           /* processes */
} net;

typedef struct node {
    net *in;
    int number;
    tri_members *members;
} node;

static bool was_cut(const net *in, int a, int b)
{
    char one[3] = {(char)('0' + a), (char)('0' + b), 0}, other[3] = {(char)('0' + b), (char)('0' + a), 0};
    return tri_now_ns() >= TRI_NS_PER_S && (strstr(in->cuts, one) || strstr(in->cuts, other));
}

static bool is_cut(const net *in, int a, int b)
{
    return was_cut(in, a, b) && (in->heal_ns == 0 || tri_now_ns() < in->heal_ns);
}

static tri_member_way way_of(void *arg, int rank, char *where)
{
    const node *own = arg;
    const char *id = tri_members_now(own->members)->members[rank].id;
    bool cut = own->in->stays ? was_cut(own->in, own->number, id[0] - '0') : is_cut(own->in, own->number, id[0] - '0');
    if (!cut)
        return TRI_MEMBER_HEARD;
    snprintf(where, TRI_MEMBER_WHERE_NBYTES, "10.0.0.%c/40000", id[0]);
    return TRI_MEMBER_CUT;
}

static tri_status reach(void *arg, const tri_member *members, tri_member_reach *found, int count)
{
    const node *own = arg;
    for (int i = 0; i < count; i++)
        found[i].cut = is_cut(own->in, own->number, members[i].id[0] - '0');
    tri_sleep_ns(own->in->trial_ns);
    return TRI_OK;
}

static void list_note(net *in, const tri_generation *now)
{
    in->list[0] = 0;
    for (int r = 0; r < now->count; r++)
        snprintf(in->list + strlen(in->list), sizeof in->list - strlen(in->list), "%c ", now->members[r].id[0]);
    in->closed_ns = tri_now_ns();
}

/* Generation 1, then 2; and after that whatever comes until all are together. */
static void node_run(void *arg)
{
    node *own = arg;
    net *in = own->in;
    char id[TRI_MEMBER_NBYTES];
    int64_t limit_ns = tri_now_ns() + 300 * TRI_NS_PER_S;
    snprintf(id, sizeof id, "%d.0", own->number);
    tri_members_setup setup = {.store = in->store,
                               .id = id,
                               .host = id,
                               .initial_members = in->initial_members,
                               .least = in->least ? in->least : 1,
                               .most = MOST,
                               .wait_ns = in->least ? limit_ns : TRI_NS_PER_S,
                               .reach = reach,
                               .arg = own};
    if (own->number >= in->initial_members)
        tri_sleep_ns(TRI_NS_PER_S);
    assert_int_equal(tri_members_open(&setup, &own->members), TRI_OK);
    while (tri_now_ns() < limit_ns && in->whole_ns == 0) {
        tri_status status = tri_members_next(own->members, 0, way_of, own, limit_ns);
        if (status != TRI_OK)
            break;
        const tri_generation *now = tri_members_now(own->members);
        if (now->number == 2 && !in->list[0])
            list_note(in, now);
        if (now->number > 1 && now->count == in->count) {
            in->whole_ns = in->whole_ns ? in->whole_ns : tri_now_ns();
            break;
        }
        tri_sleep_ns(now->number == 1 ? 2 * TRI_NS_PER_S : TRI_NS_PER_S / 10);
    }
    assert_int_equal(tri_members_end(own->members, tri_now_ns() + TRI_NS_PER_S), TRI_OK);
    tri_members_close(own->members);
}

static void all_run(int index, void *arg)
{
    net *in = arg;
    node nodes[MOST];
    tri_thread *threads[MOST];
    (void)index;
    for (int i = 0; i < in->count; i++) {
        nodes[i] = (node){.in = in, .number = i};
        assert_int_equal(tri_thread_start(&threads[i], "node", node_run, &nodes[i]), TRI_OK);
    }
    for (int i = 0; i < in->count; i++)
        tri_thread_join(threads[i]);
}

static net net_run(net in)
{
    in.count = in.count ? in.count : in.initial_members;
    assert_int_equal(tri_store_memory(&in.store), TRI_OK);
    assert_int_equal(tri_sim_run(&(tri_sim_config){.seed = 1}, 1, all_run, &in), TRI_OK);
    tri_store_close(in.store);
    return in;
}

static void check_list(int initial_members, const char *cuts, const char *list)
{
    net in = net_run((net){.initial_members = initial_members, .cuts = cuts, .heal_ns = 20 * TRI_NS_PER_S});
    if (strcmp(in.list, list) != 0)
        print_message("%d members, cut %s\n", initial_members, cuts);
    assert_string_equal(in.list, list);
    assert_true(in.closed_ns < 3 * TRI_NS_PER_S); /* a second after they looked for each other */
    assert_true(in.whole_ns >= 20 * TRI_NS_PER_S && in.whole_ns < 23 * TRI_NS_PER_S);
}

static void the_largest_connected_set_goes_on(void **state)
{
    (void)state;
    check_list(3, "01", "0 2 "); /* one link: as many either way, and the first stays */
    check_list(3, "12", "0 1 ");
    check_list(3, "01 02", "1 2 ");       /* the first one is the one that is cut off */
    check_list(4, "02 03 12 13", "0 1 "); /* two halves */
    check_list(5, "02 03 04 12 13 14", "2 3 4 ");
    check_list(5, "01 12 23 34", "0 2 4 "); /* a chain of links that are cut */
    check_list(5, "01 02 03 04", "1 2 3 4 ");
    check_list(6, "01 23 45", "0 2 4 ");
}

static void a_newcomer_that_reaches_only_the_store_is_not_noticed(void **state)
{
    (void)state;
    net in = net_run((net){.initial_members = 2, .count = 3, .cuts = "02 12", .heal_ns = 20 * TRI_NS_PER_S});
    assert_true(in.whole_ns >= 20 * TRI_NS_PER_S && in.whole_ns < 23 * TRI_NS_PER_S);
}

/* All of them are needed: who is cut off from four others finds within one trial that it reaches them. */
static void members_that_are_cut_off_are_tried_side_by_side(void **state)
{
    (void)state;
    net in = net_run((net){.initial_members = 5,
                           .least = 5,
                           .cuts = "01 02 03 04",
                           .heal_ns = 20 * TRI_NS_PER_S,
                           .stays = true,
                           .trial_ns = 2 * TRI_NS_PER_S});
    assert_string_equal(in.list, "0 1 2 3 4 ");
    assert_true(in.whole_ns >= 20 * TRI_NS_PER_S && in.whole_ns < 26 * TRI_NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_connected_set_goes_on),
        cmocka_unit_test(a_newcomer_that_reaches_only_the_store_is_not_noticed),
        cmocka_unit_test(members_that_are_cut_off_are_tried_side_by_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
