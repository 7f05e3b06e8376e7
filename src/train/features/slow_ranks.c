/* SPDX-License-Identifier: Apache-2.0
 *
 * slow_ranks.c: monitor.watch_every_s: the look that the ranks take at each other: who is slow, why (monitor/slow.h),
 * and who is so slow that it may have to go (stragglers.c).
 *
 * Rank 0 has the clock: when it is time, it says so in the control data of the step (tri_control.look), so all ranks
 * look after the same step. They gather a row each, and all see the same rows. A rank that is slow three times in a row
 * is reported, once a minute.
 */

#include "base/disk_wait.h"
#include "base/log.h"
#include "comm/comm.h"
#include "train/core/features.h"
#include "train/features/observers.h"

#define IN_A_ROW   3
#define LINKS_MOST 256 /* microseconds each */
#define AGAIN_NS   (60 * TRI_NS_PER_S)

typedef struct watch_state {
    tri_slow_row sum;     /* since the last look; its strain is that of the last look */
    int64_t steps;        /* likewise */
    tri_slow_row *rows;   /* [world] */
    tri_link_load *loads; /* [world]: as they were then; NULL: too many to look at */
    tri_disk_wait *disk;  /* NULL: in a simulation */
    int64_t looked_ns;
    tri_slow_verdict last, reported;
    int in_a_row;
    int64_t reported_ns; /* 0: nothing was */
    bool noted;          /* as an event */
} watch_state;

/* NULL: it is off. */
static watch_state *watch_of(const tri_job *job)
{
    return job->states[TRI_FEATURE_WATCH];
}

bool tri_job_watch_is_on(const tri_job *job)
{
    return tri_job_count(job) > 1 && job->config.monitor.watch_every_s > 0;
}

static void part(tri_job *job)
{
    watch_state *watch = watch_of(job);
    if (!watch)
        return;
    tri_disk_wait_stop(watch->disk);
    tri_free(watch->rows);
    tri_free(watch->loads);
    tri_free(watch);
    job->states[TRI_FEATURE_WATCH] = NULL;
}

/* How the links are now, and the one that was busy longest since the look before. */
static tri_slow_link links_look(const tri_job *job)
{
    tri_slow_link busiest = {.to = -1};
    tri_link_load *loads = watch_of(job)->loads;
    for (int peer = 0; loads && peer < job->world; peer++) {
        const tri_link_load before = loads[peer];
        loads[peer] = peer == job->rank ? (tri_link_load){0} : tri_comm_load(job->comm, peer);
        const double busy_s = loads[peer].busy_s - before.busy_s;
        if (busy_s > busiest.busy_s)
            busiest = (tri_slow_link){.to = peer,
                                      .busy_s = busy_s,
                                      .nbytes = loads[peer].acked_nbytes - before.acked_nbytes,
                                      .resent_segments = loads[peer].resent_segments - before.resent_segments,
                                      .round_trip_s = loads[peer].round_trip_s};
    }
    return busiest;
}

static tri_status form(tri_job *job)
{
    part(job);
    if (!tri_job_watch_is_on(job))
        return TRI_OK;
    watch_state *watch = job->states[TRI_FEATURE_WATCH] = tri_alloc_zero(1, sizeof(*watch));
    if (!watch)
        return TRI_ENOMEM;
    watch->rows = tri_alloc_zero((size_t)tri_job_count(job), sizeof(*watch->rows));
    if (job->world <= LINKS_MOST)
        watch->loads = tri_alloc_zero((size_t)job->world, sizeof(*watch->loads));
    if (!watch->rows || (job->world <= LINKS_MOST && !watch->loads))
        return TRI_ENOMEM;
    watch->last.rank = watch->reported.rank = -1;
    watch->looked_ns = tri_now_ns();
    tri_strain_read(&watch->sum.strain);
    TRI_TRY(tri_disk_wait_start(TRI_LOADER_THREAD, &watch->disk));
    (void)links_look(job);
    return TRI_OK;
}

bool tri_job_watch_is_due(const tri_job *job)
{
    const watch_state *watch = watch_of(job);
    return watch && job->rank == 0 && /* as each worker of servers is */
           (double)(tri_now_ns() - watch->looked_ns) / 1e9 >= job->config.monitor.watch_every_s;
}

static void step_add(tri_slow_row *sum, const tri_step_record *record)
{
#define PHASE_ADD(name) sum->name += record->name;
    TRI_PHASE_LIST(PHASE_ADD)
#undef PHASE_ADD
}

/* For people: a line, and an event for whoever looks later. */
static tri_status slow_tell(tri_job *job, const tri_slow_verdict *now, bool line)
{
    char text[400];
    tri_slow_print(now, text, sizeof(text));
    watch_of(job)->noted = true;
    if (line) {
        tri_log(TRI_LOG_WARN, "%s", text);
        tri_features_event(job, "slow", text);
    }
    return job->output.metrics ? tri_metrics_write_slow(job->output.metrics, job->step - 1, now->rank,
                                                        tri_slow_name(now->cause), now->share, text)
                               : TRI_OK;
}

