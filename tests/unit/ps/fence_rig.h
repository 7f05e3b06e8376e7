/* SPDX-License-Identifier: Apache-2.0
 *
 * fence_rig.h: one server is real; the test speaks for its neighbour and for the worker.
 */
#ifndef TRI_TESTS_FENCE_RIG_H
#define TRI_TESTS_FENCE_RIG_H

#include <pthread.h>
#include <stdatomic.h>

#include "cluster/store.h"
#include "ps/rpc/protocol.h"
#include "ps/server/server.h"
#include "ps/view.h"
#include "ps/views.h"
#include "unit/ps/ps_rig.h"

#define FENCE_BEAT_MS  20
#define FENCE_DIM      4
#define FENCE_LIMIT_MS 30000 /* a test that waits for so long has failed */

typedef struct fence_scene {
    tri_net_config net;
    tri_store *store;
    tri_ps_server *server; /* the real one, of number `own` */
    int servers, own, other;
    tri_thread *thread;
    pthread_t server_thread;
    tri_status status;
    atomic_bool ended;                          /* the real one, with that status */
    tri_endpoint *endpoint;                     /* the other one, and the worker */
    tri_connection *as_server;                  /* dialed: the other one has the real one as its backup */
    tri_connection *as_worker;                  /* dialed */
    tri_connection *as_backup;                  /* the real one has dialed */
    bool acknowledges;                          /* messages that come there */
    uint64_t heard;                             /* of them */
    uint64_t acknowledged;                      /* of ours, by the real one */
    uint64_t answered;                          /* request of the latest answer to the worker, */
    float row[FENCE_DIM];                       /* and the row that came with it */
    int64_t told;                               /* view that the real one has told its backup of */
    bool lost_server, lost_worker, lost_backup; /* these connections have ended */
} fence_scene;

/* beat_ms: FENCE_BEAT_MS; 0: nobody is taken for silent, however slowly this test runs. */
void fence_open(fence_scene *at, int servers, int own, int beat_ms);
void fence_close(fence_scene *at);
/* What comes is handled until `done`, or for so long. Returns whether it is. */
bool fence_turn_until(fence_scene *at, const bool *done, int64_t limit_ms);
void fence_say(tri_connection *connection, const ps_head *head, const void *body);
void fence_hello_as_server(fence_scene *at, uint16_t flags, uint64_t version);
/* It has no tables. */
void fence_begin_as_server(fence_scene *at);
ps_view fence_view_now(const fence_scene *at);
void fence_table_open(fence_scene *at);
/* Pulls a row, or makes it these values. */
void fence_row_say(fence_scene *at, uint64_t request, uint64_t key, const float *values);
/* Messages of the real server are acknowledged, as its backup. */
void fence_acknowledge(fence_scene *at);

#endif
