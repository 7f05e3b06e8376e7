/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_split.c: a batch of keys as one message to each server that has some of them, and answers back to rows.
 *
 * Keys are brought in order, so that they take few bytes; who pulls a key twice asks once. A batch that is too long for
 * one message is cut into several before.
 */
#include "base/memory.h"
#include "ps/client/kv.h"
#include "ps/tables/rows.h"

/* Keys and values of one batch's rows, of all servers together: so few that they are merged while they are in the cache
 * that they were received into, and the next ones travel meanwhile. */
#define BATCH_NBYTES ((size_t)1 << 19)
/* Rows that are one piece of the caller's memory, and long enough to be sent from there. */
#define LENT_LEAST_NBYTES ((size_t)16 << 10)

void tri_ps_kv_scratch_fini(kv_scratch *scratch)
{
    tri_free(scratch->pairs);
    tri_free(scratch->keys);
    tri_free(scratch->values);
    *scratch = (kv_scratch){0};
}

static tri_status scratch_grow(kv_scratch *scratch, int64_t count, size_t values)
{
    if (count > scratch->room) {
        tri_free(scratch->pairs);
        tri_free(scratch->keys);
        scratch->pairs = tri_alloc((size_t)(2 * count) * sizeof(ps_pair));
        scratch->keys = tri_alloc((size_t)count * sizeof(uint64_t));
        scratch->room = scratch->pairs && scratch->keys ? count : 0;
        if (scratch->room == 0)
            return TRI_ENOMEM;
    }
    if (values > scratch->values_room) {
        tri_free(scratch->values);
        scratch->values = tri_alloc(values * sizeof(float));
        scratch->values_room = scratch->values ? values : 0;
        if (!scratch->values)
            return TRI_ENOMEM;
    }
    return TRI_OK;
}

/* Values of a row: those of an array's last one are fewer. */
static size_t floats_of(const tri_kv_table *table, int64_t row)
{
    int64_t dim = table->spec.table.dim, left = table->total - row * dim;
    return (size_t)(table->total > 0 && left < dim ? left : dim);
}

/* --- out --- */

static void row_list(const tri_kv_table *table, const kv_batch *batch, uint32_t row, bool again, float *to)
{
    size_t dim = (size_t)table->spec.table.dim, floats = floats_of(table, batch->first + row);
    const float *from = batch->rows + (size_t)row * dim;
    for (size_t e = 0; again && e < floats; e++)
        to[e] += from[e];
    if (again)
        return;
    memcpy(to, from, floats * sizeof(float));
    memset(to + floats, 0, (dim - floats) * sizeof(float));
}

/* Whether the row of a pair is that of the one before, with which it is pulled or added up. */
static bool is_again(const kv_batch *batch, const ps_pair *pairs, int64_t i)
{
    return i > 0 && pairs[i].key == pairs[i - 1].key && (!batch->rows || batch->adds);
}

/* Do the keys ascend? Then they are in order as they are. The caller's memory has small pages, and the machine by
 * itself looks ahead to the end of one: so the next page is asked for here (4 ns a line in place of 8). */
static bool keys_ascend(const uint64_t *keys, int64_t count)
{
    enum { BLOCK = 64, CONNECTION = 8, AHEAD = 4096 / sizeof(*keys) };
    bool ascend = true;
    for (int64_t first = 1; first < count && ascend; first += BLOCK) {
        int64_t end = first + BLOCK < count ? first + BLOCK : count;
        for (int64_t i = first + AHEAD; i < end + AHEAD && i < count; i += CONNECTION)
            __builtin_prefetch(keys + i);
        for (int64_t i = first; i < end; i++)
            ascend &= keys[i - 1] < keys[i];
    }
    return ascend;
}

/* What one server has of a batch. */
typedef struct kv_lot {
    int server;
    ps_slots slots;       /* of it */
    const ps_pair *pairs; /* [count]; NULL: all of the batch, as it is */
    int64_t count;
    bool is_near;
} kv_lot;

/* Their keys. Returns how many. */
static int64_t keys_list(const kv_batch *batch, const kv_lot *lot, uint64_t *keys, uint32_t *at)
{
    int64_t listed = 0;
    for (int64_t i = 0; i < lot->count; i++) {
        bool again = is_again(batch, lot->pairs, i);
        if (at)
            at[i] = (uint32_t)(batch->first + lot->pairs[i].at) | (again ? KV_SAME_KEY : 0);
        listed += !again;
        keys[listed - 1] = lot->pairs[i].key;
    }
    return listed;
}

