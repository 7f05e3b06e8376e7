/* SPDX-License-Identifier: Apache-2.0
 *
 * sparse_memory.c: memory of indexes and of rows, on huge pages where the system has them.
 *
 * Each look-up is a line somewhere in memory: with small pages the machine misses the page too, which takes as long
 * again. An index of a slot is shorter than a huge page for long, therefore several share a chunk. They grow at about
 * the same time: a chunk goes when the last one has left it.
 */
#include "base/memory.h"
#include "ps/tables/sparse_impl.h"

#define CHUNK_NBYTES ((size_t)32 << 20) /* pages that were never written to cost nothing */
#define SHARE_NBYTES ((size_t)64 << 10) /* shorter ones are as well off alone, */
#define ALONE_NBYTES ((size_t)4 << 20)  /* and so are longer ones */

static bool is_shared(size_t nbytes)
{
    return nbytes >= SHARE_NBYTES && nbytes <= ALONE_NBYTES;
}

static sparse_chunk *chunk_open(ps_sparse *table, size_t nbytes)
{
    sparse_chunk *last = table->chunks.count > 0 ? tri_vector_at(&table->chunks, table->chunks.count - 1) : NULL;
    if (last && last->used + nbytes <= CHUNK_NBYTES)
        return last;
    sparse_chunk chunk = {.memory = tri_alloc_bulk(CHUNK_NBYTES)};
    if (!chunk.memory || !tri_vector_push(&table->chunks, &chunk)) {
        tri_free(chunk.memory);
        return NULL;
    }
    return tri_vector_at(&table->chunks, table->chunks.count - 1);
}

sparse_place *sparse_places_take(ps_sparse *table, int64_t count)
{
    size_t nbytes = (size_t)count * sizeof(sparse_place);
    if (!is_shared(nbytes))
        return tri_alloc_bulk(nbytes);
    sparse_chunk *chunk = chunk_open(table, nbytes);
    if (!chunk)
        return NULL;
    char *memory = chunk->memory + chunk->used;
    chunk->used += nbytes;
    chunk->lent++;
    return (sparse_place *)(void *)memory;
}

void sparse_places_give(ps_sparse *table, sparse_place *places, int64_t count)
{
    if (!places || !is_shared((size_t)count * sizeof(sparse_place))) {
        tri_free(places);
        return;
    }
    for (size_t i = 0; i < table->chunks.count; i++) {
        sparse_chunk *chunk = tri_vector_at(&table->chunks, i), *last;
        uintptr_t within = (uintptr_t)places - (uintptr_t)chunk->memory;
        if (within >= CHUNK_NBYTES)
            continue;
        if (--chunk->lent > 0)
            return;
        tri_free(chunk->memory);
        last = tri_vector_at(&table->chunks, table->chunks.count - 1);
        memmove(chunk, chunk + 1, (size_t)(last - chunk) * sizeof(*chunk));
        table->chunks.count--;
        return;
    }
    TRI_ASSERT(false);
}
