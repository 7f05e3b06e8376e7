/* SPDX-License-Identifier: Apache-2.0
 *
 * server.c: the guests of a parameter server and what they may say: one row for each kind of letter.
 *
 * A guest who says what cannot be is told why and loses its line; what it had under way is taken back, and nobody else
 * notices. What concerns all (no memory, no number) ends the server.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "ps/client.h"
#include "ps/server_impl.h"
#include "ps/server_kv.h"
#include "ps/views.h"

/* For how long, and how much, one who is refused may still speak. */
#define HEAR_MS           1000
#define HEAR_LIMIT_NBYTES (UINT64_C(1) << 20)

/* What lies here for one guest before it is not read from any more. */
#define OWED_LIMIT_NBYTES ((size_t)32 << 20)

/* --- answers --- */

/* Values that stay as they are until the guest says more need no copy. */
static void sent_nothing(void *arg, tri_status status)
{
    (void)arg;
    (void)status;
}

void tri_ps_answer_send(ps_guest *guest, unsigned priority, const tri_letter *letter, const void *body, bool lasting)
{
    if (tri_post_send(guest->line, priority, letter, body, lasting ? sent_nothing : NULL, NULL) != TRI_OK)
        tri_log(TRI_LOG_WARN, "an answer to %s was not sent: %s", tri_line_from(guest->line), tri_last_error());
}

void tri_ps_answer(ps_guest *guest, const ps_head *head, const void *body, bool lasting)
{
    tri_letter letter = ps_head_write(head);
    if (guest->server >= 0) /* the server that forwards answers itself */
        return;
    /* What the next step reads first goes first. */
    unsigned priority = head->kind == PS_VALUES ? (unsigned)(INT32_MAX - (int32_t)head->block) : (unsigned)INT32_MAX;
    if (!tri_ps_chain_keep(guest->of, guest, priority, &letter, body, lasting))
        tri_ps_answer_send(guest, priority, &letter, body, lasting);
}

void tri_ps_guest_owes(ps_guest *guest, size_t nbytes)
{
    if (guest->server >= 0) /* its letters are the backup's to keep up with */
        return;
    guest->owed += nbytes;
    if (guest->owed <= OWED_LIMIT_NBYTES || guest->is_paused)
        return;
    guest->is_paused = true;
    tri_line_pause(guest->line, true);
}

void tri_ps_guest_paid(ps_guest *guest, size_t nbytes)
{
    if (guest->server >= 0)
        return;
    guest->owed -= nbytes;
    if (guest->owed > OWED_LIMIT_NBYTES / 2 || !guest->is_paused)
        return;
    guest->is_paused = false;
    tri_line_pause(guest->line, false);
}

typedef struct parcel {
    ps_guest *guest; /* may be gone where the letter was not sent */
    void *body;
    size_t nbytes;
} parcel;

static void parcel_sent(void *arg, tri_status status)
{
    parcel *sent = arg;
    if (status == TRI_OK)
        tri_ps_guest_paid(sent->guest, sent->nbytes);
    tri_free(sent->body);
    tri_free(sent);
}

tri_status tri_ps_answer_take(ps_guest *guest, const ps_head *head, void *body)
{
    tri_letter letter = ps_head_write(head);
    if (guest->server >= 0 || tri_ps_chain_keep(guest->of, guest, (unsigned)INT32_MAX, &letter, body, false)) {
        tri_free(body);
        return TRI_OK;
    }
    parcel *sent = tri_alloc(sizeof(*sent));
    if (sent) {
        *sent = (parcel){guest, body, head->nbytes};
        tri_ps_guest_owes(guest, head->nbytes);
        if (tri_post_send(guest->line, (unsigned)INT32_MAX, &letter, body, parcel_sent, sent) == TRI_OK)
            return TRI_OK;
    }
    tri_free(sent);
    tri_free(body);
    return TRI_ENOMEM;
}

static void answer_plain(ps_guest *guest, ps_kind kind, uint64_t request, uint32_t table, int64_t clock)
{
    ps_head head = {.kind = kind, .request = request, .table = table, .clock = clock};
    tri_ps_answer(guest, &head, NULL, false);
}

/* --- guests --- */

static void room_leave(ps_guest *guest)
{
    if (guest->sum)
        (void)ps_sum_leave(guest->sum, guest->part, guest->room);
    guest->sum = NULL;
}

