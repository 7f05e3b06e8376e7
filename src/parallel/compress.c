/* SPDX-License-Identifier: Apache-2.0
 *
 * compress.c: the table of compressors, and what of the gradients they are given: matrices that somebody trains. The
 * rest is small, or must not be rounded.
 */
#include "parallel/compress.h"

#include <string.h>

#include "base/memory.h"
#include "parallel/compress_impl.h"

const tri_compress_ops *const tri_compress_table[] = {[TRI_COMPRESS_NONE] = NULL,
                                                      [TRI_COMPRESS_BF16] = &tri_compress_bf16,
                                                      [TRI_COMPRESS_INT8] = &tri_compress_int8,
                                                      [TRI_COMPRESS_TOPK] = &tri_compress_topk,
                                                      [TRI_COMPRESS_POWERSGD] = &tri_compress_powersgd};

const tri_compress_ops *tri_compress_find(const tri_parallel_config *config)
{
    return tri_compress_table[config->compress];
}

bool tri_compress_is_used(const tri_parallel_config *config, int ranks, bool between_hosts)
{
    return tri_compress_find(config) && ranks > 1 && (between_hosts || config->compress_between == TRI_COMPRESS_RANKS);
}

/* The entry that a gradient belongs to; NULL: the tail. */
static const tri_param *entry_of(const tri_params *params, int number)
{
    if (number == tri_params_tail(params))
        return NULL;
    return &params->entries[number < params->entry_count ? number : params->ties[number - params->entry_count].entry];
}

/* Output channels, or words, are rows; all else makes the columns. */
static tri_compress_span span_of(const tri_params *params, int number)
{
    const tri_param *entry = entry_of(params, number);
    tri_compress_span span = {.first = tri_params_grad_first(params, number),
                              .count = entry ? entry->count : TRI_PARAMS_TAIL};
    span.rows = entry && entry->shape.ndim > 1 ? entry->shape.dim[0] : 1;
    span.columns = span.rows > 0 ? span.count / span.rows : 0;
    return span;
}

static bool is_taken(const tri_parallel_config *config, const tri_param *entry, const tri_compress_span *span)
{
    const tri_compress_ops *ops = tri_compress_find(config);
    bool matrix = ops && entry && !entry->buffer && entry->shape.ndim > 1;
    return matrix && (!ops->takes || ops->takes(config, span));
}

int tri_compress_spans(const tri_parallel_config *config, const tri_params *params, int first, int end, bool exact,
                       tri_compress_span *out)
{
    int count = 0;
    for (int number = first; number < end; number++) {
        const tri_param *entry = entry_of(params, number);
        tri_compress_span span = span_of(params, number);
        if ((entry && entry->frozen) || is_taken(config, entry, &span) == exact)
            continue;
        out[count++] = span;
    }
    return count;
}

tri_status tri_compress_memory(const tri_compress_setup *setup, const tri_params *params, int first, int end, int ranks,
                               size_t *nbytes)
{
    tri_compress_setup sum = *setup;
    tri_compress_span *spans = tri_alloc_zero((size_t)(end - first) + 1, sizeof(*spans));
    if (!spans)
        return TRI_ENOMEM;
    int exact = tri_compress_spans(sum.config, params, first, end, true, spans);
    *nbytes = (size_t)tri_compress_count(spans, exact) * sizeof(float);
    sum.spans = spans;
    sum.span_count = tri_compress_spans(sum.config, params, first, end, false, spans);
    if (sum.span_count > 0)
        *nbytes += tri_compress_find(sum.config)->nbytes(&sum, ranks);
    tri_free(spans);
    return TRI_OK;
}

double tri_compress_value_nbytes(const tri_parallel_config *config, bool undoes)
{
    enum { SIDE = 1024, RANKS = 8 };
    const tri_compress_span matrix = {.count = SIDE * SIDE, .rows = SIDE, .columns = SIDE};
    const tri_compress_setup sum = {.config = config, .spans = &matrix, .span_count = 1, .undoes = undoes};
    const tri_compress_ops *ops = tri_compress_find(config);
    return ops ? (double)ops->nbytes(&sum, RANKS) / (SIDE * SIDE) : 0;
}

int64_t tri_compress_count(const tri_compress_span *spans, int span_count)
{
    int64_t count = 0;
    for (int i = 0; i < span_count; i++)
        count += spans[i].count;
    return count;
}

tri_compress_span *tri_spans_copy(const tri_compress_setup *setup)
{
    tri_compress_span *spans = tri_alloc_zero((size_t)setup->span_count, sizeof(*spans));
    if (spans)
        memcpy(spans, setup->spans, (size_t)setup->span_count * sizeof(*spans));
    return spans;
}

void tri_spans_add(const tri_compress_span *spans, int span_count, const float *values, float *packed)
{
    for (int s = 0; s < span_count; packed += spans[s++].count)
        for (int64_t i = 0; i < spans[s].count; i++)
            packed[i] += values[spans[s].first + i];
}

void tri_spans_put(const tri_compress_span *spans, int span_count, const float *packed, float *values)
{
    for (int s = 0; s < span_count; packed += spans[s++].count)
        memcpy(values + spans[s].first, packed, (size_t)spans[s].count * sizeof(float));
}

void tri_compress_destroy(tri_compress *compress)
{
    if (compress)
        compress->ops->destroy(compress);
}