/* Rank 0. What stragglers.c has reported has no event with its cause yet. */
static tri_status tell(tri_job *job, const tri_slow_verdict *now)
{
    watch_state *watch = watch_of(job);
    const bool same = now->rank == watch->last.rank;
    watch->in_a_row = same ? watch->in_a_row + 1 : 1;
    watch->last = *now;
    if (tri_job_number(job) != 0 || watch->in_a_row < IN_A_ROW)
        return TRI_OK;
    const bool reported =
        now->rank == watch->reported.rank && (now->rank < 0 || tri_now_ns() - watch->reported_ns < AGAIN_NS);
    if (reported)
        return now->rank < 0 || watch->noted ? TRI_OK : slow_tell(job, now, false);
    if (now->rank < 0)
        tri_log(TRI_LOG_INFO, "rank %d is not slow any more", watch->reported.rank);
    watch->reported = *now;
    watch->reported_ns = tri_now_ns();
    return now->rank < 0 ? TRI_OK : slow_tell(job, now, true);
}

void tri_job_watch_why(tri_job *job, int rank, char *text, int capacity)
{
    watch_state *watch = watch_of(job);
    text[0] = 0;
    if (!watch || watch->last.rank != rank)
        return;
    tri_slow_why(&watch->last, text, capacity);
    watch->reported = watch->last;
    watch->reported_ns = tri_now_ns();
    watch->noted = false;
}

static void batch_wait(const tri_job *job, bool begins)
{
    const watch_state *watch = watch_of(job);
    if (watch)
        tri_disk_wait_data(watch->disk, begins);
}

static void batch_taken(tri_job *job, const tri_loader_batch *batch)
{
    watch_state *watch = watch_of(job);
    if (!watch)
        return;
    watch->sum.waited += (double)batch->waited_ns / 1e9;
    watch->sum.prepared += (double)batch->prepared_ns / 1e9;
}

void tri_job_watch_add(tri_job *job, double seconds)
{
    watch_state *watch = watch_of(job);
    if (watch)
        watch->sum.forward += seconds;
}

/* What this rank says of itself; *strain: how it is held up, as the system counts it from the beginning. */
static tri_slow_row own_row(tri_job *job, tri_strain *strain)
{
    watch_state *watch = watch_of(job);
    const int64_t now_ns = tri_now_ns();
    tri_slow_row own = watch->sum;
    tri_strain_read(strain);
    tri_disk_wait_read(watch->disk, strain);
    own.strain = tri_strain_since(strain, &watch->sum.strain);
    own.link = links_look(job);
    own.wall_s = (double)(now_ns - watch->looked_ns) / 1e9;
    watch->sum = (tri_slow_row){.strain = *strain};
    watch->looked_ns = now_ns;
    return own;
}

/* Workers of servers look when each has the time: what a row says is made that of a second. False: some have not
 * reported of themselves yet. */
static bool rows_level(tri_slow_row *rows, int count)
{
    for (int r = 0; r < count; r++) {
        tri_slow_row *row = &rows[r];
        double *figures = (double *)row;
        const double to = row->link.to, round_trip_s = row->link.round_trip_s, wall_s = row->wall_s;
        if (!(wall_s > 0))
            return false;
        for (size_t i = 0; i < sizeof(*row) / sizeof(double); i++)
            figures[i] /= wall_s;
        row->link.to = to;
        row->link.round_trip_s = round_trip_s;
    }
    return true;
}

/* *complete: of all. */
static tri_status rows_meet(tri_job *job, tri_slow_row *own, int64_t steps, bool *complete)
{
    watch_state *watch = watch_of(job);
    *complete = true;
    if (job->servers.client) {
        TRI_TRY(tri_job_notes_meet(job, own, steps > 0 ? own->wall_s / (double)steps : 0, watch->rows));
        *complete = rows_level(watch->rows, job->servers.workers);
        return TRI_OK;
    }
    tri_group_name_next(job->group, "who is slow");
    tri_status status = tri_all_gather(job->group, own, watch->rows, sizeof(*own) / sizeof(double), TRI_F64, NULL);
    tri_group_name_next(job->group, "");
    return status;
}

tri_status tri_job_watch_step(tri_job *job, bool look)
{
    watch_state *watch = watch_of(job);
    if (!watch)
        return TRI_OK;
    step_add(&watch->sum, &job->record);
    watch->steps++;
    if (!look)
        return TRI_OK;
    tri_strain now;
    tri_slow_row own = own_row(job, &now);
    const int64_t steps = watch->steps;
    watch->steps = 0;
    bool complete;
    TRI_TRY_IN(rows_meet(job, &own, steps, &complete), "while looking who is slow");
    if (!complete)
        return TRI_OK;
    tri_slow_verdict verdict = tri_slow_find(watch->rows, tri_job_count(job));
    tri_job_live_strain(job, &now, verdict.rank == tri_job_number(job) ? tri_slow_name(verdict.cause) : NULL);
    TRI_TRY(tell(job, &verdict));
    return tri_job_stragglers_judge(job, watch->rows, steps);
}

const tri_feature tri_feature_watch = {
    .batch_wait = batch_wait, .batch_taken = batch_taken, .form = form, .part = part};
