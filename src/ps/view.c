/* SPDX-License-Identifier: Apache-2.0
 *
 * view.c: slots of living servers.
 */
#include "ps/view.h"

#include <stdlib.h>

#include "base/memory.h"
#include "ps/pack.h"

#define VIEW_MAGIC UINT32_C(0x32767370) /* "psv2" */

/* Where in the ring a number is; -1: it is not. */
static int place_of(const ps_view *view, int number)
{
    for (int i = 0; i < view->server_count; i++)
        if (view->servers[i] == number)
            return i;
    return -1;
}

tri_status ps_view_first(int count, ps_view *out)
{
    if (count < 1 || count > PS_MAX_SERVERS)
        return tri_fail(TRI_EINVAL, "servers: want 1 to %d, got %d", PS_MAX_SERVERS, count);
    *out = (ps_view){.version = 1, .server_count = count};
    for (int i = 0; i < count; i++)
        out->servers[i] = i;
    for (int i = 0; i < PS_MAX_SERVERS; i++)
        out->places[i] = i;
    for (int slot = 0; slot < PS_SLOTS; slot++)
        out->slots[slot] = slot % count;
    return TRI_OK;
}

/* How many of the servers are on the host of server `number`, and whether it is the first of them. */
static int host_size(const uint64_t *hosts, int count, int number, bool *first)
{
    int size = 0;
    *first = true;
    for (int i = 0; i < count; i++) {
        size += hosts[i] == hosts[number];
        *first = *first && (i >= number || hosts[i] != hosts[number]);
    }
    return size;
}

/* The largest host first, its servers in places 0, 2, 4, ... and so on, and then in 1, 3, 5, ...: two of one host meet
 * only where it has more than half of all. */
void ps_view_spread(ps_view *view, const uint64_t *hosts)
{
    int count = view->server_count, place = 0;
    bool first;
    if (host_size(hosts, count, 0, &first) == count)
        return;
    for (int size = count; size > 0; size--)
        for (int head = 0; head < count; head++) {
            if (host_size(hosts, count, head, &first) != size || !first)
                continue;
            for (int number = head; number < count; number++) {
                if (hosts[number] != hosts[head])
                    continue;
                view->places[number] = place;
                view->servers[place] = number;
                place = place + 2 < count || place % 2 == 1 ? place + 2 : 1;
            }
        }
}

/* --- changes --- */

static tri_status without(ps_view *view, int number)
{
    int at = place_of(view, number), backup = ps_view_backup(view, number);
    if (at < 0)
        return tri_fail(TRI_EINVAL, "server %d is not in the view", number);
    if (backup < 0)
        return tri_fail(TRI_EINVAL, "server %d is the last one: there is nobody to take its slots", number);
    view->server_count--;
    memmove(view->servers + at, view->servers + at + 1, (size_t)(view->server_count - at) * sizeof(*view->servers));
    view->servers[view->server_count] = 0;
    for (int slot = 0; slot < PS_SLOTS; slot++)
        if (view->slots[slot] == number)
            view->slots[slot] = backup;
    return TRI_OK;
}

static tri_status join(ps_view *view, int number)
{
    if (place_of(view, number) >= 0)
        return tri_fail(TRI_EINVAL, "server %d is in the view already", number);
    int at = view->server_count++; /* never too many: numbers are below PS_MAX_SERVERS */
    for (; at > 0 && view->places[view->servers[at - 1]] > view->places[number]; at--)
        view->servers[at] = view->servers[at - 1];
    view->servers[at] = number;
    return TRI_OK;
}

/* Spread over all that it has: when there are few blocks, they are in the first slots. */
static tri_status share(ps_view *view, int number)
{
    int to = ps_view_backup(view, number), have = ps_view_slots(view, number);
    int move = to >= 0 ? (have - ps_view_slots(view, to)) / 2 : 0;
    if (move < 1)
        return tri_fail(TRI_EINVAL, "server %d has not more slots than its backup", number);
    for (int slot = 0, passed = 0; slot < PS_SLOTS; slot++)
        if (view->slots[slot] == number) {
            if ((passed + 1) * move / have > passed * move / have)
                view->slots[slot] = to;
            passed++;
        }
    return TRI_OK;
}

static tri_status (*const changes[])(ps_view *view,
                                     int number) = {[PS_WITHOUT] = without, [PS_JOIN] = join, [PS_SHARE] = share};

tri_status ps_view_change(const ps_view *view, const ps_change *change, ps_view *out)
{
    ps_view next = *view;
    if (change->number < 0 || change->number >= PS_MAX_SERVERS)
        return tri_fail(TRI_EINVAL, "server: want a number of 0 to %d, got %d", PS_MAX_SERVERS - 1, change->number);
    TRI_TRY(changes[change->kind](&next, change->number));
    next.version++;
    *out = next;
    return TRI_OK;
}

int64_t ps_change_code(const ps_change *change)
{
    return (int64_t)change->kind * PS_MAX_SERVERS + change->number;
}

tri_status ps_change_read(int64_t code, ps_change *out)
{
    int64_t kind = code / PS_MAX_SERVERS;
    if (kind < PS_WITHOUT || kind > PS_SHARE)
        return tri_fail(TRI_EFORMAT, "change of the servers: there is none of number %lld", (long long)code);
    *out = (ps_change){(ps_change_kind)kind, (int)(code % PS_MAX_SERVERS)};
    return TRI_OK;
}

/* --- questions --- */

bool ps_view_has(const ps_view *view, int number)
{
    return place_of(view, number) >= 0;
}

int ps_view_backup(const ps_view *view, int number)
{
    int at = place_of(view, number);
    return at >= 0 && view->server_count > 1 ? view->servers[(at + 1) % view->server_count] : -1;
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

/* --- as bytes: magic, version, places of all numbers, servers' numbers, number of the server of each slot, xxh3 --- */

tri_status ps_view_write(const ps_view *view, tri_string *out)
{
    size_t begin = out->nbytes;
    TRI_TRY(ps_put_u32(out, VIEW_MAGIC));
    TRI_TRY(ps_put_u64(out, view->version));
    for (int i = 0; i < PS_MAX_SERVERS; i++)
        TRI_TRY(ps_put_u16(out, (uint16_t)view->places[i]));
    TRI_TRY(ps_put_u16(out, (uint16_t)view->server_count));
    for (int i = 0; i < view->server_count; i++)
        TRI_TRY(ps_put_u16(out, (uint16_t)view->servers[i]));
    for (int slot = 0; slot < PS_SLOTS; slot++)
        TRI_TRY(ps_put_u16(out, (uint16_t)view->slots[slot]));
    return ps_put_u64(out, XXH3_64bits(out->text + begin, out->nbytes - begin));
}

static bool read_fields(ps_reader *reader, ps_view *view)
{
    if (ps_read_u32(reader) != VIEW_MAGIC)
        return false;
    view->version = ps_read_u64(reader);
    for (int i = 0; i < PS_MAX_SERVERS; i++) {
        view->places[i] = ps_read_u16(reader);
        for (int before = 0; before < i; before++)
            if (view->places[before] == view->places[i])
                return false;
        if (view->places[i] >= PS_MAX_SERVERS)
            return false;
    }
    view->server_count = ps_read_u16(reader);
    if (view->version == 0 || view->server_count < 1 || view->server_count > PS_MAX_SERVERS)
        return false;
    for (int i = 0; i < view->server_count; i++) {
        view->servers[i] = ps_read_u16(reader);
        if (view->servers[i] >= PS_MAX_SERVERS ||
            (i > 0 && view->places[view->servers[i]] <= view->places[view->servers[i - 1]]))
            return false;
    }
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
