/* SPDX-License-Identifier: Apache-2.0
 *
 * connection.h: client connections of a server: messages that come, answers that go.
 */
#ifndef TRI_PS_CONNECTION_H
#define TRI_PS_CONNECTION_H

#include "ps/server/server_impl.h"

/* --- connection.c --- */
/* Memory for the body of an answer; NULL: there is none. */
void *tri_ps_answer_room(tri_ps_server *server, size_t nbytes);
/* Bytes that are here for a client, and that are not any more: who has too many is not read from meanwhile. */
void tri_ps_connection_bytes_add(ps_client_connection *client, size_t nbytes);
void tri_ps_connection_bytes_sub(ps_client_connection *client, size_t nbytes);
void tri_ps_answer_send(ps_client_connection *client, unsigned priority, const tri_message *message, const void *body,
                        bool lasting);
void tri_ps_connection_remove(tri_ps_server *server, ps_client_connection *client);
void tri_ps_connection_close(tri_ps_server *server, ps_client_connection *client);
/* Who is pushing into a block loses its connection, and begins again. */
void tri_ps_rooms_leave(tri_ps_server *server, const ps_block *block);
/* The server ends with this, after the message under way. */
void tri_ps_end_with(tri_ps_server *server, tri_status status);
/* Whether a failure is no single client's (no memory, no number): then the server ends with it. */
bool tri_ps_concerns_all(tri_ps_server *server, tri_status status);
/* Memory of tri_ps_answer_room(), of an answer that was sent. */
void tri_ps_answer_room_give_back(tri_ps_server *server, void *memory, size_t nbytes);
/* What came of a body under way is taken back. */
void tri_ps_room_leave(ps_client_connection *client);
/* The client is the server that has the slot, and this one is its backup. */
bool tri_ps_backs(const tri_ps_server *server, const ps_client_connection *client, int slot);

/* --- answers.c --- */
/* lasting: the body stays as it is until the client says more; else it is copied. Waits for the backup. */
void tri_ps_answer(ps_client_connection *client, const ps_head *head, const void *body, bool lasting);
/* The same with such a body, which is given back when it is sent or not. TRI_ENOMEM: it was not. */
tri_status tri_ps_answer_take(ps_client_connection *client, const ps_head *head, void *body);
/* The client gets the reason and loses its connection. */
void tri_ps_refuse(tri_ps_server *server, ps_client_connection *client, tri_status status);
void tri_ps_answer_plain(ps_client_connection *client, ps_kind kind, uint64_t request, uint32_t table, int64_t clock);

/* --- trace.c --- */
/* A message has come; a push is taken in; values go to a worker, or wait for the backup. */
void tri_ps_trace_asked(ps_client_connection *client, const ps_head *head, int64_t now_ns);
void tri_ps_trace_pushed(const tri_ps_server *server, int worker, const ps_head *head, int64_t start_ns);
void tri_ps_trace_answered(ps_client_connection *client, const ps_head *head);
/* PS_STATS with PS_FLAG_TIME or PS_FLAG_EVENTS. */
tri_status tri_ps_trace_tell(tri_ps_server *server, ps_client_connection *client, const ps_head *head);

/* --- annotations.c --- */
/* PS_NOTE */
tri_status tri_ps_note_take(tri_ps_server *server, ps_client_connection *client, const ps_head *head, const void *body);
void tri_ps_notes_free(tri_ps_server *server);

/* --- messages.c --- */
/* PS_CHANGES: goes to the backup too. PS_OF_BLOCK: needs the server that has the block. PS_OF_SERVER: not for workers.
 * PS_OF_SLOTS: needs the server that has the slots in its body. PS_IS_PUSH, PS_IS_PULL: counted as such. */
enum { PS_CHANGES = 1, PS_OF_BLOCK = 2, PS_OF_SERVER = 4, PS_OF_SLOTS = 8, PS_IS_PUSH = 16, PS_IS_PULL = 32 };
bool tri_ps_message_is(ps_kind kind, unsigned what);
/* Before its body is read. */
tri_status tri_ps_message_check(const ps_client_connection *client, const ps_head *head);
tri_status tri_ps_message_handle(tri_ps_server *server, ps_client_connection *client, const ps_head *head, void *body);

#endif
