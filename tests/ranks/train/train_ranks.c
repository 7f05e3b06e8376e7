/* SPDX-License-Identifier: Apache-2.0
 *
 * train_ranks.c: every rank opens a hub's comm, runs a job, and writes what it ended with.
 */
#include "ranks/train/train_ranks.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/runtime.h"
#include "comm/comm.h"
#include "ps/client/client.h"
#include "ps/server/server.h"
#include "train/core/job.h"

#define MAX_RANKS 64

typedef struct rank_place {
    const train_case *test;
    tri_hub *hub;
    const char *transport;
    int rank;
    _Atomic(tri_ps_server *) *serving; /* of this rank, in an array of all */
    atomic_bool *failed;               /* some worker has */
    tri_status status;
    char message[256];
    tri_job_result result;
    uint64_t far_nbytes, live_nbytes, held_nbytes;
    char stats[512];
} rank_place;

static tri_status steps_run(const rank_place *place, tri_job *job)
{
    bool done = false;
    while (!done) {
        place->test->before_step(job);
        TRI_TRY(tri_job_step(job, &done));
    }
    return TRI_OK;
}

/* One of them NULL. */
static tri_status job_run(rank_place *place, tri_comm *comm, tri_ps_client *servers)
{
    tri_job_setup setup = {.config_text = place->test->config,
                           .overrides = place->test->overrides,
                           .comm = comm,
                           .servers = servers,
                           .run_folder = place->rank > 0 && place->test->first_writes ? NULL : place->test->run_folder,
                           .resume = place->test->resume};
    tri_job *job = NULL;
    tri_status status = tri_job_open(&setup, &job);
    if (status == TRI_OK && comm)
        status = tri_barrier(tri_comm_world(comm), NULL);
    place->held_nbytes = status == TRI_OK && job->data.loader ? tri_loader_nbytes(job->data.loader) : 0;
    place->live_nbytes = tri_memory_now().live_nbytes; /* nobody goes on before all have looked */
    if (status == TRI_OK && comm)
        status = tri_barrier(tri_comm_world(comm), NULL);
    if (status == TRI_OK)
        status = place->test->before_step ? steps_run(place, job) : tri_job_run(job);
    if (status == TRI_OK)
        status = tri_job_result_read(job, &place->result);
    if (status != TRI_OK)
        snprintf(place->message, sizeof(place->message), "%s", tri_last_error());
    tri_job_close(job);
    return status;
}

static tri_status net_configure(const rank_place *place, tri_net_config *config)
{
    tri_options_defaults(&tri_net_options, config);
    TRI_TRY(tri_options_set(&tri_net_options, config, "transport", place->transport));
    return tri_options_set(&tri_net_options, config, "timeout_s", "60");
}

static tri_status rank_train(rank_place *place)
{
    tri_comm_config comm_config;
    tri_net_config net_config;
    tri_comm *comm;
    tri_options_defaults(&tri_comm_options, &comm_config);
    TRI_TRY(net_configure(place, &net_config));
    TRI_TRY(tri_comm_open_hub(place->hub, place->rank, place->test->world, &comm_config, &net_config, &comm));
    tri_status status = job_run(place, comm, NULL);
    place->far_nbytes = tri_comm_traffic(comm).far_nbytes;
    tri_comm_leave(comm);
    return status;
}

/* --- with parameter servers --- */

static tri_status server_run(rank_place *place)
{
    tri_net_config net_config;
    tri_ps_server *server;
    TRI_TRY(net_configure(place, &net_config));
    TRI_TRY(tri_options_set(&tri_net_options, &net_config, "timeout_s", "20"));
    tri_ps_server_setup setup = {.net = &net_config,
                                 .token = "test",
                                 .number = place->rank - place->test->world,
                                 .servers = place->test->servers,
                                 .workers = place->test->world,
                                 .threads = 1,
                                 .hub = place->hub,
                                 .rank = place->rank,
                                 .world = place->test->world + place->test->servers};
    TRI_TRY(tri_ps_server_open(&setup, &server));
    atomic_store(place->serving, server);
    if (atomic_load(place->failed))
        tri_ps_server_stop(server);
    tri_status status = tri_ps_server_run(server);
    atomic_store(place->serving, NULL);
    tri_ps_server_close(server);
    return status;
}

static tri_status stats_read(rank_place *place, tri_ps_client *client)
{
    tri_string text = {0};
    tri_status status = tri_ps_client_stats(client, &text);
    snprintf(place->stats, sizeof(place->stats), "%s", text.nbytes > 0 ? tri_string_text(&text) : "");
    tri_string_fini(&text);
    return status;
}

