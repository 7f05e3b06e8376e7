/* SPDX-License-Identifier: Apache-2.0
 *
 * job.c: what the ranks of a job reported and measured, and the table of checks of it.
 */
#include <math.h>
#include <string.h>

#include "doctor/job.h"

#define CORES_VISITED 1024

const tri_job_check tri_job_checks[] = {
    {"ranks", "whether all answer, and are of one version", tri_check_ranks},
    {"links", "whether each rank reaches each other, over what", tri_check_links},
    {"latency", "time of a small message, pair by pair", tri_check_latency},
    {"bandwidth", "rate of a large message, pair by pair", tri_check_bandwidth},
    {"clock skew", "wall clocks, by the shortest of several round trips", tri_check_skew},
    {"cores of ranks", "whether ranks of a host share cores", tri_check_rank_cores},
    {"kernels alike", "whether all ranks compute with the same instructions", tri_check_kernels_alike},
    {"mtu alike", "largest packet of the hosts' interfaces", tri_check_mtu_alike},
    {"own addresses", "whether an address stands for one host only", tri_check_own_addresses},
    {NULL, NULL, NULL},
};

tri_status tri_job_facts_init(tri_job_facts *job, int world)
{
    *job = (tri_job_facts){.world = world, .pairs = {.each = sizeof(tri_pair)}};
    job->ranks = tri_alloc_zero((size_t)world, sizeof *job->ranks);
    job->skew_s = tri_alloc_zero((size_t)world, sizeof *job->skew_s);
    job->skew_error_s = tri_alloc_zero((size_t)world, sizeof *job->skew_error_s);
    return job->ranks && job->skew_s && job->skew_error_s ? TRI_OK : TRI_ENOMEM;
}

void tri_job_facts_fini(tri_job_facts *job)
{
    tri_vector_fini(&job->pairs);
    tri_free(job->ranks);
    tri_free(job->skew_s);
    tri_free(job->skew_error_s);
    *job = (tri_job_facts){0};
}

const tri_pair *tri_job_pair(const tri_job_facts *job, int a, int b)
{
    for (size_t i = 0; i < job->pairs.count; i++) {
        const tri_pair *pair = tri_vector_at(&job->pairs, i);

        if (pair->a == (a < b ? a : b) && pair->b == (a < b ? b : a))
            return pair;
    }
    return NULL;
}

tri_status tri_job_look(const tri_job_facts *job, tri_vector *findings)
{
    for (const tri_job_check *check = tri_job_checks; check->name; check++) {
        tri_finding *finding = tri_finding_add(findings, check->name, TRI_RESULT_OK);

        if (!finding)
            return TRI_ENOMEM;
        check->look(job, finding);
    }
    return TRI_OK;
}

/* Whether a rank is the first known one of its host. */
static bool rank_is_first(const tri_job_facts *job, int rank)
{
    for (int r = 0; r < rank; r++) {
        if (job->ranks[r].known && strcmp(job->ranks[r].host_id, job->ranks[rank].host_id) == 0)
            return false;
    }
    return job->ranks[rank].known;
}

/* --- who is there --- */

void tri_check_ranks(const tri_job_facts *job, tri_finding *finding)
{
    tri_string missing = {0};
    int hosts = 0, count = 0;

    TRI_FINDING_SET(finding->wanted, "all %d, of one version", job->world);
    for (int r = 0; r < job->world; r++) {
        const tri_rank_facts *rank = &job->ranks[r];

        hosts += rank_is_first(job, r);
        if (rank->known)
            continue;
        if (++count <= 16)
            (void)tri_string_appendf(&missing, "%s%d", count > 1 ? ", " : "", r);
    }
    TRI_FINDING_SET(finding->found, "%d of %d on %d host%s", job->world - count, job->world, hosts,
                    hosts == 1 ? "" : "s");
    if (count > 0) {
        finding->result = TRI_RESULT_FAIL;
        TRI_FINDING_SET(finding->found, "no answer in time from rank %s%s", tri_string_text(&missing),
                        count > 16 ? " and more" : "");
    }
    tri_string_fini(&missing);
    for (int r = 1; r < job->world && count == 0; r++) {
        if (strcmp(job->ranks[r].version, job->ranks[0].version) == 0)
            continue;
        finding->result = TRI_RESULT_FAIL;
        TRI_FINDING_SET(finding->found, "rank 0 has version %s, rank %d on %s has %s", job->ranks[0].version, r,
                        job->ranks[r].host, job->ranks[r].version);
        TRI_FINDING_SET(finding->fix, "scp $(command -v trireme) %s:     # the same program on all hosts",
                        job->ranks[r].host);
        return;
    }
}

