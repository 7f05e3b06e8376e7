/* SPDX-License-Identifier: Apache-2.0
 *
 * examine.c: a rank of a job tells about itself, is linked and measured; rank 0 gathers and judges.
 *
 * All goes through the store, not through the links that are under examination, and rank 0 waits for each rank with a
 * limit: one that does not answer is a finding. Three rounds: facts ("facts/R"), whether it is worth linking ("go"),
 * and what came of it ("pairs/R").
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/checks.h"
#include "doctor/job.h"

#define REACH_LIMIT_MS 2000
#define REACH_AT_ONCE  256

typedef struct examination {
    tri_cluster *cluster;
    const char *kernels;
    int64_t limit_ns;
    tri_vector *findings;
    tri_job_facts job;
} examination;

static int64_t deadline(const examination *at)
{
    return tri_now_ns() + at->limit_ns;
}

static tri_status tell(const examination *at, const char *what, const tri_string *text)
{
    char key[64];

    snprintf(key, sizeof key, "doctor/%s/%d", what, at->cluster->rank);
    return tri_store_set(at->cluster->store, key, tri_string_text(text), text->nbytes, deadline(at));
}

static tri_status key_wait(const examination *at, const char *key, char **text, size_t *nbytes, int64_t deadline_ns)
{
    tri_status status = TRI_ETIMEOUT;

    for (bool last = false; status == TRI_ETIMEOUT && !last;) {
        TRI_TRY(tri_wait_check("waiting for the other ranks"));
        last = deadline_ns - tri_now_ns() <= TRI_WAIT_SLICE_NS;
        status = tri_store_wait(at->cluster->store, key, text, nbytes, tri_wait_until(deadline_ns, TRI_WAIT_SLICE_NS));
    }
    return status;
}

/* *text is the caller's. TRI_ETIMEOUT: the rank did not tell. */
static tri_status hear(const examination *at, const char *what, int rank, int64_t deadline_ns, char **text)
{
    char key[64];
    size_t nbytes;

    snprintf(key, sizeof key, "doctor/%s/%d", what, rank);
    return key_wait(at, key, text, &nbytes, deadline_ns);
}

/* --- facts --- */

static void facts_make(const examination *at, const tri_machine *machine, const char *addresses, tri_rank_facts *facts)
{
    static const tri_machine here = {.root = ""};

    *facts = (tri_rank_facts){.known = true, .mtu = -1, .mbits = -1};
    tri_host_id(facts->host_id);
    tri_host_name(facts->host);
    TRI_FINDING_SET(facts->version, "%s", TRI_VERSION);
    TRI_FINDING_SET(facts->kernels, "%s", at->kernels);
    TRI_FINDING_SET(facts->addresses, "%s", addresses);
    (void)tri_machine_field(&here, "/proc/self/status", "Cpus_allowed_list", facts->cpus, sizeof facts->cpus);
    if (machine && tri_machine_chosen(machine, facts->chosen)) {
        facts->mtu = tri_interface_number(machine, facts->chosen, "mtu");
        facts->mbits = tri_interface_number(machine, facts->chosen, "speed");
    }
}

static tri_status facts_write(const tri_rank_facts *facts, tri_string *out)
{
    return tri_string_appendf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%" PRId64 "\t%" PRId64 "\n", facts->host_id,
                              facts->host, facts->version, facts->kernels, facts->cpus, facts->chosen, facts->addresses,
                              facts->mtu, facts->mbits);
}

static const char *facts_read(const char *text, tri_rank_facts *facts)
{
    char mtu[24], mbits[24];

    if (!tri_field_next(&text, '\t', facts->host_id, sizeof facts->host_id) ||
        !tri_field_next(&text, '\t', facts->host, sizeof facts->host) ||
        !tri_field_next(&text, '\t', facts->version, sizeof facts->version) ||
        !tri_field_next(&text, '\t', facts->kernels, sizeof facts->kernels) ||
        !tri_field_next(&text, '\t', facts->cpus, sizeof facts->cpus) ||
        !tri_field_next(&text, '\t', facts->chosen, sizeof facts->chosen) ||
        !tri_field_next(&text, '\t', facts->addresses, sizeof facts->addresses) ||
        !tri_field_next(&text, '\t', mtu, sizeof mtu) || !tri_field_next(&text, '\n', mbits, sizeof mbits))
        return NULL;
    facts->mtu = strtoll(mtu, NULL, 10);
    facts->mbits = strtoll(mbits, NULL, 10);
    facts->known = true;
    return text;
}

