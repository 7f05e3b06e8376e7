/* SPDX-License-Identifier: Apache-2.0
 *
 * job.c: <trireme/ps.h>: a worker's way to all servers: open, join, clocks, barriers, close.
 */
#include <stdio.h>

#include "base/fs.h"
#include "base/memory.h"
#include "net/auth.h"
#include "ps/api/api.h"
#include "ps/api/role.h"
#include "ps/api/table.h"
#include "ps/pack.h"

/* --- open --- */

static tri_status kv_make(const char *const *options, tri_kv **out)
{
    tri_kv *kv = tri_alloc_zero(1, sizeof(*kv));
    if (!kv)
        return TRI_ENOMEM;
    tri_status status = tri_kv_options_read(options, &kv->net, &kv->ps);
    if (status != TRI_OK) {
        tri_free(kv);
        return status;
    }
    *out = kv;
    return TRI_OK;
}

tri_status tri_kv_abandon(tri_kv *kv)
{
    tri_ps_client_close(kv->client);
    for (tri_kv_table *table = kv->tables, *next; table; table = next) {
        next = table->next;
        tri_kv_table_free(table);
    }
    for (tri_kv_array *array = kv->arrays, *next; array; array = next) {
        next = array->next;
        tri_free(array->keys);
        tri_free(array);
    }
    tri_status status = tri_kv_server_close(kv->own);
    if (kv->cluster)
        tri_cluster_leave(kv->cluster);
    tri_free(kv->cluster);
    tri_ps_kv_scratch_fini(&kv->scratch);
    tri_free(kv->token);
    tri_free(kv);
    return status;
}

/* What was heard of this worker before. */
static tri_status kv_begin(tri_kv *kv)
{
    uint64_t stops = 0;
    TRI_TRY(tri_ps_kv_open(kv->client, &stops));
    kv->stops = (int64_t)stops;
    return TRI_OK;
}

static tri_status kv_open_setup(tri_kv *kv, const tri_kv_setup *setup)
{
    kv->token = tri_strdup(setup->token ? setup->token : "");
    if (!kv->token)
        return TRI_ENOMEM;
    TRI_TRY(tri_kv_token_check(kv->token, &kv->net));
    if (setup->worker < 0 || setup->worker >= setup->workers)
        return tri_fail(TRI_EINVAL, "worker %d of %d", setup->worker, setup->workers);
    tri_ps_client_setup inner = {.net = &kv->net,
                                 .ps = &kv->ps,
                                 .token = kv->token,
                                 .addresses = setup->addresses,
                                 .worker = setup->worker,
                                 .workers = setup->workers,
                                 .servers = setup->servers};
    TRI_TRY(tri_ps_client_open(&inner, &kv->client));
    return kv_begin(kv);
}

/* The message of a failure outlives what is closed for it. */
static tri_status kv_give_up(tri_kv *kv, tri_status status)
{
    char message[TRI_ERROR_NBYTES];
    snprintf(message, sizeof(message), "%s", tri_last_error());
    if (kv->own)
        tri_kv_server_stop(kv->own);
    (void)tri_kv_abandon(kv);
    return tri_fail_copy(status, message);
}

tri_status tri_kv_open(const tri_kv_setup *setup, tri_kv **out)
{
    tri_kv *kv;
    TRI_TRY(kv_make(setup->options, &kv));
    tri_status status = kv_open_setup(kv, setup);
    if (status != TRI_OK)
        return kv_give_up(kv, status);
    *out = kv;
    return TRI_OK;
}

/* --- join --- */

/* One worker, and a server on a thread. */
static tri_status join_alone(tri_kv *kv, const tri_kv_job *job)
{
    char token[TRI_AUTH_HEX_NBYTES];
    tri_auth_token_make(token);
    tri_kv_server_setup server = {
        .servers = 1, .workers = 1, .token = token, .options = job->options, .merges = job->merges};
    TRI_TRY(tri_kv_server_open(&server, &kv->own));
    TRI_TRY(tri_kv_server_start(kv->own));
    const char *address = tri_kv_server_address(kv->own);
    tri_kv_setup setup = {.addresses = &address, .servers = 1, .workers = 1, .token = token};
    return kv_open_setup(kv, &setup);
}

