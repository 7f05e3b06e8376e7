/* SPDX-License-Identifier: Apache-2.0
 *
 * convert.c: `trireme convert`: a model from Hugging Face's form to ours and back, in another element type, in other
 * files.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/runtime.h"
#include "cli/command.h"
#include "interop/convert.h"

#define PROGRESS_NS (TRI_NS_PER_S / 5)

typedef struct convert_flags {
    const char *to, *dtype, *shard, *json;
} convert_flags;

static convert_flags given;
static const tri_flag flags[] = {
    {"--to", "FORM", "hf or trireme (default: the other one than SRC is)", &given.to},
    {"--dtype", "TYPE", "elements of all tensors: f32, bf16 or f16 (default: each tensor keeps its type)",
     &given.dtype},
    {"--shard-size", "N", "bytes of a file at most, such as 500M or 5G, with an index (default: one file)",
     &given.shard},
    {"--json", NULL, "one JSON object", &given.json},
};

/* A line that rewrites itself, where somebody may be watching. */
static void say_progress(void *arg, uint64_t nbytes, uint64_t all)
{
    int64_t *said_ns = arg, now_ns = tri_now_ns();
    if (now_ns - *said_ns < PROGRESS_NS && nbytes < all)
        return;
    *said_ns = now_ns;
    fprintf(stderr, "\r%3.0f %% of %.1f MB%s", 100 * (double)nbytes / (double)all, (double)all / 1e6,
            nbytes == all ? "\n" : "");
}

/* "500M": k, M, G are powers of 1000, as Hugging Face counts. */
static tri_status read_shard(const char *text, uint64_t *nbytes)
{
    char *end;
    double value = strtod(text, &end);
    double unit = *end == 'k' || *end == 'K' ? 1e3 : *end == 'M' ? 1e6 : *end == 'G' ? 1e9 : 1;
    end += unit > 1;
    if (end == text || (*end != 0 && strcmp(end, "B") != 0) || !(value * unit >= 1) || value * unit > 1e15)
        return tri_fail(TRI_ECONFIG, "--shard-size: want bytes such as 500M or 5G, got '%s'", text);
    *nbytes = (uint64_t)(value * unit);
    return TRI_OK;
}

static tri_status read_flags(tri_tensor_save *save)
{
    if (given.to && strcmp(given.to, "hf") != 0 && strcmp(given.to, "trireme") != 0)
        return tri_fail(TRI_ECONFIG, "--to: want hf or trireme, got '%s'", given.to);
    *save = (tri_tensor_save){.dtype = TRI_DTYPE_COUNT};
    if (given.dtype && (!tri_dtype_find(given.dtype, &save->dtype) ||
                        (save->dtype != TRI_F32 && save->dtype != TRI_BF16 && save->dtype != TRI_F16)))
        return tri_fail(TRI_ECONFIG, "--dtype: want f32, bf16 or f16, got '%s'", given.dtype);
    return given.shard ? read_shard(given.shard, &save->shard_nbytes) : TRI_OK;
}

/* "bf16, f32": the types of the tensors. */
static const char *list_dtypes(const tri_convert_result *result, char text[64])
{
    text[0] = 0;
    for (int dtype = 0; dtype < TRI_DTYPE_COUNT; dtype++)
        if (result->dtype_counts[dtype] > 0)
            snprintf(text + strlen(text), 64 - strlen(text), "%s%s", text[0] ? ", " : "",
                     tri_dtype_name((tri_dtype)dtype));
    return text;
}

static tri_status print_result(const char *folder, const tri_convert_result *result)
{
    tri_string text = {0};
    const char *form = result->to_hf ? "hf" : "trireme";
    char dtypes[64];
    if (!given.json) {
        printf("%s: %d tensors, %s, %.1f MB in %d file%s, form %s\n", folder, result->tensor_count,
               list_dtypes(result, dtypes), (double)result->nbytes / 1e6, result->file_count,
               result->file_count == 1 ? "" : "s", form);
        return TRI_OK;
    }
    tri_json json = tri_json_object(&text);
    tri_json_text(&json, "folder", folder);
    tri_json_text(&json, "form", form);
    tri_json_text(&json, "dtype", list_dtypes(result, dtypes));
    tri_json_int(&json, "tensors", result->tensor_count);
    tri_json_int(&json, "bytes", (int64_t)result->nbytes);
    tri_json_int(&json, "files", result->file_count);
    tri_status status = tri_json_end(&json);
    puts(tri_string_text(&text));
    tri_string_fini(&text);
    return status;
}

static tri_status convert(const char *from, const char *folder)
{
    tri_tensor_save save;
    tri_convert_result result;
    tri_pretrained *source;
    int64_t said_ns = 0;
    TRI_TRY(read_flags(&save));
    if (tri_fs_is_terminal(STDERR_FILENO)) {
        save.progress = say_progress;
        save.progress_arg = &said_ns;
    }
    TRI_TRY(tri_pretrained_open(from, &source));
    tri_status status = tri_model_convert(source, folder, given.to ? given.to : "", save, &result);
    tri_pretrained_close(source);
    if (status == TRI_EFORMAT && given.dtype && strstr(tri_last_error(), "want values that"))
        tri_command_hint_set("without --dtype each tensor keeps its type");
    return status == TRI_OK ? print_result(folder, &result) : status;
}

static tri_status run(int count, char **argv)
{
    if (count != 2)
        return tri_fail(TRI_ECONFIG, "convert takes two paths, SRC and DST, got %d (trireme convert --help)", count);
    return convert(argv[0], argv[1]);
}

int cmd_convert(int argc, char **argv)
{
    return tri_command_run(tri_command_of(cmd_convert), flags, TRI_COUNT_OF(flags), argc, argv, run);
}
