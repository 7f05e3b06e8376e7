/* SPDX-License-Identifier: Apache-2.0
 *
 * test_job.c: what is wrong between ranks is found, in facts made up; findings survive their way as text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "doctor/job.h"

/* Ranks 0 and 1 on one host, 2 and 3 on another; nothing is wrong. */
static void job_make(tri_job_facts *job)
{
    assert_int_equal(tri_job_facts_init(job, 4), TRI_OK);
    for (int r = 0; r < 4; r++) {
        tri_rank_facts *rank = &job->ranks[r];

        *rank = (tri_rank_facts){.known = true, .mtu = r % 2 ? -1 : 1500, .mbits = r % 2 ? -1 : 10000};
        snprintf(rank->host_id, sizeof rank->host_id, "id%d", r / 2);
        snprintf(rank->host, sizeof rank->host, "node%d", r / 2);
        snprintf(rank->version, sizeof rank->version, "1.0");
        snprintf(rank->kernels, sizeof rank->kernels, "tiles");
        snprintf(rank->cpus, sizeof rank->cpus, "%d", r % 2);
        snprintf(rank->chosen, sizeof rank->chosen, "%s", r % 2 ? "" : "eth0");
        snprintf(rank->addresses, sizeof rank->addresses, "id%d,127.0.0.1/7,10.0.0.%d/8", r / 2, r / 2);
    }
    for (int a = 0; a < 4; a++) {
        for (int b = a + 1; b < 4; b++) {
            bool near = a / 2 == b / 2;
            tri_pair pair = {.a = a, .b = b, .latency_us = near ? 1 : 20, .bytes_per_second = near ? 5e9 : 1e9};

            snprintf(pair.transport, sizeof pair.transport, "%s", near ? "shm" : "tcp");
            assert_non_null(tri_vector_push(&job->pairs, &pair));
        }
    }
    job->measured = true;
}

static tri_pair *pair_of(const tri_job_facts *job, int a, int b)
{
    return (tri_pair *)(uintptr_t)tri_job_pair(job, a, b);
}

static void expect(const tri_job_facts *job, const char *check, tri_result result, const char *found, const char *fix)
{
    tri_vector findings = {.each = sizeof(tri_finding)};
    bool met = false;

    assert_int_equal(tri_job_look(job, &findings), TRI_OK);
    for (size_t i = 0; i < findings.count; i++) {
        const tri_finding *at = tri_vector_at(&findings, i);

        if (strcmp(at->check, check) != 0)
            continue;
        met = true;
        if (at->result != result || !strstr(at->found, found) || !strstr(at->fix, fix) || (!fix[0] && at->fix[0]))
            fail_msg("%s: %s, found '%s', fix '%s'", check, tri_result_name(at->result), at->found, at->fix);
    }
    assert_true(met);
    tri_vector_fini(&findings);
}

static void a_healthy_job_has_nothing_to_mend(void **state)
{
    tri_vector findings = {.each = sizeof(tri_finding)};
    tri_job_facts job;

    (void)state;
    job_make(&job);
    assert_int_equal(tri_job_look(&job, &findings), TRI_OK);
    for (size_t i = 0; i < findings.count; i++) {
        const tri_finding *at = tri_vector_at(&findings, i);

        if (at->result != TRI_RESULT_OK || at->fix[0] || !at->found[0] || !at->wanted[0])
            fail_msg("%s: %s, found '%s', fix '%s'", at->check, tri_result_name(at->result), at->found, at->fix);
    }
    assert_int_equal(findings.count, 9);
    tri_vector_fini(&findings);
    expect(&job, "ranks", TRI_RESULT_OK, "4 of 4 on 2 hosts", "");
    expect(&job, "links", TRI_RESULT_OK, "2 by shared memory, 4 by tcp", "");
    tri_job_facts_fini(&job);
}

