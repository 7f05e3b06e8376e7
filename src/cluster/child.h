/* SPDX-License-Identifier: Apache-2.0
 *
 * child.h: one program beside this one: started, looked after without waiting, asked to stop. Ranks are launch.h's.
 */
#ifndef TRI_CLUSTER_CHILD_H
#define TRI_CLUSTER_CHILD_H

#include <stdbool.h>

#include "base/status.h"

#define TRI_CHILD_CARDS_NBYTES 4096

typedef struct tri_child_setup {
    const char *program; /* its path; NULL: this one's */
    char *const *argv;   /* NULL at the end */
    const char *output;  /* file that both its streams are appended to */
    int threads;         /* OMP_NUM_THREADS; 0: as it is here */
    const int *cpus;     /* cores it may use, */
    int cpu_count;       /* 0: those of this process */
    const char *cards;   /* CUDA_VISIBLE_DEVICES; NULL: as it is here */
} tri_child_setup;

typedef struct tri_child {
    int pid; /* 0: none, or it has ended */
} tri_child;

/* Its standard input is empty, and it is killed when this process ends, however it does. */
tri_status tri_child_start(const tri_child_setup *setup, tri_child *child);
/* Whether it has ended; then *exit_code is its own, or 128 + the signal that killed it. */
bool tri_child_has_ended(tri_child *child, int *exit_code);
/* SIGTERM. */
void tri_child_ask_to_stop(const tri_child *child);
/* SIGKILL, and waits for its end. */
void tri_child_kill(tri_child *child);
/* CUDA_VISIBLE_DEVICES of a child: the `count` cards that this process sees, in turn, beginning with number `first`. */
void tri_child_cards(int first, int count, char *text, size_t capacity);
/* The cores that this process may use; tri_free(). */
tri_status tri_child_cores(int **cpus, int *count);

#endif
