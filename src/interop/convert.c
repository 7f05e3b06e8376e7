/* SPDX-License-Identifier: Apache-2.0
 *
 * convert.c: views of one form written under the names of the other, with config.json, into a hidden folder that then
 * takes its name.
 */
#include "interop/convert.h"

#include <string.h>

#include "base/fs.h"
#include "checkpoint/file_writer.h"
#include "checkpoint/manifest.h"

static tri_status check_folder(const char *folder)
{
    char **names = NULL;
    size_t count = 0;
    if (!tri_fs_exists(folder))
        return TRI_OK;
    if (!tri_fs_is_folder(folder))
        return tri_fail(TRI_ECONFIG, "%s: want a folder that is not there yet, got a file", folder);
    TRI_TRY(tri_fs_list(folder, &names, &count));
    tri_fs_list_free(names, count);
    if (count > 0)
        return tri_fail(TRI_ECONFIG, "%s: want a folder that is not there yet or is empty, got %zu files in it", folder,
                        count);
    return TRI_OK;
}

/* The type that most elements have, for `torch_dtype`: what config.json says stays where some tensor has it. */
static tri_dtype dtype_of_config(const tri_pretrained *source, const tri_tensor_view *views, int count,
                                 const tri_tensor_save *save)
{
    uint64_t elements[TRI_DTYPE_COUNT] = {0};
    tri_dtype said, most = TRI_F32;
    for (int i = 0; i < count; i++)
        elements[tri_tensor_save_dtype(save, &views[i])] += (uint64_t)tri_shape_count(views[i].shape);
    if (tri_hf_config_dtype(tri_pretrained_config(source), &said) && elements[said] > 0)
        return said;
    for (int dtype = 0; dtype < TRI_DTYPE_COUNT; dtype++)
        if (elements[dtype] > elements[most])
            most = (tri_dtype)dtype;
    return most;
}

static tri_status write_config(const tri_pretrained *source, const char *folder, tri_dtype dtype)
{
    tri_string text = {0};
    char *path = tri_format("%s/%s", folder, TRI_HF_CONFIG_FILE);
    tri_status status = path == NULL ? TRI_ENOMEM : tri_hf_config_print(tri_pretrained_config(source), dtype, &text);
    if (status == TRI_OK)
        status = tri_fs_write_atomic(path, text.text, text.nbytes);
    tri_string_fini(&text);
    tri_free(path);
    return status;
}

/* What else makes a folder a model for others: words, how to generate. Copied as it is. */
static const char *const companions[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "encoder.json",
    "vocab.bpe",
    "chat_template.jinja",
    "generation_config.json",
};
#define COMPANION_LIMIT_NBYTES ((uint64_t)256 << 20)

tri_status tri_companions_copy(const tri_pretrained *source, const char *folder)
{
    char *manifest = tri_format("%s/%s", tri_pretrained_folder(source), TRI_MANIFEST_FILE);
    char *run = tri_format("%s/../..", tri_pretrained_folder(source));
    tri_status status = manifest != NULL && run != NULL ? TRI_OK : TRI_ENOMEM;
    const char *from = status == TRI_OK && tri_fs_exists(manifest) ? run : tri_pretrained_folder(source);
    for (size_t i = 0; i < TRI_COUNT_OF(companions) && status == TRI_OK; i++)
        status = tri_fs_copy_beside(from, folder, companions[i], COMPANION_LIMIT_NBYTES);
    tri_free(manifest);
    tri_free(run);
    return status;
}

