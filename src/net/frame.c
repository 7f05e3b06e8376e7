/* SPDX-License-Identifier: Apache-2.0
 *
 * frame.c: the head of a message to and from 64 bytes, little endian on every machine.
 */
#include "net/frame.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "net/bytes.h"

#define CHECKED_NBYTES (TRI_FRAME_NBYTES - 8)
#define SEQUENCE_BITS  48
#define SEQUENCE_MASK  ((UINT64_C(1) << SEQUENCE_BITS) - 1)

void tri_frame_encode(const tri_frame *frame, unsigned char bytes[TRI_FRAME_NBYTES])
{
    tri_bytes_write_u32(bytes, TRI_FRAME_MAGIC);
    tri_bytes_write_u16(bytes + 4, frame->kind);
    bytes[6] = frame->op;
    bytes[7] = frame->dtype;
    tri_bytes_write_u32(bytes + 8, frame->group);
    tri_bytes_write_u32(bytes + 12, frame->generation);
    tri_bytes_write_u64(bytes + 16, (frame->sequence & SEQUENCE_MASK) | (uint64_t)frame->roots << SEQUENCE_BITS);
    tri_bytes_write_u64(bytes + 24, frame->count);
    tri_bytes_write_u64(bytes + 32, frame->name);
    tri_bytes_write_u64(bytes + 40, frame->nbytes);
    tri_bytes_write_u32(bytes + 48, frame->reduce);
    tri_bytes_write_u32(bytes + 52, frame->part);
    tri_bytes_write_u64(bytes + CHECKED_NBYTES, XXH3_64bits(bytes, CHECKED_NBYTES));
}

tri_status tri_frame_decode(const unsigned char bytes[TRI_FRAME_NBYTES], tri_frame *frame)
{
    tri_frame read = {
        .kind = tri_bytes_read_u16(bytes + 4),
        .op = bytes[6],
        .dtype = bytes[7],
        .group = tri_bytes_read_u32(bytes + 8),
        .generation = tri_bytes_read_u32(bytes + 12),
        .roots = tri_bytes_read_u16(bytes + 22),
        .sequence = tri_bytes_read_u64(bytes + 16) & SEQUENCE_MASK,
        .count = tri_bytes_read_u64(bytes + 24),
        .name = tri_bytes_read_u64(bytes + 32),
        .nbytes = tri_bytes_read_u64(bytes + 40),
        .reduce = tri_bytes_read_u32(bytes + 48),
        .part = tri_bytes_read_u32(bytes + 52),
        .check = tri_bytes_read_u64(bytes + CHECKED_NBYTES),
    };
    uint32_t magic = tri_bytes_read_u32(bytes);
    uint64_t check = XXH3_64bits(bytes, CHECKED_NBYTES);
    uint64_t limit = TRI_FRAME_LIMIT_NBYTES;

    if (magic != TRI_FRAME_MAGIC)
        return tri_fail(TRI_EFORMAT, "frame: want magic %08x, got %08x", TRI_FRAME_MAGIC, magic);
    if (read.check != check)
        return tri_fail(TRI_EFORMAT, "frame: want check %016llx, got %016llx", (unsigned long long)check,
                        (unsigned long long)read.check);
    if (read.kind < TRI_FRAME_DATA || read.kind >= TRI_FRAME_KIND_COUNT)
        return tri_fail(TRI_EFORMAT, "frame: want a kind from 1 to %d, got %d", TRI_FRAME_KIND_COUNT - 1, read.kind);
    if (read.kind == TRI_FRAME_ABORT)
        limit = TRI_FRAME_ABORT_LIMIT_NBYTES;
    if (read.kind == TRI_FRAME_BYE)
        limit = 0;
    if (read.nbytes > limit)
        return tri_fail(TRI_EFORMAT, "frame of kind %d: want at most %llu bytes, got %llu", read.kind,
                        (unsigned long long)limit, (unsigned long long)read.nbytes);
    *frame = read;
    return TRI_OK;
}

bool tri_frame_agrees(const tri_frame *mine, const tri_frame *theirs)
{
    return mine->kind == theirs->kind && mine->op == theirs->op && mine->dtype == theirs->dtype &&
           mine->group == theirs->group && mine->generation == theirs->generation &&
           mine->sequence == theirs->sequence && mine->count == theirs->count && mine->name == theirs->name &&
           mine->roots == theirs->roots && mine->reduce == theirs->reduce && mine->part == theirs->part;
}
