/* SPDX-License-Identifier: Apache-2.0
 *
 * ps.h: options of parameter servers: who waits for whom, and how the parameters are cut.
 */
#ifndef TRI_PS_PS_H
#define TRI_PS_PS_H

#include "base/options.h"
#include "tensor/tree.h"

#define ps_consistency_words(W) W(PS_BSP, "bsp") W(PS_SSP, "ssp") W(PS_ASYNC, "async")
TRI_ENUM(ps_consistency)
/* Their places are on the wire: append only. */
#define ps_values_words(W) W(PS_WIRE_F32, "f32") W(PS_WIRE_BF16, "bf16") W(PS_WIRE_INT8, "int8")
TRI_ENUM(ps_values)
#define ps_schedule_words(W) W(PS_STATIC, "static") W(PS_DYNAMIC, "dynamic")
TRI_ENUM(ps_schedule)

#define TRI_PS_OPTIONS(X)                                                                                              \
    X(ENUM, consistency, "bsp", 0, 0, ps_consistency,                                                                  \
      "bsp (bulk synchronous): a step ends when all workers have pushed, with the bits of all-reduce; ssp (stale "     \
      "synchronous): each push updates the weights at once, and no worker runs ahead of the slowest by more than "     \
      "ps.staleness steps; async: no worker waits",                                                                    \
      "parallel.sync=ps")                                                                                              \
    X(INT, staleness, "2", 0, 1e9, NULL, "steps that a worker may be ahead of the slowest one",                        \
      "parallel.sync=ps ps.consistency=ssp")                                                                           \
    X(BOOL, scale_lr, "true", 0, 0, NULL,                                                                              \
      "a push uses optim.lr / workers, so that an epoch does as much as with bsp; false: optim.lr",                    \
      "parallel.sync=ps ps.consistency=ssp|async")                                                                     \
    X(ENUM, values, "f32", 0, 0, ps_values,                                                                            \
      "element type of gradients on the wire, int8 with a scale for 256 elements; weights return as f32, or as bf16 "  \
      "for bf16 and int8. Anything but f32 sends the gradient of each shard by itself with bsp: keep train.shards as " \
      "small as the number of workers",                                                                                \
      "parallel.sync=ps")                                                                                              \
    X(INT, backup_workers, "0", 0, 1e6, NULL,                                                                          \
      "a step ends when all workers but N have pushed; late gradients are dropped, and the late workers continue "     \
      "with the newest weights; not reproducible",                                                                     \
      "parallel.sync=ps ps.consistency=bsp")                                                                           \
    X(ENUM, schedule, "static", 0, 0, ps_schedule,                                                                     \
      "static: each worker has its part of each batch; dynamic: a free worker takes the next part of the batch, so "   \
      "that a slow worker does fewer",                                                                                 \
      "parallel.sync=ps ps.consistency=ssp|async")                                                                     \
    X(INT, block_kib, "256", 16, 16384, NULL,                                                                          \
      "parameters are distributed over the servers in blocks of this size, KiB", "parallel.sync=ps")                   \
    X(INT, replicas, "1", 1, 2, NULL,                                                                                  \
      "servers that hold each block; 2: the backup, on another host if there are several, replaces a server that "     \
      "dies, and nothing is lost; 1: its blocks are restored from the newest checkpoint",                              \
      "parallel.sync=ps")                                                                                              \
    X(REAL, delay_compensation, "0", 0, 1e3, NULL,                                                                     \
      "DC-ASGD: a late gradient g becomes g + C * g * g * (weights now - weights that g was computed with); 0: off",   \
      "parallel.sync=ps ps.consistency=ssp|async")                                                                     \
    X(REAL, retry_s, "60", 0.1, 1e6, NULL, "how long a worker retries a server that does not answer, seconds",         \
      "parallel.sync=ps")                                                                                              \
    X(INT, window_kib, "16384", 1, 4194304, NULL,                                                                      \
      "tables of rows by key: data in flight to each server before a call waits, KiB", "parallel.sync=ps")
typedef struct tri_ps_config {
    TRI_PS_OPTIONS(TRI_OPTION_FIELD)
} tri_ps_config;
extern const tri_option_table tri_ps_options; /* section "ps" */

/* Parts of a batch that are dealt one by one to whoever is free; 0: each worker has its share. */
int64_t tri_ps_deals(const tri_ps_config *config, int workers);
/* TRI_ECONFIG: options that cannot be combined for this number of workers. */
tri_status tri_ps_check(const tri_ps_config *config, int workers);
/* Do gradients and weights travel in fewer bytes than they have? */
bool tri_ps_is_coded(const tri_ps_config *config);
/* The leaves [first, first + count) as parts whose sums travel: the fewest whole subtrees; single leaves where sums are
 * rounded on their way, so that they are the same ones for any number of workers. At most TRI_TREE_MAX_PARTS leaves. */
int tri_ps_parts(const tri_ps_config *config, int64_t leaves, int64_t first, int64_t count, tri_tree_part *parts);

#endif
