/* SPDX-License-Identifier: Apache-2.0
 *
 * messages.c: what clients and other servers may say to a parameter server: one row for each kind of letter.
 */
#include "base/events.h"
#include "base/log.h"
#include "ps/rpc/annotation.h"
#include "ps/server/kv.h"
#include "ps/server/server_impl.h"

typedef tri_status (*letter_fn)(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body);

bool tri_ps_backs(const tri_ps_server *server, const ps_guest *guest, int slot)
{
    return server->view.slots[slot] == guest->server &&
           ps_view_role(&server->view, server->setup.number, slot) == PS_BACKUP;
}

/* Another server has this one as its backup: what was here for others than workers is given anew. */
static tri_status neighbour_hello(tri_ps_server *server, ps_guest *guest, const ps_head *head)
{
    if (head->clock < 0 || head->clock >= PS_MAX_SERVERS || guest->number >= 0)
        return tri_fail(TRI_EFORMAT, "it says that it is server %lld", (long long)head->clock);
    if (head->extra > (double)server->view.version)
        tri_ps_end_with(server, tri_ps_view_look(server));
    if (!ps_view_has(&server->view, (int)head->clock)) /* it was stopped, and does not know yet what it has missed */
        return tri_fail(TRI_EPEER, "view %llu does without server %d", (unsigned long long)server->view.version,
                        (int)head->clock);
    for (ps_guest *other = server->guests, *next; other; other = next) {
        next = other->next;
        if (other == guest || other->server < 0)
            continue;
        tri_ps_guest_hang_up(server, other);
    }
    guest->server = (int)head->clock;
    for (int s = 0; s < PS_SLOTS; s++)
        if (server->view.slots[s] != server->setup.number && (double)server->shared[s] <= head->extra)
            tri_ps_slot_leave(server, s); /* what was shared since it said this it takes for given */
    if ((head->flags & PS_FLAG_STARTS) && server->view.version == 1) /* then what is not here is not there either */
        tri_ps_kv_begin(server, guest->server);
    return TRI_OK;
}

static tri_status on_hello(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    (void)body;
    if (head->request != PS_VERSION)
        return tri_fail(TRI_EFORMAT, "it speaks version %llu of the protocol, want %d",
                        (unsigned long long)head->request, PS_VERSION);
    if (head->flags & PS_FLAG_SERVER)
        return neighbour_hello(server, guest, head);
    if (head->clock < 0 || head->clock >= server->setup.workers || guest->number >= 0)
        return tri_fail(TRI_EFORMAT, "it says that it is worker %lld of %d", (long long)head->clock,
                        server->setup.workers);
    int number = (int)head->clock;
    ps_guest *before = server->workers[number];
    if (before) { /* its line is dead, or it was started again: the latest counts */
        tri_log(TRI_LOG_WARN, "worker %d is here again, from %s", number, tri_line_from(guest->line));
        tri_ps_guest_hang_up(server, before);
    }
    guest->number = number;
    server->workers[number] = guest;
    tri_ps_answer_plain(guest, PS_HELLO, PS_VERSION, 0, number);
    return TRI_OK;
}

static void open_answer(ps_guest *guest, const ps_table *table)
{
    ps_head head = {.kind = PS_OPEN,
                    .request = guest->request,
                    .clock = table->ready      ? tri_ps_table_clock(guest->of, table, guest->number)
                             : table->restored ? PS_CLOCK_LOST
                                               : -1,
                    .table = (uint32_t)table->number,
                    .extra = (double)table->tail_clock};
    tri_ps_answer(guest, &head, NULL, false);
    guest->opens = -1;
}

static tri_status on_open(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    int before = server->table_count;
    TRI_TRY(tri_ps_table_make(server, guest, body, head->nbytes, &table));
    if (guest->server >= 0 && guest->table_count < PS_TABLES_MAX)
        guest->tables[guest->table_count++] = table->number;
    if (server->table_count > before && server->chain.line) {
        tri_letter letter = ps_head_write(head);
        letter.flags |= PS_FLAG_STARTS;
        tri_ps_chain_forward(server, 0, &letter, body);
    } else if (server->table_count > before && guest->server < 0)
        TRI_TRY(tri_ps_chain_renew(server));
    if (guest->server >= 0)
        return TRI_OK;
    server->joined[guest->number] = true;
    guest->opens = table->number;
    guest->request = head->request;
    if (table->restored && head->extra >= 0 && head->extra < (double)PS_CLOCK_MAX &&
        (int64_t)head->extra + 1 > table->next_deal)
        table->next_deal = (int64_t)head->extra + 1;
    if (table->ready || (head->flags & PS_FLAG_STARTS))
        open_answer(guest, table);
    return TRI_OK;
}

