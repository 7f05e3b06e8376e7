/* SPDX-License-Identifier: Apache-2.0
 *
 * assignment.c: who holds what of a sharded state.
 */
#include "train/elastic/assignment.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- notes --- */

void tri_assignment_note_print(const tri_assignment_note *note, char text[TRI_ROLE_NOTE_NBYTES])
{
    int at = 0;
    snprintf(text, TRI_ROLE_NOTE_NBYTES, "-");
    for (int i = 0; i < 2; i++) {
        const tri_assignment_set *set = &note->sets[i];
        if (set->generation > 0)
            at += snprintf(text + at, TRI_ROLE_NOTE_NBYTES - (size_t)at, "%s%" PRId64 ",%" PRId64 ",%d,%d,%d,%d",
                           at > 0 ? "/" : "", set->generation, set->step, set->next, set->roles, set->own, set->mirror);
    }
}

static bool set_read(const char *text, tri_assignment_set *set)
{
    int next, nbytes = 0;
    bool good = sscanf(text, "%" SCNd64 ",%" SCNd64 ",%d,%d,%d,%d%n", &set->generation, &set->step, &next, &set->roles,
                       &set->own, &set->mirror, &nbytes) == 6;
    good = good && (text[nbytes] == 0 || text[nbytes] == '/') && set->generation > 0 && set->step >= 0;
    good = good && set->roles <= TRI_ROLES_MAX && set->own >= -1 && set->own < set->roles && set->mirror >= -1 &&
           set->mirror < set->roles;
    set->next = next == 1;
    return good && (next == 0 || next == 1);
}

bool tri_assignment_note_read(const char *text, tri_assignment_note *out)
{
    *out = (tri_assignment_note){0};
    if (strcmp(text, "-") == 0)
        return true;
    const char *second = strchr(text, '/');
    bool good = set_read(text, &out->sets[0]) && (!second || set_read(second + 1, &out->sets[1]));
    if (!good)
        *out = (tri_assignment_note){0};
    return good;
}

/* --- what can be had --- */

const tri_assignment_set *tri_assignment_source(const tri_assignment_note *note, const tri_assignment_state *state)
{
    for (int i = 0; i < 2; i++) {
        const tri_assignment_set *set = &note->sets[i];
        if (set->generation == state->generation && set->generation > 0 &&
            (set->step == state->step || (set->next && set->step + 1 == state->step)))
            return set;
    }
    return NULL;
}

static void role_mark(uint64_t *held, int role)
{
    if (role >= 0)
        held[role / 64] |= UINT64_C(1) << role % 64;
}

/* Roles of a state that nobody has. */
static int missing_count(const tri_assignment_note *notes, int count, const tri_assignment_state *state, int *first)
{
    uint64_t held[TRI_ROLES_MAX / 64] = {0};
    int missing = 0;
    for (int i = 0; i < count; i++) {
        const tri_assignment_set *set = tri_assignment_source(&notes[i], state);
        if (set) {
            role_mark(held, set->own);
            role_mark(held, set->mirror);
        }
    }
    for (int role = state->roles - 1; role >= 0; role--)
        if (!(held[role / 64] >> role % 64 & 1)) {
            missing++;
            *first = role;
        }
    return missing;
}

static bool is_newer(const tri_assignment_state *a, const tri_assignment_state *b)
{
    return a->step != b->step ? a->step > b->step : a->generation > b->generation;
}

tri_assignment_state tri_assignment_find(const tri_assignment_note *notes, int count)
{
    tri_assignment_state best = {.lost_step = -1}, last = {0};
    for (int i = 0; i < 2 * count; i++) {
        const tri_assignment_set *set = &notes[i / 2].sets[i % 2];
        tri_assignment_state state = {.generation = set->generation, .step = set->step, .roles = set->roles};
        int first = 0;
        bool seen = state.generation == last.generation && state.step == last.step; /* most say the same */
        if (set->generation == 0 || seen)
            continue;
        last = state;
        int missing = missing_count(notes, count, &state, &first);
        if (missing == 0 && (best.generation == 0 || is_newer(&state, &best))) {
            best.generation = state.generation;
            best.step = state.step;
        }
        if (missing > 0 && state.step > best.lost_step) {
            best.lost_step = state.step;
            best.lost = missing;
            best.roles = state.roles;
            best.first_lost = first;
        }
    }
    return best;
}

