/* SPDX-License-Identifier: Apache-2.0
 *
 * sync.c: the table of strategies, and the options of this floor.
 */
#include "parallel/sync.h"

#include <stdio.h>
#include <string.h>

#include "parallel/compress_impl.h"
#include "parallel/outer.h"
#include "parallel/sync_impl.h"

#define TRI_OPTION_STRUCT tri_parallel_config
static const tri_option rows[] = {TRI_PARALLEL_OPTIONS(TRI_OPTION_ROW)};
#undef TRI_OPTION_STRUCT
const tri_option_table tri_parallel_options =
    TRI_OPTION_TABLE("parallel", tri_parallel_config, rows, "how ranks share the work");

const tri_sync_ops *const tri_sync_table[] = {&tri_sync_ddp, &tri_sync_zero1, &tri_sync_local, &tri_sync_diloco, NULL};

static const tri_sync_ops *ops_find(const tri_parallel_config *config)
{
    for (int i = 0; tri_sync_table[i]; i++)
        if (strcmp(tri_sync_table[i]->name, config->sync) == 0)
            return tri_sync_table[i];
    return NULL;
}

bool tri_sync_is_sharded(const tri_parallel_config *config)
{
    const tri_sync_ops *ops = ops_find(config);
    return ops && ops->owned;
}

tri_sync_slice tri_sync_owned(const tri_parallel_config *config, const tri_params *params, int rank, int ranks)
{
    return tri_sync_is_sharded(config) ? ops_find(config)->owned(params, rank, ranks)
                                       : (tri_sync_slice){0, params->count};
}

bool tri_sync_is_apart(const tri_parallel_config *config)
{
    const tri_sync_ops *ops = ops_find(config);
    return ops && ops->meet;
}

static bool is_diloco(const tri_parallel_config *config)
{
    return ops_find(config) == &tri_sync_diloco;
}

size_t tri_sync_nbytes(const tri_parallel_config *config, const tri_params *params)
{
    return is_diloco(config) ? tri_outer_nbytes(params) : 0;
}

tri_status tri_sync_check(const tri_parallel_config *config)
{
    const tri_compress_ops *compress = tri_compress_find(config);
    bool elements = compress == &tri_compress_bf16 || compress == &tri_compress_int8;
    if (compress && ops_find(config) != &tri_sync_ddp && !(is_diloco(config) && elements))
        return tri_fail(TRI_ECONFIG, "parallel.compress: %s goes with parallel.sync allreduce%s, not with %s",
                        config->compress, elements ? " and diloco" : "", config->sync);
    if (is_diloco(config) && config->outer_fragments > config->local_steps)
        return tri_fail(TRI_ECONFIG,
                        "parallel.outer_fragments is %lld but parallel.local_steps is %lld: want at most a fragment a "
                        "step",
                        (long long)config->outer_fragments, (long long)config->local_steps);
    if (is_diloco(config) && config->outer_delay >= config->local_steps)
        return tri_fail(TRI_ECONFIG,
                        "parallel.outer_delay is %lld but parallel.local_steps is %lld: want sums that come before the "
                        "fragment leaves again",
                        (long long)config->outer_delay, (long long)config->local_steps);
    return TRI_OK;
}

const char *tri_sync_bits(const tri_parallel_config *config, int ranks, bool between_hosts,
                          char text[TRI_SYNC_BITS_NBYTES])
{
    text[0] = 0;
    if (tri_sync_is_apart(config) && (ranks > 1 || is_diloco(config)))
        snprintf(text, TRI_SYNC_BITS_NBYTES, "not reproducible across layouts (parallel.sync %.16s on %d ranks)",
                 config->sync, ranks);
    else if (tri_compress_is_used(config, ranks, between_hosts))
        snprintf(text, TRI_SYNC_BITS_NBYTES,
                 "not reproducible (parallel.compress %.16s on %d ranks: other layouts give "
                 "other bits)",
                 config->compress, ranks);
    return text;
}

tri_status tri_sync_create(const tri_sync_setup *setup, tri_sync **out)
{
    const tri_sync_ops *ops = ops_find(setup->config);
    if (!ops)
        return tri_fail(TRI_ECONFIG, "parallel.sync: there is no strategy '%s'", setup->config->sync);
    if (ops == &tri_sync_ddp &&
        tri_compress_is_used(setup->config, tri_group_count(setup->group), setup->between_hosts))
        ops = &tri_sync_compressed;
    return ops->create(setup, out);
}

void tri_sync_destroy(tri_sync *sync)
{
    if (sync)
        sync->ops->destroy(sync);
}
