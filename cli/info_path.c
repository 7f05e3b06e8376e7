/* SPDX-License-Identifier: Apache-2.0
 *
 * info_path.c: `trireme info PATH`: a checkpoint or a run folder, checked and described.
 *
 * The verdict is the one that --resume goes by (tri_checkpoint_verify); nothing is printed of files that failed it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "checkpoint/manifest.h"
#include "cli/info.h"
#include "interop/pretrained.h"

/* A checkpoint that was found whole, with its files open. */
typedef struct whole_checkpoint {
    tri_manifest manifest;
    tri_safetensors *files[TRI_MANIFEST_MAX_FILES];
} whole_checkpoint;

static void checkpoint_close(whole_checkpoint *checkpoint)
{
    for (int i = 0; i < TRI_MANIFEST_MAX_FILES; i++)
        tri_safetensors_close(checkpoint->files[i]);
    tri_manifest_fini(&checkpoint->manifest);
}

static tri_status checkpoint_open(const char *path, whole_checkpoint *out)
{
    *out = (whole_checkpoint){0};
    TRI_TRY(tri_checkpoint_verify(path));
    tri_status status = tri_manifest_load(path, &out->manifest);
    for (int i = 0; i < out->manifest.file_count && status == TRI_OK; i++) {
        char *file = tri_format("%s/%s", path, out->manifest.files[i].name);
        status = file ? tri_safetensors_open(file, &out->files[i]) : TRI_ENOMEM;
        tri_free(file);
    }
    if (status != TRI_OK)
        checkpoint_close(out);
    return status;
}

/* --- for people --- */

/* A file may hold any name. */
static void print_name(const char *name, int width)
{
    int printed = 0;
    for (; *name; name++, printed++)
        putchar((unsigned char)*name < 32 || *name == 127 ? '?' : *name);
    printf("%*s", printed < width ? width - printed : 0, "");
}

static void print_tensors(const tri_safetensors *file)
{
    int width = 0;
    for (int i = 0; i < tri_safetensors_count(file); i++) {
        int length = (int)strlen(tri_safetensors_at(file, i)->name);
        width = length > width && length <= 48 ? length : width;
    }
    for (int i = 0; i < tri_safetensors_count(file); i++) {
        const tri_stored_tensor *tensor = tri_safetensors_at(file, i);
        char shape[96];
        printf("    ");
        print_name(tensor->name, width);
        printf("  %s %s  %zu bytes\n", tri_dtype_name(tensor->dtype), tri_shape_print(tensor->shape, shape),
               tensor->nbytes);
    }
}

static void print_checkpoint(const char *path, const whole_checkpoint *checkpoint)
{
    const tri_manifest *manifest = &checkpoint->manifest;
    printf("checkpoint %s: whole\n", path);
    printf("  step     %" PRId64 "\n", manifest->run.step);
    printf("  weights  xxh3 %016" PRIx64 "\n", manifest->run.weights_hash);
    printf("  config   xxh3 %016" PRIx64 "\n", manifest->run.config_hash);
    printf("  bits     %s\n", manifest->run.bits);
    for (int i = 0; i < manifest->file_count; i++) {
        const tri_manifest_file *file = &manifest->files[i];
        printf("  %s: %" PRIu64 " bytes, %d tensors, %" PRId64 " checksums\n", file->name, file->nbytes,
               tri_safetensors_count(checkpoint->files[i]), file->check_count + 1);
        print_tensors(checkpoint->files[i]);
    }
}

/* --- for machines --- */

static void json_hash(tri_json *json, const char *key, uint64_t hash)
{
    char text[32];
    snprintf(text, sizeof(text), "xxh3 %016" PRIx64, hash);
    tri_json_text(json, key, text);
}

static void json_tensor(tri_json *list, const tri_stored_tensor *tensor)
{
    tri_json one = tri_json_object_in(list, NULL);
    tri_json_text(&one, "name", tensor->name);
    tri_json_text(&one, "dtype", tri_dtype_name(tensor->dtype));
    tri_json shape = tri_json_array_in(&one, "shape");
    for (int d = 0; d < tensor->shape.ndim; d++)
        tri_json_int(&shape, NULL, tensor->shape.dim[d]);
    tri_json_end(&shape); /* a failure stays in the outer ones, here and below */
    tri_json_int(&one, "nbytes", (int64_t)tensor->nbytes);
    tri_json_end(&one);
}

static void json_tensors(tri_json *json, const tri_safetensors *file)
{
    tri_json list = tri_json_array_in(json, "tensors");
    for (int i = 0; i < tri_safetensors_count(file); i++)
        json_tensor(&list, tri_safetensors_at(file, i));
    tri_json_end(&list);
}

