/* SPDX-License-Identifier: Apache-2.0
 *
 * elastic.c: one worker of a job whose workers come and go: generation after generation, one job object lives.
 *
 * The store of the launcher says who takes part (cluster/members.h); each generation has a comm of its own, with a
 * token of its own, so that nobody of an earlier one gets a word in. The links of a generation stay open until the next
 * one is closed: their watch says who is still alive.
 */
#include "train/elastic/elastic.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "base/stop.h"
#include "cluster/door.h"
#include "comm/comm.h"
#include "net/auth.h"
#include "train/core/build.h"
#include "train/core/features.h"
#include "train/core/isa.h"
#include "train/elastic/reform.h"
#include "train/elastic/reform_assignment.h"
#include "train/elastic/spec.h"
#include "train/features/observers.h"

#define ASK_MS        2000 /* of the store */
#define FORM_MS       1000 /* until all of a new generation are linked; twice as long each time it fails */
#define FORM_DOUBLES  6
#define FORM_ROUNDS   100
#define APART_MS      (INT64_C(7) * 24 * 3600 * 1000)
#define LEFT_MS       1000
#define MARGIN_NS     (2 * TRI_NS_PER_S) /* before the end of a grace; a quarter of it, if that is less */
#define GRACE_LOOK_NS (10 * TRI_NS_PER_MS)
#define LAST_NS       (2 * TRI_NS_PER_S)
#define ISA_KEY       "isa" /* in the store: the instruction set of the run, by name */

typedef struct elastic {
    const tri_elastic_setup *setup;
    tri_members *members;
    tri_job *job;
    tri_door *door; /* where others try whether they reach this process; NULL: nowhere */
    char **unmet;   /* [unmet_count] of the generation that did not form: where a rank was not reached; NULL: it was */
    int unmet_count;
    tri_string spec; /* what all workers must have in common */
    tri_comm_config comm_config;
    tri_net_config net_config;
    tri_cluster cluster; /* of this generation */
    tri_comm *comm;      /* NULL: none */
    bool isa_taken;      /* the kernels are those of the run's instruction set */
    int failures;        /* to form a generation, in a row */
    int64_t asked_ns;    /* a newcomer: since when it waits to be a member; 0: it is one */
    atomic_bool alone;   /* there was no launcher for too long */
    tri_thread *grace;   /* NULL: there is no limit */
    atomic_bool closing;
} elastic;

/* --- what members say: "avx2:" the instruction set that each offers, and what it has of a sharded state --- */

static const char *role_text(const char *note)
{
    const char *colon = strchr(note, ':');
    return colon ? colon + 1 : note;
}

static tri_status note_tell(elastic *at)
{
    char role[TRI_ROLE_NOTE_NBYTES], note[TRI_MEMBER_NOTE_NBYTES];
    tri_assignment_note has = tri_job_assignment_note(at->job);
    tri_assignment_note_print(&has, role);
    int nbytes = snprintf(note, sizeof(note), "%s:%s", tri_isa_name(at->job->elastic.isa), role);
    if (nbytes >= (int)sizeof(note))
        return tri_fail(TRI_EFORMAT, "what this worker has of the state is too long to say: %s", role);
    tri_members_note(at->members, note);
    return TRI_OK;
}

/* The least that a member of the present generation offers. */
static tri_isa least_offer(const elastic *at)
{
    const tri_generation *now = tri_members_now(at->members);
    tri_isa least = at->job->elastic.isa, offer;
    char name[16];
    for (int r = 0; r < now->count; r++) {
        const char *note = now->members[r].note;
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(note, ":"), note);
        if (tri_isa_find(name, &offer) && offer < least)
            least = offer;
    }
    return least;
}

