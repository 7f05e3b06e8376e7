/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_hosts.c: lists of hosts. The first byte chooses: the file of --hosts, Slurm's list of nodes, Slurm's list of
 * tasks.
 */
#include <stdlib.h>
#include <string.h>

#include "cluster/environment.h"
#include "cluster/launch_impl.h"
#include "fuzz/fuzz.h"

size_t tri_fuzz_accepted;

static void hosts_read(const char *text, size_t nbytes)
{
    tri_vector hosts = {.each = sizeof(launch_host)};
    if (tri_launch_hosts_parse(text, nbytes, "f", &hosts) == TRI_OK) {
        const launch_host *host = hosts.items;
        tri_fuzz_accepted++;
        TRI_ASSERT(hosts.count > 0);
        for (size_t i = 0; i < hosts.count; i++)
            TRI_ASSERT(host[i].name[0] && strlen(host[i].name) < sizeof host[i].name && host[i].slots >= 1);
    }
    tri_vector_fini(&hosts);
}

/* The first and the last host are there, the one behind it is not. */
static void nodes_read(const char *list)
{
    char host[256];
    int count, again;
    if (tri_environment_node(list, 0, host, &count) != TRI_OK)
        return;
    tri_fuzz_accepted++;
    TRI_ASSERT(count >= 1 && host[0] && strlen(host) < sizeof host);
    TRI_ASSERT(tri_environment_node(list, count - 1, host, &again) == TRI_OK && again == count && host[0]);
    TRI_ASSERT(tri_environment_node(list, count, host, &again) == TRI_ENOTFOUND && again == count && !host[0]);
}

static void tasks_read(const char *list)
{
    int tasks;
    for (int node = 0; node < 4; node++)
        if (tri_environment_tasks(list, node, &tasks) == TRI_OK) {
            tri_fuzz_accepted++;
            TRI_ASSERT(tasks >= 1 && tasks <= TRI_ENVIRONMENT_RANKS);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes)
{
    if (nbytes < 1)
        return 0;
    char *text = strndup((const char *)bytes + 1, nbytes - 1);
    TRI_ASSERT(text);
    if (bytes[0] % 3 == 0)
        hosts_read((const char *)bytes + 1, nbytes - 1);
    else if (bytes[0] % 3 == 1)
        nodes_read(text);
    else
        tasks_read(text);
    free(text);
    return 0;
}

const tri_fuzz_seed tri_fuzz_seeds[] = {
    TRI_FUZZ_SEED("0# cluster\nnode1 slots=4\n\n  node2\t# one\r\nuser@10.0.0.3 slots=2\nlocalhost"),
    TRI_FUZZ_SEED("1node[01-03,7],x,rack2-[5-6]-ib"),
    TRI_FUZZ_SEED("2"
                  "2(x3),1,16"),
    TRI_FUZZ_REFUSED("0-oProxyCommand=x"),
    TRI_FUZZ_REFUSED("1a[3-1]"),
    TRI_FUZZ_REFUSED("2"
                     "2(x"),
};
const size_t tri_fuzz_seed_count = TRI_COUNT_OF(tri_fuzz_seeds);
const char *const tri_fuzz_words[] = {" slots=",       "\n",        "#", "[::1]", "[0-9]", "[1-65535]",
                                      "[000000001-2,", "999999999", "]", "(x",    ",",     "-"};
const size_t tri_fuzz_word_count = TRI_COUNT_OF(tri_fuzz_words);