static tri_status on_init(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    ps_block *block;
    (void)guest;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    if (guest->server >= 0 && head->block < (uint32_t)table->spec.cut_count)
        TRI_TRY(tri_ps_block_hold(server, table, (int)head->block));
    TRI_TRY(tri_ps_block_find(server, head, &table, &block));
    return tri_ps_block_fill(table, block, head, body);
}

/* A worker that does not know yet whose place this server has taken gives it the rest once it does. */
static void given_not(const tri_ps_server *server, ps_guest *guest)
{
    ps_head moved = {.kind = PS_MOVED, .flags = PS_FLAG_REFUSED, .clock = (int64_t)server->view.version};
    tri_ps_answer(guest, &moved, NULL, false);
}

static tri_status on_ready(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    bool asks = head->flags & PS_FLAG_STARTS;
    (void)body;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    if (asks && guest->server >= 0)
        return TRI_OK;
    tri_status status = tri_ps_table_given(server, table);
    if (status != TRI_OK && guest->server < 0 && server->view.version > 1) {
        given_not(server, guest);
        return TRI_OK;
    }
    TRI_TRY(status);
    if (!asks)
        tri_ps_table_ready(server, table, head);
    tri_ps_answer_plain(guest, PS_READY, head->request, head->table, head->clock);
    for (ps_guest *other = server->guests; other && !asks; other = other->next)
        if (other->opens == table->number)
            open_answer(other, table);
    return TRI_OK;
}

static tri_status on_push(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    ps_block *block;
    TRI_TRY(tri_ps_block_find(server, head, &table, &block));
    TRI_TRY(tri_ps_block_serves(guest, table, block));
    return table->consistency == PS_BSP ? tri_ps_bsp_push(server, guest, table, block, head)
                                        : tri_ps_ssp_push(guest, table, block, head, body);
}

static tri_status on_tail(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    return tri_ps_bsp_tail(server, guest, table, head, body);
}

static tri_status on_move(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    (void)guest;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    return head->nbytes > 0 ? tri_ps_bsp_choice(server, table, head, body) : tri_ps_bsp_move(server, table, head);
}

static tri_status on_clock(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    (void)body;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    return table->consistency == PS_BSP ? tri_ps_bsp_clock(server, guest, table, head)
                                        : tri_ps_ssp_clock(server, guest, table, head);
}

static tri_status on_pull(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    ps_block *block;
    (void)body;
    TRI_TRY(tri_ps_block_find(server, head, &table, &block));
    TRI_TRY(tri_ps_block_serves(guest, table, block));
    return table->consistency == PS_BSP ? tri_ps_bsp_pull(guest, table, block, head)
                                        : tri_ps_ssp_pull(guest, table, block, head);
}

static tri_status on_pull_state(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    ps_block *block;
    (void)body;
    TRI_TRY(tri_ps_block_find(server, head, &table, &block));
    int index = head->extra >= 0 && head->extra < TRI_OPTIM_MAX_STATE ? (int)head->extra : -1;
    if (index < 0 || !tri_optim_state_name(block->optim, index))
        return tri_fail(TRI_EFORMAT, "array %g of the optimizer", head->extra);
    ps_head answer = *head;
    answer.kind = PS_STATE;
    answer.clock = block->clock;
    answer.nbytes = (uint64_t)table->spec.cuts[head->block].count * sizeof(float);
    tri_ps_answer(guest, &answer, tri_optim_state(block->optim, index), false);
    return TRI_OK;
}

static tri_status on_save(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    return tri_ps_save_ask(server, guest, head, body);
}

