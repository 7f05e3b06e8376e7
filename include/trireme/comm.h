/* SPDX-License-Identifier: Apache-2.0
 *
 * comm.h: ranks, groups of ranks, and the collective operations between them.
 *
 * Every rank of a group calls the same operations in the same order; ranks that do not get TRI_EMISMATCH on all of
 * them, with both calls printed. Sums are canonical by default: the same bits whatever the transport and the algorithm.
 *
 * Each operation exists once: with work == NULL it blocks; otherwise it is queued, *work is set, and the buffers are
 * borrowed until tri_work_wait() returns. A call and its wait may happen on any one thread at a time.
 *
 * A comm runs one operation at a time, those of all its groups in the order in which they were made. Threads that work
 * independently of each other join a comm each.
 */
#ifndef TRIREME_COMM_H
#define TRIREME_COMM_H

#include <trireme/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tri_comm tri_comm;   /* this process's (or thread's) place among the ranks; owns links and a thread */
typedef struct tri_group tri_group; /* some of the ranks, in an order of their own */
typedef struct tri_work tri_work;   /* an operation under way */

/* Joins the job this process was started in (trireme launch, torchrun, mpirun, srun, TF_CONFIG); alone: one rank. Reads
 * the environment: of whoever started it, and TRIREME_COMM, options of section comm as words with blanks between them,
 * such as "comm.encrypt=on comm.interface=eth0" (docs/config.md). Blocks until all ranks are linked, at most timeout_s.
 */
TRI_API tri_status tri_comm_join(double timeout_s, tri_comm **out);
/* Names and texts that all ranks of a job share, kept by somebody else: how the ranks meet inside another system. */
typedef struct tri_meeting {
    void *arg;
    tri_status (*set)(void *arg, const char *name, const char *text);
    /* Waits until some rank has set the name, at most timeout_s. The text is valid until the next call with this arg.
     * NULL: not there in time, and it is asked for again; sooner than half of that time: it failed. */
    const char *(*wait)(void *arg, const char *name, double timeout_s);
} tri_meeting;
/* As tri_comm_join, but the caller says who it is, and the ranks exchange addresses (and a token made by rank 0)
 * through the meeting: names "trireme.*", each once, so every comm needs a meeting of its own. Of the environment it
 * reads TRIREME_COMM alone. */
TRI_API tri_status tri_comm_join_by(const tri_meeting *meeting, int rank, int world, double timeout_s, tri_comm **out);
/* For programs whose own runtime receives the signals, such as Python: while a thread that has set this function joins,
 * it calls it several times a second. When it returns the number of a signal, and not 0, the call ends with
 * TRI_ECANCELED. NULL stops the calls. */
TRI_API void tri_join_interrupt_set(int (*interrupted)(void));
/* Leaves; NULL does nothing. Groups and works of it must not be used afterwards. */
TRI_API void tri_comm_leave(tri_comm *comm);
/* The group of all ranks; owned by comm. */
TRI_API tri_group *tri_comm_world(tri_comm *comm);
/* Payload bytes that went to a rank so far. What ranks of a host read in each other's memory is not sent; 0 too where
 * there are more than 1024 ranks, or an engine other than our own runs everything. */
TRI_API uint64_t tri_comm_sent_to(const tri_comm *comm, int rank);
TRI_API int tri_comm_local_rank(const tri_comm *comm);
TRI_API int tri_comm_local_count(const tri_comm *comm);
/* Tells all ranks to stop with this message: their operations fail with TRI_EABORT and this text. */
TRI_API void tri_comm_abort(tri_comm *comm, tri_status cause, const char *message);

TRI_API int tri_group_rank(const tri_group *group);
TRI_API int tri_group_count(const tri_group *group);
/* Collective over parent: ranks with the same color form a group, ordered by key, then by rank. color < 0: no group
 * (*out is NULL). Destroy with tri_group_destroy. */
TRI_API tri_status tri_group_split(tri_group *parent, int color, int key, tri_group **out);
/* Not collective: only the members call it, all with the same ranks of the world, in the order of the group, and the
 * same tag. Groups that live at the same time differ in tag or ranks. TRI_EINVAL unless the ranks are different ones of
 * the world and this one is among them. */