static tri_status notes_read(const tri_member *members, int count, tri_assignment_note **out)
{
    tri_assignment_note *notes = tri_alloc_zero((size_t)count + 1, sizeof(*notes));
    *out = notes;
    for (int i = 0; notes && i < count; i++)
        if (!tri_assignment_note_read(role_text(members[i].note), &notes[i]))
            return tri_fail(TRI_EFORMAT, "worker %s says of its state '%s'", members[i].id, members[i].note);
    return notes ? TRI_OK : TRI_ENOMEM;
}

static bool is_whole(void *arg, const tri_member *members, int count)
{
    tri_assignment_note *notes;
    (void)arg;
    tri_assignment_state state = {.lost_step = -1};
    if (notes_read(members, count, &notes) == TRI_OK)
        state = tri_assignment_find(notes, count);
    tri_free(notes);
    return state.generation > 0;
}

static int fit_of(void *arg, int count)
{
    return tri_job_assignment_fit(((const elastic *)arg)->job, count);
}

/* --- how long a leave may take --- */

/* How long after it was asked to stop a worker leaves at once: a little before it would be killed. */
static int64_t leave_ns(int64_t grace_ns)
{
    return grace_ns - (grace_ns / 4 < MARGIN_NS ? grace_ns / 4 : MARGIN_NS);
}

static void grace_watch(void *arg)
{
    elastic *at = arg;
    const tri_elastic_setup *setup = at->setup;
    int64_t asked_ns = 0, limit_ns = leave_ns(setup->grace_ns);
    while (!atomic_load(&at->closing)) {
        int64_t now_ns = tri_now_ns();
        if (asked_ns == 0 && tri_stop_signal())
            asked_ns = now_ns;
        if (asked_ns > 0 && now_ns - asked_ns >= limit_ns) {
            tri_log(
                TRI_LOG_WARN,
                "was asked to leave %.3g s ago, and its step, or what it had to save, has not ended: leaves at once, "
                "as if it had been killed, before --grace (%.3g s) is over",
                (double)(now_ns - asked_ns) / 1e9, (double)setup->grace_ns / 1e9);
            setup->overdue(setup->overdue_arg);
            return;
        }
        tri_sleep_ns(GRACE_LOOK_NS);
    }
}

/* --- opening --- */

static bool is_called(void *arg)
{
    return tri_members_rescale_requested(((const elastic *)arg)->members);
}

static tri_status formed(void *arg, bool word, bool *stands)
{
    const elastic *at = arg;
    return tri_members_formed(at->members, word, stands, tri_deadline_after_ms(ASK_MS));
}

/* A store that is not there now has no spares to tell of, and nobody waits for it. */
static bool may_go(void *arg)
{
    elastic *at = arg;
    tri_store *store = at->setup->members.store;
    int64_t patience_ns = store->patience_ns;
    int spares = 0;
    if (at->job->world - 1 >= at->setup->members.least)
        return true;
    store->patience_ns = 0;
    tri_status status = tri_members_spares(at->members, &spares);
    store->patience_ns = patience_ns;
    return status == TRI_OK && spares > 0;
}

/* Like a Ctrl-C to all of them: the run is saved, and ends. */
static void alone_end(void *arg)
{
    elastic *at = arg;
    tri_log(TRI_LOG_WARN, "there was no launcher for %g s: this run is saved and ends",
            (double)at->setup->members.alone_ns / 1e9);
    atomic_store(&at->alone, true);
    at->setup->stop();
}

/* --- whether workers reach each other --- */

static void unmet_clear(elastic *at)
{
    for (int r = 0; r < at->unmet_count; r++)
        tri_free(at->unmet[r]);
    tri_free(at->unmet);
    at->unmet = NULL;
    at->unmet_count = 0;
}

static void unmet_note(void *arg, int rank, const char *where)
{
    elastic *at = arg;
    const tri_elastic_place *place = at->setup->place;
    if (place && !place->is_cut(place->arg, tri_members_now(at->members)->members[rank].id))
        return;
    if (!at->unmet && (at->unmet = tri_alloc_zero((size_t)at->cluster.world, sizeof(*at->unmet))))
        at->unmet_count = at->cluster.world;
    if (rank < at->unmet_count && !at->unmet[rank])
        at->unmet[rank] = tri_strdup(where);
}

