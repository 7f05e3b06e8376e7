/* SPDX-License-Identifier: Apache-2.0
 *
 * test_memory_plan.c: replays the life of every buffer of compiled graphs, and packs random lifetimes.
 *
 * The replay does not trust first and last: it derives from ops and flags alone who reads what when, and keeps an owner
 * for each 64 bytes of memory.
 */
#include "unit/nn/nn_rig.h"

typedef struct replay {
    const tri_graph *graph;
    int *owner;       /* per 64 bytes: the content that was written last */
    const char *name; /* of the model */
} replay;

/* Contents: value v -> v, its gradient -> 10000 + v, saved of op o -> 20000 + o, scratch and asides -> 30000. */
static void content_write(const replay *r, int buffer, int content)
{
    if (buffer < 0)
        return;
    const graph_buffer *b = &r->graph->buffers[buffer];
    for (size_t i = b->offset / 64; i < (b->offset + b->nbytes) / 64; i++)
        r->owner[i] = content;
}

static void content_read(const replay *r, int buffer, int content)
{
    if (buffer < 0)
        return;
    const graph_buffer *b = &r->graph->buffers[buffer];
    for (size_t i = b->offset / 64; i < (b->offset + b->nbytes) / 64; i++)
        if (r->owner[i] != content)
            fail_msg("%s: content %d was overwritten by %d", r->name, content, r->owner[i]);
}

/* Buffer of a value on the way up (block 0), or where ops of a block find it later. */
static int buffer_of(const tri_graph *g, int value, int block)
{
    const graph_value *v = &g->values[value];
    return block > 0 && v->block == block && v->again >= 0 ? v->again : v->buffer;
}

static void values_read(const replay *r, const graph_op *op, int block)
{
    for (int i = 0; i < op->desc.input_count; i++)
        if (r->graph->values[op->input[i]].source == GRAPH_COMPUTED)
            content_read(r, buffer_of(r->graph, op->input[i], block), op->input[i]);
}

/* One forward of op o, on the way up (block 0) or again. */
static void replay_op(const replay *r, int o, int block)
{
    const tri_graph *g = r->graph;
    const graph_op *op = &g->ops[o];
    int saved = block > 0 ? op->saved_again : op->saved, out = buffer_of(g, op->output, block);
    values_read(r, op, block);
    content_write(r, block > 0 ? op->scratch_again : op->scratch, 30000);
    content_write(r, saved, 20000 + o);
    bool in_place = out >= 0 && out == buffer_of(g, op->input[0], block);
    if (!in_place) { /* inputs must survive the writing of outputs and scratch */
        values_read(r, op, block);
        if (g->values[op->output].source == GRAPH_COMPUTED)
            content_write(r, out, op->output);
        values_read(r, op, block);
        if (block == 0 && o > 0 && g->ops[o - 1].made_by_next)
            values_read(r, &g->ops[o - 1], 0);
    } else {
        assert_true(op->kernel.ops->output_may_alias);
        for (int i = 1; i < op->desc.input_count; i++)
            content_read(r, buffer_of(g, op->input[i], block), op->input[i]);
        content_write(r, out, op->output);
    }
    content_read(r, saved, 20000 + o);
}

static void replay_up(const replay *r)
{
    for (int o = 0; o < r->graph->op_count; o++)
        replay_op(r, o, 0);
    content_read(r, r->graph->values[r->graph->logits].buffer, r->graph->logits);
}

static void replay_block(const replay *r, int last)
{
    const tri_graph *g = r->graph;
    int first = last;
    if (g->ops[last].block == 0 || (last + 1 < g->op_count && g->ops[last + 1].block == g->ops[last].block))
        return;
    while (first > 0 && g->ops[first - 1].block == g->ops[last].block)
        first--;
    for (int o = first; o <= last; o++)
        if (g->ops[o].again)
            replay_op(r, o, g->ops[o].block);
}

static void replay_down(const replay *r)
{
    const tri_graph *g = r->graph;
    for (int o = g->op_count - 1; o >= 0; o--) {
        const graph_op *op = &g->ops[o];
        const graph_value *out = &g->values[op->output];
        replay_block(r, o);
        if (!op->backward)
            continue;
        for (int pass = 0; pass < 2; pass++) {
            content_read(r, op->again ? op->saved_again : op->saved, 20000 + o);
            content_read(r, out->grad, 10000 + op->output);
            if (op->kernel.ops->backward_input)
                values_read(r, op, op->block);
            if (op->kernel.ops->backward_output)
                content_read(r, buffer_of(g, op->output, op->block), op->output);
            if (pass == 1)
                break;
            content_write(r, op->scratch_down, 30000);
            if (op->adds_dinput)
                content_read(r, op->dinput[0], 10000 + op->input[0]);
            for (int i = 0; i < op->desc.input_count; i++)
                if (op->dinput[i] != out->grad) /* in place comes last */
                    content_write(r, op->dinput[i], op->add_into[i] < 0 ? 10000 + op->input[i] : 30000);
        }
        for (int i = 0; i < op->desc.input_count; i++) {
            if (op->dinput[i] >= 0 && op->dinput[i] == out->grad) {
                assert_true(i == 0 && op->kernel.ops->dinput_may_alias);
                content_write(r, op->dinput[i], 10000 + op->input[i]);
            }
            if (op->add_into[i] >= 0)
                content_read(r, op->add_into[i], 10000 + op->input[i]);
        }
    }
}

