/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl.c: loads NCCL, and keeps a time limit over each of its calls that waits for other ranks.
 */
#include "device/cuda/nccl.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/events.h"
#include "base/memory.h"
#include "base/runtime.h"
#include "base/status.h"
#include "device/cuda/once.h"

#define LIBRARY       "libnccl.so.2"
#define EMULATED      "libnccl_emulated.so.2"
#define OLDEST        21900
#define LOOK_EVERY_NS (TRI_NS_PER_MS / 5)
#define TURN_MOST_NS  (10 * TRI_NS_PER_MS)
#define AWAKE_NS      TRI_NS_PER_MS /* a group is taken in less, and the backward pass waits for it */

static tri_status find_calls(void *library, const char *file, tri_nccl_calls *calls)
{
#define FIND(result, symbol, name, args)                                                                               \
    calls->name = (result(*) args)dlsym(library, #symbol);                                                             \
    if (!calls->name)                                                                                                  \
        return tri_fail(TRI_EUNSUPPORTED, "%s has no %s: want NCCL 2.19 or later", file, #symbol);
    TRI_NCCL_CALLS(FIND)
#undef FIND
    return TRI_OK;
}

static tri_status calls_load(bool emulated, void *calls)
{
    const char *file = emulated ? EMULATED : LIBRARY;
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return library ? find_calls(library, file, calls) : tri_fail(TRI_EUNSUPPORTED, "there is no NCCL (%s)", LIBRARY);
}

/* A process has one driver, so emulated or not is the same in all calls. */
tri_status tri_nccl_load(bool emulated, const tri_nccl_calls **out)
{
    static tri_nccl_calls calls;
    static tri_cuda_once once = {.mutex = {.real = PTHREAD_MUTEX_INITIALIZER}};
    *out = &calls;
    return tri_cuda_load_once(&once, calls_load, emulated, &calls);
}

void tri_nccl_print(int version, char text[TRI_NCCL_NBYTES])
{
    snprintf(text, TRI_NCCL_NBYTES, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

tri_status tri_nccl_version(int *version, char text[TRI_NCCL_NBYTES])
{
    const tri_cuda_calls *driver;
    const tri_nccl_calls *calls;
    TRI_TRY(tri_cuda_load(&driver));
    TRI_TRY(tri_nccl_load(driver->emulated != NULL, &calls));
    const nccl_result result = calls->version(version);
    if (result != 0)
        return tri_fail(TRI_EUNSUPPORTED, "NCCL does not tell its version: %s", calls->error_string(result));
    tri_nccl_print(*version, text);
    if (*version < OLDEST)
        return tri_fail(TRI_EUNSUPPORTED, "there is %s: want NCCL 2.19 or later, whose abort may come from any thread",
                        text);
    return TRI_OK;
}

/* NCCL's word for a failure, and what it says about it. */
static tri_status fail_as(const tri_nccl_calls *calls, const char *name, const char *what, nccl_result result)
{
    const char *last = calls->last_error(NULL);
    const int nbytes = last ? (int)strcspn(last, "\n") : 0;
    return tri_fail(result == NCCL_REMOTE_ERROR ? TRI_EPEER : TRI_EIO, "%s: %s: %s%s%.*s", name, what,
                    calls->error_string(result), nbytes > 0 ? ": " : "", nbytes, nbytes > 0 ? last : "");
}

/* --- calls that may hang --- */

/* What is left of a limit: each look counts for the time since the last one, but for little where the process was
 * stopped meanwhile. */
typedef struct patience {
    int64_t limit_ms, left_ns, last_ns;
} patience;

static patience patience_make(int64_t limit_ms)
{
    return (patience){limit_ms, limit_ms * TRI_NS_PER_MS, tri_now_ns()};
}

static bool is_over(patience *p)
{
    const int64_t now_ns = tri_now_ns(), passed_ns = now_ns - p->last_ns;
    p->last_ns = now_ns;
    p->left_ns -= passed_ns < TURN_MOST_NS ? passed_ns : TURN_MOST_NS;
    return p->left_ns < 0;
}

static atomic_bool left_behind;

bool tri_nccl_is_left_behind(void)
{
    return atomic_load(&left_behind);
}

/* Both the caller and the thread use it: it stays when the caller gives up. */
typedef struct tri_nccl_call {
    const tri_nccl_calls *calls;
    const tri_cuda_calls *driver;
    cuda_context context;
    void (*run)(struct tri_nccl_call *call);
    nccl_comm comm;
    nccl_result result;
    atomic_bool done;
} limited_call;

static void limited_body(void *arg)
{
    limited_call *call = arg;
    (void)call->driver->context_set(call->context); /* NCCL takes the card of the thread */
    call->run(call);
    atomic_store(&call->done, true);
}

static limited_call *call_make(const tri_nccl *nccl, void (*run)(limited_call *call))
{
    limited_call *call = tri_alloc_zero(1, sizeof(*call));
    if (!call)
        return NULL;
    call->calls = nccl->calls;
    call->driver = nccl->card.calls;
    call->context = nccl->card.context;
    call->run = run;
    call->comm = nccl->comm;
    return call;
}

/* TRI_ETIMEOUT, without a message: the call hangs, and is nobody's any more. Else it is the caller's again; another
 * failure: there is no thread, and it has not run. */
static tri_status call_run(limited_call *call, int64_t limit_ms)
{
    tri_thread *thread;
    patience p = patience_make(limit_ms);
    TRI_TRY(tri_thread_start(&thread, "nccl", limited_body, call));
    while (!atomic_load(&call->done)) {
        if (is_over(&p)) {
            atomic_store(&left_behind, true);
            return TRI_ETIMEOUT;
        }
        tri_sleep_ns(LOOK_EVERY_NS);
    }
    tri_thread_join(thread);
    return TRI_OK;
}

static void abort_run(limited_call *call)
{
    call->result = call->calls->comm_abort(call->comm);
}

static void finalize_run(limited_call *call)
{
    nccl_result state = NCCL_IN_PROGRESS;
    call->result = call->calls->comm_finalize(call->comm);
    while (call->result == NCCL_IN_PROGRESS) {
        const nccl_result asked = call->calls->comm_state(call->comm, &state);
        call->result = asked == 0 ? state : asked;
        if (call->result == NCCL_IN_PROGRESS)
            tri_sleep_ns(LOOK_EVERY_NS);
    }
    if (call->result == 0)
        call->result = call->calls->comm_destroy(call->comm);
    if (call->result == NCCL_IN_PROGRESS)
        call->result = 0; /* nobody needs it any more */
}

/* Without a thread it runs on the caller's, and has no limit. */
static void comm_abort(tri_nccl *nccl)
{
    limited_call *call = nccl->abort_call;
    call->comm = nccl->comm;
    nccl->comm = NULL;
    nccl->abort_call = NULL;
    const tri_status status = call_run(call, nccl->limits.leave_ms);
    nccl->hangs = status == TRI_ETIMEOUT;
    if (nccl->hangs)
        return;
    if (status != TRI_OK)
        limited_body(call);
    tri_free(call);
}

tri_status tri_nccl_abort(tri_nccl *nccl)
{
    if (nccl->comm)
        comm_abort(nccl);
    if (!nccl->hangs)
        return TRI_OK;
    return tri_fail(TRI_ETIMEOUT, "%s: its abort has not ended within %.1f s: end this process", nccl->name,
                    (double)nccl->limits.leave_ms / 1000);
}

/* Aborts after a failure, whose message stays; an abort that hangs is added to it. */
static tri_status give_up(tri_nccl *nccl, tri_status status)
{
    char why[TRI_ERROR_NBYTES];
    snprintf(why, sizeof(why), "%s", tri_last_error());
    if (tri_nccl_abort(nccl) == TRI_ETIMEOUT)
        return tri_fail(status, "%s; %s", why, tri_last_error());
    return tri_fail_copy(status, why);
}

static tri_status waited(tri_nccl *nccl, const char *what, const patience *p)
{
    return give_up(nccl, tri_fail(TRI_ETIMEOUT, "%s: %s: rank %d has waited %.1f s for the others of %d ranks",
                                  nccl->name, what, nccl->rank, (double)p->limit_ms / 1000, nccl->count));
}

/* A rank that has failed sends nothing any more. */
static bool has_ended(const tri_nccl *nccl)
{
    return nccl->limits.ended && nccl->limits.ended(nccl->limits.arg);
}

static tri_status ended(tri_nccl *nccl, const char *what)
{
    return give_up(nccl, tri_fail(TRI_EABORT, "%s: %s: another rank has failed", nccl->name, what));
}

/* Until NCCL has taken or done what it was asked for. */
static tri_status state_await(tri_nccl *nccl, const char *what, int64_t limit_ms)
{
    patience p = patience_make(limit_ms);
    for (;;) {
        nccl_result state = NCCL_IN_PROGRESS;
        const nccl_result asked = nccl->calls->comm_state(nccl->comm, &state);
        if (asked != 0 || (state != 0 && state != NCCL_IN_PROGRESS))
            return give_up(nccl, fail_as(nccl->calls, nccl->name, what, asked != 0 ? asked : state));
        if (state == 0)
            return TRI_OK;
        if (has_ended(nccl))
            return ended(nccl, what);
        if (is_over(&p))
            return waited(nccl, what, &p);
        if (p.limit_ms * TRI_NS_PER_MS - p.left_ns < AWAKE_NS)
            tri_yield();
        else
            tri_sleep_ns(LOOK_EVERY_NS);
    }
}

/* --- a communicator --- */

tri_status tri_nccl_unique_id(const tri_device *device, nccl_unique_id *id)
{
    tri_cuda_handles card;
    const tri_nccl_calls *calls;
    TRI_TRY(tri_cuda_handles_read(device, &card));
    TRI_TRY(tri_nccl_load(card.calls->emulated != NULL, &calls));
    const nccl_result result = calls->unique_id(id);
    return result == 0 ? TRI_OK : fail_as(calls, "NCCL", "no unique id", result);
}

/* By the caller's thread: older versions of NCCL keep what they begin here in the thread's own memory. */
static tri_status comm_create(tri_nccl *nccl, const nccl_unique_id *id)
{
    nccl_config config = {.nbytes = sizeof(config),
                          .magic = NCCL_CONFIG_MAGIC,
                          .version = NCCL_CONFIG_VERSION,
                          .blocking = NCCL_NOT_BLOCKING,
                          .unused = NCCL_UNSET};
    (void)nccl->card.calls->context_set(nccl->card.context);
    const nccl_result result = nccl->calls->comm_create(&nccl->comm, nccl->count, *id, nccl->rank, &config);
    if (result != 0 && result != NCCL_IN_PROGRESS)
        return give_up(nccl, fail_as(nccl->calls, nccl->name, "init", result));
    return state_await(nccl, "init", nccl->limits.join_ms);
}

static void nccl_free(tri_nccl *nccl)
{
    tri_free(nccl->abort_call);
    tri_free(nccl);
}

tri_status tri_nccl_open(const tri_device *device, const nccl_unique_id *id, int rank, int count,
                         const tri_nccl_limits *limits, tri_nccl **out)
{
    tri_cuda_handles card;
    const tri_nccl_calls *calls;
    int version = 0;
    TRI_TRY(tri_cuda_handles_read(device, &card));
    TRI_TRY(tri_nccl_load(card.calls->emulated != NULL, &calls));
    tri_nccl *nccl = tri_alloc_zero(1, sizeof(*nccl));
    if (!nccl)
        return TRI_ENOMEM;
    *nccl = (tri_nccl){.calls = calls, .card = card, .rank = rank, .count = count, .limits = *limits};
    (void)calls->version(&version);
    tri_nccl_print(version, nccl->name);
    nccl->abort_call = call_make(nccl, abort_run);
    const tri_status status = nccl->abort_call ? comm_create(nccl, id) : TRI_ENOMEM;
    if (status == TRI_OK || nccl->hangs)
        *out = nccl;
    else
        nccl_free(nccl);
    return status;
}

static tri_status finalize(tri_nccl *nccl)
{
    limited_call *call = call_make(nccl, finalize_run);
    const tri_status status = call ? call_run(call, nccl->limits.leave_ms) : TRI_ENOMEM;
    if (status == TRI_ETIMEOUT)
        return tri_fail(TRI_ETIMEOUT, "%s: its finalize has not ended within %.1f s", nccl->name,
                        (double)nccl->limits.leave_ms / 1000);
    const nccl_result result = status == TRI_OK ? call->result : 0;
    tri_free(call);
    if (status != TRI_OK)
        return give_up(nccl, status);
    return result == 0 ? TRI_OK : give_up(nccl, fail_as(nccl->calls, nccl->name, "finalize", result));
}

tri_status tri_nccl_close(tri_nccl *nccl)
{
    if (!nccl)
        return TRI_OK;
    tri_status status = nccl->comm ? finalize(nccl) : TRI_OK;
    if (nccl->hangs)
        status = tri_nccl_abort(nccl); /* which says so */
    nccl_free(nccl);
    return status;
}

/* --- operations --- */

static void take(tri_nccl *nccl, const char *what, nccl_result result)
{
    if (result == 0 || result == NCCL_IN_PROGRESS || nccl->result != 0)
        return;
    nccl->result = result;
    nccl->failed = result == NCCL_REMOTE_ERROR ? "exchange" : what; /* of an earlier group: this call was refused */
}

void tri_nccl_begin(tri_nccl *nccl, const char *name)
{
    nccl->result = nccl->comm ? 0 : NCCL_INVALID_USAGE; /* aborted: end reports it */
    nccl->sent_nbytes = nccl->received_nbytes = 0;
    (void)nccl->card.calls->context_set(nccl->card.context);
    if (!nccl->comm)
        return;
    tri_cuda_times_begin(nccl->card.times, name);
    take(nccl, "group", nccl->calls->group_start());
}

/* times: how often this rank sends, and receives, that many elements: at least, where NCCL chooses the algorithm. */
static void count_moved(tri_nccl *nccl, int64_t count, int64_t sent_times, int64_t received_times)
{
    nccl->sent_nbytes += count * sent_times * (int64_t)sizeof(float);
    nccl->received_nbytes += count * received_times * (int64_t)sizeof(float);
}

void tri_nccl_send(tri_nccl *nccl, const float *data, int64_t count, int to)
{
    count_moved(nccl, count, 1, 0);
    if (nccl->result == 0)
        take(nccl, "send", nccl->calls->send(data, (size_t)count, NCCL_F32, to, nccl->comm, nccl->card.stream));
}

void tri_nccl_receive(tri_nccl *nccl, float *data, int64_t count, int from)
{
    count_moved(nccl, count, 0, 1);
    if (nccl->result == 0)
        take(nccl, "receive", nccl->calls->receive(data, (size_t)count, NCCL_F32, from, nccl->comm, nccl->card.stream));
}

void tri_nccl_all_reduce(tri_nccl *nccl, float *data, int64_t count)
{
    const int64_t others = nccl->count - 1;
    count_moved(nccl, count / nccl->count, 2 * others, 2 * others);
    if (nccl->result == 0)
        take(nccl, "all-reduce",
             nccl->calls->all_reduce(data, data, (size_t)count, NCCL_F32, NCCL_SUM, nccl->comm, nccl->card.stream));
}

void tri_nccl_all_gather(tri_nccl *nccl, float *data, int64_t count)
{
    count_moved(nccl, count, nccl->count - 1, nccl->count - 1);
    if (nccl->result == 0)
        take(nccl, "all-gather",
             nccl->calls->all_gather(data + nccl->rank * count, data, (size_t)count, NCCL_F32, nccl->comm,
                                     nccl->card.stream));
}

void tri_nccl_broadcast(tri_nccl *nccl, float *data, int64_t count, int root)
{
    count_moved(nccl, count, root == nccl->rank && nccl->count > 1, root != nccl->rank);
    if (nccl->result == 0)
        take(nccl, "broadcast",
             nccl->calls->broadcast(data, data, (size_t)count, NCCL_F32, root, nccl->comm, nccl->card.stream));
}

tri_status tri_nccl_end(tri_nccl *nccl)
{
    if (!nccl->comm)
        return tri_fail(TRI_EIO, "%s: it was aborted after an earlier failure", nccl->name);
    take(nccl, "group", nccl->calls->group_end());
    if (nccl->result != 0)
        return give_up(nccl, fail_as(nccl->calls, nccl->name, nccl->failed, nccl->result));
    TRI_TRY(state_await(nccl, "exchange", nccl->limits.exchange_ms));
    tri_cuda_times_exchange_end(nccl->card.times, nccl->sent_nbytes);
    tri_counter_add(TRI_COUNT_SENT_NBYTES, (uint64_t)nccl->sent_nbytes);
    tri_counter_add(TRI_COUNT_RECEIVED_NBYTES, (uint64_t)nccl->received_nbytes);
    return TRI_OK;
}

tri_status tri_nccl_wait(tri_nccl *nccl, const tri_device_event *event)
{
    const tri_cuda_calls *driver = nccl->card.calls;
    patience p = patience_make(nccl->limits.exchange_ms);
    (void)driver->context_set(nccl->card.context);
    for (;;) {
        const cuda_result result = event ? driver->event_query(event->mark) : driver->stream_query(nccl->card.stream);
        if (result == 0)
            return TRI_OK;
        if (result != CUDA_NOT_READY)
            return give_up(nccl, tri_fail(TRI_EIO, "%s: cuda:%d: %s", nccl->name, nccl->card.index,
                                          tri_cuda_text(driver, result)));
        nccl_result state = 0;
        const nccl_result asked = nccl->comm ? nccl->calls->comm_state(nccl->comm, &state) : 0;
        if (asked != 0 || (state != 0 && state != NCCL_IN_PROGRESS))
            return give_up(nccl, fail_as(nccl->calls, nccl->name, "exchange", asked != 0 ? asked : state));
        if (has_ended(nccl))
            return ended(nccl, "exchange");
        if (is_over(&p))
            return waited(nccl, "exchange", &p);
        tri_sleep_ns(LOOK_EVERY_NS / 4);
    }
}
