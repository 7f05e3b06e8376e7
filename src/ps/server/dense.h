/* SPDX-License-Identifier: Apache-2.0
 *
 * dense.h: dense tables on a server: blocks, and the steps that update them, synchronous or not.
 */
#ifndef TRI_PS_DENSE_H
#define TRI_PS_DENSE_H

#include "ps/server/server_impl.h"

/* --- server/dense.c: statuses are TRI_EFORMAT for what a sound client does not say --- */
void tri_ps_table_destroy(ps_table *table);
bool tri_ps_is_primary(const tri_ps_server *server, const ps_table *table, int block);
/* Memory for a block of another server; and without it. */
tri_status tri_ps_block_hold(const tri_ps_server *server, ps_table *table, int block);
void tri_ps_block_drop(ps_table *table, int block);
void tri_ps_block_filled(ps_table *table, ps_block *block, bool filled);
/* The table and the block that a head names; block NULL: none is asked for. */
tri_status tri_ps_block_find(tri_ps_server *server, const ps_head *head, ps_table **table, ps_block **block);
/* First values; those of a table that is ready stay. */
tri_status tri_ps_block_fill(ps_table *table, ps_block *block, const ps_head *head, const float *body);
/* Whether all blocks that are this server's to give have values; what a worker says of one that has none is refused:
 * gradients for it would be lost, and zeros taken for weights. */
tri_status tri_ps_table_given(const tri_ps_server *server, const ps_table *table);
tri_status tri_ps_block_serves(const ps_client_connection *client, const ps_table *table, const ps_block *block);
/* The step that a worker begins with; with bsp the earliest that some block here has yet to take. */
int64_t tri_ps_table_clock(const tri_ps_server *server, const ps_table *table, int worker);
/* how: PS_FLAG_EXACT. previous: those of the step before. number: of the pull (ssp, async). */
void tri_ps_values_answer(ps_client_connection *client, const ps_table *table, ps_block *block, uint16_t how,
                          bool previous, double number);
/* What came of a push, as elements; those of ties behind the block's own. */
void tri_ps_gradients_decode(const ps_table *table, const ps_block *block, const void *body, float *sums);
/* Adds gradients of ties, which follow the block's own, to those. */
void tri_ps_block_fold(const ps_table *table, const ps_block *block, float *sums);
void tri_ps_block_move(const ps_table *table, ps_block *block, const float *sums, const tri_optim_scalars *figures);
/* The least number of pushes of a step: they are counted in steps, or in parts that are dealt. */
int64_t tri_ps_push_number(const ps_table *table, int64_t clock);
double tri_ps_rate(const ps_table *table, int64_t step);
/* The table of a text, for this server. */
tri_status tri_ps_table_init(const tri_ps_server *server, ps_table *table);
/* TRI_EABORT: the run has gone back to a checkpoint since the table was made. */
tri_status tri_ps_era_fail(void);
/* Are there backup workers? */
static inline bool tri_ps_chooses(const ps_table *table)
{
    return table->consistency == PS_BSP && table->spec.ps.backup_workers > 0;
}

/* --- server/table_open.c --- */
/* The table of this text: one that is here, or a new one. */
tri_status tri_ps_table_make(tri_ps_server *server, const ps_client_connection *client, const char *text, size_t nbytes,
                             ps_table **out);
/* All servers have been given theirs: workers that wait for it may begin. */
void tri_ps_table_ready(const tri_ps_server *server, ps_table *table, const ps_head *head);

/* --- server/bsp.c --- */
/* Where the body of a push shall be: client->room of client->sum; sum NULL: it has come before. */
tri_status tri_ps_bsp_place(ps_client_connection *client, const ps_table *table, ps_block *block, const ps_head *head);
tri_status tri_ps_bsp_push(tri_ps_server *server, ps_client_connection *client, ps_table *table, ps_block *block,
                           const ps_head *head);
tri_status tri_ps_bsp_tail(tri_ps_server *server, ps_client_connection *client, ps_table *table, const ps_head *head,
                           const float *body);
tri_status tri_ps_bsp_move(tri_ps_server *server, ps_table *table, const ps_head *head);
/* More is known of the tail, which was that of step `before`. */
void tri_ps_bsp_tail_copied(tri_ps_server *server, ps_table *table, int64_t before);
/* Moves a block for which all is there: one that was copied may wait for nothing more. */
void tri_ps_bsp_copied(tri_ps_server *server, ps_table *table, ps_block *block);
tri_status tri_ps_bsp_pull(ps_client_connection *client, const ps_table *table, ps_block *block, const ps_head *head);

/* Sums of a step that has been chosen for have become whole, or may have. */
void tri_ps_bsp_chosen(tri_ps_server *server, ps_table *table);

/* --- server/backup_workers.c --- */
/* Others were chosen in the step under way. */
bool tri_ps_is_left_out(const ps_table *table, int worker);
/* All parts of the chosen are here, for the first time: the sum is whole then. */
bool tri_ps_chosen_are_here(const ps_table *table, ps_sum *sum);
void tri_ps_chosen_answer(ps_client_connection *client, const ps_table *table);
/* A worker has pushed all of step `clock` - 1. */
tri_status tri_ps_bsp_clock(tri_ps_server *server, ps_client_connection *client, ps_table *table, const ps_head *head);
/* A worker says who was chosen. */
tri_status tri_ps_bsp_choice(tri_ps_server *server, ps_table *table, const ps_head *head, const uint8_t *chosen);
tri_status tri_ps_choices_print(const ps_table *table, tri_string *out);

/* --- server/ssp.c --- */
tri_status tri_ps_ssp_push(const ps_client_connection *client, const ps_table *table, ps_block *block,
                           const ps_head *head, float *body);
tri_status tri_ps_ssp_clock(const tri_ps_server *server, ps_client_connection *client, ps_table *table,
                            const ps_head *head);
tri_status tri_ps_ssp_pull(ps_client_connection *client, ps_table *table, ps_block *block, const ps_head *head);
/* A worker has left: nobody waits for it. */
tri_status tri_ps_ssp_left(const tri_ps_server *server, ps_table *table, int worker);
tri_status tri_ps_stats(const tri_ps_server *server, tri_string *out);

#endif