/* *serves: this process is a server, and has served. */
static tri_status join_job(tri_kv *kv, const tri_kv_job *job, bool *serves)
{
    *serves = false;
    kv->cluster = tri_alloc_zero(1, sizeof(*kv->cluster));
    if (!kv->cluster)
        return TRI_ENOMEM;
    tri_status status =
        tri_cluster_join(NULL, NULL, &kv->net, tri_deadline_after_ms((int64_t)(kv->net.timeout_s * 1e3)), kv->cluster);
    if (status != TRI_OK) {
        tri_free(kv->cluster);
        kv->cluster = NULL;
        return tri_fail_context(status, "while joining the job");
    }
    if (kv->cluster->world == 1)
        return join_alone(kv, job);
    if (kv->cluster->servers == 0)
        return tri_fail(TRI_ECONFIG, "the job has no parameter servers: want trireme launch --servers N, or "
                                     "TRIREME_SERVERS in the environment of all ranks");
    *serves = tri_ps_is_server(kv->cluster);
    if (*serves)
        return tri_ps_serve(kv->cluster, &kv->net, &kv->ps, 1, false, job->merges);
    TRI_TRY(tri_ps_join(kv->cluster, &kv->net, &kv->ps, &kv->client));
    return kv_begin(kv);
}

tri_status tri_kv_join(const tri_kv_job *job, tri_kv **out)
{
    tri_kv *kv;
    bool serves;
    *out = NULL;
    TRI_TRY(kv_make(job->options, &kv));
    if (job->timeout_s > 0)
        kv->net.timeout_s = job->timeout_s;
    tri_status status = join_job(kv, job, &serves);
    if (status != TRI_OK)
        return kv_give_up(kv, status);
    if (serves)
        return tri_kv_abandon(kv);
    *out = kv;
    return TRI_OK;
}

/* --- all tables --- */

static bool is_quiet(void *arg)
{
    const tri_ps_client *client = arg;
    for (int s = 0; s < client->setup.servers; s++)
        if (client->kv->links[s].calls)
            return false;
    return true;
}

/* Waits until servers have answered everything. */
static tri_status quiet_await(tri_kv *kv, const char *what)
{
    tri_mutex_lock(&kv->client->mutex);
    tri_status status = tri_ps_await(kv->client, is_quiet, kv->client, what);
    tri_mutex_unlock(&kv->client->mutex);
    return status;
}

tri_status tri_kv_clock(tri_kv *kv)
{
    for (tri_kv_table *table = kv->tables; table; table = table->next)
        TRI_TRY(tri_kv_table_clock(table));
    return TRI_OK;
}

tri_status tri_kv_barrier(tri_kv *kv)
{
    TRI_TRY(quiet_await(kv, "requests before a barrier"));
    tri_kv_work *work = tri_ps_kv_work(kv->client);
    if (!work)
        return TRI_ENOMEM;
    ps_head head = {.kind = PS_KV_BARRIER, .clock = kv->stops + 1};
    tri_status status = tri_ps_kv_ask_slot(kv->client, work, &head, PS_BARRIER_SLOT);
    status = tri_ps_kv_end(work, status, "a barrier", NULL);
    kv->stops += status == TRI_OK;
    return status;
}

static tri_status stats_take(tri_kv_work *work)
{
    snprintf(work->to_text, work->to_capacity, "%s", tri_string_text(&work->text));
    return TRI_OK;
}

static tri_status stats_of(tri_kv *kv, int server, char *text, size_t capacity)
{
    tri_kv_work *work = tri_ps_kv_work(kv->client);
    if (!work)
        return TRI_ENOMEM;
    ps_head head = {.kind = PS_KV_STATS};
    tri_status status = tri_ps_kv_ask_one(kv->client, work, NULL, &head, NULL, NULL, server);
    work->then = stats_take;
    work->to_text = text;
    work->to_capacity = capacity;
    return tri_ps_kv_end(work, status, "how the servers do", NULL);
}

tri_status tri_kv_stats(tri_kv *kv, char *text, size_t capacity)
{
    for (int s = 0; s < kv->client->setup.servers; s++) {
        size_t used = s > 0 ? strlen(text) : 0;
        TRI_TRY(stats_of(kv, s, text + used, capacity - used));
    }
    return TRI_OK;
}

