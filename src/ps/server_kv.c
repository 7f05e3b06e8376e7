/* SPDX-License-Identifier: Apache-2.0
 *
 * server_kv.c: letters about tables of rows: open, pull, push, clocks, barriers; and those that have to wait.
 *
 * A letter that comes before its step does waits in its table until the slots that it names have come so far; waits are
 * looked at in the order in which they came.
 */
#include "ps/server_kv.h"

#include <stdio.h>

#include "base/memory.h"
#include "net/bytes.h"

tri_status tri_ps_kv_create(int workers, ps_kv **out)
{
    ps_kv *kv = tri_alloc_zero(1, sizeof(*kv));
    if (!kv)
        return TRI_ENOMEM;
    kv->workers = workers;
    kv->merges.each = sizeof(kv_merge);
    kv->stops = tri_alloc_zero((size_t)workers, sizeof(kv_stop));
    kv->left = tri_alloc_zero((size_t)workers, sizeof(bool));
    if (!kv->stops || !kv->left) {
        tri_ps_kv_destroy(kv);
        return TRI_ENOMEM;
    }
    *out = kv;
    return TRI_OK;
}

void tri_ps_kv_destroy(ps_kv *kv)
{
    if (!kv)
        return;
    tri_ps_kv_save_forget(kv, NULL);
    for (int t = 0; t < kv->table_count; t++)
        tri_ps_kv_table_destroy(kv->tables[t]);
    tri_vector_fini(&kv->merges);
    ps_rows_room_fini(&kv->room);
    tri_free(kv->stops);
    tri_free(kv->left);
    tri_free(kv);
}

tri_status tri_ps_server_merge_add(tri_ps_server *server, const char *name, tri_ps_merge fn, void *arg)
{
    ps_kv *kv = server->kv;
    static const char *const taken[] = {"add", "assign", "min", "max", "optim"};
    kv_merge merge = {.fn = fn, .arg = arg};
    bool known = false;
    for (size_t i = 0; i < TRI_COUNT_OF(taken); i++)
        known = known || strcmp(taken[i], name) == 0;
    for (size_t i = 0; i < kv->merges.count; i++)
        known = known || strcmp(((const kv_merge *)tri_vector_at(&kv->merges, i))->name, name) == 0;
    if (known || !fn || name[0] == '\0' || strlen(name) >= sizeof(merge.name))
        return tri_fail(TRI_EINVAL, "merge '%s': want a function, and a name of 1 to %d bytes that is not taken", name,
                        PS_NAME_NBYTES - 1);
    snprintf(merge.name, sizeof(merge.name), "%s", name);
    return tri_vector_push(&kv->merges, &merge) ? TRI_OK : TRI_ENOMEM;
}

/* --- answers --- */

tri_status tri_ps_kv_failed(ps_guest *guest, const ps_head *head, tri_status status)
{
    ps_head answer = {
        .kind = PS_KV_FAILED, .request = head->request, .extra = (double)status, .nbytes = strlen(tri_last_error())};
    tri_ps_answer(guest, &answer, tri_last_error(), false);
    return TRI_OK;
}

static void answer_done(ps_guest *guest, uint64_t request, uint32_t table, int64_t clock)
{
    ps_head answer = {.kind = PS_KV_DONE, .request = request, .table = table, .clock = clock};
    tri_ps_answer(guest, &answer, NULL, false);
}

static tri_status rows_answer(ps_guest *guest, ps_kv *kv, kv_table *table, const ps_head *head,
                              const ps_rows_body *body)
{
    const ps_wire *wire = &ps_wires[table->spec.wire];
    int64_t dim = table->spec.table.dim, count = body->count * dim;
    size_t nbytes = wire->nbytes(count, dim);
    unsigned char *values = tri_alloc(nbytes);
    if (!values)
        return TRI_ENOMEM;
    table->pulled += (uint64_t)body->count;
    if (table->spec.wire == PS_WIRE_F32)
        tri_ps_kv_pull(table, head->clock, body, (float *)(void *)values);
    else {
        float *plain = tri_alloc((size_t)count * sizeof(float));
        if (plain) {
            tri_ps_kv_pull(table, head->clock, body, plain);
            wire->write(plain, count, dim, values, NULL);
        }
        tri_free(plain);
        if (!plain) {
            tri_free(values);
            return TRI_ENOMEM;
        }
    }
    (void)kv;
    ps_head answer = {
        .kind = PS_KV_DONE, .request = head->request, .table = table->id, .clock = head->clock, .nbytes = nbytes};
    return tri_ps_answer_take(guest, &answer, values);
}

