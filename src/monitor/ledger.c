/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger.c: the file of ledger.h: 64 bytes of head, then 8 bytes a step; and the latest steps of each rank in a ring.
 */
#include "monitor/ledger.h"

#include <inttypes.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/path.h"
#include "base/runtime.h"

#define MAGIC         UINT64_C(0x3152474c49525431) /* "1TRILGR1" */
#define HEAD_WORDS    8
#define HEAD_NBYTES   (HEAD_WORDS * 8)
#define RING_COUNT    INT64_C(16384) /* steps: far more than are made before whoever leads has written them */
#define WRITE_COUNT   INT64_C(4096)
#define KNOWN         (UINT64_C(10) << 60)
#define LANE_BITS     11
#define LANES         4
#define GENERATION_AT (LANES * LANE_BITS)
#define MOST_STEPS    (UINT64_C(1) << 60)
#define MOST_SAMPLES  (UINT64_C(1) << 40)
#define MOST_BATCH    UINT64_C(1000000000)
#define MOST_SHARDS   UINT64_C(65536)

enum { WORD_MAGIC, WORD_FIRST, WORD_SEED, WORD_COUNT, WORD_BATCH, WORD_SHARDS, WORD_SHUFFLE, WORD_DATA };

struct tri_ledger {
    char *path;
    bool leads, failed;
    bool headless; /* while it leads: the file is to start again, with this plan */
    tri_ledger_plan plan;
    uint64_t *ring; /* [RING_COUNT] entry of step s at s modulo its length */
    int64_t first;  /* of the file: where the plan begins; while it leads */
    int64_t from;   /* the ring has steps [from, end), */
    int64_t end;
    int64_t written; /* and the file those before this one */
    int64_t written_ns;
};

/* --- numbers: little endian --- */

static void word_write(char *bytes, uint64_t word)
{
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(word >> (8 * i));
}

static uint64_t word_read(const char *bytes)
{
    uint64_t word = 0;
    for (int i = 0; i < 8; i++)
        word |= (uint64_t)(unsigned char)bytes[i] << (8 * i);
    return word;
}

/* Marks come with lanes 16 bits apart. */
static uint64_t entry_make(uint64_t marks, int64_t generation)
{
    uint64_t entry = KNOWN | ((uint64_t)generation & 0xffff) << GENERATION_AT;
    for (int lane = 0; lane < LANES; lane++)
        entry |= (marks >> (16 * lane) & ((1u << LANE_BITS) - 1)) << (LANE_BITS * lane);
    return entry;
}

/* Bit 0: it is shuffled; then 24 bits of the block and the rest of the buffer. */
static uint64_t shuffle_word(const tri_ledger_plan *plan)
{
    return (uint64_t)plan->shuffle | (uint64_t)plan->block << 8 | (uint64_t)plan->buffer << 32;
}

static void head_make(const tri_ledger_plan *plan, int64_t first, char head[HEAD_NBYTES])
{
    const uint64_t words[HEAD_WORDS] = {[WORD_MAGIC] = MAGIC,
                                        [WORD_FIRST] = (uint64_t)first,
                                        [WORD_SEED] = (uint64_t)plan->seed,
                                        [WORD_COUNT] = (uint64_t)plan->count,
                                        [WORD_BATCH] = (uint64_t)plan->batch,
                                        [WORD_SHARDS] = (uint64_t)plan->shards,
                                        [WORD_SHUFFLE] = shuffle_word(plan),
                                        [WORD_DATA] = plan->data};
    for (int i = 0; i < HEAD_WORDS; i++)
        word_write(head + 8 * i, words[i]);
}

/* --- writing --- */

tri_status tri_ledger_open(const char *path, tri_ledger **out)
{
    tri_ledger *ledger = tri_alloc_zero(1, sizeof(*ledger));
    if (!ledger)
        return TRI_ENOMEM;
    ledger->path = tri_strdup(path);
    ledger->ring = tri_alloc_zero((size_t)RING_COUNT, sizeof(*ledger->ring));
    if (ledger->path && ledger->ring) {
        *out = ledger;
        return TRI_OK;
    }
    tri_free(ledger->path);
    tri_free(ledger->ring);
    tri_free(ledger);
    return TRI_ENOMEM;
}

/* Steps [written, end) of the ring to their places. */
static tri_status steps_write(tri_ledger *ledger)
{
    char bytes[512 * 8];
    tri_fs_file *file;
    TRI_TRY(tri_fs_file_open(ledger->path, false, &file));
    tri_status status = TRI_OK;
    while (ledger->written < ledger->end && status == TRI_OK) {
        int64_t count = 0, step = ledger->written;
        for (; count < (int64_t)sizeof(bytes) / 8 && step + count < ledger->end; count++)
            word_write(bytes + 8 * count, ledger->ring[(step + count) % RING_COUNT]);
        status = tri_fs_file_write(file, bytes, (size_t)count * 8, HEAD_NBYTES + 8 * (uint64_t)(step - ledger->first));
        ledger->written += status == TRI_OK ? count : 0;
    }
    tri_status closed = tri_fs_file_close(file);
    return status != TRI_OK ? status : closed;
}

