/* SPDX-License-Identifier: Apache-2.0
 *
 * tensorboard.c: lines of metrics.jsonl to Events, one Event a line with a value for each number in it.
 *
 * What is not in the event file yet is taken from metrics.jsonl when the file is opened: so a run that is gone on with,
 * by whomever, has each point once, and one that had no event file so far gets all of it.
 */
#include "monitor/tensorboard.h"

#include <jansson.h>
#include <string.h>

#include "base/fs.h"
#include "base/runtime.h"

struct tri_tensorboard {
    tri_event_file *file;
    tri_proto body;  /* under way */
    int64_t wall_ns; /* of the newest line: they never go back */
};

/* Keys of metrics.jsonl that are in a group of their own; the others are in "train". A key that is not a number but a
 * text becomes one under its own name. */
typedef struct group_row {
    const char *key, *group;
} group_row;
static const group_row groups[] = {
    {"samples_per_s", "rate"},   {"tokens_per_s", "rate"}, {"mfu", "rate"},
    {"sent_bytes", "rate"},      {"data", "time"},         {"forward", "time"},
    {"backward", "time"},        {"comm", "time"},         {"optimizer", "time"},
    {"other", "time"},           {"test_loss", "test"},    {"test_accuracy", "test"},
    {"test_perplexity", "test"}, {"test_mae", "test"},     {"test_r2", "test"},
};

const char *const tri_tensorboard_metrics[] = {"train/loss", "test/test_loss", "test/test_accuracy",
                                               "rate/samples_per_s"};
const int tri_tensorboard_metric_count = (int)TRI_COUNT_OF(tri_tensorboard_metrics);

static const char *group_of(const char *key)
{
    for (size_t i = 0; i < TRI_COUNT_OF(groups); i++)
        if (strcmp(groups[i].key, key) == 0)
            return groups[i].group;
    return strncmp(key, "checkpoint", strlen("checkpoint")) == 0 ? "checkpoint" : "train";
}

/* Seconds that the step of a line took. */
static double duration_of(const json_t *line)
{
    double seconds = 0;
    for (size_t i = 0; i < TRI_COUNT_OF(groups); i++)
        if (strcmp(groups[i].group, "time") == 0)
            seconds += json_number_value(json_object_get(line, groups[i].key));
    return seconds;
}

static void text_put(tri_proto *body, const char *key, const json_t *line)
{
    const char *prompt = json_string_value(json_object_get(line, "sample_prompt"));
    const char *event = json_string_value(json_object_get(line, "event"));
    const char *text = json_string_value(json_object_get(line, key));
    tri_string whole = {0};
    if (strcmp(key, "sample") == 0)
        body->status = tri_string_appendf(&whole, "```\n%s%s\n```\n", prompt ? prompt : "", text);
    else if (strcmp(key, "text") == 0)
        body->status = tri_string_appendf(&whole, "**%s** %s", event ? event : "", text);
    else if (strcmp(key, "checkpoint_error") == 0)
        body->status = tri_string_append(&whole, text);
    if (whole.nbytes > 0)
        tri_summary_text(body, strcmp(key, "text") == 0 ? "events" : key, whole.text);
    tri_string_fini(&whole);
}

static void line_write(tri_tensorboard *board, json_t *line, int64_t step)
{
    const char *key;
    json_t *value;
    char tag[128];
    const bool event = json_object_get(line, "event") != NULL;
    json_object_foreach(line, key, value)
    {
        snprintf(tag, sizeof(tag), "%s/%.100s", group_of(key), key);
        if (strcmp(key, "step") == 0)
            continue;
        if ((json_is_number(value) || json_is_boolean(value)) && !event) /* those of events are in their texts */
            tri_summary_scalar(&board->body, tag, json_is_true(value) ? 1 : json_number_value(value));
        else if (json_is_string(value))
            text_put(&board->body, key, line);
    }
    int64_t now_ns = tri_wall_ns();
    board->wall_ns += (int64_t)(duration_of(line) * 1e9);
    board->wall_ns = board->wall_ns > now_ns ? now_ns : board->wall_ns;
    tri_event_file_write(board->file, TRI_EVENT_METRICS, step, board->wall_ns, &board->body);
}

/* Calls for each whole line; one that is no object is passed over. */
static void lines_walk(const char *lines, size_t nbytes, void (*each)(tri_tensorboard *, json_t *, int64_t),
                       tri_tensorboard *board, int64_t first_step)
{
    for (const char *line = lines, *end; (end = memchr(line, '\n', (size_t)(lines + nbytes - line))); line = end + 1) {
        json_t *object = json_loadb(line, (size_t)(end - line), 0, NULL);
        const json_t *step = json_object_get(object, "step");
        if (json_is_integer(step) && json_integer_value(step) >= first_step)
            each(board, object, json_integer_value(step));
        json_decref(object);
    }
}

/* Lines bear no time, but steps say how long they took: the last one ended now. */
static void line_back(tri_tensorboard *board, json_t *line, int64_t step)
{
    (void)step;
    board->wall_ns -= (int64_t)(duration_of(line) * 1e9);
}

static void lines_translate(tri_tensorboard *board, const char *lines, size_t nbytes, int64_t first_step)
{
    int64_t before_ns = board->wall_ns;
    board->wall_ns = tri_wall_ns();
    lines_walk(lines, nbytes, line_back, board, first_step);
    board->wall_ns = board->wall_ns < before_ns ? before_ns : board->wall_ns;
    lines_walk(lines, nbytes, line_write, board, first_step);
}

void tri_tensorboard_lines(tri_tensorboard *board, const char *lines, size_t nbytes)
{
    lines_translate(board, lines, nbytes, 0);
    tri_event_file_flush(board->file);
}

void tri_tensorboard_write(tri_tensorboard *board, tri_event_origin origin, int64_t step, tri_proto *body)
{
    tri_event_file_write(board->file, origin, step, tri_wall_ns(), body);
    tri_event_file_flush(board->file);
}

static tri_status catch_up(tri_tensorboard *board, const char *metrics, int64_t from)
{
    char *lines;
    size_t nbytes;
    if (!tri_fs_exists(metrics))
        return TRI_OK;
    TRI_TRY(tri_fs_read(metrics, 0, &lines, &nbytes));
    lines_translate(board, lines, nbytes, from);
    tri_free(lines);
    tri_event_file_flush(board->file);
    return TRI_OK;
}

tri_status tri_tensorboard_open(const char *folder, const char *metrics, int64_t first_step, tri_tensorboard **out,
                                bool *is_new)
{
    int64_t lines_from;
    tri_tensorboard *board = tri_alloc_zero(1, sizeof(*board));
    if (!board)
        return TRI_ENOMEM;
    tri_status status = tri_event_file_open(folder, first_step, &board->file, &lines_from, is_new);
    if (status == TRI_OK)
        status = catch_up(board, metrics, lines_from);
    if (status != TRI_OK) {
        tri_tensorboard_close(board);
        return status;
    }
    *out = board;
    return TRI_OK;
}

void tri_tensorboard_close(tri_tensorboard *board)
{
    if (!board)
        return;
    tri_event_file_close(board->file);
    tri_string_fini(&board->body.out);
    tri_free(board);
}
