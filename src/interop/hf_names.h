/* SPDX-License-Identifier: Apache-2.0
 *
 * hf_names.h: the tensors of a model under our names and under those of Hugging Face, both ways, as views of what is
 * stored.
 */
#ifndef TRI_INTEROP_HF_NAMES_H
#define TRI_INTEROP_HF_NAMES_H

#include "base/arena.h"
#include "checkpoint/tensor_set.h"
#include "checkpoint/tensor_view.h"
#include "interop/hf_config.h"

/* Tensors of Hugging Face's files as ours: one view a parameter, in the order of the family's table. TRI_EFORMAT names
 * what is missing, unknown, or of another shape than the configuration says. Views and names live in the arena and look
 * into the set. */
tri_status tri_hf_names_ours(const tri_hf_config *config, const tri_tensor_set *theirs, tri_arena *arena,
                             tri_tensor_view **views, int *count);
/* The way back: stored tensors under our names as theirs. */
tri_status tri_hf_names_theirs(const tri_hf_config *config, const tri_tensor_set *ours, tri_arena *arena,
                               tri_tensor_view **views, int *count);

/* Whether the configuration ties the head to the embedding, but the set has a head with other elements. *head and
 * *embedding are then the two tensors; names are ours or Hugging Face's. */
tri_status tri_hf_names_head_differs(const tri_hf_config *config, const tri_tensor_set *set, bool *differs,
                                     const tri_stored_tensor **head, const tri_stored_tensor **embedding);

/* Names for one message: the first few, and how many there are. */
typedef struct tri_name_list {
    char text[400];
    int count;
} tri_name_list;
void tri_name_list_add(tri_name_list *list, const char *name);
/* "'a', 'b', 'c' and 5 more" */
const char *tri_name_list_print(tri_name_list *list);

#endif
