/* SPDX-License-Identifier: Apache-2.0
 *
 * slow.c: seconds against seconds: what the others waited more than the rank did, and what held that rank up.
 */
#include "monitor/slow.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"

#define SLOW_SHARE    0.10 /* of a step: less is noise */
#define EXPLAINED     0.5  /* of the delay */
#define WAITING_SHARE 0.3  /* all wait this long: the links are slow */
#define RESENT_A_S    20   /* segments */
#define FAULTS_A_S    100
#define FAULT_S       1e-4 /* a page from a disk, about */
#define SLOW_LINK     2    /* times slower than others, whose answers may have to pass it too */
#define LINK_BUSY     0.7  /* of the time that all wait */
#define ALIKE         2    /* times the bytes */

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

const char *tri_slow_says(const char *name)
{
    for (int cause = 0; cause < TRI_SLOW_COUNT; cause++)
        if (strcmp(causes[cause].name, name) == 0)
            return causes[cause].says;
    return "";
}

/* By itself, or by who prepares its batch, as far as it waited for that one. */
static double disk_s(const tri_slow_row *row)
{
    const double helpers_s = row->strain.data_disk_seconds_total;
    return row->strain.disk_seconds_total + (helpers_s < row->data ? helpers_s : row->data);
}

/* Faults of files that are mapped count too: swapping is what makes them its memory's. */
static double memory_s(const tri_slow_row *row)
{
    const tri_strain *strain = &row->strain;
    const double faults = strain->major_faults_total, least = FAULTS_A_S * row->wall_s;
    if (faults <= least || strain->swapped_in_pages_total <= least)
        return 0;
    return faults * FAULT_S > disk_s(row) ? faults * FAULT_S : disk_s(row);
}