static tri_status reach_find(void *arg, const tri_member *members, tri_member_reach *reach, int count)
{
    const elastic *at = arg;
    const tri_elastic_place *place = at->setup->place;
    if (!place)
        return at->door ? tri_doors_try(at->door, reach, count) : TRI_OK;
    for (int i = 0; i < count; i++)
        reach[i].cut = place->is_cut(place->arg, members[i].id);
    return TRI_OK;
}

/* One that cannot listen for trials can be a member all the same. */
static void door_open(elastic *at, tri_members_setup *members)
{
    const tri_net_config *net = &at->job->config.net;
    if (!at->setup->place && tri_door_open(net->interface, net->ports, &at->door) != TRI_OK)
        tri_log(TRI_LOG_WARN, "others cannot try whether they reach this worker: %s", tri_last_error());
    members->door = at->door ? tri_door_address(at->door) : NULL;
    members->ports = net->ports;
    members->reach = reach_find;
}

static tri_status elastic_open(elastic *at)
{
    const tri_elastic_setup *setup = at->setup;
    tri_status status = tri_stop_at_once_begin("before the first step");
    if (status == TRI_OK)
        status = tri_job_open_elastic(&setup->job, &at->job);
    tri_stop_at_once_end();
    TRI_TRY(status);
    at->comm_config = at->job->config.comm;
    snprintf(at->comm_config.flight, sizeof(at->comm_config.flight), "none"); /* a lost rank is no riddle here */
    tri_members_setup members = setup->members;
    members.alone = alone_end;
    members.whole = at->job->assignment.on ? is_whole : NULL;
    members.fit = fit_of;
    members.arg = at;
    door_open(at, &members);
    TRI_TRY(tri_job_spec(at->job, &at->spec));
    members.spec = setup->place && setup->place->spec ? setup->place->spec : tri_string_text(&at->spec);
    at->job->elastic.spec_hash = tri_rng_stream(tri_string_text(&at->spec), 0, 0);
    at->job->elastic.claimed_hash = tri_rng_stream(members.spec, 0, 0);
    TRI_TRY(tri_members_open(&members, &at->members));
    at->net_config = at->job->config.net;
    at->net_config.broken = tri_members_broken(at->members);
    at->net_config.unmet = unmet_note;
    at->net_config.unmet_arg = at;
    at->job->elastic.called = is_called;
    at->job->elastic.may_go = may_go;
    at->job->elastic.formed = formed;
    at->job->elastic.called_arg = at;
    at->job->elastic.place = setup->place;
    return TRI_OK;
}

static void elastic_close(elastic *at)
{
    tri_job_close(at->job);
    tri_comm_leave(at->comm);
    tri_members_close(at->members);
    tri_door_close(at->door);
    unmet_clear(at);
    tri_string_fini(&at->spec);
}

/* --- the instruction set --- */

/* TRI_EMISMATCH: this worker cannot have the run's, and takes no part. */
static tri_status isa_take(elastic *at, const char *name)
{
    char why[TRI_ERROR_NBYTES];
    tri_isa isa;
    if (!tri_isa_find(name, &isa))
        return tri_fail(TRI_EFORMAT, "store key " ISA_KEY ": want the name of an instruction set, got '%.40s'", name);
    tri_status status = tri_job_isa_take(at->job, isa);
    at->isa_taken = status == TRI_OK;
    if (status != TRI_EMISMATCH)
        return status;
    snprintf(why, sizeof(why), "%s", tri_last_error());
    return tri_members_withdraw(at->members, why, tri_deadline_after_ms(ASK_MS));
}

