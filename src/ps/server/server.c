/* SPDX-License-Identifier: Apache-2.0
 *
 * server.c: a parameter server: its guests, the way of a letter, and the loop.
 *
 * A guest who says what cannot be is told why and loses its line; what it had under way is taken back, and nobody else
 * notices. What concerns all (no memory, no number) ends the server.
 */
#include <stdio.h>
#include <string.h>

#include "base/events.h"
#include "base/log.h"
#include "base/memory.h"
#include "ps/server/kv.h"
#include "ps/server/server_impl.h"

/* For how long, and how much, one who is refused may still speak. */
#define HEAR_MS           1000
#define HEAR_LIMIT_NBYTES (UINT64_C(1) << 20)

/* What lies here for one guest before it is not read from any more. */
#define OWED_LIMIT_NBYTES ((size_t)32 << 20)
/* And of answers that have to be sent: so few that their memory, which is used again and again, stays in the cache.
 * What waits for other workers is not among them: who is not read from then might be the one that is waited for. */
#define UNSENT_LIMIT_NBYTES ((size_t)1 << 20)

/* --- answers --- */

/* Values that stay as they are until the guest says more need no copy. */
static void sent_nothing(void *arg, tri_status status)
{
    (void)arg;
    (void)status;
}

void tri_ps_end_with(tri_ps_server *server, tri_status status)
{
    if (status == TRI_OK || server->status != TRI_OK)
        return;
    server->status = status;
    snprintf(server->message, sizeof(server->message), "%s", tri_last_error());
}

bool tri_ps_concerns_all(tri_ps_server *server, tri_status status)
{
    bool does = status == TRI_ENOMEM || status == TRI_ENUMERIC || status == TRI_EINTERNAL;
    if (does)
        tri_ps_end_with(server, status);
    return does;
}

/* One that cannot be sent would be waited for without end. */
void tri_ps_answer_send(ps_guest *guest, unsigned priority, const tri_letter *letter, const void *body, bool lasting)
{
    tri_counter_add(TRI_COUNT_SERVED_NBYTES, letter->nbytes);
    (void)tri_ps_concerns_all(guest->of,
                              tri_post_send(guest->line, priority, letter, body, lasting ? sent_nothing : NULL, NULL));
}

void tri_ps_answer(ps_guest *guest, const ps_head *head, const void *body, bool lasting)
{
    tri_letter letter = ps_head_write(head);
    if (guest->server >= 0) /* the server that forwards answers itself */
        return;
    tri_ps_trace_answered(guest, head);
    /* What the next step reads first goes first. */
    unsigned priority = head->kind == PS_VALUES ? (unsigned)(INT32_MAX - (int32_t)head->block) : (unsigned)INT32_MAX;
    if (!tri_ps_chain_keep(guest->of, guest, priority, &letter, body, lasting))
        tri_ps_answer_send(guest, priority, &letter, body, lasting);
}

/* As soon as too much lies here for it, until half of that is gone. */
static void guest_pause(ps_guest *guest)
{
    size_t part = guest->is_paused ? 2 : 1;
    bool paused = guest->owed > OWED_LIMIT_NBYTES / part || guest->unsent > UNSENT_LIMIT_NBYTES / part;
    if (paused != guest->is_paused)
        tri_line_pause(guest->line, paused);
    guest->is_paused = paused;
}

void tri_ps_guest_owes(ps_guest *guest, size_t nbytes)
{
    if (guest->server >= 0) /* its letters are the backup's to keep up with */
        return;
    guest->owed += nbytes;
    guest_pause(guest);
}

void tri_ps_guest_paid(ps_guest *guest, size_t nbytes)
{
    if (guest->server >= 0)
        return;
    guest->owed -= nbytes;
    guest_pause(guest);
}

/* Answers of this length are many when there are any: their memory is not given back to the system in between. */
#define SPARE_LEAST_NBYTES ((size_t)64 << 10)
#define SPARE_MOST_NBYTES  ((size_t)1 << 20)

