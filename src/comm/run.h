/* SPDX-License-Identifier: Apache-2.0
 *
 * run.h: from a call of the program to its algorithm: queue, order, choice, prices, plans, batches; and the algorithms.
 */
#ifndef TRI_COMM_RUN_H
#define TRI_COMM_RUN_H

#include "comm/call.h"

/* select.c */
extern const tri_algorithm *const tri_algorithms[]; /* NULL at the end */
const tri_algorithm *tri_algorithm_select(const tri_call *call);
/* measure.c: collective over the world, before anybody else uses the links. */
tri_status tri_prices_measure(tri_comm *comm);
tri_price tri_price_of_group(const tri_group *group);

/* rules.c: parses comm.algorithm. TRI_ECONFIG names the piece of text that is wrong. */
tri_status tri_rules_parse(const char *text, bool any_order, tri_rule rules[TRI_COMM_RULES_MAX], int *rule_count);
const tri_algorithm *tri_rules_find(const tri_comm *comm, tri_comm_op op, int64_t nbytes);

/* group.c */
/* Of a group that serves another one, the same on all its ranks. */
uint32_t tri_group_inner_id(const tri_group *group, uint32_t kind, int index);
tri_status tri_group_create(tri_comm *comm, uint32_t id, const int *world_ranks, int count, tri_group **out);

/* work.c */
tri_status tri_work_submit(tri_call *call, tri_work **work);
tri_status tri_work_thread_start(tri_comm *comm);
/* Runs what is queued, ends the thread, frees all works. */
void tri_work_thread_stop(tri_comm *comm);

/* order.c: the choice among queued calls; under the lock but for tri_order_call. */
/* The queue is not empty: is there something to agree before its next call? */
bool tri_order_is_open(const tri_comm *comm);
/* What this rank offers: the last of its calls that may change places with the first. */
uint64_t tri_order_reach(const tri_comm *comm);
/* The call that takes the minimum of all ranks' reaches. */
tri_status tri_order_call(tri_group *group, int64_t *reach, tri_call *call);
void tri_order_agreed(tri_group *group, int64_t reach);
/* Takes the next call out of the queue, which is not empty. */
tri_work *tri_order_take(tri_comm *comm);

/* call_run.c: the body of a call, on the runner's thread. */
tri_status tri_call_run(tri_call *call);
/* A call that is part of another, of a group of its own; its sequence is there already. */
tri_status tri_call_run_inside(tri_call *call);

/* batch.c, batch_run.c */
struct tri_batch {
    tri_group *group;
    tri_call *calls;
    size_t count, capacity;
    tri_status failed; /* the first error between begin and end */
    char message[TRI_ERROR_NBYTES];
};
tri_status tri_batch_append(tri_batch *batch, const tri_call *call);
void tri_batch_fail(tri_batch *batch, tri_status status);
/* As tri_call_number() for each of its calls. */
void tri_batch_number(tri_batch *batch);
tri_status tri_batch_run_calls(tri_call *call);
/* Its sends and receives, by the host. */
tri_status tri_batch_run_pairs(tri_call *call);
const tri_call *tri_batch_calls(const tri_batch *batch, size_t *count);

/* comm.c */
/* Where a rank is, besides what its net knows. */
typedef struct tri_comm_place {
    int local_rank, local_count; /* among the ranks of its host */
    int64_t generation;          /* of the membership */
} tri_comm_place;
/* Closes one that could not be opened, and returns what the rank ends with; the message stays. */
tri_status tri_comm_open_failed(tri_comm *comm, tri_status status);
/* Common part of both ways to open; takes net, also on failure. */
tri_status tri_comm_create(tri_net *net, tri_comm_place place, const tri_comm_config *config,
                           const tri_net_config *net_config, tri_comm **out);

#endif
