/* SPDX-License-Identifier: Apache-2.0
 *
 * ps.h: numbers by key on parameter servers: tables of rows and arrays that many workers pull and push.
 *
 * Servers hold the rows and merge what is pushed into them: they add, take the minimum, make a step of an optimizer, or
 * call a function of yours. A row comes into being with its first push. A push is merged exactly once, whatever happens
 * to connections meanwhile. With `bsp` the rows after a step have the same bits for any number of workers and servers.
 *
 *     tri_kv *kv;                                  // trireme launch -n 3 --servers 2 -- ./a.out
 *     tri_kv_join(&(tri_kv_job){.timeout_s = 60}, &kv);
 *     if (!kv)
 *         return 0;                                // this process was a server, and all workers have left
 *     tri_kv_table *table;
 *     tri_kv_table_open(kv, "weights", 16, "merge: optim, optim: {name: adagrad, lr: 0.1}", &table);
 *     tri_kv_pull(table, keys, count, rows, NULL);
 *     tri_kv_push(table, -1, keys, gradients, count, NULL);
 *     tri_kv_close(kv);
 *
 * Operations exist once: with work == NULL they block; otherwise they are queued and *work is set. Arrays that are
 * read are copied before the call returns; those that are written are borrowed until tri_kv_wait() returns. One thread
 * at a time calls with a tri_kv and what is opened of it. docs/ps.md says when to take what.
 */
#ifndef TRIREME_PS_H
#define TRIREME_PS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tri_kv tri_kv;               /* a worker's way to all servers; owns connections and a thread */
typedef struct tri_kv_table tri_kv_table;   /* rows of `dim` values by 64-bit key */
typedef struct tri_kv_array tri_kv_array;   /* `count` values */
typedef struct tri_kv_work tri_kv_work;     /* an operation under way */
typedef struct tri_kv_server tri_kv_server; /* a server of this process */

/* How a row takes in what is pushed to it: changes row[dim]. Called on the server's thread; the same row and the same
 * pushed values must give the same result on every server. */
typedef void (*tri_kv_merge)(void *arg, uint64_t key, float *row, const float *pushed, int dim);
/* A name that tables may merge by, beside add, assign, min, max and optim. */
typedef struct tri_kv_merge_row {
    const char *name;
    tri_kv_merge merge;
    void *arg;
} tri_kv_merge_row;

/* --- servers --- */

typedef struct tri_kv_server_setup {
    int number, servers;            /* of this one, from 0, and how many there are */
    int workers;                    /* that will come: their numbers are 0 to this - 1 */
    const char *token;              /* a secret of 16 bytes or more that servers and workers share; NULL: none */
    const char *const *options;     /* "comm.encrypt=on", "comm.interface=lo", ..., NULL at the end; or NULL */
    const tri_kv_merge_row *merges; /* copied; a row without a name ends them; or NULL */
} tri_kv_server_setup;

/* Listens. TRI_EINVAL, TRI_ECONFIG: what is wrong with the setup. */
TRI_API tri_status tri_kv_server_open(const tri_kv_server_setup *setup, tri_kv_server **out);
/* What workers connect to; valid while it is open. */
TRI_API const char *tri_kv_server_address(const tri_kv_server *server);
/* Serves until every worker has closed its tri_kv, or tri_kv_server_stop(). One who breaks the protocol loses its
 * connection; what concerns all (no memory) ends the server. */
TRI_API tri_status tri_kv_server_run(tri_kv_server *server);
/* Does so on a thread of its own. */
TRI_API tri_status tri_kv_server_start(tri_kv_server *server);
/* From any thread: run returns soon. */
TRI_API void tri_kv_server_stop(tri_kv_server *server);
/* Waits for the thread, where there is one, and returns what run did; NULL is fine. */
TRI_API tri_status tri_kv_server_close(tri_kv_server *server);

/* --- workers --- */

typedef struct tri_kv_setup {
    const char *const *addresses; /* [servers] of all servers, by number */
    int servers;
    int worker, workers; /* number of this one, and how many there are */
    const char *token;
    const char *const *options; /* as of servers, and "ps.window_kib=65536", ...; or NULL */
} tri_kv_setup;
/* Waits until all servers are there, at most comm.timeout_s. */
TRI_API tri_status tri_kv_open(const tri_kv_setup *setup, tri_kv **out);

typedef struct tri_kv_job {
    double timeout_s; /* longest wait of any call; 0: comm.timeout_s */
    const char *const *options;
    const tri_kv_merge_row *merges; /* known to servers */
} tri_kv_job;
/* Joins the job that this process was started in (trireme launch -n WORKERS --servers N, TF_CONFIG, or TRIREME_SERVERS
 * in the environment of any starter); all its processes call it alike. One that is a server serves, and returns when
 * all workers have left, with *out NULL. Alone: one worker with a server on a thread of its own. Reads the environment.
 */
TRI_API tri_status tri_kv_join(const tri_kv_job *job, tri_kv **out);
/* Says goodbye to all servers and closes all that was opened of it; NULL does nothing. TRI_OK: they have heard it, and
 * everything before. */