/* Seconds that this cause has taken from a rank. */
static double taken(const tri_slow_row *row, tri_slow_cause cause)
{
    const tri_strain *strain = &row->strain;
    double still;
    switch (cause) {
    case TRI_SLOW_throttled:
        return strain->throttled_seconds_total;
    case TRI_SLOW_stolen:
        return strain->stolen_seconds_total;
    case TRI_SLOW_queue:
        return strain->queue_seconds_total;
    case TRI_SLOW_stopped: /* neither on a core, nor wanting one, nor waiting for others or a thread of its own */
        still = row->wall_s - row->comm - row->waited - strain->cpu_seconds_total - strain->queue_seconds_total;
        return strain->cpu_seconds_total > 0 && still > 0 ? still : 0;
    case TRI_SLOW_memory:
        return memory_s(row);
    case TRI_SLOW_disk:
        return disk_s(row);
    case TRI_SLOW_data:
        return row->waited + row->prepared;
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

/* The first one that explains enough, from those that leave least doubt; a quota and a thief also show as a queue. Of
 * several that only explain it together the greatest. */
static void cause_find(const tri_slow_row *rows, int count, double delay_s, tri_slow_verdict *verdict)
{
    verdict->cause = TRI_SLOW_compute;
    verdict->explained_s = excess(rows, count, verdict->rank, TRI_SLOW_compute);
    for (tri_slow_cause cause = TRI_SLOW_throttled; cause < TRI_SLOW_link; cause++) {
        double seconds = excess(rows, count, verdict->rank, cause);
        bool is_enough = seconds >= EXPLAINED * delay_s;
        if (is_enough || seconds > verdict->explained_s) {
            verdict->cause = cause;
            verdict->explained_s = seconds;
        }
        if (is_enough)
            return;
    }
}

/* --- all wait: is it a link? --- */

static double rate_of(const tri_slow_link *link)
{
    return link->to >= 0 && link->busy_s > 0 ? link->nbytes / link->busy_s : 0;
}

/* Where the kernel tells nothing of links, it is what the whole host has sent again. */
static double resent_by(const tri_slow_row *row)
{
    return row->link.to >= 0 ? row->link.resent_segments : row->strain.retransmitted_segments_total;
}

/* The rate that no more than half of the others are below, of those whose busiest link is one like this: it has not
 * moved far more. 0: there is none. */
static double usual_rate(const tri_slow_row *rows, int count, int rank)
{
    double usual = 0;
    int links = 0;
    for (int r = 0; r < count; r++)
        links += r != rank && rate_of(&rows[r].link) > 0;
    for (int r = 0; r < count; r++) {
        const double rate = rate_of(&rows[r].link);
        int below = 0;
        for (int other = 0; other < count; other++)
            below += other != rank && rate_of(&rows[other].link) > 0 && rate_of(&rows[other].link) < rate;
        if (r != rank && rows[r].link.nbytes <= ALIKE * rows[rank].link.nbytes && 2 * below <= links && rate > usual)
            usual = rate;
    }
    return usual;
}

/* One sends much again; or one link is busy while all wait, and is far slower than what others send on. */
static void link_find(const tri_slow_row *rows, int count, double waited_s, tri_slow_verdict *verdict)
{
    const double wall_s = rows[0].wall_s;
    int most = 0, busiest = 0;
    for (int r = 1; r < count; r++) {
        most = resent_by(&rows[r]) > resent_by(&rows[most]) ? r : most;
        busiest = rows[r].link.busy_s > rows[busiest].link.busy_s ? r : busiest;
    }
    const tri_slow_link *link = &rows[busiest].link;
    double usual = usual_rate(rows, count, busiest);
    const bool slow = link->busy_s >= LINK_BUSY * waited_s && rate_of(link) > 0 && rate_of(link) * SLOW_LINK < usual;
    const bool lost = resent_by(&rows[most]) >= RESENT_A_S * wall_s;
    if (waited_s < WAITING_SHARE * wall_s || (!slow && !lost))
        return;
    *verdict = (tri_slow_verdict){.rank = lost ? most : busiest,
                                  .cause = TRI_SLOW_link,
                                  .share = waited_s / wall_s,
                                  .explained_s = lost ? resent_by(&rows[most]) : link->busy_s,
                                  .wall_s = wall_s,
                                  .link = rows[lost ? most : busiest].link,
                                  .usual = lost ? 0 : usual};
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

static void link_why(const tri_slow_verdict *verdict, char *text, int capacity)
{
    const tri_slow_link *link = &verdict->link;
    char known[160] = "";
    if (link->to >= 0)
        snprintf(known, sizeof(known), ", %.3g MB/s while it is busy, round trip %.3g ms", rate_of(link) / 1e6,
                 link->round_trip_s * 1e3);
    if (link->to < 0)
        snprintf(text, (size_t)capacity, "segments of its host had to be sent again (%.0f a second)",
                 verdict->explained_s / verdict->wall_s);
    else if (verdict->usual > 0)
        snprintf(text, (size_t)capacity, "its link to rank %.0f is slow (%.0f %% of the time busy%s; the others' %.3g)",
                 link->to, 100 * link->busy_s / verdict->wall_s, known, verdict->usual / 1e6);
    else
        snprintf(text, (size_t)capacity, "segments to rank %.0f had to be sent again (%.0f a second%s)", link->to,
                 verdict->explained_s / verdict->wall_s, known);
}

void tri_slow_why(const tri_slow_verdict *verdict, char *text, int capacity)
{
    char what[256];
    if (verdict->cause == TRI_SLOW_link)
        link_why(verdict, what, sizeof(what));
    else
        snprintf(what, sizeof(what), "%s (%.0f %% of the time)", causes[verdict->cause].says,
                 100 * verdict->explained_s / verdict->wall_s);
    snprintf(text, (size_t)capacity, "%s; %s", what, causes[verdict->cause].todo);
}

void tri_slow_print(const tri_slow_verdict *verdict, char *text, int capacity)
{
    char why[320];
    tri_slow_why(verdict, why, sizeof(why));
    snprintf(text, (size_t)capacity, "rank %d is slow: the others wait for it %.0f %% of the time: %s", verdict->rank,
             100 * verdict->share, why);
}
