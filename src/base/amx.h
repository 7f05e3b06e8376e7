/* SPDX-License-Identifier: Apache-2.0
 *
 * amx.h: whether this process may use the processor's tiles of AMX. The kernel gives their registers (8 KiB a thread)
 * only to processes that ask for them.
 */
#ifndef TRI_BASE_AMX_H
#define TRI_BASE_AMX_H

#include <stdbool.h>

/* Products of bf16 on tiles: the processor has them, and the kernel has given its leave. Asked for once. */
bool tri_amx_allowed(void);

#endif