void *tri_ps_answer_room(tri_ps_server *server, size_t nbytes)
{
    for (int i = 0; i < PS_SPARES && nbytes >= SPARE_LEAST_NBYTES; i++) {
        ps_spare *spare = &server->spares[i];
        if (spare->nbytes != nbytes)
            continue;
        spare->nbytes = 0;
        return spare->memory;
    }
    return tri_alloc(nbytes);
}

/* In place of a smaller one, or of none. */
static void room_give_back(tri_ps_server *server, void *memory, size_t nbytes)
{
    ps_spare *least = &server->spares[0];
    for (int i = 1; i < PS_SPARES; i++)
        if (server->spares[i].nbytes < least->nbytes)
            least = &server->spares[i];
    if (nbytes < SPARE_LEAST_NBYTES || nbytes > SPARE_MOST_NBYTES || least->nbytes >= nbytes) {
        tri_free(memory);
        return;
    }
    if (least->nbytes > 0)
        tri_free(least->memory);
    *least = (ps_spare){memory, nbytes};
}

typedef struct parcel {
    tri_ps_server *server;
    ps_guest *guest; /* may be gone where the letter was not sent */
    void *body;
    size_t nbytes;
} parcel;

static void parcel_sent(void *arg, tri_status status)
{
    parcel *sent = arg;
    if (status == TRI_OK) {
        sent->guest->unsent -= sent->nbytes;
        tri_ps_guest_paid(sent->guest, sent->nbytes);
    }
    room_give_back(sent->server, sent->body, sent->nbytes);
    tri_free(sent);
}

tri_status tri_ps_answer_take(ps_guest *guest, const ps_head *head, void *body)
{
    tri_letter letter = ps_head_write(head);
    tri_ps_trace_answered(guest, head);
    if (guest->server >= 0 || tri_ps_chain_keep(guest->of, guest, (unsigned)INT32_MAX, &letter, body, false)) {
        tri_free(body);
        return TRI_OK;
    }
    parcel *sent = tri_alloc(sizeof(*sent));
    if (sent) {
        *sent = (parcel){guest->of, guest, body, head->nbytes};
        guest->unsent += head->nbytes;
        tri_counter_add(TRI_COUNT_SERVED_NBYTES, head->nbytes);
        tri_ps_guest_owes(guest, head->nbytes);
        if (tri_post_send(guest->line, (unsigned)INT32_MAX, &letter, body, parcel_sent, sent) == TRI_OK)
            return TRI_OK;
    }
    tri_free(sent);
    tri_free(body);
    return TRI_ENOMEM;
}

void tri_ps_answer_plain(ps_guest *guest, ps_kind kind, uint64_t request, uint32_t table, int64_t clock)
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

void tri_ps_guest_remove(tri_ps_server *server, ps_guest *guest)
{
    room_leave(guest);
    server->refused -= guest->leaves_ns > 0;
    tri_ps_kv_forget(server->kv, guest);
    tri_ps_chain_forget(server, guest);
    if (guest->server < 0 && guest->number >= 0 && server->workers[guest->number] == guest)
        server->workers[guest->number] = NULL;
    for (ps_guest **at = &server->guests; *at; at = &(*at)->next)
        if (*at == guest) {
            *at = guest->next;
            break;
        }
    tri_vector_fini(&guest->asked);
    tri_free(guest);
}

void tri_ps_guest_hang_up(tri_ps_server *server, ps_guest *guest)
{
    tri_line *line = guest->line;
    tri_ps_guest_remove(server, guest);
    tri_line_note_set(line, NULL);
    tri_line_hang_up(line);
}

void tri_ps_rooms_leave(tri_ps_server *server, const ps_block *block)
{
    for (ps_guest *guest = server->guests, *next; guest; guest = next) {
        next = guest->next;
        if (guest->sum == &block->sum)
            tri_ps_guest_hang_up(server, guest);
    }
}

