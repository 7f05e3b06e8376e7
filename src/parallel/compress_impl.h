/* SPDX-License-Identifier: Apache-2.0
 *
 * compress_impl.h: the rows that compress.c lists, and what those share that send elements one by one.
 *
 * They cut the spans, laid end to end, into a chunk for each rank: everybody sends each rank its chunk in the bytes of
 * a codec, the rank adds them in order of the ranks and sends the sum to all in such bytes again. What the second leg
 * loses stays with the rank whose chunk it is. Source of the two legs: Tang, Lian, Yu, Zhang, Liu, "DoubleSqueeze:
 * parallel stochastic gradient descent with double-pass error-compensated compression", ICML 2019.
 */
#ifndef TRI_PARALLEL_COMPRESS_IMPL_H
#define TRI_PARALLEL_COMPRESS_IMPL_H

#include "parallel/compress.h"

extern const tri_compress_ops tri_compress_bf16, tri_compress_int8, tri_compress_topk, tri_compress_powersgd;

/* A row of elements as bytes. */
typedef struct tri_codec {
    bool feeds_back; /* `encode` leaves in values what the bytes do not say */
    size_t (*nbytes)(const tri_parallel_config *config, int64_t count);
    void (*encode)(const tri_parallel_config *config, float *values, int64_t count, void *bytes);
    /* sums[i] grows by element i. */
    void (*add)(const tri_parallel_config *config, const void *bytes, int64_t count, float *sums);
} tri_codec;

tri_status tri_chunks_create(const tri_compress_setup *setup, const tri_compress_ops *ops, const tri_codec *codec,
                             tri_compress **out);
size_t tri_chunks_nbytes(const tri_compress_setup *setup, const tri_codec *codec, int ranks);
tri_status tri_chunks_send(tri_compress *compress, const float *values);
tri_status tri_chunks_turn(tri_compress *compress);
tri_status tri_chunks_take(tri_compress *compress, float *values);
void tri_chunks_undo(tri_compress *compress);
void tri_chunks_destroy(tri_compress *compress);

/* A sum of that kind in two bits an element, with feedback: for what another row's bytes do not say. No row itself. */
tri_status tri_two_bits_create(const tri_compress_setup *setup, tri_compress **out);
size_t tri_two_bits_sum_nbytes(const tri_compress_setup *setup, int ranks);

/* The slots of a row of that kind. */
#define TRI_CHUNKS_SLOTS                                                                                               \
    .send = tri_chunks_send, .turn = tri_chunks_turn, .take = tri_chunks_take, .undo = tri_chunks_undo,                \
    .destroy = tri_chunks_destroy

/* packed, the spans end to end, grows by their elements. */
void tri_spans_add(const tri_compress_span *spans, int span_count, const float *values, float *packed);
/* And back, over what is there. */
void tri_spans_put(const tri_compress_span *spans, int span_count, const float *packed, float *values);
/* A copy of the setup's spans; NULL: no memory. */
tri_compress_span *tri_spans_copy(const tri_compress_setup *setup);

#endif
