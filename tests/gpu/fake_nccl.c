/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_nccl.c: an NCCL between fake cards, of one process or several: found by the same dlopen.
 *
 * Ranks exchange bytes through a file that all map; the unique id is its path. Like NVIDIA's it takes a moment for
 * everything: a communicator is in progress until all ranks are there and after each group, and a call meanwhile is
 * refused. Two ranks on one card are refused, but only when all ranks are there. All-reduce adds from the last rank to
 * the first. FAKE_NCCL names what else it does, separated by commas: `old1`: card 1 has version 2.27.3; `no_version1`:
 * none; `absent1`: rank 1 never comes; `fails1`: it fails as it comes; `silent1`: rank 1 comes and then sends nothing;
 * `gone1`: to the others it is lost; `finalize_hangs`, `abort_hangs`; `killed=FILE@NUMBER`,
 * `stopped=FILE@NUMBER`: whoever removes the file first is killed or stopped (SIGSTOP) within an exchange, from its
 * NUMBER-th on (or FILE alone: from its first); `killed_gather=FILE@NUMBER`: in one that hands out blocks of all ranks;
 * `held=FILE`: while the file is there the last rank receives nothing in such a one.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/cuda/nccl_library.h"
#include "gpu/fake_cuda.h"
#include "gpu/fake_words.h"

#define EXPORT        __attribute__((visibility("default")))
#define MOST_RANKS    8
#define MOST_MOVES    256
#define BOX_NBYTES    8192
#define POLLS         3 /* that see a group in progress */
#define LOOK_EVERY_US 200
#define VERSION       22809
#define OLD_VERSION   22703
#define SYSTEM_ERROR  2

/* Bytes from one rank to another, on their way. */
typedef struct box {
    atomic_size_t written, read;
    char bytes[BOX_NBYTES];
} box;

typedef struct shared {
    atomic_int joined, left;
    unsigned bus[MOST_RANKS];          /* of the card: instances (MIG) of one have the same */
    box boxes[MOST_RANKS][MOST_RANKS]; /* from, to */
} shared;

struct nccl_comm_object {
    shared *all;
    char path[128];
    int rank, count;
    int ready; /* all ranks have been seen */
    int polls; /* left of the last group */
    nccl_result failed;
    atomic_int aborted;
};

typedef struct move {
    int peer, sends;
    char *data;
    size_t nbytes, done;
} move;

typedef struct sum {
    float *to, *parts; /* parts: [ranks][count], owned */
    size_t count;
} sum;

/* A group on the stream. */
typedef struct work {
    nccl_comm comm;
    cuda_stream stream;
    int move_count, sum_count, gathers;
    bool has_begun;
    move moves[MOST_MOVES];
    sum sums[MOST_RANKS];
} work;

static _Thread_local work *group;
static _Thread_local int depth;
static char last[128];
static atomic_int exchanges; /* of this process */

#define DECLARE(result, symbol, name, args) EXPORT result symbol args;
TRI_NCCL_CALLS(DECLARE)

static bool has(const char *word)
{
    return fake_has("FAKE_NCCL", word);
}

/* This process is the one that "word=FILE@NUMBER" is for, now. */
static bool is_now(const char *word)
{
    return fake_takes("FAKE_NCCL", word, atomic_load(&exchanges));
}

static void *of_driver(const char *symbol)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *found = driver ? dlsym(driver, symbol) : NULL;
    if (!found)
        abort();
    (void)dlclose(driver);
    return found;
}

static cuda_device card_now(void)
{
    return ((fake_cuda_card_fn)of_driver("fake_cuda_card"))();
}

/* Of its PCI address, by which NCCL knows a card. */
static unsigned bus_now(void)
{
    typedef cuda_result (*place_fn)(char *place, int nbytes, cuda_device device);
    char place[32];
    unsigned bus;
    if (((place_fn)of_driver("cuDeviceGetPCIBusId"))(place, sizeof(place), card_now()) != 0 ||
        sscanf(place, "%*x:%x", &bus) != 1)
        abort();
    return bus;
}

