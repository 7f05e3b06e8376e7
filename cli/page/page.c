/* SPDX-License-Identifier: Apache-2.0
 *
 * page.c: `trireme page RUN...`, and the server that a launcher has with --page.
 */
#include "cli/page/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/runtime.h"
#include "cli/command.h"

#define READ_NS  (500 * TRI_NS_PER_MS)
#define TELL_NS  TRI_NS_PER_S
#define SLICE_NS (100 * TRI_NS_PER_MS)

#ifndef TRI_CHARTS_FOLDER
#define TRI_CHARTS_FOLDER "/usr/share/javascript/dygraphs"
#endif

struct tri_page_server {
    tri_page page;
    tri_http *http;
    int64_t read_ns;
    bool failed;
};

static bool turn(void *arg, tri_http *http)
{
    tri_page_server *server = (tri_page_server *)arg;
    const int64_t now_ns = tri_now_ns();
    bool more = false;
    if (now_ns - server->read_ns >= READ_NS) {
        tri_status status = TRI_OK;
        for (int i = 0; i < server->page.count && status == TRI_OK; i++)
            status = tri_page_run_read(&server->page.runs[i], &more);
        if (status != TRI_OK && !server->failed)
            tri_log(TRI_LOG_WARN, "the page is not current: %s", tri_last_error());
        server->failed = status != TRI_OK;
        server->read_ns = more ? 0 : now_ns;
    }
    if (now_ns - server->page.told_ns >= TELL_NS) {
        tri_string text = {0};
        server->page.told_ns = now_ns;
        if (tri_page_tell(&server->page, &text) == TRI_OK)
            tri_http_push(http, tri_string_text(&text), text.nbytes);
        tri_string_fini(&text);
    }
    return more;
}

static void token_make(char hex[33])
{
    unsigned char bytes[16];
    tri_entropy(bytes, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
}

static tri_status token_check(const char *token)
{
    const size_t length = strlen(token);
    if (length > 0 && (length < 8 || length > 64 ||
                       strspn(token, "0123456789abcdefghijklmnopqrstuvwxyz"
                                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_") != length))
        return tri_fail(TRI_ECONFIG, "--token wants 8 to 64 letters, digits, - or _, found %zu characters", length);
    return TRI_OK;
}

static tri_status charts_find(const char **folder)
{
    char path[1300];
    *folder = TRI_CHARTS_FOLDER;
    snprintf(path, sizeof(path), "%s/dygraph.min.js", *folder);
    return tri_fs_exists(path) ? TRI_OK
                               : tri_fail(TRI_ENOTFOUND,
                                          "%s: the library that draws charts is not there (apt-get install "
                                          "libjs-dygraphs)",
                                          path);
}

tri_status tri_page_serve(const char *address, const char *token, char **folders, int count, char url[256],
                          tri_page_server **out)
{
    char made[33];
    if (count < 1 || count > TRI_PAGE_RUNS)
        return tri_fail(TRI_ECONFIG, "want the folders of 1 to %d runs, found %d", TRI_PAGE_RUNS, count);
    token_make(made);
    token = token ? token : made;
    TRI_TRY(token_check(token));
    tri_page_server *server = tri_alloc_zero(1, sizeof(*server));
    tri_page_run *runs = tri_alloc_zero((size_t)count, sizeof(*runs));
    tri_status status = server && runs ? charts_find(&server->page.charts) : TRI_ENOMEM;
    if (!server || !runs) {
        tri_free(server);
        tri_free(runs);
        return TRI_ENOMEM;
    }
    server->page.runs = runs;
    for (int i = 0; i < count && status == TRI_OK; i++) {
        server->page.count++;
        status = tri_page_run_open(folders[i], &runs[i]);
    }
    if (status == TRI_OK)
        status = tri_http_open(&(tri_http_setup){.address = address,
                                                 .pages = tri_page_pages,
                                                 .arg = server,
                                                 .for_people = true,
                                                 .token = token,
                                                 .turn = turn},
                               &server->http);
    if (status != TRI_OK) {
        tri_page_close(server);
        return status;
    }
    snprintf(url, 256, "http://%s/%s%s", tri_http_address(server->http), token[0] ? "?token=" : "", token);
    *out = server;
    return TRI_OK;
}

void tri_page_close(tri_page_server *server)
{
    if (!server)
        return;
    tri_http_close(server->http);
    for (int i = 0; i < server->page.count; i++)
        tri_page_run_close(&server->page.runs[i]);
    tri_free(server->page.runs);
    tri_free(server);
}

/* --- the command --- */

static struct {
    const char *address, *token, *no_token;
} given;
static const tri_flag flags[] = {
    {"--address", "ADDRESS",
     "where to serve, such as 9200 (loopback) or 0.0.0.0:9200 (default: any free port, loopback)", &given.address},
    {"--token", "WORD", "what readers have to know (default: a new one each time)", &given.token},
    {"--no-token", NULL, "whoever reaches the address may read", &given.no_token},
};

static tri_status run(int count, char **argv)
{
    tri_page_server *server = NULL;
    char url[256];
    if (given.token && given.no_token)
        return tri_fail(TRI_ECONFIG, "want --token or --no-token, found both");
    if (given.token && !given.token[0])
        return tri_fail(TRI_ECONFIG, "--token wants 8 to 64 letters, digits, - or _, found none (--no-token: none)");
    tri_stop_catch();
    TRI_TRY(tri_page_serve(given.address ? given.address : "0", given.no_token ? "" : given.token, argv, count, url,
                           &server));
    printf("%s\n", url);
    tri_status status = fflush(stdout) == 0 ? TRI_OK : tri_fail(TRI_EIO, "standard output: cannot be written");
    while (status == TRI_OK && !tri_stop_signal())
        tri_sleep_ns(SLICE_NS);
    tri_page_close(server);
    return status;
}

int cmd_page(int argc, char **argv)
{
    return tri_command_run(tri_command_of(cmd_page), flags, TRI_COUNT_OF(flags), argc, argv, run);
}
