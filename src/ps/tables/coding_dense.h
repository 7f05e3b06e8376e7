/* SPDX-License-Identifier: Apache-2.0
 *
 * coding_dense.h: a block of a dense table in fewer bytes, where ps.values asks for that: each entry by itself.
 *
 * Gradients travel as ps.values says; weights that come back as bf16 for both narrow kinds, since an error in them
 * does not average out, and the server keeps them in f32. What must be exact, or would be longer so, is f32: running
 * statistics, frozen weights (which have no gradients at all), a few values of int8. Gaps between entries do not
 * travel. Included by files of ps/ and their tests only.
 */
#ifndef TRI_PS_CODING_DENSE_H
#define TRI_PS_CODING_DENSE_H

#include "ps/tables/spec.h"

/* Never more than tri_ps_cut_nbytes(), or the bytes of the values. */
size_t tri_ps_gradients_nbytes(const ps_spec *spec, const ps_cut *cut);
/* grads: of the whole store (tri_params_grad_count() elements). */
void tri_ps_gradients_write(const ps_spec *spec, const ps_cut *cut, const float *grads, void *bytes);
/* sums: [cut->count + cut->tied], as a body of f32 has them; gaps are zeros. */
void tri_ps_gradients_read(const ps_spec *spec, const ps_cut *cut, const void *bytes, float *sums);

size_t tri_ps_values_nbytes(const ps_spec *spec, const ps_cut *cut);
/* values: [cut->count] of the block; what is in gaps is left alone. */
void tri_ps_values_write(const ps_spec *spec, const ps_cut *cut, const float *values, void *bytes);
void tri_ps_values_read(const ps_spec *spec, const ps_cut *cut, const void *bytes, float *values);

#endif
