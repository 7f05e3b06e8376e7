/* SPDX-License-Identifier: Apache-2.0
 *
 * page.h: runs as a web page: what is read of them (run.c), what is answered about them (answer.c), and the server
 * (page.c).
 *
 * Files are read by a thread of their own, so that an answer waits for no disk: it fetches a piece of a file, and then
 * enters what the piece says under the lock of the page. The server's thread answers from what was entered, under the
 * same lock, which nobody holds who waits for anything else.
 */
#ifndef TRI_CLI_PAGE_H
#define TRI_CLI_PAGE_H

#include <stdatomic.h>

#include "base/runtime.h"
#include "cli/top/top.h"
#include "monitor/history.h"
#include "monitor/http.h"

#define TRI_PAGE_RUNS 64 /* at most, at once */

/* Columns of a step: as in metrics.jsonl. */
#define TRI_PAGE_STEP_COLUMNS(X)                                                                                       \
    X(loss) X(lr) X(grad_norm) X(samples_per_s) X(tokens_per_s) X(mfu) TRI_PHASE_LIST(X) X(sent_bytes)
/* Of a rank: as in ranks/rank-N.jsonl. */
#define TRI_PAGE_RANK_COLUMNS(X)                                                                                       \
    X(step) X(generation) X(steps) TRI_PHASE_LIST(X) X(memory_bytes) X(sent_bytes) X(received_bytes)

/* What NVML says of its card, as in ranks/rank-N.jsonl behind "gpu_". */
#define TRI_PAGE_CARD_COLUMNS(X)                                                                                       \
    X(utilization_ratio)                                                                                               \
    X(memory_used_bytes)                                                                                               \
    X(power_watts) X(sm_clock_hertz) X(throttled) X(ecc_uncorrected_total) X(xid_errors_total) X(last_xid)

typedef enum tri_page_rank_column {
#define TRI_PAGE_ENUM(name) TRI_PAGE_RANK_##name,
    TRI_PAGE_RANK_COLUMNS(TRI_PAGE_ENUM) TRI_PAGE_RANK_COUNT
#undef TRI_PAGE_ENUM
} tri_page_rank_column;

typedef struct tri_page_rank {
    int rank, world;
    tri_metrics_tail tail;
    tri_history *history; /* over the time, seconds since 1970 */
    tri_vector sent_to;   /* double, by rank: bytes in its present generation */
    tri_served served;    /* seconds 0: it is no parameter server; else the newest */
    bool has_card;
#define TRI_PAGE_FIELD(name) double name;
    struct {
        TRI_PAGE_CARD_COLUMNS(TRI_PAGE_FIELD)
    } card; /* the newest; NaN: not known */
#undef TRI_PAGE_FIELD
} tri_page_rank;

typedef struct tri_page_event {
    double time; /* NaN: not known */
    int64_t step;
    int rank;
    char kind[32], text[240];
} tri_page_event;

typedef struct tri_page_run {
    tri_top top;        /* its summary, and its processes */
    tri_history *steps; /* over the step */
    tri_history *tests; /* test_loss, test_accuracy */
    tri_vector ranks;   /* tri_page_rank*, by rank */
    tri_vector events;  /* tri_page_event, as they come */
    bool is_sweep, rank_events;
    int64_t looked_ns; /* for ranks and processes */
    size_t next_rank;  /* that is read first in the next turn */
    double read;       /* part of metrics.jsonl that is entered */
    tri_string trials; /* of a sweep, as JSON; empty: not read so far */
    int64_t trials_ns; /* when what was read there was written */
} tri_page_run;

/* Fields of runs change under the lock, by the reader. Where each file is, what only it needs, and the piece it has in
 * hand are the reader's own. */
typedef struct tri_page {
    tri_page_run *runs;
    int count;
    tri_string dygraph_js, dygraph_css; /* the chart library */
    tri_metrics_piece piece;
    tri_mutex mutex;
    tri_cond answered;
    atomic_bool asked; /* the server's thread needs the lock: it goes first */
    bool closing, reader_ended;
} tri_page;

/* page.c: the lock, of the reader and of whoever answers. */
void tri_page_write_begin(tri_page *page);
void tri_page_write_end(tri_page *page);
void tri_page_answer_begin(tri_page *page);
void tri_page_answer_end(tri_page *page);

/* run.c */
tri_status tri_page_run_open(const char *folder, tri_page_run *run);
void tri_page_run_close(tri_page_run *run);
/* The reader: some of what is new; *more: there is more. */
tri_status tri_page_run_read(tri_page *page, tri_page_run *run, bool *more);

/* answer.c: what the page asks for; `page` is a tri_page. */
extern const tri_http_page tri_page_pages[];
/* What has changed, for all who watch; takes the lock. */
tri_status tri_page_tell(tri_page *page, tri_string *out);
/* sweep.c: trials of a sweep's folder, from its database. */
tri_status tri_page_trials(const tri_page_run *run, tri_string *out);

/* page.c: serves runs, on two threads of its own; the address people open goes to `url`. */
typedef struct tri_page_server tri_page_server;
typedef struct tri_page_place {
    const char *address;
    const char *token;                      /* "" for none, NULL for a new one */
    const char *names, *tls_cert, *tls_key; /* as in http.h */
} tri_page_place;
tri_status tri_page_serve(const tri_page_place *at, char **folders, int count, char url[256], tri_page_server **out);
/* NULL does nothing. */
void tri_page_close(tri_page_server *server);

#endif
