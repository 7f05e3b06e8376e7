/* SPDX-License-Identifier: Apache-2.0
 *
 * state_shards_move.c: elements from the shards of an old layout to those of a new one.
 *
 * Every rank says which elements of which tensors it has, and which it needs; all form the same list of ways between
 * them, and keep those that are their own. Then the tensors pass by in windows, of which each rank sends every other
 * one what is on its way there: elements of whole tensors from array to array, those of cut tensors packed.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "train/elastic/pairs_move.h"
#include "train/elastic/state_shard.h"

#define UNDER_WAY_NBYTES (INT64_C(8) << 20) /* at a rank, about: little enough for its caches */
#define WINDOW_MIN       (INT64_C(1) << 16)
#define WINDOW_WHOLE     (INT64_C(1) << 25) /* where nothing is packed: soon enough for the time limit of a call */

/* What one rank has or needs of a tensor: number `index` of the list of its shard `item`. */
typedef struct end {
    tri_extent extent;
    int item, index;
} end;

/* Elements that one end has and the other needs; of each window part `part` of `parts`: others who have them too send
 * the rest. */
typedef struct way {
    const end *from, *to;
    int part, parts;
} way;

typedef struct room {
    float *values;
    int64_t count;
} room;

typedef struct move {
    tri_group *group;
    int rank, ranks;
    const tri_tensors *tensors;
    const tri_state_shard *from[2], *to[2];
    tri_state_shard_views views_from[2], views_to[2];
    tri_vector sources, wants; /* of end, of all ranks, in order of tensors; wants of one kind of arrays */
    int *first_of;             /* [tensors + 1] among the sources */
    tri_vector ways;           /* of way, from or to this rank */
    bool cuts;                 /* some tensor is cut into pieces; the same on all ranks */
    int64_t window;            /* elements */
    room out, in;              /* what leaves, and what comes, of one window */
    int64_t *to_counts, *from_counts, *to_firsts,
        *from_firsts; /* [ranks] elements to each, from each, where they are */
    float *array_from[2], *array_to[2];
} move;

/* --- who has what --- */

enum { ROW_ITEM = TRI_EXTENT_ROW, ROW_INDEX, ROW_COUNT };

