/* SPDX-License-Identifier: Apache-2.0
 *
 * generate.c: `trireme generate`: text from a model, as it comes; or a file of prompts, a JSON object a line.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/runtime.h"
#include "cli/command.h"
#include "cli/generate_batch.h"
#include "generate/request.h"
#include "generate/source.h"

#define MAX_TOKENS 128
#define AT_ONCE    8

typedef struct generate_flags {
    const char *prompt, *prompt_file, *batch, *max_tokens, *temperature, *top_k, *top_p, *repeat, *seed, *stop, *echo,
        *at_once, *context, *slide, *dtype, *device, *threads, *tokenizer, *json;
} generate_flags;

static generate_flags given;
static const tri_flag flags[] = {
    {"--prompt", "TEXT", "what the text begins with (default: the end-of-text token, or a new line)", &given.prompt},
    {"--prompt-file", "FILE", "the same from a file, - is standard input", &given.prompt_file},
    {"--batch", "FILE",
     "a JSON object a line, {\"prompt\": \"...\"}, perhaps with max_tokens, slide, temperature, top_k, top_p, repeat, "
     "seed, "
     "stop; answers are lines in the same order; - is standard input",
     &given.batch},
    {"--max-tokens", "N", "tokens to generate at most (default 128)", &given.max_tokens},
    {"--temperature", "T", "0: greedy; below 1: more conservative; above 1: more random (default 1)",
     &given.temperature},
    {"--top-k", "K", "draw from the K likeliest tokens alone (default 0: from all)", &given.top_k},
    {"--top-p", "P", "draw from the fewest tokens that have probability P together (default 1: from all)",
     &given.top_p},
    {"--repeat", "F", "make tokens that were there less likely, such as 1.1 (default 1: as they are)", &given.repeat},
    {"--seed", "N", "of the draws: the same seed gives the same text (default 1)", &given.seed},
    {"--stop", "TEXT", "end before this text, or this special token such as '<|im_end|>', comes", &given.stop},
    {"--echo", NULL, "print the prompt too", &given.echo},
    {"--at-once", "N", "prompts of a batch that are walked side by side (default 8)", &given.at_once},
    {"--context", "N", "tokens kept of a text at most, less memory (default: all that the model can see)",
     &given.context},
    {"--slide", "N",
     "once the context is full continue with its N newest tokens, computed again (default: the text ends there)",
     &given.slide},
    {"--dtype", "TYPE", "of the weights in memory: f32, or bf16 at half the bytes (default f32)", &given.dtype},
    {"--device", "NAME", "that computes: cpu, cuda or cuda:N, a card (default: the CPU)", &given.device},
    {"--threads", "N", "default: OMP_NUM_THREADS, or the cores of this process", &given.threads},
    {"--tokenizer", "T", "path of tokenizer.json or encoder.json, or byte (default: what is beside the weights)",
     &given.tokenizer},
    {"--json", NULL, "one JSON object at the end instead of text as it comes", &given.json},
};

static tri_status read_real(const char *flag, const char *text, double *out)
{
    char *end;
    if (!text)
        return TRI_OK;
    *out = strtod(text, &end);
    if (end == text || *end)
        return tri_fail(TRI_ECONFIG, "%s: want a number, got '%s'", flag, text);
    return TRI_OK;
}

static tri_status read_int(const char *flag, const char *text, int64_t low, int64_t high, int64_t *out)
{
    return text ? tri_flag_int(flag, text, low, high, out) : TRI_OK;
}

static tri_status read_request(tri_generate_request *request)
{
    int64_t seed = 1;
    *request = (tri_generate_request){
        .max_tokens = MAX_TOKENS, .rule = {.temperature = 1, .top_p = 1, .repeat = 1}, .stop = given.stop};
    TRI_TRY(read_int("--max-tokens", given.max_tokens, 0, 1000000000, &request->max_tokens));
    TRI_TRY(read_int("--slide", given.slide, 1, INT32_MAX, &request->slide));
    TRI_TRY(read_real("--temperature", given.temperature, &request->rule.temperature));
    TRI_TRY(read_int("--top-k", given.top_k, 0, INT32_MAX, &request->rule.top_k));
    TRI_TRY(read_real("--top-p", given.top_p, &request->rule.top_p));
    TRI_TRY(read_real("--repeat", given.repeat, &request->rule.repeat));
    TRI_TRY(read_int("--seed", given.seed, 0, INT64_MAX, &seed));
    request->rule.seed = (uint64_t)seed;
    return tri_generate_request_check(request);
}

static tri_status read_setup(const char *path, tri_source_setup *setup)
{
    int64_t threads = tri_tiles_threads(), at_once = given.batch ? AT_ONCE : 1;
    *setup = (tri_source_setup){.path = path, .tokenizer = given.tokenizer, .dtype = TRI_F32};
    if (given.prompt && given.prompt_file)
        return tri_fail(TRI_ECONFIG, "--prompt and --prompt-file are two beginnings: give one of them");
    if (given.batch && (given.prompt || given.prompt_file || given.echo))
        return tri_fail(TRI_ECONFIG, "--batch brings its prompts along: %s cannot be combined with it",
                        given.echo     ? "--echo"
                        : given.prompt ? "--prompt"
                                       : "--prompt-file");
    if (given.at_once && !given.batch)
        return tri_fail(TRI_ECONFIG, "--at-once is for --batch: one prompt is one sequence");
    if (given.dtype &&
        (!tri_dtype_find(given.dtype, &setup->dtype) || (setup->dtype != TRI_F32 && setup->dtype != TRI_BF16)))
        return tri_fail(TRI_ECONFIG, "--dtype: want f32 or bf16, got '%s'", given.dtype);
    TRI_TRY(read_int("--threads", given.threads, 1, 1024, &threads));
    TRI_TRY(read_int("--at-once", given.at_once, 1, 4096, &at_once));
    TRI_TRY(read_int("--context", given.context, 1, INT32_MAX, &setup->places));
    setup->threads = (int)threads;
    setup->sequences = (int)at_once;
    return TRI_OK;
}

tri_status generate_file_read(const char *path, char **text, size_t *nbytes)
{
    if (strcmp(path, "-") != 0)
        return tri_fs_read(path, 0, text, nbytes);
    tri_string all = {0};
    char piece[4096];
    tri_status status = TRI_OK;
    for (size_t count; status == TRI_OK && (count = fread(piece, 1, sizeof(piece), stdin)) > 0;)
        status = tri_string_append_bytes(&all, piece, count);
    if (status == TRI_OK && ferror(stdin))
        status = tri_fail(TRI_EIO, "standard input: %s", strerror(errno));
    if (status == TRI_OK)
        status = tri_string_append(&all, "");
    *nbytes = all.nbytes;
    *text = status == TRI_OK ? tri_string_detach(&all) : NULL;
    tri_string_fini(&all);
    return status;
}

/* --- one prompt --- */

