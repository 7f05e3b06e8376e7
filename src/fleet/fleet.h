/* SPDX-License-Identifier: Apache-2.0
 *
 * fleet.h: a whole elastic job in a simulation (`trireme sim recovery`): workers that run the production code from
 * train/elastic/elastic.h down, each in a process that may be killed, stopped, cut off, sent away or joined by others.
 *
 * fleet.c starts the workers, faults.c does to them what the seed says, flip.c to their memory;
 * watch.c looks at every step of every worker and state.c at what it has then; layout.c says what
 * they train, store.c is their way to the store.
 */
#ifndef TRI_FLEET_FLEET_H
#define TRI_FLEET_FLEET_H

#include "base/sim_process.h"
#include "train/elastic/elastic.h"

#define FLEET_STEPS_MAX 512
#define FLEET_PATIENCE_NS                                                                                              \
    (10 * TRI_NS_PER_S) /* how long a state that does not come is waited for: members' wait_ns                         \
                         */

/* What is trained, and how its state is spread over the workers. */
typedef struct fleet_layout {
    const char *name, *does;
    const char *model, *optim, *parallel; /* lines of a configuration */
    int per_host;                         /* workers that share a host */
} fleet_layout;
extern const fleet_layout fleet_layouts[];
extern const int fleet_layout_count;
/* NULL: there is none. */
const fleet_layout *fleet_layout_find(const char *name);

/* The run of one process, step by step. */
typedef struct fleet_reference {
    uint64_t hashes[FLEET_STEPS_MAX + 1]; /* of the weights; 0 where they are spread */
    int64_t total;                        /* elements of all tensors */
    int arrays;                           /* weights, and of state */
    float *values;                        /* [steps + 1][arrays][total], where they are spread */
} fleet_reference;
void fleet_reference_fini(fleet_reference *reference);

typedef struct fleet_config {
    int ranks;     /* workers that begin; later at most twice as many at a time */
    int64_t steps; /* of the run */
    int faults;
    uint64_t kinds;  /* of faults: rows of faults.c */
    bool saves;      /* checkpoints, the ledger and the lines of the run, in a folder */
    int spares;      /* that wait beside them from the beginning */
    int flips;       /* bits of sharded states, at most; each comparison then is made */
    bool stragglers; /* slow ones are replaced */
    uint64_t seed;
    const fleet_layout *layout;
    fleet_reference *reference;
    bool is_quiet; /* the run of one process, which makes the reference */
} fleet_config;

typedef struct fleet_result {
    uint64_t trace;                  /* of all that happened, and when */
    int64_t generations, steps_made; /* by all workers */
    int kills, stops, cuts, joins, leaves, begun_again, replaced, flips;
    int64_t saved, unsaved, resumed; /* checkpoints; those that failed; how often a run went back to one */
    int misfits;                     /* newcomers with another configuration */
    int troubles;                    /* links, processors, clocks and frames that were bad */
    int64_t found;                   /* of these by the workers themselves (spoilt_parts_total) */
    int lost;                        /* workers that ended because parts of the state were lost */
    int64_t took_ns, longest_ns;     /* virtual: of the run; without any new step */
    uint64_t peak_nbytes;            /* of all workers */
    int64_t left_nbytes;             /* after the run: more than before */
    char broken[512];                /* what must not be; "": all is well */
} fleet_result;

/* A simulation of its own. */
tri_status fleet_run(const fleet_config *config, fleet_result *result);

/* --- what the files share --- */

typedef struct fleet fleet;
typedef struct fleet_meeting fleet_meeting;

/* A store's client: a request and its answer take time, and a process may end in between. */
typedef struct fleet_store {
    tri_store base;
    struct fleet_worker *worker;
} fleet_store;

typedef struct fleet_worker {
    fleet *fleet;
    tri_sim_process process;
    fleet_store store, listener;
    tri_elastic_place place;
    char id[TRI_MEMBER_NBYTES], host[TRI_MEMBER_NBYTES];
    int number;
    tri_thread *thread;
    int64_t mark_dead_ns,
        restart_ns; /* when the launcher says that it ended, and starts another one; 0: not (any more) */
    int64_t killed_ns;
    bool ended, leaving, marked_dead;
    int64_t alone_until_ns; /* it reaches the store and no worker */
    const char *misfit;     /* an option that is not that of the run; NULL: it fits */
    char *claims;           /* its description of the run, where it is */
    bool left;              /* it has said that it takes no further part */
    bool doomed; /* it is killed when it changes something in the store the next time, before it is answered */
    fleet_meeting *meeting;              /* of its generation */
    int64_t generation;                  /* in which it had a state last */
    int64_t step;                        /* of its state; -1: none */
    tri_assignment_set set;              /* what it has of a spread one */
    int64_t step_ns;                     /* one takes it */
    int64_t slow_until_ns, slow_turn_ns; /* it stands still now and then; when it does so next */
} fleet_worker;

