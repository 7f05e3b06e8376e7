/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_words.c: what a remote shell itself says on standard error, before the command over there runs.
 *
 * It is held back until that says that it has begun, and then passed on. If it never does, for lack of a connection,
 * the last line is the reason: ssh says fifteen lines about a host key, for each rank, and the same each second while a
 * host is away.
 */
#include <string.h>

#include "cluster/launch_impl.h"

#define HELD_NBYTES 16384

static tri_status words_hear(launch_stream *stream, const char *line, size_t nbytes)
{
    launch_rank *rank = stream->put_arg;
    static const char begun[] = TRI_FAR_MARK "begun";

    if (nbytes == sizeof begun - 1 && memcmp(line, begun, nbytes) == 0)
        return tri_launch_words_begun(rank);
    if (rank->words.begun || rank->words.held.nbytes + nbytes > HELD_NBYTES)
        return tri_launch_line_pass(stream, line, nbytes);
    TRI_TRY(tri_string_append_bytes(&rank->words.held, line, nbytes));
    return tri_string_append(&rank->words.held, "\n");
}

void tri_launch_words_init(launch_rank *rank)
{
    rank->streams[1].put = words_hear;
    rank->streams[1].put_arg = rank;
}

void tri_launch_words_start(launch_rank *rank)
{
    rank->words.begun = false;
    tri_string_clear(&rank->words.held);
}

tri_status tri_launch_words_begun(launch_rank *rank)
{
    const char *at = tri_string_text(&rank->words.held);

    rank->words.begun = true;
    rank->words.reason[0] = 0;
    rank->words.dropped = 0;
    for (size_t nbytes; *at; at += nbytes + 1) {
        nbytes = strcspn(at, "\n");
        TRI_TRY(tri_launch_line_pass(&rank->streams[1], at, nbytes));
    }
    tri_string_clear(&rank->words.held);
    return TRI_OK;
}

bool tri_launch_words_reason(launch_rank *rank)
{
    const char *text = tri_string_text(&rank->words.held);
    size_t end = rank->words.held.nbytes, from;

    if (rank->words.begun)
        return false;
    while (end > 0 && strchr(" .\r\n", text[end - 1]))
        end--;
    for (from = end; from > 0 && text[from - 1] != '\n';)
        from--;
    bool is_new = strlen(rank->words.reason) != end - from || memcmp(rank->words.reason, text + from, end - from) != 0;
    if (end - from >= sizeof rank->words.reason)
        end = from + sizeof rank->words.reason - 1;
    memcpy(rank->words.reason, text + from, end - from);
    rank->words.reason[end - from] = 0;
    tri_string_clear(&rank->words.held);
    return is_new && end > from;
}