/* Train refuses such a job: its weights would depend on who computed what. */
void tri_check_kernels_alike(const tri_job_facts *job, tri_finding *finding)
{
    TRI_FINDING_SET(finding->wanted, "the same on all ranks: training refuses others");
    TRI_FINDING_SET(finding->found, "%s", job->ranks[0].kernels);
    for (int r = 1; r < job->world; r++) {
        if (!job->ranks[r].known || strcmp(job->ranks[r].kernels, job->ranks[0].kernels) == 0)
            continue;
        finding->result = TRI_RESULT_FAIL;
        TRI_FINDING_SET(finding->found, "rank 0 on %s: %s; rank %d on %s: %s", job->ranks[0].host,
                        job->ranks[0].kernels, r, job->ranks[r].host, job->ranks[r].kernels);
        return;
    }
}

/* Ranks of the same host that may run on a core of this one, itself included, and the cores they have together. */
static int sharers_count(const tri_job_facts *job, int rank, int *cores)
{
    const tri_rank_facts *own = &job->ranks[rank];
    bool marks[CORES_VISITED] = {false};
    int count = 0;

    for (int r = 0; own->known && r < job->world; r++) {
        const tri_rank_facts *other = &job->ranks[r];

        if (strcmp(own->host_id, other->host_id) != 0 || !tri_lists_meet(own->cpus, other->cpus))
            continue;
        count++;
        tri_list_mark(other->cpus, marks, CORES_VISITED);
    }
    *cores = 0;
    for (int cpu = 0; cpu < CORES_VISITED; cpu++)
        *cores += marks[cpu];
    return count;
}

void tri_check_rank_cores(const tri_job_facts *job, tri_finding *finding)
{
    tri_string list = {0};
    int hosts = 0;

    TRI_FINDING_SET(finding->wanted, "cores of its own for each rank");
    for (int r = 0; r < job->world && r < 16; r++)
        (void)tri_string_appendf(&list, "%srank %d on %s", r > 0 ? ", " : "", r,
                                 job->ranks[r].known ? job->ranks[r].cpus : "?");
    TRI_FINDING_SET(finding->found, "%s%s", tri_string_text(&list), job->world > 16 ? ", ..." : "");
    tri_string_fini(&list);
    for (int a = 0; a < job->world; a++) {
        int cores, sharing = sharers_count(job, a, &cores);

        hosts += rank_is_first(job, a);
        if (sharing <= 1)
            continue;
        if (sharing > cores) {
            finding->result = TRI_RESULT_WARN;
            TRI_FINDING_SET(finding->found, "%d ranks of %s on core%s %s: they take turns, and wait for each other",
                            sharing, job->ranks[a].host, cores == 1 ? "" : "s", job->ranks[a].cpus);
            TRI_FINDING_SET(finding->fix, "trireme doctor -n %d     # as many ranks as cores", cores);
            return;
        }
        tri_finding_worse(finding, TRI_RESULT_NOTE);
    }
    if (finding->result == TRI_RESULT_NOTE && hosts == 1) /* the launcher binds ranks of its own machine */
        TRI_FINDING_SET(finding->fix, "trireme launch -n %d -- PROGRAM     # binds each rank; srun --cpu-bind=cores",
                        job->world);
}

void tri_check_mtu_alike(const tri_job_facts *job, tri_finding *finding)
{
    int first = -1;

    TRI_FINDING_SET(finding->wanted, "the same on all hosts");
    TRI_FINDING_SET(finding->found, "one host");
    for (int r = 0; r < job->world; r++) {
        const tri_rank_facts *rank = &job->ranks[r];

        if (!rank->known || rank->mtu <= 0)
            continue;
        if (first < 0)
            first = r;
        else
            TRI_FINDING_SET(finding->found, "%lld", (long long)rank->mtu);
        if (rank->mtu == job->ranks[first].mtu)
            continue;
        finding->result = TRI_RESULT_WARN;
        TRI_FINDING_SET(finding->found, "%s %s has %lld, %s %s has %lld: large packets may vanish on the way",
                        job->ranks[first].host, job->ranks[first].chosen, (long long)job->ranks[first].mtu, rank->host,
                        rank->chosen, (long long)rank->mtu);
        TRI_FINDING_SET(finding->fix, "sudo ip link set dev %s mtu %lld     # on %s",
                        rank->mtu > job->ranks[first].mtu ? rank->chosen : job->ranks[first].chosen,
                        (long long)(rank->mtu > job->ranks[first].mtu ? job->ranks[first].mtu : rank->mtu),
                        rank->mtu > job->ranks[first].mtu ? rank->host : job->ranks[first].host);
        return;
    }
}