/* What the workers of one generation share. */
struct fleet_meeting {
    fleet_meeting *next; /* the one before */
    int64_t number;
    char *list;
    tri_hub *hub; /* NULL: nobody is in it any more */
    int users;
    int formed;            /* workers that have the state that it begins with */
    int places;            /* of a replica: stages and parts of layers */
    unsigned char *shards; /* [places][shards]: how many workers there have it */
    bool stepped;
    bool founded; /* somebody in its list has a state, be it that before the first step */
};

struct fleet {
    const fleet_config *config;
    fleet_result *result;
    tri_store *store;
    uint64_t drawn;
    fleet_worker **workers; /* all that ever were */
    int count, room;
    int *starts; /* [numbers]: how often a worker of that number was started */
    int numbers; /* at most */
    int alive;
    int64_t shards;
    char text[1024]; /* the job's configuration */
    char token[65];
    fleet_meeting *meetings; /* the newest first */
    int64_t tip;             /* the newest step since the run went back last */
    int64_t front, front_ns; /* the newest step that anybody has made, and when */
    int64_t front_generation;
    int faults_left, flips_left;
    int64_t fault_ns; /* when the next one is due */
    bool finished;
    char folder[512]; /* of the run; "": it saves nothing */
    int full_disks;
    int64_t saved_step; /* the newest checkpoint that was seen there; -1: none */
    int64_t looked_ns;  /* when */
};

/* A number of this seed. */
uint64_t fleet_draw(fleet *all, uint64_t below);
/* Notes the first thing that must not be. */
void fleet_broke(fleet *all, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fleet_trace(fleet *all, uint64_t a, uint64_t b);
/* True once in `of` calls. */
bool fleet_chance(fleet *all, uint64_t of);
/* It is printed, and part of the trace. */
void fleet_happens(fleet *all, const fleet_worker *worker, uint64_t what, const char *words);
tri_status fleet_worker_start(fleet *all, int number);
/* One whose configuration is not that of the run; misfit: "section.option=value". */
tri_status fleet_misfit_start(fleet *all, int number, const char *misfit);
int fleet_spares_of(const fleet *all);
/* Those that are due. */
void fleet_faults_make(fleet *all, int64_t now_ns);
/* Of one with a slow processor. */
void fleet_slow_turn(fleet_worker *worker, int64_t now_ns);
/* The name of the next kind of fault, from *index 0 on, and what it does; NULL: there are no more. */
const char *fleet_kind_next(int *index, const char **does);
/* Names with commas between them; NULL: all. */
tri_status fleet_kinds_read(const char *text, uint64_t *kinds);
/* The folder of the run, if it has one. */
tri_status fleet_files_open(fleet *all);
void fleet_files_close(fleet *all);
/* Notes what is saved. */
void fleet_files_look(fleet *all);
/* The worker has a state of `steps` steps that it did not get from another: from a checkpoint, or from the beginning.
 */
void fleet_files_back(fleet *all, const fleet_worker *worker, int64_t step);
/* After the run: what is saved can be read, and each sample was used once. */
void fleet_files_check(fleet *all);
bool fleet_kinds_has(uint64_t kinds, const char *name);
void fleet_kill(fleet_worker *worker);
/* The launcher starts another one in its place, soon. */
void fleet_restart(fleet_worker *worker);
void fleet_store_init(fleet_store *store, fleet_worker *worker);
/* Slots of tri_elastic_place; arg is the worker. */
tri_status fleet_hub(void *arg, const tri_generation *now, tri_hub **out);
void fleet_stepped(void *arg, const tri_job *job);
bool fleet_is_cut(void *arg, const char *id);
/* Its configuration. */
void fleet_text_make(fleet *all);
/* All that the worker has must be that of one process. */
void fleet_state_check(const fleet_worker *worker, const tri_job *job);
/* Each part of a sharded state is with two workers of the generation, on two hosts where that can be. */
void fleet_mirrors_check(fleet *all, int64_t generation);
/* After a step of the worker: perhaps a bit of what it has flips. */
void fleet_flip(fleet_worker *worker, const tri_job *job);
/* The worker continues without the state: nobody may have it who can be asked. */
void fleet_loss_check(fleet *all, const fleet_worker *worker, const char *what);
/* The worker is in no generation any more. */
void fleet_meeting_leave(fleet_worker *worker);
void fleet_meetings_free(fleet *all);

#endif
