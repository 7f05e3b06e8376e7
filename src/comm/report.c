/* SPDX-License-Identifier: Apache-2.0
 *
 * report.c: what each rank's note means for the call that waits here, and the lines that say so.
 *
 * A rank is missing when its latest call is another one. First those that are in no call are asked for their stacks;
 * with their answers and with a second look at how many bytes moved, the report is printed at a later beat.
 */
#include "comm/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/stack.h"
#include "comm/call.h"
#include "comm/note.h"

#define LINES_MAX         16
#define PEERS_MAX         6
#define ANSWER_BEATS      40 /* of a peer, in which it answers, unless its answer is lost */
#define MOVES_AFTER_NS    (500 * TRI_NS_PER_MS)
#define STACK_LIMIT_NS    TRI_NS_PER_S
#define MISMATCH_AFTER_NS (200 * TRI_NS_PER_MS)
#define TIMEOUT_SHARE     0.7 /* of comm.timeout_s: the report comes before the failure, */
#define LAST_SHARE        0.9 /* at the latest here */

/* What another rank is to the call that waits. */
typedef enum place {
    PLACE_OUTSIDE, /* not of the group */
    PLACE_SAME,    /* in the same call, or through with it */
    PLACE_LOST,
    PLACE_LEFT,
    PLACE_SILENT, /* no note */
    PLACE_BEHIND, /* in an earlier call of the group */
    PLACE_AHEAD,
    PLACE_ELSEWHERE, /* in a call of another group */
    PLACE_USER       /* in no call */
} place;

struct tri_report {
    tri_comm *comm;
    tri_watch *watch;
    int64_t limit_ns, last_ns;
    int task;     /* thread whose stack is given */
    int question; /* about it, 0: none is open */
    int64_t question_ns;
    /* the watch thread's */
    uint64_t asked, printed; /* numbers of calls */
    int64_t asked_ns;
    bool *answers;   /* [world] whether it was asked */
    uint64_t *moved; /* [world] bytes when asked */

    tri_mutex mutex;
    uint64_t judged;   /* number of the call that `verdict` is about */
    char verdict[256]; /* of the latest report */
};

typedef struct rank_view {
    place place;
    tri_note note;
} rank_view;

static bool is_member(const tri_comm *comm, const tri_board_call *call, int rank)
{
    if (call->frame.group == comm->world_group->id)
        return true;
    return rank < TRI_BOARD_RANKS && (call->members >> rank & 1);
}

static void rank_look(const tri_report *report, const tri_board_call *own, int rank, rank_view *view)
{
    unsigned char bytes[TRI_WATCH_NOTE_NBYTES];
    int64_t age_ns;
    const tri_board_call *call = &view->note.call;
    view->place = PLACE_SILENT;
    memset(&view->note, 0, sizeof(view->note));
    if (rank == report->comm->rank || !is_member(report->comm, own, rank)) {
        view->place = PLACE_OUTSIDE;
        return;
    }
    size_t nbytes = tri_watch_note(report->watch, rank, bytes, &age_ns);
    bool has_note = tri_note_read(bytes, nbytes, report->comm->world, &view->note);
    tri_watch_state state = tri_watch_state_of(report->watch, rank);
    if (state == TRI_WATCH_LOST || tri_watch_verdict_of(report->watch, rank) != TRI_VERDICT_NONE)
        view->place = PLACE_LOST;
    else if (state == TRI_WATCH_LEFT)
        view->place = PLACE_LEFT;
    else if (!has_note)
        return;
    else if (call->frame.group == own->frame.group && call->frame.sequence == own->frame.sequence)
        view->place = PLACE_SAME;
    else if (!call->runs)
        view->place = PLACE_USER;
    else if (call->frame.group != own->frame.group)
        view->place = PLACE_ELSEWHERE;
    else
        view->place = call->frame.sequence < own->frame.sequence ? PLACE_BEHIND : PLACE_AHEAD;
}

static uint64_t moved_all(const tri_note *note)
{
    uint64_t sum = 0;
    for (int i = 0; i < note->peer_count; i++)
        sum += note->peers[i].sent + note->peers[i].received;
    return sum;
}

/* ---- different calls */

static bool is_other_call(const tri_board_call *own, const tri_board_call *other)
{
    const tri_frame *mine = &own->frame, *theirs = &other->frame;
    if (mine->group != theirs->group || mine->sequence != theirs->sequence || mine->op == TRI_COMM_SEND_RECV ||
        theirs->op == TRI_COMM_SEND_RECV)
        return false; /* sends are numbered pair by pair */
    return !tri_frame_agrees(mine, theirs);
}

static void mismatch_tell(const tri_report *report, const tri_board_call *own, int rank, const tri_board_call *other)
{
    char mine[192], theirs[192], text[TRI_ERROR_NBYTES];
    tri_call_describe_as(&own->frame, own->name, mine);
    tri_call_describe_as(&other->frame, other->name, theirs);
    snprintf(text, sizeof(text), "ranks called different things: rank %d called %s, rank %d called %s",
             report->comm->rank, mine, rank, theirs);
    (void)tri_net_tell(report->comm->net, TRI_EMISMATCH, report->comm->rank, text);
}

