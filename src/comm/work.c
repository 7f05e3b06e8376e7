/* SPDX-License-Identifier: Apache-2.0
 *
 * work.c: one queue and one thread per comm; calls run one at a time, in the order in which they were made (order.c:
 * unless they have priorities).
 *
 * A blocking call that finds the queue empty and nobody at work runs in the caller's thread: no switch, no lock. The
 * first failure is the cause: this rank tells the others, and everything queued and every later call fails with it. The
 * cause is written once and never changed, so it may be read without the lock by whoever saw `failed` under it.
 */
#include <stdio.h>
#include <string.h>

#include "comm/flight.h"
#include "comm/report.h"
#include "comm/run.h"

/* Tells the others, then writes down what happened here. */
static void tell_and_record(tri_comm *comm, tri_status cause)
{
    char cause_text[TRI_ERROR_NBYTES];
    snprintf(cause_text, sizeof(cause_text), "%.*s", (int)comm->cause_nbytes, comm->cause);
    tri_net_abort(comm->net, cause, comm->origin, cause_text);
    tri_flight_write(comm);
}

/* The cause ends with where the record is, whatever must be cut off for it. */
static void record_name(tri_comm *comm)
{
    char path[TRI_FLIGHT_PATH_NBYTES], end[sizeof(comm->cause)];
    if (!tri_flight_path(comm, path))
        return;
    int nbytes = snprintf(end, sizeof(end), "; flight record: %s", path);
    size_t room = sizeof(comm->cause) - 1 - (size_t)nbytes;
    if (nbytes < 0 || (size_t)nbytes >= sizeof(comm->cause) / 2)
        return; /* a folder whose name is longer than a message */
    if (comm->cause_nbytes > room)
        comm->cause_nbytes = room;
    memcpy(comm->cause + comm->cause_nbytes, end, (size_t)nbytes + 1);
}

static inline tri_status comm_failed(const tri_comm *comm)
{
    return (tri_status)atomic_load(&comm->failed);
}

/* Becomes the one at work. */
static inline bool busy_take(tri_comm *comm)
{
    unsigned idle = 0;
    return atomic_compare_exchange_strong(&comm->busy, &idle, 1);
}

/* Under the lock. The first one stays. `first`: what the rank `origin` failed with. */
static bool remember_cause(tri_comm *comm, tri_status status, tri_status first, int origin, const char *message)
{
    if (comm_failed(comm) != TRI_OK)
        return false;
    comm->first_cause = first;
    snprintf(comm->cause, sizeof(comm->cause), "%s", message);
    comm->cause_nbytes = strlen(comm->cause);
    record_name(comm);
    comm->origin = origin;
    atomic_store(&comm->failed, (int)status);
    return true;
}

/* The call that was run failed, or tri_comm_abort came while it ran: the others hear of it once. */
static void tell_others(tri_comm *comm, tri_status status)
{
    tri_mutex_lock(&comm->mutex);
    bool tells = comm->abort_waits;
    atomic_store(&comm->abort_waits, false);
    if (status != TRI_OK && tri_net_trouble(comm->net))
        tri_net_blame(comm->net, &comm->found_origin, &comm->found_cause);
    if (status != TRI_OK) {
        bool found = comm->found_origin >= 0;
        tells = remember_cause(comm, status, found ? comm->found_cause : status,
                               found ? comm->found_origin : comm->rank, tri_last_error()) ||
                tells;
    }
    tri_mutex_unlock(&comm->mutex);
    /* What came from a peer is passed on: its own links may have broken inside a frame. */
    if (tells)
        tell_and_record(comm, comm->found_origin >= 0 ? comm->found_cause : comm_failed(comm));
}

/* All accesses are seq_cst: of two that meet here at least one sees the other, so an abort that finds the links in use
 * is reported by whoever uses them, and a queue that fills meanwhile wakes the thread. */
static void busy_release(tri_comm *comm)
{
    atomic_store(&comm->busy, 0);
    while (atomic_load(&comm->abort_waits) && busy_take(comm)) {
        tell_others(comm, TRI_OK);
        atomic_store(&comm->busy, 0);
    }
}

static void busy_leave(tri_comm *comm)
{
    busy_release(comm);
    if (atomic_load(&comm->queued) == 0)
        return;
    tri_mutex_lock(&comm->mutex);
    tri_cond_signal(&comm->ready);
    tri_mutex_unlock(&comm->mutex);
}

/* Runs a call as the one at work (`busy` is taken), without the lock. */
static tri_status run_busy(tri_comm *comm, tri_call *call)
{
    tri_status status = tri_report_explain(comm->report, tri_call_run(call));
    if (status != TRI_OK)
        tell_others(comm, status);
    return status;
}