/* --- whose slots --- */

/* Of a forwarded letter: those that this server has as a backup, and was given. False: all that it names. */
static bool own_slots(const tri_ps_server *server, const ps_guest *guest, const kv_table *table, ps_slots *slots)
{
    bool fewer = false;
    for (int s = 0; s < PS_SLOTS && guest->server >= 0; s++)
        if (ps_slots_has(slots, s) && (server->view.slots[s] == server->setup.number || !table->slots[s].held)) {
            slots->bits[s / 64] &= ~(UINT64_C(1) << (s % 64));
            fewer = true;
        }
    return fewer;
}

static bool are_elsewhere(const tri_ps_server *server, const void *body, size_t nbytes)
{
    ps_slots slots;
    if (ps_rows_slots_read(body, nbytes, &slots) != TRI_OK)
        return false; /* that is said later */
    for (int s = 0; s < PS_SLOTS; s++)
        if (ps_slots_has(&slots, s) && server->view.slots[s] != server->setup.number)
            return true;
    return false;
}

bool tri_ps_kv_is_elsewhere(const tri_ps_server *server, const ps_head *head, const void *body)
{
    return are_elsewhere(server, body, head->nbytes);
}

/* --- what a letter waits for --- */

static bool is_gathered(const kv_table *table, const ps_head *head)
{
    return table->spec.consistency == PS_BSP && head->kind == PS_KV_PUSH && !(head->flags & PS_FLAG_ASSIGN);
}

/* The fewest steps that one of these slots has finished. */
static int64_t slots_clock(const kv_table *table, const ps_slots *slots)
{
    int64_t least = INT64_MAX;
    for (int s = 0; s < PS_SLOTS; s++)
        if (ps_slots_has(slots, s) && table->slots[s].clock < least)
            least = table->slots[s].clock;
    return least;
}

static bool is_due(const kv_table *table, const ps_head *head, const ps_slots *slots)
{
    switch (table->spec.consistency) {
    case PS_BSP:
        return slots_clock(table, slots) >= head->clock;
    case PS_SSP:
        return slots_clock(table, slots) >= head->clock - table->spec.table.staleness;
    default:
        return true;
    }
}

static tri_status wait_add(kv_table *table, ps_guest *guest, int worker, const ps_head *head, const void *body)
{
    kv_wait *wait = tri_alloc_zero(1, sizeof(*wait));
    unsigned char *copy = tri_alloc(head->nbytes);
    if (!wait || !copy) {
        tri_free(wait);
        tri_free(copy);
        return TRI_ENOMEM;
    }
    memcpy(copy, body, head->nbytes);
    *wait = (kv_wait){.guest = guest, .worker = worker, .head = *head, .body = copy};
    *table->waits_end = wait;
    table->waits_end = &wait->next;
    tri_ps_guest_owes(guest, head->nbytes);
    return TRI_OK;
}

static void wait_free(kv_table *table, kv_wait **at)
{
    kv_wait *wait = *at;
    *at = wait->next;
    if (table->waits_end == &wait->next)
        table->waits_end = at;
    tri_free(wait->body);
    tri_free(wait);
}

/* --- pull and push --- */

static void ahead_count(kv_table *table, const ps_head *head, const ps_slots *slots)
{
    int64_t least = slots_clock(table, slots), most = (int64_t)TRI_COUNT_OF(table->ahead) - 1;
    int64_t ahead = least < head->clock ? head->clock - least : 0;
    table->ahead[ahead < most ? ahead : most]++;
}

