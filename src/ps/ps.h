/* SPDX-License-Identifier: Apache-2.0
 *
 * ps.h: options of parameter servers: who waits for whom, and how the parameters are cut.
 */
#ifndef TRI_PS_PS_H
#define TRI_PS_PS_H

#include "base/options.h"
#include "tensor/tree.h"

#define TRI_PS_OPTIONS(X)                                                                                              \
    X(NAME, consistency, "bsp", 0, 0, "bsp|ssp|async",                                                                 \
      "bsp: a step ends when all workers have pushed: the bits of all-reduce; ssp: each push moves the weights at "    \
      "once, no worker runs ahead of the slowest by more than ps.staleness steps; async: nobody waits")                \
    X(INT, staleness, "2", 0, 1e9, NULL, "ssp: steps that a worker may be ahead of the slowest one")                   \
    X(BOOL, scale_lr, "true", 0, 0, NULL,                                                                              \
      "ssp, async: each push moves by optim.lr / workers, so that an epoch does as much as with bsp; false: by "       \
      "optim.lr")                                                                                                      \
    X(NAME, values, "f32", 0, 0, "f32|bf16|int8",                                                                      \
      "how gradients travel, each shard's by itself, and (f32, or else bf16) the weights that workers compute with")   \
    X(INT, backup_workers, "0", 0, 1e6, NULL,                                                                          \
      "bsp: a step ends when all workers but so many have pushed; the parts of those that are late are left out of "   \
      "it, and they go on with the newest weights")                                                                    \
    X(NAME, deal, "share", 0, 0, "share|demand",                                                                       \
      "ssp, async: share: each worker has its part of each batch; demand: who is free takes the next part of the "     \
      "batch, so that a slow worker does fewer")                                                                       \
    X(INT, block_kib, "256", 16, 16384, NULL, "parameters are dealt to the servers in blocks of this size, KiB")       \
    X(INT, replicas, "1", 1, 2, NULL,                                                                                  \
      "servers that hold each block: 2: one that dies is replaced by its backup on another host, nothing is lost; 1: " \
      "what it held comes from the newest checkpoint")                                                                 \
    X(REAL, delay_compensation, "0", 0, 1e3, NULL,                                                                     \
      "ssp, async: a late gradient g becomes g + this * g * g * (weights now - weights it is of); 0 = off")            \
    X(REAL, retry_s, "60", 0.1, 1e6, NULL, "how long a worker tries to reach a server that does not answer")           \
    X(INT, window_kib, "16384", 1, 4194304, NULL,                                                                      \
      "tables of rows: what a worker has under way to each server before it waits, KiB")
typedef struct tri_ps_config {
    TRI_PS_OPTIONS(TRI_OPTION_FIELD)
} tri_ps_config;
extern const tri_option_table tri_ps_options; /* section "ps" */

typedef enum ps_consistency { PS_BSP, PS_SSP, PS_ASYNC } ps_consistency;
ps_consistency tri_ps_consistency(const tri_ps_config *config);
/* Parts of a batch that are dealt one by one to whoever is free; 0: each worker has its share. */
int64_t tri_ps_deals(const tri_ps_config *config, int workers);
/* TRI_ECONFIG: options that do not go together, for so many workers. */
tri_status tri_ps_check(const tri_ps_config *config, int workers);
/* Do gradients and weights travel in fewer bytes than they have? */
bool tri_ps_is_coded(const tri_ps_config *config);
/* The leaves [first, first + count) as parts whose sums travel: the fewest whole subtrees; single leaves where sums are
 * rounded on their way, so that they are the same ones for any number of workers. At most TRI_TREE_MAX_PARTS leaves. */
int tri_ps_parts(const tri_ps_config *config, int64_t leaves, int64_t first, int64_t count, tri_tree_part *parts);

#endif
