/* SPDX-License-Identifier: Apache-2.0
 *
 * comm.h: what the floors above use of comm/ besides the public <trireme/comm.h>.
 */
#ifndef TRI_COMM_COMM_H
#define TRI_COMM_COMM_H

#include <trireme/comm.h>

#include "base/options.h"
#include "cluster/cluster.h"
#include "net/net.h"
#include "net/region.h"
#include "tensor/tree.h"

#define tri_sum_order_words(W) W(TRI_ORDER_CANONICAL, "canonical") W(TRI_ORDER_ANY, "any")
TRI_ENUM(tri_sum_order)
#define tri_engine_kind_words(W) W(TRI_ENGINE_HOST, "host") W(TRI_ENGINE_MPI, "mpi")
TRI_ENUM(tri_engine_kind)

#define TRI_COMM_OPTIONS(X)                                                                                            \
    X(ENUM, order, "canonical", 0, 0, tri_sum_order,                                                                   \
      "order of additions; canonical: the same bits in every layout; any: algorithms may use rings, and the run is "   \
      "marked as not reproducible")                                                                                    \
    X(TEXT, algorithm, "", 0, 0, NULL,                                                                                 \
      "overrides the choice of algorithms, such as all_reduce:0-64k=tree,64k-=halving;broadcast:1M-=scatter (bytes, "  \
      "upper end excluded; k, M, G are powers of 1024)")                                                               \
    X(ENUM, engine, "host", 0, 0, tri_engine_kind,                                                                     \
      "host: Trireme's own collectives; mpi: the MPI library that started the job")                                    \
    X(PATH, mpi_library, "", 0, 0, NULL, "plug-in for the MPI library; empty: detected", "comm.engine=mpi")            \
    X(REAL, report_s, "10", 0.001, 1e6, NULL,                                                                          \
      "an operation that waits this long reports once, on each rank, which ranks are missing and why")                 \
    X(PATH, flight, "", 0, 0, NULL,                                                                                    \
      "folder for the flight record of the latest 1,024 operations, written after a failure; empty: /tmp, in "         \
      "training RUN/flight; none: no record")
typedef struct tri_comm_config {
    TRI_COMM_OPTIONS(TRI_OPTION_FIELD)
} tri_comm_config;
extern const tri_option_table tri_comm_options; /* section "comm" */
/* Sets one option of section comm, of comm/ or of net/, by a word "comm.KEY=VALUE". */
tri_status tri_comm_setting(const char *word, tri_comm_config *config, tri_net_config *net);
/* Defaults, and over them what TRIREME_COMM says: such words, with blanks between them. */
tri_status tri_comm_settings_read(tri_cluster_lookup lookup, void *arg, tri_comm_config *config, tri_net_config *net);

/* Opens links between all ranks of the cluster and starts the comm thread. The cluster stays the caller's and must
 * outlive comm. */
tri_status tri_comm_open(tri_cluster *cluster, const tri_comm_config *config, const tri_net_config *net,
                         int64_t deadline_ns, tri_comm **out);
/* Once a comm of this cluster is open on all ranks: what only its opening needed goes out of the store; by one rank. */
tri_status tri_comm_sweep(tri_cluster *cluster, int64_t deadline_ns);
/* tri_comm_join() with these options: the cluster that the environment tells of is joined, and left by
 * tri_comm_leave(). timeout_s: above 0, at most 1e6. */
tri_status tri_comm_join_as(const tri_comm_config *config, const tri_net_config *net, double timeout_s, tri_comm **out);
/* What a rank ends with: a configuration that cannot be is all ranks', whichever found it first. Of a comm that has
 * failed, which nobody uses any more. */
tri_status tri_comm_settle(const tri_comm *comm, tri_status status);
/* One rank of a hub of this process (threads or fibers): no store. */
tri_status tri_comm_open_hub(tri_hub *hub, int rank, int world, const tri_comm_config *config,
                             const tri_net_config *net, tri_comm **out);

/* This rank's part of a group's memory, between two groups: its pages, and what was written there, stay. */
typedef struct tri_group_memory {
    size_t nbytes;
    tri_region region; /* zeros: none */
    void *plain;       /* NULL: none */
} tri_group_memory;

/* Pages that are there, for tri_group_alloc_kept(): `shared`, of memory that other processes of the host reach. */
tri_status tri_group_memory_make(size_t nbytes, bool shared, tri_group_memory *out);
void tri_group_memory_free(tri_group_memory *memory);
/* As tri_group_alloc(), in what is kept where that has this length and the kind that the group takes, and no process
 * outside the group can write to it any more: those of an earlier group have freed theirs, or have ended. What it takes
 * is no longer kept. Bytes that come from there are what they were. */
