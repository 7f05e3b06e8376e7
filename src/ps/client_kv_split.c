/* SPDX-License-Identifier: Apache-2.0
 *
 * client_kv_split.c: a batch of keys as one letter to each server that has some of them, and answers back to rows.
 *
 * Keys are brought in order, so that they take few bytes; who pulls a key twice asks once. A batch that is too long for
 * one letter is cut into several before.
 */
#include "base/memory.h"
#include "ps/client_kv.h"
#include "ps/rows.h"

/* Values of one batch's rows, of all servers together: so few that they are merged while they are in the cache that
 * they were received into, and the next ones travel meanwhile. */
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

/* Keys of the pairs [0, count) of one server. Returns how many. */
static int64_t keys_list(const kv_batch *batch, const ps_pair *pairs, int64_t count, uint64_t *keys, uint32_t *at)
{
    int64_t listed = 0;
    for (int64_t i = 0; i < count; i++) {
        bool again = is_again(batch, pairs, i);
        if (at)
            at[i] = pairs[i].at | (again ? KV_SAME_KEY : 0);
        listed += !again;
        keys[listed - 1] = pairs[i].key;
    }
    return listed;
}

/* Their rows, side by side. */
static void rows_list(const tri_kv_table *table, const kv_batch *batch, const ps_pair *pairs, int64_t count, float *to)
{
    size_t dim = (size_t)table->spec.table.dim;
    for (int64_t i = 0, listed = -1; i < count; i++) {
        bool again = is_again(batch, pairs, i);
        listed += !again;
        row_list(table, batch, pairs[i].at, again, to + (size_t)listed * dim);
    }
}

/* Are the rows of the pairs one piece of the caller's memory, to be sent as they lie? */
static bool are_lent(const tri_kv_table *table, const kv_batch *batch, const ps_pair *pairs, int64_t count)
{
    size_t dim = (size_t)table->spec.table.dim;
    if (!batch->lends || table->spec.wire != PS_WIRE_F32 || (size_t)count * dim * sizeof(float) < LENT_LEAST_NBYTES)
        return false;
    for (int64_t i = 0; i < count; i++)
        if (pairs[i].at != pairs[0].at + i || is_again(batch, pairs, i))
            return false;
    return floats_of(table, batch->first + pairs[count - 1].at) == dim;
}

/* Behind the keys: values of f32 are listed where they are sent from. Returns their bytes. */
static size_t values_write(const tri_kv_table *table, const kv_batch *batch, const ps_pair *pairs, int64_t count,
                           int64_t listed, unsigned char *to)
{
    int64_t dim = table->spec.table.dim;
    const ps_wire *wire = &ps_wires[table->spec.wire];
    float *values = table->kv->scratch.values;
    if (!batch->rows)
        return 0;
    if (table->spec.wire == PS_WIRE_F32) {
        rows_list(table, batch, pairs, count, (float *)(void *)to);
    } else {
        rows_list(table, batch, pairs, count, values);
        wire->write(values, listed * dim, dim, to, NULL);
    }
    return wire->nbytes(listed * dim, dim);
}

static ps_call *call_make(tri_kv_table *table, const kv_batch *batch, int server, const ps_slots *slots,
                          const ps_pair *pairs, int64_t count, bool pulls)
{
    kv_scratch *scratch = &table->kv->scratch;
    int dim = (int)table->spec.table.dim, wire = table->spec.wire;
    ps_call *call = tri_alloc_zero(1, sizeof(*call));
    if (call && pulls)
        call->at = tri_alloc((size_t)count * sizeof(uint32_t));
    if (!call || (pulls && !call->at)) {
        tri_ps_kv_call_free(call);
        return NULL;
    }
    int64_t listed = keys_list(batch, pairs, count, scratch->keys, call->at);
    ps_rows_body body = {.slots = *slots, .keys = scratch->keys, .count = listed};
    bool lent = are_lent(table, batch, pairs, count);
    call->body = tri_alloc(ps_rows_body_limit(listed, dim, wire, batch->rows && !lent));
    if (!call->body) {
        tri_ps_kv_call_free(call);
        return NULL;
    }
    size_t nbytes = ps_rows_body_write(&body, dim, wire, call->body); /* a multiple of 8 */
    if (lent)
        call->lent =
            (tri_part){batch->rows + (size_t)pairs[0].at * (size_t)dim, (size_t)count * (size_t)dim * sizeof(float)};
    else
        nbytes += values_write(table, batch, pairs, count, listed, call->body + nbytes);
    nbytes += call->lent.nbytes;
    call->count = count;
    call->server = server;
    call->of_slots = true;
    call->slots = *slots;
    call->spec = &table->spec;
    call->head = (ps_head){.kind = batch->kind,
                           .flags = batch->flags,
                           .nbytes = nbytes,
                           .clock = table->step,
                           .table = table->id,
                           .block = (uint32_t)listed,
                           .part = batch->part};
    call->weight = TRI_LETTER_NBYTES + call->head.nbytes + (pulls ? ps_wires[wire].nbytes(listed * dim, dim) : 0);
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
    for (int s = 0; s < servers; s++)
        ps_pairs_sort(pairs + firsts[s], spare, firsts[s + 1] - firsts[s]);
}