static bool on_opened(void *arg, tri_line *line)
{
    tri_ps_server *server = arg;
    ps_guest *guest = tri_alloc_zero(1, sizeof(*guest));
    if (!guest)
        return false;
    *guest = (ps_guest){.of = server,
                        .line = line,
                        .number = -1,
                        .server = -1,
                        .opens = -1,
                        .asked = {.each = sizeof(int64_t)},
                        .next = server->guests};
    server->guests = guest;
    tri_line_note_set(line, guest);
    return true;
}

static void on_closed(void *arg, tri_line *line, const char *why)
{
    tri_ps_server *server = arg;
    ps_guest *guest = tri_line_note(line);
    bool is_backup = line == server->chain.line;
    int neighbour = is_backup ? server->chain.backup : guest ? guest->server : -1;
    if (is_backup)
        tri_ps_chain_lost(server);
    if (guest && guest->server < 0 && guest->number >= 0 && !server->left[guest->number])
        tri_log(TRI_LOG_WARN, "lost worker %d (%s): %s", guest->number, tri_line_from(line), why);
    if (guest)
        tri_ps_guest_remove(server, guest);
    if (neighbour < 0)
        return;
    if (!(server->ended >> neighbour & 1))
        server->suspects |= UINT64_C(1) << neighbour; /* looked at between turns: that takes time */
    else if (is_backup)
        tri_ps_chain_alone(server);
}

/* --- letters --- */

/* Tells a guest why; it is not listened to any more, and loses its line when it has had time to hear. */
void tri_ps_refuse(tri_ps_server *server, ps_guest *guest, tri_status status)
{
    char why[TRI_ERROR_NBYTES];
    snprintf(why, sizeof(why), "%s", tri_last_error());
    (void)tri_ps_concerns_all(server, status);
    tri_log(TRI_LOG_WARN, "refused %s (worker %d): %s", tri_line_from(guest->line), guest->number, why);
    ps_head head = {.kind = PS_REFUSED, .extra = (double)status, .nbytes = strlen(why)};
    tri_ps_answer(guest, &head, why, false);
    room_leave(guest);
    server->refused += guest->leaves_ns == 0;
    guest->leaves_ns = tri_deadline_after_ms(HEAR_MS);
}

static void refused_sweep(tri_ps_server *server)
{
    int64_t now_ns = tri_now_ns();
    for (ps_guest *guest = server->refused > 0 ? server->guests : NULL, *next; guest; guest = next) {
        next = guest->next;
        if (guest->leaves_ns > 0 && guest->leaves_ns <= now_ns)
            tri_ps_guest_hang_up(server, guest);
    }
}