/* The checks of this machine, each with its host's name. */
static tri_status look_here(const examination *at, tri_machine *machine, const char *host, tri_string *out)
{
    tri_vector findings = {.each = sizeof(tri_finding)};
    tri_status status;

    machine->kernels = at->kernels;
    machine->is_rank = true;
    status = tri_machine_look(machine, &findings);
    for (size_t i = 0; i < findings.count; i++) {
        tri_finding *finding = tri_vector_at(&findings, i);

        TRI_FINDING_SET(finding->host, "%s", host);
    }
    if (status == TRI_OK)
        status = tri_findings_write(&findings, out);
    tri_vector_fini(&findings);
    return status;
}

static tri_status tell_facts(const examination *at, const char *checked, const char *addresses)
{
    tri_cluster *cluster = at->cluster;
    tri_machine machine = {0};
    tri_rank_facts facts;
    tri_string text = {0};
    tri_status status = TRI_OK;
    bool looks = cluster->local_rank == 0;

    if (looks)
        status =
            tri_machine_open(cluster->local_world, cluster->world, cluster->local_world < cluster->world, &machine);
    facts_make(at, looks && status == TRI_OK ? &machine : NULL, addresses, &facts);
    if (status == TRI_OK)
        status = facts_write(&facts, &text);
    if (status == TRI_OK && looks && (!checked || strcmp(checked, facts.host_id) != 0))
        status = look_here(at, &machine, facts.host, &text);
    if (looks)
        tri_machine_close(&machine);
    if (status == TRI_OK && cluster->world > 1)
        status = tell(at, "facts", &text);
    else if (status == TRI_OK)
        status = tri_findings_read(strchr(tri_string_text(&text), '\n') + 1, at->findings);
    tri_string_fini(&text);
    return status;
}

/* Rank 0: *all says whether everybody answered. */
static tri_status gather_facts(examination *at, bool *all)
{
    int64_t until_ns = deadline(at);

    *all = true;
    for (int r = 0; r < at->cluster->world; r++) {
        char *text = NULL;
        tri_status status = hear(at, "facts", r, until_ns, &text);
        const char *rest = status == TRI_OK ? facts_read(text, &at->job.ranks[r]) : NULL;

        if (rest)
            status = tri_findings_read(rest, at->findings);
        tri_free(text);
        if (status != TRI_OK && status != TRI_ETIMEOUT)
            return status;
        *all = *all && rest && strcmp(at->job.ranks[r].version, at->job.ranks[0].version) == 0;
    }
    return TRI_OK;
}

/* --- links --- */

/* Why this rank does not reach another one's listener, by any of its addresses; "" when it does. */
static void reach_rank(const examination *at, int peer, const char *own_id, const char *addresses, char problem[160])
{
    tri_reach rows[TRI_TCP_PLACES_MAX] = {0};
    tri_tcp_place places[TRI_TCP_PLACES_MAX];
    char own[TRI_HOST_ID_NBYTES + 1];
    int count = 0;
    char address[64];
    tri_rank_facts facts = {0};

    problem[0] = 0;
    snprintf(own, sizeof own, "%s,", own_id);
    count = tri_tcp_places(addresses, own, places);
    for (int i = 0; i < count; i++)
        rows[i].place = places[i];
    if (tri_reach_try(rows, (size_t)count, REACH_LIMIT_MS) != TRI_OK)
        return;
    for (int i = 0; i < count; i++) {
        if (rows[i].error == 0)
            return;
    }
    snprintf(facts.addresses, sizeof facts.addresses, "%s", addresses);
    if (!tri_rank_address(&facts, address))
        snprintf(address, sizeof address, "no address");
    snprintf(problem, 160, "rank %d does not reach rank %d (%s: %s)", at->cluster->rank, peer, address,
             count > 0 ? strerror(rows[0].error) : "it has none but loopback");
}

