/* SPDX-License-Identifier: Apache-2.0
 *
 * emulator.c: a block of CUDA threads on fibers, one OS thread. Compiled without ThreadSanitizer, which is told of the
 * edges that a card has.
 */
#include "gpu/emulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/runtime_impl.h"
#include "base/status.h"
#include "gpu/mma.h"
#include "kernel/gpu/gpu.h"

#ifdef TRI_EMULATOR_TSAN
#include <sanitizer/tsan_interface.h>
#define RACE(x) x
#else
#define RACE(x) (void)0
#endif

#define STACK_NBYTES ((size_t)128 << 10)
#define LANES        32
#define MOST         TRI_GPU_THREADS
#define MOST_SHARED  (48 << 10)
#define EDGES        256 /* blocks that share no edge */
#ifdef TRI_EMULATOR_TSAN
#define SETS 4 /* blocks that share no fiber and no stack */
#else
#define SETS 1
#endif

enum { READY, AT_BLOCK, AT_WARP, ENDED };
enum { SYNC_WARP, LANE, MMA };

typedef struct cuda_thread {
    tri_context *context;
    int state;
    int exchange, type; /* at a warp: which one, and of what type */
    float give;         /* LANE */
    int from;
    float *d; /* MMA */
    const uint32_t *a, *b;
} cuda_thread;

gpu_thread gpu_now;

static struct {
    cuda_thread thread[MOST];
    tri_context contexts[SETS][MOST];
    int created[SETS];
    tri_context home;
    bool adopted;
    tri_emulator_kernel kernel;
    const void *args;
    int count, alive, current;
    int at_block, at_warp[MOST / LANES], warp_alive[MOST / LANES];
    int ready[MOST], ready_count;
    uint64_t seed, state;
    void *shared;
    size_t shared_nbytes;
    const char *reason; /* why the kernel is refused; NULL: it is not */
    gpu_thread where;
    /* What ThreadSanitizer knows barriers by: two of a block and of each warp, in turns; blocks have their own for
     * some while. */
    char edge_begin, edge_end, edge_over, edge_shared[EDGES], edge_block[EDGES][2], edge_warp[EDGES][MOST / LANES][2];
    int block_round, warp_round[MOST / LANES], block;
    void *cleaner; /* frees shared memory: what it comes after is no order for the next block */
} e;

typedef struct kernel_row {
    const char *name;
    tri_emulator_kernel kernel;
    size_t args_nbytes;
} kernel_row;

#define KERNEL_DECLARE(name) void tri_cuda_##name(const void *args);
TRI_GPU_KERNELS(KERNEL_DECLARE)
static const kernel_row kernels[] = {
#define KERNEL_ROW(name) {#name, tri_cuda_##name, sizeof(tri_gpu_##name##_args)},
    TRI_GPU_KERNELS(KERNEL_ROW)
#undef KERNEL_ROW
};

static uint32_t draw(uint32_t below)
{
    e.state = e.state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((e.state >> 33) % below);
}

static void make_ready(int i)
{
    e.thread[i].state = READY;
    e.ready[e.ready_count++] = i;
}

static int take_ready(void)
{
    const int k = e.seed != 0 ? (int)draw((uint32_t)e.ready_count) : e.ready_count - 1, i = e.ready[k];
    e.ready[k] = e.ready[--e.ready_count];
    e.current = i;
    gpu_now.tx = i;
    return i;
}

/* Goes to another thread that is ready, or home where none is. */
static void leave(bool ends)
{
    cuda_thread *me = &e.thread[e.current];
    RACE(__tsan_release(&e.edge_end)); /* nobody may come back here */
    RACE(__tsan_release(&e.edge_over));
    if (e.ready_count == 0 || e.reason != NULL) {
        tri_context_switch(me->context, &e.home, ends);
        return;
    }
    cuda_thread *next = &e.thread[take_ready()];
    if (next != me) {
        tri_context_switch(me->context, next->context, ends);
    }
}

