/* SPDX-License-Identifier: Apache-2.0
 *
 * spawn.h: runs a test body as several ranks: threads over inproc, shm, tcp or ucx, or fibers of a simulation over sim
 * or inproc.
 *
 * cmocka's asserts jump and so belong to the main thread only; bodies use SPAWN_CHECK, and spawn_ranks() says whether
 * all held.
 */
#ifndef TRI_TESTS_SPAWN_H
#define TRI_TESTS_SPAWN_H

#include <stdbool.h>

#include "net/net.h"

typedef enum spawn_kind {
    SPAWN_INPROC,
    SPAWN_SHM,
    SPAWN_TCP,
    SPAWN_UCX,           /* where it was built and libucp is here; UCX_TLS says over what */
    SPAWN_AUTO,          /* what a real process takes */
    SPAWN_SIM,           /* fibers, links that take time */
    SPAWN_INPROC_FIBERS, /* fibers, links that do not */
    SPAWN_KIND_COUNT
} spawn_kind;

typedef struct spawn_config {
    spawn_kind kind;
    int world;
    const char *faults[16];          /* comm.faults of each rank, NULL: none */
    const char *tokens[16];          /* NULL: the job's */
    double timeout_s;                /* net.timeout_s, 0: 30 */
    uint64_t seed;                   /* of a simulation */
    const int *hosts;                /* [world]: the host that each rank says it is on, NULL: all on this one */
    int64_t slot_kib;                /* 0: 16, small enough for rings to fill */
    const tri_fabric_config *fabric; /* of a simulation; NULL: a fast one */
} spawn_config;

struct spawn_all;
typedef struct spawn_rank {
    int rank, world;
    tri_hub *hub; /* NULL for shm and tcp */
    tri_net_config config;
    const char *token;
    struct spawn_all *all;
} spawn_rank;

typedef void (*spawn_body)(spawn_rank *self, void *arg);

const char *spawn_kind_name(spawn_kind kind);
/* A kind that is not tried: UCX where it is not here, which is said once; all others but one when SPAWN_ONLY names it.
 */
bool spawn_is_left_out(spawn_kind kind);
/* True when no check failed in any rank (and the simulation ended as it should), or the kind is left out. */
bool spawn_ranks(const spawn_config *config, spawn_body body, void *arg);
/* Waits for all ranks. */
void spawn_barrier(spawn_rank *self);
/* Every rank gives a text and gets all of them; they live until the next exchange. */
const char *const *spawn_exchange(spawn_rank *self, const char *text);
/* Opens, exchanges addresses and connects. */
tri_status spawn_net_open(spawn_rank *self, tri_net **out);
void spawn_fail(const spawn_rank *self, const char *file, int line, const char *condition);

/* Goes on after a failure: the others may be waiting for this rank. */
#define SPAWN_CHECK(self, condition) ((condition) ? (void)0 : spawn_fail((self), __FILE__, __LINE__, #condition))

#endif