static void guest_remove(tri_ps_server *server, ps_guest *guest)
{
    room_leave(guest);
    tri_ps_kv_forget(server->kv, guest);
    tri_ps_chain_forget(server, guest);
    if (guest->server < 0 && guest->number >= 0 && server->workers[guest->number] == guest)
        server->workers[guest->number] = NULL;
    for (ps_guest **at = &server->guests; *at; at = &(*at)->next)
        if (*at == guest) {
            *at = guest->next;
            break;
        }
    tri_free(guest);
}

static bool on_opened(void *arg, tri_line *line)
{
    tri_ps_server *server = arg;
    ps_guest *guest = tri_alloc_zero(1, sizeof(*guest));
    if (!guest)
        return false;
    *guest = (ps_guest){.of = server, .line = line, .number = -1, .server = -1, .opens = -1, .next = server->guests};
    server->guests = guest;
    tri_line_note_set(line, guest);
    return true;
}

static void on_closed(void *arg, tri_line *line, const char *why)
{
    tri_ps_server *server = arg;
    ps_guest *guest = tri_line_note(line);
    int neighbour = line == server->chain.line ? server->chain.backup : guest ? guest->server : -1;
    if (line == server->chain.line)
        tri_ps_chain_lost(server);
    if (guest && guest->server < 0 && guest->number >= 0 && !server->left[guest->number])
        tri_log(TRI_LOG_WARN, "lost worker %d (%s): %s", guest->number, tri_line_from(line), why);
    if (guest)
        guest_remove(server, guest);
    if (neighbour < 0)
        return;
    if (server->ended >> neighbour & 1)
        tri_ps_chain_alone(server);
    else
        server->suspect = neighbour; /* looked at between turns: that takes time */
}

/* --- letters --- */

typedef tri_status (*letter_fn)(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body);

/* Another server has this one as its backup: what was here for others than workers is given anew. */
static tri_status neighbour_hello(tri_ps_server *server, ps_guest *guest, const ps_head *head)
{
    if (head->clock < 0 || head->clock >= PS_MAX_SERVERS || guest->number >= 0)
        return tri_fail(TRI_EFORMAT, "it says that it is server %lld", (long long)head->clock);
    if (head->extra > (double)server->view.version)
        TRI_TRY(tri_ps_chain_look(server));
    for (ps_guest *other = server->guests, *next; other; other = next) {
        next = other->next;
        if (other == guest || other->server < 0)
            continue;
        tri_line *line = other->line;
        guest_remove(server, other);
        tri_line_note_set(line, NULL);
        tri_line_hang_up(line);
    }
    guest->server = (int)head->clock;
    server->whole = false;
    for (int t = 0; t < server->table_count; t++)
        for (int b = 0; b < server->tables[t]->spec.cut_count; b++)
            if (!tri_ps_is_primary(server, server->tables[t], b))
                tri_ps_block_drop(server->tables[t], b);
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
        tri_line *line = before->line;
        tri_log(TRI_LOG_WARN, "worker %d is here again, from %s", number, tri_line_from(guest->line));
        guest_remove(server, before);
        tri_line_note_set(line, NULL);
        tri_line_hang_up(line);
    }
    guest->number = number;
    server->workers[number] = guest;
    answer_plain(guest, PS_HELLO, PS_VERSION, 0, number);
    return TRI_OK;
}

static void open_answer(ps_guest *guest, const ps_table *table)
{
    ps_head head = {.kind = PS_OPEN,
                    .request = guest->request,
                    .clock = table->ready ? tri_ps_table_clock(guest->of, table, guest->number) : -1,
                    .table = (uint32_t)table->number,
                    .extra = (double)table->tail_clock};
    tri_ps_answer(guest, &head, NULL, false);
    guest->opens = -1;
}

