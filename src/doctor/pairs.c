/* SPDX-License-Identifier: Apache-2.0
 *
 * pairs.c: checks of what was measured between each two ranks, and the matrix of it.
 *
 * A pair is judged against the middle of its kind (shm pairs against shm pairs), since nobody knows what a network
 * should reach; and against the speed that its interface claims.
 */
#include <stdlib.h>
#include <string.h>

#include "doctor/job.h"

#define MATRIX_RANKS 16
#define SLOWER       3.0   /* than the middle */
#define SHM_SLOW_US  100.0 /* ranks that run at the same time take a few */

static const tri_pair *pair_at(const tri_job_facts *job, size_t i)
{
    return tri_vector_at(&job->pairs, i);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

typedef double (*pair_value)(const tri_pair *pair);

static double latency_of(const tri_pair *pair)
{
    return pair->latency_us;
}

static double slowness_of(const tri_pair *pair)
{
    return 1e6 / pair->bytes_per_second;
}

/* The middle value of the pairs over one transport; 0: there are none. */
static double middle(const tri_job_facts *job, const char *transport, pair_value value)
{
    double *values = tri_alloc(job->pairs.count * sizeof *values), found = 0;
    size_t count = 0;

    for (size_t i = 0; values && i < job->pairs.count; i++) {
        if (strcmp(pair_at(job, i)->transport, transport) == 0)
            values[count++] = value(pair_at(job, i));
    }
    if (count > 0) {
        qsort(values, count, sizeof *values, compare);
        found = values[(count - 1) / 2];
    }
    tri_free(values);
    return found;
}

/* The pair that is farthest above the middle of its kind, by factor; NULL: nothing was measured. */
static const tri_pair *worst_find(const tri_job_facts *job, pair_value value, double *factor, double *usual)
{
    const tri_pair *worst = NULL;
    char transport[16] = "";
    double mid = 0;

    *factor = 0;
    for (size_t i = 0; i < job->pairs.count; i++) {
        const tri_pair *pair = pair_at(job, i);

        if (!pair->transport[0])
            continue;
        if (strcmp(transport, pair->transport) != 0) {
            memcpy(transport, pair->transport, sizeof transport);
            mid = middle(job, transport, value);
        }
        if (worst && value(pair) / mid <= *factor)
            continue;
        worst = pair;
        *factor = value(pair) / mid;
        *usual = mid;
    }
    return worst;
}

/* "shm 1.2 us, tcp 30 us": the middle of each kind. */
static void print_middles(const tri_job_facts *job, pair_value value, bool is_rate, char *field, size_t capacity)
{
    static const char *const kinds[] = {"shm", "tcp", "inproc", "sim"};
    tri_string text = {0};

    for (size_t i = 0; i < TRI_COUNT_OF(kinds); i++) {
        double mid = middle(job, kinds[i], value);

        if (mid <= 0)
            continue;
        if (is_rate)
            (void)tri_string_appendf(&text, "%s%s %.4g GB/s", text.nbytes > 0 ? ", " : "", kinds[i], 1e-3 / mid);
        else
            (void)tri_string_appendf(&text, "%s%s %.4g us", text.nbytes > 0 ? ", " : "", kinds[i], mid);
    }
    tri_finding_print(field, capacity, "%s", tri_string_text(&text));
    tri_string_fini(&text);
}

static bool was_measured(const tri_job_facts *job, tri_finding *finding)
{
    if (job->measured && job->pairs.count > 0)
        return true;
    finding->result = TRI_RESULT_NOTE;
    TRI_FINDING_SET(finding->found, "not measured");
    return false;
}

void tri_check_links(const tri_job_facts *job, tri_finding *finding)
{
    int shm = 0, others = 0;

    TRI_FINDING_SET(finding->wanted, "each rank reaches each other");
    for (size_t i = 0; i < job->pairs.count; i++) {
        const tri_pair *pair = pair_at(job, i);
        char address[64];

        shm += strcmp(pair->transport, "shm") == 0;
        others += pair->transport[0] && strcmp(pair->transport, "shm") != 0;
        if (!pair->problem[0] || finding->result == TRI_RESULT_FAIL)
            continue;
        finding->result = TRI_RESULT_FAIL;
        TRI_FINDING_SET(finding->found, "%s", pair->problem);
        TRI_FINDING_SET(finding->fix, "sudo iptables -I INPUT -p tcp -s %s -j ACCEPT     # on %s, and the other way",
                        tri_rank_address(&job->ranks[pair->a], address) ? address : job->ranks[pair->a].host,
                        job->ranks[pair->b].host);
    }
    if (finding->result == TRI_RESULT_FAIL)
        return;
    if (job->problem[0]) {
        finding->result = TRI_RESULT_FAIL;
        TRI_FINDING_SET(finding->found, "%s", job->problem);
        return;
    }
    if (!job->measured) {
        finding->result = TRI_RESULT_NOTE;
        TRI_FINDING_SET(finding->found, "not tried");
        return;
    }
    TRI_FINDING_SET(finding->found, "%d by shared memory, %d by tcp", shm, others);
}

void tri_check_latency(const tri_job_facts *job, tri_finding *finding)
{
    double factor, usual = 0;
    const tri_pair *worst;

    TRI_FINDING_SET(finding->wanted, "no pair more than 3 times the usual; inside a host below %.0f us", SHM_SLOW_US);
    if (!was_measured(job, finding) || !(worst = worst_find(job, latency_of, &factor, &usual)))
        return;
    print_middles(job, latency_of, false, finding->found, sizeof finding->found);
    if (factor > SLOWER && worst->latency_us - usual > 20) {
        finding->result = TRI_RESULT_WARN;
        TRI_FINDING_SET(finding->found, "ranks %d and %d (%s, %s): %.4g us over %s, where %.4g us are usual", worst->a,
                        worst->b, job->ranks[worst->a].host, job->ranks[worst->b].host, worst->latency_us,
                        worst->transport, usual);
    } else if (strcmp(worst->transport, "shm") == 0 && usual > SHM_SLOW_US) {
        finding->result = TRI_RESULT_WARN;
        TRI_FINDING_SET(finding->found, "%.4g us inside a host: ranks wait for a core", usual);
        TRI_FINDING_SET(finding->fix, "trireme doctor -n N     # with as many ranks as cores");
    }
}

/* What the slower interface of two ranks claims, in bytes per second; 0: not known. */
static double claimed(const tri_job_facts *job, const tri_pair *pair)
{
    int64_t least = 0;

    for (int r = 0; r < job->world; r++) {
        const tri_rank_facts *rank = &job->ranks[r];

        if (rank->mbits > 0 && (strcmp(rank->host_id, job->ranks[pair->a].host_id) == 0 ||
                                strcmp(rank->host_id, job->ranks[pair->b].host_id) == 0))
            least = least == 0 || rank->mbits < least ? rank->mbits : least;
    }
    return (double)least * 1e6 / 8;
}

void tri_check_bandwidth(const tri_job_facts *job, tri_finding *finding)
{
    double factor, usual = 0;
    const tri_pair *worst;

    TRI_FINDING_SET(finding->wanted, "no pair below a third of the usual, or below half of what its interface claims");
    if (!was_measured(job, finding) || !(worst = worst_find(job, slowness_of, &factor, &usual)))
        return;
    print_middles(job, slowness_of, true, finding->found, sizeof finding->found);
    if (factor > SLOWER) {
        finding->result = TRI_RESULT_WARN;
        TRI_FINDING_SET(finding->found, "ranks %d and %d (%s, %s): %.4g GB/s over %s, where %.4g GB/s are usual",
                        worst->a, worst->b, job->ranks[worst->a].host, job->ranks[worst->b].host,
                        worst->bytes_per_second / 1e9, worst->transport, 1e-3 / usual);
        return;
    }
    for (size_t i = 0; i < job->pairs.count; i++) {
        const tri_pair *pair = pair_at(job, i);
        double claim = strcmp(pair->transport, "tcp") == 0 ? claimed(job, pair) : 0;

        if (pair->bytes_per_second >= claim / 2)
            continue;
        finding->result = TRI_RESULT_WARN;
        TRI_FINDING_SET(finding->found, "ranks %d and %d (%s, %s): %.4g GB/s, where the interface claims %.4g GB/s",
                        pair->a, pair->b, job->ranks[pair->a].host, job->ranks[pair->b].host,
                        pair->bytes_per_second / 1e9, claim / 1e9);
        return;
    }
}

/* Above the diagonal microseconds, below it GB/s. */
tri_status tri_job_matrix(const tri_job_facts *job, tri_string *out)
{
    if (!job->measured || job->world < 3 || job->world > MATRIX_RANKS)
        return TRI_OK;
    TRI_TRY(
        tri_string_append(out, "latency in us (right upper half) and bandwidth in GB/s (left lower half):\n  rank"));
    for (int b = 0; b < job->world; b++)
        TRI_TRY(tri_string_appendf(out, " %7d", b));
    for (int a = 0; a < job->world; a++) {
        TRI_TRY(tri_string_appendf(out, "\n  %4d", a));
        for (int b = 0; b < job->world; b++) {
            const tri_pair *pair = a == b ? NULL : tri_job_pair(job, a, b);

            if (!pair)
                TRI_TRY(tri_string_appendf(out, " %7s", a == b ? "-" : "?"));
            else
                TRI_TRY(tri_string_appendf(out, " %7.4g", b > a ? pair->latency_us : pair->bytes_per_second / 1e9));
        }
    }
    return tri_string_append(out, "\n");
}
