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
#include "cluster/store_impl.h"

#define LEAVE_NS            (5 * TRI_NS_PER_S)
#define TRI_EXCHANGE_NBYTES 2048                /* of a text that is swept, at most */
#define BROKEN_NS           (5 * TRI_NS_PER_MS) /* between two looks at whether a wait is in vain */

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
    out->servers = place.servers;
    memcpy(out->token, place.token, sizeof out->token);
    out->has_token = place.has_token || place.private_folder;
    if (place.world == 1)
        return TRI_OK;
    if (config)
        TRI_TRY(tri_cluster_token_check(out->has_token, place.started_by, place.rank, place.world, config));
    TRI_TRY(tri_store_url_parse(place.store_url, &url));
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
    status = tri_store_open(place.store_url, place.token, deadline_ns, &out->store);
    if (status == TRI_OK && !place.has_token && place.private_folder)
        status = folder_token(out, deadline_ns);
    if (status == TRI_OK)
        return TRI_OK;
leave:
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

/* Waits no longer than until a rank is known not to come. */
static tri_status piece_wait(tri_cluster *cluster, const char *key, char **bytes, size_t *nbytes, int64_t deadline_ns)
{
    tri_status status = TRI_ETIMEOUT;

    if (!cluster->broken)
        return tri_store_wait(cluster->store, key, bytes, nbytes, deadline_ns);
    while (status == TRI_ETIMEOUT && tri_now_ns() < deadline_ns) {
        if (atomic_load(cluster->broken))
            return tri_fail(TRI_EPEER, "a rank has ended before the ranks had met");
        status = tri_store_wait(cluster->store, key, bytes, nbytes, tri_now_ns() + BROKEN_NS);
    }
    return status;
}

/* Reads what gather wrote. */
static tri_status collect(tri_cluster *cluster, const char *name, tri_string *all, int64_t deadline_ns)
{
    uint64_t total = sizeof total;
    char key[TRI_STORE_KEY_NBYTES + 1];

    for (size_t piece = 0; all->nbytes < total; piece++) {
        char *bytes = NULL;
        size_t nbytes = 0;
        tri_status status;

        snprintf(key, sizeof key, "exchange/%s/all/%zu", name, piece);
        TRI_TRY(piece_wait(cluster, key, &bytes, &nbytes, deadline_ns));
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

/* Adds to the message which ranks did not come: a short look at each key, a second at most. */
static tri_status name_missing(tri_cluster *cluster, const char *name, tri_status status)
{
    tri_string missing = {0};
    char key[TRI_STORE_KEY_NBYTES + 1], cause[TRI_ERROR_NBYTES];
    int64_t until_ns = tri_now_ns() + TRI_NS_PER_S;
    int found = 0;

    snprintf(cause, sizeof cause, "%s", tri_last_error());
    for (int rank = 0; rank < cluster->world && found < 8 && tri_now_ns() < until_ns; rank++) {
        char *text;
        size_t nbytes;

        snprintf(key, sizeof key, "exchange/%s/%d", name, rank);
        if (tri_store_wait(cluster->store, key, &text, &nbytes, tri_now_ns()) == TRI_ETIMEOUT &&
            tri_string_appendf(&missing, "%s%d", found++ ? ", " : "", rank) != TRI_OK)
            break;
        tri_free(text);
    }
    if (found > 0)
        tri_fail(status, "exchange %s: want the texts of %d ranks before the deadline, got none of rank %s%s", name,
                 cluster->world, tri_string_text(&missing), found == 8 ? " and perhaps more" : "");
    else
        tri_fail(status, "exchange %s: %s", name, cause);
    tri_string_fini(&missing);
    return status;
}

tri_status tri_cluster_exchange(tri_cluster *cluster, const char *name, const char *text, char **texts,
                                int64_t deadline_ns)
{
    char key[TRI_STORE_KEY_NBYTES + 1];
    tri_string all = {0};
    int64_t arrived;
    tri_status status;

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
        status = collect(cluster, name, &all, deadline_ns);
    if (status == TRI_OK)
        status = cut(&all, cluster->world, texts);
    tri_string_fini(&all);
    if (status == TRI_ETIMEOUT)
        name_missing(cluster, name, status);
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