TRI_API tri_status tri_kv_close(tri_kv *kv);
TRI_API int tri_kv_worker(const tri_kv *kv);
TRI_API int tri_kv_worker_count(const tri_kv *kv);
TRI_API int tri_kv_server_count(const tri_kv *kv);

/* --- tables of rows --- */

/* The table of this name: made by the first worker that opens it. options: "merge: optim, optim: {name: ftrl, lr:
 * 0.1}", those of docs/ps.md, or NULL; all workers say the same (TRI_EMISMATCH). dim: 1 to 2^20. At most 64 tables and
 * arrays together. TRI_ECONFIG: what is wrong with the options. Closed with kv. */
TRI_API tri_status tri_kv_table_open(tri_kv *kv, const char *name, int dim, const char *options, tri_kv_table **out);
/* rows[i * dim ...] become the values of keys[i], in any order, also twice the same; what nobody pushed to has its
 * initial values. Waits for other workers where the table's consistency says so. */
TRI_API tri_status tri_kv_pull(tri_kv_table *table, const uint64_t *keys, int64_t count, float *rows,
                               tri_kv_work **work);
/* rows[i * dim ...] are merged into the row of keys[i]. Where a key comes twice its rows are added up first, if the
 * table merges by add or optim or is bsp; else they are merged in this order. shard: with bsp, which shard of the
 * step's batch this is of (tri_kv_shards()), pushed to at most once a step and merged when it is over; otherwise -1.
 * Waits while too much is under way (ps.window_kib). */
TRI_API tri_status tri_kv_push(tri_kv_table *table, int64_t shard, const uint64_t *keys, const float *rows,
                               int64_t count, tri_kv_work **work);
/* Both at once: `to` is what the rows are after this push. Not with bsp. `to` may be `rows`. */
TRI_API tri_status tri_kv_push_pull(tri_kv_table *table, const uint64_t *keys, const float *rows, float *to,
                                    int64_t count, tri_kv_work **work);
/* Rows become these values at once, whatever the table merges by and whatever its consistency. */
TRI_API tri_status tri_kv_assign(tri_kv_table *table, const uint64_t *keys, const float *rows, int64_t count,
                                 tri_kv_work **work);
/* The shards of each batch that are this worker's: [*first, *first + *count). bsp: of all workers together they are
 * [0, shards) of the table's options. */
TRI_API void tri_kv_shards(const tri_kv_table *table, int64_t *first, int64_t *count);
/* Steps that this worker has finished: where it begins, for one that takes the place of another. */
TRI_API int64_t tri_kv_step(const tri_kv_table *table);

/* --- arrays --- */

/* count values that are pulled and pushed as a whole; options as of tables. All calls are those of a table. */
TRI_API tri_status tri_kv_array_open(tri_kv *kv, const char *name, int64_t count, const char *options,
                                     tri_kv_array **out);
TRI_API tri_status tri_kv_array_pull(tri_kv_array *array, float *values, tri_kv_work **work);
TRI_API tri_status tri_kv_array_push(tri_kv_array *array, int64_t shard, const float *values, tri_kv_work **work);
TRI_API tri_status tri_kv_array_push_pull(tri_kv_array *array, const float *values, float *to, tri_kv_work **work);
TRI_API tri_status tri_kv_array_assign(tri_kv_array *array, const float *values, tri_kv_work **work);
/* For tri_kv_shards() and tri_kv_step(). */
TRI_API const tri_kv_table *tri_kv_array_table(const tri_kv_array *array);

/* --- all of them --- */

/* Waits for an operation and frees its handle. Its failure is that of the operation. */
TRI_API tri_status tri_kv_wait(tri_kv_work *work);
/* This worker's step is over, on all tables and arrays: with bsp what it has pushed goes out (shards that it has not
 * pushed to have no rows), and what it pulls from now on is of the next step; with ssp others may continue. */
TRI_API tri_status tri_kv_clock(tri_kv *kv);
/* Returns when all workers have come to it, and everything that they pushed before has been merged (bsp: or waits for
 * its step to be over). */
TRI_API tri_status tri_kv_barrier(tri_kv *kv);
/* What the servers have done, as lines for people; always ends in a 0 byte, cut to `capacity`. */
TRI_API tri_status tri_kv_stats(tri_kv *kv, char *text, size_t capacity);
/* Servers write the rows that they have to `folder`, one file each, and this call a manifest; workers continue
 * meanwhile. What is written: with bsp the rows after the steps that this worker has finished, of every table;
 * otherwise those at the moment when each server heard of it. One worker calls it, between two steps. The folder is one
 * that all servers see. TRI_EIO and what else files say. */
TRI_API tri_status tri_kv_save(tri_kv *kv, const char *folder, tri_kv_work **work);
/* Brings back what was saved, by any number of servers; into tables that this worker has opened, with the options of
 * then, before anybody pushes. Steps continue from those of then: tri_kv_step(). All workers call it. TRI_ENOTFOUND,
 * TRI_EFORMAT. */
TRI_API tri_status tri_kv_load(tri_kv *kv, const char *folder);

#ifdef __cplusplus
}
#endif
#endif