static tri_status write_all(const tri_pretrained *source, const char *folder, const tri_tensor_view *views, int count,
                            const tri_tensor_save *save, tri_convert_result *result)
{
    static const char *const plain[] = {"format", "pt", NULL}, *const marked[] = {"format", "pt", "layout",
                                                                                  TRI_LAYOUT_NAME, NULL};
    tri_tensor_save options = *save;
    options.metadata = result->to_hf ? plain : marked;
    TRI_TRY(tri_fs_remove(folder));
    TRI_TRY(tri_fs_make_folder(folder));
    TRI_TRY(tri_tensor_save_all(folder, views, count, &options, &result->file_count));
    if (tri_pretrained_config(source) != NULL)
        TRI_TRY(write_config(source, folder, dtype_of_config(source, views, count, save)));
    TRI_TRY(tri_companions_copy(source, folder));
    return tri_fs_sync(folder);
}

static tri_status write_aside(const tri_pretrained *source, const char *folder, const tri_tensor_view *views, int count,
                              const tri_tensor_save *save, tri_convert_result *result)
{
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    char *target = tri_strndup(folder, length), *aside = tri_format("%.*s.tmp", (int)length, folder);
    tri_status status = TRI_ENOMEM;
    if (target != NULL && aside != NULL) {
        status = write_all(source, aside, views, count, save, result);
        if (status == TRI_OK)
            status = tri_fs_remove(target); /* empty */
        if (status == TRI_OK)
            status = tri_file_rename(aside, target);
        if (status != TRI_OK)
            tri_file_discard(aside, status);
    }
    tri_free(target);
    tri_free(aside);
    return status;
}

static tri_status find_target(const tri_pretrained *source, const char *to, bool *to_hf)
{
    *to_hf = to[0] != 0 ? strcmp(to, "hf") == 0 : !tri_pretrained_is_hf(source);
    if (*to_hf && tri_pretrained_config(source) == NULL)
        return tri_fail(
            TRI_ENOTFOUND,
            "%s: no config.json beside it or in its run folder says which model this is: only gpt2 and llama "
            "have a form of Hugging Face",
            tri_pretrained_origin(source));
    return TRI_OK;
}

/* From Hugging Face's form to itself: the tensors that are weights, under their names. */
static tri_status views_as_stored(const tri_pretrained *source, tri_arena *arena, tri_tensor_view **views, int *count)
{
    const tri_tensor_set *set = tri_pretrained_tensors(source);
    *count = 0;
    *views = tri_arena_alloc(arena, (size_t)tri_tensor_set_count(set) + 1, sizeof(**views));
    if (*views == NULL)
        return TRI_ENOMEM;
    for (int i = 0; i < tri_tensor_set_count(set); i++) {
        const tri_stored_tensor *tensor = tri_tensor_set_at(set, i);
        if (tri_tensor_view_reads(tensor->dtype))
            TRI_TRY(tri_tensor_view_whole(tensor, tensor->name, &(*views)[(*count)++]));
    }
    return TRI_OK;
}

tri_status tri_model_convert(const tri_pretrained *source, const char *folder, const char *to, tri_tensor_save save,
                             tri_convert_result *result)
{
    tri_arena arena = {0};
    int count;
    const tri_tensor_view *views = tri_pretrained_views(source, &count);
    *result = (tri_convert_result){0};
    TRI_TRY(check_folder(folder));
    TRI_TRY(find_target(source, to, &result->to_hf));
    tri_tensor_view *renamed = NULL;
    tri_status status = TRI_OK;
    if (result->to_hf && tri_pretrained_is_hf(source))
        status = views_as_stored(source, &arena, &renamed, &count);
    else if (result->to_hf)
        status = tri_hf_names_theirs(tri_pretrained_config(source), tri_pretrained_tensors(source), &arena, &renamed,
                                     &count);
    if (renamed != NULL)
        views = renamed;
    if (status == TRI_OK)
        status = write_aside(source, folder, views, count, &save, result);
    for (int i = 0; i < count && status == TRI_OK; i++) {
        tri_dtype dtype = tri_tensor_save_dtype(&save, &views[i]);
        result->dtype_counts[dtype]++;
        result->nbytes += (uint64_t)tri_shape_count(views[i].shape) * tri_dtype_nbytes(dtype);
    }
    result->tensor_count = count;
    tri_arena_fini(&arena);
    return status;
}
