/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_sums.c: the ranks compare libraries and cards before NCCL is asked, and sums go in rounds of bounded memory.
 */
#include "parallel/nccl_sums.h"

#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "base/rng.h"
#include "kernel/array.h"
#include "tensor/tree.h"

#define STAGING_NBYTES ((size_t)64 << 20)
#define SEGMENT_ALIGN  4 /* elements: 16 bytes */

/* Who adds what, for a number of leaves. */
typedef struct sums_plan {
    int64_t leaves; /* 0: none yet */
    int slot_count;
    int *first_slot; /* [ranks + 1]: a rank's parts */
    int step_count;
    tri_tree_step *steps;
    float **from;    /* [slot_count]: where the value of a slot is in this round */
    int64_t segment; /* elements of a block in one round */
    float *staging;  /* [slot_count][segment] */
} sums_plan;

struct tri_nccl_sums {
    tri_nccl_setup setup;
    tri_nccl *nccl;
    int rank, ranks;
    sums_plan plan;
    int64_t *firsts, *counts; /* [ranks] of an all-reduce, then of the call's blocks */
};

/* --- the order of additions --- */

static void plan_fini(tri_nccl_sums *sums)
{
    sums_plan *plan = &sums->plan;
    tri_device_free(sums->setup.device, plan->staging);
    tri_free(plan->first_slot);
    tri_free(plan->steps);
    tri_free(plan->from);
    *plan = (sums_plan){0};
}

static int parts_of(int64_t leaves, int rank, int ranks, tri_tree_part *parts)
{
    return tri_tree_parts(leaves, tri_tree_first(leaves, rank, ranks), tri_tree_count(leaves, rank, ranks), parts);
}

/* Elements of a block in one round: all of the largest one, if there is room. */
static int64_t segment_find(const tri_nccl_setup *setup, int slot_count)
{
    const size_t nbytes = setup->staging_nbytes ? setup->staging_nbytes : STAGING_NBYTES;
    const int64_t room = (int64_t)(nbytes / sizeof(float)) / slot_count / SEGMENT_ALIGN * SEGMENT_ALIGN;
    const int64_t block = (setup->block + SEGMENT_ALIGN - 1) / SEGMENT_ALIGN * SEGMENT_ALIGN;
    const int64_t segment = setup->block > 0 && block < room ? block : room;
    return segment < SEGMENT_ALIGN ? SEGMENT_ALIGN : segment;
}

size_t tri_nccl_sums_nbytes(int64_t leaves, int ranks, int64_t block)
{
    tri_tree_part parts[TRI_TREE_MAX_PARTS];
    int slot_count = 0;
    for (int r = 0; r < ranks; r++)
        slot_count += parts_of(leaves, r, ranks, parts);
    const tri_nccl_setup setup = {.block = block};
    return ranks > 1 ? (size_t)(segment_find(&setup, slot_count) * slot_count) * sizeof(float) : 0;
}

int64_t tri_nccl_sums_block(int64_t count, int ranks)
{
    return count - (ranks - 1) * (count / ranks);
}

static tri_status plan_fill(tri_nccl_sums *sums, int64_t leaves)
{
    sums_plan *plan = &sums->plan;
    const size_t ranks = (size_t)sums->ranks;
    tri_tree_part *parts = tri_alloc(ranks * TRI_TREE_MAX_PARTS * sizeof(*parts));
    plan->first_slot = tri_alloc_zero(ranks + 1, sizeof(int));
    if (!parts || !plan->first_slot) {
        tri_free(parts);
        return TRI_ENOMEM;
    }
    for (int r = 0; r < sums->ranks; r++)
        plan->first_slot[r + 1] = plan->first_slot[r] + parts_of(leaves, r, sums->ranks, parts + plan->first_slot[r]);
    plan->slot_count = plan->first_slot[ranks];
    plan->steps = tri_alloc_zero((size_t)plan->slot_count, sizeof(*plan->steps));
    plan->from = tri_alloc_zero((size_t)plan->slot_count, sizeof(*plan->from));
    if (plan->steps)
        plan->step_count = tri_tree_plan(parts, plan->slot_count, plan->steps);
    tri_free(parts);
    if (!plan->steps || !plan->from)
        return TRI_ENOMEM;
    plan->segment = segment_find(&sums->setup, plan->slot_count);
    plan->leaves = leaves;
    if (sums->ranks == 1)
        return TRI_OK;
    plan->staging = tri_device_alloc(sums->setup.device, (size_t)(plan->segment * plan->slot_count) * sizeof(float));
    return plan->staging ? TRI_OK : TRI_ENOMEM;
}

