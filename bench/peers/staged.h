/* SPDX-License-Identifier: Apache-2.0
 *
 * staged.h: the half of limit.c with private buffers: what travels is copied into a slot of its sender, which all
 * reach, and out of it, piece by piece, with one meeting a piece; and few elements in lines that carry their call's
 * number.
 */
#ifndef TRI_BENCH_PEERS_STAGED_H
#define TRI_BENCH_PEERS_STAGED_H

static unsigned bank; /* slots change about, so that one meeting a piece is enough */

static int is_split(const core_case *c)
{
    return c->op == CORE_REDUCE_SCATTER || c->op == CORE_ALL_TO_ALL || c->op == CORE_SCATTER;
}

static int is_rooted_out(const core_case *c)
{
    return c->op == CORE_BROADCAST || c->op == CORE_SCATTER;
}

/* Asks for lines to write to, a little ahead of a copy. */
static void copy_out(float *to, const float *from, size_t count)
{
    for (size_t at = 0; at < count; at += BLOCK / 2) {
        size_t some = count - at < BLOCK / 2 ? count - at : BLOCK / 2;
        for (size_t i = 0; i < some; i += 16)
            __builtin_prefetch(to + at + i, 1);
        memcpy(to + at, from + at, some * sizeof(float));
    }
}

/* Elements [at, at + count) of what this rank gives to the others into its slot. */
static void stage_in(const core_case *c, const float *in, size_t at, size_t count, size_t room)
{
    float *slot = slot_of(c->rank, bank);
    int root_only = is_rooted_out(c), others_only = c->op == CORE_REDUCE || c->op == CORE_GATHER;
    if ((root_only && c->rank != 0) || (others_only && c->rank == 0))
        return;
    if (!is_split(c))
        copy_out(slot, in + at, count);
    for (int r = 0; is_split(c) && r < c->ranks; r++)
        if (r != c->rank)
            copy_out(slot + (size_t)r * room, in + (size_t)r * c->part + at, count);
}

/* More than two ranks: each sums its share in its own slot, then all copy the shares. */
static void stage_out_shares(const core_case *c, float *out, size_t count)
{
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank) {
            size_t first = share_first(c, count, c->rank), share = share_first(c, count, c->rank + 1) - first;
            add(slot_of(c->rank, bank) + first, slot_of(r, bank) + first, share);
        }
    core_meet();
    for (int r = 0; r < c->ranks; r++) {
        size_t first = share_first(c, count, r), share = share_first(c, count, r + 1) - first;
        memcpy(out + first, slot_of(r, bank) + first, share * sizeof(float));
    }
}

/* A line that was read stays in both caches, and its writer must call the copy back, one after the other: the only
 * reader makes the lines its own, and they move as a whole. */
static void take(const core_case *c, float *slot, size_t count)
{
    for (size_t i = 0; takes && c->ranks == 2 && i < count; i += 16)
        *(volatile float *)(slot + i) = 0;
}

/* What the others put into their slots becomes elements [at, at + count) of the result. */
static void stage_out(const core_case *c, const float *in, float *out, size_t at, size_t count, size_t room)
{
    size_t own = (size_t)c->rank * (is_split(c) ? c->part : 0), mine = (size_t)c->rank * room,
           nbytes = count * sizeof(float);
    if (c->op == CORE_ALL_REDUCE && c->ranks > 2) {
        stage_out_shares(c, out + at, count);
        return;
    }
    if (c->op == CORE_REDUCE_SCATTER || (c->op == CORE_SCATTER && c->rank == 0))
        memcpy(out + at, in + own + at, nbytes);
    for (int r = 0; r < c->ranks; r++) {
        float *to = out + (size_t)r * c->part + at;
        if ((c->rank != 0 && (c->op == CORE_REDUCE || c->op == CORE_GATHER)) || (is_rooted_out(c) && r != 0))
            continue;
        if (r == c->rank) {
            if (c->op == CORE_ALL_GATHER || c->op == CORE_GATHER || c->op == CORE_ALL_TO_ALL)
                memcpy(to, in + own + at, nbytes);
        } else {
            float *from = slot_of(r, bank) + (is_split(c) ? mine : 0);
            if (c->op == CORE_ALL_REDUCE || c->op == CORE_REDUCE || c->op == CORE_REDUCE_SCATTER)
                add(out + at, from, count);
            else
                memcpy(is_rooted_out(c) ? out + at : to, from, nbytes);
            take(c, from, count);
        }
    }
}

