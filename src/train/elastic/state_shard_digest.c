/* SPDX-License-Identifier: Apache-2.0
 *
 * state_shard_digest.c: has a role's memory changed since it was written? A hash of each tile of weights and state,
 * taken behind the writing, against one of what is there now. Of the two processes that have a role each knows so much
 * of its own memory; and the sum of the hashes is the same in both where they have the same elements, wherever these
 * are.
 */
#include "base/memory.h"
#include "train/elastic/state_shard.h"

#define TILE_COUNT (INT64_C(1) << 14) /* elements that are hashed at once, at most */
#define ARRAYS     (1 + TRI_OPTIM_MAX_STATE)

/* Elements of one tensor that are one after the other in array 0, the weights, or a later one, of state. */
struct tri_state_shard_tile {
    int array, tensor;
};
_Static_assert(ARRAYS <= TRI_DIGEST_ARRAYS, "one call has them all");

static int arrays_of(const tri_state_shard *shard)
{
    int count = 1;
    while (tri_optim_state_name(shard->optim, count - 1))
        count++;
    return count;
}

/* Of all arrays; into `tiles` and `parts` where these are not NULL. Returns how many. The seed is the same in all
 * processes: which elements these are. */
static int64_t tiles_list(const tri_state_shard *shard, tri_state_shard_tile *tiles, tri_digest_tile *parts)
{
    int64_t count = 0;
    for (int a = 0; a < arrays_of(shard); a++) {
        const tri_vector *list = a == 0 ? &shard->held_values : &shard->held;
        for (size_t i = 0; i < list->count; i++) {
            const tri_extent *held = tri_vector_at(list, i);
            for (int64_t low = held->low; low < held->high; low += TILE_COUNT, count++) {
                int64_t left = held->high - low;
                if (tiles)
                    tiles[count] = (tri_state_shard_tile){.array = a, .tensor = held->tensor};
                if (parts)
                    parts[count] = (tri_digest_tile){.array = a,
                                                     .first = held->at + (low - held->low),
                                                     .count = left < TILE_COUNT ? left : TILE_COUNT,
                                                     .seed = ((uint64_t)a << 56) + ((uint64_t)i << 36) + (uint64_t)low};
            }
        }
    }
    return count;
}

tri_status tri_state_shard_digests_open(tri_state_shard *shard)
{
    tri_state_shard_digests *digests = &shard->digests;
    int64_t count = tiles_list(shard, NULL, NULL);
    tri_digest_tile *parts = tri_alloc_zero((size_t)count + 1, sizeof(*parts));
    digests->tiles = tri_alloc_zero((size_t)count + 1, sizeof(*digests->tiles));
    digests->written = tri_alloc_zero(2 * (size_t)count + 1, sizeof(uint64_t));
    tri_status status = parts && digests->tiles && digests->written ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK) {
        digests->found = digests->written + count;
        digests->count = tiles_list(shard, digests->tiles, parts);
        status = tri_digest_create(shard->params->device, parts, count, &digests->digest);
    }
    tri_free(parts);
    return status;
}

void tri_state_shard_digests_close(tri_state_shard *shard)
{
    tri_digest_destroy(shard->digests.digest);
    tri_free(shard->digests.tiles);
    tri_free(shard->digests.written);
    shard->digests = (tri_state_shard_digests){0};
}

tri_status tri_state_shard_views_open(const tri_state_shard *shard, tri_state_shard_views *views)
{
    const tri_device *device = shard->params->device;
    int arrays = arrays_of(shard);
    *views = (tri_state_shard_views){0};
    for (int a = 0; a < arrays; a++) {
        float *array = a == 0 ? shard->params->values : tri_optim_state(shard->optim, a - 1);
        int64_t count = a == 0 ? tri_params_held(shard->params) : tri_optim_count(shard->optim);
        TRI_TRY(tri_device_view_open(&views->arrays[a], device, array, (size_t)count * sizeof(float)));
        views->count++;
    }
    return TRI_OK;
}

void tri_state_shard_views_close(tri_state_shard_views *views)
{
    for (int a = 0; a < views->count; a++)
        tri_device_view_close(&views->arrays[a]);
    views->count = 0;
}

static void digests_make(const tri_state_shard *shard, int threads, uint64_t *out)
{
    const float *arrays[TRI_DIGEST_ARRAYS] = {shard->params->values};
    for (int a = 1; a < arrays_of(shard); a++)
        arrays[a] = tri_optim_state(shard->optim, a - 1);
    tri_digest_run(shard->digests.digest, threads, arrays, out);
}

void tri_state_shard_note(tri_state_shard *shard, int threads)
{
    shard->digests.noted = shard->digests.digest != NULL;
    if (shard->digests.noted)
        digests_make(shard, threads, shard->digests.written);
}

tri_status tri_state_shard_look(const tri_state_shard *shard, int threads, tri_state_shard_sight *sight)
{
    const tri_state_shard_digests *digests = &shard->digests;
    *sight = (tri_state_shard_sight){.known = digests->noted, .tensor = -1};
    if (!digests->digest)
        return TRI_OK;
    digests_make(shard, threads, digests->found);
    for (int64_t i = digests->count - 1; i >= 0; i--) {
        sight->digest += digests->found[i];
        if (!digests->noted || digests->found[i] == digests->written[i])
            continue;
        sight->changed = true;
        sight->array = digests->tiles[i].array;
        sight->tensor = digests->tiles[i].tensor;
    }
    return TRI_OK;
}
