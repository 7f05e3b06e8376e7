/* SPDX-License-Identifier: Apache-2.0
 *
 * pipeline.c: makes a pipeline: compiles this rank's chunks, sizes their rings of buffers, and looks up what each
 * action of the schedules receives and makes.
 */
#include "parallel/pipeline.h"

#include "base/memory.h"
#include "base/status.h"
#include "parallel/pipeline_impl.h"

#define SPARE 1 /* a message more than must have room, so that it can come while the one before is computed */

/* --- micro-batches --- */

static tri_status check_setup(const tri_pipeline_setup *setup)
{
    int ranks = tri_group_count(setup->group), stages = setup->stages->count, shards = setup->graph->shards;
    if (stages < ranks || stages % ranks != 0)
        return tri_fail(TRI_ECONFIG, "pipeline: want as many stages as ranks (%d) or a multiple of it, got %d", ranks,
                        stages);
    if (shards < 1 || (shards & (shards - 1)) != 0)
        return tri_fail(TRI_ECONFIG, "pipeline: want a power of two of shards in a micro-batch, got %d", shards);
    return TRI_OK;
}

int tri_pipeline_levels(const tri_tree_part *parts, int part_count, int64_t micro_shards)
{
    int most = 0;
    for (int part = 0; part < part_count; part++) {
        int levels = 0;
        for (int64_t count = micro_shards; count < parts[part].count; count *= 2)
            levels++;
        most = levels > most ? levels : most;
    }
    return most;
}

static tri_status micros_make(tri_pipeline *p, const tri_pipeline_setup *setup)
{
    int64_t most = setup->graph->shards;
    for (int pass = 0; pass < 2; pass++) {
        p->micro_count = 0;
        p->shards = 0;
        for (int part = 0; part < setup->part_count; part++) {
            int64_t all = setup->parts[part].count, count = all < most ? all : most;
            for (int64_t at = 0; at < all; at += count, p->micro_count++)
                if (pass == 1)
                    p->micros[p->micro_count] = (pipe_micro){p->shards + at, count, part, (int)(at / count)};
            p->shards += all;
        }
        if (pass == 0 && !(p->micros = tri_alloc_zero((size_t)p->micro_count, sizeof(*p->micros))))
            return TRI_ENOMEM;
    }
    p->levels = tri_pipeline_levels(setup->parts, setup->part_count, most);
    p->sums = tri_alloc_zero((size_t)p->shards, sizeof(*p->sums));
    return p->sums ? TRI_OK : TRI_ENOMEM;
}

static tri_status partial_make(tri_pipeline *p)
{
    size_t nbytes = (size_t)(tri_params_grad_count(p->params) + TRI_PARAMS_TAIL) * sizeof(float);
    p->partial = tri_alloc_zero((size_t)p->levels, sizeof(*p->partial));
    if (!p->partial && p->levels > 0)
        return TRI_ENOMEM;
    for (int level = 0; level < p->levels; level++)
        if (!(p->partial[level] = tri_device_alloc(p->params->device, nbytes)))
            return TRI_ENOMEM;
    return TRI_OK;
}

/* --- schedules --- */

/* The message that carries what the action makes. */
static int made_by(const tri_pipe_schedule *s, int rank, tri_pipe_action a)
{
    for (int i = 0; i < s->message_count[rank]; i++) {
        const tri_pipe_message *m = &s->messages[rank][i];
        if (m->from == rank && m->backward == a.backward && m->micro == a.micro &&
            m->chunk == a.chunk + (a.backward ? -1 : 1))
            return i;
    }
    return -1;
}