/* --- ranks meet --- */

#define WHY_NBYTES 400

/* What each rank tells the others; the ranks of a job run the same program. */
typedef struct introduction {
    int32_t status; /* TRI_OK, or why says why not */
    int32_t version, index;
    char id[TRI_DEVICE_ID_NBYTES], place[32]; /* tri_cuda_handles */
    uint64_t card;                            /* hash: the same for all instances (MIG) of a card */
    char why[WHY_NBYTES];
} introduction;

static void introduction_fail(introduction *own, tri_status status)
{
    own->status = (int32_t)status;
    if (status != TRI_OK)
        snprintf(own->why, sizeof(own->why), "%s", tri_last_error());
}

static tri_status exchange(tri_group *group, const introduction *own, introduction *all)
{
    return tri_all_gather(group, own, all, (int64_t)sizeof(*own), TRI_U8, NULL);
}

/* The rank has failed because another one has, or does not come. */
static bool is_consequence(const introduction *rank)
{
    return rank->status == TRI_ETIMEOUT || rank->status == TRI_EABORT;
}

/* The first failure of any rank is that of all, a cause before its consequences. */
static tri_status check_all(const introduction *all, int ranks)
{
    int first = -1;
    for (int r = 0; r < ranks; r++)
        if (all[r].status != TRI_OK && (first < 0 || (is_consequence(&all[first]) && !is_consequence(&all[r]))))
            first = r;
    return first < 0 ? TRI_OK
                     : tri_fail((tri_status)all[first].status, "rank %d: %.*s", first, WHY_NBYTES, all[first].why);
}

static tri_status check_versions(const introduction *all, int ranks)
{
    char first[TRI_NCCL_NBYTES], other[TRI_NCCL_NBYTES];
    for (int r = 1; r < ranks; r++) {
        if (all[r].version == all[0].version)
            continue;
        tri_nccl_print(all[0].version, first);
        tri_nccl_print(all[r].version, other);
        return tri_fail(TRI_ECONFIG, "want the same version of NCCL on all ranks: rank 0 has %s, rank %d has %s", first,
                        r, other);
    }
    return TRI_OK;
}

/* NCCL refuses two instances of a card as it refuses one card for two ranks: it compares PCI addresses, newer ones the
 * UUID of the whole card. */
static tri_status check_cards(const introduction *all, int ranks)
{
    for (int r = 1; r < ranks; r++)
        for (int q = 0; q < r; q++)
            if (all[q].card == all[r].card)
                return tri_fail(TRI_ECONFIG,
                                "ranks %d and %d are %s the card at %s (cuda:%d, cuda:%d): NCCL needs one card for "
                                "each rank",
                                q, r, strcmp(all[q].id, all[r].id) == 0 ? "both on" : "on two instances (MIG) of",
                                all[r].place, all[q].index, all[r].index);
    return TRI_OK;
}

static uint64_t card_hash(const tri_cuda_handles *card)
{
    char *boot, text[128];
    size_t nbytes;
    if (tri_fs_read("/proc/sys/kernel/random/boot_id", 4096, &boot, &nbytes) != TRI_OK)
        return tri_rng_stream(card->id, 0, 0);
    snprintf(text, sizeof(text), "%.64s %s", boot, card->place);
    tri_free(boot);
    return tri_rng_stream(text, 0, 0);
}

static tri_status introduce(const tri_device *device, introduction *own)
{
    tri_cuda_handles card;
    TRI_TRY(tri_cuda_handles_read(device, &card));
    own->index = card.index;
    memcpy(own->id, card.id, sizeof(own->id));
    memcpy(own->place, card.place, sizeof(own->place));
    own->card = card_hash(&card);
    return TRI_OK;
}