static void no_content_is_overwritten_while_somebody_reads_it(void **state)
{
    (void)state;
    static const char *const kinds[] = {"reference", "cpu", "cuda"};
    for (size_t k = 0; k < TRI_COUNT_OF(kinds) * RIG_MODELS; k++) {
        rig r;
        const size_t m = k / TRI_COUNT_OF(kinds);
        rig_open(&r, rig_models[m].make(), rig_models[m].classes, kinds[k % TRI_COUNT_OF(kinds)], 1, true);
        replay run = {r.graph, calloc(r.graph->planned_nbytes / 64 + 1, sizeof(int)), rig_models[m].name};
        replay_up(&run);
        replay_down(&run);
        free(run.owner);
        rig_close(&r);
    }
}

/* Of two layers: four adds, each with a norm behind it; gradients of four norms are added to those of residuals. */
static void a_gpu_makes_adds_and_norms_in_one_pass(void **state)
{
    static const char *const kinds[] = {"cpu", "cuda"};
    (void)state;
    for (size_t k = 0; k < TRI_COUNT_OF(kinds); k++) {
        rig r;
        int made = 0, added = 0;
        rig_open(&r, rig_gpt(), 7, kinds[k], 1, true);
        for (int o = 0; o < r.graph->op_count; o++) {
            made += r.graph->ops[o].made_by_next;
            added += r.graph->ops[o].adds_dinput;
        }
        assert_int_equal(made, k == 1 ? 4 : 0);
        assert_int_equal(added, k == 1 ? 4 : 0);
        rig_close(&r);
    }
}

static void reuse_really_saves_memory(void **state)
{
    (void)state;
    for (size_t k = 0; k < RIG_MODELS; k++) {
        rig a, b;
        size_t planned, plain, apart, same;
        rig_open(&a, rig_models[k].make(), rig_models[k].classes, "reference", 1, true);
        rig_open(&b, rig_models[k].make(), rig_models[k].classes, "reference", 1, false);
        tri_graph_memory(a.graph, &planned, &plain);
        tri_graph_memory(b.graph, &apart, &same);
        assert_int_equal(plain, same);
        assert_true(planned * 10 < plain * 9);
        assert_true(apart >= plain);
        rig_close(&a);
        rig_close(&b);
    }
}

static void random_lifetimes_are_packed_without_overlap(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    graph_buffer buffers[COUNT];
    int order[COUNT];
    for (uint64_t round = 0; round < 20; round++) {
        tri_rng rng = {round, 1};
        size_t sum = 0, busiest = 0;
        for (uint64_t b = 0; b < COUNT; b++) {
            int first = (int)tri_rng_below(rng, 3 * b, 100);
            buffers[b] = (graph_buffer){.nbytes = 64 * (1 + tri_rng_below(rng, 3 * b + 1, 50)),
                                        .first = first,
                                        .last = first + (int)tri_rng_below(rng, 3 * b + 2, 20)};
            sum += buffers[b].nbytes;
        }
        size_t total = tri_graph_pack(buffers, COUNT, order);
        for (int time = 0; time < 120; time++) {
            size_t busy = 0;
            for (int b = 0; b < COUNT; b++)
                busy += buffers[b].first <= time && time <= buffers[b].last ? buffers[b].nbytes : 0;
            busiest = busy > busiest ? busy : busiest;
        }
        assert_true(total >= busiest && total < busiest + busiest / 4 && total < sum / 2);
        for (int a = 0; a < COUNT; a++) {
            assert_true(buffers[a].offset % 64 == 0 && buffers[a].offset + buffers[a].nbytes <= total);
            for (int b = 0; b < a; b++) {
                bool meet = buffers[a].first <= buffers[b].last && buffers[b].first <= buffers[a].last;
                bool apart = buffers[a].offset + buffers[a].nbytes <= buffers[b].offset ||
                             buffers[b].offset + buffers[b].nbytes <= buffers[a].offset;
                assert_true(!meet || apart);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_content_is_overwritten_while_somebody_reads_it),
        cmocka_unit_test(a_gpu_makes_adds_and_norms_in_one_pass),
        cmocka_unit_test(reuse_really_saves_memory),
        cmocka_unit_test(random_lifetimes_are_packed_without_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