/* What no sound client says. */
static tri_status rows_check(const kv_table *table, const ps_head *head, const ps_rows_body *body)
{
    bool bsp = table->spec.consistency == PS_BSP, pulls = head->kind == PS_KV_PULL || head->flags & PS_FLAG_PULL;
    size_t nbytes = ps_wires[table->spec.wire].nbytes(body->count * table->spec.table.dim, table->spec.table.dim);
    if (!(head->extra >= 0 && head->extra < 0x1p53))
        return tri_fail(TRI_EFORMAT, "push %g of table '%s'", head->extra, table->spec.name);
    if (head->clock < 0 || head->clock > UINT32_MAX)
        return tri_fail(TRI_EFORMAT, "step %lld of table '%s'", (long long)head->clock, table->spec.name);
    if (pulls && nbytes > PS_BODY_LIMIT_NBYTES)
        return tri_fail(TRI_EFORMAT, "%lld rows of table '%s' would be %zu bytes", (long long)body->count,
                        table->spec.name, nbytes);
    if (pulls && is_gathered(table, head))
        return tri_fail(TRI_EFORMAT, "table '%s' is bsp: what comes of a push is there after its step",
                        table->spec.name);
    for (int s = 0; bsp && pulls && s < PS_SLOTS; s++)
        if (ps_slots_has(&body->slots, s) && table->slots[s].clock > head->clock + 1)
            return tri_fail(TRI_EFORMAT, "rows of step %lld of table '%s', which is at step %lld",
                            (long long)head->clock, table->spec.name, (long long)table->slots[s].clock);
    return TRI_OK;
}

static tri_status rows_take(tri_ps_server *server, ps_guest *guest, int worker, kv_table *table, const ps_head *head,
                            void *bytes)
{
    ps_kv *kv = server->kv;
    ps_rows_body body;
    bool pushes = head->kind == PS_KV_PUSH;
    TRI_TRY(ps_rows_body_read(bytes, head->nbytes, head->block, (int)table->spec.table.dim, table->spec.wire, pushes,
                              &kv->room, &body));
    TRI_TRY(rows_check(table, head, &body));
    body.is_part = own_slots(server, guest, table, &body.slots);
    if (is_gathered(table, head) && !is_due(table, head, &body.slots))
        return wait_add(table, guest, worker, head, bytes);
    if (pushes)
        TRI_TRY(tri_ps_kv_push(table, worker, head, &body));
    if (pushes && !(head->flags & PS_FLAG_PULL)) {
        answer_done(guest, head->request, table->id, head->clock);
        return TRI_OK;
    }
    if (!is_due(table, head, &body.slots))
        return wait_add(table, guest, worker, head, bytes);
    if (table->spec.consistency != PS_BSP)
        ahead_count(table, head, &body.slots);
    return rows_answer(guest, kv, table, head, &body);
}

/* Who waited and need not any more. What is wrong with a letter is its own sender's concern. */
static tri_status waits_run(tri_ps_server *server, kv_table *table)
{
    kv_wait **at = &table->waits;
    while (table->moved && *at) {
        kv_wait wait = **at;
        ps_slots slots;
        TRI_TRY(ps_rows_slots_read(wait.body, wait.head.nbytes, &slots));
        (void)own_slots(server, wait.guest, table, &slots);
        if (!is_due(table, &wait.head, &slots)) {
            at = &(*at)->next;
            continue;
        }
        (*at)->body = NULL;
        wait_free(table, at);
        tri_ps_guest_paid(wait.guest, wait.head.nbytes);
        tri_status status = rows_take(server, wait.guest, wait.worker, table, &wait.head, wait.body);
        tri_free(wait.body);
        if (status != TRI_OK && wait.guest->server < 0)
            tri_ps_refuse(server, wait.guest, status);
        at = &table->waits; /* it may have moved slots, and taken letters of its sender out */
    }
    table->moved = false;
    return TRI_OK;
}