/* A forwarded letter: whose it is, and which table of this server it means. */
static bool forwarded_read(ps_guest *guest, ps_head *head)
{
    uint32_t table = head->table & PS_TABLE_MASK;
    if (guest->server < 0 || head->kind == PS_HELLO || head->kind == PS_OPEN || head->kind == PS_LOOK ||
        head->kind == PS_LEAVE || head->kind == PS_BEAT)
        return true;
    if (ps_kind_is_kv(head->kind)) {
        guest->number = head->request < (uint64_t)guest->of->setup.workers ? (int)head->request : -1;
        return guest->number >= 0;
    }
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
    if (!(tri_ps_letter_is(head->kind, PS_OF_BLOCK)) || !table || head->block >= (uint32_t)table->spec.cut_count)
        return false;
    bool primary = tri_ps_is_primary(server, table, (int)head->block);
    if (guest->server >= 0)
        return !tri_ps_backs(server, guest, table->slots[head->block]) ||
               (!table->blocks[head->block].held && head->kind != PS_INIT);
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
    tri_status status = tri_ps_letter_check(guest, &head);
    if (status == TRI_OK && (!forwarded_read(guest, &head) || is_elsewhere(server, guest, &head)))
        return NULL;
    if (status == TRI_OK && head.kind == PS_PUSH)
        status = tri_ps_block_find(server, &head, &table, &block);
    if (status == TRI_OK && table && table->consistency == PS_BSP)
        status = tri_ps_bsp_place(guest, table, block, &head);
    if (status != TRI_OK && guest->server >= 0 && !tri_ps_concerns_all(server, status)) {
        tri_log(TRI_LOG_WARN, "the copy of what server %d has is not in step (%s): it is wanted anew", guest->server,
                tri_last_error());
        *refused = true;
    } else if (status != TRI_OK) {
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
    server->rows_came = server->rows_came || (tri_ps_letter_is(head->kind, PS_CHANGES) && ps_kind_is_kv(head->kind));
    if ((tri_ps_letter_is(head->kind, PS_CHANGES)) && !known)
        tri_ps_chain_forward(server, guest->number, letter, body);
}

/* A backup does what it is told; what it cannot do was meant for a state that it has not been given yet. */
static void follow(tri_ps_server *server, tri_line *line, ps_head *head, void *body)
{
    ps_guest *guest = tri_line_note(line);
    tri_status status = TRI_OK;
    if (forwarded_read(guest, head) && !is_elsewhere(server, guest, head))
        status = tri_ps_letter_handle(server, guest, head, body);
    if (tri_line_note(line) != guest) /* it has heard that this guest is none any more */
        return;
    if (status != TRI_OK && head->kind == PS_HELLO && !tri_ps_concerns_all(server, status)) {
        tri_log(TRI_LOG_WARN, "hung up on %s: %s", tri_line_from(line), tri_last_error());
        tri_ps_guest_hang_up(server, guest);
        return;
    }
    if (status != TRI_OK && !tri_ps_concerns_all(server, status))
        tri_log(TRI_LOG_WARN, "a letter of kind %d that server %d has forwarded: %s", (int)head->kind, guest->server,
                tri_last_error());
    room_leave(guest);
    ps_head answer = {.kind = PS_ACK, .request = ++guest->heard};
    tri_letter letter = ps_head_write(&answer);
    tri_ps_answer_send(guest, 0, &letter, NULL, false);
}

/* Its keys have to be said, before anything that comes behind. */
static void keys_ask(const tri_ps_server *server, ps_guest *guest, const ps_head *head)
{
    ps_head moved = {.kind = PS_MOVED,
                     .flags = PS_FLAG_LISTED,
                     .request = head->request,
                     .table = head->table,
                     .clock = (int64_t)server->view.version};
    guest->is_deaf = true;
    tri_ps_answer(guest, &moved, NULL, false);
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
        else if (head.kind == PS_BEAT)
            tri_ps_beat_excused(server, &server->chain.quiet, line, head.extra);
        return true;
    }
    if (!guest)
        return false;
    if (guest->leaves_ns > 0)
        return true;
    tri_status status = tri_ps_letter_check(guest, &head);
    if (status == TRI_OK && head.kind == PS_BEAT && head.extra > 0) {
        tri_ps_beat_excused(server, &guest->quiet, line, head.extra);
        return true;
    }
    if (status == TRI_OK && (guest->server >= 0 || (head.kind == PS_HELLO && (head.flags & PS_FLAG_SERVER)))) {
        follow(server, line, &head, body);
        return true;
    }
    bool elsewhere = status == TRI_OK && is_elsewhere(server, guest, &head);
    if (status == TRI_OK && guest->is_deaf && tri_ps_letter_is(head.kind, PS_OF_SLOTS))
        return true;
    if (status == TRI_OK && tri_ps_letter_is(head.kind, PS_OF_SLOTS)) {
        elsewhere = guest->is_stalled || tri_ps_kv_is_elsewhere(server, &head, body);
        guest->is_stalled = elsewhere; /* nothing that comes behind may overtake it */
    }
    if (elsewhere) {
        room_leave(guest);
        ps_head moved = {.kind = PS_MOVED,
                         .flags = PS_FLAG_REFUSED,
                         .request = head.request,
                         .table = head.table,
                         .clock = (int64_t)server->view.version};
        tri_ps_answer(guest, &moved, NULL, false);
        return true;
    }
    if (status == TRI_OK && tri_ps_kv_is_unknown(server, guest, &head, body)) {
        keys_ask(server, guest, &head);
        return true;
    }
    if (status == TRI_OK) {
        forward(server, guest, &head, letter, body);
        status = tri_ps_letter_handle(server, guest, &head, body);
    }
    if (status != TRI_OK)
        tri_ps_refuse(server, guest, status);
    return true; /* the guest may be gone */
}

