/* SPDX-License-Identifier: Apache-2.0
 *
 * pretrained.c: finds out what a path is, and reads weights from it.
 *
 * Our layout is known by its mark in the file ("layout": "trireme") or by the manifest beside it; with a config.json of
 * a family that we know, and without the mark, names are Hugging Face's. Without a config.json names are taken as they
 * are.
 */
#include "interop/pretrained.h"

#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "checkpoint/manifest.h"

#define PIECE_COUNT (INT64_C(1) << 20) /* elements read between two words about progress */

struct tri_pretrained {
    tri_arena arena;
    const char *folder;
    tri_tensor_set *set;
    tri_hf_config *config;
    bool is_foreign, is_hf;
    tri_tensor_view *views;
    int count;
    tri_map names; /* -> index in views */
};

void tri_pretrained_close(tri_pretrained *source)
{
    if (source == NULL)
        return;
    tri_hf_config_close(source->config);
    tri_tensor_set_close(source->set);
    tri_map_fini(&source->names);
    tri_arena_fini(&source->arena);
    tri_free(source);
}

/* The folder of a path that holds the weights: of a run, its newest checkpoint. */
static tri_status find_weights(tri_pretrained *source, const char *path, const char **out)
{
    char *folder = tri_arena_format(&source->arena, "%s/checkpoints", path), *newest = NULL;
    *out = path;
    if (folder == NULL)
        return TRI_ENOMEM;
    if (!tri_fs_is_folder(folder))
        return TRI_OK;
    TRI_TRY(tri_checkpoint_newest(folder, &newest, NULL));
    *out = tri_arena_strdup(&source->arena, newest);
    tri_free(newest);
    return *out != NULL ? TRI_OK : TRI_ENOMEM;
}

/* config.json beside the weights, or in the run folder above a checkpoint. */
static tri_status open_config(tri_pretrained *source, const char *path, const char *weights)
{
    const char *last = strrchr(weights, '/');
    int folder = last != NULL ? (int)(last - weights) : 0;
    bool is_folder = tri_fs_is_folder(weights);
    const char *places[] = {
        tri_arena_format(&source->arena, "%s/" TRI_HF_CONFIG_FILE, path),
        is_folder    ? tri_arena_format(&source->arena, "%s/" TRI_HF_CONFIG_FILE, weights)
        : folder > 0 ? tri_arena_format(&source->arena, "%.*s/" TRI_HF_CONFIG_FILE, folder, weights)
                     : tri_arena_strdup(&source->arena, TRI_HF_CONFIG_FILE),
        is_folder ? tri_arena_format(&source->arena, "%s/../../" TRI_HF_CONFIG_FILE, weights) : NULL,
    };
    bool ours = !source->is_hf; /* only a checkpoint of ours has a run above it */
    for (size_t i = 0; i < TRI_COUNT_OF(places); i++) {
        if (places[i] == NULL || (i == 2 && !ours) || !tri_fs_exists(places[i]))
            continue;
        return tri_hf_config_open(places[i], &source->config);
    }
    return TRI_OK;
}

/* Names as they are. Counters of batches and the like are no weights. */
static tri_status views_as_stored(tri_pretrained *source)
{
    int count = tri_tensor_set_count(source->set);
    source->views = tri_arena_alloc(&source->arena, (size_t)count + 1, sizeof(*source->views));
    if (source->views == NULL)
        return TRI_ENOMEM;
    for (int i = 0; i < count; i++) {
        const tri_stored_tensor *tensor = tri_tensor_set_at(source->set, i);
        if (tri_tensor_view_reads(tensor->dtype))
            TRI_TRY(tri_tensor_view_whole(tensor, tensor->name, &source->views[source->count++]));
    }
    return TRI_OK;
}

/* A head that differs is kept: with tied embeddings it would be passed over. */
static tri_status untie_head(tri_pretrained *source)
{
    const tri_stored_tensor *head, *embedding;
    bool differs;
    TRI_TRY(tri_hf_names_head_differs(source->config, source->set, &differs, &head, &embedding));
    if (!differs)
        return TRI_OK;
    tri_log(TRI_LOG_WARN,
            "%s: '%s' differs from '%s' although tie_word_embeddings is true: both are used, as with "
            "tie_word_embeddings: false",
            tri_tensor_set_origin(source->set), head->name, embedding->name);
    return tri_hf_config_untie(source->config);
}

