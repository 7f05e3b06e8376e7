/* SPDX-License-Identifier: Apache-2.0
 *
 * note.c: notes to bytes and back.
 */
#include "comm/note.h"

#include <string.h>

#include "comm/comm.h"
#include "net/bytes.h"

#define HEAD_NBYTES ((size_t)152)
#define PEER_NBYTES ((size_t)20)
_Static_assert(HEAD_NBYTES + TRI_NOTE_PEERS * PEER_NBYTES <= TRI_WATCH_NOTE_NBYTES, "a note fits");

size_t tri_note_write(const tri_board *board, const tri_net *net, unsigned char bytes[TRI_WATCH_NOTE_NBYTES])
{
    tri_board_call call;
    if (!tri_board_read(board, &call))
        return 0;
    int64_t now_ns = tri_now_ns();
    memset(bytes, 0, HEAD_NBYTES);
    tri_bytes_write_u64(bytes, call.number);
    tri_bytes_write_u32(bytes + 8, call.frame.group);
    bytes[12] = call.frame.op;
    bytes[13] = call.frame.dtype;
    bytes[14] = (unsigned char)call.status;
    bytes[15] = call.runs;
    tri_bytes_write_u64(bytes + 16, call.frame.sequence);
    tri_bytes_write_u64(bytes + 24, call.frame.count);
    tri_bytes_write_u64(bytes + 32, call.frame.name);
    tri_bytes_write_u64(bytes + 40, call.members);
    tri_bytes_write_u32(bytes + 48, call.frame.reduce);
    tri_bytes_write_u64(bytes + 56, (uint64_t)(now_ns - call.begin_ns));
    tri_bytes_write_u64(bytes + 64, call.runs ? 0 : (uint64_t)(now_ns - call.end_ns));
    tri_bytes_write_u64(bytes + 72, (uint64_t)now_ns);
    memcpy(bytes + 80, call.name, TRI_BOARD_NAME_NBYTES);
    uint32_t count = 0;
    for (int peer = 0; peer < tri_net_world(net) && count < TRI_NOTE_PEERS; peer++) {
        uint64_t sent, received;
        unsigned char *at = bytes + HEAD_NBYTES + count * PEER_NBYTES;
        tri_net_moved(net, peer, call.frame.group, call.frame.sequence, &sent, &received);
        if (sent == 0 && received == 0)
            continue;
        tri_bytes_write_u32(at, (uint32_t)peer);
        tri_bytes_write_u64(at + 4, sent);
        tri_bytes_write_u64(at + 12, received);
        count++;
    }
    tri_bytes_write_u32(bytes + 52, count);
    return HEAD_NBYTES + count * PEER_NBYTES;
}

bool tri_note_read(const unsigned char *bytes, size_t nbytes, int world, tri_note *note)
{
    memset(note, 0, sizeof(*note));
    if (nbytes < HEAD_NBYTES)
        return false;
    uint32_t count = tri_bytes_read_u32(bytes + 52);
    tri_board_call *call = &note->call;
    call->number = tri_bytes_read_u64(bytes);
    call->frame.kind = TRI_FRAME_DATA;
    call->frame.group = tri_bytes_read_u32(bytes + 8);
    call->frame.op = bytes[12];
    call->frame.dtype = bytes[13];
    call->status = (tri_status)bytes[14];
    call->runs = bytes[15] != 0;
    call->frame.sequence = tri_bytes_read_u64(bytes + 16);
    call->frame.count = tri_bytes_read_u64(bytes + 24);
    call->frame.name = tri_bytes_read_u64(bytes + 32);
    call->members = tri_bytes_read_u64(bytes + 40);
    call->frame.reduce = tri_bytes_read_u32(bytes + 48);
    call->begin_ns = (int64_t)(tri_bytes_read_u64(bytes + 56) & INT64_MAX);
    call->end_ns = (int64_t)(tri_bytes_read_u64(bytes + 64) & INT64_MAX);
    note->made_ns = (int64_t)(tri_bytes_read_u64(bytes + 72) & INT64_MAX);
    memcpy(call->name, bytes + 80, TRI_BOARD_NAME_NBYTES);
    call->name[TRI_BOARD_NAME_NBYTES - 1] = 0;
    if (call->number == 0 || call->frame.op == 0 || call->frame.op >= TRI_COMM_OP_COUNT ||
        call->frame.dtype >= TRI_DTYPE_COUNT || call->status >= TRI_STATUS_COUNT || count > TRI_NOTE_PEERS ||
        nbytes != HEAD_NBYTES + count * PEER_NBYTES)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const unsigned char *at = bytes + HEAD_NBYTES + i * PEER_NBYTES;
        uint32_t rank = tri_bytes_read_u32(at);
        if (rank >= (uint32_t)world)
            return false;
        note->peers[i] = (tri_note_peer){(int)rank, tri_bytes_read_u64(at + 4), tri_bytes_read_u64(at + 12)};
    }
    note->peer_count = (int)count;
    return true;
}
