/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime_rig.h: what the tests of the two runtimes share: a counter under a lock, and a short way into a simulation.
 */
#ifndef TRI_TESTS_RUNTIME_RIG_H
#define TRI_TESTS_RUNTIME_RIG_H

#include "base/runtime.h"

#include <errno.h>
#include <fenv.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/memory.h"

#define MS TRI_NS_PER_MS

static inline tri_status simulate(uint64_t seed, int count, void (*body)(int index, void *arg), void *arg)
{
    tri_sim_config config = {.seed = seed};

    return tri_sim_run(&config, count, body, arg);
}

static inline void assert_ok(tri_status status)
{
    if (status != TRI_OK)
        fail_msg("%s", tri_last_error());
}

/* ---- the same in both runtimes */

typedef struct counter {
    tri_mutex mutex;
    tri_cond changed;
    int inside, most_inside, value, waiting;
    bool open;
} counter;

static inline void counter_init(counter *c)
{
    *c = (counter){.value = 0};
    tri_mutex_init(&c->mutex);
    tri_cond_init(&c->changed);
}

static inline void counter_fini(counter *c)
{
    tri_cond_fini(&c->changed);
    tri_mutex_fini(&c->mutex);
}

static inline void count_up(void *arg)
{
    counter *c = arg;

    for (int i = 0; i < 200; i++) {
        tri_mutex_lock(&c->mutex);
        c->inside++;
        if (c->inside > c->most_inside)
            c->most_inside = c->inside;
        int before = c->value;
        if (i % 8 == 0)
            tri_yield();
        c->value = before + 1;
        c->inside--;
        tri_mutex_unlock(&c->mutex);
    }
}

#endif
