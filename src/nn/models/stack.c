/* SPDX-License-Identifier: Apache-2.0
 *
 * stack.c: equal layers, one on the other.
 */
#include <stdio.h>

#include "nn/models/models.h"

tri_value tri_layer_stack_add(tri_model *model, const tri_layer_stack *stack, tri_value x)
{
    for (int64_t layer = 0; layer < stack->count; layer++) {
        char scope[64];
        snprintf(scope, sizeof(scope), "%s%lld.", stack->scope, (long long)layer);
        tri_model_scope(model, scope);
        if (stack->checkpoint)
            tri_model_block_begin(model);
        x = stack->add(model, stack->form, x);
        tri_model_block_end(model);
    }
    tri_model_scope(model, "");
    return x;
}
