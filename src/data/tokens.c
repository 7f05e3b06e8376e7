/* SPDX-License-Identifier: Apache-2.0
 *
 * tokens.c: samples that are windows of a long row of tokens: data.context of them, and the same shifted by one as
 * targets. Which window a sample is, is a pure function of (seed, epoch, index); the tokens stay in their files.
 */
#include "data/tokens.h"

#include <inttypes.h>
#include <string.h>

#include "base/rng.h"
#include "data/lines/lines.h"
#include "data/shards.h"

typedef struct tokens_dataset {
    tri_dataset base;
    tri_token_files files;
    int64_t *before; /* [files + 1] tokens before each file */
    int64_t first;   /* of the set's tokens among those of the files */
    int64_t count;   /* of the set's tokens */
    int64_t context;
    tri_data_windows kind;
} tokens_dataset;

static bool tokens_can(const tri_data_config *config)
{
    return tri_tokens_can(config->path) || tri_tokens_is_lines(config);
}

static void tokens_close(tri_dataset *dataset)
{
    tokens_dataset *tokens = tri_container_of(dataset, tokens_dataset, base);
    tri_token_files_close(&tokens->files);
    tri_free(tokens->before);
    tri_free(tokens);
}

/* Where window `index` of the epoch begins among the set's tokens. */
static int64_t window_first(const tokens_dataset *tokens, uint64_t seed, int64_t epoch, int64_t index)
{
    const int64_t context = tokens->context, windows = tokens->base.info.count;
    if (tokens->kind == TRI_WINDOWS_RANDOM) {
        tri_rng rng = {seed, tri_rng_stream("data windows", (uint64_t)epoch, 0)};
        return (int64_t)tri_rng_below(rng, (uint64_t)index, (uint64_t)(tokens->count - context));
    }
    const int64_t free = tokens->count - 1 - windows * context; /* tokens that no window needs */
    if (tokens->kind == TRI_WINDOWS_FIXED || free <= 0)
        return index * context;
    tri_rng rng = {seed, tri_rng_stream("data shift", 0, 0)};
    const int64_t shifts = free < context ? free + 1 : context;
    return index * context + (int64_t)tri_rng_below(rng, (uint64_t)epoch, (uint64_t)shifts);
}

