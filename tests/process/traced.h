/* SPDX-License-Identifier: Apache-2.0
 *
 * traced.h: a process that is stopped at each of its system calls, to be killed there, or to be told that it failed.
 */
#ifndef TRI_TESTS_TRACED_H
#define TRI_TESTS_TRACED_H

#include <stdbool.h>
#include <sys/types.h>

typedef enum traced_fault {
    TRACED_KILL, /* before the call, SIGKILL: of those that change something on a disk, between which all is the same */
    TRACED_KILL_ANY, /* likewise, of all calls */
    TRACED_ERROR,    /* the call, one that touches files, does nothing and fails with `error` */
    TRACED_SHORT     /* a write of 2 bytes or more takes half of what it was given */
} traced_fault;

typedef struct traced_plan {
    traced_fault fault;
    int error;
    int at; /* from 1: which of the calls that are meant; 0: none */
} traced_plan;

typedef struct traced_end {
    bool hit;      /* the call came */
    char name[24]; /* of it */
    int status;    /* as of waitpid */
} traced_end;

/* Whether this machine lets us. */
bool traced_works(void);
/* In the child, first of all. */
void traced_begin(void);
/* In its parent: runs it to its end. */
traced_end traced_run(pid_t child, const traced_plan *plan);

#endif
