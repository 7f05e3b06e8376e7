/* SPDX-License-Identifier: Apache-2.0
 *
 * view.c: slots of living servers.
 */
#include "ps/view.h"

#include <stdlib.h>

#include "base/memory.h"
#include "ps/pack.h"

#define VIEW_MAGIC UINT32_C(0x77767370) /* "psvw" */

/* Where in the ring a number is; -1: it is not. */
static int place_of(const ps_view *view, int number)
{
    for (int i = 0; i < view->server_count; i++)
        if (view->servers[i].number == number)
            return i;
    return -1;
}

/* Puts a server into the ring. */
static tri_status place_add(ps_view *view, const ps_place *server)
{
    if (server->number < 0 || server->number > PS_MAX_NUMBER)
        return tri_fail(TRI_EINVAL, "server: want a number of 0 to %d, got %d", PS_MAX_NUMBER, server->number);
    if (place_of(view, server->number) >= 0)
        return tri_fail(TRI_EINVAL, "server %d is in the view already", server->number);
    if (view->server_count == PS_MAX_SERVERS)
        return tri_fail(TRI_EINVAL, "servers: want at most %d", PS_MAX_SERVERS);
    int at = view->server_count++;
    for (; at > 0 && view->servers[at - 1].number > server->number; at--)
        view->servers[at] = view->servers[at - 1];
    view->servers[at] = *server;
    return TRI_OK;
}

tri_status ps_view_make(const ps_place *servers, int count, ps_view *out)
{
    *out = (ps_view){.version = 1};
    if (count < 1)
        return tri_fail(TRI_EINVAL, "servers: want at least 1");
    for (int i = 0; i < count; i++)
        TRI_TRY(place_add(out, &servers[i]));
    for (int slot = 0; slot < PS_SLOTS; slot++)
        out->slots[slot] = out->servers[slot % count].number;
    return TRI_OK;
}

tri_status ps_view_first(int count, ps_view *out)
{
    ps_place *places = tri_alloc_zero(PS_MAX_SERVERS, sizeof(*places));
    if (!places)
        return TRI_ENOMEM;
    for (int i = 0; i < count && i < PS_MAX_SERVERS; i++)
        places[i].number = i;
    tri_status status = ps_view_make(places, count, out);
    tri_free(places);
    return status;
}

tri_status ps_view_without(const ps_view *view, int number, ps_view *out)
{
    int at = place_of(view, number), backup = ps_view_backup(view, number);
    if (at < 0)
        return tri_fail(TRI_EINVAL, "server %d is not in the view", number);
    if (backup < 0)
        return tri_fail(TRI_EINVAL, "server %d is the last one: there is nobody to take its slots", number);
    if (out != view)
        *out = *view;
    out->version++;
    out->server_count--;
    memmove(out->servers + at, out->servers + at + 1, (size_t)(out->server_count - at) * sizeof(*out->servers));
    for (int slot = 0; slot < PS_SLOTS; slot++)
        if (out->slots[slot] == number)
            out->slots[slot] = backup;
    return TRI_OK;
}

tri_status ps_view_with(const ps_view *view, const ps_place *server, ps_view *out)
{
    if (out != view)
        *out = *view;
    TRI_TRY(place_add(out, server));
    uint64_t version = out->version + 1;
    ps_view_even(out);
    out->version = version;
    return TRI_OK;
}

tri_status ps_view_join(const ps_view *view, const ps_place *server, ps_view *out)
{
    if (out != view)
        *out = *view;
    TRI_TRY(place_add(out, server));
    out->version++;
    return TRI_OK;
}

void ps_view_share(ps_view *view, int from, int to)
{
    int more = ps_view_slots(view, from) - ps_view_slots(view, to);
    for (int s = PS_SLOTS - 1, moved = 0; s >= 0 && moved < more / 2; s--)
        if (view->slots[s] == from) {
            view->slots[s] = to;
            moved++;
        }
    view->version++;
}

/* --- evening out --- */

