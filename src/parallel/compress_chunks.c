/* SPDX-License-Identifier: Apache-2.0
 *
 * compress_chunks.c: a sum in two legs over the bytes of a codec: to the owners of the chunks, and back from them.
 *
 * Chunks are whole runs of CHUNK_ALIGN elements and differ by one run at most. Sums go in order of the ranks, from what
 * the last sum has left.
 */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "parallel/compress_impl.h"

typedef struct compress_chunks {
    tri_compress base;
    const tri_codec *codec;
    const tri_parallel_config *config;
    tri_group *group;
    tri_compress_span *spans;
    int span_count;
    bool feeds_back, undoes;
    int rank, ranks;
    int64_t count;
    int64_t *firsts;       /* [ranks + 1]: elements */
    int64_t *own, *theirs; /* [ranks]: bytes of each chunk; bytes of this rank's, from each */
    float *values; /* [count]: this rank's, spans end to end; between sums: what was lost of them; then the sum */
    float *lost;   /* [count], where it feeds back: what is left while `values` holds the sum */
    float *chunk;  /* the sum of this rank's chunk; between sums: what was lost of it */
    float *lost_before, *chunk_before; /* where it undoes: the two before the last sum */
    char *sent, *received, *summed;    /* bytes: of all chunks; of mine from all; of all sums */
    tri_work *work;
    char name[48];
} compress_chunks;

enum { CHUNK_ALIGN = 16 };

void tri_chunks_destroy(tri_compress *compress)
{
    compress_chunks *chunks = tri_container_of(compress, compress_chunks, base);
    if (chunks->work)
        (void)tri_work_wait(chunks->work);
    tri_free(chunks->spans);
    tri_free(chunks->firsts);
    tri_free(chunks->own);
    tri_free(chunks->theirs);
    tri_free(chunks->values);
    tri_free(chunks->lost);
    tri_free(chunks->chunk);
    tri_free(chunks->lost_before);
    tri_free(chunks->chunk_before);
    tri_free(chunks->sent);
    tri_free(chunks->received);
    tri_free(chunks->summed);
    tri_free(chunks);
}

static int64_t chunk_count(const compress_chunks *chunks, int rank)
{
    return chunks->firsts[rank + 1] - chunks->firsts[rank];
}

/* Where the chunk of a rank begins, of `count` elements. */
static int64_t chunk_first(int64_t count, int rank, int ranks)
{
    int64_t first = (count + CHUNK_ALIGN - 1) / CHUNK_ALIGN * rank / ranks * CHUNK_ALIGN;
    return first < count ? first : count;
}

size_t tri_chunks_nbytes(const tri_compress_setup *setup, const tri_codec *codec, int ranks)
{
    int64_t count = tri_compress_count(setup->spans, setup->span_count), largest = 0;
    bool keeps = codec->feeds_back && !setup->forgets, undoes = keeps && setup->undoes;
    size_t all = 0, arrays = undoes ? 3 : keeps ? 2 : 1;
    for (int r = 0; r < ranks; r++) {
        int64_t chunk = chunk_first(count, r + 1, ranks) - chunk_first(count, r, ranks);
        all += codec->nbytes(setup->config, chunk);
        largest = chunk > largest ? chunk : largest;
    }
    size_t received = (size_t)ranks * codec->nbytes(setup->config, largest);
    return (arrays * (size_t)count + (undoes ? 2 : 1) * (size_t)largest) * sizeof(float) + 2 * all + received;
}

static tri_status chunks_cut(compress_chunks *chunks)
{
    size_t ranks = (size_t)chunks->ranks;
    chunks->firsts = tri_alloc_zero(ranks + 1, sizeof(int64_t));
    chunks->own = tri_alloc_zero(ranks, sizeof(int64_t));
    chunks->theirs = tri_alloc_zero(ranks, sizeof(int64_t));
    if (!chunks->firsts || !chunks->own || !chunks->theirs)
        return TRI_ENOMEM;
    for (int r = 0; r <= chunks->ranks; r++)
        chunks->firsts[r] = chunk_first(chunks->count, r, chunks->ranks);
    for (int r = 0; r < chunks->ranks; r++) {
        chunks->own[r] = (int64_t)chunks->codec->nbytes(chunks->config, chunk_count(chunks, r));
        chunks->theirs[r] = (int64_t)chunks->codec->nbytes(chunks->config, chunk_count(chunks, chunks->rank));
    }
    return TRI_OK;
}

static tri_status allocate_before(compress_chunks *chunks)
{
    if (!chunks->undoes)
        return TRI_OK;
    chunks->lost_before = tri_alloc_bulk((size_t)chunks->count * sizeof(float));
    chunks->chunk_before = tri_alloc_bulk((size_t)chunk_count(chunks, chunks->rank) * sizeof(float) + 1);
    return chunks->lost_before && chunks->chunk_before ? TRI_OK : TRI_ENOMEM;
}

static tri_status chunks_allocate(compress_chunks *chunks)
{
    size_t all = 0, mine = 0;
    for (int r = 0; r < chunks->ranks; r++) {
        all += (size_t)chunks->own[r];
        mine += (size_t)chunks->theirs[r];
    }
    size_t nbytes = (size_t)chunks->count * sizeof(float);
    chunks->values = tri_alloc_bulk(nbytes);
    chunks->lost = chunks->feeds_back ? tri_alloc_bulk(nbytes) : NULL;
    chunks->chunk = tri_alloc_bulk((size_t)chunk_count(chunks, chunks->rank) * sizeof(float) + 1);
    chunks->sent = tri_alloc_bulk(all + 1);
    chunks->summed = tri_alloc_bulk(all + 1);
    chunks->received = tri_alloc_bulk(mine + 1);
    bool there = chunks->values && (chunks->lost || !chunks->feeds_back) && chunks->chunk && chunks->sent &&
                 chunks->summed && chunks->received;
    return there ? allocate_before(chunks) : TRI_ENOMEM;
}

