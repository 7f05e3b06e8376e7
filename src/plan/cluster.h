/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster.h: the workers that a plan is made for: how fast each computes, what memory it has, and what it costs them to
 * talk. Either measured by the ranks of a job (measure.h) or described by a file (docs/parallel.md).
 *
 * Ranks are numbered host by host, as launchers do. A plain value with arrays of its own.
 */
#ifndef TRI_PLAN_CLUSTER_H
#define TRI_PLAN_CLUSTER_H

#include "base/arena.h"
#include "base/yaml.h"

/* Hosts next to each other that are alike: `count` of them, each with what the others say. */
typedef struct tri_plan_host {
    char name[64];
    int count;
    int workers, threads;  /* of a host; of each worker */
    double speed;          /* of a worker, that of one here with as many threads being 1 */
    double gflops;         /* of a worker, reached in products; 0: speed counts */
    double memory_rate;    /* bytes/s of a worker that goes through arrays; 0: measured here */
    double memory_nbytes;  /* of the host, for all of its workers; infinite: not known */
    double price_per_hour; /* 0: none */
} tri_plan_host;

typedef struct tri_plan_link {
    double latency_s, bytes_per_s; /* one way, of one worker's messages (local) or of a host's interface (network) */
} tri_plan_link;

/* What ranks do together. Bytes are those of the whole buffer. */
typedef enum tri_plan_call {
    TRI_PLAN_SUM,     /* everybody has the sum, where gradients are */
    TRI_PLAN_OWN_SUM, /* of what each has in memory of its own */
    TRI_PLAN_SCATTER, /* everybody has a share of the sum */
    TRI_PLAN_GATHER,  /* everybody has all shares */
    TRI_PLAN_MESSAGE, /* one to the next */
    TRI_PLAN_CALL_COUNT
} tri_plan_call;

/* Measured: seconds = latency_s + nbytes s_per_byte. */
typedef struct tri_plan_rate {
    double latency_s, s_per_byte;
} tri_plan_rate;

/* Of groups of that many ranks, next to each other [0] and as far apart as they can be [1]. */
typedef struct tri_plan_group {
    int count;
    tri_plan_rate rate[2][TRI_PLAN_CALL_COUNT];
} tri_plan_group;

#define TRI_PLAN_GROUPS_MAX 32

#define TRI_PLAN_COPY_RATE 12e9 /* bytes/s of pageable memory over PCIe 4.0 x16, half of pinned memory's; assumed */

/* Of NCCL between cards of a host: PCIe 4.0 x16 (NVLink is faster), and what an operation takes to begin; assumed. */
#define TRI_PLAN_CARD_RATE      20e9
#define TRI_PLAN_CARD_LATENCY_S 100e-6

typedef struct tri_plan_cluster {
    tri_arena arena;
    tri_plan_host *hosts; /* kinds of them, in the order of their ranks */
    int kind_count;
    int host_count, workers; /* in all */
    tri_plan_link local, network;
    bool hides_local, hides_network; /* sums continue while workers compute: there are cores for that */
    /* Measured here; s_per_value 0: not, memory_rate of the hosts counts. */
    double optim_s_per_value, norm_s_per_value; /* one worker, while the others do the same */
    double crowd; /* workers that share a core or a card, at least 1: computing takes so much longer */
    /* Workers compute on cards: memory_nbytes of the hosts is that of these, and nothing of them is measured. */
    bool cards;
    double copy_rate;                           /* bytes/s between a card and its host */
    double card_rate;                           /* between cards of a host, which sum gradients; 0: their hosts do */
    double host_nbytes;                         /* that a worker may take of its host; infinite: not known */
    tri_plan_group groups[TRI_PLAN_GROUPS_MAX]; /* measured; none: the links count */
    int group_count;
} tri_plan_cluster;

/* Of a file, or of a text with that name. Ends with tri_plan_cluster_fini() whatever is returned. */
tri_status tri_plan_cluster_load(const char *path, tri_plan_cluster *cluster);
tri_status tri_plan_cluster_parse(const char *text, size_t nbytes, const char *origin, tri_plan_cluster *cluster);
void tri_plan_cluster_fini(tri_plan_cluster *cluster);

/* Cuts it down to the first `workers` ones; TRI_ECONFIG when there are fewer. */
tri_status tri_plan_cluster_cut(tri_plan_cluster *cluster, int workers);
/* A kind of hosts, the first of them and the first of their ranks; {0}: the first kind. */
typedef struct tri_plan_place {
    int kind, host, rank;
} tri_plan_place;
/* Number of the host of a rank, whose kind becomes `at->kind`, sought from `at` on: ranks that ascend cost one walk
 * through the kinds in all. */
int tri_plan_host_next(const tri_plan_cluster *cluster, tri_plan_place *at, int rank);
/* Seconds for one more value of an optimizer that keeps `states` states. */
double tri_plan_optim_s(const tri_plan_cluster *cluster, int states);
/* Of a value in the norm of the gradient. */
double tri_plan_norm_s(const tri_plan_cluster *cluster);
/* Least bytes that a worker of any host may take; infinite: not known. */
double tri_plan_worker_memory(const tri_plan_cluster *cluster);
/* Of all hosts that have workers, an hour. */
double tri_plan_price(const tri_plan_cluster *cluster);

/* Ranks that call together: rank, rank + stride, ... */
typedef struct tri_plan_edge {
    int count, stride;
} tri_plan_edge;
/* Seconds of a call in all such groups at the same time, the slowest of them; 0 for groups of one. */
double tri_plan_call_s(const tri_plan_cluster *cluster, tri_plan_edge edge, tri_plan_call call, double nbytes);
/* Bytes that each member sends. */
double tri_plan_call_nbytes(tri_plan_edge edge, tri_plan_call call, double nbytes);
/* Whether such calls continue while the workers compute. */
bool tri_plan_call_hides(const tri_plan_cluster *cluster, tri_plan_edge edge);

#endif
