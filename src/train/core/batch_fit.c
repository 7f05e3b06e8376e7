/* SPDX-License-Identifier: Apache-2.0
 *
 * batch_fit.c: train.batch auto: the largest batch, shards times a power of two, that the workers' memory holds: that
 * of the host, and with a card its own.
 *
 * Nothing is tried out: what a worker needs is planned (plan.c). It is a line over the batch, so two points give it;
 * the batch found is planned once more, and halved while that says otherwise. The data set is a bound too.
 */
#include <inttypes.h>
#include <math.h>

#include "device/device.h"
#include "plan/measure.h"
#include "train/core/card.h"
#include "train/core/job.h"
#include "train/core/plan.h"

#define MEMORY_SHARE 0.8 /* of what a worker has: data, batches under way and the program itself are in no plan */
#define FIRST_FACTOR 4   /* the first point of the line, in shards: below it scratch of ops may hide the slope */

typedef struct batch_search {
    tri_config *config;
    int ranks;
    int64_t most; /* samples there are */
    double limit; /* bytes of a worker on its card, without one on the host */
    double host_limit;
    double needed, host_needed; /* the same at the batch planned last */
} batch_search;

/* Of what there is; above 1 it does not fit. */
static double load_of(const batch_search *search)
{
    return fmax(search->needed / search->limit, search->host_needed / search->host_limit);
}

static tri_status batch_plan(batch_search *search, int64_t batch)
{
    tri_job_memory memory;
    search->config->train.batch = batch;
    TRI_TRY_IN(tri_job_memory_plan(search->config, search->ranks, &memory), "train.batch auto: with %" PRId64, batch);
    search->needed = (double)tri_job_memory_nbytes(&memory);
    search->host_needed = (double)tri_job_memory_host(&memory);
    return TRI_OK;
}

static tri_status too_large(const batch_search *search, int64_t batch)
{
    const double mib = 1 << 20;
    const bool card = tri_device_is_card(search->config->train.device), there = card && search->needed > search->limit;
    return tri_fail(TRI_ECONFIG,
                    "train.batch auto: the smallest, %" PRId64 " (one sample a shard), takes %.0f MiB of a worker%s, "
                    "and each of %d has %.0f MiB",
                    batch, (there ? search->needed : search->host_needed) / mib,
                    there  ? " on the card"
                    : card ? " on the host"
                           : "",
                    search->ranks, (there ? search->limit : search->host_limit) / mib);
}

/* Where the line through two points meets the limit, as shards times a power of two. */
static tri_status line_follow(batch_search *search, int64_t *found)
{
    const int64_t shards = search->config->train.shards;
    int64_t first = shards * FIRST_FACTOR;
    while (first > shards && 2 * first > search->most)
        first /= 2;
    *found = shards;
    if (2 * first > search->most)
        return TRI_OK;
    TRI_TRY(batch_plan(search, first));
    const double below = load_of(search);
    TRI_TRY(batch_plan(search, 2 * first));
    const double slope = (load_of(search) - below) / (double)first;
    while (2 * *found <= search->most && below + slope * (double)(2 * *found - first) <= 1)
        *found *= 2;
    return TRI_OK;
}

static tri_status batch_search_run(batch_search *search, int64_t *found)
{
    TRI_TRY(line_follow(search, found));
    TRI_TRY(batch_plan(search, *found));
    while (load_of(search) > 1) {
        if (*found == search->config->train.shards)
            return too_large(search, *found);
        *found /= 2;
        TRI_TRY(batch_plan(search, *found));
    }
    return TRI_OK;
}

tri_status tri_batch_fit(tri_config *config, int ranks)
{
    if (!config->batch_auto)
        return TRI_OK;
    if (config->parallel.layout == TRI_LAYOUT_AUTO)
        return tri_fail(TRI_ECONFIG,
                        "train.batch auto and parallel.layout auto: want one of them, each needs the other");
    tri_dataset *dataset;
    TRI_TRY(tri_config_tokenizer_find(config, NULL));
    TRI_TRY_IN(tri_dataset_open(&config->data, false, &dataset), "train.batch auto: while counting samples");
    batch_search search = {.config = config,
                           .ranks = ranks,
                           .most = dataset->info.count,
                           .host_limit = MEMORY_SHARE * tri_plan_host_memory(ranks) / ranks};
    tri_dataset_close(dataset);
    double card_nbytes;
    TRI_TRY(tri_card_free(config, ranks, &card_nbytes)); /* all workers are on this machine */
    search.limit = isfinite(card_nbytes) ? TRI_CARD_SHARE * card_nbytes : search.host_limit;
    if (!isfinite(search.host_limit))
        return tri_fail(TRI_ECONFIG,
                        "train.batch auto: the memory of this machine is not known (/proc/meminfo): want a "
                        "number");
    config->batch_auto = false;
    TRI_TRY(tri_config_check(config, ranks));
    int64_t found = 0;
    TRI_TRY(batch_search_run(&search, &found));
    config->train.batch = found;
    return TRI_OK;
}
