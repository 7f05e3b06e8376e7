/* SPDX-License-Identifier: Apache-2.0
 *
 * pairs_move.c: blocks of state between the ranks that have some for each other, all at once. Of a thousand ranks few
 * have: an all-to-all would send each a frame of nothing, a million in all.
 */
#include "train/elastic/pairs_move.h"

static tri_status blocks_note(tri_group *group, int rank, const float *values, const tri_blocks *to, float *received,
                              const tri_blocks *from, int ranks)
{
    for (int i = 1; i < ranks; i++) {
        int receiver = (rank + i) % ranks, sender = (rank + ranks - i) % ranks;
        if (to->counts[receiver] > 0)
            TRI_TRY(tri_send(group, values + to->firsts[receiver], to->counts[receiver], TRI_F32, receiver, NULL));
        if (from->counts[sender] > 0)
            TRI_TRY(tri_receive(group, received + from->firsts[sender], from->counts[sender], TRI_F32, sender, NULL));
    }
    return TRI_OK;
}

tri_status tri_pairs_move(tri_group *group, int rank, int ranks, const float *values, const tri_blocks *to,
                          float *received, const tri_blocks *from)
{
    tri_batch *batch;
    TRI_TRY(tri_batch_begin(group));
    tri_status status = blocks_note(group, rank, values, to, received, from, ranks);
    tri_status ended = tri_batch_end(group, &batch);
    if (status == TRI_OK)
        status = ended;
    if (status == TRI_OK)
        status = tri_batch_run(batch, NULL);
    tri_batch_destroy(batch);
    return status;
}