static tri_status worker_run(rank_place *place)
{
    tri_net_config net_config;
    tri_ps_config ps_config;
    tri_ps_client *client;
    char texts[MAX_RANKS][8];
    const char *addresses[MAX_RANKS];
    TRI_TRY(net_configure(place, &net_config));
    tri_options_defaults(&tri_ps_options, &ps_config);
    for (int s = 0; s < place->test->servers; s++) {
        snprintf(texts[s], sizeof(texts[s]), "%d", place->test->world + s);
        addresses[s] = texts[s];
    }
    tri_ps_client_setup setup = {.net = &net_config,
                                 .ps = &ps_config,
                                 .token = "test",
                                 .addresses = addresses,
                                 .worker = place->rank,
                                 .workers = place->test->world,
                                 .servers = place->test->servers,
                                 .hub = place->hub,
                                 .rank = place->rank,
                                 .world = place->test->world + place->test->servers};
    TRI_TRY(tri_ps_client_open(&setup, &client));
    tri_status status = job_run(place, NULL, client);
    if (status != TRI_OK)
        atomic_store(place->failed, true);
    for (int s = 0; status != TRI_OK && s < place->test->servers; s++) { /* nobody says goodbye to them */
        tri_ps_server *server = atomic_load(place->serving - place->rank + place->test->world + s);
        if (server)
            tri_ps_server_stop(server);
    }
    if (status == TRI_OK && place->rank == 0)
        status = stats_read(place, client);
    if (status == TRI_OK)
        status = tri_ps_client_bye(client);
    tri_ps_client_close(client);
    return status;
}

static void rank_body(void *arg)
{
    rank_place *place = arg;
    if (place->test->servers == 0)
        place->status = rank_train(place);
    else
        place->status = place->rank < place->test->world ? worker_run(place) : server_run(place);
    if (place->status != TRI_OK && !place->message[0])
        snprintf(place->message, sizeof(place->message), "%s", tri_last_error());
}

static void fiber_body(int index, void *arg)
{
    rank_place *places = arg;
    rank_body(&places[index]);
}

/* Of one rank, as a launcher takes it: who only heard that another one failed is not the cause. */
static bool is_sooner(tri_status status, tri_status known)
{
    return status != TRI_OK && (known == TRI_OK || (known == TRI_EABORT && status != TRI_EABORT));
}

static train_outcome outcome_of(const rank_place *places, const train_case *test)
{
    train_outcome outcome = {.all_equal = true,
                             .live_nbytes = places[0].live_nbytes,
                             .held_nbytes = places[0].held_nbytes,
                             .hash = places[0].result.weights_hash,
                             .test_accuracy = places[0].result.test_accuracy,
                             .test_loss = places[0].result.test_loss,
                             .step = places[0].result.step};
    memcpy(outcome.stats, places[0].stats, sizeof(outcome.stats));
    for (int r = 0; r < test->world + test->servers; r++) {
        if (is_sooner(places[r].status, outcome.status)) {
            outcome.status = places[r].status;
            memcpy(outcome.message, places[r].message, sizeof(outcome.message));
        }
        outcome.far_nbytes = places[r].far_nbytes > outcome.far_nbytes ? places[r].far_nbytes : outcome.far_nbytes;
        outcome.held_nbytes = places[r].held_nbytes < outcome.held_nbytes ? places[r].held_nbytes : outcome.held_nbytes;
        outcome.all_equal = outcome.all_equal && (r >= test->world || places[r].result.weights_hash == outcome.hash);
    }
    return outcome;
}

static tri_status places_make(const train_case *test, const char *transport, const tri_hub_config *config,
                              rank_place places[MAX_RANKS], tri_hub **hub)
{
    memset(places, 0, sizeof(rank_place) * MAX_RANKS);
    TRI_TRY(tri_hub_create(config, hub));
    static _Atomic(tri_ps_server *) serving[MAX_RANKS];
    static atomic_bool failed;
    atomic_store(&failed, false);
    for (int r = 0; r < test->world + test->servers; r++)
        places[r] = (rank_place){
            .test = test, .hub = *hub, .transport = transport, .rank = r, .serving = &serving[r], .failed = &failed};
    return TRI_OK;
}

train_outcome train_threads(const train_case *test)
{
    static rank_place places[MAX_RANKS];
    tri_thread *threads[MAX_RANKS] = {0};
    tri_hub *hub = NULL;
    int all = test->world + test->servers;
    tri_hub_config config = {.world = all};
    tri_status status = places_make(test, "inproc", &config, places, &hub);
    for (int r = 0; r < all && status == TRI_OK; r++)
        status = tri_thread_start(&threads[r], "rank", rank_body, &places[r]);
    for (int r = 0; r < all; r++)
        tri_thread_join(threads[r]);
    tri_hub_destroy(hub);
    return status == TRI_OK ? outcome_of(places, test) : (train_outcome){.status = status};
}

train_outcome train_fibers(const train_case *test, uint64_t seed)
{
    static rank_place places[MAX_RANKS];
    tri_hub *hub = NULL;
    tri_hub_config config = {
        .world = test->world + test->servers,
        .fabric = {
            .latency_us = 50, .bandwidth = 1000000000, .jitter_us = 200, .ranks_per_host = test->ranks_per_host}};
    tri_status status = places_make(test, "sim", &config, places, &hub);
    tri_sim_config sim = {.seed = seed, .stack_nbytes = 1 << 20};
    if (status == TRI_OK)
        status = tri_sim_run(&sim, test->world + test->servers, fiber_body, places);
    tri_hub_destroy(hub);
    if (status == TRI_OK)
        return outcome_of(places, test);
    train_outcome outcome = {.status = status};
    snprintf(outcome.message, sizeof(outcome.message), "%s", tri_last_error());
    return outcome;
}
