/* SPDX-License-Identifier: Apache-2.0
 *
 * train_ranks.c: every rank opens a hub's comm, runs a job, and writes what it ended with.
 */
#include "ranks/train/train_ranks.h"

#include <stdio.h>
#include <string.h>

#include "base/runtime.h"
#include "comm/comm.h"

#define MAX_RANKS 64

typedef struct rank_place {
    const train_case *test;
    tri_hub *hub;
    const char *transport;
    int rank;
    tri_status status;
    char message[256];
    tri_job_result result;
} rank_place;

static tri_status rank_train(rank_place *place)
{
    tri_comm_config comm_config;
    tri_net_config net_config;
    tri_options_defaults(&tri_comm_options, &comm_config);
    tri_options_defaults(&tri_net_options, &net_config);
    TRI_TRY(tri_options_set(&tri_net_options, &net_config, "transport", place->transport));
    TRI_TRY(tri_options_set(&tri_net_options, &net_config, "timeout_s", "60"));
    tri_comm *comm;
    TRI_TRY(tri_comm_open_hub(place->hub, place->rank, place->test->world, &comm_config, &net_config, &comm));
    tri_job_setup setup = {.config_text = place->test->config,
                           .overrides = place->test->overrides,
                           .comm = comm,
                           .run_folder = place->rank > 0 && place->test->first_writes ? NULL : place->test->run_folder,
                           .resume = place->test->resume};
    tri_job *job = NULL;
    tri_status status = tri_job_open(&setup, &job);
    if (status == TRI_OK)
        status = tri_job_run(job);
    if (status == TRI_OK)
        status = tri_job_result_read(job, &place->result);
    if (status != TRI_OK)
        snprintf(place->message, sizeof(place->message), "%s", tri_last_error());
    tri_job_close(job);
    tri_comm_leave(comm);
    return status;
}

static void rank_body(void *arg)
{
    rank_place *place = arg;
    place->status = rank_train(place);
}

static void fiber_body(int index, void *arg)
{
    rank_place *places = arg;
    rank_body(&places[index]);
}

static train_outcome outcome_of(const rank_place *places, int world)
{
    train_outcome outcome = {.all_equal = true,
                             .hash = places[0].result.weights_hash,
                             .test_accuracy = places[0].result.test_accuracy,
                             .test_loss = places[0].result.test_loss,
                             .step = places[0].result.step};
    for (int r = 0; r < world; r++) {
        if (places[r].status != TRI_OK && outcome.status == TRI_OK) {
            outcome.status = places[r].status;
            memcpy(outcome.message, places[r].message, sizeof(outcome.message));
        }
        outcome.all_equal = outcome.all_equal && places[r].result.weights_hash == outcome.hash;
    }
    return outcome;
}

static tri_status places_make(const train_case *test, const char *transport, const tri_hub_config *config,
                              rank_place places[MAX_RANKS], tri_hub **hub)
{
    memset(places, 0, sizeof(rank_place) * MAX_RANKS);
    TRI_TRY(tri_hub_create(config, hub));
    for (int r = 0; r < test->world; r++)
        places[r] = (rank_place){.test = test, .hub = *hub, .transport = transport, .rank = r};
    return TRI_OK;
}

train_outcome train_threads(const train_case *test)
{
    static rank_place places[MAX_RANKS];
    tri_thread *threads[MAX_RANKS] = {0};
    tri_hub *hub = NULL;
    tri_hub_config config = {.world = test->world};
    tri_status status = places_make(test, "inproc", &config, places, &hub);
    for (int r = 0; r < test->world && status == TRI_OK; r++)
        status = tri_thread_start(&threads[r], "rank", rank_body, &places[r]);
    for (int r = 0; r < test->world; r++)
        tri_thread_join(threads[r]);
    tri_hub_destroy(hub);
    return status == TRI_OK ? outcome_of(places, test->world) : (train_outcome){.status = status};
}

train_outcome train_fibers(const train_case *test, uint64_t seed)
{
    static rank_place places[MAX_RANKS];
    tri_hub *hub = NULL;
    tri_hub_config config = {
        .world = test->world,
        .fabric = {
            .latency_us = 50, .bandwidth = 1000000000, .jitter_us = 200, .ranks_per_host = test->ranks_per_host}};
    tri_status status = places_make(test, "sim", &config, places, &hub);
    tri_sim_config sim = {.seed = seed, .stack_nbytes = 1 << 20};
    if (status == TRI_OK)
        status = tri_sim_run(&sim, test->world, fiber_body, places);
    tri_hub_destroy(hub);
    if (status == TRI_OK)
        return outcome_of(places, test->world);
    train_outcome outcome = {.status = status};
    snprintf(outcome.message, sizeof(outcome.message), "%s", tri_last_error());
    return outcome;
}
