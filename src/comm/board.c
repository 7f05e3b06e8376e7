/* SPDX-License-Identifier: Apache-2.0
 *
 * board.c: making and reading a board.
 */
#include "comm/board.h"

#include <string.h>

#include "base/memory.h"

#define ATTEMPTS 100

tri_board *tri_board_create(void)
{
    size_t count = tri_sim_active() ? TRI_BOARD_CALLS_SIM : TRI_BOARD_CALLS;
    tri_board *board = tri_alloc_bulk(sizeof(*board));
    if (!board)
        return NULL;
    board->mask = count - 1;
    board->entries = tri_alloc_bulk(count * sizeof(*board->entries));
    if (!board->entries) {
        tri_free(board);
        return NULL;
    }
    return board;
}

void tri_board_destroy(tri_board *board)
{
    if (!board)
        return;
    tri_free(board->entries);
    tri_free(board);
}

uint64_t tri_board_members(const int *world_ranks, int count)
{
    uint64_t members = 0;
    for (int r = 0; r < count; r++) {
        if (world_ranks[r] < TRI_BOARD_RANKS)
            members |= UINT64_C(1) << world_ranks[r];
    }
    return members;
}

static void entry_read(const tri_board_entry *from, tri_board_call *call)
{
    tri_board_entry *entry = (tri_board_entry *)(uintptr_t)from;
    uint64_t what = TRI_BOARD_GET(entry->what);
    uint64_t end = TRI_BOARD_GET(entry->end);
    *call = (tri_board_call){.runs = end == 0, .members = TRI_BOARD_GET(entry->members)};
    call->frame = (tri_frame){.kind = TRI_FRAME_DATA,
                              .op = (uint8_t)what,
                              .dtype = (uint8_t)(what >> 8),
                              .reduce = (uint32_t)(what >> 32),
                              .group = TRI_BOARD_GET(entry->group),
                              .sequence = TRI_BOARD_GET(entry->sequence),
                              .count = TRI_BOARD_GET(entry->count),
                              .name = TRI_BOARD_GET(entry->name)};
    call->status = end ? (tri_status)(TRI_BOARD_GET(entry->what) >> 16 & 0xff) : TRI_OK;
    call->begin_ns = tri_ticks_ns(TRI_BOARD_GET(entry->begin));
    call->end_ns = end ? tri_ticks_ns(end) : 0;
}

bool tri_board_read(const tri_board *from, tri_board_call *call)
{
    tri_board *board = (tri_board *)(uintptr_t)from;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        uint64_t words[TRI_BOARD_NAME_NBYTES / 8] = {0};
        uint32_t stamp = TRI_BOARD_GET(board->stamp);
        uint64_t number = TRI_BOARD_GET(board->begun);
        if (number == 0)
            return false;
        if (stamp % 2 != 0)
            continue;
        entry_read(&board->entries[(number - 1) & board->mask], call);
        call->number = number;
        bool is_named = TRI_BOARD_GET(board->is_named);
        for (size_t i = 0; is_named && i < TRI_COUNT_OF(words); i++)
            words[i] = TRI_BOARD_GET(board->name[i]);
        if (TRI_BOARD_GET(board->stamp) != stamp)
            continue;
        memcpy(call->name, words, sizeof(call->name));
        call->name[sizeof(call->name) - 1] = 0;
        return true;
    }
    return false;
}

bool tri_board_earlier(const tri_board *from, uint64_t back, tri_board_call *call)
{
    tri_board *board = (tri_board *)(uintptr_t)from;
    uint64_t begun = TRI_BOARD_GET(board->begun);
    if (back >= begun || back > board->mask)
        return false;
    uint64_t number = begun - back;
    const tri_board_entry *entry = &board->entries[(number - 1) & board->mask];
    entry_read(entry, call);
    call->number = number;
    return TRI_BOARD_GET(((tri_board_entry *)(uintptr_t)entry)->number) == (uint32_t)number;
}

size_t tri_board_copy(const tri_board *from, tri_board_call *calls, size_t limit)
{
    tri_board *board = (tri_board *)(uintptr_t)from;
    uint64_t begun = TRI_BOARD_GET(board->begun), kept = board->mask + 1;
    size_t count = 0;
    if (kept > limit)
        kept = limit;
    for (uint64_t number = begun > kept ? begun - kept + 1 : 1; number <= begun && begun > 0; number++) {
        tri_board_entry *entry = &board->entries[(number - 1) & board->mask];
        entry_read(entry, &calls[count]);
        calls[count].number = number;
        if (TRI_BOARD_GET(entry->number) == (uint32_t)number)
            count++;
    }
    return count;
}