/* Their rows, side by side. */
static void rows_list(const tri_kv_table *table, const kv_batch *batch, const kv_lot *lot, float *to)
{
    size_t dim = (size_t)table->spec.table.dim;
    for (int64_t i = 0, listed = -1; i < lot->count; i++) {
        bool again = is_again(batch, lot->pairs, i);
        listed += !again;
        row_list(table, batch, lot->pairs[i].at, again, to + (size_t)listed * dim);
    }
}

/* The rows where they are one piece of the caller's memory, none of them short; or NULL. */
static const float *rows_lie(const tri_kv_table *table, const kv_batch *batch, const kv_lot *lot)
{
    size_t dim = (size_t)table->spec.table.dim;
    if (!batch->rows || lot->count == 0)
        return NULL;
    for (int64_t i = 0; lot->pairs && i < lot->count; i++)
        if (lot->pairs[i].at != lot->pairs[0].at + i || is_again(batch, lot->pairs, i))
            return NULL;
    uint32_t first = lot->pairs ? lot->pairs[0].at : 0;
    bool is_short = floats_of(table, batch->first + first + lot->count - 1) < dim;
    return is_short ? NULL : batch->rows + (size_t)first * dim;
}

/* Behind the keys: values of f32 are listed where they are sent from. Returns their bytes. */
static size_t values_write(const tri_kv_table *table, const kv_batch *batch, const kv_lot *lot, const float *lie,
                           int64_t listed, unsigned char *to)
{
    int64_t dim = table->spec.table.dim;
    const ps_wire *wire = &ps_wires[table->spec.table.values];
    float *values = table->spec.table.values == PS_WIRE_F32 ? (float *)(void *)to : table->kv->scratch.values;
    if (!batch->rows)
        return 0;
    if (!lie)
        rows_list(table, batch, lot, values);
    if (lie || table->spec.table.values != PS_WIRE_F32)
        wire->write(lie ? lie : values, listed * dim, dim, to, NULL);
    return wire->nbytes(listed * dim, dim);
}

/* Keys that are sent from where they are, and rows so too or none: the body of the call is what is before them.
 * False: they are not. */
static bool keys_lend(const kv_batch *batch, const kv_lot *lot, bool lends_rows, ps_call *call)
{
    size_t nbytes = (size_t)lot->count * sizeof(uint64_t);
    if (lot->pairs || !lot->is_near || !batch->lends || (batch->rows && !lends_rows) || nbytes < LENT_LEAST_NBYTES)
        return false;
    call->body = tri_alloc(PS_ROWS_HEAD_NBYTES);
    if (!call->body || ps_rows_head_write(&lot->slots, call->body) == 0) {
        tri_free(call->body);
        call->body = NULL;
        return false;
    }
    call->lent[0] = (tri_part){batch->keys, nbytes};
    call->head.block = (uint32_t)lot->count;
    call->head.nbytes = PS_ROWS_HEAD_NBYTES + nbytes;
    return true;
}

/* What a server may know them by; `end` is that of the keys' bytes. */
static void keys_hash(const tri_kv_table *table, const uint64_t *keys, int64_t count, uint64_t end, ps_call *call)
{
    if (table->spec.table.consistency != PS_ASYNC || count < PS_LIST_LEAST)
        return;
    call->hash = XXH3_128bits(keys, (size_t)count * sizeof(*keys));
    call->keys_nbytes = (size_t)end - sizeof(ps_slots);
}

/* Slots, keys, and values but those that are sent from where they are. TRI_ENOMEM. */
static tri_status body_make(const tri_kv_table *table, const kv_batch *batch, const kv_lot *lot, ps_call *call)
{
    kv_scratch *scratch = &table->kv->scratch;
    int dim = (int)table->spec.table.dim, wire = table->spec.table.values;
    const float *lie = rows_lie(table, batch, lot);
    size_t nbytes = (size_t)lot->count * (size_t)dim * sizeof(float);
    bool lends = lie && batch->lends && wire == PS_WIRE_F32 && nbytes >= LENT_LEAST_NBYTES;
    if (keys_lend(batch, lot, lends, call)) {
        keys_hash(table, batch->keys, lot->count, call->head.nbytes, call);
        if (lends)
            call->lent[1] = (tri_part){lie, nbytes};
        call->head.nbytes += call->lent[1].nbytes;
        return TRI_OK;
    }
    ps_rows_body body = {.slots = lot->slots, .keys = lot->pairs ? scratch->keys : batch->keys, .count = lot->count};
    if (lot->pairs && call->pulls)
        call->at = tri_alloc((size_t)lot->count * sizeof(uint32_t));
    if (lot->pairs && call->pulls && !call->at)
        return TRI_ENOMEM;
    if (lot->pairs)
        body.count = keys_list(batch, lot, scratch->keys, call->at);
    call->body = tri_alloc(ps_rows_body_limit(body.count, dim, wire, batch->rows && !lends));
    if (!call->body)
        return TRI_ENOMEM;
    call->head.block = (uint32_t)body.count;
    call->head.nbytes = ps_rows_body_write(&body, dim, wire, lot->is_near, call->body); /* a multiple of 8 */
    keys_hash(table, body.keys, body.count, call->head.nbytes, call);
    if (lends)
        call->lent[1] = (tri_part){lie, nbytes};
    call->head.nbytes +=
        lends ? nbytes : values_write(table, batch, lot, lie, body.count, call->body + call->head.nbytes);
    return TRI_OK;
}