TRI_API tri_status tri_group_create_of(tri_comm *comm, const int *ranks, int count, const char *tag, tri_group **out);
TRI_API void tri_group_destroy(tri_group *group);
/* From now on a wait for peers inside an operation of this group takes at most timeout_s (above 0, at most 1e6;
 * net.timeout_s at first); then the operation fails with TRI_ETIMEOUT. */
TRI_API tri_status tri_group_limit(tri_group *group, double timeout_s);

/* Collective: `nbytes` of zeros on every rank, which all-reduce reads in place where all ranks are on one host
 * (elsewhere it is ordinary memory). Every rank calls it in the same order and uses the same offsets. Freed by
 * tri_group_free, or with the comm. */
TRI_API tri_status tri_group_alloc(tri_group *group, size_t nbytes, void **out);
/* NULL does nothing. */
TRI_API void tri_group_free(tri_group *group, void *memory);

/* All operations: counts in elements; `in` is read and keeps its value, `out` is written. In place: both are the same
 * memory at the rank's place (in == out; for gathers in == out + rank * count, for scatters out == in + rank * count).
 */

/* out[i] = sum (or op) over ranks of in[i], on all ranks. */
TRI_API tri_status tri_all_reduce(tri_group *group, const void *in, void *out, int64_t count, tri_dtype dtype,
                                  tri_reduce_op op, tri_work **work);
/* As all-reduce, but only `root` has the result; elsewhere out is not used and may be NULL. */
TRI_API tri_status tri_reduce(tri_group *group, const void *in, void *out, int64_t count, tri_dtype dtype,
                              tri_reduce_op op, int root, tri_work **work);
/* data of root, on all ranks. */
TRI_API tri_status tri_broadcast(tri_group *group, void *data, int64_t count, tri_dtype dtype, int root,
                                 tri_work **work);
/* out[r * count + i] = in of rank r [i]. */
TRI_API tri_status tri_all_gather(tri_group *group, const void *in, void *out, int64_t count, tri_dtype dtype,
                                  tri_work **work);
/* out[i] = sum over ranks of in[rank * count + i]; in has ranks * count elements. */
TRI_API tri_status tri_reduce_scatter(tri_group *group, const void *in, void *out, int64_t count, tri_dtype dtype,
                                      tri_reduce_op op, tri_work **work);
/* At root: out[r * count + i] = in of rank r [i]; elsewhere out is not used and may be NULL. */
TRI_API tri_status tri_gather(tri_group *group, const void *in, void *out, int64_t count, tri_dtype dtype, int root,
                              tri_work **work);
/* out[i] = in of root [rank * count + i]; elsewhere in is not used and may be NULL. */
TRI_API tri_status tri_scatter(tri_group *group, const void *in, void *out, int64_t count, tri_dtype dtype, int root,
                               tri_work **work);
/* out[r * count + i] = in of rank r [rank * count + i]; in and out have ranks * count elements and do not overlap. */
TRI_API tri_status tri_all_to_all(tri_group *group, const void *in, void *out, int64_t count, tri_dtype dtype,
                                  tri_work **work);
TRI_API tri_status tri_barrier(tri_group *group, tri_work **work);
/* A send ends when the receiver, or the link, has taken its data, and the operations behind it wait for that end: ranks
 * that all send before they receive (a ring) wait for each other as soon as the data does not fit into the links. Use a
 * batch for that: the sends and receives of a batch travel at the same time. */
TRI_API tri_status tri_send(tri_group *group, const void *data, int64_t count, tri_dtype dtype, int to,
                            tri_work **work);
TRI_API tri_status tri_receive(tri_group *group, void *data, int64_t count, tri_dtype dtype, int from, tri_work **work);
/* Blocks until this rank has a message that it has not received, and returns its sender; the next tri_receive from that
 * rank takes it. TRI_ETIMEOUT, TRI_EPEER (all other ranks have gone) as in operations; TRI_EUNSUPPORTED with an engine
 * other than the host. */
TRI_API tri_status tri_probe_sender(tri_group *group, int *from);

/* Blocks of a buffer, one of each rank: block r has counts[r] elements and begins at element firsts[r]; firsts NULL:
 * they are one after the other. What is between blocks is not touched, and need not be memory. The arrays are
 * borrowed like buffers. */
typedef struct tri_blocks {
    const int64_t *counts; /* [ranks] */
    const int64_t *firsts; /* [ranks], or NULL */
} tri_blocks;