static void hang(void)
{
    for (;;)
        sleep(1);
}

static nccl_result refuse(const char *why, nccl_result result)
{
    snprintf(last, sizeof(last), "%s", why);
    return result;
}

/* --- communicators --- */

nccl_result ncclGetVersion(int *version)
{
    if (has("no_version1") && card_now() == 1)
        return SYSTEM_ERROR;
    *version = has("old1") && card_now() == 1 ? OLD_VERSION : VERSION;
    return 0;
}

const char *ncclGetErrorString(nccl_result result)
{
    return result == NCCL_INVALID_ARGUMENT ? "invalid argument"
           : result == NCCL_INVALID_USAGE  ? "invalid usage"
           : result == NCCL_REMOTE_ERROR   ? "remote process exited or there was a network error"
           : result == SYSTEM_ERROR        ? "unhandled system error"
                                           : "no error";
}

const char *ncclGetLastError(nccl_comm comm)
{
    (void)comm;
    return last;
}

nccl_result ncclGetUniqueId(nccl_unique_id *id)
{
    const char *folder = getenv("TMPDIR");
    memset(id, 0, sizeof(*id));
    snprintf(id->bytes, sizeof(id->bytes), "%s/fake_nccl.XXXXXX", folder ? folder : "/tmp");
    const int file = mkstemp(id->bytes);
    if (file < 0 || ftruncate(file, sizeof(shared)) != 0)
        return SYSTEM_ERROR;
    (void)close(file);
    return 0;
}

nccl_result ncclCommInitRankConfig(nccl_comm *comm, int count, nccl_unique_id id, int rank, nccl_config *config)
{
    if (config->magic != NCCL_CONFIG_MAGIC || config->nbytes < sizeof(*config) || config->blocking != 0)
        return refuse("ncclConfig_t argument not initialized", NCCL_INVALID_ARGUMENT);
    if (count < 1 || count > MOST_RANKS || rank < 0 || rank >= count)
        return refuse("invalid rank requested", NCCL_INVALID_ARGUMENT);
    const int file = open(id.bytes, O_RDWR | O_CLOEXEC);
    nccl_comm made = calloc(1, sizeof(*made));
    if (file < 0 || !made)
        return SYSTEM_ERROR;
    made->all = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    (void)close(file);
    if (made->all == MAP_FAILED)
        return SYSTEM_ERROR;
    snprintf(made->path, sizeof(made->path), "%s", id.bytes);
    made->rank = rank;
    made->count = count;
    made->all->bus[rank] = bus_now();
    if (has("fails1") && rank == 1)
        made->failed = refuse("", SYSTEM_ERROR);
    else if (!(has("absent1") && rank == 1))
        (void)atomic_fetch_add(&made->all->joined, 1);
    *comm = made;
    return NCCL_IN_PROGRESS;
}

/* All ranks have joined: two of them on one card get an error, the others do not. */
static void cards_check(nccl_comm comm)
{
    for (int r = 0; r < comm->count; r++)
        if (r != comm->rank && comm->all->bus[r] == comm->all->bus[comm->rank]) {
            snprintf(last, sizeof(last), "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x000",
                     comm->rank, r, comm->all->bus[r]);
            comm->failed = NCCL_INVALID_USAGE;
        }
}

nccl_result ncclCommGetAsyncError(nccl_comm comm, nccl_result *state)
{
    if (!comm)
        return NCCL_INVALID_ARGUMENT;
    if (!comm->ready && atomic_load(&comm->all->joined) == comm->count) {
        comm->ready = 1;
        cards_check(comm);
        (void)unlink(comm->path);
    }
    if (comm->polls > 0)
        comm->polls--;
    *state = comm->failed != 0 ? comm->failed : !comm->ready || comm->polls > 0 ? NCCL_IN_PROGRESS : 0;
    return 0;
}

static nccl_result check(nccl_comm comm)
{
    if (!comm)
        return NCCL_INVALID_ARGUMENT;
    if (comm->failed != 0)
        return comm->failed;
    return comm->ready && comm->polls == 0
               ? 0
               : refuse("Attempt to use communicator before the previous operation returned ncclSuccess",
                        NCCL_INVALID_ARGUMENT);
}

