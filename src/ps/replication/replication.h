/* SPDX-License-Identifier: Apache-2.0
 *
 * replication.h: what keeps the state of a server alive: views, a backup that catches up, restore, checkpoints.
 */
#ifndef TRI_PS_REPLICATION_H
#define TRI_PS_REPLICATION_H

#include "ps/replication/chain.h"
#include "ps/server/server_impl.h"

/* --- catch_up.c, suspicion.c --- */
/* The view is becoming `next`: which slots the backup has of those that are this server's then. */
void tri_ps_chain_step(tri_ps_server *server, const ps_view *next);
/* Reaches the backup that the view needs. Called when a table is there, and when the view has changed. */
tri_status tri_ps_chain_renew(tri_ps_server *server);
/* Gives the backup more of what it lacks; shares slots out when it has all. To be called after each turn. */
tri_status tri_ps_chain_go_on(tri_ps_server *server);
/* To be called after each turn: beats, and finds out who is silent. */
tri_status tri_ps_beat(tri_ps_server *server);
/* A neighbour may be dead: finds out, and if so makes the view without it. */
tri_status tri_ps_chain_suspect(tri_ps_server *server, int number);

/* --- view_changes.c --- */
/* A neighbour's connection has ended. */
tri_status tri_ps_neighbour_look(tri_ps_server *server);
/* A server that nobody talks to finds out by itself when it was taken for dead. */
tri_status tri_ps_idle_look(tri_ps_server *server);
/* Neighbours need not wonder. */
void tri_ps_leave_tell(tri_ps_server *server);
/* Dials another server; its address is in the store. */
tri_status tri_ps_reach(tri_ps_server *server, int number, int64_t limit_ms, tri_connection **connection);
/* Takes all views that are there and newer than its own. */
tri_status tri_ps_view_look(tri_ps_server *server);
/* Something that the server of a slot has is not here. */
bool tri_ps_slot_lacks(const tri_ps_server *server, int slot);
/* What is here of a slot means nothing any more. */
void tri_ps_slot_leave(tri_ps_server *server, int slot);
/* Changes the view, or takes what somebody else was first with. */
tri_status tri_ps_view_make(tri_ps_server *server, const ps_change *change);

/* --- restore.c --- */
/* To be called after each turn: who has left while this server was not there. TRI_EPEER: who is left would wait for
 * one that had ended before all went back. */
tri_status tri_ps_restored_look(tri_ps_server *server);
/* The leader has given the values of a checkpoint: what is in them does not count again. next_deal: of the next part,
 * as far as workers have reported. */
void tri_ps_table_restored(const tri_ps_server *server, ps_table *table, const ps_head *head, int64_t next_deal);
/* TRI_EABORT, as tri_ps_era_fail(); TRI_EFORMAT: that era has not begun. */
tri_status tri_ps_era_check(tri_ps_server *server, const ps_spec *spec);
/* A client tells of a new one: what is here of the one before goes, and all other clients. */
void tri_ps_era_begin(tri_ps_server *server, const ps_client_connection *but, int64_t era);

/* --- save_blocks.c --- */
/* Somebody asks for this server's part of a checkpoint. */
tri_status tri_ps_save_ask(tri_ps_server *server, ps_client_connection *client, const ps_head *head, const void *body);
/* The block is going to move. */
void tri_ps_save_before(tri_ps_server *server, const ps_table *table, const ps_block *block);
/* To be called after each turn: copies what is due, and has it written. */
void tri_ps_save_go_on(tri_ps_server *server);
bool tri_ps_save_is_busy(const tri_ps_server *server);
/* One that is not copied yet will not be. */
void tri_ps_save_fail(tri_ps_server *server, const char *why);
/* The same, and one that is being written is waited for: its table goes. */
void tri_ps_save_end(tri_ps_server *server);
void tri_ps_save_destroy(ps_save *save);

/* --- state_copy.c --- */
tri_status tri_ps_table_write(const ps_table *table, tri_string *out);
tri_status tri_ps_table_read(ps_table *table, const void *bytes, size_t nbytes);
tri_status tri_ps_block_write(const ps_table *table, const ps_block *block, tri_string *out);
tri_status tri_ps_block_read(ps_table *table, ps_block *block, const void *bytes, size_t nbytes);

#endif
