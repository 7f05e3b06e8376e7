/* SPDX-License-Identifier: Apache-2.0
 *
 * ps.c: the options of parameter servers.
 */
#include "ps/ps.h"

#define TRI_OPTION_STRUCT tri_ps_config
static const tri_option rows[] = {TRI_PS_OPTIONS(TRI_OPTION_ROW)};
#undef TRI_OPTION_STRUCT
const tri_option_table tri_ps_options = TRI_OPTION_TABLE("ps", tri_ps_config, rows, "parameter servers");

bool tri_ps_is_coded(const tri_ps_config *config)
{
    return config->values != PS_WIRE_F32;
}

int tri_ps_parts(const tri_ps_config *config, int64_t leaves, int64_t first, int64_t count, tri_tree_part *parts)
{
    if (config->consistency != PS_BSP || !tri_ps_is_coded(config))
        return tri_tree_parts(leaves, first, count, parts);
    for (int64_t i = 0; i < count; i++)
        parts[i] = (tri_tree_part){first + i, 1};
    return (int)count;
}

int64_t tri_ps_deals(const tri_ps_config *config, int workers)
{
    int64_t parts = 1;
    if (config->schedule != PS_DYNAMIC)
        return 0;
    while (parts < workers)
        parts *= 2;
    return parts;
}

tri_status tri_ps_check(const tri_ps_config *config, int workers)
{
    bool bsp = config->consistency == PS_BSP;
    if (config->backup_workers > 0 && !bsp)
        return tri_fail(TRI_ECONFIG,
                        "ps.backup_workers %lld: with ps.consistency %s nobody is waited for: want bsp, or 0",
                        (long long)config->backup_workers, ps_consistency_word(config->consistency));
    if (config->backup_workers > 0 && config->backup_workers >= workers)
        return tri_fail(TRI_ECONFIG, "ps.backup_workers %lld: want fewer than there are workers (%d)",
                        (long long)config->backup_workers, workers);
    if (tri_ps_deals(config, workers) > 0 && bsp)
        return tri_fail(TRI_ECONFIG, "ps.schedule dynamic: with ps.consistency bsp each worker has its part: want "
                                     "ssp, async, or ps.schedule static");
    return TRI_OK;
}
