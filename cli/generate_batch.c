/* SPDX-License-Identifier: Apache-2.0
 *
 * generate_batch.c: JSON lines in, JSON lines out.
 */
#include "cli/generate_batch.h"

#include <stdio.h>
#include <string.h>

#include "base/runtime.h"
#include "generate/request.h"

typedef struct batch_line {
    int64_t number; /* in the file, from 1 */
    char *error;    /* it is no request */
    int request;    /* else */
    bool done;
} batch_line;

typedef struct batch {
    tri_vector lines;    /* batch_line */
    tri_vector requests; /* tri_generate_request */
    tri_generate_result *results;
    size_t printed; /* lines */
    int64_t wrong, tokens;
    tri_string text;
} batch;

void generate_result_print(tri_json *json, const tri_generate_result *result)
{
    tri_json_text(json, "text", tri_string_text(&result->text));
    tri_json_text(json, "finish", tri_generate_end_name(result->end));
    tri_json_int(json, "prompt_tokens", result->prompt_tokens);
    tri_json_int(json, "tokens", result->tokens);
}

static tri_status line_take(batch *b, const char *path, int64_t number, const char *text, size_t nbytes,
                            const tri_generate_request *request)
{
    char origin[300];
    tri_generate_request one = *request;
    batch_line line = {.number = number, .request = (int)b->requests.count};
    snprintf(origin, sizeof(origin), "%.250s:%lld", path, (long long)number);
    tri_status status = tri_generate_request_parse(text, nbytes, origin, &one);
    if (status != TRI_OK && status != TRI_EFORMAT)
        return status;
    if (status == TRI_OK) {
        if (!tri_vector_push(&b->requests, &one)) {
            tri_generate_request_fini(&one);
            return TRI_ENOMEM;
        }
    } else if (!(line.error = tri_strdup(tri_last_error())))
        return TRI_ENOMEM;
    line.done = line.error != NULL;
    if (tri_vector_push(&b->lines, &line))
        return TRI_OK;
    tri_free(line.error);
    return TRI_ENOMEM;
}

static bool is_blank(const char *text, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++)
        if (!strchr(" \t\r", text[i]))
            return false;
    return true;
}

static tri_status lines_take(batch *b, const char *path, const char *text, size_t nbytes,
                             const tri_generate_request *request)
{
    int64_t number = 0;
    for (size_t first = 0, end; first < nbytes; first = end + 1) {
        const char *next = memchr(text + first, '\n', nbytes - first);
        end = next ? (size_t)(next - text) : nbytes;
        number++;
        if (!is_blank(text + first, end - first))
            TRI_TRY(line_take(b, path, number, text + first, end - first, request));
    }
    return TRI_OK;
}

static tri_status line_print(batch *b, const batch_line *line)
{
    const tri_generate_result *result = line->error ? NULL : &b->results[line->request];
    const char *error = line->error ? line->error : result->error;
    tri_string_clear(&b->text);
    tri_json json = tri_json_object(&b->text);
    if (error) {
        tri_json_int(&json, "line", line->number);
        tri_json_text(&json, "error", error);
        b->wrong++;
    } else {
        generate_result_print(&json, result);
        b->tokens += result->tokens;
    }
    TRI_TRY(tri_json_end(&json));
    puts(tri_string_text(&b->text));
    if (fflush(stdout) != 0 || ferror(stdout))
        return tri_fail(TRI_EIO, "standard output cannot be written");
    return TRI_OK;
}

/* Lines that are done and have all before them printed. */
static tri_status lines_print(batch *b)
{
    for (; b->printed < b->lines.count; b->printed++) {
        const batch_line *line = tri_vector_at(&b->lines, b->printed);
        if (!line->done)
            return TRI_OK;
        TRI_TRY(line_print(b, line));
    }
    return TRI_OK;
}

static tri_status request_done(void *arg, int index)
{
    batch *b = arg;
    for (size_t i = b->printed; i < b->lines.count; i++) {
        batch_line *line = tri_vector_at(&b->lines, i);
        line->done = line->done || line->request == index;
    }
    return lines_print(b);
}

static tri_status batch_run(const tri_text_model *model, batch *b)
{
    const int count = (int)b->requests.count;
    const int64_t began_ns = tri_now_ns();
    b->results = tri_alloc_zero((size_t)count + 1, sizeof(*b->results));
    if (!b->results)
        return TRI_ENOMEM;
    TRI_TRY(lines_print(b));
    tri_generate_watch watch = {.done = request_done, .arg = b};
    TRI_TRY(tri_generator_run(model->generator, b->requests.items, count, &watch, b->results));
    const double seconds = (double)(tri_now_ns() - began_ns) / (double)TRI_NS_PER_S;
    fprintf(stderr, "%lld tokens of %d prompts: %.1f tokens/s\n", (long long)b->tokens, count,
            (double)b->tokens / seconds);
    if (b->wrong > 0)
        return tri_fail(TRI_EFORMAT, "%lld of %zu prompts are wrong: their lines say why", (long long)b->wrong,
                        b->lines.count);
    return TRI_OK;
}

tri_status generate_batch(const tri_text_model *model, const char *path, const tri_generate_request *request)
{
    batch b = {.lines = {.each = sizeof(batch_line)}, .requests = {.each = sizeof(tri_generate_request)}};
    char *text = NULL;
    size_t nbytes;
    TRI_TRY(generate_file_read(path, &text, &nbytes));
    tri_status status = lines_take(&b, path, text, nbytes, request);
    if (status == TRI_OK)
        status = batch_run(model, &b);
    for (size_t i = 0; i < b.requests.count; i++) {
        tri_generate_request_fini(tri_vector_at(&b.requests, i));
        if (b.results)
            tri_generate_result_fini(&b.results[i]);
    }
    for (size_t i = 0; i < b.lines.count; i++)
        tri_free(((batch_line *)tri_vector_at(&b.lines, i))->error);
    tri_vector_fini(&b.lines);
    tri_vector_fini(&b.requests);
    tri_string_fini(&b.text);
    tri_free(b.results);
    tri_free(text);
    return status;
}