static tri_status on_rows(tri_ps_server *server, ps_guest *guest, kv_table *table, const ps_head *head, void *body)
{
    TRI_TRY(rows_take(server, guest, guest->number, table, head, body));
    return waits_run(server, table);
}

/* --- clocks --- */

static tri_status on_clock(tri_ps_server *server, ps_guest *guest, kv_table *table, const ps_head *head, void *body)
{
    ps_slots slots;
    TRI_TRY(ps_rows_slots_read(body, head->nbytes, &slots));
    (void)own_slots(server, guest, table, &slots);
    if (table->spec.consistency == PS_BSP)
        return tri_fail(TRI_EFORMAT, "table '%s' is bsp: its steps end with their pushes", table->spec.name);
    for (int s = 0; s < PS_SLOTS; s++) {
        int64_t *clock = &table->slots[s].clocks[guest->number];
        if (!ps_slots_has(&slots, s) || head->clock <= *clock)
            continue;
        if (head->clock != *clock + 1)
            return tri_fail(TRI_EFORMAT, "table '%s': step %lld is over, after step %lld", table->spec.name,
                            (long long)head->clock, (long long)*clock);
        bool was_slowest = *clock == table->slots[s].clock;
        *clock = head->clock;
        if (was_slowest)
            TRI_TRY(tri_ps_kv_clock_find(table, s));
    }
    answer_done(guest, head->request, table->id, head->clock);
    return waits_run(server, table);
}

static tri_status stops_look(ps_kv *kv)
{
    int64_t least = INT64_MAX;
    for (int w = 0; w < kv->workers; w++)
        if (!kv->left[w] && kv->stops[w].passed < least)
            least = kv->stops[w].passed;
    for (int w = 0; w < kv->workers; w++) {
        kv_stop *stop = &kv->stops[w];
        if (!stop->guest || stop->passed > least)
            continue;
        answer_done(stop->guest, stop->request, 0, stop->passed);
        stop->guest = NULL;
    }
    return TRI_OK;
}

static tri_status on_barrier(ps_kv *kv, ps_guest *guest, const ps_head *head)
{
    kv_stop *stop = &kv->stops[guest->number];
    if (head->clock < 1 || head->clock > stop->passed + 1)
        return tri_fail(TRI_EFORMAT, "barrier %lld, after %lld", (long long)head->clock, (long long)stop->passed);
    if (head->clock <= stop->passed - 1) { /* said again: the others have passed it */
        answer_done(guest, head->request, 0, head->clock);
        return TRI_OK;
    }
    stop->passed = head->clock;
    stop->guest = guest;
    stop->request = head->request;
    return stops_look(kv);
}

tri_status tri_ps_kv_left(tri_ps_server *server, int worker)
{
    ps_kv *kv = server->kv;
    kv->left[worker] = true;
    for (int t = 0; t < kv->table_count; t++) {
        kv_table *table = kv->tables[t];
        for (int s = 0; s < PS_SLOTS && table->spec.consistency != PS_BSP; s++) {
            table->slots[s].clocks[worker] = INT64_MAX;
            TRI_TRY(tri_ps_kv_clock_find(table, s));
        }
        TRI_TRY(waits_run(server, table));
    }
    return stops_look(kv);
}

/* --- open --- */

/* The step that a worker begins with: the earliest that something here has yet to hear from it. */
static int64_t clock_of(const tri_ps_server *server, const kv_table *table, int worker)
{
    int64_t least = INT64_MAX;
    for (int s = 0; s < PS_SLOTS; s++) {
        const kv_slot *slot = &table->slots[s];
        int64_t clock = slot->clocks ? slot->clocks[worker] : slot->clock;
        if (server->view.slots[s] == server->setup.number && clock < least)
            least = clock;
    }
    return least;
}

static void slots_await(const tri_ps_server *server, kv_table *table)
{
    for (int s = 0; s < PS_SLOTS; s++)
        table->slots[s].held = table->slots[s].held && server->view.slots[s] == server->setup.number;
}

