/* SPDX-License-Identifier: Apache-2.0
 *
 * save.h: a checkpoint of a dense table that its servers write: what the leader tells them, and what they do with it.
 *
 * The leader makes the folder and, when all have reported (checkpoint/draft.h), the checkpoint; each server writes the
 * blocks that it has, as they are after the step that the leader named.
 */
#ifndef TRI_PS_SAVE_H
#define TRI_PS_SAVE_H

#include <stdatomic.h>

#include "base/arena.h"
#include "checkpoint/draft.h"

struct tri_ps_client;

/* Elements [at, at + count) of the store are those of a tensor from `place` on. */
typedef struct ps_save_row {
    uint32_t tensor;
    int64_t place, count, at;
} ps_save_row;

typedef struct ps_save_target {
    const char *folder;
    uint64_t mark; /* of the draft */
} ps_save_target;

typedef struct ps_save_plan {
    ps_save_target targets[TRI_CHECKPOINT_MAX_LEVELS];
    int target_count;
    tri_checkpoint_content content; /* the model's tensors, then as many for each array of the optimizer; no values */
    const ps_save_row *rows;        /* in order of the store */
    int64_t row_count;
} ps_save_plan;

tri_status ps_save_plan_write(const ps_save_plan *plan, tri_string *out);
/* The bytes of a stranger (TRI_EFORMAT), for a store of `count` elements; texts and arrays are the arena's. */
tri_status ps_save_plan_read(const void *bytes, size_t nbytes, int64_t count, tri_arena *arena, ps_save_plan *plan);

/* What came of asking. */
typedef struct ps_save_answer {
    bool accepted; /* all servers write */
    int64_t late;  /* one of them is further on than the step: at this one; -1: it is something else */
    char why[TRI_ERROR_NBYTES];
} ps_save_answer;
/* Asks all servers to write the table as it is after `step` steps; they are the draft's writers 1 to the number of
 * servers in the view, which is *writers. *lost becomes true when one of them is lost before tri_ps_client_saved(). */
tri_status tri_ps_client_save(struct tri_ps_client *client, int64_t step, const ps_save_plan *plan, atomic_bool *lost,
                              int *writers, ps_save_answer *answer);
void tri_ps_client_saved(struct tri_ps_client *client);

/* What a server's note in the draft says where each push moves a block at once: steps whose pushes all blocks have, of
 * every worker; and steps of which some block has a push. */
tri_status ps_save_note_print(int64_t least, int64_t most, tri_string *out);
/* Of all notes, one a line; false: there is none. */
bool ps_save_notes_read(const char *notes, int64_t *least, int64_t *most);

#endif
