/* SPDX-License-Identifier: Apache-2.0
 *
 * fleet.c: a simulated elastic job: its launcher, which starts workers, says who has ended and starts others in their
 * place.
 */
#include "fleet/fleet.h"

#include <stdio.h>
#include <string.h>

#include "base/events.h"
#include "base/log.h"

#define TICK_NS   TRI_NS_PER_MS /* of the launcher */
#define WAIT_NS   (10 * TRI_NS_PER_S)
#define LIMIT_NS  (1800 * TRI_NS_PER_S) /* of a run */
#define QUIET_NS  (60 * TRI_NS_PER_S)   /* without any new step: longer is a failure */
#define LINGER_NS TRI_NS_PER_S /* a killed one whose fibers still wait: the launcher sees no process any more */

/* The quiet run is that of one process. */
static int initial_members_of(const fleet *all)
{
    return all->config->is_quiet ? 1 : all->config->ranks;
}

int fleet_spares_of(const fleet *all)
{
    return all->config->is_quiet ? 0 : all->config->spares;
}

/* --- workers --- */

/* Parts of the state are lost: it has found so, or others that did have reported it. */
static bool is_lost(const fleet *all, tri_status status)
{
    bool reported = status == TRI_EABORT && strstr(tri_last_error(), "are lost with the workers that held them");
    return all->config->layout->parallel[0] && (status == TRI_ENOTFOUND || reported);
}

/* The run ends with an error where its last checkpoint finds no room, or its folder cannot be begun; its launcher
 * starts workers again, who continue from the checkpoint before. */
static bool is_unsaved(const fleet *all, tri_status status)
{
    return all->folder[0] && (status == TRI_EIO || status == TRI_EABORT) &&
           (strstr(tri_last_error(), "checkpoint of step") || strstr(tri_last_error(), "config.yaml") ||
            strstr(tri_last_error(), "dataset.yaml")) &&
           (strstr(tri_last_error(), "no space left") || strstr(tri_last_error(), "nor say why"));
}

static void worker_judge(fleet_worker *worker, tri_status status)
{
    fleet *all = worker->fleet;
    if (worker->misfit) { /* its launcher does not start it again */
        if (status != TRI_EMISMATCH && !all->finished && !worker->process.dead && !worker->leaving)
            fleet_broke(all, "worker %s does not fit (%s), and is not refused: %s", worker->id, worker->misfit,
                        status == TRI_OK ? "it ends well" : tri_last_error());
        tri_log(TRI_LOG_INFO, "ends: %s", tri_last_error());
        return;
    }
    bool lost = !worker->process.dead && is_lost(all, status);
    if (lost || (!worker->process.dead && is_unsaved(all, status))) {
        tri_log(TRI_LOG_INFO, "ends: %s", tri_last_error());
        if (lost)
            fleet_loss_check(all, worker, "ends as parts of the state are lost");
        all->result->lost += lost;
        fleet_restart(worker);
        return;
    }
    /* A newcomer that is not needed ends well too. */
    if (status != TRI_OK && !worker->process.dead && !(status == TRI_ECANCELED && worker->leaving))
        fleet_broke(all, "worker %s fails: %s", worker->id, tri_last_error());
}

static void worker_run(void *arg)
{
    fleet_worker *worker = arg;
    fleet *all = worker->fleet;
    const char *const others[] = {worker->misfit, NULL};
    tri_sim_process_enter(&worker->process);
    tri_log_label_set(worker->id);
    tri_status status = tri_elastic_run(&(tri_elastic_setup){
        .job = {.config_text = all->text, .overrides = others, .run_folder = all->folder[0] ? all->folder : NULL},
        .members = {.store = &worker->store.base,
                    .listener = &worker->listener.base,
                    .id = worker->id,
                    .host = worker->host,
                    .initial_members = initial_members_of(all),
                    .least = 1,
                    .most = all->config->ranks,
                    .wait_ns = WAIT_NS},
        .started_by = "a simulation",
        .token = all->token,
        .place = &worker->place});
    fleet_meeting_leave(worker);
    worker_judge(worker, status);
    if (status == TRI_OK && !all->finished && !worker->leaving && worker->step < all->config->steps)
        all->result->replaced++; /* by itself: it was slow */
    fleet_trace(all, (uint64_t)worker->number, (uint64_t)status);
    worker->ended = true;
    worker->mark_dead_ns = tri_now_ns() + (int64_t)fleet_draw(all, 20 * TRI_NS_PER_MS) + 1;
}