static tri_status version_find(introduction *own)
{
    char name[TRI_NCCL_NBYTES];
    int version = 0;
    TRI_TRY(tri_nccl_version(&version, name));
    own->version = version;
    return TRI_OK;
}

static tri_status id_share(tri_nccl_sums *sums, nccl_unique_id *id)
{
    struct {
        introduction by;
        nccl_unique_id id;
    } from_root;
    memset(&from_root, 0, sizeof(from_root));
    if (sums->rank == 0)
        introduction_fail(&from_root.by, tri_nccl_unique_id(sums->setup.device, &from_root.id));
    TRI_TRY(tri_broadcast(sums->setup.group, &from_root, (int64_t)sizeof(from_root), TRI_U8, 0, NULL));
    *id = from_root.id;
    return check_all(&from_root.by, 1);
}

/* What ranks must not have in common; then, as NCCL takes a moment to load, what they must. *why: of all. */
static tri_status check(tri_group *group, introduction *own, introduction *all, tri_status *why)
{
    const int ranks = tri_group_count(group);
    TRI_TRY(exchange(group, own, all));
    *why = check_all(all, ranks);
    if (*why == TRI_OK)
        *why = check_cards(all, ranks);
    if (*why != TRI_OK)
        return TRI_OK;
    introduction_fail(own, version_find(own));
    TRI_TRY(exchange(group, own, all));
    *why = check_all(all, ranks);
    if (*why == TRI_OK)
        *why = check_versions(all, ranks);
    return TRI_OK;
}

tri_status tri_nccl_sums_check(tri_group *group, const tri_device *device, const char *against,
                               char why[TRI_NCCL_WHY_NBYTES])
{
    const int ranks = tri_group_count(group);
    introduction own, *all = tri_alloc_zero((size_t)ranks, sizeof(*all));
    if (!all)
        return TRI_ENOMEM;
    memset(&own, 0, sizeof(own));
    introduction_fail(&own, against[0] ? tri_fail(TRI_EIO, "%s", against) : introduce(device, &own));
    tri_status found = TRI_OK;
    const tri_status status = check(group, &own, all, &found);
    snprintf(why, TRI_NCCL_WHY_NBYTES, "%s", found == TRI_OK ? "" : tri_last_error());
    tri_free(all);
    return status;
}

/* All or none are in; who is in while another is not leaves. */
static tri_status meet(tri_nccl_sums *sums, introduction *all)
{
    introduction own;
    nccl_unique_id id;
    tri_group *group = sums->setup.group;
    memset(&own, 0, sizeof(own));
    introduction_fail(&own, introduce(sums->setup.device, &own));
    tri_status found = TRI_OK;
    TRI_TRY(check(group, &own, all, &found));
    TRI_TRY(found);
    TRI_TRY(id_share(sums, &id));
    introduction_fail(
        &own, tri_nccl_open(sums->setup.device, &id, sums->rank, sums->ranks, &sums->setup.limits, &sums->nccl));
    const tri_status status = exchange(group, &own, all);
    if (status == TRI_OK)
        return check_all(all, sums->ranks);
    char why[TRI_ERROR_NBYTES];
    snprintf(why, sizeof(why), "%s", tri_last_error());
    return own.status == TRI_OK || is_consequence(&own) ? status : tri_fail(status, "%s; %s", own.why, why);
}

/* hangs: memory of the card cannot be freed. */
static void sums_free(tri_nccl_sums *sums, bool hangs)
{
    if (hangs)
        sums->plan.staging = NULL;
    plan_fini(sums);
    tri_free(sums->firsts);
    tri_free(sums->counts);
    tri_free(sums);
}