/* The first reason counts; it becomes the last error at home, whose memory that is. */
static void refuse(const char *what)
{
    if (e.reason == NULL) {
        e.reason = what;
        e.where = gpu_now;
    }
}

static void check_block(void)
{
    if (e.at_block == 0 || e.at_block < e.alive) {
        return;
    }
    if (e.alive < e.count) {
        refuse("the others wait at a barrier for one that has ended");
        return;
    }
    e.at_block = 0;
    e.block_round++;
    for (int i = 0; i < e.count; i++) {
        make_ready(i);
    }
}

/* Fragments of one m16n8k16: rows g and g + 8, columns 2 t ..; PTX ISA, matrix fragments. */
static void warp_mma(cuda_thread *warp)
{
    uint16_t a[16][16], b[8][16];
    float d[16][8];
    for (int l = 0; l < LANES; l++) {
        const int g = l / 4, t = l % 4;
        for (int r = 0; r < 4; r++) {
            const int row = g + (r & 1) * 8, k = 2 * t + (r >> 1) * 8;
            a[row][k] = (uint16_t)warp[l].a[r];
            a[row][k + 1] = (uint16_t)(warp[l].a[r] >> 16);
        }
        for (int r = 0; r < 2; r++) {
            b[g][2 * t + 8 * r] = (uint16_t)warp[l].b[r];
            b[g][2 * t + 8 * r + 1] = (uint16_t)(warp[l].b[r] >> 16);
        }
        for (int r = 0; r < 4; r++) {
            d[g + r / 2 * 8][2 * t + r % 2] = warp[l].d[r];
        }
    }
    mma_factors left, right[8];
    for (int j = 0; j < 8; j++) {
        mma_read(&right[j], warp[0].type, b[j]);
    }
    for (int i = 0; i < 16; i++) {
        mma_read(&left, warp[0].type, a[i]);
        for (int j = 0; j < 8; j++) {
            d[i][j] = mma_step(&left, &right[j], d[i][j]);
        }
    }
    for (int l = 0; l < LANES; l++) {
        for (int r = 0; r < 4; r++) {
            warp[l].d[r] = d[l / 4 + r / 2 * 8][2 * (l % 4) + r % 2];
        }
    }
}

static void check_warp(int w)
{
    cuda_thread *warp = &e.thread[w * LANES];
    if (e.at_warp[w] == 0 || e.at_warp[w] < e.warp_alive[w]) {
        return;
    }
    if (e.warp_alive[w] < LANES) {
        refuse("the other lanes wait in an exchange for one that has ended");
        return;
    }
    for (int l = 1; l < LANES; l++) {
        if (warp[l].exchange != warp[0].exchange || warp[l].type != warp[0].type) {
            refuse("lanes of its warp meet in different exchanges");
            return;
        }
    }
    e.at_warp[w] = 0;
    if (warp[0].exchange == LANE) {
        float give[LANES];
        for (int l = 0; l < LANES; l++) {
            give[l] = warp[l].give;
        }
        for (int l = 0; l < LANES; l++) {
            warp[l].give = give[warp[l].from & (LANES - 1)];
        }
    } else if (warp[0].exchange == MMA) {
        warp_mma(warp);
    } else {
        e.warp_round[w]++;
    }
    for (int l = 0; l < LANES; l++) {
        make_ready(w * LANES + l);
    }
}

void gpu_sync(void)
{
    RACE(char *edge = &e.edge_block[e.block % EDGES][e.block_round & 1]);
    RACE(__tsan_release(edge));
    e.thread[e.current].state = AT_BLOCK;
    e.at_block++;
    check_block();
    leave(false);
    RACE(__tsan_acquire(edge));
}