/* A newcomer of a run that has one takes it before it asks to join. */
static tri_status isa_look(elastic *at)
{
    char *name;
    size_t nbytes;
    if (at->isa_taken || tri_members_rank(at->members) >= 0)
        return TRI_OK;
    tri_status status = tri_store_wait(at->setup->members.store, ISA_KEY, &name, &nbytes, tri_now_ns());
    if (status != TRI_OK)
        return status == TRI_ETIMEOUT ? TRI_OK : status;
    status = isa_take(at, name);
    tri_free(name);
    return status;
}

/* The first members claim the least of what they offer, and the first claim stands for the whole run. */
static tri_status isa_agree(elastic *at, int64_t deadline_ns)
{
    const char *mine = tri_isa_name(least_offer(at));
    char *name;
    size_t nbytes;
    if (at->isa_taken)
        return TRI_OK;
    TRI_TRY(tri_store_claim(at->setup->members.store, ISA_KEY, mine, strlen(mine), &name, &nbytes, deadline_ns));
    tri_status status = isa_take(at, name);
    tri_free(name);
    if (status == TRI_OK && tri_members_rank(at->members) == 0)
        tri_log(TRI_LOG_INFO,
                "all workers compute with the instruction set %s, and so will those that join (train.isa)",
                tri_isa_name(tri_isa_now()));
    return status;
}

/* --- a generation --- */

static bool has_lost(const elastic *at, int rank)
{
    return at->comm && tri_comm_has_lost(at->comm, rank);
}

/* In a simulation a cut is known from the one that made it. */
static bool sim_is_cut(const elastic *at, int rank)
{
    const tri_elastic_place *place = at->setup->place;
    return place && has_lost(at, rank) && place->is_cut(place->arg, tri_members_now(at->members)->members[rank].id);
}

static tri_member_way way_of(void *arg, int rank, char *where)
{
    const elastic *at = arg;
    if (!at->comm && rank < at->unmet_count && at->unmet[rank]) {
        snprintf(where, TRI_MEMBER_WHERE_NBYTES, "%s", at->unmet[rank]);
        return TRI_MEMBER_CUT;
    }
    if (!at->comm || !has_lost(at, rank))
        return TRI_MEMBER_HEARD;
    if (tri_comm_has_left(at->comm, rank))
        return TRI_MEMBER_LEFT;
    bool cut = tri_comm_is_cut(at->comm, rank, where, TRI_MEMBER_WHERE_NBYTES) || sim_is_cut(at, rank);
    return cut ? TRI_MEMBER_CUT : TRI_MEMBER_GONE;
}

/* Nobody of an earlier generation knows it. */
static tri_status token_make(const elastic *at, int64_t number, char hex[65])
{
    char text[48];
    unsigned char digest[TRI_AUTH_NBYTES];
    int nbytes = snprintf(text, sizeof(text), "generation %lld", (long long)number);
    TRI_TRY(tri_auth_prove(at->setup->token, text, (size_t)nbytes, digest));
    tri_auth_hex(digest, sizeof(digest), hex);
    return TRI_OK;
}

static tri_status cluster_make(elastic *at, tri_cluster *cluster)
{
    const tri_generation *now = tri_members_now(at->members);
    int rank = tri_members_rank(at->members);
    *cluster = (tri_cluster){.started_by = at->setup->started_by,
                             .rank = rank,
                             .world = now->count,
                             .generation = now->number,
                             .store = at->setup->members.store,
                             .broken = tri_members_broken(at->members)};
    for (int r = 0; r < now->count; r++) {
        bool here = strcmp(now->members[r].host, now->members[rank].host) == 0;
        cluster->local_rank += here && r < rank;
        cluster->local_world += here;
    }
    return token_make(at, now->number, cluster->token);
}

/* The addresses with which an earlier generation tried to form. */
static tri_status addresses_forget(void *arg, int64_t generation, int count)
{
    tri_cluster before = ((const elastic *)arg)->cluster;
    before.generation = generation;
    before.world = count;
    return tri_comm_sweep(&before, tri_deadline_after_ms(ASK_MS));
}

