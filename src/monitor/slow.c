/* SPDX-License-Identifier: Apache-2.0
 *
 * slow.c: seconds against seconds: what the others waited more than the rank did, and what held that rank up.
 */
#include "monitor/slow.h"

#include <stdio.h>

#include "base/status.h"

#define SLOW_SHARE    0.10 /* of a step: less is noise */
#define EXPLAINED     0.5  /* of the delay */
#define WAITING_SHARE 0.3  /* all wait this long: the links are slow */
#define RESENT_A_S    20   /* segments */
#define FAULTS_A_S    100
#define FAULT_S       1e-4 /* a page from a disk, about */

static const struct {
    const char *name, *says, *todo;
} causes[] = {
#define CAUSE_ROW(name, says, todo) [TRI_SLOW_##name] = {#name, says, todo},
    TRI_SLOW_LIST(CAUSE_ROW)
#undef CAUSE_ROW
};

const char *tri_slow_name(tri_slow_cause cause)
{
    TRI_ASSERT((unsigned)cause < TRI_SLOW_COUNT);
    return causes[cause].name;
}

/* Seconds that this cause has taken from a rank. */
static double taken(const tri_slow_row *row, tri_slow_cause cause)
{
    const tri_strain *strain = &row->strain;
    double still, faults = strain->major_faults_total;
    switch (cause) {
    case TRI_SLOW_throttled:
        return strain->throttled_seconds_total;
    case TRI_SLOW_stolen:
        return strain->stolen_seconds_total;
    case TRI_SLOW_queue:
        return strain->queue_seconds_total;
    case TRI_SLOW_stopped: /* neither on a core, nor wanting one, nor waiting for others */
        still = row->wall_s - row->comm - row->data - strain->cpu_seconds_total - strain->queue_seconds_total;
        return strain->cpu_seconds_total > 0 && still > 0 ? still : 0;
    case TRI_SLOW_memory:
        return faults > FAULTS_A_S * row->wall_s ? faults * FAULT_S : 0;
    case TRI_SLOW_data:
        return row->data;
    case TRI_SLOW_between:
        return row->wall_s - row->data - row->forward - row->backward - row->comm - row->optimizer - row->other;
    case TRI_SLOW_compute:
        return row->forward + row->backward + row->optimizer + row->other;
    default:
        return 0;
    }
}

/* More than the others on average. */
static double excess(const tri_slow_row *rows, int count, int rank, tri_slow_cause cause)
{
    double others = 0;
    for (int r = 0; r < count; r++)
        others += r == rank ? 0 : taken(&rows[r], cause) / (count - 1);
    return taken(&rows[rank], cause) - others;
}

/* The first one that explains enough, from those that leave least doubt; a quota and a thief also show as a queue. */
static void cause_find(const tri_slow_row *rows, int count, double delay_s, tri_slow_verdict *verdict)
{
    for (tri_slow_cause cause = TRI_SLOW_throttled; cause < TRI_SLOW_link; cause++) {
        double seconds = excess(rows, count, verdict->rank, cause);
        if (seconds < EXPLAINED * delay_s)
            continue;
        verdict->cause = cause;
        verdict->explained_s = seconds;
        return;
    }
    verdict->cause = TRI_SLOW_compute;
    verdict->explained_s = excess(rows, count, verdict->rank, TRI_SLOW_compute);
}

/* All wait, and what one sends is lost on the way. */
static void link_find(const tri_slow_row *rows, int count, double waited_s, tri_slow_verdict *verdict)
{
    int most = 0;
    double seconds = rows[0].wall_s;
    for (int r = 1; r < count; r++)
        if (rows[r].strain.retransmitted_segments_total > rows[most].strain.retransmitted_segments_total)
            most = r;
    if (waited_s < WAITING_SHARE * seconds || rows[most].strain.retransmitted_segments_total < RESENT_A_S * seconds)
        return;
    *verdict = (tri_slow_verdict){.rank = most,
                                  .cause = TRI_SLOW_link,
                                  .share = waited_s / seconds,
                                  .explained_s = rows[most].strain.retransmitted_segments_total,
                                  .wall_s = seconds};
}

tri_slow_verdict tri_slow_find(const tri_slow_row *rows, int count)
{
    tri_slow_verdict verdict = {.rank = -1};
    int least = 0;
    double waited_s = 0;
    for (int r = 1; r < count; r++)
        least = rows[r].comm < rows[least].comm ? r : least;
    for (int r = 0; r < count; r++)
        waited_s += r == least ? 0 : rows[r].comm / (count - 1);
    double wall_s = rows[least].wall_s, delay_s = waited_s - rows[least].comm;
    if (count < 2 || !(wall_s > 0))
        return verdict;
    if (delay_s < SLOW_SHARE * wall_s) {
        link_find(rows, count, waited_s, &verdict);
        return verdict;
    }
    verdict = (tri_slow_verdict){.rank = least, .share = delay_s / wall_s, .wall_s = wall_s};
    cause_find(rows, count, delay_s, &verdict);
    return verdict;
}

void tri_slow_why(const tri_slow_verdict *verdict, char *text, int capacity)
{
    const double share = 100 * verdict->explained_s / verdict->wall_s;
    char figure[48];
    if (verdict->cause == TRI_SLOW_link)
        snprintf(figure, sizeof(figure), "%.0f a second", verdict->explained_s / verdict->wall_s);
    else
        snprintf(figure, sizeof(figure), "%.0f %% of the time", share);
    snprintf(text, (size_t)capacity, "%s (%s); %s", causes[verdict->cause].says, figure, causes[verdict->cause].todo);
}

void tri_slow_print(const tri_slow_verdict *verdict, char *text, int capacity)
{
    char why[320];
    tri_slow_why(verdict, why, sizeof(why));
    snprintf(text, (size_t)capacity, "rank %d is slow: the others wait for it %.0f %% of the time: %s", verdict->rank,
             100 * verdict->share, why);
}