/* Under the lock; NULL when memory is out. Handles are kept: a steady state allocates none. */
static tri_work *work_take(tri_comm *comm)
{
    tri_work *work = comm->free_works;
    if (work) {
        comm->free_works = work->next;
        return work;
    }
    work = tri_alloc_zero(1, sizeof(*work));
    if (!work)
        return NULL;
    work->comm = comm;
    work->next_made = comm->all_works;
    comm->all_works = work;
    return work;
}

static tri_status cause_of(const tri_comm *comm)
{
    return tri_fail_copy(comm_failed(comm), comm->cause);
}

static tri_status run_here(tri_comm *comm, tri_call *call)
{
    tri_status status = run_busy(comm, call);
    busy_leave(comm);
    return status == TRI_OK ? TRI_OK : cause_of(comm);
}

static tri_status enqueue(tri_comm *comm, const tri_call *call, tri_work **work)
{
    tri_mutex_lock(&comm->mutex);
    tri_work *item = work_take(comm);
    if (!item) {
        tri_mutex_unlock(&comm->mutex);
        return TRI_ENOMEM;
    }
    item->call = *call;
    item->status = TRI_OK;
    atomic_store(&item->done, false);
    item->made = call->priority != 0 ? ++call->group->ordered : 0;
    item->next = NULL;
    if (comm->last)
        comm->last->next = item;
    else
        comm->first = item;
    comm->last = item;
    atomic_fetch_add(&comm->queued, 1);
    tri_cond_signal(&comm->ready);
    tri_mutex_unlock(&comm->mutex);
    *work = item;
    return TRI_OK;
}

tri_status tri_work_submit(tri_call *call, tri_work **work)
{
    tri_comm *comm = call->group->comm;
    tri_work *own = NULL;
    if (comm_failed(comm) != TRI_OK)
        return cause_of(comm);
    memcpy(call->name, call->group->name, sizeof(call->name));
    if (call->op == TRI_COMM_BATCH)
        tri_batch_number(call->batch);
    else
        tri_call_number(call);
    if (call->op != TRI_COMM_BATCH && call->op != TRI_COMM_SEND_RECV)
        call->priority = call->group->priority;
    /* Nothing of this caller's is queued, and calls come from one thread at a time: the order stays. */
    if (!work && call->priority == 0 && atomic_load(&comm->queued) == 0 && busy_take(comm))
        return run_here(comm, call);
    TRI_TRY(enqueue(comm, call, work ? work : &own));
    return work ? TRI_OK : tri_work_wait(own);
}

tri_status tri_work_wait(tri_work *work)
{
    if (!work)
        return tri_fail(TRI_EINVAL, "wait: want a work, got NULL");
    tri_comm *comm = work->comm;
    tri_mutex_lock(&comm->mutex);
    /* Each wait inside the call has its limit, so this one ends. */
    while (!atomic_load(&work->done))
        (void)tri_cond_wait(&comm->ended, &comm->mutex, TRI_FOREVER);
    tri_status status = work->status;
    work->next = comm->free_works;
    comm->free_works = work;
    tri_mutex_unlock(&comm->mutex);
    return status == TRI_OK ? TRI_OK : cause_of(comm);
}

bool tri_work_is_done(const tri_work *work)
{
    return atomic_load(&((tri_work *)(uintptr_t)work)->done);
}

/* Under the lock, which it leaves meanwhile; busy. A failure is the comm's. */
static void agree_next(tri_comm *comm)
{
    tri_group *group = comm->first->call.group;
    int64_t reach = (int64_t)tri_order_reach(comm);
    tri_call call;
    tri_mutex_unlock(&comm->mutex);
    tri_status status = tri_order_call(group, &reach, &call);
    if (status == TRI_OK && group->count > 1)
        status = run_busy(comm, &call);
    else if (status != TRI_OK)
        tell_others(comm, status);
    tri_mutex_lock(&comm->mutex);
    if (status == TRI_OK)
        tri_order_agreed(group, reach);
}

/* Under the lock, which it leaves meanwhile: the next in the queue. */
static void run_next(tri_comm *comm)
{
    if (comm_failed(comm) == TRI_OK && tri_order_is_open(comm))
        agree_next(comm);
    tri_work *work = tri_order_take(comm);
    tri_mutex_unlock(&comm->mutex);
    work->status = comm_failed(comm);
    if (work->status == TRI_OK)
        work->status = run_busy(comm, &work->call);
    busy_release(comm);
    tri_mutex_lock(&comm->mutex);
    /* Only now: a blocking call that finds the queue empty must come after this one. */
    atomic_fetch_sub(&comm->queued, 1);
    atomic_store(&work->done, true);
    tri_cond_broadcast(&comm->ended);
}

