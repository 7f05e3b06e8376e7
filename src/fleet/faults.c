/* SPDX-License-Identifier: Apache-2.0
 *
 * faults.c: what happens to the workers of a simulated job: the faults of `trireme chaos` (cli/chaos/strike.c)
 * and some that only a simulation can time, as a seed draws them.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "fleet/fleet.h"

#define SLOW_RUN_NS  (20 * TRI_NS_PER_MS) /* of each 100, as `trireme chaos` does it */
#define SLOW_HALT_NS (80 * TRI_NS_PER_MS)

bool fleet_chance(fleet *all, uint64_t of)
{
    return fleet_draw(all, of) == 0;
}

/* One that runs; NULL: none does. */
static fleet_worker *victim_find(fleet *all)
{
    for (int tries = 0; tries < 64; tries++) {
        fleet_worker *worker = all->workers[fleet_draw(all, (uint64_t)all->count)];
        if (!worker->ended && !worker->process.dead && !worker->misfit)
            return worker;
    }
    return NULL;
}

void fleet_restart(fleet_worker *worker)
{
    worker->restart_ns = tri_now_ns() + (int64_t)fleet_draw(worker->fleet, 400 * TRI_NS_PER_MS) + 1;
}

void fleet_kill(fleet_worker *worker)
{
    fleet *all = worker->fleet;
    tri_sim_process_kill(&worker->process);
    worker->killed_ns = tri_now_ns();
    all->result->kills++;
    all->alive--;
    /* The launcher's --restarts; somebody is left in any case. */
    if (all->alive < 2 || !fleet_chance(all, 8))
        fleet_restart(worker);
    fleet_happens(all, worker, 2, "is killed");
}

/* All of its machine. */
static void host_kill(fleet *all, const fleet_worker *worker)
{
    for (int i = 0; i < all->count; i++) {
        fleet_worker *other = all->workers[i];
        if (!other->ended && !other->process.dead && !other->misfit && strcmp(other->host, worker->host) == 0)
            fleet_kill(other);
    }
}

static void fault_kill(fleet *all, fleet_worker *worker)
{
    if (all->config->layout->per_host > 1 && fleet_chance(all, 3)) {
        host_kill(all, worker);
        return;
    }
    uint64_t more = all->alive > 0 && fleet_chance(all, 8) ? fleet_draw(all, (uint64_t)all->alive) : 0; /* a rack */
    fleet_kill(worker);
    for (uint64_t i = 0; i < more; i++) {
        fleet_worker *other = victim_find(all);
        if (other)
            fleet_kill(other);
    }
}

/* With a request of its own under way. */
static void fault_request(fleet *all, fleet_worker *worker)
{
    (void)all;
    worker->doomed = true;
}

static void fault_stop(fleet *all, fleet_worker *worker)
{
    tri_sim_process_stop(&worker->process, (int64_t)fleet_draw(all, 2000 * TRI_NS_PER_MS) + TRI_NS_PER_MS);
    all->result->stops++;
    fleet_happens(all, worker, 3, "stands still");
}

static void fault_cut(fleet *all, fleet_worker *worker)
{
    uint64_t links = fleet_chance(all, 4) ? TRI_SIM_CUTS : 1;
    for (uint64_t i = 0; i < links; i++) {
        fleet_worker *other = victim_find(all);
        if (!other || other == worker)
            continue;
        tri_sim_process_cut(&worker->process, &other->process,
                            (int64_t)fleet_draw(all, 3000 * TRI_NS_PER_MS) + TRI_NS_PER_MS);
        all->result->cuts++;
        fleet_happens(all, worker, 4, "is cut off from");
        fleet_happens(all, other, 4, "is that one");
    }
}

static void fault_leave(fleet *all, fleet_worker *worker)
{
    if (all->alive < 3 || worker->leaving)
        return;
    worker->leaving = true;
    worker->process.signal = SIGTERM;
    all->alive--;
    all->result->leaves++;
    fleet_happens(all, worker, 5, "shall leave");
}

static void fault_join(fleet *all, fleet_worker *worker)
{
    (void)worker;
    if (all->numbers >= 2 * all->config->ranks + fleet_spares_of(all))
        return;
    all->result->joins++;
    if (fleet_worker_start(all, all->numbers++) != TRI_OK)
        fleet_broke(all, "a worker cannot be started: %s", tri_last_error());
}