static ps_call *call_make(tri_kv_table *table, const kv_batch *batch, const kv_lot *lot, bool pulls)
{
    int64_t dim = table->spec.table.dim;
    ps_call *call = tri_alloc_zero(1, sizeof(*call));
    if (!call)
        return NULL;
    *call = (ps_call){.server = lot->server,
                      .head = {.kind = batch->kind,
                               .flags = batch->flags,
                               .clock = table->step,
                               .table = table->id,
                               .part = batch->part},
                      .pulls = pulls,
                      .first = batch->first,
                      .count = lot->count,
                      .of_slots = true,
                      .slots = lot->slots,
                      .spec = &table->spec};
    if (body_make(table, batch, lot, call) != TRI_OK) {
        tri_ps_kv_call_free(call);
        return NULL;
    }
    int64_t values = (int64_t)call->head.block * dim;
    call->weight =
        TRI_MESSAGE_NBYTES + call->head.nbytes + (pulls ? ps_wires[table->spec.table.values].nbytes(values, dim) : 0);
    return call;
}

/* In order of servers, then of keys, equal ones in the caller's order: firsts[s] is where those of server s begin. */
static void pairs_make(const tri_kv_table *table, const int owners[PS_SLOTS], const kv_batch *batch, ps_pair *pairs,
                       ps_pair *spare, int64_t firsts[PS_MAX_SERVERS + 1])
{
    int servers = table->kv->client->setup.servers;
    int64_t next[PS_MAX_SERVERS] = {0};
    for (int64_t i = 0; i < batch->count; i++) {
        uint32_t server = (uint32_t)owners[ps_key_slot(batch->keys[i])];
        spare[i] = (ps_pair){.key = batch->keys[i], .part = server, .at = (uint32_t)i};
        next[server]++;
    }
    firsts[0] = 0;
    for (int s = 0; s < servers; s++) {
        firsts[s + 1] = firsts[s] + next[s];
        next[s] = firsts[s];
    }
    for (int64_t i = 0; i < batch->count; i++)
        pairs[next[spare[i].part]++] = spare[i];
    for (int s = 0; s < servers && !keys_ascend(batch->keys, batch->count); s++)
        ps_pairs_sort(pairs + firsts[s], spare, firsts[s + 1] - firsts[s]);
}

/* Who has what, at this moment: the client's thread may learn of a change at any time. */
static void owners_copy(tri_ps_client *client, int owners[PS_SLOTS], kv_lot lots[PS_MAX_SERVERS])
{
    tri_mutex_lock(&client->mutex);
    memcpy(owners, client->view.slots, sizeof(client->view.slots));
    for (int s = 0; s < client->setup.servers; s++)
        lots[s] = (kv_lot){.server = s, .slots = client->kv->slots[s], .is_near = client->kv->links[s].is_near};
    tri_mutex_unlock(&client->mutex);
}

static bool is_full(const ps_slots *slots)
{
    return (slots->bits[0] & slots->bits[1]) == UINT64_MAX;
}

static tri_status lots_make(const tri_kv_table *table, const kv_batch *batch, kv_lot lots[PS_MAX_SERVERS])
{
    kv_scratch *scratch = &table->kv->scratch;
    int servers = table->kv->client->setup.servers, owners[PS_SLOTS];
    int64_t firsts[PS_MAX_SERVERS + 1];
    owners_copy(table->kv->client, owners, lots);
    bool is_short =
        batch->count > 0 && floats_of(table, batch->first + batch->count - 1) < (size_t)table->spec.table.dim;
    if (is_full(&lots[owners[0]].slots) && !is_short && keys_ascend(batch->keys, batch->count)) {
        lots[owners[0]].count = batch->count;
        return TRI_OK;
    }
    TRI_TRY(scratch_grow(scratch, batch->count + 1,
                         batch->rows && table->spec.table.values != PS_WIRE_F32
                             ? (size_t)batch->count * (size_t)table->spec.table.dim
                             : 0));
    pairs_make(table, owners, batch, scratch->pairs, scratch->pairs + scratch->room, firsts);
    for (int s = 0; s < servers; s++) {
        lots[s].pairs = scratch->pairs + firsts[s];
        lots[s].count = firsts[s + 1] - firsts[s];
    }
    return TRI_OK;
}