nccl_result ncclCommFinalize(nccl_comm comm)
{
    const nccl_result result = check(comm);
    if (result != 0)
        return result;
    if (has("finalize_hangs"))
        hang();
    comm->polls = POLLS;
    return NCCL_IN_PROGRESS;
}

static void release(nccl_comm comm)
{
    (void)unlink(comm->path);
    (void)munmap(comm->all, sizeof(shared));
    free(comm);
}

/* Others may still read what this rank has, so it waits for them, as NVIDIA's does for those of its host. */
nccl_result ncclCommDestroy(nccl_comm comm)
{
    const nccl_result result = check(comm);
    if (result != 0)
        return result;
    (void)atomic_fetch_add(&comm->all->left, 1);
    while (atomic_load(&comm->all->left) < comm->count)
        usleep(LOOK_EVERY_US);
    release(comm);
    return 0;
}

/* Its memory stays: a group may still be on the stream. */
nccl_result ncclCommAbort(nccl_comm comm)
{
    (void)unlink(comm->path);
    if (has("abort_hangs"))
        hang();
    (void)atomic_fetch_add(&comm->all->left, 1);
    atomic_store(&comm->aborted, 1);
    return 0;
}

/* --- groups --- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* As much as fits now. */
static void move_some(nccl_comm comm, move *m)
{
    box *way = m->sends ? &comm->all->boxes[comm->rank][m->peer] : &comm->all->boxes[m->peer][comm->rank];
    const size_t written = atomic_load(&way->written), read = atomic_load(&way->read);
    const size_t here = m->sends ? written : read;
    const size_t room = m->sends ? BOX_NBYTES - (written - read) : written - read;
    const size_t nbytes = least(least(room, m->nbytes - m->done), BOX_NBYTES - here % BOX_NBYTES);
    char *bytes = way->bytes + here % BOX_NBYTES;
    memcpy(m->sends ? bytes : m->data + m->done, m->sends ? m->data + m->done : bytes, nbytes);
    m->done += nbytes;
    (void)atomic_fetch_add(m->sends ? &way->written : &way->read, nbytes);
}

static bool is_held(const work *w)
{
    char path[FAKE_VALUE_NBYTES];
    return w->gathers && w->comm->rank == w->comm->count - 1 && fake_value("FAKE_NCCL", "held", path) &&
           access(path, F_OK) == 0;
}

/* What goes the same way keeps its order. */
static int moves_run(work *w)
{
    const bool held = is_held(w);
    int open[2][MOST_RANKS] = {{0}}, left = 0;
    for (int i = 0; i < w->move_count; i++) {
        move *m = &w->moves[i];
        if ((m->sends || !held) && !open[m->sends][m->peer] && m->done < m->nbytes)
            move_some(w->comm, m);
        open[m->sends][m->peer] |= m->done < m->nbytes;
        left += m->done < m->nbytes;
    }
    return left == 0;
}

static void sums_run(const work *w)
{
    for (int s = 0; s < w->sum_count; s++) {
        const sum *x = &w->sums[s];
        for (size_t i = 0; i < x->count; i++) {
            float total = x->parts[(size_t)(w->comm->count - 1) * x->count + i];
            for (int r = w->comm->count - 2; r >= 0; r--)
                total += x->parts[(size_t)r * x->count + i];
            x->to[i] = total;
        }
        free(x->parts);
    }
}

static int work_run(void *arg)
{
    work *w = arg;
    (void)atomic_fetch_add(&exchanges, !w->has_begun);
    w->has_begun = true;
    if (!atomic_load(&w->comm->aborted)) {
        if (is_now(w->gathers ? "killed_gather" : "killed"))
            (void)kill(getpid(), SIGKILL);
        if (is_now("stopped"))
            (void)kill(getpid(), SIGSTOP);
        if (has("silent1") && w->comm->rank == 1)
            return 0;
        if (has("gone1") && w->comm->rank != 1)
            w->comm->failed = refuse("", NCCL_REMOTE_ERROR);
        if (w->comm->failed != 0 || !moves_run(w))
            return 0;
        sums_run(w);
    }
    free(w);
    return 1;
}

