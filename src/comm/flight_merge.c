/* SPDX-License-Identifier: Apache-2.0
 *
 * flight_merge.c: the records of several ranks, call by call: where they first part.
 *
 * Group by group, in the order of the numbers that all ranks count alike. A record holds the latest calls only, so a
 * group is compared from the first number that every record can still have.
 */
#include <string.h>

#include "base/memory.h"
#include "comm/flight_read.h"

#define WINDOW_MAX 65536

const char *tri_divergence_name(tri_divergence kind)
{
    static const char *const names[TRI_DIVERGENCE_COUNT] = {"none", "different", "never_began", "never_ended"};
    return (unsigned)kind < TRI_DIVERGENCE_COUNT ? names[kind] : "?";
}

/* The first and one past the last collective of a group in a record; they are side by side. */
static void group_range(const tri_flight_record *record, uint32_t group, size_t *first, size_t *end)
{
    size_t at = 0;
    while (at < record->kept &&
           (record->list[at].frame.op == TRI_COMM_SEND_RECV || record->list[at].frame.group != group))
        at++;
    *first = at;
    while (at < record->kept && record->list[at].frame.op != TRI_COMM_SEND_RECV &&
           record->list[at].frame.group == group)
        at++;
    *end = at;
}

bool tri_flight_is_member(const tri_flight_record *records, size_t count, uint32_t group, int rank)
{
    for (size_t i = 0; i < count; i++) {
        size_t first, end;
        group_range(&records[i], group, &first, &end);
        if (first == end)
            continue;
        if (records[i].rank == rank)
            return true;
        if (rank < TRI_BOARD_RANKS && (records[i].list[first].members >> rank & 1))
            return true;
    }
    return false;
}

/* A group, and which records are of members of it. */
typedef struct group_view {
    const tri_flight_record *records;
    size_t count;
    uint32_t group;
    unsigned char *is_member; /* [count] */
} group_view;

/* The numbers that every record which forgot some calls can still have. */
static bool window_find(const group_view *view, uint64_t *low, uint64_t *high)
{
    bool found = false, forgot = false;
    *low = *high = 0;
    for (size_t i = 0; i < view->count; i++) {
        size_t first, end;
        const tri_flight_record *record = &view->records[i];
        group_range(record, view->group, &first, &end);
        if (first == end)
            continue;
        uint64_t from = record->list[first].frame.sequence, to = record->list[end - 1].frame.sequence;
        bool forgets = record->calls > (int64_t)record->kept;
        if (!found || (forgets && (!forgot || from > *low)) || (!forgets && !forgot && from < *low))
            *low = from;
        if (to > *high)
            *high = to;
        found = true;
        forgot |= forgets;
    }
    if (*high - *low > WINDOW_MAX)
        *low = *high - WINDOW_MAX; /* no honest record has such a gap */
    return found;
}

/* How the ranks relate to one number of a group. */
static void call_compare(const group_view *view, uint64_t sequence, tri_flight_merge *out)
{
    const tri_board_call *one = NULL;
    int absent = -1, other = -1, unfinished = -1, last = -1;
    int64_t last_ns = INT64_MIN;
    *out = (tri_flight_merge){.group = view->group, .sequence = sequence, .first_ns = INT64_MAX, .late = -1};
    for (size_t i = 0; i < view->count; i++) {
        const tri_board_call *call = tri_flight_find(&view->records[i], view->group, sequence);
        if (!call) {
            absent = view->is_member[i] ? (int)i : absent;
            continue;
        }
        if (one && !tri_frame_agrees(&one->frame, &call->frame))
            other = (int)i;
        one = one ? one : call;
        if (call->runs || call->status != TRI_OK)
            unfinished = (int)i;
        if (call->begin_ns < out->first_ns)
            out->first_ns = call->begin_ns;
        if (call->begin_ns > last_ns) {
            last_ns = call->begin_ns;
            last = (int)i;
        }
    }
    if (!one)
        return;
    if (other >= 0) {
        out->kind = TRI_DIVERGENCE_DIFFERENT;
        out->late = other;
    } else if (absent >= 0) {
        out->kind = TRI_DIVERGENCE_NEVER_BEGAN;
        out->late = absent;
    } else if (unfinished >= 0) {
        out->kind = TRI_DIVERGENCE_NEVER_ENDED;
        out->late = last;
    }
}

static void group_compare(const group_view *view, tri_flight_merge *out)
{
    uint64_t low, high, members = 0;
    *out = (tri_flight_merge){.late = -1};
    if (!window_find(view, &low, &high))
        return;
    for (size_t i = 0; i < view->count; i++) {
        size_t first, end;
        group_range(&view->records[i], view->group, &first, &end);
        view->is_member[i] = first < end;
        members |= first < end ? view->records[i].list[first].members : 0;
    }
    for (size_t i = 0; i < view->count; i++) {
        int rank = view->records[i].rank;
        view->is_member[i] |= rank < TRI_BOARD_RANKS && (members >> rank & 1);
    }
    for (uint64_t sequence = low;; sequence++) {
        call_compare(view, sequence, out);
        if (out->kind != TRI_DIVERGENCE_NONE || sequence == high)
            return;
    }
}

static bool is_known(const tri_vector *groups, uint32_t group)
{
    for (size_t g = 0; g < groups->count; g++) {
        if (*(uint32_t *)tri_vector_at(groups, g) == group)
            return true;
    }
    return false;
}

/* The groups of a record that have not been looked at. */
static tri_status record_compare(group_view *view, const tri_flight_record *record, tri_vector *groups,
                                 tri_flight_merge *out)
{
    for (size_t k = 0; k < record->kept && record->list[k].frame.op != TRI_COMM_SEND_RECV; k++) {
        tri_flight_merge found;
        view->group = record->list[k].frame.group;
        if ((k > 0 && record->list[k - 1].frame.group == view->group) || is_known(groups, view->group))
            continue;
        if (!tri_vector_push(groups, &view->group))
            return TRI_ENOMEM;
        group_compare(view, &found);
        if (found.kind != TRI_DIVERGENCE_NONE && (out->kind == TRI_DIVERGENCE_NONE || found.first_ns < out->first_ns))
            *out = found;
    }
    return TRI_OK;
}

tri_status tri_flight_merge_find(const tri_flight_record *records, size_t count, tri_flight_merge *out)
{
    *out = (tri_flight_merge){.late = -1};
    for (size_t i = 1; i < count; i++) {
        if (strcmp(records[i].job, records[0].job) != 0 || records[i].world != records[0].world)
            return tri_fail(TRI_EFORMAT,
                            "flight records: want those of one job, got job %s of %d ranks and job %s of %d ranks",
                            records[0].job, records[0].world, records[i].job, records[i].world);
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t k = i + 1; k < count; k++) {
            if (records[i].rank == records[k].rank)
                return tri_fail(TRI_EFORMAT, "flight records: want one of each rank, got two of rank %d",
                                records[i].rank);
        }
    }
    tri_vector groups = {.each = sizeof(uint32_t)};
    group_view view = {.records = records, .count = count, .is_member = tri_alloc_zero(count + 1, 1)};
    tri_status status = view.is_member ? TRI_OK : TRI_ENOMEM;
    for (size_t i = 0; status == TRI_OK && i < count; i++)
        status = record_compare(&view, &records[i], &groups, out);
    tri_vector_fini(&groups);
    tri_free(view.is_member);
    return status;
}
