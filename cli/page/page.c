/* SPDX-License-Identifier: Apache-2.0
 *
 * page.c: `trireme page RUN...`, and the server that a launcher has with --page.
 */
#include "cli/page/page.h"

#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/runtime.h"
#include "cli/command.h"

#define READ_NS     (500 * TRI_NS_PER_MS)
#define TELL_NS     TRI_NS_PER_S
#define SLICE_NS    (100 * TRI_NS_PER_MS)
#define END_NS      TRI_NS_PER_S /* for what is read when it shall end */
#define FILE_NBYTES (4u << 20)

#ifndef TRI_CHARTS_FOLDER
#define TRI_CHARTS_FOLDER "/usr/share/javascript/dygraphs"
#endif

struct tri_page_server {
    tri_page page;
    tri_http *http;
    tri_thread *reader;
    int64_t reported_ns;
    bool reported_rows;
};

/* --- the lock --- */

/* A lock that is free again goes to whoever comes first, and the reader is on a core while an answer has to be woken.
 */
void tri_page_write_begin(tri_page *page)
{
    tri_mutex_lock(&page->mutex);
    while (atomic_load(&page->asked))
        tri_cond_wait(&page->answered, &page->mutex, TRI_FOREVER);
}

void tri_page_write_end(tri_page *page)
{
    tri_mutex_unlock(&page->mutex);
}

void tri_page_answer_begin(tri_page *page)
{
    atomic_store(&page->asked, true);
    tri_mutex_lock(&page->mutex);
}

void tri_page_answer_end(tri_page *page)
{
    atomic_store(&page->asked, false);
    tri_cond_signal(&page->answered);
    tri_mutex_unlock(&page->mutex);
}

/* --- the two threads --- */

/* False: it closes. */
static bool pause_until(tri_page *page, int64_t until_ns)
{
    tri_mutex_lock(&page->mutex);
    while (!page->closing && tri_cond_wait(&page->answered, &page->mutex, until_ns))
        continue;
    const bool continues = !page->closing;
    tri_mutex_unlock(&page->mutex);
    return continues;
}

static void read_on(void *arg)
{
    tri_page *page = arg;
    for (bool failed = false, more = true; pause_until(page, more ? 0 : tri_now_ns() + READ_NS);) {
        tri_status status = TRI_OK;
        more = false;
        for (int i = 0; i < page->count && status == TRI_OK; i++)
            status = tri_page_run_read(page, &page->runs[i], &more);
        if (status != TRI_OK && !failed)
            tri_log(TRI_LOG_WARN, "the page is not current: %s", tri_last_error());
        failed = status != TRI_OK;
    }
    tri_mutex_lock(&page->mutex);
    page->reader_ended = true;
    tri_cond_broadcast(&page->answered);
    tri_mutex_unlock(&page->mutex);
}

/* False: it reads a file that does not come. */
static bool reader_ends(tri_page_server *server)
{
    tri_page *page = &server->page;
    const int64_t until_ns = tri_now_ns() + END_NS;
    tri_mutex_lock(&page->mutex);
    page->closing = true;
    tri_cond_broadcast(&page->answered);
    while (server->reader && !page->reader_ended && tri_cond_wait(&page->answered, &page->mutex, until_ns))
        continue;
    const bool ended = !server->reader || page->reader_ended;
    tri_mutex_unlock(&page->mutex);
    return ended;
}

/* Something is there to be drawn. */
static bool has_rows(tri_page *page)
{
    bool any = false;
    tri_page_answer_begin(page);
    for (int i = 0; i < page->count; i++)
        any = any || tri_history_rows(page->runs[i].steps) > 0;
    tri_page_answer_end(page);
    return any;
}

static bool turn(void *arg, tri_http *http)
{
    tri_page_server *server = (tri_page_server *)arg;
    const int64_t now_ns = tri_now_ns();
    const bool first = !server->reported_rows && has_rows(&server->page); /* who waits for it hears of it at once */
    if (first || now_ns - server->reported_ns >= TELL_NS) {
        tri_string text = {0};
        server->reported_ns = now_ns;
        server->reported_rows = server->reported_rows || first;
        if (tri_page_tell(&server->page, &text) == TRI_OK)
            tri_http_push(http, tri_string_text(&text), text.nbytes);
        tri_string_fini(&text);
    }
    return false;
}

