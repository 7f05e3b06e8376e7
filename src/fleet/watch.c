/* SPDX-License-Identifier: Apache-2.0
 *
 * watch.c: what must hold of a simulated job, looked at whenever a worker has a state: one list a generation,
 * each shard of the batch with one worker, the weights of the quiet run after every step, no new step but by the newest
 * generation, and nobody's state thrown away.
 */
#include <string.h>

#include "base/log.h"
#include "fleet/fleet.h"

/* --- generations --- */

static tri_status list_text(const tri_generation *now, char **out)
{
    tri_string text = {0};
    tri_status status = TRI_OK;
    for (int r = 0; r < now->count && status == TRI_OK; r++)
        status = tri_string_appendf(&text, "%s %lld %s, ", now->members[r].id, (long long)now->members[r].progress,
                                    now->members[r].note);
    *out = status == TRI_OK ? tri_strdup(tri_string_text(&text)) : NULL;
    tri_string_fini(&text);
    return *out ? TRI_OK : TRI_ENOMEM;
}

static tri_status meeting_make(fleet *all, const tri_generation *now, char *list, fleet_meeting **out)
{
    fleet_meeting *meeting = tri_alloc_zero(1, sizeof(*meeting));
    int *host = tri_alloc((size_t)now->count * sizeof(*host));
    /* Slow enough for a kill to find messages on their way; what one costs decides which algorithms are chosen. */
    static const double messages_us[] = {1, 4, 16};
    tri_hub_config hub = {.world = now->count,
                          .host = host,
                          .fabric = {.latency_us = 50,
                                     .bandwidth = 1000000000,
                                     .node_bandwidth = 1000000000,
                                     .message_us = messages_us[fleet_draw(all, TRI_COUNT_OF(messages_us))],
                                     .local_latency_us = 5,
                                     .jitter_us = (double)fleet_draw(all, 400),
                                     .loss = fleet_draw(all, 2) ? 0.0005 : 0,
                                     .packet = 1500,
                                     .resend_us = 1000}};
    if (!meeting || !host) {
        tri_free(meeting);
        tri_free(host);
        return TRI_ENOMEM;
    }
    /* host[r]: of the first member that is there. */
    for (int r = 0; r < now->count; r++)
        for (host[r] = 0; strcmp(now->members[host[r]].host, now->members[r].host) != 0;)
            host[r]++;
    meeting->number = now->number;
    meeting->list = list;
    meeting->next = all->meetings;
    all->meetings = meeting;
    *out = meeting;
    tri_status status = tri_hub_create(&hub, &meeting->hub);
    tri_free(host);
    return status;
}

void fleet_meeting_leave(fleet_worker *worker)
{
    fleet_meeting *meeting = worker->meeting;
    worker->meeting = NULL;
    /* Others of it may still come: its hub stays until there is a newer one. */
    if (!meeting || --meeting->users > 0 || meeting == worker->fleet->meetings)
        return;
    tri_hub_destroy(meeting->hub);
    meeting->hub = NULL;
}

void fleet_meetings_free(fleet *all)
{
    while (all->meetings) {
        fleet_meeting *meeting = all->meetings;
        all->meetings = meeting->next;
        tri_hub_destroy(meeting->hub);
        tri_free(meeting->list);
        tri_free(meeting->shards);
        tri_free(meeting);
    }
}

bool fleet_is_cut(void *arg, const char *id)
{
    const fleet_worker *worker = arg;
    const fleet *all = worker->fleet;
    for (int i = all->count - 1; i >= 0; i--) {
        const fleet_worker *other = all->workers[i];
        if (strcmp(other->id, id) == 0)
            return other->alone_until_ns > tri_now_ns() || worker->alone_until_ns > tri_now_ns() ||
                   tri_sim_process_reach_ns(&worker->process, &other->process) > tri_now_ns();
    }
    return false;
}

tri_status fleet_hub(void *arg, const tri_generation *now, tri_hub **out)
{
    fleet_worker *worker = arg;
    fleet *all = worker->fleet;
    fleet_meeting *meeting = all->meetings;
    char *list;
    fleet_meeting_leave(worker);
    TRI_TRY(list_text(now, &list));
    while (meeting && meeting->number != now->number)
        meeting = meeting->next;
    if (!meeting) {
        all->result->generations = now->number > all->result->generations ? now->number : all->result->generations;
        TRI_TRY(meeting_make(all, now, list, &meeting));
        for (int r = 0; r < now->count; r++)
            meeting->founded = meeting->founded || now->members[r].progress >= 0;
    } else {
        if (strcmp(meeting->list, list) != 0)
            fleet_broke(all, "generation %lld has two lists", (long long)now->number);
        tri_free(list);
    }
    fleet_trace(all, (uint64_t)now->number, (uint64_t)worker->number);
    tri_log(TRI_LOG_INFO, "is in generation %lld of %d: %.400s", (long long)now->number, now->count, meeting->list);
    if (!meeting->hub) /* it is over: who slept so long meets nobody */
        return tri_fail(TRI_EPEER, "generation %lld is over", (long long)now->number);
    meeting->users++;
    worker->meeting = meeting;
    *out = meeting->hub;
    return TRI_OK;
}