tri_status tri_nccl_sums_open(const tri_nccl_setup *setup, tri_nccl_sums **out)
{
    const int ranks = tri_group_count(setup->group);
    tri_nccl_sums *sums = tri_alloc_zero(1, sizeof(*sums));
    introduction *all = tri_alloc_zero((size_t)ranks, sizeof(*all));
    if (sums) {
        sums->setup = *setup;
        sums->rank = tri_group_rank(setup->group);
        sums->ranks = ranks;
        sums->firsts = tri_alloc_zero((size_t)ranks, sizeof(int64_t));
        sums->counts = tri_alloc_zero((size_t)ranks, sizeof(int64_t));
    }
    tri_status status = sums && all && sums->firsts && sums->counts ? TRI_OK : TRI_ENOMEM;
    if (status == TRI_OK && setup->leaves > 0 && !setup->any_order)
        status = plan_fill(sums, setup->leaves);
    if (status == TRI_OK)
        status = meet(sums, all);
    tri_free(all);
    if (status == TRI_OK) {
        *out = sums;
        return TRI_OK;
    }
    char why[TRI_ERROR_NBYTES];
    snprintf(why, sizeof(why), "%s", tri_last_error());
    if (sums && sums->nccl && tri_nccl_abort(sums->nccl) != TRI_OK)
        *out = sums;
    else if (sums)
        (void)tri_nccl_sums_close(sums);
    return tri_fail_copy(status, why);
}

tri_status tri_nccl_sums_close(tri_nccl_sums *sums)
{
    if (!sums)
        return TRI_OK;
    const tri_status status = tri_nccl_close(sums->nccl);
    sums_free(sums, status == TRI_ETIMEOUT);
    return status;
}

tri_status tri_nccl_sums_abort(tri_nccl_sums *sums)
{
    return tri_nccl_abort(sums->nccl);
}

const char *tri_nccl_sums_name(const tri_nccl_sums *sums)
{
    return sums->nccl->name;
}

/* --- sums --- */

/* Made at the first sum, and when the number of leaves changes. */
static tri_status plan_find(tri_nccl_sums *sums, int64_t leaves, int part_count)
{
    if (leaves < sums->ranks || (leaves & (leaves - 1)) != 0)
        return tri_fail(TRI_EINVAL, "sum of leaves: want a power of two, at least %d, got %lld", sums->ranks,
                        (long long)leaves);
    if (sums->plan.leaves != leaves) {
        plan_fini(sums);
        const tri_status status = plan_fill(sums, leaves);
        if (status != TRI_OK) {
            plan_fini(sums);
            return status;
        }
    }
    const int wanted = sums->plan.first_slot[sums->rank + 1] - sums->plan.first_slot[sums->rank];
    return part_count == wanted ? TRI_OK
                                : tri_fail(TRI_EINVAL, "sum of leaves: want %d parts, got %d", wanted, part_count);
}

/* Elements of a rank's block in the round that begins at `done`. */
static int64_t segment_of(const tri_nccl_sums *sums, int rank, int64_t done)
{
    const int64_t left = sums->counts[rank] - done;
    return left < 0 ? 0 : tri_int64_min(left, sums->plan.segment);
}

/* The parts of each block travel to its owner. */
static tri_status parts_move(tri_nccl_sums *sums, float *const *parts, int64_t done)
{
    const sums_plan *plan = &sums->plan;
    const int rank = sums->rank, ranks = sums->ranks;
    const int64_t mine = segment_of(sums, rank, done);
    for (int slot = plan->first_slot[rank]; slot < plan->first_slot[rank + 1]; slot++)
        plan->from[slot] = parts[slot - plan->first_slot[rank]] + sums->firsts[rank] + done;
    tri_nccl_begin(sums->nccl, "nccl send_recv");
    for (int i = 1; i < ranks; i++) {
        const int to = (rank + i) % ranks, from = (rank + ranks - i) % ranks;
        const int64_t theirs = segment_of(sums, to, done);
        for (int p = 0; theirs > 0 && p < plan->first_slot[rank + 1] - plan->first_slot[rank]; p++)
            tri_nccl_send(sums->nccl, parts[p] + sums->firsts[to] + done, theirs, to);
        for (int slot = plan->first_slot[from]; mine > 0 && slot < plan->first_slot[from + 1]; slot++) {
            plan->from[slot] = plan->staging + slot * plan->segment;
            tri_nccl_receive(sums->nccl, plan->from[slot], mine, from);
        }
    }
    return tri_nccl_end(sums->nccl);
}