/* A newcomer with another configuration. */
static void fault_misfit(fleet *all, fleet_worker *worker)
{
    static const char *const misfits[] = {"optim.lr=0.5",
                                          "train.seed=6",
                                          "train.eval_every_steps=3",
                                          "train.steps=1000",
                                          "checkpoint.every_steps=3",
                                          "parallel.bucket_kib=17",
                                          "comm.encrypt=on",
                                          "data.synthetic_width=31"};
    (void)worker;
    if (all->numbers >= 2 * all->config->ranks + fleet_spares_of(all))
        return;
    all->result->misfits++;
    const char *misfit = misfits[fleet_draw(all, TRI_COUNT_OF(misfits))];
    if (fleet_misfit_start(all, all->numbers++, misfit) != TRI_OK)
        fleet_broke(all, "a worker cannot be started: %s", tri_last_error());
}

/* Nothing passes between two of them for longer than the others would wait: they continue without one of the two. */
static void fault_partition(fleet *all, fleet_worker *worker)
{
    fleet_worker *other = victim_find(all);
    if (!other || other == worker)
        return;
    tri_sim_process_cut(&worker->process, &other->process,
                        (int64_t)fleet_draw(all, 5000 * TRI_NS_PER_MS) + TRI_NS_PER_S);
    all->result->cuts++;
    fleet_happens(all, worker, 14, "is cut off for long from");
    fleet_happens(all, other, 14, "is that one");
}

/* A newcomer that reaches the store alone, at first. */
static void fault_unreachable(fleet *all, fleet_worker *worker)
{
    (void)worker;
    if (all->numbers >= 2 * all->config->ranks + fleet_spares_of(all))
        return;
    all->result->joins++;
    if (fleet_worker_start(all, all->numbers++) != TRI_OK) {
        fleet_broke(all, "a worker cannot be started: %s", tri_last_error());
        return;
    }
    fleet_worker *newcomer = all->workers[all->count - 1];
    newcomer->alone_until_ns = tri_now_ns() + TRI_NS_PER_S + (int64_t)fleet_draw(all, 9000 * TRI_NS_PER_MS);
    fleet_happens(all, newcomer, 15, "reaches the store alone");
}

/* From 1 ms to `most` ms from now. */
static int64_t until_ns(fleet *all, int64_t most_ms)
{
    return tri_now_ns() + TRI_NS_PER_MS + (int64_t)fleet_draw(all, (uint64_t)(most_ms * TRI_NS_PER_MS));
}

static void fault_delay(fleet *all, fleet_worker *worker)
{
    worker->process.delay_ns = (1 + (int64_t)fleet_draw(all, 25)) * TRI_NS_PER_MS / 2;
    worker->process.delay_until_ns = until_ns(all, 3000);
    all->result->troubles++;
    fleet_happens(all, worker, 8, "has links that are late");
}

static void fault_loss(fleet *all, fleet_worker *worker)
{
    worker->process.loss_permille = 10 + (int)fleet_draw(all, 91);
    worker->process.loss_until_ns = until_ns(all, 3000);
    all->result->troubles++;
    fleet_happens(all, worker, 9, "loses packets");
    if (fleet_chance(all, 3)) /* enough in a row that a peer hears no heartbeat in time */
        fault_cut(all, worker);
}

static void fault_slow(fleet *all, fleet_worker *worker)
{
    worker->slow_until_ns = until_ns(all, 3000);
    all->result->troubles++;
    fleet_happens(all, worker, 10, "has a fifth of its processor");
}

void fleet_slow_turn(fleet_worker *worker, int64_t now_ns)
{
    if (now_ns >= worker->slow_until_ns || now_ns < worker->slow_turn_ns || worker->process.wake_ns > now_ns)
        return;
    tri_sim_process_stop(&worker->process, SLOW_HALT_NS);
    worker->slow_turn_ns = now_ns + SLOW_HALT_NS + SLOW_RUN_NS;
}

/* Up to two hours forward or back. */
static void fault_clock(fleet *all, fleet_worker *worker)
{
    worker->process.clock_ns = ((int64_t)fleet_draw(all, 14400) - 7200) * TRI_NS_PER_S;
    worker->process.clock_until_ns = until_ns(all, 3000);
    all->result->troubles++;
    fleet_happens(all, worker, 11, "has a wrong clock");
}

static void fault_damage(fleet *all, fleet_worker *worker)
{
    worker->process.damages = true;
    all->result->troubles++;
    fleet_happens(all, worker, 12, "sends a damaged frame");
}

