/* SPDX-License-Identifier: Apache-2.0
 *
 * spawn.c: starts ranks and lets them find each other.
 */
#include "ranks/spawn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define MAX_WORLD 256
#define TOKEN     "0123456789abcdef0123456789abcdef"

typedef struct spawn_all {
    spawn_config config;
    spawn_body body;
    void *arg;
    tri_hub *hub;
    spawn_rank ranks[MAX_WORLD];
    tri_mutex mutex;
    tri_cond cond;
    int arrived, round;
    char texts[MAX_WORLD][1024];
    const char *views[MAX_WORLD];
    int failures;
} spawn_all;

static const char *const kind_names[SPAWN_KIND_COUNT] = {
    [SPAWN_INPROC] = "inproc",
    [SPAWN_SHM] = "shm",
    [SPAWN_TCP] = "tcp",
    [SPAWN_UCX] = "ucx",
    [SPAWN_AUTO] = "auto",
    [SPAWN_SIM] = "sim",
    [SPAWN_INPROC_FIBERS] = "inproc",
};

const char *spawn_kind_name(spawn_kind kind)
{
    return kind == SPAWN_INPROC_FIBERS ? "inproc as fibers" : kind_names[kind];
}

/* Was the transport built, and is its library here? */
static bool has_ucx(void)
{
    static int known = -1;
    tri_net_config config;
    tri_net *net = NULL;

    if (known >= 0)
        return known;
    tri_options_defaults(&tri_net_options, &config);
    config.transport = TRI_TRANSPORT_UCX;
    tri_status status = tri_net_open(&config, 0, 2, TOKEN, NULL, &net);
    /* Whatever else goes wrong is for the test to find. */
    known = status != TRI_ENOTFOUND && !(status == TRI_ECONFIG && strstr(tri_last_error(), "this build has none"));
    if (!known)
        fprintf(stderr, "skipped over ucx: %s\n", tri_last_error());
    tri_net_close(net);
    return known;
}

void spawn_fail(const spawn_rank *self, const char *file, int line, const char *condition)
{
    tri_mutex_lock(&self->all->mutex);
    self->all->failures++;
    fprintf(stderr, "%s:%d: rank %d of %d over %s: %s does not hold (%s)\n", file, line, self->rank, self->world,
            spawn_kind_name(self->all->config.kind), condition, tri_last_error());
    tri_mutex_unlock(&self->all->mutex);
}

void spawn_barrier(spawn_rank *self)
{
    spawn_all *all = self->all;
    int round;

    tri_mutex_lock(&all->mutex);
    round = all->round;
    if (++all->arrived == self->world) {
        all->arrived = 0;
        all->round++;
        tri_cond_broadcast(&all->cond);
    }
    while (round == all->round)
        tri_cond_wait(&all->cond, &all->mutex, TRI_FOREVER);
    tri_mutex_unlock(&all->mutex);
}

const char *const *spawn_exchange(spawn_rank *self, const char *text)
{
    spawn_barrier(self);
    snprintf(self->all->texts[self->rank], sizeof self->all->texts[0], "%s", text);
    spawn_barrier(self);
    return self->all->views;
}

tri_status spawn_net_open(spawn_rank *self, tri_net **out)
{
    tri_status status = tri_net_open(&self->config, self->rank, self->world, self->token, self->hub, out);
    const char *const *addresses = spawn_exchange(self, status == TRI_OK ? tri_net_address(*out) : "");

    if (status != TRI_OK)
        return status;
    return tri_net_connect(*out, addresses, tri_deadline_after_ms((int64_t)(self->config.timeout_s * 1000)));
}

static void rank_main(void *arg)
{
    spawn_rank *self = arg;

    self->all->body(self, self->all->arg);
}

static void fiber_main(int index, void *arg)
{
    rank_main(&((spawn_all *)arg)->ranks[index]);
}

static void threads_run(spawn_all *all)
{
    tri_thread *threads[MAX_WORLD];

    for (int r = 0; r < all->config.world; r++)
        TRI_ASSERT(tri_thread_start(&threads[r], "rank", rank_main, &all->ranks[r]) == TRI_OK);
    for (int r = 0; r < all->config.world; r++)
        tri_thread_join(threads[r]);
}

bool spawn_is_left_out(spawn_kind kind)
{
    const char *only = getenv("SPAWN_ONLY");

    return (only && strcmp(only, kind_names[kind]) != 0) || (kind == SPAWN_UCX && !has_ucx());
}

bool spawn_ranks(const spawn_config *config, spawn_body body, void *arg)
{
    bool fibers = config->kind == SPAWN_SIM || config->kind == SPAWN_INPROC_FIBERS;
    tri_hub_config hub = {.world = config->world,
                          .fabric = {.latency_us = 5, .bandwidth = 10000000000, .jitter_us = 3}};
    spawn_all *all = tri_alloc_zero(1, sizeof *all);
    bool held;

    if (config->fabric)
        hub.fabric = *config->fabric;
    TRI_ASSERT(all && config->world <= MAX_WORLD);
    if (spawn_is_left_out(config->kind)) {
        tri_free(all);
        return true;
    }
    all->config = *config;
    all->body = body;
    all->arg = arg;
    tri_mutex_init(&all->mutex);
    tri_cond_init(&all->cond);
    if (fibers || config->kind == SPAWN_INPROC)
        TRI_ASSERT(tri_hub_create(&hub, &all->hub) == TRI_OK);
    for (int r = 0; r < config->world; r++) {
        spawn_rank *rank = &all->ranks[r];

        *rank = (spawn_rank){.rank = r, .world = config->world, .hub = all->hub, .token = TOKEN, .all = all};
        all->views[r] = all->texts[r];
        tri_options_defaults(&tri_net_options, &rank->config);
        (void)tri_options_set(&tri_net_options, &rank->config, "transport", kind_names[config->kind]);
        rank->config.timeout_s = config->timeout_s > 0 ? config->timeout_s : 30;
        rank->config.slot_kib = config->slot_kib > 0 ? config->slot_kib : 16;
        if (config->hosts)
            snprintf(rank->config.host, sizeof rank->config.host, "host %d", config->hosts[r]);
        if (r < (int)TRI_COUNT_OF(config->faults) && config->faults[r])
            snprintf(rank->config.faults, sizeof rank->config.faults, "%s", config->faults[r]);
        if (r < (int)TRI_COUNT_OF(config->tokens) && config->tokens[r])
            rank->token = config->tokens[r];
    }
    if (fibers) {
        tri_sim_config sim = {.seed = config->seed, .stack_nbytes = (size_t)256 << 10};

        if (tri_sim_run(&sim, config->world, fiber_main, all) != TRI_OK) {
            fprintf(stderr, "%s\n", tri_last_error());
            all->failures++;
        }
    } else {
        threads_run(all);
    }
    held = all->failures == 0;
    tri_hub_destroy(all->hub);
    tri_cond_fini(&all->cond);
    tri_mutex_fini(&all->mutex);
    tri_free(all);
    return held;
}