/* Who has what, at this moment: the client's thread may learn of a change at any time. */
static void owners_copy(tri_ps_client *client, int owners[PS_SLOTS], ps_slots slots[PS_MAX_SERVERS])
{
    tri_mutex_lock(&client->mutex);
    memcpy(owners, client->view.slots, sizeof(client->view.slots));
    memcpy(slots, client->kv->slots, sizeof(client->kv->slots));
    tri_mutex_unlock(&client->mutex);
}

static tri_status split_once(tri_kv_table *table, const kv_batch *batch, tri_kv_work *work)
{
    kv_scratch *scratch = &table->kv->scratch;
    int servers = table->kv->client->setup.servers;
    bool pulls = batch->kind == PS_KV_PULL || batch->flags & PS_FLAG_PULL;
    int64_t firsts[PS_MAX_SERVERS + 1];
    int owners[PS_SLOTS];
    ps_slots slots[PS_MAX_SERVERS];
    TRI_TRY(scratch_grow(
        scratch, batch->count + 1,
        batch->rows && table->spec.wire != PS_WIRE_F32 ? (size_t)batch->count * (size_t)table->spec.table.dim : 0));
    owners_copy(table->kv->client, owners, slots);
    pairs_make(table, owners, batch, scratch->pairs, scratch->pairs + scratch->room, firsts);
    for (int s = 0; s < servers; s++) {
        int64_t count = firsts[s + 1] - firsts[s];
        if (count == 0 && !(batch->to_all && (slots[s].bits[0] | slots[s].bits[1])))
            continue;
        ps_call *call = call_make(table, batch, s, &slots[s], scratch->pairs + firsts[s], count, pulls);
        if (!call)
            return TRI_ENOMEM;
        for (int64_t i = 0; pulls && i < count; i++)
            call->at[i] += (uint32_t)batch->first;
        call->work = work;
        TRI_TRY(tri_ps_kv_call(table->kv->client, call));
    }
    return TRI_OK;
}

tri_status tri_ps_kv_split(tri_kv_table *table, const kv_batch *batch, tri_kv_work *work)
{
    size_t row = (size_t)table->spec.table.dim * sizeof(float);
    int64_t most = (int64_t)(BATCH_NBYTES / row) + 1;
    if (batch->count < 0 || batch->count > PS_ROWS_MAX)
        return tri_fail(TRI_EINVAL, "table '%s': want 0 to %lld rows, got %lld", table->spec.name,
                        (long long)PS_ROWS_MAX, (long long)batch->count);
    if (batch->to_all || batch->count <= most) {
        size_t nbytes = ps_rows_body_limit(batch->count, (int)table->spec.table.dim, table->spec.wire, batch->rows);
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
        uint32_t row = call->at[i] & ~KV_SAME_KEY;
        if (!(call->at[i] & KV_SAME_KEY))
            from += dim;
        memcpy(work->rows + (size_t)row * dim, from, floats_of(table, row) * sizeof(float));
    }
}

tri_status tri_ps_kv_scatter(const ps_call *call, const tri_kv_work *work, const void *body, size_t nbytes)
{
    const ps_kv_spec *spec = &work->table->spec;
    const ps_wire *wire = &ps_wires[spec->wire];
    int64_t dim = spec->table.dim, count = (int64_t)call->head.block * dim;
    if (nbytes != wire->nbytes(count, dim))
        return tri_fail(TRI_EFORMAT, "table '%s': parameter server %d: want %zu bytes of rows, got %zu", spec->name,
                        call->server, wire->nbytes(count, dim), nbytes);
    if (spec->wire == PS_WIRE_F32) {
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
