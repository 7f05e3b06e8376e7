/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster.h: who takes part: this process's rank, the number of ranks, and the store where they meet.
 *
 * tri_cluster_join() finds out by the environment of whoever started the process. One row per starter, first match wins
 * (tri_cluster_environments): trireme (TRIREME_*), torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK),
 * Open MPI (OMPI_COMM_WORLD_*), MPICH/PMI (PMI_RANK, PMI_SIZE), Slurm (SLURM_PROCID, SLURM_NTASKS, SLURM_STEP_NODELIST
 * ...), TF_CONFIG, Kubeflow (as torchrun, or TF_CONFIG), alone (one rank). Where a starter gives no meeting point
 * (mpirun, srun) one is derived: the host of rank 0 where the starter tells it (Slurm's node list, OMPI/PMI on one
 * host: loopback), and a port or a private folder from the job's id.
 */
#ifndef TRI_CLUSTER_CLUSTER_H
#define TRI_CLUSTER_CLUSTER_H

#include <stdatomic.h>

#include "cluster/store.h"
#include "net/transport.h"

typedef struct tri_cluster {
    const char *started_by; /* "torchrun" */
    int rank, world;
    int local_rank, local_world;
    bool counts_local;         /* the starter did not tell local_world: the ranks' addresses do (comm/join.c) */
    int servers;               /* as many of the last ranks are parameter servers */
    int64_t generation;        /* of the membership, which frames carry; 0: it never changes */
    const atomic_bool *broken; /* set: some rank will not come to an exchange; NULL: never */
    char token[65];            /* of the job; "" when the starter gave none */
    bool has_token;            /* it is a secret; else it is made of what others can know */
    tri_store *store;          /* NULL when world is 1 */
    tri_store_server *server;  /* rank 0 of a foreign starter serves; else NULL */
    tri_wait wait;             /* for the other ranks, since tri_cluster_join(); 0s: none */
    char meets_at[320];        /* where the ranks meet, for messages; "" */
    char *folder;              /* private folder of a file store, removed by the last one that leaves; else NULL */
} tri_cluster;

/* Reads one environment variable; NULL when absent. The calls below take NULL for the environment of this process;
 * tests pass a table. */
typedef const char *(*tri_cluster_lookup)(const char *name, void *arg);

/* What an environment says, before anything is connected. */
typedef struct tri_cluster_place {
    const char *started_by;
    int rank, world, local_rank, local_world;
    bool counts_local; /* the starter does not tell local_world */
    int servers;       /* TRIREME_SERVERS, or the tasks of type ps: as many of the last ranks */
    int starts; /* TRIREME_STARTS: of a job whose processes come and go, how often this rank was started before; -1 */
    int initial_members; /* TRIREME_INITIAL_MEMBERS: how many make its first generation; world where nobody says */
    char beat[96];       /* TRIREME_BEAT: key that the launcher changes while it lives; "": it serves the store */
    char store_url[1400];
    const char *host_from; /* the variable that names the host of rank 0, for messages; NULL: none does */
    char token[65];
    bool has_token;      /* TRIREME_TOKEN is set; else `token` is made of what others can know, or empty */
    bool serves;         /* this rank must run the store's server at store_url */
    bool store_given;    /* by TRIREME_STORE: somebody else may serve it */
    bool may_be_served;  /* with serves: the url is the user's, so that a server may be there already */
    bool private_folder; /* store_url is a folder made for this job, mode 0700 */
} tri_cluster_place;
/* TRI_ECONFIG for an environment that contradicts itself or is half set (names the variable, wanted and found). */
tri_status tri_cluster_detect(tri_cluster_lookup lookup, void *arg, tri_cluster_place *place);

/* The job's secret, TRIREME_TOKEN; TRI_ECONFIG where it is not set or does not have 16 to 64 bytes. */
tri_status tri_cluster_token(tri_cluster_lookup lookup, void *arg, char token[65]);
/* TRIREME_TOKEN is set, to whatever. */
bool tri_cluster_has_token(tri_cluster_lookup lookup, void *arg);
/* Whether a job may start with the token that it has: TRI_ECONFIG if comm.encrypt or comm.require_token is on and
 * nobody gave the job a secret. Else rank 0 of several ranks warns. */
tri_status tri_cluster_token_check(bool has_token, const char *started_by, int rank, int world,
                                   const tri_net_config *config);

/* TRIREME_COMM, "" where it is not set: options of links and operations for programs without a configuration. */
const char *tri_cluster_settings(tri_cluster_lookup lookup, void *arg);

/* Is this the task `evaluator` of a TF_CONFIG? It takes no part in the job. */
bool tri_cluster_is_evaluator(tri_cluster_lookup lookup, void *arg);

/* detect + check of the token + open (and serve, where this rank does). Waits for nobody but the store. This wait and
 * that of an exchange are logged when they last, and end at a stop signal (TRI_ECANCELED). config: NULL accepts any
 * token. */
tri_status tri_cluster_join(tri_cluster_lookup lookup, void *arg, const tri_net_config *config, int64_t deadline_ns,
                            tri_cluster *out);
/* Gathers one small text of each rank: texts[r] (the caller's, tri_free each). All ranks call it with the same name,
 * once per name. */
tri_status tri_cluster_exchange(tri_cluster *cluster, const char *name, const char *text, char **texts,
                                int64_t deadline_ns);
/* All have what they came for: takes an exchange out of the store; by one rank. */
tri_status tri_cluster_exchange_sweep(tri_cluster *cluster, const char *name, int64_t deadline_ns);
void tri_cluster_leave(tri_cluster *cluster);

#endif
