/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_ps.c: what servers and their clients read from each other. The first byte says what it is, the second how many
 * keys are expected; the checks of views are made right first.
 */
#include <string.h>

#include "fuzz/fuzz.h"
#include "ps/replication/save.h"
#include "ps/rpc/coding.h"
#include "ps/rpc/kv_body.h"
#include "ps/tables/gather.h"
#include "ps/tables/sparse.h"
#include "ps/tables/sum.h"
#include "ps/view.h"

size_t tri_fuzz_accepted;

static void read_keys(const uint8_t *bytes, size_t nbytes)
{
    uint64_t keys[256];
    size_t used;
    if (nbytes < 1 || ps_keys_read(bytes + 1, nbytes - 1, bytes[0], keys, &used) != TRI_OK)
        return;
    tri_fuzz_accepted++;
    TRI_ASSERT(used <= nbytes - 1);
    const uint64_t *lie = ps_keys_lie(bytes + 1, nbytes - 1, bytes[0]);
    TRI_ASSERT(!lie || memcmp(lie, keys, bytes[0] * sizeof(*keys)) == 0);
}

static void read_view(const uint8_t *bytes, size_t nbytes)
{
    static ps_view view;
    unsigned char checked[2048];
    if (nbytes > sizeof(checked) - 8)
        return;
    uint64_t check = XXH3_64bits(bytes, nbytes);
    memcpy(checked, bytes, nbytes);
    memcpy(checked + nbytes, &check, sizeof(check));
    if (ps_view_read(checked, nbytes + 8, &view) != TRI_OK)
        return;
    tri_fuzz_accepted++;
    if (view.server_count > 1) {
        ps_change gone = {PS_WITHOUT, view.servers[0]};
        TRI_ASSERT(ps_view_change(&view, &gone, &view) == TRI_OK);
    }
    for (int slot = 0; slot < PS_SLOTS; slot++)
        TRI_ASSERT(ps_view_has(&view, view.slots[slot]));
}

static void read_sum(const uint8_t *bytes, size_t nbytes)
{
    ps_sum sum;
    TRI_ASSERT(ps_sum_init(&sum, 4, 1) == TRI_OK);
    if (ps_sum_read(&sum, bytes, nbytes) == TRI_OK) {
        tri_fuzz_accepted++;
        TRI_ASSERT(ps_sum_count(&sum) <= 4);
    }
    ps_sum_fini(&sum);
}

static void read_gather(const uint8_t *bytes, size_t nbytes)
{
    ps_gather gather;
    TRI_ASSERT(ps_gather_init(&gather, 4, 1) == TRI_OK);
    if (ps_gather_read(&gather, bytes, nbytes) == TRI_OK) {
        tri_fuzz_accepted++;
        ps_gather_drop(&gather);
        TRI_ASSERT(ps_gather_finish(&gather) == TRI_OK);
    }
    ps_gather_fini(&gather);
}

static void read_rows(const uint8_t *bytes, size_t nbytes)
{
    static ps_sparse *table; /* one for all: a slab is 2 MiB */
    const ps_sparse_setup setup = {.name = "t", .dim = 1};
    if (!table)
        TRI_ASSERT(ps_sparse_create(&setup, &table) == TRI_OK);
    if (ps_sparse_read(table, bytes, nbytes) == TRI_OK)
        tri_fuzz_accepted++;
    for (int slot = 0; slot < PS_SLOTS; slot++)
        ps_sparse_drop(table, slot);
    TRI_ASSERT(ps_sparse_count(table) == 0);
}

static void read_plan(const uint8_t *bytes, size_t nbytes)
{
    tri_arena arena = {0};
    ps_save_plan plan;
    if (ps_save_plan_read(bytes, nbytes, 64, &arena, &plan) == TRI_OK) {
        tri_fuzz_accepted++;
        for (int64_t i = 0; i < plan.row_count; i++)
            TRI_ASSERT(plan.rows[i].at + plan.rows[i].count <= 64);
    }
    tri_arena_fini(&arena);
}

