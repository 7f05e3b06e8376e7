/* SPDX-License-Identifier: Apache-2.0
 *
 * peak.c: what the rate of a run is compared with: multiply-adds of its precision that this rank's threads reach,
 * measured once for a run folder and kept in its peak.json.
 *
 * Rank 0 speaks for all: the peak of the job is its peak times the number of ranks.
 */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
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

static tri_status peak_write(const char *path, const char *of, int threads, double peak)
{
    tri_string text = {0};
    tri_json json = tri_json_object(&text);
    tri_json_text(&json, "what", "multiply-adds of one worker, measured; flop/s");
    tri_json_text(&json, "of", of);
    tri_json_int(&json, "threads", threads);
    tri_json_text(&json, "kernels", tri_kernel_arithmetic());
    tri_json_real(&json, "flops", peak);
    tri_status status = tri_json_end(&json);
    if (status == TRI_OK)
        status = tri_string_append(&text, "\n");
    if (status == TRI_OK)
        status = tri_fs_write_atomic(path, tri_string_text(&text), text.nbytes);
    tri_string_fini(&text);
    return status;
}

static tri_status form(tri_job *job)
{
    char path[1200] = "";
    double peak = 0;
    const tri_dtype precision = job->config.train.precision == TRI_PRECISION_BF16 ? TRI_BF16 : TRI_F32;
    const char *of = tri_dtype_name(precision);
    if (job->device->ops->arithmetic) /* of a card nobody has measured it: there is no MFU */
        return TRI_OK;
    if (job->rank != 0 || (!job->output.folder && !job->output.console))
        return TRI_OK;
    if (job->output.folder) {
        snprintf(path, sizeof(path), "%s/peak.json", job->output.folder);
        peak = peak_read(path, of, job->threads);
    }
    if (peak == 0) {
        peak = tri_kernel_peak(precision, job->threads, MEASURE_S);
        if (job->output.folder)
            TRI_TRY_IN(peak_write(path, of, job->threads, peak), "while keeping the measured peak");
    }
    job->throughput.peak_flops = peak * job->world;
    if (job->output.console)
        tri_log(TRI_LOG_DEBUG, "peak %.0f GFLOP/s (%d x %s on %d thread%s); MFU is relative to it",
                job->throughput.peak_flops / 1e9, job->world, of, job->threads, job->threads == 1 ? "" : "s");
    return TRI_OK;
}

const tri_feature tri_feature_peak = {.form = form};
