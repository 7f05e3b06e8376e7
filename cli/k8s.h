/* SPDX-License-Identifier: Apache-2.0
 *
 * k8s.h: the kinds of manifests that `trireme k8s` writes, and the values that are put into them.
 */
#ifndef TRI_CLI_K8S_H
#define TRI_CLI_K8S_H

#include "base/options.h"

#define tri_k8s_workload_words(W)                                                                                      \
    W(TRI_K8S_JOB, "job")                                                                                              \
    W(TRI_K8S_ELASTIC, "elastic")                                                                                      \
    W(TRI_K8S_JOBSET, "jobset")                                                                                        \
    W(TRI_K8S_TRAINJOB, "trainjob")                                                                                    \
    W(TRI_K8S_PYTORCHJOB, "pytorchjob") W(TRI_K8S_TFJOB, "tfjob") W(TRI_K8S_MPIJOB, "mpijob")
TRI_ENUM(tri_k8s_workload)

#define TRI_K8S_OPTIONS(X)                                                                                             \
    X(ENUM, kind, "job", 0, 0, tri_k8s_workload, "workload that runs the workers")                                     \
    X(NAME, name, "trireme", 0, 0, NULL, "name of the job and of all its objects")                                     \
    X(PATH, image, "trireme:0.1.0", 0, 0, NULL, "image of the container")                                              \
    X(PATH, config, "run.yaml", 0, 0, NULL, "configuration of the run; its path is relative to the file of values")    \
    X(INT, workers, "2", 2, 65536, NULL, "pods, one rank each")                                                        \
    X(INT, least, "1", 1, 65536, NULL, "elastic: with fewer workers the run waits for others")                         \
    X(INT, restarts, "20", 0, 1e6, NULL, "restarts of a worker, or, if workers restart together, of the job")          \
    X(NAME, cpu, "2", 0, 0, NULL, "cores of a worker")                                                                 \
    X(INT, threads, "2", 1, 4096, NULL, "threads of a worker")                                                         \
    X(NAME, memory, "4Gi", 0, 0, NULL, "memory of a worker")                                                           \
    X(NAME, claim, "runs", 0, 0, NULL,                                                                                 \
      "persistent volume claim that all workers mount: the run is in its folder NAME")                                 \
    X(NAME, secret, "trireme-token", 0, 0, NULL, "secret with the key `token`, by which workers authenticate")         \
    X(INT, port, "29400", 1024, 65535, NULL, "rendezvous port")                                                        \
    X(INT, grace_s, "120", 1, 86400, NULL, "seconds between SIGTERM and SIGKILL: time to save")                        \
    X(INT, startup_s, "1800", 30, 604800, NULL, "seconds until the first step")                                        \
    X(INT, within_s, "600", 10, 604800, NULL, "longest time without a step before a pod counts as dead, seconds")      \
    X(INT, metrics_port, "0", 0, 65535, NULL,                                                                          \
      "port of /metrics, /healthz and /readyz of each worker, which the readiness probe then uses; 0: none")
typedef struct tri_k8s_config {
    TRI_K8S_OPTIONS(TRI_OPTION_FIELD)
} tri_k8s_config;

/* Values that are YAML themselves, and what they are without one. */
typedef struct tri_k8s_tree {
    const char *key, *fallback, *help;
} tri_k8s_tree;
extern const tri_k8s_tree tri_k8s_trees[]; /* key NULL at the end */

/* A text of lines. ${NAME} is a value; a line that is @NAME is the block of that name, indented as it stands; one that
 * is %NAME likewise, but taken as it is. */
typedef struct tri_k8s_block {
    const char *name, *text;
} tri_k8s_block;
extern const tri_k8s_block tri_k8s_blocks[]; /* name NULL at the end; "kind-job" is all of kind job */

/* What differs between kinds. */
typedef struct tri_k8s_kind {
    const char *name;
    const char *restart;   /* policy of its pods */
    const char *container; /* the name that its operator wants */
    const char *leader;    /* host of rank 0, with ${name} */
    const char *env;       /* block that says a worker's rank, or "nothing" where the operator does */
    const char *first;     /* what its operator calls the pod of rank 0; "": nothing else than the others */
} tri_k8s_kind;
extern const tri_k8s_kind tri_k8s_kinds[]; /* name NULL at the end */

#endif