/* --- layouts --- */

int tri_role_of(const tri_mesh *mesh, int rank)
{
    tri_mesh at = *mesh;
    tri_mesh_place(&at, rank);
    return (at.stage * mesh->tensor + at.tensor_rank) * mesh->zero + tri_mesh_zero_rank(&at);
}

int tri_role_count(const tri_mesh *mesh)
{
    return mesh->pipeline * mesh->tensor * mesh->zero;
}

/* Is each role somewhere else too? role: of each rank. */
static bool is_doubled(const int *role, const int *host, int ranks, bool hosts)
{
    for (int r = 0; r < ranks; r++) {
        bool doubled = false;
        for (int other = 0; !doubled && other < ranks; other++)
            doubled = other != r && role[other] == role[r] && (!hosts || host[other] != host[r]);
        if (!doubled)
            return false;
    }
    return true;
}

/* The place of a rank in the order of hosts, and of ranks on each. */
static int place_of(const int *host, int ranks, int rank)
{
    int place = 0;
    for (int r = 0; r < ranks; r++)
        place += host[r] < host[rank] || (host[r] == host[rank] && r < rank);
    return place;
}

/* Half the way around in the order of hosts: pairs where the ranks are even; on another host unless one has more than
 * half of all. */
bool tri_assignment_mirror(const tri_mesh *mesh, const int *host, int *room, int *of)
{
    int ranks = mesh->data * mesh->tensor * mesh->pipeline;
    bool hosts = false;
    for (int r = 0; r < ranks; r++) {
        hosts = hosts || host[r] != host[0];
        room[r] = tri_role_of(mesh, r);
        of[r] = -1;
    }
    if (ranks == 1 || is_doubled(room, host, ranks, hosts))
        return false;
    for (int r = 0; r < ranks; r++)
        room[place_of(host, ranks, r)] = r;
    for (int place = 0; place < ranks; place++)
        of[room[place]] = room[(place + ranks / 2) % ranks];
    return true;
}

static int data_of(int ranks, bool even)
{
    int data = ranks;
    for (int power = 1; even && power <= ranks; power *= 2)
        data = power;
    return data;
}

int tri_assignment_layout(const tri_mesh *wish, int ranks, bool even, tri_mesh *out)
{
    tri_mesh best = {.data = 1, .tensor = 1, .pipeline = 1};
    for (int tensor = 1; tensor <= wish->tensor; tensor *= 2)
        for (int pipeline = 1; pipeline <= wish->pipeline && tensor * pipeline <= ranks; pipeline++) {
            int each = tensor * pipeline, before = best.tensor * best.pipeline;
            tri_mesh found = {.data = data_of(ranks / each, even), .tensor = tensor, .pipeline = pipeline};
            if (each > before || (each == before && found.data * each >= best.data * before))
                best = found;
        }
    *out = best;
    return best.data * best.tensor * best.pipeline;
}

/* --- leaving --- */

/* All that r has, others that do not leave have too. */
static bool is_spare(const tri_assignment_set *sets, int count, const bool *leaves, int r)
{
    const int roles[2] = {sets[r].own, sets[r].mirror};
    for (int i = 0; i < 2; i++) {
        bool held = roles[i] < 0;
        for (int other = 0; other < count; other++)
            held = held ||
                   (other != r && !leaves[other] && (sets[other].own == roles[i] || sets[other].mirror == roles[i]));
        if (!held)
            return false;
    }
    return true;
}

void tri_assignment_leave(const tri_assignment_set *sets, int count, bool *leaves)
{
    for (int r = 0; r < count; r++)
        leaves[r] = leaves[r] && is_spare(sets, count, leaves, r);
}
