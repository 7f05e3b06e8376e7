/* SPDX-License-Identifier: Apache-2.0
 *
 * work.c: one queue and one thread per comm; calls run one at a time, in the order in which they were made.
 *
 * A blocking call that finds the queue empty and nobody at work runs in the caller's thread: no switch. The first
 * failure is the cause: this rank tells the others, and everything queued and every later call fails with it. The cause
 * is written once and never changed, so it may be read without the lock by whoever saw `failed` under it.
 */
#include <stdio.h>
#include <string.h>

#include "comm/comm_impl.h"

/* Under the lock. The first one stays. */
static bool remember_cause(tri_comm *comm, tri_status status, int origin, const char *message)
{
    if (comm->failed != TRI_OK)
        return false;
    snprintf(comm->cause, sizeof(comm->cause), "%s", message);
    comm->origin = origin;
    comm->failed = status;
    return true;
}

/* Runs a call as the one at work (`busy` is set), without the lock. */
static tri_status run_busy(tri_comm *comm, tri_call *call)
{
    tri_status status = tri_call_run(call);
    tri_mutex_lock(&comm->mutex);
    bool tells = comm->abort_waits;
    comm->abort_waits = false;
    if (status != TRI_OK) {
        int origin = comm->found_origin >= 0 ? comm->found_origin : comm->rank;
        tells = remember_cause(comm, status, origin, tri_last_error()) || tells;
    }
    tri_mutex_unlock(&comm->mutex);
    /* What came from a peer is passed on: its own links may have broken inside a frame. */
    if (tells)
        tri_net_abort(comm->net, comm->found_origin >= 0 ? comm->found_cause : comm->failed, comm->origin, comm->cause);
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

static void work_append(tri_comm *comm, tri_work *work)
{
    work->next = NULL;
    if (comm->last)
        comm->last->next = work;
    else
        comm->first = work;
    comm->last = work;
}

void tri_call_number(tri_call *call)
{
    tri_group *group = call->group;
    if (call->op == TRI_COMM_BATCH)
        tri_batch_number(call->batch);
    else if (call->op != TRI_COMM_SEND_RECV)
        call->frame.sequence = ++group->sequence;
    else
        call->frame.sequence = call->sends ? ++group->sent[call->root] : ++group->received[call->root];
}

static tri_status cause_of(const tri_comm *comm)
{
    return tri_fail_copy(comm->failed, comm->cause);
}

tri_status tri_work_submit(tri_call *call, tri_work **work)
{
    tri_comm *comm = call->group->comm;
    tri_mutex_lock(&comm->mutex);
    if (comm->failed != TRI_OK) {
        tri_mutex_unlock(&comm->mutex);
        return cause_of(comm);
    }
    memcpy(call->name, call->group->name, sizeof(call->name));
    tri_call_number(call);
    if (!work && !comm->first && !comm->busy) {
        comm->busy = true;
        tri_mutex_unlock(&comm->mutex);
        tri_status status = run_busy(comm, call);
        tri_mutex_lock(&comm->mutex);
        comm->busy = false;
        if (comm->first)
            tri_cond_signal(&comm->ready);
        tri_mutex_unlock(&comm->mutex);
        return status == TRI_OK ? TRI_OK : cause_of(comm);
    }
    tri_work *item = work_take(comm);
    if (!item) {
        tri_mutex_unlock(&comm->mutex);
        return TRI_ENOMEM;
    }
    item->call = *call;
    item->status = TRI_OK;
    atomic_store(&item->done, false);
    work_append(comm, item);
    tri_cond_signal(&comm->ready);
    tri_mutex_unlock(&comm->mutex);
    if (!work)
        return tri_work_wait(item);
    *work = item;
    return TRI_OK;
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

static void work_thread(void *arg)
{
    tri_comm *comm = arg;
    tri_mutex_lock(&comm->mutex);
    while (comm->first || !comm->closing) {
        tri_work *work = comm->first;
        if (!work || comm->busy) {
            (void)tri_cond_wait(&comm->ready, &comm->mutex, TRI_FOREVER);
            continue;
        }
        comm->first = work->next;
        if (!comm->first)
            comm->last = NULL;
        work->status = comm->failed;
        if (work->status == TRI_OK) {
            comm->busy = true;
            tri_mutex_unlock(&comm->mutex);
            tri_status status = run_busy(comm, &work->call);
            tri_mutex_lock(&comm->mutex);
            work->status = status;
            comm->busy = false;
        }
        atomic_store(&work->done, true);
        tri_cond_broadcast(&comm->ended);
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
    bool tells = remember_cause(comm, cause == TRI_OK ? TRI_EABORT : cause, comm->rank, message ? message : "");
    if (tells && comm->busy) {
        comm->abort_waits = true; /* the links are in use: whoever uses them says it next */
        tells = false;
    }
    if (tells)
        comm->busy = true;
    tri_mutex_unlock(&comm->mutex);
    if (!tells)
        return;
    char own[TRI_ERROR_NBYTES]; /* what the caller failed with stays its last error, whatever links break here */
    snprintf(own, sizeof(own), "%s", tri_last_error());
    tri_net_abort(comm->net, comm->failed, comm->origin, comm->cause);
    (void)tri_fail_copy(cause, own);
    tri_mutex_lock(&comm->mutex);
    comm->busy = false;
    tri_cond_signal(&comm->ready);
    tri_mutex_unlock(&comm->mutex);
}

const char *tri_comm_cause(const tri_comm *comm, int *origin_rank)
{
    tri_mutex *mutex = (tri_mutex *)(uintptr_t)&comm->mutex;
    tri_mutex_lock(mutex);
    const char *cause = comm->failed == TRI_OK ? "" : comm->cause;
    if (origin_rank)
        *origin_rank = comm->failed == TRI_OK ? -1 : comm->origin;
    tri_mutex_unlock(mutex);
    return cause;
}
