/* SPDX-License-Identifier: Apache-2.0
 *
 * client.h: a worker's way to the parameter servers: one connection to each, turned by a thread of its own.
 *
 * Calls queue messages and return; bodies stay the caller's and must stay there until what answers them has come. A
 * server that is lost is dialed again for ps.retry_s, at the address that is in the store then, and is sent again
 * what it has not answered: servers know what came twice.
 */
#ifndef TRI_PS_CLIENT_H
#define TRI_PS_CLIENT_H

#include "cluster/store.h"
#include "net/transport.h"
#include "ps/rpc/annotation.h"
#include "ps/rpc/operation_record.h"
#include "ps/tables/spec.h"

typedef struct tri_ps_client tri_ps_client;
typedef struct tri_ps_dense tri_ps_dense;

typedef struct tri_ps_client_setup {
    const tri_net_config *net; /* timeout_s: the longest wait of a call */
    const tri_ps_config *ps;
    const char *token;
    tri_store *store; /* where servers tell their addresses; NULL: */
    const char *const *addresses;
    int worker, workers, servers;
    int local_workers;     /* on this host; 0: not known */
    int local_rank;        /* of those */
    const uint64_t *hosts; /* of each server (ps_view_spread); NULL: one. Read while it opens */
    tri_hub *hub;          /* NULL: sockets; else the place there: */
    int rank, world;
} tri_ps_client_setup;

/* Where there are no backups, and each push moves the weights by itself: the leader's way to the newest checkpoint, of
 * which it gives a server that was lost its blocks; called on the thread of whoever waits for servers. */
typedef tri_status (*tri_ps_refill)(void *arg, int server);
void tri_ps_client_refill_set(tri_ps_client *client, tri_ps_refill refill, void *arg);
/* Waits until all servers are there. */
tri_status tri_ps_client_open(const tri_ps_client_setup *setup, tri_ps_client **out);
const tri_ps_client_setup *tri_ps_client_setup_of(const tri_ps_client *client);
/* How often a server without a backup had been lost when the client was opened; and whether that is not true any more:
 * it has failed then, and its process is to begin again from the newest checkpoint. */
int64_t tri_ps_client_era(const tri_ps_client *client);
bool tri_ps_client_is_past(tri_ps_client *client);
/* How servers do, as lines of text for people (tri_string_fini). */
tri_status tri_ps_client_stats(tri_ps_client *client, tri_string *out);
/* What a server did, and how far its clock is ahead of this worker's, give or take `uncertain_ns`. */
typedef struct tri_ps_operations {
    int64_t ahead_ns, uncertain_ns;
    ps_operation_record *operations; /* tri_free() */
    size_t count;
    bool lost; /* it did more than it remembers */
} tri_ps_operations;
/* Of all servers, [servers], since then by this worker's clock. */
tri_status tri_ps_client_operations(tri_ps_client *client, int64_t since_ns, tri_ps_operations *of_servers);
/* The same without what they did. */
tri_status tri_ps_client_clocks(tri_ps_client *client, tri_ps_operations *of_servers);
/* Leaves a note for the other workers (nbytes 0: none); *count: how many have left one of that tag on that subject; all
 * (may be NULL): those, tri_string_fini. A server that is lost meanwhile has none. */
tri_status tri_ps_client_note(tri_ps_client *client, ps_subject subject, int64_t tag, const void *note, size_t nbytes,
                              tri_string *all, int *count);
/* The note at *at, which is moved on behind it; NULL: no more. */
const void *tri_ps_note_next(const tri_string *all, size_t *at, ps_note_head *head);
/* By the leader, once it has all: what servers held is not wanted any more, so one that is lost is not waited for, and
 * nobody needs to go back; the store records this. The goodbyes still follow. */
tri_status tri_ps_client_done(tri_ps_client *client);
/* Says goodbye to all servers, and waits until they have heard it. */
tri_status tri_ps_client_bye(tri_ps_client *client);
/* Waits until the leader is done, or for net->timeout_s, or while the store cannot be asked: whoever starts processes
 * ends them all with the first, and a run that has to go back needs all its workers. heeds: or until this process is
 * asked to stop. TRI_EABORT: it has to go back; or what this client has failed with. */
