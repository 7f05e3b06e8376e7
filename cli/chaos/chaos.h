/* SPDX-License-Identifier: Apache-2.0
 *
 * chaos.h: `trireme chaos`: faults against the workers of a job that runs, by a schedule that a seed makes.
 *
 * plan.c: what happens when; find.c: whom there is to strike, and how far the job is; strike.c, cut.c: the faults;
 * chaos.c: the command, which plays a plan and tells what the job made of it.
 */
#ifndef TRI_CLI_CHAOS_H
#define TRI_CLI_CHAOS_H

#include "base/chaos.h"
#include "base/containers.h"
#include "base/runtime.h"
#include "cli/run_process.h"
#include "monitor/metrics_read.h"

/* One process of the job. */
typedef struct chaos_worker {
    int rank; /* that it was started as */
    pid_t pid;
    int pidfd;
    int64_t since_ns;     /* when it was found */
    tri_chaos_page *page; /* NULL: it offers none */
    int struck;           /* faults that last, now */
} chaos_worker;

typedef struct chaos_job {
    char folder[TRI_RUN_FOLDER_NBYTES]; /* of the run, without links */
    tri_vector workers;
    int64_t step, looked_ns; /* -1: not known */
    tri_metrics_tail log;
} chaos_job;

/* `what` is the folder of a run, or the id of its launcher or of one of its processes. */
tri_status chaos_job_find(const char *what, chaos_job *job);
/* Who is there now. */
void chaos_job_look(chaos_job *job);
/* The newest step that anybody has made: to the moment where workers offer their page, else as metrics.jsonl has it,
 * which is written once a second. */
int64_t chaos_job_step(chaos_job *job);
bool chaos_worker_signal(const chaos_worker *worker, int number);
void chaos_job_close(chaos_job *job);

/* One row of a plan. */
typedef struct chaos_event {
    double at_s, for_s;
    int kind, line; /* line: of the schedule */
    int64_t rank;   /* whom: a rank, or -1: */
    uint32_t draw;  /* modulo those that can be struck */
} chaos_event;

/* A fault under way, or over. */
typedef struct chaos_strike {
    chaos_event event;
    chaos_job *job;
    int rank;
    pid_t pid;
    int64_t began_ns, ends_ns, turn_ns;
    int64_t step;      /* of the job, then */
    int64_t next_ns;   /* until the next one was made; -1: not yet */
    bool lasts, halts; /* has not ended; slow: stopped at the moment */
    char ports[4096];  /* cut, loss, link: the ports that nft has rules for */
    uint64_t amount;   /* drawn: how much */
    int64_t flip_step; /* corrupt: not before this step */
} chaos_strike;

typedef struct chaos_kind {
    const char *name, *does;
    double least_s, most_s; /* how long it lasts, by default; 0: no time */
    int workers;            /* wanted at least, so that the job can continue */
    bool page, root;        /* needs comm.chaos; needs root and nft */
    /* TRI_ENOTFOUND: the worker has gone. */
    tri_status (*begin)(chaos_strike *strike, chaos_worker *worker);
    void (*turn)(chaos_strike *strike, chaos_worker *worker); /* again and again while it lasts; NULL: nothing */
    void (*end)(chaos_strike *strike, chaos_worker *worker);  /* worker NULL: it has gone; NULL: nothing to undo */
} chaos_kind;
extern const chaos_kind chaos_kinds[];
#define CHAOS_KINDS 12
/* By name; -1. */
int chaos_kind_find(const char *name, size_t nbytes);
/* Whether this user can, on this machine, against one of these workers at least: others may still begin. */
tri_status chaos_kind_check(const chaos_kind *kind, const chaos_job *job);

/* cut.c */
tri_status chaos_nft_check(const chaos_job *job);
tri_status chaos_cut_begin(chaos_strike *strike, chaos_worker *worker);
void chaos_cut_turn(chaos_strike *strike, chaos_worker *worker);
void chaos_cut_end(chaos_strike *strike, chaos_worker *worker);

/* plan.c */
typedef struct chaos_plan {
    tri_vector events; /* by time */
    double for_s;
} chaos_plan;
/* every_s: between two faults, on average. */
tri_status chaos_plan_draw(const char *faults, uint64_t seed, double for_s, double every_s, chaos_plan *plan);
/* Lines "SECONDS FAULT RANK|#NUMBER [SECONDS]", # comments. */
tri_status chaos_plan_read(const char *path, chaos_plan *plan);
/* In the same form. */
tri_status chaos_plan_print(const chaos_plan *plan, tri_string *text);
void chaos_plan_fini(chaos_plan *plan);

#endif