static void mismatch_search(const tri_report *report, const tri_board_call *own)
{
    rank_view view;
    for (int rank = 0; rank < report->comm->world; rank++) {
        rank_look(report, own, rank, &view);
        if (view.note.call.number > 0 && is_other_call(own, &view.note.call)) {
            mismatch_tell(report, own, rank, &view.note.call);
            return;
        }
    }
}

/* ---- lines */

static void moved_print(const tri_note *note, char *text, size_t capacity)
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < note->peer_count && i < PEERS_MAX && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s %" PRIu64 " to and %" PRIu64 " from rank %d",
                                 i > 0 ? "," : "; bytes:", note->peers[i].sent, note->peers[i].received,
                                 note->peers[i].rank);
    if (note->peer_count > PEERS_MAX && used < capacity)
        snprintf(text + used, capacity - used, ", and others");
}

/* "is stuck in user code", for the message of the failure too. */
static const char *place_verdict(const tri_report *report, int rank, const rank_view *view)
{
    bool moves = moved_all(&view->note) != report->moved[rank];
    switch (view->place) {
    case PLACE_LOST:
        switch (tri_watch_verdict_of(report->watch, rank)) {
        case TRI_VERDICT_STOPPED:
            return "is stopped";
        case TRI_VERDICT_UNREACHABLE:
            return "is unreachable, or its host is dead";
        default:
            return "is dead: its process has ended";
        }
    case PLACE_LEFT:
        return "has left in good order";
    case PLACE_SILENT:
        return "has made no call yet";
    case PLACE_SAME:
        return moves ? "is in the same call and slow: bytes move" : "is in the same call: no byte moves";
    case PLACE_BEHIND:
        return moves ? "is slow: bytes move in an earlier call" : "is behind: it waits in an earlier call";
    case PLACE_AHEAD:
        return "is ahead, in a later call";
    case PLACE_ELSEWHERE:
        return "called something else";
    case PLACE_USER:
        return "is stuck in user code";
    case PLACE_OUTSIDE:
        break;
    }
    return "is no member";
}

static void stack_print(const tri_report *report, int rank)
{
    char text[TRI_WATCH_TEXT_NBYTES], *line, *rest = NULL;
    if (tri_watch_answer(report->watch, rank, text) == 0)
        return;
    for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        tri_log(TRI_LOG_WARN, "    rank %d at %s", rank, line);
}

static void rank_print(const tri_report *report, int rank, const rank_view *view)
{
    char what[192] = "", moved[384] = "", since[80] = "";
    const tri_board_call *call = &view->note.call;
    if (call->number > 0) {
        tri_call_describe_as(&call->frame, call->name, what);
        if (view->place != PLACE_USER)
            moved_print(&view->note, moved, sizeof(moved));
        if (call->runs)
            snprintf(since, sizeof(since), " for %.1f s: ", (double)call->begin_ns * 1e-9);
        else
            snprintf(since, sizeof(since), " for %.1f s, after ", (double)call->end_ns * 1e-9);
    }
    tri_log(TRI_LOG_WARN, "  rank %d %s%s%s%s", rank, place_verdict(report, rank, view), since, what, moved);
    if (view->place == PLACE_USER)
        stack_print(report, rank);
}

static void verdict_add(tri_report *report, size_t *used, int rank, const char *text)
{
    if (*used < sizeof(report->verdict))
        *used += (size_t)snprintf(report->verdict + *used, sizeof(report->verdict) - *used, "; rank %d %s", rank, text);
}

static void report_print(tri_report *report, const tri_board_call *own, int64_t waited_ns)
{
    const tri_comm *comm = report->comm;
    char what[192];
    int missing = 0, lines = 0, members = 1;
    size_t used = 0;
    rank_view view;
    for (int rank = 0; rank < comm->world; rank++) {
        rank_look(report, own, rank, &view);
        members += view.place != PLACE_OUTSIDE;
        missing += view.place != PLACE_OUTSIDE && view.place != PLACE_SAME;
    }
    tri_call_describe_as(&own->frame, own->name, what);
    tri_log(TRI_LOG_WARN, "rank %d waits %.1f s in %s: %d of %d ranks are missing", comm->rank,
            (double)waited_ns * 1e-9, what, missing, members);
    tri_mutex_lock(&report->mutex);
    report->verdict[0] = 0;
    report->judged = own->number;
    for (int same = 0; same < 2; same++) {
        for (int rank = 0; rank < comm->world; rank++) {
            rank_look(report, own, rank, &view);
            if (view.place == PLACE_OUTSIDE || (view.place == PLACE_SAME) != same)
                continue;
            if (++lines <= LINES_MAX)
                rank_print(report, rank, &view);
            if (!same || missing == 0)
                verdict_add(report, &used, rank, place_verdict(report, rank, &view));
        }
    }
    tri_mutex_unlock(&report->mutex);
    if (lines > LINES_MAX)
        tri_log(TRI_LOG_WARN, "  and %d other ranks", lines - LINES_MAX);
}