/* By rank 0: the store holds nothing that grows with the number of generations; and people hear. */
static void generation_tell(elastic *at)
{
    const tri_generation *now = tri_members_now(at->members);
    int64_t until_ns = tri_deadline_after_ms(ASK_MS);
    char text[64], mesh[80] = "", summary[200];
    if (tri_members_rank(at->members) > 0)
        return;
    if (at->job->assignment.wish.tensor > 1 || at->job->assignment.wish.pipeline > 1)
        snprintf(mesh, sizeof(mesh), " as %s", tri_mesh_print(&at->job->mesh, text));
    if (tri_comm_sweep(&at->cluster, until_ns) != TRI_OK ||
        tri_members_sweep(at->members, addresses_forget, at, until_ns) != TRI_OK)
        tri_log(TRI_LOG_WARN, "what generation %lld was made with stays in the store: %s", (long long)now->number,
                tri_last_error());
    int nbytes = snprintf(summary, sizeof(summary), "generation %lld: %d worker%s%s, step %lld", (long long)now->number,
                          now->count, now->count == 1 ? "" : "s", mesh, (long long)at->job->step);
    if (at->job->elastic.lost_ns == 0) {
        tri_log(TRI_LOG_INFO, "%d ranks, run folder %s", now->count, at->setup->job.run_folder);
    } else {
        snprintf(summary + nbytes, sizeof(summary) - (size_t)nbytes, ", %.0f ms after it was called",
                 (double)(tri_now_ns() - at->job->elastic.lost_ns) / 1e6);
        tri_log(TRI_LOG_INFO, "%s", summary);
    }
    tri_features_event(at->job, "generation", summary);
}

/* The present one, as the job needs it; ends with generation_drop() whatever is returned. */
static tri_status generation_read(const elastic *at, tri_job_generation *out)
{
    const tri_generation *now = tri_members_now(at->members);
    int64_t *progress = tri_alloc((size_t)now->count * sizeof(*progress));
    tri_assignment_note *notes = NULL;
    tri_status status = progress ? notes_read(now->members, now->count, &notes) : TRI_ENOMEM;
    for (int r = 0; progress && r < now->count; r++)
        progress[r] = now->members[r].progress;
    *out = (tri_job_generation){now->number, now->count, progress, notes};
    return status;
}

static void generation_drop(tri_job_generation *generation)
{
    tri_free((void *)(uintptr_t)generation->progress);
    tri_free((void *)(uintptr_t)generation->notes);
}

static int64_t form_limit_ms(const elastic *at)
{
    int64_t most_ms = (int64_t)(at->net_config.timeout_s * 1000);
    int64_t limit_ms = (int64_t)FORM_MS << (at->failures < FORM_DOUBLES ? at->failures : FORM_DOUBLES);
    return limit_ms < most_ms ? limit_ms : most_ms;
}

/* One whose links were not made has nobody who could say that a member is stopped or cut off: those that live have
 * given it up too when half of the limit is over once more. */
static void silence_begin(elastic *at)
{
    if (!at->comm && tri_members_rank(at->members) >= 0)
        tri_members_suspect_from(at->members, tri_deadline_after_ms(form_limit_ms(at) / 2));
}

/* Does this worker differ in what all must have in common, whatever it has claimed? */
static bool is_misfit(const elastic *at)
{
    return at->comm && at->job->elastic.misfit == at->cluster.rank;
}

/* A newcomer whose description was right, and whose configuration is not. */
static void misfit_refuse(const elastic *at)
{
    char why[TRI_ERROR_NBYTES];
    snprintf(why, sizeof(why), "%s", tri_last_error());
    if (tri_members_refuse(at->setup->members.store, tri_members_now(at->members)->members[at->job->elastic.misfit].id,
                           why, tri_deadline_after_ms(ASK_MS)) != TRI_OK)
        tri_log(TRI_LOG_WARN, "cannot refuse a worker: %s", tri_last_error());
    tri_fail(TRI_EPEER, "%s", why);
}

