/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_write.c: a shard is filled in memory and written when it is full.
 */
#include <string.h>

#include "data/prepare.h"

static tri_status reserve(tri_shard_writer *writer, int64_t wanted)
{
    if (wanted <= writer->capacity)
        return TRI_OK;
    int64_t capacity = writer->capacity * 2 > wanted ? writer->capacity * 2 : wanted;
    if (capacity > writer->shard_tokens)
        capacity = writer->shard_tokens;
    unsigned char *bytes = tri_realloc(writer->bytes, TRI_TOKEN_HEAD_NBYTES + (size_t)(capacity * writer->each));
    if (bytes == NULL)
        return TRI_ENOMEM;
    writer->bytes = bytes;
    writer->capacity = capacity;
    return TRI_OK;
}

tri_status tri_shard_flush(tri_shard_writer *writer)
{
    if (writer->count == 0)
        return TRI_OK;
    char *path = tri_format("%s/%s-%05d%s", writer->folder, writer->name, writer->shards, TRI_TOKENS_ENDING);
    if (path == NULL)
        return TRI_ENOMEM;
    tri_token_head_write(writer->bytes, writer->each, writer->count, writer->vocabulary, writer->end);
    tri_status status =
        tri_fs_write_atomic(path, writer->bytes, TRI_TOKEN_HEAD_NBYTES + (size_t)(writer->count * writer->each));
    tri_free(path);
    writer->total += writer->count;
    writer->count = 0;
    writer->shards++;
    return status;
}

tri_status tri_shard_write(tri_shard_writer *writer, const int32_t *ids, size_t count)
{
    for (size_t at = 0; at < count;) {
        int64_t room = writer->shard_tokens - writer->count, here = (int64_t)(count - at);
        here = here < room ? here : room;
        TRI_TRY(reserve(writer, writer->count + here));
        unsigned char *out = writer->bytes + TRI_TOKEN_HEAD_NBYTES + writer->count * writer->each;
        for (int64_t i = 0; i < here; i++)
            for (int b = 0; b < writer->each; b++)
                *out++ = (unsigned char)(ids[at + (size_t)i] >> 8 * b);
        writer->count += here;
        at += (size_t)here;
        if (writer->count == writer->shard_tokens)
            TRI_TRY(tri_shard_flush(writer));
    }
    return TRI_OK;
}