static tri_status write_text(void *arg, int index, const char *text, size_t nbytes)
{
    (void)arg;
    (void)index;
    if (fwrite(text, 1, nbytes, stdout) != nbytes || fflush(stdout) != 0)
        return tri_fail(TRI_EIO, "standard output cannot be written");
    return TRI_OK;
}

static tri_status print_object(const tri_generate_result *result, double rate)
{
    tri_string text = {0};
    tri_json json = tri_json_object(&text);
    generate_result_print(&json, result);
    tri_json_real(&json, "first_token_s", result->first_s);
    tri_json_real(&json, "tokens_per_s", rate);
    tri_status status = tri_json_end(&json);
    puts(tri_string_text(&text));
    tri_string_fini(&text);
    return status;
}

static tri_status tell_one(const tri_text_model *model, const tri_generate_request *request,
                           const tri_generate_result *result, double seconds)
{
    const double rest = seconds - result->first_s, rate = result->tokens > 1 ? (double)(result->tokens - 1) / rest : 0;
    if (given.json)
        TRI_TRY(print_object(result, rate));
    else if (result->text.nbytes == 0 || result->text.text[result->text.nbytes - 1] != '\n')
        puts("");
    fflush(stdout);
    if (result->end == TRI_GENERATE_END_CONTEXT)
        fprintf(stderr,
                "note: the context of %lld tokens is full: %lld of %lld tokens were generated (--slide continues)\n",
                (long long)model->places, (long long)result->tokens, (long long)request->max_tokens);
    if (result->tokens > 0)
        fprintf(stderr, "%lld tokens after %lld: first token %.3f s, then %.1f tokens/s\n", (long long)result->tokens,
                (long long)result->prompt_tokens, result->first_s, rate);
    return TRI_OK;
}