/* After links failed: which of the others' machines do not answer at all. */
static tri_status reach_all(examination *at, tri_string *out)
{
    char own_id[TRI_HOST_ID_NBYTES], problem[160];

    tri_host_id(own_id);
    for (int r = 0, tried = 0; r < at->cluster->world && tried < REACH_AT_ONCE; r++) {
        tri_rank_facts facts = {0};
        char *text = NULL;

        if (r == at->cluster->rank || hear(at, "facts", r, tri_now_ns() + TRI_NS_PER_S, &text) != TRI_OK)
            continue;
        if (facts_read(text, &facts) && strcmp(facts.host_id, own_id) != 0) {
            reach_rank(at, r, own_id, facts.addresses, problem);
            tried++;
            if (problem[0])
                (void)tri_string_appendf(out, "reach\t%d\t%s\n", r, problem);
        }
        tri_free(text);
    }
    return TRI_OK;
}

static tri_status link_and_measure(examination *at, const char **what)
{
    tri_comm_config config;
    tri_net_config net;
    tri_comm *comm = NULL;
    tri_status status;

    *what = "while reading options";
    TRI_TRY(tri_comm_settings_read(NULL, NULL, &config, &net));
    net.timeout_s = (double)at->limit_ns / 1e9;
    *what = "while linking";
    status = tri_comm_open(at->cluster, &config, &net, deadline(at), &comm);
    if (status == TRI_OK) {
        char cause[TRI_ERROR_NBYTES];

        *what = "while measuring";
        status = tri_job_measure(comm, &at->job);
        snprintf(cause, sizeof cause, "%s", tri_last_error());
        tri_comm_leave(comm);
        if (status != TRI_OK)
            tri_fail_copy(status, cause);
    }
    return status;
}

static tri_status pairs_write(const tri_job_facts *job, int rank, tri_string *out)
{
    for (size_t i = 0; i < job->pairs.count; i++) {
        const tri_pair *pair = tri_vector_at(&job->pairs, i);

        TRI_TRY(tri_string_appendf(out, "pair\t%d\t%d\t%s\t%.17g\t%.17g\n", pair->a, pair->b, pair->transport,
                                   pair->latency_us, pair->bytes_per_second));
    }
    for (int r = 1; rank == 0 && job->measured && r < job->world; r++)
        TRI_TRY(tri_string_appendf(out, "skew\t%d\t%.17g\t%.17g\n", r, job->skew_s[r], job->skew_error_s[r]));
    return TRI_OK;
}

/* Links, measures, and reports the results; a failure of the links is reported, not returned. */
static tri_status tell_pairs(examination *at)
{
    tri_string text = {0};
    const char *what;
    tri_status status = link_and_measure(at, &what), reported = TRI_OK;

    if (status != TRI_OK) {
        char problem[400];

        TRI_FINDING_SET(problem, "rank %d, %s: %s", at->cluster->rank, what, tri_last_error());
        reported = tri_string_appendf(&text, "problem\t%s\n", problem);
        at->job.pairs.count = 0;
        at->job.measured = false;
    }
    if (reported == TRI_OK && status != TRI_OK)
        reported = reach_all(at, &text);
    if (reported == TRI_OK)
        reported = pairs_write(&at->job, at->cluster->rank, &text);
    if (reported == TRI_OK)
        reported = tell(at, "pairs", &text);
    tri_string_fini(&text);
    return reported;
}

