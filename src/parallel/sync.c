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

const tri_sync_ops *const tri_sync_table[] = {&tri_sync_ddp, NULL};

tri_status tri_sync_create(const tri_sync_setup *setup, tri_sync **out)
{
    for (int i = 0; tri_sync_table[i]; i++)
        if (strcmp(tri_sync_table[i]->name, setup->config->sync) == 0)
            return tri_sync_table[i]->create(setup, out);
    return tri_fail(TRI_ECONFIG, "parallel.sync: there is no strategy '%s'", setup->config->sync);
}

void tri_sync_destroy(tri_sync *sync)
{
    if (sync)
        sync->ops->destroy(sync);
}