/* The root is in slot 0 after the last step. */
static void parts_add(const tri_nccl_sums *sums, float *out, int64_t count)
{
    const sums_plan *plan = &sums->plan;
    for (int i = 0; i < plan->step_count; i++) {
        const tri_tree_step step = plan->steps[i];
        float *to = i == plan->step_count - 1 ? out : plan->from[step.into];
        tri_array_add(sums->setup.device, 1, to, plan->from[step.into], plan->from[step.from], count);
    }
    if (plan->step_count == 0 && plan->from[0] != out)
        tri_device_copy(sums->setup.device, out, plan->from[0], (size_t)count * sizeof(float));
}

static tri_status blocks_sum(tri_nccl_sums *sums, float *const *parts, float *out)
{
    int64_t most = 0;
    for (int r = 0; r < sums->ranks; r++)
        most = sums->counts[r] > most ? sums->counts[r] : most;
    for (int64_t done = 0; done < most; done += sums->plan.segment) {
        const int64_t mine = segment_of(sums, sums->rank, done);
        TRI_TRY(parts_move(sums, parts, done));
        if (mine > 0)
            parts_add(sums, out + done, mine);
    }
    return TRI_OK;
}

/* What all blocks have in common by an all-gather where they lie one after the other, the rest by broadcasts. */
static tri_status blocks_gather(tri_nccl_sums *sums, float *data)
{
    int64_t common = sums->counts[0];
    for (int r = 1; r < sums->ranks; r++)
        common = tri_int64_min(common, sums->counts[r]);
    for (int r = 1; r < sums->ranks; r++)
        if (sums->firsts[r] != sums->firsts[0] + r * common)
            common = 0;
    tri_nccl_begin(sums->nccl, "nccl all_gather");
    if (common > 0)
        tri_nccl_all_gather(sums->nccl, data + sums->firsts[0], common);
    for (int r = 0; r < sums->ranks; r++)
        if (sums->counts[r] > common)
            tri_nccl_broadcast(sums->nccl, data + sums->firsts[r] + common, sums->counts[r] - common, r);
    return tri_nccl_end(sums->nccl);
}

static tri_status sum_in_any_order(tri_nccl_sums *sums, float *const *parts, int part_count, int64_t count)
{
    for (int p = 1; p < part_count; p++)
        tri_array_add(sums->setup.device, 1, parts[0], parts[0], parts[p], count);
    tri_nccl_begin(sums->nccl, "nccl all_reduce");
    tri_nccl_all_reduce(sums->nccl, parts[0], count);
    return tri_nccl_end(sums->nccl);
}

tri_status tri_nccl_sums_all_reduce(tri_nccl_sums *sums, int64_t leaves, float *const *parts, int part_count,
                                    int64_t count)
{
    const int64_t each = count / sums->ranks;
    if (sums->setup.any_order)
        return sum_in_any_order(sums, parts, part_count, count);
    TRI_TRY(plan_find(sums, leaves, part_count));
    for (int r = 0; r < sums->ranks; r++) {
        sums->firsts[r] = r * each;
        sums->counts[r] = r < sums->ranks - 1 ? each : tri_nccl_sums_block(count, sums->ranks);
    }
    TRI_TRY(blocks_sum(sums, parts, parts[0] + sums->firsts[sums->rank]));
    return blocks_gather(sums, parts[0]);
}

static void blocks_set(tri_nccl_sums *sums, const tri_blocks *blocks)
{
    int64_t first = 0;
    for (int r = 0; r < sums->ranks; r++) {
        sums->counts[r] = blocks->counts[r];
        sums->firsts[r] = blocks->firsts ? blocks->firsts[r] : first;
        first += blocks->counts[r];
    }
}

tri_status tri_nccl_sums_reduce_scatter(tri_nccl_sums *sums, int64_t leaves, float *const *parts, int part_count,
                                        const tri_blocks *blocks, float *out)
{
    TRI_TRY(plan_find(sums, leaves, part_count));
    blocks_set(sums, blocks);
    return blocks_sum(sums, parts, out);
}

tri_status tri_nccl_sums_all_gather(tri_nccl_sums *sums, float *data, const tri_blocks *blocks)
{
    blocks_set(sums, blocks);
    return blocks_gather(sums, data);
}

tri_status tri_nccl_sums_wait(tri_nccl_sums *sums, const tri_device_event *event)
{
    return tri_nccl_wait(sums->nccl, event);
}