static tri_status pair_read(tri_job_facts *job, int rank, const char *line)
{
    tri_pair pair = {0};
    char problem[400];
    int other;
    double value, error;

    if (sscanf(line, "pair\t%d\t%d\t%15s\t%lf\t%lf", &pair.a, &pair.b, pair.transport, &pair.latency_us,
               &pair.bytes_per_second) == 5 &&
        pair.a >= 0 && pair.a < pair.b && pair.b < job->world) {
        return tri_vector_push(&job->pairs, &pair) ? TRI_OK : TRI_ENOMEM;
    }
    if (sscanf(line, "reach\t%d\t%399[^\n]", &other, problem) == 2 && other >= 0 && other < job->world) {
        pair.a = other < rank ? other : rank;
        pair.b = other < rank ? rank : other;
        TRI_FINDING_SET(pair.problem, "%s", problem);
        return tri_vector_push(&job->pairs, &pair) ? TRI_OK : TRI_ENOMEM;
    }
    if (sscanf(line, "skew\t%d\t%lf\t%lf", &other, &value, &error) == 3 && other >= 0 && other < job->world) {
        job->skew_s[other] = value;
        job->skew_error_s[other] = error;
    } else if (sscanf(line, "problem\t%399[^\n]", problem) == 1) {
        job->measured = false;
        if (!job->problem[0])
            TRI_FINDING_SET(job->problem, "%s", problem);
    }
    return TRI_OK;
}

static tri_status gather_pairs(examination *at)
{
    int64_t until_ns = deadline(at);
    tri_job_facts *job = &at->job;

    job->pairs.count = 0;
    job->measured = true;
    for (int r = 0; r < job->world; r++) {
        char *text = NULL;
        tri_status status = hear(at, "pairs", r, until_ns, &text);

        if (status == TRI_ETIMEOUT) {
            job->measured = false;
            TRI_FINDING_SET(job->problem, "rank %d on %s said nothing more while it was linked and measured", r,
                            job->ranks[r].host);
        }
        for (const char *line = text; status == TRI_OK && *line; line += strcspn(line, "\n"), line += *line == '\n')
            status = pair_read(job, r, line);
        tri_free(text);
        if (status != TRI_OK && status != TRI_ETIMEOUT)
            return status;
    }
    return TRI_OK;
}

/* --- all of it --- */

/* Rank 0 decides whether the links are tried: all must be there. Once its facts are there it waits for those of the
 * others, and takes as long again to say what it decided. */
static tri_status agree(examination *at, bool *go)
{
    char *text = NULL;
    size_t nbytes;

    if (at->cluster->rank == 0) {
        TRI_TRY(gather_facts(at, go));
        return tri_store_set(at->cluster->store, "doctor/go", *go ? "1" : "0", 1, deadline(at));
    }
    TRI_TRY(hear(at, "facts", 0, deadline(at) + at->limit_ns, &text));
    tri_free(text);
    TRI_TRY(key_wait(at, "doctor/go", &text, &nbytes, deadline(at) + at->limit_ns));
    *go = nbytes == 1 && text[0] == '1';
    tri_free(text);
    return TRI_OK;
}

static tri_status examine(examination *at, const char *checked, tri_string *matrix)
{
    tri_tcp_door door;
    bool go = false;
    tri_status status;

    (void)tri_tcp_door_open("", "", &door); /* for the others to try; the machine's checks say what is wrong */
    status = tell_facts(at, checked, door.address);
    if (status == TRI_OK && at->cluster->world > 1)
        status = agree(at, &go);
    if (status == TRI_OK && go)
        status = tell_pairs(at);
    if (status == TRI_OK && go && at->cluster->rank == 0)
        status = gather_pairs(at);
    tri_tcp_door_close(&door);
    if (status != TRI_OK || at->cluster->rank != 0 || at->cluster->world == 1)
        return status;
    TRI_TRY(tri_job_look(&at->job, at->findings));
    return tri_job_matrix(&at->job, matrix);
}

tri_status tri_job_examine(tri_cluster *cluster, const char *kernels, const char *checked, double limit_s,
                           tri_vector *findings, tri_string *matrix)
{
    examination at = {
        .cluster = cluster, .kernels = kernels, .limit_ns = (int64_t)(limit_s * 1e9), .findings = findings};
    tri_status status = tri_job_facts_init(&at.job, cluster->world);

    if (status == TRI_OK)
        status = examine(&at, checked, matrix);
    tri_job_facts_fini(&at.job);
    return status;
}