static tri_status split_once(tri_kv_table *table, const kv_batch *batch, tri_kv_work *work)
{
    int servers = table->kv->client->setup.servers;
    bool pulls = batch->kind == PS_KV_PULL || batch->flags & PS_FLAG_PULL;
    kv_lot lots[PS_MAX_SERVERS];
    TRI_TRY(lots_make(table, batch, lots));
    for (int s = 0; s < servers; s++) {
        if (lots[s].count == 0 && !(batch->to_all && (lots[s].slots.bits[0] | lots[s].slots.bits[1])))
            continue;
        ps_call *call = call_make(table, batch, &lots[s], pulls);
        if (!call)
            return TRI_ENOMEM;
        call->work = work;
        TRI_TRY(tri_ps_kv_call(table->kv->client, call));
    }
    return TRI_OK;
}

tri_status tri_ps_kv_split(tri_kv_table *table, const kv_batch *batch, tri_kv_work *work)
{
    size_t row = (size_t)table->spec.table.dim * sizeof(float) + sizeof(uint64_t);
    int64_t most = (int64_t)(BATCH_NBYTES / row) + 1;
    if (batch->count < 0 || batch->count > PS_ROWS_MAX)
        return tri_fail(TRI_EINVAL, "table '%s': want 0 to %lld rows, got %lld", table->spec.name,
                        (long long)PS_ROWS_MAX, (long long)batch->count);
    if (batch->to_all || batch->count <= most) {
        size_t nbytes =
            ps_rows_body_limit(batch->count, (int)table->spec.table.dim, table->spec.table.values, batch->rows);
        if (nbytes > PS_BODY_LIMIT_NBYTES)
            return tri_fail(TRI_EINVAL, "table '%s': rows of one step's shards: want at most %zu bytes, got %zu",
                            table->spec.name, PS_BODY_LIMIT_NBYTES, nbytes);
        return split_once(table, batch, work);
    }
    for (int64_t first = 0; first < batch->count; first += most) {
        kv_batch some = *batch;
        some.first = first;
        some.keys += first;
        some.rows = batch->rows ? batch->rows + (size_t)first * (size_t)table->spec.table.dim : NULL;
        some.count = batch->count - first < most ? batch->count - first : most;
        TRI_TRY(split_once(table, &some, work));
    }
    return TRI_OK;
}

/* --- in --- */

static void rows_scatter(const ps_call *call, const tri_kv_work *work, const float *values)
{
    const tri_kv_table *table = work->table;
    size_t dim = (size_t)table->spec.table.dim;
    const float *from = values - dim;
    for (int64_t i = 0; i < call->count; i++) {
        uint32_t at = ps_call_at(call, i), row = at & ~KV_SAME_KEY;
        if (!(at & KV_SAME_KEY))
            from += dim;
        memcpy(work->rows + (size_t)row * dim, from, floats_of(table, row) * sizeof(float));
    }
}

tri_status tri_ps_kv_scatter(const ps_call *call, const tri_kv_work *work, const void *body, size_t nbytes)
{
    const ps_kv_spec *spec = &work->table->spec;
    const ps_wire *wire = &ps_wires[spec->table.values];
    int64_t dim = spec->table.dim, count = (int64_t)call->head.block * dim;
    if (nbytes != wire->nbytes(count, dim))
        return tri_fail(TRI_EFORMAT, "table '%s': parameter server %d: want %zu bytes of rows, got %zu", spec->name,
                        call->server, wire->nbytes(count, dim), nbytes);
    if (nbytes == 0)
        return TRI_OK;
    if (spec->table.values == PS_WIRE_F32) {
        rows_scatter(call, work, body);
        return TRI_OK;
    }
    float *values = tri_alloc((size_t)count * sizeof(float));
    if (!values)
        return TRI_ENOMEM;
    wire->read(body, count, dim, values);
    rows_scatter(call, work, values);
    tri_free(values);
    return TRI_OK;
}