/* checkpoint NULL: it is not whole, and tri_last_error() says why. */
static void json_checkpoint(tri_json *json, const char *path, const whole_checkpoint *checkpoint)
{
    tri_json_text(json, "path", path);
    tri_json_bool(json, "whole", checkpoint != NULL);
    if (!checkpoint) {
        tri_json_text(json, "error", tri_last_error());
        return;
    }
    const tri_manifest *manifest = &checkpoint->manifest;
    tri_json_int(json, "step", manifest->run.step);
    json_hash(json, "weights", manifest->run.weights_hash);
    json_hash(json, "config", manifest->run.config_hash);
    tri_json_text(json, "bits", manifest->run.bits);
    tri_json files = tri_json_array_in(json, "files");
    for (int i = 0; i < manifest->file_count; i++) {
        tri_json file = tri_json_object_in(&files, NULL);
        tri_json_text(&file, "name", manifest->files[i].name);
        tri_json_int(&file, "nbytes", (int64_t)manifest->files[i].nbytes);
        tri_json_int(&file, "checksums", manifest->files[i].check_count + 1);
        json_tensors(&file, checkpoint->files[i]);
        tri_json_end(&file);
    }
    tri_json_end(&files);
}

/* --- one checkpoint, or all of a run --- */

static tri_status tell_checkpoint(const char *path, tri_json *json)
{
    whole_checkpoint checkpoint;
    tri_status status = checkpoint_open(path, &checkpoint);
    if (json)
        json_checkpoint(json, path, status == TRI_OK ? &checkpoint : NULL);
    else if (status == TRI_OK)
        print_checkpoint(path, &checkpoint);
    if (status == TRI_OK)
        checkpoint_close(&checkpoint);
    return status;
}

typedef struct run_verdict {
    size_t count, damaged;
    char first[TRI_ERROR_NBYTES]; /* what is wrong with the newest one that is damaged */
    char *newest;                 /* path of the newest whole one, or NULL */
} run_verdict;

/* One line, or one object of the list. */
static tri_status tell_entry(const char *folder, const tri_checkpoint_entry *entry, tri_json *list,
                             run_verdict *verdict)
{
    char *path = tri_format("%s/%s", folder, entry->name);
    if (!path)
        return TRI_ENOMEM;
    tri_json object = list ? tri_json_object_in(list, NULL) : (tri_json){0};
    tri_status status = list ? tell_checkpoint(path, &object) : tri_checkpoint_verify(path);
    if (status != TRI_OK && verdict->damaged++ == 0)
        snprintf(verdict->first, sizeof(verdict->first), "%s", tri_last_error());
    if (list)
        tri_json_end(&object);
    else if (status == TRI_OK)
        printf("  %s  whole\n", entry->name);
    else
        printf("  %s  not whole: %s\n", entry->name, tri_last_error());
    if (status == TRI_OK && !verdict->newest)
        verdict->newest = path;
    else
        tri_free(path);
    return status == TRI_ENOMEM ? status : TRI_OK;
}

static tri_status tell_run(const char *path, const char *folder, tri_json *json)
{
    tri_vector entries = {0};
    run_verdict verdict = {0};
    if (tri_fs_is_folder(folder)) /* before its first checkpoint a run has none */
        TRI_TRY(tri_checkpoint_list(folder, &entries));
    verdict.count = entries.count;
    tri_json list = {0};
    if (json) {
        tri_json_text(json, "run", path);
        list = tri_json_array_in(json, "checkpoints");
    } else
        printf("run %s: %zu checkpoint%s\n", path, entries.count, entries.count == 1 ? "" : "s");
    tri_status status = TRI_OK;
    for (size_t i = 0; i < entries.count && status == TRI_OK; i++)
        status = tell_entry(folder, tri_vector_at(&entries, i), json ? &list : NULL, &verdict);
    if (json)
        tri_json_end(&list);
    else if (status == TRI_OK && verdict.newest) {
        putchar('\n');
        status = tell_checkpoint(verdict.newest, NULL);
    }
    if (status == TRI_OK && verdict.damaged > 0)
        status = tri_fail(TRI_EFORMAT, "%s: %zu of %zu checkpoints not whole: %s", path, verdict.damaged, verdict.count,
                          verdict.first);
    tri_free(verdict.newest);
    tri_checkpoint_list_free(&entries);
    return status;
}

static bool is_there(const char *path, const char *name)
{
    char *file = tri_format("%s/%s", path, name);
    bool found = file && tri_fs_exists(file);
    tri_free(file);
    return found;
}

/* --- a model, as convert writes it or others have it --- */

