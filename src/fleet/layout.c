/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.c: what simulated jobs train, and how its state is spread over their workers: small models in which whatever
 * a step moves is something (running statistics, dropout, momentum, clipping), one configuration a layout.
 */
#include <stdio.h>
#include <string.h>

#include "fleet/fleet.h"

#define LAYERS                                                                                                         \
    "model:\n  layers:\n    - linear: {out: 8}\n    - batch_norm\n    - relu\n    - dropout: 0.25\n"                   \
    "    - linear: classes\n"                                                                                          \
    "data: {name: synthetic, synthetic_width: 6, classes: 3, prefetch: 0, "
#define MLP                                                                                                            \
    "model: {name: mlp, hidden: [12, 8]}\n"                                                                            \
    "data: {name: synthetic, synthetic_width: 6, classes: 3, prefetch: 0, "
#define GPT                                                                                                            \
    "model: {name: gpt2, n_layer: 2, n_head: 2, n_embd: 4, resid_pdrop: 0.1, embd_pdrop: 0.1, attn_pdrop: 0.1}\n"      \
    "data: {name: synthetic, synthetic_tokens: true, classes: 5, synthetic_width: 4, prefetch: 0, "
#define SGD  "lr: 0.05, momentum: 0.9, clip_norm: 1"
#define ADAM "name: adamw, lr: 0.01, weight_decay: 0.1, decay: weights, clip_norm: 1"

const fleet_layout fleet_layouts[] = {
    {"data", "each worker has all of the state", LAYERS, SGD, "", 1},
    {"zero1", "the optimizer's state is spread", LAYERS, SGD, "parallel: {sync: zero1}\n", 2},
    {"zero2", "gradients too", LAYERS, ADAM, "parallel: {sync: zero2}\n", 2},
    {"zero3", "weights too", LAYERS, ADAM, "parallel: {sync: zero3}\n", 2},
    {"stages", "three stages of a pipeline", LAYERS, SGD, "parallel: {pipeline: 3}\n", 1},
    {"tensor", "each layer is on two workers", MLP, SGD, "parallel: {tensor: 2, tensor_parts: 2}\n", 2},
    {"mesh", "two stages of two parts of layers each, and zero1", GPT, ADAM,
     "parallel: {pipeline: 2, tensor: 2, tensor_parts: 2, sync: zero1}\n", 4},
};
const int fleet_layout_count = TRI_COUNT_OF(fleet_layouts);

const fleet_layout *fleet_layout_find(const char *name)
{
    for (int i = 0; i < fleet_layout_count; i++)
        if (strcmp(fleet_layouts[i].name, name) == 0)
            return &fleet_layouts[i];
    return NULL;
}

void fleet_text_make(fleet *all)
{
    const fleet_layout *layout = all->config->layout;
    long long batch = (long long)(2 * all->shards), steps = (long long)all->config->steps;
    bool replace = all->config->stragglers && !all->config->is_quiet;
    snprintf(all->text, sizeof(all->text),
             "%ssynthetic_count: %lld}\n"
             "train: {batch: %lld, shards: %lld, steps: %lld, epochs: %lld, eval_batches: 1, eval_every_steps: 7, "
             "seed: 5, threads: 1, verify_every: %s, on_spike: skip, spike_window: 3, spike_factor: 1.05, guard_limit: "
             "0, on_straggler: "
             "%s, straggler_factor: 2, straggler_steps: 2}\n"
             "optim: {%s}\n%scomm: {transport: sim, timeout_s: 30, slot_kib: 64}\n%s%s",
             layout->model, 3 * batch + 1, batch, (long long)all->shards, steps, steps,
             all->config->flips > 0 ? "1" : "auto", replace ? "replace" : "off", layout->optim, layout->parallel,
             layout->parallel[0] ? "" : "monitor: {watch_every_s: 0.1}\n",
             all->config->saves && !all->config->is_quiet ? "checkpoint: {every_steps: 4, keep: 2}\n" : "");
}
