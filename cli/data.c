/* SPDX-License-Identifier: Apache-2.0
 *
 * data.c: `trireme data prepare`: text files to shards of tokens, with progress; `trireme data inspect`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/wait.h"
#include "cli/command.h"
#include "cli/data_inspect.h"
#include "data/prepare.h"

#define SHARD_TOKENS "33554432"

typedef struct data_flags {
    const char *tokenizer, *out, *validation, *threads, *shard_tokens, *as_text, *text_field, *json;
} data_flags;

static data_flags given;
static const tri_flag flags[] = {
    {"--tokenizer", "T",
     "byte, char, or the path of tokenizer.json, of encoder.json (vocab.bpe beside it), or of their folder",
     &given.tokenizer},
    {"--out", "FOLDER", "where the shards and tokenizer.json go; made", &given.out},
    {"--validation", "FRACTION", "the last fraction of the text, for validation (0.1)", &given.validation},
    {"--threads", "N", "threads that tokenize or decode (as many as there are cores)", &given.threads},
    {"--shard-tokens", "N", "tokens in one file at most (" SHARD_TOKENS ")", &given.shard_tokens},
    {"--as-text", NULL, "tokenize files as they are, also where they are JSON or UTF-16", &given.as_text},
    {"--text-field", "F", "field of .jsonl files that holds the text (text)", &given.text_field},
    {"--json", NULL, "one JSON object at the end", &given.json},
};

typedef struct progress_state {
    int64_t began_ns, said_ns;
    bool terminal, said;
} progress_state;

static double seconds_since(int64_t began_ns)
{
    return (double)(tri_now_ns() - began_ns) * 1e-9;
}

/* A line that is written over, on a terminal only. */
static bool show_progress(void *arg, const tri_prepare_counts *counts)
{
    progress_state *state = arg;
    const int64_t now = tri_now_ns();
    if (state->terminal && now - state->said_ns > 200 * TRI_NS_PER_MS) {
        fprintf(stderr, "\r%5.1f %%  %lld tokens  %.1f MB/s ",
                100.0 * (double)counts->nbytes / (double)counts->nbytes_all,
                (long long)(counts->tokens[0] + counts->tokens[1]),
                (double)counts->nbytes * 1e-6 / seconds_since(state->began_ns));
        state->said_ns = now;
        state->said = true;
    }
    return tri_stop_signal() == 0;
}

static tri_status print_json(const tri_prepare_counts *counts, double seconds)
{
    tri_string text = {0};
    tri_json json = tri_json_object(&text);
    tri_json_text(&json, "folder", given.out);
    tri_json_int(&json, "text_bytes", counts->nbytes_all);
    tri_json_int(&json, "vocabulary", counts->vocabulary);
    tri_json_int(&json, "token_bytes", counts->each);
    tri_json_int(&json, "training_tokens", counts->tokens[0]);
    tri_json_int(&json, "training_shards", counts->shards[0]);
    tri_json_int(&json, "validation_tokens", counts->tokens[1]);
    tri_json_int(&json, "validation_shards", counts->shards[1]);
    tri_json_real(&json, "seconds", seconds);
    tri_status status = tri_json_end(&json);
    puts(tri_string_text(&text));
    tri_string_fini(&text);
    return status;
}

static void print_text(const tri_prepare_counts *counts, int files, double seconds)
{
    static const char *const names[] = {"training", "validation"};
    for (int s = 0; s < 2; s++)
        printf("%-11s %lld tokens in %d %s\n", names[s], (long long)counts->tokens[s], counts->shards[s],
               counts->shards[s] == 1 ? "shard" : "shards");
    printf("vocabulary  %lld tokens, %d bytes each\n", (long long)counts->vocabulary, counts->each);
    printf("text        %lld bytes, %.1f MB/s\n", (long long)counts->nbytes_all,
           (double)counts->nbytes_all * 1e-6 / seconds);
    if (!counts->separated && files > 1)
        puts("note: the tokenizer names no end-of-text token: nothing separates the texts");
    printf("written to  %s: trireme train CONFIG.yaml data.path=%s\n", given.out, given.out);
}

static tri_status read_part(const char *text, double *part)
{
    char *end;
    *part = strtod(text, &end);
    if (end == text || *end || !(*part >= 0 && *part <= 0.9))
        return tri_fail(TRI_ECONFIG, "--validation: want a fraction from 0 to 0.9, got '%s'", text);
    return TRI_OK;
}

static tri_status prepare(const char *const *files, int file_count)
{
    int64_t threads = tri_cores_online(), shard_tokens;
    tri_prepare_setup setup = {.files = files,
                               .file_count = file_count,
                               .tokenizer = given.tokenizer,
                               .as_text = given.as_text,
                               .field = given.text_field};
    if (file_count == 0)
        return tri_fail(TRI_ECONFIG, "data prepare: want the text files");
    if (!given.tokenizer || !given.out)
        return tri_fail(TRI_ECONFIG, "data prepare: want %s", !given.tokenizer ? "--tokenizer T" : "--out FOLDER");
    TRI_TRY(read_part(given.validation ? given.validation : "0.1", &setup.validation));
    if (given.threads)
        TRI_TRY(tri_flag_int("--threads", given.threads, 1, 256, &threads));
    TRI_TRY(tri_flag_int("--shard-tokens", given.shard_tokens ? given.shard_tokens : SHARD_TOKENS, 1, 1000000000,
                         &shard_tokens));
    progress_state state = {.began_ns = tri_now_ns(), .terminal = tri_fs_is_terminal(2)};
    setup.folder = given.out;
    setup.threads = (int)threads;
    setup.shard_tokens = shard_tokens;
    setup.progress = show_progress;
    setup.arg = &state;
    tri_prepare_counts counts;
    tri_stop_catch();
    tri_status status = tri_prepare(&setup, &counts);
    if (state.said)
        fputs("\r\033[K", stderr);
    if (status == TRI_ECANCELED)
        return tri_wait_check("the texts were tokenized");
    TRI_TRY(status);
    const double seconds = seconds_since(state.began_ns);
    if (given.json)
        return print_json(&counts, seconds);
    print_text(&counts, setup.file_count, seconds);
    return TRI_OK;
}

static tri_status inspect(const char *const *words, int count)
{
    int64_t threads = tri_cores_online();
    if (given.tokenizer || given.out || given.validation || given.shard_tokens || given.as_text)
        return tri_fail(TRI_ECONFIG, "data inspect takes the flags --threads and --json, and data.key=value");
    if (given.threads)
        TRI_TRY(tri_flag_int("--threads", given.threads, 1, 256, &threads));
    return data_inspect(words, count, (int)threads, given.json != NULL);
}

static tri_status run(int count, char **argv)
{
    const char *const *words = (const char *const *)argv + 1;
    if (count > 0 && strcmp(argv[0], "prepare") == 0)
        return prepare(words, count - 1);
    if (count > 0 && strcmp(argv[0], "inspect") == 0)
        return inspect(words, count - 1);
    return tri_fail(TRI_ECONFIG, "data: want 'prepare' and text files, or 'inspect' and a path, got %s%s%s",
                    count > 0 ? "'" : "nothing", count > 0 ? argv[0] : "", count > 0 ? "'" : "");
}

int cmd_data(int argc, char **argv)
{
    return tri_command_run(tri_command_of(cmd_data), flags, TRI_COUNT_OF(flags), argc, argv, run);
}
