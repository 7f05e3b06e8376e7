/* SPDX-License-Identifier: Apache-2.0
 *
 * server.h: a parameter server: holds blocks of tables, adds up what workers push, moves the weights, and gives them.
 *
 * One thread turns one endpoint (net/endpoint.h) for all workers; nothing blocks. What a server holds is a function of
 * the messages it got and their order, with `bsp` of the messages alone.
 */
#ifndef TRI_PS_SERVER_H
#define TRI_PS_SERVER_H

#include "cluster/store.h"
#include "net/transport.h"

typedef struct tri_ps_server tri_ps_server;

typedef struct tri_ps_server_setup {
    const tri_net_config *net;
    const char *token;
    int number, servers; /* of this one, and how many there are: who holds what */
    int workers;
    int threads;           /* of the steps of optimizers */
    bool trains;           /* the run has checkpoints to go back to where all that hold something are lost */
    int replicas;          /* 2: another server holds what is here too; needs: */
    tri_store *store;      /* of the job; or NULL */
    const uint64_t *hosts; /* of each server (ps_view_spread); NULL: one. Read while it opens */
    tri_hub *hub;          /* NULL: sockets; else its place there: */
    int rank, world;
} tri_ps_server_setup;

tri_status tri_ps_server_open(const tri_ps_server_setup *setup, tri_ps_server **out);
/* A name that tables of rows may merge by; before it runs. TRI_EINVAL: it is taken, or none. */
typedef void (*tri_ps_merge)(void *arg, uint64_t key, float *row, const float *pushed, int dim);
tri_status tri_ps_server_merge_add(tri_ps_server *server, const char *name, tri_ps_merge merge, void *arg);
/* A server that was started again, once its address is in the store: it becomes the backup of another. */
tri_status tri_ps_server_return(tri_ps_server *server);
/* The same where there are no backups: what it held is lost, and the leader of the workers gives it values of the
 * newest checkpoint; all of the run goes back there (`all`), or this server's part alone. */
tri_status tri_ps_server_restore(tri_ps_server *server, bool all);
/* What workers dial. */
const char *tri_ps_server_address(const tri_ps_server *server);
/* Serves until all workers have said goodbye, or tri_ps_server_stop(). A worker that breaks the protocol loses its
 * connection; TRI_ENUMERIC and the like, which concern all, end the server. */
tri_status tri_ps_server_run(tri_ps_server *server);
/* From any thread or a signal's flag: run returns soon. */
void tri_ps_server_stop(tri_ps_server *server);
/* NULL does nothing. */
void tri_ps_server_close(tri_ps_server *server);

#endif
