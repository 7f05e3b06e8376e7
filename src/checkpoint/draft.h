/* SPDX-License-Identifier: Apache-2.0
 *
 * draft.h: a checkpoint that is being written, perhaps by several processes at once, each its own elements of the same
 * two files; the first of them makes the folder and, when all have said that theirs are on the disk, the checkpoint.
 *
 * Writers meet in the hidden folder alone, so a writer needs no group and may be a thread beside the training. What a
 * writer has to say (done, with its checksums; or failed, and why) is one small file there. The files do not depend on
 * who wrote what.
 */
#ifndef TRI_CHECKPOINT_DRAFT_H
#define TRI_CHECKPOINT_DRAFT_H

#include <stdatomic.h>

#include "checkpoint/checkpoint.h"

typedef struct tri_checkpoint_draft tri_checkpoint_draft;

typedef struct tri_checkpoint_draft_setup {
    tri_checkpoint_place place;
    int64_t step;
    tri_checkpoint_content content; /* names and shapes, the same at all writers; texts outlive the draft */
    uint64_t mark;                  /* of this save: tells its folder from one on another disk with the same path */
    const char *writers;            /* what others are called in messages, from this number on: NULL: "rank", */
    int writers_from;               /* 0 */
    unsigned
        pieces; /* bits: of which file this writer uploads what it puts as a piece (storage/pieces.h), since writers */
    int writer, writer_count;    /* see no common folder; 0: they see one. Which writer this is, and of how many. */
    const atomic_bool *given_up; /* set by anybody: a writer that has not reported by now never will; or NULL */
    bool (*lost)(void *arg, int writer); /* asked while it is waited for: its part does not come; NULL: never */
    void *arg;
} tri_checkpoint_draft_setup;

/* The first writer: clears what a crash has left, makes the hidden folder and the files with their headers. */
tri_status tri_checkpoint_draft_create(const tri_checkpoint_draft_setup *setup, tri_checkpoint_draft **out);
/* Another writer, once the first one has created it. TRI_ENOTFOUND: not here; the folder is on another disk. */
tri_status tri_checkpoint_draft_join(const tri_checkpoint_draft_setup *setup, tri_checkpoint_draft **out);
/* Elements of a slice, which count the model's first, then the state's; each element of all by one writer, once. */
tri_status tri_checkpoint_draft_put(tri_checkpoint_draft *draft, int slice, int64_t first, int64_t count,
                                    const float *values);
/* What this writer put is on the disk; its pieces are at the URL. */
tri_status tri_checkpoint_draft_sync(tri_checkpoint_draft *draft);
/* A line that this writer tells the first besides, where it is done; borrowed until then. */
void tri_checkpoint_draft_note(tri_checkpoint_draft *draft, const char *text);
/* Lines of all writers that the first has heard. */
const char *tri_checkpoint_draft_notes(const tri_checkpoint_draft *draft);
/* Writer `number` (above 0) to the first: it is done, or (status, with its message) it has failed. */
tri_status tri_checkpoint_draft_tell(tri_checkpoint_draft *draft, int number, tri_status status);
/* The same of a failure, where there is no room for a word: a file without bytes, for which a full disk has room
 * mostly. Else the first would wait for this writer without success. */
tri_status tri_checkpoint_draft_miss(tri_checkpoint_draft *draft, int number);
/* The first: waits for writers 1 to count - 1. Fails with the message of one that failed, or names those that are late
 * when patience_ms pass without news. */
tri_status tri_checkpoint_draft_gather(tri_checkpoint_draft *draft, int count, int64_t patience_ms);
/* The file of the model, for reading what is in it. */
const char *tri_checkpoint_draft_model(const tri_checkpoint_draft *draft);
/* The first: manifest, then the one rename that makes it a checkpoint, then what does not stay is removed. Of pieces
 * there is a checkpoint at the URL alone. */
tri_status tri_checkpoint_draft_commit(tri_checkpoint_draft *draft, const tri_checkpoint_manifest *manifest);
/* Of both files, headers included. */
uint64_t tri_checkpoint_draft_nbytes(const tri_checkpoint_draft *draft);
/* The first one removes the folder, unless it was committed; the last error stays. NULL does nothing. */
void tri_checkpoint_draft_close(tri_checkpoint_draft *draft);

#endif