/* A backup is told of each table that is made. */
static tri_status made_tell(tri_ps_server *server, const ps_guest *guest, const ps_head *head, const char *text)
{
    tri_letter letter = ps_head_write(head);
    if (!server->chain.line)
        return guest->server < 0 ? tri_ps_chain_renew(server) : TRI_OK;
    tri_ps_chain_forward(server, 0, &letter, text);
    return TRI_OK;
}

static tri_status on_open(tri_ps_server *server, ps_guest *guest, const ps_head *head, const char *text)
{
    kv_table *table;
    int before = server->kv->table_count;
    tri_status status = tri_ps_kv_table_make(server->kv, text, head->nbytes, &table);
    if (status != TRI_OK)
        return status == TRI_ENOMEM ? status : tri_ps_kv_failed(guest, head, status);
    if (guest->server >= 0 && (head->flags & PS_FLAG_COPY))
        slots_await(server, table);
    if (server->kv->table_count > before)
        TRI_TRY(made_tell(server, guest, head, text));
    if (guest->server >= 0)
        return TRI_OK;
    answer_done(guest, head->request, table->id, clock_of(server, table, guest->number));
    return TRI_OK;
}

/* What a client that comes in a worker's place goes on from: pushes and barriers that were heard of it. */
static tri_status on_join(ps_kv *kv, ps_guest *guest, const ps_head *head)
{
    uint64_t last = 0;
    for (int t = 0; t < kv->table_count; t++)
        for (int s = 0; s < PS_SLOTS; s++)
            if (kv->tables[t]->slots[s].last[guest->number] > last)
                last = kv->tables[t]->slots[s].last[guest->number];
    unsigned char body[16];
    tri_bytes_write_u64(body, last);
    tri_bytes_write_u64(body + 8, (uint64_t)kv->stops[guest->number].passed);
    ps_head answer = {.kind = PS_KV_DONE, .request = head->request, .nbytes = sizeof(body)};
    tri_ps_answer(guest, &answer, body, false);
    return TRI_OK;
}

static tri_status stats_print(const ps_kv *kv, int number, tri_string *out)
{
    for (int t = 0; t < kv->table_count; t++) {
        const kv_table *table = kv->tables[t];
        TRI_TRY(tri_string_appendf(
            out,
            "server %d, table '%s': %lld rows, %zu bytes, %llu pulled, %llu pushed, %llu pushes came twice, "
            "%lld rows evicted\n",
            number, table->spec.name, (long long)ps_sparse_count(table->rows), ps_sparse_nbytes(table->rows),
            (unsigned long long)table->pulled, (unsigned long long)table->pushed, (unsigned long long)table->twice,
            (long long)table->evicted));
        if (table->spec.consistency == PS_BSP)
            continue;
        TRI_TRY(tri_string_appendf(out, "server %d, table '%s': pulls by steps ahead of the slowest worker:", number,
                                   table->spec.name));
        for (size_t i = 0; i < TRI_COUNT_OF(table->ahead); i++)
            if (table->ahead[i] > 0)
                TRI_TRY(tri_string_appendf(out, " %zu%s: %llu", i, i + 1 == TRI_COUNT_OF(table->ahead) ? "+" : "",
                                           (unsigned long long)table->ahead[i]));
        TRI_TRY(tri_string_append(out, "\n"));
    }
    return TRI_OK;
}

static tri_status on_stats(const tri_ps_server *server, ps_guest *guest, const ps_head *head)
{
    tri_string text = {0};
    tri_status status = stats_print(server->kv, server->setup.number, &text);
    ps_head answer = {.kind = PS_KV_DONE, .request = head->request, .nbytes = text.nbytes};
    if (status == TRI_OK)
        tri_ps_answer(guest, &answer, tri_string_text(&text), false);
    tri_string_fini(&text);
    return status;
}

