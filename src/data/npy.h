/* SPDX-License-Identifier: Apache-2.0
 *
 * npy.h: the head of a NumPy .npy file.
 */
#ifndef TRI_DATA_NPY_H
#define TRI_DATA_NPY_H

#include <trireme/tensor.h>

#include "data/stream.h"

typedef struct tri_npy_head {
    tri_dtype dtype;
    tri_shape shape;
    uint64_t nbytes; /* of the head: the elements follow */
} tri_npy_head;

/* Reads the head of versions 1 to 3 and leaves the stream at the first element. TRI_EUNSUPPORTED: big endian, Fortran
 * order, structured or other types; TRI_EFORMAT: everything that is no npy head. */
tri_status tri_npy_head_read(tri_stream *stream, tri_npy_head *head);

/* Leaves of a source that is a .npz file the bytes of one array in it, "x.npy". TRI_ENOTFOUND names those that there
 * are.
 */
tri_status tri_npz_narrow(tri_source *source, const char *name);

#endif