static tri_status on_stats(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    tri_string text = {0};
    (void)body;
    if (head->flags & (PS_FLAG_TIME | PS_FLAG_EVENTS))
        return tri_ps_trace_tell(server, guest, head);
    tri_status status = tri_ps_stats(server, &text);
    ps_head answer = {.kind = PS_STATS, .request = head->request, .nbytes = text.nbytes};
    if (status == TRI_OK)
        tri_ps_answer(guest, &answer, tri_string_text(&text), false);
    tri_string_fini(&text);
    return status;
}

static tri_status on_note(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    return tri_ps_note_take(server, guest, head, body);
}

/* A worker that leaves tells each server itself that it need not go on for it. */
static tri_status on_bye(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    (void)body;
    if (guest->server < 0) {
        server->left_count += !server->left[guest->number];
        server->left[guest->number] = true;
    }
    for (int t = 0; t < server->table_count; t++)
        if (server->tables[t]->consistency != PS_BSP)
            TRI_TRY(tri_ps_ssp_left(server, server->tables[t], guest->number));
    TRI_TRY(tri_ps_kv_left(server, guest->number));
    tri_ps_answer_plain(guest, PS_BYE, head->request, 0, 0);
    return TRI_OK;
}

static tri_status on_look(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    int from = guest->server;
    (void)body;
    guest->is_deaf = guest->is_deaf && !(head->flags & PS_FLAG_LISTED);
    guest->is_stalled = false; /* what it says from now on it says from the beginning */
    if (head->clock > (int64_t)server->view.version)
        tri_ps_end_with(server, tri_ps_view_look(server)); /* the guest may be gone */
    if (from >= 0)
        tri_ps_kv_told(server, from);
    return TRI_OK;
}

static tri_status on_copy_table(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    (void)guest;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    int64_t before = table->tail_clock;
    TRI_TRY(tri_ps_table_read(table, body, head->nbytes));
    if (table->consistency == PS_BSP)
        tri_ps_bsp_tail_copied(server, table, before);
    return TRI_OK;
}

static tri_status on_copy(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    if (head->block >= (uint32_t)table->spec.cut_count || !tri_ps_backs(server, guest, table->slots[head->block]))
        return TRI_OK;
    TRI_TRY(tri_ps_block_hold(server, table, (int)head->block));
    TRI_TRY(tri_ps_block_read(table, &table->blocks[head->block], body, head->nbytes));
    tri_ps_bsp_copied(server, table, &table->blocks[head->block]);
    return TRI_OK;
}

static tri_status on_leave(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    (void)head;
    (void)body;
    server->ended |= UINT64_C(1) << guest->server;
    return TRI_OK;
}

/* That it was said is all. */
static tri_status on_beat(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    (void)server, (void)guest, (void)head, (void)body;
    return TRI_OK;
}