static tri_status table_find(const ps_kv *kv, const ps_head *head, kv_table **out)
{
    for (int t = 0; t < kv->table_count; t++)
        if (kv->tables[t]->id == head->table) {
            *out = kv->tables[t];
            return TRI_OK;
        }
    return tri_fail(TRI_EFORMAT, "there is no table %u of rows", head->table);
}

/* A slot of the server whose backup this is. */
static tri_status on_copy(tri_ps_server *server, const ps_guest *guest, kv_table *table, const ps_head *head,
                          const void *body)
{
    if (head->block >= PS_SLOTS || !tri_ps_backs(server, guest, (int)head->block))
        return TRI_OK;
    TRI_TRY(tri_ps_kv_slot_read(table, (int)head->block, body, head->nbytes));
    table->slots[head->block].held = true;
    table->moved = true;
    return waits_run(server, table);
}

tri_status tri_ps_kv_letter(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    kv_table *table;
    switch (head->kind) {
    case PS_KV_JOIN:
        return on_join(server->kv, guest, head);
    case PS_KV_OPEN:
        return on_open(server, guest, head, body);
    case PS_KV_BARRIER:
        return on_barrier(server->kv, guest, head);
    case PS_KV_STATS:
        return on_stats(server, guest, head);
    case PS_KV_COPY:
        TRI_TRY(table_find(server->kv, head, &table));
        return on_copy(server, guest, table, head, body);
    case PS_KV_SAVE:
        return tri_ps_kv_save(server, guest, head, body);
    case PS_KV_LOAD:
        return tri_ps_kv_load(server, guest, head, body);
    case PS_KV_CLOCK:
        TRI_TRY(table_find(server->kv, head, &table));
        return on_clock(server, guest, table, head, body);
    default:
        TRI_TRY(table_find(server->kv, head, &table));
        return on_rows(server, guest, table, head, body);
    }
}

/* --- the rest --- */

void tri_ps_kv_forget(ps_kv *kv, const ps_guest *guest)
{
    tri_ps_kv_save_forget(kv, guest);
    for (int t = 0; t < kv->table_count; t++)
        for (kv_wait **at = &kv->tables[t]->waits; *at;)
            if ((*at)->guest == guest)
                wait_free(kv->tables[t], at);
            else
                at = &(*at)->next;
    for (int w = 0; w < kv->workers; w++)
        if (kv->stops[w].guest == guest)
            kv->stops[w].guest = NULL;
}

void tri_ps_kv_view(tri_ps_server *server)
{
    for (int t = 0; t < server->kv->table_count; t++)
        for (kv_wait **at = &server->kv->tables[t]->waits; *at;) {
            const kv_wait *wait = *at;
            if (wait->guest->server >= 0 || !are_elsewhere(server, wait->body, wait->head.nbytes)) {
                at = &(*at)->next;
                continue;
            }
            ps_head head = {.kind = PS_MOVED, .request = wait->head.request, .clock = (int64_t)server->view.version};
            tri_ps_answer(wait->guest, &head, NULL, false);
            tri_ps_guest_paid(wait->guest, wait->head.nbytes);
            wait_free(server->kv->tables[t], at);
        }
}

static void slot_empty(kv_table *table, int number)
{
    kv_slot *slot = &table->slots[number];
    ps_sparse_drop(table->rows, number);
    slot->held = false;
    slot->clock = 0;
    slot->before_count = 0;
    memset(slot->last, 0, (size_t)table->spec.workers * sizeof(*slot->last));
    if (slot->clocks)
        memset(slot->clocks, 0, (size_t)table->spec.workers * sizeof(*slot->clocks));
    else
        ps_gather_reset(&slot->gather);
}

void tri_ps_kv_slot_drop(tri_ps_server *server, int slot)
{
    for (int t = 0; t < server->kv->table_count; t++)
        slot_empty(server->kv->tables[t], slot);
}

bool tri_ps_kv_slot_lacks(const tri_ps_server *server, int slot)
{
    bool lacks = false;
    for (int t = 0; t < server->kv->table_count; t++)
        lacks = lacks || !server->kv->tables[t]->slots[slot].held;
    return lacks;
}
