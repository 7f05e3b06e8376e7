/* SPDX-License-Identifier: Apache-2.0
 *
 * identity.h: what tells one training set from another.
 */
#ifndef TRI_DATA_IDENTITY_H
#define TRI_DATA_IDENTITY_H

#include "data/data.h"

typedef struct tri_data_identity {
    int64_t count;   /* samples; 0: not known */
    char shape[96];  /* "f32 [28, 28, 1], i32 []": a sample, a target */
    uint64_t digest; /* of both and of the content: of all samples where they take at most whole_nbytes, else of at most
                        1,024 at equal distances that do; images: of names and lengths of all files and 64 samples */
} tri_data_identity;
tri_status tri_dataset_identify(tri_dataset *dataset, size_t whole_nbytes, tri_data_identity *out);

#endif
