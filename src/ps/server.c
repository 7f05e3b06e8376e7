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
#include "ps/server_impl.h"
#include "ps/server_kv.h"

/* What lies here for one guest before it is not read from any more. */
#define OWED_LIMIT_NBYTES ((size_t)32 << 20)

/* For how long, and how much, one who is refused may still speak. */
#define HEAR_MS           1000
#define HEAR_LIMIT_NBYTES (UINT64_C(1) << 20)

/* --- answers --- */

/* Values that stay as they are until the guest says more need no copy. */
static void sent_nothing(void *arg, tri_status status)
{
    (void)arg;
    (void)status;
}

void tri_ps_answer(ps_guest *guest, const ps_head *head, const void *body, bool lasting)
{
    tri_letter letter = ps_head_write(head);
    /* What the next step reads first goes first. */
    unsigned priority = head->kind == PS_VALUES ? (unsigned)(INT32_MAX - (int32_t)head->block) : (unsigned)INT32_MAX;
    if (tri_post_send(guest->line, priority, &letter, body, lasting ? sent_nothing : NULL, NULL) != TRI_OK)
        tri_log(TRI_LOG_WARN, "an answer to %s was not sent: %s", tri_line_from(guest->line), tri_last_error());
}

void tri_ps_guest_owes(ps_guest *guest, size_t nbytes)
{
    guest->owed += nbytes;
    if (guest->owed <= OWED_LIMIT_NBYTES || guest->is_paused)
        return;
    guest->is_paused = true;
    tri_line_pause(guest->line, true);
}

void tri_ps_guest_paid(ps_guest *guest, size_t nbytes)
{
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
    if (guest->number >= 0 && server->workers[guest->number] == guest)
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
    *guest = (ps_guest){.line = line, .number = -1, .opens = -1, .next = server->guests};
    server->guests = guest;
    tri_line_note_set(line, guest);
    return true;
}

static void on_closed(void *arg, tri_line *line, const char *why)
{
    tri_ps_server *server = arg;
    ps_guest *guest = tri_line_note(line);
    if (!guest)
        return;
    if (guest->number >= 0 && !server->left[guest->number])
        tri_log(TRI_LOG_WARN, "lost worker %d (%s): %s", guest->number, tri_line_from(line), why);
    guest_remove(server, guest);
}

/* --- letters --- */

typedef tri_status (*letter_fn)(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body);

static tri_status on_hello(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    (void)body;
    if (head->request != PS_VERSION)
        return tri_fail(TRI_EFORMAT, "it speaks version %llu of the protocol, want %d",
                        (unsigned long long)head->request, PS_VERSION);
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
                    .clock = table->ready ? tri_ps_table_clock(table, guest->number) : -1,
                    .table = (uint32_t)table->number,
                    .extra = (double)table->tail_clock};
    tri_ps_answer(guest, &head, NULL, false);
    guest->opens = -1;
}

static tri_status on_open(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    TRI_TRY(tri_ps_table_make(server, body, head->nbytes, &table));
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
    TRI_TRY(tri_ps_block_find(server, head, &table, &block));
    return tri_ps_block_fill(table, block, head, body);
}