/* What clients may say, and how long its body may be; a body longer than nothing is checked against its table. */
static const struct {
    letter_fn fn;
    size_t body_limit;
    unsigned is; /* PS_CHANGES: goes to the backup too. PS_OF_BLOCK: wants the server that has the block. PS_OF_SERVER:
                    not for workers */
} letters[PS_KIND_COUNT] = {
    [PS_HELLO] = {on_hello, 0, 0},
    [PS_OPEN] = {on_open, PS_TEXT_LIMIT_NBYTES, 0},
    [PS_INIT] = {on_init, PS_BODY_LIMIT_NBYTES, PS_CHANGES | PS_OF_BLOCK},
    [PS_READY] = {on_ready, 0, PS_CHANGES},
    [PS_PUSH] = {on_push, PS_BODY_LIMIT_NBYTES, PS_CHANGES | PS_OF_BLOCK | PS_IS_PUSH},
    [PS_TAIL] = {on_tail, TRI_PARAMS_TAIL * sizeof(float), PS_CHANGES},
    [PS_MOVE] = {on_move, PS_CHOICE_LIMIT_NBYTES, PS_CHANGES},
    [PS_CLOCK] = {on_clock, 0, PS_CHANGES},
    [PS_PULL] = {on_pull, 0, PS_OF_BLOCK | PS_IS_PULL},
    [PS_PULL_STATE] = {on_pull_state, 0, PS_OF_BLOCK},
    [PS_STATS] = {on_stats, 0, 0},
    [PS_NOTE] = {on_note, PS_NOTE_LIMIT_NBYTES, 0},
    [PS_SAVE] = {on_save, PS_TEXT_LIMIT_NBYTES, 0},
    [PS_BYE] = {on_bye, 0, PS_CHANGES},
    [PS_KV_JOIN] = {tri_ps_kv_letter, 0, 0},
    [PS_KV_OPEN] = {tri_ps_kv_letter, PS_TEXT_LIMIT_NBYTES, 0},
    [PS_KV_PULL] = {tri_ps_kv_letter, PS_BODY_LIMIT_NBYTES, PS_OF_SLOTS | PS_IS_PULL},
    [PS_KV_PUSH] = {tri_ps_kv_letter, PS_BODY_LIMIT_NBYTES, PS_CHANGES | PS_OF_SLOTS | PS_IS_PUSH},
    [PS_KV_CLOCK] = {tri_ps_kv_letter, sizeof(ps_slots), PS_CHANGES | PS_OF_SLOTS},
    [PS_KV_BARRIER] = {tri_ps_kv_letter, sizeof(ps_slots), PS_CHANGES | PS_OF_SLOTS},
    [PS_KV_STATS] = {tri_ps_kv_letter, 0, 0},
    [PS_KV_SAVE] = {tri_ps_kv_letter, PS_PATH_LIMIT_NBYTES, 0},
    [PS_KV_LOAD] = {tri_ps_kv_letter, PS_PATH_LIMIT_NBYTES, PS_CHANGES},
    [PS_KV_COPY] = {tri_ps_kv_letter, PS_BODY_LIMIT_NBYTES, PS_OF_SERVER},
    [PS_KV_STOPS] = {tri_ps_kv_letter, PS_STOPS_LIMIT_NBYTES, PS_OF_SERVER},
    [PS_LOOK] = {on_look, 0, 0},
    [PS_COPY_TABLE] = {on_copy_table, PS_BODY_LIMIT_NBYTES, PS_OF_SERVER},
    [PS_COPY] = {on_copy, PS_BODY_LIMIT_NBYTES, PS_OF_SERVER},
    [PS_LEAVE] = {on_leave, 0, PS_OF_SERVER},
    [PS_BEAT] = {on_beat, 0, PS_OF_SERVER},
};

/* Before the body of a letter is read. */
tri_status tri_ps_letter_check(const ps_guest *guest, const ps_head *head)
{
    if ((unsigned)head->kind >= PS_KIND_COUNT || !letters[head->kind].fn)
        return tri_fail(TRI_EFORMAT, "it sent a letter of kind %d", (int)head->kind);
    if ((letters[head->kind].is & PS_OF_SERVER) && guest->server < 0)
        return tri_fail(TRI_EFORMAT, "it sent a letter of kind %d, as only servers do", (int)head->kind);
    if (guest->server < 0 && guest->number < 0 && head->kind != PS_HELLO)
        return tri_fail(TRI_EFORMAT, "it has not said who it is");
    if (head->clock > PS_CLOCK_MAX || head->clock < -PS_CLOCK_MAX)
        return tri_fail(TRI_EFORMAT, "it speaks of step %lld", (long long)head->clock);
    if (head->nbytes > letters[head->kind].body_limit)
        return tri_fail(TRI_EFORMAT, "a letter of kind %d has %llu bytes, want at most %zu", (int)head->kind,
                        (unsigned long long)head->nbytes, letters[head->kind].body_limit);
    return TRI_OK;
}

tri_status tri_ps_letter_handle(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    const int64_t start_ns = tri_now_ns();
    const int worker = guest->server < 0 ? guest->number : -1;
    if (guest->server < 0) {
        tri_ps_trace_asked(guest, head, start_ns);
        tri_counter_add(TRI_COUNT_TAKEN_NBYTES, head->nbytes);
        tri_counter_add(TRI_COUNT_PUSHES, tri_ps_letter_is(head->kind, PS_IS_PUSH));
        tri_counter_add(TRI_COUNT_PULLS, tri_ps_letter_is(head->kind, PS_IS_PULL));
    }
    const tri_status status = letters[head->kind].fn(server, guest, head, body); /* the guest may be gone */
    tri_ps_trace_pushed(server, worker, head, start_ns);
    return status;
}

bool tri_ps_letter_is(ps_kind kind, unsigned what)
{
    return letters[kind].is & what;
}