static tri_status table_make(const tri_pipeline *p, tri_pipe_kind kind, bool training, pipe_table *table)
{
    TRI_TRY(tri_pipe_schedule_make(kind, p->ranks, p->each, p->micro_count, training, &table->schedule));
    const tri_pipe_schedule *s = &table->schedule;
    table->receives = tri_alloc_zero((size_t)s->action_count, sizeof(int));
    table->makes = tri_alloc_zero((size_t)s->action_count, sizeof(int));
    if (!table->receives || !table->makes)
        return TRI_ENOMEM;
    for (int i = 0; i < s->action_count; i++) {
        table->receives[i] = tri_pipe_schedule_receive_of(s, s->actions[p->rank][i]);
        table->makes[i] = made_by(s, p->rank, s->actions[p->rank][i]);
    }
    return TRI_OK;
}

static void table_fini(pipe_table *table)
{
    tri_pipe_schedule_fini(&table->schedule);
    tri_free(table->receives);
    tri_free(table->makes);
}

static tri_status tables_make(tri_pipeline *p, const tri_pipeline_setup *setup)
{
    if (setup->graph->training)
        TRI_TRY(table_make(p, setup->schedule, true, &p->train));
    TRI_TRY(table_make(p, setup->schedule, false, &p->evaluate));
    int up = p->evaluate.schedule.message_count[p->rank];
    int all = setup->graph->training ? p->train.schedule.message_count[p->rank] : 0;
    p->works = tri_alloc_zero((size_t)(all > up ? all : up), sizeof(*p->works));
    return p->works ? TRI_OK : TRI_ENOMEM;
}

/* --- chunks --- */

static tri_status ring_make(const tri_pipeline *p, int count, size_t nbytes, pipe_ring *ring)
{
    const tri_device *device = p->params->device;
    ring->items = tri_alloc_zero((size_t)count, sizeof(*ring->items));
    if (!ring->items)
        return TRI_ENOMEM;
    ring->count = count;
    for (int i = 0; i < count; i++) {
        ring->items[i].leaving = -1;
        void *memory = nbytes > 0 ? tri_device_alloc(device, nbytes) : NULL;
        if (nbytes > 0 && !memory)
            return TRI_ENOMEM;
        tri_status status = nbytes > 0 ? tri_device_view_open(&ring->items[i].view, device, memory, nbytes) : TRI_OK;
        if (status != TRI_OK) {
            tri_device_free(device, memory);
            return status;
        }
    }
    return TRI_OK;
}

static void ring_fini(const tri_pipeline *p, pipe_ring *ring)
{
    for (int i = 0; i < ring->count; i++) {
        void *memory = ring->items[i].view.memory;
        tri_device_view_close(&ring->items[i].view);
        tri_device_free(p->params->device, memory);
    }
    tri_free(ring->items);
}

static int most(int a, int b)
{
    return a > b ? a : b;
}

typedef struct ring_size {
    int count;
    size_t nbytes; /* of each */
} ring_size;

enum { RING_IN, RING_OUT, RING_DOUT, RING_DIN, RING_COUNT };

/* Of a graph that holds as many micro-batches as the schedule needs. */
static void rings_size(const tri_graph *graph, const tri_pipe_schedule *train, const tri_pipe_schedule *evaluate,
                       int chunk, int shards, ring_size rings[RING_COUNT])
{
    const tri_span *span = tri_graph_span(graph);
    int in = most(train ? train->buffers[0][chunk] : 0, evaluate->buffers[0][chunk]);
    int dout = train ? train->buffers[1][chunk] : 0, slots = train ? train->slots[chunk] : 1;
    rings[RING_IN] = (ring_size){in + SPARE, tri_crossings_nbytes(span->in, span->in_count, shards, false)};
    rings[RING_OUT] = (ring_size){most(slots, 2), tri_crossings_nbytes(span->out, span->out_count, shards, false)};
    rings[RING_DOUT] = (ring_size){dout + SPARE, tri_crossings_nbytes(span->out, span->out_count, shards, true)};
    rings[RING_DIN] = (ring_size){2, tri_crossings_nbytes(span->in, span->in_count, shards, true)};
}

