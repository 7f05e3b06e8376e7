/* SPDX-License-Identifier: Apache-2.0
 *
 * tensors.h: the tensors of a model as its files name them, whoever holds which pieces of them.
 */
#ifndef TRI_NN_TENSORS_H
#define TRI_NN_TENSORS_H

#include "nn/model.h"

typedef struct tri_tensor_row {
    const char *name;
    tri_shape shape; /* of the whole */
    int64_t count;   /* elements */
    int64_t first;   /* its first element among those of all tensors */
} tri_tensor_row;

typedef struct tri_tensors {
    tri_arena arena;
    tri_tensor_row *items; /* in the order of the model */
    int count;
    int64_t total; /* elements of all */
    int *of_param; /* [param_count]: number of a parameter of the model -> its tensor */
    int param_count;
} tri_tensors;

/* The model may be destroyed afterwards. Ends with tri_tensors_fini() whatever is returned. */
tri_status tri_tensors_init(const tri_model *model, tri_tensors *tensors);
void tri_tensors_fini(tri_tensors *tensors);
/* The tensor that has element `at` of all. */
int tri_tensors_find(const tri_tensors *tensors, int64_t at);

#endif
