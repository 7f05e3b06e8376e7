/* SPDX-License-Identifier: Apache-2.0
 *
 * annotations.c: notes for the other workers (ps/rpc/annotation.h), at the first server that there is.
 */
#include <string.h>

#include "ps/client/client_impl.h"

typedef struct asking {
    const tri_ps_client *client;
    int server;
} asking;

static bool has_answered(const asking *at)
{
    const ps_link *link = &at->client->links[at->server];
    return link->answered == link->question;
}

/* Or is gone. */
static bool is_over(void *arg)
{
    const asking *at = arg;
    return has_answered(at) || !ps_view_has(&at->client->view, at->server);
}

tri_status tri_ps_client_note(tri_ps_client *client, ps_subject subject, int64_t tag, const void *note, size_t nbytes,
                              tri_string *all, int *count)
{
    ps_head head = {
        .kind = PS_NOTE, .flags = all ? PS_FLAG_ALL : 0, .nbytes = nbytes, .clock = tag, .block = (uint32_t)subject};
    TRI_ASSERT(nbytes <= PS_NOTE_LIMIT_NBYTES);
    *count = 0;
    tri_mutex_lock(&client->mutex);
    asking at = {client, 0};
    while (at.server + 1 < client->setup.servers && !ps_view_has(&client->view, at.server))
        at.server++;
    ps_link *link = &client->links[at.server];
    tri_string_clear(&link->events);
    client->asked = &head;
    client->asked_body = note;
    tri_ps_ask_server(client, at.server);
    tri_status status = tri_ps_await(client, is_over, &at, "a note for the other workers");
    client->asked = NULL;
    if (status == TRI_OK && has_answered(&at)) {
        *count = (int)link->clock;
        if (all) {
            tri_string_fini(all);
            *all = link->events;
            link->events = (tri_string){0};
        }
    }
    tri_mutex_unlock(&client->mutex);
    return status;
}

tri_status tri_ps_client_clocks(tri_ps_client *client, tri_ps_operations *of_servers)
{
    memset(of_servers, 0, (size_t)client->setup.servers * sizeof(*of_servers));
    tri_mutex_lock(&client->mutex);
    tri_status status = tri_ps_clocks_ask(client, of_servers);
    tri_mutex_unlock(&client->mutex);
    return status;
}

const void *tri_ps_note_next(const tri_string *all, size_t *at, ps_note_head *head)
{
    if (all->nbytes - *at < sizeof(*head))
        return NULL;
    memcpy(head, all->text + *at, sizeof(*head));
    if (all->nbytes - *at < ps_note_room(head->nbytes))
        return NULL;
    const void *note = all->text + *at + sizeof(*head);
    *at += ps_note_room(head->nbytes);
    return note;
}