/* The file that holds token `at`. */
static int find_file(const tokens_dataset *tokens, int64_t at)
{
    int low = 0, high = tokens->files.count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (tokens->before[middle] <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Tokens at, at + 1, ... of the files; returns the greatest. */
static uint32_t copy_tokens(const tokens_dataset *tokens, int64_t at, int64_t count, int32_t *out)
{
    uint32_t greatest = 0;
    for (int f = find_file(tokens, at); count > 0; f++) {
        const tri_token_file *file = &tokens->files.items[f];
        const int64_t first = at - tokens->before[f], here = file->count - first < count ? file->count - first : count;
        for (int64_t i = 0; i < here; i++) {
            const uint32_t token = tri_token_at(file, first + i);
            greatest = token > greatest ? token : greatest;
            *out++ = (int32_t)token;
        }
        at += here;
        count -= here;
    }
    return greatest;
}

static tri_status fail_token(const tokens_dataset *tokens, int64_t at, int64_t count)
{
    for (; count > 0; at++, count--) {
        const int f = find_file(tokens, at);
        const uint32_t token = tri_token_at(&tokens->files.items[f], at - tokens->before[f]);
        if ((int64_t)token >= tokens->base.info.classes)
            return tri_fail(
                TRI_EFORMAT, "%s: token %" PRId64 " is %u, which is none of the %" PRId64 " of the vocabulary",
                tokens->files.items[f].source.origin, at - tokens->before[f], token, tokens->base.info.classes);
    }
    return TRI_OK;
}

static tri_status tokens_draw(const tri_dataset *dataset, uint64_t seed, int64_t epoch, int64_t index, int32_t *sample,
                              int32_t *target)
{
    const tokens_dataset *tokens = tri_container_of(dataset, tokens_dataset, base);
    const int64_t context = tokens->context, at = tokens->first + window_first(tokens, seed, epoch, index);
    const uint32_t first = copy_tokens(tokens, at, 1, sample), others = copy_tokens(tokens, at + 1, context, target);
    memcpy(sample + 1, target, (size_t)(context - 1) * sizeof(*sample));
    if (first >= dataset->info.classes || others >= dataset->info.classes)
        return fail_token(tokens, at, context + 1);
    return TRI_OK;
}

/* --- opening --- */

static tri_status count_tokens(tokens_dataset *tokens)
{
    tokens->before = tri_alloc_zero((size_t)tokens->files.count + 1, sizeof(*tokens->before));
    if (tokens->before == NULL)
        return TRI_ENOMEM;
    for (int f = 0; f < tokens->files.count; f++)
        if (__builtin_add_overflow(tokens->before[f], tokens->files.items[f].count, &tokens->before[f + 1]))
            return tri_fail(TRI_EFORMAT, "%s: more tokens than 63 bits count", tokens->files.items[f].source.origin);
    tokens->count = tokens->before[tokens->files.count];
    return TRI_OK;
}

static int64_t vocabulary_of(const tri_token_files *files)
{
    int64_t found = 0;
    for (int f = 0; f < files->count; f++) {
        const tri_token_file *file = &files->items[f];
        const int64_t count = file->vocabulary > 0 ? file->vocabulary : tri_token_greatest(file) + 1;
        found = count > found ? count : found;
    }
    return found;
}

/* How many windows there are, and of which kind. */
static tri_status plan_windows(tokens_dataset *tokens, const tri_data_config *config, bool test)
{
    const int64_t context = config->context, count = tokens->count;
    const char *origin = tokens->files.items[0].source.origin;
    tokens->context = context;
    tokens->kind = test ? TRI_WINDOWS_FIXED : config->windows;
    if (count <= context)
        return tri_fail(test ? TRI_ENOTFOUND : TRI_ECONFIG,
                        "%s: %" PRId64 " %s tokens are less than a sample of data.context %" PRId64 " and one more",
                        origin, count, test ? "validation" : "training", context);
    tokens->base.info.count = (count - 1) / context;
    if (tokens->kind == TRI_WINDOWS_SHIFTED && count >= 2 * context) /* room to shift by up to a window */
        tokens->base.info.count = count / context - 1;
    tokens->base.info.sample = tokens->base.info.target = tri_shape_make(1, &context);
    return TRI_OK;
}

/* `found`: size of the vocabulary, 0: to be found in the files. */
static tri_status plan(tokens_dataset *tokens, const tri_data_config *config, bool test, bool split, int64_t found)
{
    tri_dataset_info *info = &tokens->base.info;
    TRI_TRY(count_tokens(tokens));
    if (found == 0)
        found = vocabulary_of(&tokens->files);
    if (config->classes > 0 && config->classes < found)
        return tri_fail(TRI_ECONFIG, "data.classes is %" PRId64 ", but the vocabulary has %" PRId64 " tokens",
                        config->classes, found);
    info->dtype = info->target_dtype = TRI_I32;
    info->classes = config->classes > 0 ? config->classes : found;
    if (split) {
        const int64_t training = (int64_t)((double)tokens->count * (1 - tri_tokens_test_fraction(config)));
        tokens->first = test ? training : 0;
        tokens->count = test ? tokens->count - training : training;
    }
    return plan_windows(tokens, config, test);
}

/* Takes over files and tokenizer (also on failure). */
static tri_status build(const tri_data_config *config, bool test, bool split, int64_t found, tri_token_files *files,
                        tri_tokenizer *tokenizer, tri_dataset **out)
{
    tokens_dataset *tokens = tri_alloc_zero(1, sizeof(*tokens));
    if (tokens == NULL) {
        tri_token_files_close(files);
        tri_tokenizer_close(tokenizer);
        return TRI_ENOMEM;
    }
    tokens->base.ops = &tri_dataset_tokens;
    tokens->base.tokenizer = tokenizer;
    tokens->files = *files;
    tri_status status = plan(tokens, config, test, split, found);
    if (status != TRI_OK) {
        tri_dataset_close(&tokens->base);
        return status;
    }
    *out = &tokens->base;
    return TRI_OK;
}

tri_status tri_tokens_parse(const tri_data_config *config, bool test, bool split, tri_token_files *files,
                            tri_dataset **out)
{
    return build(config, test, split, 0, files, NULL, out);
}

/* tokenizer.json in a folder of shards, or what data.tokenizer says of a .bin; NULL: unknown. */
static tri_status open_tokenizer(const tri_data_config *config, tri_tokenizer **out)
{
    *out = NULL;
    if (strcmp(config->tokenizer, "char") != 0 && strcmp(config->tokenizer, "auto") != 0)
        return tri_tokenizer_open(config->tokenizer, out);
    const char *slash = strrchr(config->path, '/');
    const bool folder = tri_fs_is_folder(config->path);
    const int length = folder ? (int)strlen(config->path) : slash != NULL ? (int)(slash - config->path) : 0;
    char *path = tri_format("%.*s%s%s", length, config->path, length > 0 ? "/" : "", TRI_TOKENS_TOKENIZER);
    if (path == NULL)
        return TRI_ENOMEM;
    tri_status status = tri_fs_exists(path) ? tri_tokenizer_open(path, out) : TRI_OK;
    tri_free(path);
    return status;
}

/* The other set of the same data may have greater tokens: 0 where the files' heads say how many there are. */
static tri_status find_vocabulary(char *const *other, size_t count, const tri_token_files *files, int64_t *found)
{
    tri_token_files others;
    *found = vocabulary_of(files);
    if (count == 0 || files->items[0].vocabulary > 0)
        return TRI_OK;
    TRI_TRY(tri_tokens_open_files(other, count, &others));
    const int64_t greater = vocabulary_of(&others);
    tri_token_files_close(&others);
    *found = greater > *found ? greater : *found;
    return TRI_OK;
}

/* One set in files of its own, or the last part of the training files. */
static tri_status open_set(const tri_data_config *config, bool test, char *const *training, size_t training_count,
                           char *const *validation, size_t validation_count, tri_dataset **out)
{
    const bool split = validation_count == 0, own = test && !split;
    tri_token_files files;
    tri_tokenizer *tokenizer = NULL;
    int64_t found = 0;
    TRI_TRY(tri_tokens_open_files(own ? validation : training, own ? validation_count : training_count, &files));
    tri_status status = open_tokenizer(config, &tokenizer);
    if (status == TRI_OK && tokenizer != NULL)
        found = tri_tokenizer_count(tokenizer);
    else if (status == TRI_OK)
        status = find_vocabulary(own ? training : validation, own ? training_count : validation_count, &files, &found);
    if (status == TRI_OK)
        return build(config, test, split, found, &files, tokenizer, out);
    tri_token_files_close(&files);
    tri_tokenizer_close(tokenizer);
    return status;
}

/* Texts and files of tokens are cut at one place: neighbouring windows would tell the test. */
static tri_status parts_check(const tri_data_config *config, tri_data_part part)
{
    double test, validation;
    if (!tri_part_fraction(config->test, &test) || !tri_part_fraction(config->validation, &validation) ||
        validation > 0)
        return tri_fail(TRI_ECONFIG,
                        "data.test, data.validation: tokens have one part besides training, shards of their own or the "
                        "end of the text: want data.validation=0 and a fraction in data.test");
    return part != TRI_PART_VALIDATION ? TRI_OK : tri_fail(TRI_ENOTFOUND, "tokens have no validation part");
}

double tri_tokens_test_fraction(const tri_data_config *config)
{
    double fraction;
    return tri_part_fraction(config->test, &fraction) ? fraction : 0;
}

static bool tokens_has(const tri_data_config *config, tri_data_part part)
{
    (void)config;
    return part != TRI_PART_VALIDATION;
}

/* Token files at config->path. */
static tri_status open_path(const tri_data_config *config, bool test, tri_dataset **out)
{
    char **training, **validation;
    size_t training_count, validation_count;
    if (tri_tokens_is_text(config->path)) {
        tri_token_files files;
        tri_tokenizer *tokenizer;
        TRI_TRY(tri_tokens_open_text(config, test, &tokenizer, &files));
        return build(config, test, false, 0, &files, tokenizer, out);
    }
    TRI_TRY(tri_tokens_find(config->path, false, &training, &training_count));
    tri_status status = tri_tokens_find(config->path, true, &validation, &validation_count);
    if (status == TRI_OK && training_count == 0)
        status =
            tri_fail(TRI_ENOTFOUND, "%s: no token files: looked for train-00000.tokens, *train*.bin", config->path);
    if (status == TRI_OK)
        status = open_set(config, test, training, training_count, validation, validation_count, out);
    tri_fs_list_free(training, training_count);
    tri_fs_list_free(validation, validation_count);
    return status;
}

static tri_status open_lines(const tri_data_config *config, bool test, tri_dataset **out)
{
    char *folder = NULL;
    bool whole = false;
    tri_data_config tokens = *config;
    tri_status status = tri_tokens_open_lines(config, test, &folder, &whole);
    if (status == TRI_OK && strlen(folder) >= sizeof(tokens.path))
        status = tri_fail(TRI_ECONFIG, "data.path: the path %s is too long", folder);
    if (status == TRI_OK) {
        strcpy(tokens.path, folder);
        strcpy(tokens.tokenizer, "auto");
        if (test && whole)
            tokens.windows = TRI_WINDOWS_FIXED;
        status = open_path(&tokens, test && !whole, out);
    }
    tri_free(folder);
    return status;
}

static tri_status tokens_open(const tri_data_config *config, tri_data_part part, tri_dataset **out)
{
    const bool test = part == TRI_PART_TEST;
    TRI_TRY(parts_check(config, part));
    return tri_tokens_is_text(config->path) && tri_shards_can(config->path, TRI_LINES_ENDING) && !config->as_text
               ? open_lines(config, test, out)
           : tri_fs_is_folder(config->path) && tri_tokens_is_lines(config) ? open_lines(config, test, out)
                                                                           : open_path(config, test, out);
}

const tri_dataset_ops tri_dataset_tokens = {
    .name = "tokens",
    .does = "windows of a text's tokens: shards of `trireme data prepare`, .bin of llm.c or nanoGPT, .txt, or .jsonl",
    .can = tokens_can,
    .has = tokens_has,
    .splits = true,
    .open = tokens_open,
    .draw = tokens_draw,
    .close = tokens_close,
};
