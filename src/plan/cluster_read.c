/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_read.c: the file that describes a cluster (docs/parallel.md).
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "plan/cluster.h"

#define FILE_LIMIT_NBYTES (1u << 20)
#define WORKER_LIMIT      65536
#define GB                1e9
#define GIB               (1024.0 * 1024 * 1024)

/* Every key of the map is one of `keys`, which ends with NULL. */
static tri_status keys_check(const tri_yaml *map, const char *what, const char *origin, const char *const *keys)
{
    size_t count = 0;
    if (map->kind != TRI_YAML_MAP)
        return tri_fail(TRI_ECONFIG, "%s:%d: %s needs keys and values", origin, map->line, what);
    while (keys[count])
        count++;
    for (const tri_yaml *child = map->child; child; child = child->next) {
        bool known = false;
        for (size_t k = 0; k < count; k++)
            known = known || strcmp(child->key, keys[k]) == 0;
        const char *nearest = known ? NULL : tri_options_nearest(child->key, keys, count);
        if (!known)
            return tri_fail(TRI_ECONFIG, "%s:%d: %s has no key '%.60s'%s%s%s", origin, child->line, what, child->key,
                            nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    }
    return TRI_OK;
}

/* A number above 0; one that is not there stays. */
static tri_status number_read(const tri_yaml *map, const char *what, const char *origin, const char *key, double *out)
{
    const tri_yaml *node = tri_yaml_find(map, key);
    char name[160];
    snprintf(name, sizeof(name), "%s: %s.%s", origin, what, key);
    return node ? tri_yaml_real(node, name, 1e-9, 1e15, out) : TRI_OK;
}

static tri_status count_read(const tri_yaml *map, const char *what, const char *origin, const char *key, int *out)
{
    const tri_yaml *node = tri_yaml_find(map, key);
    char name[160];
    int64_t count = *out;
    snprintf(name, sizeof(name), "%s: %s.%s", origin, what, key);
    if (node)
        TRI_TRY(tri_yaml_int(node, name, 1, WORKER_LIMIT, &count));
    *out = (int)count;
    return TRI_OK;
}

static tri_status link_read(const tri_yaml *links, const char *key, const char *origin, tri_plan_link *link)
{
    static const char *const keys[] = {"gb_s", "latency_us", NULL};
    const tri_yaml *node = tri_yaml_find(links, key);
    char what[64];
    double rate = link->bytes_per_s / GB, latency = link->latency_s * 1e6;
    if (!node)
        return TRI_OK;
    snprintf(what, sizeof(what), "links.%s", key);
    TRI_TRY(keys_check(node, what, origin, keys));
    TRI_TRY(number_read(node, what, origin, "gb_s", &rate));
    TRI_TRY(number_read(node, what, origin, "latency_us", &latency));
    *link = (tri_plan_link){latency * 1e-6, rate * GB};
    return TRI_OK;
}

static tri_status links_read(const tri_yaml *root, const char *origin, tri_plan_cluster *cluster)
{
    static const char *const keys[] = {"local", "network", NULL};
    const tri_yaml *links = tri_yaml_find(root, "links");
    if (!links && cluster->workers > 1)
        return tri_fail(TRI_ECONFIG,
                        "%s: want links, such as links: {local: {gb_s: 5, latency_us: 2}, network: {gb_s: 1.2, "
                        "latency_us: 20}}",
                        origin);
    if (!links)
        return TRI_OK;
    TRI_TRY(keys_check(links, "links", origin, keys));
    TRI_TRY(link_read(links, "local", origin, &cluster->local));
    TRI_TRY(link_read(links, "network", origin, &cluster->network));
    if (cluster->host_count > 1 && cluster->network.bytes_per_s == 0)
        return tri_fail(TRI_ECONFIG, "%s:%d: %d hosts want links.network.gb_s", origin, links->line,
                        cluster->host_count);
    if (cluster->local.bytes_per_s == 0)
        cluster->local = cluster->network;
    if (cluster->workers > 1 && cluster->local.bytes_per_s == 0)
        return tri_fail(TRI_ECONFIG, "%s:%d: several workers on a host want links.local.gb_s", origin, links->line);
    return TRI_OK;
}

/* One entry of the list: a host, or `count` of them alike. */
static tri_status host_read(const tri_yaml *node, const char *origin, tri_plan_host *host)
{
    static const char *const keys[] = {"name",   "count",      "workers",     "threads", "speed",
                                       "gflops", "memory_gib", "memory_gb_s", "price",   NULL};
    double memory = INFINITY, rate = 0;
    *host = (tri_plan_host){.count = 1, .workers = 1, .threads = 1, .speed = 1};
    TRI_TRY(keys_check(node, "a host", origin, keys));
    const tri_yaml *name = tri_yaml_find(node, "name");
    if (name && (name->kind != TRI_YAML_SCALAR || strlen(name->text) > 40))
        return tri_fail(TRI_ECONFIG, "%s:%d: want a host's name of at most 40 bytes", origin, name->line);
    snprintf(host->name, sizeof(host->name), "%s", name ? name->text : "host");
    TRI_TRY(count_read(node, "hosts", origin, "count", &host->count));
    TRI_TRY(count_read(node, "hosts", origin, "workers", &host->workers));
    TRI_TRY(count_read(node, "hosts", origin, "threads", &host->threads));
    TRI_TRY(number_read(node, "hosts", origin, "speed", &host->speed));
    TRI_TRY(number_read(node, "hosts", origin, "gflops", &host->gflops));
    TRI_TRY(number_read(node, "hosts", origin, "memory_gib", &memory));
    TRI_TRY(number_read(node, "hosts", origin, "memory_gb_s", &rate));
    TRI_TRY(number_read(node, "hosts", origin, "price", &host->price_per_hour));
    if (tri_yaml_find(node, "speed") && host->gflops > 0)
        return tri_fail(TRI_ECONFIG, "%s:%d: want speed or gflops of a host, got both", origin, node->line);
    host->memory_nbytes = memory * GIB;
    host->memory_rate = rate * GB;
    if (host->gflops > 0 && host->memory_rate == 0)
        host->memory_rate = 10 * GB;
    return TRI_OK;
}

static tri_status hosts_read(const tri_yaml *root, const char *origin, tri_plan_cluster *cluster)
{
    const tri_yaml *hosts = tri_yaml_find(root, "hosts");
    tri_vector all = {.each = sizeof(tri_plan_host)};
    tri_status status = TRI_OK;
    int64_t workers = 0;
    if (!hosts || hosts->kind != TRI_YAML_LIST || !hosts->child)
        return tri_fail(TRI_ECONFIG, "%s: want hosts: a list such as [{name: node, count: 4, workers: 8}]", origin);
    for (const tri_yaml *node = hosts->child; node && status == TRI_OK; node = node->next) {
        tri_plan_host host = {0};
        status = host_read(node, origin, &host);
        cluster->host_count += host.count;
        workers += (int64_t)host.count * host.workers;
        if (status == TRI_OK && workers > WORKER_LIMIT)
            status = tri_fail(TRI_ECONFIG, "%s:%d: want at most %d workers, got %lld", origin, node->line, WORKER_LIMIT,
                              (long long)workers);
        if (status == TRI_OK)
            status = tri_vector_push(&all, &host) ? TRI_OK : TRI_ENOMEM;
    }
    if (status == TRI_OK) {
        cluster->hosts = tri_arena_alloc(&cluster->arena, all.count + 1, sizeof(tri_plan_host)); /* to cut one */
        status = cluster->hosts ? TRI_OK : TRI_ENOMEM;
    }
    if (status == TRI_OK)
        memcpy(cluster->hosts, all.items, all.count * sizeof(tri_plan_host));
    cluster->kind_count = (int)all.count;
    cluster->workers = (int)workers;
    tri_vector_fini(&all);
    return status;
}

tri_status tri_plan_cluster_parse(const char *text, size_t nbytes, const char *origin, tri_plan_cluster *cluster)
{
    static const char *const keys[] = {"hosts", "links", "overlap", NULL};
    tri_yaml *root;
    *cluster = (tri_plan_cluster){.crowd = 1, .hides_local = true, .hides_network = true};
    TRI_TRY(tri_yaml_parse(&cluster->arena, text, nbytes, origin, &root));
    TRI_TRY(keys_check(root, "a cluster", origin, keys));
    TRI_TRY(hosts_read(root, origin, cluster));
    TRI_TRY(links_read(root, origin, cluster));
    const tri_yaml *overlap = tri_yaml_find(root, "overlap");
    if (overlap)
        TRI_TRY_IN(tri_yaml_bool(overlap, "overlap", &cluster->hides_local), "%s", origin);
    cluster->hides_network = cluster->hides_local;
    return TRI_OK;
}

tri_status tri_plan_cluster_load(const char *path, tri_plan_cluster *cluster)
{
    char *text;
    size_t nbytes;
    *cluster = (tri_plan_cluster){0};
    TRI_TRY_IN(tri_fs_read_config(path, FILE_LIMIT_NBYTES, &text, &nbytes), "while reading the cluster");
    tri_status status = tri_plan_cluster_parse(text, nbytes, path, cluster);
    tri_free(text);
    return status;
}
