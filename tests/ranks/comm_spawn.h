/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_spawn.h: what the tests of collectives share: a comm per rank, contributions, and the sum as the definition
 * says.
 */
#ifndef TRI_TESTS_COMM_SPAWN_H
#define TRI_TESTS_COMM_SPAWN_H

#include "comm/comm.h"
#include "ranks/spawn.h"

/* Opens a comm over the spawn's transport. NULL: defaults. Checks. */
tri_comm *comm_spawn_open(spawn_rank *self, const char *order, const char *algorithm);
tri_status comm_spawn_try(spawn_rank *self, const char *order, const char *algorithm, tri_comm **out);
/* What `rank` contributes: `count` elements of dtype, from `first` on; floats are normal, with long fractions. */
void comm_spawn_fill(void *data, tri_dtype dtype, int rank, int64_t first, int64_t count);
/* The canonical result over `ranks` contributions of elements [first, first + count), by recursion. */
void comm_spawn_expect(void *out, tri_dtype dtype, tri_reduce_op op, int ranks, int64_t first, int64_t count);
/* T(0, leaves) over leaves that contribute as ranks do, f32. */
void comm_spawn_tree(float *out, int64_t leaf, int64_t leaves, int64_t count);

#endif