/* --- files --- */

/* All servers have written theirs. */
static tri_status manifest_write(tri_kv_work *work)
{
    tri_string text = {0};
    char *path = tri_format("%s/manifest.yaml", work->folder);
    tri_status status = path ? tri_string_append(&text, "format: trireme rows 1\nfiles:\n") : TRI_ENOMEM;
    if (status == TRI_OK)
        status = tri_string_append(&text, tri_string_text(&work->text));
    if (status == TRI_OK)
        status = tri_fs_write_atomic(path, text.text, text.nbytes);
    tri_free(path);
    tri_string_fini(&text);
    return status;
}

static tri_status save_body(const tri_kv *kv, const char *folder, tri_string *out)
{
    uint32_t count = 0;
    for (const tri_kv_table *table = kv->tables; table; table = table->next)
        count++;
    TRI_TRY(ps_put_u32(out, count));
    for (const tri_kv_table *table = kv->tables; table; table = table->next) {
        TRI_TRY(ps_put_u32(out, table->id));
        TRI_TRY(ps_put_u64(out, (uint64_t)table->step));
    }
    return tri_string_append(out, folder);
}

static tri_status save_ask(tri_kv *kv, const char *folder, tri_kv_work *work)
{
    work->then = manifest_write;
    work->folder = tri_strdup(folder);
    if (!work->folder)
        return TRI_ENOMEM;
    TRI_TRY(tri_fs_make_folder(folder));
    for (int s = 0; s < kv->client->setup.servers; s++) {
        if (!tri_ps_kv_serves(kv->client, s))
            continue;
        tri_string body = {0};
        tri_status status = save_body(kv, folder, &body);
        ps_head head = {.kind = PS_KV_SAVE, .nbytes = body.nbytes};
        if (status == TRI_OK)
            status = tri_ps_kv_ask_one(kv->client, work, NULL, &head, body.text, NULL, s);
        tri_string_fini(&body);
        TRI_TRY(status);
    }
    return TRI_OK;
}

tri_status tri_kv_save(tri_kv *kv, const char *folder, tri_kv_work **work)
{
    tri_kv_work *made = tri_ps_kv_work(kv->client);
    if (!made)
        return TRI_ENOMEM;
    return tri_ps_kv_end(made, save_ask(kv, folder, made), "saving rows", work);
}

static tri_status load_ask(tri_kv *kv, const char *folder)
{
    tri_kv_work *work = tri_ps_kv_work(kv->client);
    if (!work)
        return TRI_ENOMEM;
    ps_head head = {.kind = PS_KV_LOAD, .nbytes = strlen(folder)};
    tri_status status = tri_ps_kv_ask(kv->client, work, NULL, &head, folder, false, "loading rows");
    return tri_ps_kv_end(work, status, "loading rows", NULL);
}

tri_status tri_kv_load(tri_kv *kv, const char *folder)
{
    char message[TRI_ERROR_NBYTES];
    tri_status status = kv->client->setup.worker == 0 ? load_ask(kv, folder) : TRI_OK;
    snprintf(message, sizeof(message), "%s", tri_last_error());
    TRI_TRY(tri_kv_barrier(kv)); /* whatever has happened: the others wait there */
    if (status != TRI_OK)
        return tri_fail_copy(status, message);
    for (tri_kv_table *table = kv->tables; table; table = table->next)
        TRI_TRY(tri_kv_table_ask(table));
    return TRI_OK;
}

int tri_kv_worker(const tri_kv *kv)
{
    return kv->client->setup.worker;
}

int tri_kv_worker_count(const tri_kv *kv)
{
    return kv->client->setup.workers;
}

int tri_kv_server_count(const tri_kv *kv)
{
    return kv->client->setup.servers;
}

tri_status tri_kv_close(tri_kv *kv)
{
    if (!kv)
        return TRI_OK;
    tri_status status = quiet_await(kv, "requests before goodbye");
    if (status == TRI_OK)
        status = tri_ps_client_bye(kv->client);
    if (status != TRI_OK)
        return kv_give_up(kv, status);
    return tri_kv_abandon(kv);
}