static tri_status room_make(fleet *all)
{
    int room = all->room ? 2 * all->room : 2 * all->config->ranks;
    if (all->count < all->room)
        return TRI_OK;
    fleet_worker **grown = tri_realloc(all->workers, (size_t)room * sizeof(*grown));
    if (!grown)
        return TRI_ENOMEM;
    all->workers = grown;
    all->room = room;
    return TRI_OK;
}

static tri_status worker_start(fleet *all, int number, const char *misfit, char *claims)
{
    TRI_TRY(room_make(all));
    fleet_worker *worker = tri_alloc_zero(1, sizeof(*worker));
    if (!worker)
        return TRI_ENOMEM;
    worker->fleet = all;
    worker->number = number;
    worker->misfit = misfit;
    worker->claims = claims;
    worker->step = -1;
    /* Some are slow. */
    worker->step_ns =
        TRI_NS_PER_MS + (int64_t)fleet_draw(all, (uint64_t)(fleet_chance(all, 16) ? 60 : 6) * TRI_NS_PER_MS);
    worker->place = (tri_elastic_place){
        .arg = worker, .hub = fleet_hub, .stepped = fleet_stepped, .is_cut = fleet_is_cut, .spec = worker->claims};
    snprintf(worker->id, sizeof(worker->id), "%d.%d", number, all->starts[number]++);
    snprintf(worker->host, sizeof(worker->host), "host%d", number / all->config->layout->per_host);
    fleet_store_init(&worker->store, worker);
    fleet_store_init(&worker->listener, worker);
    all->workers[all->count++] = worker;
    all->alive += !misfit;
    fleet_happens(all, worker, 1, "is started");
    return tri_thread_start(&worker->thread, worker->id, worker_run, worker);
}

tri_status fleet_worker_start(fleet *all, int number)
{
    return worker_start(all, number, NULL, NULL);
}

tri_status fleet_misfit_start(fleet *all, int number, const char *misfit)
{
    char *claims = NULL;
    size_t nbytes;
    bool lies = fleet_chance(all, 3);
    if (lies && tri_store_wait(all->store, "spec", &claims, &nbytes, tri_now_ns()) != TRI_OK)
        claims = NULL;
    return worker_start(all, number, misfit, claims);
}

/* --- the launcher --- */

static void worker_look(fleet *all, fleet_worker *worker, int64_t now_ns)
{
    bool lingers = worker->killed_ns > 0 && now_ns - worker->killed_ns > LINGER_NS && !worker->marked_dead;
    if (lingers ||
        (worker->ended && worker->mark_dead_ns > 0 && now_ns >= worker->mark_dead_ns && !worker->marked_dead)) {
        worker->mark_dead_ns = 0;
        worker->marked_dead = true;
        if (!worker->process.dead && !worker->leaving && !worker->misfit)
            all->alive--;
        if (tri_members_mark_dead(all->store, worker->id, now_ns + TRI_NS_PER_S) != TRI_OK)
            fleet_broke(all, "an end cannot be published: %s", tri_last_error());
    }
    fleet_slow_turn(worker, now_ns);
    if (worker->restart_ns > 0 && now_ns >= worker->restart_ns) {
        worker->restart_ns = 0;
        if (!all->finished && fleet_worker_start(all, worker->number) != TRI_OK)
            fleet_broke(all, "a worker cannot be started: %s", tri_last_error());
    }
}

/* Whoever makes the last step says so (tri_members_end). */
static void end_look(fleet *all)
{
    char *text;
    size_t nbytes;
    if (all->finished || tri_store_wait(all->store, "gen/over", &text, &nbytes, tri_now_ns()) != TRI_OK)
        return;
    tri_free(text);
    all->finished = true;
    if (all->front != all->config->steps)
        fleet_broke(all, "the run is over after step %lld of %lld", (long long)all->front,
                    (long long)all->config->steps);
}

/* Is anything left to wait for? */
static bool is_over(const fleet *all)
{
    bool ended = true;
    for (int i = 0; i < all->count; i++)
        ended = ended && all->workers[i]->ended && !(all->workers[i]->restart_ns > 0 && !all->finished);
    return ended;
}