typedef struct even_state {
    int target[PS_MAX_SERVERS]; /* slots that each server shall have */
    int lacks[PS_MAX_SERVERS];  /* how many it does not have yet; below 0: too many */
    int passed[PS_MAX_SERVERS]; /* that it has among the slots that were looked at */
} even_state;

/* Those with the most slots keep one more where they cannot all have the same. */
static void targets_find(const ps_view *view, even_state *even)
{
    int count = view->server_count, have[PS_MAX_SERVERS];
    for (int i = 0; i < count; i++)
        have[i] = ps_view_slots(view, view->servers[i].number);
    for (int i = 0; i < count; i++) {
        int before = 0;
        for (int j = 0; j < count; j++)
            before += have[j] > have[i] || (have[j] == have[i] && j < i);
        even->target[i] = PS_SLOTS / count + (before < PS_SLOTS % count);
        even->lacks[i] = even->target[i] - have[i];
    }
}

/* How far a server is ahead of its even share of the slots up to this one. */
static int ahead(const even_state *even, int server, int slot)
{
    return even->passed[server] * PS_SLOTS - even->target[server] * (slot + 1);
}

/* Who shall have the slot. Equal blocks lie in the first slots, and few of them shall be even as well: so it moves if
 * that leaves both sides nearer to their even share of the slots so far. must: it moves if anybody lacks one. */
static int slot_owner(const ps_view *view, const even_state *even, int slot, bool must)
{
    int owner = place_of(view, view->slots[slot]), to = -1;
    if (even->lacks[owner] >= 0)
        return owner;
    for (int i = 0; i < view->server_count; i++)
        if (even->lacks[i] > 0 && (to < 0 || ahead(even, i, slot) < ahead(even, to, slot)))
            to = i;
    return to >= 0 && (must || ahead(even, owner, slot) > ahead(even, to, slot)) ? to : owner;
}

static void slot_move(ps_view *view, even_state *even, int slot, int to)
{
    int from = place_of(view, view->slots[slot]);
    even->lacks[from] += to != from;
    even->lacks[to] -= to != from;
    view->slots[slot] = view->servers[to].number;
}

void ps_view_even(ps_view *view)
{
    even_state even = {0};
    bool moved = false;
    targets_find(view, &even);
    for (int i = 0; i < view->server_count; i++)
        moved = moved || even.lacks[i] != 0;
    for (int slot = 0; slot < PS_SLOTS; slot++) {
        int to = slot_owner(view, &even, slot, false);
        slot_move(view, &even, slot, to);
        even.passed[to]++;
    }
    for (int slot = PS_SLOTS - 1; slot >= 0; slot--) /* what is left over, where it matters least */
        slot_move(view, &even, slot, slot_owner(view, &even, slot, true));
    view->version += moved;
}

/* --- questions --- */

const ps_place *ps_view_find(const ps_view *view, int number)
{
    int at = place_of(view, number);
    return at >= 0 ? &view->servers[at] : NULL;
}

int ps_view_backup(const ps_view *view, int number)
{
    int at = place_of(view, number);
    return at >= 0 && view->server_count > 1 ? view->servers[(at + 1) % view->server_count].number : -1;
}

int ps_view_slots(const ps_view *view, int number)
{
    int count = 0;
    for (int slot = 0; slot < PS_SLOTS; slot++)
        count += view->slots[slot] == number;
    return count;
}

ps_role ps_view_role(const ps_view *view, int number, int slot)
{
    if (view->slots[slot] == number)
        return PS_PRIMARY;
    return ps_view_backup(view, view->slots[slot]) == number ? PS_BACKUP : PS_NOTHING;
}

/* --- blocks --- */

typedef struct deal_block {
    uint64_t nbytes;
    int number;
} deal_block;

static int compare_blocks(const void *a, const void *b)
{
    const deal_block *left = a, *right = b;
    if (left->nbytes != right->nbytes)
        return left->nbytes > right->nbytes ? -1 : 1;
    return (left->number > right->number) - (left->number < right->number);
}