static tri_status generation_form(elastic *at)
{
    int64_t limit_ms = form_limit_ms(at);
    tri_job_generation generation;
    TRI_TRY(cluster_make(at, &at->cluster));
    unmet_clear(at);
    if (at->setup->place)
        TRI_TRY(at->setup->place->hub(at->setup->place->arg, tri_members_now(at->members), &at->net_config.hub));
    TRI_TRY(tri_comm_open(&at->cluster, &at->comm_config, &at->net_config, tri_deadline_after_ms(limit_ms), &at->comm));
    tri_status status = generation_read(at, &generation);
    if (status == TRI_OK)
        status = tri_job_form(at->job, at->comm, &generation);
    generation_drop(&generation);
    if (status != TRI_OK && at->job->elastic.given_up && at->job->elastic.misfit >= 0)
        misfit_refuse(at);
    if (status != TRI_OK) {
        if (!is_misfit(at)) /* the others lose it, and continue */
            tri_comm_abort(at->comm, status, tri_last_error());
        return status;
    }
    generation_tell(at);
    if (at->asked_ns > 0)
        tri_log(TRI_LOG_INFO, "is rank %d of generation %lld, %.0f ms after it asked", at->cluster.rank,
                (long long)tri_members_now(at->members)->number, (double)(tri_now_ns() - at->asked_ns) / 1e6);
    at->asked_ns = 0;
    return TRI_OK;
}

/* While the links, and what came over them, are still there. */
static tri_status decide(elastic *at)
{
    tri_job_generation generation;
    tri_status status = generation_read(at, &generation);
    if (status == TRI_OK)
        status = tri_job_decide(at->job, &generation);
    generation_drop(&generation);
    return status;
}

/* Is nobody before this one in the present generation still heard of? A loss may be known to the links a moment before
 * it is to their watch. Who said goodbye may have saved: workers are a step apart at most. */
static bool is_first_left(elastic *at)
{
    int64_t until_ns = tri_deadline_after_ms(LEFT_MS), progress = tri_job_progress_number(at->job);
    bool left = false;
    for (int r = 0; r < tri_members_rank(at->members); r++) {
        while (!has_lost(at, r)) {
            if (tri_now_ns() > until_ns)
                return false;
            tri_sleep_ns(TRI_NS_PER_MS);
        }
        left = left || tri_comm_has_left(at->comm, r);
    }
    if (tri_members_rank(at->members) < 0 || progress < 0)
        return false;
    return !left || !tri_job_is_saved(at->job, progress / 2 - 1);
}

/* Without a launcher the workers that are left cannot agree on a generation; where the state is not spread any of them
 * has all that is to be saved. */
static tri_status save_alone(elastic *at)
{
    tri_assignment_note has = tri_job_assignment_note(at->job);
    int64_t progress = tri_job_progress_number(at->job), number = tri_members_now(at->members)->number + 1;
    tri_job_generation alone = {number, 1, &progress, &has};
    TRI_TRY(tri_job_decide(at->job, &alone));
    tri_job_unform(at->job);
    at->comm = NULL;
    if (at->job->assignment.on && at->job->assignment.state.generation == 0)
        return tri_fail(TRI_EPEER, "no worker that is left has the whole state, and without a launcher they cannot put "
                                   "it together: --resume continues from the newest checkpoint");
    at->cluster =
        (tri_cluster){.started_by = at->setup->started_by, .world = 1, .local_world = 1, .generation = number};
    TRI_TRY(token_make(at, number, at->cluster.token));
    TRI_TRY(tri_comm_open(&at->cluster, &at->comm_config, &at->net_config, tri_deadline_after_ms(ASK_MS), &at->comm));
    TRI_TRY(tri_job_form(at->job, at->comm, &alone));
    return tri_job_give_up(at->job, at->setup->members.least);
}

