/* SPDX-License-Identifier: Apache-2.0
 *
 * sync.c: the table of strategies, and the options of this floor.
 */
#include "parallel/sync.h"

#include <string.h>

#include "parallel/sync_impl.h"

#define TRI_OPTION_STRUCT tri_parallel_config
static const tri_option rows[] = {TRI_PARALLEL_OPTIONS(TRI_OPTION_ROW)};
#undef TRI_OPTION_STRUCT
const tri_option_table tri_parallel_options =
    TRI_OPTION_TABLE("parallel", tri_parallel_config, rows, "how ranks share the work");

const tri_sync_ops *const tri_sync_table[] = {&tri_sync_ddp, &tri_sync_zero1, NULL};

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

tri_status tri_sync_create(const tri_sync_setup *setup, tri_sync **out)
{
    const tri_sync_ops *ops = ops_find(setup->config);
    if (!ops)
        return tri_fail(TRI_ECONFIG, "parallel.sync: there is no strategy '%s'", setup->config->sync);
    return ops->create(setup, out);
}

void tri_sync_destroy(tri_sync *sync)
{
    if (sync)
        sync->ops->destroy(sync);
}