tri_status tri_ps_client_await_leader(tri_ps_client *client, bool heeds);
/* NULL does nothing. */
void tri_ps_client_close(tri_ps_client *client);

/* A dense table, borrowed spec; values[spec->params.count] is where values arrive. One at a time of a client. clock:
 * the step to begin with; -1: it has no values yet and this client, which `starts`, must give them. A client that does
 * not start waits until it has. */
tri_status tri_ps_dense_open(tri_ps_client *client, const ps_spec *spec, bool starts, float *values, int64_t *clock,
                             tri_ps_dense **out);
void tri_ps_dense_close(tri_ps_dense *dense);
/* First values (those at `values`) and arrays of the optimizer's state, over the whole store, NULL: zeros. */
tri_status tri_ps_dense_give(tri_ps_dense *dense, int64_t clock, const float *const *state, int state_count);

/* What a server that was lost has to hold: values and state over the whole store, after `clock` steps, with pushes of
 * `known` steps. *blocks: how many are its own; *now: the step that this worker is at. */
tri_status tri_ps_dense_refill(tri_ps_dense *dense, int server, int64_t clock, int64_t known, const float *values,
                               const float *const *state, int state_count, int *blocks, int64_t *now);

/* The gradient of block b in this step: one sum for each part (whole subtrees of the batch's leaves), in arrays of
 * tri_params_grad_count() elements. weight: what makes it a mean, where each push moves the weights by itself. With bsp
 * the values of the next clock come by themselves. */
void tri_ps_dense_push(tri_ps_dense *dense, int b, int64_t clock, const tri_tree_part *parts, int part_count,
                       float *const *grads, double weight);
/* bsp: tails of the parts; and the sum of all once it is there. */
void tri_ps_dense_tail(tri_ps_dense *dense, int64_t clock, const tri_tree_part *parts, int part_count,
                       float *const *tails);
tri_status tri_ps_dense_tail_wait(tri_ps_dense *dense, int64_t clock, float sums[TRI_PARAMS_TAIL]);
/* bsp with backup workers: all pushes and the tail of this step were queued; the tail is waited for then. Afterwards:
 * whether this worker's parts are in the step, and which step comes next. */
void tri_ps_dense_vote(tri_ps_dense *dense, int64_t clock);
bool tri_ps_dense_counted(tri_ps_dense *dense, int64_t *next);
/* ps.schedule dynamic: the number of the next part, when all pushes of parts before `done` were queued. */
tri_status tri_ps_dense_deal(tri_ps_dense *dense, int64_t done, int64_t *part);
/* bsp with clipping: squares of the whole gradient, blocks[params.block_count]; and by what it is to be multiplied. */
tri_status tri_ps_dense_squares_wait(tri_ps_dense *dense, int64_t clock, double *blocks);
void tri_ps_dense_move(tri_ps_dense *dense, int64_t clock, float scale);
/* ssp, async: all pushes of step clock - 1 were queued. */
void tri_ps_dense_clock(tri_ps_dense *dense, int64_t clock);
/* Asks for the values of all blocks, those first that come first in the store; with `of_all` once every worker that
 * has not left has pushed all steps before `clock`. */
void tri_ps_dense_pull(tri_ps_dense *dense, int64_t clock, bool of_all);
/* The same in f32, whatever ps.values says: not what others compute with. Then back, without asking anybody. */
void tri_ps_dense_pull_exact(tri_ps_dense *dense, int64_t clock);
void tri_ps_dense_round(tri_ps_dense *dense);
/* Waits until block b has values of this clock, or of those that were pulled last. */
tri_status tri_ps_dense_wait(tri_ps_dense *dense, int b, int64_t clock);
/* The optimizer's array `index`, into out[params.count]. */
tri_status tri_ps_dense_state(tri_ps_dense *dense, int index, float *out);

#endif