static void work_thread(void *arg)
{
    tri_comm *comm = arg;
    tri_mutex_lock(&comm->mutex);
    while (comm->first || !comm->closing) {
        if (comm->first && busy_take(comm))
            run_next(comm);
        else
            (void)tri_cond_wait(&comm->ready, &comm->mutex, TRI_FOREVER);
    }
    tri_mutex_unlock(&comm->mutex);
}

tri_status tri_work_thread_start(tri_comm *comm)
{
    char name[16];
    snprintf(name, sizeof(name), "comm %d", comm->rank);
    return tri_thread_start(&comm->thread, name, work_thread, comm);
}

void tri_work_thread_stop(tri_comm *comm)
{
    tri_mutex_lock(&comm->mutex);
    comm->closing = true;
    tri_cond_signal(&comm->ready);
    tri_mutex_unlock(&comm->mutex);
    tri_thread_join(comm->thread);
    comm->thread = NULL;
    while (comm->all_works) {
        tri_work *work = comm->all_works;
        comm->all_works = work->next_made;
        tri_free(work);
    }
}

void tri_comm_abort(tri_comm *comm, tri_status cause, const char *message)
{
    tri_mutex_lock(&comm->mutex);
    cause = cause == TRI_OK ? TRI_EABORT : cause;
    bool tells = remember_cause(comm, cause, cause, comm->rank, message ? message : "");
    if (tells && !busy_take(comm)) {
        atomic_store(&comm->abort_waits, true); /* the links are in use: whoever uses them says it next */
        tells = busy_take(comm);                /* unless they were left just now */
    }
    bool waits = atomic_load(&comm->abort_waits);
    tri_mutex_unlock(&comm->mutex);
    if (waits)
        (void)tri_net_tell(comm->net, comm_failed(comm), comm->origin, message ? message : "");
    if (!tells)
        return;
    char own[TRI_ERROR_NBYTES]; /* what the caller failed with stays its last error, whatever links break here */
    snprintf(own, sizeof(own), "%s", tri_last_error());
    tell_and_record(comm, comm_failed(comm));
    (void)tri_fail_copy(cause, own);
    busy_leave(comm);
}

bool tri_comm_lost_peer(const tri_comm *comm)
{
    int origin = -1;
    tri_status cause = comm_failed(comm);
    if (cause == TRI_EABORT) {
        cause = comm->found_cause;
        origin = comm->found_origin;
    }
    if (tri_net_trouble(comm->net))
        tri_net_blame(comm->net, &origin, &cause);
    bool is_own = cause == TRI_EIO || cause == TRI_ENOMEM || cause == TRI_ENOTFOUND || cause == TRI_EFORMAT ||
                  cause == TRI_EINTERNAL; /* of one process or its machine */
    return cause == TRI_EPEER || cause == TRI_ETIMEOUT || (is_own && origin >= 0 && origin != comm->rank);
}

bool tri_group_has_failed(const tri_group *group)
{
    return comm_failed(group->comm) != TRI_OK || tri_net_trouble(group->comm->net);
}

bool tri_comm_has_lost(const tri_comm *comm, int rank)
{
    return rank != comm->rank && tri_net_has_lost(comm->net, rank);
}

bool tri_comm_is_cut(const tri_comm *comm, int rank, char *where, size_t capacity)
{
    char text[TRI_NET_DESCRIBE_NBYTES];

    if (!tri_net_is_cut(comm->net, rank))
        return false;
    tri_net_describe_peer(comm->net, rank, text);
    snprintf(where, capacity, "%s", text);
    return true;
}

bool tri_comm_has_left(const tri_comm *comm, int rank)
{
    return rank != comm->rank && tri_net_has_left(comm->net, rank);
}

tri_status tri_comm_settle(const tri_comm *comm, tri_status status)
{
    return status == TRI_EABORT && comm->first_cause == TRI_ECONFIG ? TRI_ECONFIG : status;
}

const char *tri_comm_cause(const tri_comm *comm, int *origin_rank)
{
    tri_mutex *mutex = (tri_mutex *)(uintptr_t)&comm->mutex;
    tri_mutex_lock(mutex);
    const char *cause = comm_failed(comm) == TRI_OK ? "" : comm->cause;
    if (origin_rank)
        *origin_rank = comm_failed(comm) == TRI_OK ? -1 : comm->origin;
    tri_mutex_unlock(mutex);
    return cause;
}
