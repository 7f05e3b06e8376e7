/* SPDX-License-Identifier: Apache-2.0
 *
 * table.h: what api/job.c needs of tables.
 */
#ifndef TRI_PS_API_TABLE_H
#define TRI_PS_API_TABLE_H

#include "ps/client/kv.h"

/* Closes all, and says nothing to the servers: for them the worker is lost. */
tri_status tri_kv_abandon(tri_kv *kv);
void tri_kv_table_free(tri_kv_table *table);
/* What the servers call it, and the step to continue from. */
tri_status tri_kv_table_ask(tri_kv_table *table);
/* This worker's step of the table is over. */
tri_status tri_kv_table_clock(tri_kv_table *table);

#endif