static void ranks_that_are_missing_or_old_are_named(void **state)
{
    tri_job_facts job;

    (void)state;
    job_make(&job);
    snprintf(job.ranks[3].version, sizeof job.ranks[3].version, "0.9");
    expect(&job, "ranks", TRI_RESULT_FAIL, "rank 0 has version 1.0, rank 3 on node1 has 0.9", "scp ");
    job.ranks[1].known = job.ranks[3].known = false;
    expect(&job, "ranks", TRI_RESULT_FAIL, "no answer in time from rank 1, 3", "");
    tri_job_facts_fini(&job);
}

static void links_that_fail_are_named(void **state)
{
    tri_job_facts job;

    (void)state;
    job_make(&job);
    job.measured = false;
    expect(&job, "links", TRI_RESULT_NOTE, "not tried", "");
    expect(&job, "latency", TRI_RESULT_NOTE, "not measured", "");
    snprintf(job.problem, sizeof job.problem, "rank 2, while linking: nobody called");
    expect(&job, "links", TRI_RESULT_FAIL, "rank 2, while linking: nobody called", "");
    snprintf(pair_of(&job, 1, 2)->problem, 160, "rank 1 does not reach rank 2 (10.0.0.1: timed out)");
    expect(&job, "links", TRI_RESULT_FAIL, "rank 1 does not reach rank 2",
           "iptables -I INPUT -p tcp -s 10.0.0.0 -j ACCEPT     # on node1");
    tri_job_facts_fini(&job);
}

static void slow_pairs_are_judged_against_their_kind(void **state)
{
    tri_job_facts job;

    (void)state;
    job_make(&job);
    pair_of(&job, 1, 3)->latency_us = 90;
    expect(&job, "latency", TRI_RESULT_WARN, "ranks 1 and 3 (node0, node1): 90 us over tcp, where 20 us", "");
    pair_of(&job, 1, 3)->latency_us = 20;
    pair_of(&job, 0, 1)->latency_us = pair_of(&job, 2, 3)->latency_us = 500;
    expect(&job, "latency", TRI_RESULT_WARN, "500 us inside a host", "trireme doctor -n N");
    pair_of(&job, 0, 3)->bytes_per_second = 1e8;
    expect(&job, "bandwidth", TRI_RESULT_WARN, "ranks 0 and 3 (node0, node1): 0.1 GB/s over tcp, where 1 GB/s", "");
    for (int a = 0; a < 2; a++) {
        for (int b = 2; b < 4; b++)
            pair_of(&job, a, b)->bytes_per_second = 5e8;
    }
    expect(&job, "bandwidth", TRI_RESULT_WARN, "0.5 GB/s, where the interface claims 1.25 GB/s", "");
    tri_job_facts_fini(&job);
}

static void clocks_cores_and_kernels_that_differ_are_found(void **state)
{
    tri_job_facts job;

    (void)state;
    job_make(&job);
    job.skew_s[2] = 0.2;
    job.skew_error_s[2] = 0.19; /* perhaps the way only took long */
    expect(&job, "clock skew", TRI_RESULT_OK, "give or take", "");
    job.skew_error_s[2] = 0.001;
    expect(&job, "clock skew", TRI_RESULT_NOTE, "rank 2 on node1 is 0.2 s before", "set-ntp true");
    job.skew_s[3] = -7;
    expect(&job, "clock skew", TRI_RESULT_WARN, "rank 3 on node1 is 7 s behind", "on node0 and node1");
    snprintf(job.ranks[0].cpus, 128, "1");
    expect(&job, "cores of ranks", TRI_RESULT_WARN, "2 ranks of node0 on core 1", "-n 1");
    snprintf(job.ranks[0].cpus, 128, "0-1");
    expect(&job, "cores of ranks", TRI_RESULT_NOTE, "rank 0 on 0-1, rank 1 on 1", "");
    snprintf(job.ranks[3].kernels, sizeof job.ranks[3].kernels, "other tiles");
    expect(&job, "kernels alike", TRI_RESULT_FAIL, "rank 0 on node0: tiles; rank 3 on node1: other tiles", "");
    tri_job_facts_fini(&job);
}