/* The file starts again, if it is to. */
static tri_status head_write(tri_ledger *ledger)
{
    char head[HEAD_NBYTES];
    if (!ledger->headless)
        return TRI_OK;
    head_make(&ledger->plan, ledger->first, head);
    TRI_TRY_IN(tri_fs_write_atomic(ledger->path, head, sizeof(head)), "while beginning the ledger");
    ledger->headless = false;
    return TRI_OK;
}

/* A disk that fails ends no run. */
static void flush(tri_ledger *ledger)
{
    if (ledger->written < ledger->from)
        ledger->written = ledger->from;
    if (ledger->written < ledger->first)
        ledger->written = ledger->first;
    ledger->written_ns = tri_now_ns();
    if (ledger->written >= ledger->end && !ledger->headless)
        return;
    bool failed = head_write(ledger) != TRI_OK || steps_write(ledger) != TRI_OK;
    if (failed && !ledger->failed)
        tri_log(TRI_LOG_WARN, "%s; training continues, and the newest steps are kept", tri_last_error());
    ledger->failed = failed;
}

/* The file as it is, if it is one of this plan: where it begins and ends. */
static bool file_look(const tri_ledger *ledger, const tri_ledger_plan *plan, int64_t *first, int64_t *end)
{
    tri_ledger_view view;
    if (!tri_fs_exists(ledger->path) || tri_ledger_load(ledger->path, &view) != TRI_OK)
        return false;
    char wanted[HEAD_NBYTES];
    head_make(plan, view.first, wanted);
    bool same = memcmp(wanted, view.bytes, HEAD_NBYTES) == 0;
    *first = view.first;
    *end = view.end;
    tri_ledger_view_fini(&view);
    return same;
}

/* The steps before ledger->first, of another order of samples or other data, stay in a file of their own. */
static tri_status part_keep(const tri_ledger *ledger)
{
    tri_ledger_view view;
    char *to;
    if (ledger->first == 0 || !tri_fs_exists(ledger->path) || tri_ledger_load(ledger->path, &view) != TRI_OK)
        return TRI_OK;
    const int64_t first = view.first, end = view.end;
    tri_ledger_view_fini(&view);
    if (first >= ledger->first || first >= end)
        return TRI_OK;
    if (end > ledger->first)
        TRI_TRY(tri_fs_cut(ledger->path, HEAD_NBYTES + 8 * (uint64_t)(ledger->first - first)));
    TRI_TRY(tri_path_set_aside(ledger->path, &to));
    tri_log(TRI_LOG_INFO,
            "the ledger of steps %" PRId64 " to %" PRId64 " is in %s: the later ones use samples by another plan",
            first, (end < ledger->first ? end : ledger->first) - 1, to);
    tri_free(to);
    return TRI_OK;
}

tri_status tri_ledger_lead(tri_ledger *ledger, const tri_ledger_plan *plan, int64_t first_step)
{
    int64_t end;
    if (ledger->leads) {
        flush(ledger);
        return TRI_OK;
    }
    bool resumes = file_look(ledger, plan, &ledger->first, &end) && first_step >= ledger->first;
    if (!resumes) {
        bool known = ledger->from < ledger->end && ledger->end == first_step;
        ledger->first = known ? ledger->from : first_step;
        ledger->plan = *plan;
        if (part_keep(ledger) != TRI_OK)
            tri_log(TRI_LOG_WARN, "%s; the ledger starts again", tri_last_error());
        ledger->headless = true;
        end = ledger->first;
    } else if (end > first_step) {
        TRI_TRY(tri_fs_cut(ledger->path, HEAD_NBYTES + 8 * (uint64_t)(first_step - ledger->first)));
        end = first_step;
    }
    ledger->written = end < first_step ? end : first_step;
    ledger->leads = true;
    flush(ledger);
    return TRI_OK;
}

void tri_ledger_yield(tri_ledger *ledger)
{
    if (!ledger || !ledger->leads)
        return;
    flush(ledger);
    ledger->leads = false;
}

void tri_ledger_rewind(tri_ledger *ledger, int64_t step)
{
    if (!ledger)
        return;
    tri_ledger_yield(ledger);
    if (ledger->end > step)
        ledger->end = step > ledger->from ? step : ledger->from;
}

void tri_ledger_drop_lead(tri_ledger *ledger)
{
    if (ledger)
        ledger->leads = false;
}