/* What a message about rows holds: its slots and its keys or their hash, and values in every coding. */
static void read_body(const uint8_t *bytes, size_t nbytes)
{
    ps_rows_room room = {0};
    ps_rows_body body;
    ps_slots slots;
    XXH128_hash_t hash;
    if (nbytes < 1)
        return;
    bool slots_are_there = ps_rows_slots_read(bytes + 1, nbytes - 1, &slots) == TRI_OK;
    bool named = ps_rows_name_read(bytes + 1, nbytes - 1, &hash);
    const int count = bytes[0] & 7, wire = (bytes[0] >> 3 & 3) % PS_WIRE_COUNT, dim = 1 + (bytes[0] >> 6);
    if (ps_rows_body_read(bytes + 1, nbytes - 1, count, dim, wire, bytes[0] >> 5 & 1, &room, &body) == TRI_OK) {
        tri_fuzz_accepted++;
        TRI_ASSERT(slots_are_there && body.count == count && (body.keys != NULL) == !named);
    }
    ps_rows_room_fini(&room);
}

/* A change as the store has it, and the notes of servers in a draft: lines of text. */
static void read_notes(const uint8_t *bytes, size_t nbytes)
{
    int64_t code, least, most;
    ps_change change;
    if (nbytes < sizeof(code))
        return;
    memcpy(&code, bytes, sizeof(code));
    if (ps_change_read(code, &change) == TRI_OK) {
        tri_fuzz_accepted++;
        TRI_ASSERT(change.number >= 0 && change.number < PS_MAX_SERVERS && ps_change_code(&change) == code);
    }
    char *notes = tri_format("%.*s", (int)(nbytes - sizeof(code)), (const char *)bytes + sizeof(code));
    TRI_ASSERT(notes != NULL);
    tri_fuzz_accepted += ps_save_notes_read(notes, &least, &most);
    tri_free(notes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    static void (*const readers[])(const uint8_t *bytes, size_t nbytes) = {read_keys, read_view, read_sum,  read_gather,
                                                                           read_rows, read_plan, read_body, read_notes};
    if (nbytes > 0)
        readers[bytes[0] % TRI_COUNT_OF(readers)](bytes + 1, nbytes - 1);
    return 0;
}

#define EIGHT "\7\0\7\0\7\0\7\0\7\0\7\0\7\0\7\0"
#define PLACES                                                                                                         \
    "\0\0\1\0\2\0\3\0\4\0\5\0\6\0\7\0\10\0\11\0\12\0\13\0\14\0\15\0\16\0\17\0"                                         \
    "\20\0\21\0\22\0\23\0\24\0\25\0\26\0\27\0\30\0\31\0\32\0\33\0\34\0\35\0\36\0\37\0"                                 \
    "\40\0\41\0\42\0\43\0\44\0\45\0\46\0\47\0\50\0\51\0\52\0\53\0\54\0\55\0\56\0\57\0"                                 \
    "\60\0\61\0\62\0\63\0\64\0\65\0\66\0\67\0\70\0\71\0\72\0\73\0\74\0\75\0\76\0\77\0"
#define SLOTS EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("\0\3\1\x11\2\5\7\2\1"),
    TRI_FUZZ_SEED("\0\2\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"),
    TRI_FUZZ_SEED("\1psv2\1\0\0\0\0\0\0\0" PLACES "\2\0\3\0\7\0" SLOTS),
    TRI_FUZZ_SEED("\2psum\0\0\0\0\4\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
                  "\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\0\0\x80\x3f"),
    TRI_FUZZ_SEED("\3psgt\0\0\0\0\4\0\0\0\0\0\0\0\1\0\0\0\1\0\0\0"
                  "\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\7\0\0\0\0\0\0\0\0\0\x80\x3f"),
    TRI_FUZZ_SEED("\4psrw\1\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0\7\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0\0\0\x80\x3f"),
    TRI_FUZZ_SEED("\5\1\0\0\0\7\0\0\0\0\0\0\0\1\0\0\0f\1\0\0\0\1\0\0\0w\1\0\0\0\4\0\0\0\0\0\0\0\0\0\0\0"
                  "\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"psv2", "psum", "psgt", "psrw", "\xff\xff\xff\xff\xff\xff\xff\xff"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
