/* SPDX-License-Identifier: Apache-2.0
 *
 * shared.c: memory of a group that all of its ranks reach directly, where all are on one host: tri_group_alloc.
 *
 * Each rank maps the others' regions, also threads of one process: what one rank reads then stays there when another
 * fails and leaves. Where one rank cannot reach another, all take ordinary memory: the choice is agreed, so every rank
 * selects the same algorithms.
 */
#include "comm/shared.h"

typedef struct shared_ticket {
    tri_region_ticket region;
    int64_t usable;
} shared_ticket;

#define TICKET_COUNT ((int64_t)(sizeof(shared_ticket) / sizeof(int64_t)))

static void shared_destroy(tri_shared *shared)
{
    if (!shared)
        return;
    for (int r = 0; shared->peers && r < shared->count; r++)
        tri_region_close(&shared->peers[r]);
    tri_region_close(&shared->own);
    tri_free(shared->plain);
    tri_free(shared->peers);
    tri_free(shared->base);
    tri_free(shared);
}

/* Maps every other rank's region. */
static tri_status peers_open(tri_shared *shared, const shared_ticket *tickets)
{
    const tri_group *group = shared->group;
    for (int r = 0; r < group->count; r++) {
        const shared_ticket *ticket = &tickets[r];
        if (!ticket->usable)
            return tri_fail(TRI_EUNSUPPORTED, "shared memory: rank %d has none", r);
        if (r != group->rank)
            TRI_TRY(tri_region_open(&ticket->region, &shared->peers[r]));
        shared->base[r] = r == group->rank ? shared->own.bytes : shared->peers[r].bytes;
    }
    return TRI_OK;
}

/* Collective: regions of all ranks, or TRI_EUNSUPPORTED on all of them. */
static tri_status shared_connect(tri_shared *shared, shared_ticket *tickets)
{
    tri_group *group = shared->group;
    shared_ticket own = {.region = shared->own.ticket, .usable = shared->own.bytes != NULL};
    TRI_TRY(tri_all_gather(group, &own, tickets, TICKET_COUNT, TRI_I64, NULL));
    tri_status status = peers_open(shared, tickets);
    int64_t reached = status == TRI_OK;
    TRI_TRY(tri_all_reduce(group, &reached, &reached, 1, TRI_I64, TRI_REDUCE_MIN, NULL));
    return reached ? TRI_OK : tri_fail(TRI_EUNSUPPORTED, "shared memory: not all ranks reach each other");
}

/* Memory of an earlier group to which nobody else can write any more. */
static bool region_fits(const tri_shared *shared, const tri_group_memory *kept)
{
    return kept->region.bytes && kept->nbytes == shared->nbytes && tri_region_is_alone(&kept->region);
}

/* A rank that has none says so to all. */
static void region_take(tri_shared *shared, tri_group_memory *kept)
{
    if (!region_fits(shared, kept)) {
        (void)tri_region_create(shared->nbytes, &shared->own);
        return;
    }
    shared->own = kept->region;
    kept->region = (tri_region){0};
}

static tri_status plain_take(tri_shared *shared, tri_group_memory *kept)
{
    bool fits = kept->plain && kept->nbytes == shared->nbytes;
    if (!fits && region_fits(shared, kept)) {
        region_take(shared, kept);
        return TRI_OK;
    }
    shared->plain = fits ? kept->plain : tri_alloc_bulk(shared->nbytes);
    kept->plain = fits ? NULL : kept->plain;
    return shared->plain ? TRI_OK : TRI_ENOMEM;
}

static tri_status shared_create(tri_group *group, size_t nbytes, tri_group_memory *kept, tri_shared **out)
{
    size_t count = (size_t)group->count;
    tri_shared *shared = tri_alloc_zero(1, sizeof(*shared));
    shared_ticket *tickets = tri_alloc_zero(count, sizeof(*tickets));
    if (shared) {
        *shared = (tri_shared){.group = group, .count = group->count, .nbytes = nbytes};
        shared->peers = tri_alloc_zero(count, sizeof(*shared->peers));
        shared->base = tri_alloc_zero(count, sizeof(*shared->base));
    }
    tri_status status = shared && tickets && shared->peers && shared->base ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK && group->count > 1 && group->price.shares_memory) {
        region_take(shared, kept);
        status = shared_connect(shared, tickets);
        shared->direct = status == TRI_OK;
        if (status == TRI_EUNSUPPORTED)
            status = TRI_OK;
    }
    if (status == TRI_OK && !shared->direct) {
        tri_region_close(&shared->own);
        status = plain_take(shared, kept);
    }
    tri_free(tickets);
    if (status != TRI_OK) {
        shared_destroy(shared);
        return status;
    }
    *out = shared;
    return TRI_OK;
}