tri_status tri_chunks_create(const tri_compress_setup *setup, const tri_compress_ops *ops, const tri_codec *codec,
                             tri_compress **out)
{
    compress_chunks *chunks = tri_alloc_zero(1, sizeof(*chunks));
    if (!chunks)
        return TRI_ENOMEM;
    chunks->base.ops = ops;
    chunks->codec = codec;
    chunks->config = setup->config;
    chunks->group = setup->group;
    chunks->rank = tri_group_rank(setup->group);
    chunks->ranks = tri_group_count(setup->group);
    chunks->feeds_back = codec->feeds_back && !setup->forgets;
    chunks->undoes = chunks->feeds_back && setup->undoes;
    chunks->span_count = setup->span_count;
    chunks->count = tri_compress_count(setup->spans, setup->span_count);
    chunks->spans = tri_spans_copy(setup);
    snprintf(chunks->name, sizeof(chunks->name), "%s", setup->name);
    tri_status status = chunks->spans ? chunks_cut(chunks) : TRI_ENOMEM;
    if (status == TRI_OK)
        status = chunks_allocate(chunks);
    if (status != TRI_OK) {
        tri_chunks_destroy(&chunks->base);
        return status;
    }
    *out = &chunks->base;
    return TRI_OK;
}

static void swap(float **a, float **b)
{
    float *array = *a;
    *a = *b;
    *b = array;
}

static tri_status wait_leg(compress_chunks *chunks)
{
    tri_work *work = chunks->work;
    chunks->work = NULL;
    return tri_work_wait(work);
}

tri_status tri_chunks_send(tri_compress *compress, const float *values)
{
    compress_chunks *chunks = tri_container_of(compress, compress_chunks, base);
    size_t nbytes = (size_t)chunks->count * sizeof(float);
    if (chunks->undoes)
        swap(&chunks->lost, &chunks->lost_before);
    if (chunks->feeds_back)
        memcpy(chunks->values, chunks->undoes ? chunks->lost_before : chunks->lost, nbytes);
    else
        memset(chunks->values, 0, nbytes);
    tri_spans_add(chunks->spans, chunks->span_count, values, chunks->values);
    char *bytes = chunks->sent;
    for (int r = 0; r < chunks->ranks; bytes += chunks->own[r++])
        chunks->codec->encode(chunks->config, chunks->values + chunks->firsts[r], chunk_count(chunks, r), bytes);
    if (chunks->feeds_back)
        memcpy(chunks->lost, chunks->values, nbytes);
    tri_blocks to = {chunks->own, NULL}, from = {chunks->theirs, NULL};
    tri_group_name_next(chunks->group, chunks->name);
    return tri_all_to_all_v(chunks->group, chunks->sent, &to, chunks->received, &from, TRI_U8, &chunks->work);
}

tri_status tri_chunks_turn(tri_compress *compress)
{
    compress_chunks *chunks = tri_container_of(compress, compress_chunks, base);
    int64_t count = chunk_count(chunks, chunks->rank);
    TRI_TRY(wait_leg(chunks));
    if (!chunks->feeds_back)
        memset(chunks->chunk, 0, (size_t)count * sizeof(float));
    if (chunks->undoes)
        memcpy(chunks->chunk_before, chunks->chunk, (size_t)count * sizeof(float));
    const char *bytes = chunks->received;
    for (int r = 0; r < chunks->ranks; bytes += chunks->theirs[r++])
        chunks->codec->add(chunks->config, bytes, count, chunks->chunk);
    char *summed = chunks->summed;
    for (int r = 0; r < chunks->rank; r++)
        summed += chunks->own[r];
    chunks->codec->encode(chunks->config, chunks->chunk, count, summed);
    tri_blocks blocks = {chunks->own, NULL};
    tri_group_name_next(chunks->group, chunks->name);
    return tri_all_gather_v(chunks->group, summed, chunks->summed, &blocks, TRI_U8, &chunks->work);
}

tri_status tri_chunks_take(tri_compress *compress, float *values)
{
    compress_chunks *chunks = tri_container_of(compress, compress_chunks, base);
    TRI_TRY(wait_leg(chunks));
    memset(chunks->values, 0, (size_t)chunks->count * sizeof(float));
    const char *bytes = chunks->summed;
    for (int r = 0; r < chunks->ranks; bytes += chunks->own[r++])
        chunks->codec->add(chunks->config, bytes, chunk_count(chunks, r), chunks->values + chunks->firsts[r]);
    tri_spans_put(chunks->spans, chunks->span_count, chunks->values, values);
    return TRI_OK;
}

void tri_chunks_undo(tri_compress *compress)
{
    compress_chunks *chunks = tri_container_of(compress, compress_chunks, base);
    TRI_ASSERT(chunks->undoes || !chunks->feeds_back);
    if (!chunks->undoes)
        return;
    swap(&chunks->lost, &chunks->lost_before);
    swap(&chunks->chunk, &chunks->chunk_before);
}
