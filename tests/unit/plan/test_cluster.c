/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cluster.c: files that describe clusters, and what is wrong with some.
 */
#include "plan/cluster.h"

#include "unit/plan/plan_rig.h"

static tri_status parse(const char *text, tri_plan_cluster *cluster)
{
    return tri_plan_cluster_parse(text, strlen(text), "c.yaml", cluster);
}

static const char good[] =
    "hosts:\n"
    "  - {name: node, count: 3, workers: 4, threads: 8, gflops: 400, memory_gib: 64, price: 2.5}\n"
    "  - {name: big, workers: 2, threads: 16, gflops: 900, memory_gib: 16, memory_gb_s: 40}\n"
    "links: {local: {gb_s: 8, latency_us: 2}, network: {gb_s: 1.25, latency_us: 30}}\n"
    "overlap: false\n";

static void a_file_becomes_hosts_and_links(void **state)
{
    (void)state;
    tri_plan_cluster cluster;
    OK(parse(good, &cluster));
    assert_int_equal(cluster.host_count, 4);
    assert_int_equal(cluster.workers, 14);
    tri_plan_place at = {0};
    assert_int_equal(tri_plan_host_next(&cluster, &at, 11), 2);
    assert_int_equal(tri_plan_host_next(&cluster, &at, 12), 3);
    assert_string_equal(cluster.hosts[at.kind].name, "big");
    NEAR(cluster.local.bytes_per_s, 8e9);
    NEAR(cluster.network.latency_s, 30e-6);
    NEAR(tri_plan_price(&cluster), 7.5);
    NEAR(tri_plan_worker_memory(&cluster), 8.0 * 1024 * 1024 * 1024);
    NEAR(tri_plan_optim_s(&cluster, 2), 28 / 10e9); /* the slower memory */
    assert_false(cluster.hides_network);
    tri_plan_cluster_fini(&cluster);
}

static void fewer_workers_are_the_first_ones(void **state)
{
    (void)state;
    tri_plan_cluster cluster;
    OK(parse(good, &cluster));
    OK(tri_plan_cluster_cut(&cluster, 6));
    assert_int_equal(cluster.host_count, 2);
    tri_plan_place at = {0};
    assert_int_equal(tri_plan_host_next(&cluster, &at, 3), 0);
    assert_int_equal(tri_plan_host_next(&cluster, &at, 4), 1);
    assert_int_equal(cluster.hosts[at.kind].workers, 2);
    NEAR(tri_plan_price(&cluster), 5);
    FAILS(tri_plan_cluster_cut(&cluster, 7), TRI_ECONFIG, "want 1 to 6 workers, as many as the cluster has, got 7");
    tri_plan_cluster_fini(&cluster);
    for (int workers = 14; workers > 0; workers--) {
        OK(parse(good, &cluster));
        OK(tri_plan_cluster_cut(&cluster, workers));
        int sum = 0, hosts = 0;
        for (int k = 0; k < cluster.kind_count; k++) {
            hosts += cluster.hosts[k].count;
            sum += cluster.hosts[k].count * cluster.hosts[k].workers;
        }
        assert_int_equal(sum, workers);
        assert_int_equal(hosts, cluster.host_count);
        assert_int_equal(hosts, workers > 12 ? 4 : (workers + 3) / 4);
        tri_plan_cluster_fini(&cluster);
    }
}

static void mistakes_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"links: {}", "c.yaml: want hosts: a list such as"},
        {"hosts: []", "want hosts: a list such as"},
        {"hosts: [{wrkers: 2}]", "c.yaml:1: a host has no key 'wrkers'; did you mean 'workers'?"},
        {"hosts: [{workers: 0}]", "hosts.workers"},
        {"hosts: [{speed: -1}]", "hosts.speed"},
        {"hosts: [{speed: 1, gflops: 3}]", "want speed or gflops of a host, got both"},
        {"hosts: [{workers: 2}]", "want links, such as"},
        {"hosts: [{workers: 2}]\nlinks: {}", "several workers on a host want links.local.gb_s"},
        {"hosts: [{count: 2}]\nlinks: {local: {gb_s: 1}}", "2 hosts want links.network.gb_s"},
        {"hosts: [{count: 60000, workers: 60000}]", "want at most 65536 workers"},
        {"hosts: [{}]\noverlap: perhaps", "overlap"},
        {"host: [{}]", "a cluster has no key 'host'; did you mean 'hosts'?"},
        {"hosts: [3]", "a host needs keys and values"},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(cases); i++) {
        tri_plan_cluster cluster;
        FAILS(parse(cases[i].text, &cluster), TRI_ECONFIG, cases[i].words);
        tri_plan_cluster_fini(&cluster);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_becomes_hosts_and_links),
        cmocka_unit_test(fewer_workers_are_the_first_ones),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
