/* SPDX-License-Identifier: Apache-2.0
 *
 * stages.c: which rank of a pipeline holds what, and where the gradients of parameters with several readers are made.
 *
 * A parameter is at home where its gradient as an entry is made; other ranks that read it by a tie hold a copy.
 */
#include "nn/cuts.h"

static int chunk_of(const tri_stages *stages, int node)
{
    int chunk = 0;
    while (chunk + 1 < stages->count && node >= stages->first_node[chunk + 1])
        chunk++;
    return chunk;
}

void tri_stages_wanted(const tri_model *model, const tri_stages *stages, int ranks, int rank, bool *wanted)
{
    const tri_node *nodes = model->nodes.items;
    for (size_t p = 0; p < model->params.count; p++)
        wanted[p] = false;
    for (int n = 0; n < (int)model->nodes.count; n++)
        for (int p = 0; p < nodes[n].param_count; p++)
            if (chunk_of(stages, n) % ranks == rank)
                wanted[nodes[n].param[p]] = true;
}

int tri_stages_maker(const tri_model *model, const tri_stages *stages, int number, int tie)
{
    const tri_node *nodes = model->nodes.items;
    for (int n = 0; n < (int)model->nodes.count; n++) {
        if (tie >= 0 && nodes[n].tie == tie)
            return chunk_of(stages, n);
        for (int p = nodes[n].tie >= 0; tie < 0 && p < nodes[n].param_count; p++)
            if (nodes[n].param[p] == number)
                return chunk_of(stages, n);
    }
    return -1;
}

void tri_stages_mark(const tri_model *model, const tri_stages *stages, int ranks, int rank, tri_params *params)
{
    for (int e = 0; e < params->entry_count; e++) {
        tri_param *entry = &params->entries[e];
        entry->away = tri_stages_maker(model, stages, entry->number, -1) % ranks != rank;
        entry->copy = entry->away;
    }
    for (int t = 0; t < params->tie_count; t++) {
        tri_tie *tie = &params->ties[t];
        tie->away = tri_stages_maker(model, stages, params->entries[tie->entry].number, tie->number) % ranks != rank;
    }
}
