/* SPDX-License-Identifier: Apache-2.0
 *
 * store.c: `trireme store`: the meeting point of a job whose workers are started, and started again, by somebody else.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/runtime.h"
#include "cli/command.h"
#include "cluster/cluster.h"

#define LOOK_NS (TRI_NS_PER_S / 10)

static const char *listen_given;
static const tri_flag flags[] = {
    {"--listen", "ADDRESS:PORT", "where workers reach it: their TRIREME_STORE (default 0.0.0.0:29400; port 0: any)",
     &listen_given},
};

/* "0.0.0.0:29400", "[::]:29400". */
static tri_status address_read(const char *text, char address[64], int64_t *port)
{
    const char *colon = strrchr(text, ':');
    const bool bracketed = text[0] == '[' && colon && colon > text && colon[-1] == ']';
    const char *first = text + bracketed;
    size_t nbytes = colon ? (size_t)(colon - first) - bracketed : 0;
    if (!colon || nbytes < 1 || nbytes > 63)
        return tri_fail(TRI_ECONFIG, "--listen: want ADDRESS:PORT, such as 0.0.0.0:29400, got '%.80s'", text);
    snprintf(address, 64, "%.*s", (int)nbytes, first);
    return tri_flag_int("--listen", colon + 1, 0, 65535, port);
}

static tri_status serve(const char *address, int port, const char *token)
{
    tri_store_server *server;
    TRI_TRY(tri_store_server_start(address, port, token, &server));
    tri_log(TRI_LOG_INFO, "store at %s:%d", address, tri_store_server_port(server));
    while (!tri_stop_signal())
        tri_sleep_ns(LOOK_NS);
    tri_store_server_stop(server);
    return TRI_OK;
}

int cmd_store(int argc, char **argv)
{
    char address[64], token[65];
    int64_t port;
    int count;
    tri_status status = tri_flags_parse(tri_command_of(cmd_store), flags, TRI_COUNT_OF(flags), argc, argv, &count);
    if (status == TRI_ECANCELED)
        return 0;
    if (status == TRI_OK && count > 0)
        status = tri_fail(TRI_ECONFIG, "want flags alone, got '%s'", argv[0]);
    if (status == TRI_OK)
        status = address_read(listen_given ? listen_given : "0.0.0.0:29400", address, &port);
    if (status == TRI_OK)
        status = tri_cluster_token(NULL, NULL, token);
    if (status != TRI_OK)
        return tri_command_fail(status);
    tri_stop_catch();
    status = serve(address, (int)port, token);
    return status == TRI_OK ? 0 : tri_command_fail(status);
}
