/* SPDX-License-Identifier: Apache-2.0
 *
 * annotations.c: notes that workers leave for each other (ps/rpc/annotation.h).
 */

#include "ps/rpc/annotation.h"
#include "ps/server/connection.h"

struct ps_note {
    int64_t tag;
    tri_string text; /* empty: none is left */
};

static struct ps_note *note_of(const tri_ps_server *server, uint32_t subject, int worker)
{
    return &server->notes[(size_t)subject * (size_t)server->setup.workers + (size_t)worker];
}

static bool is_meant(const struct ps_note *note, int64_t tag)
{
    return note->text.nbytes > 0 && note->tag == tag;
}

static tri_status note_keep(struct ps_note *note, const ps_head *head, const void *body)
{
    tri_string_clear(&note->text);
    note->tag = head->clock;
    return tri_string_append_bytes(&note->text, body, head->nbytes);
}

static tri_status notes_tell(tri_ps_server *server, ps_client_connection *client, const ps_head *head, ps_head *answer)
{
    static const char zeros[8] = {0};
    tri_string all = {0};
    tri_status status = TRI_OK;
    for (int w = 0; w < server->setup.workers && status == TRI_OK; w++) {
        struct ps_note *note = note_of(server, head->block, w);
        const ps_note_head of = {.worker = (uint32_t)w, .nbytes = (uint32_t)note->text.nbytes};
        if (!is_meant(note, head->clock))
            continue;
        status = tri_string_append_bytes(&all, &of, sizeof(of));
        if (status == TRI_OK)
            status = tri_string_append_bytes(&all, tri_string_text(&note->text), of.nbytes);
        if (status == TRI_OK)
            status = tri_string_append_bytes(&all, zeros, ps_note_room(of.nbytes) - sizeof(of) - of.nbytes);
        if (head->block == PS_SUBJECT_TRACE)
            tri_string_fini(&note->text);
    }
    answer->flags = PS_FLAG_ALL;
    answer->nbytes = all.nbytes;
    if (status == TRI_OK)
        tri_ps_answer(client, answer, tri_string_text(&all), false);
    tri_string_fini(&all);
    return status;
}

tri_status tri_ps_note_take(tri_ps_server *server, ps_client_connection *client, const ps_head *head, const void *body)
{
    ps_head answer = {.kind = PS_NOTE, .request = head->request};
    if (client->server >= 0 || head->block >= PS_SUBJECT_COUNT)
        return tri_fail(TRI_EFORMAT, "it leaves a note on subject %u, want below %d", head->block, PS_SUBJECT_COUNT);
    if (!server->notes) {
        server->notes = tri_alloc_zero((size_t)server->setup.workers * PS_SUBJECT_COUNT, sizeof(*server->notes));
        if (!server->notes)
            return TRI_ENOMEM;
    }
    if (head->nbytes > 0)
        TRI_TRY(note_keep(note_of(server, head->block, client->number), head, body));
    for (int w = 0; w < server->setup.workers; w++)
        answer.clock += is_meant(note_of(server, head->block, w), head->clock);
    if (head->flags & PS_FLAG_ALL)
        return notes_tell(server, client, head, &answer);
    tri_ps_answer(client, &answer, NULL, false);
    return TRI_OK;
}

void tri_ps_notes_free(tri_ps_server *server)
{
    for (int i = 0; server->notes && i < server->setup.workers * PS_SUBJECT_COUNT; i++)
        tri_string_fini(&server->notes[i].text);
    tri_free(server->notes);
    server->notes = NULL;
}