tri_status ps_deal(const uint64_t *nbytes, int count, uint8_t *slots)
{
    uint64_t loads[PS_SLOTS] = {0};
    deal_block *blocks = tri_alloc_zero((size_t)count + 1, sizeof(*blocks));
    if (!blocks)
        return TRI_ENOMEM;
    for (int i = 0; i < count; i++)
        blocks[i] = (deal_block){nbytes[i], i};
    qsort(blocks, (size_t)count, sizeof(*blocks), compare_blocks);
    for (int i = 0; i < count; i++) {
        int least = 0;
        for (int slot = 1; slot < PS_SLOTS; slot++)
            if (loads[slot] < loads[least])
                least = slot;
        loads[least] += blocks[i].nbytes;
        slots[blocks[i].number] = (uint8_t)least;
    }
    tri_free(blocks);
    return TRI_OK;
}

/* --- as bytes: magic, version, servers (number, incarnation, address), number of the server of each slot, xxh3 --- */

tri_status ps_view_write(const ps_view *view, tri_string *out)
{
    size_t begin = out->nbytes;
    TRI_TRY(ps_put_u32(out, VIEW_MAGIC));
    TRI_TRY(ps_put_u64(out, view->version));
    TRI_TRY(ps_put_u16(out, (uint16_t)view->server_count));
    for (int i = 0; i < view->server_count; i++) {
        const ps_place *server = &view->servers[i];
        TRI_TRY(ps_put_u16(out, (uint16_t)server->number));
        TRI_TRY(ps_put_u64(out, server->incarnation));
        TRI_TRY(ps_put_u16(out, (uint16_t)strlen(server->address)));
        TRI_TRY(tri_string_append(out, server->address));
    }
    for (int slot = 0; slot < PS_SLOTS; slot++)
        TRI_TRY(ps_put_u16(out, (uint16_t)view->slots[slot]));
    return ps_put_u64(out, XXH3_64bits(out->text + begin, out->nbytes - begin));
}

static bool read_server(ps_reader *reader, ps_place *server)
{
    server->number = ps_read_u16(reader);
    server->incarnation = ps_read_u64(reader);
    size_t length = ps_read_u16(reader);
    if (length >= sizeof(server->address))
        return false;
    const unsigned char *address = ps_read(reader, length);
    for (size_t i = 0; address && i < length; i++)
        if (address[i] < ' ' || address[i] > '~')
            return false;
    if (address)
        memcpy(server->address, address, length);
    return address != NULL;
}

static bool read_fields(ps_reader *reader, ps_view *view)
{
    if (ps_read_u32(reader) != VIEW_MAGIC)
        return false;
    view->version = ps_read_u64(reader);
    view->server_count = ps_read_u16(reader);
    if (view->version == 0 || view->server_count < 1 || view->server_count > PS_MAX_SERVERS)
        return false;
    for (int i = 0; i < view->server_count; i++)
        if (!read_server(reader, &view->servers[i]) ||
            (i > 0 && view->servers[i].number <= view->servers[i - 1].number))
            return false;
    for (int slot = 0; slot < PS_SLOTS; slot++) {
        view->slots[slot] = ps_read_u16(reader);
        if (place_of(view, view->slots[slot]) < 0)
            return false;
    }
    return !reader->ended && reader->left == 0;
}

tri_status ps_view_read(const void *bytes, size_t nbytes, ps_view *out)
{
    size_t fields = nbytes >= 8 ? nbytes - 8 : 0;
    ps_reader reader = ps_reader_make(bytes, fields);
    ps_view view = {0};
    if (nbytes < 8 || tri_bytes_read_u64((const unsigned char *)bytes + fields) != XXH3_64bits(bytes, fields) ||
        !read_fields(&reader, &view))
        return tri_fail(TRI_EFORMAT, "view of the servers: there is none in %zu bytes", nbytes);
    *out = view;
    return TRI_OK;
}
