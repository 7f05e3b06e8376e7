/* SPDX-License-Identifier: Apache-2.0
 *
 * reference_attention.c: what attention means. Plain loops in double, one row after the other.
 *
 * attention: y[t] = sum over u <= t of p[u] v[u], p = softmax of q[t] k[u] / sqrt(D) over u <= t; head h of the queries
 * reads head h / (H / K) of keys and values. With a rate some of p[u] are left out, the others divided by 1 - rate.
 */
#include <math.h>

#include "kernel/infer.h"

static double dot(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return sum;
}

/* One row of queries of one head, as offsets from the sample's first row. */
typedef struct place {
    int64_t head, t;
    const float *q, *k, *v; /* k and v: of place 0 */
} place;

static place place_make(const tri_heads *h, const float *sample, int64_t head, int64_t t)
{
    const float *k = sample + (h->queries + head / h->group) * h->width;
    return (place){head, t, sample + t * h->stride + head * h->width, k, k + h->keys * h->width};
}

static void weights(const tri_heads *h, const place *at, double *p)
{
    double top = -INFINITY, sum = 0;
    for (int64_t u = 0; u <= at->t; u++) {
        p[u] = dot(at->q, at->k + u * h->stride, h->width) / sqrt((double)h->width);
        top = fmax(top, p[u]);
    }
    for (int64_t u = 0; u <= at->t; u++) {
        p[u] = exp(p[u] - top);
        sum += p[u];
    }
    for (int64_t u = 0; u <= at->t; u++) {
        p[u] /= sum;
    }
}

/* What weights are multiplied with. */
static const float *keep_make(const tri_attention_drop *drop, int64_t b, const place *at, float *keep)
{
    if (drop->on) {
        tri_attention_drop_row(drop, b, at->head, at->t, 0, at->t + 1, keep);
        return keep;
    }
    for (int64_t u = 0; u <= at->t; u++) {
        keep[u] = 1;
    }
    return keep;
}

static tri_status attention_plan(const tri_op_desc *desc, tri_kernel *kernel)
{
    const tri_heads h = tri_heads_make(desc);
    kernel->scratch_nbytes = (size_t)(3 * h.length + h.length * h.stride) * sizeof(double);
    return TRI_OK;
}

static void attention_forward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_heads h = tri_heads_make(&kernel->desc);
    const tri_attention_drop drop = tri_attention_drop_make(kernel, call);
    double *p = call->scratch;
    float *room = (float *)(void *)(p + h.length);
    for (int64_t row = 0; row < h.samples * h.length * call->shards; row++) {
        const float *sample = (const float *)call->input[0] + row / h.length * h.length * h.stride;
        for (int64_t head = 0; head < h.queries; head++) {
            const place at = place_make(&h, sample, head, row % h.length);
            float *y = (float *)call->output + (row * h.queries + head) * h.width;
            const float *keep = keep_make(&drop, row / h.length, &at, room);
            weights(&h, &at, p);
            for (int64_t c = 0; c < h.width; c++) {
                double sum = 0;
                for (int64_t u = 0; u <= at.t; u++) {
                    sum += p[u] * (double)keep[u] * (double)at.v[u * h.stride + c];
                }
                y[c] = (float)sum;
            }
        }
    }
}

/* Adds the gradients of one query to dx, a sample of them. */
static void place_backward(const tri_heads *h, const place *at, const float *dy, const float *keep, double *p,
                           double *dp, double *dx)
{
    const int64_t key = (h->queries + at->head / h->group) * h->width, value = key + h->keys * h->width;
    const int64_t query = at->t * h->stride + at->head * h->width;
    double mean = 0;
    weights(h, at, p);
    for (int64_t u = 0; u <= at->t; u++) {
        dp[u] = dot(dy, at->v + u * h->stride, h->width) * (double)keep[u];
        mean += p[u] * dp[u];
    }
    for (int64_t u = 0; u <= at->t; u++) {
        const double ds = p[u] * (dp[u] - mean) / sqrt((double)h->width);
        for (int64_t c = 0; c < h->width; c++) {
            dx[query + c] += ds * (double)at->k[u * h->stride + c];
            dx[u * h->stride + key + c] += ds * (double)at->q[c];
            dx[u * h->stride + value + c] += p[u] * (double)keep[u] * (double)dy[c];
        }
    }
}

static void attention_backward(const tri_kernel *kernel, const tri_op_call *call)
{
    const tri_heads h = tri_heads_make(&kernel->desc);
    const int64_t each = h.length * h.stride;
    const tri_attention_drop drop = tri_attention_drop_make(kernel, call);
    double *p = call->scratch, *dp = p + h.length, *dx = dp + h.length;
    float *room = (float *)(void *)(dx + each);
    for (int64_t b = 0; call->dinput[0] != NULL && b < h.samples * call->shards; b++) {
        const float *sample = (const float *)call->input[0] + b * each;
        memset(dx, 0, (size_t)each * sizeof(double));
        for (int64_t i = 0; i < h.length * h.queries; i++) {
            const place at = place_make(&h, sample, i % h.queries, i / h.queries);
            const float *keep = keep_make(&drop, b, &at, room);
            place_backward(&h, &at, (const float *)call->doutput + (b * h.length * h.queries + i) * h.width, keep, p,
                           dp, dx);
        }
        for (int64_t i = 0; i < each; i++) {
            ((float *)call->dinput[0])[b * each + i] = (float)dx[i];
        }
    }
}

static tri_status infer_attention(tri_op_desc *desc)
{
    TRI_TRY(tri_infer_heads(desc));
    if (!(desc->attr.rate >= 0 && desc->attr.rate < 1)) {
        return tri_fail(TRI_EINVAL, "attention: want a dropout of 0 to below 1, got %g", (double)desc->attr.rate);
    }
    const tri_heads h = tri_heads_make(desc);
    desc->output.dim[2] = h.width * h.queries;
    return TRI_OK;
}

/* Scores, then the mix of values; on average half of the places are looked at. */
static double attention_products(const tri_op_desc *desc)
{
    return (double)tri_shape_count(desc->output) * (double)desc->input[0].dim[1];
}

const tri_op_ops tri_op_attention = {
    .infer = infer_attention,
    .products = attention_products,
    .squares = true,
    .per_token = true,
    .reference.plan = attention_plan,
    .reference.forward = attention_forward,
    .reference.backward = attention_backward,
    .reference.backward_input = true,
};