nccl_result ncclGroupStart(void)
{
    depth++;
    return 0;
}

nccl_result ncclGroupEnd(void)
{
    work *w = group;
    if (depth == 0)
        return NCCL_INVALID_USAGE;
    if (--depth > 0 || !w)
        return 0;
    group = NULL;
    w->comm->polls = POLLS;
    ((fake_cuda_try_fn)of_driver("fake_cuda_try"))(w->stream, work_run, w);
    return NCCL_IN_PROGRESS;
}

static nccl_result group_open(nccl_comm comm, int peer, int type, cuda_stream stream)
{
    const nccl_result result = check(comm);
    if (result != 0)
        return result;
    if (peer < 0 || peer >= comm->count || type != NCCL_F32)
        return NCCL_INVALID_ARGUMENT;
    if (!group)
        group = calloc(1, sizeof(*group));
    if (!group)
        abort();
    group->comm = comm;
    group->stream = stream;
    return 0;
}

static void add(int sends, int peer, const void *data, size_t count)
{
    if (group->move_count == MOST_MOVES)
        abort();
    group->moves[group->move_count++] =
        (move){.peer = peer, .sends = sends, .data = (char *)(uintptr_t)data, .nbytes = count * sizeof(float)};
}

/* An operation outside of a group is a group. */
static nccl_result group_done(nccl_result result)
{
    const nccl_result ended = ncclGroupEnd();
    return result != 0 ? result : ended;
}

nccl_result ncclSend(const void *from, size_t count, int type, int peer, nccl_comm comm, cuda_stream stream)
{
    (void)ncclGroupStart();
    const nccl_result result = group_open(comm, peer, type, stream);
    if (result == 0)
        add(1, peer, from, count);
    return group_done(result);
}

nccl_result ncclRecv(void *to, size_t count, int type, int peer, nccl_comm comm, cuda_stream stream)
{
    (void)ncclGroupStart();
    const nccl_result result = group_open(comm, peer, type, stream);
    if (result == 0)
        add(0, peer, to, count);
    return group_done(result);
}

/* From and to oneself goes through a box like everything else, so that it is read when the stream comes to it. */
static void exchange_all(nccl_comm comm, const void *from, float *to, size_t count)
{
    for (int r = 0; r < comm->count; r++) {
        add(1, r, from, count);
        add(0, r, to + (size_t)r * count, count);
    }
}

nccl_result ncclAllReduce(const void *from, void *to, size_t count, int type, int op, nccl_comm comm,
                          cuda_stream stream)
{
    (void)ncclGroupStart();
    nccl_result result = group_open(comm, 0, type, stream);
    if (result == 0 && op != NCCL_SUM)
        result = NCCL_INVALID_ARGUMENT;
    if (result == 0) {
        float *parts = malloc(count * (size_t)comm->count * sizeof(float) + 1);
        if (!parts || group->sum_count == MOST_RANKS)
            abort();
        exchange_all(comm, from, parts, count);
        group->sums[group->sum_count++] = (sum){.to = to, .parts = parts, .count = count};
    }
    return group_done(result);
}

nccl_result ncclAllGather(const void *from, void *to, size_t count, int type, nccl_comm comm, cuda_stream stream)
{
    (void)ncclGroupStart();
    const nccl_result result = group_open(comm, 0, type, stream);
    if (result == 0) {
        exchange_all(comm, from, to, count);
        group->gathers = 1;
    }
    return group_done(result);
}

nccl_result ncclBroadcast(const void *from, void *to, size_t count, int type, int root, nccl_comm comm,
                          cuda_stream stream)
{
    (void)ncclGroupStart();
    const nccl_result result = group_open(comm, root, type, stream);
    for (int r = 0; result == 0 && comm->rank == root && r < comm->count; r++)
        add(1, r, from, count);
    if (result == 0) {
        add(0, root, to, count);
        group->gathers = 1;
    }
    return group_done(result);
}
