/* SPDX-License-Identifier: Apache-2.0
 *
 * test_receive.c: answers of servers that come twice, as they do when blocks change hands while a question is on its
 * way: which of them are taken, and for what.
 */
#include "ps/client/client_impl.h"
#include "unit/ps/ps_rig.h"

#define COUNT   5000
#define SERVERS 2
#define INDEX   1 /* of the array that is asked for second */

typedef struct rig {
    tri_ps_config ps;
    tri_optim_config optim;
    tri_param entry;
    tri_params params;
    ps_spec spec;
    tri_ps_client client;
    tri_ps_dense dense;
    float arrays[2][COUNT], values[COUNT]; /* where answers shall be */
} rig;

static void rig_open(rig *at)
{
    memset(at, 0, sizeof(*at));
    tri_options_defaults(&tri_ps_options, &at->ps);
    tri_options_defaults(&tri_optim_options, &at->optim);
    int64_t blocks = (COUNT + TRI_NORM_BLOCK - 1) / TRI_NORM_BLOCK;
    at->entry = (tri_param){.name = "a", .count = COUNT};
    at->params = (tri_params){.entries = &at->entry, .entry_count = 1, .count = COUNT, .block_count = blocks};
    OK(tri_ps_spec_of(&at->params, &at->ps, &at->optim, SERVERS, 2, 100, &at->spec));
    at->client.setup.servers = SERVERS;
    at->dense = (tri_ps_dense){.client = &at->client, .spec = &at->spec, .values = at->values};
    at->dense.blocks = tri_alloc_zero((size_t)at->spec.cut_count, sizeof(dense_block));
    assert_non_null(at->dense.blocks);
    for (int b = 0; b < at->spec.cut_count; b++)
        at->dense.blocks[b] = (dense_block){.filling = -1, .asked = -1};
}

static void rig_close(rig *at)
{
    tri_free(at->dense.blocks);
    tri_ps_spec_fini(&at->spec);
}

/* As tri_ps_dense_state(). */
static void ask(rig *at, int index)
{
    at->dense.state = at->arrays[index];
    at->dense.state_index = index;
    for (int b = 0; b < at->spec.cut_count; b++)
        at->dense.blocks[b].stated = false;
}

/* Where the body of a message about block 0 goes, which has come whole then. */
static const float *message(rig *at, int server, ps_head head)
{
    bool refused = false;
    head.nbytes = (uint64_t)at->spec.cuts[0].count * sizeof(float);
    const float *place = tri_ps_dense_place(&at->dense, server, &head, &refused);
    assert_false(refused);
    tri_ps_dense_take(&at->dense, server, &head, place);
    return place;
}

static const float *answer(rig *at, int server, int index)
{
    return message(at, server, (ps_head){.kind = PS_STATE, .extra = index});
}

static void an_array_that_comes_twice_is_not_the_next_one(void **state)
{
    static rig at;
    (void)state;
    rig_open(&at);
    ask(&at, 0);
    assert_ptr_equal(answer(&at, 0, 0), at.arrays[0] + at.spec.cuts[0].first);
    assert_true(at.dense.blocks[0].stated);
    assert_null(answer(&at, 0, 0)); /* before the next question */
    ask(&at, INDEX);
    assert_null(answer(&at, 0, 0)); /* and behind it */
    assert_false(at.dense.blocks[0].stated);
    assert_null(answer(&at, 1, INDEX)); /* of another server than has the block */
    assert_false(at.dense.blocks[0].stated);
    assert_ptr_equal(answer(&at, 0, INDEX), at.arrays[INDEX] + at.spec.cuts[0].first);
    assert_true(at.dense.blocks[0].stated);
    at.dense.state = NULL; /* its caller has gone */
    assert_null(answer(&at, 0, INDEX));
    rig_close(&at);
}

/* The server is lost in the middle of it: it is asked again. */
static void an_array_that_came_in_part_has_not_come(void **state)
{
    static rig at;
    bool refused = false;
    (void)state;
    rig_open(&at);
    ask(&at, 0);
    ps_head head = {.kind = PS_STATE, .nbytes = (uint64_t)at.spec.cuts[0].count * sizeof(float)};
    assert_non_null(tri_ps_dense_place(&at.dense, 0, &head, &refused));
    tri_ps_dense_lost(&at.dense, 0);
    assert_false(at.dense.blocks[0].stated);
    assert_non_null(answer(&at, 0, 0));
    assert_true(at.dense.blocks[0].stated);
    rig_close(&at);
}

/* Without steps that are the same for all, values are those of a pull. */
static void values_of_the_pull_before_are_not_those_of_this_one(void **state)
{
    static rig at;
    (void)state;
    rig_open(&at);
    at.dense.consistency = PS_SSP;
    at.dense.pull_number = 2;
    at.dense.blocks[0].asked = 5;
    ps_head head = {.kind = PS_VALUES, .flags = PS_FLAG_EXACT, .clock = 5, .extra = 1};
    assert_null(message(&at, 0, head));
    assert_int_equal(at.dense.blocks[0].asked, 5);
    head.extra = 2;
    assert_ptr_equal(message(&at, 0, head), at.values + at.spec.cuts[0].first);
    assert_int_equal(at.dense.blocks[0].asked, -1);
    assert_null(message(&at, 0, head)); /* once more */
    rig_close(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_array_that_comes_twice_is_not_the_next_one),
        cmocka_unit_test(an_array_that_came_in_part_has_not_come),
        cmocka_unit_test(values_of_the_pull_before_are_not_those_of_this_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