/* The same operations with blocks of different lengths. All-gather and reduce-scatter: every rank passes the same
 * counts. Gather and scatter: at root all of them, elsewhere only counts[rank] is read. All-to-all: what in_blocks of
 * rank a says of rank b is what out_blocks of rank b says of rank a; ranks that do not agree get TRI_EMISMATCH. */
TRI_API tri_status tri_all_gather_v(tri_group *group, const void *in, void *out, const tri_blocks *out_blocks,
                                    tri_dtype dtype, tri_work **work);
TRI_API tri_status tri_reduce_scatter_v(tri_group *group, const void *in, const tri_blocks *in_blocks, void *out,
                                        tri_dtype dtype, tri_reduce_op op, tri_work **work);
TRI_API tri_status tri_gather_v(tri_group *group, const void *in, void *out, const tri_blocks *out_blocks,
                                tri_dtype dtype, int root, tri_work **work);
TRI_API tri_status tri_scatter_v(tri_group *group, const void *in, const tri_blocks *in_blocks, void *out,
                                 tri_dtype dtype, int root, tri_work **work);
TRI_API tri_status tri_all_to_all_v(tri_group *group, const void *in, const tri_blocks *in_blocks, void *out,
                                    const tri_blocks *out_blocks, tri_dtype dtype, tri_work **work);

/* The factor by which this rank's elements are multiplied in the next operations of this group with
 * TRI_REDUCE_PREMUL_SUM; 1 at first. Each rank has its own. */
TRI_API void tri_group_scale_next(tri_group *group, double factor);

/* A batch: several operations of one group as one, run as often as wanted with what their buffers then hold. Between
 * begin and end the group's operations are noted, not run (with work == NULL; arguments are checked, buffers and arrays
 * are borrowed until the batch is destroyed). Sends and receives of a batch all travel at the same time, so that ranks
 * may exchange in any order; the other operations follow one another. All ranks run the same collective operations.
 * Source: ncclGroupStart/End; persistent requests of MPI 4.0. */
typedef struct tri_batch tri_batch;
TRI_API tri_status tri_batch_begin(tri_group *group);
/* The first error between begin and end, if any; then *out is NULL. */
TRI_API tri_status tri_batch_end(tri_group *group, tri_batch **out);
TRI_API tri_status tri_batch_run(tri_batch *batch, tri_work **work);
/* Not while it runs. NULL does nothing. */
TRI_API void tri_batch_destroy(tri_batch *batch);

/* The canonical sum of the shards of a batch (docs/bits.md): `leaves` shards, a power of two, spread over the ranks in
 * order; rank r of W owns [r leaves / W, (r + 1) leaves / W) and passes one buffer per whole subtree of them, in order
 * (parts[0 .. part_count)), each of `count` f32. On return parts[0] holds the root of the whole tree on every rank; the
 * other parts are used as scratch. The bits do not depend on W. */
TRI_API tri_status tri_all_reduce_tree(tri_group *group, int64_t leaves, float *const *parts, int part_count,
                                       int64_t count, tri_work **work);

/* The same sum, of which each rank gets its block alone: in_blocks says where the blocks of all ranks are in every
 * part, and out gets that of this rank. All ranks pass the same counts; out may be where this rank's block of parts[0]
 * does.
 */
TRI_API tri_status tri_reduce_scatter_tree(tri_group *group, int64_t leaves, float *const *parts, int part_count,
                                           const tri_blocks *in_blocks, float *out, tri_work **work);

/* Gives the next operations of this thread's group a name for messages, such as a tensor's or bucket's; copied, at most
 * 47 bytes; "" ends it. */
TRI_API void tri_group_name_next(tri_group *group, const char *name);

/* Gives the next operations of this thread's group a priority: of those that all ranks have made and none has begun,
 * the one with the lowest number is next. 0 ends it: such operations, batches, sends and receives run in the order in
 * which they were made, and nothing passes them. The same on all ranks. Each choice costs a message to all, or one for
 * several where messages are slow. */
TRI_API void tri_group_priority_next(tri_group *group, unsigned priority);

/* Waits for the end of the operation, frees the handle, returns how it ended. */
TRI_API tri_status tri_work_wait(tri_work *work);
/* Has it ended? Never blocks. */
TRI_API bool tri_work_is_done(const tri_work *work);

#ifdef __cplusplus
}
#endif
#endif
