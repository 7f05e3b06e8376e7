/* SPDX-License-Identifier: Apache-2.0
 *
 * workers.c: each thread takes the next tile under the lock; tiles are long (files are decoded), so the lock is free.
 */
#include "data/workers.h"

#include <stdbool.h>

#include "base/memory.h"
#include "base/runtime.h"

#define THREAD_NAME "decode"

struct tri_workers {
    tri_mutex mutex; /* guards the rest but threads */
    tri_cond moved;
    void (*body)(void *arg, int64_t tile);
    void *arg;
    int64_t next, end, running; /* tiles */
    bool stop;
    int count;
    tri_thread *threads[];
};

/* Runs one tile, if one is left; the lock is held before and after. */
static bool tile_run(tri_workers *workers)
{
    if (workers->next == workers->end)
        return false;
    const int64_t tile = workers->next++;
    workers->running++;
    tri_mutex_unlock(&workers->mutex);
    workers->body(workers->arg, tile);
    tri_mutex_lock(&workers->mutex);
    if (--workers->running == 0 && workers->next == workers->end)
        tri_cond_broadcast(&workers->moved);
    return true;
}

static void thread_body(void *arg)
{
    tri_workers *workers = arg;
    tri_mutex_lock(&workers->mutex);
    while (!workers->stop)
        if (!tile_run(workers))
            (void)tri_cond_wait(&workers->moved, &workers->mutex, TRI_FOREVER);
    tri_mutex_unlock(&workers->mutex);
}

tri_status tri_workers_open(int count, tri_workers **out)
{
    tri_workers *workers = tri_alloc_zero(1, sizeof(*workers) + (size_t)count * sizeof(tri_thread *));
    *out = NULL;
    if (workers == NULL)
        return TRI_ENOMEM;
    tri_mutex_init(&workers->mutex);
    tri_cond_init(&workers->moved);
    for (; workers->count < count; workers->count++) {
        tri_status status = tri_thread_start(&workers->threads[workers->count], THREAD_NAME, thread_body, workers);
        if (status != TRI_OK) {
            tri_workers_close(workers);
            return status;
        }
    }
    *out = workers;
    return TRI_OK;
}

void tri_workers_run(tri_workers *workers, int64_t tile_count, void (*body)(void *arg, int64_t tile), void *arg)
{
    tri_mutex_lock(&workers->mutex);
    workers->body = body;
    workers->arg = arg;
    workers->next = 0;
    workers->end = tile_count;
    tri_cond_broadcast(&workers->moved);
    while (tile_run(workers))
        ;
    while (workers->running > 0)
        (void)tri_cond_wait(&workers->moved, &workers->mutex, TRI_FOREVER);
    tri_mutex_unlock(&workers->mutex);
}

void tri_workers_close(tri_workers *workers)
{
    if (workers == NULL)
        return;
    tri_mutex_lock(&workers->mutex);
    workers->stop = true;
    tri_cond_broadcast(&workers->moved);
    tri_mutex_unlock(&workers->mutex);
    for (int i = 0; i < workers->count; i++)
        tri_thread_join(workers->threads[i]);
    tri_cond_fini(&workers->moved);
    tri_mutex_fini(&workers->mutex);
    tri_free(workers);
}