static void fault_disk(fleet *all, fleet_worker *worker)
{
    worker->process.disk_until_ns = until_ns(all, 3000);
    all->full_disks++;
    all->result->troubles++;
    fleet_happens(all, worker, 13, "has a full disk");
}

/* Some are drawn more often. Seeds of old are what they were with the kinds of then: new ones are added at the end. */
static const struct {
    const char *name;
    void (*make)(fleet *all, fleet_worker *worker);
    const char *does; /* NULL: as the row above */
} faults[] = {
    {"kill", fault_kill, "it is killed, sometimes with others"},
    {"kill", fault_kill, NULL},
    {"kill", fault_kill, NULL},
    {"request", fault_request, "it is killed during a request that changes the store"},
    {"stop", fault_stop, "it stands still for up to 2 s"},
    {"stop", fault_stop, NULL},
    {"cut", fault_cut, "nothing passes between it and some others for up to 3 s"},
    {"leave", fault_leave, "SIGTERM"},
    {"join", fault_join, "another worker comes"},
    {"delay", fault_delay, "its messages are late by 0.5 to 25 ms"},
    {"loss", fault_loss, "1 to 10 % of its packets are sent again"},
    {"slow", fault_slow, "for up to 3 s it has a fifth of its processor"},
    {"clock", fault_clock, "its wall clock is wrong by up to two hours"},
    {"damage", fault_damage, "a bit of the header of its next frame flips: the link is lost"},
    {"full-disk", fault_disk,
     "its writes fail for up to 3 s; every other seed has a folder with checkpoints and a ledger"},
    {"misfit", fault_misfit, "a newcomer with another configuration comes, and must be refused alone"},
    {"partition", fault_partition, "nothing passes between it and one other for 1 to 6 s"},
    {"unreachable", fault_unreachable, "a newcomer reaches the store and no worker for 1 to 10 s"},
};

_Static_assert(TRI_COUNT_OF(faults) <= 8 * sizeof((fleet_config){0}.kinds), "a bit for each");

/* They come in bursts, so that recovery is struck too. */
void fleet_faults_make(fleet *all, int64_t now_ns)
{
    static const int64_t gaps_ns[] = {5 * TRI_NS_PER_MS, 30 * TRI_NS_PER_MS, 400 * TRI_NS_PER_MS};
    size_t drawn[TRI_COUNT_OF(faults)], count = 0;
    for (size_t i = 0; i < TRI_COUNT_OF(faults); i++)
        if (all->config->kinds >> i & 1)
            drawn[count++] = i;
    while (all->faults_left > 0 && now_ns >= all->fault_ns && !all->finished) {
        fleet_worker *worker = victim_find(all);
        all->faults_left--;
        all->fault_ns = now_ns + (int64_t)fleet_draw(all, (uint64_t)gaps_ns[fleet_draw(all, TRI_COUNT_OF(gaps_ns))]);
        if (worker)
            faults[drawn[fleet_draw(all, count)]].make(all, worker);
    }
}

/* Of one name; 0: there is none. */
static uint64_t kind_find(const char *name, size_t nbytes)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < TRI_COUNT_OF(faults); i++)
        if (strlen(faults[i].name) == nbytes && memcmp(faults[i].name, name, nbytes) == 0)
            bits |= UINT64_C(1) << i;
    return bits;
}

const char *fleet_kind_next(int *index, const char **does)
{
    while (*index < (int)TRI_COUNT_OF(faults) && !faults[*index].does)
        ++*index;
    if (*index == (int)TRI_COUNT_OF(faults))
        return NULL;
    *does = faults[*index].does;
    return faults[(*index)++].name;
}

bool fleet_kinds_has(uint64_t kinds, const char *name)
{
    return (kinds & kind_find(name, strlen(name))) != 0;
}

static tri_status kinds_refuse(const char *name, size_t nbytes)
{
    char words[256] = "";
    for (size_t i = 0; i < TRI_COUNT_OF(faults); i++)
        if (faults[i].does)
            snprintf(words + strlen(words), sizeof(words) - strlen(words), "%s%s", i ? ", " : "", faults[i].name);
    return tri_fail(TRI_ECONFIG, "--kinds: want a list of %s, got '%.*s'", words, (int)nbytes, name);
}

tri_status fleet_kinds_read(const char *text, uint64_t *kinds)
{
    *kinds = text ? 0 : UINT64_MAX;
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t nbytes = strcspn(at, ",");
        uint64_t bits = kind_find(at, nbytes);
        if (bits == 0)
            return kinds_refuse(at, nbytes);
        *kinds |= bits;
    }
    return TRI_OK;
}