static void meet_warp(int exchange, int type)
{
    cuda_thread *me = &e.thread[e.current];
    me->state = AT_WARP;
    me->exchange = exchange;
    me->type = type;
    e.at_warp[e.current / LANES]++;
    check_warp(e.current / LANES);
    leave(false);
}

void gpu_sync_warp(void)
{
    RACE(const int w = e.current / LANES);
    RACE(char *edge = &e.edge_warp[e.block % EDGES][w][e.warp_round[w] & 1]);
    RACE(__tsan_release(edge));
    meet_warp(SYNC_WARP, 0);
    RACE(__tsan_acquire(edge));
}

float gpu_lane(float v, int lane)
{
    cuda_thread *me = &e.thread[e.current];
    me->give = v;
    me->from = lane;
    meet_warp(LANE, 0);
    return me->give;
}

void gpu_mma(int type, float *d, const uint32_t *a, const uint32_t *b)
{
    cuda_thread *me = &e.thread[e.current];
    me->d = d;
    me->a = a;
    me->b = b;
    meet_warp(MMA, type);
}

void *gpu_shared(size_t nbytes)
{
    if (e.shared == NULL) {
        RACE(__tsan_switch_to_fiber(e.home.race_fiber, __tsan_switch_to_fiber_no_sync));
        e.shared = malloc(nbytes);
        TRI_ASSERT(e.shared != NULL);
        memset(e.shared, 0xff, nbytes); /* NaN in each type */
        e.shared_nbytes = nbytes;
        RACE(__tsan_release(&e.edge_shared[e.block % EDGES]));
        RACE(__tsan_switch_to_fiber(e.thread[e.current].context->race_fiber, __tsan_switch_to_fiber_no_sync));
    }
    RACE(__tsan_acquire(&e.edge_shared[e.block % EDGES]));
    if (nbytes != e.shared_nbytes || nbytes > MOST_SHARED) {
        refuse("want one object of at most 48 KiB in shared memory");
        leave(false);
    }
    return e.shared;
}

const void *gpu_aligned(const void *place)
{
    if ((uintptr_t)place % 16 != 0) {
        refuse("want a multiple of 16 as the place of 16 bytes");
        leave(false);
    }
    return place;
}

static void thread_main(void)
{
    tri_context_entered();
    RACE(__tsan_acquire(&e.edge_begin));
    e.kernel(e.args);
    const int i = e.current;
    e.thread[i].state = ENDED;
    e.alive--;
    e.warp_alive[i / LANES]--;
    check_block();
    check_warp(i / LANES);
    leave(true);
    abort();
}

static tri_status prepare(int count)
{
    if (!e.adopted) {
        TRI_TRY(tri_context_adopt(&e.home));
        e.home.unordered = true;
        e.adopted = true;
    }
    const int set = e.block % SETS;
    for (int i = 0; i < count; i++) {
        tri_context *context = &e.contexts[set][i];
        if (i < e.created[set]) {
            tri_context_renew(context, thread_main);
        } else {
            TRI_TRY(tri_context_create(context, STACK_NBYTES, thread_main));
            context->unordered = true;
            e.created[set]++;
        }
        e.thread[i].context = context;
        e.warp_alive[i / LANES] = i % LANES + 1;
    }
    RACE(__tsan_release(&e.edge_begin));
    return TRI_OK;
}

static void release_shared(void)
{
    RACE(e.cleaner = e.cleaner != NULL ? e.cleaner : __tsan_create_fiber(0));
    RACE(__tsan_switch_to_fiber(e.cleaner, __tsan_switch_to_fiber_no_sync));
    RACE(__tsan_acquire(&e.edge_over));
    free(e.shared);
    RACE(__tsan_switch_to_fiber(e.home.race_fiber, __tsan_switch_to_fiber_no_sync));
    e.shared = NULL;
}