/* Few elements that all give to all: each line carries the number of its call, so that nobody needs to meet. In the
 * call after the next one a line is written again: who writes it has read what was written after its last use. */
#define LINE_DATA  15
#define LINES_MOST 4
typedef struct line {
    float data[LINE_DATA];
    uint32_t call;
} line;

static void lines_write(line *to, const float *from, size_t count, uint32_t number)
{
    for (size_t at = 0; at < count; at += LINE_DATA, to++) {
        memcpy(to->data, from + at, (count - at < LINE_DATA ? count - at : LINE_DATA) * sizeof(float));
        __atomic_store_n(&to->call, number, __ATOMIC_RELEASE);
    }
}

static void lines_read(float *to, line *from, size_t count, uint32_t number, int adds)
{
    for (size_t at = 0; at < count; at += LINE_DATA, from++) {
        size_t some = count - at < LINE_DATA ? count - at : LINE_DATA;
        while (__atomic_load_n(&from->call, __ATOMIC_ACQUIRE) != number)
            if (core_ranks > core_cores)
                sched_yield();
        if (adds)
            add(to + at, from->data, some);
        else
            memcpy(to + at, from->data, some * sizeof(float));
    }
}

static void lines_call(core_case *c, float *in, float *out)
{
    static uint32_t number;
    int adds = c->op == CORE_ALL_REDUCE;
    size_t count = adds ? c->count : c->part;
    number++;
    for (int r = 0; r < c->ranks; r++) /* before the own result overwrites the input */
        if (r != c->rank && (r == (c->rank + 1) % c->ranks || c->op == CORE_ALL_TO_ALL)) {
            size_t room = c->op == CORE_ALL_TO_ALL ? (size_t)r * LINES_MOST : 0, first = room / LINES_MOST * count;
            lines_write((line *)(void *)slot_of(c->rank, number & 1) + room, in + first, count, number);
        }
    for (int r = 0; r < c->ranks; r++) {
        size_t room = c->op == CORE_ALL_TO_ALL ? (size_t)c->rank * LINES_MOST : 0;
        float *to = adds ? out : out + (size_t)r * count;
        if (r != c->rank)
            lines_read(to, (line *)(void *)slot_of(r, number & 1) + room, count, number, adds);
        else if (!adds)
            memcpy(to, in + room / LINES_MOST * count, count * sizeof(float));
    }
}

static int fits_lines(const core_case *c)
{
    size_t count = c->op == CORE_ALL_REDUCE ? c->count : c->part;
    return (c->op == CORE_ALL_REDUCE || c->op == CORE_ALL_GATHER || c->op == CORE_ALL_TO_ALL) &&
           count <= LINE_DATA * LINES_MOST;
}

static void staged_call(core_case *c, float *in, float *out)
{
    if (fits_lines(c)) {
        lines_call(c, in, out);
        return;
    }
    size_t whole = c->op <= CORE_BROADCAST ? c->count : c->part;
    size_t room = is_split(c) ? SLOT_COUNT / (size_t)c->ranks : SLOT_COUNT;
    if (c->op == CORE_BARRIER)
        core_meet();
    for (size_t at = 0; at < whole; at += room) {
        size_t count = whole - at < room ? whole - at : room;
        stage_in(c, in, at, count, room);
        core_meet();
        stage_out(c, in, out, at, count, room);
        bank ^= 1;
    }
}

#endif