/* --- states --- */

static void formed(fleet_worker *worker, const tri_job *job)
{
    fleet *all = worker->fleet;
    fleet_meeting *meeting = worker->meeting;
    const tri_mesh *mesh = &job->mesh;
    int place = mesh->stage * mesh->tensor + mesh->tensor_rank;
    if (!meeting->shards) {
        meeting->places = mesh->tensor * mesh->pipeline;
        meeting->shards = tri_alloc_zero((size_t)all->shards, (size_t)meeting->places);
    }
    for (int64_t s = job->shards.first; s < job->shards.first + job->shards.count; s++)
        if (!meeting->shards || place >= meeting->places || s >= all->shards ||
            meeting->shards[place * all->shards + s]++ > 0)
            fleet_broke(all, "generation %lld: shard %lld has two workers", (long long)meeting->number, (long long)s);
    bool has_state =
        !job->assignment.on && meeting->founded; /* and continues from there, though others may be farther */
    bool is_first = meeting->formed++ == 0 && meeting->number > 1 && all->front >= 0 && !has_state;
    bool is_had = job->assignment.on && job->assignment.state.generation > 0; /* by members of this generation */
    /* Whoever is a step behind may have got that from another one. */
    if (is_first && (job->step == 0 || (job->step < all->tip - 1 && !is_had))) {
        fleet_files_back(all, worker, job->step);
        all->tip = job->step;
    }
}

/* The first step of a generation: everybody has what it began with. */
static void coverage_check(fleet *all, fleet_meeting *meeting)
{
    if (meeting->stepped)
        return;
    meeting->stepped = true;
    for (int64_t s = 0; s < all->shards * meeting->places; s++)
        if (meeting->shards[s] != 1)
            fleet_broke(all, "generation %lld makes a step without shard %lld", (long long)meeting->number,
                        (long long)(s % all->shards));
    fleet_mirrors_check(all, meeting->number);
}

static void front_move(fleet *all, int64_t step, const fleet_meeting *meeting)
{
    int64_t now_ns = tri_now_ns(), passed_ns = now_ns - all->front_ns;
    all->tip = step > all->tip ? step : all->tip;
    if (step <= all->front)
        return;
    if (meeting->number < all->front_generation)
        fleet_broke(all, "generation %lld makes step %lld after generation %lld has made one",
                    (long long)meeting->number, (long long)step, (long long)all->front_generation);
    if (step > all->front + 1 && all->front >= 0)
        fleet_broke(all, "step %lld is made before step %lld", (long long)step, (long long)all->front + 1);
    if (passed_ns > all->result->longest_ns)
        all->result->longest_ns = passed_ns;
    if (passed_ns >= FLEET_PATIENCE_NS) /* nobody sleeps that long */
        fleet_broke(all, "%.1f s pass before step %lld: somebody waits without success", (double)passed_ns / 1e9,
                    (long long)step);
    all->front = step;
    all->front_ns = now_ns;
    all->front_generation = meeting->number;
}

void fleet_stepped(void *arg, const tri_job *job)
{
    fleet_worker *worker = arg;
    fleet *all = worker->fleet;
    uint64_t live_nbytes = tri_memory_now().live_nbytes;
    bool is_new = worker->meeting->formed == 0 || job->elastic.number != worker->generation;
    if (worker->process.dead) /* nobody knows of it */
        return;
    if (worker->misfit)
        fleet_broke(all, "worker %s does not fit (%s), and is a member", worker->id, worker->misfit);
    all->result->peak_nbytes = live_nbytes > all->result->peak_nbytes ? live_nbytes : all->result->peak_nbytes;
    fleet_state_check(worker, job);
    if (is_new)
        formed(worker, job);
    else {
        all->result->steps_made++;
        coverage_check(all, worker->meeting);
    }
    worker->generation = job->elastic.number;
    worker->step = job->step;
    worker->set = job->assignment.now.what;
    worker->set.step = job->step;
    front_move(all, job->step, worker->meeting);
    if (!is_new)
        fleet_flip(worker, job);
    if (!is_new)
        tri_sleep_ns(worker->step_ns);
}
