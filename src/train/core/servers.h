/* SPDX-License-Identifier: Apache-2.0
 *
 * servers.h: a worker of parameter servers.
 */
#ifndef TRI_TRAIN_SERVERS_H
#define TRI_TRAIN_SERVERS_H

#include "train/core/job.h"

/* servers.c: parameter servers. Checks what the configuration says of them; before the shards are split. */
tri_status tri_job_servers_find(tri_job *job, struct tri_ps_client *client);
/* Workers on this host. */
int tri_job_servers_local(const tri_job *job);
/* Once the number of steps is known. */
void tri_job_servers_plan(tri_job *job);
/* The first weights go to the servers, or those that they have come here; the step with them. */
tri_status tri_job_servers_start(tri_job *job);
/* Parts of a batch that workers are dealt one by one; 0: each has its share. */
int64_t tri_job_deals(const tri_job *job);
/* Whether what a worker computes with is rounded, and it has to fetch what it evaluates and saves. */
bool tri_job_servers_meets(const tri_job *job);
/* Before a checkpoint: the optimizer's state, as the servers have it. */
tri_status tri_job_servers_state(tri_job *job);

#endif
