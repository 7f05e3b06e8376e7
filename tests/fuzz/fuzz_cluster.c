/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_cluster.c: files that describe clusters: what is accepted has workers, hosts of positive speed, and links that
 * carry.
 */
#include "fuzz/fuzz.h"
#include "plan/cluster.h"

size_t tri_fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    tri_plan_cluster cluster;
    if (tri_plan_cluster_parse((const char *)bytes, nbytes, "f", &cluster) == TRI_OK) {
        int workers = 0, hosts = 0;
        tri_fuzz_accepted++;
        for (int k = 0; k < cluster.kind_count; k++) {
            const tri_plan_host *host = &cluster.hosts[k];
            hosts += host->count;
            workers += host->count * host->workers;
            TRI_ASSERT(host->count >= 1 && host->workers >= 1 && host->speed > 0);
        }
        TRI_ASSERT(workers == cluster.workers && workers >= 1 && hosts == cluster.host_count);
        tri_plan_edge all = {workers, 1};
        TRI_ASSERT(workers == 1 || tri_plan_call_s(&cluster, all, TRI_PLAN_SUM, 1e6) > 0);
        tri_plan_place at = {0};
        TRI_ASSERT(tri_plan_host_next(&cluster, &at, workers - 1) == hosts - 1);
        TRI_ASSERT(tri_plan_cluster_cut(&cluster, (workers + 1) / 2) == TRI_OK);
        TRI_ASSERT(tri_plan_cluster_cut(&cluster, 1) == TRI_OK && cluster.host_count == 1);
    }
    tri_plan_cluster_fini(&cluster);
    return 0;
}

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED(
        "hosts:\n  - {name: node, count: 4, workers: 4, threads: 16, gflops: 900, memory_gib: 128, price: 2.4}\n"
        "  - {speed: 2, memory_gb_s: 3}\nlinks: {local: {gb_s: 10, latency_us: 2}, network: {gb_s: 3}}\n"
        "overlap: no\n"),
    TRI_FUZZ_SEED("hosts: [{}]"),
    TRI_FUZZ_REFUSED("hosts: [{workers: 3}]"),
    TRI_FUZZ_REFUSED("hosts: [{speed: 1, gflops: 1}]"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {"hosts: [{",        "workers: ",  "count: ", "gb_s: ", "}", "]\n",
                                      "links: {local: {", "network: {", "1e15",    "65536",  ", "};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
