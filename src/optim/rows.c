/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c: steps over values that are in no store.
 */
#include "optim/rows.h"

tri_status tri_optim_rows_init(tri_optim_rows *rows, const tri_optim_config *config)
{
    *rows = (tri_optim_rows){.config = *config};
    rows->states = tri_optim_states(config);
    return optim_ops_find(config, &rows->ops);
}

float tri_optim_rows_initial(const tri_optim_rows *rows, int index)
{
    return optim_state_initial(rows->ops, &rows->config, index);
}

void tri_optim_rows_begin(tri_optim_rows *rows, const tri_optim_scalars *figures)
{
    rows->rates = optim_rates_make(&rows->config, figures, 1.0);
}