static void launcher_run(int index, void *arg)
{
    fleet *all = arg;
    (void)index;
    all->faults_left = all->config->is_quiet ? 0 : all->config->faults;
    all->flips_left = all->config->flips;
    all->fault_ns = (int64_t)fleet_draw(all, 100 * TRI_NS_PER_MS);
    for (int i = 0; i < initial_members_of(all) + fleet_spares_of(all) && !all->result->broken[0]; i++)
        if (fleet_worker_start(all, i) != TRI_OK)
            fleet_broke(all, "a worker cannot be started: %s", tri_last_error());
    while (!is_over(all)) {
        int64_t now_ns = tri_now_ns();
        if (now_ns - all->front_ns > QUIET_NS && !all->finished)
            fleet_broke(all, "no new step for %.0f s after step %lld", (double)QUIET_NS / 1e9, (long long)all->front);
        if (all->result->broken[0]) /* all that wait end at their next request */
            for (int i = 0; i < all->count; i++)
                tri_sim_process_kill(&all->workers[i]->process);
        end_look(all);
        fleet_files_look(all);
        fleet_faults_make(all, now_ns);
        for (int i = 0; i < all->count; i++)
            worker_look(all, all->workers[i], now_ns);
        tri_sleep_ns(TICK_NS);
    }
    end_look(all);
    all->result->took_ns = tri_now_ns();
    for (int i = 0; i < all->count; i++)
        tri_thread_join(all->workers[i]->thread);
    if (!all->finished)
        fleet_broke(all, "the run does not come to its end: step %lld of %lld", (long long)all->front,
                    (long long)all->config->steps);
}

/* --- a run --- */

static int64_t shards_of(int ranks)
{
    int64_t shards = 1;
    while (shards < ranks)
        shards *= 2;
    return shards;
}

static void fleet_fini(fleet *all)
{
    fleet_meetings_free(all);
    for (int i = 0; i < all->count; i++) {
        tri_free(all->workers[i]->claims);
        tri_free(all->workers[i]);
    }
    tri_free(all->workers);
    tri_free(all->starts);
    fleet_files_close(all);
    tri_store_close(all->store);
}

static tri_status fleet_init(fleet *all)
{
    all->shards = shards_of(all->config->ranks);
    all->numbers = all->config->ranks + fleet_spares_of(all);
    all->front = -1;
    snprintf(all->token, sizeof(all->token), "%064llx", (unsigned long long)all->config->seed);
    fleet_text_make(all);
    all->starts = tri_alloc_zero((size_t)all->numbers + (size_t)all->config->ranks, sizeof(*all->starts));
    if (!all->starts)
        return TRI_ENOMEM;
    TRI_TRY(fleet_files_open(all));
    return tri_store_memory(&all->store);
}

tri_status fleet_run(const fleet_config *config, fleet_result *result)
{
    fleet all = {.config = config, .result = result};
    uint64_t before = tri_memory_now().live_nbytes, found = tri_counter_now(TRI_COUNT_SPOILT_PARTS);
    uint64_t saved = tri_counter_now(TRI_COUNT_SAVES), unsaved = tri_counter_now(TRI_COUNT_SAVE_FAILURES);
    *result = (fleet_result){0};
    tri_status status = fleet_init(&all);
    if (status == TRI_OK)
        status = tri_sim_run(&(tri_sim_config){.seed = config->seed, .limit_ns = LIMIT_NS}, 1, launcher_run, &all);
    if (status == TRI_EINTERNAL || status == TRI_ETIMEOUT) {
        fleet_broke(&all, "%s", tri_last_error());
        status = TRI_OK;
    }
    fleet_files_check(&all);
    fleet_fini(&all);
    result->left_nbytes = (int64_t)(tri_memory_now().live_nbytes - before);
    result->saved = (int64_t)(tri_counter_now(TRI_COUNT_SAVES) - saved);
    result->unsaved = (int64_t)(tri_counter_now(TRI_COUNT_SAVE_FAILURES) - unsaved);
    result->found = (int64_t)(tri_counter_now(TRI_COUNT_SPOILT_PARTS) - found);
    return status;
}
