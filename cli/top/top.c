/* SPDX-License-Identifier: Apache-2.0
 *
 * top.c: `trireme top RUN`: a run while it trains, from its folder: it is neither asked nor slowed.
 *
 * On a terminal a screen is drawn again and again, and keys change how it is seen; elsewhere a line now and then. No
 * curses: seven escape sequences that every terminal has do what is wanted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/runtime.h"
#include "base/terminal.h"
#include "cli/command.h"
#include "cli/top/top.h"

#define READ_FIRST_NBYTES (16u << 20) /* of a long run's file, from its end */
#define SLICE_NS          (100 * TRI_NS_PER_MS)

static struct {
    const char *every, *once, *json;
} given;
static const tri_flag flags[] = {
    {"--every", "SECONDS", "between two looks (default 1)", &given.every},
    {"--once", NULL, "one look", &given.once},
    {"--json", NULL, "one JSON object a look", &given.json},
};

static void line_seen(void *top, const tri_metrics_line *line)
{
    tri_top_seen(top, line);
}

typedef struct top_watch {
    tri_top top;
    tri_top_view view;
    size_t page; /* rows that are shown at once */
    bool screen;
} top_watch;

static tri_status look(tri_top *top)
{
    TRI_TRY(tri_metrics_read(&top->reader, line_seen, top));
    tri_top_length_find(top);
    TRI_TRY(tri_top_splits_look(top));
    return tri_top_ranks_look(top);
}

static tri_status show(top_watch *watch)
{
    tri_string text = {0};
    int columns, lines;
    tri_status status = given.json ? tri_top_json(&watch->top, &text) : TRI_OK;
    if (watch->screen && !tri_terminal_is_shown())
        return TRI_OK;
    if (watch->screen) {
        tri_terminal_measure(&columns, &lines);
        status = tri_string_append(&text, "\033[H");
        if (status == TRI_OK)
            status = tri_top_draw(&watch->top, &watch->view, columns, lines, &watch->page, &text);
        if (status == TRI_OK)
            status = tri_string_append(&text, "\033[J");
    } else if (!given.json)
        status = tri_top_line(&watch->top, &text);
    if (status == TRI_OK)
        fputs(tri_string_text(&text), stdout);
    if (fflush(stdout) != 0 && status == TRI_OK)
        status = tri_fail(TRI_EIO, "standard output: cannot be written");
    tri_string_fini(&text);
    return status;
}

/* The file of a run that has long been running is read near its end. */
static tri_status reader_place(tri_top *top)
{
    tri_fs_map map;
    if (!tri_fs_exists(top->reader.path))
        return TRI_OK;
    TRI_TRY(tri_fs_map_open(top->reader.path, &map));
    top->reader.at = map.nbytes > READ_FIRST_NBYTES ? map.nbytes - READ_FIRST_NBYTES : 0;
    tri_fs_map_close(&map);
    return TRI_OK;
}

/* Keys until it is time for the next look; false: one of them ends it. */
static tri_status keys_follow(top_watch *watch, int64_t until_ns, bool *more)
{
    tri_vector rows = {.each = sizeof(tri_top_row)};
    tri_status status = TRI_OK;
    while (status == TRI_OK && *more && !tri_stop_signal()) {
        const int key = tri_terminal_key(watch->view.paused ? TRI_FOREVER : until_ns);
        if (key == TRI_KEY_NONE)
            break;
        status = tri_top_rows(&watch->top, &watch->view, (double)tri_wall_ns() / 1e9, &rows);
        *more = key != TRI_KEY_CLOSED && tri_top_view_key(&watch->view, key, &rows, watch->page);
        if (status == TRI_OK && *more)
            status = show(watch);
    }
    tri_vector_fini(&rows);
    return status;
}

static tri_status watch_on(top_watch *watch, double every_s)
{
    tri_status status = TRI_OK;
    for (bool more = true; more && status == TRI_OK && !tri_stop_signal();) {
        status = look(&watch->top);
        if (status == TRI_OK)
            status = show(watch);
        more = !given.once && strcmp(tri_top_state(&watch->top), "ended") != 0;
        const int64_t until_ns = tri_now_ns() + (int64_t)(every_s * 1e9);
        if (watch->view.keys && status == TRI_OK && more)
            status = keys_follow(watch, until_ns, &more);
        while (!watch->view.keys && more && tri_now_ns() < until_ns && !tri_stop_signal())
            tri_sleep_ns(SLICE_NS);
    }
    return status;
}

/* Keys want a terminal for what is typed too; without one the screen is drawn in the usual mode. */
static tri_status watch_screen(top_watch *watch, double every_s)
{
    watch->view.keys = tri_terminal_is();
    if (watch->view.keys)
        TRI_TRY(tri_terminal_open());
    else
        fputs("\033[?1049h\033[?25l", stdout); /* a screen of its own, no cursor */
    tri_status status = watch_on(watch, every_s);
    tri_terminal_close();
    if (!watch->view.keys)
        fputs("\033[?25h\033[?1049l", stdout);
    if (status == TRI_OK) {
        tri_string line = {0};
        status = tri_top_line(&watch->top, &line);
        fputs(tri_string_text(&line), stdout);
        tri_string_fini(&line);
    }
    return status;
}

static tri_status run(int count, char **argv)
{
    double every_s = 1;
    top_watch watch = {
        .top = {.tested = -1, .ranks = {.each = sizeof(tri_top_rank)}, .splits = {.each = sizeof(tri_top_split)}},
        .view = {.only = -1, .chosen = -1},
        .page = 1};
    tri_top *top = &watch.top;
    if (count != 1)
        return tri_fail(TRI_ECONFIG, "trireme top: want the folder of one run, got %d words", count);
    if (!tri_fs_is_folder(argv[0]))
        return tri_fail(TRI_ECONFIG, "%s: there is no such folder of a run", argv[0]);
    if (given.every) {
        char *end;
        every_s = strtod(given.every, &end);
        if (end == given.every || *end || !(every_s >= 0.1 && every_s <= 86400))
            return tri_fail(TRI_ECONFIG, "--every: want seconds from 0.1 to 86400, got '%s'", given.every);
    }
    snprintf(top->run, sizeof(top->run), "%s", argv[0]);
    snprintf(top->reader.path, sizeof(top->reader.path), "%s/metrics.jsonl", top->run);
    char config[1200];
    snprintf(config, sizeof(config), "%s/config.yaml", top->run);
    if (!tri_fs_exists(top->reader.path) && !tri_fs_exists(config))
        return tri_fail(TRI_ECONFIG, "%s: this is no folder of a run: it has neither config.yaml nor metrics.jsonl",
                        argv[0]);
    watch.screen = !given.json && !given.once && tri_fs_is_terminal(STDOUT_FILENO);
    tri_stop_catch();
    tri_status status = reader_place(top);
    if (status == TRI_OK)
        status = watch.screen ? watch_screen(&watch, every_s) : watch_on(&watch, every_s);
    tri_vector_fini(&top->ranks);
    tri_vector_fini(&top->splits);
    return status;
}

int cmd_top(int argc, char **argv)
{
    return tri_command_run(tri_command_of(cmd_top), flags, TRI_COUNT_OF(flags), argc, argv, run);
}
