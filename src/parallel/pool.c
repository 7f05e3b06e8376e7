/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.c: buffers by the least that is large enough.
 */
#include "parallel/pool.h"

#include "tensor/tree.h"

typedef struct pool_buffer {
    float *arrays[TRI_TREE_MAX_PARTS];
    int64_t count; /* elements of each */
    bool taken;
} pool_buffer;

static pool_buffer *buffer_at(const tri_pool *pool, int number)
{
    return tri_vector_at(&pool->buffers, (size_t)number);
}

void tri_pool_init(tri_pool *pool, tri_group *group, int arrays, int most, tri_kept *kept)
{
    *pool = (tri_pool){
        .group = group, .arrays = arrays, .most = most, .kept = kept, .buffers = {.each = sizeof(pool_buffer)}};
}

size_t tri_pool_nbytes(int64_t count)
{
    return (size_t)(count > 0 ? count : 1) * sizeof(float);
}

static void buffer_free(const tri_pool *pool, pool_buffer *buffer, tri_kept *kept)
{
    for (int i = 0; i < pool->arrays; i++)
        if (pool->device)
            tri_device_free(pool->device, buffer->arrays[i]);
        else
            tri_kept_give(kept, i == 0 ? pool->group : NULL, tri_pool_nbytes(buffer->count), buffer->arrays[i]);
    *buffer = (pool_buffer){0};
}

void tri_pool_fini(tri_pool *pool)
{
    for (size_t i = 0; i < pool->buffers.count; i++)
        buffer_free(pool, buffer_at(pool, (int)i), pool->kept);
    tri_vector_fini(&pool->buffers);
}

static tri_status device_alloc(const tri_pool *pool, pool_buffer *buffer)
{
    for (int i = 0; i < pool->arrays; i++)
        if (!(buffer->arrays[i] = tri_device_alloc(pool->device, tri_pool_nbytes(buffer->count))))
            return TRI_ENOMEM;
    return TRI_OK;
}

static tri_status buffer_alloc(const tri_pool *pool, int64_t count, pool_buffer *buffer)
{
    buffer->count = count;
    if (pool->device)
        return device_alloc(pool, buffer);
    for (int i = 0; i < pool->arrays; i++) {
        void *memory = NULL;
        TRI_TRY(tri_kept_take(pool->kept, i == 0 ? pool->group : NULL, tri_pool_nbytes(count), &memory));
        buffer->arrays[i] = memory;
    }
    return TRI_OK;
}

/* The least free buffer that is large enough, -1: none; *spare: the largest free one. */
static int find_free(const tri_pool *pool, int64_t count, int *spare)
{
    int best = -1;
    *spare = -1;
    for (size_t i = 0; i < pool->buffers.count; i++) {
        const pool_buffer *buffer = buffer_at(pool, (int)i);
        if (buffer->taken)
            continue;
        if (buffer->count >= count && (best < 0 || buffer->count < buffer_at(pool, best)->count))
            best = (int)i;
        if (*spare < 0 || buffer->count > buffer_at(pool, *spare)->count)
            *spare = (int)i;
    }
    return best;
}

tri_status tri_pool_take(tri_pool *pool, int64_t count, int *number)
{
    const pool_buffer none = {0};
    int spare;
    *number = find_free(pool, count, &spare);
    if (*number < 0 && spare >= 0 && (int)pool->buffers.count >= pool->most && !pool->device) {
        *number = spare;
        buffer_free(pool, buffer_at(pool, spare), NULL);
    } else if (*number < 0) {
        if (!tri_vector_push(&pool->buffers, &none))
            return TRI_ENOMEM;
        *number = (int)pool->buffers.count - 1;
    }
    pool_buffer *buffer = buffer_at(pool, *number);
    if (!buffer->arrays[0])
        TRI_TRY(buffer_alloc(pool, count, buffer));
    buffer->taken = true;
    return TRI_OK;
}

tri_status tri_pool_fill(tri_pool *pool, const tri_device *device, const int64_t *counts)
{
    int number;
    pool->device = device;
    for (int i = 0; i < pool->most; i++)
        if (counts[i] > 0)
            TRI_TRY(tri_pool_take(pool, counts[i], &number));
    for (size_t i = 0; i < pool->buffers.count; i++)
        tri_pool_give(pool, (int)i);
    return TRI_OK;
}

bool tri_pool_has(const tri_pool *pool, int64_t count)
{
    int spare;
    return find_free(pool, count, &spare) >= 0;
}

float *tri_pool_array(const tri_pool *pool, int number, int array)
{
    return buffer_at(pool, number)->arrays[array];
}

void tri_pool_give(tri_pool *pool, int number)
{
    buffer_at(pool, number)->taken = false;
}
