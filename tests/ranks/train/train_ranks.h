/* SPDX-License-Identifier: Apache-2.0
 *
 * train_ranks.h: whole training runs with ranks as threads or as fibers of a simulation; the weights' hash comes back.
 */
#ifndef TRI_TESTS_TRAIN_RANKS_H
#define TRI_TESTS_TRAIN_RANKS_H

#include <trireme/train.h>

#include "net/transport.h"

typedef struct train_case {
    const char *config;              /* YAML text */
    const char *const *overrides;    /* or NULL */
    const char *run_folder, *resume; /* or NULL */
    bool first_writes;               /* rank 0 alone knows of the run folder */
    int world;
    int servers;                       /* parameter servers beside the ranks, which are their workers then */
    int ranks_per_host;                /* as fibers; 0: one */
    void (*before_step)(tri_job *job); /* each rank's, or NULL */
} train_case;

typedef struct train_outcome {
    tri_status status; /* first failure of any rank, of its own before what it heard of another one's */
    char message[256];
    uint64_t hash;  /* of rank 0 */
    bool all_equal; /* every rank has rank 0's hash */
    double test_accuracy, test_loss;
    int64_t step;
    uint64_t held_nbytes; /* samples of the rank that holds least */
    uint64_t live_nbytes; /* as fibers: of all ranks, once their jobs were open */
    uint64_t far_nbytes;  /* of the rank that sent most to other hosts */
    char stats[512];      /* lines of the parameter servers at the end */
} train_outcome;

/* Ranks as threads over the inproc transport. */
train_outcome train_threads(const train_case *test);
/* Ranks as fibers over the sim transport, 50 us and 1 GB/s with jitter, scheduled by seed. */
train_outcome train_fibers(const train_case *test, uint64_t seed);

#endif