static tri_status run_block(int count)
{
    e.block++;
    TRI_TRY(prepare(count));
    e.count = e.alive = count;
    e.ready_count = e.at_block = 0;
    memset(e.at_warp, 0, sizeof e.at_warp);
    for (int i = count - 1; i >= 0; i--) {
        make_ready(i);
    }
    tri_context_switch(&e.home, e.thread[take_ready()].context, false);
    if (e.alive > 0) {
        refuse("threads wait at different barriers");
    }
    release_shared();
    return TRI_OK;
}

tri_status tri_emulator_run(const char *name, tri_emulator_kernel kernel, const tri_gpu_launch *launch)
{
    int64_t grid[3];
    for (int i = 0; i < 3; i++) {
        grid[i] = launch->grid[i] > 0 ? launch->grid[i] : 1;
        if (grid[i] > (i == 0 ? INT32_MAX : 65535) || launch->grid[i] < 0) {
            return tri_fail(TRI_EINVAL, "kernel %s: no card takes a grid of %lld x %lld x %lld", name,
                            (long long)launch->grid[0], (long long)launch->grid[1], (long long)launch->grid[2]);
        }
    }
    if (launch->threads < LANES || launch->threads > MOST || launch->threads % LANES != 0) {
        return tri_fail(TRI_EINVAL, "kernel %s: want blocks of 32 to %d threads, whole warps, got %d", name, MOST,
                        launch->threads);
    }
    e.kernel = kernel;
    e.args = launch->args;
    e.state = e.seed;
    e.reason = NULL;
    gpu_now.nx = launch->threads;
    const int64_t count = grid[0] * grid[1] * grid[2];
    for (int64_t k = 0; k < count && e.reason == NULL; k++) {
        const int64_t block = e.seed % 2 == 1 ? count - 1 - k : k;
        gpu_now.bx = (int)(block % grid[0]);
        gpu_now.by = (int)(block / grid[0] % grid[1]);
        gpu_now.bz = (int)(block / grid[0] / grid[1]);
        TRI_TRY(run_block(launch->threads));
    }
    RACE(__tsan_acquire(&e.edge_end));
    if (e.reason != NULL) {
        return tri_fail(TRI_EINVAL, "kernel %s, block %d %d %d, thread %d: %s", name, e.where.bx, e.where.by,
                        e.where.bz, e.where.tx, e.reason);
    }
    return TRI_OK;
}

tri_status tri_emulator_launch(const tri_gpu_launch *launch)
{
    if ((unsigned)launch->kernel >= TRI_GPU_KERNEL_COUNT ||
        launch->args_nbytes != kernels[launch->kernel].args_nbytes) {
        return tri_fail(TRI_EINVAL, "kernel %d: no such kernel with %zu bytes of arguments", (int)launch->kernel,
                        launch->args_nbytes);
    }
    return tri_emulator_run(kernels[launch->kernel].name, kernels[launch->kernel].kernel, launch);
}

void tri_emulator_seed(uint64_t seed)
{
    e.seed = seed;
}

static tri_status queue_launch(void *arg, const tri_gpu_launch *launch)
{
    (void)arg;
    return tri_emulator_launch(launch);
}

tri_gpu_queue tri_emulator_queue(void)
{
    return (tri_gpu_queue){.launch = queue_launch};
}

tri_device tri_emulator_device(tri_gpu_queue *queue)
{
    static tri_device_ops ops;
    ops = *tri_device_host()->ops; /* its memory and copies are the host's */
    ops.name = "emulator";
    ops.kernels = "cuda";
    return (tri_device){.ops = &ops, .state = queue};
}

int tri_emulator_find(const char *symbol)
{
    for (int i = 0; i < TRI_GPU_KERNEL_COUNT; i++) {
        if (strncmp(symbol, "tri_cuda_", 9) == 0 && strcmp(symbol + 9, kernels[i].name) == 0) {
            return i;
        }
    }
    return -1;
}

size_t tri_emulator_args_nbytes(int kernel)
{
    return kernels[kernel].args_nbytes;
}