static tri_status generate_one(const tri_text_model *model, tri_generate_request *request)
{
    char *file = NULL;
    request->prompt = given.prompt ? given.prompt : "";
    request->prompt_nbytes = strlen(request->prompt);
    if (given.prompt_file) {
        TRI_TRY(generate_file_read(given.prompt_file, &file, &request->prompt_nbytes));
        request->prompt = file;
    }
    tri_generate_result result = {0};
    tri_generate_watch watch = {.text = given.json ? NULL : write_text};
    tri_status status = TRI_OK;
    if (given.echo && !given.json)
        status = write_text(NULL, 0, request->prompt, request->prompt_nbytes);
    const int64_t began_ns = tri_now_ns();
    if (status == TRI_OK)
        status = tri_generator_run(model->generator, request, 1, &watch, &result);
    const double seconds = (double)(tri_now_ns() - began_ns) / (double)TRI_NS_PER_S;
    if (status == TRI_OK && result.status != TRI_OK)
        status = tri_fail_copy(result.status, result.error);
    if (status == TRI_OK)
        status = tell_one(model, request, &result, seconds);
    tri_generate_result_fini(&result);
    tri_free(file);
    return status;
}

static tri_status generate(const char *path)
{
    tri_generate_request request;
    tri_source_setup setup;
    tri_text_model model = {0};
    tri_device *device = NULL;
    TRI_TRY(read_request(&request));
    TRI_TRY(read_setup(path, &setup));
    TRI_TRY_IN(tri_device_open(given.device ? given.device : "auto", &device), "--device");
    setup.device = device;
    tri_command_hint_set("'trireme info PATH' tells what a run or checkpoint holds; --tokenizer names one elsewhere");
    tri_status status = tri_text_model_open(&setup, &model);
    if (status == TRI_OK) {
        tri_command_hint_set("");
        status = given.batch ? generate_batch(&model, given.batch, &request) : generate_one(&model, &request);
    }
    tri_text_model_close(&model);
    tri_device_close(device);
    return status;
}

static int print_help(void)
{
    if (!tri_flags_help(tri_command_of(cmd_generate), flags, TRI_COUNT_OF(flags)))
        return 0;
    fputs(
        "\nMODEL is a folder of Hugging Face (config.json, safetensors, tokenizer.json), a run of 'trireme train', or "
        "one of its\ncheckpoints. Examples:\n\n"
        "  trireme generate runs/gpt2-20261121-085500 --prompt 'ROMEO:' --temperature 0.8 --top-k 200\n"
        "  trireme generate gpt2/ --prompt-file - --dtype bf16 --max-tokens 50 <story.txt\n"
        "  trireme generate gpt2/ --batch prompts.jsonl --temperature 0 >answers.jsonl\n",
        stdout);
    return 0;
}

int cmd_generate(int argc, char **argv)
{
    int count;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return print_help();
    tri_status status = tri_flags_parse(tri_command_of(cmd_generate), flags, TRI_COUNT_OF(flags), argc, argv, &count);
    if (status == TRI_OK && count != 1)
        status = tri_fail(TRI_ECONFIG, "generate takes one path, MODEL, got %d (trireme generate --help)", count);
    if (status == TRI_OK)
        status = generate(argv[0]);
    return status == TRI_OK ? 0 : tri_command_fail(status);
}
