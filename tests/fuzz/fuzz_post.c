/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_post.c: what a partner of a line says: letters, or what only looks like them, in reads of any length, to an
 * owner who places some bodies, refuses some and pauses now and then. The first byte chooses these, the second how much
 * a read gives; bit 0 of the first: magics and checks are made right. Whatever comes, a body is never longer than the
 * limit, and the bytes of a letter are those that were said.
 */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/memory.h"
#include "fuzz/fuzz.h"
#include "net/bytes.h"
#include "net/post_impl.h"

#define LIMIT_NBYTES  1500
#define LETTER_NBYTES (TRI_LETTER_NBYTES - 8)

size_t tri_fuzz_accepted;

/* What is said, and how far it has been read and understood. */
static struct said {
    unsigned char bytes[4096];
    size_t nbytes, read, heard, step;
    unsigned char choice;
    int turns;
    unsigned char place[LIMIT_NBYTES];
} said;

static tri_status said_read(tri_line *line, const post_room rooms[2], size_t *given)
{
    size_t left = said.nbytes - said.read, step = left < said.step ? left : said.step;

    *given = 0;
    if (left == 0)
        return tri_fail(TRI_EPEER, "the end");
    for (int i = 0; i < 2; i++) {
        size_t part = step < rooms[i].nbytes ? step : rooms[i].nbytes;

        if (part > 0)
            memcpy(rooms[i].bytes, said.bytes + said.read, part);
        said.read += part;
        *given += part;
        step -= part;
    }
    line->readable = true;
    return TRI_OK;
}

static void said_end(tri_line *line)
{
    (void)line;
}

static void *owner_place(void *arg, tri_line *line, const tri_letter *letter, bool *refused)
{
    (void)arg;
    TRI_ASSERT(letter->nbytes > 0 && letter->nbytes <= LIMIT_NBYTES);
    *refused = (said.choice & 2) && letter->kind == 7;
    if ((said.choice & 4) && letter->kind % 4 == 0)
        tri_line_pause(line, true);
    return (said.choice & 8) && letter->kind % 2 == 0 ? said.place : NULL;
}

static bool owner_letter(void *arg, tri_line *line, const tri_letter *letter, void *body)
{
    (void)arg;
    TRI_ASSERT((body == NULL) == (letter->nbytes == 0));
    said.heard += TRI_LETTER_NBYTES;
    TRI_ASSERT(said.heard + letter->nbytes <= said.read);
    TRI_ASSERT(!body || memcmp(body, said.bytes + said.heard, (size_t)letter->nbytes) == 0);
    said.heard += (size_t)letter->nbytes;
    if ((said.choice & 16) && letter->kind % 3 == 0)
        tri_line_pause(line, true);
    tri_fuzz_accepted++;
    return !(said.choice & 32) || letter->kind != 9;
}

static void owner_closed(void *arg, tri_line *line, const char *why)
{
    (void)arg;
    (void)line;
    TRI_ASSERT(why[0]);
}

/* Letters as a partner who knows the form would write them. */
static void letters_mend(void)
{
    for (size_t at = 0; at + TRI_LETTER_NBYTES <= said.nbytes;) {
        unsigned char *head = said.bytes + at;

        tri_bytes_write_u32(head, TRI_LETTER_MAGIC);
        memset(head + 10, 0, 6);
        tri_bytes_write_u64(head + LETTER_NBYTES, XXH3_64bits(head, LETTER_NBYTES));
        at += TRI_LETTER_NBYTES + (size_t)tri_bytes_read_u64(head + 8);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    static const tri_post_ops ops = {.name = "said", .scratch_nbytes = 256, .read = said_read, .line_end = said_end};
    tri_post post = {.ops = &ops,
                     .name = (char *)(uintptr_t) "fuzz",
                     .setup = {.body_limit = LIMIT_NBYTES,
                               .handlers = {.place = owner_place, .letter = owner_letter, .closed = owner_closed}},
                     .noted_ns = INT64_MAX / 2}; /* nothing is said */
    post_node *const heads[] = {&post.lines, &post.ready, &post.owing, &post.fresh, &post.broken, &post.ended};
    tri_line *line;

    if (nbytes < 2)
        return 0;
    memset(&said, 0, sizeof said);
    said.choice = bytes[0];
    said.step = 1 + (size_t)bytes[1] * 4;
    said.nbytes = nbytes - 2 < sizeof said.bytes ? nbytes - 2 : sizeof said.bytes;
    memcpy(said.bytes, bytes + 2, said.nbytes);
    if (said.choice & 1)
        letters_mend();
    for (size_t i = 0; i < TRI_COUNT_OF(heads); i++)
        tri_post_node_head(heads[i]);
    post.scratch = tri_alloc_bulk(ops.scratch_nbytes);
    TRI_ASSERT(post.scratch && tri_post_line_create(&post, sizeof *line, &line) == TRI_OK);
    tri_post_line_readable(line);
    while (line->state == LINE_OPEN && said.turns++ < 10000) {
        tri_post_line_receive(line);
        if (line->state == LINE_OPEN)
            tri_line_pause(line, false);
    }
    TRI_ASSERT(line->state != LINE_OPEN);
    if (line->state == LINE_BROKEN)
        tri_post_line_end(line, TRI_EPEER);
    tri_post_line_destroy(line);
    tri_free(post.scratch);
    tri_free(post.spare);
    return 0;
}

#define WORDS "wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwcccccccc"

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("\1\40TRIP\1\0\0\0\0\0\0\0\0\0\0\0" WORDS),
    TRI_FUZZ_SEED("\15\3TRIP\2\0\0\0\5\0\0\0\0\0\0\0" WORDS "hello"
                  "TRIP\4\0\0\0\3\0\0\0\0\0\0\0" WORDS "yes"),
    TRI_FUZZ_SEED("\77\100TRIP\3\0\0\0\0\0\0\0\0\0\0\0" WORDS "TRIP\1\0\0\0\10\0\0\0\0\0\0\0" WORDS "12345678"
                  "TRIP\14\0\0\0\0\0\0\0\0\0\0\0" WORDS),
    TRI_FUZZ_REFUSED("\1\40TRIP\1\0\0\0\xff\xff\0\0\0\0\0\0" WORDS),
    TRI_FUZZ_REFUSED("\3\40TRIP\7\0\0\0\1\0\0\0\0\0\0\0" WORDS "x"),
    TRI_FUZZ_REFUSED("\0\40TRIP\1\0\0\0\0\0\0\0\0\0\0\0" WORDS),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"TRIP", "TRIP\1"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