static char *shared_bytes(const tri_shared *shared)
{
    return shared->plain ? shared->plain : shared->own.bytes;
}

tri_status tri_group_alloc_kept(tri_group *group, size_t nbytes, tri_group_memory *kept, void **out)
{
    tri_shared *shared;
    tri_comm *comm = group->comm;
    TRI_TRY(shared_create(group, nbytes, kept, &shared));
    tri_mutex_lock(&comm->mutex);
    shared->number = ++group->regions;
    shared->next = comm->shared;
    comm->shared = shared;
    tri_mutex_unlock(&comm->mutex);
    *out = shared_bytes(shared);
    return TRI_OK;
}

tri_status tri_group_alloc(tri_group *group, size_t nbytes, void **out)
{
    tri_group_memory none = {0};
    return tri_group_alloc_kept(group, nbytes, &none, out);
}

/* No longer listed: nothing finds it any more. */
static tri_shared *shared_remove(tri_comm *comm, const void *memory)
{
    tri_shared *found = NULL;
    tri_mutex_lock(&comm->mutex);
    for (tri_shared **at = &comm->shared; memory && *at; at = &(*at)->next)
        if (shared_bytes(*at) == memory) {
            found = *at;
            *at = found->next;
            break;
        }
    tri_mutex_unlock(&comm->mutex);
    return found;
}

void tri_group_free(tri_group *group, void *memory)
{
    shared_destroy(shared_remove(group->comm, memory));
}

void tri_group_free_kept(tri_group *group, void *memory, tri_group_memory *kept)
{
    tri_shared *found = shared_remove(group->comm, memory);
    tri_group_memory_free(kept);
    if (found) {
        *kept = (tri_group_memory){.nbytes = found->nbytes, .region = found->own, .plain = found->plain};
        found->own = (tri_region){0};
        found->plain = NULL;
    }
    shared_destroy(found);
}

tri_status tri_group_memory_make(size_t nbytes, bool shared, tri_group_memory *out)
{
    *out = (tri_group_memory){.nbytes = nbytes};
    if (shared)
        return tri_region_create(nbytes, &out->region);
    out->plain = tri_alloc_bulk(nbytes);
    tri_memory_touch(out->plain, nbytes);
    return out->plain ? TRI_OK : TRI_ENOMEM;
}

void tri_group_memory_free(tri_group_memory *memory)
{
    tri_region_close(&memory->region);
    tri_free(memory->plain);
    *memory = (tri_group_memory){0};
}

const tri_shared *tri_shared_find(const tri_group *group, const void *data, size_t nbytes)
{
    tri_comm *comm = group->comm;
    const tri_shared *found = NULL;
    const char *first = data;
    tri_mutex_lock(&comm->mutex);
    for (const tri_shared *at = comm->shared; at && !found; at = at->next) {
        const char *bytes = shared_bytes(at);
        if (at->direct && at->group == group && first >= bytes && first + nbytes <= bytes + at->nbytes)
            found = at;
    }
    tri_mutex_unlock(&comm->mutex);
    return found;
}

char *tri_shared_at(const tri_group *group, uint32_t number, int rank, uint64_t offset)
{
    tri_comm *comm = group->comm;
    char *found = NULL;
    tri_mutex_lock(&comm->mutex);
    for (const tri_shared *at = comm->shared; at && !found; at = at->next) {
        if (at->direct && at->group == group && at->number == number && offset <= at->nbytes)
            found = at->base[rank] + offset;
    }
    tri_mutex_unlock(&comm->mutex);
    return found;
}

void tri_shared_free_all(tri_comm *comm)
{
    while (comm->shared) {
        tri_shared *shared = comm->shared;
        comm->shared = shared->next;
        shared_destroy(shared);
    }
}