static void hosts_whose_networks_do_not_fit_are_found(void **state)
{
    tri_job_facts job;

    (void)state;
    job_make(&job);
    job.ranks[2].mtu = 9000;
    expect(&job, "mtu alike", TRI_RESULT_WARN, "node0 eth0 has 1500, node1 eth0 has 9000", "mtu 1500     # on node1");
    for (int r = 0; r < 4; r++) /* the two of a host share it rightly */
        snprintf(job.ranks[r].addresses, sizeof job.ranks[r].addresses, "id%d,127.0.0.1/7,172.17.0.1/8,10.0.0.%d/9",
                 r / 2, r / 2);
    expect(&job, "own addresses", TRI_RESULT_NOTE, "172.17.0.1 is on node0 and on node1", "comm.interface=eth0");
    tri_job_facts_fini(&job);
}

static void the_matrix_has_each_pair_twice(void **state)
{
    tri_string text = {0};
    tri_job_facts job;

    (void)state;
    job_make(&job);
    pair_of(&job, 0, 3)->latency_us = 33;
    pair_of(&job, 0, 3)->bytes_per_second = 4.25e9;
    assert_int_equal(tri_job_matrix(&job, &text), TRI_OK);
    assert_non_null(strstr(tri_string_text(&text), "\n     0       -       1      20      33\n"));
    assert_non_null(strstr(tri_string_text(&text), "\n     3    4.25       1       5       -\n"));
    tri_string_clear(&text);
    job.measured = false;
    assert_int_equal(tri_job_matrix(&job, &text), TRI_OK);
    assert_string_equal(tri_string_text(&text), "");
    tri_string_fini(&text);
    tri_job_facts_fini(&job);
}

static void findings_survive_as_text(void **state)
{
    tri_vector out = {.each = sizeof(tri_finding)}, back = {.each = sizeof(tri_finding)};
    tri_string text = {0};
    tri_finding *finding = tri_finding_add(&out, "open files", TRI_RESULT_WARN);
    char before[600];

    (void)state;
    assert_non_null(finding);
    TRI_FINDING_SET(finding->found, "a\tb\nc");
    TRI_FINDING_SET(finding->fix, "ulimit -n %d", 5);
    assert_non_null(tri_finding_add(&out, "empty", TRI_RESULT_FAIL));
    memset(before, 'x', sizeof before);
    before[599] = 0;
    TRI_FINDING_SET(((tri_finding *)tri_vector_at(&out, 1))->found, "%s", before);
    assert_int_equal(tri_findings_write(&out, &text), TRI_OK);
    assert_int_equal(tri_findings_read(tri_string_text(&text), &back), TRI_OK);
    assert_int_equal(back.count, 2);
    finding = tri_vector_at(&back, 0);
    assert_string_equal(finding->found, "a b c");
    assert_string_equal(finding->fix, "ulimit -n 5");
    assert_int_equal(finding->result, TRI_RESULT_WARN);
    finding = tri_vector_at(&back, 1);
    assert_string_equal(finding->found + strlen(finding->found) - 4, "x...");
    /* Bytes of other processes. */
    assert_int_equal(tri_findings_read("good\ta\tb\tc\td\te\n", &back), TRI_EFORMAT);
    assert_int_equal(tri_findings_read("ok\ta\tb\tc\td\te", &back), TRI_EFORMAT);
    assert_int_equal(tri_findings_read("ok\ta\tb\n", &back), TRI_EFORMAT);
    tri_string_clear(&text);
    assert_int_equal(tri_string_appendf(&text, "ok\t%s\tb\tc\td\te\n", before), TRI_OK);
    assert_int_equal(tri_findings_read(tri_string_text(&text), &back), TRI_EFORMAT);
    tri_string_fini(&text);
    tri_vector_fini(&out);
    tri_vector_fini(&back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_healthy_job_has_nothing_to_mend),
        cmocka_unit_test(ranks_that_are_missing_or_old_are_named),
        cmocka_unit_test(links_that_fail_are_named),
        cmocka_unit_test(slow_pairs_are_judged_against_their_kind),
        cmocka_unit_test(clocks_cores_and_kernels_that_differ_are_found),
        cmocka_unit_test(hosts_whose_networks_do_not_fit_are_found),
        cmocka_unit_test(the_matrix_has_each_pair_twice),
        cmocka_unit_test(findings_survive_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