static tri_status open_path(tri_pretrained *source, const char *path)
{
    const char *weights;
    if (!tri_fs_exists(path))
        return tri_fail(TRI_ENOTFOUND, "%s: there is no such file or folder", path);
    const char *slash = strrchr(path, '/');
    source->folder = tri_fs_is_folder(path) ? tri_arena_strdup(&source->arena, path)
                     : slash != NULL        ? tri_arena_format(&source->arena, "%.*s", (int)(slash - path + 1), path)
                                            : tri_arena_strdup(&source->arena, ".");
    if (source->folder == NULL)
        return TRI_ENOMEM;
    TRI_TRY(find_weights(source, path, &weights));
    TRI_TRY(tri_tensor_set_open(weights, &source->set));
    /* The manifest of a checkpoint is checked with its files: damage is found before a weight is believed. */
    const char *layout = tri_tensor_set_metadata(source->set, "layout");
    char *manifest = tri_arena_format(&source->arena, "%s/%s", weights, TRI_MANIFEST_FILE);
    char *beside = tri_arena_format(&source->arena, "%s/%s", source->folder, TRI_MANIFEST_FILE);
    if (manifest == NULL || beside == NULL)
        return TRI_ENOMEM;
    bool checkpoint = tri_fs_exists(manifest);
    source->is_hf = !checkpoint && (layout == NULL || strcmp(layout, TRI_LAYOUT_NAME) != 0);
    source->is_foreign = source->is_hf && !tri_fs_exists(beside);
    if (checkpoint)
        TRI_TRY(tri_checkpoint_verify(weights));
    TRI_TRY(open_config(source, path, weights));
    if (source->config != NULL)
        TRI_TRY(untie_head(source));
    if (source->is_hf && source->config != NULL)
        TRI_TRY(tri_hf_names_ours(source->config, source->set, &source->arena, &source->views, &source->count));
    else
        TRI_TRY(views_as_stored(source));
    source->is_hf = source->is_hf && source->config != NULL;
    for (int i = 0; i < source->count; i++)
        TRI_TRY(tri_map_set(&source->names, source->views[i].name, i));
    return TRI_OK;
}

tri_status tri_pretrained_open(const char *path, tri_pretrained **out)
{
    *out = NULL;
    tri_pretrained *source = tri_alloc_zero(1, sizeof(*source));
    if (source == NULL)
        return TRI_ENOMEM;
    tri_status status = open_path(source, path);
    if (status != TRI_OK) {
        tri_pretrained_close(source);
        return status;
    }
    *out = source;
    return TRI_OK;
}

tri_hf_config *tri_pretrained_config(const tri_pretrained *source)
{
    return source->config;
}

bool tri_pretrained_is_foreign(const tri_pretrained *source)
{
    return source->is_foreign;
}

bool tri_pretrained_is_hf(const tri_pretrained *source)
{
    return source->is_hf;
}

const tri_tensor_set *tri_pretrained_tensors(const tri_pretrained *source)
{
    return source->set;
}

const tri_tensor_view *tri_pretrained_views(const tri_pretrained *source, int *count)
{
    *count = source->count;
    return source->views;
}

const tri_tensor_view *tri_pretrained_find(const tri_pretrained *source, const char *name)
{
    int64_t index;
    return tri_map_find(&source->names, name, &index) ? &source->views[index] : NULL;
}

const char *tri_pretrained_folder(const tri_pretrained *source)
{
    return source->folder;
}

const char *tri_pretrained_origin(const tri_pretrained *source)
{
    return tri_tensor_set_origin(source->set);
}

/* --- reading --- */

static bool is_kept(const tri_pretrained_load *options, const char *name)
{
    return options->keeps != NULL && options->keeps(options->keeps_arg, name);
}