tri_status tri_group_alloc_kept(tri_group *group, size_t nbytes, tri_group_memory *kept, void **out);
/* As tri_group_free(), but this rank's part stays in `kept`. */
void tri_group_free_kept(tri_group *group, void *memory, tri_group_memory *kept);

/* As tri_reduce_scatter_tree() in a group that has the shards of some of the ranks alone: of each whole subtree of
 * these (tri_tree_parts) every rank gets its block of the sum, in outs[0], outs[1] ... outs[0] may be where the block
 * of parts[0] does. */
tri_status tri_reduce_scatter_subtrees(tri_group *group, tri_tree_place place, float *const *parts, int part_count,
                                       const tri_blocks *in_blocks, float *const *outs, tri_work **work);

/* Numbers are part of the wire format: append only. */
typedef enum tri_comm_op {
    TRI_COMM_ALL_REDUCE = 1,
    TRI_COMM_REDUCE,
    TRI_COMM_BROADCAST,
    TRI_COMM_ALL_GATHER,
    TRI_COMM_REDUCE_SCATTER,
    TRI_COMM_BARRIER,
    TRI_COMM_SEND_RECV,
    TRI_COMM_ALL_REDUCE_TREE,
    TRI_COMM_GATHER,
    TRI_COMM_SCATTER,
    TRI_COMM_ALL_TO_ALL,
    TRI_COMM_BATCH,
    TRI_COMM_REDUCE_SCATTER_TREE,
    TRI_COMM_OP_COUNT
} tri_comm_op;
const char *tri_comm_op_name(tri_comm_op op);

/* data: where it would be (tri_group_alloc or not), NULL: ordinary memory. The algorithm that a call would take, and
 * the prices of all that can: one line each, for --explain. */
tri_status tri_comm_explain(const tri_group *group, tri_comm_op op, int64_t nbytes, const void *data, tri_string *out);
/* Name of the chosen algorithm, or of the engine where that is not our own. */
const char *tri_comm_choice(const tri_group *group, tri_comm_op op, int64_t nbytes, const void *data);
/* "host" or "mpi". */
const char *tri_comm_engine(const tri_comm *comm);
/* What an algorithm would be for a call, whatever comm.algorithm says. */
typedef struct tri_comm_offer {
    const char *name;
    const char *cannot; /* why not; NULL: it can */
    double price_us;    /* where it can */
    bool cheapest;      /* of those that can: what the selector takes */
} tri_comm_offer;
/* Fills offers[0 .. at most limit) with the algorithms of an operation in ordinary memory, in the order of
 * tri_comm_algorithm_name(); returns how many. canonical: as with comm.order = canonical. */
int tri_comm_offers(const tri_group *group, tri_comm_op op, int64_t nbytes, bool canonical, tri_comm_offer *offers,
                    int limit);
/* Of algorithm number `index` of an operation; NULL past the last. */
const char *tri_comm_algorithm_name(tri_comm_op op, int index);
/* Does comm.algorithm take it with comm.order = any alone? */
bool tri_comm_needs_any(tri_comm_op op, const char *algorithm);
/* The first rank of the group that is on the host of its rank `rank`. */
int tri_group_host_first(const tri_group *group, int rank);
/* The same of all ranks: first[r]. */
tri_status tri_group_hosts_first(const tri_group *group, int *first);
/* What tri_group_limit() has set, in seconds. */
double tri_group_limit_now(const tri_group *group);
/* Are its ranks on several hosts? */
bool tri_group_is_between_hosts(const tri_group *group);
/* What this rank has sent so far. */
tri_net_traffic tri_comm_traffic(const tri_comm *comm);
/* Of the link to a peer, as tri_net_load(). */
tri_link_load tri_comm_load(const tri_comm *comm, int peer);
const char *tri_comm_transport(const tri_comm *comm, int peer);
/* Is what ended it that a rank is lost, or the way to one, or that another rank failed by itself? Then the others may
 * continue without it. */
bool tri_comm_lost_peer(const tri_comm *comm);
/* Has this rank failed, or heard that another one did or is lost? The next call says which. For waits that are not the
 * comm's. Any thread. */
bool tri_group_has_failed(const tri_group *group);
/* Is a rank known to be lost, or to have left? Nobody is where there is no watch. Any thread. */
bool tri_comm_has_lost(const tri_comm *comm, int rank);
/* It is lost, and may live all the same: its connection ended, or nothing of its host is heard. where: its address. */
bool tri_comm_is_cut(const tri_comm *comm, int rank, char *where, size_t capacity);
/* Did it say goodbye? */
bool tri_comm_has_left(const tri_comm *comm, int rank);
/* First cause of a failure and the rank it came from, which its text does not always name; "" and -1 when none. */
const char *tri_comm_cause(const tri_comm *comm, int *origin_rank);

#endif
