/* SPDX-License-Identifier: Apache-2.0
 *
 * server_views.c: how a server takes part in the row of views: what a new one means for it, and how it comes back.
 */
#include "base/log.h"
#include "base/memory.h"
#include "ps/client.h"
#include "ps/server_impl.h"
#include "ps/server_kv.h"
#include "ps/views.h"

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
        if (guest->server >= 0 && !ps_view_find(&server->view, guest->server))
            tri_ps_guest_hang_up(server, guest);
    }
}

/* The backup has not been given the slots that this server takes over: it is told everything anew. */
static void slots_gained(tri_ps_server *server, const ps_view *next)
{
    bool gained = false;
    for (int s = 0; s < PS_SLOTS; s++)
        gained = gained || (next->slots[s] == server->setup.number && server->view.slots[s] != server->setup.number);
    if (gained && server->chain.line) {
        tri_line_hang_up(server->chain.line);
        tri_ps_chain_lost(server);
    }
}

tri_status tri_ps_view_take(tri_ps_server *server, const ps_view *next)
{
    int number = server->setup.number, before = ps_view_slots(&server->view, number);
    slots_gained(server, next);
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
    tri_ps_kv_view(server);
    for (int w = 0; w < server->setup.workers; w++)
        if (server->workers[w])
            tri_ps_answer_plain(server->workers[w], PS_MOVED, 0, 0, (int64_t)next->version);
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
    tri_ps_kv_drop(server, true);
    for (int t = 0; t < server->table_count; t++)
        for (int b = 0; b < server->tables[t]->spec.cut_count; b++)
            tri_ps_block_drop(server->tables[t], b);
    tri_free(next);
    return status;
}

/* Lines of neighbours have ended. */
tri_status tri_ps_neighbour_look(tri_ps_server *server)
{
    while (server->suspects != 0) {
        int number = __builtin_ctzll(server->suspects);
        server->suspects &= server->suspects - 1;
        TRI_TRY(tri_ps_chain_suspect(server, number));
    }
    return TRI_OK;
}

/* A server that nobody talks to finds out by itself when it was taken for dead. */
tri_status tri_ps_idle_look(tri_ps_server *server)
{
    int64_t now_ns = tri_now_ns();
    if (server->setup.replicas < 2 || server->guests || now_ns < server->look_ns)
        return TRI_OK;
    server->look_ns = now_ns + TRI_NS_PER_S;
    return tri_ps_chain_look(server);
}

/* Neighbours need not wonder. */
void tri_ps_leave_tell(tri_ps_server *server)
{
    ps_head head = {.kind = PS_LEAVE, .clock = server->setup.number};
    tri_letter letter = ps_head_write(&head);
    if (server->chain.line)
        (void)tri_post_send(server->chain.line, 0, &letter, NULL, NULL, NULL);
    for (ps_guest *guest = server->guests; guest; guest = guest->next)
        if (guest->server >= 0)
            tri_ps_answer_send(guest, 0, &letter, NULL, false);
}
