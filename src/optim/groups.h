/* SPDX-License-Identifier: Apache-2.0
 *
 * groups.h: which rule of optim.groups each parameter follows.
 *
 * Group 0 are the parameters that no rule names; rule i makes group i + 1. Included by files of optim/ and their tests
 * only.
 */
#ifndef TRI_OPTIM_GROUPS_H
#define TRI_OPTIM_GROUPS_H

#include "optim/optim.h"

#define OPTIM_MAX_GROUPS 33

typedef struct optim_rule {
    char match[128];     /* a glob: * any characters, ? one */
    double lr_scale;     /* of optim.lr */
    double weight_decay; /* NaN: as it would be without the rule */
} optim_rule;

typedef struct optim_groups {
    optim_rule rules[OPTIM_MAX_GROUPS]; /* [0] is no rule: lr_scale 1, weight_decay NaN */
    int count;
    uint8_t *of_entry; /* [entry_count] of the params */
} optim_groups;

/* Reads the list and gives each trained entry its group. TRI_ECONFIG names the rule, what was wanted and found; a rule
 * that decides for no parameter is an error. Ends with optim_groups_fini() whatever is returned. */
tri_status optim_groups_init(optim_groups *groups, const tri_optim_config *config, const tri_params *params);
void optim_groups_fini(optim_groups *groups);
/* Whether text as a whole fits the glob. */
bool optim_glob_fits(const char *glob, const char *text);
/* The weight decay of an entry. */
double optim_groups_decay(const optim_groups *groups, const tri_optim_config *config, const tri_params *params,
                          int entry);

#endif
