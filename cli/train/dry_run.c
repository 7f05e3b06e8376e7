/* SPDX-License-Identifier: Apache-2.0
 *
 * dry_run.c: `trireme train --dry-run`: the resolved configuration, and what a worker would need.
 */
#include <stdio.h>

#include "cli/command.h"
#include "cli/train/train.h"
#include "train/core/job.h"
#include "train/core/plan.h"

/* "1.5 MiB". */
static const char *print_nbytes(size_t nbytes, char text[32])
{
    const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double value = (double)nbytes / 1024;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < TRI_COUNT_OF(units); unit++)
        value /= 1024;
    snprintf(text, 32, "%.1f %s", value, units[unit]);
    return text;
}

/* As comments, so that what --dry-run prints stays a configuration. Data that are elsewhere are no reason to fail; what
 * the configuration itself says wrongly is. */
static tri_status plan_append(const tri_config *config, int ranks, tri_string *text)
{
    if (config->parallel.layout == TRI_LAYOUT_AUTO)
        return tri_string_appendf(text,
                                  "# memory of a worker: parallel.layout is auto: 'trireme plan' with the same words "
                                  "tells of each layout\n");
    tri_job_memory memory;
    tri_string notes = {0};
    char weights[32], gradients[32], optimizer[32], activations[32], apart[32], snapshot[32], host[32];
    tri_status status = tri_job_describe(config, ranks, &memory, "# ", &notes);
    if (status == TRI_OK)
        status = tri_string_appendf(
            text,
            "# memory of a worker%s, of %d%s: weights %s, gradients %s, optimizer %s, activations %s "
            "(%s if unshared)%s%s%s%s\n%s",
            memory.card ? " on its card" : "", ranks,
            config->parallel.zero_ranks == TRI_ZERO_RANKS_HOST ? " on one host" : "",
            print_nbytes(memory.weights, weights), print_nbytes(memory.gradients, gradients),
            print_nbytes(memory.optimizer, optimizer), print_nbytes(memory.activations, activations),
            print_nbytes(memory.activations_apart, apart), memory.card ? "; on the host " : "",
            memory.card ? print_nbytes(memory.host, host) : "", memory.snapshot > 0 ? ", copy for checkpoints " : "",
            memory.snapshot > 0 ? print_nbytes(memory.snapshot, snapshot) : "", tri_string_text(&notes));
    else if (status != TRI_ECONFIG)
        status = tri_string_appendf(text, "# memory of a worker: not known: %s\n", tri_last_error());
    tri_string_fini(&notes);
    return status;
}

int tri_train_dry_run(tri_config *config, int ranks)
{
    tri_string text = {0};
    tri_status status = tri_config_model_find(config);
    if (status == TRI_OK)
        status = tri_config_print(config, &text);
    if (status == TRI_OK)
        status = plan_append(config, ranks, &text);
    fputs(tri_string_text(&text), stdout);
    tri_string_fini(&text);
    return status == TRI_OK ? 0 : tri_command_fail(status);
}