/* ---- on the watch thread */

static void ranks_ask(tri_report *report, const tri_board_call *own, int64_t now_ns)
{
    rank_view view;
    report->asked = own->number;
    report->asked_ns = now_ns;
    for (int rank = 0; rank < report->comm->world; rank++) {
        rank_look(report, own, rank, &view);
        report->moved[rank] = moved_all(&view.note);
        report->answers[rank] = view.place == PLACE_USER;
        if (report->answers[rank])
            tri_watch_ask(report->watch, rank);
    }
}

/* A peer that needs a core answers late: its own beats say how long it has had. */
static bool are_answers_to_come(const tri_report *report)
{
    for (int rank = 0; rank < report->comm->world; rank++)
        if (report->answers[rank] && tri_watch_may_answer(report->watch, rank, ANSWER_BEATS))
            return true;
    return false;
}

static void report_tick(void *arg, int64_t now_ns)
{
    tri_report *report = arg;
    tri_board_call own;
    if (!tri_board_read(report->comm->board, &own) || !own.runs || tri_net_trouble(report->comm->net))
        return;
    int64_t waited_ns = now_ns - own.begin_ns;
    if (waited_ns >= MISMATCH_AFTER_NS)
        mismatch_search(report, &own);
    if (waited_ns < report->limit_ns || report->printed == own.number)
        return;
    if (report->asked != own.number) {
        ranks_ask(report, &own, now_ns);
    } else if (now_ns - report->asked_ns >= MOVES_AFTER_NS &&
               (waited_ns >= report->last_ns || !are_answers_to_come(report))) {
        report->printed = own.number;
        report_print(report, &own, waited_ns);
    }
}

static size_t report_note(void *arg, unsigned char *bytes)
{
    const tri_report *report = arg;
    return tri_note_write(report->comm->board, report->comm->net, bytes);
}

static size_t report_answer(void *arg, char *text, size_t capacity)
{
    tri_report *report = arg;
    int64_t now_ns = tri_now_ns();
    if (report->question == 0) {
        report->question = tri_stack_ask(report->task);
        report->question_ns = now_ns;
    }
    size_t nbytes = tri_stack_take(report->question, text, capacity);
    if (nbytes == 0 && report->question != 0 &&
        (now_ns - report->question_ns < STACK_LIMIT_NS || tri_stack_needs_core(report->task)))
        return 0;
    report->question = 0;
    return nbytes > 0 ? nbytes : (size_t)snprintf(text, capacity, "(the thread does not answer)");
}

static void report_free(tri_report *report)
{
    tri_free(report->answers);
    tri_free(report->moved);
    tri_free(report);
}

tri_status tri_report_start(tri_comm *comm, double report_s, tri_report **out)
{
    *out = NULL;
    tri_watch *watch = tri_net_watch(comm->net);
    if (!watch)
        return TRI_OK;
    tri_report *report = tri_alloc_zero(1, sizeof(*report));
    if (!report)
        return TRI_ENOMEM;
    double limit_s = TIMEOUT_SHARE * (double)comm->timeout_ms * 1e-3;
    *report = (tri_report){.comm = comm, .watch = watch, .task = tri_stack_task()};
    report->limit_ns = (int64_t)((report_s < limit_s ? report_s : limit_s) * 1e9);
    report->last_ns = (int64_t)(LAST_SHARE * (double)comm->timeout_ms * 1e6);
    report->answers = tri_alloc_zero((size_t)comm->world, sizeof(*report->answers));
    report->moved = tri_alloc_zero((size_t)comm->world, sizeof(*report->moved));
    if (!report->answers || !report->moved) {
        report_free(report);
        return TRI_ENOMEM;
    }
    tri_mutex_init(&report->mutex);
    (void)tri_stack_catch(); /* without it a report has no stacks */
    const tri_watch_client client = {.note = report_note, .tick = report_tick, .answer = report_answer, .arg = report};
    tri_watch_client_set(watch, &client);
    *out = report;
    return TRI_OK;
}

void tri_report_stop(tri_report *report)
{
    if (!report)
        return;
    tri_watch_client_set(report->watch, NULL);
    tri_mutex_fini(&report->mutex);
    report_free(report);
}

tri_status tri_report_explain(tri_report *report, tri_status status)
{
    if (!report || status != TRI_ETIMEOUT)
        return status;
    char message[TRI_ERROR_NBYTES + sizeof(report->verdict)];
    tri_mutex_lock(&report->mutex);
    bool fits = report->judged == TRI_BOARD_GET(report->comm->board->begun);
    snprintf(message, sizeof(message), "%s%s", tri_last_error(), fits ? report->verdict : "");
    tri_mutex_unlock(&report->mutex);
    return tri_fail_copy(status, message);
}