size_t tri_pipeline_crossing_nbytes(const tri_graph *graph, const tri_pipe_schedule *train,
                                    const tri_pipe_schedule *evaluate, int chunk, int shards)
{
    ring_size rings[RING_COUNT];
    size_t nbytes = 0;
    rings_size(graph, train, evaluate, chunk, shards, rings);
    for (int i = 0; i < RING_COUNT; i++)
        nbytes += (size_t)rings[i].count * rings[i].nbytes;
    return nbytes;
}

static tri_status rings_make(tri_pipeline *p, const tri_graph_config *config, pipe_chunk *chunk)
{
    ring_size sizes[RING_COUNT];
    pipe_ring *rings[RING_COUNT] = {&chunk->in, &chunk->out, &chunk->dout, &chunk->din};
    rings_size(chunk->graph, config->training ? &p->train.schedule : NULL, &p->evaluate.schedule, chunk->number,
               config->shards, sizes);
    for (int i = 0; i < RING_COUNT; i++)
        TRI_TRY(ring_make(p, sizes[i].count, sizes[i].nbytes, rings[i]));
    return TRI_OK;
}

/* What the chunk writes of a gradient array, neighbours as one. */
static tri_status ranges_make(const tri_params *params, pipe_chunk *chunk)
{
    int tail = tri_params_tail(params);
    chunk->ranges = tri_alloc_zero((size_t)tail + 1, sizeof(*chunk->ranges));
    if (!chunk->ranges)
        return TRI_ENOMEM;
    bool open = false;
    for (int number = 0; number <= tail; number++) {
        int64_t first = tri_params_grad_first(params, number);
        int64_t end = number < tail ? tri_params_grad_first(params, number + 1) : first + TRI_PARAMS_TAIL;
        bool writes = tri_graph_writes(chunk->graph, number);
        if (writes && open)
            chunk->ranges[chunk->range_count - 1].count += end - first;
        else if (writes)
            chunk->ranges[chunk->range_count++] = (pipe_range){first, end - first};
        open = writes;
    }
    return TRI_OK;
}

static tri_status chunk_make(tri_pipeline *p, const tri_pipeline_setup *setup, int local)
{
    pipe_chunk *chunk = &p->chunks[local];
    tri_graph_config config = *setup->graph;
    chunk->number = local * p->ranks + p->rank;
    chunk->slots = config.training ? p->train.schedule.slots[chunk->number] : 1;
    config.first_node = setup->stages->first_node[chunk->number];
    config.end_node = setup->stages->first_node[chunk->number + 1];
    config.slots = chunk->slots;
    TRI_TRY_IN(tri_graph_compile(setup->model, setup->params, &config, &chunk->graph), "stage %d of %d", chunk->number,
               setup->stages->count);
    TRI_TRY(rings_make(p, &config, chunk));
    return ranges_make(p->params, chunk);
}

static tri_status makers_find(tri_pipeline *p)
{
    int tail = tri_params_tail(p->params);
    p->makers = tri_alloc_zero((size_t)tail + 1, sizeof(int));
    for (int number = 0; p->makers && number <= tail; number++) {
        p->makers[number] = -1;
        for (int c = 0; c < p->each; c++)
            if (tri_graph_writes(p->chunks[c].graph, number))
                p->makers[number] = c;
    }
    return p->makers ? TRI_OK : TRI_ENOMEM;
}

/* --- the whole --- */

static tri_status pipeline_fill(tri_pipeline *p, const tri_pipeline_setup *setup)
{
    p->group = setup->group;
    p->params = setup->params;
    p->rank = tri_group_rank(setup->group);
    p->named = setup->rank;
    p->ranks = tri_group_count(setup->group);
    p->each = setup->stages->count / p->ranks;
    p->threads = setup->graph->threads;
    p->overlap = setup->overlap;
    p->even = setup->even;
    TRI_TRY(micros_make(p, setup));
    TRI_TRY(tables_make(p, setup));
    if (setup->graph->training)
        TRI_TRY(partial_make(p));
    p->chunks = tri_alloc_zero((size_t)p->each, sizeof(*p->chunks));
    if (!p->chunks)
        return TRI_ENOMEM;
    for (int local = 0; local < p->each; local++)
        TRI_TRY(chunk_make(p, setup, local));
    TRI_TRY(makers_find(p));
    return tri_pipe_tied_plan(p, setup);
}