static void token_make(char hex[33])
{
    unsigned char bytes[16];
    tri_entropy(bytes, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
}

static tri_status library_read(const char *name, tri_string *out)
{
    char path[1300], *bytes;
    size_t nbytes;
    snprintf(path, sizeof(path), "%s/%s", TRI_CHARTS_FOLDER, name);
    if (!tri_fs_exists(path))
        return tri_fail(TRI_ENOTFOUND,
                        "%s: the library that draws charts is not there (apt-get install libjs-dygraphs)", path);
    TRI_TRY(tri_fs_read(path, FILE_NBYTES, &bytes, &nbytes));
    tri_status status = tri_string_append_bytes(out, bytes, nbytes);
    tri_free(bytes);
    return status;
}

static tri_status start(tri_page_server *server, const tri_page_place *at, const char *token, char **folders, int count)
{
    tri_page *page = &server->page;
    TRI_TRY(library_read("dygraph.min.js", &page->dygraph_js));
    TRI_TRY(library_read("dygraph.min.css", &page->dygraph_css));
    for (int i = 0; i < count; i++) {
        page->count++;
        TRI_TRY(tri_page_run_open(folders[i], &page->runs[i]));
    }
    TRI_TRY(tri_http_open(&(tri_http_setup){.address = at->address,
                                            .pages = tri_page_pages,
                                            .arg = server,
                                            .for_people = true,
                                            .token = token,
                                            .names = at->names,
                                            .tls_cert = at->tls_cert,
                                            .tls_key = at->tls_key,
                                            .turn = turn},
                          &server->http));
    return tri_thread_start(&server->reader, "page", read_on, page);
}

tri_status tri_page_serve(const tri_page_place *at, char **folders, int count, char url[256], tri_page_server **out)
{
    char made[33];
    if (count < 1 || count > TRI_PAGE_RUNS)
        return tri_fail(TRI_ECONFIG, "want the folders of 1 to %d runs, got %d", TRI_PAGE_RUNS, count);
    token_make(made);
    const char *token = at->token ? at->token : made;
    const size_t length = strlen(token);
    if (length > 0 && (length < 8 || length > 64 ||
                       strspn(token, "0123456789abcdefghijklmnopqrstuvwxyz"
                                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_") != length))
        return tri_fail(TRI_ECONFIG, "--token: want 8 to 64 letters, digits, - or _, got %zu characters", length);
    tri_page_server *server = tri_alloc_zero(1, sizeof(*server));
    tri_page_run *runs = tri_alloc_zero((size_t)count, sizeof(*runs));
    if (!server || !runs) {
        tri_free(server);
        tri_free(runs);
        return TRI_ENOMEM;
    }
    server->page.runs = runs;
    tri_mutex_init(&server->page.mutex);
    tri_cond_init(&server->page.answered);
    tri_status status = start(server, at, token, folders, count);
    if (status != TRI_OK) {
        tri_page_close(server);
        return status;
    }
    snprintf(url, 256, "%s://%s/%s%s", tri_http_scheme(server->http), tri_http_address(server->http),
             token[0] ? "?token=" : "", token);
    *out = server;
    return TRI_OK;
}

void tri_page_close(tri_page_server *server)
{
    if (!server)
        return;
    tri_page *page = &server->page;
    tri_http_close(server->http);
    if (!reader_ends(server))
        return; /* it goes with the process; what it may touch stays */
    tri_thread_join(server->reader);
    for (int i = 0; i < page->count; i++)
        tri_page_run_close(&page->runs[i]);
    tri_metrics_piece_fini(&page->piece);
    tri_string_fini(&page->dygraph_js);
    tri_string_fini(&page->dygraph_css);
    tri_mutex_fini(&page->mutex);
    tri_cond_fini(&page->answered);
    tri_free(page->runs);
    tri_free(server);
}

/* --- the command --- */

static struct {
    const char *address, *token, *no_token, *names, *cert, *key;
} given;
static const tri_flag flags[] = {
    {"--address", "ADDRESS",
     "where to serve, such as 9200 (loopback) or 0.0.0.0:9200 (default: any free port, loopback)", &given.address},
    {"--token", "WORD", "what readers have to know (default: a new one each time)", &given.token},
    {"--no-token", NULL, "anyone who reaches the address may read", &given.no_token},
    {"--names", "NAME,...", "names by which readers may ask, beside numbers, localhost and this machine's",
     &given.names},
    {"--tls-cert", "FILE", "certificates (PEM): serve by https; requires --tls-key", &given.cert},
    {"--tls-key", "FILE", "their key (PEM)", &given.key},
};

static tri_status run(int count, char **argv)
{
    tri_page_server *server = NULL;
    char url[256];
    if (given.token && given.no_token)
        return tri_fail(TRI_ECONFIG, "want --token or --no-token, got both");
    if (given.token && !given.token[0])
        return tri_fail(TRI_ECONFIG, "--token: want 8 to 64 letters, digits, - or _, got none (--no-token: none)");
    tri_stop_catch();
    const tri_page_place at = {.address = given.address ? given.address : "0",
                               .token = given.no_token ? "" : given.token,
                               .names = given.names,
                               .tls_cert = given.cert,
                               .tls_key = given.key};
    TRI_TRY(tri_page_serve(&at, argv, count, url, &server));
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
