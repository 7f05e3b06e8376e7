/* SPDX-License-Identifier: Apache-2.0
 *
 * store.h: a small shared table of names and bytes by which ranks find each other.
 *
 * One table per kind: tcp (a server in the launcher or in rank 0), file (a shared folder), etcd (a cluster that
 * outlives its members), memory (ranks of one process). Keys: at most 255 bytes of [A-Za-z0-9_./-]; values: at most
 * 1 MiB. Every call has a deadline on the tri_now_ns() scale.
 */
#ifndef TRI_CLUSTER_STORE_H
#define TRI_CLUSTER_STORE_H

#include "base/containers.h"
#include "base/runtime.h"
#include "base/wait.h"

#define TRI_STORE_REASON_NBYTES 400

typedef struct tri_store tri_store;

typedef struct tri_store_ops {
    const char *name;
    const char *does;
    tri_status (*set)(tri_store *store, const char *key, const void *bytes, size_t nbytes, int64_t deadline_ns);
    /* Waits until the key is there; *bytes is the caller's (tri_free), with a 0 byte after it. */
    tri_status (*wait)(tri_store *store, const char *key, char **bytes, size_t *nbytes, int64_t deadline_ns);
    /* Adds to a number (0 when absent), atomically; *after is the new value. */
    tri_status (*add)(tri_store *store, const char *key, int64_t amount, int64_t *after, int64_t deadline_ns);
    /* Makes a number (0 when absent) at least so large, atomically; *after is what is there then. May be said twice. */
    tri_status (*raise)(tri_store *store, const char *key, int64_t least, int64_t *after, int64_t deadline_ns);
    tri_status (*remove)(tri_store *store, const char *key, int64_t deadline_ns);
    /* Sets a key that is not there, atomically; *bytes is what is there then, as with wait. */
    tri_status (*claim)(tri_store *store, const char *key, const void *mine, size_t mine_nbytes, char **bytes,
                        size_t *nbytes, int64_t deadline_ns);
    /* Removes all keys of the job; NULL: they go with the table. */
    tri_status (*clear)(tri_store *store, int64_t deadline_ns);
    void (*close)(tri_store *store);
} tri_store_ops;

/* First member of each implementation's struct. */
struct tri_store {
    const tri_store_ops *ops;
    int64_t patience_ns; /* how long a call whose server is gone waits for another one, whatever its deadline; then, and
                            at a stop signal, it is TRI_EPEER. 0: not at all. Set after opening. */
};

/* url: "tcp://host:port", "file:///folder" or "etcd://host:port,.../prefix". Connecting retries with back-off until the
 * deadline: start order is free. A stop signal ends it (TRI_ECANCELED), and it is logged when it lasts. token: of the
 * job, checked by a tcp server ("" = none). */
tri_status tri_store_open(const char *url, const char *token, int64_t deadline_ns, tri_store **out);
/* The same for a caller that reports a long wait for the connection itself. */
typedef struct tri_store_opening {
    tri_wait wait;                               /* begun */
    void (*late)(void *arg, const char *reason); /* the wait is long; reason: of the last failure */
    void *arg;
    char reason[TRI_STORE_REASON_NBYTES]; /* after TRI_ETIMEOUT of a tcp store: why there is no connection */
} tri_store_opening;
tri_status tri_store_open_as(const char *url, const char *token, tri_store_opening *opening, int64_t deadline_ns,
                             tri_store **out);
/* One that the threads of this process, or the fibers of a simulation, share. */
tri_status tri_store_memory(tri_store **out);

tri_status tri_store_set(tri_store *store, const char *key, const void *bytes, size_t nbytes, int64_t deadline_ns);
tri_status tri_store_wait(tri_store *store, const char *key, char **bytes, size_t *nbytes, int64_t deadline_ns);
tri_status tri_store_add(tri_store *store, const char *key, int64_t amount, int64_t *after, int64_t deadline_ns);
tri_status tri_store_raise(tri_store *store, const char *key, int64_t least, int64_t *after, int64_t deadline_ns);
tri_status tri_store_remove(tri_store *store, const char *key, int64_t deadline_ns);
/* Of all that claim a key the first has its value kept; all are given that one. */
tri_status tri_store_claim(tri_store *store, const char *key, const void *mine, size_t mine_nbytes, char **bytes,
                           size_t *nbytes, int64_t deadline_ns);
/* The job is over: what it leaves behind in a store that is not its own goes. */
tri_status tri_store_clear(tri_store *store, int64_t deadline_ns);
void tri_store_close(tri_store *store);

/* The server of a tcp store, on a thread of its own with one epoll loop: a slow, silent or malicious client cannot hold
 * up the others or make it grow. address "127.0.0.1" or "0.0.0.0" or "::"; port 0: any. */
typedef struct tri_store_server tri_store_server;
tri_status tri_store_server_start(const char *address, int port, const char *token, tri_store_server **out);
/* One whose table is in a journal, from which it begins, and which hears of a change before anybody else does.
 * Borrowed. */
struct tri_journal;
tri_status tri_store_server_start_kept(const char *address, int port, const char *token, struct tri_journal *journal,
                                       tri_store_server **out);
int tri_store_server_port(const tri_store_server *server);
void tri_store_server_stop(tri_store_server *server);

#endif
