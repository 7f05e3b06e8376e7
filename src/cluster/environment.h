/* SPDX-License-Identifier: Apache-2.0
 *
 * environment.h: the parsers of what starters put into the environment; for environment*.c, tests and fuzz targets.
 */
#ifndef TRI_CLUSTER_ENVIRONMENT_H
#define TRI_CLUSTER_ENVIRONMENT_H

#include "cluster/cluster.h"

/* A starter: one row each in environment.c; the first whose `is_here` says yes fills the place. */
typedef struct tri_environment {
    const char *name;
    const char *does;
    bool (*is_here)(tri_cluster_lookup lookup, void *arg);
    /* rank, world, local_rank, local_world; and the meeting point, when the starter knows one and world > 1. */
    tri_status (*fill)(tri_cluster_lookup lookup, void *arg, tri_cluster_place *place);
} tri_environment;

/* The table, ended by a row without a name. */
extern const tri_environment tri_cluster_environments[];

/* The index-th host of a Slurm node list ("node[01-03,7],x"), 0 = the first; TRI_ENOTFOUND beyond the end (*count is
 * the number of hosts then), TRI_ECONFIG when it is no list. */
tri_status tri_environment_node(const char *list, int index, char host[256], int *count);
/* Tasks on the index-th node of Slurm's "2(x3),1"; TRI_ECONFIG when it is no such list or has no such node. */
tri_status tri_environment_tasks(const char *list, int index, int *tasks);
/* The hosts of an MPI host file ("host slots=N", "host:N", # comments), a rank each: where `own` (with or without its
 * domain) is in it, how many there are, and the first one. TRI_ECONFIG when it is not there exactly once. */
tri_status tri_environment_host_file(const char *text, const char *own, int *rank, int *world, char first[256]);
/* TF_CONFIG, a JSON text: ranks are chief (or master) first, then workers. */
tri_status tri_environment_tf_config(const char *text, tri_cluster_place *place);
bool tri_environment_tf_evaluates(const char *text);
/* A whole number in [low, high]; TRI_ECONFIG names the variable, the wanted and the found. */
tri_status tri_environment_int(tri_cluster_lookup lookup, void *arg, const char *name, int low, int high, int *out);

/* It is there, and not empty. */
bool tri_environment_has(tri_cluster_lookup lookup, void *arg, const char *name);
/* A rank below its world, by two variables. */
tri_status tri_environment_pair(tri_cluster_lookup lookup, void *arg, const char *rank_name, const char *world_name,
                                int *rank, int *world);
/* The meeting point is rank 0's, at one of these ports of its host; `first` = `last`: at that one. */
tri_status tri_environment_meet(tri_cluster_place *place, const char *host, int first_port, int last_port);

/* Rows of environment_pods.c. */
bool tri_environment_trainjob_is_here(tri_cluster_lookup lookup, void *arg);
tri_status tri_environment_trainjob_fill(tri_cluster_lookup lookup, void *arg, tri_cluster_place *place);
bool tri_environment_host_file_is_here(tri_cluster_lookup lookup, void *arg);
tri_status tri_environment_host_file_fill(tri_cluster_lookup lookup, void *arg, tri_cluster_place *place);

#define TRI_ENVIRONMENT_RANKS 65536

#endif
