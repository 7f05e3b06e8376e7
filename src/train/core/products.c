/* SPDX-License-Identifier: Apache-2.0
 *
 * products.c: which algorithms of a card's library multiply in a run: the same on all ranks, and a part of what the
 * bits depend on.
 *
 * Ranks of a pipeline have the products of their own stages, so the text of a run is made of those of all ranks: it is
 * the same in every layout.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "device/cuda/cublaslt.h"
#include "device/launch.h"
#include "train/core/build.h"
#include "train/core/job.h"

/* A product and its algorithm, as hashes. */
typedef struct row {
    int64_t product, algorithm;
    int64_t own, refused; /* our own kernel multiplies; algorithms that the probe refused */
} row;
#define ROW_COUNT ((int64_t)(sizeof(row) / sizeof(int64_t)))

static row row_make(const tri_product_choice *choice)
{
    char text[192];
    const tri_gpu_product *p = &choice->product;
    snprintf(text, sizeof(text), "%" PRId64 ".%" PRId64 ".%" PRId64 " %" PRId64 ".%" PRId64 ".%d", p->m, p->n, p->k,
             p->type, p->c_type, (int)(16 * p->bias + 8 * p->relu + 4 * p->a_along + 2 * p->b_along + p->adds));
    const uint64_t steps = tri_rng_stream("steps", (uint64_t)p->a_step, (uint64_t)p->b_step);
    const uint64_t strides = tri_rng_stream("strides", (uint64_t)p->a_stride, (uint64_t)p->b_stride);
    return (row){.product = (int64_t)tri_rng_stream(text, steps, strides),
                 .algorithm = (int64_t)tri_rng_stream(choice->own ? "own" : choice->algorithm.text, 0, 0),
                 .own = choice->own,
                 .refused = choice->refused};
}

static int row_compare(const void *left, const void *right)
{
    const row *a = left, *b = right;
    return a->product < b->product ? -1 : a->product > b->product;
}

/* The rows of all ranks, `each` of every rank; those behind its own are zeros. */
static tri_status rows_gather(tri_job *job, row **out, int64_t *each)
{
    const tri_cublaslt *library = tri_gpu_library_of(job->device);
    const char *text = job->device->ops->arithmetic(job->device);
    const int64_t count = library ? library->choice_count : 0;
    const int64_t mine[] = {count, (int64_t)tri_rng_stream(text, 0, 0)};
    int64_t *all = tri_alloc((size_t)job->world * sizeof(mine));
    if (!all)
        return TRI_ENOMEM;
    memcpy(all, mine, sizeof(mine));
    tri_status status = job->world > 1 ? tri_all_gather(job->group, mine, all, 2, TRI_I64, NULL) : TRI_OK;
    *each = 0;
    for (int r = 0; r < job->world && status == TRI_OK; r++) {
        *each = all[2 * r] > *each ? all[2 * r] : *each;
        if (all[2 * r + 1] != all[1])
            status = tri_fail(TRI_EMISMATCH, "rank %d has another card, build or library than rank 0 (rank %d: %s)", r,
                              job->rank, text);
    }
    tri_free(all);
    TRI_TRY(status);
    const size_t rows = (size_t)(*each > 0 ? *each : 1);
    row *own = tri_alloc_zero(rows, sizeof(*own));
    *out = tri_alloc_zero(rows * (size_t)job->world, sizeof(**out));
    for (int64_t i = 0; i < count && own; i++)
        own[i] = row_make(&library->choices[i]);
    if (own && *out && job->world == 1)
        memcpy(*out, own, rows * sizeof(*own));
    status = !own || !*out    ? TRI_ENOMEM
             : job->world > 1 ? tri_all_gather(job->group, own, *out, (int64_t)rows * ROW_COUNT, TRI_I64, NULL)
                              : TRI_OK;
    tri_free(own);
    return status;
}

/* One row for each product; TRI_EMISMATCH: two ranks would multiply it in two ways. */
static tri_status rows_join(const tri_job *job, row *rows, int64_t each, int64_t *count)
{
    const int64_t all = each * job->world;
    *count = 0;
    qsort(rows, (size_t)all, sizeof(*rows), row_compare);
    for (int64_t i = 0; i < all; i++) {
        row *last = *count > 0 ? &rows[*count - 1] : NULL;
        if (rows[i].product == 0)
            continue;
        if (last && last->product == rows[i].product && last->algorithm != rows[i].algorithm)
            return tri_fail(TRI_EMISMATCH,
                            "two ranks multiply a product of the model by different algorithms of %s: "
                            "want cards of one kind, or train.kernels=cuda_own",
                            tri_gpu_library_of(job->device)->name);
        if (!last || last->product != rows[i].product)
            rows[(*count)++] = rows[i];
    }
    return TRI_OK;
}

/* On rank 0, once: who multiplies. */
static void rows_tell(const tri_job *job, const row *rows, int64_t count)
{
    int64_t own = 0, refused = 0;
    char also[128] = "";
    for (int64_t i = 0; i < count; i++) {
        own += rows[i].own;
        refused += rows[i].refused;
    }
    if (refused > 0)
        snprintf(also, sizeof(also), "; %" PRId64 " algorithms are not used: they fail the probe (docs/gpu.md)",
                 refused);
    if (!tri_gpu_library_of(job->device))
        tri_log(TRI_LOG_INFO, "matrix products: by our own kernels%s%s", job->card.no_library[0] ? ": " : "",
                job->card.no_library);
    else
        tri_log(TRI_LOG_INFO, "matrix products: %" PRId64 " by %s, %" PRId64 " by our own kernels%s", count - own,
                tri_gpu_library_of(job->device)->name, own, also);
}

tri_status tri_job_products_meet(tri_job *job)
{
    char before[sizeof(job->identity.arithmetic)];
    row *rows = NULL;
    int64_t each, count = 0;
    if (!job->device->ops->arithmetic)
        return TRI_OK;
    if (job->world > 1)
        tri_group_name_next(job->group, "algorithms of matrix products");
    tri_status status = rows_gather(job, &rows, &each);
    if (job->world > 1)
        tri_group_name_next(job->group, "");
    if (status == TRI_OK)
        status = rows_join(job, rows, each, &count);
    snprintf(before, sizeof(before), "%s", job->identity.arithmetic);
    uint64_t hash = 0;
    for (int64_t i = 0; i < count && status == TRI_OK; i++)
        hash = tri_rng_stream("algorithms", hash, (uint64_t)rows[i].product ^ (uint64_t)rows[i].algorithm);
    const char *text = job->device->ops->arithmetic(job->device);
    if (count > 0)
        snprintf(job->identity.arithmetic, sizeof(job->identity.arithmetic), "%s, algorithms %08x", text,
                 (unsigned)(hash >> 32));
    else
        snprintf(job->identity.arithmetic, sizeof(job->identity.arithmetic), "%s", text);
    if (status == TRI_OK && job->rank == 0 && !tri_job_follows(job) && strcmp(before, job->identity.arithmetic) != 0)
        rows_tell(job, rows, count);
    tri_free(rows);
    return status;
}
