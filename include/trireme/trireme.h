/* SPDX-License-Identifier: Apache-2.0
 *
 * trireme.h: everything, and where to look first.
 *
 * Trireme trains neural networks on many processes and machines. A program takes as many of these stairs as it needs;
 * each header compiles alone, as C and as C++.
 *
 *   status.h   every call returns a tri_status; tri_last_error() is one line that says what went wrong
 *   tensor.h   element types, shapes, views of memory
 *   comm.h     ranks and groups; all-reduce, broadcast, ... blocking or as a handle; the canonical sum
 *   nn.h       a model as a graph of operations
 *   optim.h    which optimizers there are
 *   ps.h       parameter servers: rows and arrays by key that many workers pull and push
 *   train.h    a whole run in one object: what the program `trireme train` does
 *
 * A program that takes part in a job:
 *
 *     #include <trireme/trireme.h>
 *
 *     int main(void)
 *     {
 *         tri_comm *comm;
 *         if (tri_comm_join(60, &comm) != TRI_OK)       // who started us? where are the others?
 *             return fprintf(stderr, "%s\n", tri_last_error()), 1;
 *         float sum = 1;
 *         tri_all_reduce(tri_comm_world(comm), &sum, &sum, 1, TRI_F32, TRI_REDUCE_SUM, NULL);
 *         printf("%g ranks\n", sum);
 *         tri_comm_leave(comm);
 *     }
 *
 * Build: cc x.c $(pkg-config --cflags --libs trireme). Run on 4 ranks: trireme launch -n 4 -- ./a.out
 *
 * The promise: the weights after step s depend on the configuration and the data alone: not on how many workers there
 * are, how they are laid out, how many threads each has. docs/bits.md says how it is kept.
 */
#ifndef TRIREME_TRIREME_H
#define TRIREME_TRIREME_H

#include <trireme/comm.h>
#include <trireme/nn.h>
#include <trireme/optim.h>
#include <trireme/ps.h>
#include <trireme/status.h>
#include <trireme/tensor.h>
#include <trireme/train.h>

#endif