static tri_status on_open(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    int before = server->table_count;
    TRI_TRY(tri_ps_table_make(server, body, head->nbytes, &table));
    if (guest->server >= 0) {
        if (guest->table_count < PS_TABLES_MAX)
            guest->tables[guest->table_count++] = table->number;
        return TRI_OK;
    }
    if (server->table_count > before && server->chain.line) {
        tri_letter letter = ps_head_write(head);
        letter.flags |= PS_FLAG_STARTS;
        tri_ps_chain_forward(server, 0, &letter, body);
    } else if (server->table_count > before)
        TRI_TRY(tri_ps_chain_renew(server));
    guest->opens = table->number;
    guest->request = head->request;
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

static tri_status on_ready(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    (void)body;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    TRI_TRY(tri_ps_table_ready(server, table, head));
    answer_plain(guest, PS_READY, head->request, head->table, head->clock);
    for (ps_guest *other = server->guests; other; other = other->next)
        if (other->opens == table->number)
            open_answer(other, table);
    return TRI_OK;
}

static tri_status on_push(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    ps_block *block;
    TRI_TRY(tri_ps_block_find(server, head, &table, &block));
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
    (void)body;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    return tri_ps_bsp_move(server, table, head);
}

static tri_status on_clock(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    (void)body;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    return tri_ps_ssp_clock(server, guest, table, head);
}

static tri_status on_pull(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    ps_block *block;
    (void)body;
    TRI_TRY(tri_ps_block_find(server, head, &table, &block));
    return table->consistency == PS_BSP ? tri_ps_bsp_pull(guest, table, block, head)
                                        : tri_ps_ssp_pull(guest, table, block, head);
}

static tri_status on_pull_state(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    ps_block *block;
    (void)body;
    TRI_TRY(tri_ps_block_find(server, head, &table, &block));
    int index = (int)head->extra;
    if (!(head->extra >= 0 && head->extra < TRI_OPTIM_MAX_STATE) || !tri_optim_state_name(block->optim, index))
        return tri_fail(TRI_EFORMAT, "array %g of the optimizer", head->extra);
    ps_head answer = *head;
    answer.kind = PS_STATE;
    answer.clock = block->clock;
    answer.nbytes = (uint64_t)table->spec.cuts[head->block].count * sizeof(float);
    tri_ps_answer(guest, &answer, tri_optim_state(block->optim, index), false);
    return TRI_OK;
}

static tri_status on_stats(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    tri_string text = {0};
    (void)body;
    tri_status status = tri_ps_stats(server, &text);
    ps_head answer = {.kind = PS_STATS, .request = head->request, .nbytes = text.nbytes};
    if (status == TRI_OK)
        tri_ps_answer(guest, &answer, tri_string_text(&text), false);
    tri_string_fini(&text);
    return status;
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
    answer_plain(guest, PS_BYE, head->request, 0, 0);
    return TRI_OK;
}

static tri_status on_look(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    (void)guest;
    (void)body;
    return head->clock > (int64_t)server->view.version ? tri_ps_chain_look(server) : TRI_OK;
}

static tri_status on_copy_table(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    (void)guest;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    return tri_ps_table_read(table, body, head->nbytes);
}

static tri_status on_copy(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    (void)guest;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    if (head->block >= (uint32_t)table->spec.cut_count || tri_ps_is_primary(server, table, (int)head->block))
        return TRI_OK;
    TRI_TRY(tri_ps_block_hold(server, table, (int)head->block));
    return tri_ps_block_read(table, &table->blocks[head->block], body, head->nbytes);
}

static tri_status on_whole(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    (void)guest;
    (void)head;
    (void)body;
    server->whole = true;
    return TRI_OK;
}

static tri_status on_leave(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    (void)head;
    (void)body;
    server->ended |= UINT64_C(1) << guest->server;
    return TRI_OK;
}

/* What clients may say, and how long its body may be; a body longer than nothing is checked against its table. */
enum { CHANGES = 1, OF_BLOCK = 2, OF_SERVER = 4 };
static const struct {
    letter_fn fn;
    size_t body_limit;
    unsigned is; /* CHANGES: goes to the backup too. OF_BLOCK: wants the server that has the block. OF_SERVER: not for
                    workers */
} letters[PS_KIND_COUNT] = {
    [PS_HELLO] = {on_hello, 0, 0},
    [PS_OPEN] = {on_open, PS_TEXT_LIMIT_NBYTES, 0},
    [PS_INIT] = {on_init, PS_BODY_LIMIT_NBYTES, CHANGES | OF_BLOCK},
    [PS_READY] = {on_ready, 0, CHANGES},
    [PS_PUSH] = {on_push, PS_BODY_LIMIT_NBYTES, CHANGES | OF_BLOCK},
    [PS_TAIL] = {on_tail, TRI_PARAMS_TAIL * sizeof(float), CHANGES},
    [PS_MOVE] = {on_move, 0, CHANGES},
    [PS_CLOCK] = {on_clock, 0, CHANGES},
    [PS_PULL] = {on_pull, 0, OF_BLOCK},
    [PS_PULL_STATE] = {on_pull_state, 0, OF_BLOCK},
    [PS_STATS] = {on_stats, 0, 0},
    [PS_BYE] = {on_bye, 0, CHANGES},
    [PS_KV_JOIN] = {tri_ps_kv_letter, 0, 0},
    [PS_KV_OPEN] = {tri_ps_kv_letter, PS_TEXT_LIMIT_NBYTES, 0},
    [PS_KV_PULL] = {tri_ps_kv_letter, PS_BODY_LIMIT_NBYTES, 0},
    [PS_KV_PUSH] = {tri_ps_kv_letter, PS_BODY_LIMIT_NBYTES, 0},
    [PS_KV_CLOCK] = {tri_ps_kv_letter, sizeof(ps_slots), 0},
    [PS_KV_BARRIER] = {tri_ps_kv_letter, 0, 0},
    [PS_KV_STATS] = {tri_ps_kv_letter, 0, 0},
    [PS_KV_SAVE] = {tri_ps_kv_letter, PS_PATH_LIMIT_NBYTES, 0},
    [PS_KV_LOAD] = {tri_ps_kv_letter, PS_PATH_LIMIT_NBYTES, 0},
    [PS_LOOK] = {on_look, 0, 0},
    [PS_COPY_TABLE] = {on_copy_table, PS_BODY_LIMIT_NBYTES, OF_SERVER},
    [PS_COPY] = {on_copy, PS_BODY_LIMIT_NBYTES, OF_SERVER},
    [PS_WHOLE] = {on_whole, 0, OF_SERVER},
    [PS_LEAVE] = {on_leave, 0, OF_SERVER},
};

/* Before the body of a letter is read. */
static tri_status check_head(const ps_guest *guest, const ps_head *head)
{
    if ((unsigned)head->kind >= PS_KIND_COUNT || !letters[head->kind].fn)
        return tri_fail(TRI_EFORMAT, "it sent a letter of kind %d", (int)head->kind);
    if ((letters[head->kind].is & OF_SERVER) && guest->server < 0)
        return tri_fail(TRI_EFORMAT, "it sent a letter of kind %d, as only servers do", (int)head->kind);
    if (guest->server < 0 && guest->number < 0 && head->kind != PS_HELLO)
        return tri_fail(TRI_EFORMAT, "it has not said who it is");
    if (head->nbytes > letters[head->kind].body_limit)
        return tri_fail(TRI_EFORMAT, "a letter of kind %d has %llu bytes, want at most %zu", (int)head->kind,
                        (unsigned long long)head->nbytes, letters[head->kind].body_limit);
    return TRI_OK;
}

/* Tells a guest why; it is not listened to any more, and loses its line when it has had time to hear. */
void tri_ps_refuse(tri_ps_server *server, ps_guest *guest, tri_status status)
{
    char why[TRI_ERROR_NBYTES];
    snprintf(why, sizeof(why), "%s", tri_last_error());
    if (status == TRI_ENOMEM || status == TRI_ENUMERIC || status == TRI_EINTERNAL) {
        server->status = status;
        snprintf(server->message, sizeof(server->message), "%s", why);
    }
    tri_log(TRI_LOG_WARN, "refused %s (worker %d): %s", tri_line_from(guest->line), guest->number, why);
    ps_head head = {.kind = PS_REFUSED, .extra = (double)status, .nbytes = strlen(why)};
    tri_ps_answer(guest, &head, why, false);
    room_leave(guest);
    guest->leaves_ns = tri_deadline_after_ms(HEAR_MS);
}

static void refused_sweep(tri_ps_server *server)
{
    int64_t now_ns = tri_now_ns();
    for (ps_guest *guest = server->guests, *next; guest; guest = next) {
        next = guest->next;
        if (guest->leaves_ns == 0 || guest->leaves_ns > now_ns)
            continue;
        tri_line *line = guest->line;
        guest_remove(server, guest);
        tri_line_note_set(line, NULL);
        tri_line_hang_up(line);
    }
}

/* A forwarded letter: whose it is, and which table of this server it means. */
static bool forwarded_read(ps_guest *guest, ps_head *head)
{
    uint32_t table = head->table & PS_TABLE_MASK;
    if (guest->server < 0 || head->kind == PS_HELLO || head->kind == PS_OPEN || head->kind == PS_WHOLE ||
        head->kind == PS_LEAVE)
        return true;
    guest->number = (int)(head->table >> PS_TABLE_BITS);
    if (guest->number >= guest->of->setup.workers || table >= (uint32_t)guest->table_count)
        return false;
    head->table = (uint32_t)guest->tables[table];
    return true;
}

/* The block that a letter names is another server's: a worker is told so, a forwarded letter came too late or too
 * early. */
static bool is_elsewhere(tri_ps_server *server, const ps_guest *guest, const ps_head *head)
{
    const ps_table *table = head->table < (uint32_t)server->table_count ? server->tables[head->table] : NULL;
    if (!(letters[head->kind].is & OF_BLOCK) || !table || head->block >= (uint32_t)table->spec.cut_count)
        return false;
    bool primary = tri_ps_is_primary(server, table, (int)head->block);
    if (guest->server >= 0)
        return primary || (!table->blocks[head->block].held && head->kind != PS_INIT);
    return !primary;
}

static void *on_place(void *arg, tri_line *line, const tri_letter *letter, bool *refused)
{
    tri_ps_server *server = arg;
    ps_guest *guest = tri_line_note(line);
    ps_head head = ps_head_read(letter);
    ps_table *table = NULL;
    ps_block *block;
    if (line == server->chain.line)
        return NULL;
    if (!guest || guest->leaves_ns > 0) {
        *refused = !guest || head.nbytes > HEAR_LIMIT_NBYTES;
        return NULL;
    }
    tri_status status = check_head(guest, &head);
    if (status == TRI_OK && (!forwarded_read(guest, &head) || is_elsewhere(server, guest, &head)))
        return NULL;
    if (status == TRI_OK && head.kind == PS_PUSH)
        status = tri_ps_block_find(server, &head, &table, &block);
    if (status == TRI_OK && table && table->consistency == PS_BSP)
        status = tri_ps_bsp_place(guest, table, block, &head);
    if (status != TRI_OK && guest->server < 0) {
        tri_ps_refuse(server, guest, status);
        *refused = head.nbytes > HEAR_LIMIT_NBYTES;
    }
    return guest->sum ? guest->room : NULL;
}

/* What changes the state goes to the backup before it is handled, since its body may be used up then. A push that has
 * come before is known there too. */
static void forward(tri_ps_server *server, const ps_guest *guest, const ps_head *head, const tri_letter *letter,
                    const void *body)
{
    const ps_table *table = head->table < (uint32_t)server->table_count ? server->tables[head->table] : NULL;
    bool known = head->kind == PS_PUSH && table && table->consistency == PS_BSP && !guest->sum;
    if ((letters[head->kind].is & CHANGES) && !known)
        tri_ps_chain_forward(server, guest->number, letter, body);
}

/* A backup does what it is told; what it cannot do was meant for a state that it has not been given yet. */
static void follow(tri_ps_server *server, ps_guest *guest, ps_head *head, void *body)
{
    tri_status status = TRI_OK;
    if (forwarded_read(guest, head) && !is_elsewhere(server, guest, head))
        status = letters[head->kind].fn(server, guest, head, body);
    if (status != TRI_OK)
        tri_log(TRI_LOG_WARN, "a letter of kind %d that server %d has forwarded: %s", (int)head->kind, guest->server,
                tri_last_error());
    room_leave(guest);
    ps_head answer = {.kind = PS_ACK, .request = ++guest->heard};
    tri_letter letter = ps_head_write(&answer);
    tri_ps_answer_send(guest, 0, &letter, NULL, false);
}

static bool on_letter(void *arg, tri_line *line, const tri_letter *letter, void *body)
{
    tri_ps_server *server = arg;
    ps_guest *guest = tri_line_note(line);
    ps_head head = ps_head_read(letter);
    if (line == server->chain.line) {
        if (head.kind == PS_ACK)
            tri_ps_chain_acknowledged(server, head.request);
        else if (head.kind == PS_LEAVE && head.clock >= 0 && head.clock < 64)
            server->ended |= UINT64_C(1) << head.clock;
        return true;
    }
    if (!guest)
        return false;
    if (guest->leaves_ns > 0)
        return true;
    tri_status status = check_head(guest, &head);
    if (status == TRI_OK && (guest->server >= 0 || (head.kind == PS_HELLO && (head.flags & PS_FLAG_SERVER)))) {
        follow(server, guest, &head, body);
        return true;
    }
    if (status == TRI_OK && is_elsewhere(server, guest, &head)) {
        answer_plain(guest, PS_MOVED, head.request, head.table, (int64_t)server->view.version);
        return true;
    }
    if (status == TRI_OK) {
        forward(server, guest, &head, letter, body);
        status = letters[head.kind].fn(server, guest, &head, body);
    }
    if (status != TRI_OK)
        tri_ps_refuse(server, guest, status);
    return true;
}

/* --- views --- */

tri_status tri_ps_reach(tri_ps_server *server, int number, int64_t limit_ms, tri_line **line)
{
    char key[TRI_PS_KEY_NBYTES], *address;
    size_t nbytes;
    int64_t deadline_ns = tri_deadline_after_ms(limit_ms);
    tri_ps_key(number, key);
    TRI_TRY(tri_store_wait(server->setup.store, key, &address, &nbytes, deadline_ns));
    tri_status status = tri_post_dial(server->post, address, deadline_ns, line);
    tri_free(address);
    return status;
}

/* Servers that are not in the view must not go on as if their backup was with them. */
static void neighbours_drop(tri_ps_server *server)
{
    for (ps_guest *guest = server->guests, *next; guest; guest = next) {
        next = guest->next;
        if (guest->server < 0 || ps_view_find(&server->view, guest->server))
            continue;
        tri_line *line = guest->line;
        guest_remove(server, guest);
        tri_line_note_set(line, NULL);
        tri_line_hang_up(line);
    }
}

tri_status tri_ps_view_take(tri_ps_server *server, const ps_view *next)
{
    int number = server->setup.number, before = ps_view_slots(&server->view, number);
    server->view = *next;
    neighbours_drop(server);
    if (!ps_view_find(next, number)) { /* it was taken for dead */
        tri_log(TRI_LOG_WARN, "view %llu does without this server: it begins anew", (unsigned long long)next->version);
        tri_ps_chain_drop(server);
        return tri_ps_server_return(server);
    }
    if (!server->whole && ps_view_slots(next, number) > before)
        return tri_fail(TRI_EPEER, "a server is gone, and its backup had not been given all that it held: the newest "
                                   "weights are lost; --resume goes on from the newest checkpoint");
    tri_log(TRI_LOG_INFO, "view %llu: %d servers, %d of %d slots here", (unsigned long long)next->version,
            next->server_count, ps_view_slots(next, server->setup.number), PS_SLOTS);
    for (int w = 0; w < server->setup.workers; w++)
        if (server->workers[w])
            answer_plain(server->workers[w], PS_MOVED, 0, 0, (int64_t)next->version);
    return tri_ps_chain_renew(server);
}

tri_status tri_ps_server_return(tri_ps_server *server)
{
    ps_view *next = tri_alloc(sizeof(*next));
    if (!next)
        return TRI_ENOMEM;
    *next = server->view;
    tri_status status = tri_ps_views_look(server->setup.store, next);
    ps_place own = {.number = server->setup.number};
    server->whole = false;
    bool joined = false;
    while (status == TRI_OK && !joined) {
        server->view = *next;
        bool is_dead_one = ps_view_find(next, own.number); /* nobody has noticed yet */
        if (is_dead_one && next->server_count == 1)
            status = tri_fail(TRI_EPEER, "the last server was killed: the newest weights are lost; --resume goes on "
                                         "from the newest checkpoint");
        else
            status = is_dead_one ? ps_view_without(next, own.number, next) : ps_view_join(next, &own, next);
        uint64_t version = next->version;
        if (status == TRI_OK)
            status = tri_ps_views_claim(server->setup.store, next);
        joined = !is_dead_one && next->version == version && ps_view_find(next, own.number);
    }
    if (status == TRI_OK)
        server->view = *next;
    for (int t = 0; t < server->table_count; t++)
        for (int b = 0; b < server->tables[t]->spec.cut_count; b++)
            tri_ps_block_drop(server->tables[t], b);
    tri_free(next);
    return status;
}

/* --- the server --- */

tri_status tri_ps_server_open(const tri_ps_server_setup *setup, tri_ps_server **out)
{
    tri_ps_server *server = tri_alloc_zero(1, sizeof(*server));
    if (!server)
        return TRI_ENOMEM;
    server->setup = *setup;
    server->suspect = -1;
    server->whole = true; /* nothing, so far */
    tri_ps_chain_init(server);
    server->workers = tri_alloc_zero((size_t)setup->workers, sizeof(ps_guest *));
    server->left = tri_alloc_zero((size_t)setup->workers, sizeof(bool));
    tri_post_setup post = {
        .name = "parameter server",
        .config = setup->net,
        .token = setup->token,
        .listens = true,
        .body_limit = PS_BODY_LIMIT_NBYTES,
        .hub = setup->hub,
        .rank = setup->rank,
        .world = setup->world,
        .handlers = {.arg = server, .opened = on_opened, .place = on_place, .letter = on_letter, .closed = on_closed},
    };
    tri_status status = server->workers && server->left ? ps_view_first(setup->servers, &server->view) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_ps_kv_create(setup->workers, &server->kv);
    if (status == TRI_OK)
        status = tri_post_open(&post, &server->post);
    if (status != TRI_OK) {
        tri_ps_server_close(server);
        return status;
    }
    *out = server;
    return TRI_OK;
}

const char *tri_ps_server_address(const tri_ps_server *server)
{
    return tri_post_address(server->post);
}

/* A neighbour's line has ended. */
static tri_status neighbour_look(tri_ps_server *server)
{
    int number = server->suspect;
    server->suspect = -1;
    return number >= 0 ? tri_ps_chain_suspect(server, number) : TRI_OK;
}

/* A server that nobody talks to finds out by itself when it was taken for dead. */
static tri_status idle_look(tri_ps_server *server)
{
    int64_t now_ns = tri_now_ns();
    if (server->setup.replicas < 2 || server->guests || now_ns < server->look_ns)
        return TRI_OK;
    server->look_ns = now_ns + TRI_NS_PER_S;
    return tri_ps_chain_look(server);
}

/* Neighbours need not wonder. */
static void leave_tell(tri_ps_server *server)
{
    ps_head head = {.kind = PS_LEAVE, .clock = server->setup.number};
    tri_letter letter = ps_head_write(&head);
    if (server->chain.line)
        (void)tri_post_send(server->chain.line, 0, &letter, NULL, NULL, NULL);
    for (ps_guest *guest = server->guests; guest; guest = guest->next)
        if (guest->server >= 0)
            tri_ps_answer_send(guest, 0, &letter, NULL, false);
}

static bool is_busy(const tri_ps_server *server)
{
    return tri_ps_chain_is_busy(server) || tri_ps_kv_is_busy(server->kv);
}

tri_status tri_ps_server_run(tri_ps_server *server)
{
    enum { LOOK_MS = 200, COPY_MS = 1 }; /* at signals; while a backup is given blocks, or a file rows */
    while (!atomic_load(&server->stop) && server->left_count < server->setup.workers && !tri_stop_signal()) {
        TRI_TRY(tri_post_turn(server->post, tri_deadline_after_ms(is_busy(server) ? COPY_MS : LOOK_MS)));
        TRI_TRY(tri_ps_kv_go_on(server->kv));
        refused_sweep(server);
        TRI_TRY(neighbour_look(server));
        TRI_TRY(idle_look(server));
        TRI_TRY(tri_ps_chain_go_on(server));
        if (server->status != TRI_OK)
            return tri_fail_copy(server->status, server->message);
    }
    leave_tell(server);
    return TRI_OK;
}

void tri_ps_server_stop(tri_ps_server *server)
{
    atomic_store(&server->stop, true);
    tri_post_wake(server->post);
}

void tri_ps_server_close(tri_ps_server *server)
{
    if (!server)
        return;
    tri_post_close(server->post);
    tri_ps_chain_fini(server);
    while (server->guests)
        guest_remove(server, server->guests);
    for (int t = 0; t < server->table_count; t++)
        tri_ps_table_destroy(server->tables[t]);
    tri_ps_kv_destroy(server->kv);
    tri_free(server->workers);
    tri_free(server->left);
    tri_free(server);
}