/* Of a newcomer, which will be the last rank. Once it asks the others wait for it. What fails here is tried again
 * where it is needed. */
static void newcomer_prepare(elastic *at)
{
    const tri_generation *now = tri_members_now(at->members);
    bool one_host = true;
    if (!tri_job_state_is_large(at->job) || tri_members_look(at->members, tri_deadline_after_ms(ASK_MS)) != TRI_OK)
        return;
    for (int r = 0; r < now->count; r++)
        one_host = one_host && strcmp(now->members[r].host, at->setup->members.host) == 0;
    (void)tri_job_state_prepare(at->job, now->count + 1, one_host);
}

/* The next generation, of which this process is one; its links. */
static tri_status generation_find(elastic *at)
{
    int64_t limit_ms = (int64_t)(at->net_config.timeout_s * 1000) + at->setup->members.wait_ns / TRI_NS_PER_MS;
    if (tri_sync_is_local(
            &at->job->config.parallel)) /* others come when they have made their steps; the dead are known */
        limit_ms = APART_MS;
    int64_t before = tri_members_now(at->members)->number;
    tri_status status = tri_job_assignment_resolve(at->job);
    if (status == TRI_OK)
        status = note_tell(at);
    if (status == TRI_OK)
        status = isa_look(at);
    if (status == TRI_OK && tri_members_rank(at->members) < 0 && at->asked_ns == 0) {
        newcomer_prepare(at);
        at->asked_ns = tri_now_ns();
    }
    if (status == TRI_OK)
        status = tri_members_next(at->members, tri_job_progress_number(at->job), way_of, at,
                                  tri_deadline_after_ms(limit_ms));
    if (status == TRI_OK)
        status = isa_agree(at, tri_deadline_after_ms(limit_ms));
    if (status == TRI_OK)
        status = decide(at);
    else if (status != TRI_EMISMATCH)
        tri_fail_context(status, "while looking for workers to continue with");
    if (status != TRI_OK && atomic_load(&at->alone) && is_first_left(at)) {
        tri_comm *links = at->comm; /* who sees them closed looks whether it is saved */
        status = save_alone(at);
        tri_comm_leave(links);
        return status;
    }
    tri_job_unform(at->job);
    tri_comm_leave(at->comm);
    at->comm = NULL;
    TRI_TRY(status);
    if (before > 0 && tri_members_now(at->members)->number > before + 1)
        tri_job_lost_touch(at->job);
    return TRI_OK;
}

/* Is a failure one after which the others, and this one, continue in the next generation? */
static bool continues(elastic *at, tri_status status)
{
    bool peer =
        at->comm ? tri_comm_lost_peer(at->comm) : status == TRI_EPEER || status == TRI_ETIMEOUT || status == TRI_EABORT;
    const bool nccl = at->job->card.sums.nccl && at->job->card.no_nccl[0]; /* the next generation sums on the host */
    if (at->job->elastic.dropped)
        tri_job_state_drop(at->job);
    if (is_misfit(at))
        return false;
    if (!(peer || nccl || at->job->elastic.dropped || at->job->elastic.given_up) || at->failures == FORM_ROUNDS)
        return false;
    if (at->cluster.local_rank == 0) /* one of each host tells: launchers of other hosts have output of their own */
        tri_log(TRI_LOG_INFO, "%s", tri_last_error());
    return true;
}

/* The others would fail alike, and so would a new process in this one's place. */
static tri_status run_fail(elastic *at, tri_status status)
{
    char message[TRI_ERROR_NBYTES];
    snprintf(message, sizeof(message), "%s", tri_last_error());
    (void)tri_members_fail(at->setup->members.store, status, message, tri_deadline_after_ms(LAST_NS / TRI_NS_PER_MS));
    return tri_fail_copy(status, message);
}

static bool is_config_error(tri_status status)
{
    return status == TRI_ECONFIG || status == TRI_EUNSUPPORTED;
}