static tri_status rows_append(const tri_vector *extents, int item, tri_vector *rows)
{
    rows->each = ROW_COUNT * sizeof(int64_t);
    for (size_t i = 0; i < extents->count; i++) {
        int64_t row[ROW_COUNT];
        tri_extent_write(tri_vector_at(extents, i), row);
        row[ROW_ITEM] = item;
        row[ROW_INDEX] = (int64_t)i;
        if (!tri_vector_push(rows, row))
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

static int end_order(const void *a, const void *b)
{
    const end *left = a, *right = b;
    if (left->extent.tensor != right->extent.tensor)
        return left->extent.tensor < right->extent.tensor ? -1 : 1;
    if (left->extent.rank != right->extent.rank)
        return left->extent.rank < right->extent.rank ? -1 : 1;
    if (left->item != right->item)
        return left->item < right->item ? -1 : 1;
    return (left->index > right->index) - (left->index < right->index);
}

static tri_status row_read(const move *m, const int64_t *row, int rank, tri_vector *ends)
{
    end one = {.item = (int)row[ROW_ITEM], .index = (int)row[ROW_INDEX]};
    TRI_TRY(tri_extent_read(m->tensors, row, rank, &one.extent));
    return tri_vector_push(ends, &one) ? TRI_OK : TRI_ENOMEM;
}

static tri_status rows_gather(const move *m, const tri_vector *rows, int64_t *counts, int64_t **all)
{
    int64_t total = 0, mine = (int64_t)rows->count * ROW_COUNT;
    TRI_TRY(tri_all_gather(m->group, &mine, counts, 1, TRI_I64, NULL));
    for (int r = 0; r < m->ranks; r++)
        total += counts[r];
    *all = tri_alloc((size_t)(total + 1) * sizeof(int64_t));
    if (!*all)
        return TRI_ENOMEM;
    tri_blocks blocks = {counts, NULL};
    return tri_all_gather_v(m->group, mine > 0 ? rows->items : *all, *all, &blocks, TRI_I64, NULL);
}

/* Rows of this rank to ends of all. */
static tri_status ends_exchange(const move *m, const tri_vector *rows, tri_vector *ends)
{
    int64_t *all = NULL, *counts = tri_alloc((size_t)m->ranks * sizeof(int64_t));
    ends->each = sizeof(end);
    ends->count = 0;
    tri_status status = counts ? rows_gather(m, rows, counts, &all) : TRI_ENOMEM;
    const int64_t *row = all;
    for (int r = 0; status == TRI_OK && r < m->ranks; r++)
        for (int64_t i = 0; status == TRI_OK && i < counts[r]; i += ROW_COUNT, row += ROW_COUNT)
            status = row_read(m, row, r, ends);
    if (status == TRI_OK && ends->count > 0)
        qsort(ends->items, ends->count, sizeof(end), end_order);
    tri_free(all);
    tri_free(counts);
    return status;
}

/* lists: of extents of this rank's shards, NULL where there is none. */
static tri_status ends_find(const move *m, const tri_vector *const lists[2], tri_vector *ends)
{
    tri_vector rows = {0};
    tri_status status = TRI_OK;
    for (int i = 0; i < 2 && status == TRI_OK; i++)
        if (lists[i])
            status = rows_append(lists[i], i, &rows);
    if (status == TRI_OK)
        status = ends_exchange(m, &rows, ends);
    tri_vector_fini(&rows);
    return status;
}

/* Where the elements of this rank's ends are is known to itself alone. */
static void places_set(const move *m, const tri_vector *const lists[2], tri_vector *ends)
{
    for (size_t i = 0; i < ends->count; i++) {
        end *one = tri_vector_at(ends, i);
        if (one->extent.rank == m->rank)
            one->extent.at = ((tri_extent *)tri_vector_at(lists[one->item], (size_t)one->index))->at;
    }
}

/* --- the ways --- */

static bool is_same(const tri_extent *a, const tri_extent *b)
{
    return tri_piece_equal(a->piece, b->piece) && a->low == b->low && a->high == b->high;
}

/* Of those that have the same, the one who needs it; NULL: it has not. */
static const end *own_find(const end *all, int count, const end *like, int wanted_by)
{
    for (int i = 0; i < count; i++)
        if (is_same(&all[i].extent, &like->extent) && all[i].extent.rank == wanted_by)
            return &all[i];
    return NULL;
}

/* How many have the same as all[i]; 0 unless it is the first of them. */
static int same_count(const end *all, int count, int i)
{
    int same = 0;
    for (int other = 0; other < count; other++) {
        if (!is_same(&all[other].extent, &all[i].extent))
            continue;
        if (other < i)
            return 0;
        same++;
    }
    return same;
}

/* Pieces that are cut in different ways may meet anywhere. */
static bool may_meet(const tri_extent *a, const tri_extent *b)
{
    return !tri_piece_equal(a->piece, b->piece) || (a->low < b->high && b->low < a->high);
}

static tri_status way_add(move *m, way one)
{
    bool mine = one.from->extent.rank == m->rank || one.to->extent.rank == m->rank;
    return !mine || tri_vector_push(&m->ways, &one) ? TRI_OK : TRI_ENOMEM;
}

/* From all that have the same as `like`, each a part. */
static tri_status ways_of(move *m, const end *all, int count, const end *like, const end *want, int same)
{
    const end *own = own_find(all, count, like, want->extent.rank);
    if (own)
        return way_add(m, (way){own, want, 0, 1});
    for (int i = 0, part = 0; i < count; i++)
        if (is_same(&all[i].extent, &like->extent))
            TRI_TRY(way_add(m, (way){&all[i], want, part++, same}));
    return TRI_OK;
}

static tri_status ways_to(move *m, const end *want)
{
    int first = m->first_of[want->extent.tensor], count = m->first_of[want->extent.tensor + 1] - first;
    const end *all = (const end *)m->sources.items + first;
    for (int i = 0; i < count; i++) {
        int same = may_meet(&all[i].extent, &want->extent) ? same_count(all, count, i) : 0;
        if (same > 0)
            TRI_TRY(ways_of(m, all, count, &all[i], want, same));
    }
    return TRI_OK;
}

/* --- windows --- */

/* Elements of a way in a part of its tensor, from an array or from `packed` (NULL), to an array or to `packed` (NULL);
 * with neither array only counted. Returns how many. */
static int64_t way_move(const way *one, tri_slice part, const float *from_array, float *to_array, float *packed)
{
    const tri_extent *from = &one->from->extent, *to = &one->to->extent;
    int64_t done = 0, run, run_to;
    for (int64_t place = part.first, last = part.first + part.count; place < last; place += run) {
        int64_t at_from = tri_piece_find(from->shape, from->piece, place, &run);
        int64_t at_to = tri_piece_find(to->shape, to->piece, place, &run_to);
        run = run < run_to ? run : run_to;
        run = run < last - place ? run : last - place;
        if (at_from < 0 || at_to < 0)
            continue;
        int64_t skip = from->low - at_from > to->low - at_to ? from->low - at_from : to->low - at_to;
        int64_t stop = from->high - at_from < to->high - at_to ? from->high - at_from : to->high - at_to;
        skip = skip > 0 ? skip : 0;
        stop = stop < run ? stop : run;
        if (skip >= stop)
            continue;
        if (from_array || to_array)
            memcpy(to_array ? to_array + to->at + at_to - to->low + skip : packed + done,
                   from_array ? from_array + from->at + at_from - from->low + skip : packed + done,
                   (size_t)(stop - skip) * sizeof(float));
        done += stop - skip;
    }
    return done;
}

/* Whole tensors are in arrays as they are: what of a part goes this way is one run at either end. */
static bool is_run(const way *one)
{
    return one->from->extent.piece.parts == 0 && one->to->extent.piece.parts == 0;
}

static tri_slice run_of(const way *one, tri_slice part)
{
    const tri_extent *from = &one->from->extent, *to = &one->to->extent;
    int64_t low = from->low > to->low ? from->low : to->low, high = from->high < to->high ? from->high : to->high;
    low = part.first > low ? part.first : low;
    high = part.first + part.count < high ? part.first + part.count : high;
    return (tri_slice){low, high > low ? high - low : 0};
}

/* What of a window of all elements goes this way, in its tensor; count <= 0: nothing. */
static tri_slice part_of(const move *m, const way *one, tri_slice window)
{
    const tri_tensor_row *tensor = &m->tensors->items[one->from->extent.tensor];
    int64_t first = window.first > tensor->first ? window.first - tensor->first : 0;
    int64_t stop = window.first + window.count - tensor->first;
    int64_t count = (stop < tensor->count ? stop : tensor->count) - first;
    if (count <= 0)
        return (tri_slice){0, 0};
    int64_t low = count * one->part / one->parts, high = count * (one->part + 1) / one->parts;
    return (tri_slice){first + low, high - low};
}

static tri_status room_make(room *of, int64_t count)
{
    if (count <= of->count)
        return TRI_OK;
    tri_free(of->values);
    of->values = tri_alloc_bulk((size_t)count * sizeof(float));
    of->count = of->values ? count : 0;
    return of->values ? TRI_OK : TRI_ENOMEM;
}

/* Counts what goes to and comes from each rank; what stays here goes there at once. */
static tri_status window_count(move *m, tri_slice window)
{
    int64_t out = 0, in = 0;
    memset(m->to_counts, 0, (size_t)m->ranks * sizeof(int64_t));
    memset(m->from_counts, 0, (size_t)m->ranks * sizeof(int64_t));
    for (size_t i = 0; i < m->ways.count; i++) {
        const way *one = tri_vector_at(&m->ways, i);
        tri_slice part = part_of(m, one, window);
        int giver = one->from->extent.rank, taker = one->to->extent.rank;
        if (part.count > 0 && giver == taker)
            (void)way_move(one, part, m->array_from[one->from->item], m->array_to[one->to->item], NULL);
        else if (part.count > 0 && !is_run(one))
            (giver == m->rank ? m->to_counts : m->from_counts)[giver == m->rank ? taker : giver] +=
                way_move(one, part, NULL, NULL, NULL);
    }
    for (int r = 0; r < m->ranks; out += m->to_counts[r], in += m->from_counts[r], r++) {
        m->to_firsts[r] = out;
        m->from_firsts[r] = in;
    }
    TRI_TRY(room_make(&m->out, out));
    return room_make(&m->in, in);
}

/* To the packed elements of all ranks, or from them. */
static void window_pack(move *m, tri_slice window, bool gives)
{
    int64_t *firsts = gives ? m->to_firsts : m->from_firsts, *counts = gives ? m->to_counts : m->from_counts;
    for (size_t i = 0; i < m->ways.count; i++) {
        const way *one = tri_vector_at(&m->ways, i);
        tri_slice part = part_of(m, one, window);
        int giver = one->from->extent.rank, taker = one->to->extent.rank, other = gives ? taker : giver;
        if (part.count <= 0 || giver == taker || is_run(one) || (gives ? giver : taker) != m->rank)
            continue;
        firsts[other] +=
            way_move(one, part, gives ? m->array_from[one->from->item] : NULL,
                     gives ? NULL : m->array_to[one->to->item], (gives ? m->out : m->in).values + firsts[other]);
    }
    for (int r = 0; r < m->ranks; r++)
        firsts[r] -= counts[r];
}

/* From array to array. */
static tri_status runs_note(const move *m, tri_slice window)
{
    for (size_t i = 0; i < m->ways.count; i++) {
        const way *one = tri_vector_at(&m->ways, i);
        const tri_extent *from = &one->from->extent, *to = &one->to->extent;
        if (from->rank == to->rank || !is_run(one))
            continue;
        tri_slice run = run_of(one, part_of(m, one, window));
        if (run.count > 0 && from->rank == m->rank)
            TRI_TRY(tri_send(m->group, m->array_from[one->from->item] + from->at + run.first - from->low, run.count,
                             TRI_F32, to->rank, NULL));
        else if (run.count > 0)
            TRI_TRY(tri_receive(m->group, m->array_to[one->to->item] + to->at + run.first - to->low, run.count, TRI_F32,
                                from->rank, NULL));
    }
    return TRI_OK;
}

/* *work and *batch: NULL where nothing is under way. */
static tri_status runs_start(const move *m, tri_slice window, tri_batch **batch, tri_work **work)
{
    TRI_TRY(tri_batch_begin(m->group));
    tri_status status = runs_note(m, window);
    tri_status ended = tri_batch_end(m->group, batch);
    TRI_TRY(status);
    TRI_TRY(ended);
    return tri_batch_run(*batch, work);
}

/* What stays here, and what travels packed. */
static tri_status rest_move(move *m, tri_slice window)
{
    TRI_TRY(window_count(m, window));
    if (!m->cuts || m->ranks == 1)
        return TRI_OK;
    window_pack(m, window, true);
    tri_blocks out = {m->to_counts, m->to_firsts}, in = {m->from_counts, m->from_firsts};
    TRI_TRY(tri_pairs_move(m->group, m->rank, m->ranks, m->out.values, &out, m->in.values, &in));
    window_pack(m, window, false);
    return TRI_OK;
}

/* The rest is done while runs are under way. */
static tri_status window_move(move *m, tri_slice window)
{
    tri_batch *batch = NULL;
    tri_work *work = NULL;
    tri_status status = m->ranks > 1 ? runs_start(m, window, &batch, &work) : TRI_OK;
    if (status == TRI_OK)
        status = rest_move(m, window);
    tri_status ended = work ? tri_work_wait(work) : TRI_OK;
    tri_batch_destroy(batch);
    return status == TRI_OK ? ended : status;
}

/* --- arrays --- */

static tri_status array_move(move *m, int array)
{
    for (int i = 0; i < 2; i++) {
        m->array_from[i] = m->views_from[i].arrays[array].host;
        m->array_to[i] = m->views_to[i].arrays[array].host;
    }
    for (int64_t low = 0; low < m->tensors->total; low += m->window)
        TRI_TRY(window_move(m, (tri_slice){low, m->window}));
    for (int i = 0; i < 2; i++)
        if (array < m->views_to[i].count)
            tri_device_view_write(&m->views_to[i].arrays[array]);
    return TRI_OK;
}

static bool is_cut(const tri_vector *ends)
{
    bool cut = false;
    for (size_t i = 0; i < ends->count; i++)
        cut = cut || ((const end *)tri_vector_at(ends, i))->extent.piece.parts > 0;
    return cut;
}

static int64_t window_of(const move *m)
{
    int64_t window = UNDER_WAY_NBYTES / (int64_t)sizeof(float) / 2 / m->ranks;
    if (!m->cuts)
        return WINDOW_WHOLE;
    return window > WINDOW_MIN ? window : WINDOW_MIN;
}

/* Arrays that are alike: weights, or state. */
static tri_status kind_move(move *m, bool weights, int first, int count)
{
    const tri_vector *from[2], *to[2];
    for (int i = 0; i < 2; i++) {
        from[i] = !m->from[i] ? NULL : weights ? &m->from[i]->held_values : &m->from[i]->held;
        to[i] = !m->to[i] ? NULL : weights ? &m->to[i]->wanted_values : &m->to[i]->held;
    }
    TRI_TRY(ends_find(m, to, &m->wants));
    places_set(m, from, &m->sources);
    places_set(m, to, &m->wants);
    m->cuts = is_cut(&m->sources) || is_cut(&m->wants);
    m->window = window_of(m);
    m->ways.count = 0;
    for (size_t i = 0; i < m->wants.count; i++)
        TRI_TRY(ways_to(m, tri_vector_at(&m->wants, i)));
    for (int array = first; array < first + count; array++)
        TRI_TRY(array_move(m, array));
    return TRI_OK;
}

static tri_status move_open(move *m)
{
    int64_t *counts = tri_alloc_zero((size_t)m->ranks * 4, sizeof(int64_t));
    if (!counts)
        return TRI_ENOMEM;
    m->to_counts = counts;
    m->from_counts = counts + m->ranks;
    m->to_firsts = counts + 2 * m->ranks;
    m->from_firsts = counts + 3 * m->ranks;
    m->ways.each = sizeof(way);
    TRI_TRY(room_make(&m->out, WINDOW_MIN)); /* some, also where nothing leaves or comes */
    TRI_TRY(room_make(&m->in, WINDOW_MIN));
    for (int i = 0; i < 2; i++) {
        if (m->from[i])
            TRI_TRY(tri_state_shard_views_open(m->from[i], &m->views_from[i]));
        if (m->to[i])
            TRI_TRY(tri_state_shard_views_open(m->to[i], &m->views_to[i]));
    }
    const tri_vector *held[2] = {m->from[0] ? &m->from[0]->held : NULL, m->from[1] ? &m->from[1]->held : NULL};
    TRI_TRY(ends_find(m, held, &m->sources));
    m->first_of = tri_alloc_zero((size_t)m->tensors->count + 1, sizeof(int));
    if (!m->first_of)
        return TRI_ENOMEM;
    for (int t = 0, i = 0; t <= m->tensors->count; t++) {
        while (i < (int)m->sources.count && ((end *)tri_vector_at(&m->sources, (size_t)i))->extent.tensor < t)
            i++;
        m->first_of[t] = i;
    }
    return TRI_OK;
}

static void move_close(move *m)
{
    for (int i = 0; i < 2; i++) {
        tri_state_shard_views_close(&m->views_from[i]);
        tri_state_shard_views_close(&m->views_to[i]);
    }
    tri_vector_fini(&m->sources);
    tri_vector_fini(&m->wants);
    tri_vector_fini(&m->ways);
    tri_free(m->first_of);
    tri_free(m->out.values);
    tri_free(m->in.values);
    tri_free(m->to_counts);
}

tri_status tri_state_shards_move(tri_group *group, const tri_tensors *tensors, const tri_state_shard *const from[2],
                                 const tri_state_shard *const to[2], int states)
{
    move m = {.group = group,
              .rank = tri_group_rank(group),
              .ranks = tri_group_count(group),
              .tensors = tensors,
              .from = {from[0], from[1]},
              .to = {to[0], to[1]}};
    tri_group_name_next(group, "state");
    tri_status status = move_open(&m);
    if (status == TRI_OK)
        status = kind_move(&m, true, 0, 1);
    if (status == TRI_OK)
        status = kind_move(&m, false, 1, states);
    tri_group_name_next(group, "");
    move_close(&m);
    return status;
}