static tri_status check_slice(const tri_pretrained *source, const tri_checkpoint_slice *slice, tri_name_list *missing)
{
    const tri_tensor_view *view = tri_pretrained_find(source, slice->name);
    char want[96], have[96];
    if (view == NULL)
        tri_name_list_add(missing, slice->name);
    else if (!tri_shape_equal(view->shape, slice->shape))
        return tri_fail(TRI_EFORMAT, "%s: '%s': the model needs %s, got %s (model.reinit initializes it)",
                        tri_pretrained_origin(source), slice->name, tri_shape_print(slice->shape, want),
                        tri_shape_print(view->shape, have));
    return TRI_OK;
}

/* Both ways: nothing of the model and nothing of the files is left over. */
static tri_status check_names(const tri_pretrained *source, const tri_checkpoint_slice *slices, int count,
                              const tri_pretrained_load *options, tri_map *wanted)
{
    const char *origin = tri_pretrained_origin(source);
    tri_name_list missing = {0}, unknown = {0};
    for (int i = 0; i < count; i++) {
        TRI_TRY(tri_map_set(wanted, slices[i].name, i));
        if (!is_kept(options, slices[i].name))
            TRI_TRY(check_slice(source, &slices[i], &missing));
    }
    for (int i = 0; i < source->count; i++) {
        const char *name = source->views[i].name;
        int64_t index;
        if (!tri_map_find(wanted, name, &index) && !is_kept(options, name))
            tri_name_list_add(&unknown, name);
    }
    int absent = missing.count;
    if (absent > 0)
        return tri_fail(TRI_EFORMAT, "%s: %d tensor%s of the model missing: %s%s%s", origin, absent,
                        absent > 1 ? "s" : "", tri_name_list_print(&missing),
                        unknown.count > 0 ? "; not of the model: " : "", tri_name_list_print(&unknown));
    if (unknown.count > 0)
        return tri_fail(TRI_EFORMAT, "%s: %d tensor%s that the model does not have: %s", origin, unknown.count,
                        unknown.count > 1 ? "s" : "", tri_name_list_print(&unknown));
    return TRI_OK;
}

tri_status tri_pretrained_check(const tri_pretrained *source, const tri_checkpoint_slice *slices, int count)
{
    tri_map wanted = {0};
    tri_status status = check_names(source, slices, count, &(tri_pretrained_load){0}, &wanted);
    tri_map_fini(&wanted);
    return status;
}

typedef struct read_progress {
    const tri_pretrained_load *options;
    int64_t done, all;
} read_progress;

/* All elements of a view, from first to last. */
static void view_read(const tri_tensor_view *view, int64_t elements, float *values, read_progress *progress)
{
    const tri_pretrained_load *options = progress->options;
    for (int64_t first = 0, piece; first < elements; first += piece) {
        piece = elements - first < PIECE_COUNT ? elements - first : PIECE_COUNT;
        tri_tensor_view_read(view, first, piece, values + first);
        if (options->progress != NULL)
            options->progress(options->progress_arg, progress->done + first + piece, progress->all);
    }
}

/* A slice that is with several is read here first. */
static tri_status slice_read(const tri_tensor_view *view, const tri_checkpoint_slice *slice, read_progress *progress)
{
    int64_t elements = tri_shape_count(slice->shape);
    if (slice->values) {
        view_read(view, elements, slice->values, progress);
        return TRI_OK;
    }
    float *values = tri_alloc_bulk((size_t)elements * sizeof(float));
    if (!values)
        return TRI_ENOMEM;
    view_read(view, elements, values, progress);
    tri_status status = slice->pieces->write(slice->pieces->arg, slice->at, elements, values);
    tri_free(values);
    return status;
}

tri_status tri_pretrained_read(const tri_pretrained *source, const tri_checkpoint_slice *slices, int count,
                               const tri_pretrained_load *options)
{
    tri_map wanted = {0};
    tri_status status = check_names(source, slices, count, options, &wanted);
    read_progress progress = {.options = options};
    tri_map_fini(&wanted);
    for (int i = 0; i < count; i++)
        progress.all += tri_shape_count(slices[i].shape);
    for (int i = 0; status == TRI_OK && i < count; i++) {
        if (!is_kept(options, slices[i].name))
            status = slice_read(tri_pretrained_find(source, slices[i].name), &slices[i], &progress);
        progress.done += tri_shape_count(slices[i].shape);
    }
    return status;
}