/* Is a failure one that all workers have? Their configurations are the same; once a run is under way one of them may
 * differ all the same in what is its host's, and is lost alone. */
static bool is_shared(const elastic *at, tri_status status)
{
    const tri_generation *now = tri_members_now(at->members);
    bool begun = false;
    for (int r = 0; r < now->count; r++)
        begun = begun || now->members[r].progress >= 0;
    return status == TRI_ENUMERIC || (is_config_error(status) && !begun);
}

/* A worker that the run begins with, and does not without, cannot take part: the others need not wait for it. */
static tri_status open_fail(elastic *at, tri_status status)
{
    const tri_members_setup *setup = &at->setup->members;
    const char *dot = strchr(setup->id, '.');
    char *text;
    size_t nbytes;
    if (!is_config_error(status) || setup->initial_members > setup->least || !dot || strcmp(dot, ".0") != 0)
        return status;
    char message[TRI_ERROR_NBYTES];
    snprintf(message, sizeof(message), "%s", tri_last_error());
    if (tri_store_wait(setup->store, "gen/1", &text, &nbytes, tri_now_ns()) == TRI_OK) {
        tri_free(text);
        return tri_fail_copy(status, message);
    }
    tri_fail_copy(status, message);
    return run_fail(at, status);
}

/* The run is over, or this worker leaves it. Those who would like to know may be gone themselves. */
static void part_end(elastic *at, bool over)
{
    int64_t until_ns = tri_deadline_after_ms(ASK_MS);
    tri_store *store = at->setup->members.store;
    if (store->patience_ns > LAST_NS)
        store->patience_ns = LAST_NS;
    if (!over)
        tri_log(TRI_LOG_INFO, "leaves after step %lld, as %s", (long long)at->job->step,
                at->job->elastic.leave_reason ? at->job->elastic.leave_reason : "asked by a signal");
    if ((over ? tri_members_end(at->members, until_ns) : tri_members_leave(at->members, until_ns)) != TRI_OK)
        tri_log(TRI_LOG_WARN, "could not tell that this worker has %s: %s", over ? "done all steps" : "left",
                tri_last_error());
}

static tri_status generations_run(elastic *at)
{
    for (;;) {
        tri_status status = generation_find(at);
        if (status == TRI_ECANCELED && tri_members_rank(at->members) < 0)
            return TRI_OK;
        TRI_TRY(status);
        status = generation_form(at);
        if (status != TRI_OK)
            silence_begin(at);
        at->failures = status == TRI_OK ? 0 : at->failures + 1;
        if (status == TRI_OK && at->job->world < at->setup->members.least)
            return run_fail(at, tri_job_give_up(at->job, at->setup->members.least));
        if (status == TRI_OK)
            status = tri_job_run_generation(at->job);
        if (status == TRI_OK && (tri_job_is_over(at->job) || at->job->elastic.leaves)) {
            part_end(at, tri_job_is_over(at->job));
            return TRI_OK;
        }
        at->job->elastic.lost_ns = tri_now_ns();
        if (status != TRI_OK && !continues(at, status))
            return is_shared(at, status) ? run_fail(at, status) : status;
    }
}

tri_status tri_elastic_run(const tri_elastic_setup *setup)
{
    elastic at = {.setup = setup};
    char message[TRI_ERROR_NBYTES];
    tri_status status = TRI_OK;
    if (setup->grace_ns > 0)
        status = tri_thread_start(&at.grace, "grace", grace_watch, &at);
    if (status == TRI_OK)
        status = elastic_open(&at);
    if (status != TRI_OK)
        status = open_fail(&at, status);
    else
        status = generations_run(&at);
    snprintf(message, sizeof(message), "%s", tri_last_error());
    elastic_close(&at);
    atomic_store(&at.closing, true);
    tri_thread_join(at.grace);
    return status == TRI_OK ? TRI_OK : tri_fail_copy(status, message);
}
