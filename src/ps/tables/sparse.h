/* SPDX-License-Identifier: Apache-2.0
 *
 * sparse.h: a table of rows by 64-bit key, for embeddings and whatever else has more keys than anybody touches.
 *
 * A row is dim values, the optimizer's state for them, the clock of its last push and how many pushes it had. It comes
 * into being with its first push (or touch), with values that are a function of (seed, table, key, element) alone: so a
 * pull changes nothing, and who never pushes makes no rows. The same calls in the same order give the same rows and the
 * same bytes, on a server that was there from the beginning and on one that read the rows of another. One thread at a
 * time has a table. Included by files of ps/ and their tests only.
 */
#ifndef TRI_PS_SPARSE_H
#define TRI_PS_SPARSE_H

#include "base/containers.h"
#include "optim/rows.h"
#include "ps/key.h"

#define PS_MAX_DIM (1 << 20)

/* Initial values of a row: uniform in [-scale, scale), normal with deviation scale. */
#define ps_initial_words(W) W(PS_INITIAL_ZERO, "zero") W(PS_INITIAL_UNIFORM, "uniform") W(PS_INITIAL_NORMAL, "normal")
TRI_ENUM(ps_initial)

typedef struct ps_sparse_setup {
    const char *name; /* of the table: initial values depend on it */
    int dim;          /* 1 to PS_MAX_DIM */
    uint64_t seed;
    ps_initial initial;
    float scale;
    const tri_optim_config
        *optim; /* for pushes that are gradients; NULL: there are none such, and rows have no state */
} ps_sparse_setup;

/* How a row takes in what is pushed, element by element or as it likes; `arg` is the caller's. */
typedef void (*ps_merge_fn)(void *arg, uint64_t key, float *row, const float *pushed, int dim);
void ps_merge_add(void *arg, uint64_t key, float *row, const float *pushed, int dim);
void ps_merge_assign(void *arg, uint64_t key, float *row, const float *pushed, int dim);
void ps_merge_min(void *arg, uint64_t key, float *row, const float *pushed, int dim);
void ps_merge_max(void *arg, uint64_t key, float *row, const float *pushed, int dim);

/* What a list of keys is known by until the next one is looked up; 0: nothing. */
typedef uint64_t ps_look;

typedef struct ps_push {
    ps_look look;                     /* of these very keys, or 0 */
    int64_t clock;                    /* rows that are pushed are of this age then; 0 to 2^32 - 1 */
    ps_merge_fn merge;                /* NULL: what is pushed is a gradient, and the optimizer makes a step with */
    const tri_optim_scalars *figures; /* these */
    void *arg;
} ps_push;

typedef struct ps_sparse ps_sparse;

/* TRI_EINVAL: dim or scale make no sense; TRI_ECONFIG: nor do the optimizer's options. */
tri_status ps_sparse_create(const ps_sparse_setup *setup, ps_sparse **out);
void ps_sparse_destroy(ps_sparse *table);
/* Has it an optimizer? Gradients may be pushed to no other table. */
bool ps_sparse_steps(const ps_sparse *table);
/* Rows that are there, in all and of one slot. */
int64_t ps_sparse_count(const ps_sparse *table);
int64_t ps_sparse_slot_count(const ps_sparse *table, int slot);
/* Bytes that the table holds. */
size_t ps_sparse_nbytes(const ps_sparse *table);

/* rows[i * dim ...] are the values of keys[i]: the initial ones where there is no row. TRI_ENOMEM. */
tri_status ps_sparse_pull(ps_sparse *table, ps_look look, const uint64_t *keys, int64_t count, float *rows);
/* The slots that these keys are in. With *look they can be pulled and pushed without being looked up again. TRI_ENOMEM.
 */
tri_status ps_sparse_slots(ps_sparse *table, const uint64_t *keys, int64_t count, ps_slots *out, ps_look *look);
/* The same of keys that came before, by their hash. False: the table knows no such list any more. */
bool ps_sparse_known(ps_sparse *table, const XXH128_hash_t *hash, int64_t count, ps_slots *out, ps_look *look);
/* Is this list remembered, so that it is known by its hash from now on? */
bool ps_sparse_is_kept(const ps_sparse *table, ps_look look);
/* Row after row takes in what is pushed to it, in the order of keys; a key that comes twice is pushed to twice.
 * keys: NULL where push->look is of a list that is known. TRI_ENOMEM: rows may have come into being, and nothing else
 * has changed: it may be tried again. */
tri_status ps_sparse_push(ps_sparse *table, const ps_push *push, const uint64_t *keys, const float *rows,
                          int64_t count);
/* Rows come into being, and those that are there are of this age; counts no push. TRI_ENOMEM as in push. */
tri_status ps_sparse_touch(ps_sparse *table, int64_t clock, const uint64_t *keys, int64_t count);
/* Returns how many there were. */
int64_t ps_sparse_erase(ps_sparse *table, const uint64_t *keys, int64_t count);

/* Which rows go; what is 0 takes none. They may come back later, with initial values. */
typedef struct ps_evict {
    int64_t before;           /* those that were last pushed to before this clock */
    uint32_t fewer;           /* those with fewer pushes than this since the last sweep of this kind, */
    int64_t unless;           /* unless the last one was at this clock or later; then all counts start from 0 */
    int64_t most;             /* if more are left: the oldest, of equal age the rarest, then the smallest key */
    int first_slot, end_slot; /* of these slots, as if there were no others; both 0: of all */
} ps_evict;
/* TRI_ENOMEM (`most` alone needs memory: 16 bytes a row): nothing has changed. */
tri_status ps_sparse_evict(ps_sparse *table, const ps_evict *evict, int64_t *evicted);

/* A row, valid until the table changes. */
typedef struct ps_row {
    uint64_t key;
    uint32_t clock, touches;
    const float *values; /* [dim], and behind them dim for each state array */
} ps_row;
/* How far a walk through a slot has come; zeros: it begins. */
typedef struct ps_cursor {
    bool begun;
    uint64_t last; /* hash of the last row */
} ps_cursor;
/* The next row of a slot, in order of hashes. False: there is none. Between two calls the table may change; rows that
 * come into being behind the cursor are not seen. */
bool ps_sparse_next(const ps_sparse *table, int slot, ps_cursor *cursor, ps_row *row);
/* Appends the next rows of a slot as bytes, at most `most` of them; *count is how many, less than `most` at the end. */
tri_status ps_sparse_write(const ps_sparse *table, int slot, ps_cursor *cursor, int64_t most, tri_string *out,
                           int64_t *count);
/* Puts rows that were written so into the table, in place of those with the same keys. TRI_EFORMAT: bytes of no such
 * rows, or of another table (dim, state): nothing has changed. TRI_ENOMEM: some are there; it may be tried again. */
tri_status ps_sparse_read(ps_sparse *table, const void *bytes, size_t nbytes);
/* All rows of a slot go. */
void ps_sparse_drop(ps_sparse *table, int slot);

#endif
