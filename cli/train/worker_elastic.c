/* SPDX-License-Identifier: Apache-2.0
 *
 * worker_elastic.c: this process as a worker of a job whose workers come and go (train/elastic/elastic.h): who it is,
 * and where the launcher's store is.
 */
#include "cli/train/worker_elastic.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/command.h"
#include "cluster/launch.h"
#include "net/host.h"
#include "train/elastic/elastic.h"

static tri_status place_find(tri_cluster_place *place)
{
    TRI_TRY(tri_cluster_detect(NULL, NULL, place));
    if (place->starts < 0 && !place->store_given)
        return tri_fail(TRI_ECONFIG,
                        "--elastic: this process was started by %s, and must be by trireme train -n N --elastic, or "
                        "beside a 'trireme store' that TRIREME_STORE names",
                        place->started_by);
    if (place->starts < 0 && place->world == 1)
        return tri_fail(TRI_ECONFIG, "--elastic: want at least 2 workers to begin with, got 1 (started by %s)",
                        place->started_by);
    return TRI_OK;
}

static void label_set(const tri_cluster_place *place)
{
    char label[TRI_LOG_LABEL_NBYTES];
    snprintf(label, sizeof(label), place->starts < 0 ? "worker %d" : "worker %d.%d", place->rank, place->starts);
    tri_log_label_set(label);
}

/* Where whoever starts the workers keeps no count of it (a pod that comes back), the store does. The one that had this
 * number before has ended. */
static tri_status starts_count(tri_cluster_place *place, tri_store *store, int64_t until_ns)
{
    char key[40], id[TRI_MEMBER_NBYTES];
    int64_t count;
    snprintf(key, sizeof(key), "starts/%d", place->rank);
    TRI_TRY(tri_store_add(store, key, 1, &count, until_ns));
    place->starts = (int)(count - 1);
    label_set(place);
    if (place->starts == 0)
        return TRI_OK;
    tri_log(TRI_LOG_INFO, "comes back: start %d of this worker", place->starts + 1);
    snprintf(id, sizeof(id), "%d.%d", place->rank, place->starts - 1);
    return tri_members_mark_dead(store, id, until_ns);
}

static void stop(void)
{
    kill(getpid(), SIGINT); /* threads take none */
}

/* This thread's word is the last: nothing is flushed or closed, as nothing is of one that is killed. */
static void overdue(void *arg)
{
    const tri_elastic_words *words = arg;
    words->ends(words->ends_arg, TRI_LAUNCH_LEFT_CODE);
    _exit(TRI_LAUNCH_LEFT_CODE);
}

static tri_status worker_run(const tri_elastic_words *words, const tri_cluster_place *place, tri_store *store,
                             tri_store *listener)
{
    char id[TRI_MEMBER_NBYTES], host[TRI_HOST_ID_NBYTES];
    snprintf(id, sizeof(id), "%d.%d", place->rank, place->starts);
    tri_host_id(host);
    return tri_elastic_run(
        &(tri_elastic_setup){.job = {.config = words->config_path,
                                     .overrides = words->overrides,
                                     .run_folder = words->folder,
                                     .resume = words->resume,
                                     .or_begin = words->or_begin,
                                     .console = true},
                             .members = {.store = store,
                                         .listener = listener,
                                         .id = id,
                                         .host = words->config->net.host[0] ? words->config->net.host : host,
                                         .initial_members = place->initial_members,
                                         .beat = place->beat[0] ? place->beat : NULL,
                                         .least = words->least,
                                         .most = words->most,
                                         .wait_ns = (int64_t)(words->wait_s * 1e9),
                                         .alone_ns = (int64_t)(words->alone_s * 1e9)},
                             .started_by = place->started_by,
                             .token = place->token,
                             .stop = stop,
                             .grace_ns = (int64_t)(words->grace_s * 1e9),
                             .overdue = overdue,
                             .overdue_arg = (void *)(uintptr_t)words});
}

tri_status tri_train_elastic(const tri_elastic_words *words)
{
    tri_cluster_place place;
    tri_store *store = NULL, *listener = NULL;
    int64_t until_ns = tri_deadline_after_ms((int64_t)(words->config->net.timeout_s * 1000));
    TRI_TRY(place_find(&place));
    TRI_TRY(tri_cluster_token_check(place.has_token, place.started_by, place.rank, place.world, &words->config->net));
    label_set(&place);
    tri_status status = tri_store_open(place.store_url, place.token, until_ns, &store);
    if (status == TRI_OK)
        store->patience_ns = (int64_t)(words->alone_s * 1e9);
    if (status == TRI_OK && place.starts < 0)
        status = starts_count(&place, store, until_ns);
    if (status == TRI_OK)
        status = tri_store_open(place.store_url, place.token, until_ns, &listener);
    if (status == TRI_OK) {
        /* the listener alone says when it was enough, by stop(): two clocks would not agree */
        store->patience_ns = words->alone_s > 0 ? TRI_FOREVER : 0;
        status = worker_run(words, &place, store, listener);
    }
    tri_store_close(listener);
    tri_store_close(store);
    if (status != TRI_EMISMATCH)
        return status;
    tri_command_hint_set("the run's configuration is in its folder: config.yaml");
    char message[TRI_ERROR_NBYTES];
    snprintf(message, sizeof(message), "%s", tri_last_error());
    return tri_fail_copy(TRI_ECONFIG, message);
}
