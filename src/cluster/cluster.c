/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster.c: joins the job that the environment describes, gathers small texts of all ranks, and leaves.
 *
 * An exchange costs each rank a set, an add and a wait; the rank that comes last gathers all texts and publishes them
 * as one, so that a thousand ranks cost a few thousand small requests and not a million.
 */
#include "cluster/cluster.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "cluster/store_impl.h"

#define LEAVE_NS            (5 * TRI_NS_PER_S)
#define TRI_EXCHANGE_NBYTES 2048                  /* of a text that is swept, at most */
#define BROKEN_NS           (5 * TRI_NS_PER_MS)   /* between two looks at whether a wait cannot succeed */
#define PIECE_FIRST_NS      (20 * TRI_NS_PER_MS)  /* between two looks at stop signals, at first */
#define PIECE_LAST_NS       (500 * TRI_NS_PER_MS) /* and at last: each look is a request to the store */
#define NAMED               8                     /* ranks that a message names at most */

/* Makes the folder, or takes the one that another rank of this user made; not one of somebody else. */
static tri_status private_folder_make(const char *path)
{
    struct stat info;

    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return tri_fail(TRI_EIO, "%s: cannot make the folder where the ranks meet: %s", path, strerror(errno));
    if (lstat(path, &info) != 0)
        return tri_fail(TRI_EIO, "%s: cannot look at it: %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode) || info.st_uid != getuid() || (info.st_mode & 077) != 0)
        return tri_fail(TRI_EIO, "%s: want a folder of user %ld that others cannot enter, got one of user %ld, mode %o",
                        path, (long)getuid(), (long)info.st_uid, (unsigned)info.st_mode & 07777);
    return TRI_OK;
}

/* On the first free port of the url. */
static tri_status serve_on(const char *address, const tri_store_url *url, const char *token, tri_store_server **server)
{
    tri_status status = TRI_EIO;

    for (int port = url->first_port; port <= url->last_port && status == TRI_EIO; port++)
        status = tri_store_server_start(address, port, token, server);
    return status;
}

/* Where the ranks look, and nowhere else. On all addresses only when that is a name, which may mean another address of
 * this host to others, or none of this host's: one that a router, or a service of Kubernetes, leads here. */
static tri_status serve(const tri_store_url *url, const char *token, tri_store_server **server)
{
    const char *address = strcmp(url->host, "localhost") == 0 ? "127.0.0.1" : url->host;
    tri_status status = serve_on(address, url, token, server);

    if (status == TRI_ECONFIG || status == TRI_ENOTFOUND)
        status = serve_on(strchr(url->host, ':') ? "::" : "0.0.0.0", url, token, server);
    return status;
}

/* Only processes of this user can read a private folder: the token that one of them puts there is a secret. */
static tri_status folder_token(tri_cluster *cluster, int64_t deadline_ns)
{
    char mine[TRI_AUTH_HEX_NBYTES], *token;
    size_t nbytes;

    tri_auth_token_make(mine);
    TRI_TRY(tri_store_claim(cluster->store, "token", mine, strlen(mine), &token, &nbytes, deadline_ns));
    tri_status status =
        nbytes < sizeof cluster->token ? TRI_OK : tri_fail(TRI_EFORMAT, "store key token: want 64 digits");
    if (status == TRI_OK)
        snprintf(cluster->token, sizeof cluster->token, "%s", token);
    tri_free(token);
    return status;
}

/* Where the ranks meet: "host:port", a folder, or an url as it is. */
static void meets_at_write(const tri_cluster_place *place, const tri_store_url *url, char text[320])
{
    const bool v6 = strchr(url->host, ':') != NULL;

    if (url->is_file || url->is_etcd)
        snprintf(text, 320, "%.300s", url->is_file ? url->path : place->store_url);
    else
        snprintf(text, 320, v6 ? "[%.255s]:%d" : "%.255s:%d", url->host, url->first_port);
}

/* Of the ranks of a host one reports that it cannot reach rank 0: the first one that is not rank 0. */
static bool reports_late(const tri_cluster_place *place)
{
    return place->local_rank == (place->rank == place->local_rank && place->rank > 0 ? 1 : 0);
}

/* A wait for the store, which rank 0 serves or somebody else. */
typedef struct store_wait {
    const tri_cluster_place *place;
    const char *meets_at;
} store_wait;

/* The ranks that a rank without a store waits for: "rank 0". */
static void awaited_write(const tri_cluster_place *place, char text[64])
{
    if (place->rank > 0 || place->world == 2)
        snprintf(text, 64, "rank %d", place->rank > 0 ? 0 : 1);
    else
        snprintf(text, 64, "ranks 1 to %d", place->world - 1);
}

/* "MASTER_ADDR nohost does not resolve: ..." */
static void reason_write(const tri_cluster_place *place, const char *reason, char text[TRI_STORE_REASON_NBYTES])
{
    const bool is_name = strstr(reason, "does not resolve") != NULL && place->host_from;

    snprintf(text, TRI_STORE_REASON_NBYTES, "%s%s%.300s", is_name ? place->host_from : "", is_name ? " " : "", reason);
}

static void store_late(void *arg, const char *reason)
{
    const store_wait *at = arg;
    char awaited[64], why[TRI_STORE_REASON_NBYTES];

    if (!reports_late(at->place))
        return;
    awaited_write(at->place, awaited);
    reason_write(at->place, reason, why);
    tri_log(TRI_LOG_WARN, "waiting for %s of %d at %s (%s)", awaited, at->place->world, at->meets_at, why);
}

/* The store of the ranks. TRI_ETIMEOUT names the rank that is missing. */
static tri_status store_open(const tri_cluster_place *place, int64_t deadline_ns, tri_cluster *out)
{
    store_wait at = {place, out->meets_at};
    tri_store_opening opening = {.wait = out->wait, .late = store_late, .arg = &at};
    tri_status status = tri_store_open_as(place->store_url, place->token, &opening, deadline_ns, &out->store);
    char awaited[64], why[TRI_STORE_REASON_NBYTES];

    out->wait = opening.wait;
    if (status != TRI_ETIMEOUT || !opening.reason[0])
        return status;
    awaited_write(place, awaited);
    reason_write(place, opening.reason, why);
    return tri_fail(TRI_ETIMEOUT, "%s did not join within %lld s (rendezvous at %s: %s)", awaited,
                    tri_wait_limit_s(&out->wait, deadline_ns), out->meets_at, why);
}

tri_status tri_cluster_join(tri_cluster_lookup lookup, void *arg, const tri_net_config *config, int64_t deadline_ns,
                            tri_cluster *out)
{
    tri_cluster_place place;
    tri_store_url url;
    tri_status status;

    memset(out, 0, sizeof *out);
    TRI_TRY(tri_cluster_detect(lookup, arg, &place));
    out->started_by = place.started_by;
    out->rank = place.rank;
    out->world = place.world;
    out->local_rank = place.local_rank;
    out->local_world = place.local_world;
    out->counts_local = place.counts_local;
    out->servers = place.servers;
    memcpy(out->token, place.token, sizeof out->token);
    out->has_token = place.has_token || place.private_folder;
    if (place.world == 1)
        return TRI_OK;
    if (config)
        TRI_TRY(tri_cluster_token_check(out->has_token, place.started_by, place.rank, place.world, config));
    TRI_TRY(tri_store_url_parse(place.store_url, &url));
    tri_wait_begin(&out->wait);
    meets_at_write(&place, &url, out->meets_at);
    if (place.private_folder) {
        TRI_TRY(private_folder_make(url.path));
        out->folder = tri_strdup(url.path);
        if (!out->folder)
            return TRI_ENOMEM;
    }
    if (place.serves) {
        status = serve(&url, place.token, &out->server);
        if (status != TRI_OK && !(status == TRI_EIO && place.may_be_served))
            goto leave;
    }
    status = store_open(&place, deadline_ns, out);
    if (status == TRI_OK && !place.has_token && place.private_folder)
        status = folder_token(out, deadline_ns);
    if (status == TRI_OK)
        return TRI_OK;
leave:
    if (status != TRI_ETIMEOUT && status != TRI_ECANCELED) /* these say whom they waited for */
        tri_fail_context(status, "rank %d of %d, started by %s", place.rank, place.world, place.started_by);
    tri_store_close(out->store);
    tri_store_server_stop(out->server);
    tri_free(out->folder);
    memset(out, 0, sizeof *out);
    return status;
}

/* All texts, each with 4 bytes of length in front, as "<name>/all/<i>" pieces; piece 0 begins with 8 bytes of length.
 */
static tri_status gather(tri_cluster *cluster, const char *name, int64_t deadline_ns)
{
    tri_string all = {0};
    char key[TRI_STORE_KEY_NBYTES + 1];
    uint64_t total = 0;
    tri_status status = tri_string_append_bytes(&all, &total, sizeof total);

    for (int rank = 0; rank < cluster->world && status == TRI_OK; rank++) {
        char *text = NULL;
        size_t nbytes = 0;
        uint32_t length;

        snprintf(key, sizeof key, "exchange/%s/%d", name, rank);
        status = tri_store_wait(cluster->store, key, &text, &nbytes, deadline_ns);
        length = (uint32_t)nbytes;
        if (status == TRI_OK)
            status = tri_string_append_bytes(&all, &length, sizeof length);
        if (status == TRI_OK)
            status = tri_string_append_bytes(&all, text, nbytes);
        tri_free(text);
    }
    total = all.nbytes;
    if (status == TRI_OK)
        memcpy(all.text, &total, sizeof total);
    for (size_t at = 0, piece = 0; at < all.nbytes && status == TRI_OK; piece++) {
        size_t nbytes = all.nbytes - at < TRI_STORE_VALUE_NBYTES ? all.nbytes - at : TRI_STORE_VALUE_NBYTES;

        snprintf(key, sizeof key, "exchange/%s/all/%zu", name, piece);
        status = tri_store_set(cluster->store, key, all.text + at, nbytes, deadline_ns);
        at += nbytes;
    }
    tri_string_fini(&all);
    return status;
}

/* The ranks of an exchange that have not come: a short look at each key, a second at most. Appends "0, 5 and perhaps
 * more"; *first: the lowest rank that has. Returns how many are named. */
static int missing_find(tri_cluster *cluster, const char *name, tri_string *missing, int *first)
{
    char key[TRI_STORE_KEY_NBYTES + 1];
    int64_t until_ns = tri_now_ns() + TRI_NS_PER_S;
    int found = 0;

    *first = cluster->world;
    for (int rank = 0; rank < cluster->world && found < NAMED && tri_now_ns() < until_ns; rank++) {
        char *text = NULL;
        size_t nbytes;

        snprintf(key, sizeof key, "exchange/%s/%d", name, rank);
        tri_status status = tri_store_wait(cluster->store, key, &text, &nbytes, tri_now_ns());
        if (status == TRI_OK && *first == cluster->world)
            *first = rank;
        if (status == TRI_ETIMEOUT && tri_string_appendf(missing, "%s%d", found++ ? ", " : "", rank) != TRI_OK)
            break;
        tri_free(text);
    }
    if (found == NAMED)
        (void)tri_string_append(missing, " and perhaps more");
    return found;
}

/* One line of the lowest rank that has come, and of the first one of each host. */
static void exchange_late(tri_cluster *cluster, const char *name)
{
    tri_string missing = {0};
    int first, found = missing_find(cluster, name, &missing, &first);

    if (found > 0 && (first == cluster->rank || cluster->local_rank == 0))
        tri_log(TRI_LOG_WARN, "waiting for rank%s %s of %d%s%s", found > 1 ? "s" : "", tri_string_text(&missing),
                cluster->world, cluster->meets_at[0] ? " at " : "", cluster->meets_at);
    tri_string_fini(&missing);
}

/* Waits no longer than until a rank is known not to come, or a signal asks this one to stop. Where ranks come and go,
 * the membership decides what a signal does. */
static tri_status piece_wait(tri_cluster *cluster, const char *name, const char *key, char **bytes, size_t *nbytes,
                             tri_wait *wait, int64_t deadline_ns)
{
    tri_status status = TRI_ETIMEOUT;
    int64_t slice_ns = cluster->broken ? BROKEN_NS : PIECE_FIRST_NS;

    while (status == TRI_ETIMEOUT) {
        if (cluster->broken && atomic_load(cluster->broken))
            return tri_fail(TRI_EPEER, "a rank has ended before the ranks had met");
        if (!cluster->broken)
            TRI_TRY(tri_wait_check("waiting for the other ranks"));
        status = tri_store_wait(cluster->store, key, bytes, nbytes, tri_wait_until(deadline_ns, slice_ns));
        if (tri_now_ns() >= deadline_ns)
            break;
        if (status == TRI_ETIMEOUT && tri_wait_is_long(wait))
            exchange_late(cluster, name);
        if (!cluster->broken && slice_ns < PIECE_LAST_NS)
            slice_ns *= 2;
    }
    return status;
}

/* Reads what gather wrote. */
static tri_status collect(tri_cluster *cluster, const char *name, tri_string *all, tri_wait *wait, int64_t deadline_ns)
{
    uint64_t total = sizeof total;
    char key[TRI_STORE_KEY_NBYTES + 1];

    for (size_t piece = 0; all->nbytes < total; piece++) {
        char *bytes = NULL;
        size_t nbytes = 0;
        tri_status status;

        snprintf(key, sizeof key, "exchange/%s/all/%zu", name, piece);
        TRI_TRY(piece_wait(cluster, name, key, &bytes, &nbytes, wait, deadline_ns));
        status = nbytes > 0 ? tri_string_append_bytes(all, bytes, nbytes) : TRI_EFORMAT;
        tri_free(bytes);
        if (piece == 0 && status == TRI_OK && all->nbytes >= sizeof total)
            memcpy(&total, all->text, sizeof total);
        if (status != TRI_OK || total < sizeof total || all->nbytes < sizeof total)
            return status == TRI_ENOMEM ? status : tri_fail(TRI_EFORMAT, "store key %s: want an exchange's texts", key);
    }
    return TRI_OK;
}

static tri_status cut(const tri_string *all, int world, char **texts)
{
    size_t at = sizeof(uint64_t);

    for (int rank = 0; rank < world; rank++) {
        uint32_t nbytes = 0;

        if (all->nbytes - at < sizeof nbytes)
            return tri_fail(TRI_EFORMAT, "exchange: want the texts of %d ranks, got %d", world, rank);
        memcpy(&nbytes, all->text + at, sizeof nbytes);
        at += sizeof nbytes;
        if (all->nbytes - at < nbytes)
            return tri_fail(TRI_EFORMAT, "exchange: want %u bytes of rank %d, got %zu", nbytes, rank, all->nbytes - at);
        texts[rank] = tri_strndup(all->text + at, nbytes);
        if (!texts[rank])
            return TRI_ENOMEM;
        at += nbytes;
    }
    return TRI_OK;
}

/* One sentence that says which ranks did not come. */
static tri_status name_missing(tri_cluster *cluster, const char *name, const tri_wait *wait, int64_t deadline_ns)
{
    tri_string missing = {0};
    char cause[TRI_ERROR_NBYTES];

    snprintf(cause, sizeof cause, "%s", tri_last_error());
    int first, found = missing_find(cluster, name, &missing, &first);
    if (found > 0)
        tri_fail(TRI_ETIMEOUT, "rank%s %s did not join within %lld s%s%s%s", found > 1 ? "s" : "",
                 tri_string_text(&missing), tri_wait_limit_s(wait, deadline_ns),
                 cluster->meets_at[0] ? " (rendezvous at " : "", cluster->meets_at, cluster->meets_at[0] ? ")" : "");
    else
        tri_fail(TRI_ETIMEOUT, "exchange %s: %s", name, cause);
    tri_string_fini(&missing);
    return TRI_ETIMEOUT;
}

tri_status tri_cluster_exchange(tri_cluster *cluster, const char *name, const char *text, char **texts,
                                int64_t deadline_ns)
{
    char key[TRI_STORE_KEY_NBYTES + 1];
    tri_string all = {0};
    int64_t arrived;
    tri_wait wait = cluster->wait;
    tri_status status;

    if (wait.begun_ns == 0)
        tri_wait_begin(&wait);
    memset(texts, 0, (size_t)cluster->world * sizeof *texts);
    if (cluster->world == 1) {
        texts[0] = tri_strdup(text);
        return texts[0] ? TRI_OK : TRI_ENOMEM;
    }
    if (strlen(name) > 200)
        return tri_fail(TRI_EINVAL, "exchange: want a name of at most 200 bytes, got %zu", strlen(name));
    snprintf(key, sizeof key, "exchange/%s/%d", name, cluster->rank);
    status = tri_store_set(cluster->store, key, text, strlen(text), deadline_ns);
    snprintf(key, sizeof key, "exchange/%s/count", name);
    if (status == TRI_OK)
        status = tri_store_add(cluster->store, key, 1, &arrived, deadline_ns);
    if (status == TRI_OK && arrived == cluster->world)
        status = gather(cluster, name, deadline_ns);
    if (status == TRI_OK)
        status = collect(cluster, name, &all, &wait, deadline_ns);
    if (status == TRI_OK)
        status = cut(&all, cluster->world, texts);
    tri_string_fini(&all);
    if (status == TRI_ETIMEOUT)
        status = name_missing(cluster, name, &wait, deadline_ns);
    for (int rank = 0; rank < cluster->world && status != TRI_OK; rank++) {
        tri_free(texts[rank]);
        texts[rank] = NULL;
    }
    return status;
}

tri_status tri_cluster_exchange_sweep(tri_cluster *cluster, const char *name, int64_t deadline_ns)
{
    char key[TRI_STORE_KEY_NBYTES + 1];
    size_t pieces = 1 + (size_t)cluster->world * TRI_EXCHANGE_NBYTES / TRI_STORE_VALUE_NBYTES;

    for (int rank = 0; rank < cluster->world; rank++) {
        snprintf(key, sizeof key, "exchange/%s/%d", name, rank);
        TRI_TRY(tri_store_remove(cluster->store, key, deadline_ns));
    }
    for (size_t piece = 0; piece < pieces; piece++) {
        snprintf(key, sizeof key, "exchange/%s/all/%zu", name, piece);
        TRI_TRY(tri_store_remove(cluster->store, key, deadline_ns));
    }
    snprintf(key, sizeof key, "exchange/%s/count", name);
    return tri_store_remove(cluster->store, key, deadline_ns);
}

void tri_cluster_leave(tri_cluster *cluster)
{
    int64_t left = 0;

    if (cluster->folder && cluster->store &&
        tri_store_add(cluster->store, "left", 1, &left, tri_now_ns() + TRI_NS_PER_S) == TRI_OK &&
        left == cluster->world)
        tri_fs_remove(cluster->folder);
    tri_store_close(cluster->store);
    if (cluster->server) /* the others may still be asking */
        tri_store_server_drain(cluster->server, tri_now_ns() + LEAVE_NS);
    tri_store_server_stop(cluster->server);
    tri_free(cluster->folder);
    *cluster = (tri_cluster){.rank = cluster->rank, .world = cluster->world, .started_by = cluster->started_by};
}