static void print_model(const char *path, const tri_pretrained *model, const char *family, int64_t elements)
{
    const tri_tensor_set *set = tri_pretrained_tensors(model);
    const int files = tri_tensor_set_file_count(set);
    printf("model %s: %s, form %s, %d tensors in %d file%s, %" PRId64 " elements\n", path, family,
           tri_pretrained_is_hf(model) ? "hf" : "trireme", tri_tensor_set_count(set), files, files == 1 ? "" : "s",
           elements);
    for (int i = 0; i < tri_tensor_set_count(set); i++) {
        const tri_stored_tensor *tensor = tri_tensor_set_at(set, i);
        char shape[96];
        printf("    ");
        print_name(tensor->name, 0);
        printf("  %s %s  %zu bytes\n", tri_dtype_name(tensor->dtype), tri_shape_print(tensor->shape, shape),
               tensor->nbytes);
    }
}

static void json_model(const char *path, const tri_pretrained *model, const char *family, int64_t elements,
                       tri_json *json)
{
    const tri_tensor_set *set = tri_pretrained_tensors(model);
    tri_json_text(json, "path", path);
    tri_json_text(json, "model", family);
    tri_json_text(json, "form", tri_pretrained_is_hf(model) ? "hf" : "trireme");
    tri_json_int(json, "elements", elements);
    tri_json list = tri_json_array_in(json, "tensors");
    for (int i = 0; i < tri_tensor_set_count(set); i++)
        json_tensor(&list, tri_tensor_set_at(set, i));
    tri_json_end(&list);
}

static tri_status tell_model(const char *path, tri_json *json)
{
    tri_pretrained *model;
    TRI_TRY(tri_pretrained_open(path, &model));
    const tri_hf_config *config = tri_pretrained_config(model);
    const char *family = config ? tri_hf_config_family(config)->name : "no config.json";
    int64_t elements = 0;
    for (int i = 0; i < tri_tensor_set_count(tri_pretrained_tensors(model)); i++)
        elements += tri_shape_count(tri_tensor_set_at(tri_pretrained_tensors(model), i)->shape);
    if (json)
        json_model(path, model, family, elements, json);
    else
        print_model(path, model, family, elements);
    tri_pretrained_close(model);
    return TRI_OK;
}

typedef enum path_kind { PATH_CHECKPOINT, PATH_RUN, PATH_MODEL } path_kind;

/* Whether it is the folder of a checkpoint, of a run, or of a model; or a file of weights. */
static tri_status kind_of(const char *path, path_kind *kind)
{
    const char *slash = strrchr(path, '/');
    int64_t step;
    if (!tri_fs_exists(path))
        return tri_fail(TRI_ENOTFOUND, "%s: want the folder of a run, of a checkpoint or of a model, got nothing",
                        path);
    if (tri_checkpoint_name_step(slash ? slash + 1 : path, &step) || is_there(path, TRI_MANIFEST_FILE))
        *kind = PATH_CHECKPOINT;
    else if (is_there(path, "checkpoints") || is_there(path, "config.yaml"))
        *kind = PATH_RUN;
    else if (!tri_fs_is_folder(path) || is_there(path, TRI_MODEL_FILE) || is_there(path, TRI_INDEX_FILE))
        *kind = PATH_MODEL;
    else
        return tri_fail(TRI_ENOTFOUND,
                        "%s: want the folder of a run (config.yaml, checkpoints), of a checkpoint (manifest.json) or "
                        "of a model (model.safetensors)",
                        path);
    return TRI_OK;
}

/* path without a slash at its end. */
static tri_status tell(const char *path, bool as_json)
{
    path_kind kind;
    TRI_TRY(kind_of(path, &kind));
    char *folder = tri_format("%s/checkpoints", path);
    if (!folder)
        return TRI_ENOMEM;
    tri_string text = {0};
    tri_json object = as_json ? tri_json_object(&text) : (tri_json){0}, *json = as_json ? &object : NULL;
    tri_status status = kind == PATH_CHECKPOINT ? tell_checkpoint(path, json)
                        : kind == PATH_RUN      ? tell_run(path, folder, json)
                                                : tell_model(path, json);
    if (json) {
        tri_status written = tri_json_end(json);
        if (written == TRI_OK)
            puts(tri_string_text(&text));
        status = status == TRI_OK ? written : status;
    }
    tri_string_fini(&text);
    tri_free(folder);
    return status;
}

tri_status tri_info_path(const char *path, bool json)
{
    size_t nbytes = strlen(path);
    while (nbytes > 1 && path[nbytes - 1] == '/')
        nbytes--;
    char *name = tri_strndup(path, nbytes);
    if (!name)
        return TRI_ENOMEM;
    tri_status status = tell(name, json);
    tri_free(name);
    return status;
}