void tri_ledger_write(tri_ledger *ledger, int64_t step, uint64_t marks, int64_t generation)
{
    if (step < ledger->from || step > ledger->end)
        ledger->from = step;
    if (step < ledger->written)
        ledger->written = step;
    ledger->ring[step % RING_COUNT] = entry_make(marks, generation);
    ledger->end = step + 1;
    if (ledger->end - ledger->from > RING_COUNT)
        ledger->from = ledger->end - RING_COUNT;
    bool due = (ledger->end - ledger->written >= WRITE_COUNT && !ledger->failed) ||
               tri_now_ns() - ledger->written_ns >= TRI_NS_PER_S;
    if (ledger->leads && due)
        flush(ledger);
}

void tri_ledger_flush(tri_ledger *ledger)
{
    if (ledger && ledger->leads)
        flush(ledger);
}

tri_status tri_ledger_close(tri_ledger *ledger)
{
    if (!ledger)
        return TRI_OK;
    tri_status status = TRI_OK;
    tri_ledger_flush(ledger);
    if (ledger->leads && ledger->failed)
        status = tri_fail(TRI_EIO, "%s: its last steps could not be written", ledger->path);
    tri_free(ledger->path);
    tri_free(ledger->ring);
    tri_free(ledger);
    return status;
}

/* --- reading --- */

/* What the options of a run allow (train.batch, train.shards); a set of more samples would fit on no disk. */
static bool head_is_good(const uint64_t *words)
{
    return words[WORD_FIRST] < MOST_STEPS && words[WORD_COUNT] >= 1 && words[WORD_COUNT] <= MOST_SAMPLES &&
           words[WORD_SHARDS] >= 1 && words[WORD_SHARDS] <= MOST_SHARDS && words[WORD_BATCH] >= words[WORD_SHARDS] &&
           words[WORD_BATCH] <= MOST_BATCH && (words[WORD_SHUFFLE] & 0xff) <= 1 &&
           (words[WORD_SHUFFLE] < 0x100 || words[WORD_SHUFFLE] >> 32 > 0);
}

tri_status tri_ledger_load(const char *path, tri_ledger_view *view)
{
    uint64_t words[HEAD_WORDS];
    size_t nbytes;
    *view = (tri_ledger_view){0};
    TRI_TRY(tri_fs_read(path, 0, &view->bytes, &nbytes));
    for (int i = 0; nbytes >= HEAD_NBYTES && i < HEAD_WORDS; i++)
        words[i] = word_read(view->bytes + 8 * i);
    if (nbytes < HEAD_NBYTES || words[WORD_MAGIC] != MAGIC || !head_is_good(words)) {
        bool is_short = nbytes < HEAD_NBYTES || words[WORD_MAGIC] != MAGIC;
        tri_ledger_view_fini(view);
        return is_short ? tri_fail(TRI_EFORMAT,
                                   "%s: want a ledger: %d bytes of head that begin with its mark, got %zu bytes", path,
                                   HEAD_NBYTES, nbytes)
                        : tri_fail(TRI_EFORMAT,
                                   "%s: damaged: no run has %" PRIu64 " samples in batches of %" PRIu64 " and %" PRIu64
                                   " shards from step %" PRIu64 " on",
                                   path, words[WORD_COUNT], words[WORD_BATCH], words[WORD_SHARDS], words[WORD_FIRST]);
    }
    view->plan = (tri_ledger_plan){.seed = (int64_t)words[WORD_SEED],
                                   .count = (int64_t)words[WORD_COUNT],
                                   .batch = (int64_t)words[WORD_BATCH],
                                   .shards = (int64_t)words[WORD_SHARDS],
                                   .shuffle = words[WORD_SHUFFLE] & 1,
                                   .block = (int64_t)(words[WORD_SHUFFLE] >> 8 & 0xffffff),
                                   .buffer = (int64_t)(words[WORD_SHUFFLE] >> 32)};
    view->first = (int64_t)words[WORD_FIRST];
    view->end = view->first + (int64_t)((nbytes - HEAD_NBYTES) / 8);
    return TRI_OK;
}

bool tri_ledger_step(const tri_ledger_view *view, int64_t step, uint64_t *marks, int *generation)
{
    uint64_t entry = word_read(view->bytes + HEAD_NBYTES + 8 * (step - view->first));
    *marks = 0;
    for (int lane = 0; lane < LANES; lane++)
        *marks |= (entry >> (LANE_BITS * lane) & ((1u << LANE_BITS) - 1)) << (16 * lane);
    *generation = (int)(entry >> GENERATION_AT & 0xffff);
    return entry >> 60 == KNOWN >> 60;
}

void tri_ledger_view_fini(tri_ledger_view *view)
{
    tri_free(view->bytes);
    view->bytes = NULL;
}
