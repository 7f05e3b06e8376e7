/* SPDX-License-Identifier: Apache-2.0
 *
 * server.c: <trireme/ps.h>: a server of this process.
 */
#include "ps/api/api.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "net/auth.h"
#include "ps/ps.h"
#include "ps/server/server.h"
#include "ps/view.h"

struct tri_kv_server {
    tri_net_config net;
    char *token;
    tri_ps_server *server;
    tri_thread *thread; /* NULL: run by the caller */
    tri_status status;  /* of the thread */
    char message[TRI_ERROR_NBYTES];
};

/* --- options --- */

static tri_status option_set(const char *text, tri_net_config *net, tri_ps_config *ps)
{
    char field[64];
    const char *dot = strchr(text, '.'), *equals = strchr(text, '=');
    bool of_net = strncmp(text, "comm.", 5) == 0, of_ps = strncmp(text, "ps.", 3) == 0;
    if (!dot || !equals || equals < dot || (size_t)(equals - dot) > sizeof(field) || !(of_net || of_ps))
        return tri_fail(TRI_ECONFIG, "option '%s': want comm.KEY=VALUE or ps.KEY=VALUE", text);
    snprintf(field, sizeof(field), "%.*s", (int)(equals - dot - 1), dot + 1);
    return of_net ? tri_options_set(&tri_net_options, net, field, equals + 1)
                  : tri_options_set(&tri_ps_options, ps, field, equals + 1);
}

tri_status tri_kv_options_read(const char *const *options, tri_net_config *net, tri_ps_config *ps)
{
    tri_options_defaults(&tri_net_options, net);
    tri_options_defaults(&tri_ps_options, ps);
    for (size_t i = 0; options && options[i]; i++)
        TRI_TRY(option_set(options[i], net, ps));
    return TRI_OK;
}

tri_status tri_kv_token_check(const char *token, const tri_net_config *net)
{
    const size_t nbytes = strlen(token);
    if (nbytes == 0 && (net->encrypt || net->require_token))
        return tri_fail(TRI_ECONFIG, "comm.%s = on: want a token that servers and workers share, got none",
                        net->encrypt ? "encrypt" : "require_token");
    if (nbytes > 0 && nbytes < TRI_AUTH_TOKEN_LEAST)
        return tri_fail(TRI_ECONFIG, "token: want at least %d bytes, got %zu", TRI_AUTH_TOKEN_LEAST, nbytes);
    return TRI_OK;
}

/* --- the server --- */

static tri_status merges_add(tri_ps_server *server, const tri_kv_merge_row *merges)
{
    for (; merges && merges->name; merges++)
        TRI_TRY(tri_ps_server_merge_add(server, merges->name, merges->merge, merges->arg));
    return TRI_OK;
}

static tri_status server_fill_in(const tri_kv_server_setup *setup, tri_kv_server *server)
{
    tri_ps_config unused;
    if (setup->servers < 1 || setup->servers > PS_MAX_SERVERS || setup->number < 0 || setup->number >= setup->servers ||
        setup->workers < 1 || setup->workers > 1 << 20)
        return tri_fail(TRI_EINVAL, "server %d of %d for %d workers: want 1 to %d servers, and workers", setup->number,
                        setup->servers, setup->workers, PS_MAX_SERVERS);
    TRI_TRY(tri_kv_options_read(setup->options, &server->net, &unused));
    server->token = tri_strdup(setup->token ? setup->token : "");
    if (!server->token)
        return TRI_ENOMEM;
    TRI_TRY(tri_kv_token_check(server->token, &server->net));
    tri_ps_server_setup inner = {.net = &server->net,
                                 .token = server->token,
                                 .number = setup->number,
                                 .servers = setup->servers,
                                 .workers = setup->workers,
                                 .threads = 1};
    TRI_TRY(tri_ps_server_open(&inner, &server->server));
    return merges_add(server->server, setup->merges);
}

tri_status tri_kv_server_open(const tri_kv_server_setup *setup, tri_kv_server **out)
{
    tri_kv_server *server = tri_alloc_zero(1, sizeof(*server));
    if (!server)
        return TRI_ENOMEM;
    tri_status status = server_fill_in(setup, server);
    if (status != TRI_OK) {
        (void)tri_kv_server_close(server);
        return status;
    }
    *out = server;
    return TRI_OK;
}

const char *tri_kv_server_address(const tri_kv_server *server)
{
    return tri_ps_server_address(server->server);
}

tri_status tri_kv_server_run(tri_kv_server *server)
{
    return tri_ps_server_run(server->server);
}

static void server_body(void *arg)
{
    tri_kv_server *server = arg;
    server->status = tri_ps_server_run(server->server);
    if (server->status != TRI_OK)
        snprintf(server->message, sizeof(server->message), "%s", tri_last_error());
}

tri_status tri_kv_server_start(tri_kv_server *server)
{
    return tri_thread_start(&server->thread, "ps server", server_body, server);
}

void tri_kv_server_stop(tri_kv_server *server)
{
    tri_ps_server_stop(server->server);
}

tri_status tri_kv_server_close(tri_kv_server *server)
{
    if (!server)
        return TRI_OK;
    tri_thread_join(server->thread);
    tri_ps_server_close(server->server);
    tri_status status = server->status;
    if (status != TRI_OK)
        status = tri_fail_copy(status, server->message);
    tri_free(server->token);
    tri_free(server);
    return status;
}
