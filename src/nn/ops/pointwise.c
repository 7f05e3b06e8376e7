/* SPDX-License-Identifier: Apache-2.0
 *
 * pointwise.c: builds what joins two values element by element.
 */
#include "nn/build.h"

tri_value tri_add(tri_model *model, tri_value a, tri_value b)
{
    tri_build build = {.op = TRI_OP_ADD, .input_count = 2, .input = {a, b}};
    return tri_model_add(model, &build);
}

tri_value tri_mul(tri_model *model, tri_value a, tri_value b)
{
    tri_build build = {.op = TRI_OP_MUL, .input_count = 2, .input = {a, b}};
    return tri_model_add(model, &build);
}
