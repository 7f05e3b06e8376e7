/* SPDX-License-Identifier: Apache-2.0
 *
 * backup_workers.c: bsp with backup workers: whose parts count in a step, and what becomes of the others'.
 *
 * Each worker says to one server, the one that has the first block that moves, when it has pushed all of a step. The
 * first ones, all workers but ps.backup_workers, are chosen: a function of that server's messages, so its backup
 * chooses the same. They hear it with the sums of the batch and tell the other servers, where the first word counts. A
 * block moves when all parts of the chosen are there; others are forgone. Who comes late hears which step is next.
 *
 * table->went_on[w] is the step after the latest in which w was chosen.
 */
#include <string.h>

#include "base/memory.h"
#include "ps/server/connection.h"
#include "ps/server/dense.h"

static bool is_chosen(const ps_table *table, int worker)
{
    return table->went_on[worker] == table->tail_clock + 1;
}

static bool has_chosen(const ps_table *table)
{
    for (int w = 0; w < table->spec.workers; w++)
        if (is_chosen(table, w))
            return true;
    return false;
}

bool tri_ps_is_left_out(const ps_table *table, int worker)
{
    return tri_ps_chooses(table) && has_chosen(table) && !is_chosen(table, worker);
}

static bool all_here(const ps_sum *sum, int64_t first, int64_t count)
{
    tri_tree_part parts[TRI_TREE_MAX_PARTS];
    int part_count = tri_tree_parts(sum->leaves, first, count, parts);
    for (int p = 0; p < part_count; p++)
        if (!ps_sum_has(sum, parts[p]))
            return false;
    return true;
}

bool tri_ps_chosen_are_here(const ps_table *table, ps_sum *sum)
{
    int64_t leaves = table->spec.leaves;
    int workers = table->spec.workers;
    if (sum->dropped || !has_chosen(table))
        return false;
    for (int w = 0; w < workers; w++) {
        int64_t first = tri_tree_first(leaves, w, workers), count = tri_tree_count(leaves, w, workers);
        if (!is_chosen(table, w))
            ps_sum_forgo(sum, first, count);
        else if (!all_here(sum, first, count))
            return false;
    }
    ps_sum_drop(sum);
    return true;
}

void tri_ps_chosen_answer(ps_client_connection *client, const ps_table *table)
{
    int workers = table->spec.workers;
    size_t nbytes = sizeof(table->tail_sum) + (size_t)workers;
    char *body = tri_alloc(nbytes);
    ps_head head = {.kind = PS_TAIL,
                    .nbytes = nbytes,
                    .clock = table->tail_clock,
                    .table = (uint32_t)table->number,
                    .extra = (double)(table->tail_clock + (table->tail_whole ? 1 : 0))};
    if (body) {
        memcpy(body, table->tail_whole ? table->tail_sum : table->tail_before, sizeof(table->tail_sum));
        for (int w = 0; w < workers; w++)
            body[sizeof(table->tail_sum) + (size_t)w] = (char)is_chosen(table, w);
    }
    if (!body || tri_ps_answer_take(client, &head, body) != TRI_OK)
        (void)tri_ps_concerns_all(client->of, TRI_ENOMEM);
}

static void chosen_count(tri_ps_server *server, ps_table *table)
{
    for (int w = 0; w < table->spec.workers; w++)
        table->left_out[w] += !is_chosen(table, w);
    tri_ps_bsp_chosen(server, table);
}

tri_status tri_ps_bsp_clock(tri_ps_server *server, ps_client_connection *client, ps_table *table, const ps_head *head)
{
    int workers = table->spec.workers, ready = 0;
    if (!tri_ps_chooses(table) || head->clock < 1 || head->clock > table->tail_clock + 1)
        return tri_fail(TRI_EFORMAT, "step %lld is over, before its sums were said", (long long)head->clock - 1);
    if (head->clock <= table->tail_clock || table->tail_whole) {
        if (head->flags & PS_FLAG_PULL)
            tri_ps_chosen_answer(client, table);
        return TRI_OK;
    }
    if (head->flags & PS_FLAG_PULL)
        table->tail_waits[client->number] = 1;
    if (has_chosen(table))
        return TRI_OK;
    table->clocks[client->number] = head->clock;
    for (int w = 0; w < workers; w++)
        ready += table->clocks[w] == head->clock;
    if (ready < workers - (int)table->spec.ps.backup_workers)
        return TRI_OK;
    for (int w = 0; w < workers; w++)
        if (table->clocks[w] == head->clock)
            table->went_on[w] = head->clock;
    chosen_count(server, table);
    return TRI_OK;
}

tri_status tri_ps_bsp_choice(tri_ps_server *server, ps_table *table, const ps_head *head, const uint8_t *chosen)
{
    int workers = table->spec.workers, count = 0;
    for (int w = 0; head->nbytes == (size_t)workers && w < workers; w++)
        count += chosen[w] == 1;
    if (!tri_ps_chooses(table) || count < workers - (int)table->spec.ps.backup_workers ||
        head->clock > table->tail_clock)
        return tri_fail(TRI_EFORMAT, "a choice of %d workers in %llu bytes for step %lld, while step %lld is under way",
                        count, (unsigned long long)head->nbytes, (long long)head->clock, (long long)table->tail_clock);
    if (head->clock < table->tail_clock || has_chosen(table))
        return TRI_OK; /* another worker said the same before */
    for (int w = 0; w < workers; w++)
        if (chosen[w] == 1)
            table->went_on[w] = head->clock + 1;
    chosen_count(server, table);
    return TRI_OK;
}

tri_status tri_ps_choices_print(const ps_table *table, tri_string *out)
{
    TRI_TRY(tri_string_append(out, "steps without a worker's part (ps.backup_workers):"));
    for (int w = 0; w < table->spec.workers; w++)
        TRI_TRY(tri_string_appendf(out, " %d: %llu", w, (unsigned long long)table->left_out[w]));
    return tri_string_append(out, "\n");
}
