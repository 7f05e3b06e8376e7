/* SPDX-License-Identifier: Apache-2.0
 *
 * peak.c: what the rate of a run is compared with (MFU): multiply-adds of its precision that this rank's threads reach,
 * measured once for a run folder and kept in its peak.json; of a card, what its multiprocessors make at its highest
 * clock.
 *
 * Rank 0 speaks for all: the peak of the job is its peak times the number of ranks, or of their cards.
 */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "train/core/card.h"
#include "train/core/features.h"

#define MEASURE_S 0.05

/* What was measured here for as many threads of such a processor; 0: nothing. A file that is damaged is none. */
static double peak_read(const char *path, const char *of, int threads)
{
    char *text;
    size_t nbytes;
    tri_arena arena = {0};
    tri_yaml *root = NULL;
    int64_t of_threads = 0;
    double peak = 0;
    if (!tri_fs_exists(path) || tri_fs_read(path, 4096, &text, &nbytes) != TRI_OK)
        return 0;
    bool good = tri_yaml_parse(&arena, text, nbytes, path, &root) == TRI_OK &&
                tri_yaml_int(tri_yaml_find(root, "threads"), "threads", 1, 1 << 20, &of_threads) == TRI_OK &&
                tri_yaml_real(tri_yaml_find(root, "flops"), "flops", 1, 1e30, &peak) == TRI_OK;
    const tri_yaml *kernels = good ? tri_yaml_find(root, "kernels") : NULL;
    const tri_yaml *type = good ? tri_yaml_find(root, "of") : NULL;
    good = good && of_threads == threads && kernels && kernels->text &&
           strcmp(kernels->text, tri_kernel_arithmetic()) == 0 && type && type->text && strcmp(type->text, of) == 0;
    tri_arena_fini(&arena);
    tri_free(text);
    return good ? peak : 0;
}

/* threads 0: it is a card's. */
static tri_status peak_write(const char *path, const char *of, const char *kernels, int threads, double peak)
{
    tri_string text = {0};
    tri_json json = tri_json_object(&text);
    tri_json_text(&json, "what",
                  threads > 0 ? "multiply-adds of one worker, measured; flop/s"
                              : "multiply-adds of one card by its multiprocessors and its highest clock; flop/s");
    tri_json_text(&json, "of", of);
    if (threads > 0)
        tri_json_int(&json, "threads", threads);
    tri_json_text(&json, "kernels", kernels);
    tri_json_real(&json, "flops", peak);
    tri_status status = tri_json_end(&json);
    if (status == TRI_OK)
        status = tri_string_append(&text, "\n");
    if (status == TRI_OK)
        status = tri_fs_write_atomic(path, tri_string_text(&text), text.nbytes);
    tri_string_fini(&text);
    return status;
}

/* Different cards of all ranks. Collective. */
static tri_status cards_count(const tri_job *job, int *cards)
{
    int64_t *facts;
    int count;
    *cards = 0;
    TRI_TRY(tri_card_facts(job->comm, job->device, &(tri_job_memory){0}, 0, &facts, &count));
    for (int r = 0; r < count; r++)
        *cards += tri_card_crew_of(facts, count, r).first == r;
    tri_free(facts);
    return TRI_OK;
}

static bool is_wanted(const tri_job *job)
{
    return job->rank == 0 && (job->output.folder || job->output.console);
}

static void path_make(const tri_job *job, char path[1200])
{
    path[0] = 0;
    if (job->output.folder)
        snprintf(path, 1200, "%s/peak.json", job->output.folder);
}

static tri_status form_cards(tri_job *job)
{
    char path[1200];
    tri_device_rates rates;
    int cards;
    const tri_precision precision = job->config.train.precision;
    const char *of = tri_dtype_name(precision == TRI_PRECISION_BF16  ? TRI_BF16
                                    : precision == TRI_PRECISION_F16 ? TRI_F16
                                                                     : TRI_F32);
    TRI_TRY(cards_count(job, &cards));
    TRI_TRY(job->device->ops->rates(job->device, &rates));
    if (!is_wanted(job))
        return TRI_OK;
    const double peak = precision == TRI_PRECISION_F32 ? rates.flops : rates.half_flops;
    path_make(job, path);
    if (path[0])
        TRI_TRY_IN(peak_write(path, of, job->device->ops->arithmetic(job->device), 0, peak),
                   "while keeping the peak of a card");
    job->throughput.peak_flops = peak * cards;
    if (job->output.console)
        tri_log(TRI_LOG_DEBUG,
                "peak %.0f GFLOP/s (%d x %s, by multiprocessors and highest clock); MFU is relative to it",
                job->throughput.peak_flops / 1e9, cards, of);
    return TRI_OK;
}

static tri_status form(tri_job *job)
{
    char path[1200];
    double peak = 0;
    const tri_dtype precision = job->config.train.precision == TRI_PRECISION_BF16 ? TRI_BF16 : TRI_F32;
    const char *of = tri_dtype_name(precision);
    if (job->device->ops->rates)
        return form_cards(job);
    if (!is_wanted(job))
        return TRI_OK;
    path_make(job, path);
    if (path[0])
        peak = peak_read(path, of, job->threads);
    if (peak == 0) {
        peak = tri_kernel_peak(precision, job->threads, MEASURE_S);
        if (path[0])
            TRI_TRY_IN(peak_write(path, of, tri_kernel_arithmetic(), job->threads, peak),
                       "while keeping the measured peak");
    }
    job->throughput.peak_flops = peak * job->world;
    if (job->output.console)
        tri_log(TRI_LOG_DEBUG, "peak %.0f GFLOP/s (%d x %s on %d thread%s); MFU is relative to it",
                job->throughput.peak_flops / 1e9, job->world, of, job->threads, job->threads == 1 ? "" : "s");
    return TRI_OK;
}

const tri_feature tri_feature_peak = {.form = form};