/* --- the server --- */

tri_status tri_ps_server_open(const tri_ps_server_setup *setup, tri_ps_server **out)
{
    tri_ps_server *server = tri_alloc_zero(1, sizeof(*server));
    if (!server)
        return TRI_ENOMEM;
    server->setup = *setup;
    tri_ps_chain_init(server);
    server->workers = tri_alloc_zero((size_t)setup->workers, sizeof(ps_guest *));
    server->left = tri_alloc_zero((size_t)setup->workers, sizeof(bool));
    server->joined = tri_alloc_zero((size_t)setup->workers, sizeof(bool));
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
    bool placed = server->workers && server->left && server->joined;
    tri_status status = placed ? ps_view_first(setup->servers, &server->view) : TRI_ENOMEM;
    if (status == TRI_OK && setup->hosts)
        ps_view_spread(&server->view, setup->hosts);
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

static bool is_busy(const tri_ps_server *server)
{
    return tri_ps_chain_is_busy(server) || tri_ps_kv_is_busy(server->kv) || tri_ps_save_is_busy(server);
}

/* Asked by a signal, a server goes on until its workers, which were asked too, have saved what they want to. */
static bool is_asked_to_stop(tri_ps_server *server)
{
    if (!tri_stop_signal())
        return false;
    for (int w = 0; w < server->setup.workers; w++)
        if (server->workers[w] && !server->left[w]) {
            if (!server->signal_told)
                tri_log(TRI_LOG_INFO, "asked to stop: this server goes on until the workers have left");
            server->signal_told = true;
            return false;
        }
    return true;
}

tri_status tri_ps_server_run(tri_ps_server *server)
{
    enum { LOOK_MS = 200, COPY_MS = 1 }; /* at signals; while a backup is given blocks, or a file rows */
    while (!atomic_load(&server->stop) && server->left_count < server->setup.workers && !is_asked_to_stop(server)) {
        int64_t wait_ms = is_busy(server) ? COPY_MS : tri_ps_beat_ms(server, LOOK_MS);
        TRI_TRY(tri_post_turn(server->post, tri_deadline_after_ms(wait_ms)));
        TRI_TRY(tri_ps_kv_go_on(server));
        tri_ps_save_go_on(server);
        refused_sweep(server);
        TRI_TRY(tri_ps_neighbour_look(server));
        TRI_TRY(tri_ps_idle_look(server));
        TRI_TRY(tri_ps_restored_look(server));
        TRI_TRY(tri_ps_beat(server));
        TRI_TRY(tri_ps_chain_go_on(server));
        if (server->status != TRI_OK)
            return tri_fail_copy(server->status, server->message);
    }
    tri_ps_leave_tell(server);
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
    tri_ps_save_destroy(server->save);
    tri_ps_chain_fini(server);
    while (server->guests)
        tri_ps_guest_remove(server, server->guests);
    for (int t = 0; t < server->table_count; t++)
        tri_ps_table_destroy(server->tables[t]);
    tri_ps_kv_destroy(server->kv);
    for (int i = 0; i < PS_SPARES; i++)
        if (server->spares[i].nbytes > 0)
            tri_free(server->spares[i].memory);
    tri_ps_notes_free(server);
    tri_free(server->workers);
    tri_free(server->left);
    tri_free(server->joined);
    tri_free(server);
}