tri_status tri_pipeline_create(const tri_pipeline_setup *setup, tri_pipeline **out)
{
    TRI_TRY(check_setup(setup));
    tri_pipeline *pipeline = tri_alloc_zero(1, sizeof(*pipeline));
    if (!pipeline)
        return TRI_ENOMEM;
    tri_status status = pipeline_fill(pipeline, setup);
    if (status != TRI_OK) {
        tri_pipeline_destroy(pipeline);
        return status;
    }
    *out = pipeline;
    return TRI_OK;
}

void tri_pipeline_destroy(tri_pipeline *pipeline)
{
    if (!pipeline)
        return;
    for (int i = 0; pipeline->works && i < pipeline->posted; i++)
        if (pipeline->works[i])
            (void)tri_work_wait(pipeline->works[i]);
    for (int c = 0; pipeline->chunks && c < pipeline->each; c++) {
        pipe_chunk *chunk = &pipeline->chunks[c];
        ring_fini(pipeline, &chunk->in);
        ring_fini(pipeline, &chunk->out);
        ring_fini(pipeline, &chunk->din);
        ring_fini(pipeline, &chunk->dout);
        tri_free(chunk->ranges);
        tri_graph_destroy(chunk->graph);
    }
    for (int level = 0; pipeline->partial && level < pipeline->levels; level++)
        tri_device_free(pipeline->params->device, pipeline->partial[level]);
    table_fini(&pipeline->train);
    table_fini(&pipeline->evaluate);
    tri_free(pipeline->partial);
    tri_free(pipeline->chunks);
    tri_free(pipeline->works);
    tri_free(pipeline->makers);
    tri_free(pipeline->tied);
    tri_free(pipeline->micros);
    tri_free(pipeline->sums);
    tri_free(pipeline);
}

/* --- what it is like --- */

static bool some_chunk_reads(const tri_pipeline *pipeline, bool target)
{
    for (int c = 0; c < pipeline->each; c++) {
        const tri_span *span = tri_graph_span(pipeline->chunks[c].graph);
        if (target ? span->has_target : span->has_input)
            return true;
    }
    return false;
}

bool tri_pipeline_reads_input(const tri_pipeline *pipeline)
{
    return some_chunk_reads(pipeline, false);
}

bool tri_pipeline_reads_target(const tri_pipeline *pipeline)
{
    return some_chunk_reads(pipeline, true);
}

void tri_pipeline_hooks_set(tri_pipeline *pipeline, const tri_graph_hooks *hooks)
{
    tri_graph_hooks each = *hooks;
    each.begin = NULL;
    pipeline->hooks = *hooks;
    for (int c = 0; c < pipeline->each; c++)
        tri_graph_hooks_set(pipeline->chunks[c].graph, &each);
}

void tri_pipeline_across_set(tri_pipeline *pipeline, const tri_op_ranks *across)
{
    for (int c = 0; c < pipeline->each; c++)
        tri_graph_across_set(pipeline->chunks[c].graph, across);
}

void tri_pipeline_loss_scale(tri_pipeline *pipeline, float scale)
{
    for (int c = 0; c < pipeline->each; c++)
        tri_graph_loss_scale(pipeline->chunks[c].graph, scale);
}

double tri_pipeline_flops(const tri_pipeline *pipeline)
{
    double flops = 0;
    for (int c = 0; c < pipeline->each; c++)
        flops += tri_graph_flops(pipeline->chunks[c].graph);
    return flops;
}