static tri_status on_ready(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    ps_table *table;
    (void)body;
    TRI_TRY(tri_ps_block_find(server, head, &table, NULL));
    TRI_TRY(tri_ps_table_ready(table, head));
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

static tri_status on_bye(tri_ps_server *server, ps_guest *guest, const ps_head *head, void *body)
{
    (void)body;
    server->left_count += !server->left[guest->number];
    server->left[guest->number] = true;
    for (int t = 0; t < server->table_count; t++)
        if (server->tables[t]->consistency != PS_BSP)
            TRI_TRY(tri_ps_ssp_left(server, server->tables[t], guest->number));
    TRI_TRY(tri_ps_kv_left(server, guest->number));
    answer_plain(guest, PS_BYE, head->request, 0, 0);
    return TRI_OK;
}

/* What clients may say, and how long its body may be; a body longer than nothing is checked against its table. */
static const struct {
    letter_fn fn;
    size_t body_limit;
} letters[PS_KIND_COUNT] = {
    [PS_HELLO] = {on_hello, 0},
    [PS_OPEN] = {on_open, PS_TEXT_LIMIT_NBYTES},
    [PS_INIT] = {on_init, PS_BODY_LIMIT_NBYTES},
    [PS_READY] = {on_ready, 0},
    [PS_PUSH] = {on_push, PS_BODY_LIMIT_NBYTES},
    [PS_TAIL] = {on_tail, TRI_PARAMS_TAIL * sizeof(float)},
    [PS_MOVE] = {on_move, 0},
    [PS_CLOCK] = {on_clock, 0},
    [PS_PULL] = {on_pull, 0},
    [PS_PULL_STATE] = {on_pull_state, 0},
    [PS_STATS] = {on_stats, 0},
    [PS_BYE] = {on_bye, 0},
    [PS_KV_JOIN] = {tri_ps_kv_letter, 0},
    [PS_KV_OPEN] = {tri_ps_kv_letter, PS_TEXT_LIMIT_NBYTES},
    [PS_KV_PULL] = {tri_ps_kv_letter, PS_BODY_LIMIT_NBYTES},
    [PS_KV_PUSH] = {tri_ps_kv_letter, PS_BODY_LIMIT_NBYTES},
    [PS_KV_CLOCK] = {tri_ps_kv_letter, sizeof(ps_slots)},
    [PS_KV_BARRIER] = {tri_ps_kv_letter, 0},
    [PS_KV_STATS] = {tri_ps_kv_letter, 0},
    [PS_KV_SAVE] = {tri_ps_kv_letter, PS_PATH_LIMIT_NBYTES},
    [PS_KV_LOAD] = {tri_ps_kv_letter, PS_PATH_LIMIT_NBYTES},
};

/* Before the body of a letter is read. */
static tri_status check_head(const ps_guest *guest, const ps_head *head)
{
    if ((unsigned)head->kind >= PS_KIND_COUNT || !letters[head->kind].fn)
        return tri_fail(TRI_EFORMAT, "it sent a letter of kind %d", (int)head->kind);
    if (guest->number < 0 && head->kind != PS_HELLO)
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

static void *on_place(void *arg, tri_line *line, const tri_letter *letter, bool *refused)
{
    tri_ps_server *server = arg;
    ps_guest *guest = tri_line_note(line);
    ps_head head = ps_head_read(letter);
    ps_table *table = NULL;
    ps_block *block;
    if (!guest || guest->leaves_ns > 0) {
        *refused = !guest || head.nbytes > HEAR_LIMIT_NBYTES;
        return NULL;
    }
    tri_status status = check_head(guest, &head);
    if (status == TRI_OK && head.kind == PS_PUSH)
        status = tri_ps_block_find(server, &head, &table, &block);
    if (status == TRI_OK && table && table->consistency == PS_BSP)
        status = tri_ps_bsp_place(guest, table, block, &head);
    if (status != TRI_OK) {
        tri_ps_refuse(server, guest, status);
        *refused = head.nbytes > HEAR_LIMIT_NBYTES;
    }
    return guest->sum ? guest->room : NULL;
}

static bool on_letter(void *arg, tri_line *line, const tri_letter *letter, void *body)
{
    tri_ps_server *server = arg;
    ps_guest *guest = tri_line_note(line);
    ps_head head = ps_head_read(letter);
    if (!guest)
        return false;
    if (guest->leaves_ns > 0)
        return true;
    tri_status status = check_head(guest, &head);
    if (status == TRI_OK)
        status = letters[head.kind].fn(server, guest, &head, body);
    if (status != TRI_OK)
        tri_ps_refuse(server, guest, status);
    return true;
}

/* --- the server --- */

tri_status tri_ps_server_open(const tri_ps_server_setup *setup, tri_ps_server **out)
{
    tri_ps_server *server = tri_alloc_zero(1, sizeof(*server));
    if (!server)
        return TRI_ENOMEM;
    server->setup = *setup;
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
        .handlers = {.arg = server,
                     .opened = on_opened,
                     .place = on_place,
                     .letter = on_letter,
                     .closed = on_closed},
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

tri_status tri_ps_server_run(tri_ps_server *server)
{
    enum { LOOK_MS = 200 }; /* at signals */
    while (!atomic_load(&server->stop) && server->left_count < server->setup.workers && !tri_stop_signal()) {
        TRI_TRY(tri_post_turn(server->post, tri_deadline_after_ms(tri_ps_kv_is_busy(server->kv) ? 0 : LOOK_MS)));
        TRI_TRY(tri_ps_kv_go_on(server->kv));
        refused_sweep(server);
        if (server->status != TRI_OK)
            return tri_fail_copy(server->status, server->message);
    }
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
    while (server->guests)
        guest_remove(server, server->guests);
    for (int t = 0; t < server->table_count; t++)
        tri_ps_table_destroy(server->tables[t]);
    tri_ps_kv_destroy(server->kv);
    tri_free(server->workers);
    tri_free(server->left);
    tri_free(server);
}
