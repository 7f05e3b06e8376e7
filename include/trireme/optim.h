/* SPDX-License-Identifier: Apache-2.0
 *
 * optim.h: optimizers over slices of flat arrays: the same bits for a slice wherever it is computed.
 */
#ifndef TRIREME_OPTIM_H
#define TRIREME_OPTIM_H

#include <trireme/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tri_optim tri_optim;

/* Names of the optimizers ("sgd", "adam", ...), NULL at the end. */
TRI_API const char *const *tri_optim_names(void);

#ifdef __cplusplus
}
#endif
#endif
