/* SPDX-License-Identifier: Apache-2.0
 *
 * save_request.c: the leader asks the servers to write a checkpoint.
 */
#include <stdio.h>

#include "ps/client/client_impl.h"
#include "ps/replication/save.h"

/* All have answered. */
static void answers_read(const tri_ps_client *client, ps_save_answer *answer)
{
    *answer = (ps_save_answer){.accepted = true, .late = -1};
    for (int s = 0; s < client->setup.servers; s++) {
        const ps_link *link = &client->links[s];
        if (!ps_view_has(&client->view, s))
            continue;
        if (link->clock > answer->late)
            answer->late = link->clock;
        if (link->extra != 0 && answer->accepted)
            snprintf(answer->why, sizeof(answer->why), "server %d: %s", s, tri_string_text(&client->save_why));
        answer->accepted = answer->accepted && link->extra == 0;
    }
}

tri_status tri_ps_client_save(tri_ps_client *client, int64_t step, const ps_save_plan *plan, atomic_bool *lost,
                              int *writers, ps_save_answer *answer)
{
    tri_string body = {0};
    tri_status status = ps_save_plan_write(plan, &body);
    tri_mutex_lock(&client->mutex);
    tri_string_clear(&client->save_why);
    client->save_lost = lost;
    *writers = client->view.server_count;
    ps_head head = {.kind = PS_SAVE, .clock = step, .extra = (double)client->view.version, .nbytes = body.nbytes};
    if (status == TRI_OK)
        status = tri_ps_ask_all(client, head, tri_string_text(&body), "asking for a checkpoint");
    answers_read(client, answer);
    if (status != TRI_OK || !answer->accepted)
        client->save_lost = NULL;
    tri_mutex_unlock(&client->mutex);
    tri_string_fini(&body);
    return status;
}

void tri_ps_client_saved(tri_ps_client *client)
{
    tri_mutex_lock(&client->mutex);
    client->save_lost = NULL;
    tri_mutex_unlock(&client->mutex);
}
