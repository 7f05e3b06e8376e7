/* SPDX-License-Identifier: Apache-2.0
 *
 * held.h: the samples of consecutive parts of a data set in memory, as stored: what a loader prepares batches from.
 *
 * It may outlive the loader: the next one, of other parts of the same data set, keeps what both have, in place, and
 * reads what is missing alone.
 */
#ifndef TRI_DATA_HELD_H
#define TRI_DATA_HELD_H

#include "data/data.h"
#include "data/normalize.h"

/* All zero: nothing is held. */
struct tri_held {
    tri_sampler sampler; /* whose parts they are */
    int64_t first_shard, shard_count;
    int64_t count; /* samples */
    size_t sample_nbytes, target_nbytes;
    unsigned char *samples, *targets; /* [count]; NULL: nobody needs these */
    int64_t *indices;                 /* [count] in the data set */
    int64_t *places;                  /* [count] where in `samples` the k-th sample of a part is */
    int64_t *part_first;              /* [shard_count + 1] of each part in `places` */
    int64_t read_count;               /* samples that were read, in all */
};

/* Holds the parts that the setup says, and nothing else; of what it is left with the memory is given back, and never is
 * there more than the larger of before and after. An error leaves nothing held. */
tri_status tri_held_change(tri_held *held, tri_dataset *dataset, const tri_normalizer *normalizer,
                           const tri_loader_setup *setup);
void tri_held_fini(tri_held *held);

#endif
