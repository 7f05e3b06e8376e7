/* SPDX-License-Identifier: Apache-2.0
 *
 * key_lists.c: lists of keys that a server knows by their 128-bit hash, which is then sent in their place.
 *
 * A server says with its answer that it remembers the list, and may forget it at any time: then it asks for the keys,
 * and for all that came behind. A call has its keys until it is answered, whatever was sent. Who was asked believes so
 * that many fewer answers before it sends hashes again: a server without room for all lists refuses hashes ever
 * more seldom.
 */
#include "ps/client/kv.h"

#define UNHEEDED_FIRST 64
#define REFUSALS_MOST  14

static bool is_known(const ps_kv_link *link, const ps_call *call)
{
    for (int i = 0; i < KV_KNOWN; i++)
        if (link->known[i].hash.low64 == call->hash.low64 && link->known[i].hash.high64 == call->hash.high64 &&
            link->known[i].table == call->head.table)
            return true;
    return false;
}

void tri_ps_kv_known_forget(ps_kv_link *link)
{
    memset(link->known, 0, sizeof(link->known));
    link->next_known = 0;
    link->unheeded = 0;
    link->refusals = 0;
}

void tri_ps_kv_known_note(ps_kv_link *link, const ps_call *call, const ps_head *answer)
{
    if (call->keys_nbytes == 0 || !(answer->flags & PS_FLAG_LISTED) || is_known(link, call))
        return;
    if (link->unheeded > 0) {
        link->unheeded--;
        return;
    }
    link->known[link->next_known] = (kv_known){call->hash, call->head.table};
    link->next_known = (link->next_known + 1) % KV_KNOWN;
}

void tri_ps_kv_parts(const ps_kv_link *link, ps_call *call, ps_head *head, tri_part parts[TRI_MESSAGE_PARTS])
{
    size_t own = (size_t)call->head.nbytes - ps_call_lent_nbytes(call);
    size_t keys_end = sizeof(ps_slots) + call->keys_nbytes;
    bool is_named = call->keys_nbytes > 0 && is_known(link, call);
    *head = call->head;
    parts[0] = is_named ? (tri_part){call->name, sizeof(call->name)} : (tri_part){call->body, own};
    parts[1] = call->lent[0];
    parts[2] = call->lent[1];
    if (!is_named)
        return;
    ps_rows_name_write(&call->slots, &call->hash, call->name);
    bool has_more = call->lent[0].nbytes == 0 && own > keys_end; /* values of its own */
    parts[1] = has_more ? (tri_part){call->body + keys_end, own - keys_end} : (tri_part){NULL, 0};
    head->nbytes = sizeof(call->name) + parts[1].nbytes + parts[2].nbytes;
}

void tri_ps_kv_refused(tri_ps_client *client, int server, uint64_t request)
{
    ps_kv_link *link = &client->kv->links[server];
    ps_call *call = link->calls;
    int refusals = link->refusals < REFUSALS_MOST ? link->refusals : REFUSALS_MOST;
    tri_ps_kv_known_forget(link);
    link->unheeded = (int64_t)UNHEEDED_FIRST << refusals;
    link->refusals = refusals + 1;
    while (call && call->head.request != request)
        call = call->next;
    if (!call) /* it has gone to another server: all are said again, of which some may have been taken in */
        call = link->calls;
    for (; call; call = call->next)
        call->said = call->said && !call->of_slots;
    ps_head head = {.kind = PS_LOOK, .flags = PS_FLAG_LISTED, .clock = (int64_t)client->view.version};
    tri_ps_queue(client, server, (unsigned)INT32_MAX, &head, NULL);
}