void tri_check_skew(const tri_job_facts *job, tri_finding *finding)
{
    int worst = 0;

    TRI_FINDING_SET(finding->wanted, "less than 0.05 s, so that logs of ranks can be laid side by side");
    if (!job->measured) {
        finding->result = TRI_RESULT_NOTE;
        TRI_FINDING_SET(finding->found, "not measured");
        return;
    }
    for (int r = 1; r < job->world; r++) {
        if (fabs(job->skew_s[r]) > fabs(job->skew_s[worst]))
            worst = r;
    }
    TRI_FINDING_SET(finding->found, "at most %.2g ms (rank %d), give or take %.2g ms", fabs(job->skew_s[worst]) * 1e3,
                    worst, job->skew_error_s[worst] * 1e3);
    if (fabs(job->skew_s[worst]) - job->skew_error_s[worst] < 0.05)
        return;
    finding->result = fabs(job->skew_s[worst]) > 1 ? TRI_RESULT_WARN : TRI_RESULT_NOTE;
    TRI_FINDING_SET(finding->found, "the clock of rank %d on %s is %.3g s %s that of rank 0", worst,
                    job->ranks[worst].host, fabs(job->skew_s[worst]), job->skew_s[worst] > 0 ? "before" : "behind");
    TRI_FINDING_SET(finding->fix, "sudo timedatectl set-ntp true     # on %s and %s", job->ranks[0].host,
                    job->ranks[worst].host);
}

/* --- addresses --- */

/* Takes the next address of "<host id>,<port>,<address>,...". */
static const char *address_next(const char *text, char address[64])
{
    size_t nbytes;

    if (*text == ',')
        text++;
    nbytes = strcspn(text, ",/");
    if (nbytes == 0 || nbytes >= 64)
        return NULL;
    memcpy(address, text, nbytes);
    address[nbytes] = 0;
    return text + strcspn(text, ",");
}

static const char *addresses_begin(const char *addresses)
{
    const char *at = strchr(addresses, ',');

    return at ? at : "";
}

static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

bool tri_rank_address(const tri_rank_facts *rank, char address[64])
{
    for (const char *at = addresses_begin(rank->addresses); (at = address_next(at, address)) != NULL;) {
        if (!is_loopback(address))
            return true;
    }
    address[0] = 0;
    return false;
}

static bool tells(const char *addresses, const char *address)
{
    char one[64];

    for (const char *at = addresses_begin(addresses); (at = address_next(at, one)) != NULL;) {
        if (strcmp(one, address) == 0)
            return true;
    }
    return false;
}

void tri_check_own_addresses(const tri_job_facts *job, tri_finding *finding)
{
    char address[64];

    TRI_FINDING_SET(finding->wanted, "no address on two hosts: 172.17.0.1 of docker0 leads a host to itself");
    TRI_FINDING_SET(finding->found, "none is on two hosts");
    for (int a = 0; a < job->world; a++) {
        for (int b = a + 1; b < job->world; b++) {
            if (!rank_is_first(job, a) || !rank_is_first(job, b))
                continue;
            for (const char *at = addresses_begin(job->ranks[b].addresses); (at = address_next(at, address)) != NULL;) {
                if (is_loopback(address) || !tells(job->ranks[a].addresses, address))
                    continue;
                finding->result = TRI_RESULT_NOTE;
                TRI_FINDING_SET(finding->found, "%s is on %s and on %s", address, job->ranks[a].host,
                                job->ranks[b].host);
                TRI_FINDING_SET(finding->fix, "trireme train CONFIG.yaml comm.interface=%s",
                                job->ranks[a].chosen[0] ? job->ranks[a].chosen : "NAME");
                return;
            }
        }
    }
}
